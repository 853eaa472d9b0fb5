"""All scores of a prediction as a value that prints as a table."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jax import Array

from mder_jax.metrics.scores import CalibrationCurve, Coverage, Estimate, Sparsification


class Report(NamedTuple):
    """All scores of a prediction; `str` of it is a table. Means over rows come as an `Estimate` with their error.

    nll, energy_score, variogram_score, joint_coverage and joint_pit (N,) are of all targets at once. The others have
    one value per target, (n,), except pit (N, n) and the two curves.

    Example:
      >>> [name for name in Report._fields if name.startswith("joint")]
      ['joint_coverage', 'joint_pit']
    """

    names: tuple[str, ...]
    level: float
    nll: Estimate
    energy_score: Estimate
    variogram_score: Estimate
    joint_coverage: Estimate
    joint_pit: Array
    rmse: Array
    crps: Estimate
    interval_score: Estimate
    coverage: Coverage
    pit: Array
    calibration_curve: CalibrationCurve
    calibration_error: Array
    ence: Array
    sparsification: Sparsification
    ause: Array
    sharpness: Array

    def __str__(self) -> str:
        at = f" at {self.level:g}"
        joint = [
            ("nll", self.nll),
            ("energy score", self.energy_score),
            *([("variogram score", self.variogram_score)] if len(self.names) > 1 else []),
            ("joint coverage" + at, self.joint_coverage),
        ]
        single = [
            ("rmse", self.rmse),
            ("crps", self.crps),
            ("interval score" + at, self.interval_score),
            ("coverage" + at, Estimate(*self.coverage[:2])),
            ("mean width" + at, self.coverage.width),
            ("calibration error", self.calibration_error),
            ("ence", self.ence),
            ("ause", self.ause),
            ("sharpness", self.sharpness),
        ]
        rows = f"{len(self.joint_pit)} rows"
        return _table(rows, ["all targets"], joint) + "\n\n" + _table("each target", self.names, single)


def _table(title: str, names: Sequence[str], rows: Sequence[tuple[str, Any]]) -> str:
    """Lines of a label and a cell for each name, in columns."""
    lines = [[title, *names], *([label, *cells(values)] for label, values in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def cells(values: Array | Estimate) -> list[str]:
    """Each target's value, with its standard error if there is one."""
    if isinstance(values, Estimate):
        both = zip(*map(np.atleast_1d, values), strict=True)
        return [f"{value:.4g} ± {error:.2g}" for value, error in both]
    return [f"{value:.4g}" for value in np.asarray(values)]
