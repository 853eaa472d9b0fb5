"""Targets of a table: numbers in every column, NaN where one was not observed."""

from typing import Any

import numpy as np

from mder_jax._messages import quoted
from mder_jax.columns.column import Column
from mder_jax.columns.complaints import Complaints, WrongCellError
from mder_jax.columns.frames import Frame, read
from mder_jax.columns.reading import features


def read_targets(table: Any) -> np.ndarray:
    """The columns of a table as numbers, (N, n) float64; NaN where a value is missing.

    Numbers may be text, with decimal commas, separated thousands or %; markers such as "?" or "NA" are missing values.

    Args:
      table: an array, a list of rows, or a data frame of pandas, polars or Arrow.

    Example:
      >>> from mder_jax import columns
      >>> print(columns.read_targets([["1,5", "3"], ["2,25", "?"]]))
      [[1.5  3.  ]
       [2.25  nan]]
    """
    frame, complaints, found = read(table), Complaints(), []
    for j in range(frame.width):
        with complaints.about(frame.name(j)):
            found.append(_numbers(frame, j))
    complaints.raise_all()
    return np.hstack(found)


def _numbers(frame: Frame, j: int) -> np.ndarray:
    cells, column = frame.cells(j), Column(frame.name(j), j, "number")
    if cells.kind not in ("text", "number", "boolean"):
        raise ValueError(f"is a target and must hold numbers; it holds {cells.kind}s")
    values = cells.values
    if cells.kind == "text":
        from mder_jax.columns import arrow, numbers

        text = cells.distinct
        parsed, booleans = numbers.parse(text, numbers.decimal_mark(text)), numbers.parse_booleans(text)
        parsed = np.where(np.isnan(parsed), booleans, parsed)
        wrong = np.flatnonzero(np.isnan(parsed) & ~numbers.matches(text, numbers.MARKER))
        if len(wrong):
            row = int(np.isin(values, wrong).argmax())
            raise WrongCellError(f"is a target and must hold numbers; got {quoted(text[values[row]].as_py())}", row)
        values = arrow.take(parsed, values)
    return features(column, values)
