"""Whether a model was trained on given rows, from 64 bits of each: calibrating on such rows is meaningless.

Rows are compared in steps of 1e-4 standard deviations of each column, so that other precisions and few digits do not
hide them. Rows may also be equal by chance, as categories and integers are: how often is estimated from the rows.
"""

import math
from typing import NamedTuple

import numpy as np

# The largest number of rows that are remembered, those with the smallest hashes.
MOST = 1 << 16
# A fraction of trained rows below the first passes, above the second it is refused.
NOTICED, REFUSED = 0.05, 0.5
# In standard deviations of a column.
STEP = 1e-4


class TrainedRows(NamedTuple):
    """What is remembered of the rows of a fit.

    Args:
      hashes: of distinct rows, sorted, uint64: all, or the smallest.
      whole: whether these are all.
      rows: number of rows, without those that a warm start saw again.
      repeats: (K, 2), how often a row occurs, and the number of rows that occur so often.
      centre: of each column of the table [X, Y].
      spread: of each column.
    """

    hashes: np.ndarray
    whole: bool
    rows: int
    repeats: np.ndarray
    centre: np.ndarray
    spread: np.ndarray


def remember(X: np.ndarray, Y: np.ndarray, before: TrainedRows | None = None) -> TrainedRows:
    """The rows (X, Y) of a fit, and those of the fit that it resumed from."""
    table = _table(X, Y)
    centre, spread = (before.centre, before.spread) if before else _units(table)
    hashes, counts = np.unique(_hashes(table, centre, spread), return_counts=True)
    repeats, whole, rows = _repeats(counts), True, len(table)
    if before is not None:
        testable = hashes if before.whole else hashes[hashes <= before.hashes[-1]]
        new = np.mean(~np.isin(testable, before.hashes)) if len(testable) else 0.0
        hashes, rows = np.union1d(hashes, before.hashes), before.rows + round(new * rows)
        if not before.whole:
            hashes, whole = hashes[hashes <= before.hashes[-1]], False
    if len(hashes) > MOST:
        hashes, whole = hashes[:MOST], False
    return TrainedRows(hashes, whole, rows, repeats, centre, spread)


def hashes_of(rows: TrainedRows, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """64 bits of each row (X, Y), (N,) uint64, to be compared with those of a fit."""
    return _hashes(_table(X, Y), rows.centre, rows.spread)


def found_among(trained: TrainedRows | None, X: np.ndarray, Y: np.ndarray) -> tuple[int, float]:
    """The number of these rows found among the trained ones, and their fraction beyond what chance explains.

    The chance that a new row equals a trained one is estimated twice, from the rows that are equal among the trained
    ones and among these. The larger estimate is used, unless the trained rows repeat far more than these do: copies of
    a table do not make rows equal by chance. The fraction is 0 if chance may explain what was found, or if nothing is
    remembered, as by models of version 0.1.0.
    """
    from scipy.stats import binom

    if trained is None:
        return 0, 0.0
    hashes = hashes_of(trained, X, Y)
    testable = hashes if trained.whole else hashes[hashes <= trained.hashes[-1]]
    tested, found = len(testable), int(np.isin(testable, trained.hashes).sum())
    if not found:
        return 0, 0.0
    _, place, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    own = float(np.mean(counts[place] > 1))
    like_these = repeated_fraction(trained.repeats, len(hashes))
    error = math.sqrt(max(like_these * (1 - like_these), 0.25 / len(hashes)) / len(hashes))
    believed = repeated_fraction(trained.repeats) if own > like_these - 4 * error else 0.0
    chance = max(own, believed)
    least = min(1.0, chance + 4 * math.sqrt(chance * (1 - chance) / min(tested, trained.rows)) + 1 / (trained.rows + 1))
    if chance == 1 or binom.sf(found - 1, tested, least) > 1e-3:
        return found, 0.0
    return found, max(0.0, (found / tested - chance) / (1 - chance))


def note_of_trained_rows(trained: TrainedRows | None, X: np.ndarray, Y: np.ndarray) -> str:
    """A note if some of the rows to calibrate with were trained on, empty if none; an error if half of them were."""
    found, fraction = found_among(trained, X, Y)
    these = f"{found} of these {len(X)} rows are rows of the fit"
    remedy = "calibrate with rows that fit has not seen, or with all rows of the fit and cv=5"
    if fraction >= REFUSED:
        raise ValueError(f"{these}, which say nothing about new rows; {remedy}")
    return f"{these}, so the coverage is not checked; {remedy}" if fraction >= NOTICED else ""


def note_of_other_rows(trained: TrainedRows | None, X: np.ndarray, Y: np.ndarray) -> str:
    """A note if rows of a cross-conformal calibration are not all rows of the fit; an error if it is less than half."""
    if trained is None:
        return ""
    hashes = hashes_of(trained, X, Y)
    testable = hashes if trained.whole else hashes[hashes <= trained.hashes[-1]]
    found = int(np.isin(testable, trained.hashes).sum())
    if found < REFUSED * len(testable):
        these = f"with cv the rows must be those of the fit; {found} of {len(testable)} are"
        raise ValueError(f"{these}; leave out cv to calibrate with rows that fit has not seen")
    if trained.rows == len(X) and found == len(testable):
        return ""
    both = f"fit has seen {trained.rows:,} rows in all, the models without a fold are fitted to these {len(X):,}"
    return f"{both}; intervals are of the latter, the mean is of the former"


def repeated_fraction(repeats: np.ndarray, rows: int | None = None) -> float:
    """The fraction of rows that equal another one: of all of them, or on average of N rows drawn from them."""
    count, number = repeats.T
    total = int(number.sum())
    kept = 1.0 if rows is None or rows >= total else (rows - 1) / max(total - 1, 1)
    return float(np.sum(number * (1 - (1 - kept) ** (count - 1))) / total)


def _repeats(counts: np.ndarray) -> np.ndarray:
    count, groups = np.unique(counts, return_counts=True)
    return np.stack([count, count * groups], axis=1)


def _table(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    return np.concatenate([np.asarray(X, np.float64), np.asarray(Y, np.float64)], axis=1)


def _units(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    centre, spread = np.nanmean(table, axis=0), np.nanstd(table, axis=0)
    return centre, np.where(spread > 1e-12 * np.abs(centre), spread, 1.0)


def _hashes(table: np.ndarray, centre: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """64 bits of each row, (N,) uint64: rows that are equal to a step have equal ones, and NaN equals NaN."""
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.round((table - centre) / (STEP * spread)) + 0.0
    steps[np.isnan(table)] = np.nan
    mixed = np.zeros(len(steps), np.uint64)
    for column in np.ascontiguousarray(steps.T).view(np.uint64):
        mixed = _scramble(mixed ^ _scramble(column))
    return mixed


def _scramble(bits: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014)."""
    bits = bits + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
