"""Integrals over Student-t densities: fits of one t to another, distances from a normal, Fisher information."""

import functools
from collections.abc import Callable

import numpy as np
from scipy import optimize, special, stats


@functools.cache
def half_line() -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre nodes and weights on r > 0 by r = (1 + u)/(1 − u)."""
    u, weights = special.roots_legendre(300)
    return (1 + u) / (1 - u), 2 * weights / (1 - u) ** 2


@functools.cache
def interval_nodes(core: float) -> tuple[np.ndarray, np.ndarray]:
    """The same on −core < x < core."""
    u, weights = special.roots_legendre(100)
    return core * u, core * weights


# One t fitted to another


def smallest(loss: Callable[[float], float]) -> float:
    """The σ between 0.3 and 4 with the least loss."""
    return float(optimize.minimize_scalar(loss, bounds=(0.3, 4.0), method="bounded", options={"xatol": 1e-8}).x)


def fit_losses(core: float, nu: float = 5.0, truth: float = 2.0) -> dict[str, Callable[[float], float]]:
    """How far a t_ν of scale σ is from a t_truth on [−core, core] by several criteria, as functions of σ."""
    x, weights = interval_nodes(core)
    r, line = half_line()
    p, p_line = stats.t.pdf(x, truth), stats.t.pdf(r, truth)

    def q(sigma: float) -> np.ndarray:
        return stats.t.pdf(x, nu, scale=sigma)

    def area(values: np.ndarray) -> float:
        return float(weights @ values)

    return {
        "least squares": lambda s: area((q(s) - p) ** 2),
        "least squares, both renormalised": lambda s: area((q(s) / area(q(s)) - p / area(p)) ** 2),
        "least squares of logarithms": lambda s: area(np.log(q(s) / p) ** 2),
        "likelihood": lambda s: -area(p * np.log(q(s))),
        "likelihood, renormalised": lambda s: -area(p * np.log(q(s) / area(q(s)))),
        "extended likelihood": lambda s: area(q(s) - p * np.log(q(s))),
        "likelihood on the whole line": lambda s: -float(line @ (p_line * stats.t.logpdf(r, nu, scale=s))),
    }


def tails(nu: float, core: float) -> dict[str, float]:
    """The t against a standard normal: mass beyond ±core, within ±1, and there again with σ refitted on the core."""
    x, weights = interval_nodes(core)
    sigma = smallest(lambda s: float(weights @ (stats.t.pdf(x, nu, scale=s) - stats.norm.pdf(x)) ** 2))
    inside = 1 - 2 * stats.norm.sf(1)
    return {
        "nu": nu,
        "tail_ratio": float(stats.t.sf(core, nu) / stats.norm.sf(core)),
        "core_ratio": float((1 - 2 * stats.t.sf(1, nu)) / inside),
        "refitted_core_ratio": float((1 - 2 * stats.t.sf(1 / sigma, nu)) / inside),
    }


# A t against a normal


def matched_scale(m: float) -> float:
    """The σ of the normal nearest to t_m in likelihood: σ² = m/(m − 2), the variance."""
    return float(np.sqrt(m / (m - 2)))


def from_normal(m: float, n: int, sigma: float) -> dict[str, float]:
    """Distances of an n-dimensional t_m from N(0, σ² I); those of the joint density are integrals over r = ‖x‖."""
    r, weights = half_line()
    log_t = np.log(2 * r / n) + stats.f.logpdf(r**2 / n, n, m)  # r²/n is F(n, m)
    log_normal = stats.chi.logpdf(r, n, scale=sigma)
    x = np.linspace(0, 8, 2001)
    kolmogorov = float(np.max(np.abs(stats.t.cdf(x, m) - stats.norm.cdf(x, scale=sigma))))
    return {
        "degrees": m,
        "targets": n,
        "sigma": sigma,
        "total_variation": _total_variation(m, n, sigma),
        "kolmogorov": kolmogorov,
        "kl": float(weights @ (np.exp(log_t) * (log_t - log_normal))),
        "beyond_4": float(stats.t.sf(4 * sigma, m) / stats.norm.sf(4)),
        "kolmogorov_points": float((stats.kstwobign.ppf(0.95) / kolmogorov) ** 2),
    }


def _total_variation(m: float, n: int, sigma: float) -> float:
    """½ ∫ |p − q| dr, the half of how far F − G goes up and down; exact but for the places of its few extremes."""
    u = np.linspace(0, 1, 4001)[:-1]
    r = u / (1 - u)
    return 0.5 * float(np.sum(np.abs(np.diff(stats.f.cdf(r**2 / n, n, m) - stats.chi.cdf(r, n, scale=sigma)))))


def half_power(rng: np.random.Generator, m: float, n: int, sigma: float, trials: int, most: int) -> dict[str, float]:
    """N at which the best test of N(0, σ² I) against t_m (shapes known, 5 % false alarms) sees the t half of the time.

    Log likelihood ratios of draws are summed up to every N at once. From low to high the fraction of tests that see
    the t is within two standard errors of ½; where `most` draws are too few, `most` is given.
    """
    squares = {
        "normal": sigma**2 * rng.chisquare(n, (trials, most)),
        "t": n * rng.f(n, m, (trials, most)),
    }
    ratio = {name: 0.5 * q / sigma**2 - 0.5 * (m + n) * np.log1p(q / m) for name, q in squares.items()}
    sums = {name: np.cumsum(value, axis=1) for name, value in ratio.items()}  # but for a constant times N
    limits = np.quantile(sums["normal"], [0.94, 0.95, 0.96], axis=0)
    easy, power, hard = np.mean(sums["t"] > limits[:, None], axis=1)
    slope = (easy - hard) / 0.02  # how much the power changes with the rate of false alarms, which is simulated as well
    error = np.sqrt((power * (1 - power) + slope**2 * 0.05 * 0.95) / trials)
    low, middle, high = (_first(power + step * error >= 0.5) for step in (2, 0, -2))
    return {"points": middle, "low": low, "high": high}


def _first(reached: np.ndarray) -> int:
    """The first N at which it is reached, or the last."""
    return int(np.argmax(reached)) + 1 if reached.any() else len(reached)


# How the estimates of ν and σ depend on each other


def scores(z: np.ndarray, nu: float) -> np.ndarray:
    """(∂/∂ν, ∂/∂σ) ln t_ν(z) at σ = 1, (2, points)."""
    gammas = special.digamma((nu + 1) / 2) - special.digamma(nu / 2) - 1 / nu
    pull = (nu + 1) * z**2 / (nu + z**2)
    return np.stack([0.5 * (gammas - np.log1p(z**2 / nu) + pull / nu), pull - 1])


def information(nu: float, core: float | None = None, counted: bool = False) -> np.ndarray:
    """Fisher information of (ν, σ) in one draw of a t_ν.

    With a core, draws beyond ±core are not seen, or with `counted` only their number is.
    """
    z, weights = half_line() if core is None else interval_nodes(core)
    mass = weights * stats.t.pdf(z, nu) * (2 if core is None else 1)
    values = scores(z, nu)
    inner, mean = (values * mass) @ values.T, values @ mass
    if core is None:
        return inner
    seen = float(mass.sum())
    if counted:
        return inner + np.outer(mean, mean) / (1 - seen)
    return inner / seen - np.outer(mean, mean) / seen**2  # for one draw that is seen


def correlation(information: np.ndarray) -> float:
    """Correlation of the two estimates: −I_12/√(I_11 I_22)."""
    return float(-information[0, 1] / np.sqrt(information[0, 0] * information[1, 1]))


def error_of_nu(information: np.ndarray) -> float:
    """Standard error of ν in one draw: √(I⁻¹)_11."""
    return float(np.sqrt(np.linalg.inv(information)[0, 0]))
