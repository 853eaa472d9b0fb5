"""A Gaussian fitted by maximum likelihood: a sensible fit, an over-fit with the smaller loss, and a gap without data.

Figure: greg (both panels), App. A. Command: ``python -m experiments gaussian_fit``. Run time on two cores: about 5 s.
"""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import optax

import mder_jax as mder
from experiments._claims import Claim, decide, interval, share, shown
from experiments._options import option
from experiments._progress import train

KINDS = ("fit", "over-fit", "under-fit")
GAP = (0.35, 0.65)
GRID = np.linspace(0, 1, 201)
IN_GAP = np.abs(GRID - np.mean(GAP)) < (GAP[1] - GAP[0]) / 2


@dataclass(frozen=True)
class Config:
    """Options of the study."""

    seed: int = option(0, "seed of data and initial parameters", least=0)
    members: int = option(16, "data sets; each has one network of every kind", full=100, least=2)
    points: int = option(24, "points of a data set", least=4)
    noise: float = option(0.2, "standard deviation of y around the truth", least=1e-3)
    epochs: int = option(800, "steps of training", full=4000)
    penalty: float = option(0.1, "weight of the squared weights in the objective of the sensible fit", least=0)
    stiff_penalty: float = option(0.3, "the same for the under-fit; the over-fit has none", least=0)


def run(config: Config) -> dict[str, Any]:
    """Train all kinds on the same data sets, and read mean and standard deviation at the points and on a grid."""
    rng = np.random.default_rng(config.seed)
    x = draw_inputs(rng, config.points)
    phase = rng.uniform(size=(config.members, 1))
    y = truth(x, phase) + config.noise * rng.normal(size=(config.members, config.points))
    ensemble = fit(config, x, y)
    predicted = mder.predict(ensemble, as_rows(np.concatenate([x, GRID])))
    shape = (len(KINDS), config.members, -1)
    mean, std = (np.asarray(part, float).reshape(shape) for part in (predicted.loc, predicted.scale_tril))
    return {
        "noise": config.noise,
        "x": x,
        "y": y,
        "truth": truth(GRID, phase),
        "mean_at_points": mean[..., : config.points],
        "std_at_points": std[..., : config.points],
        "mean": mean[..., config.points :],
        "std": std[..., config.points :],
        "diverged": int(np.sum(ensemble.diverged_at >= 0)),
    }


def draw_inputs(rng: np.random.Generator, points: int) -> np.ndarray:
    """Jittered steps over [0, 1] without the gap, ascending, (points,)."""
    steps = (np.arange(points) + rng.uniform(size=points)) / points * (1 - GAP[1] + GAP[0])
    return np.where(steps < GAP[0], steps, steps + GAP[1] - GAP[0])


def truth(x: np.ndarray, phase: np.ndarray) -> np.ndarray:
    """sin 2π(x + phase); the phase is random, so that what the gap hides is not chosen by us."""
    return np.sin(2 * np.pi * (x + phase))


def as_rows(x: np.ndarray) -> np.ndarray:
    """Inputs of the network: x from [0, 1] onto [-2, 2], (N, 1)."""
    return (4 * x - 2).astype(np.float32)[:, None]


def fit(config: Config, x: np.ndarray, y: np.ndarray) -> mder.Ensemble:
    """Minimise the mean L_i (eq:minnllgaussian) + penalty/2 ‖W‖²; data set j has the same start in every kind."""
    network = mder.mlp((32, 32), 2, activation="tanh", link=lambda raw: mder.gaussian_link(raw, 1))
    penalties = np.repeat(np.array([config.penalty, 0.0, config.stiff_penalty], np.float32), config.members)
    keys = jax.random.key_data(jax.random.split(jax.random.key(config.seed), config.members))
    return train(
        "Gaussian fits",
        np.tile(keys, (len(KINDS), 1)),
        network,
        mder.gaussian_nll,
        as_rows(x),
        mder.PerMember(np.tile(y.astype(np.float32)[..., None], (len(KINDS), 1, 1))),
        optimizer=mder.PerMember(penalties, lambda penalty: penalised_adam(penalty, config.epochs)),
        epochs=config.epochs,
    )


def penalised_adam(penalty: Any, epochs: int) -> optax.GradientTransformation:
    """Adam on the loss plus penalty/2 ‖W‖² over the matrices W, with a rate that falls to 0; biases stay free."""
    shrink = optax.add_decayed_weights(penalty, mask=lambda params: jax.tree.map(lambda leaf: leaf.ndim > 1, params))
    return optax.chain(shrink, optax.adam(optax.cosine_decay_schedule(1e-2, epochs)))


def gaussian_loss(squared: np.ndarray | float, std: np.ndarray) -> np.ndarray:
    """L = ½ ln 2πσ² + (y − μ)²/2σ² of the squared residual, eq:minnllgaussian; linear in it, so also of its mean."""
    return 0.5 * np.log(2 * np.pi * std**2) + squared / (2 * std**2)


def total_loss(results: dict[str, Any]) -> np.ndarray:
    """Σ_i L_i over the training points, (kinds, members)."""
    squared = (results["y"] - results["mean_at_points"]) ** 2
    return gaussian_loss(squared, results["std_at_points"]).sum(-1)


def needed_variance(results: dict[str, Any]) -> np.ndarray:
    """E(y − μ)² = noise² + (truth − μ)² on the grid, (kinds, members, grid)."""
    return results["noise"] ** 2 + (results["truth"] - results["mean"]) ** 2


def unseen_loss(results: dict[str, Any]) -> np.ndarray:
    """E[L] of a new y at the x of the grid where there are data, exactly, mean over them, (kinds, members)."""
    return gaussian_loss(needed_variance(results), results["std"])[..., ~IN_GAP].mean(-1)


def understatement(results: dict[str, Any]) -> dict[str, np.ndarray]:
    """√ mean E(y − μ)²/σ² in the gap and beside it, (kinds, members); 1 for a std that is right."""
    ratio = needed_variance(results) / results["std"] ** 2
    return {
        "gap": np.sqrt(ratio[..., IN_GAP].mean(-1)),
        "data": np.sqrt(ratio[..., ~IN_GAP].mean(-1)),
    }


def widening(results: dict[str, Any]) -> np.ndarray:
    """Mean σ in the gap over mean σ beside it, (kinds, members); about 1 if σ is interpolated."""
    return results["std"][..., IN_GAP].mean(-1) / results["std"][..., ~IN_GAP].mean(-1)


def rms(values: np.ndarray) -> np.ndarray:
    """Root of the mean square over the last axis."""
    return np.sqrt(np.mean(values**2, axis=-1))


def misfit_and_std(results: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """√(noise² + mean (truth − μ)²) and rms σ beside the gap, (kinds, members): equal if σ takes up the misfit."""
    return np.sqrt(needed_variance(results)[..., ~IN_GAP].mean(-1)), rms(results["std"][..., ~IN_GAP])


def report(results: dict[str, Any]) -> str:
    """Medians over data sets."""
    beyond, (needed, stated) = understatement(results), misfit_and_std(results)
    columns = {
        "sum of L_i": total_loss(results),
        "E[L] new y": unseen_loss(results),
        "needed std": needed,
        "stated std": stated,
        "needed/stated, data": beyond["data"],
        "gap": beyond["gap"],
    }
    lines = [f"{'median':10}" + "".join(f"{name:>{max(12, len(name) + 2)}}" for name in columns)]
    for number, kind in enumerate(KINDS):
        values = (f"{np.median(column[number]):{max(12, len(name) + 2)}.3f}" for name, column in columns.items())
        lines.append(f"{kind:10}" + "".join(values))
    members = results["mean"].shape[1]
    return "\n".join([*lines, f"{members} data sets, {results['diverged']} networks became non-finite"])


def claims(results: dict[str, Any]) -> list[Claim]:
    """Five statements of App. A."""
    return [*_overfit_claims(results), *_gap_claims(results), _underfit_claim(results)]


def _overfit_claims(results: dict[str, Any]) -> list[Claim]:
    rows = []
    for claim, statistic, loss, sign in (
        ("an over-fit has the smaller total loss", "sum of L_i, over-fit minus fit", total_loss(results), -1),
        (
            "the smaller loss is not the better fit",
            "expected L of a new y, over-fit minus fit",
            unseen_loss(results),
            1,
        ),
    ):
        difference = sign * (loss[KINDS.index("over-fit")] - loss[KINDS.index("fit")])
        found = share(int(np.sum(difference > 0)), len(difference))
        value = shown(interval(sign * difference))
        ours = f"{'smaller' if sign < 0 else 'larger'} in {shown(found, '.0%')} of data sets; median {value}"
        rows.append(Claim("App. A, fig:greg", claim, statistic, "", ours, decide(found[1] > 0.5, found[0] > 0.5)))
    return rows


def _gap_claims(results: dict[str, Any]) -> list[Claim]:
    beyond = understatement(results)
    gap, excess, wide = (
        interval(values[KINDS.index("fit")])
        for values in (beyond["gap"], beyond["gap"] / beyond["data"], widening(results))
    )
    return [
        Claim(
            "App. A",
            "where data are missing a Gaussian interpolates its standard deviation",
            "std in the gap / std beside it, sensible fit; 1.5 would be noticed",
            "",
            shown(wide),
            decide(wide[2] < 1.5, wide[0] < 1.5),
        ),
        Claim(
            "App. A",
            "and so understates what is not known there",
            "rms (y - mu)/std in the gap, sensible fit (1 is right); the same over that beside the gap",
            "",
            f"{shown(gap)}; {shown(excess)}",
            decide(gap[1] > 1 and excess[1] > 1, gap[1] > 1),
        ),
    ]


def _underfit_claim(results: dict[str, Any]) -> Claim:
    needed, stated = (part[KINDS.index("under-fit")] for part in misfit_and_std(results))
    ratio, blown_up = interval(stated / needed), interval(stated / results["noise"])
    close = ratio[1] > 0.8 and ratio[2] < 1.25
    return Claim(
        "App. A",
        "an under-fitting model puts its misfit into sigma beside the noise",
        "rms std / sqrt(noise^2 + misfit^2), under-fit, 0.8 to 1.25 counts as equal; rms std / noise",
        "",
        f"{shown(ratio)}; {shown(blown_up)}",
        decide(close and blown_up[1] > 1, blown_up[1] > 1),
    )


CAPTIONS = {
    "greg": "A Gaussian fitted by its likelihood to points in x and y: prediction (dashed, in the x-y plane) and, at "
    "every second point, its loss as a function of y within two standard deviations (solid), with the value L_i at "
    "the datum (dot). The fit on the right has no penalty on its weights: smaller total loss, worse fit.",
    "gap": "Fits to one data set with two standard deviations as a band; no data in the shaded range.",
    "losses": "Mean loss of training points and expected loss of new data; lines join the networks of one data set.",
}


def plot(results: dict[str, Any]) -> dict[str, Any]:
    """fig:greg, the gap, and the losses of all data sets."""
    from experiments import _gaussian_fit_figures as figures

    return {"greg": figures.greg(results), "gap": figures.gap(results), "losses": figures.losses(results)}
