"""Checks of arguments that are no arrays: types, options, integers and names. Nothing here needs JAX."""

from collections.abc import Iterable
from typing import Any

import numpy as np


def check_type(name: str, value: Any, *kinds: type) -> None:
    """Raise unless it is of one of these classes."""
    if not isinstance(value, kinds):
        raise TypeError(f"{name} must be {_either(f'a {kind.__name__}' for kind in kinds)}; got {brief(value)}")


def check_option(name: str, value: Any, options: Iterable[str]) -> None:
    """Raise unless it is one of the options."""
    if not isinstance(value, str) or value not in options:
        raise ValueError(f"{name} must be {_either(map(repr, options))}; got {brief(value)}")


def _either(choices: Iterable[str]) -> str:
    *others, last = choices
    return f"{', '.join(others)} or {last}" if others else last


def brief(value: Any) -> str:
    """A value for a message: numbers, strings and None as they are, the type of anything else."""
    plain = value is None or isinstance(value, bool | int | float | complex | str)
    return f"{value!r:.60}" if plain else type(value).__name__


def is_integer(value: Any) -> bool:
    """Whether it is an integer of Python or numpy."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def integer(name: str, value: Any, least: int = 1) -> int:
    """An integer as Python's int; an error if it is traced, below `least`, or not below 2³¹."""
    if not is_integer(value):
        raise TypeError(f"{name} must be an integer that is not traced; got {brief(value)}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}; got {value}")
    if value >= 1 << 31:
        raise ValueError(f"{name} must be below 2^31; got {value!r:.60}")
    return int(value)


def flag(name: str, value: Any) -> bool:
    """A boolean as Python's bool."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False; got {brief(value)}")
    return bool(value)


def target_names(names: Any, n: int) -> tuple[str, ...]:
    """One name for each target: y0, y1, ... for None."""
    if names is None:
        return tuple(f"y{j}" for j in range(n))
    several = isinstance(names, Iterable) and not isinstance(names, str | bytes) and getattr(names, "ndim", 1) > 0
    if not several or len(tuple(names)) != n:
        raise ValueError(f"names must hold one for each of {n} targets; got {names!r:.60}")
    return tuple(str(name) for name in names)


def in_order(y: Any, names: list[str] | None) -> Any:
    """A data frame with its columns in the order of the fit, found by name; unchanged if it has no names."""
    here = names_of(y)
    if names is None or here is None or here == names:
        return y
    if sorted(here) != sorted(names):
        raise ValueError(f"y must have the targets of the fit, {names}, in any order; its columns are {here!r:.200}")
    return y[[y.columns[here.index(name)] for name in names]]


def names_of(y: Any) -> list[str] | None:
    """The names of the targets, if y has any; the default columns 0, 1, ... of pandas are not names."""
    if hasattr(y, "columns"):
        names = list(y.columns)
        return None if names == list(range(len(names))) else [str(name) for name in names]
    name = getattr(y, "name", None)
    return [str(name)] if name is not None else None
