"""What is wrong with a table, or worth saying about it: all columns in one error or one warning."""

import contextlib
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any


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
            kind = TypeError if any(isinstance(error, TypeError) for _, error in self._found) else ValueError
            lines = [f"column {quoted(name)} {error}" for name, error in self._found]
            start = f"{len(lines)} columns cannot be used:\n  " if len(lines) > 1 else ""
            raise kind(start + "\n  ".join(lines)) from self._found[0][1]


def warn(message: str) -> None:
    """Warn whoever called `learn` or `encode`."""
    warnings.warn(message, UserWarning, stacklevel=4)


def several(name: str, values: Any) -> list[Any]:
    """The values of an argument that must be a list, or the like, of one axis."""
    iterable = isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping)
    if not iterable or getattr(values, "ndim", 1) != 1:
        raise TypeError(f"{name} must be a list; got {values!r:.60}")
    return list(values)


def quoted(value: object) -> str:
    """A value for a message: in quotes, without control characters, not longer than a line."""
    text = str(value)
    return repr(text if len(text) <= 60 else text[:60] + "…")


def listed(values: Sequence[object], most: int = 10) -> str:
    """The first few of some values, quoted."""
    more = f" and {len(values) - most} more" if len(values) > most else ""
    return ", ".join(map(quoted, values[:most])) + more


def share(count: int, total: int, one: str, several: str) -> str:
    """How many rows, with the verb for one or several: 1 of 70 rows has, 3 of 70 rows have."""
    return f"{count:,} of {total:,} rows {one if count == 1 else several}"
