"""What the study nu_bias reads from its table of fits for the ledger, beside the numbers of the authors' notebook."""

from typing import Any

import numpy as np

from experiments._claims import Claim, decide, interval, judge, share, shown

APPENDIX = "App. Bias of fit parameters, fig. res"
SECTION = "Sec. Challenging extraction of shape parameters, summary"
SMALL = 200  # the largest sample of the paper
LIMITS = (10.0, 2.0)  # of ν and σ in the authors' notebook
# github.com/avitase/mder, notebooks/misc, ν = 5: fits of 200 that were kept; their 16 % and 84 % quantiles of ν and σ
PRINTED = {
    50: (91, (2.65, 5.06), (0.79, 1.04)),
    75: (112, (3.33, 5.47), (0.85, 1.09)),
    100: (112, (3.37, 5.58), (0.85, 1.08)),
    125: (132, (3.64, 6.28), (0.88, 1.07)),
    150: (135, (3.78, 6.40), (0.91, 1.07)),
    175: (148, (3.90, 6.51), (0.91, 1.07)),
    200: (155, (3.97, 6.59), (0.92, 1.07)),
}


def pick(results: dict[str, Any], size: int, n: int = 1, truth: float | None = None) -> dict[str, np.ndarray]:
    """The fits of one size, number of targets and true ν (the main one unless named), with residuals."""
    fits, truth = results["fits"], main_truth(results) if truth is None else truth
    rows = (fits["size"] == size) & (fits["targets"] == n) & (fits["truth"] == truth)
    chosen = {name: column[rows] for name, column in fits.items()}
    return chosen | {"nu_residual": chosen["nu"] - truth, "scale_residual": chosen["scale"] - 1}


def main_truth(results: dict[str, Any]) -> float:
    """ν = 5 as in the paper, if it is there."""
    return 5.0 if 5.0 in results["truths"] else results["truths"][0]


def compared(first: np.ndarray, second: np.ndarray, statistic: Any, draws: int = 300) -> tuple[float, float, float]:
    """A statistic of two groups of fits and its 95 % bootstrap interval; NaN where a group is empty."""
    if not (len(first) and len(second)):
        return (np.nan,) * 3
    rng = np.random.default_rng(0)
    one, two = (group[rng.integers(0, len(group), (draws, len(group)))] for group in (first, second))
    low, high = np.quantile(statistic(one, two), [0.025, 0.975])
    return float(statistic(first[None], second[None])[0]), float(low), float(high)


def fall_of_bias(small: np.ndarray, large: np.ndarray) -> np.ndarray:
    """By how much |median residual| of the small samples exceeds that of the large ones."""
    return np.abs(np.median(small, axis=1)) - np.abs(np.median(large, axis=1))


def spread_ratio(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Width of the 16 % to 84 % range of the first group over that of the second."""
    one, two = (np.quantile(group, [0.16, 0.84], axis=1) for group in (first, second))
    return (one[1] - one[0]) / (two[1] - two[0])


def above(estimate: tuple[float, float, float], bar: float = 0.0) -> str:
    """Whether an estimate is above a bar; open where its interval holds the bar."""
    _, low, high = estimate
    return judge(low > bar, high < bar)


def ends(results: dict[str, Any]) -> tuple[int, int]:
    """Smallest sample size, and the largest within those of the paper."""
    within = [size for size in results["sizes"] if size <= SMALL]
    return results["sizes"][0], within[-1] if len(within) > 1 else results["sizes"][-1]


def median(values: np.ndarray) -> str:
    """The median and its interval as text."""
    if not len(values):
        return "none"
    return shown(interval(values, draws=500), "+.3f")


def claims(results: dict[str, Any]) -> list[Claim]:
    """Rows of the ledger."""
    rows = [
        bias_claim(results, "ν", "nu_residual"),
        bias_claim(results, "σ", "scale_residual"),
        selection_claim(results),
    ]
    if main_truth(results) == 5.0 and set(PRINTED) & set(results["sizes"]):
        rows.append(figure_claim(results))
    return [*rows, same_claim(results), larger_claim(results)]


def bias_claim(results: dict[str, Any], letter: str, name: str) -> Claim:
    """The bias of ν or σ falls with N."""
    small, large = ends(results)
    groups = [pick(results, size) for size in (small, large, results["sizes"][-1])]
    every = [group[name] for group in groups]
    kept = [group[name][group["kept"]] for group in groups]
    medians, kept_medians = ("; ".join(map(median, values)) for values in (every, kept))
    falls, kept_falls = (compared(values[0], values[1], fall_of_bias)[1] > 0 for values in (every, kept))
    return Claim(
        APPENDIX,
        f"fits of small samples have a bias in {letter} that falls as samples grow",
        f"median of {letter} − truth at N = {small}, {large} and {results['sizes'][-1]}, n = 1, true ν = "
        f"{main_truth(results):g}, over all fits (in part: only over those kept)",
        "",
        f"{medians}; of fits kept by the notebook's rule {kept_medians}",
        decide(falls, kept_falls),
    )


def selection_claim(results: dict[str, Any]) -> Claim:
    """Whether selecting fits makes a bias of its own."""
    size = results["sizes"][0]
    group = pick(results, size)
    residual, kept = group["nu_residual"], group["nu_residual"][group["kept"]]
    inside = group["nu_residual"][~group["at_bound"]]
    change = compared(residual, kept, lambda every, some: np.median(every, axis=1) - np.median(some, axis=1))
    printed = f"{PRINTED[size][0]} of 200 kept" if size in PRINTED and main_truth(results) == 5.0 else ""
    return Claim(
        f"{APPENDIX}, authors' notebook",
        "fits that do not converge or end at a limit can be left out without biasing the result",
        f"median of ν − truth over all fits, over those not at a bound of the wide box, and over those that the "
        f"notebook's rule keeps, N = {size}",
        printed,
        f"{median(residual)}, {median(inside)} and {median(kept)}; "
        f"{shown(share(len(kept), len(residual)), '.0%')} kept by the rule",
        decide(change[1] <= 0 <= change[2]),
    )


def figure_claim(results: dict[str, Any]) -> Claim:
    """The 68 % ranges of the paper's figure."""
    scores = printed_scores(results)
    shares = [f"{np.mean(pick(results, size)['kept']):.0%}" for size in sorted(scores)]
    paper = [f"{PRINTED[size][0] / 200:.0%}" for size in sorted(scores)]
    every = np.abs(np.concatenate(list(scores.values())))
    return Claim(
        APPENDIX,
        "the ranges of the figure: below the truth at N = 50 and around it at N = 200",
        "16 % and 84 % quantiles of ν and σ over kept fits, in standard errors of as many fits as the notebook kept; "
        "shares kept",
        f"kept {', '.join(paper)}",
        f"{int(np.sum(every < 2))} of {len(every)} within 2, largest {every.max():.1f}; kept {', '.join(shares)}",
        decide(every.max() < 4, np.median(every) < 2),
    )


def printed_scores(results: dict[str, Any]) -> dict[int, np.ndarray]:
    """(printed − ours)/error of the quantiles of kept fits, by sample size: ν 16 %, 84 %, σ 16 %, 84 %."""
    rng, scores = np.random.default_rng(0), {}
    for size in sorted(set(PRINTED) & set(results["sizes"])):
        count, *ranges = PRINTED[size]
        group = pick(results, size)
        found = []
        for name, printed in zip(("nu", "scale"), ranges, strict=True):
            values = group[name][group["kept"]]
            again = np.quantile(values[rng.integers(0, len(values), (200, count))], [0.16, 0.84], axis=1)
            found.append((np.array(printed) - again.mean(axis=1)) / again.std(axis=1))
        scores[size] = np.concatenate(found)
    return scores


def same_claim(results: dict[str, Any]) -> Claim:
    """Two targets have the bias as well."""
    small, large = ends(results)
    groups = [pick(results, size, 2)["nu_residual"] for size in (small, large)]
    return Claim(
        SECTION,
        "with several targets ν is biased as well, less so for larger samples",
        f"median of ν − truth over all fits at N = {small} and {large}, n = 2",
        "",
        "; ".join(map(median, groups)),
        above(compared(groups[0], groups[1], fall_of_bias)),
    )


def larger_claim(results: dict[str, Any]) -> Claim:
    """Two targets need more data than one."""
    _, large = ends(results)
    same = compared(pick(results, large, 2)["nu_residual"], pick(results, large)["nu_residual"], spread_ratio)
    found = f"{shown(same, '.2f')} at N = {large}"
    if 2 * (half := large // 2) == large and half in results["sizes"]:
        values = compared(pick(results, half, 2)["nu_residual"], pick(results, large)["nu_residual"], spread_ratio)
        found += f"; {shown(values, '.2f')} for N = {half} pairs against {large} single values"
    return Claim(
        SECTION,
        "with several targets an even larger sample is needed to find ν",
        "width of the 16 % to 84 % range of ν for n = 2 over that for n = 1 (above 1 at equal N)",
        "",
        found,
        above(same, 1.0),
    )
