"""What every public function does first: one float dtype, checked shapes, checked values.

The rules, in one place:

* **dtype.** Integers take the float type of the other arguments (or JAX's default float), float16 and bfloat16 are
  computed in float32, float32 with float64 gives float64. Booleans and complex numbers raise.
* **shape.** The last axis (or two) of an argument is its event and must match exactly. The axes before it are a batch;
  one argument may have more of them in front (samples), never an axis of size one that is stretched.
* **value.** Concrete arrays are checked and the offending value is quoted. Traced ones cannot be.
"""

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

T = TypeVar("T")
Scalar = (int, float)


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
        set_fields(value, **dict(zip(names, leaves, strict=True)))
        return value

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


def set_fields(value: Any, **leaves: Any) -> None:
    """Set fields of a frozen dataclass."""
    for name, leaf in leaves.items():
        object.__setattr__(value, name, leaf)


def floats(**arguments: ArrayLike) -> list[Array]:
    """The arguments as arrays of one float dtype; names are for the error message."""
    arrays = {name: _array(name, value) for name, value in arguments.items() if type(value) not in Scalar}
    kinds = {array.dtype for array in arrays.values() if jnp.issubdtype(array.dtype, jnp.floating)}
    if kinds:
        dtype = jnp.float64 if jnp.dtype(jnp.float64) in kinds else jnp.float32
    else:
        dtype = jnp.result_type(float)
    return [jnp.asarray(arrays.get(name, value), dtype) for name, value in arguments.items()]


def floats_with(tree: T, **arguments: ArrayLike) -> tuple[T, list[Array]]:
    """A pytree of floats and further arguments, all in one float dtype."""
    leaves = jax.tree.leaves(tree)
    *arrays, like = floats(**arguments, like=leaves[0])
    return jax.tree.map(lambda leaf: leaf.astype(like.dtype), tree), arrays


def _array(name: str, value: Any) -> Array:
    array = jnp.asarray(value)
    if not (jnp.issubdtype(array.dtype, jnp.floating) or jnp.issubdtype(array.dtype, jnp.integer)):
        raise TypeError(f"{name} must hold real numbers; got dtype {array.dtype}")
    return array


def check_rank(name: str, array: Array, rank: int, event: str) -> None:
    """Raise unless the array has at least the axes of its event, and a last axis that is not empty."""
    if array.ndim < rank or array.shape[-1] == 0:
        raise ValueError(f"{name} must have shape {event} with n >= 1; got {array.shape}")


def check_event(name: str, array: Array, event: tuple[int, ...], of: str) -> None:
    """Raise unless the last axes are exactly the event, e.g. never (N,) where (N, 1) is meant."""
    if array.ndim < len(event) or array.shape[array.ndim - len(event) :] != event:
        expected = ", ".join(["...", *map(str, event)])
        raise ValueError(f"{name} must have shape ({expected}) to match {of}; got {array.shape}")


def check_same(name: str, array: Array, shape: tuple[int, ...], of: str) -> None:
    """Raise unless the shape is exactly that one."""
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, that of {of}; got {array.shape}")


def common_batch(**batches: tuple[int, ...]) -> tuple[int, ...]:
    """The longest batch shape, of which each other must be the tail: axes are added in front, never stretched."""
    longest = max(batches.values(), key=len)
    if any(shape != longest[len(longest) - len(shape) :] for shape in batches.values()):
        raise ValueError(f"batch shapes do not agree: {', '.join(f'{k} {v}' for k, v in batches.items())}")
    return longest


def same_rank(array: Array, batch: tuple[int, ...], event_rank: int) -> Array:
    """Put axes of size one in front so that the array lines up with a batch (a view, no copy)."""
    missing = len(batch) + event_rank - array.ndim
    return jnp.reshape(array, (1,) * missing + array.shape)


def check_within(array: Array, low: float, high: float, rule: str) -> None:
    """Raise with the rule if a concrete value is not within the bounds."""
    if is_concrete(array) and not np.all((np.asarray(array) >= low) & (np.asarray(array) <= high)):
        raise ValueError(f"{rule}; got {array}")


def sample_shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    """The axes in front of a sample, from a number or several."""
    return (shape,) if isinstance(shape, int) else tuple(shape)


def is_concrete(array: Array | np.ndarray) -> bool:
    """Whether there are values to look at."""
    return not isinstance(array, jax.core.Tracer)


def is_key(value: Any) -> bool:
    """Whether it is a typed random key, or an array of them."""
    return hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def check_above(name: str, array: Array | np.ndarray, bound: float, why: str) -> None:
    """Raise if a concrete value is at or below the bound; a NaN passes and stays visible in the result."""
    if is_concrete(array):
        values = np.asarray(array)
        bad = values <= bound
        if bad.any():
            raise ValueError(f"{name} must be greater than {bound:g} ({why}); got {values[bad].flat[0]:g}")


def check_tril(name: str, array: Array) -> None:
    """Raise if a concrete matrix has anything but zeros above its diagonal, or a diagonal that is not positive."""
    if is_concrete(array):
        values = np.asarray(array)
        above = np.triu(values, 1)
        if np.any(above != 0):
            raise ValueError(f"{name} must be lower-triangular; got {above[above != 0].flat[0]:g} above the diagonal")
        check_above(f"the diagonal of {name}", np.diagonal(values, axis1=-2, axis2=-1), 0, "a Cholesky factor")


def check_index(index: Sequence[int], n: int) -> tuple[int, ...]:
    """Target numbers as a tuple in 0 .. n-1, negative ones counted from the end, without repeats."""
    if np.ndim(index) != 1 or any(isinstance(i, bool | np.bool_) for i in index):
        raise TypeError(f"name targets by a list of their numbers, such as [0]; got {index}")
    chosen = tuple(operator.index(i) for i in index)
    outside = [i for i in chosen if not -n <= i < n]
    if outside:
        raise ValueError(f"targets are numbered 0 to {n - 1}; got {outside[0]}")
    chosen = tuple(i % n for i in chosen)
    if len(set(chosen)) < len(chosen) or not chosen:
        raise ValueError(f"name at least one target and each once; got {tuple(index)}")
    return chosen
