"""The methods of part E: each gets the table as it is, with its own architecture and its authors' defaults."""

import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pyarrow as pa

import mder_jax as mder
from experiments.benchmark import baselines, rival_networks, rivals
from experiments.benchmark.methods import Method, Result, Row
from experiments.benchmark.noise import Members, Predict, gaussians
from experiments.benchmark.rivals import Fit, point_predictor
from experiments.benchmark.scores import Forecast
from experiments.benchmark.splits import TableTasks
from mder_jax.estimator.beside import KINDS


@dataclass(frozen=True, kw_only=True)
class OfTables(Method):
    """A method that is fitted split by split to the table as it is; `packages` are what it needs besides ours."""

    fit: Fit
    packages: tuple[str, ...] = ()
    neural = False

    def run(self, tasks: Any, recipe: Any) -> list[Result]:
        """Seconds are those of a processor, so that other work on it does not count, for all that a row needs."""
        splits = [_one_split(self, tasks, split) for split in range(tasks.splits)]
        made = []
        for row, parts in zip(self.rows, zip(*splits, strict=True), strict=True):
            members, training, predicting, first, failures = zip(*parts, strict=True)
            nothing = _nothing(members, tasks)
            known = [nothing if one is None else one for one in members]
            stacked = jax.tree.map(lambda *leaves: np.stack(leaves).astype(np.float32), *known)
            cost = [float(np.mean(seconds)) for seconds in (training, predicting, first)]
            made.append(Result(row, Forecast(stacked), cost[0], cost[1], cost[2], list(failures)))
        return made


def _one_split(
    method: OfTables, tasks: TableTasks, split: int
) -> list[tuple[Members | None, float, float, float, str]]:
    X, X_test = (tasks.table.take(rows[split]) for rows in (tasks.train, tasks.rows))
    Y = np.asarray(tasks.Y[split], np.float64)
    found: list[Any] = []
    seconds, start = 0.0, time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for predict in method.fit(X, Y, split):
                seconds += time.process_time() - start
                found.append((*_predicted(predict, X_test, seconds), ""))
                start = time.process_time()
        except ModuleNotFoundError:
            raise
        except Exception as error:  # of any library: the row says what it was, and the other splits go on
            failure = (None, time.process_time() - start, 0.0, 0.0, f"{type(error).__name__}: {error}")
            found += [failure] * (len(method.rows) - len(found))
    return found


def _nothing(members: tuple[Members | None, ...], tasks: TableTasks) -> Members:
    """What stands for a split that failed: NaN in the form of the others."""
    known = [one for one in members if one is not None]
    rows, n = tasks.Y_test.shape[1:]
    like = known[0] if known else gaussians(np.zeros((rows, n)), np.broadcast_to(np.eye(n), (rows, n, n)))
    return jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), like)


def _predicted(predict: Predict, X: pa.Table, training: float) -> tuple[Members, float, float, float]:
    """Predict twice: what the first time takes longer is the cost of starting."""
    begin = time.process_time()
    jax.tree.map(np.asarray, predict(X))
    middle = time.process_time()
    members = jax.tree.map(np.asarray, predict(X))
    again = time.process_time() - middle
    return members, training, again, max(0.0, middle - begin - again)


def ours(X: pa.Table, Y: np.ndarray, seed: int) -> Iterator[Predict]:
    """`MDERRegressor` exactly as it is shipped."""
    model = mder.MDERRegressor(random_state=seed).fit(X, Y)

    def predict(table: pa.Table) -> Members:
        return filled(model.predict_dist(table), model.members + len(KINDS))

    yield predict


def filled(found: Any, size: int) -> mder.Mixture:
    """The mixture with a weight for each row, and with as many members, of which those that were missing have none."""
    if isinstance(found, mder.StudentT):
        found = mder.Mixture(jax.tree.map(lambda leaf: leaf[None], found))
    missing = size - found.size
    own = np.zeros((found.size, 1)) if found.log_weights is None else np.asarray(found.log_weights)
    members = jax.tree.map(lambda leaf: np.concatenate([leaf, *[leaf[-1:]] * missing]), found.members)
    known = np.broadcast_to(own.reshape(found.size, -1), (found.size, *found.batch_shape))
    return mder.Mixture(members, np.concatenate([known, np.full((missing, *found.batch_shape), -np.inf)]))


def _both(label: str) -> tuple[Row, Row]:
    """The rows of a point predictor: with a constant covariance, and with a scale for each row."""
    return Row(label), Row(f"{label}, scale by row")


OURS, REALMLP = "MDERRegressor", "RealMLP-TD"
AS_IT_COMES: dict[str, OfTables] = {
    "mder": OfTables(fit=ours, rows=(Row(OURS),)),
    "catboost": OfTables(fit=point_predictor(rivals.catboost), rows=_both("CatBoost"), packages=("catboost",)),
    "catboost-uncertainty": OfTables(
        fit=rivals.catboost_uncertainty,
        rows=(Row("CatBoost, RMSEWithUncertainty"),),
        packages=("catboost",),
        most_targets=1,
    ),
    "xgboost": OfTables(fit=point_predictor(rivals.xgboost), rows=_both("XGBoost"), packages=("xgboost",)),
    "lightgbm": OfTables(fit=point_predictor(rivals.lightgbm), rows=_both("LightGBM"), packages=("lightgbm",)),
    "realmlp": OfTables(
        fit=rival_networks.realmlp,
        rows=_both(REALMLP),
        packages=("pytabkit", "torch"),
        most_splits=3,
    ),
    "tabm": OfTables(
        fit=rival_networks.tabm,
        rows=_both("TabM"),
        packages=("pytabkit", "torch"),
        most_splits=3,
        most_rows=10_000,
        most_targets=4,
    ),
    "trees": OfTables(fit=rivals.trees, rows=_both("ExtraTrees"), packages=("scikit-learn",)),
    "ngboost": OfTables(
        fit=rivals.ngboost, rows=(Row("NGBoost"),), packages=("ngboost",), most_targets=3, most_splits=3
    ),
    "process": OfTables(
        fit=rivals.process,
        rows=(Row("Gaussian process"),),
        packages=("scikit-learn",),
        most_rows=baselines.MOST_ROWS_OF_PROCESS,
    ),
    "ridge": OfTables(fit=rivals.ridge, rows=_both("ridge"), packages=("scikit-learn",)),
}
