"""Numbers of the circle's networks. A reading has a field for each network: (data sets, members, ...)."""

import numpy as np

from experiments.harness.statistics import Estimate, fraction, interval
from experiments.paper import circle_recipe
from experiments.paper.circle_recipe import GRID, QUADRANT_MIDDLES

Reading = dict[str, np.ndarray]
POINTS = {"split": "90 % of the", "all": "all"}  # what a reading trains on
SIGNS = (1, -1, 1, -1)  # of the correlation in the quadrants


def members(reading: Reading, name: str) -> np.ndarray:
    """A field of all members of all data sets: (data sets × members, ...)."""
    return reading[name].reshape(-1, *reading[name].shape[2:])


def epistemic_ratio(reading: Reading) -> Estimate:
    """Trace of var[μ] near the centre over that near the ends, median over networks."""
    nu, L = members(reading, "nu"), members(reading, "L")
    trace = np.sum(L**2, axis=(-1, -2)) / np.maximum(nu - 3, 1e-6)  # var[μ] = Σ₀ ν / (κ (ν − 3)), κ = ν
    centre, ends = (np.median(trace[:, mask], axis=1) for mask in (circle_recipe.NEAR_CENTRE, circle_recipe.NEAR_ENDS))
    return interval(centre / ends)


def error_of_mean(reading: Reading, mask: np.ndarray) -> Estimate:
    """Median distance of μ from the circle, over some t and then over networks."""
    return interval(np.median(circle_recipe.error_of_mean(members(reading, "mu"))[:, mask], axis=1))


def quadrants(reading: Reading) -> np.ndarray:
    """Median correlation in the middle of the quadrants, of each member: (M, 4)."""
    rho = circle_recipe.correlation(members(reading, "L"))
    return np.stack([np.median(rho[:, middle], axis=1) for middle in QUADRANT_MIDDLES], axis=1)


def right_correlations(reading: Reading) -> list[Estimate]:
    """Fraction of networks with |ρ| > 0.9 and the right sign, for each quadrant."""
    rho = quadrants(reading) * SIGNS
    return [fraction(int(np.sum(values > 0.9)), len(rho)) for values in rho.T]


def spreads_of_correlation(reading: Reading) -> list[float]:
    """Standard deviation of ρ over networks: near the sign flips, in the outer and in the inner quadrants."""
    spread = np.std(circle_recipe.correlation(members(reading, "L")), axis=0)
    first, second, third, fourth = QUADRANT_MIDDLES
    flips = circle_recipe.near_sign_flips(width=np.pi / 16)
    return [float(np.mean(spread[where])) for where in (flips, first | fourth, second | third)]


def agreements(reading: Reading) -> list[tuple[float, float]]:
    """Pearson correlation of the median covariance with the truth, and its scale: at the ends, at the centre."""
    predicted = np.median(circle_recipe.covariance(members(reading, "L")), axis=0)
    truth, ends = circle_recipe.true_covariance(), np.cos(GRID) >= 0
    pairs = [(predicted[half], truth[half]) for half in (ends, ~ends)]
    return [(float(np.corrcoef(*pair)[0, 1]), scale_of(*pair)) for pair in pairs]


def scale_of(predicted: np.ndarray, truth: np.ndarray) -> float:
    """The least-squares factor from truth to prediction."""
    return float(predicted @ truth / (truth @ truth))
