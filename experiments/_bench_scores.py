"""Forecasts of all splits, and their scores: everything in standard deviations of the training targets."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import mder_jax as mder
from experiments._bench_tasks import Tasks
from mder_jax import _scores, linalg, nig
from mder_jax.student_t import root

COVERAGES = (0.5, 0.9)
ENERGY_DRAWS, REGION_DRAWS = 100, 400
BLOCK, MEMBERS = 1024, 10


class Members(NamedTuple):
    """A mixture of distributions of all targets at once: a NIW or a StudentT, with batch shape (M, K) for K rows."""

    members: mder.NIW | mder.StudentT

    def log_prob(self, y: Array) -> Array:
        """(K, n) -> (K,)."""
        return mder.Mixture(self.members).log_prob(y)

    def mean(self) -> Array:
        """(K, n)."""
        return mder.Mixture(self.members).mean()

    def covariance(self) -> Array:
        """(K, n, n)."""
        return mder.Mixture(self.members).total()

    def shape(self) -> Array:
        """The matrix whose ellipsoids are the regions, (K, n, n)."""
        return self.covariance()

    def epistemic(self) -> Array:
        """The trace of the epistemic covariance, (K,)."""
        return jnp.trace(mder.Mixture(self.members).epistemic(), axis1=-2, axis2=-1)

    def sample(self, key: Array, draws: int) -> Array:
        """(draws, K, n)."""
        return mder.Mixture(self.members).sample(key, draws)


class OneByOne(NamedTuple):
    """Targets predicted one by one, each with a NIG of its own: fields (K, n)."""

    nig: mder.NIG

    def log_prob(self, y: Array) -> Array:
        """(K, n) -> (K,)."""
        return jnp.sum(nig.log_evidence(self.nig, y), axis=-1)

    def mean(self) -> Array:
        """(K, n)."""
        return self.nig.mu

    def covariance(self) -> Array:
        """(K, n, n); very large where α is near 1."""
        return linalg.diagonal_matrix(nig.aleatoric(self.nig) + nig.epistemic(self.nig))

    def shape(self) -> Array:
        """Squared widths of the t distributions, which exist for any α, (K, n, n)."""
        return linalg.diagonal_matrix(nig.aleatoric(self.nig, "meinert2023") ** 2)

    def epistemic(self) -> Array:
        """The sum over targets of var[μ], (K,)."""
        return jnp.sum(nig.epistemic(self.nig), axis=-1)

    def sample(self, key: Array, draws: int) -> Array:
        """(draws, K, n)."""
        width = nig.aleatoric(self.nig, "meinert2023")[..., None, None]
        return mder.StudentT(2 * self.nig.alpha, self.nig.mu[..., None], width).sample(key, draws)[..., 0]


class Forecast(NamedTuple):
    """What a method says of the test rows of S splits; arrays have the splits as first axis.

    Args:
      predictive: `Members` with arrays (S, M, K, ...), or `OneByOne` with (S, K, n).
      epistemic: how little is known of the mean, (S, K), larger for less; None for what the predictive says.
      radii: of the regions of `COVERAGES`, (S, 2), if they were calibrated; None if the distribution tells them.
    """

    predictive: Members | OneByOne
    epistemic: np.ndarray | None = None
    radii: np.ndarray | None = None


def gaussians(loc: np.ndarray, scale_tril: np.ndarray) -> Members:
    """One Gaussian for each row, from (S, K, n) and (S, K, n, n)."""
    return Members(mder.StudentT(jnp.inf, jnp.asarray(loc[:, None]), jnp.asarray(scale_tril[:, None])))


@jax.jit
def _of_block(predictive: Members | OneByOne, y: Array, radii: Array, key: Array) -> dict[str, Array]:
    """Scores of a block of rows; a radius that is NaN is not given."""
    mean, draws = predictive.mean(), predictive.sample(key, REGION_DRAWS)
    factor = linalg.cholesky(predictive.shape())
    told = jnp.quantile(_distance(factor, draws - mean[None]), jnp.asarray(COVERAGES, y.dtype), axis=0)
    radii = jnp.where(jnp.isnan(radii), told.T, radii)
    n = y.shape[-1]
    ball = 0.5 * n * math.log(math.pi) - math.lgamma(0.5 * n + 1)
    return {
        "nll": -predictive.log_prob(y),
        "errors": y - mean,
        "energy": _scores.energy_of_draws(y, draws[:ENERGY_DRAWS]),
        "inside": _distance(factor, (y - mean)[None])[0][:, None] <= radii,
        "log_volume": ball + n * jnp.log(radii) + linalg.half_logdet(factor)[:, None],
        "covariance": predictive.covariance(),
        "epistemic": predictive.epistemic(),
    }


def _distance(factor: Array, d: Array) -> Array:
    white = linalg.whiten(jnp.broadcast_to(factor, (*d.shape, d.shape[-1])), d)
    return root(jnp.sum(white * white, axis=-1))


def of_rows(forecast: Forecast, tasks: Tasks) -> dict[str, np.ndarray]:
    """Scores of every test row of every split: arrays (S, K, ...).

    Rows of all splits go through in blocks of one size, and members are repeated to a common number, which leaves their
    mixture as it is: so all methods and tables share a few compiled programs.
    """
    splits, rows = tasks.Y_test.shape[:2]
    radii = np.full((splits, len(COVERAGES)), np.nan, np.float32) if forecast.radii is None else forecast.radii
    radii = np.repeat(radii, rows, axis=0)
    flat = (
        _flat_members(forecast.predictive) if isinstance(forecast.predictive, Members) else _flat(forecast.predictive)
    )
    axis = 1 if isinstance(flat, Members) else 0
    y = tasks.Y_test.reshape(splits * rows, -1)
    found = []
    for start in range(0, len(y), BLOCK):
        place = np.minimum(np.arange(start, start + BLOCK), len(y) - 1)
        part = jax.tree.map(functools.partial(np.take, indices=place, axis=axis), flat)
        scores = _of_block(part, y[place], radii[place], jax.random.fold_in(jax.random.key(0), start))
        found.append({name: np.asarray(values, np.float64)[: len(y) - start] for name, values in scores.items()})
    joined = {name: np.concatenate([block[name] for block in found]) for name in found[0]}
    scores = {name: values.reshape(splits, rows, *values.shape[1:]) for name, values in joined.items()}
    return scores if forecast.epistemic is None else {**scores, "epistemic": np.asarray(forecast.epistemic, float)}


def _flat(predictive: OneByOne) -> OneByOne:
    """(S, K, ...) -> (S K, ...)."""
    return jax.tree.map(lambda leaf: np.asarray(leaf).reshape(-1, *leaf.shape[2:]), predictive)


def _flat_members(predictive: Members) -> Members:
    """(S, M, K, ...) -> (M', S K, ...), M' the next multiple of M that is at least `MEMBERS`."""
    members = jax.tree.leaves(predictive)[0].shape[1]
    copies = -(-MEMBERS // members)

    def flat(leaf: Any) -> np.ndarray:
        leaf = np.moveaxis(np.asarray(leaf), 1, 0)
        return np.tile(leaf.reshape(members, -1, *leaf.shape[3:]), (copies,) + (1,) * (leaf.ndim - 2))

    return jax.tree.map(flat, predictive)


def of_splits(rows: dict[str, np.ndarray]) -> dict[str, Any]:
    """Scores of every split, lists of S, from those of its rows; a row that is not finite spoils it, and is counted.

    Where members far from each other leave a covariance of which float32 knows no Cholesky factor, a row has no region:
    it counts as outside, is left out of the volumes, and is counted, too.
    """
    broken = ~np.isfinite(rows["nll"])
    region = np.isfinite(rows["log_volume"])
    squares = np.mean(rows["errors"] ** 2, axis=1)
    scores = {
        "nll": rows["nll"].mean(1),
        "rmse": np.sqrt(squares.mean(1)),
        "rmse_each": np.sqrt(squares),
        "energy": rows["energy"].mean(1),
        "broken": broken.sum(1),
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
