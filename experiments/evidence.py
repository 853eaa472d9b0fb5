"""The closed forms of App. B and C against brute force, and the error of both forms of the evidence in float32.

Command: ``python -m experiments evidence``. Run time: about 15 s on two cores.
"""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import mder_jax as mder
from experiments._study import new_figure


@dataclass(frozen=True)
class Config:
    """Options of the study."""

    seed: int = field(default=0, metadata={"help": "seed of all draws"})
    draws: int = field(default=100_000, metadata={"help": "draws of (mu, Sigma) for each Monte-Carlo average"})
    points: int = field(default=400, metadata={"help": "examples for each point of the error curves"})


def run(config: Config) -> dict[str, Any]:
    """Evidence by Monte Carlo for n = 1, 2, 3, and float32 errors against float64 over ν and over the scale of L."""
    key = jax.random.key(config.seed)
    rows = [monte_carlo(jax.random.fold_in(key, n), n, config.draws) for n in (1, 2, 3)]
    rng = np.random.default_rng(config.seed)
    nus = np.logspace(np.log10(3.1), 8, 25)
    scales = np.logspace(-6, 1, 22)
    over_nu = [float32_error(rng, config.points, nu=nu, scale=1.0) for nu in nus]
    over_scale = [float32_error(rng, config.points, nu=8.0, scale=scale) for scale in scales]
    return {
        "monte_carlo": rows,
        "nu": nus.tolist(),
        "error_over_nu": over_nu,
        "scale": scales.tolist(),
        "error_over_scale": over_scale,
    }


def monte_carlo(key: jax.Array, n: int, draws: int) -> dict[str, float]:
    """ln of the average Gaussian likelihood over draws of (μ, Σ), eq:modev1, beside the closed form."""
    L = jnp.tril(0.4 * jnp.ones((n, n))) + 0.6 * jnp.eye(n)
    niw = mder.couple(jnp.zeros(n), L, nu=n + 4.0)
    y = jnp.linspace(0.5, -1.0, n) if n > 1 else jnp.array([0.5])

    @jax.jit
    def likelihoods(key: jax.Array) -> jax.Array:
        draw = mder.sample(key, niw, (draws,))
        given = mder.StudentT(jnp.inf, draw.mu, mder.linalg.cholesky(draw.sigma))
        return jnp.exp(given.log_prob(jnp.broadcast_to(y, draw.mu.shape)))

    values = np.asarray(likelihoods(key), np.float64)
    average, error = values.mean(), values.std() / np.sqrt(draws)
    closed = float(mder.log_evidence(niw, y))
    return {
        "n": n,
        "closed_form": closed,
        "monte_carlo": float(np.log(average)),
        "standard_error": float(error / average),
        "deviation": float((np.exp(closed) - average) / error),
    }


def float32_error(rng: np.random.Generator, points: int, nu: float, scale: float) -> dict[str, float]:
    """The error below which 90 % of examples stay, both forms in float32, n = 2, residuals of order 1."""
    entries = rng.normal(size=(points, 3))
    L = np.zeros((points, 2, 2), np.float32)
    L[:, 0, 0], L[:, 1, 0], L[:, 1, 1] = (scale * np.exp(0.3 * entries[:, 0]), scale * entries[:, 1], scale)
    y = rng.normal(size=(points, 2)).astype(np.float32)
    mu, kappa = np.zeros_like(y), np.full(points, nu, np.float32)
    with jax.enable_x64(True):
        mu64, L64, kappa64, y64 = (array.astype(np.float64) for array in (mu, L, kappa, y))
        exact = _evidence(mu64, L64, kappa64, y64, "stable")
    results = {}
    for form in ("stable", "slogdet"):
        value = np.asarray(_evidence(mu, L, kappa, y, form), np.float64)
        error = np.where(np.isfinite(value), np.abs(value - exact), np.inf)
        results[form] = float(np.sort(error)[int(0.9 * points)])
    return results


def _evidence(mu: np.ndarray, L: np.ndarray, nu: np.ndarray, y: np.ndarray, form: Any) -> np.ndarray:
    return np.asarray(mder.log_evidence(mder.couple(mu, L, nu), y, form=form))


def report(results: dict[str, Any]) -> str:
    """A table of the Monte-Carlo check and the worst float32 errors."""
    lines = ["evidence: closed form against an average over draws of (mu, Sigma)"]
    lines += [
        f"  n = {row['n']}: {row['closed_form']:.4f}, average {row['monte_carlo']:.4f} "
        f"+- {row['standard_error']:.4f} ({row['deviation']:+.1f} standard errors)"
        for row in results["monte_carlo"]
    ]
    lines.append("error of ln p in float32, 90 % of examples below, n = 2")
    for name, values, label in (("error_over_nu", "nu", "nu"), ("error_over_scale", "scale", "L / residual")):
        worst = {form: max(point[form] for point in results[name]) for form in ("stable", "slogdet")}
        low, high = results[values][0], results[values][-1]
        errors = f"stable {worst['stable']:.1e}, as printed {worst['slogdet']:.1e}"
        lines.append(f"  {label} from {low:.2g} to {high:.2g}: {errors}")
    return "\n".join(lines)


def plot(results: dict[str, Any]) -> dict[str, Any]:
    """Errors of both forms in float32."""
    figure, (left, right) = new_figure(2)
    for axes, x, name in ((left, "nu", "error_over_nu"), (right, "scale", "error_over_scale")):
        for form, label in (("slogdet", "as printed (eq:nll)"), ("stable", "stable form")):
            axes.loglog(results[x], [point[form] for point in results[name]], marker=".", label=label)
        axes.set_ylabel("error of ln p in float32 (nats)")
    left.set_xlabel("ν")
    right.set_xlabel("diagonal of L / residual")
    left.legend()
    return {"float32": figure}
