"""Rows of a table file: the cells of the features as they are, and the targets as numbers."""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mder_jax._messages import quoted
from mder_jax.cli._tables import LISTED_LINES, Table, TableError, decimal_points
from mder_jax.columns import CellError, read_targets


class Rows(NamedTuple):
    """Features (N rows), Y (N, n), NaN where a target is missing, indices (N,) in a file with `total` rows.

    Weights (N,) and numbers of groups (N,) are None if no column holds them.
    """

    features: pa.Table
    Y: np.ndarray
    row_index: np.ndarray
    total: int
    weights: np.ndarray | None = None
    groups: np.ndarray | None = None

    def take(self, rows: np.ndarray) -> "Rows":
        """Some of the rows: a mask or indices."""
        chosen = np.flatnonzero(rows) if rows.dtype == bool else rows
        parts = (part if part is None else part[chosen] for part in (self.weights, self.groups))
        return Rows(self.features.take(pa.array(chosen)), self.Y[chosen], self.row_index[chosen], self.total, *parts)


def read(
    table: Table, features: Sequence[str], targets: Sequence[str], weights: str | None = None, groups: str | None = None
) -> Rows:
    """All rows of a table; `weights` and `groups` are names of columns."""
    special = [name for name in (weights, groups) if name]
    whole = pa.Table.from_batches(table.blocks(list(dict.fromkeys([*features, *targets, *special]))))
    with located(table):
        Y = read_targets(cells(table, whole, targets))
        w = None if weights is None else _weights(cells(table, whole, [weights]))
        g = None if groups is None else _groups(cells(table, whole, [groups]))
    return Rows(cells(table, whole, features), Y, np.arange(len(Y)), len(Y), w, g)


def _weights(column: pa.Table) -> np.ndarray:
    """A column of weights, (N,): numbers, 0 or more, in every row, not all of them 0."""
    (name,) = column.column_names
    try:
        weights = read_targets(column)[:, 0]
    except CellError as error:
        found = [(name, reason.replace("is a target", "holds weights"), row) for name, reason, row in error.found]
        raise CellError(found) from None
    wrong = ~(weights >= 0)
    if wrong.any():
        row = int(wrong.argmax())
        got = "nothing" if np.isnan(weights[row]) else f"{weights[row]:g}"
        raise CellError([(name, f"holds weights and must be 0 or more in every row; got {got}", row)])
    if not weights.any():
        raise CellError([(name, "holds weights, which are 0 in every row", None)])
    return weights


def _groups(column: pa.Table) -> np.ndarray:
    """A column of groups as numbers, (N,): 0, 1, ... for its different values, of which there are two or more."""
    (name,) = column.column_names
    missing = pc.is_null(column[name], nan_is_null=True).to_numpy()
    if missing.any():
        raise CellError([(name, "holds groups and must have a value in every row; got nothing", int(missing.argmax()))])
    encoded = column[name].combine_chunks().dictionary_encode()
    if len(encoded.dictionary) < 2:
        raise CellError([(name, f"holds groups, and all rows are of one: {encoded.dictionary[0].as_py()!r:.60}", None)])
    return encoded.indices.to_numpy()


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
        Y = read_targets(cells(table, whole, targets)) if len(rows) else np.empty((0, len(targets)))
    return Rows(cells(table, whole, features), Y, rows, total)


def check_transforms(table: Table, rows: Rows, targets: Sequence[str], kinds: Mapping[str, str]) -> None:
    """Raise if a target has no logarithm or root, where the model learns that; `kinds` are by the name of a target."""
    if not kinds:
        return
    from mder_jax.estimator.target_transforms import NamedMap

    wrong = []
    for name, kind in kinds.items():
        values = rows.Y[:, list(targets).index(name)]
        bad, wanted = NamedMap(kind).undefined(values)
        if bad.any():
            row, count = int(bad.argmax()), int(bad.sum())
            rest = f", and others in {count - 1:,} more rows" if count > 1 else ""
            wrong.append((name, f"must be {wanted}, since its {kind} is learnt; got {values[row]:g}{rest}", row))
    if wrong:
        with located(table, rows.row_index):
            raise CellError(wrong)


def cells(table: Table, rows: pa.RecordBatch | pa.Table, names: Sequence[str]) -> pa.Table:
    """Cells of these columns; text with decimal points, and null where the table says that a text means missing."""
    strange = [(name, f"holds {rows[name].type}; leave it out", None) for name in names if _is_strange(rows[name].type)]
    if strange:
        raise TableError(f"{table.path}: {CellError(strange)}")
    return pa.table({name: _as_read(table, rows[name]) for name in names})


def _is_strange(kind: pa.DataType) -> bool:
    """Lists, dicts and bytes are neither numbers nor text nor dates."""
    of_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    return pa.types.is_nested(kind) or of_bytes or pa.types.is_interval(kind)


def _as_read(table: Table, values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    if not _is_text(values.type):
        return values
    text = pc.utf8_trim_whitespace(values)
    return decimal_points(table, pc.if_else(pc.is_in(text, pa.array(table.missing, text.type)), None, text))


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


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


def unreadable(rows: pa.Table, encode: Callable[[pa.Table], Any], first: int = 0) -> dict[int, str]:
    """By its index, why a row has a cell that `encode` cannot read; found by halving the table."""
    try:
        encode(rows)
    except CellError as error:
        if any(row is None and not _is_text(rows[name].type) for name, _, row in error.found):
            raise  # about the whole column
        if rows.num_rows == 1:
            return {first: "; ".join(f"column {quoted(name)} {reason}" for name, reason, _ in error.found)}
        half = rows.num_rows // 2
        return unreadable(rows[:half], encode, first) | unreadable(rows[half:], encode, first + half)
    return {}


def warn_of_unreadable(table: Table, wrong: Mapping[int, str], what: str) -> None:
    """Say which rows of the file have a cell that cannot be read, with the first reason and what becomes of them."""
    if wrong:
        lines = ", ".join(table.places(list(wrong)[:LISTED_LINES]))
        more = f" and {len(wrong) - LISTED_LINES:,} more" if len(wrong) > LISTED_LINES else ""
        warnings.warn(f"{table.path}, {lines}{more}: {next(iter(wrong.values()))}; {what}", stacklevel=3)
