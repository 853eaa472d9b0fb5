import os
import pathlib

import jax
import pytest
from hypothesis import HealthCheck, settings

from mder_jax.ensemble import clear_programs

# A process that a test starts, in whatever folder, imports this checkout.
ROOT = pathlib.Path(__file__).parent.parent
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))

# Strict on purpose: double precision is there, nothing is promoted or broadcast that the code does not spell out.
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# A tenth less time to compile, in this process only: what is started from here runs as users have it.
with pytest.MonkeyPatch.context() as patch:
    patch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=1")
    jax.devices()

# The same examples every time, however long they take.
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("same")


@pytest.fixture(scope="module", autouse=True)
def forget_programs():
    """Compiled programs of a file are dropped when it is done: a process that maps tens of thousands of them dies."""
    yield
    jax.clear_caches()
    clear_programs()
