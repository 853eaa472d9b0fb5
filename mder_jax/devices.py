"""Devices and compiled programs of this process: one device for each core, programs kept on disk."""

import os

import jax

from mder_jax._arguments import is_integer

__all__ = ["use_all_cores", "use_compilation_cache"]


def use_all_cores(cores: int | None = None) -> None:
    """Let JAX see one device for each CPU core, since one device uses one core. Call it before JAX is used at all.

    The same as starting Python with ``JAX_NUM_CPU_DEVICES`` set in the environment. Accelerators are not affected.

    Args:
      cores: how many; None for all that this process may use, unless a number is already set by that variable, by
        ``XLA_FLAGS`` or in ``jax.config``.

    Example:
      >>> import subprocess, sys  # in a separate process, since JAX may have started in this one
      >>> script = "import jax, mder_jax; mder_jax.use_all_cores(2); print(jax.device_count('cpu'))"
      >>> print(subprocess.check_output([sys.executable, "-c", script], text=True).strip())
      2
    """
    is_set = os.environ.get("JAX_NUM_CPU_DEVICES") or jax.config.values["jax_num_cpu_devices"] > 0
    if cores is None and (is_set or "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")):
        return
    available = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    count = len(available) if cores is None else cores
    if not is_integer(count) or count < 1:
        raise ValueError(f"cores must be an integer, 1 or more; got {cores!r:.60}")
    try:
        jax.config.update("jax_num_cpu_devices", int(count))
    except RuntimeError as error:
        raise RuntimeError(
            "JAX has started already; call use_all_cores() before any JAX computation, "
            f"or start Python with JAX_NUM_CPU_DEVICES={count} in the environment"
        ) from error


def use_compilation_cache(directory: str | None = None) -> None:
    """Keep compiled programs on disk for the next process, for command lines; the library itself never does.

    Nothing happens if JAX already has a directory. To switch the cache off: ``JAX_ENABLE_COMPILATION_CACHE=false``.

    Args:
      directory: None for ``mder_jax`` in the user's cache directory.

    Example:
      >>> import subprocess, sys  # in a separate process, since it is a setting of JAX
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
