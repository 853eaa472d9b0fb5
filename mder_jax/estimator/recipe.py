"""How `MDERRegressor` trains: AdamW, its rate a cosine after a warm-up, and rows that each member holds out."""

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import optax

from mder_jax.ensemble import Ensemble, fit_ensemble
from mder_jax.ensemble.members import PerMember
from mder_jax.estimator._design import Design
from mder_jax.losses import mder_nll
from mder_jax.networks import Network

MOST_HELD_OUT = 10_000


def train(
    model: Any,
    design: Design,
    random: np.random.RandomState,
    X: np.ndarray,
    Y: np.ndarray,
    start: Any,
    checkpoint: Any,
) -> Ensemble:
    """Networks of the design trained on standardised rows, with the settings of the model.

    Args:
      model: an `MDERRegressor`.
      design: of its networks.
      random: for the key and the rows that members hold out.
      X: (N, d).
      Y: (N, n).
      start: parameters to go on from, or None.
      checkpoint: a directory, or None. With it an interruption raises, as what was trained is there.
    """
    key = jax.random.key(int(random.randint(2**31 - 1)))
    missing, members, kept = bool(np.isnan(Y).any()), int(model.members), len(X)
    options: dict[str, Any] = {}
    if model.early_stopping and len(X) > 1:
        held_out = rows_held_out(model.validation_fraction, len(X))
        options = _held_out(random, X, Y, members, held_out)
        kept -= held_out
    batch = min(kept, batch_size(kept) if model.batch_size == "auto" else int(model.batch_size))
    if options:
        given = model.n_iter_no_change
        options["patience"] = patience(kept, batch) if given == "auto" else int(given)
    with usual_promotion():
        return fit_ensemble(
            key,
            _network(design, start),
            lambda niw, y: mder_nll(niw, y, missing=missing),
            X,
            Y,
            optimizer=optimizer(model.learning_rate_init, model.alpha, int(model.max_iter), kept, batch),
            epochs=int(model.max_iter),
            members=members,
            batch_size=batch,
            bootstrap=bool(model.bootstrap),
            progress=bool(model.verbose),
            checkpoint=checkpoint,
            on_interrupt="return" if checkpoint is None else "raise",
            **options,
        )


@contextlib.contextmanager
def usual_promotion() -> Iterator[None]:
    """Optax's schedules mix integers and floats, which JAX may have been told to refuse."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def rows_held_out(fraction: float, rows: int) -> int:
    """How many of the rows a member does not learn from."""
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


def _network(design: Design, start: Any) -> Any:
    network = design.network()
    if start is None:
        return network
    return PerMember(start, lambda params: Network(lambda key, x: params, network.apply))


def _held_out(random: Any, X: np.ndarray, Y: np.ndarray, members: int, held_out: int) -> dict[str, Any]:
    """Rows for each member to hold out, as `fit_ensemble` takes them: weight 0 in training, data of validation."""
    rows = np.stack([random.permutation(len(X))[:held_out] for _ in range(members)])
    weights = np.ones((members, len(X)), np.float32)
    np.put_along_axis(weights, rows, 0.0, axis=1)
    return {"weights": PerMember(weights), "validation": (PerMember(X[rows]), PerMember(Y[rows]))}
