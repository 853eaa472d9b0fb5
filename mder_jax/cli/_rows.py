"""Rows of a table file: the cells of the features as they are, and the targets as numbers."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mder_jax.cli._tables import Table, TableError, decimal_points
from mder_jax.columns import CellError, read_targets


class Rows(NamedTuple):
    """Features (N rows), Y (N, n), NaN where a target is missing, indices (N,) in a file with `total` rows."""

    features: pa.Table
    Y: np.ndarray
    row_index: np.ndarray
    total: int

    def take(self, rows: np.ndarray) -> "Rows":
        """Some of the rows: a mask or indices."""
        chosen = np.flatnonzero(rows) if rows.dtype == bool else rows
        return Rows(self.features.take(pa.array(chosen)), self.Y[chosen], self.row_index[chosen], self.total)


def read(table: Table, features: Sequence[str], targets: Sequence[str]) -> Rows:
    """All rows of a table."""
    whole = pa.Table.from_batches(table.blocks([*features, *targets]))
    with located(table):
        Y = read_targets(cells(table, whole, targets))
    return Rows(cells(table, whole, features), Y, np.arange(len(Y)), len(Y))


def sample(
    table: Table, features: Sequence[str], targets: Sequence[str], size: int, seed: int = 0, with_target: bool = False
) -> Rows:
    """The rows of a table in their order, or `size` of them drawn at random if there are more.

    With `with_target` only rows in which a target has a value. Of a table with N rows, size (1 + ln N/size) are in
    memory: reservoir sampling, candidate i draws one of i + 1 places and is kept if the place is below `size`.
    """
    rng = np.random.default_rng(seed)
    pieces, places, index, total, candidates = [], [], [], 0, 0
    for block in table.blocks([*features, *targets]):
        with located(table, first_row=total):
            Y = read_targets(cells(table, block, targets))
        rows = np.flatnonzero(~np.isnan(Y).all(axis=1)) if with_target else np.arange(len(Y))
        number = np.arange(candidates, candidates + len(rows))
        place = np.where(number < size, number, rng.integers(0, number + 1))
        kept = place < size
        pieces.append(block.take(pa.array(rows[kept])))
        places.append(place[kept])
        index.append(total + rows[kept])
        total += len(Y)
        candidates += len(number)
    place = np.concatenate(places)
    _, last = np.unique(place[::-1], return_index=True)  # a place holds the row that came last
    chosen = len(place) - 1 - last
    whole = pa.Table.from_batches(pieces).take(pa.array(chosen))
    rows = np.concatenate(index)[chosen]
    with located(table, rows):
        Y = read_targets(cells(table, whole, targets))
    return Rows(cells(table, whole, features), Y, rows, total)


def cells(table: Table, rows: pa.RecordBatch | pa.Table, names: Sequence[str]) -> pa.Table:
    """Cells of these columns; text with decimal points, and null where the table says that a text means missing."""
    return pa.table({name: _as_read(table, rows[name]) for name in names})


def _as_read(table: Table, values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return values
    text = pc.utf8_trim_whitespace(values)
    return decimal_points(table, pc.if_else(pc.is_in(text, pa.array(table.missing, text.type)), None, text))


@contextlib.contextmanager
def located(table: Table, rows: np.ndarray | None = None, first_row: int = 0) -> Iterator[None]:
    """What is wrong with a cell is said with the file and its line.

    Row i is row `rows[i]` of the file, or i rows after its row `first_row`.
    """

    def place(row: int) -> str:
        return table.place(first_row + row if rows is None else int(rows[row]))

    try:
        yield
    except CellError as error:
        raise TableError(f"{table.path}: {error.located(place)}") from None
