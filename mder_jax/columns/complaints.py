"""What is wrong with a table, or worth saying about it: all columns in one error or one warning."""

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from mder_jax._messages import quoted


class CellError(ValueError):
    """Columns that cannot be used, with the reason for each and the row, from 0, of a cell that is wrong.

    Args:
      found: by the name of a column, the reason and the row; None if it is not about a row.

    Example:
      >>> from mder_jax import columns
      >>> error = columns.CellError([("size", "holds inf", 4)])
      >>> print(error)
      column 'size' holds inf (row 4, counted from 0)
      >>> print(error.located(lambda row: f"line {row + 2}"))
      column 'size' holds inf (line 6)
    """

    def __init__(self, found: Sequence[tuple[str, str, int | None]]) -> None:
        super().__init__(found)
        self.found = list(found)

    def located(self, place: Callable[[int], str]) -> str:
        """The message, with the places of rows as this function names them.

        Example:
          >>> from mder_jax import columns
          >>> print(columns.CellError([("size", "holds inf", 4)]).located(lambda row: f"line {row + 2}"))
          column 'size' holds inf (line 6)
        """
        lines = [
            f"column {quoted(name)} {reason}" + ("" if row is None else f" ({place(row)})")
            for name, reason, row in self.found
        ]
        start = f"{len(lines)} columns cannot be used:\n  " if len(lines) > 1 else ""
        return start + "\n  ".join(lines)

    def __str__(self) -> str:
        return self.located(lambda row: f"row {row}, counted from 0")


class WrongCellError(ValueError):
    """A cell of a column that is wrong, in this row, from 0."""

    def __init__(self, reason: str, row: int) -> None:
        super().__init__(reason)
        self.row = row


class Complaints:
    """Errors about columns, raised together."""

    def __init__(self) -> None:
        self._found: list[tuple[str, Exception]] = []

    @contextlib.contextmanager
    def about(self, name: str) -> Iterator[None]:
        """Keep an error about this column for later."""
        try:
            yield
        except (TypeError, ValueError) as error:
            self._found.append((name, error))

    def raise_all(self) -> None:
        """Raise one error that lists every column: a TypeError if one of them is."""
        if self._found:
            error = CellError([(name, str(one), getattr(one, "row", None)) for name, one in self._found])
            if any(isinstance(one, TypeError) for _, one in self._found):
                raise TypeError(str(error)) from self._found[0][1]
            raise error from self._found[0][1]


def warn(message: str) -> None:
    """Warn whoever called the library: the first caller outside of it."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "mder_jax":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UserWarning, stacklevel=level)


def several(name: str, values: Any) -> list[Any]:
    """The values of an argument that must be a list, or the like, of one axis."""
    iterable = isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping)
    if not iterable or getattr(values, "ndim", 1) != 1:
        raise TypeError(f"{name} must be a list; got {values!r:.60}")
    return list(values)


def share(count: int, total: int, one: str, several: str) -> str:
    """How many rows, with the verb for one or several: 1 of 70 rows has, 3 of 70 rows have."""
    return f"{count:,} of {total:,} rows {one if count == 1 else several}"
