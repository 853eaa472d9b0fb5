"""Methods made of networks: all splits and members of a kind are trained as one program, by the estimator's recipe."""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import mder_jax as mder
from experiments._bench_scores import COVERAGES, Forecast, Members
from experiments._bench_tasks import Tasks
from mder_jax import MDERRegressor, _fitting
from mder_jax._job import take

LAMBDA = 0.01
DROPOUT, PASSES = 0.1, 50
CALIBRATION_SHARE = 0.15
USUAL = MDERRegressor()


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
    places = n + np.cumsum(np.arange(1, n + 1)) - 1
    full = full.at[..., :n].set(mu).at[..., places].set(log_diagonal).at[..., -1:].set(gate)
    return mder.niw_link(full, n)


def _evidence(niw: mder.NIW, y: Array) -> Array:
    return mder.mder_nll(niw, y, missing=False)


def _amini(one_by_one: mder.NIG, y: Array) -> Array:
    return jnp.sum(mder.der_loss(one_by_one, y, LAMBDA), axis=-1)


def _full(n: int) -> int:
    return mder.num_outputs(n) - 1


KINDS = {
    "niw": Kind(mder.num_outputs, functools.partial(mder.niw_link, relative=True), _evidence),
    "niw-diagonal": Kind(lambda n: 2 * n + 1, diagonal_niw_link, _evidence),
    "nig": Kind(lambda n: 4 * n, mder.nig_link, _amini),
    "gaussian": Kind(_full, functools.partial(mder.gaussian_link, relative=True), mder.gaussian_nll),
    "gaussian-diagonal": Kind(lambda n: 2 * n, functools.partial(mder.gaussian_link, full=False), mder.gaussian_nll),
    "dropout": Kind(_full, functools.partial(mder.gaussian_link, relative=True), mder.gaussian_nll, DROPOUT),
}


@dataclass(frozen=True)
class Recipe:
    """Size of the networks and length of training; all else is as in `MDERRegressor`."""

    widths: tuple[int, ...]
    epochs: int
    members: int
    seed: int


class Trained(NamedTuple):
    """Networks of all splits: parameters (S, M, ...), seconds of training and of compiling, and failures (S,)."""

    network: mder.Network
    params: Any
    seconds: float
    compiling: float
    diverged: np.ndarray


def fit(kind: Kind, tasks: Tasks, recipe: Recipe, members: int) -> Trained:
    """Train the networks of all splits; each holds out rows of its own and keeps its best parameters on them."""
    n, rows = tasks.targets, tasks.X.shape[1]
    link = functools.partial(kind.link, n=n)
    network = mder.mlp(recipe.widths, kind.outputs(n), USUAL.activation, link, kind.dropout)
    count = tasks.splits * members
    held_out = _fitting.rows_held_out(USUAL.validation_fraction, rows)
    random = np.random.RandomState(recipe.seed)
    order = np.stack([random.permutation(rows) for _ in range(count)])
    split = np.repeat(np.arange(tasks.splits), members)[:, None]
    held, kept = order[:, :held_out], order[:, held_out:]
    batch = min(kept.shape[1], _fitting.batch_size(kept.shape[1]))
    start = time.perf_counter()
    with _fitting.usual_promotion():
        ensemble = mder.fit_ensemble(
            jax.random.key(recipe.seed),
            network,
            kind.loss,
            mder.PerMember(tasks.X[split, kept]),
            mder.PerMember(tasks.Y[split, kept]),
            optimizer=_fitting.optimizer(USUAL.learning_rate_init, USUAL.alpha, recipe.epochs, kept.shape[1], batch),
            epochs=recipe.epochs,
            batch_size=batch,
            validation=(mder.PerMember(tasks.X[split, held]), mder.PerMember(tasks.Y[split, held])),
            patience=_fitting.patience(kept.shape[1], batch),
            progress=False,
        )
    params = jax.tree.map(
        lambda leaf: np.asarray(leaf).reshape(tasks.splits, members, *leaf.shape[1:]), ensemble.params
    )
    diverged = np.sum((ensemble.diverged_at >= 0).reshape(tasks.splits, members), axis=1)
    return Trained(network, params, ensemble.seconds, time.perf_counter() - start - ensemble.seconds, diverged)


def outputs(trained: Trained, X: np.ndarray) -> tuple[Any, float]:
    """What the networks of each split say of its rows X (S, K, d), and the seconds it takes without compiling.

    Arrays are (S, M, K, ...), or with dropout (S, passes, K, ...).
    """
    network = trained.network

    def of_passes(params: Any, x: Array) -> Any:
        assert network.train is not None
        keys = jax.random.split(jax.random.key(1), PASSES)
        return jax.vmap(network.train, in_axes=(None, None, 0))(take(params, 0), x, keys)

    def of_split(part: tuple[Any, Array]) -> Any:
        return of_passes(*part) if network.train else jax.vmap(network.apply, in_axes=(0, None))(*part)

    program = jax.jit(lambda params, x: lax.map(of_split, (params, x))).lower(trained.params, X).compile()
    begin = time.perf_counter()
    found = jax.tree.map(np.asarray, program(trained.params, X))
    return found, time.perf_counter() - begin


def calibrated(members: Any, held_out: Any, Y: np.ndarray) -> Forecast:
    """The forecast with the scale and the regions that held-out rows ask for: each split has its own.

    Args:
      members: what the networks say of the test rows, (S, M, K, ...).
      held_out: what they say of rows that none of them learnt from, (S, M, H, ...).
      Y: the targets of those, (S, H, n).
    """
    parts, radii = [], []
    for split, y in enumerate(Y):
        mixture = mder.Mixture(take(held_out, split))
        scale = mder.calibration.fit_scale(mixture, y).scale
        parts.append(mder.calibration.rescale(mder.Mixture(take(members, split)), scale).members)
        scores = mder.calibration.conformal_scores(mder.calibration.rescale(mixture, scale), y)
        radii.append([mder.calibration.radius_of(scores, coverage) for coverage in COVERAGES])
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)
    return Forecast(Members(stacked), radii=np.asarray(radii))
