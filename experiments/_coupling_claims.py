"""What networks with different couplings, and with a free κ, say about Sec. 2, 3 and 4."""

from typing import Any

import numpy as np

from experiments import _circle
from experiments._claims import Claim, decide, interval, judge, share, shown

TRIED = np.geomspace(1e-4, 1e4, 801)  # r at which a wanted uncertainty is looked for


def usual(results: dict[str, Any]) -> int:
    """Where the paper's r = 1, or what is next to it, stands."""
    return int(np.argmin(np.abs(np.log(results["r"]))))


def labels(results: dict[str, Any]) -> list[str]:
    """Names of the settings."""
    return [f"r = {r:g}" for r in results["r"]] + [f"free κ from {start:.2g}" for start in results["start"]]


def statistics(results: dict[str, Any]) -> dict[str, np.ndarray]:
    """One number for each network, (settings, members): medians over t of uncertainties, means of ν."""
    return {
        "train": results["train"],
        "fresh": results["fresh"],
        "nu_centre": results["nu"][..., _circle.NEAR_CENTRE].mean(axis=-1),
        "nu_ends": results["nu"][..., _circle.NEAR_ENDS].mean(axis=-1),
        "nu": results["nu"].mean(axis=-1),
        "kappa": np.median(results["kappa"], axis=-1),
        "aleatoric": np.median(results["aleatoric"], axis=-1),
        "epistemic": np.median(results["epistemic"], axis=-1),
        "total": np.median(results["total"], axis=-1),
        "error": np.sqrt(np.mean(results["error"] ** 2, axis=-1)),
    }


def matching_r(total: np.ndarray, nu: np.ndarray, wanted: float, kind: str) -> float:
    r"""The r with which the same predictive, of (T,) widths and ν, has this median uncertainty; NaN if none has.

    With :func:`coupling.recoupled`, aleatoric² = total² ν/(ν + r) and epistemic² = total² r/(ν + r).
    """
    part = TRIED[:, None] / (nu + TRIED[:, None])
    found = np.median(total * np.sqrt(part if kind == "epistemic" else 1 - part), axis=1)
    rising = found if kind == "epistemic" else -found
    target = wanted if kind == "epistemic" else -wanted
    if not rising[0] <= target <= rising[-1]:
        return float("nan")
    return float(np.exp(np.interp(target, rising, np.log(TRIED))))


def report(results: dict[str, Any]) -> str:
    """A table of the settings."""
    values = {name: value.mean(axis=1) for name, value in statistics(results).items()}
    lines = [
        f"{results['train'].shape[1]} networks a setting, {int(results['diverged'].sum())} non-finite; "
        f"means over networks; true noise {_circle.NOISE:g}",
        "                    NLL train/fresh      ν         κ   aleatoric  epistemic  total  error of μ",
    ]
    lines += [
        f"  {label:16}  {values['train'][i]:6.2f} / {values['fresh'][i]:5.2f}   {values['nu'][i]:5.1f}  "
        f"{values['kappa'][i]:8.3g}   {values['aleatoric'][i]:9.3f}  {values['epistemic'][i]:9.3f}  "
        f"{values['total'][i]:5.3f}  {values['error'][i]:10.3f}"
        for i, label in enumerate(labels(results))
    ]
    return "\n".join(lines)


def claims(results: dict[str, Any]) -> list[Claim]:
    """Rows of the ledger; intervals are over networks, each with its own data set."""
    values = statistics(results)
    return [
        _identity(results),
        _free_kappa(results, values),
        _fluctuation(results),
        _same_fit(results, values),
        _split(results, values),
        _global_scale(results),
        _gate(results, values),
        *_right_r(results, values),
    ]


def _identity(results: dict[str, Any]) -> Claim:
    error = results["identity_error"]
    return Claim(
        "Sec. 2, eq:modev; App. degeneration",
        "the evidence depends on κ and Ψ through (1+κ)/κ Ψ only, so a change of r can be undone by a change of L",
        f"largest difference of ln p after L is rescaled to r = 1, float64, {results['rows']} rows and networks",
        "0",
        f"{error:.1e}",
        decide(error < 1e-6),
    )


def _free_kappa(results: dict[str, Any], values: dict[str, np.ndarray]) -> Claim:
    low, high = len(results["r"]), len(results["r"]) + 1
    ratio = interval(np.log(values["kappa"][high] / values["kappa"][low]), np.mean)
    difference = interval(values["fresh"][high] - values["fresh"][low], np.mean)
    ends = (shown(interval(values["kappa"][place])) for place in (low, high))
    return Claim(
        "Sec. 2, Ambiguity of shape parameters",
        "the NLL alone cannot teach the network κ",
        "median κ after training without coupling, started at "
        + " and ".join(f"{start:.2g}" for start in results["start"])
        + "; difference of NLL on fresh data (nats)",
        "",
        f"{'; '.join(ends)}; {shown(difference, '+.2f')}",
        decide(ratio[1] > 0 and difference[1] <= 0 <= difference[2], ratio[1] > 0),
    )


def _fluctuation(results: dict[str, Any]) -> Claim:
    low = len(results["r"])
    ratio = np.log(results["kappa"] / results["nu"])[low:]
    spread = np.quantile(ratio, 0.95, axis=-1) - np.quantile(ratio, 0.05, axis=-1)
    factor = interval(np.exp(spread.ravel()))
    scatter = np.median(np.log(results["kappa"]).std(axis=1), axis=-1)
    return Claim(
        "Sec. 3, eq:kappanucoupling",
        "without coupling κ/ν fluctuates through the data, which the coupling forbids",
        "κ/ν within a network, 95 % over 5 % quantile over t, without coupling (1 with it); "
        f"scatter of ln κ over networks: free; r = {results['r'][usual(results)]:g}",
        "",
        f"{shown(factor, '.2f')}; {'; '.join(f'{value:.2f}' for value in (*scatter[low:], scatter[usual(results)]))}",
        decide(factor[1] > 1.5, factor[1] > 1.05),
    )


def _same_fit(results: dict[str, Any], values: dict[str, np.ndarray]) -> Claim:
    couplings, one = results["r"], usual(results)
    differences = [interval(values["fresh"][place] - values["fresh"][one], np.mean) for place in range(len(couplings))]
    others = [place for place in range(len(couplings)) if place != one]
    close = [abs(differences[place][1]) < 0.1 and abs(differences[place][2]) < 0.1 for place in others]
    differ = [not differences[place][1] <= 0 <= differences[place][2] for place in others]
    return Claim(
        "beyond the paper, Sec. 3",
        "as the likelihood cannot tell them apart, every r gives the same fit in practice",
        f"NLL on fresh data minus that with r = {couplings[one]:g}, nats per point, same initial weights",
        "",
        "; ".join(f"r = {couplings[place]:g}: {shown(differences[place], '+.2f')}" for place in others),
        decide(False, not all(differ)) if any(differ) else judge(others and all(close), False),
    )


def _split(results: dict[str, Any], values: dict[str, np.ndarray]) -> Claim:
    small, large = int(np.argmin(results["r"])), int(np.argmax(results["r"]))
    ratios = {name: interval(values[name][large] / values[name][small]) for name in ("aleatoric", "epistemic", "total")}
    moved = ratios["aleatoric"][2] < 1 < ratios["epistemic"][1]
    return Claim(
        "Sec. 4",
        "r is a choice that sets the scales of aleatoric and epistemic uncertainty, not of the prediction",
        f"standard deviations along the radius with r = {results['r'][large]:g} over those with r = "
        f"{results['r'][small]:g}: aleatoric; epistemic; total",
        "",
        "; ".join(shown(ratio, ".2f") for ratio in ratios.values()),
        decide(moved and 0.8 < ratios["total"][0] < 1.25, moved),
    )


def _global_scale(results: dict[str, Any]) -> Claim:
    one, r = usual(results), max(results["r"])
    nu = results["nu"][one]
    factor = np.sqrt((nu + results["r"][one]) / (nu + r))
    varies = interval(factor.max(axis=-1) / factor.min(axis=-1), np.mean)
    return Claim(
        "Sec. 4",
        "what the coupling gives up is one global scale, so one factor for all t mends the aleatoric uncertainty",
        f"factor on it from r = {results['r'][one]:g} to r = {r:g} at the same evidence, largest over smallest over t",
        "constant (1)",
        shown(varies, ".2f"),
        judge(varies[2] < 1.1, varies[1] > 1.1),
    )


def _gate(results: dict[str, Any], values: dict[str, np.ndarray]) -> Claim:
    small, large = int(np.argmin(results["r"])), int(np.argmax(results["r"]))
    nu = values["nu"]
    difference = interval(nu[large] - nu[small], np.mean)
    return Claim(
        "beyond the paper, fig:nu",
        "what ν says of the epistemic uncertainty does not depend on the choice of r",
        f"mean ν with r = {results['r'][small]:g}; {results['r'][large]:g}; difference, same initial weights",
        "",
        f"{shown(interval(nu[small], np.mean), '.1f')}; {shown(interval(nu[large], np.mean), '.1f')}; "
        f"{shown(difference, '+.1f')}",
        judge(difference[1] > -1 and difference[2] < 1, difference[1] > 0 or difference[2] < 0),
    )


def _right_r(results: dict[str, Any], values: dict[str, np.ndarray]) -> list[Claim]:
    one = usual(results)
    total, nu, error = results["total"][one], results["nu"][one], values["error"][one]
    aleatoric, epistemic = interval(values["aleatoric"][one]), interval(values["epistemic"][one] / error)
    noise = np.array([matching_r(*network, _circle.NOISE, "aleatoric") for network in zip(total, nu, strict=True)])
    mean = np.array([matching_r(*network, "epistemic") for network in zip(total, nu, error, strict=True)])
    where, coupling = "Sec. 4", f"r = {results['r'][one]:g}"
    return [
        Claim(
            where,
            "the scale of the predicted aleatoric uncertainty is not that of the noise and has to be rescaled",
            f"its median over t along the radius with {coupling} (true noise {_circle.NOISE:g}); r that would make it "
            "right at the same evidence",
            "scale unknown",
            f"{shown(aleatoric)}; {_matches(noise)}",
            _off_scale(np.array(aleatoric) / _circle.NOISE),
        ),
        Claim(
            where,
            "the same for the epistemic uncertainty",
            f"its median over t over the root mean square error of μ, along the radius, with {coupling}; r that would "
            "make it 1 at the same evidence",
            "scale unknown",
            f"{shown(epistemic)}; {_matches(mean)}",
            _off_scale(np.array(epistemic)),
        ),
    ]


def _off_scale(ratio: np.ndarray) -> str:
    """Whether a ratio with its interval is off 1; it is not if it is within a tenth of it."""
    return judge(ratio[2] < 1 or ratio[1] > 1, ratio[1] > 0.9 and ratio[2] < 1.1)


def _matches(found: np.ndarray) -> str:
    exist = found[np.isfinite(found)]
    some = f", median {np.median(exist):.2g}, {exist.min():.2g} to {exist.max():.2g}" if len(exist) else ""
    return f"one exists for {shown(share(len(exist), len(found)), '.0%')} of networks{some}"
