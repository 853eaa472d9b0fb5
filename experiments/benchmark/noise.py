"""Gaussians around a point predictor, from residuals of rows that it has not learnt from.

A constant full covariance; and, which is fairer, a scale for each row times a constant correlation.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import mder_jax as mder
from experiments.benchmark.table_encoder import TableEncoder

Point = Callable[[pa.Table], np.ndarray]  # the means (K, n) of K rows
FitPoint = Callable[[pa.Table, np.ndarray, int], Point]  # of rows, their targets (N, n), and a seed
Members = mder.NIW | mder.StudentT | mder.Mixture  # of a mixture for each row, (M, K), also with their weights
Predict = Callable[[pa.Table], Members]
FOLDS, ROWS_FOR_FOLDS = 5, 10_000
STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
LOG_FLOOR = 1e-4  # of the mean square: a residual of nearly 0 would count as a very small scale


class Residuals(NamedTuple):
    """Rows that a predictor had not learnt from, and by how much it missed their targets, (R, n)."""

    X: pa.Table
    values: np.ndarray


def out_of_fold(fit: FitPoint, X: pa.Table, Y: np.ndarray, seed: int) -> Residuals:
    """Of all rows, by five fits that leave out a fifth each; of tables with many rows, of the first fifth alone."""
    order = np.random.RandomState(seed).permutation(len(Y))
    parts = np.array_split(order, FOLDS)
    used = parts if len(Y) <= ROWS_FOR_FOLDS else parts[:1]
    values = []
    for part in used:
        kept = np.setdiff1d(order, part)
        values.append(Y[part] - fit(X.take(kept), Y[kept], seed)(X.take(part)))
    return Residuals(X.take(np.concatenate(used)), np.concatenate(values))


def gaussians(mean: np.ndarray, factor: np.ndarray) -> mder.StudentT:
    """One Gaussian for each row, as a mixture of one, from (K, n) and (K, n, n)."""
    mean, factor = (np.asarray(part, np.float32)[None] for part in (mean, factor))
    return mder.StudentT(np.float32(np.inf), mean, factor)


def around(point: Point, residuals: Residuals, seed: int) -> Iterator[Predict]:
    """Gaussians with the covariance of the residuals, and then those with a scale for each row."""
    constant = _factor(residuals.values)

    def same(X: pa.Table) -> Members:
        mean = point(X)
        return gaussians(mean, np.broadcast_to(constant, (len(mean), *constant.shape)))

    yield same
    scale, correlation = scale_of_rows(residuals, seed)
    yield lambda X: gaussians(point(X), scale(X)[:, :, None] * correlation)


def _factor(residuals: np.ndarray) -> np.ndarray:
    """L of E[e eᵀ] = L Lᵀ."""
    return np.linalg.cholesky(residuals.T @ residuals / len(residuals))


def scale_of_rows(residuals: Residuals, seed: int) -> tuple[Callable[[pa.Table], np.ndarray], np.ndarray]:
    """Scales s(x) > 0, (K, n), and a factor L: the covariance of a row is diag(s) L Lᵀ diag(s).

    Boosted trees learn ln e² of each target, and ln s² is their prediction times a strength from 0 (one scale for all
    rows) to 1. Everything else is of predictions by trees that have not seen the row: L Lᵀ is E[u uᵀ] with u = e/s,
    which holds the correlations and the level of the scales, and the strength is that of the best likelihood.
    """
    from sklearn.base import clone
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.model_selection import KFold, cross_val_predict

    encoder = TableEncoder(residuals.X)
    X, squares = encoder.numbers(residuals.X), residuals.values**2
    logs = np.log(squares + LOG_FLOOR * squares.mean(0) + np.finfo(float).tiny)
    start: Any = HistGradientBoostingRegressor(learning_rate=0.05, max_iter=100, max_leaf_nodes=8, random_state=seed)
    folds = KFold(FOLDS, shuffle=True, random_state=seed)
    unseen = np.stack([cross_val_predict(start, X, log, cv=folds) for log in logs.T], axis=1)
    strength = min(STRENGTHS, key=lambda strength: _nll(residuals.values, np.exp(0.5 * strength * unseen)))
    models = [clone(start).fit(X, log) for log in logs.T]

    def scale(table: pa.Table) -> np.ndarray:
        return np.exp(0.5 * strength * np.stack([model.predict(encoder.numbers(table)) for model in models], axis=1))

    return scale, _factor(residuals.values / np.exp(0.5 * strength * unseen))


def _nll(residuals: np.ndarray, scale: np.ndarray) -> float:
    """The mean over rows of −ln p up to a constant, with the best L: Σ ln s + ln|L|."""
    factor = _factor(residuals / scale)
    return float(np.log(scale).sum(1).mean() + np.log(np.diagonal(factor)).sum())
