"""What a model keeps of its calibration: the factors, the conformal scores, and what they did to the coverage."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from mder_jax import calibration
from mder_jax._arrays import doubles, flag
from mder_jax.calibration import Scale, ScaleFit
from mder_jax.mixture import Mixture

CHECKED = (0.5, 0.9)
# The check is of at most so many rows, at least so many in each half, and takes a joint PIT from so many draws.
ROWS, FEWEST, DRAWS = 4000, 20, 500


class CoverageCheck(NamedTuple):
    """Share of held-out targets inside, at a nominal coverage: each half of the rows calibrated on the other half.

    Args:
      nominal: what it should be.
      rows: how many there are.
      interval: of the targets in their own central interval: before, with the factor, and conformal.
      region: of the rows in their joint region, the same three; NaN if no row has all targets.
      error: binomial standard error of these shares where they are as nominal.
    """

    nominal: float
    rows: int
    interval: tuple[float, float, float]
    region: tuple[float, float, float]
    error: float


class Calibration(NamedTuple):
    """What `MDERRegressor.calibrate` found.

    Args:
      fit: the factors on the predictive covariance.
      joint_scores: sorted conformal scores of all targets together, (K,).
      target_scores: of each target, (K, n), NaN where it was not observed.
      checks: coverage before and after.
    """

    fit: ScaleFit
    joint_scores: np.ndarray
    target_scores: np.ndarray
    checks: list[CoverageCheck]

    def __str__(self) -> str:
        lines = [str(self.fit), f"conformal scores of {len(self.joint_scores)} rows"]
        what = "before, with the factor, conformal" if self.checks else f"not checked, which takes {2 * FEWEST} rows"
        lines.append(f"coverage (each half calibrated on the other): {what}")
        for check in self.checks:
            shares = [" ".join(f"{share:6.1%}" for share in part) for part in (check.interval, check.region)]
            lines.append(
                f"  {check.nominal:.0%} +- {check.error:.1%}   intervals {shares[0]}   joint regions {shares[1]}"
            )
        return "\n".join(lines)


def calibrate(mixture: Mixture, y: np.ndarray, method: Any, separate: bool) -> Calibration:
    """Fit factors and scores to held-out rows: (M, N) members and targets (N, n), both standardised."""
    separate = flag("separate", separate)
    return Calibration(*_fit(mixture, y, method, separate), _checks(mixture, y, method, separate))


def _fit(mixture: Mixture, y: np.ndarray, method: Any, separate: bool) -> tuple[ScaleFit, np.ndarray, np.ndarray]:
    """A common factor cancels in conformal regions; two do not, and take rows of their own, every other one."""
    for_scale, for_scores = (np.s_[::2], np.s_[1::2]) if separate else (np.s_[:], np.s_[:])
    fit = calibration.fit_scale(_rows(mixture, for_scale), y[for_scale], method, separate)
    scaled, z = _rescale(_rows(mixture, for_scores), fit.scale), y[for_scores]
    complete = bool(np.isfinite(z).all(axis=1).any())
    joint = calibration.conformal_scores(scaled, z) if complete else np.empty(0, np.float32)
    return fit, np.asarray(joint), np.asarray(calibration.conformal_scores(scaled, z, joint=False))


def _rows(mixture: Mixture, rows: Any) -> Mixture:
    """The mixture of some rows, (M, N) members; by numpy, which has nothing to compile for each number of rows."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[:, rows], mixture)


_program = jax.jit(calibration.rescale)


def _rescale(mixture: Mixture, scale: Scale) -> Mixture:
    return _program(mixture, jax.tree.map(np.float32, scale))  # in the precision of the networks


class _Place(NamedTuple):
    """Where y lies: 2|F(y) − ½| and |y − mean|/std of each target, (N, n); joint PIT and distance, (N,)."""

    central: Any
    offset: Any
    joint_pit: Any
    distance: Any


@jax.jit
def _place(mixture: Mixture, y: Array) -> _Place:
    distance = mixture.mahalanobis(y)
    drawn = mixture.mahalanobis(mixture.sample(jax.random.key(0), DRAWS))
    return _Place(
        central=2 * jnp.abs(mixture.cdf(y) - 0.5),
        offset=jnp.abs(y - mixture.mean()) / mixture.std(),
        joint_pit=jnp.mean(drawn <= distance[None], axis=0),
        distance=distance,
    )


def _checks(mixture: Mixture, y: np.ndarray, method: Any, separate: bool) -> list[CoverageCheck]:
    """Coverage of each half of (at most some thousand) rows with the calibration of the other."""
    rows = np.flatnonzero(np.isfinite(y).any(axis=1))
    half = min(len(rows), ROWS) // 2
    if half < FEWEST:
        return []
    rows = rows[np.linspace(0, len(rows) - 1, 2 * half).astype(int)]
    places = []
    for fitted, tested in ((rows[::2], rows[1::2]), (rows[1::2], rows[::2])):
        fit, joint_scores, target_scores = _fit(_rows(mixture, fitted), y[fitted], method, separate)
        before, z = _rows(mixture, tested), y[tested]
        after = _rescale(before, fit.scale)
        radii = [
            [np.asarray(calibration.radius_of(scores, c)) if len(scores) else np.nan for c in CHECKED]
            for scores in (target_scores, joint_scores)
        ]
        both = (jax.tree.map(np.asarray, _place(each, z)) for each in (before, after))
        places.append((z, *both, *radii))
    return [_check(places, number) for number in range(len(CHECKED))]


def _check(places: list[Any], number: int) -> CoverageCheck:
    nominal = CHECKED[number]
    intervals, regions = [], []
    for z, before, after, target_radii, joint_radii in places:
        inside = (before.central <= nominal, after.central <= nominal, after.offset <= target_radii[number])
        intervals.append(np.stack(inside, axis=-1)[np.isfinite(z)])
        inside = (before.joint_pit <= nominal, after.joint_pit <= nominal, after.distance <= joint_radii[number])
        regions.append(np.stack(inside, axis=-1)[np.isfinite(z).all(axis=1)])
    interval, region = (np.concatenate(part) for part in (intervals, regions))
    rows = sum(len(place[0]) for place in places)
    return CoverageCheck(
        nominal=nominal,
        rows=rows,
        interval=tuple(interval.mean(axis=0).tolist()),
        region=tuple(region.mean(axis=0).tolist()) if len(region) else (math.nan,) * 3,
        error=math.sqrt(nominal * (1 - nominal) / rows),
    )


def to_document(found: Calibration) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What JSON can hold of a calibration, and its arrays."""
    document = {"fit": found.fit._asdict(), "checks": [check._asdict() for check in found.checks]}
    return document, {"joint_scores": found.joint_scores, "target_scores": found.target_scores}


def from_document(document: dict[str, Any], arrays: dict[str, np.ndarray], targets: int) -> Calibration:
    """The inverse of `to_document`; what is not as it was written raises a ValueError, TypeError or KeyError."""
    fields = document["fit"]
    factors = {name: Scale(*map(float, fields[name])) for name in ("scale", "standard_error", "lower", "upper")}
    rest = {"method": str(fields["method"]), "level": float(fields["level"]), "rows": int(fields["rows"])}
    joint, single = (
        doubles(name, arrays[name]).astype(arrays[name].dtype) for name in ("joint_scores", "target_scores")
    )
    if joint.ndim != 1 or single.ndim != 2 or single.shape[1] != targets:
        raise ValueError(f"conformal scores have shapes {joint.shape} and {single.shape} for {targets} targets")
    checks = [_read_check(check) for check in document["checks"]]
    return Calibration(ScaleFit(**fields | factors | rest), joint, single, checks)


def _read_check(fields: dict[str, Any]) -> CoverageCheck:
    numbers = {"nominal": float(fields["nominal"]), "rows": int(fields["rows"]), "error": float(fields["error"])}
    (a, b, c), (d, e, f) = (map(float, fields[name]) for name in ("interval", "region"))
    return CoverageCheck(**fields | numbers | {"interval": (a, b, c), "region": (d, e, f)})
