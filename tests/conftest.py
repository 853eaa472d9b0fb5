import os
import pathlib
import socket

import jax
import pytest
import scipy.linalg  # noqa: F401, so that its BLAS is there to be limited
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

from mder_jax.ensemble import clear_programs

# A process that a test starts, in whatever folder, imports this checkout.
ROOT = pathlib.Path(__file__).parent.parent
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))

# Workers share the cores, so that threads of BLAS would wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
threadpool_limits(1, "blas")

# Strict on purpose: double precision is there, nothing is promoted or broadcast that the code does not spell out.
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# Programs are compiled in half the time, with fewer optimisations, and kept from run to run: those of this process, and
# apart from them those of processes that tests start. XLA_FLAGS=--xla_backend_optimization_level=3 pytest: as users do.
QUICK = (
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
)
os.environ.setdefault("XLA_FLAGS", " ".join(QUICK))
CACHE = ROOT / ".pytest_cache" / "xla"
jax.config.update("jax_compilation_cache_dir", str(CACHE / "tests"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(CACHE / "processes")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.02"

# The same examples every time, however long they take.
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("same")

# Files that take long, longest first: begun at the end of a run, one of them would keep a single worker busy.
LONG_FILES = [
    "test_documents.py",
    "test_conformal.py",
    "test_estimator.py",
    "test_checkpoints.py",
    "test_interrupts.py",
]


def pytest_collection_modifyitems(items):
    order = {name: number for number, name in enumerate(LONG_FILES)}
    notebooks = len(order)
    items.sort(key=lambda item: order.get(item.path.name, notebooks + (item.path.suffix != ".ipynb")))


@pytest.fixture(scope="module", autouse=True)
def forget_programs():
    """Compiled programs of a file are dropped when it is done: a process that maps tens of thousands of them dies."""
    yield
    jax.clear_caches()
    clear_programs()


@pytest.fixture
def free_port():
    """A port of this machine, held so that no other program is given it; gRPC shares it."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("localhost", 0))
        yield held.getsockname()[1]
