"""The claims of Sec. 4 and App. E, and a comparison with the authors' published code."""

from typing import Any

import numpy as np
from scipy import stats

from experiments.harness.claims import FAILS, HOLDS, IN_PART, Claim, Finding, claim, decide, judge
from experiments.harness.statistics import fraction, interval
from experiments.paper import circle_recipe
from experiments.paper.circle import statistics
from experiments.paper.circle.statistics import POINTS, Reading
from experiments.paper.circle_recipe import nu_drop

# From the authors' published code, 100 networks: how many of them have a ν that drops by more than 1, final training
# loss, median correlation in the middle of the four quadrants.
AUTHORS_DROP, AUTHORS_MEMBERS, AUTHORS_LOSS = 42, 100, -4.51
AUTHORS_CORRELATION = (0.998, -0.79, 0.61, -0.98)
GATE, CORRELATION, AUTHORS = "Sec. 4, fig:nu", "App. E, fig:covcorr", "the authors' published code"


def report(results: dict[str, Any]) -> str:
    """A table of both readings."""
    networks = {name: reading["loss"].size for name, reading in results["readings"].items()}
    lines = [f"{sum(networks.values())} networks, trained in {results['seconds_of_training']:.1f} s"]
    for name, reading in results["readings"].items():
        drop, rho = nu_drop(reading["nu"]), np.median(statistics.quadrants(reading), axis=0)
        lines.append(
            f"  {networks[name]} on {POINTS[name]} points: "
            f"ν drops by {np.median(drop):.2f}, by over 1 in {np.mean(drop > 1):.0%}; "
            f"correlation {', '.join(f'{value:+.3f}' for value in rho)}; loss {np.median(reading['loss']):.2f}; "
            f"{int(reading['diverged'].sum())} non-finite"
        )
    return "\n".join(lines)


def claims(results: dict[str, Any]) -> list[Claim]:
    """Rows of the ledger, from the authors' reading, and a comparison with the other reading if there is one."""
    readings = list(results["readings"].values())
    gate = (_nu_falls, _not_all_networks, _epistemic_at_centre)
    moments = (_mean, _correlation_dense, _correlation_sparse, _sign_flips, _covariance_scale)
    authors = (_authors_share, _authors_loss, _authors_correlation)
    rows = [make(results["readings"]["split"]) for make in (*gate, *moments, *authors)]
    return [*rows, _two_readings(*readings)] if len(readings) == 2 else rows


@claim(id="circle.nu_falls", where=GATE, paper="significant, no number")
def _nu_falls(reading: Reading) -> Finding:
    """ν falls significantly towards the centre of t, where data are sparse"""
    drop_of_sets = nu_drop(reading["nu"])
    drop, of_sets = drop_of_sets.ravel(), np.median(drop_of_sets, axis=1)
    p = float(stats.wilcoxon(drop, alternative="greater").pvalue) if np.any(drop) else 1.0
    effect = drop.mean() / drop.std() if drop.std() else np.nan
    return Finding(
        statistic="one-sided paired Wilcoxon test over networks; median of the fall; effect size d; data sets with a "
        "fall",
        ours=f"p {f'= {p:.1g}' if p > 1e-99 else '< 1e-99'}; {interval(drop):.2f}; d = {effect:.2f}; "
        f"{int(np.sum(of_sets > 0))} of {len(of_sets)}",
        verdict=decide(p < 0.01 and np.median(drop) > 0, p < 0.05),
    )


@claim(id="circle.not_all_networks", where=GATE, paper="no number")
def _not_all_networks(reading: Reading) -> Finding:
    """not all networks find that solution"""
    drop = nu_drop(reading["nu"])
    dropped = fraction(int(np.sum(drop > 1)), drop.size)
    return Finding(
        statistic="fraction of networks whose ν falls by more than 1 (below 95 %)",
        ours=f"{dropped:.0%}",
        verdict=judge(dropped.high < 0.95, dropped.value == 1 or dropped.low > 0.95),
    )


@claim(id="circle.epistemic_at_centre", where=GATE, paper="larger")
def _epistemic_at_centre(reading: Reading) -> Finding:
    """a lower ν at the centre means a larger epistemic uncertainty there"""
    ratio = statistics.epistemic_ratio(reading)
    return Finding(
        statistic="trace of var[μ], centre / ends, median over networks",
        ours=f"{ratio:.2f}",
        verdict=decide(ratio.low > 1, ratio.value > 1),
    )


@claim(id="circle.mean", where="Sec. 4, fig:predictions", paper="figure")
def _mean(reading: Reading) -> Finding:
    """the predicted (x, y) resemble the circle where data are dense, and begin to from 0.5π to 1.5π"""
    dense = statistics.error_of_mean(reading, circle_recipe.NEAR_ENDS)
    sparse = statistics.error_of_mean(reading, np.cos(circle_recipe.GRID) < 0)
    return Finding(
        statistic="median distance of μ from (cos t, sin t): near the ends; from 0.5π to 1.5π (noise 0.1)",
        ours=f"{dense:.3f}; {sparse:.3f}",
        verdict=decide(dense.high < 0.1 and sparse.high < 0.2, dense.high < 0.1),
    )


@claim(id="circle.correlation_dense", where=CORRELATION, paper="figure")
def _correlation_dense(reading: Reading) -> Finding:
    """the correlation is ±1 with the expected sign where data are many"""
    first, _, _, fourth = statistics.right_correlations(reading)
    least = min(first.value, fourth.value)
    return Finding(
        statistic="fraction of networks with |ρ| > 0.9 and the right sign in the quadrants at the ends (1st, 4th)",
        ours=f"{first:.0%}; {fourth:.0%}",
        verdict=decide(least > 0.8, least > 0.5),
    )


@claim(id="circle.correlation_sparse", where=CORRELATION, paper="figure")
def _correlation_sparse(reading: Reading) -> Finding:
    """in regions of large epistemic uncertainty the estimate becomes unstable"""
    first, second, third, fourth = statistics.right_correlations(reading)
    _, outer, inner = statistics.spreads_of_correlation(reading)
    fewer = min(second.value, third.value) < min(first.value, fourth.value)
    return Finding(
        statistic="the same fraction in the quadrants of the sparse centre (2nd, 3rd); spread of ρ there / at the ends",
        ours=f"{second:.0%}; {third:.0%}; {inner / outer:.1f}",
        verdict=decide(fewer and inner > 2 * outer, inner > outer),
    )


@claim(id="circle.sign_flips", where=CORRELATION, paper="figure")
def _sign_flips(reading: Reading) -> Finding:
    """the estimate is unstable around the sign flips at 0.5π, π, 1.5π"""
    flips, outer, _ = statistics.spreads_of_correlation(reading)
    return Finding(
        statistic="standard deviation of ρ over networks: within π/16 of the flips; middle of the 1st and 4th quadrant",
        ours=f"{flips:.2f}; {outer:.2f}",
        verdict=decide(flips > 2 * outer, flips > outer),
    )


@claim(id="circle.covariance_scale", where=CORRELATION, paper="up to a constant")
def _covariance_scale(reading: Reading) -> Finding:
    """the covariance of x and y is learned up to a scale"""
    agreements = statistics.agreements(reading)
    (at_ends, scale_ends), (at_centre, scale_centre) = agreements
    shape = min(at_ends, at_centre) > 0.9
    one_scale = max(scale_ends, scale_centre) < 1.5 * min(scale_ends, scale_centre)
    return Finding(
        statistic="Pearson correlation over t of the median of Σ₀ with the analytic J cov Jᵀ, and the scale: ends; "
        "centre",
        ours="; ".join(f"{r:.2f}, scale {scale:.2f}" for r, scale in agreements),
        verdict=decide(shape and one_scale, shape or at_ends > 0.9),
    )


@claim(id="circle.authors_share", where=AUTHORS, paper=f"{AUTHORS_DROP} of {AUTHORS_MEMBERS}")
def _authors_share(reading: Reading) -> Finding:
    """the fraction of networks whose ν falls by more than 1"""
    drop = nu_drop(reading["nu"])
    table = [[AUTHORS_DROP, AUTHORS_MEMBERS - AUTHORS_DROP], [int(np.sum(drop > 1)), int(np.sum(drop <= 1))]]
    p, of_sets = float(stats.fisher_exact(table).pvalue), np.mean(drop > 1, axis=1)
    low, high, several = of_sets.min(), of_sets.max(), len(of_sets) > 1
    sets = f"; {len(of_sets)} data sets: {low:.0%} to {high:.0%}" if several else ""
    return Finding(
        statistic="two-sample test of the fractions (Fisher); range over data sets, since the data are other draws",
        ours=f"{np.mean(drop > 1):.0%}, Fisher p = {p:.2g}{sets}",
        verdict=judge(p > 0.05 or (several and low <= AUTHORS_DROP / AUTHORS_MEMBERS <= high), several),
    )


@claim(id="circle.authors_loss", where=AUTHORS, paper=f"{AUTHORS_LOSS}")
def _authors_loss(reading: Reading) -> Finding:
    """the final training loss"""
    ours, of_sets = interval(statistics.members(reading, "loss")), np.median(reading["loss"], axis=1)
    several = len(of_sets) > 1
    agrees = ours.low <= AUTHORS_LOSS <= ours.high or of_sets.min() <= AUTHORS_LOSS <= of_sets.max()
    return Finding(
        statistic="median over networks with its interval; range over data sets",
        ours=f"{ours:.2f}" + (f"; {of_sets.min():.2f} to {of_sets.max():.2f}" if several else ""),
        verdict=judge(agrees, several),
    )


@claim(id="circle.authors_correlation", where=AUTHORS)
def _authors_correlation(reading: Reading) -> Finding:
    """the median correlation in the four quadrants"""
    rho = [interval(of_members) for of_members in statistics.quadrants(reading).T]
    same_sign = sum(np.sign(r.value) == np.sign(theirs) for r, theirs in zip(rho, AUTHORS_CORRELATION, strict=True))
    return Finding(
        statistic="median over networks of the median over the middle 60 % of each quadrant",
        paper=", ".join(f"{value:+.2f}" for value in AUTHORS_CORRELATION),
        ours="; ".join(f"{value:+.2f}" for value in rho),
        verdict={4: HOLDS, 3: IN_PART}.get(int(same_sign), FAILS),
    )


@claim(id="circle.two_readings", where="Sec. 4", paper="300 points")
def _two_readings(split: Reading, whole: Reading) -> Finding:
    """training on 270 points (published code) or on 300 (paper) gives the same result"""
    first, second = (nu_drop(reading["nu"]).ravel() for reading in (split, whole))
    p = float(stats.mannwhitneyu(first, second).pvalue)
    return Finding(
        statistic="fraction of networks whose ν falls by more than 1: 270; 300; Mann-Whitney test of the falls",
        ours=f"{np.mean(first > 1):.0%}; {np.mean(second > 1):.0%}; p = {p:.2g}",
        verdict=decide(p > 0.05, np.sign(np.median(first)) == np.sign(np.median(second))),
    )
