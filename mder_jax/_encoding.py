"""How the columns of a table become numbers, and predictions become columns.

Numbers and true/false are taken as they are, text becomes one column of 0 and 1 for each category. What was learnt
from the training table is an `Encoding`, which goes into the model file as JSON and reads every later table alike.
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mder_jax._tables import Table, TableError, listed, quoted, require_columns

NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?(?i:inf(inity)?|nan)$"
MOST_LISTED = 10  # unknown categories in a message
REMEDY = "exclude the column or turn it into numbers"


class Column(NamedTuple):
    """How one column becomes numbers.

    Args:
      name: in the table.
      kind: "number", "boolean" or "category".
      categories: the known texts, sorted; each becomes a column of 0 and 1.
    """

    name: str
    kind: str
    categories: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """How many numbers a row gets."""
        return len(self.categories) if self.kind == "category" else 1


class Encoding(NamedTuple):
    """The columns a model reads, in its order.

    Args:
      features: become X.
      targets: become Y; numbers or booleans.
    """

    features: tuple[Column, ...]
    targets: tuple[Column, ...]

    @property
    def width(self) -> int:
        """Columns of X."""
        return sum(column.width for column in self.features)

    @property
    def target_names(self) -> list[str]:
        """Names of the targets."""
        return [column.name for column in self.targets]

    def known_in(self, X: np.ndarray) -> tuple["Encoding", np.ndarray]:
        """The same without the categories that no row of X, (N, d), has; and which columns of X it keeps, (d,)."""
        used, at, features = np.asarray(X.any(axis=0)), 0, []
        for column in self.features:
            if column.kind == "category":
                known = tuple(itertools.compress(column.categories, used[at:]))
                features.append(column._replace(categories=known))
            else:
                used[at] = True
                features.append(column)
            at += column.width
        return self._replace(features=tuple(features)), used

    def to_json(self) -> dict[str, Any]:
        """As what JSON can hold."""
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


def checked_type(table: Table, field: pa.Field) -> pa.DataType:
    """The type of a column, if it can become numbers."""
    kind = field.type
    if pa.types.is_temporal(kind):
        raise TableError(f"{table.path}: column {quoted(field.name)} holds dates or times ({kind}); {REMEDY}")
    if not (is_text(kind) or is_number(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        raise TableError(f"{table.path}: column {quoted(field.name)} holds {kind}; {REMEDY}")
    return kind


def is_number(kind: pa.DataType) -> bool:
    """Whether cells of this type are numbers."""
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def is_text(kind: pa.DataType) -> bool:
    """Whether cells of this type are text, or one of a few values."""
    return pa.types.is_dictionary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)


def text_of(table: Table, values: pa.Array, categories: Sequence[str] = ()) -> pa.Array:
    """Cells as text without blanks around it; null where they are missing.

    Args:
      table: they come from.
      values: cells of a column.
      categories: texts that are values here, also those, such as NA, which a CSV file has for missing ones.
    """
    text = pc.utf8_trim_whitespace(pc.cast(values, pa.string()))
    missing = [word for word in table.missing if word not in categories]
    return pc.if_else(pc.is_in(text, pa.array(missing, pa.string())), None, text)


def numbers_of(text: pa.Array) -> pa.Array:
    """Text as float64; null where it is missing or not a number."""
    try:
        return pc.cast(text, pa.float64())
    except pa.ArrowInvalid:
        return pc.cast(pc.if_else(pc.match_substring_regex(text, NUMBER), text, None), pa.float64())


def booleans_of(text: pa.Array) -> pa.Array:
    """true as 1 and false as 0, in any case; null otherwise."""
    place = pc.index_in(pc.utf8_lower(text), pa.array(["false", "true"]))
    return pc.cast(place, pa.float64())


class _Cells(NamedTuple):
    """A column of one block; what is wrong with a cell is said with file, line, column and value.

    Args:
      table: it comes from.
      column: how to read it.
      values: as they are in the table, (rows,).
      first_row: number of the first of them.
    """

    table: Table
    column: Column
    values: pa.Array
    first_row: int

    def feature(self) -> np.ndarray:
        """(rows, width), nothing missing."""
        if self.column.kind == "category":
            return self._one_hot()
        numbers = self.numbers()
        self._refuse_missing(np.isnan(numbers))
        return numbers[:, None]

    def numbers(self) -> np.ndarray:
        """(rows,) float64; NaN where a value is missing."""
        kind = checked_type(self.table, pa.field(self.column.name, self.values.type))
        if is_text(kind):
            numbers = self._parsed()
        elif pa.types.is_boolean(kind):
            numbers = pc.cast(self.values, pa.int8())
        else:
            numbers = self.values
        # Not "safe": whole numbers beyond 2^53 lose digits, which is no reason to refuse them.
        found = as_numpy(pc.cast(numbers, pa.float64(), safe=False))
        self._refuse(np.abs(found) > np.finfo(np.float32).max, "must be finite and below 3.4e38; it is")
        return found

    def _parsed(self) -> pa.Array:
        text = text_of(self.table, self.values)
        numbers = numbers_of(text)
        if self.column.kind == "boolean":
            numbers = pc.coalesce(booleans_of(text), numbers)
        wrong = pc.and_(text.is_valid(), numbers.is_null())
        self._refuse(as_numpy(wrong), f"must be a {self.column.kind}; it is")
        return numbers

    def _one_hot(self) -> np.ndarray:
        checked_type(self.table, pa.field(self.column.name, self.values.type))
        known = self.column.categories
        text = text_of(self.table, self.values, known)
        self._refuse_missing(as_numpy(text.is_null()))
        place = pc.index_in(text, pa.array(known, pa.string()))
        unknown = as_numpy(place.is_null())
        if unknown.any():
            self._refuse(unknown, f"must be one of {listed(known)}, as in training{self._all_unknown()}; it is")
        return as_numpy(place)[:, None] == np.arange(len(known))

    def _all_unknown(self) -> str:
        """How many rows of the whole table have an unknown category, if more than one, and which."""
        known, rows = pa.array(self.column.categories, pa.string()), 0
        values: dict[str, None] = {}
        for block in self.table.blocks([self.column.name]):
            text = text_of(self.table, block[self.column.name], self.column.categories).drop_null()
            other = text.filter(pc.invert(pc.is_in(text, known)))
            rows += len(other)
            if len(values) <= MOST_LISTED:
                values |= dict.fromkeys(other.unique().to_pylist())
        few = ", ".join(map(quoted, itertools.islice(values, MOST_LISTED)))
        return (
            f" ({rows:,} rows are not: {few}{' and others' if len(values) > MOST_LISTED else ''})" if rows > 1 else ""
        )

    def _refuse_missing(self, missing: np.ndarray) -> None:
        if missing.any():
            raise TableError(f"{self._start(missing)} has no value; fill it in, or leave out the row or the column")

    def _refuse(self, wrong: np.ndarray, rule: str) -> None:
        if wrong.any():
            raise TableError(f"{self._start(wrong)} {rule} {quoted(self.values[int(wrong.argmax())].as_py())}")

    def _start(self, wrong: np.ndarray) -> str:
        place = self.table.place(self.first_row + int(wrong.argmax()))
        return f"{self.table.path}, {place}: column {quoted(self.column.name)}"


def as_numpy(values: pa.Array) -> np.ndarray:
    """The column as an array of numpy."""
    return values.to_numpy(zero_copy_only=False)


def features_of(table: Table, encoding: Encoding, block: pa.RecordBatch, first_row: int) -> np.ndarray:
    """X of a block, (rows, d), every value finite."""
    X = np.empty((block.num_rows, encoding.width))
    at = 0
    for column in encoding.features:
        X[:, at : at + column.width] = _Cells(table, column, block[column.name], first_row).feature()
        at += column.width
    return X


def targets_of(table: Table, encoding: Encoding, block: pa.RecordBatch, first_row: int) -> np.ndarray:
    """Y of a block, (rows, n) float64, NaN where a value is missing."""
    read = [_Cells(table, column, block[column.name], first_row).numbers() for column in encoding.targets]
    return np.stack(read, axis=1)


class Rows(NamedTuple):
    """Rows of a table as numbers.

    Args:
      X: features, (N, d).
      Y: targets, (N, n) float64, NaN where a value is missing.
      numbers: of the rows in the table, the first is 0, (N,).
    """

    X: np.ndarray
    Y: np.ndarray
    numbers: np.ndarray


def check_features(table: Table, encoding: Encoding) -> None:
    """Raise if a row of the table cannot be predicted from."""
    row = 0
    for block in table.blocks([column.name for column in encoding.features]):
        features_of(table, encoding, block, row)
        row += block.num_rows


def read_rows(
    table: Table, encoding: Encoding, most: int, seed: int = 0, with_target: bool = False
) -> tuple[Rows, int]:
    """The rows of a table in their order, or so many drawn at random if there are more; and how many it has.

    A table is read once and only what is returned is held.

    Args:
      table: to read.
      encoding: how.
      most: rows to return.
      seed: of the draw.
      with_target: only rows in which at least one target has a value.
    """
    names = [column.name for column in (*encoding.features, *encoding.targets)]
    require_columns(table, names, "the model")
    rng = np.random.default_rng(seed)
    X, Y = np.empty((most, encoding.width)), np.empty((most, len(encoding.targets)))
    numbers, rows, candidates = np.empty(most, np.int64), 0, 0
    for block in table.blocks(names):
        x, y = (read(table, encoding, block, rows) for read in (features_of, targets_of))
        chosen = np.flatnonzero(~np.isnan(y).all(axis=1)) if with_target else np.arange(len(y))
        number = np.arange(candidates, candidates + len(chosen))
        # Row i takes one of i + 1 places; those beyond `most` do not exist. So each row is kept with equal chance.
        place = np.where(number < most, number, rng.integers(0, number + 1))
        place, chosen = place[place < most], chosen[place < most]
        X[place], Y[place], numbers[place] = x[chosen], y[chosen], rows + chosen
        rows += block.num_rows
        candidates += len(number)
    size = min(candidates, most)
    return Rows(X[:size], Y[:size], numbers[:size]), rows


def prediction_names(targets: Sequence[str]) -> list[str]:
    """Names of the columns of a table of predictions: six per target, then the correlation of each pair."""
    parts = ("mean", "std", "aleatoric_std", "epistemic_std", "lower", "upper")
    names = [f"{name}_{part}" for name in targets for part in parts]
    return names + [f"corr_{targets[i]}_{targets[j]}" for i, j in itertools.combinations(range(len(targets)), 2)]


def prediction_columns(
    targets: Sequence[str], parts: Any, lower: np.ndarray, upper: np.ndarray
) -> dict[str, np.ndarray]:
    """The columns named by `prediction_names`, (N,) each.

    Args:
      targets: their names.
      parts: with mean (N, n), and aleatoric, epistemic and total covariances (N, n, n).
      lower: ends of the intervals, (N, n).
      upper: the same.
    """
    rows, n = parts.mean.shape
    std, aleatoric, epistemic = (
        np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
        for covariance in (parts.total, parts.aleatoric, parts.epistemic)
    )
    columns = np.stack([parts.mean, std, aleatoric, epistemic, lower, upper], axis=2).reshape(rows, 6 * n)
    i, j = np.triu_indices(n, 1)
    correlations = parts.total[:, i, j] / (std[:, i] * std[:, j])
    return dict(zip(prediction_names(targets), np.hstack([columns, correlations]).T, strict=True))
