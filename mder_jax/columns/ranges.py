"""The range of a number in training, and what becomes of values beyond it."""

from typing import NamedTuple

import numpy as np

REACH = 10  # widths of the middle 90 % that the range may go beyond them
MARGIN = 0.25  # of the width of the range: how far a value beyond it can move X, and where its novelty is 1
MOST_NOVEL = 1e6
SAME = 1e-6  # of a constant: what single precision leaves of it
LARGEST = float(np.finfo(np.float32).max)


class Range(NamedTuple):
    """Limits, what replaces a missing value, and how far below and above the limits values still count as known."""

    low: float
    high: float
    fill: float  # the mean of training
    below: float = 0.0
    above: float = 0.0


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


def tails(values: np.ndarray, low: float, high: float) -> tuple[float, float]:
    """How far values that count as known go below and above their limits: up to the third one from each end.

    One or two cells beyond the limits may be mistyped; where there are more, the column has such values.
    """
    if len(values) < 3:
        return 0.0, 0.0
    third, last = np.partition(values, (2, len(values) - 3))[[2, -3]]
    return max(0.0, low - float(third)), max(0.0, float(last) - high)


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


def novelty(values: np.ndarray, known: Range) -> np.ndarray:
    """(e/0.25)⁴, at most 10⁶, with e the excess over the known values in units of their width; 1 if that width is 0."""
    low, high = known.low - known.below, known.high + known.above
    beyond = np.abs(values - np.clip(values, low, high))
    if low == high:
        return (beyond > SAME * abs(low)).astype(np.float64)
    ratio = np.minimum(beyond / (MARGIN * (high - low)), MOST_NOVEL)  # so that its power is finite
    return np.minimum(ratio**4, MOST_NOVEL)
