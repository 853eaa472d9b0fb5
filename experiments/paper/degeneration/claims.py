"""The claims of Sec. 2.1, 2.2, 3 and App. D, tested on the manifold and on networks trained with Amini's loss."""

from typing import Any

import numpy as np

from experiments.harness.claims import Claim, Finding, claim, decide
from experiments.harness.statistics import Estimate, interval
from experiments.paper.degeneration import statistics
from experiments.paper.degeneration.statistics import kappa_with, kappa_without, null_counts

EXACT = 1e-9
FLOOR = 1e-6  # least κ that the link lets through


def report(results: dict[str, Any]) -> str:
    """Null directions for each n, then κ after training for each strength."""
    lines = ["along constant (1+kappa)/kappa Psi, kappa from 1e-4 to 1e4 (null: eigenvalues of the expected Hessian)"]
    for row in results["targets"]:
        free, coupled = (null_counts(row[name]) for name in ("eigenvalues", "coupled_eigenvalues"))
        nll = f"NLL within {row['nll_deviation']:.0e}"
        lines.append(f"  n = {row['n']}: {nll}, null {free}, with nu = r kappa {coupled}")
    training, half = results["training"], statistics.half_time(results["training"])
    lines += [
        f"training with lambda |y - mu| Phi, {training['epoch'][-1]} epochs: kappa = aleatoric / epistemic",
        "  lambda  Phi          median kappa (95 % interval)      at half time  median alpha  median NLL",
    ]
    for number, (group, kappa) in enumerate(zip(training["groups"], training["kappa"], strict=True)):
        lines.append(
            f"  {group['lambda']:<7g} {group['definition']:12} {f'{interval(kappa[:, -1])}':33} "
            f"{np.median(kappa[:, half]):<13.3g} {np.median(training['alpha'][number]):<13.3g} "
            f"{np.median(training['nll'][number]):.3f}"
        )
    return "\n".join([*lines, f"  members that became non-finite: {training['diverged']}"])


def claims(results: dict[str, Any]) -> list[Claim]:
    """Rows on the degeneration, on the regulariser, and on what does or does not break it."""
    manifold = (_constant, _one_null, _many_uncertainties, _coupling)
    regulariser = (_breaks, _falls, _ratio, _in_practice)
    order = (*manifold, _nothing_learned, _measures, *regulariser, _virtual, _both_phi)
    return [make(results) for make in order]


@claim(id="degeneration.constant", where="Sec. 2.2, App. D, fig:degeneration", paper="0")
def _constant(results: dict[str, Any]) -> Finding:
    """the likelihood is constant where β(1+κ)/κ, or (1+κ)/κ Ψ, is: it cannot fix κ and β"""
    deviation, along, across = (
        max(row[name] for row in results["targets"]) for name in ("nll_deviation", "slope_along", "slope_across")
    )
    return Finding(
        statistic="largest change of −ln p(y) of any y for κ from 1e-4 to 1e4, and of its slope along (across) the "
        "manifold, n = 1, 2, 3",
        ours=f"{deviation:.0e} nats, {along:.0e} ({across:.2g})",
        verdict=decide(deviation < EXACT and along < EXACT < across),
    )


@claim(id="degeneration.one_null", where="Sec. 2.2, App. D", paper="1")
def _one_null(results: dict[str, Any]) -> Finding:
    """the integral over (μ, Σ) loses one degree of freedom, not more"""
    counts = [null_counts(row["eigenvalues"]) for row in results["targets"]]
    next_one = min(np.min(row["eigenvalues"][:, 1]) for row in results["targets"])
    cosine = min(row["cosine"] for row in results["targets"])
    return Finding(
        statistic="null directions of the Hessian of the expected NLL, n = 1, 2, 3 (next relative eigenvalue; 1 − "
        "cosine between null direction and manifold)",
        ours=f"{_counted(counts)} ({next_one:.1g}; {1 - cosine:.0e})",
        verdict=decide(all(found == [1] for found in counts)),
    )


@claim(id="degeneration.many_uncertainties", where="App. D")
def _many_uncertainties(results: dict[str, Any]) -> Finding:
    """one value of the likelihood belongs to any number of aleatoric and epistemic uncertainties"""
    loss = results["loss"]
    ends = [f"{loss[name][0]:.1e} to {loss[name][-1]:.1e}" for name in ("aleatoric", "epistemic")]
    return Finding(
        statistic="E[σ²] and var[μ] along the manifold (largest change of the NLL)",
        ours=f"{ends[0]} and {ends[1]} ({np.ptp(loss['nll']):.0e})",
        verdict=decide(np.ptp(loss["nll"]) < EXACT and np.max(loss["aleatoric"]) > 100 * np.min(loss["aleatoric"])),
    )


@claim(id="degeneration.coupling", where="Sec. 3, eq:kappanucoupling", paper="0")
def _coupling(results: dict[str, Any]) -> Finding:
    """coupling ν = rκ removes the lost degree of freedom, so that the likelihood alone suffices"""
    counts = [null_counts(row["coupled_eigenvalues"]) for row in results["targets"]]
    least = min(np.min(row["coupled_eigenvalues"][:, 0]) for row in results["targets"])
    return Finding(
        statistic="null directions of the coupled Hessian at the same points, n = 1, 2, 3 (least relative eigenvalue)",
        ours=f"{_counted(counts)} ({least:.1g})",
        verdict=decide(all(found == [0] for found in counts)),
    )


@claim(id="degeneration.nothing_learned", where="Sec. 2.2")
def _nothing_learned(results: dict[str, Any]) -> Finding:
    """without regulariser (λ = 0) training cannot learn κ"""
    training = results["training"]
    kappa, nll = kappa_without(training), training["nll"][0]
    return Finding(
        statistic=f"range of κ over {len(kappa)} networks that start from κ = {training['start'][0]:g} to "
        f"{training['start'][-1]:g} (range of their mean NLL)",
        ours=f"{np.min(kappa):.2g} to {np.max(kappa):.2g} ({np.min(nll):.3f} to {np.max(nll):.3f})",
        verdict=decide(np.max(kappa) / np.min(kappa) > 2),
    )


@claim(id="degeneration.measures", where="Sec. 3", paper="0")
def _measures(results: dict[str, Any]) -> Finding:
    """entropy, peak height and f-divergences of the predictive t do not break the degeneration"""
    deviation = max(np.ptp(values) for row in results["targets"] for values in statistics.constants(row).values())
    off, information = min(results["off_manifold"].values()), np.ptp(results["targets"][0]["information"])
    return Finding(
        statistic="largest change along the manifold (least change if β grows by 10 %; change of the NIG's mutual "
        "information I(y; μ, σ²), which is no function of the t)",
        ours=f"{deviation:.0e} ({off:.1g}; {information:.2g} nats)",
        verdict=decide(deviation < EXACT < off),
    )


@claim(id="degeneration.breaks", where="Sec. 2.2")
def _breaks(results: dict[str, Any]) -> Finding:
    """Amini's regulariser breaks the degeneration"""
    one = int(np.argmin(np.abs(np.log(results["kappa"]))))
    gains = [values[one] - values[0] for values in statistics.total_losses(results)]
    gained = min(gains) > EXACT
    ends, free = kappa_with(results["training"]), kappa_without(results["training"])
    pairs = {lam: [ends[lam, phi] / free for phi in statistics.DEFINITIONS] for lam in results["lambdas"]}
    ratios = {lam: interval(np.median(pair, axis=0)) for lam, pair in pairs.items()}
    return Finding(
        statistic="what the loss gains from κ = 1 to 1e-4 on the manifold, over λ and Φ; κ after training relative to "
        "the same network with λ = 0, median",
        ours=f"{min(gains):.2g} to {max(gains):.2g} nats; {_by_strength(ratios)}",
        verdict=decide(gained and all(found.high < 1 for found in ratios.values()), in_part=gained),
    )


@claim(id="degeneration.falls", where="Sec. 2.2", paper="all; 0")
def _falls(results: dict[str, Any]) -> Finding:
    """with the regulariser the loss falls all the way to κ = 0, where aleatoric over epistemic uncertainty is 0"""
    monotone = [bool(np.all(np.diff(values) > 0)) for values in statistics.total_losses(results)]
    ratio = results["loss"]["aleatoric"] / results["loss"]["epistemic"]
    off = np.max(np.abs(ratio / results["kappa"] - 1))
    return Finding(
        statistic="settings of (λ, Φ) in which the loss falls at every step to κ = 1e-4; the ratio there (its "
        "distance from κ)",
        ours=f"{sum(monotone)} of {len(monotone)}; {ratio[0]:.1e} ({off:.0e})",
        verdict=decide(all(monotone) and off < EXACT),
    )


@claim(id="degeneration.ratio", where="Sec. 2.2")
def _ratio(results: dict[str, Any]) -> Finding:
    """the regulariser drives aleatoric over epistemic uncertainty towards 0, which makes the values useless"""
    ends, free = kappa_with(results["training"]), np.median(kappa_without(results["training"]))
    found = {lam: interval(ends[lam, "amini2020"]) for lam in results["lambdas"]}
    lowered = all(np.median(values) < free for values in ends.values())
    return Finding(
        statistic=f"κ, which is that ratio, after training: median over networks, Φ = 2κ + α (with λ = 0: {free:.2g})",
        ours=_by_strength(found),
        verdict=decide(lowered and found[max(results["lambdas"])].high < 0.1, in_part=lowered),
    )


@claim(id="degeneration.in_practice", where="Sec. 2.2, in brackets")
def _in_practice(results: dict[str, Any]) -> Finding:
    """in practice κ → 0 is numerically unstable and minimisers do not get there"""
    training, float32 = results["training"], results["float32"]
    kappa = training["kappa"][1:]
    change = interval(np.median(kappa[..., -1] / kappa[..., statistics.half_time(training)], axis=0))
    away = np.mean(kappa[..., -1] > 10 * FLOOR) > 0.95
    unstable = training["diverged"] > 0 or float32["least_kappa"] > FLOOR
    return Finding(
        statistic=f"least κ after {training['epoch'][-1]} epochs with λ > 0, κ relative to half of the epochs, median; "
        "networks that became non-finite; least κ down to which the NLL and its slopes are right in float32",
        ours=f"{np.min(kappa[..., -1]):.1g}, {change:.2g}; {training['diverged']} of {training['nll'].size}; "
        f"{float32['least_kappa']:.0e} (error {float32['error']:.0e})",
        verdict=decide(away and unstable, in_part=away),
    )


@claim(id="degeneration.virtual", where="Sec. 2.1, App. B", paper="1, 1; 0; 2, 2.5")
def _virtual(results: dict[str, Any]) -> Finding:
    """the total evidence is κ + 2α, one for each virtual observation of mean and variance, and not 2κ + α"""
    found = results["virtual"]
    m, mean, variance = found["m"], found["gained_kappa"], found["gained_nu"]
    return Finding(
        statistic=f"what κ and 2α gain by one observation ({m} were made); how far Bayes' rule is missed; what κ + 2α "
        "and 2κ + α gain",
        ours=f"{mean / m:g}, {variance / m:g}; {found['over_m']['spread']:.0e} nats; "
        f"{(mean + variance) / m:g}, {(2 * mean + variance / 2) / m:g}",
        verdict=decide(abs(mean - m) < EXACT and abs(variance - m) < EXACT and found["over_m"]["spread"] < EXACT),
    )


@claim(id="degeneration.both_phi", where="Sec. 2.1, Sec. 2.2")
def _both_phi(results: dict[str, Any]) -> Finding:
    """the other definition of the total evidence does not fix the regulariser: κ goes to 0 with both"""
    ends = kappa_with(results["training"])
    ratios = {lam: interval(ends[lam, "meinert2021"] / ends[lam, "amini2020"]) for lam in results["lambdas"]}
    down = interval(np.median([ends[lam, "meinert2021"] for lam in results["lambdas"]], axis=0))
    return Finding(
        statistic="κ after training with κ + 2α over that with 2κ + α, same start, median; median κ with κ + 2α",
        ours=f"{_by_strength(ratios)}; {down:.2g}",
        verdict=decide(down.high < 1),
    )


def _counted(counts: list[list[int]]) -> str:
    return ", ".join(" or ".join(map(str, found)) for found in counts)


def _by_strength(found: dict[float, Estimate]) -> str:
    return ", ".join(f"λ = {lam:g}: {value:.2g}" for lam, value in found.items())
