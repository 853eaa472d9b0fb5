"""Fit factors and conformal scores to held-out rows, and check what they do to the coverage.

Scores are computed from the same numbers, in double precision and original units, as intervals and regions.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from mder_jax import calibration
from mder_jax._arguments import flag
from mder_jax.calibration import Scale, ScaleFit
from mder_jax.estimator._calibration import FEWEST, Calibration, CoverageCheck
from mder_jax.estimator._predicted_rows import PredictedRows, ellipsoids
from mder_jax.estimator.results import Region
from mder_jax.mixture import Mixture, tail_of_radius

CHECKED = (0.5, 0.9)
# The coverage is checked on at most this many rows.
ROWS = 4000
# Fewer rows do not determine the scale of the covariance: 90 % intervals scaled by one or two of them hold 70 %.
FEWEST_FOR_SCALE = 10
# Nor do rows that leave a larger standard error of ln factor.
LARGEST_ERROR = 1.0
# Scores are rounded up by this fraction of themselves, and of a standard deviation: the precision of the networks.
RESOLUTION = 1e-6
# Two units in the last place of a covariance in single precision; correlated targets amplify its rounding.
ROUNDING = 2 * float(np.finfo(np.float32).eps)
UNIT = Scale(1.0, 1.0)


class HeldOut(NamedTuple):
    """Predictions with factors of 1, and the targets Y, (N, n), of which each row has at least one that is not NaN."""

    rows: PredictedRows
    Y: np.ndarray

    def take(self, index: Any) -> "HeldOut":
        """Some of them."""
        return HeldOut(self.rows.take(index), self.Y[index])

    @property
    def standardized(self) -> tuple[Mixture, np.ndarray]:
        """Predictive distributions and targets."""
        return self.rows.standardized(), self.rows.targets.forward(self.Y)


def calibrate(rows: PredictedRows, Y: np.ndarray, method: Any, separate: bool, trained: str = "") -> Calibration:
    """Fit factors and scores to held-out rows, predicted with factors of 1, and their targets Y, (N, n).

    `trained` is a note that some of them are rows of the fit; then the coverage is not checked.
    """
    separate = flag("separate", separate)
    observed = np.flatnonzero(np.isfinite(Y).any(axis=1))
    if not len(observed):
        raise ValueError(f"at least one row with an observed target is needed; all {len(Y)} have only NaN")
    (held_out,), left_out = _finite([HeldOut(rows.take(observed), Y[observed])])
    fit, scores, note = _fit(held_out, method, separate)
    checks = [] if trained else _checks(held_out, method, separate)
    return Calibration(fit, *scores, checks, tuple(filter(None, [note, trained, left_out])), bool(trained))


def cross_calibrate(folds: Sequence[HeldOut], method: Any, separate: bool) -> tuple[Calibration, list[np.ndarray]]:
    """Fit factors to the rows of all folds, each predicted by a model that was fitted without it.

    Returns the calibration, without models of folds, and their scores, (K, n) each, which are those with factors of 1:
    a common factor cancels in intervals, and none makes them depend on the rows they are for.
    """
    finite, left_out = _finite(folds)
    members, z = zip(*(fold.standardized for fold in finite), strict=True)
    pooled = jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *_of_one_size(members))
    fit, note = _scale(pooled, np.concatenate(z), method, flag("separate", separate))
    return _with_scores(finite, fit, (note, left_out))


def _of_one_size(mixtures: Sequence[Mixture]) -> list[Mixture]:
    """The same mixtures with as many members, of which some have no weight, if some have one more than others."""
    if all(mixture.log_weights is None for mixture in mixtures):
        return list(mixtures)
    most = max(mixture.size for mixture in mixtures)

    def filled(mixture: Mixture) -> Mixture:
        missing = most - mixture.size
        own = mixture.log_weights
        known = (
            np.zeros((mixture.size, *mixture.batch_shape)) - np.log(mixture.size) if own is None else np.asarray(own)
        )
        places = [*range(mixture.size), *[0] * missing]
        nothing = np.full((missing, *known.shape[1:]), -np.inf)
        members = jax.tree.map(lambda leaf: np.asarray(leaf)[places], mixture.members)
        return Mixture(members, np.concatenate([known, nothing]).astype(jax.tree.leaves(members)[0].dtype))

    return [filled(mixture) for mixture in mixtures]


def calibrate_by_members(folds: Sequence[HeldOut]) -> tuple[Calibration, list[np.ndarray]]:
    """The same for the rows that members held out. There is no factor, since errors of a few members are not those of
    all.
    """
    finite, left_out = _finite(folds)
    rows = sum(len(fold.Y) for fold in finite)
    return _with_scores(finite, _unscaled("likelihood", False, rows), (left_out,))


def _with_scores(
    folds: Sequence[HeldOut], fit: ScaleFit, notes: tuple[str, ...]
) -> tuple[Calibration, list[np.ndarray]]:
    scores = [row_scores(fold.rows, fold.Y)[1] for fold in folds]
    joint = [row_scores(fold.rows.with_scale(fit.scale), fold.Y)[0] for fold in folds]
    parts = _sorted(np.concatenate(joint)), _sorted(np.concatenate(scores))
    return Calibration(fit, *parts, [], tuple(filter(None, notes))), list(map(_sorted, scores))


def _finite(folds: Sequence[HeldOut]) -> tuple[list[HeldOut], str]:
    """The rows whose prediction is finite, and a note if some are not."""
    finite = [np.isfinite(fold.rows.moments().total).all(axis=(1, 2)) for fold in folds]
    for rows in finite:
        if not rows.any():
            raise ValueError(f"no prediction of these {len(rows)} rows is finite; are they like those of the fit?")
    known, total = sum(map(np.sum, finite)), sum(map(len, finite))
    note = f"{total - known} of {total} rows have no finite prediction and are left out" if known < total else ""
    return [fold.take(np.flatnonzero(rows)) for fold, rows in zip(folds, finite, strict=True)], note


def _fit(held_out: HeldOut, method: Any, separate: bool) -> tuple[ScaleFit, tuple[np.ndarray, np.ndarray], str]:
    """A common factor cancels in conformal regions; two do not, and are fitted to every other row."""
    whole = np.s_[:], np.s_[:]
    for_scale, for_scores = (np.s_[::2], np.s_[1::2]) if separate and len(held_out.Y) > 1 else whole
    fit, note = _scale(*held_out.take(for_scale).standardized, method, separate)
    rows, Y = held_out.take(for_scores)
    joint, single = row_scores(rows.with_scale(fit.scale), Y)
    return fit, (_sorted(joint), _sorted(single)), note


def _scale(members: Mixture, z: np.ndarray, method: Any, separate: bool) -> tuple[ScaleFit, str]:
    """The factors, or 1 and the reason, if these rows, standardised, do not determine them."""
    count, fewest = len(z), FEWEST_FOR_SCALE * (1 + separate)
    unscaled = _unscaled(method, separate, count)
    calibration.check_method(method, separate, members)
    if count < fewest:
        these = "1 calibration row does" if count == 1 else f"{count} calibration rows do"
        reason = f"{these} not determine the scale of the covariance"
        return unscaled, f"{reason}, which stays as it is; give at least {fewest}, better 50"
    try:
        fit = calibration.fit_scale(members, z, method, separate)
    except ValueError as error:
        return unscaled, f"the scale of the covariance stays as it is: {error}"
    errors = [error / factor for error, factor in zip(fit.standard_error, fit.scale, strict=True)]
    if max(errors) <= LARGEST_ERROR:
        return fit, ""
    part = errors.index(max(errors))
    what = ("scale of the members' own covariance", "scale of their disagreement")[part]
    found = f"a factor of {fit.scale[part]:.3g}, from {fit.lower[part]:.3g} to {fit.upper[part]:.3g}"
    reason = f"these {count} rows do not determine the {what if separate else 'scale of the covariance'} ({found})"
    remedy = "give more rows, or separate=False for one factor" if separate else "give more rows"
    return unscaled, f"{reason}; the covariance stays as it is; {remedy}"


def _unscaled(method: Any, separate: bool, rows: int) -> ScaleFit:
    """Factors of 1 that were not fitted."""
    unknown = Scale(math.nan, math.nan)
    return ScaleFit(UNIT, unknown, unknown, unknown, method, separate, 0.95, rows)


def row_scores(rows: PredictedRows, Y: np.ndarray, resolution: float = RESOLUTION) -> tuple[np.ndarray, np.ndarray]:
    """Distances of rows, (N,), and of their targets, (N, n), rounded up by the resolution; NaN if missing.

    An error ε σᵢσⱼ in each entry of Σ = L Lᵀ moves the distance ‖L⁻¹d‖ by up to n/2 ε ‖L⁻¹ diag(σ)‖² of itself.
    """
    parts, unit, complete = rows.moments(), rows.targets.std, np.isfinite(Y).all(axis=1)
    single = (np.abs(Y - parts.mean) + resolution * unit) / parts.std * (1 + resolution)
    joint = np.full(len(Y), np.nan)
    if complete.any():
        region = Region(*(part[complete] for part in ellipsoids(parts)[:3]))
        unresolved = np.linalg.norm(np.linalg.solve(region.scale_tril, np.diag(unit)[None]), axis=(1, 2))
        rounding = Y.shape[1] / 2 * ROUNDING * unresolved**2 if resolution else 0.0
        distance = region.distance(Y[complete]) * (1 + rounding)
        joint[complete] = (distance + resolution * unresolved) * (1 + resolution)
    return joint, single


def _sorted(scores: np.ndarray) -> np.ndarray:
    """Along the rows, NaN last and without rows of nothing else."""
    return np.sort(scores, axis=0)[: int(np.sum(~np.isnan(scores), axis=0).max())]


@jax.jit
def _places(members: Mixture, scale: Scale, y: Array) -> tuple[Array, Array]:
    """Where y is in the predictive distribution: 2|F(y) − ½| of each target, (N, n), and its joint PIT, (N,)."""
    mixture = calibration.rescale(members, scale)
    return 2 * jnp.abs(mixture.cdf(y) - 0.5), 1 - tail_of_radius(mixture, mixture.mahalanobis(y))


def _checks(held_out: HeldOut, method: Any, separate: bool) -> list[CoverageCheck]:
    """Coverage of each half of (at most `ROWS`) rows, drawn at random, with the calibration of the other."""
    half = min(len(held_out.Y), ROWS) // 2
    if half < FEWEST:
        return []
    order = np.random.default_rng(0).permutation(len(held_out.Y))[: 2 * half]
    parts = []
    for fitted, tested in ((order[:half], order[half:]), (order[half:], order[:half])):
        fit, scores, _ = _fit(held_out.take(fitted), method, separate)
        parts.append(_inside(held_out.take(tested), Calibration(fit, *scores, [])))
    return [
        _check(nominal, *(np.concatenate(both) for both in zip(*part, strict=True)))
        for nominal, part in zip(CHECKED, zip(*parts, strict=True), strict=True)
    ]


def _inside(held_out: HeldOut, found: Calibration) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each nominal coverage whether y is inside, 1, 0 or NaN: (N, n, 3) for intervals and (N, 3) for regions."""
    (members, z), observed = held_out.standardized, np.isfinite(held_out.Y)
    before, after = (_places(members, jax.tree.map(np.float32, scale), z) for scale in (UNIT, found.fit.scale))
    distance, offset = row_scores(held_out.rows.with_scale(found.fit.scale), held_out.Y, resolution=0.0)
    return [
        (
            _within(observed, nominal, before[0], after[0], offset, found.radius(nominal, joint=False)),
            _within(observed.all(axis=1), nominal, before[1], after[1], distance, found.radius(nominal, joint=True)),
        )
        for nominal in CHECKED
    ]


def _within(known: Any, nominal: float, before: Any, after: Any, distance: Any, radius: np.ndarray) -> np.ndarray:
    """1 where a value is within its bound, else 0, (..., 3); NaN where y is not known or the radius is ∞."""
    conformal = np.where(np.isinf(radius), np.nan, distance <= radius)
    return np.where(known[..., None], np.stack([before <= nominal, after <= nominal, conformal], axis=-1), np.nan)


def _check(nominal: float, intervals: np.ndarray, regions: np.ndarray) -> CoverageCheck:
    complete = int(np.sum(~np.isnan(regions[:, 0])))
    errors = (math.sqrt(nominal * (1 - nominal) / rows) if rows else math.nan for rows in (len(intervals), complete))
    interval, region = (_fractions(part.reshape(-1, 3)) for part in (intervals, regions))
    error, region_error = errors
    return CoverageCheck(nominal, len(intervals), interval, region, error, complete, region_error)


def _fractions(inside: np.ndarray) -> tuple[float, float, float]:
    """Means of the columns without NaN; NaN for a column that has nothing else."""
    known = np.sum(~np.isnan(inside), axis=0)
    first, second, third = np.where(known > 0, np.nansum(inside, axis=0) / np.maximum(known, 1), np.nan).tolist()
    return first, second, third
