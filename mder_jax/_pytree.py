"""Frozen dataclasses that JAX takes apart and rebuilds."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, TypeVar, dataclass_transform

import jax

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def pytree(cls: type[T]) -> type[T]:
    """A frozen dataclass whose fields are the leaves; its `__init__` runs for users, not when JAX rebuilds it."""
    cls = dataclass(frozen=True, eq=False, init=False)(cls)
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]

    def flatten(value: T) -> tuple[tuple[Any, ...], None]:
        return tuple(getattr(value, name) for name in names), None

    def flatten_with_keys(value: T) -> tuple[tuple[Any, ...], None]:
        return tuple((jax.tree_util.GetAttrKey(name), getattr(value, name)) for name in names), None

    def unflatten(_: None, leaves: Iterable[Any]) -> T:
        value = object.__new__(cls)
        vars(value).update(zip(names, leaves, strict=True))
        return value

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


def set_fields(value: Any, **leaves: Any) -> None:
    """Set fields of a frozen dataclass."""
    vars(value).update(leaves)
