"""A Gaussian fitted by maximum likelihood: a sensible fit, an over-fit with the smaller loss, and a gap without data.

Figure: greg (both panels), App. A. Command: ``python -m experiments gaussian_fit``. Run time on two cores: about 5 s.
"""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import optax

import mder_jax as mder
from experiments.harness.command_options import option
from experiments.harness.training import train
from experiments.paper.gaussian_fit.claims import claims as claims, report as report
from experiments.paper.gaussian_fit.figures import CAPTIONS as CAPTIONS, plot as plot
from experiments.paper.gaussian_fit.statistics import GAP, GRID, KINDS


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
