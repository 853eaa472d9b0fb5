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
from experiments import _evidence_checks as checks
from experiments._claims import Claim, decide
from experiments._figures import new_figure
from experiments._niw_formulas import log_normal
from experiments._options import option

EXACT = 1e-9  # of a relative deviation in float64
CAPTIONS = {
    "float32": "Error of ln p(y | m) in float32 below which 90 % of examples stay, n = 2, residuals of order 1: the "
    "formula as printed and the stable form, (left) against ν and (right) against the scale of L."
}


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
        cases = checks.make_cases(rng, n, config.cases)
        closed = _closed_forms(cases)
        by_n["monte_carlo"].append(checks.monte_carlo(rng, cases, closed, config.draws))
        by_n["identities"].append(checks.identities(cases))
        by_n["forms"].append(checks.same_evidence(cases, closed["evidence"]))
        by_n["posterior"].append(checks.posterior(cases, rng))
        if n == 1:
            integral, univariate = checks.quadrature(cases, closed["evidence"]), checks.univariate(cases)
    found = {"draws": config.draws, "quadrature": integral, "univariate": univariate, **by_n}
    return found | {"normalisations": checks.normalisations(), **float32_errors(rng, config.points)}


@partial(jax.jit, static_argnames="form")
def _library(mu: Any, L: Any, kappa: Any, nu: Any, y: Any, form: Any = "stable") -> dict[str, Any]:
    niw = mder.NIW(mu, L, kappa, nu)
    closed = {"evidence": mder.log_evidence(niw, y, form=form)}
    return closed | {"aleatoric": mder.aleatoric(niw), "epistemic": mder.epistemic(niw)}


def _closed_forms(cases: checks.Cases) -> dict[str, np.ndarray]:
    """Log evidence, E[Σ] and var[μ] of all cases from the library, in float64."""
    prior = cases.prior
    with jax.enable_x64(True):
        return {name: np.asarray(value) for name, value in _library(prior.mu, cases.L, *prior[2:], cases.y).items()}


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
    quantiles, last = {}, slice((len(nus) - 1) * points, len(nus) * points)
    for form in ("stable", "slogdet"):
        value = np.asarray(_library(*inputs, form=form)["evidence"], np.float64)
        error = np.where(np.isfinite(value), np.abs(value - exact), np.inf).reshape(-1, points)
        quantiles[form] = np.sort(error, axis=1)[:, int(0.9 * points)]
        if form == "stable":
            L64 = L[last].astype(np.float64)
            gaussian = log_normal(y[last].astype(np.float64), np.zeros(2), L64 @ np.swapaxes(L64, -1, -2))
            to_gaussian = float(np.max(np.abs(value[last] - gaussian) / np.maximum(1, np.abs(gaussian))))
    rows = [{form: float(values[i]) for form, values in quantiles.items()} for i in range(len(nus) + len(scales))]
    return {
        "nu": nus.tolist(),
        "error_over_nu": rows[: len(nus)],
        "scale": scales.tolist(),
        "error_over_scale": rows[len(nus) :],
        "from_gaussian": to_gaussian,
    }


def report(results: dict[str, Any]) -> str:
    """A table of the Monte-Carlo check and the worst float32 errors."""
    lines = ["evidence: closed form against an average over draws of (mu, Sigma)"]
    lines += [
        f"  n = {row['n']}: {row['closed_form']:.4f}, average {row['monte_carlo']:.4f} "
        f"+- {row['standard_error']:.4f} ({row['deviation']:+.1f} standard errors)"
        for row in results["monte_carlo"]
    ]
    lines.append(f"  n = 1 by quadrature: relative deviation {results['quadrature']['evidence']:.1e}")
    lines.append("posterior after m observations: how much ln(prior x likelihood / posterior) depends on (mu, Sigma)")
    lines += [
        f"  n = {row['n']}: {row['over_m']['spread']:.1e} with averages over m, {row['over_n']['spread']:.1e} over n"
        for row in results["posterior"]
    ]
    lines.append("error of ln p in float32, 90 % of examples below, n = 2")
    for name, values, label in (("error_over_nu", "nu", "nu"), ("error_over_scale", "scale", "L / residual")):
        worst = {form: max(point[form] for point in results[name]) for form in ("stable", "slogdet")}
        low, high = results[values][0], results[values][-1]
        errors = f"stable {worst['stable']:.1e}, as printed {worst['slogdet']:.1e}"
        lines.append(f"  {label} from {low:.2g} to {high:.2g}: {errors}")
    return "\n".join(lines)


def claims(results: dict[str, Any]) -> list[Claim]:
    """Rows on the derivation, the moments, the posterior and the limit of large ν."""
    return [
        *_derivation_claims(results),
        *_sampling_claims(results),
        *_posterior_claims(results),
        _limit_claim(results),
    ]


def _derivation_claims(results: dict[str, Any]) -> list[Claim]:
    integral, norms = results["quadrature"], results["normalisations"]
    steps = {name: _largest(results["identities"], name) for name in ("trick1", "trick2", "sylvester")}
    forms = {name: _largest(results["forms"], name) for name in results["forms"][0]}
    largest = "largest relative deviation in float64, random values, n = 1, 2, 3"
    return [
        Claim(
            "App. C.3, eq:trick1, eq:trick2, eq:sylvester",
            "the two factorisations and the determinant identity behind the evidence are exact",
            largest,
            "0",
            ", ".join(f"{name} {value:.0e}" for name, value in steps.items()),
            decide(max(steps.values()) < EXACT),
        ),
        Claim(
            "App. C.2, eq:normnorm, eq:normiw",
            "the normal and the inverse Wishart density as printed integrate to 1",
            "deviation of the integral by quadrature, normal n = 3, inverse Wishart n = 2, NIG n = 1",
            "0",
            f"{norms['normnorm']:.0e}, {norms['normiw']:.0e}, {integral['prior']:.0e}",
            decide(max(*norms.values(), integral["prior"]) < EXACT),
        ),
        Claim(
            "Sec. 2.2, App. C.2, eq:modev, eq:modev22, eq:nll, eq:nll2, loss of Sec. 4",
            "all printed forms of the evidence are the same t density, and the library's",
            largest,
            "0",
            ", ".join(f"{name} {value:.0e}" for name, value in forms.items()),
            decide(max(forms.values()) < EXACT),
        ),
        Claim(
            "App. C.2, end",
            "for one target the evidence is that of Amini et al. with ν = 2α and νσ₀² = 2β",
            "largest relative deviation in float64, random values",
            "0",
            f"{results['univariate']:.0e}",
            decide(results["univariate"] < EXACT),
        ),
        Claim(
            "Sec. 2.2, eq:modev1 = eq:modev21",
            "the integral over (μ, σ²) has this closed form, n = 1",
            f"relative deviation of a two-dimensional quadrature, largest of {integral['cases']} cases",
            "0",
            f"{integral['evidence']:.0e}",
            decide(integral["evidence"] < EXACT),
        ),
    ]


def _sampling_claims(results: dict[str, Any]) -> list[Claim]:
    rows = results["monte_carlo"]
    scores = [row["deviation"] for row in rows]
    moments = {name: max(abs(z) for row in rows for z in row["moments"][name]) for name in rows[0]["moments"]}
    number = sum(len(values) for row in rows for values in row["moments"].values())
    return [
        Claim(
            "Sec. 2.2, eq:modev1 = eq:modev21",
            "the integral over (μ, Σ) has this closed form, n = 1, 2, 3",
            f"distance from the average of {results['draws']} draws in standard errors",
            "0",
            ", ".join(f"{z:+.1f}" for z in scores),
            decide(max(map(abs, scores)) < 4),
        ),
        Claim(
            "App. C.1, Sec. 4",
            "E[μ] = μ₀, E[Σ] = ν/(ν−n−1) Σ₀ and var[μ] = E[Σ]/κ",
            f"largest distance from draws in standard errors, {number} entries, n = 1, 2, 3",
            "0",
            ", ".join(f"{name} {z:.1f}" for name, z in moments.items()),
            decide(max(moments.values()) < 4.5),
        ),
    ]


def _posterior_claims(results: dict[str, Any]) -> list[Claim]:
    rows = results["posterior"]
    m = rows[0]["m"]
    gained = {row[name] for row in rows for name in ("gained_kappa", "gained_nu")}
    right, printed = (max(row[name]["spread"] for row in rows) for name in ("over_m", "over_n"))
    least = min(row["over_n"]["spread"] for row in rows)
    away = max(row["over_m"][name] for row in rows for name in ("sequential", "chain"))
    return [
        Claim(
            "App. B, eq:postdens",
            "κ and ν count virtual observations: each real one adds one to both, one at a time or all at once",
            f"gain by {m} observations one at a time; largest distance of the update at once from it, n = 1, 2, 3",
            f"{m}, {m}; 0",
            f"{', '.join(f'{value:.12g}' for value in sorted(gained))}; {away:.0e}",
            decide(all(abs(value - m) < EXACT for value in gained) and max(away, right) < EXACT),
        ),
        Claim(
            "App. B, below eq:postdens",
            "the averages in the posterior divide by n, the number of targets, as printed (m is meant)",
            f"how much ln(prior × likelihood / posterior) depends on (μ, Σ), m = {m}, n = 1, 2, 3 (by Bayes' rule 0)",
            "0",
            f"over n: {least:.2g} to {printed:.2g} nats; over m: {right:.0e}",
            decide(printed < EXACT),
        ),
    ]


def _limit_claim(results: dict[str, Any]) -> Claim:
    last = results["error_over_nu"][-1]
    return Claim(
        "Sec. 4, below the loss",
        "the limit ν → ∞ is numerically unstable, so that ν must be cut off",
        f"error of ln p in float32 at ν = {results['nu'][-1]:.0e}, 90 % of examples below, n = 2",
        "",
        f"as printed {last['slogdet']:.2g} nats, stable form {last['stable']:.0e} (relative distance from the "
        f"Gaussian {results['from_gaussian']:.0e})",
        decide(not last["stable"] < 1e-3, in_part=not last["slogdet"] < 1e-3),
    )


def _largest(rows: list[dict[str, float]], name: str) -> float:
    return max(row[name] for row in rows)


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
