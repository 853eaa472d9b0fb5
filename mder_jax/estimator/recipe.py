"""How `MDERRegressor` trains: AdamW, its rate a cosine after a warm-up, and rows that each member holds out."""

import contextlib
import math
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from mder_jax.ensemble import Ensemble, fit_ensemble
from mder_jax.ensemble.members import PerMember
from mder_jax.losses import mder_nll
from mder_jax.networks import Network

MOST_HELD_OUT = 10_000


class Recipe(NamedTuple):
    """Settings of the training, as of `MDERRegressor`.

    `batch_size` and `patience` are None for those of the functions below, `validation_fraction` for no early stopping.
    """

    members: int
    epochs: int
    rate: float
    alpha: float
    batch_size: int | None
    bootstrap: bool
    validation_fraction: float | None
    patience: int | None
    progress: bool


def train(
    recipe: Recipe,
    network: Network,
    random: np.random.RandomState,
    X: np.ndarray,
    Y: np.ndarray,
    start: Any = None,
    checkpoint: str | pathlib.Path | None = None,
) -> Ensemble:
    """Networks trained on standardised rows X, (N, d), and Y, (N, n), NaN where a target was not observed.

    `random` draws the key and the rows that members hold out; `start` are parameters to resume from. With a checkpoint
    directory an interruption raises, since the checkpoint holds what was trained.
    """
    key = jax.random.key(int(random.randint(2**31 - 1)))
    missing, kept = bool(np.isnan(Y).any()), len(X)
    options: dict[str, Any] = {}
    if recipe.validation_fraction is not None and len(X) > 1:
        held_out = rows_held_out(recipe.validation_fraction, len(X))
        options = _held_out(random, X, Y, recipe.members, held_out)
        kept -= held_out
    batch = min(kept, recipe.batch_size or batch_size(kept))
    if options:
        options["patience"] = recipe.patience or patience(kept, batch)
    with usual_promotion():
        return fit_ensemble(
            key,
            network if start is None else PerMember(start, lambda params: Network(lambda *_: params, network.apply)),
            lambda niw, y: mder_nll(niw, y, missing=missing),
            X,
            Y,
            optimizer=optimizer(recipe.rate, recipe.alpha, recipe.epochs, kept, batch),
            epochs=recipe.epochs,
            members=recipe.members,
            batch_size=batch,
            bootstrap=recipe.bootstrap,
            progress=recipe.progress,
            checkpoint=checkpoint,
            on_interrupt="return" if checkpoint is None else "raise",
            **options,
        )


@contextlib.contextmanager
def usual_promotion() -> Iterator[None]:
    """Optax's schedules mix integers and floats, which JAX may be configured to refuse."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def rows_held_out(fraction: float, rows: int) -> int:
    """Number of rows that a member does not train on."""
    return min(math.ceil(fraction * rows), rows - 1, MOST_HELD_OUT)


def batch_size(rows: int) -> int:
    """A fiftieth of the rows, but at least 32 and at most 256."""
    return min(256, max(32, rows // 50))


def patience(rows: int, batch: int) -> int:
    """Epochs without a better validation loss: 50, or fewer if they have more than 1000 steps, but at least 10."""
    return min(50, max(10, -(-1000 // -(-rows // batch))))


def optimizer(rate: float, alpha: float, epochs: int, rows: int, batch: int) -> optax.GradientTransformation:
    """AdamW with weight decay alpha; its rate rises for a twentieth of all steps, then falls to 0 along a cosine."""
    steps = epochs * -(-rows // batch)
    schedule = optax.warmup_cosine_decay_schedule(0.0, float(rate), steps // 20, max(steps, 1))
    return optax.adamw(schedule, weight_decay=float(alpha))


def _held_out(random: Any, X: np.ndarray, Y: np.ndarray, members: int, held_out: int) -> dict[str, Any]:
    """Arguments of `fit_ensemble` for the rows that each member holds out: no weight in training, but validation."""
    rows = np.stack([random.permutation(len(X))[:held_out] for _ in range(members)])
    weights = np.ones((members, len(X)), np.float32)
    np.put_along_axis(weights, rows, 0.0, axis=1)
    return {"weights": PerMember(weights), "validation": (PerMember(X[rows]), PerMember(Y[rows]))}
