"""Rows of the ledger: a claim of the paper, the number that tests it, and the verdict that follows from the number."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

HOLDS, IN_PART, FAILS, OPEN = "holds", "holds in part", "does not hold", "cannot be decided"


@dataclass(frozen=True)
class Claim:
    """One row.

    Args:
      where: section and label in the paper.
      claim: in our words.
      statistic: the number that tests it.
      paper: its value as the paper prints it, or empty.
      ours: the value found here, with an interval where it is an estimate.
      verdict: one of `HOLDS`, `IN_PART`, `FAILS`, `OPEN`.
    """

    where: str
    claim: str
    statistic: str
    paper: str
    ours: str
    verdict: str


def decide(holds: Any, in_part: Any = False) -> str:
    """The verdict of one or two conditions."""
    return HOLDS if holds else IN_PART if in_part else FAILS


def judge(holds: Any, fails: Any) -> str:
    """The verdict where the numbers may leave it open."""
    return HOLDS if holds else FAILS if fails else OPEN


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


def share(count: int, total: int) -> tuple[float, float, float]:
    """A share with its 95 % Wilson interval."""
    from scipy import stats

    found = stats.binomtest(int(count), int(total)).proportion_ci(0.95, "wilson")
    return count / total, float(found.low), float(found.high)


def shown(estimate: tuple[float, float, float], form: str = ".3g") -> str:
    """An estimate and its interval as text."""
    value, low, high = estimate
    return f"{value:{form}} ({low:{form}} to {high:{form}})"
