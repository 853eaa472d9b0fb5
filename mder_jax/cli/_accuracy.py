"""How near predicted means are to what was observed: R² and the root of the mean squared error."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Accuracy(NamedTuple):
    """Of each target, (n,), over the rows in which it was observed; NaN where there are none.

    Args:
      r2: 1 − rmse²/spread²; NaN if the target is constant.
      rmse: √ mean (y − predicted)².
      spread: the same for the mean of these rows as the prediction.
    """

    r2: np.ndarray
    rmse: np.ndarray
    spread: np.ndarray


def accuracy(Y: np.ndarray, mean: np.ndarray) -> Accuracy:
    """Of predicted means (N, n) for observations (N, n), NaN where there is none."""
    known = ~np.isnan(Y)
    count = np.where(known.any(axis=0), known.sum(axis=0), np.nan)

    def root_mean_square(error: np.ndarray) -> np.ndarray:
        return np.sqrt(np.sum(error**2, axis=0, where=known) / count)

    centre = np.sum(Y, axis=0, where=known) / count
    rmse, spread = root_mean_square(Y - mean), root_mean_square(Y - centre)
    with np.errstate(divide="ignore", invalid="ignore"):
        r2 = np.where(spread > 0, 1 - (rmse / spread) ** 2, np.nan)
    return Accuracy(r2, rmse, spread)


def described(found: Accuracy, names: Sequence[str]) -> str:
    """One line."""
    each = [
        f"{name} not observed"
        if np.isnan(rmse)
        else f"{name} R² {r2:.3f}, rmse {rmse:.4g} ({spread:.4g} by predicting the mean)"
        for name, r2, rmse, spread in zip(names, *found, strict=True)
    ]
    return "; ".join(each)
