"""A hundred networks on the noisy circle: predictions, the gate ν, covariance and correlation (Sec. 4, App. E).

Figures data, data_xyt, predictions, nu and covcorr of the paper, and the uncertainties. Two readings of the
sample: trained on 270 of 300 points, as the authors' published code does, or on all 300, as the paper says.
Command: ``python -m experiments circle``. Run time: about 15 s on two cores, 5 s of them training.
"""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

import mder_jax as mder
from experiments.harness.command_options import option
from experiments.harness.progress import running
from experiments.paper import circle_recipe
from experiments.paper.circle.claims import claims as claims, report as report
from experiments.paper.circle.figures import CAPTIONS as CAPTIONS, plot as plot

READINGS = {"split": 0.9, "all": 1.0}  # the fraction of points to train on


@dataclass(frozen=True)
class Config:
    """Options of the study."""

    seed: int = option(42, "seed of data and training", least=0)
    members: int = option(100, "networks for each data set, trained on 90 % of its points")
    members_all: int = option(16, "networks for each data set, trained on all of its points", full=100, least=0)
    points: int = option(300, "points of a data set", least=10)
    data_sets: int = option(1, "data sets drawn", full=10)
    epochs: int = option(1500, "epochs", least=3)
    batch: int = option(100, "rows of a minibatch")


def run(config: Config) -> dict[str, Any]:
    """Train all networks as one program and evaluate them on the grid."""
    data_key, train_key = jax.random.split(jax.random.key(config.seed))
    draw = jax.jit(jax.vmap(lambda key: mder.datasets.circle(key, config.points)))
    t, xy = (np.asarray(part) for part in draw(jax.random.split(data_key, config.data_sets)))
    counts = {name: count for name, count in (("split", config.members), ("all", config.members_all)) if count}
    data_set = np.concatenate([np.repeat(np.arange(config.data_sets), count) for count in counts.values()])
    sizes = [config.data_sets * count for count in counts.values()]
    used = np.repeat([round(READINGS[name] * config.points) for name in counts], sizes)
    present = mder.PerMember((np.arange(config.points) < used[:, None]).astype(np.float32))
    keys = jax.random.split(train_key, data_set.size)
    data = (t[data_set], xy[data_set])
    ensemble = circle_recipe.fit("circle", keys, *data, config.epochs, config.batch, weights=present)
    running("circle: predicting")
    niw = mder.predict(ensemble, circle_recipe.GRID[:, None].astype(np.float32))
    fields = {"mu": niw.mu, "L": niw.L, "nu": niw.nu, "loss": ensemble.history.train[:, -1]}
    fields |= {"diverged": ensemble.diverged_at >= 0}
    parts = {field: np.split(np.asarray(values), np.cumsum(sizes)[:-1]) for field, values in fields.items()}
    readings = {
        name: {field: part[i].reshape(config.data_sets, -1, *part[i].shape[1:]) for field, part in parts.items()}
        for i, name in enumerate(counts)
    }
    return {"t": t[..., 0], "xy": xy, "readings": readings, "seconds_of_training": ensemble.seconds}
