"""The arguments of `fit_ensemble` taken apart: what all members share, and what each has of its own."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from mder_jax import persistence, train
from mder_jax._arrays import is_key, is_whole
from mder_jax._problem import Data, Problem, Settings, as_data, as_numbers, check, check_data, check_key, on_device

FUNCTIONS = ("network", "loss", "optimizer")


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


class Job(NamedTuple):
    """What to train: settings, a key for each member, arrays by name (shared or of each member), and the arguments."""

    settings: Settings
    key_data: np.ndarray
    key_kind: Any
    shared: dict[str, np.ndarray]
    own: dict[str, Any]
    arguments: dict[str, Any]

    @property
    def members(self) -> int:
        """How many networks."""
        return len(self.key_data)

    def key(self, data: Array | np.ndarray) -> Array:
        """The random key with these bits."""
        return jax.random.wrap_key_data(jnp.asarray(data), impl=self.key_kind)

    def member(self, shared: dict[str, Any], own: dict[str, Any]) -> tuple[Problem, Data]:
        """Problem and data of one member, from arrays that may be traced."""
        parts = self.arguments | shared | {name: self.arguments[name].of(values) for name, values in own.items()}
        network, loss, optimizer = (parts.pop(name) for name in FUNCTIONS)
        return Problem(network, loss, optimizer, self.settings), on_device(_as_data(parts))

    def first(self) -> tuple[Problem, Data]:
        """Problem and data of member 0."""
        return self.member(self.shared, take(self.own, 0))

    def check(self) -> None:
        """Raise, before anything is compiled, with what is wrong and what would be right."""
        problem, data = self.first()
        check(problem, data, self.key(self.key_data[0]))
        own = {name: value for name, value in self.own.items() if name not in FUNCTIONS}
        for number in range(1, self.members if own else 1):
            values = {name: self.arguments[name].of(take(value, number)) for name, value in own.items()}
            try:
                check_data(_as_data(self.arguments | self.shared | values))
            except ValueError as error:
                raise ValueError(f"member {number}: {error}") from None

    def identity(self) -> dict[str, str]:
        """What this run is, for its checkpoints: settings as text, arrays and functions as hashes."""
        text = {name: str(value) for name, value in self.settings._asdict().items()}
        text |= {"members": str(self.members), "jax": jax.__version__}
        for name, value in {"key": self.key_data, **self.shared, **self.own}.items():
            kind = f"values of {name}" if name in FUNCTIONS else name
            text[kind] = " ".join(persistence.identify_array(leaf) for leaf in jax.tree.leaves(value))
            if name in self.own and name not in FUNCTIONS:
                text[kind] += " " + persistence.identify_function(self.arguments[name].of, take(value, 0))
        (network, _, optimizer, _), data = self.first()
        x, y, key = data.X[:1], data.Y[:1], self.key(self.key_data[0])
        params = jax.eval_shape(network.init, key, x)
        output = jax.eval_shape(network.apply, params, x)
        state = jax.eval_shape(optimizer.init, params)

        def run_network(problem: Problem, key: Array, params: Any, x: Array) -> Any:
            noisy = problem.network.train
            trained = None if noisy is None else noisy(params, x, key)
            return problem.network.init(key, x), problem.network.apply(params, x), trained

        def run_optimizer(problem: Problem, gradient: Any, state: Any) -> Any:
            updated = train.update(problem.optimizer, gradient, state, gradient, lambda _: jnp.zeros(()))
            return problem.optimizer.init(gradient), updated

        def identify(name: str, function: Callable[..., Any], *examples: Any) -> str:
            first = take(self.own, 0)

            def of_member(own: Any, *examples: Any) -> Any:
                return function(self.member(self.shared, first | own)[0], *examples)

            return persistence.identify_function(of_member, {k: v for k, v in first.items() if k == name}, *examples)

        text["network"] = identify("network", run_network, key, params, x)
        text["loss"] = identify("loss", lambda problem, *rows: problem.loss(*rows), output, y)
        text["optimizer"] = identify("optimizer", run_optimizer, params, state)
        return text


def make_job(arguments: dict[str, Any], settings: Settings, key: Array, members: int | None) -> Job:
    """Take the arguments of `fit_ensemble` apart."""
    check_key(key)
    shared, own = {}, {}
    for name, value in arguments.items():
        if isinstance(value, PerMember):
            stacked = np.asarray(value.values) if isinstance(value.values, list) else value.values
            own[name] = jax.tree.map(on_host, stacked)
        elif name not in FUNCTIONS and value is not None:
            shared[name] = on_host(value)
    kind = jax.random.key_impl(key) if is_key(key) else None
    data = np.asarray(jax.random.key_data(key) if is_key(key) else key)
    count = _count(members, len(data) if data.ndim > 1 else None, own)
    if data.ndim == 1:
        one = jax.random.wrap_key_data(jnp.asarray(data), impl=kind)
        data = np.asarray(jax.random.key_data(jax.random.split(one, count)))
    return Job(settings, data, kind, shared, own, arguments)


def take(tree: Any, index: Any) -> Any:
    """The same entries of every array."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def on_host(value: Any) -> np.ndarray:
    """The array on the host, in the dtype that JAX would give it."""
    array = np.asarray(as_numbers(value))
    with np.errstate(over="ignore"):  # 1e300 is infinite in float32, and refused as such
        return array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)


def _as_data(parts: dict[str, Any]) -> Data:
    validation = None if parts.get("validation X") is None else (parts["validation X"], parts["validation Y"])
    return as_data(parts["X"], parts["Y"], parts["weights"], validation)


def _count(members: int | None, keys: int | None, own: dict[str, Any]) -> int:
    """The number of members, on which all that tell it must agree."""
    if members is not None and not (is_whole(members) and 1 <= members < 1 << 31):
        raise ValueError(f"members must be a whole number, 1 or more; got {members!r}")
    counts = {name: count for name, count in (("members", members), ("key", keys)) if count is not None}
    for name, value in own.items():
        shapes = [leaf.shape for leaf in jax.tree.leaves(value)]
        if not shapes or () in shapes or len({shape[0] for shape in shapes}) > 1:
            raise ValueError(f"the arrays of a PerMember have the members as first axis; {name} has shapes {shapes}")
        counts[name] = shapes[0][0]
    if not counts:
        raise ValueError("say how many networks to train: members=10, an array of keys, or a PerMember argument")
    if len(set(counts.values())) > 1 or 0 in counts.values():
        raise ValueError(f"arguments do not agree on the number of members, 1 or more: {counts}")
    return next(iter(counts.values()))
