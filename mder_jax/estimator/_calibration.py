"""What a model keeps of its calibration: the factors, the conformal scores, and what they did to the coverage.

Scores are taken from the same numbers, in double precision and original units, that intervals and regions are made of.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from mder_jax import calibration
from mder_jax._checks import doubles, flag
from mder_jax.calibration import Scale, ScaleFit
from mder_jax.estimator._predictor import Predictor
from mder_jax.mixture import Mixture, tail_of_radius

CHECKED = (0.5, 0.9)
# The check is of at most so many rows, at least so many in each half.
ROWS, FEWEST = 4000, 20
# Fewer rows do not determine the scale of the covariance: 90 % intervals scaled by one or two of them hold 70 %.
FEWEST_FOR_SCALE = 10
# The same if the standard error of ln factor is larger.
LARGEST_ERROR = 1.0
# Scores are rounded up by so much of themselves, and of a standard deviation of the target: the precision of networks.
RESOLUTION = 1e-6


class CoverageCheck(NamedTuple):
    """Share of held-out targets inside, at a nominal coverage: each half of the rows calibrated on the other half.

    Args:
      nominal: what it should be.
      rows: how many there are.
      interval: of the targets in their own central interval: before, with the factor, and conformal; NaN where it
        cannot be told.
      region: of the complete rows in their joint region, the same three.
      error: binomial standard error of the shares of intervals where they are as nominal.
      region_rows: how many rows are complete.
      region_error: the error of the shares of regions.
    """

    nominal: float
    rows: int
    interval: tuple[float, float, float]
    region: tuple[float, float, float]
    error: float
    region_rows: int = 0
    region_error: float = math.nan


class Calibration(NamedTuple):
    """What `MDERRegressor.calibrate` found.

    Args:
      fit: the factors on the predictive covariance.
      joint_scores: sorted conformal scores of all targets together, (K,).
      target_scores: of each target, (K, n), NaN where it was not observed.
      checks: coverage before and after.
      notes: what the user was warned of, such as why the covariance was left as it is.
    """

    fit: ScaleFit
    joint_scores: np.ndarray
    target_scores: np.ndarray
    checks: list[CoverageCheck]
    notes: tuple[str, ...] = ()

    def radius(self, coverage: float, joint: bool) -> np.ndarray:
        """The conformal radius, () or of each target (n,); ∞ where there are too few scores for this coverage."""
        return calibration.radius_from(self.joint_scores if joint else self.target_scores, coverage)

    def counts(self, joint: bool) -> np.ndarray:
        """How many scores there are, () or of each target (n,)."""
        return np.sum(~np.isnan(self.joint_scores if joint else self.target_scores), axis=0)

    def __str__(self) -> str:
        counts = self.counts(joint=False)
        each = f"{counts[0]}" if np.all(counts == counts[0]) else ", ".join(map(str, counts))
        lines = [
            *([] if math.isnan(self.fit.standard_error.within) else [str(self.fit)]),
            *(f"NOTE: {note}" for note in self.notes),
            f"conformal scores: {each} of each target, {len(self.joint_scores)} of complete rows",
        ]
        known = any("rows of the fit" in note for note in self.notes)
        why = "see the note" if known else f"which takes {2 * FEWEST} rows"
        what = "before, with the factor, conformal" if self.checks else f"not checked, {why}"
        lines.append(f"coverage of these rows (each half calibrated on the other): {what}")
        for check in self.checks:
            shares = [" ".join(_percent(share) for share in part) for part in (check.interval, check.region)]
            errors = [f"+- {error:.1%}" if error > 0 else "" for error in (check.error, check.region_error)]
            lines.append(
                f"  {check.nominal:.0%}   intervals {shares[0]} {errors[0]}   joint regions {shares[1]} {errors[1]}"
            )
        return "\n".join(lines)


def _percent(share: float) -> str:
    return "     –" if math.isnan(share) else f"{share:6.1%}"


class Rows(NamedTuple):
    """Held-out rows with what a model says of them before calibration.

    Args:
      predictor: with factors of 1.
      X: (N, d).
      Y: (N, n), at least one target of each row observed.
      members: the members' NIW of standardised targets, (M, N).
    """

    predictor: Predictor
    X: np.ndarray
    Y: np.ndarray
    members: Mixture

    def some(self, rows: Any) -> "Rows":
        """Some of them; by numpy, which has nothing to compile for each number of rows."""
        members = jax.tree.map(lambda leaf: np.asarray(leaf)[:, rows], self.members)
        return Rows(self.predictor, self.X[rows], self.Y[rows], members)

    @property
    def targets(self) -> np.ndarray:
        """Standardised, in float32."""
        return self.predictor.targets.forward(self.Y)


def calibrate(
    predictor: Predictor, X: np.ndarray, Y: np.ndarray, method: Any, separate: bool, known: str = ""
) -> Calibration:
    """Fit factors and scores to held-out rows.

    Args:
      predictor: with factors of 1.
      X: (N, d).
      Y: (N, n), NaN where a target was not observed.
      method: of `calibration.fit_scale`.
      separate: two factors.
      known: why the coverage of these rows says nothing, if so.
    """
    separate = flag("separate", separate)
    observed = np.isfinite(Y).any(axis=1)
    if not observed.any():
        raise ValueError(f"at least one row with an observed target is needed; all {len(Y)} have only NaN")
    X, Y = X[observed], Y[observed]
    rows = Rows(predictor, X, Y, predictor.standardized(X))
    finite = np.isfinite(predictor.uncertainty(X).total).all(axis=(1, 2))
    notes = [known] if known else []
    if not finite.any():
        raise ValueError(f"no prediction of these {len(X)} rows is finite; are they like those of the fit?")
    if not finite.all():
        rows = rows.some(np.flatnonzero(finite))
        notes.append(f"{np.sum(~finite)} of {len(finite)} rows have no finite prediction and are left out")
    fit, scores, note = _fit(rows, method, separate)
    checks = [] if known else _checks(rows, method, separate)
    return Calibration(fit, *scores, checks, (*([note] if note else []), *notes))


def _fit(rows: Rows, method: Any, separate: bool) -> tuple[ScaleFit, tuple[np.ndarray, np.ndarray], str]:
    """A common factor cancels in conformal regions; two do not, and take rows of their own, every other one."""
    for_scale, for_scores = (np.s_[::2], np.s_[1::2]) if separate and len(rows.X) > 1 else (np.s_[:], np.s_[:])
    fit, note = _scale(rows.some(for_scale), method, separate)
    part = rows.some(for_scores)
    joint, single = row_scores(part.predictor.with_scale(fit.scale), part.X, part.Y)
    return fit, (_sorted(joint), _sorted(single)), note


def _scale(rows: Rows, method: Any, separate: bool) -> tuple[ScaleFit, str]:
    """The factors, or 1 and why, if these rows do not determine them."""
    count, fewest = len(rows.X), FEWEST_FOR_SCALE * (1 + separate)
    calibration.check_method(method, separate, rows.members)
    if count < fewest:
        these = "1 calibration row does" if count == 1 else f"{count} calibration rows do"
        reason = f"{these} not determine the scale of the covariance"
        return _unscaled(count, method, separate), f"{reason}, which stays as it is; give at least {fewest}, better 50"
    try:
        fit = calibration.fit_scale(rows.members, rows.targets, method, separate)
    except ValueError as error:
        return _unscaled(count, method, separate), f"the scale of the covariance stays as it is: {error}"
    errors = [error / factor for error, factor in zip(fit.standard_error, fit.scale, strict=True)]
    if max(errors) > LARGEST_ERROR:
        part = errors.index(max(errors))
        what = ("scale of the members' own covariance", "scale of their disagreement")[part]
        found = f"a factor of {fit.scale[part]:.3g}, from {fit.lower[part]:.3g} to {fit.upper[part]:.3g}"
        reason = f"these {count} rows do not determine the {what if separate else 'scale of the covariance'} ({found})"
        remedy = "give more rows, or separate=False for one factor" if separate else "give more rows"
        return _unscaled(count, method, separate), f"{reason}; the covariance stays as it is; {remedy}"
    return fit, ""


def _unscaled(rows: int, method: str, separate: bool) -> ScaleFit:
    one, unknown = Scale(1.0, 1.0), Scale(math.nan, math.nan)
    return ScaleFit(one, unknown, unknown, unknown, method, separate, 0.95, rows)


def row_scores(predictor: Predictor, X: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores of rows, (N,), and of their targets, (N, n), rounded up by what networks cannot tell; NaN if missing."""
    unit, complete = predictor.targets.std, np.isfinite(Y).all(axis=1)
    parts = predictor.uncertainty(X)
    single = (np.abs(Y - parts.mean) + RESOLUTION * unit) / parts.std * (1 + RESOLUTION)
    joint = np.full(len(X), np.nan)
    if complete.any():
        region = predictor.ellipsoids(X[complete])
        unresolved = np.linalg.norm(np.linalg.solve(region.scale_tril, np.diag(unit)[None]), axis=(1, 2))
        joint[complete] = (region.distance(Y[complete]) + RESOLUTION * unresolved) * (1 + RESOLUTION)
    return joint, single


def _sorted(scores: np.ndarray) -> np.ndarray:
    """Along the rows, NaN last and without rows of nothing else."""
    return np.sort(scores, axis=0)[: int(np.sum(~np.isnan(scores), axis=0).max())]


class _Place(NamedTuple):
    """Where y lies: 2|F(y) − ½| of each target, (N, n), and its joint PIT, (N,)."""

    central: Any
    joint_pit: Any


@jax.jit
def _place(members: Mixture, scale: Scale, y: Array) -> _Place:
    mixture = calibration.rescale(members, scale)
    return _Place(2 * jnp.abs(mixture.cdf(y) - 0.5), 1 - tail_of_radius(mixture, mixture.mahalanobis(y)))


def _checks(rows: Rows, method: Any, separate: bool) -> list[CoverageCheck]:
    """Coverage of each half of (at most some thousand) rows, drawn at random, with the calibration of the other."""
    half = min(len(rows.X), ROWS) // 2
    if half < FEWEST:
        return []
    order = np.random.default_rng(0).permutation(len(rows.X))[: 2 * half]
    parts = []
    for fitted, tested in ((order[:half], order[half:]), (order[half:], order[:half])):
        fit, scores, _ = _fit(rows.some(fitted), method, separate)
        parts.append(_inside(rows.some(tested), fit, Calibration(fit, *scores, [])))
    return [
        _check(nominal, *(np.concatenate(both) for both in zip(*part, strict=True)))
        for nominal, part in zip(CHECKED, zip(*parts, strict=True), strict=True)
    ]


def _inside(rows: Rows, fit: ScaleFit, found: Calibration) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each nominal coverage whether y is inside, 1, 0 or NaN: (N, n, 3) for intervals and (N, 3) for regions."""
    z, scaled = rows.targets, rows.predictor.with_scale(fit.scale)
    scales = (jax.tree.map(np.float32, scale) for scale in (Scale(1.0, 1.0), fit.scale))
    before, after = (_place(rows.members, scale, z) for scale in scales)
    parts = scaled.uncertainty(rows.X)
    offset = np.abs(rows.Y - parts.mean) / parts.std
    complete = np.isfinite(rows.Y).all(axis=1)
    distance = np.full(len(rows.Y), np.nan)
    if complete.any():
        distance[complete] = scaled.ellipsoids(rows.X[complete]).distance(rows.Y[complete])
    made = []
    for nominal in CHECKED:
        single, joint = (found.radius(nominal, joint) for joint in (False, True))
        intervals = [_within(before.central, nominal), _within(after.central, nominal), _within(offset, single)]
        regions = [_within(before.joint_pit, nominal), _within(after.joint_pit, nominal), _within(distance, joint)]
        known = np.isfinite(rows.Y)
        made.append(
            (
                np.where(known[..., None], np.stack(intervals, axis=-1), np.nan),
                np.where(complete[:, None], np.stack(regions, axis=-1), np.nan),
            )
        )
    return made


def _within(values: Any, bound: Any) -> np.ndarray:
    """1 where value ≤ bound, else 0; NaN where the bound is ∞, since nothing was asked then."""
    return np.where(np.isinf(bound), np.nan, np.asarray(values) <= bound)


def _check(nominal: float, intervals: np.ndarray, regions: np.ndarray) -> CoverageCheck:
    values, complete = (int(np.sum(~np.isnan(part[..., 0]))) for part in (intervals, regions))
    spread = nominal * (1 - nominal)
    return CoverageCheck(
        nominal=nominal,
        rows=len(intervals),
        interval=_shares(intervals.reshape(-1, 3)),
        region=_shares(regions),
        error=math.sqrt(spread / len(intervals)) if values else math.nan,
        region_rows=complete,
        region_error=math.sqrt(spread / complete) if complete else math.nan,
    )


def _shares(inside: np.ndarray) -> tuple[float, float, float]:
    """Means of the columns without NaN; NaN for a column that has nothing else."""
    known = np.sum(~np.isnan(inside), axis=0)
    first, second, third = np.where(known > 0, np.nansum(inside, axis=0) / np.maximum(known, 1), np.nan).tolist()
    return first, second, third


def to_document(found: Calibration) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What JSON can hold of a calibration, and its arrays."""
    document = {
        "fit": found.fit._asdict(),
        "checks": [check._asdict() for check in found.checks],
        "notes": list(found.notes),
    }
    return document, {"joint_scores": found.joint_scores, "target_scores": found.target_scores}


def from_document(document: dict[str, Any], arrays: dict[str, np.ndarray], targets: int) -> Calibration:
    """The inverse of `to_document`; what is not as it was written raises a ValueError, TypeError or KeyError."""
    fields = document["fit"]
    factors = {name: Scale(*map(float, fields[name])) for name in ("scale", "standard_error", "lower", "upper")}
    rest = {"method": str(fields["method"]), "level": float(fields["level"]), "rows": int(fields["rows"])}
    joint, single = (_read_scores(name, arrays[name]) for name in ("joint_scores", "target_scores"))
    if joint.ndim != 1 or single.ndim != 2 or single.shape[1] != targets:
        raise ValueError(f"conformal scores have shapes {joint.shape} and {single.shape} for {targets} targets")
    checks = [_read_check(check) for check in document["checks"]]
    notes = tuple(str(note) for note in document.get("notes", ()))
    return Calibration(ScaleFit(**fields | factors | rest), joint, single, checks, notes)


def _read_scores(name: str, scores: np.ndarray) -> np.ndarray:
    """In double precision; files of version 0.1.0 have them in single precision, not rounded up."""
    return doubles(name, scores) * (1 + 1e-5 if scores.dtype == np.float32 else 1)


def _read_check(fields: dict[str, Any]) -> CoverageCheck:
    """Files of version 0.1.0 do not tell how many rows were complete."""
    fields = {"region_rows": fields["rows"], "region_error": fields["error"]} | fields
    numbers = {name: float(fields[name]) for name in ("nominal", "error", "region_error")}
    counts = {name: int(fields[name]) for name in ("rows", "region_rows")}
    (a, b, c), (d, e, f) = (map(float, fields[name]) for name in ("interval", "region"))
    return CoverageCheck(**fields | numbers | counts | {"interval": (a, b, c), "region": (d, e, f)})
