"""The cells of a column: numbers, booleans, times or text, and what is missing."""

import contextlib
from typing import Any, NamedTuple

import numpy as np


class Cells(NamedTuple):
    """The cells of a column.

    `kind` is "number" or "boolean", with `values` (N,) float64 and NaN where one is missing; "time" in seconds since
    1970 (UTC) or "clock" in seconds since midnight, likewise; or "text", where `values` are indices in `distinct`, a
    pyarrow array of different texts that all occur, and -1 where one is missing. `category`: text that is a category
    by its type.
    """

    kind: str
    values: np.ndarray
    distinct: Any = None
    category: bool = False

    @property
    def missing(self) -> np.ndarray:
        """(N,) bool."""
        return self.values < 0 if self.kind == "text" else np.isnan(self.values)


def real_numbers(array: np.ndarray) -> np.ndarray | None:
    """The array as float64 if its type is one of real numbers, also one that numpy does not know, like bfloat16."""
    if array.dtype.kind in "biuf":
        return np.asarray(array, np.float64)
    if array.dtype.kind == "V" and array.dtype.fields is None:
        with contextlib.suppress(TypeError, ValueError):
            return array.astype(np.float64)
    return None


def floats(name: str, values: Any) -> np.ndarray:
    """An argument that must be an array of real numbers, as float64."""
    found = None
    with contextlib.suppress(ValueError):  # rows that differ in length
        found = real_numbers(np.asarray(values))
    if found is None:
        raise TypeError(f"{name} must be an array of real numbers; got {values!r:.60}")
    return found
