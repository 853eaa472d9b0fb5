"""The report and the claims of the study `nu_bias`; intervals are over fits."""

from typing import Any

import numpy as np

from experiments.harness.claims import Claim, Finding, claim, decide, judge
from experiments.harness.statistics import Estimate, fraction, interval
from experiments.paper.nu_bias import statistics
from experiments.paper.nu_bias.statistics import compared, ends, main_truth, pick, printed

APPENDIX = "App. Bias of fit parameters, fig. res"
SECTION = "Sec. Challenging extraction of shape parameters, summary"


def report(results: dict[str, Any]) -> str:
    """Medians and 16 % to 84 % ranges of the residuals, all fits and kept fits."""
    fits = results["fits"]
    lines = [
        f"nu_bias: {len(fits['nu'])} fits, {int(np.sum(~fits['converged']))} not converged, at most "
        f"{int(fits['steps'].max())} Newton steps",
        " nu n     N   fits at bound    kept   residual of nu: 16 %, median, 84 %    of kept fits",
    ]
    groups = [(truth, n, size) for truth in results["truths"] for n in (1, 2) for size in results["sizes"]]
    return "\n".join([*lines, *(_row(pick(results, size, n, truth), truth, n, size) for truth, n, size in groups)])


def _row(group: dict[str, np.ndarray], truth: float, n: int, size: int) -> str:
    kept = f"{np.mean(group['kept']):7.1%}" if n == 1 else "      -"
    residual = group["nu_residual"]
    head = f"{truth:3g} {n} {size:5d} {len(residual):6d} {np.mean(group['at_bound']):8.1%} {kept}"
    return f"{head}  {_quantiles(residual):28} {_quantiles(residual[group['kept']]):>30}".rstrip()


def _quantiles(values: np.ndarray) -> str:
    return " ".join(f"{q:+8.2f}" for q in np.quantile(values, (0.16, 0.5, 0.84))) if len(values) else ""


def claims(results: dict[str, Any]) -> list[Claim]:
    """Bias and selection for one target, the paper's figure where it can be compared, and two targets."""
    further = (_selection, *([_ranges] if printed(results) else []), _two_targets, _larger_sample)
    return [_bias(results, "ν", "nu"), _bias(results, "σ", "scale"), *(test(results) for test in further)]


def above(estimate: Estimate, bar: float = 0.0) -> str:
    """Whether an estimate is above a bar; open where its interval contains the bar."""
    _, low, high = estimate
    return judge(low > bar, high < bar)


def _median(values: np.ndarray) -> str:
    return f"{interval(values, draws=500):+.3f}" if len(values) else "none"


def _bias(results: dict[str, Any], letter: str, name: str) -> Claim:
    small, large = ends(results)
    sizes = (small, large, results["sizes"][-1])
    groups = [pick(results, size) for size in sizes]
    every = [group[f"{name}_residual"] for group in groups]
    kept = [residual[group["kept"]] for residual, group in zip(every, groups, strict=True)]
    medians, kept_medians = ("; ".join(map(_median, values)) for values in (every, kept))
    falls, kept_falls = (compared(values[0], values[1], statistics.fall_of_bias).low > 0 for values in (every, kept))
    return Claim(
        id=f"nu_bias.{name}",
        where=APPENDIX,
        claim=f"fits of small samples have a bias in {letter} that falls as samples grow",
        statistic=f"median of {letter} − truth at N = {sizes[0]}, {sizes[1]} and {sizes[2]}, n = 1, true ν = "
        f"{main_truth(results):g}, over all fits (in part: only over those kept)",
        ours=f"{medians}; of fits kept by the notebook's rule {kept_medians}",
        verdict=decide(falls, kept_falls),
    )


@claim(id="nu_bias.selection", where=f"{APPENDIX}, authors' notebook")
def _selection(results: dict[str, Any]) -> Finding:
    """fits that do not converge or end at a limit can be left out without biasing the result"""
    size = results["sizes"][0]
    group = pick(results, size)
    residual = group["nu_residual"]
    inside, kept = residual[~group["at_bound"]], residual[group["kept"]]
    change = compared(residual, kept, lambda every, some: np.median(every, axis=1) - np.median(some, axis=1))
    return Finding(
        statistic="median of ν − truth over all fits, over those not at a bound of the wide box, and over those that "
        f"the notebook's rule keeps, N = {size}",
        paper=f"{printed(results)[size][0]} of 200 kept" if size in printed(results) else "",
        ours=f"{_median(residual)}, {_median(inside)} and {_median(kept)}; "
        f"{fraction(len(kept), len(residual)):.0%} kept by the rule",
        verdict=decide(change.low <= 0 <= change.high),
    )


@claim(id="nu_bias.ranges", where=APPENDIX)
def _ranges(results: dict[str, Any]) -> Finding:
    """the ranges of the figure: below the truth at N = 50 and around it at N = 200"""
    paper, scores = printed(results), np.abs(np.concatenate(list(statistics.printed_scores(results).values())))
    kept = ", ".join(f"{np.mean(pick(results, size)['kept']):.0%}" for size in paper)
    return Finding(
        statistic="16 % and 84 % quantiles of ν and σ over kept fits, in standard errors of as many fits as the "
        "notebook kept; fractions kept",
        paper=f"kept {', '.join(f'{count / 200:.0%}' for count, *_ in paper.values())}",
        ours=f"{int(np.sum(scores < 2))} of {len(scores)} within 2, largest {scores.max():.1f}; kept {kept}",
        verdict=decide(scores.max() < 4, np.median(scores) < 2),
    )


@claim(id="nu_bias.two_targets", where=SECTION)
def _two_targets(results: dict[str, Any]) -> Finding:
    """with several targets ν is biased as well, less so for larger samples"""
    small, large = ends(results)
    few, many = (pick(results, size, 2)["nu_residual"] for size in (small, large))
    return Finding(
        statistic=f"median of ν − truth over all fits at N = {small} and {large}, n = 2",
        ours=f"{_median(few)}; {_median(many)}",
        verdict=above(compared(few, many, statistics.fall_of_bias)),
    )


@claim(id="nu_bias.larger_sample", where=SECTION)
def _larger_sample(results: dict[str, Any]) -> Finding:
    """with several targets an even larger sample is needed to find ν"""
    _, large = ends(results)
    single = pick(results, large)["nu_residual"]
    same = compared(pick(results, large, 2)["nu_residual"], single, statistics.spread_ratio)
    ours = f"{same:.2f} at N = {large}"
    if 2 * (half := large // 2) == large and half in results["sizes"]:
        ratio = compared(pick(results, half, 2)["nu_residual"], single, statistics.spread_ratio)
        ours += f"; {ratio:.2f} for N = {half} pairs against {large} single values"
    return Finding(
        statistic="width of the 16 % to 84 % range of ν for n = 2 over that for n = 1 (above 1 at equal N)",
        ours=ours,
        verdict=above(same, 1.0),
    )
