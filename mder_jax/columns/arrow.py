"""A column as Arrow holds it, and its cells: what is a number, a boolean, a time or text by its type."""

import datetime
import decimal
import numbers
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mder_jax.columns.cells import Cells

MISSING = ("", "NA", "na", "NaN", "nan", "NAN", "null", "Null", "NULL", "None", "<NA>", "NaT")
_LIKE_THOUSANDS = re.compile(r"-?\d{1,3}\.\d{3}")
SECONDS_PER = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}


def cells(column: Any) -> Cells:
    """The cells of a column of numpy, pandas, polars, Arrow or a sequence of objects."""
    dtype = getattr(column, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "iuf":
        return Cells("number", np.asarray(column, np.float64))
    if str(dtype) == "category" and hasattr(column, "cat"):
        return _of_pandas_categories(column.cat)
    values = _arrow(column.dt.to_timestamp() if str(dtype).startswith("period[") else column)
    kind = values.type
    if pa.types.is_dictionary(kind):
        return text(values.dictionary, _indices(values.indices), category=True)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        encoded = (values.cast(pa.large_string()) if pa.types.is_string_view(kind) else values).dictionary_encode()
        return text(encoded.dictionary, _indices(encoded.indices))
    if pa.types.is_boolean(kind):
        return Cells("boolean", _floats(pc.cast(values, pa.int8())))
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind):
        seconds = _floats(values.cast(pa.int32() if kind.bit_width == 32 else pa.int64())) / SECONDS_PER[kind.unit]
        named = "time" if pa.types.is_timestamp(kind) else "clock" if pa.types.is_time(kind) else "number"
        return Cells(named, seconds)
    if pa.types.is_date(kind):
        return Cells("time", _floats(pc.cast(values, pa.date32()).cast(pa.int32())) * 86_400)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind):
        return Cells("number", _floats(values))
    raise TypeError(f"holds {_described(kind)}; an argument must be a string or a number in every cell")


def _of_pandas_categories(column: Any) -> Cells:
    levels = column.categories
    texts = pa.array(levels) if levels.dtype.kind in "iuf" else pa.array([str(level) for level in levels], pa.string())
    return text(texts, column.codes.to_numpy().astype(np.int64), category=True)


def _described(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        return f"dicts ({kind})"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return f"bytes ({kind})"
    return f"lists ({kind})" if pa.types.is_nested(kind) else str(kind)


def _arrow(column: Any) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if isinstance(column, pa.Array):
        return column
    if getattr(getattr(column, "dtype", None), "kind", "O") == "c":
        raise TypeError("holds complex numbers (Complex data not supported); a cell must be a real number or text")
    if getattr(column, "ndim", 1) != 1:
        raise ValueError(f"must have one value in each row; got shape {column.shape}")
    moments = isinstance(column, np.ndarray) and column.dtype.kind in "mM"
    if moments and np.datetime_data(column.dtype)[0] not in SECONDS_PER:  # hours, days, ...
        column = column.astype(f"{column.dtype.kind}8[s]")
    try:
        values = pa.array(column, from_pandas=True)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):  # of several types
        values = pa.array([_text_of(value) for value in column], pa.string())
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _text_of(value: Any) -> str | None:
    """An object of a column with several types as text; None where it is missing."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | numbers.Real | decimal.Decimal):
        text = str(value)
        return f"{text}0" if _LIKE_THOUSANDS.fullmatch(text) else text  # 1.234 is no 1234, however text is written
    if isinstance(value, datetime.date | datetime.time):
        return None if value != value else value.isoformat()  # NaT is a date that differs from itself
    if repr(value) == "<NA>":
        return None
    what = "complex numbers (Complex data not supported)" if isinstance(value, complex) else type(value).__name__
    raise TypeError(f"holds {what} ({value!r:.40}); an argument must be a string or a number in every cell")


def text(distinct: pa.Array, codes: np.ndarray, category: bool = False) -> Cells:
    """Cells of text, given different texts (or other values) and for each row the index of one, -1 for none.

    Texts lose the whitespace around them; those in `MISSING` are missing.
    """
    trimmed = pc.utf8_trim_whitespace(_as_text(distinct))
    again = pc.if_else(pc.is_in(trimmed, pa.array(MISSING)), None, trimmed).dictionary_encode()
    codes = np.append(_indices(again.indices), -1)[codes]
    used = np.bincount(codes + 1, minlength=len(again.dictionary) + 1)[1:] > 0
    renumbered = np.append(np.cumsum(used) - 1, -1)
    return Cells("text", renumbered[codes], again.dictionary.filter(pa.array(used)), category)


def as_text(column: Cells, booleans: tuple[str, str] = ("0", "1")) -> Cells:
    """The same cells as text, whatever they are: numbers as Python writes them, integers without a point.

    Times are written as in most files, 2024-01-31 09:30:00, without the time if it is midnight.
    """
    if column.kind == "text":
        return column
    if column.kind == "boolean":
        codes = np.where(column.missing, -1, column.values == 1)
        return text(pa.array(booleans, pa.string()), codes.astype(np.int64))
    different, codes = np.unique(column.values, return_inverse=True)  # NaN, once, comes last
    codes = np.where(column.missing, -1, codes)
    return text(pa.array(_written(different[~np.isnan(different)], column.kind), pa.string()), codes)


def _written(values: np.ndarray, kind: str) -> list[str]:
    if kind == "time":
        moments = [str(moment).replace("T", " ") for moment in values.astype("datetime64[s]")]
        return [moment.removesuffix(" 00:00:00") for moment in moments]
    return [str(int(value)) if value.is_integer() else repr(value) for value in values.tolist()]


def _as_text(values: pa.Array) -> pa.Array:
    if pa.types.is_floating(values.type):
        return pa.array(_written(_floats(values), "number"), pa.string())
    return pc.cast(values, pa.string())


def take(values: Iterable[float] | np.ndarray, codes: np.ndarray) -> np.ndarray:
    """For each row the value of its text, NaN where it is missing."""
    return np.append(np.asarray(values, np.float64), np.nan)[codes]


def _indices(values: pa.Array) -> np.ndarray:
    return pc.cast(values, pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)


def _floats(values: pa.Array) -> np.ndarray:
    # Not "safe": integers beyond 2^53 lose digits, which is no reason to refuse them.
    return pc.cast(values, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
