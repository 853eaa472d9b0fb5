"""What a model keeps of its calibration: the factors, the conformal scores, and their effect on the coverage."""

import math
from typing import Any, NamedTuple

import numpy as np

from mder_jax import calibration
from mder_jax._checks import doubles
from mder_jax.calibration import Scale, ScaleFit
from mder_jax.estimator.cross_conformal import FoldModel, MemberFold, guarantee

# The coverage is checked if each half of the calibration rows has at least this many.
FEWEST = 20


class CoverageCheck(NamedTuple):
    """Fraction of held-out targets inside, at a nominal coverage: each half of the rows calibrated on the other half.

    Args:
      nominal: what it should be.
      rows: their number.
      interval: of the targets in their central interval: before, with the factor, and conformal; NaN where there are
        too few rows.
      region: of the complete rows in their joint region, the same three.
      error: binomial standard error of the fractions of intervals where they are as nominal.
      region_rows: the number of complete rows.
      region_error: the error of the fractions of regions.
    """

    nominal: float
    rows: int
    interval: tuple[float, float, float]
    region: tuple[float, float, float]
    error: float
    region_rows: int = 0
    region_error: float = math.nan

    def __str__(self) -> str:
        fractions = [" ".join(map(_percent, part)) for part in (self.interval, self.region)]
        errors = [f"+- {error:.1%}" if error > 0 else "" for error in (self.error, self.region_error)]
        intervals, regions = (f"{both[0]} {both[1]}" for both in zip(fractions, errors, strict=True))
        return f"  {self.nominal:.0%}   intervals {intervals}   joint regions {regions}"


def _percent(fraction: float) -> str:
    return "     –" if math.isnan(fraction) else f"{fraction:6.1%}"


class Calibration(NamedTuple):
    """What `MDERRegressor.calibrate` found.

    Args:
      fit: the factors on the predictive covariance.
      joint_scores: sorted conformal scores of all targets together, (K,).
      target_scores: of each target, (K, n), NaN where it was not observed.
      checks: coverage before and after.
      notes: what the user was warned of, such as why the covariance was left as it is.
      has_trained_rows: some of the rows were rows of the fit, so the coverage was not checked.
      folds: models that were each fitted without one fold of the rows, or members that held out one, if it is
        cross-conformal; they make the intervals of each target.
    """

    fit: ScaleFit
    joint_scores: np.ndarray
    target_scores: np.ndarray
    checks: list[CoverageCheck]
    notes: tuple[str, ...] = ()
    has_trained_rows: bool = False
    folds: tuple[FoldModel, ...] | tuple[MemberFold, ...] = ()

    @property
    def by_members(self) -> bool:
        """Whether the folds are rows that members of the model itself held out."""
        return any(isinstance(fold, MemberFold) for fold in self.folds)

    def _scores(self, joint: bool) -> np.ndarray:
        return self.joint_scores if joint else self.target_scores

    def radius(self, coverage: float, joint: bool) -> np.ndarray:
        """The conformal radius, () or of each target (n,); ∞ where there are too few scores for this coverage."""
        return calibration.radius_from(self._scores(joint), coverage)

    def widest(self, joint: bool) -> np.ndarray:
        """The largest score, () or (n,), 0 if there is none."""
        return np.max(np.nan_to_num(self._scores(joint)), axis=0, initial=0.0)

    def counts(self, joint: bool) -> np.ndarray:
        """The number of scores, () or of each target (n,)."""
        return np.sum(~np.isnan(self._scores(joint)), axis=0)

    def shortage(self, coverage: float, joint: bool, names: tuple[str, ...]) -> str:
        """Which targets have too few scores for this coverage, and what is used instead."""
        needed, counts = calibration.rows_needed(coverage), self.counts(joint)
        if joint or (counts < needed).all():
            there = f"{counts.min()} {'is' if counts.min() == 1 else 'are'} there"
            used = f"{there}: the model's own distribution is used"
        else:
            few = [f"{name!r} has {count}" for name, count in zip(names, counts, strict=True) if count < needed]
            used = f"{', '.join(few)}: for {'it' if len(few) == 1 else 'them'} the model's own quantiles are used"
        which = "complete calibration rows" if joint else "calibration rows"
        return f"conformal coverage {coverage:g} needs {needed} {which}; {used}"

    def __str__(self) -> str:
        counts = self.counts(joint=False)
        each = f"{counts[0]}" if np.all(counts == counts[0]) else ", ".join(map(str, counts))
        reason = "see the note" if self.has_trained_rows else f"which needs {2 * FEWEST} rows"
        checked = "before, with the factor, conformal" if self.checks else f"not checked, {reason}"
        lines = [
            *([] if math.isnan(self.fit.standard_error.within) else [str(self.fit)]),
            *(f"NOTE: {note}" for note in self.notes),
            f"conformal scores: {each} of each target, {len(self.joint_scores)} of complete rows",
        ]
        if self.folds:
            return "\n".join([*lines, *self._about_folds()])
        return "\n".join(
            [*lines, f"coverage of these rows (each half calibrated on the other): {checked}", *map(str, self.checks)]
        )

    def _about_folds(self) -> list[str]:
        if self.by_members:
            return [
                f"cross-conformal, {len(self.folds)} folds that members held out: as a rule intervals hold what they "
                "say, or more",
                "these rows also chose when training stopped: no guarantee; the covariance stays as it is",
            ]
        count, rows = len(self.folds), int(self.counts(joint=False).min())
        least = guarantee(0.9, count, rows) if rows else 0.0
        held = f"at least {least:.1%} of exchangeable rows, as a rule about 90%"
        return [
            f"cross-conformal, {count} folds: 90% intervals of each target hold {held}",
            "joint regions have no such guarantee",
        ]


def to_document(found: Calibration) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What JSON can hold of a calibration, and its arrays."""
    document = {
        "fit": found.fit._asdict(),
        "checks": [check._asdict() for check in found.checks],
        "notes": list(found.notes),
        "has_trained_rows": found.has_trained_rows,
    }
    return document, {"joint_scores": found.joint_scores, "target_scores": found.target_scores}


def from_document(document: dict[str, Any], arrays: dict[str, np.ndarray], targets: int) -> Calibration:
    """The inverse of `to_document`; anything else raises a ValueError, TypeError or KeyError."""
    fields = document["fit"]
    factors = {name: Scale(*map(float, fields[name])) for name in ("scale", "standard_error", "lower", "upper")}
    rest = {"method": str(fields["method"]), "level": float(fields["level"]), "rows": int(fields["rows"])}
    joint, single = (_read_scores(name, arrays[name]) for name in ("joint_scores", "target_scores"))
    if joint.ndim != 1 or single.ndim != 2 or single.shape[1] != targets:
        raise ValueError(f"conformal scores have shapes {joint.shape} and {single.shape} for {targets} targets")
    checks = [_read_check(check) for check in document["checks"]]
    notes = tuple(str(note) for note in document.get("notes", ()))
    trained = bool(document.get("has_trained_rows", False))
    return Calibration(ScaleFit(**fields | factors | rest), joint, single, checks, notes, trained)


def _read_scores(name: str, scores: np.ndarray) -> np.ndarray:
    """In double precision; files of version 0.1.0 have them in single precision, not rounded up."""
    return doubles(name, scores) * (1 + 1e-5 if scores.dtype == np.float32 else 1)


def _read_check(fields: dict[str, Any]) -> CoverageCheck:
    """Files of version 0.1.0 do not hold the number of complete rows."""
    fields = {"region_rows": fields["rows"], "region_error": fields["error"]} | fields
    numbers = {name: float(fields[name]) for name in ("nominal", "error", "region_error")}
    counts = {name: int(fields[name]) for name in ("rows", "region_rows")}
    (a, b, c), (d, e, f) = (map(float, fields[name]) for name in ("interval", "region"))
    return CoverageCheck(**fields | numbers | counts | {"interval": (a, b, c), "region": (d, e, f)})
