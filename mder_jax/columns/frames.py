"""Any table as columns of cells: arrays, lists, pandas, polars, Arrow, or anything with `columns` and `[name]`."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mder_jax.columns.cells import Cells, real_numbers


class Frame(NamedTuple):
    """A table of `rows` rows: `matrix` (N, d) float64 if it is numbers throughout, and `column(j)` in any case."""

    names: list[str] | None
    rows: int
    width: int
    matrix: np.ndarray | None
    column: Callable[[int], Any]

    def cells(self, j: int) -> Cells:
        """The cells of the column at this position."""
        if self.matrix is not None:
            return Cells("number", self.matrix[:, j])
        from mder_jax.columns import arrow

        return arrow.cells(self.column(j))

    def name(self, j: int) -> str:
        """The name of a column; x0, x1, ... if the table has none."""
        return f"x{j}" if self.names is None else self.names[j]


def read(table: Any) -> Frame:
    """The table, with at least one row and one column."""
    frame = _frame(table)
    shape = (frame.rows, frame.width)
    if not frame.width:
        raise ValueError(f"a table needs columns; got 0 feature(s) (shape={shape}) while a minimum of 1 is required")
    if not frame.rows:
        raise ValueError(f"a table needs rows; got 0 sample(s) (shape={shape}) while a minimum of 1 is required")
    return frame


def _frame(table: Any) -> Frame:
    if isinstance(table, np.ndarray):
        return _of_array(table)
    if hasattr(table, "iloc") and hasattr(table, "dtypes"):
        return _of_pandas(table)
    if hasattr(table, "tocsr"):
        raise TypeError("Sparse data was passed; a table must be dense: give X.toarray()")
    if hasattr(table, "collect"):
        raise TypeError(f"a {type(table).__name__} holds no rows yet; give table.collect()")
    if _is_polars_of_numbers(table):
        return _of_array(table.to_numpy())._replace(names=list(table.columns))
    if hasattr(table, "__arrow_c_stream__") or hasattr(table, "__arrow_c_array__"):
        return _of_arrow(table)
    if hasattr(table, "columns") and hasattr(table, "__getitem__"):
        return _of_named_columns(table)
    return _of_array(_as_array(table))


def _is_polars_of_numbers(table: Any) -> bool:
    polars = type(table).__module__.split(".")[0] == "polars" and hasattr(table, "dtypes")
    return polars and all(dtype.is_integer() or dtype.is_float() for dtype in table.dtypes)


def _as_array(table: Any) -> np.ndarray:
    if table is None or isinstance(table, str | bytes | dict):
        raise TypeError(f"a table must be an array, a list of rows or a data frame; got {type(table).__name__}")
    try:
        array = np.asarray(table)
    except ValueError:
        raise ValueError("the rows of a table must all have the same length") from None
    if isinstance(table, list | tuple) and array.dtype.kind not in "biuf":
        array = np.array(table, object)  # or else numbers and None beside text would be text
    return array


def _of_array(array: np.ndarray) -> Frame:
    if isinstance(array, np.ma.MaskedArray):
        number = array.dtype.kind in "biuf"
        array = np.ma.filled(array.astype(np.float64 if number else object), np.nan if number else None)
    if array.ndim != 2:
        hint = "Reshape your data: X.reshape(-1, 1) if it is one column, X.reshape(1, -1) if it is one row"
        raise ValueError(f"a table must be a 2D array (N, d); got shape {array.shape}. {hint}")
    matrix = real_numbers(array)
    if matrix is None and array.dtype.kind in "cVS":
        what = "Complex data not supported: a" if array.dtype.kind == "c" else "a"
        raise TypeError(f"{what} table must hold real numbers, text or dates; got an array of {array.dtype}")
    rows, width = array.shape
    return Frame(None, rows, width, matrix, lambda j: array[:, j])


def _of_pandas(table: Any) -> Frame:
    if not hasattr(table, "columns"):
        raise ValueError("a table must be 2D; got a Series. Reshape your data: give series.to_frame()")
    names = list(table.columns)
    plain = all(isinstance(dtype, np.dtype) and dtype.kind in "iuf" for dtype in table.dtypes)
    return Frame(
        None if names == list(range(len(names))) else [str(name) for name in names],
        len(table),
        len(names),
        table.to_numpy(np.float64) if plain and len(names) else None,
        lambda j: table.iloc[:, j],
    )


def _of_arrow(table: Any) -> Frame:
    import pyarrow as pa

    columns = pa.table(table)
    return Frame(list(columns.column_names), columns.num_rows, columns.num_columns, None, columns.column)


def _of_named_columns(table: Any) -> Frame:
    names = list(table.columns)
    columns = [table[name] for name in names]
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        raise ValueError(f"the columns of a table must have the same length; got {sorted(lengths)}")
    return Frame([str(name) for name in names], max(lengths, default=0), len(names), None, columns.__getitem__)
