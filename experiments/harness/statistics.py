"""Estimates with intervals: bootstrap and Wilson."""

from collections.abc import Callable
from typing import Any

import numpy as np


def interval(
    values: np.ndarray, statistic: Callable[..., Any] = np.median, draws: int = 2000
) -> tuple[float, float, float]:
    """A statistic over the first axis with its 95 % percentile bootstrap interval: value, lower and upper end."""
    values = np.asarray(values)
    rng = np.random.default_rng(0)
    again = statistic(values[rng.integers(0, len(values), (draws, len(values)))], axis=1)
    low, high = np.quantile(again, [0.025, 0.975])
    return float(statistic(values, axis=0)), float(low), float(high)


def ratio_of_spreads(squares: np.ndarray, axis: int) -> np.ndarray:
    """A statistic for `interval`: from squared deviations (axis) of two quantities (last axis), their ratio of rms."""
    variance = np.mean(squares, axis=axis)
    return np.sqrt(variance[..., 0] / variance[..., 1])


def fraction(count: int, total: int) -> tuple[float, float, float]:
    """A fraction with its 95 % Wilson interval."""
    from scipy import stats

    found = stats.binomtest(int(count), int(total)).proportion_ci(0.95, "wilson")
    return count / total, float(found.low), float(found.high)


def shown(estimate: tuple[float, float, float], form: str = ".3g") -> str:
    """An estimate and its interval as text."""
    value, low, high = estimate
    return f"{value:{form}} ({low:{form}} to {high:{form}})"
