"""Numbers of networks trained on samples of different size, for each size and data set."""

from typing import Any

import numpy as np
from scipy import stats

from experiments.harness.statistics import Estimate, interval
from experiments.paper import circle_recipe

OPEN_GATE = 8.0  # the middle of the gate ν = 8 + 5 tanh p
RIGHT = 0.1  # a correlation this close to ±1 counts as right
EQUAL = {"steps": "equal steps", "epochs": "equal epochs"}
MIDDLE = np.cos(circle_recipe.GRID) < 0  # 0.5π to 1.5π
AWAY = ~circle_recipe.near_sign_flips()


def over(mask: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Mean over some t and over the members of a data set: (S, D, M, T) -> (S, D)."""
    return values[..., mask].mean(axis=(-1, -2))


def by_data_set(found: dict[str, Any]) -> dict[str, np.ndarray]:
    """Each quantity for every size and data set, (S, D); the data sets are what is independent."""
    everywhere, centre, ends = np.ones_like(MIDDLE), circle_recipe.NEAR_CENTRE, circle_recipe.NEAR_ENDS
    is_open, error = found["nu"] > OPEN_GATE, found["mean_error"]
    off = np.abs(found["correlation"] - circle_recipe.true_correlation())
    wrong = off > RIGHT
    return {
        "nu": over(everywhere, found["nu"]),
        "nu_centre": over(centre, found["nu"]),
        "nu_ends": over(ends, found["nu"]),
        "open": over(everywhere, is_open),
        "open_centre": over(centre, is_open),
        "train": found["train"].mean(axis=-1),
        "fresh": found["fresh"].mean(axis=-1),
        "error": over(everywhere, error),
        "error_middle": over(MIDDLE, error),
        "error_rest": over(~MIDDLE, error),
        "off_middle": over(MIDDLE & AWAY, off),
        "off_rest": over(~MIDDLE & AWAY, off),
        "off_flips": over(~AWAY, off),
        "wrong_away": over(AWAY, wrong),
        "wrong_flips": over(~AWAY, wrong),
    }


def places(sizes: list[int]) -> tuple[int, int, int]:
    """The indices of the smallest size, the paper's 300 (or the nearest) and the largest."""
    from_usual = np.abs(np.log(np.array(sizes) / circle_recipe.POINTS))
    return int(np.argmin(sizes)), int(np.argmin(from_usual)), int(np.argmax(sizes))


def average(values: np.ndarray) -> Estimate:
    """The mean over data sets with its interval."""
    return interval(values, np.mean)


def rank_correlations(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Spearman's over sizes for each data set, 0 if one of the two is constant: (S, D), (S, D) -> (D,)."""
    pairs = zip(first.T, second.T, strict=True)
    return np.array([stats.spearmanr(a, b).statistic if np.ptp(a) and np.ptp(b) else 0.0 for a, b in pairs])


def scatter(correlation: np.ndarray) -> Estimate:
    """Standard deviation of ρ over networks, mean over t away from the sign flips, from (D, M, T)."""

    def of_networks(values: np.ndarray, axis: int) -> np.ndarray:
        return np.std(values, axis=(axis, axis + 1)).mean(axis=-1)

    return interval(correlation[..., AWAY][..., ::8], of_networks)
