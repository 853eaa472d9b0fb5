"""Forecasts of all splits, and their scores: everything in standard deviations of the training targets."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import mder_jax as mder
from experiments.benchmark.splits import TableTasks, Tasks
from mder_jax import linalg, nig

COVERAGES = (0.5, 0.9)
ENERGY_DRAWS, REGION_DRAWS = 100, 400
BLOCK, MEMBERS = 1024, 10


class Forecast(NamedTuple):
    """Predictions for the test rows of S splits; arrays have the splits as first axis.

    The predictive is a mixture of joint distributions, NIW or StudentT with arrays (S, M, K, ...), also with a weight
    for each row, or NIG (S, K, n) for targets predicted one by one.
    """

    predictive: mder.NIW | mder.StudentT | mder.Mixture | mder.NIG
    epistemic: np.ndarray | None = None  # uncertainty about the mean, (S, K); None for that of the predictive
    radii: np.ndarray | None = None  # calibrated radii of the regions of `COVERAGES`, (S, 2); None for the predictive's


def gaussians(loc: np.ndarray, scale_tril: np.ndarray) -> mder.StudentT:
    """One Gaussian for each row, from (S, K, n) and (S, K, n, n)."""
    return mder.StudentT(jnp.inf, jnp.asarray(loc[:, None]), jnp.asarray(scale_tril[:, None]))


class _Description(NamedTuple):
    """Of K rows: log density at y, moments, the trace of the epistemic covariance, and draws (draws, K, n).

    `shape` (K, n, n) is the matrix whose ellipsoids are the regions.
    """

    log_prob: Array
    mean: Array
    covariance: Array
    shape: Array
    epistemic: Array
    draws: Array


def _of_mixture(members: mder.NIW | mder.StudentT | mder.Mixture, y: Array, key: Array) -> _Description:
    """Of a mixture of M members, batch shape (M, K)."""
    weighted = (members.members, members.log_weights) if isinstance(members, mder.Mixture) else (members,)
    mixture = mder.Mixture(*weighted)
    total, epistemic = mixture.total(), jnp.trace(mixture.epistemic(), axis1=-2, axis2=-1)
    return _Description(mixture.log_prob(y), mixture.mean(), total, total, epistemic, mixture.sample(key, REGION_DRAWS))


def _one_by_one(each: mder.NIG, y: Array, key: Array) -> _Description:
    """Of targets one by one: the widths of their t distributions exist for any α, variances are very large near 1."""
    epistemic, width = nig.epistemic(each), nig.aleatoric(each, "meinert2023")
    covariance, shape = map(linalg.diagonal_matrix, (nig.aleatoric(each) + epistemic, width**2))
    draws = mder.StudentT(2 * each.alpha, each.mu[..., None], width[..., None, None]).sample(key, REGION_DRAWS)[..., 0]
    log_prob = jnp.sum(nig.log_evidence(each, y), axis=-1)
    return _Description(log_prob, each.mu, covariance, shape, jnp.sum(epistemic, axis=-1), draws)


@jax.jit
def _of_block(predictive: Any, y: Array, radii: Array, key: Array) -> dict[str, Array]:
    """Scores of a block of rows; a radius that is NaN is not given."""
    found = (_one_by_one if isinstance(predictive, mder.NIG) else _of_mixture)(predictive, y, key)
    factor, errors = linalg.cholesky(found.shape), y - found.mean
    own = jnp.quantile(_distance(factor, found.draws - found.mean[None]), jnp.asarray(COVERAGES, y.dtype), axis=0)
    radii = jnp.where(jnp.isnan(radii), own.T, radii)
    n = y.shape[-1]
    ball = 0.5 * n * math.log(math.pi) - math.lgamma(0.5 * n + 1)
    return {
        "nll": -found.log_prob,
        "errors": errors,
        "energy": energy(y, found.draws[:ENERGY_DRAWS]),
        "inside": _distance(factor, errors[None])[0][:, None] <= radii,
        "log_volume": ball + n * jnp.log(radii) + linalg.half_logdet(factor)[:, None],
        "covariance": found.covariance,
        "epistemic": found.epistemic,
    }


def energy(y: Array, draws: Array) -> Array:
    """E‖X − y‖ − ½ E‖X − X'‖, (K,), from draws (D, K, n) and all pairs of two of them."""
    between = lax.map(lambda one: jnp.sum(_norm(draws - one[None]), axis=0), draws)
    pairs = len(draws) * (len(draws) - 1)
    return jnp.mean(_norm(draws - y[None]), axis=0) - 0.5 * jnp.sum(between, axis=0) / pairs


def _norm(d: Array) -> Array:
    """‖d‖ over the last axis."""
    return jnp.sqrt(jnp.sum(d * d, axis=-1))


def _distance(factor: Array, d: Array) -> Array:
    """‖L⁻¹ d‖, (K, n, n) and (draws, K, n) -> (draws, K)."""
    return _norm(linalg.whiten(jnp.broadcast_to(factor, (*d.shape, d.shape[-1])), d))


def of_rows(forecast: Forecast, tasks: Tasks | TableTasks) -> dict[str, np.ndarray]:
    """Scores of every test row of every split: arrays (S, K, ...).

    Blocks have one size, and members are repeated to a common number, which does not change their mixture, so that all
    methods and tables share a few compiled programs.
    """
    splits, rows = tasks.Y_test.shape[:2]
    radii = np.full((splits, len(COVERAGES)), np.nan, np.float32) if forecast.radii is None else forecast.radii
    radii, y = np.repeat(radii, rows, axis=0), tasks.Y_test.reshape(splits * rows, -1)
    flat, axis = _flat(forecast.predictive)
    found = []
    for start in range(0, len(y), BLOCK):
        place = np.minimum(np.arange(start, start + BLOCK), len(y) - 1)
        part = jax.tree.map(functools.partial(np.take, indices=place, axis=axis), flat)
        scores = _of_block(part, y[place], radii[place], jax.random.fold_in(jax.random.key(0), start))
        found.append({name: np.asarray(values, np.float64)[: len(y) - start] for name, values in scores.items()})
    joined = {name: np.concatenate([block[name] for block in found]) for name in found[0]}
    scores = {name: values.reshape(splits, rows, *values.shape[1:]) for name, values in joined.items()}
    return scores if forecast.epistemic is None else {**scores, "epistemic": np.asarray(forecast.epistemic, float)}


def _flat(predictive: Any) -> tuple[Any, int]:
    """The rows of all splits on one axis, and the index of that axis.

    (S, K, ...) -> (S K, ...) for a NIG, else (S, M, K, ...) -> (M', S K, ...), M' the next multiple of M that is at
    least `MEMBERS`.
    """
    if isinstance(predictive, mder.NIG):
        return jax.tree.map(lambda leaf: np.asarray(leaf).reshape(-1, *leaf.shape[2:]), predictive), 0
    members = jax.tree.leaves(predictive)[0].shape[1]
    copies = -(-MEMBERS // members)

    def flat(leaf: Any) -> np.ndarray:
        leaf = np.moveaxis(np.asarray(leaf), 1, 0)
        return np.tile(leaf.reshape(members, -1, *leaf.shape[3:]), (copies,) + (1,) * (leaf.ndim - 2))

    return jax.tree.map(flat, predictive), 1


def of_splits(rows: dict[str, np.ndarray]) -> dict[str, Any]:
    """Scores of every split, lists of S; a non-finite row makes the score of its split non-finite, and is counted.

    A row whose covariance has no Cholesky factor in float32, as its members are far apart, has no region: it counts as
    outside, is left out of the volumes, and is counted, too.
    """
    region = np.isfinite(rows["log_volume"])
    squares = np.mean(rows["errors"] ** 2, axis=1)
    scores = {
        "nll": rows["nll"].mean(1),
        "rmse": np.sqrt(squares.mean(1)),
        "rmse_each": np.sqrt(squares),
        "energy": rows["energy"].mean(1),
        "broken": np.sum(~np.isfinite(rows["nll"]), axis=1),
        "no_region": np.sum(~region.all(-1), axis=1),
        "epistemic": np.median(rows["epistemic"], axis=1),
    }
    for number, coverage in enumerate(COVERAGES):
        scores[f"inside_{coverage:.0%}"] = rows["inside"][..., number].mean(1)
        scores[f"log_volume_{coverage:.0%}"] = _mean_where(rows["log_volume"][..., number], region[..., number])
    return {name: values.tolist() for name, values in scores.items()}


def _mean_where(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """The mean of the chosen values of each split, NaN if there are none."""
    total, count = np.sum(values, axis=1, where=chosen), chosen.sum(1)
    return np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)
