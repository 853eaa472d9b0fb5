"""What people use on tables: boosted and random trees, ridge regression, Gaussian processes; as they come.

Each function fits a table and gives the predictors of the rows of its method, in order. Where defaults of the library
are known to be weak, they are the tuned ones of Holzmüller et al. (2024, arXiv:2407.04491), "TD".
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from experiments.benchmark import baselines
from experiments.benchmark.noise import FitPoint, Point, Predict, Residuals, around, gaussians, out_of_fold
from experiments.benchmark.table_encoder import TableEncoder

Fit = Callable[[pa.Table, np.ndarray, int], Iterator[Predict]]
STOPPING_FRACTION = 0.1  # of the rows that a booster learns from
ROUNDS, PATIENCE, PATIENCE_OF_TD = 1000, 50, 300


def point_predictor(fit: FitPoint) -> Fit:
    """A method that predicts means, with the noise of its residuals out of fold."""

    def rows(X: pa.Table, Y: np.ndarray, seed: int) -> Iterator[Predict]:
        point = fit(X, Y, seed)
        yield from around(point, out_of_fold(fit, X, Y, seed), seed)

    return rows


def rows_to_stop_on(rows: int, seed: int, fraction: float = STOPPING_FRACTION) -> tuple[np.ndarray, np.ndarray]:
    """Rows to learn from, and a fraction of all that tells when to stop."""
    order = np.random.RandomState(seed).permutation(rows)
    cut = int(np.ceil(fraction * rows))
    return order[cut:], order[:cut]


def _plain(Y: np.ndarray) -> np.ndarray:
    """(N, 1) as (N,)."""
    return Y[:, 0] if Y.shape[1] == 1 else Y


def _catboost(X: pa.Table, Y: np.ndarray, seed: int, loss: str) -> tuple[Any, Callable[[pa.Table], Any]]:
    """CatBoost (Prokhorenkova et al. 2018) with its own defaults, categories and gaps, and its tables."""
    from catboost import CatBoostRegressor, Pool

    encoder = TableEncoder(X)
    frame = encoder.frame(X, gaps=True)
    categories = list(frame.columns[frame.dtypes == "category"])
    learnt, held = rows_to_stop_on(len(Y), seed)
    model = CatBoostRegressor(
        loss_function=loss,
        iterations=ROUNDS,
        random_seed=seed,
        thread_count=1,
        verbose=False,
        allow_writing_files=False,
    )
    parts = (Pool(frame.iloc[part], _plain(Y[part]), cat_features=categories) for part in (learnt, held))
    model.fit(next(parts), eval_set=next(parts), early_stopping_rounds=PATIENCE)
    return model, lambda table: Pool(encoder.frame(table, gaps=True), cat_features=categories)


def catboost(X: pa.Table, Y: np.ndarray, seed: int) -> Point:
    """CatBoost, several targets in one model."""
    model, read = _catboost(X, Y, seed, "RMSE" if Y.shape[1] == 1 else "MultiRMSE")
    return lambda table: model.predict(read(table)).reshape(-1, Y.shape[1])


def catboost_uncertainty(X: pa.Table, Y: np.ndarray, seed: int) -> Iterator[Predict]:
    """CatBoost's own mean and variance of one target (Malinin et al. 2021)."""
    model, read = _catboost(X, Y, seed, "RMSEWithUncertainty")

    def predict(table: pa.Table) -> Any:
        mean, variance = np.asarray(model.predict(read(table), prediction_type="RMSEWithUncertainty")).T
        return gaussians(mean[:, None], np.sqrt(variance)[:, None, None])

    yield predict


def xgboost(X: pa.Table, Y: np.ndarray, seed: int) -> Point:
    """XGBoost (Chen and Guestrin 2016) with TD's parameters; trees of each target, which stop together."""
    from xgboost import XGBRegressor

    encoder = TableEncoder(X)
    values = encoder.numbers(X, gaps=True)
    learnt, held = rows_to_stop_on(len(Y), seed)
    model = XGBRegressor(
        n_estimators=ROUNDS,
        learning_rate=0.05,
        max_depth=9,
        min_child_weight=2.0,
        reg_lambda=0.0,
        subsample=0.7,
        early_stopping_rounds=PATIENCE_OF_TD,
        n_jobs=1,
        random_state=seed,
    )
    model.fit(values[learnt], _plain(Y[learnt]), eval_set=[(values[held], _plain(Y[held]))], verbose=False)
    return lambda table: model.predict(encoder.numbers(table, gaps=True)).reshape(-1, Y.shape[1])


def lightgbm(X: pa.Table, Y: np.ndarray, seed: int) -> Point:
    """LightGBM (Ke et al. 2017) with TD's parameters, a model for each target."""
    from lightgbm import LGBMRegressor, early_stopping

    encoder = TableEncoder(X)
    values = encoder.numbers(X, gaps=True)
    learnt, held = rows_to_stop_on(len(Y), seed)

    def one(y: np.ndarray) -> Any:
        model = LGBMRegressor(
            n_estimators=ROUNDS,
            learning_rate=0.05,
            num_leaves=100,
            subsample=0.7,
            subsample_freq=1,
            min_child_samples=3,
            min_child_weight=1e-7,
            n_jobs=1,
            random_state=seed,
            verbose=-1,
        )
        stop = early_stopping(PATIENCE_OF_TD, verbose=False)
        return model.fit(values[learnt], y[learnt], eval_set=[(values[held], y[held])], callbacks=[stop])

    models = [one(y) for y in Y.T]

    def point(table: pa.Table) -> np.ndarray:
        rows = encoder.numbers(table, gaps=True)
        return np.stack([model.predict(rows) for model in models], axis=1)

    return point


def ridge(X: pa.Table, Y: np.ndarray, seed: int) -> Iterator[Predict]:
    """Ridge regression with its leave-one-out residuals."""
    encoder = TableEncoder(X)
    predict, residuals = baselines.ridge_and_residuals(encoder.numbers(X), Y)
    point = _of_numbers(predict, encoder, Y.shape[1])
    yield from around(point, Residuals(X, residuals), seed)


def trees(X: pa.Table, Y: np.ndarray, seed: int) -> Iterator[Predict]:
    """Extremely randomised trees (Geurts et al. 2006) with all defaults; residuals are those out of bag of others."""
    from sklearn.ensemble import ExtraTreesRegressor

    encoder = TableEncoder(X)
    values, targets = encoder.numbers(X), _plain(Y)
    model = ExtraTreesRegressor(random_state=seed).fit(values, targets)
    bagged = ExtraTreesRegressor(random_state=seed, bootstrap=True, oob_score=True).fit(values, targets)
    point = _of_numbers(model.predict, encoder, Y.shape[1])
    yield from around(point, Residuals(X, Y - bagged.oob_prediction_.reshape(Y.shape)), seed)


def ngboost(X: pa.Table, Y: np.ndarray, seed: int) -> Iterator[Predict]:
    """NGBoost, as in the other parts."""
    yield _of_baseline(baselines.boosting, X, Y)


def process(X: pa.Table, Y: np.ndarray, seed: int) -> Iterator[Predict]:
    """A Gaussian process for each target, as in the other parts."""
    yield _of_baseline(baselines.process, X, Y)


def _of_baseline(fit: Callable[[np.ndarray, np.ndarray], baselines.Fitted], X: pa.Table, Y: np.ndarray) -> Predict:
    encoder = TableEncoder(X)
    fitted = fit(encoder.numbers(X), Y)
    return lambda table: gaussians(*fitted(encoder.numbers(table))[:2])


def _of_numbers(predict: baselines.Mean, encoder: TableEncoder, targets: int) -> Point:
    return lambda table: predict(encoder.numbers(table)).reshape(-1, targets)
