"""The rows of the ledger of the study `uncertainty_types`; all intervals are over data sets."""

from typing import Any

import numpy as np

from experiments._claims import HOLDS, IN_PART, Claim, decide, interval, judge, ratio_of_spreads, share, shown
from experiments.uncertainty_types import LINES, LOOKED_AT, largest_sample, stds

Estimate = tuple[float, float, float]
MISFIT = 0.5  # a line further than this from the truth at one of the points misses it
NAMES = {
    "flexible": "μ flexible",
    "line": "μ a line that started flat",
    "line, random start": "μ a line, random start",
}


def excess(std: np.ndarray, large: list[int], low: list[int]) -> Estimate:
    """Smallest of the stds that should be large over the largest that should be low, (data sets, 4)."""
    return interval(std[:, large].min(1) / std[:, low].max(1))


def slope(results: dict[str, Any], part: str, at: list[int]) -> Estimate:
    """d ln std / d ln repeats of the flexible ensembles, mean over the x of `at`; −½ for the error of a mean."""
    flexible = [number for number, kind in enumerate(results["kinds"]) if kind == "flexible"]
    log_std = np.array([np.log(stds(results, part, number)[:, at]).mean(1) for number in flexible])
    return interval(np.polyfit(np.log([results["repeats"][number] for number in flexible]), log_std, 1)[0])


def of_figure(results: dict[str, Any]) -> list[Claim]:
    """What fig:unctypes shows, on the largest sample of each kind."""
    lines = [largest_sample(results, kind) for kind in LINES]
    flexible = largest_sample(results, "flexible")
    parts = ("within", "between")
    return [
        *[_missed(results, line) for line in lines],
        *[_aleatoric(results, number) for number in (flexible, *lines)],
        *[_epistemic(results, line, part, [1, 2], [0, 3]) for line in lines for part in parts],
        *[_epistemic(results, flexible, part, [2], [0, 1, 3]) for part in parts],
        _separation(results, lines[0]),
    ]


def _missed(results: dict[str, Any], line: int) -> Claim:
    error = results["mean"][line][:, LOOKED_AT] - np.array([0.0, 1.0, 0.0, -1.0])
    missed = np.abs(error) > MISFIT
    found = share(int(np.sum(missed[:, 1] & ~missed[:, 0] & ~missed[:, 3])), len(missed))
    return Claim(
        "fig:unctypes",
        f"a rigid model misses x = 1 and fits 0 and 3; {NAMES[results['kinds'][line]]}",
        f"data sets whose ensemble mean is off by more than {MISFIT} at x = 1 only",
        "",
        shown(found, ".0%"),
        decide(found[1] > 0.5, found[0] > 0),
    )


def _aleatoric(results: dict[str, Any], number: int) -> Claim:
    std = stds(results, "aleatoric", number)
    each = {x: excess(std, [3], [x]) for x in (0, 1, 2)}
    return Claim(
        "fig:unctypes",
        f"aleatoric uncertainty is low at 0, 1, 2 and large at 3; {NAMES[results['kinds'][number]]}",
        "std at 3 over that at 0, 1, 2 (above 1)",
        "",
        _listed(each),
        _above_one(excess(std, [3], [0, 1, 2]), each),
    )


def _epistemic(results: dict[str, Any], number: int, part: str, large: list[int], low: list[int]) -> Claim:
    std = stds(results, part, number)
    each = {x: excess(std, [x], low) for x in large}
    reasons = {1: "1 (misfit)", 2: "2 (no data)"}
    return Claim(
        "fig:unctypes",
        f"epistemic uncertainty {part} members is low at {_words(low)} and large at "
        f"{', '.join(reasons[x] for x in large)}; {NAMES[results['kinds'][number]]}",
        f"std there over the largest at {_words(low)} (above 1)",
        "",
        _listed(each),
        _above_one(excess(std, large, low), each),
    )


def _above_one(whole: Estimate, each: dict[int, Estimate]) -> str:
    """Whether all ratios exceed 1, some do, or not all can; open if the interval of the smallest has 1 inside."""
    verdict = judge(whole[1] > 1, whole[2] < 1)
    return IN_PART if verdict != HOLDS and any(low > 1 for _, low, _ in each.values()) else verdict


def _separation(results: dict[str, Any], line: int) -> Claim:
    ratio = stds(results, "within", line) / stds(results, "aleatoric", line)
    found = interval(ratio[:, 1] / ratio[:, 0])
    return Claim(
        "Sec. 1.1",
        "a misfit shows as epistemic and not as aleatoric; μ a line that started flat, within members",
        "epistemic / aleatoric std at 1 (misfit) over the same at 0 (none); 1 if they are not told apart, 2 counts",
        "",
        shown(found),
        decide(found[1] > 2, found[1] > 1.1),
    )


def of_sample_size(results: dict[str, Any]) -> list[Claim]:
    """What does and what does not depend on the number of measurements."""
    data = [0, 1, 3]
    aleatoric, within = (slope(results, part, data) for part in ("aleatoric", "within"))
    between, gap = (slope(results, "between", at) for at in (data, [2]))
    verdicts = {name: _falls(found) for name, found in (("within", within), ("between", between), ("gap", gap))}
    both = verdicts["between"] if verdicts["between"] == verdicts["gap"] else IN_PART
    rule = "d ln std / d ln repeats at 0, 1, 3, μ flexible"
    falls = f"{rule} (below -0.25; -0.5 is the error of a mean)"
    return [
        _row(
            "aleatoric uncertainty does not depend on sample size",
            f"{rule} (within 0.1)",
            shown(aleatoric),
            _steady(aleatoric),
        ),
        _row("epistemic uncertainty within members falls with sample size", falls, shown(within), verdicts["within"]),
        _row(
            "epistemic uncertainty between members falls with sample size",
            falls,
            f"{shown(between)}; at 2, without data: {shown(gap)}",
            both,
        ),
        _sharper(results),
    ]


def _steady(found: Estimate) -> str:
    """Whether a slope lies within ±0.1, with its whole interval."""
    _, low, high = found
    return judge(low > -0.1 and high < 0.1, low > 0.1 or high < -0.1)


def _falls(found: Estimate) -> str:
    """Whether a slope lies below −¼, with its whole interval."""
    return judge(found[2] < -0.25, found[1] > -0.25)


def _row(claim: str, statistic: str, ours: str, verdict: str) -> Claim:
    return Claim("Sec. 1.1", claim, statistic, "", ours, verdict)


def _sharper(results: dict[str, Any]) -> Claim:
    logs = (
        np.log(stds(results, "aleatoric", number)[:, [0, 1, 3]]) for number in (0, largest_sample(results, "flexible"))
    )
    squares = np.stack([np.mean((log_std - log_std.mean(0)) ** 2, axis=1) for log_std in logs], axis=1)
    found = interval(squares, ratio_of_spreads)
    sizes = results["repeats"]
    return _row(
        "the estimate of aleatoric uncertainty becomes sharper with sample size",
        f"spread of ln std over data sets, {sizes[0]} over {sizes[-1]} repeats; √ of the sizes' ratio is "
        f"{np.sqrt(sizes[-1] / sizes[0]):.3g}",
        shown(found),
        decide(found[1] > 1, found[0] > 1),
    )


def _listed(each: dict[int, Estimate]) -> str:
    return "; ".join(f"x = {x}: {shown(value)}" for x, value in each.items())


def _words(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
