"""How the columns of a table become numbers.

Numbers and booleans are used as they are, text is one-hot encoded. `_column_kinds.learn` finds the `Encoding` of a
training table. It is stored in the model file as JSON, and `encode` reads every later table with it.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mder_jax.cli._tables import Table, TableError, decimal_points, listed, quoted

NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?(?i:inf(inity)?|nan)$"
LARGEST = float(np.finfo(np.float32).max)
MAX_LISTED = 10  # unknown categories in a message
REMEDY = "exclude the column or turn it into numbers"


class Column(NamedTuple):
    """A "number", "boolean" or "category"; each of the sorted categories becomes a column of 0 and 1."""

    name: str
    kind: str
    categories: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """Columns of X."""
        return len(self.categories) if self.kind == "category" else 1


class Encoding(NamedTuple):
    """The columns a model reads, in its order: features become X, targets, which are numbers or booleans, Y."""

    features: tuple[Column, ...]
    targets: tuple[Column, ...]

    @property
    def width(self) -> int:
        """Columns of X."""
        return sum(column.width for column in self.features)

    @property
    def feature_names(self) -> list[str]:
        """Names of the features."""
        return [column.name for column in self.features]

    @property
    def target_names(self) -> list[str]:
        """Names of the targets."""
        return [column.name for column in self.targets]

    def one_hot(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """X, (N, d), from one array (N,) per feature: its numbers, or the indices of its categories."""
        X, start = np.empty((len(values[0]), self.width)), 0
        for column, cells in zip(self.features, values, strict=True):
            stop = start + column.width
            X[:, start:stop] = (
                cells[:, None] == np.arange(column.width) if column.kind == "category" else cells[:, None]
            )
            start = stop
        return X

    def to_json(self) -> dict[str, Any]:
        """As values that JSON can hold."""
        return {part: [column._asdict() for column in getattr(self, part)] for part in self._fields}

    @classmethod
    def from_json(cls, value: Any) -> "Encoding":
        """The inverse of `to_json`."""
        try:
            return cls(*(tuple(_column(**column) for column in value[part]) for part in cls._fields))
        except (KeyError, TypeError) as error:
            raise ValueError(f"the model does not say how columns become numbers: {error!r}") from error


def _column(name: str, kind: str, categories: Sequence[str]) -> Column:
    if kind not in ("number", "boolean", "category"):
        raise TypeError(f"unknown kind of column {kind!r}")
    return Column(str(name), kind, tuple(map(str, categories)))


def check_type(table: Table, name: str, kind: pa.DataType) -> None:
    """Raise if a column of this type cannot become numbers."""
    if pa.types.is_temporal(kind):
        raise TableError(f"{table.path}: column {quoted(name)} holds dates or times ({kind}); {REMEDY}")
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if not (number or is_text(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        raise TableError(f"{table.path}: column {quoted(name)} holds {kind}; {REMEDY}")


def is_text(kind: pa.DataType) -> bool:
    """Whether cells of this type are text or categories."""
    return pa.types.is_dictionary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)


def text_of(table: Table, values: pa.Array, categories: Sequence[str] = ()) -> pa.Array:
    """Cells as text without surrounding whitespace; null where they are missing and not one of the categories."""
    text = decimal_points(table, pc.utf8_trim_whitespace(pc.cast(values, pa.string())))
    missing = [word for word in table.missing if word not in categories]
    return pc.if_else(pc.is_in(text, pa.array(missing, pa.string())), None, text)


def parse_numbers(text: pa.Array) -> pa.Array:
    """Text as float64; null where it is missing or not a number."""
    try:
        return pc.cast(text, pa.float64())
    except pa.ArrowInvalid:
        return pc.cast(pc.if_else(pc.match_substring_regex(text, NUMBER), text, None), pa.float64())


def parse_booleans(text: pa.Array) -> pa.Array:
    """true as 1 and false as 0, in any case; null otherwise."""
    return pc.cast(pc.index_in(pc.utf8_lower(text), pa.array(["false", "true"])), pa.float64())


def parse(text: pa.Array, kind: str) -> pa.Array:
    """Text of a column of this kind, number or boolean, as float64; null where it is neither."""
    numbers = parse_numbers(text)
    return pc.coalesce(parse_booleans(text), numbers) if kind == "boolean" else numbers


def native_numbers(values: pa.Array) -> np.ndarray:
    """Cells that are numbers or booleans by their type, as float64; NaN where they are missing."""
    numbers = pc.cast(values, pa.int8()) if pa.types.is_boolean(values.type) else values
    # Not "safe": integers beyond 2^53 lose digits, which is no reason to refuse them.
    return to_numpy(pc.cast(numbers, pa.float64(), safe=False))


def to_numpy(values: pa.Array) -> np.ndarray:
    """The values as a numpy array; NaN for null."""
    return values.to_numpy(zero_copy_only=False)


class _Cells(NamedTuple):
    """A column of one block, from the row with index `first_row`. Errors name file, line, column and value."""

    table: Table
    column: Column
    values: pa.Array
    first_row: int

    def feature(self) -> np.ndarray:
        """Numbers, or the indices of categories, (rows,), none missing."""
        if self.column.kind == "category":
            return self._indices()
        numbers = self.numbers()
        self._refuse_missing(np.isnan(numbers))
        return numbers

    def numbers(self) -> np.ndarray:
        """(rows,) float64; NaN where a value is missing."""
        check_type(self.table, self.column.name, self.values.type)
        found = self._parsed() if is_text(self.values.type) else native_numbers(self.values)
        self._refuse(np.abs(found) > LARGEST, "must be finite and below 3.4e38; it is")
        return found

    def _parsed(self) -> np.ndarray:
        text = text_of(self.table, self.values)
        numbers = parse(text, self.column.kind)
        wrong = pc.and_(text.is_valid(), numbers.is_null())
        self._refuse(to_numpy(wrong), f"must be a {self.column.kind}; it is")
        return to_numpy(numbers)

    def _indices(self) -> np.ndarray:
        check_type(self.table, self.column.name, self.values.type)
        known = self.column.categories
        text = text_of(self.table, self.values, known)
        self._refuse_missing(to_numpy(text.is_null()))
        index = pc.index_in(text, pa.array(known, pa.string()))
        if index.null_count:
            rule = f"must be one of {listed(known)}, as in training{self._count_unknown()}; it is"
            self._refuse(to_numpy(index.is_null()), rule)
        return to_numpy(index)

    def _count_unknown(self) -> str:
        """The number of rows of the whole table with an unknown category, if more than one, and its values."""
        known, rows = pa.array(self.column.categories, pa.string()), 0
        values: dict[str, None] = {}
        for block in self.table.blocks([self.column.name]):
            text = text_of(self.table, block[self.column.name], self.column.categories).drop_null()
            other = text.filter(pc.invert(pc.is_in(text, known)))
            rows += len(other)
            if len(values) <= MAX_LISTED:
                values |= dict.fromkeys(other.unique().to_pylist())
        few = ", ".join(map(quoted, itertools.islice(values, MAX_LISTED)))
        more = " and others" if len(values) > MAX_LISTED else ""
        return f" ({rows:,} rows are not: {few}{more})" if rows > 1 else ""

    def _refuse_missing(self, missing: np.ndarray) -> None:
        if missing.any():
            raise TableError(f"{self._start(missing)} has no value; fill it in, or leave out the row or the column")

    def _refuse(self, wrong: np.ndarray, rule: str) -> None:
        if wrong.any():
            raise TableError(f"{self._start(wrong)} {rule} {quoted(self.values[int(wrong.argmax())].as_py())}")

    def _start(self, wrong: np.ndarray) -> str:
        place = self.table.place(self.first_row + int(wrong.argmax()))
        return f"{self.table.path}, {place}: column {quoted(self.column.name)}"


class Block(NamedTuple):
    """Consecutive rows: cells as in the table, features X (rows, d), and targets Y (rows, n), NaN where missing."""

    cells: pa.RecordBatch
    X: np.ndarray
    Y: np.ndarray


def encode(table: Table, encoding: Encoding, keep: Sequence[str] = ()) -> Iterator[Block]:
    """The rows of a table in blocks, with the columns `keep` too; raise at the first cell that cannot be encoded."""
    names, row = [*encoding.feature_names, *encoding.target_names], 0
    for cells in table.blocks([*names, *(name for name in keep if name not in names)]):
        X = encoding.one_hot([_Cells(table, c, cells[c.name], row).feature() for c in encoding.features])
        Y = [_Cells(table, column, cells[column.name], row).numbers() for column in encoding.targets]
        yield Block(cells, X, np.stack(Y, axis=1) if Y else np.empty((len(X), 0)))
        row += len(X)


class Sample(NamedTuple):
    """Rows of a table: features X (N, d), targets Y (N, n), NaN where missing, indices (N,), and rows of the table."""

    X: np.ndarray
    Y: np.ndarray
    row_index: np.ndarray
    total: int


def sample(table: Table, encoding: Encoding, size: int, seed: int = 0, with_target: bool = False) -> Sample:
    """The rows of a table in their order, or `size` of them drawn at random if there are more.

    With `with_target` only rows in which a target has a value. Only the sample is kept in memory.
    """
    rng = np.random.default_rng(seed)
    X, Y = np.empty((size, encoding.width)), np.empty((size, len(encoding.targets)))
    index, total, candidates = np.empty(size, np.int64), 0, 0
    for block in encode(table, encoding):
        rows = np.flatnonzero(~np.isnan(block.Y).all(axis=1)) if with_target else np.arange(len(block.Y))
        number = np.arange(candidates, candidates + len(rows))
        # Reservoir sampling: candidate i draws one of i + 1 places and is kept if the place is below `size`.
        place = np.where(number < size, number, rng.integers(0, number + 1))
        place, rows = place[place < size], rows[place < size]
        X[place], Y[place], index[place] = block.X[rows], block.Y[rows], total + rows
        total += len(block.Y)
        candidates += len(number)
    kept = min(candidates, size)
    return Sample(X[:kept], Y[:kept], index[:kept], total)
