"""What the library set out to reach on real tables: goals, what was found, and the verdict.

Each is counted apart on tables that were used to choose defaults and on those that were not.
"""

import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from experiments._bench_compare import REFERENCES, against_published, published
from experiments._bench_methods import CALIBRATED, ENSEMBLE, METHODS
from experiments._bench_problems import GROUPS, group
from experiments._bench_report import difference, epistemic_of, grown, markdown
from experiments._claims import OPEN, decide

CONSTANT = ("ridge, diagonal", "ridge", "ExtraTrees, diagonal", "ExtraTrees")
ENOUGH_ROWS = 500


class Goal(NamedTuple):
    """A goal of a part: what is claimed, the number that tells, what it should be, what it is, and the verdict.

    `tables` says on which group of tables.
    """

    part: str
    claim: str
    statistic: str
    aim: str
    ours: str
    verdict: str
    tables: str = ""

    def __str__(self) -> str:
        where = f"{self.part}, tables {self.tables}"
        return f"{self.verdict:18} {where}: {self.claim} ({self.statistic}; {self.aim}): {self.ours}"


def rows(results: dict[str, Any]) -> list[Goal]:
    """All goals that the results can tell of, each for every group of tables."""
    goals = (_constant, _networks, _full, _regions, _univariate, _oracle, _outside, _growth)
    parts = {name: _of_group(results, name) for name in GROUPS}
    return [row._replace(tables=name) for goal in goals for name, part in parts.items() for row in goal(part)]


def _of_group(results: dict[str, Any], wanted: str) -> dict[str, Any]:
    own = {label: problem for label, problem in results["problems"].items() if group(problem["name"]) == wanted}
    return {**results, "problems": own}


def table(results: dict[str, Any]) -> str:
    """The goals as a table of Markdown."""
    lines = [["goal", "tables", "aim", "result", "verdict"]]
    for goal in rows(results):
        ours = re.sub(r"(?<![\w-])-(?=\d)", "−", goal.ours)
        lines.append([f"{goal.part}: {goal.claim} ({goal.statistic})", goal.tables, goal.aim, ours, goal.verdict])
    return markdown(lines)


def joint(results: dict[str, Any]) -> dict[str, Any]:
    """The problems of part B with a NIW ensemble, by table."""
    problems = results["problems"].values()
    return {p["name"]: p for p in problems if p["part"] == "B" and ENSEMBLE in p["rows"]}


def _constant(results: dict[str, Any]) -> Iterator[Goal]:
    better, left_out = {}, set()
    for name, problem in joint(results).items():
        here, given = [row for row in CONSTANT if row in problem["rows"]], REFERENCES.get(name, ())
        known = [*given, *(np.mean(problem["rows"][row]["nll"]) for row in here)]
        if known:
            better[name] = float(np.mean(problem["rows"][ENSEMBLE]["nll"]) - min(known))
            left_out |= set() if given else set(CONSTANT) - set(here)
    if not better:
        return
    below = [value < 0 for value in better.values()]
    without = f" (not run: {', '.join(sorted(left_out))})" if left_out else ""
    yield Goal(
        "B",
        "the NIW ensemble beats every constant covariance in joint NLL",
        f"NLL minus the best of ridge and ExtraTrees, diagonal and full, given with the tables or run here{without}",
        "below 0 on all tables",
        _listed(better),
        OPEN if left_out and all(below) else decide(all(below), any(below)),
    )


def _networks(results: dict[str, Any]) -> Iterator[Goal]:
    tied = {}
    for name, problem in joint(results).items():
        others = [
            row
            for row, scores in problem["rows"].items()
            if METHODS[scores["method"]].neural and scores["method"] not in ("niw", "niw-calibrated")
        ]
        if others:
            best = min(others, key=lambda row: np.mean(problem["rows"][row]["nll"]))
            tied[name] = (difference(problem, ENSEMBLE, best), best)
    if tied:
        good, enough = sum(found.low <= 0 for found, _ in tied.values()), math.ceil(4 / 5 * len(tied))
        yield Goal(
            "B",
            "the NIW ensemble is the best network in joint NLL, or tied with the best",
            "NLL minus that of the best other network, 95 % interval over splits",
            f"{enough} of {len(tied)} tables (4/5)",
            f"{good} of {len(tied)}: " + "; ".join(f"{name} {found} ({best})" for name, (found, best) in tied.items()),
            decide(good >= enough, good),
        )


def _full(results: dict[str, Any]) -> Iterator[Goal]:
    row = "diagonal NIW ensemble"
    worth = {name: difference(p, row) for name, p in joint(results).items() if row in p["rows"]}
    if worth:
        yield Goal(
            "B",
            "the full covariance is worth something over the diagonal",
            "joint NLL with diagonal L minus that with full L, 95 % interval over splits",
            "above 0",
            "; ".join(f"{name} {found}" for name, found in worth.items()),
            decide(all(found.low > 0 for found in worth.values()), any(found.low > 0 for found in worth.values())),
        )


def _regions(results: dict[str, Any]) -> Iterator[Goal]:
    shares = {}
    for name, problem in joint(results).items():
        scores = problem["rows"].get(CALIBRATED)
        if scores and problem["test_rows"] * len(scores["nll"]) >= ENOUGH_ROWS:
            shares[name] = float(np.mean(scores["inside_90%"]))
    if shares:
        good = [0.88 <= share <= 0.92 for share in shares.values()]
        yield Goal(
            "B",
            "calibrated 90 % joint regions hold 90 % of the rows",
            f"share of the test rows inside, tables with at least {ENOUGH_ROWS} of them over all splits",
            "88 % to 92 %",
            ", ".join(f"{name} {share:.1%}" for name, share in shares.items()),
            decide(all(good), any(good)),
        )


def univariate(results: dict[str, Any], epochs: int) -> dict[str, Any]:
    """NLL of part A minus that of Deep Ensembles (2017), by table and row."""
    found = {}
    for problem in results["problems"].values():
        if problem["part"] == "A" and problem["name"].endswith(f", {epochs} epochs"):
            name = problem["name"].split(",")[0]
            known = published(name).get("Deep Ensembles 2017")
            if known:
                found[name] = {
                    row: against_published(scores["nll_in_units"], *known) for row, scores in problem["rows"].items()
                }
    return found


def _univariate(results: dict[str, Any]) -> Iterator[Goal]:
    own = {name: of[ENSEMBLE] for name, of in univariate(results, 40).items() if ENSEMBLE in of}
    if own:
        good, enough = sum(found.low <= 0 for found in own.values()), math.ceil(7 / 9 * len(own))
        yield Goal(
            "A",
            "after 40 epochs the NIW ensemble is better than Deep Ensembles (2017), or tied",
            "NLL in the target's unit minus the published one, 95 % interval as if splits were independent",
            f"{enough} of {len(own)} tables (7/9)",
            f"{good} of {len(own)}: " + "; ".join(f"{name} {found}" for name, found in own.items()),
            decide(good >= enough, good),
        )


def _oracle(results: dict[str, Any]) -> Iterator[Goal]:
    problem = results["problems"].get("C trivariate")
    if problem and ENSEMBLE in problem["rows"]:
        scores = problem["rows"][ENSEMBLE]
        above = float(np.mean(np.subtract(scores["nll_in_units"], scores["oracle"])))
        yield Goal(
            "C",
            "the NIW ensemble comes near the true distribution of three simulated targets",
            f"joint NLL minus that of the truth on the same rows ({np.mean(scores['oracle']):.3f})",
            "at most 0.05",
            f"{above:.3f}",
            decide(above <= 0.05),
        )


def _outside(results: dict[str, Any]) -> Iterator[Goal]:
    areas = {
        problem["name"]: float(np.mean(problem["rows"][ENSEMBLE]["auroc"]))
        for problem in results["problems"].values()
        if "auroc" in problem["rows"].get(ENSEMBLE, {})
    }
    if areas:
        yield Goal(
            "D",
            "epistemic uncertainty of the NIW ensemble is larger for rows unlike those of training",
            "area under the ROC curve of out against in",
            "above 0.5",
            ", ".join(f"{name} {area:.3f}" for name, area in areas.items()),
            decide(all(area > 0.5 for area in areas.values()), any(area > 0.5 for area in areas.values())),
        )


def _growth(results: dict[str, Any]) -> Iterator[Goal]:
    told, falls = [], []
    for name, own in grown(results).items():
        known = [problem for problem in own if ENSEMBLE in problem["rows"]]
        if len(known) > 1:
            values = epistemic_of(known, ENSEMBLE)
            told.append(f"{name} " + " → ".join(f"{value:.3g}" for value in values))
            falls.append(all(np.diff(values) < 0))
    if told:
        yield Goal(
            "D",
            "epistemic uncertainty of the NIW ensemble falls as the training part grows",
            "median epistemic variance on the test rows, mean over the same splits, from few to all training rows",
            "falls",
            "; ".join(told),
            decide(all(falls), any(falls)) if falls else OPEN,
        )


def _listed(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:+.3f}" for name, value in values.items())
