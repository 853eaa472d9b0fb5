"""What methods that need numbers get of a table: learned from the training part alone."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NO_VALUE = "(no value)"


class Numbers(NamedTuple):
    """A column of numbers: median, mean and std of the training part, and whether any cell there is missing."""

    median: float
    mean: float
    std: float
    gaps: bool


Levels = tuple[str, ...]  # of a column of categories, in the training part, `NO_VALUE` among them if a cell is missing


class TableEncoder:
    """Columns of numbers standardised, a gap as the median and an indicator; categories one-hot, unseen ones all 0."""

    def __init__(self, table: pa.Table) -> None:
        self.columns: list[Numbers | Levels] = [_learned(column) for column in table.columns]

    def numbers(self, table: pa.Table, gaps: bool = False) -> np.ndarray:
        """Rows (N, d) of numbers; with `gaps` a missing number stays NaN, for methods that know what to do with it."""
        parts = []
        for known, column in zip(self.columns, table.columns, strict=True):
            if isinstance(known, Numbers):
                parts += _of_numbers(known, _floats(column), gaps)
            else:
                cells = _texts(column)
                parts += [(cells == level).astype(np.float64) for level in known]
        return np.stack(parts, axis=1) if parts else np.zeros((table.num_rows, 0))

    def frame(self, table: pa.Table, gaps: bool = False) -> Any:
        """A data frame whose columns of categories are such, for methods with a way of their own to treat them.

        With `gaps` a missing number stays NaN; a missing category is one of its own.
        """
        import pandas as pd

        columns: dict[str, Any] = {}
        for name, known, column in zip(table.column_names, self.columns, table.columns, strict=True):
            if isinstance(known, Numbers):
                found = _of_numbers(known, _floats(column), gaps)
                columns |= {f"{name}{' is missing' * place}": values for place, values in enumerate(found)}
            else:
                columns[name] = pd.Categorical(_texts(column))
        return pd.DataFrame(columns)


def _learned(column: pa.ChunkedArray) -> Numbers | Levels:
    if not _is_number(column):
        return tuple(sorted(set(_texts(column))))
    values = _floats(column)
    known = values[~np.isnan(values)]
    if not len(known):
        return Numbers(0.0, 0.0, 1.0, gaps=True)
    spread = float(known.std())
    unit = spread if spread > 16 * np.finfo(float).eps * abs(known.mean()) else 1.0
    return Numbers(float(np.median(known)), float(known.mean()), unit, gaps=len(known) < len(values))


def _of_numbers(known: Numbers, values: np.ndarray, gaps: bool) -> list[np.ndarray]:
    """The standardised column, and its indicator if the training part has gaps and they are to be filled."""
    missing = np.isnan(values)
    filled = values if gaps else np.where(missing, known.median, values)
    indicator = [missing.astype(np.float64)] if known.gaps and not gaps else []
    return [(filled - known.mean) / known.std, *indicator]


def _is_number(column: pa.ChunkedArray) -> bool:
    kind = column.type
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _floats(column: pa.ChunkedArray) -> np.ndarray:
    """Numbers as floats, NaN where one is missing."""
    return np.asarray(pc.fill_null(pc.cast(column, pa.float64()), np.nan).to_numpy())


def _texts(column: pa.ChunkedArray) -> np.ndarray:
    """Categories as text."""
    return np.asarray(pc.fill_null(pc.cast(column, pa.string()), NO_VALUE).to_pylist(), dtype=object)
