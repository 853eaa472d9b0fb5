"""What the columns of a training table hold: numbers, booleans, times, categories, or nothing to learn from."""

import collections
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from mder_jax._arguments import check_type
from mder_jax._messages import listed, quoted
from mder_jax.columns import ranges
from mder_jax.columns.cells import Cells
from mder_jax.columns.column import Column
from mder_jax.columns.complaints import Complaints, several, warn
from mder_jax.columns.encoding import Encoded, Encoding, assemble
from mder_jax.columns.frames import Frame, read
from mder_jax.columns.ranges import Range
from mder_jax.columns.reading import features, parse_text

FEW_NUMBERS = 30  # different numbers that may be categories if there are words too: sizes, floors, years
ONE_HOT = 12  # most slots of a category that are columns of 0 and 1 each; more are one column of indices
CODES = 10  # the same if hardly any cell is a word
SLIPS = 0.1  # the largest fraction of cells that are text by mistake
FEW_ROWS = 20  # that may all have different texts
MOST_ALONE, MOST_RARE = 0.8, 0.5  # of more rows: the largest fractions with a text that occurs once, or is rare
COUNTER = re.compile(
    r"|#|((row|case|obs|record)[ _.]?)?(id|index|idx|no|nr|num|number)\.?|row([ _.]?names?)?|x1|unnamed.*|__index_.*"
)
ID = re.compile(r"^(id|ID|Id)$|[ _.-](id|ID)$|[a-z]I[dD]$|^[Uu]nnamed|^__index_")  # customer_id, GameID
CONSTANT = "the same in every row"


class Found(NamedTuple):
    """A column and what was read from it; or the reason to leave it out. The note says how it was read."""

    column: Column
    values: np.ndarray
    reason: str = ""
    note: str = ""


def learn(
    table: Any,
    categorical: Iterable[str | int] | None = None,
    names: Iterable[str] | None = None,
    like: Encoding | None = None,
) -> tuple[Encoding, Encoded]:
    """How the columns of a training table become numbers, and these numbers.

    Numbers, also those in text, stay what they are; dates become years, the season and the time of day; text becomes
    categories. Gaps are filled with the mean, and an indicator column tells where they are. A number far outside of
    the others is drawn to the range of training. Columns that nothing can be learnt from are left out. Warnings tell
    what was not plain.

    Args:
      table: an array, a list of rows, or a data frame of pandas, polars or Arrow.
      categorical: names or positions of columns that hold categories, even if these are numbers.
      names: of the columns, for a table without names.
      like: what was learnt from a larger table of which these are some rows, in the place of `categorical`: which
        columns are used, what they hold and how it is written (the decimal mark, the order of a date) stay. Levels and
        ranges are those of these rows.

    Returns:
      The `Encoding`, and the table as `Encoded`, of which `novelty` is 0.

    Example:
      >>> import pyarrow as pa
      >>> from mder_jax import columns
      >>> when = ["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04"]
      >>> table = pa.table({"weight": [3.5, None, 2.5, 3.0], "island": ["a", "b", "c", "a"], "when": when})
      >>> encoding, encoded = columns.learn(table)
      >>> [(column.name, column.kind, column.width) for column in encoding.columns]
      [('weight', 'number', 2), ('island', 'category', 3), ('when', 'date', 1)]
      >>> encoded.X[1].round(3).tolist()
      [3.0, 1.0, 0.0, 1.0, 0.0, 2024.002]
    """
    if like is not None:
        check_type("like", like, Encoding)
    frame = _named(read(table), names)
    chosen, known = _positions(categorical, frame), _known(like, categorical, frame)
    complaints, found = Complaints(), []
    for j in range(frame.width):
        with complaints.about(frame.name(j)):
            found.append(_learn_column(frame, j, j in chosen) if like is None else _learn_again(frame, j, known.get(j)))
    complaints.raise_all()
    found = _without_identifiers(frame, found) if like is None else found
    used = [one for one in found if not one.reason]
    _report(frame, found)
    columns = _with_indicators(used)
    left_out = tuple(one.column.name for one in found if one.reason)
    encoding = Encoding(columns, left_out, frame.names, frame.width)
    X = assemble(columns, [one.values for one in used])
    return encoding, Encoded(X, np.zeros(frame.rows), {})


def _named(frame: Frame, names: Iterable[str] | None) -> Frame:
    if names is not None:
        given = [str(name) for name in several("names", names)]
        if len(given) != frame.width:
            raise ValueError(f"names must hold one for each of {frame.width} columns; got {listed(given)}")
        frame = frame._replace(names=given)
    twice = [name for name, count in collections.Counter(frame.names).items() if count > 1]
    if twice:
        raise ValueError(f"several columns are named {listed(twice)}; rename all but one")
    return frame


def _positions(categorical: Iterable[str | int] | None, frame: Frame) -> set[int]:
    known: dict[Any, int] = {frame.name(j): j for j in range(frame.width)}
    known |= {j: j for j in range(frame.width)}
    given = [] if categorical is None else several("categorical", categorical)
    wrong = [one for one in given if isinstance(one, bool) or not isinstance(one, str | int | np.integer)]
    if wrong:
        raise TypeError(f"categorical must hold names or positions of columns; got {wrong[0]!r:.60}")
    unknown = [one for one in given if one not in known]
    if unknown:
        columns = listed([frame.name(j) for j in range(frame.width)])
        raise ValueError(f"categorical names {listed(unknown)}, but the columns are {columns}")
    return {known[one] for one in given}


def _known(like: Encoding | None, categorical: Any, frame: Frame) -> dict[int, Column]:
    """The columns of another encoding by their positions."""
    if like is None:
        return {}
    if categorical is not None:
        raise ValueError("like says which columns are categories; leave out categorical")
    if (like.names, like.table_width) != (frame.names, frame.width):
        columns = listed([frame.name(j) for j in range(frame.width)])
        known = listed(like.names or [f"x{j}" for j in range(like.table_width)])
        raise ValueError(f"like must be learnt from a table with the columns {columns}; it knows {known}")
    return {column.position: column for column in like.columns}


def _learn_again(frame: Frame, j: int, known: Column | None) -> Found:
    """A column of some rows of a table, of which is known what the column holds; None if it was left out."""
    from mder_jax.columns import arrow

    name = frame.name(j)
    if known is None:
        return Found(Column(name, j, "category"), np.empty(0), "left out of the whole table")
    cells = frame.cells(j)
    if known.kind == "category":
        return _of_category(Column(name, j, "category"), cells)
    values = arrow.take(parse_text(known, cells), cells.values) if cells.kind == "text" else cells.values
    return _of_numbers(frame, known._replace(gaps=False, indicator=False, ranges=()), values)


def _learn_column(frame: Frame, j: int, as_category: bool) -> Found:
    cells, name = frame.cells(j), frame.name(j)
    if cells.category or (as_category and cells.kind != "boolean"):
        return _of_category(Column(name, j, "category"), cells)
    if cells.kind == "text":
        return _of_text(frame, Column(name, j, "category"), cells)
    return _of_numbers(frame, Column(name, j, "date" if cells.kind == "time" else cells.kind), cells.values)


def _of_numbers(frame: Frame, column: Column, values: np.ndarray, note: str = "") -> Found:
    """A column of numbers, or of seconds for times."""
    missing = np.isnan(values)
    present = values[~missing]
    if not len(present):
        return Found(column, values, "no value in any row")
    if frame.names is not None and len(values) > 1 and not missing.any() and present.min() == present.max():
        features(column, values)  # raises if it is infinite
        return Found(column, values, CONSTANT)
    if column.kind in ("date", "clock") and not column.parts:
        from mder_jax.columns import dates

        column = column._replace(parts=dates.parts_of(present, column.kind == "clock"))
    numbers = features(column, values)
    limits = tuple(_range(number[~missing]) for number in numbers.T)
    return Found(column._replace(gaps=bool(missing.any()), ranges=limits), numbers, note=note)


def _range(values: np.ndarray) -> Range:
    low, high = ranges.limits(values)
    mean = float(np.clip(values, low, high).mean())
    return Range(low, high, min(max(mean, low), high), *ranges.tails(values, low, high))


class _Survey(NamedTuple):
    """Which different texts (k,) are numbers or markers of a missing value, and how often each occurs."""

    counts: np.ndarray
    number: np.ndarray
    marker: np.ndarray

    @property
    def word(self) -> np.ndarray:
        """Neither number nor marker."""
        return ~self.number & ~self.marker

    def many_numbers(self) -> bool:
        """Whether half of the cells or half of the different texts are numbers."""
        return 2 * self.counts[self.number].sum() >= self.counts.sum() or 2 * self.number.sum() >= len(self.number)

    def is_of_numbers(self) -> bool:
        """Whether a column with text in it was meant to hold numbers.

        It was if half of the cells, or of the different texts, are numbers, and one of these holds: there are no words,
        only markers of missing values; there are more than `FEW_NUMBERS` different numbers; there are more than `CODES`
        and the other texts are rare (`SLIPS`) and all different. Otherwise the texts are categories, of which some may
        be numbers: "S", "M", "38", "40" or "1", "2", "3", "attic".
        """
        different, others = self.number.sum(), self.counts[~self.number]
        slips = different > CODES and others.sum() <= SLIPS * self.counts.sum() and (others == 1).all()
        return bool(self.many_numbers() and (not self.word.any() or different > FEW_NUMBERS or slips))

    def is_of_names(self, rows: int) -> bool:
        """Whether most rows have a text that hardly any other row has, as identifiers, names and remarks do."""
        from mder_jax.columns.categories import rare

        texts, alone = self.counts.sum(), (self.counts == 1).sum()
        seldom = self.counts[rare(self.counts, rows)].sum()
        return bool(texts > FEW_ROWS and (alone > MOST_ALONE * texts or seldom > MOST_RARE * texts))


def _of_text(frame: Frame, column: Column, cells: Cells) -> Found:
    from mder_jax.columns import arrow, dates, numbers

    distinct = cells.distinct
    if not len(distinct):
        return Found(column, cells.values, "no value in any row")
    counts = np.bincount(cells.values[cells.values >= 0], minlength=len(distinct))
    decimal, marker = numbers.decimal_mark(distinct), numbers.matches(distinct, numbers.MARKER)
    survey = _Survey(counts, ~np.isnan(numbers.parse(distinct, decimal)), marker)
    order, guessed = "ymd", False
    kind = "number" if survey.is_of_numbers() else "category"
    for other, fits in {
        "boolean": ~np.isnan(numbers.parse_booleans(distinct)),
        "date": numbers.matches(distinct, dates.DATE),
        "clock": numbers.matches(distinct, dates.CLOCK),
    }.items():
        if fits.any() and (fits | marker).all():
            kind = other
            if kind == "date":
                order, guessed = dates.order_of(distinct)
    column = column._replace(kind=kind, decimal=decimal, order=order)
    if kind == "category":
        if survey.is_of_names(frame.rows):
            return Found(column, cells.values, "text that is different in most rows")
        return _of_category(column, cells, _note_of_mixture(column, cells, survey))
    parsed = parse_text(column, cells)
    note = _note(column, cells, parsed, guessed)
    return _of_numbers(frame, column, arrow.take(parsed, cells.values), note)


def _note(column: Column, cells: Cells, parsed: np.ndarray, guessed: bool) -> str:
    """How text was read, if that is not plain."""
    from mder_jax.columns import dates, numbers

    notes, text = [], cells.distinct
    if column.kind == "number":
        odd = ~np.isnan(parsed) & ~numbers.matches(text, numbers.NUMBER)
        if odd.any():
            example = int(odd.argmax())
            notes.append(f"{quoted(text[example].as_py())} is read as {parsed[example]:.12g}")
    if guessed:
        example = int((~np.isnan(parsed)).argmax())
        day = dates.described(1970 + parsed[example] / dates.YEAR, "year")
        notes.append(f"{quoted(text[example].as_py())} is read as {day}, the month first")
    gaps = text.filter(np.isnan(parsed)).to_pylist()
    if gaps:
        notes.append(f"{listed(gaps, 3)} count{'s' * (len(gaps) == 1)} as missing")
    return f"{quoted(column.name)} ({', '.join(notes)})" if notes else ""


def _note_of_mixture(column: Column, cells: Cells, survey: _Survey) -> str:
    if not (survey.many_numbers() and survey.word.any()):
        return ""
    word = cells.distinct[int(survey.word.argmax())].as_py()
    return f"{quoted(column.name)} (numbers and text such as {quoted(word)}: each value is a category)"


def _of_category(column: Column, cells: Cells, note: str = "") -> Found:
    from mder_jax.columns import arrow, categories

    text = arrow.as_text(cells)
    levels, other = categories.choose(text)
    gaps = bool(text.missing.any())
    embedded = len(levels) + other + gaps > ONE_HOT
    column = column._replace(levels=levels, other=other, gaps=gaps, embedded=embedded)
    if not len(text.distinct):
        return Found(column, text.values, "no value in any row")
    if not levels:
        return Found(column, text.values, f"no text occurs {categories.RARE} times")
    if len(levels) + other + gaps == 1 and len(text.values) > 1:
        return Found(column, text.values, CONSTANT)
    return Found(column, categories.index(text, levels), note=note)


def _without_identifiers(frame: Frame, found: list[Found]) -> list[Found]:
    """Leave out columns that only number the rows, by their values and their names, if any other column is left."""
    numbering = [frame.names is not None and _numbers_rows(one) for one in found]
    if all(one.reason or numbers for one, numbers in zip(found, numbering, strict=True)):
        return found
    reason = "a number of its own in every row"
    return [one._replace(reason=reason) if numbers else one for one, numbers in zip(found, numbering, strict=True)]


def _numbers_rows(found: Found) -> bool:
    """Whether rows have different integers under the name of an identifier, or are counted under that of an index.

    A counter may have gaps, where rows of a larger table were left out, but not more than there are rows.
    """
    name = found.column.name.strip()
    if found.reason or found.column.kind != "number" or len(found.values) < 3:
        return False
    numbers = found.values[:, 0]
    if not (numbers == np.round(numbers)).all():
        return False
    if COUNTER.fullmatch(name.lower()) and (np.diff(numbers) > 0).all():
        return bool(numbers[0] >= 0 and numbers[-1] <= 2 * len(numbers))
    return bool(ID.search(name)) and len(np.unique(numbers)) == len(numbers)


def _with_indicators(used: list[Found]) -> tuple[Column, ...]:
    """The columns, with an indicator for each pattern of gaps that no column before has."""
    seen, columns = set(), []
    for found in used:
        column = found.column
        if column.gaps and column.kind != "category":
            pattern = np.packbits(np.isnan(found.values[:, 0])).tobytes()
            column = column._replace(indicator=pattern not in seen)
            seen.add(pattern)
        columns.append(column)
    return tuple(columns)


def _report(frame: Frame, found: list[Found]) -> None:
    """Warn of columns that were left out or read in a special way; raise if none is left."""
    reasons = [f"{quoted(one.column.name)} ({one.reason})" for one in found if one.reason]
    if len(reasons) == frame.width:
        raise ValueError(f"the table has no column to learn from: {', '.join(reasons)}")
    notes = [one.note for one in found if one.note and not one.reason]
    if notes:
        warn(f"text was read so: {', '.join(notes)}")
    if reasons:
        warn(f"columns left out: {', '.join(reasons)}")
