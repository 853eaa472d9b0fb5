"""The network for tables and its parts: waves, the smooth clip, embedded columns and a learned sharpness."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import mder_jax as mder
from mder_jax.networks.embeddings import PeriodicEmbedding, cos_turns, normal, smooth_clip

KEY = jax.random.key(0)
DTYPES = [np.float32, np.float64]
X = np.random.default_rng(0).normal(size=(7, 3))


@pytest.mark.parametrize("dtype", DTYPES)
def test_cos_turns_is_the_cosine(dtype):
    x = np.concatenate([np.linspace(-2, 2, 4001), np.arange(-8, 9) / 8, [-1000.125, 1000.3]]).astype(dtype)
    found = cos_turns(jnp.asarray(x))
    assert found.dtype == dtype
    exact = np.cos(2 * np.pi * (x.astype(np.float64) % 1))
    np.testing.assert_allclose(found, exact, rtol=0, atol=3e-7 if dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradient_of_cos_turns(dtype):
    """Also where the polynomial's pieces meet, at multiples of a half."""
    x = np.concatenate([np.linspace(-1.5, 1.5, 997), np.arange(-4, 5) / 4]).astype(dtype)
    found = jax.vmap(jax.grad(cos_turns))(jnp.asarray(x))
    assert found.dtype == dtype
    exact = -2 * np.pi * np.sin(2 * np.pi * x.astype(np.float64))
    np.testing.assert_allclose(found, exact, rtol=0, atol=3e-6 if dtype == np.float32 else 1e-11)
    step = 1e-2 if dtype == np.float32 else 1e-5
    ahead, behind = (np.float64(cos_turns(jnp.asarray(x + dtype(sign * step)))) for sign in (1, -1))
    np.testing.assert_allclose(found, (ahead - behind) / (2 * step), atol=5 * step)  # the error is 41 step²


@pytest.mark.parametrize("dtype", DTYPES)
def test_second_derivative_of_cos_turns(dtype):
    second = jax.grad(jax.grad(cos_turns))(dtype(0.1))
    np.testing.assert_allclose(second, -((2 * np.pi) ** 2) * np.cos(0.2 * np.pi), rtol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("limit", [3.0, 0.5])
def test_smooth_clip(dtype, limit):
    x = np.concatenate([[-1e30], np.linspace(-50, 50, 2001), [1e30]]).astype(dtype)
    found = np.asarray(smooth_clip(jnp.asarray(x), limit))
    assert found.dtype == dtype and np.all(np.abs(found) <= limit) and np.all(np.diff(found) >= 0)
    np.testing.assert_allclose(found[[0, -1]], [-limit, limit], rtol=1e-6)
    within = np.abs(x) < 50
    exact = x[within] / np.sqrt(1 + (x[within] / limit) ** 2)
    np.testing.assert_allclose(found[within], exact, rtol=1e-5, atol=1e-30)
    slopes = jax.vmap(jax.grad(lambda value: smooth_clip(value, limit)))(jnp.asarray(x))
    assert np.all(np.isfinite(slopes)) and np.all(slopes >= 0)
    assert slopes[1001] == 1 and x[1001] == 0


def test_smooth_clip_of_values_that_are_no_numbers():
    found = smooth_clip(jnp.array([np.nan, 0.0, -0.0], jnp.float32))
    np.testing.assert_array_equal(found, [np.nan, 0, 0])


def test_normal_is_the_quantile_function():
    draw = np.linspace(-0.999, 0.999, 201)
    np.testing.assert_allclose(normal(jnp.asarray(draw)), stats.norm.ppf(0.5 * (1 + draw)), rtol=1e-6, atol=1e-9)
    for dtype in DTYPES:
        assert np.all(np.isfinite(normal(jnp.array([-1.0, 1.0], dtype))))


@pytest.mark.parametrize("dtype", DTYPES)
def test_periodic_embedding_is_its_formula(dtype):
    embedding, x = PeriodicEmbedding(frequencies=5, size=3), X.astype(dtype)
    params = embedding.init(KEY, jnp.asarray(x))
    w, b, v, c = (np.float64(params[name]) for name in ("frequency", "phase", "kernel", "bias"))
    rows = []
    for row in x:
        parts = []
        for column, value in enumerate(row):
            waves = np.cos(2 * np.pi * (w[column] * value + b[column]))
            parts += [value, *(waves @ v[column] + c[column])]
        rows.append(parts)
    found = embedding.apply(params, jnp.asarray(x))
    assert found.dtype == dtype and found.shape == (7, 9)
    np.testing.assert_allclose(found, rows, atol=2e-6 if dtype == np.float32 else 1e-12)


def test_start_of_a_periodic_embedding():
    """σ is log-uniform over networks and the same for the columns of one; b covers a turn, V and c ±1/√frequencies."""
    embedding, x = PeriodicEmbedding(frequencies=400, size=2, spread=(0.1, 10.0)), jnp.zeros((1, 2))
    params = jax.vmap(embedding.init, (0, None))(jax.random.split(KEY, 200), x)
    spread = np.std(params["frequency"], axis=2)
    np.testing.assert_allclose(spread[:, 0] / spread[:, 1], 1, atol=0.3)
    logs = (np.log(spread[:, 0]) - math.log(0.1)) / math.log(100)
    assert stats.kstest(logs, "uniform").pvalue > 1e-3
    one = np.asarray(params["frequency"][0]).ravel()
    assert stats.kstest(one / one.std(), "norm").pvalue > 1e-3
    assert stats.kstest(np.ravel(params["phase"][:5]) + 0.5, "uniform").pvalue > 1e-3
    for name in ("kernel", "bias"):
        scaled = np.ravel(params[name]) * 20
        assert stats.kstest(scaled[:5000], stats.uniform(-1, 2).cdf).pvalue > 1e-3


def test_number_of_numbers_that_an_embedding_draws():
    embedding = PeriodicEmbedding(frequencies=5, size=3)
    params = embedding.from_draw(jnp.zeros(embedding.count(4)), 4)
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) + 1 == embedding.count(4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"frequencies": 0}, "at least 1 and 2; got 0 and 4"),
        ({"frequencies": 1.5}, "must be integers, .* got 1.5"),
        ({"size": 1}, "got 16 and 1"),
        ({"spread": (0.0, 1.0)}, r"0 < low <= high; got \(0.0, 1.0\)"),
        ({"spread": (2.0, 1.0)}, r"got \(2.0, 1.0\)"),
        ({"spread": (1.0, math.inf)}, "got .*inf"),
        ({"spread": (math.nan, 1.0)}, "got .*nan"),
    ],
)
def test_wrong_embeddings(changes, message):
    embedding = PeriodicEmbedding(**changes)
    with pytest.raises(ValueError, match=message):
        embedding.checked()
    with pytest.raises(ValueError, match=message):
        mder.table_network((4,), 2, embedding=embedding)


def test_right_embeddings_are_returned():
    embedding = PeriodicEmbedding(1, 2, (0.5, 0.5))
    assert embedding.checked() is embedding


def by_hand(params, x, waves, plain, embedded, embedding, activation, clip=3.0):
    """The network for tables in numpy."""
    clipped = x / np.sqrt(1 + (x / clip) ** 2)
    inputs = []
    if waves:
        inputs.append(np.asarray(embedding.apply(params["numbers"], jnp.asarray(clipped[:, waves]))))
    if plain:
        inputs.append(clipped[:, plain])
    for i, column in enumerate(embedded):
        inputs.append(np.asarray(params[f"embedding_{i}"]["embedding"])[x[:, column].astype(int)])
    hidden = np.concatenate(inputs, axis=1)
    layers = sorted(name for name in params if name.startswith("dense"))
    for name in layers:
        layer = params[name]
        hidden = hidden @ np.asarray(layer["kernel"]) + np.asarray(layer["bias"])
        if name != layers[-1]:
            hidden = activation(layer, hidden)
    return hidden


def swish(layer, hidden):
    return hidden * special.expit(np.exp(np.asarray(layer["log_sharpness"])) * hidden)


# name: periodic, columns of waves, plain columns, columns of indices
COLUMNS = {
    "all numbers": (None, [0, 1, 3], [], [2]),
    "some numbers": ((3, 0), [3, 0], [1], [2]),
    "none": ((), [], [0, 1, 3], [2]),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("activation", ["swish", "relu", "tanh", "gelu", "silu"])
def test_table_network_is_its_layers(name, activation):
    periodic, waves, plain, indices = COLUMNS[name]
    embedding = PeriodicEmbedding(4, 3)
    network = mder.table_network((6, 5), 2, activation, embedded=[(2, 4)], periodic=periodic, embedding=embedding)
    x = np.random.default_rng(1).normal(size=(9, 4)) * 2
    x[:, 2] = np.arange(9) % 4
    params = network.init(KEY, jnp.asarray(x))
    of = swish if activation == "swish" else lambda _, hidden: np.asarray(getattr(jax.nn, activation)(hidden))
    found = network.apply(params, jnp.asarray(x))
    assert found.dtype == np.float64 and found.shape == (9, 2)
    np.testing.assert_allclose(found, by_hand(params, x, waves, plain, indices, embedding, of), rtol=1e-10, atol=1e-12)
    assert ("log_sharpness" in params["dense_0"]) == (activation == "swish")
    assert "log_sharpness" not in params["dense_2"] and ("numbers" in params) == bool(waves)


def test_start_of_a_table_network():
    """One sharpness for all units, log-uniform over networks; kernels and biases as those of `mlp`."""
    network = mder.table_network((50, 40), 3, sharpness=(0.5, 4.0))
    keys = jax.random.split(KEY, 200)
    params = jax.vmap(network.init, (0, None))(keys, jnp.zeros((1, 2)))
    first, second = (np.asarray(params[f"dense_{i}"]["log_sharpness"]) for i in range(2))
    assert np.all(first == first[:, :1]) and np.all(second == first[:, :1])
    assert stats.kstest((first[:, 0] - math.log(0.5)) / math.log(8), "uniform").pvalue > 1e-3
    for name, wide in (("dense_0", 8), ("dense_1", 50), ("dense_2", 40)):
        for part in params[name]["kernel"], params[name]["bias"]:
            scaled = np.ravel(part[:20]) * math.sqrt(wide)
            assert stats.kstest(scaled[:5000], stats.uniform(-1, 2).cdf).pvalue > 1e-3
    vectors = mder.table_network((4,), 1, embedded=[(0, 300)]).init(KEY, jnp.zeros((1, 1)))["embedding_0"]["embedding"]
    assert len(vectors) == 300 and stats.kstest(np.ravel(vectors) / np.std(vectors), "norm").pvalue > 1e-3
    assert not np.array_equal(params["dense_0"]["kernel"][0], params["dense_0"]["kernel"][1])


def test_table_network_under_jit_vmap_and_grad():
    network = mder.table_network((6,), mder.num_outputs(2), link=lambda raw: mder.niw_link(raw, n=2))
    x = jnp.asarray(X)
    params = jax.vmap(network.init, (0, None))(jax.random.split(KEY, 3), x)
    together = jax.jit(jax.vmap(network.apply, (0, None)))(params, x)
    assert isinstance(together, mder.NIW) and together.L.shape == (3, 7, 2, 2)
    one = jax.tree.map(lambda leaf: leaf[1], params)
    alone = network.apply(one, x)
    np.testing.assert_allclose(together.mu[1], alone.mu, rtol=1e-10)

    def loss(params):
        return jnp.sum(mder.mder_nll(network.apply(params, x), jnp.asarray(X[:, :2])))

    gradient = jax.grad(loss)(one)
    direction = jax.tree.map(lambda leaf: jnp.asarray(np.random.default_rng(2).normal(size=leaf.shape)), one)
    step = 1e-6
    ahead, behind = (loss(jax.tree.map(lambda p, d, s=sign: p + s * step * d, one, direction)) for sign in (1.0, -1.0))
    products = jax.tree.map(lambda g, d: jnp.sum(g * d), gradient, direction)
    np.testing.assert_allclose(sum(jax.tree.leaves(products)), (ahead - behind) / (2 * step), rtol=1e-6)
    assert all(np.any(leaf != 0) for leaf in jax.tree.leaves(gradient)), "all parameters are trained"


@pytest.mark.parametrize("dtype", [*DTYPES, np.int64])
def test_dtypes_of_a_table_network(dtype):
    network, x = mder.table_network((4,), 2), jnp.arange(6).reshape(2, 3).astype(dtype)
    params = network.init(KEY, x)
    wanted = np.float64 if dtype == np.int64 else dtype
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype(wanted)}
    assert network.apply(params, x).dtype == wanted


def test_values_far_away_are_within_the_bound():
    network = mder.table_network((4,), 2)
    x = jnp.array([[1e30, 0.0], [3e30, 0.0]], jnp.float32)
    near, far = network.apply(network.init(KEY, x), x)
    assert np.all(np.isfinite(near))
    np.testing.assert_allclose(near, far, rtol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"widths": (0,)}, "widths and outputs must be integers above 0"),
        ({"outputs": 0}, "widths and outputs must be integers above 0"),
        ({"activation": "sin"}, "one of swish, relu, tanh, gelu, silu; got 'sin'"),
        ({"sharpness": (0.0, 1.0)}, r"sharpness must be two numbers with 0 < low <= high; got \(0.0, 1.0\)"),
        ({"sharpness": (2.0, 1.0)}, r"got \(2.0, 1.0\)"),
        ({"sharpness": 2.0}, "sharpness must be two numbers with 0 < low <= high; got 2.0"),
        ({"clip": 0.0}, "clip must be above 0; got 0.0"),
        ({"clip": math.nan}, "clip must be above 0; got nan"),
        ({"embedded": [(0, 2)], "periodic": [0, 1]}, "column 0 is both embedded, as a category, and periodic"),
        ({"embedded": [(0, 2), (0, 3)]}, "has column 0 twice"),
        ({"periodic": [1, 1]}, "periodic must name each column once, and has column 1 twice"),
        ({"periodic": [-1]}, "periodic must be columns, integers from 0"),
        ({"periodic": [0.5]}, "periodic must be columns, integers from 0"),
        ({"periodic": 3}, "periodic must be columns, integers from 0"),
    ],
)
def test_wrong_arguments_of_a_table_network(changes, message):
    options = {"widths": (4,), "outputs": 2} | changes
    with pytest.raises(ValueError, match=message):
        mder.table_network(**options)


def test_arguments_of_a_wrong_type():
    with pytest.raises(TypeError, match="link must be a function, or None; got 3"):
        mder.table_network((4,), 2, link=3)
    with pytest.raises(TypeError, match="embedding must be a PeriodicEmbedding; got 'periodic'"):
        mder.table_network((4,), 2, embedding="periodic")


@pytest.mark.parametrize("changes", [{"embedded": [(3, 2)]}, {"periodic": [3]}])
def test_columns_that_x_does_not_have(changes):
    network = mder.table_network((4,), 2, **changes)
    with pytest.raises(ValueError, match="column 3 is named, but x has 3 columns, counted from 0"):
        network.init(KEY, jnp.asarray(X))
