"""Comparisons over splits with a test and an interval, and the published numbers of part A."""

import math
from typing import Any, NamedTuple

import numpy as np

# Hernández-Lobato and Adams 2015, Gal and Ghahramani 2016, Mukhoti et al. 2018, Lakshminarayanan et al. 2017, Duan et
# al. 2020; and whether what they print after ± is the standard deviation over splits, or the standard error.
SOURCES = {
    **{"PBP": "error", "MC dropout 2016": "error", "MC dropout 2018": "error"},
    **{"Deep Ensembles 2017": "deviation", "NGBoost": "deviation"},
}
_SPLITS = {"protein": 5}
# NLL in the unit of the target on the same seeded splits as each of the sources prints it.
_PRINTED = {
    "boston": ((2.57, 0.09), (2.46, 0.06), (2.40, 0.04), (2.41, 0.25), (2.43, 0.15)),
    "concrete": ((3.16, 0.02), (3.04, 0.02), (2.93, 0.02), (3.06, 0.18), (3.04, 0.17)),
    "energy": ((2.04, 0.02), (1.99, 0.02), (1.21, 0.01), (1.38, 0.22), (0.60, 0.45)),
    "kin8nm": ((-0.90, 0.01), (-0.95, 0.01), (-1.14, 0.01), (-1.20, 0.02), (-0.49, 0.02)),
    "naval": ((-3.73, 0.01), (-3.80, 0.01), (-4.45, 0.00), (-5.63, 0.05), (-5.34, 0.04)),
    "power": ((2.84, 0.01), (2.80, 0.01), (2.80, 0.01), (2.79, 0.04), (2.79, 0.11)),
    "protein": ((2.97, 0.00), (2.89, 0.00), (2.87, 0.00), (2.83, 0.02), (2.81, 0.03)),
    "wine-red": ((0.97, 0.01), (0.93, 0.01), (0.93, 0.01), (0.94, 0.12), (0.91, 0.06)),
    "yacht": ((1.63, 0.02), (1.55, 0.03), (1.25, 0.01), (1.18, 0.21), (0.20, 0.26)),
}
# Joint NLL of a constant covariance around ridge and ExtraTrees means, the better of diagonal and full, as given with
# the tables: (ridge, ExtraTrees).
REFERENCES = {
    "energy": (0.103, -1.811),
    "naval": (0.492, -2.672),
    "births1": (2.382, 2.430),
    "slump": (1.898, 2.148),
    "ansur2": (1.794, 1.915),
}


class Difference(NamedTuple):
    """A mean difference over splits, its 95 % interval, and the p of no difference; infinite where it is not known."""

    mean: float
    low: float
    high: float
    p: float

    @property
    def tied(self) -> bool:
        """Whether the interval holds 0."""
        return self.low <= 0 <= self.high

    def __str__(self) -> str:
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def published(table: str) -> dict[str, tuple[float, float, int]]:
    """Mean, its standard error and number of splits of the NLL of a table, by source; empty if none is published."""
    if table not in _PRINTED:
        return {}
    splits = _SPLITS.get(table, 20)
    divisors = {"error": 1.0, "deviation": math.sqrt(splits)}
    printed = zip(SOURCES.items(), _PRINTED[table], strict=True)
    return {source: (mean, spread / divisors[what], splits) for (source, what), (mean, spread) in printed}


def standard_error(values: Any) -> float:
    """Of the mean over splits."""
    values = np.asarray(values, float)
    with np.errstate(invalid="ignore"):  # one that is not finite has no error
        return float(np.std(values, ddof=1) / math.sqrt(len(values)))


def paired(ours: Any, theirs: Any, training_rows: int, test_rows: int) -> Difference:
    """ours − theirs over the splits that both have, by the corrected resampled t-test of Nadeau and Bengio (2003).

    Training parts overlap, so the differences of two splits are not independent: the variance of their mean is taken
    as s² (1/S + test rows / training rows) in place of s²/S.
    """
    count = min(len(ours), len(theirs))
    difference = np.asarray(ours[:count], float) - np.asarray(theirs[:count], float)
    mean = float(difference.mean())
    if count < 2 or not np.isfinite(difference).all():
        return Difference(mean, -math.inf, math.inf, math.nan)
    return _tested(mean, math.sqrt(np.var(difference, ddof=1) * (1 / count + test_rows / training_rows)), count - 1)


def against_published(ours: Any, mean: float, error: float, splits: int) -> Difference:
    """The mean of ours minus a published mean with its standard error over N splits, by Welch's t-test."""
    own = standard_error(ours)
    both = math.hypot(own, error)
    df = both**4 / (own**4 / (len(ours) - 1) + error**4 / (splits - 1))
    return _tested(float(np.mean(ours)) - mean, both, df)


def _tested(mean: float, error: float, df: float) -> Difference:
    """A mean difference with its standard error, by a t-test."""
    from scipy import stats

    half = float(stats.t.ppf(0.975, df)) * error
    p = 1.0 if mean == 0 else 0.0 if error == 0 else 2 * float(stats.t.sf(abs(mean) / error, df))
    return Difference(mean, mean - half, mean + half, p)
