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
from mder_jax.train.problem import Loss, Problem, Settings, needs_complete_targets

MOST_HELD_OUT = 10_000


class Rows(NamedTuple):
    """Standardised inputs (N, d) and targets (N, n), NaN where one was not observed, and weights (N,) or None."""

    X: np.ndarray
    Y: np.ndarray
    weights: np.ndarray | None = None


class Recipe(NamedTuple):
    """Settings of the training, as of `MDERRegressor`.

    `batch_size` and `patience` are None for those of the functions below.
    """

    members: int
    epochs: int
    rate: float
    alpha: float
    batch_size: int | None
    bootstrap: bool
    patience: int | None
    progress: bool


def train(
    recipe: Recipe,
    network: Network,
    loss: Loss | None,
    seed: int,
    rows: Rows,
    held_out: np.ndarray | None = None,
    validation: Rows | None = None,
    start: Any = None,
    checkpoint: str | pathlib.Path | None = None,
) -> Ensemble:
    """Networks trained on rows; with a checkpoint directory an interruption raises, since it holds what was trained.

    Args:
      recipe: settings.
      network: from standardised inputs to a NIW.
      loss: of the NIW and standardised targets, one value per row; None for the evidence, `mder_nll`.
      seed: of parameters and shuffles.
      rows: to train on.
      held_out: which of them a member validates with and does not train on, a mask (M, N).
      validation: rows that all members validate with. Without these two there is no early stopping.
      start: parameters to resume from.
      checkpoint: directory for checkpoints.
    """
    options, sizes = _held_out(rows, held_out) if held_out is not None else _all(rows, validation)
    missing = bool(np.isnan(rows.Y).any()) or (validation is not None and bool(np.isnan(validation.Y).any()))
    kept = int(np.max(sizes))
    batch = min(int(np.min(sizes)), recipe.batch_size or batch_size(kept))
    if "validation" in options:
        options["patience"] = recipe.patience or patience(kept, batch)
    if loss is not None and missing:
        _refuse_gaps(network, loss, rows if validation is None or np.isnan(rows.Y).any() else validation)
    with usual_promotion():
        return fit_ensemble(
            jax.random.key(seed),
            network,
            loss or (lambda niw, y: mder_nll(niw, y, missing=missing)),
            rows.X,
            rows.Y,
            optimizer=optimizer(recipe.rate, recipe.alpha, recipe.epochs, kept, batch),
            epochs=recipe.epochs,
            members=recipe.members,
            init=start,
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


def _refuse_gaps(network: Network, loss: Loss, rows: Rows) -> None:
    """Raise if a loss of the user does not accept missing targets."""
    problem = Problem(network, loss, optax.identity(), Settings(1))
    with usual_promotion():
        fails = needs_complete_targets(problem, rows.X, rows.Y, jax.random.key(0))
    if fails:
        raise ValueError(
            "the loss, or its gradient, is not finite for rows with a missing target, and y holds NaN; leave missing "
            "targets out of the loss, as mder_nll does, or leave these rows out of y"
        )


def _all(rows: Rows, validation: Rows | None) -> tuple[dict[str, Any], np.ndarray]:
    """Arguments of `fit_ensemble` if all members train on all rows, and the number of these rows."""
    options: dict[str, Any] = {} if rows.weights is None else {"weights": np.float32(rows.weights)}
    if validation is not None:
        weights = () if validation.weights is None else (np.float32(validation.weights),)
        options["validation"] = (validation.X, validation.Y, *weights)
    return options, np.array([len(rows.X)])


def _held_out(rows: Rows, held_out: np.ndarray) -> tuple[dict[str, Any], np.ndarray]:
    """Arguments of `fit_ensemble` for rows that members hold out, (M, N), and the numbers (M,) of those they keep.

    Held-out rows have no weight in training. Members that hold out fewer rows than others validate with more of weight
    0.
    """
    own = np.ones(len(rows.X)) if rows.weights is None else rows.weights
    counts = held_out.sum(axis=1)
    places = np.arange(counts.max()) < counts[:, None]
    which = np.zeros(places.shape, np.int64)
    which[places] = np.nonzero(held_out)[1]
    validation = [PerMember(rows.X[which]), PerMember(rows.Y[which])]
    if rows.weights is not None or not places.all():
        validation.append(PerMember(np.float32(np.where(places, own[which], 0.0))))
    weights = PerMember(np.float32(np.where(held_out, 0.0, own)))
    return {"weights": weights, "validation": validation}, len(rows.X) - counts
