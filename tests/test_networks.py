"""Networks as pairs of functions: the MLP of the recipe, and users' own Flax modules, dropout included."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn, nnx
from scipy import stats

import mder_jax as mder
from mder_jax.networks import row_dot_general
from mder_jax.networks._dense import row_product
from tests.support.cases import long

KEY = jax.random.key(0)
SERIES = jnp.asarray(np.random.default_rng(0).normal(size=(5, 8, 2)), jnp.float32)


class LinenConv(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(4, (3,))(x))
        return nn.Dense(6)(x.reshape(x.shape[0], -1))


class LinenRecurrent(nn.Module):
    @nn.compact
    def __call__(self, x, train: bool = False):
        x = nn.RNN(nn.LSTMCell(7))(x)[:, -1]
        return nn.Dense(6)(nn.Dropout(0.5, deterministic=not train)(x))


class LinenDeterministic(nn.Module):
    @nn.compact
    def __call__(self, x, deterministic: bool):
        return nn.Dense(6)(nn.Dropout(0.5, deterministic=deterministic)(x.reshape(x.shape[0], -1)))


class LinenNorm(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.BatchNorm(use_running_average=True)(x)


class NnxConv(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(2, 4, (3,), rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.out = nnx.Linear(32, 6, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.conv(x))
        return self.out(self.dropout(x.reshape(x.shape[0], -1)))


class NnxRecurrent(nnx.Module):
    def __init__(self, rngs):
        self.rnn = nnx.RNN(nnx.GRUCell(2, 7, rngs=rngs), rngs=rngs)
        self.out = nnx.Linear(7, 6, rngs=rngs)

    def __call__(self, x):
        return self.out(self.rnn(x)[:, -1])


class NnxNorm(nnx.Module):
    def __init__(self, rngs):
        self.norm = nnx.BatchNorm(2, rngs=rngs)

    def __call__(self, x):
        return self.norm(x)


MODULES = {
    "linen conv": lambda link: mder.from_linen(LinenConv(), link),
    "linen recurrent": lambda link: mder.from_linen(LinenRecurrent(), link),
    "linen deterministic": lambda link: mder.from_linen(LinenDeterministic(), link),
    "nnx conv": lambda link: mder.from_nnx(NnxConv, link),
    "nnx recurrent": lambda link: mder.from_nnx(NnxRecurrent, link),
}
NOISY = {"linen recurrent", "linen deterministic", "nnx conv"}
CHECKED = {"linen deterministic", "nnx conv"}


@pytest.fixture(autouse=True)
def lenient():
    # Flax's own layers promote weak types.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def test_weights_and_biases_are_uniform_within_one_over_root_fan_in():
    params = mder.mlp((400, 300), 200).init(KEY, jnp.ones((1, 4)))
    layers = [params[name] for name in sorted(params)]
    for layer, fan_in in zip(layers, (4, 400, 300), strict=True):
        for values in (layer["kernel"], layer["bias"]):
            scaled = np.asarray(values).ravel() * np.sqrt(fan_in)
            assert stats.kstest(scaled, stats.uniform(-1, 2).cdf).pvalue > 1e-3


def test_own_initialisers_replace_the_default_each_for_itself():
    ones = jax.nn.initializers.ones
    for given in ({"kernel_init": ones}, {"bias_init": ones}):
        params = mder.mlp((5,), 2, **given).init(jax.random.key(0), jnp.ones((1, 3)))
        for layer in params.values():
            are_ones = {name for name, values in layer.items() if np.all(values == 1)}
            assert are_ones == {next(iter(given)).removesuffix("_init")}


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu", "silu"])
def test_mlp_is_the_composition_of_its_layers(activation):
    network = mder.mlp((5, 4), 3, activation=activation)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(7, 2)))
    params = network.init(KEY, x)
    hidden = x
    for name in sorted(params)[:-1]:
        hidden = getattr(jax.nn, activation)(hidden @ params[name]["kernel"] + params[name]["bias"])
    last = params[sorted(params)[-1]]
    expected = hidden @ last["kernel"] + last["bias"]
    assert expected.dtype == jnp.float64
    np.testing.assert_allclose(network.apply(params, x), expected, rtol=1e-12)


def test_initialisers_and_integers():
    ones, zeros = jax.nn.initializers.ones, jax.nn.initializers.zeros
    network = mder.mlp((), 2, kernel_init=ones, bias_init=zeros)
    x = jnp.array([[1, 2, 3]])
    np.testing.assert_array_equal(network.apply(network.init(KEY, x), x), [[6.0, 6.0]])


def test_link_makes_a_distribution():
    network = mder.mlp((8,), mder.num_outputs(2), link=lambda raw: mder.niw_link(raw, n=2))
    niw = network.apply(network.init(KEY, SERIES[:, 0]), SERIES[:, 0])
    assert isinstance(niw, mder.NIW) and niw.L.shape == (5, 2, 2)


def test_dropout_of_mlp_acts_while_training_only():
    network = mder.mlp((400,), 1, dropout=0.25, kernel_init=jax.nn.initializers.ones)
    x = jnp.ones((1, 3))
    params = network.init(KEY, x)
    one, other = (network.train(params, x, key) for key in jax.random.split(KEY))
    assert one != other and network.apply(params, x) == network.apply(params, x)
    kept = jnp.mean(jnp.stack([network.train(params, x, key) for key in jax.random.split(KEY, 200)]))
    sd = 400 * 3.5 * np.sqrt(0.25 / 0.75 / 400) / np.sqrt(200)
    assert abs(kept - network.apply(params, x)[0, 0]) < 5 * sd
    assert mder.mlp((4,), 1).train is None


def of_embedded(params, x, pairs):
    """Raw outputs of a network with one hidden layer, by numpy: vectors of categories follow the other columns."""
    params = jax.tree.map(np.asarray, params)
    vectors = [params[f"embedding_{i}"]["embedding"][x[:, column].astype(int)] for i, (column, _) in enumerate(pairs)]
    hidden = np.concatenate([np.delete(x, [column for column, _ in pairs], axis=1), *vectors], axis=1)
    hidden = np.tanh(hidden @ params["dense_0"]["kernel"] + params["dense_0"]["bias"])
    return hidden @ params["dense_1"]["kernel"] + params["dense_1"]["bias"]


ROWS_WITH_CATEGORIES = np.array([[0.5, 2.0, -1.0, 0.0], [1.5, 0.0, 2.0, 1.0], [-0.5, 2.0, 0.25, 1.0], [0.0, 3.0, 1, 0]])
PAIRS = ((3, 2), (1, 30))  # column 3 has 2 levels, column 1 has 30


def test_categories_are_rows_of_learned_tables():
    x = jnp.asarray(ROWS_WITH_CATEGORIES)
    network = mder.mlp((5,), 3, activation="tanh", embedded=PAIRS)
    params = network.init(KEY, x)
    assert {name: table["embedding"].shape for name, table in params.items() if "embedding" in table} == {
        "embedding_0": (2, round(1.6 * 2**0.56)),
        "embedding_1": (30, round(1.6 * 30**0.56)),
    }
    np.testing.assert_allclose(network.apply(params, x), of_embedded(params, ROWS_WITH_CATEGORIES, PAIRS), rtol=1e-12)
    assert mder.mlp((5,), 3, embedded=((0, 2000),)).init(KEY, x[:, :1])["embedding_0"]["embedding"].shape == (2000, 16)


def test_a_column_of_categories_must_be_there():
    with pytest.raises(ValueError, match="embedded names column 3, but x has 3 columns, counted from 0"):
        mder.mlp((5,), 3, embedded=PAIRS).init(KEY, jnp.ones((1, 3)))


def test_vectors_of_categories_start_small_and_differ():
    params = mder.mlp((400,), 2, embedded=PAIRS).init(KEY, jnp.asarray(ROWS_WITH_CATEGORIES))
    draws = np.asarray(params["embedding_1"]["embedding"]).ravel()
    assert stats.kstest(draws, stats.norm(0, 0.1).cdf).pvalue > 1e-3
    kernel = np.asarray(params["dense_0"]["kernel"])  # the layers after them are drawn as ever
    assert kernel.shape == (2 + 2 + 11, 400)
    assert stats.kstest(kernel.ravel() * np.sqrt(15), stats.uniform(-1, 2).cdf).pvalue > 1e-3


def test_gradient_by_vectors_of_categories_is_that_of_finite_differences():
    x = jnp.asarray(ROWS_WITH_CATEGORIES)
    network = mder.mlp((5,), 3, activation="tanh", embedded=PAIRS)
    params = network.init(KEY, x)
    gradient = jax.grad(lambda params: jnp.sum(jnp.sin(network.apply(params, x))))(params)

    def loss(table):
        changed = params | {"embedding_1": {"embedding": table}}
        return np.sin(of_embedded(changed, ROWS_WITH_CATEGORIES, PAIRS)).sum()

    table, step = np.asarray(params["embedding_1"]["embedding"]), 1e-5
    expected = np.zeros_like(table)
    for place in np.ndindex(table.shape):
        moved = np.zeros_like(table)
        moved[place] = step
        expected[place] = (loss(table + moved) - loss(table - moved)) / (2 * step)
    np.testing.assert_allclose(gradient["embedding_1"]["embedding"], expected, atol=1e-8)
    used = np.flatnonzero(np.abs(expected).sum(axis=1))
    assert used.tolist() == [0, 2, 3]  # levels that do not occur are not moved


@pytest.mark.parametrize("name", ["linen deterministic", "nnx conv", *map(long, sorted(MODULES.keys() - CHECKED))])
def test_own_modules(name):
    network = MODULES[name](lambda raw: mder.niw_link(raw, n=2))
    params = network.init(KEY, SERIES[:1])
    niw = network.apply(params, SERIES)
    assert niw.mu.shape == (5, 2)
    keys = jax.random.split(KEY)
    with_noise = [jax.jit(network.train)(params, SERIES, key).mu for key in (*keys, keys[0])]
    np.testing.assert_array_equal(with_noise[0], with_noise[2])
    assert np.array_equal(with_noise[0], with_noise[1]) == (name not in NOISY)
    np.testing.assert_array_equal(niw.mu, network.apply(params, SERIES).mu)
    stacked = jax.vmap(network.init, (0, None))(keys, SERIES[:1])
    many = jax.vmap(network.apply, (0, None))(stacked, SERIES)
    for i, key in enumerate(keys):
        np.testing.assert_allclose(many.mu[i], network.apply(network.init(key, SERIES[:1]), SERIES).mu, atol=1e-5)


@pytest.mark.parametrize("name", [long("nnx conv"), long("linen recurrent"), "nnx recurrent"])
def test_own_modules_learn_in_an_ensemble(name):
    import optax

    network = MODULES[name](lambda raw: mder.niw_link(raw, n=2))
    Y = jnp.stack([SERIES.mean((1, 2)), SERIES[:, -1, 0]], axis=1)
    result = mder.fit_ensemble(KEY, network, mder.mder_nll, SERIES, Y, members=3, epochs=60, optimizer=optax.adam(1e-2))
    first, last = result.history.train[:, 0], result.history.train[:, -1]
    assert np.all(last < first - 0.5) and np.all(result.diverged_at < 0)
    assert mder.predict(result, SERIES).mu.shape == (3, 5, 2)


def test_state_besides_parameters_is_refused():
    with pytest.raises(ValueError, match=r"LinenNorm keeps state besides its parameters \(batch_stats\)"):
        mder.from_linen(LinenNorm()).init(KEY, SERIES)
    with pytest.raises(ValueError, match=r"NnxNorm keeps state besides its parameters \(BatchStat\)"):
        mder.from_nnx(NnxNorm)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"widths": (0,), "outputs": 2}, "above 0; got"),
        ({"widths": (3.5,), "outputs": 2}, "integers"),
        ({"widths": (3,), "outputs": 2, "activation": "sin"}, "relu, tanh, gelu, silu; got 'sin'"),
        ({"widths": (3,), "outputs": 2, "dropout": 1.0}, "below 1; got 1.0"),
        ({"widths": (3,), "outputs": 2, "embedded": 3}, r"pairs \(column, levels\) of integers.*; got 3"),
        ({"widths": (3,), "outputs": 2, "embedded": [1, 2]}, r"pairs .*; got \[1, 2\]"),
        ({"widths": (3,), "outputs": 2, "embedded": [(0, 2, 3)]}, r"got \[\(0, 2, 3\)\]"),
        ({"widths": (3,), "outputs": 2, "embedded": [(0, 0)]}, r"levels above 0; got \[\(0, 0\)\]"),
        ({"widths": (3,), "outputs": 2, "embedded": [(-1, 4)]}, r"got \[\(-1, 4\)\]"),
        ({"widths": (3,), "outputs": 2, "embedded": [(0, 2.5)]}, r"got \[\(0, 2.5\)\]"),
        ({"widths": (3,), "outputs": 2, "embedded": [(0, 2), (0, 3)]}, r"column 0 twice; got \[\(0, 2\), \(0, 3\)\]"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        mder.mlp(**arguments)


@pytest.mark.parametrize("shape", [(3, 5), *map(long, [(5, 3), (1, 4), (4, 1), (4, 4)])])
def test_row_product_and_its_derivatives_are_those_of_the_matrix_product(shape):
    rng = np.random.default_rng(1)
    x, w, dx, dw = (jnp.asarray(rng.normal(size=s)) for s in ((6, shape[0]), shape, (6, shape[0]), shape))
    np.testing.assert_allclose(row_product(x, w), x @ w, rtol=1e-12)
    ours, theirs = (jax.jvp(f, (x, w), (dx, dw)) for f in (row_product, jnp.matmul))
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-12)

    def bent(product):
        return lambda x, w: jnp.sum(jnp.sin(product(x, w)))

    for order in (jax.grad, jax.hessian):
        ours, theirs = (jax.jit(order(bent(f), argnums=(0, 1)))(x, w) for f in (row_product, jnp.matmul))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), ours, theirs)
    three = jnp.broadcast_to(x, (2, 6, shape[0]))
    np.testing.assert_allclose(row_dot_general(three, w, (((2,), (0,)), ((), ()))), three @ w, rtol=1e-12)
