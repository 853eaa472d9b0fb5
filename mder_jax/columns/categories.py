"""Categories: which levels a column has of its own, and the numbers they become."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mder_jax.columns.cells import Cells

RARE, ENOUGH_ROWS = 3, 100  # levels seen less often than this in tables of so many rows are "other"
MOST_LEVELS = 2000  # of its own, the most frequent
UNSEEN, GAP = -1, -2


def choose(text: Cells) -> tuple[tuple[str, ...], bool]:
    """The sorted levels of a training column, and whether some of its texts are "other": rare ones, or too many."""
    counts = np.bincount(text.values[text.values >= 0], minlength=len(text.distinct))
    frequent = np.flatnonzero(~rare(counts, len(text.values)))
    frequent = frequent[np.argsort(-counts[frequent], kind="stable")][:MOST_LEVELS]
    own = set(plain(text.distinct.take(pa.array(frequent))).to_pylist())
    return tuple(sorted(own)), len(frequent) < len(counts)


def rare(counts: np.ndarray, rows: int) -> np.ndarray:
    """Which levels are too rare to learn from in a table of so many rows, (k,) bool."""
    return counts < (RARE if rows >= ENOUGH_ROWS else 1)


def plain(distinct: pa.Array) -> pa.Array:
    """Levels without the point of an integer: "3.0" is "3", whatever wrote it."""
    return pc.replace_substring_regex(distinct, r"^([+-]?\d+)\.0*$", r"\1")


def index(text: Cells, levels: Sequence[str]) -> np.ndarray:
    """The index of each cell's level, (N,) int; `UNSEEN` or `GAP` without one."""
    known = pc.index_in(plain(text.distinct), pa.array(levels, pa.string()))
    found = known.fill_null(UNSEEN).to_numpy(zero_copy_only=False).astype(np.int64)
    return np.append(found, GAP)[text.values]


def one_hot(indices: np.ndarray, own: int, other: bool, gaps: bool) -> np.ndarray:
    """Columns of 0 and 1, (N, own + gaps + other): each level, gaps if training had any, "other" if it had any."""
    rest = own + gaps if other else -1
    slot = np.where(indices >= 0, indices, np.where((indices == GAP) & gaps, own, rest))
    return slot[:, None] == np.arange(own + gaps + other)


def embedded(indices: np.ndarray, own: int, gaps: bool) -> np.ndarray:
    """0 for "other", 1 .. own for the levels, own + 1 for gaps if training had any, (N,)."""
    return np.where(indices >= 0, indices + 1, np.where((indices == GAP) & gaps, own + 1, 0))
