"""Columns standardised, and converted back to original units in float64: 2020.5 ± 0.001 has no digits in float32."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

# Inputs far beyond the training data may give infinities, which need no warning.
QUIET = np.errstate(over="ignore", invalid="ignore")


class Standardizer(NamedTuple):
    """z = (value − mean) / std for each column, in float64; a std of ∞ leaves a column out, z = 0."""

    mean: np.ndarray
    std: np.ndarray

    @QUIET
    def forward(self, values: np.ndarray) -> np.ndarray:
        """Standardised values, in float32."""
        return np.asarray((values - self.mean) / self.std, np.float32)

    @QUIET
    def back(self, values: Any) -> np.ndarray:
        """Values in original units, (..., n)."""
        return self.mean + self.std * np.asarray(values, np.float64)

    @QUIET
    def back_covariance(self, covariance: Any) -> np.ndarray:
        """Covariances in original units, (..., n, n)."""
        return self.std[:, None] * self.std * np.asarray(covariance, np.float64)


def standardizer_of(
    values: np.ndarray,
    whole: bool = True,
    constant: float = 1.0,
    weights: np.ndarray | None = None,
    as_they_are: Sequence[int] = (),
) -> Standardizer:
    """Mean and standard deviation of the columns, NaN left out, with weights (N,) of the rows.

    They are 0 and 1 unless `whole`, and for columns `as_they_are`.

    A column without spread (a few ulp, by rounding, are none) has the standard deviation `constant`.
    """
    if weights is None:
        mean = np.asarray(np.nanmean(values, axis=0, dtype=np.float64))
        std = np.asarray(np.nanstd(values, axis=0, dtype=np.float64))
    else:
        mean, std = _weighted_moments(np.asarray(values, np.float64), weights)
    same = std <= 16 * np.finfo(np.float64).eps * np.abs(mean)
    kept = np.full(len(mean), not whole)
    kept[list(as_they_are)] = True
    return Standardizer(np.where(kept, 0.0, mean), np.where(same, constant, np.where(kept, 1.0, std)))


def _weighted_moments(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Σ w x / Σ w and the root of Σ w (x − mean)² / Σ w for each column, over the rows in which it is not NaN."""
    share = np.where(np.isnan(values), 0.0, weights[:, None])
    share /= share.sum(axis=0)
    mean = np.sum(share * np.nan_to_num(values), axis=0)
    return mean, np.sqrt(np.sum(share * np.nan_to_num(values - mean) ** 2, axis=0))
