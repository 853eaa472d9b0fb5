"""Methods made of networks: all splits and members of a kind are trained as one program, by one recipe.

It has an `mlp` and AdamW, and each network stops early on rows of its own. The program is run once for each learning
rate, and every split chooses its own.
"""

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

import mder_jax as mder
from experiments.benchmark.scores import COVERAGES, Forecast
from experiments.benchmark.splits import Tasks
from mder_jax.calibration import Scale
from mder_jax.estimator import recipe as usual
from mder_jax.links import log_diagonal_outputs

LAMBDA = 0.01
DROPOUT, PASSES = 0.1, 50
CALIBRATION_FRACTION = 0.15
WIDTHS, ACTIVATION = (64, 64), "relu"
ALPHA = 1e-4  # weight decay
HELD_OUT = 0.1  # of the training rows, by each network


class Kind(NamedTuple):
    """What a network predicts: how many raw outputs for n targets, the link from them, the loss, and dropout."""

    outputs: Callable[[int], int]
    link: Callable[..., Any]
    loss: Callable[[Any, Array], Array]
    dropout: float = 0.0


def diagonal_niw_link(raw: Array, n: int) -> mder.NIW:
    """`niw_link` without the outputs below the diagonal of L: μ₀ (n), ln L_jj (n), ν."""
    mu, log_diagonal, gate = raw[..., :n], raw[..., n : 2 * n], raw[..., 2 * n :]
    full = jnp.zeros((*raw.shape[:-1], mder.num_outputs(n)), raw.dtype)
    full = full.at[..., :n].set(mu).at[..., log_diagonal_outputs(n)].set(log_diagonal).at[..., -1:].set(gate)
    return mder.niw_link(full, n)


def _amini(each: mder.NIG, y: Array) -> Array:
    """The regularised loss of Amini et al., summed over targets."""
    return jnp.sum(mder.der_loss(each, y, LAMBDA), axis=-1)


_EVIDENCE = partial(mder.mder_nll, missing=False)
_GAUSSIAN = Kind(lambda n: mder.num_outputs(n) - 1, partial(mder.gaussian_link, relative=True), mder.gaussian_nll)
KINDS = {
    "niw": Kind(mder.num_outputs, partial(mder.niw_link, relative=True), _EVIDENCE),
    "niw-diagonal": Kind(lambda n: 2 * n + 1, diagonal_niw_link, _EVIDENCE),
    "nig": Kind(lambda n: 4 * n, mder.nig_link, _amini),
    "gaussian": _GAUSSIAN,
    "gaussian-diagonal": Kind(lambda n: 2 * n, partial(mder.gaussian_link, full=False), mder.gaussian_nll),
    "dropout": _GAUSSIAN._replace(dropout=DROPOUT),
}


@dataclass(frozen=True)
class Recipe:
    """Size of the networks, length of training and learning rates to choose from; all else is the same everywhere."""

    widths: tuple[int, ...]
    epochs: int
    members: int
    seed: int
    rates: tuple[float, ...]


def held_out_and_batch(rows: int) -> tuple[int, int]:
    """How many of the training rows a network holds out, and how many it has in a minibatch."""
    held_out = usual.rows_held_out(HELD_OUT, rows)
    return held_out, min(rows - held_out, usual.batch_size(rows - held_out))


def patience(rows: int, batch: int) -> int:
    """Epochs without a better validation loss: 50, or fewer if they have more than 1000 steps, but at least 10."""
    return min(50, max(10, -(-1000 // -(-rows // batch))))


class Trained(NamedTuple):
    """Networks of all splits, those of the rate (S,) that each has chosen, with parameters (S, M, ...).

    Seconds are those at all rates; `diverged` (S,) is how many of a split's M networks did.
    """

    network: mder.Network
    params: Any
    rates: np.ndarray
    seconds: float
    compiling: float
    diverged: np.ndarray


def fit(kind: Kind, tasks: Tasks, recipe: Recipe, members: int) -> Trained:
    """Train the networks of all splits at all rates, and keep for each split those of its best rate.

    Each network holds out separate rows and keeps its best parameters on them. At another rate it has the same
    held-out rows, initial parameters and shuffles.
    """
    count, batch = held_out_and_batch(tasks.X.shape[1])
    rows, n = tasks.X.shape[1] - count, tasks.targets
    link = partial(kind.link, n=n)
    network = mder.mlp(recipe.widths, kind.outputs(n), ACTIVATION, link, kind.dropout)
    learnt, held_out = _rows_of_members(tasks, recipe.seed, members, count)
    # As it is for a rate of 1: the schedule and the weight decay of AdamW are both proportional to the rate.
    at_one = usual.optimizer(1.0, ALPHA, recipe.epochs, rows, batch)

    def at_rate(rate: float) -> mder.Ensemble:
        values = np.full(tasks.splits * members, rate, np.float32)
        with usual.usual_promotion():
            return mder.fit_ensemble(
                jax.random.key(recipe.seed),
                network,
                kind.loss,
                *learnt,
                optimizer=mder.PerMember(values, lambda rate: optax.chain(at_one, optax.scale(rate))),
                epochs=recipe.epochs,
                batch_size=batch,
                validation=held_out,
                patience=patience(rows, batch),
                progress=False,
            )

    start = time.perf_counter()
    trained = [at_rate(rate) for rate in recipe.rates]
    seconds = sum(ensemble.seconds for ensemble in trained)
    compiling = time.perf_counter() - start - seconds
    chosen = best_rates(np.stack([np.asarray(ensemble.history.validation) for ensemble in trained]), members)

    def of_chosen(*leaves: Any) -> np.ndarray:
        apart = [np.asarray(leaf).reshape(tasks.splits, members, *leaf.shape[1:]) for leaf in leaves]
        return np.stack([apart[number][split] for split, number in enumerate(chosen)])

    params = jax.tree.map(of_chosen, *(ensemble.params for ensemble in trained))
    diverged = np.sum(of_chosen(*(ensemble.diverged_at for ensemble in trained)) >= 0, axis=1)
    return Trained(network, params, np.asarray(recipe.rates)[chosen], seconds, compiling, diverged)


def _rows_of_members(tasks: Tasks, seed: int, members: int, held_out: int) -> Any:
    """(X, Y) to learn from and (X, Y) held out, of each member of each split."""
    random = np.random.RandomState(seed)
    order = np.stack([random.permutation(tasks.X.shape[1]) for _ in range(tasks.splits * members)])
    split = np.repeat(np.arange(tasks.splits), members)[:, None]
    parts = (order[:, held_out:], order[:, :held_out])
    return [tuple(mder.PerMember(values[split, part]) for values in (tasks.X, tasks.Y)) for part in parts]


def best_rates(losses: np.ndarray, members: int) -> np.ndarray:
    """Which rate each split chooses, (S,), from validation losses (rates, S members, epochs).

    It is that of the smallest mean over members of min over epochs. An epoch that was not run, or was not finite, does
    not count; a rate with a member that has no other is chosen only if there is none better, and then the first is.
    """
    best = np.min(np.where(np.isfinite(losses), losses, np.inf), axis=2)
    return np.argmin(best.reshape(len(losses), -1, members).mean(2), axis=0)


def take(tree: Any, index: Any) -> Any:
    """The same entries of every array."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def outputs(trained: Trained, X: np.ndarray) -> tuple[Any, float]:
    """What the networks of each split predict for its rows X (S, K, d), and the seconds without compiling.

    Arrays are (S, M, K, ...), or with dropout (S, passes, K, ...).
    """
    network = trained.network

    def of_split(part: tuple[Any, Array]) -> Any:
        params, x = part
        if network.train is None:
            return jax.vmap(network.apply, in_axes=(0, None))(params, x)
        keys = jax.random.split(jax.random.key(1), PASSES)
        return jax.vmap(network.train, in_axes=(None, None, 0))(take(params, 0), x, keys)

    program = jax.jit(lambda params, x: lax.map(of_split, (params, x))).lower(trained.params, X).compile()
    begin = time.perf_counter()
    found = jax.tree.map(np.asarray, program(trained.params, X))
    return found, time.perf_counter() - begin


def calibrated(members: Any, held_out: Any, Y: np.ndarray) -> tuple[Forecast, list[str]]:
    """The forecast with scale and regions calibrated in each split on its held-out rows, and what failed.

    `members` (S, M, K, ...) are predictions for test rows, `held_out` (S, M, H, ...) for rows that no member has learnt
    from, whose targets are Y (S, H, n).
    """
    parts, radii, failures = [], [], []
    for split, y in enumerate(Y):
        scale, radius, failure = _calibration(take(held_out, split), y)
        parts.append(mder.calibration.rescale(mder.Mixture(take(members, split)), scale).members)
        radii.append(radius)
        failures.append(failure)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)
    return Forecast(stacked, radii=np.asarray(radii, np.float32)), failures


def _calibration(held_out: Any, y: np.ndarray) -> tuple[Scale, list[float], str]:
    """The factor and the radii fitted to held-out rows, in double precision if float32 fails.

    If that fails, too (a covariance singular to rounding), the forecast stays as it is and the reason is returned.
    """
    with contextlib.suppress(ValueError):
        return *_scale_and_radii(mder.Mixture(held_out), y), ""
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), held_out)
        try:
            return *_scale_and_radii(mder.Mixture(wide), y.astype(np.float64)), ""
        except ValueError as error:
            return Scale(1.0, 1.0), [math.nan] * len(COVERAGES), f"not calibrated: {error}"


def _scale_and_radii(mixture: mder.Mixture, y: np.ndarray) -> tuple[Scale, list[float]]:
    scale = mder.calibration.fit_scale(mixture, y).scale
    scores = mder.calibration.conformal_scores(mder.calibration.rescale(mixture, scale), y)
    return scale, [float(mder.calibration.radius_of(scores, coverage)) for coverage in COVERAGES]
