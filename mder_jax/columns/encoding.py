"""How the columns of any later table become the numbers of X, as learnt from a training table."""

import collections
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mder_jax._messages import listed, unknown
from mder_jax.columns import ranges
from mder_jax.columns.cells import floats
from mder_jax.columns.column import Column, column_from_json
from mder_jax.columns.complaints import Complaints, warn
from mder_jax.columns.frames import Frame, read
from mder_jax.columns.judging import judge
from mder_jax.columns.reading import Values, read_column

VERSION = 1
MOST_SAID = 8  # findings in one warning


class Encoded(NamedTuple):
    """A table as numbers.

    Attributes:
      X: (N, width) float64 without gaps, numbers in their units.
      novelty: (N,), 0 for a row like those of training: Σ min((e/0.25)⁴, 10⁶) over numbers, with e the excess over
        the range of training in units of its width; + 1 for each level that training did not have, or 0.05 if it had
        "other" levels; + 0.1 for each gap in a column that had none in training.
      outside: by the name of a column, (N,) bool: beyond the range by a fifth of its width, an unseen level, or such
        a gap.

    Example:
      >>> import numpy as np
      >>> from mder_jax import columns
      >>> encoding, training = columns.learn(np.array([[0.0], [1.0], [2.0]]))
      >>> later = encoding.encode([[1.5], [3.0]], quiet=True)
      >>> later.X.round(3).tolist(), later.novelty.tolist(), later.outside["x0"].tolist()
      ([[1.5], [2.333]], [0.0, 16.0], [False, True])
    """

    X: np.ndarray
    novelty: np.ndarray
    outside: dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Encoding:
    """What `learn` found out about a table: how its columns become X.

    Attributes:
      columns: those that are used, in their order.
      left_out: names of the others.
      names: of all columns of the table; None if it had none.
      table_width: how many columns the table had.

    Example:
      >>> from mder_jax import columns
      >>> encoding, training = columns.learn([[1.0, "red"], [2.5, "blue"], [None, "red"]])
      >>> encoding.width, encoding.embedded
      (4, ())
      >>> training.X  # a number, whether it is missing, and blue or red
      array([[1.  , 0.  , 0.  , 1.  ],
             [2.5 , 0.  , 1.  , 0.  ],
             [1.75, 1.  , 0.  , 1.  ]])
    """

    columns: tuple[Column, ...]
    left_out: tuple[str, ...] = ()
    names: list[str] | None = None
    table_width: int = 0

    @property
    def width(self) -> int:
        """Columns of X.

        Example:
          >>> from mder_jax import columns
          >>> columns.learn([["red", 1.0], ["blue", 2.0]])[0].width
          3
        """
        return sum(column.width for column in self.columns)

    @property
    def embedded(self) -> tuple[tuple[int, int], ...]:
        """(column of X, number of levels) for each that holds indices 0 .. levels-1, of which 0 is "other".

        Example:
          >>> from mder_jax import columns
          >>> columns.learn([[letter] for letter in "abcdefghijklm"])[0].embedded
          ((0, 14),)
        """
        starts = np.cumsum([0, *(column.width for column in self.columns)]).tolist()
        places = zip(starts, self.columns, strict=False)
        return tuple((start, column.indices) for start, column in places if column.indices)

    @functools.cached_property
    def _limits(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Lower and upper limits of all columns of X, if each is just a number."""
        if not all(column.kind == "number" and column.width == 1 for column in self.columns):
            return None
        low, high = np.array([column.ranges[0][:2] for column in self.columns]).T
        return low, high

    def encode(self, table: Any, quiet: bool = False) -> Encoded:
        """The rows of any table with these columns as numbers.

        Columns are found by name if the table has names, as training had, and by position otherwise. Nothing but a
        value that cannot be read raises; what differs from training is in `novelty` and `outside`, and in a warning if
        it is a number beyond the range by a fifth of its width, a level, a gap, or text that is no number.
        X may share the memory of an array.

        Args:
          table: an array, a list of rows, or a data frame of pandas, polars or Arrow.
          quiet: do not warn.

        Example:
          >>> from mder_jax import columns
          >>> encoding, _ = columns.learn([[1.0, "red"], [2.0, "blue"]])
          >>> encoded = encoding.encode([[1.5, "green"]], quiet=True)
          >>> encoded.X.tolist(), encoded.novelty.tolist(), list(encoded.outside)
          ([[1.5, 0.0, 0.0]], [1.0], ['x1'])
        """
        frame = read(table)
        positions = self._positions(frame)
        plain, unlike = self._plain(frame, positions)
        if plain is not None and not unlike:
            return Encoded(plain, np.zeros(len(plain)), {})
        complaints, read_columns, values = Complaints(), [self.columns[k] for k in unlike], []
        for k, column in zip(unlike, read_columns, strict=True):
            with complaints.about(column.name):
                values.append(read_column(column, frame.cells(positions[k])))
        complaints.raise_all()
        encoded = _judged(read_columns, values, quiet)
        if plain is None:
            return encoded
        X = plain.copy()
        X[:, unlike] = encoded.X
        return encoded._replace(X=X)

    def _plain(self, frame: Frame, positions: list[int]) -> tuple[np.ndarray | None, list[int]]:
        """X if it is the table itself but for a few columns, and which these are; None and all columns otherwise."""
        if frame.matrix is None or self._limits is None:
            return None, list(range(len(self.columns)))
        low, high = self._limits
        X = frame.matrix if positions == list(range(frame.width)) else frame.matrix[:, positions]
        inside = (low <= X) & (high >= X)
        return X, [] if inside.all() else np.flatnonzero(~inside.all(axis=0)).tolist()

    def numbers(self, X: np.ndarray) -> dict[str, np.ndarray]:
        """Columns of X that are plain numbers, (N,) by name, with NaN where a value was filled in or drawn in.

        Example:
          >>> from mder_jax import columns
          >>> encoding, encoded = columns.learn([[1.0, "red"], [2.0, "blue"], [None, "red"]])
          >>> encoding.numbers(encoded.X)
          {'x0': array([ 1.,  2., nan])}
        """
        X, found, start = floats("X", X), {}, 0
        if X.ndim != 2 or X.shape[1] != self.width:
            raise ValueError(f"X must have shape (N, {self.width}), as encoded; got {X.shape}")
        for column in self.columns:
            if column.kind == "number":
                number, (low, high, fill, *_) = X[:, start], column.ranges[0]
                known = (number >= low) & (number <= high) & ~(column.gaps & (number == fill))
                found[column.name] = np.where(known, number, np.nan)
            start += column.width
        return found

    def _positions(self, frame: Frame) -> list[int]:
        """Where the columns are in a table."""
        if self.names is None or frame.names is None:
            if frame.width != self.table_width:
                told = f"X has {frame.width} features, but Encoding is expecting {self.table_width} features as input"
                raise ValueError(told if self.names is None else f"{told}: {listed(self.names)}")
            return [column.position for column in self.columns]
        if frame.names == self.names:
            return [column.position for column in self.columns]
        places = {name: position for position, name in enumerate(frame.names)}
        wanted = [column.name for column in self.columns]
        missing = [name for name in wanted if name not in places]
        if missing:
            which, known = unknown(missing, frame.names), listed(frame.names)
            raise ValueError(f"the table has no column {which}; its columns are {known}")
        counts = collections.Counter(frame.names)
        twice = [name for name in wanted if counts[name] > 1]
        if twice:
            raise ValueError(f"several columns are named {listed(twice)}; rename all but one")
        return [places[name] for name in wanted]

    def to_json(self) -> dict[str, Any]:
        """As values that JSON can hold.

        Example:
          >>> from mder_jax import columns
          >>> encoding, _ = columns.learn([[1.0], [2.0], [3.0]])
          >>> encoding.to_json()["columns"][0]["ranges"]
          [[1.0, 3.0, 2.0, 0.0, 0.0]]
        """
        columns = [column._asdict() for column in self.columns]
        for column in columns:
            column |= {name: list(column[name]) for name in ("parts", "levels")}
            column["ranges"] = [list(limits) for limits in column["ranges"]]
        names = None if self.names is None else list(self.names)
        rest = {"left_out": list(self.left_out), "names": names, "table_width": self.table_width}
        return {"version": VERSION, "columns": columns} | rest

    @classmethod
    def from_json(cls, value: Any) -> "Encoding":
        """The inverse of `to_json`; a ValueError for anything else.

        Example:
          >>> from mder_jax import columns
          >>> encoding, _ = columns.learn([["red"], ["blue"]])
          >>> columns.Encoding.from_json(encoding.to_json()) == encoding
          True
        """
        fields = {"version", "columns", "left_out", "names", "table_width"}
        if not isinstance(value, dict) or set(value) != fields:
            raise ValueError(f"an encoding of columns has the fields {sorted(fields)}; got {value!r:.60}")
        if type(value["version"]) is not int or value["version"] != VERSION:
            raise ValueError(f"this library reads encodings of version {VERSION}; got {value['version']!r:.60}")
        width, names, columns = value["table_width"], value["names"], value["columns"]
        if type(width) is not int or width < 1:
            raise ValueError(f"table_width must be a positive integer; got {width!r:.60}")
        if not (names is None or (_are_texts(names) and len(names) == width)):
            raise ValueError(f"names must be those of {width} columns; got {names!r:.60}")
        if not _are_texts(value["left_out"]) or not isinstance(columns, list) or not columns:
            raise ValueError("left_out must be names and columns a list of at least one")
        read_columns = tuple(column_from_json(column, width) for column in columns)
        positions = [column.position for column in read_columns]
        if sorted(set(positions)) != positions or any(names and names[c.position] != c.name for c in read_columns):
            raise ValueError("columns must be in the order of the table, under their names")
        return cls(read_columns, tuple(value["left_out"]), names, width)


def _judged(columns: Sequence[Column], values: Sequence[Values], quiet: bool) -> Encoded:
    """These columns as numbers, and how they differ from training, with a warning of it."""
    novelty, outside, sentences = np.zeros(len(values[0].values)), {}, []
    for column, found in zip(columns, values, strict=True):
        judged = judge(column, found)
        novelty += judged.novelty
        sentences += judged.sentences
        if judged.outside.any():
            outside[column.name] = judged.outside
    if sentences and not quiet:
        more = f"; and {len(sentences) - MOST_SAID} more" if len(sentences) > MOST_SAID else ""
        warn("; ".join(sentences[:MOST_SAID]) + more)
    return Encoded(assemble(columns, [found.values for found in values]), novelty, outside)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def assemble(columns: Sequence[Column], values: Sequence[np.ndarray]) -> np.ndarray:
    """X, (N, width), of what was read from each column: numbers (N, k) with NaN in gaps, or indices (N,)."""
    X, start = np.empty((len(values[0]), sum(column.width for column in columns))), 0
    for column, found in zip(columns, values, strict=True):
        _write(column, found, X[:, start : start + column.width])
        start += column.width
    return X


def _write(column: Column, values: np.ndarray, X: np.ndarray) -> None:
    """Write what was read from a column into its part of X, (N, width)."""
    if column.kind == "category":
        from mder_jax.columns import categories

        own, gaps = len(column.levels), column.gaps
        if column.indices:
            X[:, 0] = categories.embedded(values, own, gaps)
        else:
            X[:] = categories.one_hot(values, own, column.other, gaps)
        return
    missing = np.isnan(values[:, 0])
    for k, (low, high, fill, *_) in enumerate(column.ranges):
        number = values[:, k]
        X[:, k] = number
        beyond = (number < low) | (number > high)
        X[beyond, k] = ranges.squash(number[beyond], low, high)
        X[missing, k] = fill
    if column.indicator:
        X[:, -1] = missing
