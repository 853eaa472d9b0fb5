"""Members on devices: a mesh along their axis, groups that fit a device's cache, programs compiled once."""

import hashlib
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from mder_jax._arrays import is_whole

# Members that a CPU device trains at once: enough to fill its vector units, few enough for its cache.
GROUP = 64
AXIS = "members"
_programs: dict[tuple[str, tuple[Any, ...]], Callable[..., Any]] = {}


def use_all_cores(cores: int | None = None) -> None:
    """Let JAX see one device for each CPU core, since one device uses one core. Call it before JAX is used at all.

    The same as starting Python with ``JAX_NUM_CPU_DEVICES`` set in the environment. Accelerators are not affected.

    Args:
      cores: how many; None for all that this process may use, unless JAX was told a number already: by that variable,
        by ``XLA_FLAGS`` or in ``jax.config``.

    Example:
      >>> import subprocess, sys  # in a process of its own, since JAX may have started in this one
      >>> script = "import jax, mder_jax; mder_jax.use_all_cores(2); print(jax.device_count('cpu'))"
      >>> print(subprocess.check_output([sys.executable, "-c", script], text=True).strip())
      2
    """
    if cores is None and _is_told_devices():
        return
    available = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    count = len(available) if cores is None else cores
    if not is_whole(count) or count < 1:
        raise ValueError(f"cores must be a whole number, 1 or more; got {cores!r:.60}")
    try:
        jax.config.update("jax_num_cpu_devices", int(count))
    except RuntimeError as error:
        raise RuntimeError(
            "JAX has started already; call use_all_cores() before any JAX computation, "
            f"or start Python with JAX_NUM_CPU_DEVICES={count} in the environment"
        ) from error


def _is_told_devices() -> bool:
    """Whether somebody has said how many CPU devices there are."""
    flags, variable = os.environ.get("XLA_FLAGS", ""), os.environ.get("JAX_NUM_CPU_DEVICES")
    said = variable or "xla_force_host_platform_device_count" in flags
    return bool(said) or jax.config.values["jax_num_cpu_devices"] > 0


class Layout:
    """Where members lie: on devices, then in groups that a device takes one after the other."""

    def __init__(self, members: int, devices: Sequence[jax.Device] | None) -> None:
        chosen = list(jax.devices() if devices is None else np.asarray(devices, object).ravel())
        if not all(isinstance(device, jax.Device) for device in chosen):
            raise TypeError(f"devices must be a list such as jax.devices(), or None for all; got {devices!r:.60}")
        if jax.process_count() == 1:  # every process must have a part of the work
            chosen = chosen[:members]
        if not chosen:
            raise ValueError("devices is empty; None means all of them")
        local = -(-members // len(chosen))
        self.members = members
        self.mesh = Mesh(np.array(chosen), (AXIS,))
        self.groups = -(-local // GROUP) if chosen[0].platform == "cpu" else 1
        self.group = -(-local // self.groups)

    def spread(self, tree: Any) -> Any:
        """Members over devices; the last one is repeated to fill them."""
        slots = self.mesh.size * self.groups * self.group
        index = np.minimum(np.arange(slots), self.members - 1)
        return jax.tree.map(lambda leaf: self._put(np.asarray(leaf)[index], P(AXIS)), tree)

    def everywhere(self, tree: Any) -> Any:
        """The same on all devices."""
        return jax.tree.map(lambda leaf: self._put(np.asarray(leaf), P()), tree)

    def _put(self, values: np.ndarray, spec: P) -> Array:
        return jax.make_array_from_callback(values.shape, NamedSharding(self.mesh, spec), lambda index: values[index])

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
        """The function compiled for these arguments; the same program is compiled once in a process.

        Programs are compared by their text, since every ``optax.adam(1e-3)`` and every lambda is a new object.
        """
        devices = self.mesh.devices.flatten()
        # Half the compile time, and no slower, on a CPU.
        options = {"xla_backend_optimization_level": 1} if devices[0].platform == "cpu" else None
        lowered = jax.jit(function, compiler_options=options).lower(*arguments)
        # The structures too: arguments that are not used do not show in the text.
        text = f"{lowered.as_text()}\n{lowered.in_tree}\n{lowered.in_avals}\n{lowered.out_tree}"
        name = (hashlib.sha256(text.encode()).hexdigest(), tuple(devices))
        if name not in _programs:
            _programs[name] = lowered.compile()
        return _programs[name]


def fetch(array: Array) -> np.ndarray:
    """The whole array on the host, also what other processes hold of it."""
    if array.is_fully_addressable:
        return np.asarray(array)
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(array, tiled=True))


def use_compilation_cache(directory: str | None = None) -> None:
    """Keep compiled programs on disk for the next process, for command lines; the library itself never does.

    Nothing happens if JAX has been told a directory already. To switch it off: ``JAX_ENABLE_COMPILATION_CACHE=false``.

    Args:
      directory: None for ``mder_jax`` in the user's cache directory.

    Example:
      >>> import subprocess, sys  # in a process of its own, since it is a setting of JAX
      >>> script = "import jax, mder_jax; mder_jax.use_compilation_cache(); print(jax.config.jax_compilation_cache_dir)"
      >>> subprocess.check_output([sys.executable, "-c", script], text=True).strip() != "None"
      True
    """
    if directory is not None and not isinstance(directory, str | os.PathLike):
        raise TypeError(f"directory must be a path, or None; got {directory!r:.60}")
    if jax.config.values["jax_compilation_cache_dir"] is None:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        jax.config.update("jax_compilation_cache_dir", str(directory or os.path.join(home, "mder_jax")))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.02)
