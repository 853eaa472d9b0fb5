"""What several test files share: random factors, and the mark of a long case."""

import jax
import numpy as np
import pytest


def long(value):
    """A case left to the long run."""
    return pytest.param(value, marks=pytest.mark.slow)


def factors(rng, batch, n, below=0.4):
    """Lower-triangular matrices (*batch, n, n) of positive diagonal, `below` the size of what is under it."""
    L = np.tril(below * rng.normal(size=(*batch, n, n)))
    L[..., range(n), range(n)] = np.exp(0.3 * rng.normal(size=(*batch, n)))
    return jax.device_put(L)  # compiles nothing, as jnp.asarray does for every shape
