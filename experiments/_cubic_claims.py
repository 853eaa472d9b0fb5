"""The rows of the ledger of the study `cubic`; intervals are over networks."""

from typing import Any

import numpy as np

from experiments._claims import Claim, decide, interval, ratio_of_spreads, share, shown
from experiments.cubic import ENSEMBLES, KINDS, inside, scores

NOISE = 3.0
ENOUGH = 2.0  # an uncertainty that the real error exceeds by more than this factor does not do


def of_growth(results: dict[str, Any]) -> list[Claim]:
    """Does what a network says it does not know grow where there were no data, and is it enough?"""
    return [*[_network(results, kind) for kind in KINDS[:3]], *[_ensemble(results, name) for name in ENSEMBLES]]


def _network(results: dict[str, Any], kind: str) -> Claim:
    known = inside(results["new_x"])
    said = [scores(kind, results, where) for where in (known, ~known)]
    mean = results["new"]["mean"][KINDS.index(kind)]
    error = np.sqrt(np.mean((mean - results["new_x"] ** 3)[:, ~known] ** 2, axis=1))
    growth, short = interval(said[1]["epistemic"] / said[0]["epistemic"]), interval(error / said[1]["epistemic"])
    cover = interval(said[1]["cover"])
    return Claim(
        "Sec. 4, footnote",
        f"one network has no chance to notice growing epistemic uncertainty outside its data: {kind}",
        "epistemic std outside / inside; error of the mean / epistemic std outside; coverage of 90 % outside",
        "",
        f"{shown(growth)}; {shown(short)}; {shown(cover, '.0%')}",
        decide(growth[2] <= 1 and short[1] > ENOUGH, short[1] > ENOUGH),
    )


def _ensemble(results: dict[str, Any], name: str) -> Claim:
    known = inside(results["new_x"])
    mean = results["new"]["mean"][KINDS.index(ENSEMBLES[name])]

    def growth(mean: np.ndarray, axis: int) -> np.ndarray:
        spread = mean.var(axis=axis)
        return np.sqrt(spread[..., ~known].mean(-1) / spread[..., known].mean(-1))

    def shortfall(mean: np.ndarray, axis: int) -> np.ndarray:
        squared = (mean.mean(axis=axis) - results["new_x"] ** 3) ** 2
        return np.sqrt(squared[..., ~known].mean(-1) / mean.var(axis=axis)[..., ~known].mean(-1))

    grown, short = (interval(mean, statistic, draws=300) for statistic in (growth, shortfall))
    return Claim(
        "Sec. 5",
        f"the disagreement of networks shows what is not known outside the data: {name}",
        "std between networks outside / inside; error of their mean / that std outside",
        "",
        f"{shown(grown)}; {shown(short)}",
        decide(grown[1] > 1 and short[2] < ENOUGH, grown[1] > 1),
    )


def of_degeneracy(results: dict[str, Any]) -> list[Claim]:
    """What the loss without coupling leaves open, and what the regulariser does about it."""
    kappa = typical(results, "kappa")
    return [_arbitrary(results, kappa), _fixed(results), _vanishing(kappa), _wrong_noise(results)]


def typical(results: dict[str, Any], name: str) -> np.ndarray:
    """Median over the training range for each network, (kinds, members)."""
    return np.median(results["new"][name][..., inside(results["new_x"])], axis=-1)


def _spread(values: np.ndarray, axis: int) -> np.ndarray:
    """The factor e^(2 std) that separates networks."""
    return np.exp(2 * np.std(np.log(values), axis=axis))


def _arbitrary(results: dict[str, Any], kappa: np.ndarray) -> Claim:
    free = KINDS.index("DER, λ = 0")
    width = typical(results, "width")[free]
    spreads = [interval(values, _spread) for values in (kappa[free], width)]
    logs = np.log(np.stack([kappa[free], width], axis=1))
    times = interval((logs - logs.mean(0)) ** 2, ratio_of_spreads)
    return Claim(
        "Sec. 2.2",
        "the loss without regulariser does not fix kappa, the ratio of both uncertainties (λ = 0)",
        "factor e^(2 std) between networks, of kappa and of the width of the predictive; std of ln kappa / ln width",
        "",
        f"{shown(spreads[0])} and {shown(spreads[1])}; {shown(times)}",
        decide(times[1] > 5, times[1] > 1),
    )


def _fixed(results: dict[str, Any]) -> Claim:
    coupled = {name: part[KINDS.index("coupled")] for name, part in results["new"].items()}
    off = np.max(np.abs(coupled["aleatoric"] / coupled["within"] / coupled["df"] - 1))
    spread = interval(typical(results, "kappa")[KINDS.index("coupled")], _spread)
    return Claim(
        "eq:kappanucoupling",
        "with the coupling the ratio is fixed by nu, which the loss does see",
        "largest |aleatoric / epistemic variance / nu - 1| (r = 1); factor e^(2 std) of kappa between networks",
        "",
        f"{off:.1e}; {shown(spread)}",
        decide(off < 1e-4),
    )


def _vanishing(kappa: np.ndarray) -> Claim:
    ratio = kappa[KINDS.index("DER, λ > 0")] / kappa[KINDS.index("DER, λ = 0")]
    found, smaller = interval(ratio), share(int(np.sum(ratio < 1)), len(ratio))
    return Claim(
        "Sec. 2.2",
        "the regulariser drives kappa, and with it the ratio of both uncertainties, towards 0",
        "kappa with λ over kappa without, same initial parameters; networks in which it is smaller",
        "",
        f"{shown(found)}; {shown(smaller, '.0%')}",
        decide(found[2] < 0.1, found[2] < 1),
    )


def _wrong_noise(results: dict[str, Any]) -> Claim:
    known = inside(results["new_x"])
    with_lam, coupled = (
        interval(scores(kind, results, known)["aleatoric"] / NOISE) for kind in ("DER, λ > 0", "coupled")
    )
    wrong = with_lam[2] < 0.8 or with_lam[1] > 1.25
    return Claim(
        "Sec. 2.2",
        "the regulariser does not lead to correct uncertainties",
        "aleatoric std inside over that of the noise, with λ (0.8 to 1.25 would be correct); coupled, to compare",
        "",
        f"{shown(with_lam)}; {shown(coupled)}",
        decide(wrong),
    )
