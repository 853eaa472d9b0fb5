"""What is measured: parts A to D, each a list of problems, and what a problem adds to the usual scores.

A  one target, the protocol of Hernández-Lobato and Adams (2015): a hidden layer of 50 units (protein: 100).
B  several targets at once.
C  simulated tables whose true distribution is known.
D  rows unlike those of training: later ones, a block of the inputs held out, a gap; and smaller training parts.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

import mder_jax as mder
from experiments._bench_neural import USUAL, Recipe
from experiments._bench_tasks import Tasks, joined, make_tasks, seeded_splits
from experiments._store import ResultsError
from mder_jax import _fitting, _scores, metrics
from mder_jax._real_tables import SOURCES
from mder_jax.datasets import RealTable, real

UNIVARIATE = ("protein", "naval", "power", "kin8nm", "wine-red", "concrete", "energy", "boston", "yacht")
JOINT = ("naval", "births1", "ansur2", "energy", "slump", "rf1")
FEW_SPLITS = ("protein", "trivariate", "rf1")
# On these the defaults of the estimator and of the networks here were chosen (docs/defaults); on no other.
USED_TO_CHOOSE = (
    *("slump", "yacht", "energy", "concrete", "wine-red", "kin8nm", "naval", "births1", "ansur2", "power"),
    "trivariate",
)
SIMULATED_HERE = ("circle", "gap")
GROUPS = USED, NEVER_USED, SIMULATED = ("used to choose defaults", "never used to choose anything", "simulated here")
BLOCKS = ("births1", "energy")
MOST_EPOCHS, LONG = 500, 100  # epochs
SMALL, LARGE = 500, 5000  # rows
BLOCK_SHARE, IN_SHARE = 0.2, 0.1
FIRST_OF_RF1 = 4108
GAP, CUBIC_POINTS = 1.5, 1000
CIRCLE_POINTS, ANGLES = 300, (np.arange(200) + 0.5) / 200 * 2 * np.pi

ALL = (
    *("ridge", "trees", "niw", "niw-calibrated", "niw-diagonal", "nig", "gaussian", "gaussian-diagonal", "dropout"),
    *("process", "ngboost"),
)
WITH_TRUTH = ("ridge", "trees", "niw", "niw-diagonal", "nig", "gaussian", "gaussian-diagonal", "ngboost")
WITH_EPISTEMIC = ("niw", "nig", "gaussian", "dropout", "process")

More = Callable[[dict[str, np.ndarray], Tasks], dict[str, Any]]


class Problem(NamedTuple):
    """A table, what to learn on it and how long, by which methods, and what to measure besides the usual scores.

    Args:
      part: "A" to "D".
      name: of the problem, unique within its part.
      table: the table it needs; None if it is simulated here.
      tasks: makes the tasks.
      recipe: of the networks, given the tasks.
      methods: names of the methods.
      more: further scores, from those of the rows and the tasks.
    """

    part: str
    name: str
    table: str | None
    tasks: Callable[[], Tasks]
    recipe: Callable[[Tasks], Recipe]
    methods: tuple[str, ...]
    more: More

    @property
    def label(self) -> str:
        """Unique among all problems."""
        return f"{self.part} {self.name}"


def all_problems(config: Any) -> list[Problem]:
    """All problems of a config."""
    splits, recipe = config.splits, functools.partial(_by_steps, config)
    made = []
    for epochs in sorted(config.epochs, reverse=True):
        made += [
            Problem(
                "A",
                f"{name}, {epochs} epochs",
                name,
                functools.partial(_seeded, name, _splits_of(name, splits, epochs), 1),
                functools.partial(_fixed, config, 100 if name == "protein" else 50, epochs),
                tuple(method for method in config.one_target if epochs <= LONG or method in config.long),
                _in_units,
            )
            for name in UNIVARIATE
        ]
    made += [
        Problem("B", name, name, functools.partial(_seeded, name, _splits_of(name, splits)), recipe, ALL, _nothing)
        for name in JOINT
    ]
    made += [
        Problem(
            "C",
            "trivariate",
            "trivariate",
            functools.partial(_seeded, "trivariate", _splits_of("trivariate", splits)),
            recipe,
            WITH_TRUTH,
            _trivariate_truth,
        ),
        Problem("C", "circle", None, functools.partial(_circle, splits), recipe, WITH_TRUTH, _circle_truth),
        Problem(
            "D",
            "rf1",
            "rf1",
            functools.partial(_later, _splits_of("rf1", splits)),
            recipe,
            WITH_EPISTEMIC,
            _in_and_out,
        ),
        Problem("D", "gap", None, functools.partial(_gap, splits), recipe, WITH_EPISTEMIC, _in_and_out),
    ]
    for name in BLOCKS:
        made.append(
            Problem(
                "D",
                f"{name}, block",
                name,
                functools.partial(_block, name, min(splits, 10)),
                recipe,
                WITH_EPISTEMIC,
                _in_and_out,
            )
        )
        made += [
            Problem(
                "D",
                f"{name}, {share:.0%} of the rows",
                name,
                functools.partial(_grown, name, min(splits, 5), share),
                recipe,
                WITH_EPISTEMIC,
                _nothing,
            )
            for share in (0.25**power for power in range(1, config.growth + 1))
        ]
    return made


def group(name: str) -> str:
    """To which group the table of a problem belongs, in words: whether its numbers may be a little too good."""
    table = name.split(",")[0]
    if table in SIMULATED_HERE:
        return SIMULATED
    return USED if table in USED_TO_CHOOSE else NEVER_USED


def seconds(problem: Problem, method: str, splits: int) -> float:
    """About how long a cell takes, to begin with the longest."""
    rows = SOURCES[problem.table].rows if problem.table else 1000
    by_row = {"ngboost": 2e-3, "trees": 4e-4, "process": 2e-3, "ridge": 0.0, "nig": 3e-4, "dropout": 6e-4}
    return splits * rows * by_row.get(method, 1e-3 if problem.part == "A" else 3e-3)


def _splits_of(name: str, splits: int, epochs: int = 1) -> int:
    """Five splits of protein, as in the protocol, and to save time of two more and of large tables in long training."""
    rows = SOURCES[name].rows
    return min(splits, 5) if name in FEW_SPLITS or (epochs > LONG and rows > LARGE) else splits


def _fixed(config: Any, width: int, epochs: int, tasks: Tasks) -> Recipe:
    return Recipe((width,), epochs, config.members, config.seed, config.rates)


def _by_steps(config: Any, tasks: Tasks) -> Recipe:
    """The estimator's networks, and as many epochs as the steps allow."""
    rows = tasks.X.shape[1]
    members = config.small_members if rows <= SMALL else config.members
    kept = rows - _fitting.rows_held_out(USUAL.validation_fraction, rows)
    in_an_epoch = -(-kept // min(kept, _fitting.batch_size(kept)))
    epochs = min(MOST_EPOCHS, max(1, config.steps // in_an_epoch))
    return Recipe(USUAL.hidden_layer_sizes, epochs, members, config.seed, config.rates)


def _table(name: str) -> RealTable:
    """A real table; a file that is another one ends the run with a sentence."""
    try:
        return real(name)
    except ValueError as error:
        raise ResultsError(str(error)) from None


def _seeded(name: str, splits: int, targets: int | None = None) -> Tasks:
    table = _table(name)
    return make_tasks(table.X, table.Y[:, :targets], seeded_splits(len(table.X), splits))


def _grown(name: str, splits: int, share: float) -> Tasks:
    """Training on the first rows of each training part, which lie in random order."""
    table = _table(name)
    parts = seeded_splits(len(table.X), splits)
    return make_tasks(table.X, table.Y, [(train[: round(share * len(train))], test) for train, test in parts])


def _later(splits: int) -> Tasks:
    """rf1 in time order: a tenth of the first rows is "in", the later rows are "out"."""
    table = _table("rf1")
    first, later = np.arange(FIRST_OF_RF1), np.arange(FIRST_OF_RF1, len(table.X))
    return _in_out_tasks(table.X, table.Y, [(first, later)] * splits)


def _block(name: str, splits: int) -> Tasks:
    """Out is the fifth of the rows at one end of a principal component of the inputs: each split has its own end."""
    table = _table(name)
    X = (table.X - table.X.mean(0)) / np.maximum(table.X.std(0), 1e-12)
    scores = X @ np.linalg.svd(X, full_matrices=False)[2].T
    parts = []
    for split in range(splits):
        # a stable order: inputs of designed experiments have ties
        order = np.argsort(scores[:, split // 2] * (1 if split % 2 else -1), kind="stable")
        cut = len(X) - round(BLOCK_SHARE * len(X))
        parts.append((order[:cut], order[cut:]))
    return _in_out_tasks(table.X, table.Y, parts)


def _in_out_tasks(X: np.ndarray, Y: np.ndarray, parts: list[tuple[np.ndarray, np.ndarray]]) -> Tasks:
    """Tasks whose test rows are a tenth of the rows to learn from, left out at random, and then those that are out."""
    splits = []
    for number, (within, out) in enumerate(parts):
        order = np.random.RandomState(number).permutation(within)
        cut = len(order) - round(IN_SHARE * len(order))
        splits.append((order[:cut], np.concatenate([order[cut:], out])))
    tasks = make_tasks(X, Y, splits)
    outside = np.stack([np.isin(test, out) for (_, test), (_, out) in zip(splits, parts, strict=True)])
    return tasks._replace(outside=outside)


def _gap(splits: int) -> Tasks:
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


def _circle(splits: int) -> Tasks:
    """Every split has 300 points of its own; test points are evenly spaced in t."""
    parts = []
    for split in range(splits):
        seen = mder.datasets.circle(jax.random.key(split), CIRCLE_POINTS)
        radius = 1 + 0.1 * np.random.RandomState(split).normal(size=(len(ANGLES), 1))
        new = radius * np.asarray(mder.datasets.circle_mean(ANGLES))
        X, Y = np.concatenate([seen.X, ANGLES[:, None]]), np.concatenate([seen.Y, new])
        rows = np.arange(len(X))
        parts.append(make_tasks(X, Y, [(rows[:CIRCLE_POINTS], rows[CIRCLE_POINTS:])]))
    return joined(parts)


def _nothing(rows: dict[str, np.ndarray], tasks: Tasks) -> dict[str, Any]:
    return {}


def _in_units(rows: dict[str, np.ndarray], tasks: Tasks) -> dict[str, Any]:
    """NLL and rmse of one target in its own unit."""
    unit = tasks.unit[:, 0]
    rmse = unit * np.sqrt(np.mean(rows["errors"][..., 0] ** 2, axis=1))
    return {"nll_in_units": (rows["nll"].mean(1) + np.log(unit)).tolist(), "rmse_in_units": rmse.tolist()}


def _trivariate_truth(rows: dict[str, np.ndarray], tasks: Tasks) -> dict[str, Any]:
    table = _table("trivariate")
    std = np.stack([table.truth[f"scale_{j}"] for j in (1, 2, 3)], axis=1)[tasks.rows]
    mean = np.stack([table.truth[f"location_{j}"] for j in (1, 2, 3)], axis=1)[tasks.rows]
    correlation = np.broadcast_to(np.eye(3), (*std.shape, 3)).copy()
    for j, k in ((1, 2), (1, 3), (2, 3)):
        correlation[..., j - 1, k - 1] = correlation[..., k - 1, j - 1] = table.truth[f"rho_{j}{k}"][tasks.rows]
    white = np.linalg.solve(
        np.linalg.cholesky(std[..., None] * correlation * std[..., None, :]),
        (table.Y[tasks.rows] - mean)[..., None],
    )[..., 0]
    log_determinant = 0.5 * np.linalg.slogdet(correlation)[1] + np.log(std).sum(-1)
    oracle = np.mean(0.5 * (white**2).sum(-1) + log_determinant + 1.5 * np.log(2 * np.pi), axis=1)
    units = np.log(tasks.unit).sum(1)
    return {
        "oracle": oracle.tolist(),
        "nll_in_units": (rows["nll"].mean(1) + units).tolist(),
        **_against(rows["covariance"], std / tasks.unit[:, None], correlation),
    }


def _circle_truth(rows: dict[str, np.ndarray], tasks: Tasks) -> dict[str, Any]:
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


def _in_and_out(rows: dict[str, np.ndarray], tasks: Tasks) -> dict[str, Any]:
    """How well epistemic uncertainty tells rows in from out, total uncertainty large errors from small; NLL of each."""
    from scipy.stats import rankdata
    from sklearn.metrics import roc_auc_score

    found: dict[str, Any] = {"auroc": [], "ause": [], "nll_in": [], "nll_out": [], "auroc_total": []}
    variance = np.trace(rows["covariance"], axis1=-2, axis2=-1)
    for split, outside in enumerate(tasks.outside):
        for name, values in (("auroc", rows["epistemic"]), ("auroc_total", variance)):
            ranks = rankdata(np.nan_to_num(values[split], nan=np.inf))
            found[name].append(float(roc_auc_score(outside, ranks)))
        size = np.linalg.norm(rows["errors"][split], axis=1)[:, None]
        curves = _scores.sparsification(size, np.sqrt(variance[split])[:, None], np.ones(size.shape, bool))
        found["ause"].append(float(metrics._area(curves)[0]))
        found["nll_in"].append(float(rows["nll"][split][~outside].mean()))
        found["nll_out"].append(float(rows["nll"][split][outside].mean()))
    return found
