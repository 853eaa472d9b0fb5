"""The report and the claims of the study `uncertainty_types`; all intervals are over data sets."""

from typing import Any

import numpy as np

from experiments.harness.claims import HOLDS, IN_PART, Claim, Finding, claim, decide, judge
from experiments.harness.statistics import Estimate, fraction, interval, ratio_of_spreads
from experiments.paper.uncertainty_types import statistics
from experiments.paper.uncertainty_types.statistics import LINES, MEASURED, PARTS, excess, settings_of, stds

MISFIT = 0.5  # a line further than this from the truth at one of the points misses it
MODELS = {  # kind of μ: end of the id, end of the claim
    "flexible": ("flexible", "; μ flexible"),
    "line": ("line", "; μ a line that started flat"),
    "line, random start": ("random_line", "; μ a line, random start"),
}
SLOPE = "d ln std / d ln repeats at 0, 1, 3, μ flexible"
FALLS = f"{SLOPE} (below -0.25; -0.5 is the error of a mean)"


def report(results: dict[str, Any]) -> str:
    """Median stds of the parts at x = 0, 1, 2, 3."""
    lines = [f"{'std, median over data sets':44}" + "".join(f"  x = {x}" for x in range(4))]
    for setting, (kind, count) in enumerate(zip(results["kinds"], results["repeats"], strict=True)):
        for part in PARTS:
            values = np.median(stds(results, part, setting), axis=0)
            lines.append(f"{kind:18} {count:5} repeats  {part:9} " + "".join(f"{value:7.3f}" for value in values))
    return "\n".join([*lines, f"{results['diverged']} networks became non-finite"])


def claims(results: dict[str, Any]) -> list[Claim]:
    """Sec. 1.1 about fig:unctypes, on the largest sample of each kind of μ, and about sample size."""
    parts = ("within", "between")
    return [
        *[_missed(results, kind).about(*MODELS[kind]) for kind in LINES],
        *[_aleatoric(results, kind).about(*MODELS[kind]) for kind in ("flexible", *LINES)],
        *[_epistemic(results, kind, part, [1, 2], [0, 3]) for kind in LINES for part in parts],
        *[_epistemic(results, "flexible", part, [2], [0, 1, 3]) for part in parts],
        _separation(results),
        *sample_size_claims(results),
    ]


@claim(id="uncertainty_types.missed", where="fig:unctypes")
def _missed(results: dict[str, Any], kind: str) -> Finding:
    """a rigid model misses x = 1 and fits 0 and 3"""
    error = results["mean"][settings_of(results, kind)[-1]][:, statistics.LOOKED_AT] - np.array([0.0, 1.0, 0.0, -1.0])
    missed = np.abs(error) > MISFIT
    found = fraction(np.sum(missed[:, 1] & ~missed[:, 0] & ~missed[:, 3]), len(missed))
    return Finding(
        statistic=f"data sets whose ensemble mean is off by more than {MISFIT} at x = 1 only",
        ours=f"{found:.0%}",
        verdict=decide(found.low > 0.5, found.value > 0),
    )


@claim(id="uncertainty_types.aleatoric", where="fig:unctypes")
def _aleatoric(results: dict[str, Any], kind: str) -> Finding:
    """aleatoric uncertainty is low at 0, 1, 2 and large at 3"""
    std = stds(results, "aleatoric", settings_of(results, kind)[-1])
    each = {x: excess(std, [3], [x]) for x in (0, 1, 2)}
    return Finding(
        statistic="std at 3 over that at 0, 1, 2 (above 1)",
        ours=_listed(each),
        verdict=_above_one(excess(std, [3], [0, 1, 2]), each),
    )


def _epistemic(results: dict[str, Any], kind: str, part: str, large: list[int], low: list[int]) -> Claim:
    std = stds(results, part, settings_of(results, kind)[-1])
    each = {x: excess(std, [x], low) for x in large}
    reasons, others = {1: "1 (misfit)", 2: "2 (no data)"}, ", ".join(map(str, low))
    return Claim(
        id=f"uncertainty_types.{part}",
        where="fig:unctypes",
        claim=f"epistemic uncertainty {part} members is low at {others} and large at "
        f"{', '.join(reasons[x] for x in large)}",
        statistic=f"std there over the largest at {others} (above 1)",
        ours=_listed(each),
        verdict=_above_one(excess(std, large, low), each),
    ).about(*MODELS[kind])


def _listed(each: dict[int, Estimate]) -> str:
    return "; ".join(f"x = {x}: {value}" for x, value in each.items())


def _above_one(whole: Estimate, each: dict[int, Estimate]) -> str:
    """Whether all ratios exceed 1, some do, or not all can; open if the interval of the smallest contains 1."""
    verdict = judge(whole.low > 1, whole.high < 1)
    return IN_PART if verdict != HOLDS and any(low > 1 for _, low, _ in each.values()) else verdict


@claim(id="uncertainty_types.separation", where="Sec. 1.1")
def _separation(results: dict[str, Any]) -> Finding:
    """a misfit shows as epistemic and not as aleatoric; μ a line that started flat, within members"""
    aleatoric, within, _ = (stds(results, part, settings_of(results, "line")[-1]) for part in PARTS)
    ratio = within / aleatoric
    found = interval(ratio[:, 1] / ratio[:, 0])
    return Finding(
        statistic="epistemic / aleatoric std at 1 (misfit) over the same at 0 (none); "
        "1 if they are not distinguished, 2 counts",
        ours=f"{found}",
        verdict=decide(found.low > 2, found.low > 1.1),
    )


def sample_size_claims(results: dict[str, Any]) -> list[Claim]:
    """How the parts depend on the number of measurements."""
    return [test(results) for test in (_size_aleatoric, _size_within, _size_between, _sharper)]


@claim(id="uncertainty_types.size_aleatoric", where="Sec. 1.1")
def _size_aleatoric(results: dict[str, Any]) -> Finding:
    """aleatoric uncertainty does not depend on sample size"""
    found = statistics.slope(results, "aleatoric", MEASURED)
    return Finding(statistic=f"{SLOPE} (within 0.1)", ours=f"{found}", verdict=is_steady(found))


@claim(id="uncertainty_types.size_within", where="Sec. 1.1")
def _size_within(results: dict[str, Any]) -> Finding:
    """epistemic uncertainty within members falls with sample size"""
    found = statistics.slope(results, "within", MEASURED)
    return Finding(statistic=FALLS, ours=f"{found}", verdict=_falls(found))


@claim(id="uncertainty_types.size_between", where="Sec. 1.1")
def _size_between(results: dict[str, Any]) -> Finding:
    """epistemic uncertainty between members falls with sample size"""
    found, gap = (statistics.slope(results, "between", at) for at in (MEASURED, [2]))
    verdict = _falls(found) if _falls(found) == _falls(gap) else IN_PART
    return Finding(statistic=FALLS, ours=f"{found}; at 2, without data: {gap}", verdict=verdict)


def is_steady(found: Estimate) -> str:
    """Whether a slope lies within ±0.1, with its whole interval."""
    _, low, high = found
    return judge(low > -0.1 and high < 0.1, low > 0.1 or high < -0.1)


def _falls(found: Estimate) -> str:
    """Whether a slope lies below −¼, with its whole interval."""
    return judge(found.high < -0.25, found.low > -0.25)


@claim(id="uncertainty_types.size_sharpness", where="Sec. 1.1")
def _sharper(results: dict[str, Any]) -> Finding:
    """the estimate of aleatoric uncertainty becomes sharper with sample size"""
    flexible = settings_of(results, "flexible")
    ends = (flexible[0], flexible[-1])
    logs = (np.log(stds(results, "aleatoric", setting)[:, MEASURED]) for setting in ends)
    squares = np.stack([np.mean((log_std - log_std.mean(0)) ** 2, axis=1) for log_std in logs], axis=1)
    found = interval(squares, ratio_of_spreads)
    small, large = (results["repeats"][setting] for setting in ends)
    return Finding(
        statistic=f"spread of ln std over data sets, {small} over {large} repeats; √ of the sizes' ratio is "
        f"{np.sqrt(large / small):.3g}",
        ours=f"{found}",
        verdict=decide(found.low > 1, found.value > 1),
    )
