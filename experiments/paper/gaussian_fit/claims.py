"""The report and the claims of the study `gaussian_fit`; intervals are over data sets."""

from typing import Any

import numpy as np

from experiments.harness.claims import Claim, Finding, claim, decide
from experiments.harness.statistics import fraction, interval
from experiments.paper.gaussian_fit.statistics import IN_GAP, KINDS, shortfall, stds, total_loss, unseen_loss, widening


def report(results: dict[str, Any]) -> str:
    """Medians over data sets."""
    needed, stated = stds(results)
    columns = {
        "  sum of L_i": total_loss(results),
        "  E[L] new y": unseen_loss(results),
        "  needed std": needed,
        "  stated std": stated,
        "  needed/stated, data": shortfall(results, ~IN_GAP),
        "         gap": shortfall(results, IN_GAP),
    }
    lines = [f"{'median':10}" + "".join(columns)]
    for kind, name in enumerate(KINDS):
        cells = (f"{np.median(values[kind]):{len(title)}.3f}" for title, values in columns.items())
        lines.append(f"{name:10}" + "".join(cells))
    members = results["mean"].shape[1]
    return "\n".join([*lines, f"{members} data sets, {results['diverged']} networks became non-finite"])


def claims(results: dict[str, Any]) -> list[Claim]:
    """Five statements of App. A."""
    return [test(results) for test in (_smaller_loss, _worse_fit, _interpolation, _understatement, _misfit)]


@claim(id="gaussian_fit.smaller_loss", where="App. A, fig:greg")
def _smaller_loss(results: dict[str, Any]) -> Finding:
    """an over-fit has the smaller total loss"""
    fit, over_fit, _ = total_loss(results)
    return _in_most(over_fit < fit, over_fit - fit, "sum of L_i, over-fit minus fit", "smaller")


@claim(id="gaussian_fit.worse_fit", where="App. A, fig:greg")
def _worse_fit(results: dict[str, Any]) -> Finding:
    """the smaller loss is not the better fit"""
    fit, over_fit, _ = unseen_loss(results)
    return _in_most(over_fit > fit, over_fit - fit, "expected L of a new y, over-fit minus fit", "larger")


def _in_most(reached: np.ndarray, difference: np.ndarray, statistic: str, word: str) -> Finding:
    """Whether a difference has the right sign in most data sets."""
    found = fraction(np.sum(reached), len(reached))
    return Finding(
        statistic=statistic,
        ours=f"{word} in {found:.0%} of data sets; median {interval(difference)}",
        verdict=decide(found.low > 0.5, found.value > 0.5),
    )


@claim(id="gaussian_fit.interpolation", where="App. A")
def _interpolation(results: dict[str, Any]) -> Finding:
    """where data are missing a Gaussian interpolates its standard deviation"""
    fit, _, _ = widening(results)
    found = interval(fit)
    return Finding(
        statistic="std in the gap / std beside it, sensible fit; 1.5 would be noticed",
        ours=f"{found}",
        verdict=decide(found.high < 1.5, found.value < 1.5),
    )


@claim(id="gaussian_fit.understatement", where="App. A")
def _understatement(results: dict[str, Any]) -> Finding:
    """and so understates what is not known there"""
    (in_gap, _, _), (beside, _, _) = (shortfall(results, where) for where in (IN_GAP, ~IN_GAP))
    gap, excess = interval(in_gap), interval(in_gap / beside)
    return Finding(
        statistic="rms (y - mu)/std in the gap, sensible fit (1 is right); the same over that beside the gap",
        ours=f"{gap}; {excess}",
        verdict=decide(gap.low > 1 and excess.low > 1, gap.low > 1),
    )


@claim(id="gaussian_fit.misfit", where="App. A")
def _misfit(results: dict[str, Any]) -> Finding:
    """an under-fitting model puts its misfit into sigma beside the noise"""
    needed, stated = (under_fit for _, _, under_fit in stds(results))
    ratio, increase = interval(stated / needed), interval(stated / results["noise"])
    close = ratio.low > 0.8 and ratio.high < 1.25
    return Finding(
        statistic="rms std / sqrt(noise^2 + misfit^2), under-fit, 0.8 to 1.25 counts as equal; rms std / noise",
        ours=f"{ratio}; {increase}",
        verdict=decide(close and increase.low > 1, increase.low > 1),
    )
