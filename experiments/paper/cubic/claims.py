"""The report and the claims of the study `cubic`; intervals are over networks."""

from typing import Any

import numpy as np

from experiments.harness.claims import Claim, Finding, claim, decide
from experiments.harness.statistics import fraction, interval, ratio_of_spreads
from experiments.paper.cubic.statistics import ENSEMBLES, METHODS, inside, of_kind, scores, typical

IDS = {"DER, λ = 0": "der", "DER, λ > 0": "regularised", "coupled": "coupled", "Gaussian": "gaussian"}
NOISE = 3.0
ENOUGH = 2.0  # an uncertainty that the real error exceeds by more than this factor does not do


def report(results: dict[str, Any]) -> str:
    """Scores inside and outside the training range, medians over networks."""
    within = inside(results["new_x"])
    lines = []
    for where, name in ((within, "inside [-4, 4]"), (~within, "outside")):
        lines.append(f"{name:24}{'rmse':>9}{'NLL':>10}{'90 % covers':>13}{'aleatoric':>11}{'epistemic':>11}")
        for method in METHODS:
            rmse, nll, cover, *stds = (np.median(values) for values in scores(method, results, where).values())
            lines.append(f"  {method:22}{rmse:9.2f}{nll:10.2f}{cover:13.0%}" + "".join(f"{std:11.2f}" for std in stds))
    networks = results["new"]["mean"][..., 0].size
    return "\n".join([*lines, f"{results['diverged']} of {networks} networks became non-finite"])


def claims(results: dict[str, Any]) -> list[Claim]:
    """Growth outside the data (Sec. 4), the degeneracy and the regulariser (Sec. 2.2)."""
    return [
        *[_network(results, kind).about(IDS[kind], f": {kind}") for kind in ("DER, λ = 0", "DER, λ > 0", "coupled")],
        *[_ensemble(results, name).about(IDS[kind], f": {name}") for name, kind in ENSEMBLES.items()],
        *[test(results) for test in (_arbitrary, _fixed, _vanishing, _wrong_noise)],
    ]


@claim(id="cubic.network", where="Sec. 4, footnote")
def _network(results: dict[str, Any], kind: str) -> Finding:
    """one network has no chance to notice growing epistemic uncertainty outside its data"""
    known = inside(results["new_x"])
    within, outside = (scores(kind, results, where) for where in (known, ~known))
    mean = of_kind(kind, results["new"])["mean"]
    error = np.sqrt(np.mean((mean - results["new_x"] ** 3)[:, ~known] ** 2, axis=1))
    growth, short = interval(outside["epistemic"] / within["epistemic"]), interval(error / outside["epistemic"])
    return Finding(
        statistic="epistemic std outside / inside; error of the mean / epistemic std outside; coverage of 90 % outside",
        ours=f"{growth}; {short}; {interval(outside['cover']):.0%}",
        verdict=decide(growth.high <= 1 and short.low > ENOUGH, short.low > ENOUGH),
    )


@claim(id="cubic.ensemble", where="Sec. 5")
def _ensemble(results: dict[str, Any], name: str) -> Finding:
    """the disagreement of networks shows what is not known outside the data"""
    known = inside(results["new_x"])

    def growth(mean: np.ndarray, axis: int) -> np.ndarray:
        spread = mean.var(axis=axis)
        return np.sqrt(spread[..., ~known].mean(-1) / spread[..., known].mean(-1))

    def shortfall(mean: np.ndarray, axis: int) -> np.ndarray:
        squared = (mean.mean(axis=axis) - results["new_x"] ** 3) ** 2
        return np.sqrt(squared[..., ~known].mean(-1) / mean.var(axis=axis)[..., ~known].mean(-1))

    mean = of_kind(name, results["new"])["mean"]
    grown, short = (interval(mean, statistic, draws=300) for statistic in (growth, shortfall))
    return Finding(
        statistic="std between networks outside / inside; error of their mean / that std outside",
        ours=f"{grown}; {short}",
        verdict=decide(grown.low > 1 and short.high < ENOUGH, grown.low > 1),
    )


def _factor(values: np.ndarray, axis: int) -> np.ndarray:
    """The factor e^(2 std) that separates networks."""
    return np.exp(2 * np.std(np.log(values), axis=axis))


@claim(id="cubic.kappa_not_fixed", where="Sec. 2.2")
def _arbitrary(results: dict[str, Any]) -> Finding:
    """the loss without regulariser does not fix kappa, the ratio of both uncertainties (λ = 0)"""
    kappa, width = (typical(results, name)["DER, λ = 0"] for name in ("kappa", "width"))
    logs = np.log(np.stack([kappa, width], axis=1))
    times = interval((logs - logs.mean(0)) ** 2, ratio_of_spreads)
    return Finding(
        statistic="factor e^(2 std) between networks, of kappa and of the width of the predictive; "
        "std of ln kappa / ln width",
        ours=f"{interval(kappa, _factor)} and {interval(width, _factor)}; {times}",
        verdict=decide(times.low > 5, times.low > 1),
    )


@claim(id="cubic.kappa_coupled", where="eq:kappanucoupling")
def _fixed(results: dict[str, Any]) -> Finding:
    """with the coupling the ratio is fixed by nu, which the loss does see"""
    own = of_kind("coupled", results["new"])
    off = np.max(np.abs(own["aleatoric"] / own["within"] / own["df"] - 1))
    return Finding(
        statistic="largest |aleatoric / epistemic variance / nu - 1| (r = 1); "
        "factor e^(2 std) of kappa between networks",
        ours=f"{off:.1e}; {interval(typical(results, 'kappa')['coupled'], _factor)}",
        verdict=decide(off < 1e-4),
    )


@claim(id="cubic.kappa_regularised", where="Sec. 2.2")
def _vanishing(results: dict[str, Any]) -> Finding:
    """the regulariser drives kappa, and with it the ratio of both uncertainties, towards 0"""
    kappa = typical(results, "kappa")
    ratio = kappa["DER, λ > 0"] / kappa["DER, λ = 0"]
    found = interval(ratio)
    return Finding(
        statistic="kappa with λ over kappa without, same initial parameters; networks in which it is smaller",
        ours=f"{found}; {fraction(np.sum(ratio < 1), len(ratio)):.0%}",
        verdict=decide(found.high < 0.1, found.high < 1),
    )


@claim(id="cubic.noise_regularised", where="Sec. 2.2")
def _wrong_noise(results: dict[str, Any]) -> Finding:
    """the regulariser does not lead to correct uncertainties"""
    known = inside(results["new_x"])
    stated = (scores(kind, results, known)["aleatoric"] for kind in ("DER, λ > 0", "coupled"))
    with_lam, coupled = (interval(std / NOISE) for std in stated)
    return Finding(
        statistic="aleatoric std inside over that of the noise, with λ (0.8 to 1.25 would be correct); "
        "coupled, to compare",
        ours=f"{with_lam}; {coupled}",
        verdict=decide(with_lam.high < 0.8 or with_lam.low > 1.25),
    )
