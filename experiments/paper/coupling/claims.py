"""The claims of Sec. 2, 3 and 4, tested on networks with different couplings and with a free κ."""

from typing import Any

import numpy as np

from experiments.harness.claims import Claim, Finding, claim, decide, judge
from experiments.harness.statistics import Estimate, fraction, interval
from experiments.paper import circle_recipe
from experiments.paper.coupling.statistics import by_network, matching_r, usual

Values = dict[str, np.ndarray]


def report(results: dict[str, Any]) -> str:
    """A table of the settings."""
    values = {name: value.mean(axis=1) for name, value in by_network(results).items()}
    labels = [*(f"r = {r:g}" for r in results["r"]), *(f"free κ from {start:.2g}" for start in results["start"])]
    lines = [
        f"{results['train'].shape[1]} networks a setting, {int(results['diverged'].sum())} non-finite; "
        f"means over networks; true noise {circle_recipe.NOISE:g}",
        "                    NLL train/fresh      ν         κ   aleatoric  epistemic  total  error of μ",
    ]
    lines += [
        f"  {label:16}  {values['train'][i]:6.2f} / {values['fresh'][i]:5.2f}   {values['nu'][i]:5.1f}  "
        f"{values['kappa'][i]:8.3g}   {values['aleatoric'][i]:9.3f}  {values['epistemic'][i]:9.3f}  "
        f"{values['total'][i]:5.3f}  {values['error'][i]:10.3f}"
        for i, label in enumerate(labels)
    ]
    return "\n".join(lines)


def claims(results: dict[str, Any]) -> list[Claim]:
    """Rows of the ledger; intervals are over networks, each with its own data set."""
    values = by_network(results)
    scales = (_split, _global_scale, _gate, _noise_scale, _epistemic_scale)
    return [make(results, values) for make in (_identity, _free_kappa, _fluctuation, _same_fit, *scales)]


@claim(id="coupling.identity", where="Sec. 2, eq:modev; App. degeneration", paper="0")
def _identity(results: dict[str, Any], values: Values) -> Finding:
    """the evidence depends on κ and Ψ through (1+κ)/κ Ψ only, so a change of r can be undone by a change of L"""
    error = results["identity_error"]
    return Finding(
        statistic=f"largest difference of ln p after L is rescaled to r = 1, float64, {results['rows']} rows and "
        "networks",
        ours=f"{error:.1e}",
        verdict=decide(error < 1e-6),
    )


@claim(id="coupling.free_kappa", where="Sec. 2, Ambiguity of shape parameters")
def _free_kappa(results: dict[str, Any], values: Values) -> Finding:
    """the NLL alone cannot teach the network κ"""
    (low, high), nll = values["kappa"][len(results["r"]) :], values["fresh"][len(results["r"]) :]
    ratio, difference = interval(np.log(high / low), np.mean), interval(nll[1] - nll[0], np.mean)
    starts = " and ".join(f"{start:.2g}" for start in results["start"])
    return Finding(
        statistic=f"median κ after training without coupling, started at {starts}; difference of NLL on fresh data "
        "(nats)",
        ours=f"{interval(low)}; {interval(high)}; {difference:+.2f}",
        verdict=decide(ratio.low > 0 and difference.low <= 0 <= difference.high, ratio.low > 0),
    )


@claim(id="coupling.fluctuation", where="Sec. 3, eq:kappanucoupling")
def _fluctuation(results: dict[str, Any], values: Values) -> Finding:
    """without coupling κ/ν fluctuates through the data, which the coupling forbids"""
    low = len(results["r"])
    ratio = np.log(results["kappa"] / results["nu"])[low:]
    spread = np.quantile(ratio, 0.95, axis=-1) - np.quantile(ratio, 0.05, axis=-1)
    factor = interval(np.exp(spread.ravel()))
    scatter = np.median(np.log(results["kappa"]).std(axis=1), axis=-1)
    scatters = "; ".join(f"{value:.2f}" for value in (*scatter[low:], scatter[usual(results)]))
    return Finding(
        statistic="κ/ν within a network, 95 % over 5 % quantile over t, without coupling (1 with it); "
        f"scatter of ln κ over networks: free; r = {results['r'][usual(results)]:g}",
        ours=f"{factor:.2f}; {scatters}",
        verdict=decide(factor.low > 1.5, factor.low > 1.05),
    )


@claim(id="coupling.same_fit", where="beyond the paper, Sec. 3")
def _same_fit(results: dict[str, Any], values: Values) -> Finding:
    """as the likelihood cannot distinguish them, every r gives the same fit in practice"""
    couplings, one = results["r"], usual(results)
    others = [place for place in range(len(couplings)) if place != one]
    differences = [interval(values["fresh"][place] - values["fresh"][one], np.mean) for place in others]
    close = all(max(abs(low), abs(high)) < 0.1 for _, low, high in differences)
    differ = [not low <= 0 <= high for _, low, high in differences]
    found = (f"r = {couplings[i]:g}: {value:+.2f}" for i, value in zip(others, differences, strict=True))
    return Finding(
        statistic=f"NLL on fresh data minus that with r = {couplings[one]:g}, nats per point, same initial weights",
        ours="; ".join(found),
        verdict=decide(False, not all(differ)) if any(differ) else judge(others and close, False),
    )


@claim(id="coupling.split", where="Sec. 4")
def _split(results: dict[str, Any], values: Values) -> Finding:
    """r is a choice that sets the scales of aleatoric and epistemic uncertainty, not of the prediction"""
    small, large = int(np.argmin(results["r"])), int(np.argmax(results["r"]))
    ratios = {name: interval(values[name][large] / values[name][small]) for name in ("aleatoric", "epistemic", "total")}
    moved = ratios["aleatoric"].high < 1 < ratios["epistemic"].low
    return Finding(
        statistic=f"standard deviations along the radius with r = {results['r'][large]:g} over those with r = "
        f"{results['r'][small]:g}: aleatoric; epistemic; total",
        ours="; ".join(f"{ratio:.2f}" for ratio in ratios.values()),
        verdict=decide(moved and 0.8 < ratios["total"].value < 1.25, moved),
    )


@claim(id="coupling.global_scale", where="Sec. 4", paper="constant (1)")
def _global_scale(results: dict[str, Any], values: Values) -> Finding:
    """what the coupling gives up is one global scale, so one factor for all t fixes the aleatoric uncertainty"""
    one, r = usual(results), max(results["r"])
    nu = results["nu"][one]
    factor = np.sqrt((nu + results["r"][one]) / (nu + r))
    varies = interval(factor.max(axis=-1) / factor.min(axis=-1), np.mean)
    return Finding(
        statistic=f"factor on it from r = {results['r'][one]:g} to r = {r:g} at the same evidence, largest over "
        "smallest over t",
        ours=f"{varies:.2f}",
        verdict=judge(varies.high < 1.1, varies.low > 1.1),
    )


@claim(id="coupling.gate", where="beyond the paper, fig:nu")
def _gate(results: dict[str, Any], values: Values) -> Finding:
    """what ν says of the epistemic uncertainty does not depend on the choice of r"""
    small, large = int(np.argmin(results["r"])), int(np.argmax(results["r"]))
    nu = values["nu"]
    difference = interval(nu[large] - nu[small], np.mean)
    return Finding(
        statistic=f"mean ν with r = {results['r'][small]:g}; {results['r'][large]:g}; difference, same initial weights",
        ours=f"{interval(nu[small], np.mean):.1f}; {interval(nu[large], np.mean):.1f}; {difference:+.1f}",
        verdict=judge(difference.low > -1 and difference.high < 1, difference.low > 0 or difference.high < 0),
    )


@claim(id="coupling.noise_scale", where="Sec. 4", paper="scale unknown")
def _noise_scale(results: dict[str, Any], values: Values) -> Finding:
    """the scale of the predicted aleatoric uncertainty is not that of the noise and has to be rescaled"""
    one, noise = usual(results), circle_recipe.NOISE
    aleatoric = interval(values["aleatoric"][one])
    networks = zip(results["total"][one], results["nu"][one], strict=True)
    return Finding(
        statistic=f"its median over t along the radius with r = {results['r'][one]:g} (true noise {noise:g}); r that "
        "would make it right at the same evidence",
        ours=f"{aleatoric}; {_matches([matching_r(*network, noise, 'aleatoric') for network in networks])}",
        verdict=_off_scale(aleatoric, noise),
    )


@claim(id="coupling.epistemic_scale", where="Sec. 4", paper="scale unknown")
def _epistemic_scale(results: dict[str, Any], values: Values) -> Finding:
    """the same for the epistemic uncertainty"""
    one = usual(results)
    error = values["error"][one]
    epistemic = interval(values["epistemic"][one] / error)
    networks = zip(results["total"][one], results["nu"][one], error, strict=True)
    return Finding(
        statistic="its median over t over the root mean square error of μ, along the radius, with "
        f"r = {results['r'][one]:g}; r that would make it 1 at the same evidence",
        ours=f"{epistemic}; {_matches([matching_r(*network, 'epistemic') for network in networks])}",
        verdict=_off_scale(epistemic, 1.0),
    )


def _off_scale(found: Estimate, right: float) -> str:
    """Whether an estimate differs from the right value; it does not if its interval is within a tenth of it."""
    return judge(found.high < right or found.low > right, found.low > 0.9 * right and found.high < 1.1 * right)


def _matches(found: list[float]) -> str:
    """For how many networks an r exists, and its range."""
    exist = np.array(found)[np.isfinite(found)]
    some = f", median {np.median(exist):.2g}, {exist.min():.2g} to {exist.max():.2g}" if len(exist) else ""
    return f"one exists for {fraction(len(exist), len(found)):.0%} of networks{some}"
