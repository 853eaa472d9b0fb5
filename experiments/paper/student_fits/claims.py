"""The claims about ν and σ, and about the largest ν of the gate, tested by integrals over Student-t densities."""

from typing import Any

from experiments.harness.claims import Claim, Finding, claim, decide
from experiments.harness.statistics import Estimate
from experiments.paper import circle_recipe
from experiments.paper.student_fits.statistics import PRINTED_SIGMA

SECTION = "Sec. Challenging extraction of shape parameters"


def report(results: dict[str, Any]) -> str:
    """Tables of the fits, of the distances from a normal and of the correlations."""
    tests = zip(results["normal"], results["best_test"], strict=True)
    lines = [
        f"student_fits: sigma of a t_5 fitted to a t_2 on |x| <= {results['core']:g} "
        f"(the paper prints {PRINTED_SIGMA})",
        *(f"  {name:34} {sigma:.4f}" for name, sigma in results["fits"].items()),
        "t beside a normal: total variation, Kolmogorov distance, KL, draws that the best and Kolmogorov's test need",
        *(
            f"  {row['degrees']:g} degrees, n = {row['targets']}, sigma {row['sigma']:.3f}: "
            f"{row['total_variation']:.4f}, {row['kolmogorov']:.4f}, {row['kl']:.5f} nats, "
            f"{test['points']}, {row['kolmogorov_points']:.0f}"
            for row, test in tests
        ),
        "correlation of nu and sigma: whole line, cut off at the core, counted beyond it; error of nu times",
        *(
            f"  nu = {row['nu']:g}: {row['whole']:.3f}, {row['core']['cut']:.3f}, {row['core']['counted']:.3f}; "
            f"{row['error_ratio']['cut']:.1f}, {row['error_ratio']['counted']:.1f}"
            for row in results["correlation"]
        ),
    ]
    return "\n".join(lines)


def claims(results: dict[str, Any]) -> list[Claim]:
    """Rows of the ledger."""
    return [make(results) for make in (_tails, _correlation, _fit, _normal)]


@claim(id="student_fits.tails", where=f"{SECTION}, fig. students")
def _tails(results: dict[str, Any]) -> Finding:
    """small ν raises the tails and hardly changes the core"""
    rows, core = results["tails"], results["core"]
    changes = [abs(row["core_ratio"] - 1) for row in rows]
    found = "; ".join(f"ν = {r['nu']:g}: tails × {r['tail_ratio']:.0f}, core × {r['core_ratio']:.2f}" for r in rows)
    refitted = ", ".join(f"{row['refitted_core_ratio']:.2f}" for row in rows)
    return Finding(
        statistic=f"mass beyond ±{core:g} and within ±1 over that of the normal (core: a change below 10 % at "
        "every ν shown)",
        ours=f"{found} (core after refitting σ: {refitted})",
        verdict=decide(max(changes) < 0.1, changes[0] < 0.1 and min(row["tail_ratio"] for row in rows) > 5),
    )


@claim(id="student_fits.correlation", where=f"{SECTION}, fig. dfit")
def _correlation(results: dict[str, Any]) -> Finding:
    """the estimates of ν and σ are highly correlated where only the core is seen"""
    row = next(row for row in results["correlation"] if row["nu"] == 5)
    least = min(min(row["core"].values()) for row in results["correlation"])
    return Finding(
        statistic=f"correlation from the Fisher information at ν = 5, draws beyond ±{results['core']:g} lost or only "
        f"counted (high: 0.9 at ν = 2, 5 and {results['degrees']:g})",
        ours=f"{row['core']['cut']:.2f} and {row['core']['counted']:.2f}, {row['whole']:.2f} with the whole line in "
        f"view; the error of ν grows × {row['error_ratio']['cut']:.1f} and × {row['error_ratio']['counted']:.1f}",
        verdict=decide(least > 0.9, least > 0.5),
    )


def _fit(results: dict[str, Any]) -> Claim:
    fits, core = results["fits"], results["core"]
    match = [name for name, sigma in fits.items() if round(sigma, 2) == PRINTED_SIGMA]
    others = ", ".join(f"{sigma:.2f} by {name}" for name, sigma in fits.items() if name not in match)
    found = ", ".join(f"{fits[name]:.4f} by {name}" for name in match) or "none"
    return Claim(
        id="student_fits.fit",
        where=f"{SECTION}, fig. dfit",
        claim=f"a t with ν = 5 fits a t with ν = 2 on [−{core:g}, {core:g}] with a slightly larger σ",
        statistic="σ by criterion",
        paper=f"{PRINTED_SIGMA}",
        ours=f"{found}; but {others}",
        verdict=decide("least squares" in match, match),
    )


def _normal(results: dict[str, Any]) -> Claim:
    (_, one, two), (_, test, pair) = results["normal"], results["best_test"]
    m, variation = results["degrees"], max(one["total_variation"], two["total_variation"])
    needed, pairs = (Estimate(row["points"], row["low"], row["high"]) for row in (test, pair))
    return Claim(
        id="student_fits.normal",
        where="Sec. A possible solution, ν = 8 + 5 tanh p₆",
        claim=f"a t with more than {m:g} degrees of freedom is almost a normal",
        statistic="draws of which the best test sees the t half of the time, normal of equal variance "
        f"(more than the {circle_recipe.POINTS} points of the paper's data)",
        ours=f"{needed:.0f}, by Kolmogorov-Smirnov {one['kolmogorov_points']:.0f}; total variation "
        f"{one['total_variation']:.3f}, KL {one['kl']:.4f} nats, beyond 4σ × {one['beyond_4']:.0f}. "
        f"The evidence of n = 2 at ν = {m:g} has {m - 1:g} degrees: {pairs:.0f} pairs, total variation "
        f"{two['total_variation']:.3f}",
        verdict=decide(min(test["low"], pair["low"]) > circle_recipe.POINTS, variation < 0.1),
    )
