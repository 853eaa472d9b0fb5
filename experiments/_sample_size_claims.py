"""What networks trained on samples of different size say about the claims of Sec. 4 and App. E."""

from typing import Any

import numpy as np
from scipy import stats

from experiments import _circle
from experiments._claims import FAILS, OPEN, Claim, decide, interval, shown

OPEN_GATE = 8.0  # the middle of the gate ν = 8 + 5 tanh p
RIGHT = 0.1  # a correlation this close to ±1 counts as right
EQUAL = {"steps": "equal steps", "epochs": "equal epochs"}
MIDDLE = np.cos(_circle.GRID) < 0  # 0.5π to 1.5π
AWAY = ~_circle.near_sign_flips()


def over(mask: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Mean over some t and over the members of a data set: (S, D, M, T) -> (S, D)."""
    return values[..., mask].mean(axis=(-1, -2))


def statistics(found: dict[str, Any]) -> dict[str, np.ndarray]:
    """Each quantity for every size and data set, (S, D); the data sets are what is independent."""
    everywhere, centre, ends = np.ones_like(MIDDLE), _circle.NEAR_CENTRE, _circle.NEAR_ENDS
    is_open, error = found["nu"] > OPEN_GATE, found["mean_error"]
    off = np.abs(found["correlation"] - _circle.true_correlation())
    wrong = off > RIGHT
    return {
        "nu": over(everywhere, found["nu"]),
        "nu_centre": over(centre, found["nu"]),
        "nu_ends": over(ends, found["nu"]),
        "open": over(everywhere, is_open),
        "open_centre": over(centre, is_open),
        "train": found["train"].mean(axis=-1),
        "fresh": found["fresh"].mean(axis=-1),
        "error": over(everywhere, error),
        "error_middle": over(MIDDLE, error),
        "error_rest": over(~MIDDLE, error),
        "off_middle": over(MIDDLE & AWAY, off),
        "off_rest": over(~MIDDLE & AWAY, off),
        "off_flips": over(~AWAY, off),
        "wrong_away": over(AWAY, wrong),
        "wrong_flips": over(~AWAY, wrong),
    }


def places(sizes: list[int]) -> tuple[int, int, int]:
    """Where the smallest size, the paper's 300 (or what is next to it) and the largest stand."""
    from_usual = np.abs(np.log(np.array(sizes) / _circle.POINTS))
    return int(np.argmin(sizes)), int(np.argmin(from_usual)), int(np.argmax(sizes))


def report(results: dict[str, Any]) -> str:
    """A table for each budget."""
    lines = []
    for budget, found in results["budgets"].items():
        values = {name: value.mean(axis=1) for name, value in statistics(found).items()}
        networks = found["train"].shape[1:]
        lines.append(
            f"{EQUAL[budget]}, data sets {networks[0]}, networks on each {networks[1]}, "
            f"{int(found['diverged'].sum())} networks non-finite; means over data sets"
        )
        lines += [
            "                     ν             share   NLL             error of μ        wrong ρ",
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
        values = statistics(found)
        rows += [make(EQUAL[budget], results["sizes"], values) for make in (_gate, _over_fitting, _nu_and_error, _mean)]
        rows.append(_correlation(EQUAL[budget], results["sizes"], values, found["correlation"]))
    return rows


def average(values: np.ndarray) -> tuple[float, float, float]:
    """The mean over data sets with its interval."""
    return interval(values, np.mean)


def _gate(equal: str, sizes: list[int], values: dict[str, np.ndarray]) -> Claim:
    _, usual, largest = places(sizes)
    share, centre = values["open"], values["open_centre"]
    everywhere, rise = average(share[largest]), average(centre[largest] - centre[usual])
    verdict = decide(everywhere[1] > 0.95, rise[1] > 0)
    return Claim(
        "Sec. 4, fig:nu",
        f"more data open the ν gate for all t ({equal})",
        f"share of t with ν > {OPEN_GATE:g} with {sizes[largest]} points: all t; centre; its rise from {sizes[usual]}",
        "open for all t",
        f"{shown(everywhere, '.2f')}; {shown(average(centre[largest]), '.2f')}; {shown(rise, '+.2f')}",
        OPEN if verdict == FAILS and everywhere[2] > 0.95 else verdict,
    )


def _over_fitting(equal: str, sizes: list[int], values: dict[str, np.ndarray]) -> Claim:
    three = places(sizes)
    gaps = [average((values["fresh"] - values["train"])[place]) for place in three]
    small, middle, _ = gaps
    return Claim(
        "Sec. 4, fig:nu",
        f"fewer data cause serious over-fitting ({equal})",
        "NLL on fresh data minus NLL in training, nats per point, with "
        f"{', '.join(str(sizes[place]) for place in three)} points",
        "serious",
        "; ".join(shown(gap, ".2f") for gap in gaps),
        decide(small[1] > max(1, middle[2]), small[1] > max(0, middle[2])),
    )


def _nu_and_error(equal: str, sizes: list[int], values: dict[str, np.ndarray]) -> Claim:
    smallest, _, largest = places(sizes)
    rank = average(np.array([_rank_correlation(*pair) for pair in zip(values["nu"].T, values["error"].T, strict=True)]))
    nu = [shown(average(values["nu"][place]), ".1f") for place in (smallest, largest)]
    verdict = decide(rank[2] < -0.5, rank[2] < 0)
    return Claim(
        "Sec. 4, fig:nu",
        f"a low ν means that much is unknown: read from one sample size to the next ({equal})",
        "rank correlation over sizes between mean ν and mean error of μ (should be negative); "
        f"mean ν with {sizes[smallest]} and {sizes[largest]} points",
        "low ν, large uncertainty",
        f"{shown(rank, '+.2f')}; {'; '.join(nu)}",
        OPEN if verdict == FAILS and rank[1] < -0.5 else verdict,
    )


def _rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's, 0 if one of them is constant."""
    return float(stats.spearmanr(first, second).statistic) if np.ptp(first) and np.ptp(second) else 0.0


def _mean(equal: str, sizes: list[int], values: dict[str, np.ndarray]) -> Claim:
    _, usual, largest = places(sizes)
    error = values["error_middle"]
    now, fall = average(error[largest]), average(error[usual] - error[largest])
    near = now[2] < _circle.NOISE / 2
    return Claim(
        "Sec. 4, fig:predictions",
        f"with enough data μ follows the circle well also from 0.5π to 1.5π ({equal})",
        f"mean distance of μ from (cos t, sin t) there with {sizes[usual]} and {sizes[largest]} points; elsewhere with "
        f"{sizes[largest]} (noise {_circle.NOISE:g})",
        "well",
        f"{shown(average(error[usual]))}; {shown(now)}; {shown(average(values['error_rest'][largest]))}",
        decide(near and fall[1] > 0, near or fall[1] > 0),
    )


def _correlation(equal: str, sizes: list[int], values: dict[str, np.ndarray], correlation: np.ndarray) -> Claim:
    _, usual, largest = places(sizes)
    away = values["wrong_away"]
    before, now, flips = average(away[usual]), average(away[largest]), average(values["wrong_flips"][largest])
    spread_before, spread = (scatter(correlation[place]) for place in (usual, largest))
    calm = average(away[usual] - away[largest])[1] > 0 or spread[2] < spread_before[1]
    return Claim(
        "App. E, fig:covcorr",
        f"with more data the correlation is stable except in small regions around its sign flips ({equal})",
        f"share of t, more than π/8 from the flips, where ρ is off by over {RIGHT:g}, with {sizes[usual]} and "
        f"{sizes[largest]} points; within π/8 with {sizes[largest]}; scatter of ρ over networks away from flips, both",
        "stable",
        f"{'; '.join(shown(part, '.2f') for part in (before, now, flips, spread_before, spread))}",
        decide(now[2] < 0.05 and spread[2] < RIGHT, calm),
    )


def scatter(correlation: np.ndarray) -> tuple[float, float, float]:
    """Standard deviation of ρ over networks, mean over t away from the sign flips: (D, M, T) -> value and interval."""

    def of_networks(values: np.ndarray, axis: int) -> np.ndarray:
        return np.std(values, axis=(axis, axis + 1)).mean(axis=-1)

    return interval(correlation[..., AWAY][..., ::8], of_networks)
