"""What the columns of a training table hold: numbers, booleans or categories. The table is read and parsed once."""

import collections
import re
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mder_jax.cli import _encoding
from mder_jax.cli._encoding import REMEDY, Column, Encoding
from mder_jax.cli._tables import Table, TableError, quoted

DATE = re.compile(r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([T ].*)?|\d{1,2}:\d{2}(:\d{2}.*)?")
MOST_CATEGORIES = 100
FEW_NUMBERS = 30  # different numbers that may be categories if there are words too: sizes, floors, years
CODES = 10  # the same if hardly any cell is a word
SLIPS = 0.1  # the largest fraction of cells that are text by mistake
FEW_ROWS, MOST_ALONE = 20, 0.8  # rows that may all have different texts, and the largest such fraction of more rows

# What a person reads as a number and `NUMBER` does not: 1,5  17,674.5  1.234,5  1_000  3.1 %  $5  0x1f  −2
_GROUPED = r"\d{1,3}([,._'’ \x{a0}\x{2009}\x{202f}]\d{3})+([.,]\d+)?"
_DECIMAL = r"(\d+[.,]?\d*|[.,]\d+)([eE][+\-−]?\d+)?"
_BLANK = r"[\s\x{a0}\x{202f}]?"
SPELLED = rf"^[$€£¥]?{_BLANK}[+\-−–]?[$€£¥]?({_DECIMAL}|{_GROUPED}|0[xX][0-9a-fA-F]+){_BLANK}[%‰$€£¥]?$"
_ERROR = r"#(n/a|value!|div/0!|ref!|name\?|num!|null!)"
MARKER = rf"^([^\pL\pN]+|(?i:n/?a|n\.a\.?|nan|null|unknown|missing|not (available|known)|tbd|{_ERROR}))$"


class _Cells:
    """The cells of a training column: their values, and what decides whether they are numbers or categories.

    A text is a number, a number that only a person reads as one (`SPELLED`), a marker of a missing value (`MARKER`), or
    a word. Texts are kept as codes, positions in `counts`, while there are at most `MOST_CATEGORIES` distinct ones.
    With more of them the column can only hold numbers, or is refused: only numbers are kept.
    """

    def __init__(self, table: Table, kind: pa.DataType) -> None:
        self.table, self.type = table, kind
        self.texts = self.plain = self.spelled = self.markers = self.booleans = 0
        self.first_text: tuple[int, str] | None = None
        self.counts: collections.Counter[str] = collections.Counter()
        self._codes: list[np.ndarray] = []
        self._numbers: list[np.ndarray] = []

    def add(self, values: pa.Array, first_row: int) -> None:
        """Add the cells of further rows."""
        if not _encoding.is_text(self.type):
            self._numbers.append(_encoding.native_numbers(values))
            return
        text = _encoding.text_of(self.table, values)
        numbers = _encoding.parse_numbers(text)
        other = _encoding.to_numpy(pc.and_(text.is_valid(), numbers.is_null()))
        self.texts += len(text) - text.null_count
        self.plain += len(text) - text.null_count - int(other.sum())
        if other.any():
            rest = text.filter(pa.array(other))
            self.spelled += _matches(rest, SPELLED)
            self.markers += _matches(rest, MARKER)
            self.booleans += len(rest) - _encoding.parse_booleans(rest).null_count
            first = int(other.argmax())
            self.first_text = self.first_text or (first_row + first, values[first].as_py().strip())
        if len(self.counts) <= MOST_CATEGORIES:
            self._add_codes(text)
        if len(self.counts) > MOST_CATEGORIES:
            self._numbers.append(_encoding.to_numpy(numbers))

    def _add_codes(self, text: pa.Array) -> None:
        encoded = text.dictionary_encode()
        distinct, codes = encoded.dictionary.to_pylist(), _encoding.to_numpy(encoded.indices.fill_null(-1))
        counts = np.bincount(codes[codes >= 0], minlength=len(distinct)).tolist()
        self.counts.update(dict(zip(distinct, counts, strict=True)))
        if len(self.counts) > MOST_CATEGORIES:
            self._numbers, self._codes = [self._parsed("number")], []
            return
        position = {text: code for code, text in enumerate(self.counts)}
        self._codes.append(np.array([*map(position.get, distinct), -1], np.int8)[codes])  # -1, the last: missing

    def _parsed(self, kind: str) -> np.ndarray:
        numbers = _encoding.to_numpy(_encoding.parse(pa.array(self.counts, pa.string()), kind))
        return np.append(numbers, np.nan)[np.concatenate([np.empty(0, np.int8), *self._codes])]

    def values(self, column: Column) -> np.ndarray:
        """Numbers, or the indices of categories, of all rows, (N,) float64; NaN where they are missing."""
        if column.kind == "category":
            index = np.array([*map(column.categories.index, self.counts), np.nan])
            return index[np.concatenate(self._codes)]
        return np.concatenate(self._numbers) if self._numbers else self._parsed(column.kind)

    @property
    def numbers(self) -> int:
        """Cells that are numbers, however they are spelled."""
        return self.plain + self.spelled

    @property
    def words(self) -> int:
        """Cells that are neither numbers nor markers."""
        return self.texts - self.numbers - self.markers

    @property
    def different_numbers(self) -> int:
        """Different texts that are numbers, however they are spelled."""
        return _matches(pa.array(self.counts, pa.string()), f"{SPELLED}|{_encoding.NUMBER}")

    def many_numbers(self) -> bool:
        """Whether half of the cells or half of the different texts are numbers."""
        return 2 * self.numbers >= self.texts or 2 * self.different_numbers >= len(self.counts)

    def is_of_numbers(self) -> bool:
        """Whether a column with text in it was meant to hold numbers.

        It was if half of the cells, or of the different texts, are numbers, and one of these holds: there are no words,
        only markers of missing values; there are more than `FEW_NUMBERS` different numbers; there are more than `CODES`
        and the other texts are rare (`SLIPS`) and all different. Otherwise the texts are categories, of which some may
        be numbers: "S", "M", "38", "40" or "1", "2", "3", "attic".
        """
        many = self.different_numbers
        slips = many > CODES and self._others_are_slips()
        return self.many_numbers() and (not self.words or many > FEW_NUMBERS or slips)

    def _others_are_slips(self) -> bool:
        others = self.texts - self.numbers
        alone = pa.array([text for text, count in self.counts.items() if count == 1], pa.string())
        return others <= SLIPS * self.texts and len(alone) - _matches(alone, f"{SPELLED}|{_encoding.NUMBER}") == others

    def is_of_names(self) -> bool:
        """Whether most rows have a text that no other row has, as identifiers, names and remarks do."""
        alone = sum(count == 1 for count in self.counts.values())
        return self.texts > FEW_ROWS and alone > MOST_ALONE * self.texts


def _matches(text: pa.Array, pattern: str) -> int:
    """The number of texts that match a pattern."""
    return pc.sum(pc.match_substring_regex(text, pattern)).as_py() or 0


class Learnt(NamedTuple):
    """A training table with `total` rows, and of those with a target one array (N,) per feature and Y (N, n).

    Features are numbers or indices of categories; a missing target is NaN.
    """

    encoding: Encoding
    features: list[np.ndarray]
    Y: np.ndarray
    total: int


def learn(table: Table, features: Sequence[str], targets: Sequence[str]) -> Learnt:
    """Determine how these columns of a training table become numbers, and return those of the rows with a target."""
    columns: dict[str, _Cells] = {}
    total = 0
    for block in table.blocks([*features, *targets]):
        columns = columns or {name: _cells(table, block, name) for name in (*features, *targets)}
        for name, cells in columns.items():
            cells.add(block[name], total)
        total += block.num_rows
    encoding = Encoding(
        tuple(_feature(table, name, columns[name]) for name in features),
        tuple(_target(table, name, columns[name]) for name in targets),
    )
    Y = np.stack([columns[column.name].values(column) for column in encoding.targets], axis=1)
    with_target = ~np.isnan(Y).all(axis=1)
    X, valid = [], not (np.abs(Y) > _encoding.LARGEST).any()
    for column in encoding.features:
        values = columns.pop(column.name).values(column)
        valid = valid and bool((np.abs(values) <= _encoding.LARGEST).all())
        X.append(values[with_target])
    if not valid:
        for _ in _encoding.encode(table, encoding):  # raises, with the line and the text of the first wrong cell
            pass
    return Learnt(encoding, X, Y[with_target], total)


def _cells(table: Table, block: pa.RecordBatch, name: str) -> _Cells:
    kind = block.schema.field(name).type
    _encoding.check_type(table, name, kind)
    return _Cells(table, kind)


def _kind(cells: _Cells) -> str:
    """The kind of a column: a dictionary has categories by its type, other text by its content."""
    if pa.types.is_dictionary(cells.type):
        return "category"
    if pa.types.is_boolean(cells.type):
        return "boolean"
    if cells.plain == cells.texts:
        return "number"
    return "boolean" if cells.booleans == cells.texts else "category"


def _target(table: Table, name: str, cells: _Cells) -> Column:
    column = Column(name, _kind(cells))
    if column.kind == "category":
        hint = _hint(cells, "leave a cell without a value empty", "")
        raise TableError(f"{table.path}: target {quoted(name)} must hold numbers{_found(table, cells)}{hint}")
    return column


def _feature(table: Table, name: str, cells: _Cells) -> Column:
    column, start = Column(name, _kind(cells)), f"{table.path}: column {quoted(name)}"
    if column.kind != "category":
        return column
    different, found = cells.counts, _found(table, cells)
    if not pa.types.is_dictionary(cells.type):
        _refuse_or_warn_of_numbers(start, cells, found)
    if different and all(DATE.fullmatch(text) for text in different):
        raise TableError(f"{start} holds dates or times{found}; {REMEDY}")
    if len(different) > MOST_CATEGORIES:
        raise TableError(f"{start} holds text with more than {MOST_CATEGORIES} different values{found}; {REMEDY}")
    if cells.is_of_names():
        alone = "most rows have a text that no other row has, so nothing can be learnt from it"
        raise TableError(f"{start} holds names or remarks{found}: {alone}; {REMEDY}")
    return column._replace(categories=tuple(sorted(different)))


def _refuse_or_warn_of_numbers(start: str, cells: _Cells, found: str) -> None:
    if cells.is_of_numbers():
        what = "numbers and text" if cells.numbers < cells.texts else "numbers that cannot be read"
        fill = "a feature needs a value in every row: fill it in, leave out the row, or --exclude the column"
        other = "; write a number, or --exclude the column; if these are categories, put a letter before each number"
        raise TableError(f"{start} holds {what}{found}{_hint(cells, fill, other)}")
    if cells.many_numbers():
        count = f"each of its {len(cells.counts)} different values becomes a category, the numbers too"
        warnings.warn(f"{start} holds numbers and text{found}: {count}", stacklevel=2)


def _found(table: Table, cells: _Cells) -> str:
    if cells.first_text is None:
        return ""
    row, text = cells.first_text
    return f" ({table.place(row)} has {quoted(text)})"


def _hint(cells: _Cells, for_marker: str, for_word: str) -> str:
    """What to do about the first text of a column of numbers."""
    first = pa.array([cells.first_text[1] if cells.first_text else ""])
    if _matches(first, SPELLED) and cells.table.decimal:
        return "; write numbers like -1234,5, with a decimal comma and nothing else, or give --decimal ."
    if _matches(first, SPELLED):
        return "; write numbers like -1234.5, with a decimal point and a plain minus, without , % $ _ or 0x"
    return f", which looks like a missing value; {for_marker}" if _matches(first, MARKER) else for_word
