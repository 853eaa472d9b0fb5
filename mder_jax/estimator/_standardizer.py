"""Columns standardised on the way in, and back in original units, in float64.

A target such as 2020.5 ± 0.001 has no digits left in float32.
"""

from typing import Any, NamedTuple

import numpy as np

# Inputs far beyond the training data may give infinities, which speak for themselves.
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


def standardizer_of(values: np.ndarray, whole: bool = True, constant: float = 1.0) -> Standardizer:
    """Mean and standard deviation of the columns, NaN left out.

    Args:
      values: (N, columns).
      whole: False for mean 0 and standard deviation 1.
      constant: the standard deviation that a column without spread gets (spread by rounding, a few ulp, is none).
    """
    columns = values.shape[1]
    mean = np.asarray(np.nanmean(values, axis=0, dtype=np.float64))
    std = np.asarray(np.nanstd(values, axis=0, dtype=np.float64))
    same = std <= 16 * np.finfo(np.float64).eps * np.abs(mean)
    if not whole:
        return Standardizer(np.zeros(columns), np.where(same, constant, 1.0))
    return Standardizer(mean, np.where(same, constant, std))
