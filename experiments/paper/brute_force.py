"""Random cases of a NIW and the posterior of App. B by brute force, which several studies check."""

from typing import Any, NamedTuple

import numpy as np

from experiments.paper import printed_formulas as paper
from experiments.paper.printed_formulas import Array, Prior, log_niw, log_normal, times

OBSERVATIONS = 7


class Cases(NamedTuple):
    """Priors with factors L of Σ₀, an observation y, and a point (μ, Σ) for each; the first is for the draws."""

    prior: Prior
    L: Array
    y: Array
    mu: Array
    Sigma: Array


def make_cases(rng: np.random.Generator, n: int, count: int) -> Cases:
    """A fixed coupled prior with integer ν = n + 6, then `count` random ones."""
    L, C = _tril(rng, n, count + 1), _tril(rng, n, count + 1)
    kappa, nu = rng.lognormal(size=count + 1), n + rng.gamma(2.0, 3.0, size=count + 1)
    mu0, y, mu = rng.normal(size=(3, count + 1, n))
    L[0] = np.tril(np.full((n, n), 0.4)) + 0.6 * np.eye(n)
    mu0[0], y[0], nu[0], kappa[0] = 0.0, np.linspace(0.5, -1.0, n), n + 6, n + 6
    gram = L @ np.swapaxes(L, -1, -2)
    return Cases(Prior(mu0, times(nu, gram), kappa, nu), L, y, mu, C @ np.swapaxes(C, -1, -2))


def _tril(rng: np.random.Generator, n: int, count: int) -> Array:
    """Random lower triangular matrices with a positive diagonal, (count, n, n)."""
    matrix = np.tril(rng.normal(scale=0.5, size=(count, n, n)), -1)
    matrix[:, range(n), range(n)] = rng.lognormal(sigma=0.5, size=(count, n))
    return matrix


def posterior(cases: Cases, rng: np.random.Generator) -> dict[str, Any]:
    """eq:postdens after m observations with averages over m, and as printed over n.

    prior × likelihood / posterior is p(Y) and so must not depend on (μ, Σ): `spread` is how much its logarithm does.
    `sequential` compares with m updates by one observation each, `chain` with the product of their evidences.
    """
    prior, n = Prior(*(part[0] for part in cases.prior)), cases.y.shape[-1]
    Y = 1.0 + rng.normal(size=(OBSERVATIONS, n))
    one_by_one, log_evidence = prior, 0.0
    for y in Y:
        log_evidence += float(paper.predictive(one_by_one, y))
        one_by_one = paper.update(one_by_one, y[None], 1)
    gained = {f"gained_{name}": float(getattr(one_by_one, name) - getattr(prior, name)) for name in ("kappa", "nu")}
    found: dict[str, Any] = {"n": n, "m": OBSERVATIONS, **gained}
    log_joint = log_niw(prior, cases.mu, cases.Sigma) + sum(log_normal(y, cases.mu, cases.Sigma) for y in Y)
    for name, divisor in (("over_m", OBSERVATIONS), ("over_n", n)):
        at_once = paper.update(prior, Y, divisor)
        log_ratio = log_joint - log_niw(at_once, cases.mu, cases.Sigma)
        found[name] = {
            "spread": float(np.ptp(log_ratio)),
            "sequential": max(float(np.max(np.abs(a - b))) for a, b in zip(at_once, one_by_one, strict=True)),
            "chain": float(np.max(np.abs(log_ratio - log_evidence))),
        }
    return found | {"prior": list(prior), "Y": Y, "sequential": list(one_by_one)}
