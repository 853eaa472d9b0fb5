"""The closed forms of App. B and C against integrals by quadrature and by draws, and against each other."""

from typing import Any

import numpy as np

from experiments.paper import printed_formulas as paper
from experiments.paper.brute_force import Cases
from experiments.paper.printed_formulas import Array, Prior, log_niw, log_normal, log_t, outer, times


def identities(cases: Cases) -> dict[str, float]:
    """The largest relative deviation between the two sides of eq:trick1, eq:trick2, eq:sylvester at random values."""
    (mu0, Psi, kappa, nu), y, mu, Sigma = cases.prior, cases.y, cases.mu, cases.Sigma
    n, d = y.shape[-1], mu - mu0
    middle = (y + kappa[:, None] * mu0) / (1 + kappa)[:, None]
    first = log_normal(y, mu, Sigma) + log_normal(mu, mu0, times(1 / kappa, Sigma))
    shifted = log_normal(y, mu0, times((1 + kappa) / kappa, Sigma))
    shifted = shifted + log_normal(mu, middle, times(1 / (1 + kappa), Sigma))
    absorbed = log_t(mu, nu - n + 1, mu0, times(1 / (kappa * (nu - n + 1)), Psi))
    absorbed = absorbed + paper.log_inverse_wishart(Sigma, Psi + times(kappa, outer(d)), nu + 1)
    left = np.linalg.det(Psi + times(kappa, outer(d)))
    right = np.linalg.det(Psi) * (1 + kappa * paper.quadratic(Psi, d))
    return {
        "trick1": _deviation(first, shifted),
        "trick2": _deviation(log_niw(cases.prior, mu, Sigma), absorbed),
        "sylvester": float(np.max(np.abs(left / right - 1))),
    }


def same_evidence(cases: Cases, library: Array) -> dict[str, float]:
    """The largest relative deviation of the printed forms of p(y | m), and of the library's, from the t of eq:modev."""
    reference = paper.predictive(cases.prior, cases.y)
    forms = {
        "eq:modev22": paper.ratio_of_determinants,
        "eq:nll": paper.minus_nll,
        "eq:nll2": paper.minus_nll_by_sigma,
        "Sec. 4": paper.minus_coupled_loss,
    }
    found = {name: _deviation(form(cases.prior, cases.y), reference) for name, form in forms.items()}
    return found | {"library": _deviation(library, reference)}


def univariate(cases: Cases) -> float:
    """For n = 1: the deviation of St_2α(y | μ₀, β(1+κ)/(κα)) with ν = 2α, Ψ = 2β from the evidence of the NIW."""
    alpha, beta, kappa = cases.prior.nu / 2, cases.prior.Psi[:, 0, 0] / 2, cases.prior.kappa
    student = log_t(cases.y, 2 * alpha, cases.prior.mu, times(beta * (1 + kappa) / (kappa * alpha), np.eye(1)))
    return _deviation(student, paper.minus_nll(cases.prior, cases.y))


def _deviation(log_left: Array, log_right: Array) -> float:
    """|left / right − 1| at its largest."""
    return float(np.max(np.abs(np.expm1(log_left - log_right))))


def quadrature(cases: Cases, closed: Array, count: int = 10, step: float = 0.15) -> dict[str, float]:
    """n = 1: ∫∫ N(y | μ, σ²) NIW(μ, σ²) dμ dσ² by the trapezoidal rule against p(y | m), and ∫∫ NIW against 1.

    With μ = μ₀ + zσ/√κ and σ² = Ψ eᵘ the integrand falls fast in z and u, and the rule converges exponentially.
    """
    count = min(count, len(closed))
    mu0, Psi, kappa, nu = (part[:count] for part in cases.prior)
    z, u = np.arange(-12, 12, step), np.arange(-9, 45, step)
    sigma2 = Psi[:, :, 0, None] * np.exp(u)[None, None, :]
    mu = mu0[:, :, None] + z[None, :, None] * np.sqrt(sigma2 / kappa[:, None, None])
    Sigma = np.broadcast_to(sigma2, mu.shape)[..., None, None]
    spread = Prior(mu0[:, None, None], Psi[:, None, None], kappa[:, None, None], nu[:, None, None])
    log_volume = 1.5 * np.log(sigma2) - 0.5 * np.log(kappa)[:, None, None] + 2 * np.log(step)
    log_prior = log_niw(spread, mu[..., None], Sigma) + log_volume
    log_joint = log_prior + log_normal(cases.y[:count, None, None], mu[..., None], Sigma)
    evidence = np.exp(log_joint).sum(axis=(1, 2))
    return {
        "cases": count,
        "evidence": float(np.max(np.abs(evidence / np.exp(closed[:count]) - 1))),
        "prior": float(np.max(np.abs(np.exp(log_prior).sum(axis=(1, 2)) - 1))),
    }


def normalisations(step: float = 0.3) -> dict[str, float]:
    """eq:normnorm for n = 3 and eq:normiw for n = 2, as deviations of the integrals from 1 by the trapezoidal rule."""
    L = np.array([[1.0, 0.0, 0.0], [0.4, 0.8, 0.0], [-0.3, 0.2, 1.1]])
    box = np.arange(-9, 9, step)
    x = np.stack(np.meshgrid(box, box, box, indexing="ij"), axis=-1).reshape(-1, 3)
    normal = np.exp(log_normal(x, np.zeros(3), np.broadcast_to(L @ L.T, (len(x), 3, 3)))).sum() * step**3
    Psi, nu = np.array([[2.0, 0.7], [0.7, 1.5]]), np.array(7.0)
    # Σ₁₁ = eᵃ, Σ₂₂ − Σ₂₁²/Σ₁₁ = eᶜ, and Σ₂₁/Σ₁₁ normal given them: no tail is heavy in (a, c, z).
    a, c, z = np.meshgrid(np.arange(-5, 15, step), np.arange(-5, 12, step), np.arange(-9, 9, step), indexing="ij")
    slope = Psi[1, 0] / Psi[0, 0] + np.exp(c / 2) * z / np.sqrt(Psi[0, 0])
    S11, S21 = np.exp(a), np.exp(a) * slope
    Sigma = np.stack([np.stack([S11, S21], -1), np.stack([S21, np.exp(c) + S21 * slope], -1)], -2)
    log_volume = 2 * a + 1.5 * c - 0.5 * np.log(Psi[0, 0])
    log_density = paper.log_inverse_wishart(Sigma, np.broadcast_to(Psi, Sigma.shape), nu)
    wishart = np.exp(log_density + log_volume).sum() * step**3
    return {"normnorm": float(abs(normal - 1)), "normiw": float(abs(wishart - 1))}


def draws_of(rng: np.random.Generator, prior: Prior, count: int) -> tuple[Array, Array]:
    """Draws of (μ, Σ) by definition: Σ⁻¹ is a sum of ν outer products of N(0, Ψ⁻¹), and μ ~ N(μ₀, Σ/κ); integer ν."""
    n = len(prior.mu)
    root = np.linalg.inv(np.linalg.cholesky(prior.Psi))
    rows = rng.normal(size=(count, int(prior.nu), n)) @ root
    Sigma = np.linalg.inv(np.swapaxes(rows, -1, -2) @ rows)
    step = np.linalg.cholesky(Sigma) @ rng.normal(size=(count, n, 1))
    return prior.mu + step[..., 0] / np.sqrt(prior.kappa), Sigma


def monte_carlo(rng: np.random.Generator, cases: Cases, closed: dict[str, Array], count: int) -> dict[str, Any]:
    """The first case by draws: evidence (eq:modev1) and moments (App. C), with their distance in standard errors."""
    prior, y = Prior(*(part[0] for part in cases.prior)), cases.y[0]
    mu, Sigma = draws_of(rng, prior, count)
    likelihood = np.exp(log_normal(y, mu, Sigma))
    average, error = likelihood.mean(), likelihood.std(ddof=1) / np.sqrt(count)
    lower = np.tril_indices(len(y))
    return {
        "n": len(y),
        "closed_form": float(closed["evidence"][0]),
        "monte_carlo": float(np.log(average)),
        "standard_error": float(error / average),
        "deviation": float((np.exp(closed["evidence"][0]) - average) / error),
        "moments": {
            "mean": _distance(mu, prior.mu),
            "aleatoric": _distance(Sigma[:, *lower], closed["aleatoric"][0][lower]),
            "epistemic": _distance(outer(mu - prior.mu)[:, *lower], closed["epistemic"][0][lower]),
        },
    }


def _distance(values: Array, expected: Array) -> list[float]:
    """How far averages over draws are from what they should be, in standard errors."""
    return list((values.mean(axis=0) - expected) / (values.std(axis=0, ddof=1) / np.sqrt(len(values))))
