"""The closed forms of App. B and C against brute force, and the error of both forms of the evidence in float32.

No figure of the paper; its equations eq:modev to eq:nll2, eq:postdens, eq:trick1, eq:trick2 and eq:sylvester.
Command: ``python -m experiments evidence``. Run time: about 3 s on two cores.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

import mder_jax as mder
from experiments.harness.command_options import option
from experiments.paper import brute_force
from experiments.paper.evidence import checks
from experiments.paper.evidence.claims import claims as claims, report as report
from experiments.paper.evidence.figures import CAPTIONS as CAPTIONS, plot as plot
from experiments.paper.evidence.statistics import FORMS
from experiments.paper.printed_formulas import log_normal


@dataclass(frozen=True)
class Config:
    """Options of the study."""

    seed: int = option(0, "seed of all draws", least=0)
    draws: int = option(100_000, "draws of (mu, Sigma) for each average", full=400_000, least=100)
    points: int = option(400, "examples for each point of the error curves", full=10_000)
    cases: int = option(500, "random values for each identity", full=20_000)


def run(config: Config) -> dict[str, Any]:
    """Integrals, identities, moments and posteriors for n = 1, 2, 3, and float32 errors against float64."""
    rng = np.random.default_rng(config.seed)
    by_n: dict[str, list[Any]] = {"monte_carlo": [], "identities": [], "forms": [], "posterior": []}
    for n in (1, 2, 3):
        cases = brute_force.make_cases(rng, n, config.cases)
        with jax.enable_x64(True):
            closed = jax.tree.map(np.asarray, _library(cases.prior.mu, cases.L, *cases.prior[2:], cases.y))
        by_n["monte_carlo"].append(checks.monte_carlo(rng, cases, closed, config.draws))
        by_n["identities"].append(checks.identities(cases))
        by_n["forms"].append(checks.same_evidence(cases, closed["evidence"]))
        by_n["posterior"].append(brute_force.posterior(cases, rng))
        if n == 1:
            integral, univariate = checks.quadrature(cases, closed["evidence"]), checks.univariate(cases)
    found = {"draws": config.draws, "quadrature": integral, "univariate": univariate, **by_n}
    return found | {"normalisations": checks.normalisations(), **float32_errors(rng, config.points)}


@partial(jax.jit, static_argnames="form")
def _library(mu: Any, L: Any, kappa: Any, nu: Any, y: Any, form: Any = "stable") -> dict[str, Any]:
    """Log evidence, E[Σ] and var[μ] of the library, compiled."""
    niw = mder.NIW(mu, L, kappa, nu)
    closed = {"evidence": mder.log_evidence(niw, y, form=form)}
    return closed | {"aleatoric": mder.aleatoric(niw), "epistemic": mder.epistemic(niw)}


def float32_errors(rng: np.random.Generator, points: int) -> dict[str, Any]:
    """Errors of both forms in float32 over ν at scale 1 and over the scale of L at ν = 8, n = 2, κ = ν."""
    nus, scales = np.logspace(np.log10(3.1), 8, 25), np.logspace(-6, 1, 22)
    nu = np.repeat(np.concatenate([nus, np.full(len(scales), 8.0)]), points).astype(np.float32)
    scale = np.repeat(np.concatenate([np.ones(len(nus)), scales]), points)
    entries, y = rng.normal(size=(2, len(nu))), rng.normal(size=(len(nu), 2)).astype(np.float32)
    L = np.zeros((len(nu), 2, 2), np.float32)
    L[:, 0, 0], L[:, 1, 0], L[:, 1, 1] = scale * np.exp(0.3 * entries[0]), scale * entries[1], scale
    inputs = (np.zeros_like(y), L, nu, nu, y)
    with jax.enable_x64(True):
        exact = np.asarray(_library(*(array.astype(np.float64) for array in inputs))["evidence"])
    values = {form: np.asarray(_library(*inputs, form=form)["evidence"], np.float64) for form in FORMS}
    bounds = [_bounds(value, exact, points) for value in values.values()]
    rows = [dict(zip(FORMS, pair, strict=True)) for pair in zip(*bounds, strict=True)]
    last = slice((len(nus) - 1) * points, len(nus) * points)
    L64 = L[last].astype(np.float64)
    gaussian = log_normal(y[last].astype(np.float64), np.zeros(2), L64 @ np.swapaxes(L64, -1, -2))
    return {
        "nu": nus.tolist(),
        "error_over_nu": rows[: len(nus)],
        "scale": scales.tolist(),
        "error_over_scale": rows[len(nus) :],
        "from_gaussian": float(np.max(np.abs(values["stable"][last] - gaussian) / np.maximum(1, np.abs(gaussian)))),
    }


def _bounds(value: np.ndarray, exact: np.ndarray, points: int) -> list[float]:
    """The error below which 90 % of the examples of each point stay; infinite where the value is not finite."""
    error = np.where(np.isfinite(value), np.abs(value - exact), np.inf).reshape(-1, points)
    return np.sort(error, axis=1)[:, int(0.9 * points)].tolist()
