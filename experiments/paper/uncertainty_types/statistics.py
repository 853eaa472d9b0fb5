"""Numbers computed from saved results of the study `uncertainty_types`.

A setting is a kind of μ (``kinds``) with a number of measurements at each x (``repeats``, ascending). ``mean`` and
the parts of the variance, aleatoric and epistemic within and between members, are (settings, data sets, grid).
"""

from typing import Any

import numpy as np

from experiments.harness.statistics import Estimate, interval

POINTS = np.array([0.0, 1.0, 3.0])
MEASURED = [0, 1, 3]  # their indices among x = 0, 1, 2, 3
PARTS = ("aleatoric", "within", "between")
LINES = ("line", "line, random start")
GRID = np.linspace(-0.5, 3.5, 81)
LOOKED_AT = [int(np.argmin(np.abs(GRID - x))) for x in range(4)]  # where on the grid x = 0, 1, 2, 3 are


def settings_of(results: dict[str, Any], kind: str) -> list[int]:
    """The indices of the settings with this kind of μ; the last has the most measurements."""
    return [index for index, name in enumerate(results["kinds"]) if name == kind]


def stds(results: dict[str, Any], part: str, setting: int) -> np.ndarray:
    """√ of one part of the variance at x = 0, 1, 2, 3 for every data set, (data sets, 4)."""
    return np.sqrt(results[part][setting][:, LOOKED_AT])


def excess(std: np.ndarray, large: list[int], low: list[int]) -> Estimate:
    """Smallest of the stds that should be large over the largest that should be low, (data sets, 4)."""
    return interval(std[:, large].min(1) / std[:, low].max(1))


def slope(results: dict[str, Any], part: str, at: list[int]) -> Estimate:
    """d ln std / d ln repeats of the flexible ensembles, mean over the x of `at`; −½ for the error of a mean."""
    flexible = settings_of(results, "flexible")
    log_std = np.array([np.log(stds(results, part, setting)[:, at]).mean(1) for setting in flexible])
    return interval(np.polyfit(np.log([results["repeats"][setting] for setting in flexible]), log_std, 1)[0])
