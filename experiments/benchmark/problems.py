"""What is measured: parts A to E, each a list of problems, and what a problem adds to the usual scores.

A  one target, the protocol of Hernández-Lobato and Adams (2015): a hidden layer of 50 units (protein: 100).
B  several targets at once.
C  simulated tables whose true distribution is known.
D  rows unlike those of training: later ones, a block of the inputs held out, a gap; and smaller training parts.
E  tables as they come, with one and several targets: what people use, each with its authors' defaults.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pyarrow as pa

import mder_jax as mder
from experiments.benchmark import mixed_tables
from experiments.benchmark.networks import WIDTHS, Recipe, held_out_and_batch
from experiments.benchmark.splits import TableTasks, Tasks, joined, make_table_tasks, make_tasks, seeded_splits
from experiments.harness.storage import ResultsError
from mder_jax.datasets import real_tables

UNIVARIATE = ("protein", "naval", "power", "kin8nm", "wine-red", "concrete", "energy", "boston", "yacht")
JOINT = ("naval", "births1", "ansur2", "energy", "slump", "rf1")
BLOCKS = ("births1", "energy")
FEW_SPLITS = ("protein", "trivariate", "rf1")
# On these the defaults of the estimator and of the networks here were chosen, or may be (docs/defaults); on no other.
USED_TO_CHOOSE = (
    *("slump", "yacht", "energy", "concrete", "wine-red", "kin8nm", "naval", "births1", "ansur2", "power"),
    *("trivariate", "protein"),
    *mixed_tables.TO_CHOOSE,
)
SIMULATED_HERE = ("circle", "gap")
SETS = tuple(sorted([*real_tables.SOURCES, *mixed_tables.SOURCES, *SIMULATED_HERE]))
GROUPS = USED, NEVER_USED, SIMULATED = ("used to choose defaults", "never used to choose anything", "simulated here")
MOST_EPOCHS, LONG = 500, 100  # epochs
SMALL, LARGE = 500, 5000  # rows
BLOCK_FRACTION, IN_FRACTION = 0.2, 0.1
FIRST_OF_RF1 = 4108
GAP, CUBIC_POINTS = 1.5, 1000
CIRCLE_POINTS, ANGLES = 300, (np.arange(200) + 0.5) / 200 * 2 * np.pi

ALL = (
    *("ridge", "trees", "niw", "niw-calibrated", "niw-diagonal", "nig", "gaussian", "gaussian-diagonal", "dropout"),
    *("process", "ngboost"),
)
WITH_TRUTH = ("ridge", "trees", "niw", "niw-diagonal", "nig", "gaussian", "gaussian-diagonal", "ngboost")
WITH_EPISTEMIC = ("niw", "nig", "gaussian", "dropout", "process")
OF_TABLES = (
    *("mder", "catboost", "catboost-uncertainty", "xgboost", "lightgbm", "realmlp", "tabm", "trees", "ngboost"),
    *("process", "ridge"),
)
# Seconds of a split for each row, about; ensembles in part A, and in all others.
SECONDS = {"ngboost": 2e-3, "trees": 4e-4, "process": 2e-3, "ridge": 0.0, "nig": 3e-4, "dropout": 6e-4}
SECONDS |= {"realmlp": 2e-2, "tabm": 1e-1, "xgboost": 1e-3, "lightgbm": 1e-3, "catboost-uncertainty": 1e-3}
SECONDS_SHORT, SECONDS_LONG = 1e-3, 3e-3

Scores = dict[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A table, the task on it, the methods to run, and what to measure besides the usual scores."""

    part: str  # "A" to "E"
    table: str  # its name, also if it is simulated here
    epochs: int | None = None  # of part A; None for as many as the steps allow
    fraction: float = 1.0  # of the training rows that are used
    block: bool = False  # whether a block of the inputs is held out
    one_target: bool = False  # whether only the first of several targets is to be predicted
    make: Callable[["Problem", int], Any]  # (problem, splits) -> tasks
    methods: tuple[str, ...] = ALL  # names; those of part A are options
    more: Callable[[Scores, Any], dict[str, Any]] | None = None  # (scores of the rows, tasks) -> further scores

    @property
    def name(self) -> str:
        """Unique within its part."""
        length = f"{self.epochs} epochs" if self.epochs else ""
        rows = "block" if self.block else f"{self.fraction:.0%} of the rows" if self.fraction < 1 else ""
        targets = "one target" if self.one_target else ""
        return ", ".join(filter(None, (self.table, length, rows, targets)))

    @property
    def label(self) -> str:
        """Unique among all problems."""
        return f"{self.part} {self.name}"

    @property
    def rows(self) -> int:
        """Of the table, about."""
        if self.table in SIMULATED_HERE:
            return 1000
        mixed = mixed_tables.SOURCES.get(self.table)
        return mixed.rows if mixed else real_tables.SOURCES[self.table].rows

    def seconds(self, method: str, splits: int) -> float:
        """The time of a method, about, to begin with the longest."""
        return splits * self.rows * SECONDS.get(method, SECONDS_SHORT if self.part == "A" else SECONDS_LONG)

    def tasks(self, splits: int) -> Tasks | TableTasks:
        """Tasks of the first splits; five of protein, as in the protocol, and of some others to save time."""
        long = (self.epochs or 0) > LONG or self.table in mixed_tables.SOURCES
        if self.table in FEW_SPLITS or self.fraction < 1 or (long and self.rows > LARGE):
            splits = min(splits, 5)
        return self.make(self, min(splits, 10) if self.block else splits)

    def recipe(self, config: Any, rows: int) -> Recipe | None:
        """Of the networks, given the training rows: that of the protocol, or the usual one as long as steps allow.

        In part E each method has its own, and there is none here.
        """
        if self.part == "E":
            return None
        if self.epochs:
            widths = (100,) if self.table == "protein" else (50,)
            return Recipe(widths, self.epochs, config.members, config.seed, config.rates)
        held_out, batch = held_out_and_batch(rows)
        epochs = min(MOST_EPOCHS, max(1, config.steps // -(-(rows - held_out) // batch)))
        members = config.small_members if rows <= SMALL else config.members
        return Recipe(WIDTHS, epochs, members, config.seed, config.rates)


def all_problems(epochs: Iterable[int], growth: int) -> list[Problem]:
    """All problems: part A with each number of epochs, part D with `growth` smaller training parts."""
    fractions = [0.25**power for power in range(1, growth + 1)]
    lengths = sorted(epochs, reverse=True)
    truth: dict[str, Any] = {"part": "C", "methods": WITH_TRUTH}
    unlike: dict[str, Any] = {"part": "D", "methods": WITH_EPISTEMIC, "more": _in_and_out}
    whole: dict[str, Any] = {"part": "E", "methods": OF_TABLES, "make": _as_it_comes}
    few: dict[str, Any] = {"part": "D", "methods": WITH_EPISTEMIC, "make": _seeded}
    return [
        *(Problem(part="A", table=t, epochs=e, make=_seeded, more=_in_units) for e in lengths for t in UNIVARIATE),
        *(Problem(part="B", table=table, make=_seeded) for table in JOINT),
        Problem(**truth, table="trivariate", make=_seeded, more=_trivariate_truth),
        Problem(**truth, table="circle", make=_circle, more=_circle_truth),
        Problem(**unlike, table="rf1", make=_later),
        Problem(**unlike, table="gap", make=_gap),
        *(Problem(**unlike, table=table, block=True, make=_block) for table in BLOCKS),
        *(Problem(**few, table=table, fraction=fraction) for table in BLOCKS for fraction in fractions),
        *(Problem(**whole, table=table, one_target=table in JOINT, more=_in_units) for table in UNIVARIATE),
        *(Problem(**whole, table=table) for table in JOINT),
        *(Problem(**whole, table=table, more=_more_of(source)) for table, source in mixed_tables.SOURCES.items()),
    ]


def group(table: str) -> str:
    """The group of a table, in words: whether its numbers may be a little too good."""
    if table in SIMULATED_HERE:
        return SIMULATED
    return USED if table in USED_TO_CHOOSE else NEVER_USED


def missing(tables: Iterable[str]) -> dict[str, str]:
    """Why a table cannot be read, by name."""
    found = {}
    for name in sorted(set(tables) - set(SIMULATED_HERE)):
        try:
            (mixed_tables if name in mixed_tables.SOURCES else real_tables).locate(name)
        except mder.datasets.MissingTableError as error:
            found[name] = str(error)
    return found


def _table(name: str) -> mder.datasets.RealTable:
    """A real table; a file that is another one ends the run with a sentence."""
    try:
        return mder.datasets.real(name)
    except ValueError as error:
        raise ResultsError(str(error)) from None


def _seeded(problem: Problem, splits: int) -> Tasks:
    """Random splits, of one target in part A; a fraction of a training part are its first rows, in random order."""
    table = _table(problem.table)
    targets = table.Y[:, :1] if problem.part == "A" else table.Y
    parts = seeded_splits(len(table.X), splits)
    return make_tasks(
        table.X, targets, [(train[: round(problem.fraction * len(train))], test) for train, test in parts]
    )


def _as_it_comes(problem: Problem, splits: int) -> TableTasks:
    """Random splits of a table with all its columns, of the first target or of all."""
    if problem.table in mixed_tables.SOURCES:
        X, Y = _mixed_table(problem.table)[1:]
    else:
        table = _table(problem.table)
        X, Y = pa.table({f"x{place}": column for place, column in enumerate(table.X.T)}), table.Y
    return make_table_tasks(X, Y[:, :1] if problem.one_target else Y, seeded_splits(len(Y), splits))


def _mixed_table(name: str) -> mixed_tables.MixedTable:
    """A table with columns of any kind; a file that is another one ends the run with a sentence."""
    try:
        return mixed_tables.read(name)
    except ValueError as error:
        raise ResultsError(str(error)) from None


def _later(problem: Problem, splits: int) -> Tasks:
    """Rows in time order: a tenth of the first ones is "in", the later ones are "out"."""
    table = _table(problem.table)
    first, later = np.split(np.arange(len(table.X)), [FIRST_OF_RF1])
    return _in_out_tasks(table.X, table.Y, [(first, later)] * splits)


def _block(problem: Problem, splits: int) -> Tasks:
    """Out is the fifth of the rows at one end of a principal component of the inputs: each split has its own end."""
    table = _table(problem.table)
    X = (table.X - table.X.mean(0)) / np.maximum(table.X.std(0), 1e-12)
    scores = X @ np.linalg.svd(X, full_matrices=False)[2].T
    cut = len(X) - round(BLOCK_FRACTION * len(X))
    # a stable order: inputs of designed experiments have ties
    ends = [scores[:, split // 2] * (1 if split % 2 else -1) for split in range(splits)]
    orders = [np.argsort(end, kind="stable") for end in ends]
    return _in_out_tasks(table.X, table.Y, [(order[:cut], order[cut:]) for order in orders])


def _in_out_tasks(X: np.ndarray, Y: np.ndarray, parts: list[tuple[np.ndarray, np.ndarray]]) -> Tasks:
    """Tasks whose test rows are a tenth of the rows to learn from, left out at random, and then those that are out."""
    splits = []
    for number, (within, out) in enumerate(parts):
        order = np.random.RandomState(number).permutation(within)
        cut = len(order) - round(IN_FRACTION * len(order))
        splits.append((order[:cut], np.concatenate([order[cut:], out])))
    tasks = make_tasks(X, Y, splits)
    outside = np.stack([np.isin(test, out) for (_, test), (_, out) in zip(splits, parts, strict=True)])
    return tasks._replace(outside=outside)


def _gap(problem: Problem, splits: int) -> Tasks:
    """y = x³ + N(0, 3²): trained on 1.5 < |x| < 4; in are new points there, out are those of the gap."""
    parts = []
    for split in range(splits):
        drawn = mder.datasets.cubic(jax.random.key(split), 3 * CUBIC_POINTS)
        x, y = np.asarray(drawn.X, np.float64), np.asarray(drawn.Y, np.float64)
        outside = np.abs(x[:, 0]) < GAP
        within, gap = np.flatnonzero(~outside), np.flatnonzero(outside)
        train, test = within[:CUBIC_POINTS], np.concatenate([within[CUBIC_POINTS:][:300], gap[:300]])
        parts.append(make_tasks(x, y, [(train, test)])._replace(outside=outside[None, test]))
    return joined(parts)


def _circle(problem: Problem, splits: int) -> Tasks:
    """Every split has 300 separate points; test points are evenly spaced in t."""
    parts = []
    for split in range(splits):
        seen = mder.datasets.circle(jax.random.key(split), CIRCLE_POINTS)
        radius = 1 + 0.1 * np.random.RandomState(split).normal(size=(len(ANGLES), 1))
        new = radius * np.asarray(mder.datasets.circle_mean(ANGLES))
        X, Y = np.concatenate([seen.X, ANGLES[:, None]]), np.concatenate([seen.Y, new])
        rows = np.arange(len(X))
        parts.append(make_tasks(X, Y, [(rows[:CIRCLE_POINTS], rows[CIRCLE_POINTS:])]))
    return joined(parts)


def _more_of(source: mixed_tables.Source) -> Callable[[Scores, TableTasks], dict[str, Any]] | None:
    """Scores in the unit of the target, if there is one."""
    return _in_units if len(source.targets) == 1 else None


def _in_units(rows: Scores, tasks: Tasks | TableTasks) -> dict[str, Any]:
    """NLL and rmse of one target in its own unit."""
    unit = tasks.unit[:, 0]
    rmse = unit * np.sqrt(np.mean(rows["errors"][..., 0] ** 2, axis=1))
    return {"nll_in_units": (rows["nll"].mean(1) + np.log(unit)).tolist(), "rmse_in_units": rmse.tolist()}


def _trivariate_truth(rows: Scores, tasks: Tasks) -> dict[str, Any]:
    """NLL in units, that of the truth, and errors of standard deviations and correlations."""
    table = _table("trivariate")
    std, mean = (np.stack([table.truth[f"{of}_{j}"] for j in (1, 2, 3)], 1)[tasks.rows] for of in ("scale", "location"))
    correlation = np.broadcast_to(np.eye(3), (*std.shape, 3)).copy()
    for j, k in ((1, 2), (1, 3), (2, 3)):
        correlation[..., j - 1, k - 1] = correlation[..., k - 1, j - 1] = table.truth[f"rho_{j}{k}"][tasks.rows]
    factor = np.linalg.cholesky(std[..., None] * correlation * std[..., None, :])
    white = np.linalg.solve(factor, (table.Y[tasks.rows] - mean)[..., None])[..., 0]
    log_determinant = 0.5 * np.linalg.slogdet(correlation)[1] + np.log(std).sum(-1)
    oracle = np.mean(0.5 * (white**2).sum(-1) + log_determinant + 1.5 * np.log(2 * np.pi), axis=1)
    nll = rows["nll"].mean(1) + np.log(tasks.unit).sum(1)
    errors = _against(rows["covariance"], std / tasks.unit[:, None], correlation)
    return {"oracle": oracle.tolist(), "nll_in_units": nll.tolist(), **errors}


def _circle_truth(rows: Scores, tasks: Tasks) -> dict[str, Any]:
    """In the middle 60 % of each quadrant: on the axes a standard deviation is 0 and there is no correlation."""
    middle = np.abs(ANGLES % (np.pi / 2) / (np.pi / 2) - 0.5) < 0.3
    truth = np.asarray(mder.datasets.circle_covariance(ANGLES[middle]), np.float64)
    std = np.sqrt(np.diagonal(truth, axis1=-2, axis2=-1))
    correlation = np.broadcast_to(truth / (std[:, :, None] * std[:, None]), (tasks.splits, *truth.shape))
    return _against(rows["covariance"][:, middle], std / tasks.unit[:, None], correlation)


def _against(covariance: np.ndarray, std: np.ndarray, correlation: np.ndarray) -> dict[str, Any]:
    """Root mean square error of predicted standard deviations, relative to the true ones, and of correlations."""
    predicted = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
    error = covariance / (predicted[..., None] * predicted[..., None, :]) - correlation
    pairs = np.triu_indices(covariance.shape[-1], 1)
    return {
        "std_error": np.sqrt(np.mean((predicted / std - 1) ** 2, axis=(1, 2))).tolist(),
        "correlation_error": np.sqrt(np.mean(error[..., pairs[0], pairs[1]] ** 2, axis=(1, 2))).tolist(),
    }


def _in_and_out(rows: Scores, tasks: Tasks) -> dict[str, Any]:
    """How well epistemic uncertainty separates rows in and out, total uncertainty errors by size; NLL of each."""
    from scipy.stats import rankdata
    from sklearn.metrics import roc_auc_score

    found: dict[str, list[float]] = {"auroc": [], "ause": [], "nll_in": [], "nll_out": [], "auroc_total": []}
    variance = np.trace(rows["covariance"], axis1=-2, axis2=-1)
    for split, outside in enumerate(tasks.outside):
        for name, values in (("auroc", rows["epistemic"]), ("auroc_total", variance)):
            ranks = rankdata(np.nan_to_num(values[split], nan=np.inf))
            found[name].append(float(roc_auc_score(outside, ranks)))
        size = np.linalg.norm(rows["errors"][split], axis=1)[:, None]
        around = mder.StudentT(np.inf, size, np.ones((*size.shape, 1)))  # so that 0 is as far off as the row was
        found["ause"].append(float(mder.metrics.ause(np.zeros(size.shape), around, np.sqrt(variance[split]))))
        found["nll_in"].append(float(rows["nll"][split][~outside].mean()))
        found["nll_out"].append(float(rows["nll"][split][outside].mean()))
    return found
