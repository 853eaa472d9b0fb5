"""Measurements at x = 0, 1 and 3: how an evidential ensemble shows noise, misfit and missing data.

Figure: unctypes, Sec. 1.1. Command: ``python -m experiments uncertainty_types``. Run time on two cores: about 8 s.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

import mder_jax as mder
from experiments.harness.command_options import option
from experiments.harness.training import train
from experiments.paper.uncertainty_types.claims import claims as claims, report as report
from experiments.paper.uncertainty_types.figures import CAPTIONS as CAPTIONS, plot as plot
from experiments.paper.uncertainty_types.statistics import GRID, LINES, POINTS

NOISE = (0.1, 0.1, 0.5)


@dataclass(frozen=True)
class Config:
    """Options of the study."""

    seed: int = option(0, "seed of data, resampling and initial parameters", least=0)
    data_sets: int = option(8, "data sets, each with its own ensembles", full=40, least=3)
    members: int = option(3, "networks of an ensemble, each on a resample of its measurements", full=10, least=2)
    repeats: tuple[int, ...] = option((10, 40, 160), "measurements at each x, ascending", least=2)
    epochs: int = option(300, "steps of training", full=2000)


def run(config: Config) -> dict[str, Any]:
    """Train flexible ensembles on every number of repeats, and on the largest also those with a straight line as μ."""
    settings = [("flexible", count) for count in config.repeats] + [(kind, config.repeats[-1]) for kind in LINES]
    y = draw_measurements(config)
    ensemble = fit(config, settings, resample(config, y, [count for _, count in settings]))
    shape = (len(settings), config.data_sets, config.members)
    parts = mder.predict(ensemble, as_rows(GRID), reduce=lambda niw: parts_of_ensembles(niw, shape))
    return {
        "kinds": [kind for kind, _ in settings],
        "repeats": [count for _, count in settings],
        "noise": list(NOISE),
        "members": config.members,
        "y": y,
        **{name: np.moveaxis(np.asarray(part, float), 0, -1).reshape(*shape[:2], -1) for name, part in parts.items()},
        "diverged": int(np.sum(ensemble.diverged_at >= 0)),
    }


def draw_measurements(config: Config) -> np.ndarray:
    """All data sets, each with the largest number of repeats, (data sets, 3, repeats)."""

    def draw(key: Array) -> Array:
        return mder.datasets.three_points(key, config.repeats[-1], NOISE).Y.reshape(3, -1)

    keys = jax.random.split(jax.random.key(config.seed), config.data_sets)
    return np.asarray(jax.jit(jax.vmap(draw))(keys))


def resample(config: Config, y: np.ndarray, counts: list[int]) -> np.ndarray:
    """For every count, data set and member: the first `count` measurements at each x, drawn with replacement.

    The rest of the row is NaN, for "not measured": (counts × data sets × members, 3, repeats).
    """
    rng = np.random.default_rng(config.seed)
    drawn = np.full((len(counts), config.data_sets, config.members, 3, y.shape[-1]), np.nan, np.float32)
    for place, count in zip(drawn, counts, strict=True):
        chosen = rng.integers(0, count, (config.data_sets, config.members, 3, count))
        place[..., :count] = np.take_along_axis(y[:, None], chosen, axis=-1)
    return drawn.reshape(-1, 3, y.shape[-1])


def as_rows(x: np.ndarray) -> np.ndarray:
    """Inputs of the network, (N, 1)."""
    return x.astype(np.float32)[:, None]


def fit(config: Config, settings: list[tuple[str, int]], y: np.ndarray) -> mder.Ensemble:
    """All networks in one program; a row is one x with all that was measured there."""
    each = config.data_sets * config.members
    straight = np.repeat(np.array([kind in LINES for kind, _ in settings], np.float32), each)
    random = np.repeat([kind == "line, random start" for kind, _ in settings], each)
    start = np.random.default_rng(config.seed + 1).uniform(-1, 1, (len(random), 2)) * random[:, None]
    return train(
        "networks on three points",
        jax.random.key(config.seed),
        mder.PerMember({"straight": straight, "start": start.astype(np.float32)}, make_network),
        mean_nll,
        as_rows(POINTS),
        mder.PerMember(y),
        optimizer=optax.adam(optax.cosine_decay_schedule(1e-2, config.epochs)),
        epochs=config.epochs,
    )


def make_network(own: dict[str, Array]) -> mder.Network:
    """A coupled NIW with r = 1 for one target; μ is a straight line if ``straight``, L and ν are always free.

    Which point a line gives up depends on its start (offset and slope): the likelihood has several minima.
    """
    curve = mder.mlp((32, 32), mder.num_outputs(1), activation="tanh")

    def init(key: Array, x: Array) -> Any:
        return {"curve": curve.init(key, x), "line": own["start"]}

    def apply(params: Any, x: Array) -> mder.NIW:
        raw = curve.apply(params["curve"], x)
        mu = jnp.where(own["straight"] > 0, params["line"][0] + params["line"][1] * x, raw[:, :1])
        return mder.niw_link(jnp.concatenate([mu, raw[:, 1:]], axis=1), n=1)

    return mder.Network(init, apply)


def mean_nll(niw: mder.NIW, y: Array) -> Array:
    """Mean of −ln p(y | m), eq:nll, over what was measured at each x: (3,) NIWs and (3, repeats) -> (3,)."""
    measured = ~jnp.isnan(y)
    losses = jax.vmap(lambda y: mder.mder_nll(niw, y[:, None], missing=False), 1, 1)(jnp.where(measured, y, 0))
    return jnp.sum(jnp.where(measured, losses, 0), axis=1) / jnp.sum(measured, axis=1, dtype=losses.dtype)


def parts_of_ensembles(niw: mder.NIW, shape: tuple[int, int, int]) -> dict[str, Array]:
    """Mean and the three parts of the variance of each ensemble's mixture, (rows, settings × data sets)."""

    def members_first(leaf: Array) -> Array:
        """(networks, ...) -> (members, ensembles, ...)."""
        return jnp.moveaxis(leaf.reshape(shape[0] * shape[1], shape[2], *leaf.shape[1:]), 1, 0)

    mixture = mder.Mixture(jax.tree.map(members_first, niw))
    parts = {
        "mean": mixture.mean()[..., 0],
        "aleatoric": mixture.aleatoric()[..., 0, 0],
        "within": mixture.epistemic_within()[..., 0, 0],
        "between": mixture.epistemic_between()[..., 0, 0],
    }
    return {name: part.T for name, part in parts.items()}
