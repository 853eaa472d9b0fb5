"""The range of a number in training, and what becomes of values beyond it."""

from typing import NamedTuple

import numpy as np

REACH = 10  # widths of the middle 90 % that the range may go beyond them
MARGIN = 0.25  # of the width of the range: how far a value beyond it can move X, and where its novelty is 1
MOST_NOVEL = 1e6
SAME = 1e-6  # of a constant: what single precision leaves of it
LARGEST = float(np.finfo(np.float32).max)


class Range(NamedTuple):
    """Limits, and what replaces a missing value: the mean of training."""

    low: float
    high: float
    fill: float


def limits(values: np.ndarray) -> tuple[float, float]:
    """Minimum and maximum of values without gaps, but no further than 10 (q95 − q05) below q05 and above q95, (N,).

    A mistyped cell so cannot stretch the range. If q05 = q95, the quantiles are of the values that differ from the
    median, which is always inside. Quantiles are values of training, and fewer than five values have no outliers.
    """
    low, high = float(values.min()), float(values.max())
    if len(values) < 5 or low == high:
        return low, high
    q05, q95 = _quantiles(values)
    middle = q05
    if q05 == q95:
        others = values[values != middle]
        q05, q95 = _quantiles(others) if len(others) >= 5 else (low, high)
    width = q95 - q05
    if width <= 0:
        return low, high
    return min(middle, max(low, q05 - REACH * width)), max(middle, min(high, q95 + REACH * width))


def _quantiles(values: np.ndarray) -> tuple[float, float]:
    last = len(values) - 1
    low, high = int(np.ceil(0.05 * last)), int(np.floor(0.95 * last))
    ordered = np.partition(values, (low, high))
    return float(ordered[low]), float(ordered[high])


def squash(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """x inside the range; high + m u/(1 + u) with u = (x − high)/m, m = (high − low)/4, above it, likewise below."""
    m = MARGIN * (high - low)
    inside = np.clip(values, low, high)
    beyond = np.abs(values - inside)
    if m == 0:
        return inside
    return inside + np.sign(values - inside) * (m * beyond / (m + beyond))


def novelty(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """(e/0.25)⁴, at most 10⁶, with e the excess over the range in units of its width; 1 if that width is 0."""
    beyond = np.abs(values - np.clip(values, low, high))
    if low == high:
        return (beyond > SAME * abs(low)).astype(np.float64)
    ratio = np.minimum(beyond / (MARGIN * (high - low)), MOST_NOVEL)  # so that its power is finite
    return np.minimum(ratio**4, MOST_NOVEL)
