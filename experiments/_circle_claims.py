"""What the circle's networks say about the claims of Sec. 4 and App. E, and beside the authors' own code."""

from typing import Any

import numpy as np
from scipy import stats

from experiments import _circle
from experiments._circle import GRID
from experiments._claims import FAILS, HOLDS, IN_PART, Claim, decide, interval, judge, share, shown

# From the authors' published code, 100 networks: share of networks whose ν drops by more than 1, median correlation in
# the middle of the four quadrants, final training loss.
AUTHORS_DROP, AUTHORS_MEMBERS, AUTHORS_LOSS = 42, 100, -4.51
POINTS = {"split": "90 % of the", "all": "all"}
AUTHORS_CORRELATION = (0.998, -0.79, 0.61, -0.98)


def report(results: dict[str, Any]) -> str:
    """A table of both readings."""
    networks = {name: reading["loss"].size for name, reading in results["readings"].items()}
    lines = [f"{sum(networks.values())} networks, trained in {results['seconds_of_training']:.1f} s"]
    for name, reading in results["readings"].items():
        drop, loss = drops(reading), reading["loss"].ravel()
        rho = np.median(quadrants(reading), axis=0)
        lines.append(
            f"  {networks[name]} on {POINTS[name]} points: "
            f"ν drops by {np.median(drop):.2f}, by over 1 in {np.mean(drop > 1):.0%}; "
            f"correlation {', '.join(f'{value:+.3f}' for value in rho)}; loss {np.median(loss):.2f}; "
            f"{int(reading['diverged'].sum())} non-finite"
        )
    return "\n".join(lines)


def members(reading: dict[str, np.ndarray], name: str) -> np.ndarray:
    """A field of all members of all data sets: (data sets × members, ...)."""
    return reading[name].reshape(-1, *reading[name].shape[2:])


def drops(reading: dict[str, np.ndarray]) -> np.ndarray:
    """ν near the ends minus ν near the centre, of each member."""
    return _circle.nu_drop(members(reading, "nu"))


def quadrants(reading: dict[str, np.ndarray]) -> np.ndarray:
    """Median correlation in the middle of the quadrants, of each member: (M, 4)."""
    rho = _circle.correlation(members(reading, "L"))
    return np.stack([np.median(rho[:, middle], axis=1) for middle in _circle.QUADRANT_MIDDLES], axis=1)


def claims(results: dict[str, Any]) -> list[Claim]:
    """Rows of the ledger, from the authors' reading."""
    reading = results["readings"]["split"]
    return [
        *_gate(reading),
        *_mean(reading),
        *_covariance(reading),
        *_beside_the_authors(reading),
        *(_two_readings(*results["readings"].values()) if len(results["readings"]) == 2 else []),
    ]


def _gate(reading: dict[str, np.ndarray]) -> list[Claim]:
    drop = drops(reading)
    p = _wilcoxon(drop)
    of_sets = np.median(drop.reshape(reading["nu"].shape[:2]), axis=1)
    dropped = share(int(np.sum(drop > 1)), len(drop))
    effect = drop.mean() / drop.std() if drop.std() else np.nan
    epistemic = _epistemic_ratio(reading)
    where = "Sec. 4, fig:nu"
    return [
        Claim(
            where,
            "ν falls significantly towards the centre of t, where data are sparse",
            "one-sided paired Wilcoxon test over networks; median of the fall; effect size d; data sets with a fall",
            "significant, no number",
            f"p {f'= {p:.1g}' if p > 1e-99 else '< 1e-99'}; {shown(interval(drop), '.2f')}; d = {effect:.2f}; "
            f"{int(np.sum(of_sets > 0))} of {len(of_sets)}",
            decide(p < 0.01 and np.median(drop) > 0, p < 0.05),
        ),
        Claim(
            where,
            "not all networks find that solution",
            "share of networks whose ν falls by more than 1 (below 95 %)",
            "no number",
            shown(dropped, ".0%"),
            judge(dropped[2] < 0.95, dropped[0] == 1 or dropped[1] > 0.95),
        ),
        Claim(
            where,
            "a lower ν at the centre means a larger epistemic uncertainty there",
            "trace of var[μ], centre / ends, median over networks",
            "larger",
            shown(epistemic, ".2f"),
            decide(epistemic[1] > 1, epistemic[0] > 1),
        ),
    ]


def _wilcoxon(drop: np.ndarray) -> float:
    return float(stats.wilcoxon(drop, alternative="greater").pvalue) if np.any(drop) else 1.0


def _epistemic_ratio(reading: dict[str, np.ndarray]) -> tuple[float, float, float]:
    nu, L = members(reading, "nu"), members(reading, "L")
    trace = np.sum(L**2, axis=(-1, -2)) / np.maximum(nu - 3, 1e-6)  # var[μ] = Σ₀ ν / (κ (ν − 3)), κ = ν
    centre, ends = (np.median(trace[:, mask], axis=1) for mask in (_circle.NEAR_CENTRE, _circle.NEAR_ENDS))
    return interval(centre / ends)


def _mean(reading: dict[str, np.ndarray]) -> list[Claim]:
    error = _circle.error_of_mean(members(reading, "mu"))
    dense = interval(np.median(error[:, _circle.NEAR_ENDS], axis=1))
    left_half = np.cos(GRID) < 0
    sparse = interval(np.median(error[:, left_half], axis=1))
    return [
        Claim(
            "Sec. 4, fig:predictions",
            "the predicted (x, y) resemble the circle where data are dense, and begin to from 0.5π to 1.5π",
            "median distance of μ from (cos t, sin t): near the ends; from 0.5π to 1.5π (noise 0.1)",
            "picture",
            f"{shown(dense, '.3f')}; {shown(sparse, '.3f')}",
            decide(dense[2] < 0.1 and sparse[2] < 0.2, dense[2] < 0.1),
        )
    ]


def _covariance(reading: dict[str, np.ndarray]) -> list[Claim]:
    L = members(reading, "L")
    rho = quadrants(reading)
    signs = np.array([1, -1, 1, -1])
    right = [share(int(np.sum(rho[:, q] * signs[q] > 0.9)), len(rho)) for q in range(4)]
    outer, inner = min(right[0][0], right[3][0]), min(right[1][0], right[2][0])
    spread = np.std(_circle.correlation(L), axis=0)
    flips, calm = _circle.near_sign_flips(width=np.pi / 16), _circle.QUADRANT_MIDDLES
    at_flips, at_outer, at_inner = (
        float(np.mean(spread[mask])) for mask in (flips, calm[0] | calm[3], calm[1] | calm[2])
    )
    predicted = np.median(_circle.covariance(L), axis=0)
    truth = _circle.true_covariance()
    agreement = {name: _agreement(predicted[mask], truth[mask]) for name, mask in _halves().items()}
    where = "App. E, fig:covcorr"
    return [
        Claim(
            where,
            "the correlation is ±1 with the expected sign where data are many",
            "share of networks with |ρ| > 0.9 and the right sign in the quadrants at the ends (1st, 4th)",
            "picture",
            "; ".join(shown(right[q], ".0%") for q in (0, 3)),
            decide(outer > 0.8, outer > 0.5),
        ),
        Claim(
            where,
            "in regions of large epistemic uncertainty the estimate becomes unstable",
            "the same share in the quadrants of the sparse centre (2nd, 3rd); spread of ρ there / at the ends",
            "picture",
            f"{'; '.join(shown(right[q], '.0%') for q in (1, 2))}; {at_inner / at_outer:.1f}",
            decide(inner < outer and at_inner > 2 * at_outer, at_inner > at_outer),
        ),
        Claim(
            where,
            "the estimate is unstable around the sign flips at 0.5π, π, 1.5π",
            "standard deviation of ρ over networks: within π/16 of the flips; middle of the 1st and 4th quadrant",
            "picture",
            f"{at_flips:.2f}; {at_outer:.2f}",
            decide(at_flips > 2 * at_outer, at_flips > at_outer),
        ),
        Claim(
            where,
            "the covariance of x and y is learned up to a scale",
            "Pearson correlation over t of the median of Σ₀ with the analytic J cov Jᵀ, and the scale: ends; centre",
            "up to a constant",
            "; ".join(f"{r:.2f}, scale {scale:.2f}" for r, scale in agreement.values()),
            _scale_verdict(*agreement.values()),
        ),
    ]


def _scale_verdict(ends: tuple[float, float], centre: tuple[float, float]) -> str:
    """The shape of the covariance, and whether one scale serves everywhere (within a factor of 1.5)."""
    shape = min(ends[0], centre[0]) > 0.9
    one_scale = max(ends[1], centre[1]) < 1.5 * min(ends[1], centre[1])
    return decide(shape and one_scale, shape or ends[0] > 0.9)


def _halves() -> dict[str, np.ndarray]:
    return {"ends": np.cos(GRID) >= 0, "centre": np.cos(GRID) < 0}


def _agreement(predicted: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """Pearson correlation, and the least-squares factor from truth to prediction."""
    return float(np.corrcoef(predicted, truth)[0, 1]), float(predicted @ truth / (truth @ truth))


def _beside_the_authors(reading: dict[str, np.ndarray]) -> list[Claim]:
    drop = drops(reading)
    table = [[AUTHORS_DROP, AUTHORS_MEMBERS - AUTHORS_DROP], [int(np.sum(drop > 1)), int(np.sum(drop <= 1))]]
    p = float(stats.fisher_exact(table).pvalue)
    of_sets = np.mean(drop.reshape(reading["nu"].shape[:2]) > 1, axis=1)
    several = len(of_sets) > 1
    within = several and of_sets.min() <= AUTHORS_DROP / AUTHORS_MEMBERS <= of_sets.max()
    found = f"{np.mean(drop > 1):.0%}, Fisher p = {p:.2g}" + (
        f"; {len(of_sets)} data sets: {of_sets.min():.0%} to {of_sets.max():.0%}" if several else ""
    )
    loss = members(reading, "loss")
    losses = np.median(reading["loss"], axis=1)
    rho = [interval(of_members) for of_members in quadrants(reading).T]
    same_sign = sum(np.sign(r[0]) == np.sign(theirs) for r, theirs in zip(rho, AUTHORS_CORRELATION, strict=True))
    where = "the authors' published code"
    return [
        Claim(
            where,
            "the share of networks whose ν falls by more than 1",
            "two-sample test of the shares (Fisher); range over data sets, since the data are other draws",
            f"{AUTHORS_DROP} of {AUTHORS_MEMBERS}",
            found,
            judge(p > 0.05 or within, several),
        ),
        Claim(
            where,
            "the final training loss",
            "median over networks with its interval; range over data sets",
            f"{AUTHORS_LOSS}",
            shown(interval(loss), ".2f") + (f"; {losses.min():.2f} to {losses.max():.2f}" if several else ""),
            _loss_verdict(interval(loss), losses),
        ),
        Claim(
            where,
            "the median correlation in the four quadrants",
            "median over networks of the median over the middle 60 % of each quadrant",
            ", ".join(f"{value:+.2f}" for value in AUTHORS_CORRELATION),
            "; ".join(f"{value:+.2f} ({low:+.2f} to {high:+.2f})" for value, low, high in rho),
            {4: HOLDS, 3: IN_PART}.get(int(same_sign), FAILS),
        ),
    ]


def _loss_verdict(ours: tuple[float, float, float], of_sets: np.ndarray) -> str:
    """Other data have another loss: one data set decides only if it agrees."""
    agrees = ours[1] <= AUTHORS_LOSS <= ours[2] or of_sets.min() <= AUTHORS_LOSS <= of_sets.max()
    return judge(agrees, len(of_sets) > 1)


def _two_readings(split: dict[str, np.ndarray], whole: dict[str, np.ndarray]) -> list[Claim]:
    first, second = drops(split), drops(whole)
    p = float(stats.mannwhitneyu(first, second).pvalue)
    return [
        Claim(
            "Sec. 4",
            "training on 270 points (published code) or on 300 (paper) gives the same picture",
            "share of networks whose ν falls by more than 1: 270; 300; Mann-Whitney test of the falls",
            "300 points",
            f"{np.mean(first > 1):.0%}; {np.mean(second > 1):.0%}; p = {p:.2g}",
            decide(p > 0.05, np.sign(np.median(first)) == np.sign(np.median(second))),
        )
    ]
