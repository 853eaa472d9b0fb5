"""Estimates with intervals: bootstrap and Wilson."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Estimate(NamedTuple):
    """A value with the lower and the upper end of its 95 % interval; ``f"{estimate:.2f}"`` shows all three."""

    value: float
    low: float
    high: float

    def __format__(self, form: str) -> str:
        value, low, high = (format(number, form or ".3g") for number in self)
        return f"{value} ({low} to {high})"


def interval(values: np.ndarray, statistic: Callable[..., Any] = np.median, draws: int = 2000) -> Estimate:
    """A statistic over the first axis with its percentile bootstrap interval."""
    values = np.asarray(values)
    rng = np.random.default_rng(0)
    again = statistic(values[rng.integers(0, len(values), (draws, len(values)))], axis=1)
    return Estimate(float(statistic(values, axis=0)), *map(float, np.quantile(again, [0.025, 0.975])))


def ratio_of_spreads(squares: np.ndarray, axis: int) -> np.ndarray:
    """A statistic for `interval`: from squared deviations (axis) of two quantities (last axis), their ratio of rms."""
    variance = np.mean(squares, axis=axis)
    return np.sqrt(variance[..., 0] / variance[..., 1])


def fraction(count: int, total: int) -> Estimate:
    """A fraction with its Wilson interval."""
    from scipy import stats

    found = stats.binomtest(int(count), int(total)).proportion_ci(0.95, "wilson")
    return Estimate(count / total, float(found.low), float(found.high))
