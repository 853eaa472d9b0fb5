"""The circle with 50 to 30,000 points: when the ν gate opens, what is over-fitted, when mean and correlation are right.

The claims around fig:nu in Sec. 4 and at the end of App. E. The answer depends on what is kept equal between sample
sizes, the steps of the optimiser or the passes over the data, so both can be run.

Command: ``python -m experiments sample_size``. Run time on two cores: about 6 s, with ``--full`` about 6 minutes.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import mder_jax as mder
from experiments.harness.command_options import option
from experiments.harness.progress import running
from experiments.paper import circle_recipe
from experiments.paper.sample_size.claims import claims as claims, report as report
from experiments.paper.sample_size.figures import CAPTIONS as CAPTIONS, plot as plot

FEW, MANY = (50, 300, 3000, 30_000), (50, 100, 300, 1000, 3000, 10_000, 30_000)
STEPS_PER_EPOCH = -(-circle_recipe.POINTS // circle_recipe.BATCH)


@dataclass(frozen=True)
class Config:
    """Options of the study."""

    seed: int = option(0, "seed of data and networks", least=0)
    sizes: tuple[int, ...] = option(FEW, "points to train on", full=MANY)
    data_sets: int = option(3, "data sets of each size; the smaller are parts of the larger", full=8)
    members: int = option(1, "networks for each data set", full=3)
    epochs: int = option(circle_recipe.EPOCHS, "epochs of the recipe, which has three steps in each")
    budget: str = option("steps", "what all sizes get", full="both", choices=("steps", "epochs", "both"))
    fresh: int = option(2_000, "points to test on", full=10_000)


def run(config: Config) -> dict[str, Any]:
    """Train on every size with equal steps, equal epochs or both; arrays come as (sizes, data sets, members, ...)."""
    networks = config.data_sets * config.members
    data = circle_recipe.draw(config.seed, config.data_sets, max(config.sizes), config.fresh, networks)
    ways = {"steps": equal_steps, "epochs": equal_epochs}
    trained = {name: train(config, data) for name, train in ways.items() if config.budget in (name, "both")}
    return {"sizes": list(config.sizes), "t": circle_recipe.GRID, "budgets": trained}


def equal_steps(config: Config, data: circle_recipe.Draw) -> dict[str, Any]:
    """All sizes as one program: small data sets are padded with rows of weight 0, and every size takes equal steps.

    Networks of all sizes start from the same weights, so that they can be compared in pairs.
    """
    sizes, networks = np.array(config.sizes), config.data_sets * config.members
    present = np.arange(sizes.max()) < sizes[:, None]

    def of_all(rows: np.ndarray) -> np.ndarray:
        return np.tile(np.repeat(rows, config.members, axis=0), (len(sizes), 1, 1))

    ensemble = circle_recipe.fit(
        "sample size, equal steps",
        np.tile(data.keys, (len(sizes), 1)),
        of_all(data.t),
        of_all(data.xy),
        config.epochs,
        weights=mder.PerMember(np.repeat(present.astype(np.float32), networks, axis=0)),
        steps_per_epoch=STEPS_PER_EPOCH,
    )
    parts = [
        evaluate(config, data, size, ensemble.keep(range(place * networks, (place + 1) * networks)))
        for place, size in enumerate(config.sizes)
    ]
    return _stacked(parts) | {"steps": [config.epochs * STEPS_PER_EPOCH] * len(sizes)}


def equal_epochs(config: Config, data: circle_recipe.Draw) -> dict[str, Any]:
    """One program for each size, since they differ in steps: the same number of passes over the data."""
    parts = []
    for size in config.sizes:
        t, xy = (np.repeat(rows[:, :size], config.members, axis=0) for rows in (data.t, data.xy))
        ensemble = circle_recipe.fit(f"sample size, equal epochs, {size} points", data.keys, t, xy, config.epochs)
        parts.append(evaluate(config, data, size, ensemble))
    return _stacked(parts) | {"steps": [config.epochs * -(-size // circle_recipe.BATCH) for size in config.sizes]}


def _stacked(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.stack([part[name] for part in parts]) for name in parts[0]}


def evaluate(config: Config, data: circle_recipe.Draw, size: int, ensemble: mder.Ensemble) -> dict[str, np.ndarray]:
    """What the networks of one size do on their own rows, on fresh points and on the grid: arrays (D, M, ...)."""
    running(f"sample size, {size} points on the grid")
    own = np.repeat(np.arange(config.data_sets), config.members)
    train_nll, fresh_nll, niw = _outcome(ensemble.params, own, np.int32(size), data)
    found = {
        "train": np.asarray(train_nll),
        "fresh": np.asarray(fresh_nll),
        "diverged": ensemble.diverged_at >= 0,
        "nu": np.asarray(niw.nu),
        "mean_error": circle_recipe.error_of_mean(niw.mu),
        "correlation": circle_recipe.correlation(niw.L),
    }
    return {name: value.reshape(config.data_sets, config.members, *value.shape[1:]) for name, value in found.items()}


@jax.jit
def _outcome(params: Any, own: jax.Array, size: jax.Array, data: Any) -> tuple[jax.Array, jax.Array, mder.NIW]:
    """NLL per row in training and on fresh data, and the NIW on the grid, one member after the other."""
    network = circle_recipe.network()
    grid = jnp.asarray(circle_recipe.GRID, data.t.dtype)[:, None]

    def member(part: tuple[Any, jax.Array]) -> tuple[jax.Array, jax.Array, mder.NIW]:
        params, number = part
        losses = circle_recipe.loss(network.apply(params, data.t[number]), data.xy[number])
        present = jnp.arange(len(losses)) < size
        fresh = jnp.mean(circle_recipe.loss(network.apply(params, data.fresh_t), data.fresh_xy))
        return jnp.sum(jnp.where(present, losses, 0.0)) / size, fresh, network.apply(params, grid)

    return jax.lax.map(member, (params, own))
