"""The evidence to 50 digits with mpmath, from the very floats the library is given."""

from dataclasses import dataclass

import mpmath
import numpy as np

DIGITS = 50


@dataclass(frozen=True)
class Exact:
    value: float
    largest_term: float


def log_evidence(mu, L, kappa, nu, y) -> Exact:
    """ln p(y | m) of one row, and the largest of the four terms it is the sum of."""
    with mpmath.workdps(DIGITS):
        n = len(mu)
        kappa, nu = mpmath.mpf(float(kappa)), mpmath.mpf(float(nu))
        white = []
        for j in range(n):
            rest = mpmath.mpf(float(y[j])) - mpmath.mpf(float(mu[j]))
            rest -= mpmath.fdot((mpmath.mpf(float(L[j, k])), white[k]) for k in range(j))
            white.append(rest / mpmath.mpf(float(L[j, j])))
        q = mpmath.fdot((w, w) for w in white)
        terms = [
            mpmath.loggamma((nu + 1) / 2) - mpmath.loggamma((nu - n + 1) / 2),
            -mpmath.mpf(n) / 2 * mpmath.log(mpmath.pi * nu * (1 + kappa) / kappa),
            -mpmath.fsum(mpmath.log(mpmath.mpf(float(L[j, j]))) for j in range(n)),
            -(nu + 1) / 2 * mpmath.log1p(kappa / (1 + kappa) * q / nu),
        ]
        return Exact(float(mpmath.fsum(terms)), float(max(abs(term) for term in terms)))


def random_box(seed: int, n: int, count: int, condition: tuple[float, float], dtype) -> dict[str, np.ndarray]:
    """Parameters over the whole box: ν from n + 1.001 to 1e8, κ from 1e-6 to 1e8, residuals 1e-6 to 1e6 scales."""
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.normal(size=(count, n, n)))[0]
    log_condition = rng.uniform(*np.log10(condition), size=(count, 1))
    spread = rng.uniform(size=(count, n))
    spread[:, 0], spread[:, -1] = 0, 1
    root = rotation * 10 ** (-log_condition * spread / 2)[:, None, :]
    upper = np.linalg.qr(np.swapaxes(root, -1, -2))[1]
    L = np.swapaxes(upper * np.sign(np.diagonal(upper, axis1=-2, axis2=-1))[..., None], -1, -2)
    scale = 10 ** rng.uniform(-3, 3, size=count)
    L = L * scale[:, None, None]
    direction = rng.normal(size=(count, n))
    direction /= np.linalg.norm(direction, axis=-1, keepdims=True)
    along_factor = np.einsum("bij,bj->bi", L, direction)  # ratio in Mahalanobis units
    plain = direction * scale[:, None]  # ratio in units of the largest standard deviation
    ratio = 10 ** rng.uniform(-6, 6, size=(count, 1))
    d = ratio * np.where(rng.uniform(size=(count, 1)) < 0.5, along_factor, plain)
    mu = rng.normal(size=(count, n)) * np.abs(d) * rng.integers(0, 2, size=(count, 1))
    excess = 10 ** rng.uniform(-3, 8, size=count)
    box = {
        "mu": mu,
        "L": L,
        "kappa": 10 ** rng.uniform(-6, 8, size=count),
        "nu": np.minimum(n + 1 + excess, 1e8),
        "y": mu + d,
    }
    box = {name: value.astype(dtype) for name, value in box.items()}
    box["nu"] = np.maximum(box["nu"], np.nextafter(dtype(n + 1.001), dtype(np.inf)))
    return box
