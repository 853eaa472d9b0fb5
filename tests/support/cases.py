"""What several test files share: random factors, models of earlier files, and the mark of a long case."""

import copy
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest


def long(value):
    """A case left to the long run."""
    return pytest.param(value, marks=pytest.mark.slow)


def noisy_line(rows=60, seed=0):
    """Two targets that are linear in two inputs, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(rows, 2))
    return X, X @ [[1.0, 0.5], [0.0, 1.0]] + 0.5 * rng.normal(size=(rows, 2))


def factors(rng, batch, n, below=0.4):
    """Lower-triangular matrices (*batch, n, n) of positive diagonal, `below` the size of what is under it."""
    L = np.tril(below * rng.normal(size=(*batch, n, n)))
    L[..., range(n), range(n)] = np.exp(0.3 * rng.normal(size=(*batch, n)))
    return jax.device_put(L)  # compiles nothing, as jnp.asarray does for every shape


def with_mlp(model, widths=(5, 4)):
    """A copy of a model with untrained networks of the kind that files of versions 1 and 2 have, `mlp`."""
    last = model.predictor_
    design = last.design._replace(widths=widths, activation="relu", periodic=None)
    keys = jax.random.split(jax.random.key(0), last.members)
    params = jax.vmap(design.network().init, (0, None))(keys, jnp.zeros((1, design.inputs), jnp.float32))
    made = copy.copy(model).set_params(hidden_layer_sizes=widths, activation="relu")
    made.predictor_ = replace(last, design=design, params=jax.tree.map(np.asarray, params))
    return made
