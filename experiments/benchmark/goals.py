"""What the library set out to reach on real tables: goals, what was found, and the verdict.

Each is counted apart on tables that were used to choose defaults and on those that were not.
"""

import math
import re
from typing import Any, NamedTuple

import numpy as np

from experiments.benchmark.as_it_comes import OURS
from experiments.benchmark.comparisons import REFERENCES, Difference
from experiments.benchmark.methods import CALIBRATED, ENSEMBLE, METHODS
from experiments.benchmark.problems import GROUPS, UNIVARIATE, group
from experiments.benchmark.statistics import (
    Saved,
    as_it_comes,
    best_rival,
    difference,
    epistemic_of,
    grown,
    joint,
    nearest_in_rmse,
    not_run,
    problems_of,
    seconds_of_training,
    univariate,
)
from experiments.harness.claims import HOLDS, OPEN, decide
from experiments.harness.report_page import markdown

CONSTANT = [row.label for name in ("ridge", "trees") for row in METHODS[name].rows]
OTHER_NETWORKS = {name for name, method in METHODS.items() if method.neural} - {"niw", "niw-calibrated"}
ENOUGH_ROWS = 500
# In the unit of the target, at most: (score, aim) of part E.
IN_UNITS = {
    "power": (("rmse", 3.40), ("NLL", 2.57)),
    "protein": (("rmse", 3.45), ("NLL", 2.12)),
    "concrete": (("rmse", 4.5),),
}
NEAR, FAR = 1.02, 1.10  # rmse relative to the best


class Goal(NamedTuple):
    """A goal of a part of the benchmark."""

    part: str
    claim: str
    statistic: str  # the number that decides
    aim: str  # what it should be
    ours: str  # what it is
    verdict: str
    tables: str = ""  # the group of tables

    def __str__(self) -> str:
        where = f"{self.part}, tables {self.tables}"
        return f"{self.verdict:18} {where}: {self.claim} ({self.statistic}; {self.aim}): {self.ours}"


def rows(results: Saved) -> list[Goal]:
    """All goals that the results can decide, each for every group of tables."""
    problems = problems_of(results)
    parts = {name: [problem for problem in problems if group(problem["table"]) == name] for name in GROUPS}
    found = [(goal(part), name) for goal in GOALS for name, part in parts.items()]
    return [goal._replace(tables=name) for goal, name in found if goal]


def table(results: Saved) -> str:
    """The goals as a table of Markdown."""
    lines = [["goal", "tables", "aim", "result", "verdict"]]
    for goal in rows(results):
        ours = re.sub(r"(?<![\w-])-(?=\d)", "−", goal.ours)
        lines.append([f"{goal.part}: {goal.claim} ({goal.statistic})", goal.tables, goal.aim, ours, goal.verdict])
    return markdown(lines)


def _every(found: dict[str, tuple[str, bool]], separator: str = ", ", **texts: str) -> Goal | None:
    """A goal that every table should reach, from what is shown of each and whether it does; None without tables."""
    if not found:
        return None
    good = [reached for _, reached in found.values()]
    ours = separator.join(f"{name} {shown}" for name, (shown, _) in found.items())
    return Goal(ours=ours, verdict=decide(all(good), any(good)), **texts)


def _most(found: dict[str, tuple[Difference, str]], count: int, of: int, **texts: str) -> Goal | None:
    """A goal that `count` of `of` tables should reach: a difference, with its remark, is not clearly above 0."""
    if not found:
        return None
    good, enough = sum(value.low <= 0 for value, _ in found.values()), math.ceil(count / of * len(found))
    listed = "; ".join(f"{name} {value}{remark}" for name, (value, remark) in found.items())
    aim = f"{enough} of {len(found)} tables ({count}/{of})"
    return Goal(aim=aim, ours=f"{good} of {len(found)}: {listed}", verdict=decide(good >= enough, good), **texts)


def _constant(problems: list[Saved]) -> Goal | None:
    found, left_out = {}, set()
    for name, problem in joint(problems).items():
        here, given = [label for label in CONSTANT if label in problem["rows"]], REFERENCES.get(name, ())
        known = [*given, *(np.mean(problem["rows"][label]["nll"]) for label in here)]
        if known:
            below = float(np.mean(problem["rows"][ENSEMBLE]["nll"]) - min(known))
            found[name] = (f"{below:+.3f}", below < 0)
            left_out |= set() if given else set(CONSTANT) - set(here)
    without = f" (not run: {', '.join(sorted(left_out))})" if left_out else ""
    what = "NLL minus the best of ridge and ExtraTrees, diagonal and full, given with the tables or run here"
    claim = "the NIW ensemble beats every constant covariance in joint NLL"
    goal = _every(found, part="B", claim=claim, statistic=what + without, aim="below 0 on all tables")
    return goal._replace(verdict=OPEN) if goal and left_out and goal.verdict == HOLDS else goal


def _networks(problems: list[Saved]) -> Goal | None:
    tied = {}
    for name, problem in joint(problems).items():
        nll = {label: np.mean(row["nll"]) for label, row in problem["rows"].items() if row["method"] in OTHER_NETWORKS}
        if nll:
            best = min(nll, key=lambda label: nll[label])
            tied[name] = (difference(problem, ENSEMBLE, best), f" ({best})")
    claim = "the NIW ensemble is the best network in joint NLL, or tied with the best"
    what = "NLL minus that of the best other network, 95 % interval over splits"
    return _most(tied, 4, 5, part="B", claim=claim, statistic=what)


def _full(problems: list[Saved]) -> Goal | None:
    diagonal = METHODS["niw-diagonal"].rows[-1].label
    worth = {name: difference(p, diagonal) for name, p in joint(problems).items() if diagonal in p["rows"]}
    found = {name: (str(value), value.low > 0) for name, value in worth.items()}
    claim = "the full covariance is worth something over the diagonal"
    what = "joint NLL with diagonal L minus that with full L, 95 % interval over splits"
    return _every(found, "; ", part="B", claim=claim, statistic=what, aim="above 0")


def _regions(problems: list[Saved]) -> Goal | None:
    found = {}
    for name, problem in joint(problems).items():
        row = problem["rows"].get(CALIBRATED)
        if row and problem["test_rows"] * len(row["nll"]) >= ENOUGH_ROWS:
            fraction = float(np.mean(row["inside_90%"]))
            found[name] = (f"{fraction:.1%}", 0.88 <= fraction <= 0.92)
    claim = "calibrated 90 % joint regions hold 90 % of the rows"
    what = f"fraction of the test rows inside, tables with at least {ENOUGH_ROWS} of them over all splits"
    return _every(found, part="B", claim=claim, statistic=what, aim="88 % to 92 %")


def _univariate(problems: list[Saved]) -> Goal | None:
    found = {name: (of[ENSEMBLE], "") for name, of in univariate(problems, 40).items() if ENSEMBLE in of}
    claim = "after 40 epochs the NIW ensemble is better than Deep Ensembles (2017), or tied"
    what = "NLL in the target's unit minus the published one, 95 % interval as if splits were independent"
    return _most(found, 7, 9, part="A", claim=claim, statistic=what)


def _oracle(problems: list[Saved]) -> Goal | None:
    known = list(_rows_with("oracle", problems).values())
    if not known:
        return None
    above = float(np.mean(np.subtract(known[0]["nll_in_units"], known[0]["oracle"])))
    claim = "the NIW ensemble comes near the true distribution of three simulated targets"
    what = f"joint NLL minus that of the truth on the same rows ({np.mean(known[0]['oracle']):.3f})"
    return Goal("C", claim, what, "at most 0.05", f"{above:.3f}", decide(above <= 0.05))


def _rows_with(score: str, problems: list[Saved]) -> dict[str, Any]:
    """Rows of the NIW ensemble that have a score, by problem."""
    found = {problem["name"]: problem["rows"].get(ENSEMBLE, {}) for problem in problems}
    return {name: row for name, row in found.items() if score in row}


def _outside(problems: list[Saved]) -> Goal | None:
    areas = {name: float(np.mean(row["auroc"])) for name, row in _rows_with("auroc", problems).items()}
    found = {name: (f"{area:.3f}", area > 0.5) for name, area in areas.items()}
    claim = "epistemic uncertainty of the NIW ensemble is larger for rows unlike those of training"
    return _every(found, part="D", claim=claim, statistic="area under the ROC curve of out against in", aim="above 0.5")


def _growth(problems: list[Saved]) -> Goal | None:
    found = {}
    for name, own in grown(problems).items():
        known = [problem for problem in own if ENSEMBLE in problem["rows"]]
        if len(known) > 1:
            values = epistemic_of(known, ENSEMBLE)
            found[name] = (" → ".join(f"{value:.3g}" for value in values), bool(np.all(np.diff(values) < 0)))
    claim = "epistemic uncertainty of the NIW ensemble falls as the training part grows"
    what = "median epistemic variance on the test rows, mean over the same splits, from few to all training rows"
    return _every(found, "; ", part="D", claim=claim, statistic=what, aim="falls")


def _hardest(problems: list[Saved]) -> dict[str, tuple[Difference, str]]:
    """NLL of ours minus that of the hardest rival, and who it is, by problem."""
    rivals = {problem["name"]: best_rival(problem) for problem in problems}
    return {name: (rival.difference, f" ({rival.label})") for name, rival in rivals.items() if rival}


def _undecided(goal: Goal | None, problems: list[Saved]) -> Goal | None:
    """A goal that holds against all methods that were run stays open if some were not."""
    missing = sorted({name for problem in problems for name in not_run(problem)})
    if goal is None or not missing:
        return goal
    statistic = f"{goal.statistic} (not run everywhere: {', '.join(missing)})"
    return goal._replace(statistic=statistic, verdict=OPEN if goal.verdict == HOLDS else goal.verdict)


RIVALS = "95 % interval over splits, corrected, against the hardest rival"


def _joint_as_it_comes(problems: list[Saved]) -> Goal | None:
    own = [problem for problem in as_it_comes(problems) if problem["targets"] > 1]
    claim = "several targets: the best method in joint NLL, or tied with the best"
    return _undecided(_most(_hardest(own), 1, 1, part="E", claim=claim, statistic=f"NLL difference, {RIVALS}"), own)


def _one_target_as_it_comes(problems: list[Saved]) -> Goal | None:
    own = [problem for problem in as_it_comes(problems) if problem["targets"] == 1 and problem["table"] in UNIVARIATE]
    claim = "one target: the best method in NLL, or tied with the best, on the UCI tables"
    return _undecided(_most(_hardest(own), 8, 9, part="E", claim=claim, statistic=f"NLL difference, {RIVALS}"), own)


def _rmse(problems: list[Saved]) -> Goal | None:
    own = as_it_comes(problems)
    nearest = {problem["name"]: nearest_in_rmse(problem) for problem in own}
    ratios = {name: (rival.ours / rival.value, rival.label) for name, rival in nearest.items() if rival}
    if not ratios:
        return None
    values = [ratio for ratio, _ in ratios.values()]
    near, enough = sum(ratio <= NEAR for ratio in values), math.ceil(0.75 * len(values))
    listed = "; ".join(f"{name} {ratio:.3f} ({label})" for name, (ratio, label) in ratios.items())
    claim = "rmse is near that of the best method"
    what = "rmse of ours divided by that of the best other, over the same splits"
    aim = f"at most {NEAR:.2f} on {enough} of {len(values)} tables (3/4), never above {FAR:.2f}"
    verdict = decide(near >= enough and max(values) <= FAR, near)
    ours = f"{near} of {len(values)}, at most {max(values):.3f}: {listed}"
    return _undecided(Goal("E", claim, what, aim, ours, verdict), own)


def _in_units(problems: list[Saved]) -> Goal | None:
    found = {}
    for problem in problems:
        row = problem["rows"].get(OURS, {}) if problem["part"] == "E" else {}
        for score, aim in IN_UNITS.get(problem["table"], ()) if "rmse_in_units" in row else ():
            value = float(np.mean(row[f"{score.lower()}_in_units"]))
            found[f"{problem['table']} {score}"] = (f"{value:.3f} ({aim:.2f})", value <= aim)
    claim = "one target: NLL and rmse in its own unit are as good as those of tuned ensembles"
    return _every(found, part="E", claim=claim, statistic="mean over splits (aim)", aim="at most the aims in brackets")


def _faster(problems: list[Saved]) -> Goal | None:
    seconds = {problem["name"]: seconds_of_training(problem) for problem in as_it_comes(problems)}
    known = {name: both for name, both in seconds.items() if both}
    found = {name: (f"{ours:.1f} ({theirs:.1f})", ours < theirs) for name, (ours, theirs) in known.items()}
    claim = "all members together train faster than one RealMLP-TD"
    what = "seconds of a split on one core, compiling included (those of RealMLP-TD)"
    return _every(found, part="E", claim=claim, statistic=what, aim="fewer on all tables")


GOALS = (
    *(_constant, _networks, _full, _regions, _univariate, _oracle, _outside, _growth),
    *(_joint_as_it_comes, _one_target_as_it_comes, _rmse, _in_units, _faster),
)
