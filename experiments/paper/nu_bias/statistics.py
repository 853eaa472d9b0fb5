"""Numbers computed from the saved table of fits of the study `nu_bias`, and those that the authors' notebook prints."""

from typing import Any

import numpy as np

from experiments.harness.statistics import Estimate

SMALL = 200  # the largest sample of the paper
LIMITS = (10.0, 2.0)  # of ν and σ in the authors' notebook
RANGE = (0.16, 0.84)
# github.com/avitase/mder, notebooks/misc, ν = 5: fits of 200 that were kept; their 16 % and 84 % quantiles of ν and σ
PRINTED = {
    50: (91, (2.65, 5.06), (0.79, 1.04)),
    75: (112, (3.33, 5.47), (0.85, 1.09)),
    100: (112, (3.37, 5.58), (0.85, 1.08)),
    125: (132, (3.64, 6.28), (0.88, 1.07)),
    150: (135, (3.78, 6.40), (0.91, 1.07)),
    175: (148, (3.90, 6.51), (0.91, 1.07)),
    200: (155, (3.97, 6.59), (0.92, 1.07)),
}


def main_truth(results: dict[str, Any]) -> float:
    """ν = 5 as in the paper, if it is there."""
    return 5.0 if 5.0 in results["truths"] else results["truths"][0]


def printed(results: dict[str, Any]) -> dict[int, Any]:
    """What the notebook prints, by sample size, of the sizes and the ν that are there."""
    sizes = sorted(set(PRINTED) & set(results["sizes"])) if main_truth(results) == 5.0 else []
    return {size: PRINTED[size] for size in sizes}


def pick(results: dict[str, Any], size: int, n: int = 1, truth: float | None = None) -> dict[str, np.ndarray]:
    """The fits of one size, number of targets and true ν (the main one unless named), with residuals."""
    fits, truth = results["fits"], main_truth(results) if truth is None else truth
    rows = (fits["size"] == size) & (fits["targets"] == n) & (fits["truth"] == truth)
    chosen = {name: column[rows] for name, column in fits.items()}
    return chosen | {"nu_residual": chosen["nu"] - truth, "scale_residual": chosen["scale"] - 1}


def ends(results: dict[str, Any]) -> tuple[int, int]:
    """Smallest sample size, and the largest within those of the paper."""
    within = [size for size in results["sizes"] if size <= SMALL]
    return results["sizes"][0], within[-1] if len(within) > 1 else results["sizes"][-1]


def compared(first: np.ndarray, second: np.ndarray, statistic: Any, draws: int = 300) -> Estimate:
    """A statistic of two groups of fits and its bootstrap interval; NaN where a group is empty."""
    if not (len(first) and len(second)):
        return Estimate(np.nan, np.nan, np.nan)
    rng = np.random.default_rng(0)
    one, two = (group[rng.integers(0, len(group), (draws, len(group)))] for group in (first, second))
    value, ends = statistic(first[None], second[None])[0], np.quantile(statistic(one, two), [0.025, 0.975])
    return Estimate(float(value), *map(float, ends))


def fall_of_bias(small: np.ndarray, large: np.ndarray) -> np.ndarray:
    """By how much |median residual| of the small samples exceeds that of the large ones."""
    return np.abs(np.median(small, axis=1)) - np.abs(np.median(large, axis=1))


def spread_ratio(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Width of the 16 % to 84 % range of the first group over that of the second."""
    one, two = (np.diff(np.quantile(group, RANGE, axis=1), axis=0)[0] for group in (first, second))
    return one / two


def printed_scores(results: dict[str, Any]) -> dict[int, np.ndarray]:
    """(printed − ours)/error of the quantiles of kept fits, by sample size: ν 16 %, 84 %, σ 16 %, 84 %."""
    rng, scores = np.random.default_rng(0), {}
    for size, (count, *ranges) in printed(results).items():
        group = pick(results, size)
        found = []
        for name, quantiles in zip(("nu", "scale"), ranges, strict=True):
            values = group[name][group["kept"]]
            again = np.quantile(values[rng.integers(0, len(values), (200, count))], RANGE, axis=1)
            found.append((np.array(quantiles) - again.mean(axis=1)) / again.std(axis=1))
        scores[size] = np.concatenate(found)
    return scores
