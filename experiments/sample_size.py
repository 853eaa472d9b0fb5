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
from experiments import _circle
from experiments._options import option
from experiments._progress import running, train
from experiments._sample_size_claims import claims, report
from experiments._sample_size_figures import CAPTIONS, plot

__all__ = ["CAPTIONS", "Config", "claims", "plot", "report", "run"]

FEW, MANY = (50, 300, 3000, 30_000), (50, 100, 300, 1000, 3000, 10_000, 30_000)
STEPS_PER_EPOCH = -(-_circle.POINTS // _circle.BATCH)


@dataclass(frozen=True)
class Config:
    """Options of the study."""

    seed: int = option(0, "seed of data and networks", least=0)
    sizes: tuple[int, ...] = option(FEW, "points to train on", full=MANY)
    data_sets: int = option(3, "data sets of each size; the smaller are parts of the larger", full=8)
    members: int = option(1, "networks for each data set", full=3)
    epochs: int = option(_circle.EPOCHS, "epochs of the recipe, which has three steps in each")
    budget: str = option("steps", "what all sizes get", full="both", choices=("steps", "epochs", "both"))
    fresh: int = option(2_000, "points to test on", full=10_000)


def run(config: Config) -> dict[str, Any]:
    """Train on every size with equal steps, equal epochs or both; arrays come as (sizes, data sets, members, ...)."""
    networks = config.data_sets * config.members
    data = _circle.draw(config.seed, config.data_sets, max(config.sizes), config.fresh, networks)
    trained: dict[str, Any] = {}
    if config.budget in ("steps", "both"):
        trained["steps"] = equal_steps(config, data)
    if config.budget in ("epochs", "both"):
        trained["epochs"] = equal_epochs(config, data)
    return {"sizes": list(config.sizes), "t": _circle.GRID, "budgets": trained}


def equal_steps(config: Config, data: _circle.Draw) -> dict[str, Any]:
    """All sizes as one program: small data sets are padded with rows of weight 0, and every size takes equal steps.

    Networks of all sizes start from the same weights, so that they can be compared in pairs.
    """
    sizes, networks = np.array(config.sizes), config.data_sets * config.members
    present = np.arange(sizes.max()) < sizes[:, None]
    steps = config.epochs * STEPS_PER_EPOCH

    def of_all(rows: np.ndarray) -> mder.PerMember:
        return mder.PerMember(np.tile(np.repeat(rows, config.members, axis=0), (len(sizes), 1, 1)))

    ensemble = train(
        "sample size, equal steps",
        np.tile(data.keys, (len(sizes), 1)),
        _circle.network(),
        _circle.loss,
        of_all(data.t),
        of_all(data.xy),
        weights=mder.PerMember(np.repeat(present.astype(np.float32), networks, axis=0)),
        optimizer=_circle.optimizer(steps),
        epochs=config.epochs,
        steps_per_epoch=STEPS_PER_EPOCH,
        batch_size=min(_circle.BATCH, int(sizes.max())),
    )
    parts = [
        evaluate(config, data, size, ensemble.keep(range(place * networks, (place + 1) * networks)))
        for place, size in enumerate(config.sizes)
    ]
    return _stacked(parts) | {"steps": [steps] * len(sizes)}


def equal_epochs(config: Config, data: _circle.Draw) -> dict[str, Any]:
    """One program for each size, since they differ in steps: the same number of passes over the data."""
    parts, steps = [], []
    for size in config.sizes:
        batch = min(_circle.BATCH, size)
        steps.append(config.epochs * -(-size // batch))
        ensemble = train(
            f"sample size, equal epochs, {size} points",
            data.keys,
            _circle.network(),
            _circle.loss,
            mder.PerMember(np.repeat(data.t[:, :size], config.members, axis=0)),
            mder.PerMember(np.repeat(data.xy[:, :size], config.members, axis=0)),
            optimizer=_circle.optimizer(steps[-1]),
            epochs=config.epochs,
            batch_size=batch,
        )
        parts.append(evaluate(config, data, size, ensemble))
    return _stacked(parts) | {"steps": steps}


def _stacked(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.stack([part[name] for part in parts]) for name in parts[0]}


def evaluate(config: Config, data: _circle.Draw, size: int, ensemble: mder.Ensemble) -> dict[str, np.ndarray]:
    """What the networks of one size do on their own rows, on fresh points and on the grid: arrays (D, M, ...)."""
    running(f"sample size, {size} points on the grid")
    own = np.repeat(np.arange(config.data_sets), config.members)
    train_nll, fresh_nll, niw = _outcome(ensemble.params, own, np.int32(size), data)
    found = {
        "train": np.asarray(train_nll),
        "fresh": np.asarray(fresh_nll),
        "diverged": ensemble.diverged_at >= 0,
        "nu": np.asarray(niw.nu),
        "mean_error": _circle.error_of_mean(niw.mu),
        "correlation": _circle.correlation(niw.L),
    }
    return {name: value.reshape(config.data_sets, config.members, *value.shape[1:]) for name, value in found.items()}


@jax.jit
def _outcome(params: Any, own: jax.Array, size: jax.Array, data: Any) -> tuple[jax.Array, jax.Array, mder.NIW]:
    """NLL per row in training and on fresh data, and the NIW on the grid, one member after the other."""
    network = _circle.network()
    grid = jnp.asarray(_circle.GRID, data.t.dtype)[:, None]

    def member(part: tuple[Any, jax.Array]) -> tuple[jax.Array, jax.Array, mder.NIW]:
        params, number = part
        losses = _circle.loss(network.apply(params, data.t[number]), data.xy[number])
        present = jnp.arange(len(losses)) < size
        fresh = jnp.mean(_circle.loss(network.apply(params, data.fresh_t), data.fresh_xy))
        return jnp.sum(jnp.where(present, losses, 0.0)) / size, fresh, network.apply(params, grid)

    return jax.lax.map(member, (params, own))
