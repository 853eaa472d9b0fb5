"""The ledger's rows on the degeneration of the likelihood."""

from typing import Any

import numpy as np

from experiments._claims import Claim, decide, interval, shown
from experiments._degeneration_manifold import NULL

EXACT = 1e-9
FLOOR = 1e-6  # least κ that the link lets through


def null_counts(eigenvalues: np.ndarray) -> list[int]:
    """The numbers of null directions that occur, from relative eigenvalues (points, p)."""
    return sorted({int(count) for count in np.sum(np.abs(eigenvalues) < NULL, axis=1)})


def constants(found: dict[str, Any]) -> dict[str, np.ndarray]:
    """Entropy, ln of the peak height and divergences by name."""
    return {"entropy": found["entropy"], "ln peak": found["log_peak"], **found.get("divergences", {})}


def half_time(training: dict[str, Any]) -> int:
    """The record nearest to half of the epochs."""
    return int(np.argmin(np.abs(training["epoch"] - training["epoch"][-1] / 2)))


def rows(results: dict[str, Any]) -> list[Claim]:
    """All of them."""
    manifold = [_constant(results), _one_null(results), _many_uncertainties(results), _coupling(results)]
    regulariser = [_breaks(results), _falls(results), _ratio(results), _in_practice(results)]
    return [
        *manifold,
        _nothing_learned(results),
        _measures(results),
        *regulariser,
        _virtual(results),
        _both_phi(results),
    ]


def _constant(results: dict[str, Any]) -> Claim:
    deviation, along, across = (
        max(row[name] for row in results["targets"]) for name in ("nll_deviation", "slope_along", "slope_across")
    )
    return Claim(
        "Sec. 2.2, App. D, fig:degeneration",
        "the likelihood is constant where β(1+κ)/κ, or (1+κ)/κ Ψ, is: it cannot fix κ and β",
        "largest change of −ln p(y) of any y for κ from 1e-4 to 1e4, and of its slope along (across) the manifold, "
        "n = 1, 2, 3",
        "0",
        f"{deviation:.0e} nats, {along:.0e} ({across:.2g})",
        decide(deviation < EXACT and along < EXACT < across),
    )


def _one_null(results: dict[str, Any]) -> Claim:
    counts = {row["n"]: null_counts(row["eigenvalues"]) for row in results["targets"]}
    next_one = min(np.min(row["eigenvalues"][:, 1]) for row in results["targets"])
    cosine = min(row["cosine"] for row in results["targets"])
    return Claim(
        "Sec. 2.2, App. D",
        "the integral over (μ, Σ) loses one degree of freedom, not more",
        "null directions of the Hessian of the expected NLL, n = 1, 2, 3 (next relative eigenvalue; 1 − cosine between "
        "null direction and manifold)",
        "1",
        f"{', '.join(_counted(found) for found in counts.values())} ({next_one:.1g}; {1 - cosine:.0e})",
        decide(all(found == [1] for found in counts.values())),
    )


def _counted(counts: list[int]) -> str:
    return " or ".join(map(str, counts))


def _many_uncertainties(results: dict[str, Any]) -> Claim:
    loss = results["loss"]
    ends = [f"{loss[name][0]:.1e} to {loss[name][-1]:.1e}" for name in ("aleatoric", "epistemic")]
    return Claim(
        "App. D",
        "one value of the likelihood belongs to any number of aleatoric and epistemic uncertainties",
        "E[σ²] and var[μ] along the manifold (largest change of the NLL)",
        "",
        f"{ends[0]} and {ends[1]} ({np.ptp(loss['nll']):.0e})",
        decide(np.ptp(loss["nll"]) < EXACT and np.max(loss["aleatoric"]) > 100 * np.min(loss["aleatoric"])),
    )


def _coupling(results: dict[str, Any]) -> Claim:
    counts = [null_counts(row["coupled_eigenvalues"]) for row in results["targets"]]
    least = min(np.min(row["coupled_eigenvalues"][:, 0]) for row in results["targets"])
    return Claim(
        "Sec. 3, eq:kappanucoupling",
        "coupling ν = rκ takes the lost degree of freedom out, so that the likelihood alone suffices",
        "null directions of the coupled Hessian at the same points, n = 1, 2, 3 (least relative eigenvalue)",
        "0",
        f"{', '.join(map(_counted, counts))} ({least:.1g})",
        decide(all(found == [0] for found in counts)),
    )


def _nothing_learned(results: dict[str, Any]) -> Claim:
    training = results["training"]
    kappa, nll = training["kappa"][0, :, -1], training["nll"][0]
    spread = np.max(kappa) / np.min(kappa)
    return Claim(
        "Sec. 2.2",
        "without regulariser (λ = 0) training cannot learn κ",
        f"range of κ over {len(kappa)} networks that start from κ = {training['start'][0]:g} to "
        f"{training['start'][-1]:g} (range of their mean NLL)",
        "",
        f"{np.min(kappa):.2g} to {np.max(kappa):.2g} ({np.min(nll):.3f} to {np.max(nll):.3f})",
        decide(spread > 2),
    )


def _measures(results: dict[str, Any]) -> Claim:
    deviation = max(np.ptp(values) for row in results["targets"] for values in constants(row).values())
    off, information = min(results["off_manifold"].values()), np.ptp(results["targets"][0]["information"])
    return Claim(
        "Sec. 3",
        "entropy, peak height and f-divergences of the predictive t do not break the degeneration",
        "largest change along the manifold (least change if β grows by 10 %; change of the NIG's mutual information "
        "I(y; μ, σ²), which is no function of the t)",
        "0",
        f"{deviation:.0e} ({off:.1g}; {information:.2g} nats)",
        decide(deviation < EXACT < off),
    )


def _totals(results: dict[str, Any]) -> dict[tuple[float, str], np.ndarray]:
    loss = results["loss"]
    return {
        (lam, phi): loss["nll"] + lam * loss[phi] for lam in results["lambdas"] for phi in ("amini2020", "meinert2021")
    }


def _breaks(results: dict[str, Any]) -> Claim:
    one = int(np.argmin(np.abs(np.log(results["kappa"]))))
    gains = [values[one] - values[0] for values in _totals(results).values()]
    kappa = results["training"]["kappa"][:, :, -1]
    ratios = {}
    for lam in results["lambdas"]:
        same = [number for number, group in enumerate(results["training"]["groups"]) if group["lambda"] == lam]
        ratios[lam] = interval(np.median(kappa[same] / kappa[0], axis=0))
    return Claim(
        "Sec. 2.2",
        "Amini's regulariser breaks the degeneration",
        "what the loss gains from κ = 1 to 1e-4 on the manifold, over λ and Φ; κ after training relative to the same "
        "network with λ = 0, median",
        "",
        f"{min(gains):.2g} to {max(gains):.2g} nats; "
        + ", ".join(f"λ = {lam:g}: {shown(found, '.2g')}" for lam, found in ratios.items()),
        decide(min(gains) > EXACT and all(found[2] < 1 for found in ratios.values()), in_part=min(gains) > EXACT),
    )


def _falls(results: dict[str, Any]) -> Claim:
    totals = _totals(results)
    monotone = [bool(np.all(np.diff(values) > 0)) for values in totals.values()]
    ratio = results["loss"]["aleatoric"] / results["loss"]["epistemic"]
    off = np.max(np.abs(ratio / results["kappa"] - 1))
    return Claim(
        "Sec. 2.2",
        "with the regulariser the loss falls all the way to κ = 0, where aleatoric over epistemic uncertainty is 0",
        "settings of (λ, Φ) in which the loss falls at every step to κ = 1e-4; the ratio there (its distance from κ)",
        "all; 0",
        f"{sum(monotone)} of {len(monotone)}; {ratio[0]:.1e} ({off:.0e})",
        decide(all(monotone) and off < EXACT),
    )


def _ratio(results: dict[str, Any]) -> Claim:
    ends = _ends(results["training"])
    strongest = max(results["lambdas"])
    found = {lam: interval(ends[lam, "amini2020"]) for lam in results["lambdas"]}
    pairs = zip(results["training"]["groups"], results["training"]["kappa"], strict=True)
    free = min(np.median(kappa[:, -1]) for group, kappa in pairs if group["lambda"] == 0)
    lowered = all(np.median(values) < free for values in ends.values())
    return Claim(
        "Sec. 2.2",
        "the regulariser drives aleatoric over epistemic uncertainty towards 0, which makes the values useless",
        f"κ, which is that ratio, after training: median over networks, Φ = 2κ + α (with λ = 0: {free:.2g})",
        "",
        ", ".join(f"λ = {lam:g}: {shown(value, '.2g')}" for lam, value in found.items()),
        decide(lowered and found[strongest][2] < 0.1, in_part=lowered),
    )


def _ends(training: dict[str, Any]) -> dict[tuple[float, str], np.ndarray]:
    """κ of the networks after training, by λ > 0 and definition of Φ."""
    return {(group["lambda"], group["definition"]): kappa[:, -1] for group, kappa in _regularised(training)}


def _regularised(training: dict[str, Any]) -> list[tuple[dict[str, Any], np.ndarray]]:
    pairs = zip(training["groups"], training["kappa"], strict=True)
    return [(group, kappa) for group, kappa in pairs if group["lambda"] > 0]


def _in_practice(results: dict[str, Any]) -> Claim:
    training, float32 = results["training"], results["float32"]
    kappa = np.stack([values for _, values in _regularised(training)])
    change = interval(np.median(kappa[..., -1] / kappa[..., half_time(training)], axis=0))
    away = np.mean(kappa[..., -1] > 10 * FLOOR) > 0.95
    unstable = training["diverged"] > 0 or float32["least_kappa"] > FLOOR
    return Claim(
        "Sec. 2.2, in brackets",
        "in practice κ → 0 is numerically unstable and minimisers do not get there",
        f"least κ after {training['epoch'][-1]} epochs with λ > 0, κ relative to half of the epochs, median; networks "
        "that became non-finite; least κ down to which the NLL and its slopes are right in float32",
        "",
        f"{np.min(kappa[..., -1]):.1g}, {shown(change, '.2g')}; {training['diverged']} of {training['nll'].size}; "
        f"{float32['least_kappa']:.0e} (error {float32['error']:.0e})",
        decide(away and unstable, in_part=away),
    )


def _virtual(results: dict[str, Any]) -> Claim:
    found = results["virtual"]
    m, mean, variance = found["m"], found["gained_kappa"], found["gained_nu"]
    return Claim(
        "Sec. 2.1, App. B",
        "the total evidence is κ + 2α, one for each virtual observation of mean and variance, and not 2κ + α",
        f"what κ and 2α gain by one observation ({m} were made); how far Bayes' rule is missed; what κ + 2α and 2κ + α "
        "gain",
        "1, 1; 0; 2, 2.5",
        f"{mean / m:g}, {variance / m:g}; {found['over_m']['spread']:.0e} nats; "
        f"{(mean + variance) / m:g}, {(2 * mean + variance / 2) / m:g}",
        decide(abs(mean - m) < EXACT and abs(variance - m) < EXACT and found["over_m"]["spread"] < EXACT),
    )


def _both_phi(results: dict[str, Any]) -> Claim:
    ends = _ends(results["training"])
    ratios = {lam: interval(ends[lam, "meinert2021"] / ends[lam, "amini2020"]) for lam in results["lambdas"]}
    down = interval(np.median([ends[lam, "meinert2021"] for lam in results["lambdas"]], axis=0))
    return Claim(
        "Sec. 2.1, Sec. 2.2",
        "the other definition of the total evidence does not mend the regulariser: κ goes to 0 with both",
        "κ after training with κ + 2α over that with 2κ + α, same start, median; median κ with κ + 2α",
        "",
        ", ".join(f"λ = {lam:g}: {shown(found, '.2g')}" for lam, found in ratios.items()) + f"; {shown(down, '.2g')}",
        decide(down[2] < 1),
    )
