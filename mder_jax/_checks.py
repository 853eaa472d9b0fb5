"""What every public function does first: one float dtype, checked shapes, checked values.

The rules, in one place:

* **dtype.** Integers take the float type of the other arguments (or JAX's default float), float16 and bfloat16 are
  computed in float32, float32 with float64 gives float64. Booleans and complex numbers raise.
* **shape.** The last axis (or two) of an argument is its event and must match exactly. The axes before it are a batch;
  one argument may have more of them in front (samples), never an axis of size one that is stretched.
* **value.** Concrete arrays are checked and the offending value is quoted. Traced ones cannot be.
"""

import contextlib
import operator
from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from mder_jax._arguments import brief, integer, is_integer

T = TypeVar("T")


def floats(**arguments: Any) -> list[Array]:
    """The arguments as arrays of one float dtype; names are for the error message."""
    with np.errstate(over="ignore"):  # 1e300 is infinite in float32
        given = {name: value for name, value in arguments.items() if type(value) not in (int, float)}
        arrays = {name: jnp.asarray(_numbers(name, value)) for name, value in given.items()}
        kinds = {array.dtype for array in arrays.values() if jnp.issubdtype(array.dtype, jnp.floating)}
        single_or_double = jnp.float64 if jnp.dtype(jnp.float64) in kinds else jnp.float32
        dtype = single_or_double if kinds else jnp.result_type(float)
        try:
            return [jnp.asarray(arrays.get(name, value), dtype) for name, value in arguments.items()]
        except OverflowError:
            raise ValueError(f"{', '.join(arguments)} must be below 1e308; got an integer that is not") from None


def doubles(name: str, value: Any) -> np.ndarray:
    """The argument as an array of numpy's float64, whatever precision JAX has."""
    return np.asarray(_numbers(name, value), np.float64)


def floats_with(tree: T, **arguments: ArrayLike) -> tuple[T, list[Array]]:
    """A pytree of floats and further arguments, all in one float dtype."""
    *arrays, like = floats(**arguments, like=jax.tree.leaves(tree)[0])
    return jax.tree.map(lambda leaf: leaf.astype(like.dtype), tree), arrays


def aligned(distribution: T, location: str, **argument: ArrayLike) -> tuple[T, Array]:
    """A distribution and an argument (..., n) in one float dtype and one batch shape; `location` is for messages.

    Batch axes that one of them has in front are added to the other.
    """
    ((name, _),) = argument.items()
    distribution, (array,) = floats_with(distribution, **argument)
    n, own = distribution.n, distribution.batch_shape  # type: ignore[attr-defined]
    check_event(name, array, (n,), f"{location} {(*own, n)}")
    batch = common_batch(**{name: array.shape[:-1], location: own})
    tree = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, batch + leaf.shape[len(own) :]), distribution)
    return tree, jnp.broadcast_to(array, (*batch, n))


def matching(tree: T, shape: tuple[int, ...], of: str, **argument: ArrayLike) -> tuple[T, Array]:
    """A pytree of floats and an argument of exactly that shape, in one float dtype."""
    ((name, _),) = argument.items()
    tree, (array,) = floats_with(tree, **argument)
    check_same(name, array, shape, of)
    return tree, array


def filled(name: str, array: Array, shape: tuple[int, ...], of: str) -> Array:
    """A scalar repeated to that shape; anything else must have exactly that shape."""
    if array.ndim:
        check_same(name, array, shape, of)
    return jnp.broadcast_to(array, shape)


def observed_in(y: Array, missing: bool) -> Array | None:
    """Where y is not NaN, if `missing`; None, which costs nothing, if not, or if a concrete y has no NaN."""
    if not missing or (is_concrete(y) and not np.isnan(y).any()):
        return None
    return ~jnp.isnan(y)


def _numbers(name: str, value: Any) -> Any:
    """A real number, an array or nested lists of them, some possibly traced, as an array of JAX or numpy."""
    library = jnp if any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(value)) else np
    try:
        array = library.asarray(value)
    except ValueError:  # rows that differ in length
        raise ValueError(f"{name} must be an array of real numbers; got {value!r:.60}") from None
    if not (jnp.issubdtype(array.dtype, jnp.floating) or jnp.issubdtype(array.dtype, jnp.integer)):
        raise TypeError(f"{name} must hold real numbers; got {None if value is None else f'dtype {array.dtype}'}")
    return array


def one_number(name: str, value: Any) -> Array:
    """A real number as an array without axes; it may be traced."""
    (number,) = floats(**{name: value})
    check_same(name, number, (), "one number")
    return number


def plain_number(name: str, value: Any) -> float:
    """A real number as Python's float; an error if it is traced."""
    if isinstance(value, float):
        return float(value)
    number = one_number(name, value)
    if not is_concrete(number):
        raise TypeError(f"{name} must be a number that is not traced; got {brief(value)}")
    return float(number)


# Intervals of probabilities with one end, as a message describes them.
_ENDS = {"[)": ", 0 or more and below 1", "(]": " above 0 and at most 1"}


def check_probability(name: str, value: Any, ends: str = "[]") -> None:
    """Raise if a concrete value is not a probability; a round bracket excludes 0 or 1."""
    if is_concrete(value):
        p = np.asarray(value, np.float64)
        low, high = p >= 0 if ends[0] == "[" else p > 0, p <= 1 if ends[1] == "]" else p < 1
        if not np.all(low & high):
            raise ValueError(f"{name} is a probability{_ENDS.get(ends, ' between 0 and 1')}; got {value}")


def probability(name: str, value: Any, ends: str = "[]", dtype: Any = None) -> Any:
    """One probability: an array of the dtype; without one a float, which keeps the digits of 0.99999999, or traced."""
    number: Any = one_number(name, value)
    if dtype is not None:
        number = number.astype(dtype)
    elif is_concrete(value):
        number = float(value)
    check_probability(name, number, ends)
    return number


def plain_probability(name: str, value: Any, ends: str = "()") -> float:
    """One probability as Python's float; an error if it is traced."""
    number = plain_number(name, value)
    check_probability(name, number, ends)
    return number


def one_key(key: Any) -> Array:
    """A single random key, as a typed one."""
    if getattr(key, "dtype", None) == np.uint32:
        with contextlib.suppress(TypeError):
            key = jax.random.wrap_key_data(key)
    if not is_key(key) or key.ndim:
        got = f"{key.dtype} of shape {key.shape}" if hasattr(key, "dtype") else brief(key)
        raise TypeError(f"key must be one random key such as jax.random.key(0); got {got}")
    return key


def check_rank(name: str, array: Array, rank: int, event: str) -> None:
    """Raise unless the array has at least the axes of its event, and a nonempty last axis."""
    if array.ndim < rank or array.shape[-1] == 0:
        raise ValueError(f"{name} must have shape {event} with n >= 1; got {array.shape}")


def check_event(name: str, array: Array, event: tuple[int, ...], of: str) -> None:
    """Raise unless the last axes are exactly the event: (N,) is not accepted for (N, 1)."""
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
    return jnp.reshape(array, (1,) * (len(batch) + event_rank - array.ndim) + array.shape)


def sample_shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    """The axes in front of a sample, from a number or several."""
    several = (shape,) if is_integer(shape) else shape
    if not isinstance(several, Sequence) or isinstance(several, str | bytes):
        raise TypeError(f"shape must be an integer or a tuple of integers; got {brief(shape)}")
    return tuple(integer("shape", axis, 0) for axis in several)


def is_concrete(array: Array | np.ndarray) -> bool:
    """Whether the values are known, not traced."""
    return not isinstance(array, jax.core.Tracer)


def is_key(value: Any) -> bool:
    """Whether it is a typed random key, or an array of them."""
    return hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def check_above(name: str, array: Array | np.ndarray, bound: float, why: str) -> None:
    """Raise if a concrete value is at or below the bound; a NaN passes and stays visible in the result."""
    if is_concrete(array) and (bad := np.asarray(array)[np.asarray(array) <= bound]).size:
        raise ValueError(f"{name} must be greater than {bound:g} ({why}); got {bad[0]:g}")


def check_location(location: str, loc: Array, factor: str, L: Array) -> None:
    """Raise unless loc is (..., n), and L a Cholesky factor (..., n, n) as far as its values are known."""
    check_rank(location, loc, 1, "(..., n)")
    check_same(factor, L, (*loc.shape, loc.shape[-1]), f"{location} {loc.shape} with one more axis")
    if is_concrete(L):
        above = np.triu(L, 1)
        if np.any(above != 0):
            raise ValueError(f"{factor} must be lower-triangular; got {above[above != 0][0]:g} above the diagonal")
        check_above(f"the diagonal of {factor}", np.diagonal(L, axis1=-2, axis2=-1), 0, "a Cholesky factor")


def chosen_rows(name: str, rows: Any, count: int) -> np.ndarray:
    """Indices in 0 .. count-1 from an index, several, a slice or a mask."""
    with contextlib.suppress(IndexError, TypeError, ValueError):
        chosen = np.atleast_1d(np.arange(count)[rows])
        if chosen.ndim == 1:
            return chosen
    raise ValueError(f"{name} must be numbers from 0 to {count - 1}, or a mask; got {rows!r:.60}")


def check_index(index: Sequence[int], n: int) -> tuple[int, ...]:
    """Indices of targets as a tuple in 0 .. n-1, negative ones counted from the end, without repeats."""
    try:
        if np.ndim(index) != 1 or any(isinstance(i, bool | np.bool_) for i in index):
            raise TypeError
        given = [operator.index(i) for i in index]
    except (TypeError, ValueError):
        raise TypeError(f"name targets by a list of their numbers, such as [0]; got {index!r:.60}") from None
    if outside := [i for i in given if not -n <= i < n]:
        raise ValueError(f"targets are numbered 0 to {n - 1}; got {outside[0]}")
    chosen = tuple(i % n for i in given)
    if len(set(chosen)) < len(chosen) or not chosen:
        raise ValueError(f"name at least one target and each once; got {tuple(index)}")
    return chosen
