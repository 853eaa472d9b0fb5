"""Every function of arrays × jit = eager, vmap = loop, derivative = central difference, float32 ≈ float64."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mder_jax as mder
from mder_jax import nig, niw

BATCH = 3


@dataclass(frozen=True)
class Case:
    """A function of arrays with one batch axis, rows independent; `fixed` inputs have no derivative."""

    name: str
    function: Callable
    arrays: tuple
    fixed: tuple[int, ...] = ()


def niw_arrays(n, seed=0):
    rng = np.random.default_rng(seed)
    entries = rng.normal(size=(BATCH, mder.tril_size(n))) * 0.4
    return (
        rng.normal(size=(BATCH, n)),
        entries,
        np.exp(rng.normal(size=BATCH)),
        n + 2 + np.exp(rng.normal(size=BATCH)),
    )


def targets(n, seed=1):
    return np.random.default_rng(seed).normal(size=(BATCH, n))


def build(mu, entries, kappa, nu):
    n = mu.shape[-1]
    L = mder.unpack_tril(entries, n)
    eye = jnp.eye(n, dtype=bool).reshape((1,) * (L.ndim - 2) + (n, n))
    return mder.NIW(mu, jnp.where(eye, jnp.exp(L), L), kappa, nu)


def of_niw(function):
    return lambda mu, entries, kappa, nu, *rest: function(build(mu, entries, kappa, nu), *rest)


def of_t(function):
    return of_niw(lambda niw, *rest: function(mder.predictive(niw), *rest))


def stacked(*arrays):
    """Several results of a row as one vector."""
    rank = len(arrays[0].shape) - 1
    return jnp.concatenate([array.reshape((*array.shape[:rank], -1)) for array in arrays], axis=-1)


def fields(tree, batch_rank):
    return jnp.concatenate([leaf.reshape((*leaf.shape[:batch_rank], -1)) for leaf in jax.tree.leaves(tree)], axis=-1)


def with_gap(n):
    y = targets(n)
    y[0, 0] = np.nan
    y[1] = np.nan
    return y


def evidence_cases():
    for n in (1, 2, 3, 5):
        arrays, y = niw_arrays(n), targets(n)
        yield Case(f"log_evidence-{n}", of_niw(mder.log_evidence), (*arrays, y))
        yield Case(f"slogdet-{n}", of_niw(lambda p, y: mder.log_evidence(p, y, form="slogdet")), (*arrays, y))
        yield Case(f"mder_nll-{n}", of_niw(mder.mder_nll), (*arrays, y))
        yield Case(f"mder_nll-missing-{n}", of_niw(mder.mder_nll), (*arrays, with_gap(n)), fixed=(4,))
        yield Case(f"coupled-{n}", lambda mu, e, r, nu, y: mder.mder_nll(build(mu, e, nu / r, nu), y), (*arrays, y))
    for definition in ("amini2020", "meinert2021", "meinert2023"):
        yield Case(f"aleatoric-{definition}", of_niw(lambda p, d=definition: mder.aleatoric(p, d)), niw_arrays(2))
        yield Case(f"epistemic-{definition}", of_niw(lambda p, d=definition: mder.epistemic(p, d)), niw_arrays(2))


def distribution_cases():
    for n in (1, 2, 3):
        arrays, y = niw_arrays(n), targets(n)
        sigma = np.stack([np.eye(n) + 0.1] * BATCH)
        yield Case(f"niw.log_prob-{n}", of_niw(mder.log_prob), (*arrays, y, sigma), fixed=(5,))
        yield Case(f"mutual_information-{n}", of_niw(mder.mutual_information), arrays)
        observations = np.random.default_rng(2).normal(size=(BATCH, 4, n))
        posterior = of_niw(lambda p, o: fields(mder.posterior(p, o), o.ndim - 2))
        yield Case(f"posterior-{n}", posterior, (*arrays, observations))
        yield Case(f"t.log_prob-{n}", of_t(lambda t, y: t.log_prob(y)), (*arrays, y))
        yield Case(f"t.entropy-{n}", of_t(lambda t: t.entropy()), arrays)
        yield Case(f"t.region_radius-{n}", of_t(lambda t: t.region_radius(0.8)), arrays)
        yield Case(f"t.joint_pit-{n}", of_t(lambda t, y: t.joint_pit(y)), (*arrays, y))
    arrays, y = niw_arrays(2), targets(2)
    yield Case("total_evidence", of_niw(mder.total_evidence), arrays)
    yield Case("marginal", of_niw(lambda p: fields(mder.marginal(p, [1, 0]), p.mu.ndim - 1)), arrays)
    yield Case("t.conditional", of_t(lambda t, v: fields(t.conditional([1], v), v.ndim - 1)), (*arrays, y[:, :1]))
    yield Case("t.covariance", of_t(lambda t: t.covariance()), arrays)
    yield Case("t.cdf", of_t(lambda t, y: t.cdf(y)), (*arrays, y))
    yield Case("t.interval", of_t(lambda t: stacked(*t.interval(0.8))), arrays)
    yield Case("t.ppf", of_t(lambda t: t.ppf(0.2)), arrays)


def nig_case(name, function):
    rng = np.random.default_rng(3)
    arrays = (rng.normal(size=BATCH), *np.exp(rng.normal(size=(2, BATCH))), np.exp(rng.normal(size=BATCH)))
    return Case(name, lambda mu, k, a, b, y: function(mder.NIG(mu, k, 1 + a, b), y), (*arrays, rng.normal(size=BATCH)))


def other_cases():
    yield nig_case("nig.log_evidence", nig.log_evidence)
    for definition in ("amini2020", "meinert2021"):
        yield nig_case(f"der_loss-{definition}", lambda p, y, d=definition: mder.der_loss(p, y, 0.1, d))
    for definition in ("amini2020", "meinert2023"):
        yield nig_case(f"nig.aleatoric-{definition}", lambda p, y, d=definition: nig.aleatoric(p, d))
        yield nig_case(f"nig.epistemic-{definition}", lambda p, y, d=definition: nig.epistemic(p, d))
    yield nig_case("to_niw", lambda p, y: fields(nig.to_niw(p), p.mu.ndim))
    for n in (1, 2, 3):
        raw = np.random.default_rng(4).normal(size=(BATCH, mder.num_outputs(n)))
        yield Case(f"niw_link-{n}", lambda p, n=n: fields(mder.niw_link(p, n), p.ndim - 1), (raw,))
        yield Case(f"loss-of-raw-{n}", lambda p, y, n=n: mder.mder_nll(mder.niw_link(p, n), y), (raw, targets(n)))
        yield Case(
            f"gaussian_nll-{n}",
            lambda p, y, n=n: mder.gaussian_nll(mder.gaussian_link(p, n), y),
            (raw[:, :-1], targets(n)),
        )
        yield Case(
            f"nig_link-{n}", lambda p, n=n: fields(mder.nig_link(p, n), p.ndim - 1), (np.tile(raw[:, :1], 4 * n),)
        )
    x, df = np.array([-1.2, 0.3, 2.0]), np.array([0.8, 3.0, 40.0])
    yield Case("t_cdf", mder.t_cdf, (x, df))
    yield Case("t_ppf", mder.t_ppf, (np.array([0.02, 0.4, 0.9]), df))
    yield Case("joint_pit", lambda x, df: mder.joint_pit(x, df, 3), (np.abs(x), df))
    yield Case("joint_radius", lambda c, df: mder.joint_radius(c, df, 3), (np.array([0.02, 0.4, 0.9]), df))
    yield Case("log_gamma_ratio", lambda x: mder.log_gamma_ratio(x, 3), (df,))


CASES = {case.name: case for case in (*evidence_cases(), *distribution_cases(), *other_cases())}
# The same functions for one and for five targets are left to the long run, but for the evidence; so are two that are
# others with a factor.
LONG = {name for name in CASES if name[-2:] in ("-1", "-5") and not name.startswith("log_evidence")}
LONG |= {"t.region_radius-3", "t.interval", "t.joint_pit-3", "posterior-3"}
every_case = pytest.mark.parametrize(
    "case", [pytest.param(case, id=name, marks=[pytest.mark.slow] * (name in LONG)) for name, case in CASES.items()]
)


@every_case
def test_jit_vmap_derivative_and_precision(case):
    arrays = tuple(np.asarray(array) for array in case.arrays)
    compiled = jax.jit(case.function)
    result = compiled(*arrays)
    assert np.isfinite(result).all()
    np.testing.assert_allclose(result, case.function(*jax.device_put(arrays)), rtol=1e-9, atol=1e-12)

    one_row = jax.jit(case.function)
    loop = np.stack([one_row(*(array[i] for array in arrays)) for i in range(BATCH)])
    np.testing.assert_allclose(result, loop, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(result, jax.jit(jax.vmap(case.function))(*arrays), rtol=1e-9, atol=1e-12)

    single = compiled(*(array.astype(np.float32) for array in arrays))
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, result, rtol=1e-3, atol=1e-4)

    compare_derivative(case, compiled, arrays)


def compare_derivative(case, compiled, arrays):
    """The gradient of a weighted sum, every coordinate of every input, against central differences."""
    weights = np.random.default_rng(9).normal(size=jax.eval_shape(compiled, *arrays).shape)
    free = [i for i in range(len(arrays)) if i not in case.fixed]
    gradients = jax.jit(jax.grad(lambda *arrays: jnp.sum(weights * case.function(*arrays)), argnums=free))(*arrays)
    step = 1e-5
    for i, gradient in zip(free, gradients, strict=True):
        numeric = np.zeros(arrays[i].shape)
        for index in np.ndindex(*arrays[i].shape):
            up, down = ([array.copy() for array in arrays] for _ in range(2))
            up[i][index] += step
            down[i][index] -= step
            difference = np.asarray(compiled(*up)) - np.asarray(compiled(*down))
            numeric[index] = np.sum(weights * difference) / (2 * step)
        np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-6, err_msg=f"input {i}")


def test_a_repeated_call_does_not_retrace():
    traces = []

    @jax.jit
    def loss(params, y):
        traces.append(1)
        return jnp.sum(mder.mder_nll(params, y))

    for seed in range(3):
        loss(build(*jax.device_put(niw_arrays(2, seed))), targets(2, seed))
    assert len(traces) == 1


def test_niw_passes_through_jax_as_a_pytree():
    params = build(*jax.device_put(niw_arrays(2)))
    doubled = jax.jit(lambda p: jax.tree.map(lambda leaf: 2 * leaf, p))(params)
    assert isinstance(doubled, mder.NIW)
    np.testing.assert_array_equal(doubled.nu, 2 * params.nu)
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    assert names == [".mu", ".L", ".kappa", ".nu"]
    gradient = jax.grad(lambda p: jnp.sum(niw.log_evidence(p, targets(2))))(params)
    assert isinstance(gradient, mder.NIW)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 9, 16, 17, 32])  # both sides of each size at which the code differs
def test_loss_and_gradient_from_raw_outputs_are_those_of_the_printed_form(n):
    rng = np.random.default_rng(n)
    raw, y = rng.normal(size=(2, mder.num_outputs(n))) * 0.3, rng.normal(size=(2, n))

    def loss(raw):
        return mder.mder_nll(mder.niw_link(raw, n), y, missing=False)

    def printed(raw):
        return -niw.log_evidence(mder.niw_link(raw, n), y, form="slogdet")

    def value_and_gradient(function):
        value, pullback = jax.vjp(function, jnp.asarray(raw))
        return value, *pullback(jnp.ones_like(value))

    for ours, reference in zip(
        *(jax.jit(value_and_gradient, static_argnums=0)(f) for f in (loss, printed)), strict=True
    ):
        np.testing.assert_allclose(ours, reference, rtol=1e-8, atol=1e-9)
