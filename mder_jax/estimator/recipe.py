"""How `MDERRegressor` trains: AdamW, its rate a cosine after a warm-up, and rows that members hold out."""

import contextlib
import functools
import math
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from mder_jax.ensemble import Ensemble, fit_ensemble
from mder_jax.ensemble.members import PerMember
from mder_jax.estimator._judge import Judge
from mder_jax.estimator._rows import Rows
from mder_jax.estimator.beside import Beside, fit_beside
from mder_jax.losses import mder_nll
from mder_jax.networks import Network
from mder_jax.train.problem import Loss, Problem, Settings, needs_complete_targets

MOST_HELD_OUT = 10_000


class Pace(NamedTuple):
    """Largest learning rate, and weight decay relative to it."""

    rate: float
    alpha: float


# The first finds fine structure, the second is for few rows with much noise.
PACES = (Pace(5e-3, 0.05), Pace(1e-3, 1.0))
MOST_ROWS_TRIED = 5000


class Recipe(NamedTuple):
    """Settings of the training, as of `MDERRegressor`.

    `epochs`, `rate`, `alpha`, `batch_size` and `patience` are None for those of the functions below.
    """

    members: int
    epochs: int | None
    rate: float | None
    alpha: float | None
    batch_size: int | None
    bootstrap: bool
    patience: int | None
    progress: bool
    beside: tuple[str, ...] = ()


class Trained(NamedTuple):
    """Networks, the factor on L that suits rows that they held out (1 unless judged together), and what is beside."""

    ensemble: Ensemble
    factor: float = 1.0
    beside: Beside | None = None


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
    together: bool = False,
    embedded: tuple[tuple[int, int], ...] = (),
) -> Trained:
    """Networks trained on rows, and the further members that the recipe names if rows judge them together.

    With a checkpoint directory an interruption raises, since it holds what was trained.

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
      together: whether a `Judge` finds one epoch for all members, else each has its own validation loss.
      embedded: columns of rows with indices of levels, and the number of levels.
    """
    judge = _judge(network, rows, held_out, validation, recipe.members) if together else None
    apart = judge is None
    options, sizes = _held_out(rows, held_out, apart) if held_out is not None else _all(rows, validation, apart)
    missing = bool(np.isnan(rows.Y).any()) or (validation is not None and bool(np.isnan(validation.Y).any()))
    kept = int(np.max(sizes))
    batch = min(int(np.min(sizes)), recipe.batch_size or batch_size(kept))
    length = recipe.epochs or epochs(kept, batch)
    if "validation" in options or judge is not None:
        options["patience"] = recipe.patience or patience(kept, batch)
    if loss is not None and missing:
        _refuse_gaps(network, loss, rows if validation is None or np.isnan(rows.Y).any() else validation)
    build = functools.partial(optimizer, epochs=length, rows=kept, batch=batch)
    to_try = paces(recipe, kept if judge is not None else None)

    def at(pace: Pace, number: int) -> Ensemble:
        of_pace = f"pace-{number}" if len(to_try) > 1 else "."
        each = np.broadcast_to(np.asarray(pace, np.float32), (recipe.members, 2))
        return fit_ensemble(
            jax.random.key(seed),
            network,
            loss or (lambda niw, y: mder_nll(niw, y, missing=missing)),
            rows.X,
            rows.Y,
            optimizer=PerMember(each, lambda pace: build(*pace)),  # values, so that all paces share a program
            epochs=length,
            members=recipe.members,
            init=start,
            batch_size=batch,
            bootstrap=recipe.bootstrap,
            progress=recipe.progress,
            judge=judge,
            checkpoint=None if checkpoint is None else pathlib.Path(checkpoint) / of_pace,
            on_interrupt="return" if checkpoint is None else "raise",
            **options,
        )

    with usual_promotion():
        tried: list[Ensemble] = []
        for number, pace in enumerate(to_try):
            tried.append(at(pace, number))
            if tried[-1].interrupted:
                break
        trained = min(tried, key=_best_loss) if len(tried) > 1 else tried[0]
        if judge is None:
            return Trained(trained)
        data = rows, held_out if validation is None else None, embedded
        beside, factor = fit_beside(recipe.beside, *data, judge, trained.params, seed)
        return Trained(trained, factor, beside)


def _best_loss(trained: Ensemble) -> float:
    """The smallest validation loss, ∞ if there is none."""
    losses = np.asarray(trained.history.validation)
    return float(np.min(losses, initial=np.inf, where=np.isfinite(losses)))


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


def epochs(rows: int, batch: int) -> int:
    """Those of 5000 steps, but 100 if they are more, and no more than 500 epochs or 20,000 steps."""
    each = -(-rows // batch)
    return min(500, -(-min(max(5000, 100 * each), 20_000) // each))


def patience(rows: int, batch: int) -> int:
    """Epochs without a better validation loss: those of 1500 steps, but at least 10."""
    return max(10, -(-1500 // -(-rows // batch)))


def paces(recipe: Recipe, rows: int | None) -> list[Pace]:
    """The settings of AdamW to choose from: both of `PACES` for at most `MOST_ROWS_TRIED` rows, else the first.

    What the recipe sets is the same in all; with a rate of its own there is one. None for rows that nobody judges.
    """
    alone = recipe.rate is not None or rows is None or rows > MOST_ROWS_TRIED
    known = PACES[:1] if alone else PACES
    return [
        Pace(*(usual if own is None else own for own, usual in zip((recipe.rate, recipe.alpha), pace, strict=True)))
        for pace in known
    ]


def optimizer(rate: Any, alpha: Any, epochs: int, rows: int, batch: int) -> optax.GradientTransformation:
    """AdamW with weight decay alpha; its rate rises for a twentieth of all steps, then falls to 0 along a cosine."""
    steps = epochs * -(-rows // batch)
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1.0, steps // 20, max(steps, 1))
    return optax.adamw(lambda step: rate * schedule(step), weight_decay=alpha)


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


def _judge(
    network: Network, rows: Rows, held_out: np.ndarray | None, validation: Rows | None, members: int
) -> Judge | None:
    if validation is not None:
        return Judge(network, validation, np.ones((members, len(validation.X)), bool))
    return None if held_out is None else Judge(network, rows, held_out)


def _all(rows: Rows, validation: Rows | None, apart: bool) -> tuple[dict[str, Any], np.ndarray]:
    """Arguments of `fit_ensemble` if all members train on all rows, and the number of these rows.

    With validation rows if each member is to be validated `apart`.
    """
    options: dict[str, Any] = {} if rows.weights is None else {"weights": np.float32(rows.weights)}
    if validation is not None and apart:
        weights = () if validation.weights is None else (np.float32(validation.weights),)
        options["validation"] = (validation.X, validation.Y, *weights)
    return options, np.array([len(rows.X)])


def _held_out(rows: Rows, held_out: np.ndarray, apart: bool) -> tuple[dict[str, Any], np.ndarray]:
    """Arguments of `fit_ensemble` for rows that members hold out, (M, N), and the numbers (M,) of those they keep.

    Held-out rows have no weight in training. Members that hold out fewer rows than others validate with more of weight
    0.
    """
    own = np.ones(len(rows.X)) if rows.weights is None else rows.weights
    counts = held_out.sum(axis=1)
    weights = PerMember(np.float32(np.where(held_out, 0.0, own)))
    if not apart:
        return {"weights": weights}, len(rows.X) - counts
    places = np.arange(counts.max()) < counts[:, None]
    which = np.zeros(places.shape, np.int64)
    which[places] = np.nonzero(held_out)[1]
    validation = [PerMember(rows.X[which]), PerMember(rows.Y[which])]
    if rows.weights is not None or not places.all():
        validation.append(PerMember(np.float32(np.where(places, own[which], 0.0))))
    return {"weights": weights, "validation": validation}, len(rows.X) - counts
