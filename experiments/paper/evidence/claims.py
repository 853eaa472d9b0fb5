"""The report and the claims of the study `evidence`."""

from collections.abc import Collection
from typing import Any

from experiments.harness.claims import Claim, Finding, claim, decide
from experiments.paper.evidence.statistics import largest, moments, posterior_spreads

EXACT = 1e-9  # of a relative deviation in float64
DEVIATION = "largest relative deviation in float64, random values"


def report(results: dict[str, Any]) -> str:
    """A table of the Monte-Carlo check and the worst float32 errors."""
    spreads = [posterior_spreads(results, averages) for averages in ("over_m", "over_n")]
    lines = [
        "evidence: closed form against an average over draws of (mu, Sigma)",
        *(
            f"  n = {row['n']}: {row['closed_form']:.4f}, average {row['monte_carlo']:.4f} "
            f"+- {row['standard_error']:.4f} ({row['deviation']:+.1f} standard errors)"
            for row in results["monte_carlo"]
        ),
        f"  n = 1 by quadrature: relative deviation {results['quadrature']['evidence']:.1e}",
        "posterior after m observations: how much ln(prior x likelihood / posterior) depends on (mu, Sigma)",
        *(
            f"  n = {n}: {over_m:.1e} with averages over m, {over_n:.1e} over n"
            for n, (over_m, over_n) in enumerate(zip(*spreads, strict=True), 1)
        ),
        "error of ln p in float32, 90 % of examples below, n = 2",
    ]
    for name, label in (("nu", "nu"), ("scale", "L / residual")):
        worst, (low, *_, high) = largest(results[f"error_over_{name}"]), results[name]
        errors = f"stable {worst['stable']:.1e}, as printed {worst['slogdet']:.1e}"
        lines.append(f"  {label} from {low:.2g} to {high:.2g}: {errors}")
    return "\n".join(lines)


def claims(results: dict[str, Any]) -> list[Claim]:
    """The derivation, the moments, the posterior and the limit of large ν."""
    derivation = (_identities, _normalisations, _forms, _univariate, _quadrature)
    further = (_monte_carlo, _moments, _virtual_observations, _averages, _large_nu)
    return [test(results) for test in (*derivation, *further)]


@claim(id="evidence.identities", where="App. C.3, eq:trick1, eq:trick2, eq:sylvester", paper="0")
def _identities(results: dict[str, Any]) -> Finding:
    """the two factorisations and the determinant identity behind the evidence are exact"""
    steps = largest(results["identities"])
    return _exact(steps.values(), f"{DEVIATION}, n = 1, 2, 3", _listed(steps))


@claim(id="evidence.normalisations", where="App. C.2, eq:normnorm, eq:normiw", paper="0")
def _normalisations(results: dict[str, Any]) -> Finding:
    """the normal and the inverse Wishart density as printed integrate to 1"""
    norms = [*results["normalisations"].values(), results["quadrature"]["prior"]]
    return _exact(norms, "deviation of the integral by quadrature, normal n = 3, inverse Wishart n = 2, NIG n = 1")


@claim(
    id="evidence.forms",
    where="Sec. 2.2, App. C.2, eq:modev, eq:modev22, eq:nll, eq:nll2, loss of Sec. 4",
    paper="0",
)
def _forms(results: dict[str, Any]) -> Finding:
    """all printed forms of the evidence are the same t density, and the library's"""
    forms = largest(results["forms"])
    return _exact(forms.values(), f"{DEVIATION}, n = 1, 2, 3", _listed(forms))


@claim(id="evidence.univariate", where="App. C.2, end", paper="0")
def _univariate(results: dict[str, Any]) -> Finding:
    """for one target the evidence is that of Amini et al. with ν = 2α and νσ₀² = 2β"""
    return _exact([results["univariate"]], DEVIATION)


@claim(id="evidence.quadrature", where="Sec. 2.2, eq:modev1 = eq:modev21", paper="0")
def _quadrature(results: dict[str, Any]) -> Finding:
    """the integral over (μ, σ²) has this closed form, n = 1"""
    cases = results["quadrature"]["cases"]
    return _exact(
        [results["quadrature"]["evidence"]],
        f"relative deviation of a two-dimensional quadrature, largest of {cases} cases",
    )


def _exact(deviations: Collection[float], statistic: str, ours: str = "") -> Finding:
    """What should be exact up to rounding."""
    listed = ", ".join(f"{value:.0e}" for value in deviations)
    return Finding(statistic, ours or listed, decide(all(value < EXACT for value in deviations)))


def _listed(found: dict[str, float], form: str = ".0e") -> str:
    return ", ".join(f"{name} {value:{form}}" for name, value in found.items())


@claim(id="evidence.monte_carlo", where="Sec. 2.2, eq:modev1 = eq:modev21", paper="0")
def _monte_carlo(results: dict[str, Any]) -> Finding:
    """the integral over (μ, Σ) has this closed form, n = 1, 2, 3"""
    scores = [row["deviation"] for row in results["monte_carlo"]]
    return Finding(
        statistic=f"distance from the average of {results['draws']} draws in standard errors",
        ours=", ".join(f"{z:+.1f}" for z in scores),
        verdict=decide(max(map(abs, scores)) < 4),
    )


@claim(id="evidence.moments", where="App. C.1, Sec. 4", paper="0")
def _moments(results: dict[str, Any]) -> Finding:
    """E[μ] = μ₀, E[Σ] = ν/(ν−n−1) Σ₀ and var[μ] = E[Σ]/κ"""
    distances = moments(results)
    found = {name: max(values) for name, values in distances.items()}
    number = sum(map(len, distances.values()))
    return Finding(
        statistic=f"largest distance from draws in standard errors, {number} entries, n = 1, 2, 3",
        ours=_listed(found, ".1f"),
        verdict=decide(max(found.values()) < 4.5),
    )


@claim(id="evidence.virtual_observations", where="App. B, eq:postdens")
def _virtual_observations(results: dict[str, Any]) -> Finding:
    """κ and ν count virtual observations: each real one adds one to both, one at a time or all at once"""
    rows = results["posterior"]
    m = rows[0]["m"]
    gained = sorted({row[name] for row in rows for name in ("gained_kappa", "gained_nu")})
    away = max(row["over_m"][name] for row in rows for name in ("sequential", "chain"))
    exact = max(away, *posterior_spreads(results, "over_m")) < EXACT
    return Finding(
        statistic=f"gain by {m} observations one at a time; largest distance of the update at once from it, "
        "n = 1, 2, 3",
        paper=f"{m}, {m}; 0",
        ours=f"{', '.join(f'{value:.12g}' for value in gained)}; {away:.0e}",
        verdict=decide(exact and all(abs(value - m) < EXACT for value in gained)),
    )


@claim(id="evidence.averages", where="App. B, below eq:postdens", paper="0")
def _averages(results: dict[str, Any]) -> Finding:
    """the averages in the posterior divide by n, the number of targets, as printed (m is meant)"""
    over_m, over_n = (posterior_spreads(results, averages) for averages in ("over_m", "over_n"))
    return Finding(
        statistic=f"how much ln(prior × likelihood / posterior) depends on (μ, Σ), m = {results['posterior'][0]['m']}, "
        "n = 1, 2, 3 (by Bayes' rule 0)",
        ours=f"over n: {min(over_n):.2g} to {max(over_n):.2g} nats; over m: {max(over_m):.0e}",
        verdict=decide(max(over_n) < EXACT),
    )


@claim(id="evidence.large_nu", where="Sec. 4, below the loss")
def _large_nu(results: dict[str, Any]) -> Finding:
    """the limit ν → ∞ is numerically unstable, so that ν must be cut off"""
    last = results["error_over_nu"][-1]
    return Finding(
        statistic=f"error of ln p in float32 at ν = {results['nu'][-1]:.0e}, 90 % of examples below, n = 2",
        ours=f"as printed {last['slogdet']:.2g} nats, stable form {last['stable']:.0e} (relative distance from the "
        f"Gaussian {results['from_gaussian']:.0e})",
        verdict=decide(not last["stable"] < 1e-3, in_part=not last["slogdet"] < 1e-3),
    )
