"""Bias and spread of ν and the scale of Student-t fits over the sample size, for one target and for two.

Figure res of App. "Bias of fit parameters". The location is fixed at 0 and the scale is 1, as in the authors' notebook;
samples are independent here and subsets of one pool of 10,000 draws there.
Command: ``python -m experiments nu_bias``. Run time: about 6 s on two cores.
"""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from experiments.harness.command_options import option
from experiments.harness.progress import running
from experiments.paper.nu_bias import fits as fitting
from experiments.paper.nu_bias.claims import claims as claims, report as report
from experiments.paper.nu_bias.figures import CAPTIONS as CAPTIONS, plot as plot
from experiments.paper.nu_bias.statistics import LIMITS, SMALL

SIZES = (50, 75, 100, 125, 150, 175, 200, 500, 1000, 2000)


@dataclass(frozen=True)
class Config:
    """Options of the study."""

    seed: int = option(0, "seed of all samples", least=0)
    truths: tuple[float, ...] = option((5.0,), "true ν", full=(3.0, 5.0), least=1)
    sizes: tuple[int, ...] = option(SIZES, "sample sizes", full=(*SIZES, 5000, 10_000), least=10)
    fits: int = option(600, f"fits of each sample size up to {SMALL}; the paper has 200", full=2000, least=20)
    large_fits: int = option(200, "fits of each larger sample size", least=20)
    low: float = option(1.0, "lower bound of ν", least=0.1)
    high: float = option(100.0, "upper bound of ν", least=20)


def run(config: Config) -> dict[str, Any]:
    """A table of all fits, one row each, and how many Newton steps they took."""
    rng = np.random.default_rng(config.seed)
    tables = []
    for number, truth in enumerate(config.truths):
        running("nu_bias", number / len(config.truths))
        tables.append(fit_table(rng, truth, config))
    fits = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    return {"truths": list(config.truths), "sizes": sorted(config.sizes), "fits": fits}


def fit_table(rng: np.random.Generator, truth: float, config: Config) -> dict[str, np.ndarray]:
    """Samples of all sizes from t_ν with one and with two targets, and their fits."""
    counts = [config.fits if size <= SMALL else config.large_fits for size in config.sizes]
    sizes = np.tile(np.repeat(config.sizes, counts), 2)
    targets = np.repeat([1, 2], sum(counts))
    nu = np.full(len(sizes), truth)
    with jax.enable_x64(True):
        found, gradient, steps = fitting.fit_all(fitting.draw(rng, nu, sizes, targets), config.low, config.high)
    return {
        "truth": nu,
        "targets": targets,
        "size": sizes,
        "steps": np.full(len(sizes), int(steps)),
        "converged": np.asarray(gradient) <= fitting.TOLERANCE,
        **estimates(found, targets, sizes, config),
    }


def estimates(found: fitting.Fit, targets: np.ndarray, sizes: np.ndarray, config: Config) -> dict[str, np.ndarray]:
    """ν, the scale |S|^(1/2n), whether ν is at a bound, and whether the authors' notebook would keep a fit of n = 1."""
    u, hessian = np.asarray(found.u), np.asarray(found.hessian)
    nu, first = 1 / u[:, 0], u[:, 1]
    determinant = u[:, 1] * u[:, 3] - u[:, 2] ** 2
    covariance = np.linalg.inv(hessian[:, :2, :2]) / sizes[:, None, None]
    errors = np.sqrt(np.maximum(np.diagonal(covariance, axis1=1, axis2=2), 0.0))
    sigma, sigma_error = first**-0.5, 0.5 * first**-1.5 * errors[:, 1]
    kept = off_limit(nu, nu**2 * errors[:, 0], LIMITS[0]) & off_limit(sigma, sigma_error, LIMITS[1])
    return {
        "nu": nu,
        "scale": determinant ** (-0.5 / targets),
        "at_bound": (u[:, 0] <= 1 / config.high) | (u[:, 0] >= 1 / config.low),
        "kept": (targets == 1) & kept,
    }


def off_limit(value: np.ndarray, error: np.ndarray, limit: float) -> np.ndarray:
    """Minuit's rule for a parameter between 0 and a limit: it must be half an error away from both.

    The error e is that of value = limit/2 (1 + sin t): half of the way from t − dt to t + dt, where a dt > 1 makes the
    way up as long as the limit.
    """
    inside = (value > 0) & (value < limit)
    value = np.where(inside, value, limit / 2)
    t, dt = np.arcsin(2 * value / limit - 1), error / np.sqrt(value * (limit - value))
    up, down = (np.abs(limit / 2 * (1 + np.sin(t + step)) - value) for step in (dt, -dt))
    e = 0.5 * (np.where(dt > 1, limit, up) + down)
    return inside & (np.minimum(value, limit - value) >= 0.5 * e)
