"""What the columns of a training table are (numbers, true and false, categories), and whether one can learn from it."""

import collections
import re
import warnings
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mder_jax._encoding import (
    NUMBER,
    REMEDY,
    Column,
    Encoding,
    as_numpy,
    booleans_of,
    checked_type,
    is_text,
    numbers_of,
    text_of,
)
from mder_jax._tables import Table, TableError, quoted

DATE = re.compile(r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([T ].*)?|\d{1,2}:\d{2}(:\d{2}.*)?")
MOST_CATEGORIES = 100
FEW_NUMBERS = 30  # so many different ones may be names of categories if there are words besides: sizes, floors, years
CODES = 10  # so many, also if hardly any cell is a word
SLIPS = 0.1  # of the cells at most are text by mistake
FEW_ROWS, MOST_ALONE = 20, 0.8  # so many rows may each have a text of their own, and such a share of more rows

# What a person reads as a number and `NUMBER` does not: 1,5  17,674.5  1.234,5  1_000  3.1 %  $5  0x1f  −2
_GROUPED = r"\d{1,3}([,._'’ \x{a0}\x{2009}\x{202f}]\d{3})+([.,]\d+)?"
_DECIMAL = r"(\d+[.,]?\d*|[.,]\d+)([eE][+\-−]?\d+)?"
_BLANK = r"[\s\x{a0}\x{202f}]?"
SPELLED = rf"^[$€£¥]?{_BLANK}[+\-−–]?[$€£¥]?({_DECIMAL}|{_GROUPED}|0[xX][0-9a-fA-F]+){_BLANK}[%‰$€£¥]?$"
_ERROR = r"#(n/a|value!|div/0!|ref!|name\?|num!|null!)"
MARKER = rf"^([^\pL\pN]+|(?i:n/?a|n\.a\.?|nan|null|unknown|missing|not (available|known)|tbd|{_ERROR}))$"


class _Survey:
    """What is known of a column of text after some of its rows.

    A cell of text is a number, a number that is only spelled like one (`SPELLED`), a marker of a missing value
    (`MARKER`), or a word. `counts` is complete as long as there are no more than `MOST_CATEGORIES` different texts.
    """

    def __init__(self) -> None:
        self.texts = self.plain = self.spelled = self.markers = self.booleans = 0
        self.first_text: tuple[int, str] | None = None
        self.counts: collections.Counter[str] = collections.Counter()

    def add(self, text: pa.Array, first_row: int) -> None:
        """Take more of its rows into account."""
        other = as_numpy(pc.and_(text.is_valid(), numbers_of(text).is_null()))
        self.texts += len(text) - text.null_count
        self.plain += len(text) - text.null_count - int(other.sum())
        if other.any():
            rest = text.filter(pa.array(other))
            self.spelled += _matches(rest, SPELLED)
            self.markers += _matches(rest, MARKER)
            self.booleans += int(as_numpy(booleans_of(rest).is_valid()).sum())
        if self.first_text is None and other.any():
            row = int(other.argmax())
            self.first_text = (first_row + row, text[row].as_py())
        if len(self.counts) <= MOST_CATEGORIES:
            found = text.drop_null().value_counts()
            pairs = zip(found.field("values").to_pylist(), found.field("counts").to_pylist(), strict=True)
            self.counts.update(dict(pairs))

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
        return _matches(pa.array(self.counts, pa.string()), f"{SPELLED}|{NUMBER}")

    def many_numbers(self) -> bool:
        """Whether half of the cells or half of the different texts are numbers."""
        return 2 * self.numbers >= self.texts or 2 * self.different_numbers >= len(self.counts)

    def is_of_numbers(self) -> bool:
        """Whether a column with text in it was meant to hold numbers.

        So it is if half of the cells, or of the different texts, are numbers, and besides there are no words but only
        markers of missing values; or more than `FEW_NUMBERS` different numbers; or more than `CODES` of them and the
        other texts are rare (`SLIPS`) and no two alike. Otherwise its texts are categories, of which some may be
        numbers: "S", "M", "38", "40" or "1", "2", "3", "attic".
        """
        many = self.different_numbers
        slips = many > CODES and self._others_are_slips()
        return self.many_numbers() and (not self.words or many > FEW_NUMBERS or slips)

    def _others_are_slips(self) -> bool:
        others = self.texts - self.numbers
        alone = pa.array([text for text, count in self.counts.items() if count == 1], pa.string())
        return others <= SLIPS * self.texts and len(alone) - _matches(alone, f"{SPELLED}|{NUMBER}") == others

    def is_of_names(self) -> bool:
        """Whether most rows have a text that no other row has, as identifiers, names and remarks do."""
        alone = sum(count == 1 for count in self.counts.values())
        return self.texts > FEW_ROWS and alone > MOST_ALONE * self.texts


def _matches(text: pa.Array, pattern: str) -> int:
    """How many of some texts a pattern fits."""
    return pc.sum(pc.match_substring_regex(text, pattern)).as_py() or 0


def learn(table: Table, features: Sequence[str], targets: Sequence[str]) -> tuple[Encoding, int]:
    """How these columns of a training table become numbers, and how many rows it has."""
    surveys = {name: _Survey() for name in (*features, *targets)}
    types: dict[str, pa.DataType] = {}
    rows = 0
    for block in table.blocks(list(surveys)):
        types = types or {name: checked_type(table, block.schema.field(name)) for name in surveys}
        for name, survey in surveys.items():
            if is_text(types[name]):
                survey.add(text_of(table, block[name]), rows)
        rows += block.num_rows
    read = [_feature(table, name, types[name], surveys[name]) for name in features]
    return Encoding(tuple(read), tuple(_target(table, name, types[name], surveys[name]) for name in targets)), rows


def _kind(kind: pa.DataType, survey: _Survey) -> str:
    """What a column is: a dictionary has categories by its type, other text is judged by what it holds."""
    if pa.types.is_dictionary(kind):
        return "category"
    if pa.types.is_boolean(kind):
        return "boolean"
    if survey.plain == survey.texts:
        return "number"
    return "boolean" if survey.booleans == survey.texts else "category"


def _target(table: Table, name: str, kind: pa.DataType, survey: _Survey) -> Column:
    column = Column(name, _kind(kind, survey))
    if column.kind == "category":
        hint = _hint(survey, "leave a cell without a value empty", "")
        raise TableError(f"{table.path}: target {quoted(name)} must hold numbers{_found(table, survey)}{hint}")
    return column


def _feature(table: Table, name: str, kind: pa.DataType, survey: _Survey) -> Column:
    column, start = Column(name, _kind(kind, survey)), f"{table.path}: column {quoted(name)}"
    if column.kind != "category":
        return column
    different, found = survey.counts, _found(table, survey)
    if not pa.types.is_dictionary(kind):
        _refuse_or_warn_of_numbers(start, survey, found)
    if different and all(DATE.fullmatch(text) for text in different):
        raise TableError(f"{start} holds dates or times{found}; {REMEDY}")
    if len(different) > MOST_CATEGORIES:
        raise TableError(f"{start} holds text with more than {MOST_CATEGORIES} different values{found}; {REMEDY}")
    if survey.is_of_names():
        alone = "most rows have a text that no other row has, so nothing can be learnt from it"
        raise TableError(f"{start} holds names or remarks{found}: {alone}; {REMEDY}")
    return column._replace(categories=tuple(sorted(different)))


def _refuse_or_warn_of_numbers(start: str, survey: _Survey, found: str) -> None:
    if survey.is_of_numbers():
        what = "numbers and text" if survey.numbers < survey.texts else "numbers that cannot be read"
        fill = "a feature needs a value in every row: fill it in, leave out the row, or --exclude the column"
        other = "; write a number, or --exclude the column; if these are categories, put a letter before each number"
        raise TableError(f"{start} holds {what}{found}{_hint(survey, fill, other)}")
    if survey.many_numbers():
        count = f"each of its {len(survey.counts)} different values becomes a category, the numbers too"
        warnings.warn(f"{start} holds numbers and text{found}: {count}", stacklevel=2)


def _found(table: Table, survey: _Survey) -> str:
    if survey.first_text is None:
        return ""
    row, text = survey.first_text
    return f" ({table.place(row)} has {quoted(text)})"


def _hint(survey: _Survey, for_marker: str, for_word: str) -> str:
    """What to do about the first text of a column of numbers."""
    first = pa.array([survey.first_text[1] if survey.first_text else ""])
    if _matches(first, SPELLED):
        return "; write numbers like -1234.5, with a decimal point and a plain minus, without , % $ _ or 0x"
    return f", which looks like a missing value; {for_marker}" if _matches(first, MARKER) else for_word


def check_targets(table: Table, encoding: Encoding, Y: np.ndarray, which: str = "") -> None:
    """Raise if nothing can be learnt from these rows, each of which has a target.

    Args:
      table: they come from.
      encoding: names the targets.
      Y: (N, n).
      which: rows of the table these are, for the message, if not all.
    """
    n = len(encoding.targets)
    start, known = f"{table.path}: target", ~np.isnan(Y)
    for target in np.flatnonzero(~known.any(axis=0)):
        raise TableError(f"{start} {quoted(encoding.target_names[target])} has no value in any row{which}")
    if len(Y) <= n:
        rows = f"1 row with a target{which} is" if len(Y) == 1 else f"{len(Y)} rows with a target{which} are"
        raise TableError(f"{table.path}: {rows} too few for {n} target{'s' * (n > 1)}; at least {n + 1} are needed")
    for name, values in zip(encoding.target_names, Y.T, strict=True):
        low, high = np.nanmin(values), np.nanmax(values)
        if low == high:
            raise TableError(f"{start} {quoted(name)} is {low:g} in every row{which}; nothing to learn")


def constant_features(encoding: Encoding, X: np.ndarray) -> list[str]:
    """The names of columns that are the same in all rows of X, (N, d)."""
    same = X.min(axis=0) == X.max(axis=0)
    owners = [column.name for column in encoding.features for _ in range(column.width)]
    return [name for name, constant in zip(owners, same, strict=True) if constant]
