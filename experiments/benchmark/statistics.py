"""Numbers from saved results, which tables, goals and figures share.

A saved problem is a dictionary; its rows are known by their labels, which are the keys of `methods.ROWS`.
"""

import collections
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from experiments.benchmark.as_it_comes import AS_IT_COMES, OURS, REALMLP
from experiments.benchmark.comparisons import Difference, against_published, paired, published
from experiments.benchmark.methods import ENSEMBLE, ROWS
from experiments.benchmark.problems import GROUPS, Problem, all_problems, group

Saved = dict[str, Any]
ALL_ROWS = {**ROWS, **{row.label: row for method in AS_IT_COMES.values() for row in method.rows}}
RIVAL = "Deep Ensembles 2017"


def fields_of(problem: Problem) -> Saved:
    """What is saved of a problem besides its part and name, which is never parsed."""
    return {"table": problem.table, "epochs": problem.epochs, "fraction": problem.fraction}


def problems_of(results: Saved, part: str | None = None) -> list[Saved]:
    """The problems of saved results, of one part or of all; what an older document does not hold is known by label."""
    found = []
    for label, problem in results["problems"].items():
        if part in (None, problem["part"]):
            known = [] if "table" in problem else all_problems((problem["recipe"]["epochs"],), growth=3)
            fields = [fields_of(one) for one in known if one.label == label]
            found.append({**problem, **(fields[0] if fields else {})})
    return found


def by_group(problems: Iterable[Saved]) -> list[Saved]:
    """Problems on tables that were never used last."""
    return sorted(problems, key=lambda problem: GROUPS.index(group(problem["table"])))


# Rows with the forecast of another row but another epistemic uncertainty: they differ only in part D.
REPEATED = {label for label, row in ROWS.items() if row.epistemic != "usual"}


def labels_of(problems: Iterable[Saved], repeated: bool = True) -> list[str]:
    """Rows that any of the problems has, in the order of the methods, with or without those that are repeated."""
    present = {label for problem in problems for label in problem["rows"]} - (set() if repeated else REPEATED)
    return [label for label in ALL_ROWS if label in present]


def difference(problem: Saved, label: str, other: str = ENSEMBLE, score: str = "nll") -> Difference:
    """NLL, or another score, of a row minus that of another."""
    ours, theirs = problem["rows"][label][score], problem["rows"][other][score]
    return paired(ours, theirs, problem["training_rows"], problem["test_rows"])


def to_rival(problem: Saved) -> dict[str, Difference]:
    """NLL of all rows of a problem of part A minus the published one of Deep Ensembles; empty if there is none."""
    known = published(problem["table"]).get(RIVAL)
    if known is None:
        return {}
    return {label: against_published(row["nll_in_units"], *known) for label, row in problem["rows"].items()}


def joint(problems: Iterable[Saved]) -> dict[str, Saved]:
    """The problems of part B with a NIW ensemble, by table."""
    return {p["table"]: p for p in problems if p["part"] == "B" and ENSEMBLE in p["rows"]}


def univariate(problems: Iterable[Saved], epochs: int) -> dict[str, dict[str, Difference]]:
    """`to_rival` of the problems of part A with this number of epochs, by table."""
    found = {p["table"]: to_rival(p) for p in problems if p["part"] == "A" and p["epochs"] == epochs}
    return {table: differences for table, differences in found.items() if differences}


def grown(problems: Iterable[Saved]) -> dict[str, list[Saved]]:
    """By table, the problems on which training parts grow, smallest first; the last is that of part B."""
    found: dict[str, list[Saved]] = {}
    for problem in sorted(problems, key=lambda problem: problem["training_rows"]):
        table = problem["table"]
        if problem["fraction"] < 1 or (problem["part"] == "B" and table in found):
            found.setdefault(table, []).append(problem)
    return {table: own for table, own in found.items() if own[-1]["part"] == "B"}


def epistemic_of(own: list[Saved], label: str) -> list[float]:
    """For each problem the median epistemic variance of test rows, averaged over the splits that all problems have."""
    values = [problem["rows"][label]["epistemic"] for problem in own]
    splits = min(map(len, values))
    return [float(np.mean(of[:splits])) for of in values]


def chosen_rates(problem: Saved) -> dict[str, str]:
    """Which learning rate how many splits have chosen, by method: "0.01 (18), 0.003 (2)"."""
    own = {row["method"]: row["rates"] for row in problem["rows"].values() if "rates" in row}
    counts = {method: collections.Counter(rates).most_common() for method, rates in own.items()}
    return {method: ", ".join(f"{rate:g} ({count})" for rate, count in of) for method, of in counts.items()}


class Rival(NamedTuple):
    """The row of another method on a table, its mean score over the splits that ours has too, and how ours compares."""

    label: str
    value: float
    ours: float
    difference: Difference  # in the score, ours minus it


def as_it_comes(problems: Iterable[Saved]) -> list[Saved]:
    """The problems of part E that ours was run on with at least one other method."""
    return [p for p in problems if p["part"] == "E" and OURS in p["rows"] and len(p["rows"]) > 1]


def best_rival(problem: Saved) -> Rival | None:
    """In joint NLL: that of which the difference to ours has the highest lower end; None if all others failed."""
    found = _rivals(problem, "nll")
    return max(found, key=lambda rival: (rival.difference.low, rival.difference.mean), default=None)


def nearest_in_rmse(problem: Saved) -> Rival | None:
    """In rmse: that of which the ratio of ours to it is the largest."""
    return max(_rivals(problem, "rmse"), key=lambda rival: rival.ours / rival.value, default=None)


def _rivals(problem: Saved, score: str) -> list[Rival]:
    """All other methods whose scores are finite in all splits, over the splits that both have."""
    rows, found = problem["rows"], []
    finite = np.isfinite(rows[OURS][score]).all()
    for label, row in rows.items():
        if label != OURS and np.isfinite(row[score]).all():
            count = min(len(row[score]), len(rows[OURS][score]))
            value, ours = (float(np.mean(of[score][:count])) for of in (row, rows[OURS]))
            lost = Difference(math.inf, math.inf, math.inf, 0.0)
            found.append(Rival(label, value, ours, difference(problem, OURS, label, score) if finite else lost))
    return found


def seconds_of_training(problem: Saved) -> tuple[float, float] | None:
    """Of ours and of one RealMLP-TD, for one split on one core; None if it was not run."""
    rows = problem["rows"]
    return (rows[OURS]["training"], rows[REALMLP]["training"]) if REALMLP in rows else None


def not_run(problem: Saved) -> list[str]:
    """Methods of part E that were neither run nor left out for the size of the table."""
    present = {row["method"] for row in problem["rows"].values()} | set(problem["left_out"])
    return [name for name in AS_IT_COMES if name not in present]
