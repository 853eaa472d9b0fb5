"""Members on devices: a mesh along their axis, groups that fit a device's cache, programs compiled once."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

# Members that a CPU device trains at once: enough to fill its vector units, few enough for its cache.
GROUP = 64


AXIS = "members"


_programs: dict[tuple[str, tuple[Any, ...]], Callable[..., Any]] = {}


def mesh_of(devices: Sequence[jax.Device] | None, most: int | None = None) -> Mesh:
    """The devices, None for all, as a mesh with one axis; within one process at most the given number."""
    chosen = list(jax.devices() if devices is None else np.asarray(devices, object).ravel())
    if not all(isinstance(device, jax.Device) for device in chosen):
        raise TypeError(f"devices must be a list such as jax.devices(), or None for all; got {devices!r:.60}")
    if jax.process_count() == 1:  # every process must have a part of the work
        chosen = chosen[:most]
    if not chosen:
        raise ValueError("devices is empty; None means all of them")
    return Mesh(np.array(chosen), (AXIS,))


def put(mesh: Mesh, spec: P, tree: Any) -> Any:
    """Arrays of the host on the devices of a mesh."""

    def one(leaf: Any) -> Array:
        values = np.asarray(leaf)
        return jax.make_array_from_callback(values.shape, NamedSharding(mesh, spec), lambda index: values[index])

    return jax.tree.map(one, tree)


class Layout:
    """Where members are: on devices, then in groups that a device trains one after the other."""

    def __init__(self, members: int, devices: Sequence[jax.Device] | None) -> None:
        self.mesh = mesh_of(devices, members)
        local = -(-members // self.mesh.size)
        self.members = members
        self.groups = -(-local // GROUP) if self.mesh.devices.flat[0].platform == "cpu" else 1
        self.group = -(-local // self.groups)

    def spread(self, tree: Any) -> Any:
        """Members over devices; the last one is repeated to fill them."""
        slots = self.mesh.size * self.groups * self.group
        index = np.minimum(np.arange(slots), self.members - 1)
        return put(self.mesh, P(AXIS), jax.tree.map(lambda leaf: np.asarray(leaf)[index], tree))

    def everywhere(self, tree: Any) -> Any:
        """The same on all devices."""
        return put(self.mesh, P(), tree)

    def gathered(self, tree: Any) -> Any:
        """All members on the host, without those that fill up."""
        return jax.tree.map(lambda leaf: fetch(leaf)[: self.members], tree)

    def on_each(self, function: Callable[..., Any], specs: tuple[P, ...]) -> Callable[..., Any]:
        """The function run on every device with the members that lie there; what it returns lies there too."""
        return jax.shard_map(function, mesh=self.mesh, in_specs=specs, out_specs=P(AXIS), check_vma=False)

    def by_group(self, function: Callable[[Any], Any], tree: Any) -> Any:
        """On one device: apply to all its members, one group after the other."""
        if self.groups == 1:
            return function(tree)
        apart = jax.tree.map(lambda leaf: leaf.reshape(self.groups, self.group, *leaf.shape[1:]), tree)
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), lax.map(function, apart))

    def compile(self, function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
        """The function compiled for these arguments."""
        return compiled(self.mesh, function, *arguments)


def compiled(mesh: Mesh, function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """The function compiled for these arguments; the same program is compiled once in a process.

    Programs are compared by their text, since every ``optax.adam(1e-3)`` and every lambda is a new object.
    """
    devices = mesh.devices.flatten()
    # Half the compile time, and no slower, on a CPU.
    options = {"xla_backend_optimization_level": 1} if devices[0].platform == "cpu" else None
    lowered = jax.jit(function, compiler_options=options).lower(*arguments)
    # The structures too: arguments that are not used do not show in the text.
    text = f"{lowered.as_text()}\n{lowered.in_tree}\n{lowered.in_avals}\n{lowered.out_tree}"
    name = (hashlib.sha256(text.encode()).hexdigest(), tuple(devices))
    if name not in _programs:
        _programs[name] = lowered.compile()
    return _programs[name]


def clear_programs() -> None:
    """Forget the programs that this process has compiled for ensembles; `jax.clear_caches` does not reach them.

    An ensemble or estimator that has predicted keeps the program it did so with.

    Example:
      >>> clear_programs()  # the next call compiles again
    """
    _programs.clear()


def fetch(array: Array) -> np.ndarray:
    """The whole array on the host, also what other processes hold of it."""
    if array.is_fully_addressable:
        return np.asarray(array)
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(array, tiled=True))
