"""What is learnt about one column of a table."""

from typing import Any, NamedTuple

from mder_jax._messages import listed, quoted
from mder_jax.columns.ranges import LARGEST, Range

KINDS = ("number", "boolean", "date", "clock", "category")
PARTS = {"year": 1, "season": 2, "hour": 1, "clock": 2}  # of times, and how many numbers each is
ORDERS = ("ymd", "dmy", "mdy")


class Column(NamedTuple):
    """What was learnt about a column.

    Attributes:
      name: x0, x1, ... in a table without names.
      position: in the table.
      kind: "number", "boolean", "date", "clock" (a time of day) or "category".
      gaps: whether training had missing cells.
      indicator: whether a column of X tells where numbers are missing; it follows them.
      ranges: of each number that the column becomes.
      decimal: the decimal mark of numbers in text.
      order: of year, month and day in text.
      parts: of times: "year", "season", "hour", "clock".
      levels: of a category.
      other: whether training had further levels that were put together.
      embedded: whether a category is one column of indices in X, not one column of 0 and 1 for each slot.

    Example:
      >>> from mder_jax import columns
      >>> encoding, _ = columns.learn([["red"], ["blue"], ["red"]])
      >>> column = encoding.columns[0]
      >>> column.kind, column.levels
      ('category', ('blue', 'red'))
    """

    name: str
    position: int
    kind: str
    gaps: bool = False
    indicator: bool = False
    ranges: tuple[Range, ...] = ()
    decimal: str = "."
    order: str = "ymd"
    parts: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    other: bool = False
    embedded: bool = False

    @property
    def width(self) -> int:
        """Columns of X.

        Example:
          >>> from mder_jax import columns
          >>> columns.Column("size", 0, "category", levels=("L", "M", "S")).width
          3
        """
        if self.kind != "category":
            return len(self.ranges) + self.indicator
        return 1 if self.indices else len(self.levels) + self.gaps + self.other

    @property
    def indices(self) -> int:
        """The number of indices of an embedded category, of which 0 is "other"; 0 for any other column.

        Example:
          >>> from mder_jax import columns
          >>> columns.Column("letter", 0, "category", levels=tuple("abcdefghijklm"), embedded=True).indices
          14
        """
        return len(self.levels) + self.gaps + 1 if self.embedded else 0


def described(column: Column) -> str:
    """The name and kind of a column, with its range or its first levels, for a summary."""
    if column.kind == "category":
        about = f"{len(column.levels)} levels: {listed(column.levels, 5)}" + (", others" if column.other else "")
    elif column.kind == "number" and column.ranges[0].high < LARGEST:  # which files of version 0.1.0 do not know
        about = f"{column.ranges[0].low:.6g} to {column.ranges[0].high:.6g}"
    else:
        about = column.kind
    return f"{quoted(column.name)} ({about}{', with gaps' if column.gaps else ''})"


def column_from_json(value: Any, table_width: int) -> Column:
    """A column from its fields by name, each checked: a ValueError or TypeError if it cannot have been learnt."""
    if not isinstance(value, dict) or set(value) != set(Column._fields):
        raise ValueError(f"a column has the fields {', '.join(Column._fields)}; got {value!r:.60}")
    _require(isinstance(value["name"], str), "name", value)
    position = value["position"]
    _require(type(position) is int and 0 <= position < table_width, "position", value)
    for name, allowed in (("kind", KINDS), ("decimal", (".", ",")), ("order", ORDERS)):
        _require(isinstance(value[name], str) and value[name] in allowed, name, value)
    for name in ("gaps", "indicator", "other", "embedded"):
        _require(type(value[name]) is bool, name, value)
    for name in ("levels", "parts"):
        _require(_distinct_texts(value[name]), name, value)
    _require(set(value["parts"]) <= PARTS.keys(), "parts", value)
    _require(isinstance(value["ranges"], list) and all(map(_is_range, value["ranges"])), "ranges", value)
    lists = {"ranges": tuple(Range(*map(float, one)) for one in value["ranges"])}
    column = Column(**(value | lists | {name: tuple(value[name]) for name in ("levels", "parts")}))
    numbers = sum(PARTS[part] for part in column.parts) or int(column.kind in ("number", "boolean"))
    _require(bool(column.parts) == (column.kind in ("date", "clock")), "parts", value)
    _require(len(column.ranges) == numbers, "ranges", value)
    _require(column.gaps or not column.indicator, "indicator", value)
    _require(column.kind == "category" or not column.embedded, "embedded", value)
    _require(column.width > 0 and (column.kind == "category") == bool(column.levels), "levels", value)
    return column


def _require(right: bool, name: str, value: dict[str, Any]) -> None:
    if not right:
        raise ValueError(f"{name} of a column cannot be {value[name]!r:.60}")


def _distinct_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value) and len(set(value)) == len(value)


def _is_range(value: Any) -> bool:
    if (
        not isinstance(value, list)
        or len(value) not in (3, 5)
        or not all(type(limit) in (int, float) for limit in value)
    ):
        return False
    low, high, fill, *tails = value
    finite = all(abs(limit) <= 2 * LARGEST for limit in tails) and all(abs(limit) <= LARGEST for limit in value[:3])
    return finite and low <= fill <= high and all(tail >= 0 for tail in tails)
