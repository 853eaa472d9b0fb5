"""Every program that training and prediction compile, and the evidence, can be lowered for GPUs and TPUs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mder_jax as mder
from mder_jax.ensemble import _layout, forward

PLATFORMS = ("cuda", "rocm", "tpu")


def lower(function, *arguments):
    """Raises if an operation has no lowering for one of the platforms."""
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), arguments)
    assert jax.export.export(jax.jit(function), platforms=PLATFORMS)(*shapes).platforms == PLATFORMS


def test_programs_of_training_and_prediction(monkeypatch):
    """Each program is lowered for the other platforms when the library compiles it, with the same arguments."""
    names, compiled = [], _layout.compiled

    def lower_and_compile(mesh, function, *arguments):
        names.append(function.__name__)
        lower(function, *arguments)
        return compiled(mesh, function, *arguments)

    for module in (_layout, forward):
        monkeypatch.setattr(module, "compiled", lower_and_compile)
    X, Y = np.random.default_rng(0).normal(size=(2, 20, 2))
    Y[0, 0] = np.nan
    options = {"members": 2, "max_iter": 1, "bootstrap": True, "batch_size": 7, "random_state": 0}
    options["learning_rate_init"] = 5e-3  # one training
    mder.MDERRegressor((4,), **options).fit(X, Y).predict_uncertainty(X)
    assert names == ["_begin", "_train", "forward"]


@pytest.mark.parametrize("n", [1, 2, 5, 9, 17])
@pytest.mark.parametrize("missing", [False, True])
def test_evidence_and_its_gradient(n, missing):
    def loss(raw, y):
        return jnp.sum(mder.mder_nll(mder.niw_link(raw, n), y, missing=missing))

    lower(jax.value_and_grad(loss), np.zeros((3, mder.num_outputs(n)), np.float32), np.zeros((3, n), np.float32))
