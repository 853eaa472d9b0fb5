"""The arguments of `fit_ensemble` in one form: what all members share, and what differs between them."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from mder_jax._arguments import is_integer
from mder_jax._checks import is_key
from mder_jax.networks import Network
from mder_jax.train.problem import Data, Problem, Settings, as_numbers, check, check_data, check_key, on_device


class PerMember(NamedTuple):
    """One value for each member, in the place of an argument that all members share.

    Args:
      values: an array or a pytree of arrays with the members as first axis; a list is stacked.
      build: makes the argument from one member's values; None if the values are the argument.

    Example:
      >>> import optax
      >>> rates = PerMember(jnp.array([1e-2, 1e-3]), optax.adam)  # optimizer=rates: two members, two learning rates
      >>> data = PerMember(jnp.ones((2, 50, 1)))  # X=data: each has its own 50 rows
      >>> print(rates.values.shape, data.values.shape)
      (2,) (2, 50, 1)
    """

    values: Any
    build: Callable[[Any], Any] | None = None

    def of(self, values: Any) -> Any:
        """The argument of the member that has these values.

        Example:
          >>> couplings = PerMember(jnp.array([1.0, 2.0]), lambda r: f"a network with r = {r}")
          >>> print(couplings.of(couplings.values[1]))
          a network with r = 2.0
        """
        return values if self.build is None else self.build(values)


class Members(NamedTuple):
    """What is trained: any field, and any array of the data, may be a `PerMember`."""

    network: Any
    loss: Any
    optimizer: Any
    data: Data

    @property
    def functions(self) -> tuple[Any, Any, Any]:
        """All but the data."""
        return self.network, self.loss, self.optimizer


NAMES = ("network", "loss", "optimizer", "X", "Y", "weights", *(f"validation {name}" for name in ("X", "Y", "weights")))


class Job(NamedTuple):
    """What to train and how, with a key for each member. All arrays are on the host."""

    settings: Settings
    key_data: np.ndarray
    key_kind: Any
    parts: Members

    @property
    def members(self) -> int:
        """The number of networks."""
        return len(self.key_data)

    @property
    def shared(self) -> Data:
        """The arrays that all members share; None where they differ."""
        return jax.tree.map(lambda part: None if _differs(part) else part, self.parts.data, is_leaf=_differs)

    @property
    def own(self) -> Members:
        """The values in which members differ, with the members as first axis; None where they do not."""

        def values(part: Any) -> Any:
            return part.values if isinstance(part, PerMember) else None

        network, loss, optimizer = map(values, self.parts.functions)
        return Members(network, loss, optimizer, jax.tree.map(values, self.parts.data, is_leaf=_differs))

    def key(self, data: Array | np.ndarray) -> Array:
        """The random key with these bits."""
        return jax.random.wrap_key_data(jnp.asarray(data), impl=self.key_kind)

    def member(self, shared: Data, own: Members) -> tuple[Problem, Data]:
        """Problem and data of one member on its device, from arrays that may be traced."""
        problem, data = self._member(shared, own)
        return problem, on_device(data)

    def _member(self, shared: Data, own: Members) -> tuple[Problem, Data]:
        def part_of(part: Any, shared: Any, own: Any) -> Any:
            return part.of(own) if isinstance(part, PerMember) else shared

        functions = self.parts.functions
        network, loss, optimizer = map(part_of, functions, functions, own.functions)
        data = jax.tree.map(part_of, self.parts.data, shared, own.data, is_leaf=_differs)
        return Problem(network, loss, optimizer, self.settings), data

    def number(self, index: int) -> tuple[Problem, Data]:
        """Problem and data of the member with this index, on the host."""
        return self._member(self.shared, take(self.own, index))

    def starting_from(self, params: Any) -> "Job":
        """The same with these parameters, each array with the members as first axis, in the place of initial ones."""
        network = self.parts.network
        differs = isinstance(network, PerMember)
        problem, data = self.number(0)
        x = jax.ShapeDtypeStruct((1, *data.X.shape[1:]), data.X.dtype)
        shapes = jax.eval_shape(problem.network.init, self.key(self.key_data[0]), x)

        def build(values: tuple[Any, Any]) -> Network:
            start, own = values
            return (network.of(own) if differs else network)._replace(init=lambda *_: start)

        start = like_those("init", params, shapes, self.members)
        start = jax.tree.map(lambda leaf, one: leaf.astype(one.dtype), start, shapes)
        own = PerMember((start, network.values if differs else None), build)
        return self._replace(parts=self.parts._replace(network=own))

    def check(self) -> None:
        """Raise, before anything is compiled, with what is wrong and what would be right."""
        problem, first = self.number(0)
        check(problem, first, self.key(self.key_data[0]))
        for index in range(1, self.members if jax.tree.leaves(self.own.data) else 1):
            try:
                check_data(self.number(index)[1], but=first)
            except ValueError as error:
                raise ValueError(f"member {index}: {error}") from None
        for name, part in named(self.parts):
            if isinstance(part, PerMember) and part.build is not None:
                self._check_traced(name, part, problem, first)

    def _check_traced(self, name: str, part: PerMember, problem: Problem, data: Data) -> None:
        """Raise if what a `PerMember` builds, which works for known values, does not for traced ones."""
        key, (x, y) = self.key(self.key_data[0]), (jnp.asarray(data.X[:1]), jnp.asarray(data.Y[:1]))
        params = jax.eval_shape(problem.network.init, key, x)
        output = jax.eval_shape(problem.network.apply, params, x)

        def use(values: Any, params: Any, output: Any) -> None:
            made = part.of(values)
            if name == "network":
                made.apply(made.init(key, x), x)
            elif name == "loss":
                made(output, y)
            elif name == "optimizer":
                made.init(params)

        try:
            jax.eval_shape(use, take(part.values, 0), params, output)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name}: {ARE_TRACED}\n{error}") from error


ARE_TRACED = (
    "the values of a PerMember must be numbers, in arrays of one shape for all members, and are traced; widths, batch "
    "sizes, names and all else that decides shapes must be the same for all members, or in another call"
)


def make_job(parts: Members, settings: Settings, key: Array, members: int | None) -> Job:
    """The arguments of `fit_ensemble` with their arrays on the host and one key for each member."""
    check_key(key)

    def as_arrays(part: Any, name: str = "") -> Any:
        if not isinstance(part, PerMember):
            return on_host(part)
        try:
            stacked = np.asarray(part.values) if isinstance(part.values, list) else part.values
            return part._replace(values=jax.tree.map(on_host, stacked))
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name or 'data'}: {ARE_TRACED}; {error}") from None

    def optional(part: Any) -> Any:
        return None if part is None else as_arrays(part)

    X, Y, weights, held_out = parts.data
    if held_out is not None:
        held_out = (as_arrays(held_out[0]), as_arrays(held_out[1]), optional(held_out[2]))
    data = Data(as_arrays(X), as_arrays(Y), optional(weights), held_out)
    functions = zip(parts.functions, NAMES, strict=False)
    network, loss, optimizer = (as_arrays(f, name) if isinstance(f, PerMember) else f for f, name in functions)
    parts = Members(network, loss, optimizer, data)
    kind = jax.random.key_impl(key) if is_key(key) else None
    bits = np.asarray(jax.random.key_data(key) if is_key(key) else key)
    count = _count(members, len(bits) if bits.ndim > 1 else None, parts)
    if bits.ndim == 1:
        one = jax.random.wrap_key_data(jnp.asarray(bits), impl=kind)
        bits = np.asarray(jax.random.key_data(jax.random.split(one, count)))
    return Job(settings, bits, kind, parts)


def number_of_members(params: Any) -> int | None:
    """The first axis of parameters (M, ...); None if there is none."""
    axes = [np.shape(leaf)[:1] for leaf in jax.tree.leaves(params)]
    return axes[0][0] if axes and axes[0] else None


def leaves_by_path(tree: Any) -> dict[str, Any]:
    """The arrays of a tree by their path in it, such as "dense_0/kernel"."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def like_those(what: str, params: Any, shapes: Any, members: int) -> Any:
    """Parameters of all members as a tree like `shapes`, those of one; raise, after `what`, if they are others."""
    given, wanted = leaves_by_path(params), leaves_by_path(shapes)
    if given.keys() != wanted.keys():
        raise ValueError(f"{what} must be named {sorted(wanted)!r:.200}; got {sorted(given)!r:.200}")
    arrays = []
    for name, one in wanted.items():
        array, shape = np.asarray(given[name]), (members, *one.shape)
        if array.shape != shape:
            raise ValueError(f"{what} must have the members first: {name} must have shape {shape}; got {array.shape}")
        if not (jnp.issubdtype(array.dtype, jnp.floating) and np.isfinite(array).all()):
            raise ValueError(f"{what} must be finite floats; {name} is not")
        arrays.append(array)
    return jax.tree.unflatten(jax.tree.structure(shapes), arrays)


def named(parts: Members) -> Iterator[tuple[str, Any]]:
    """The arguments that are there, with their names."""
    X, Y, weights, validation = parts.data
    values = (*parts.functions, X, Y, weights, *(validation or (None, None, None)))
    return ((name, part) for name, part in zip(NAMES, values, strict=True) if part is not None)


def take(tree: Any, index: Any) -> Any:
    """The same entries of every array."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def on_host(value: Any) -> np.ndarray:
    """The array on the host, in the dtype that JAX would give it."""
    array = np.asarray(as_numbers(value))
    with np.errstate(over="ignore"):  # 1e300 is infinite in float32, and refused as such
        return array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)


def _differs(part: Any) -> bool:
    return isinstance(part, PerMember)


def _count(members: int | None, keys: int | None, parts: Members) -> int:
    """The number of members, on which all arguments that determine it must agree."""
    if members is not None and not (is_integer(members) and 1 <= members < 1 << 31):
        raise ValueError(f"members must be an integer, 1 or more; got {members!r}")
    counts = {name: count for name, count in (("members", members), ("key", keys)) if count is not None}
    for name, part in named(parts):
        if isinstance(part, PerMember):
            shapes = [leaf.shape for leaf in jax.tree.leaves(part.values)]
            if not shapes or () in shapes or len({shape[0] for shape in shapes}) > 1:
                raise ValueError(
                    f"the arrays of a PerMember have the members as first axis; {name} has shapes {shapes}"
                )
            counts[name] = shapes[0][0]
    if not counts:
        raise ValueError("say how many networks to train: members=10, an array of keys, or a PerMember argument")
    if len(set(counts.values())) > 1 or 0 in counts.values():
        raise ValueError(f"arguments do not agree on the number of members, 1 or more: {counts}")
    return next(iter(counts.values()))
