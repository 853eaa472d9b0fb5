"""Cross-conformal intervals, CV+: each row is scored by a model that was fitted without the fold it is in.

Barber, Candès, Ramdas and Tibshirani (2021), "Predictive inference with the jackknife+", Theorem 4. All of it is in the
units that networks have learned. The models are fitted for this, or they are those members of the ensemble that held
out the row; a mean over all of these is that of Kim, Xu and Barber (2020), the jackknife+ after bootstrap.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mder_jax.columns import Encoding
from mder_jax.student_t import Interval

# Halvings of the bracket around an end, which is then exact to 2e-16 of the bracket, and rounded outwards.
HALVINGS = 52


class FoldModel(NamedTuple):
    """A model that was fitted without the rows of one fold.

    Args:
      encoding: of the columns, learnt from its own rows.
      predictor: a `Predictor` without a transform, with factors of 1.
      scores: ``|y − mean|/std`` of the fold's rows, (K, n), sorted for each target, NaN at the end.
    """

    encoding: Encoding
    predictor: Any
    scores: np.ndarray

    def rows(self, table: Any, keep: bool = False) -> Any:
        """What it predicts for the rows of a table, `PredictedRows`."""
        return self.predictor.rows(self.encoding.encode(table, quiet=True), keep)


class MemberFold(NamedTuple):
    """Members of the model itself, and the rows that these and no others held out.

    Args:
      members: indices of the networks.
      scores: as in `FoldModel`.
      beside: the model's `Beside` without these rows, if it has one.
    """

    members: tuple[int, ...]
    scores: np.ndarray
    beside: Any = None

    def rows(self, whole: Any) -> Any:
        """What they predict for the rows, `PredictedRows`, given what all members do, with kept outputs."""
        return whole.of_members(self.members, self.beside)


def guarantee(coverage: float, folds: int, rows: int) -> float:
    """1 − 2α − min{2(1 − 1/K)/(N/K + 1), (1 − K/N)/(K + 1)}, or 0: the least coverage of CV+ at the nominal 1 − α.

    For K folds of equal size that do not depend on the N rows, and a new row that is exchangeable with them.
    """
    size = rows / folds
    slack = min(2 * (1 - 1 / folds) / (size + 1), (1 - 1 / size) / (folds + 1))
    return max(0.0, 1 - 2 * (1 - coverage) - slack)


def interval(moments: Sequence[tuple[np.ndarray, np.ndarray]], scores: Sequence[np.ndarray], rank: Any) -> Interval:
    """Ends (N, n): the `rank`-th smallest of all μ_k + R σ_k, and the `rank`-th largest of all μ_k − R σ_k.

    Where they cross, which takes a coverage below a half, both are in the middle. The interval is empty, from ∞ to −∞,
    for a target without scores.

    Args:
      moments: mean μ_k and standard deviation σ_k, (N, n) both, by the model of each fold.
      scores: of each fold, (K, n), as in `FoldModel`.
      rank: (n,), at most the number of scores of each target.
    """
    upper = _ends(moments, scores, rank)
    lower = -_ends([(-mean, std) for mean, std in moments], scores, rank)
    crossed = (lower > upper) & np.isfinite(lower) & np.isfinite(upper)
    middle = 0.5 * (np.where(crossed, lower, 0.0) + np.where(crossed, upper, 0.0))
    return Interval(np.where(crossed, middle, lower), np.where(crossed, middle, upper))  # type: ignore[arg-type]


def _ends(moments: Sequence[tuple[np.ndarray, np.ndarray]], scores: Sequence[np.ndarray], rank: Any) -> np.ndarray:
    columns = []
    for j, place in enumerate(rank):
        own = [fold[~np.isnan(fold[:, j]), j] for fold in scores]
        lists = [(mean[:, j], std[:, j], R) for (mean, std), R in zip(moments, own, strict=True) if len(R)]
        columns.append(smallest(lists, int(place)) if lists else np.full(len(moments[0][0]), -np.inf))
    return np.stack(columns, axis=1)


def smallest(lists: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]], rank: int) -> np.ndarray:
    """The `rank`-th smallest value, (N,), of the union of the lists mean + std R, by bisection on the number below.

    The union is not formed. Of a list that has s of all S values take the ⌈rank s/S⌉-th: the largest of these is not
    below the value that is wanted. The smallest of the (⌊(rank − 1) s/S⌋ + 1)-th ones is not above it.

    Args:
      lists: mean, (N,), std, (N,), and R, (s,), which is sorted; where a mean or std is not finite, all values are ∞.
      rank: from 1 to S.
    """
    known = [np.isfinite(mean) & np.isfinite(std) & (std > 0) for mean, std, _ in lists]
    total = sum(known_here * len(R) for known_here, (_, _, R) in zip(known, lists, strict=True))
    enough = np.asarray(total) >= rank
    total, low, high = np.where(enough, total, rank), np.full(len(enough), np.inf), np.full(len(enough), -np.inf)
    with np.errstate(all="ignore"):
        for here, (mean, std, R) in zip(known, lists, strict=True):
            first, last = R[(rank - 1) * len(R) // total], R[-(-rank * len(R) // total) - 1]
            low = np.where(here, np.minimum(low, mean + std * first), low)
            high = np.where(here, np.maximum(high, mean + std * last), high)
        for _ in range(HALVINGS):
            middle = low + 0.5 * (high - low)
            counts = [np.searchsorted(R, (middle - mean) / std, "right") for mean, std, R in lists]
            below = np.sum(np.where(known, counts, 0), axis=0)
            low, high = np.where(below >= rank, low, middle), np.where(below >= rank, middle, high)
    return np.where(enough, high, np.inf)
