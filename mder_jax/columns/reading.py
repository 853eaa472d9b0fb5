"""The cells of a column as numbers, as they were read in training."""

from typing import Any, NamedTuple

import numpy as np

from mder_jax._messages import listed, quoted
from mder_jax.columns import ranges
from mder_jax.columns.cells import Cells
from mder_jax.columns.column import Column
from mder_jax.columns.complaints import WrongCellError, share


class Values(NamedTuple):
    """A column as read: numbers (N, k) with NaN in gaps, or indices of levels (N,); and a remark about both.

    `unseen` holds, of a category, the different texts that have no level, and how often each occurs.
    """

    values: np.ndarray
    remark: str = ""
    unseen: tuple[tuple[str, int], ...] = ()


def read_column(column: Column, cells: Cells) -> Values:
    """The cells as what they were in training; a text that is nothing of the kind is a gap, with a remark."""
    if column.kind == "category":
        return _read_category(column, cells)
    if cells.kind == "text":
        return _read_text(column, cells)
    expected = {"date": "time", "clock": "clock"}.get(column.kind, "number")
    if cells.kind.replace("boolean", "number") != expected and not cells.missing.all():
        raise ValueError(f"held {column.kind}s in training and holds {cells.kind}s now")
    return Values(features(column, cells.values))


def _words(column: Column) -> tuple[str, str]:
    """How a category spells false and true; 0 and 1 if it has no such levels."""
    own = {level.lower(): level for level in column.levels}
    return (own["false"], own["true"]) if {"false", "true"} <= own.keys() else ("0", "1")


def _read_category(column: Column, cells: Cells) -> Values:
    from mder_jax.columns import arrow, categories

    text = arrow.as_text(cells, _words(column))
    index = categories.index(text, column.levels)
    codes = text.values[index == categories.UNSEEN]
    different, counts = np.unique(codes, return_counts=True)
    most = np.argsort(-counts, kind="stable")[:5]
    texts = text.distinct.take(different[most]).to_pylist()
    return Values(index, unseen=tuple(zip(texts, counts[most].tolist(), strict=True)))


def _read_text(column: Column, cells: Cells) -> Values:
    from mder_jax.columns import arrow, numbers

    parsed = parse_text(column, cells)
    unread = np.flatnonzero(np.isnan(parsed))
    words = unread[~numbers.matches(cells.distinct.take(unread), numbers.MARKER)]
    count, remark = int(np.isin(cells.values, words).sum()), ""
    if count:
        shown = listed(cells.distinct.take(words).to_pylist(), 5)
        rows = share(count, len(cells.values), "has", "have")
        remark = f"{rows} text in {quoted(column.name)} that is no {column.kind} and counts as missing ({shown})"
    return Values(features(column, arrow.take(parsed, cells.values)), remark)


def parse_text(column: Column, cells: Cells) -> np.ndarray:
    """Different texts as numbers or seconds, (k,); NaN where one is something else."""
    try:
        return _parsed(column, cells.distinct)
    except WrongCellError as error:
        raise WrongCellError(str(error), int((cells.values == error.row).argmax())) from None


def _parsed(column: Column, distinct: Any) -> np.ndarray:
    from mder_jax.columns import dates, numbers

    if column.kind == "date":
        return dates.parse(distinct, column.order)
    if column.kind == "clock":
        return dates.parse_clock(distinct)
    found = numbers.parse(distinct, column.decimal)
    if column.kind == "boolean":
        words = numbers.parse_booleans(distinct)
        found = np.where(np.isnan(words), found, words)
    return found


def features(column: Column, values: np.ndarray) -> np.ndarray:
    """The numbers (N, k) that numbers or seconds (N,) become, in their units, NaN in gaps."""
    if column.parts:
        from mder_jax.columns import dates

        dates.check_calendar(values)
        return dates.features(values, column.parts)
    wrong = np.abs(values) > ranges.LARGEST
    if wrong.any():
        row = int(wrong.argmax())
        raise WrongCellError(f"must hold finite numbers below 3.4e38; got {values[row]:g}", row)
    return values[:, None]
