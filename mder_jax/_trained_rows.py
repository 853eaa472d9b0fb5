"""Whether rows are among those that a model was trained on, from 64 bits of each: calibrating on them means nothing."""

from typing import NamedTuple

import numpy as np

# So many rows are remembered at most, drawn evenly.
MOST = 1 << 16
# A share of trained rows below the first is let pass, above the second it is refused.
NOTICED, REFUSED = 0.05, 0.5
# Rows may be equal by chance: the share found must be less likely than this to be noticed.
CHANCE = 1e-3


class TrainedRows(NamedTuple):
    """What is remembered of the rows of a fit.

    Args:
      hashes: of some of them, sorted, uint64.
      rows: how many there were.
      repeated: the share of them that equal another one: a new row equals one of them as often.
    """

    hashes: np.ndarray
    rows: int
    repeated: float


def remember(X: np.ndarray, Y: np.ndarray, before: TrainedRows | None = None) -> TrainedRows:
    """The rows (X, Y) of a fit, and those of the fit that it went on from."""
    hashes = hashes_of(X, Y)
    _, place, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    repeated, rows = float(np.mean(counts[place] > 1)), len(hashes)
    if before is not None:
        hashes = np.unique(np.concatenate([hashes, before.hashes]))
        rows, repeated = max(rows, before.rows), max(repeated, before.repeated)
    kept = hashes[np.linspace(0, len(hashes) - 1, min(MOST, len(hashes))).astype(int)]
    return TrainedRows(np.sort(kept), rows, repeated)


def found_among(trained: TrainedRows, X: np.ndarray, Y: np.ndarray) -> tuple[int, float]:
    """How many of the rows the model was trained on, and their share beyond what equal rows explain.

    The share is 0 if equal rows, which data of categories and integers have, may well explain what was found.
    """
    from scipy.stats import binom

    hashes = hashes_of(X, Y)
    found = int(np.isin(hashes, trained.hashes).sum())
    seen = min(1.0, len(trained.hashes) / trained.rows)  # of the trained rows are remembered
    expected = (trained.repeated * trained.rows + 1) / (trained.rows + 1)
    if found == 0 or binom.sf(found - 1, len(hashes), expected) > CHANCE:
        return found, 0.0
    return found, min(1.0, found / seen / len(hashes)) - trained.repeated


def hashes_of(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """64 bits of each row of the table [X, Y], (N,) uint64: equal rows have equal ones, NaN equals NaN, −0 equals 0."""
    numbers = np.concatenate([np.asarray(X, np.float64), np.asarray(Y, np.float64)], axis=1) + 0.0
    numbers[np.isnan(numbers)] = np.nan
    mixed = np.zeros(len(numbers), np.uint64)
    for column in np.ascontiguousarray(numbers.T).view(np.uint64):
        mixed = _scramble(mixed ^ _scramble(column))
    return mixed


def _scramble(bits: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014)."""
    bits = bits + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
