"""The claims of Sec. 4 and App. E, tested on networks trained on samples of different size."""

from typing import Any

import numpy as np

from experiments.harness.claims import FAILS, OPEN, Claim, Finding, claim, decide
from experiments.paper import circle_recipe
from experiments.paper.sample_size import statistics
from experiments.paper.sample_size.statistics import EQUAL, average, places

Values = dict[str, np.ndarray]
GATE = "Sec. 4, fig:nu"


def report(results: dict[str, Any]) -> str:
    """A table for each budget."""
    lines = []
    for budget, found in results["budgets"].items():
        values = {name: value.mean(axis=1) for name, value in statistics.by_data_set(found).items()}
        data_sets, networks = found["train"].shape[1:]
        lines += [
            f"{EQUAL[budget]}, data sets {data_sets}, networks on each {networks}, "
            f"{int(found['diverged'].sum())} networks non-finite; means over data sets",
            "                     ν             frac.   NLL             error of μ        wrong ρ",
            "  points    steps    centre / ends open    train / fresh   0.5π-1.5π / rest  away / at flips",
        ]
        lines += [
            f"  {size:6}  {found['steps'][i]:7}   {values['nu_centre'][i]:6.1f} / {values['nu_ends'][i]:4.1f}  "
            f"{values['open'][i]:4.0%}   {values['train'][i]:6.2f} / {values['fresh'][i]:5.2f}   "
            f"{values['error_middle'][i]:8.3f} / {values['error_rest'][i]:.3f}    "
            f"{values['wrong_away'][i]:7.0%} / {values['wrong_flips'][i]:.0%}"
            for i, size in enumerate(results["sizes"])
        ]
    return "\n".join(lines)


def claims(results: dict[str, Any]) -> list[Claim]:
    """Rows of the ledger, for each budget; intervals are over data sets."""
    rows = []
    for budget, found in results["budgets"].items():
        values = statistics.by_data_set(found) | {"correlation": found["correlation"]}
        for test in (_gate, _over_fitting, _nu_and_error, _mean, _correlation):
            rows.append(test(results["sizes"], values).about(budget, f" ({EQUAL[budget]})"))
    return rows


@claim(id="sample_size.gate", where=GATE, paper="open for all t")
def _gate(sizes: list[int], values: Values) -> Finding:
    """more data open the ν gate for all t"""
    _, usual, largest = places(sizes)
    centre = values["open_centre"]
    everywhere, rise = average(values["open"][largest]), average(centre[largest] - centre[usual])
    verdict = decide(everywhere.low > 0.95, rise.low > 0)
    return Finding(
        statistic=f"fraction of t with ν > {statistics.OPEN_GATE:g} with {sizes[largest]} points: all t; centre; its "
        f"rise from {sizes[usual]}",
        ours=f"{everywhere:.2f}; {average(centre[largest]):.2f}; {rise:+.2f}",
        verdict=OPEN if verdict == FAILS and everywhere.high > 0.95 else verdict,
    )


@claim(id="sample_size.over_fitting", where=GATE, paper="serious")
def _over_fitting(sizes: list[int], values: Values) -> Finding:
    """fewer data cause serious over-fitting"""
    three = places(sizes)
    small, middle, large = (average((values["fresh"] - values["train"])[place]) for place in three)
    return Finding(
        statistic="NLL on fresh data minus NLL in training, nats per point, with "
        f"{', '.join(str(sizes[place]) for place in three)} points",
        ours="; ".join(f"{gap:.2f}" for gap in (small, middle, large)),
        verdict=decide(small.low > max(1, middle.high), small.low > max(0, middle.high)),
    )


@claim(id="sample_size.nu_and_error", where=GATE, paper="low ν, large uncertainty")
def _nu_and_error(sizes: list[int], values: Values) -> Finding:
    """a low ν means that much is unknown: read from one sample size to the next"""
    smallest, _, largest = places(sizes)
    rank = average(statistics.rank_correlations(values["nu"], values["error"]))
    few, many = (average(values["nu"][place]) for place in (smallest, largest))
    verdict = decide(rank.high < -0.5, rank.high < 0)
    return Finding(
        statistic="rank correlation over sizes between mean ν and mean error of μ (should be negative); "
        f"mean ν with {sizes[smallest]} and {sizes[largest]} points",
        ours=f"{rank:+.2f}; {few:.1f}; {many:.1f}",
        verdict=OPEN if verdict == FAILS and rank.low < -0.5 else verdict,
    )


@claim(id="sample_size.mean", where="Sec. 4, fig:predictions", paper="well")
def _mean(sizes: list[int], values: Values) -> Finding:
    """with enough data μ follows the circle well also from 0.5π to 1.5π"""
    _, usual, largest = places(sizes)
    error = values["error_middle"]
    now, fall = average(error[largest]), average(error[usual] - error[largest])
    near = now.high < circle_recipe.NOISE / 2
    return Finding(
        statistic=f"mean distance of μ from (cos t, sin t) there with {sizes[usual]} and {sizes[largest]} points; "
        f"elsewhere with {sizes[largest]} (noise {circle_recipe.NOISE:g})",
        ours=f"{average(error[usual])}; {now}; {average(values['error_rest'][largest])}",
        verdict=decide(near and fall.low > 0, near or fall.low > 0),
    )


@claim(id="sample_size.correlation", where="App. E, fig:covcorr", paper="stable")
def _correlation(sizes: list[int], values: Values) -> Finding:
    """with more data the correlation is stable except in small regions around its sign flips"""
    _, usual, largest = places(sizes)
    away = values["wrong_away"]
    before, now, flips = average(away[usual]), average(away[largest]), average(values["wrong_flips"][largest])
    spread_before, spread = (statistics.scatter(values["correlation"][place]) for place in (usual, largest))
    calm = average(away[usual] - away[largest]).low > 0 or spread.high < spread_before.low
    return Finding(
        statistic=f"fraction of t, more than π/8 from the flips, where ρ is off by over {statistics.RIGHT:g}, with "
        f"{sizes[usual]} and {sizes[largest]} points; within π/8 with {sizes[largest]}; scatter of ρ over networks "
        "away from flips, both",
        ours="; ".join(f"{part:.2f}" for part in (before, now, flips, spread_before, spread)),
        verdict=decide(now.high < 0.05 and spread.high < statistics.RIGHT, calm),
    )
