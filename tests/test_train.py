"""One fit: minibatches, shuffles, weights, optimisers, early stopping, divergence, against plain numpy and optax."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

import mder_jax as mder
from mder_jax.train import _shuffle, epochs as train
from mder_jax.train.problem import Problem, Settings, as_data

KEY = jax.random.key(3)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(27, 3))
Y = X @ np.array([1.0, -2.0, 0.5]) + 0.1 * RNG.normal(size=27)
LINE = mder.Network(lambda key, x: jax.random.normal(key, x.shape[1:], x.dtype), lambda w, x: x @ w)


def squared(output, y):
    return (output - y) ** 2


def fit(key=KEY, **options):
    options = {"optimizer": optax.sgd(0.05), "epochs": 5, "batch_size": 10, **options}
    x, y = options.pop("X", X), options.pop("Y", Y)
    return mder.fit(key, options.pop("network", LINE), options.pop("loss", squared), x, y, **options)


def batches_of(key, epoch, rows=27, size=10, weights=None, bootstrap=False, steps=None):
    settings = Settings(1, size, steps, bootstrap)
    data = as_data(X[:rows], Y[:rows], weights)
    problem = Problem(LINE, squared, optax.sgd(0.1), settings)
    state, plan = train.begin(problem, data, key)
    batches = train._minibatches(settings, data, plan, state.seed, jnp.int32(epoch))
    rows = np.asarray(batches.rows if plan.rows is None else plan.rows[batches.rows])
    return [r[p] for r, p in zip(rows, np.asarray(batches.present), strict=True)], state


def by_hand(key, epochs, rate=0.05, weights=None, **options):
    """The same training in numpy, one batch after the other."""
    _, state = batches_of(key, 0, weights=weights, **options)
    w, losses = np.asarray(state.params), []
    values = np.ones(27) if weights is None else weights
    for epoch in range(epochs):
        total = 0.0
        for rows in batches_of(key, epoch, weights=weights, **options)[0]:
            if len(rows):
                share = values[rows] / values[rows].sum()
                residual = X[rows] @ w - Y[rows]
                total += values[rows].sum() * (share * residual**2).sum()
                w = w - rate * 2 * (share * residual) @ X[rows]
        losses.append(total / sum(values[r].sum() for r in batches_of(key, epoch, weights=weights, **options)[0]))
    return w, np.array(losses)


def test_every_row_once_in_an_epoch_and_the_last_batch_ragged():
    seen = []
    for epoch in range(4):
        batches, _ = batches_of(KEY, epoch)
        assert [len(batch) for batch in batches] == [10, 10, 7]
        np.testing.assert_array_equal(np.sort(np.concatenate(batches)), np.arange(27))
        seen.append(tuple(np.concatenate(batches)))
    assert len(set(seen)) == 4
    assert seen[0] != tuple(np.concatenate(batches_of(jax.random.key(4), 0)[0]))


def test_training_is_that_of_a_plain_loop():
    w, losses = by_hand(KEY, 5)
    result = fit()
    np.testing.assert_allclose(result.params, w, rtol=1e-12)
    np.testing.assert_allclose(result.history.train, losses, rtol=1e-12)
    assert result.history.validation is None and result.diverged_at == -1


def test_weights_are_those_of_a_plain_loop():
    weights = RNG.uniform(0.1, 3.0, size=27)
    w, losses = by_hand(KEY, 5, weights=weights)
    result = fit(weights=weights)
    np.testing.assert_allclose(result.params, w, rtol=1e-12)
    np.testing.assert_allclose(result.history.train, losses, rtol=1e-12)


def test_rows_of_weight_zero_are_not_there():
    weights = np.ones(27)
    weights[[0, 4, 9, 13]] = 0
    kept = weights > 0
    whole = fit(weights=weights)
    alone = fit(X=X[kept], Y=Y[kept])
    np.testing.assert_allclose(whole.params, alone.params, rtol=1e-12)
    np.testing.assert_allclose(whole.history.train, alone.history.train, rtol=1e-12)
    few = np.where(np.arange(27) < 12, 1.0, 0.0)  # the third batch of each epoch is empty
    np.testing.assert_allclose(fit(weights=few).params, fit(X=X[:12], Y=Y[:12]).params, rtol=1e-12)


def test_steps_per_epoch_goes_round_the_data():
    few = np.where(np.arange(27) < 12, 1.0, 0.0)
    passes = [np.concatenate(batches_of(KEY, epoch, weights=few, steps=4)[0]) for epoch in range(2)]
    for twelve in np.concatenate(passes).reshape(-1, 12):
        np.testing.assert_array_equal(np.sort(twelve), np.arange(12))
    w, _ = by_hand(KEY, 3, weights=few, steps=4)
    np.testing.assert_allclose(fit(epochs=3, weights=few, steps_per_epoch=4).params, w, rtol=1e-12)
    # Three steps are one pass over 27 rows, so that nothing changes.
    np.testing.assert_array_equal(fit(steps_per_epoch=3).params, fit().params)


def test_bootstrap_draws_with_replacement():
    shares, counts = [], np.zeros(27)
    settings, data = Settings(1, 10, None, True), as_data(X, Y)
    plans = jax.vmap(lambda key: train._plan(settings, data, key))(jax.random.split(KEY, 300))
    for rows in np.asarray(plans.rows):
        counts += np.bincount(rows, minlength=27)
        shares.append(len(np.unique(rows)) / 27)
    expected = 1 - (1 - 1 / 27) ** 27
    assert abs(np.mean(shares) - expected) < 5 * np.std(shares) / np.sqrt(300)
    assert stats.chisquare(counts).pvalue > 1e-3
    one, two = (np.sort(np.concatenate(batches_of(KEY, epoch, bootstrap=True)[0])) for epoch in (0, 1))
    np.testing.assert_array_equal(one, two)
    weights = np.where(np.arange(27) % 2, 1.0, 0.0)
    assert np.all(np.concatenate(batches_of(KEY, 0, weights=weights, bootstrap=True)[0]) % 2 == 1)


def test_shuffles_of_many_rows_leave_nothing_in_place_or_together():
    size, passes = 100_000, 20

    def one(number):
        shuffle = _shuffle.shuffle_of_pass(seed, number, jnp.int32(size), _shuffle.rounds_for(size))
        return _shuffle.shuffled(jnp.arange(size, dtype=jnp.int32), shuffle)

    seed = jax.random.key_data(KEY)
    shuffle = jax.jit(one)
    many = np.stack([shuffle(jnp.int32(number)) for number in range(passes)])
    assert abs((many == np.arange(size)).sum() - passes) < 6 * np.sqrt(passes)
    adjacent = (np.abs(np.diff(many, axis=1)) == 1).sum(axis=1)
    assert abs(adjacent.sum() - 2 * passes) < 6 * np.sqrt(2 * passes) and adjacent.max() < 15


def test_a_small_size_is_shuffled_alike_whatever_the_largest_is():
    place = jnp.arange(50, dtype=jnp.int32)
    seed = jax.random.key_data(KEY)
    few, many = (_shuffle.shuffle_of_pass(seed, jnp.int32(3), jnp.int32(50), rounds) for rounds in (12, 20))
    np.testing.assert_array_equal(_shuffle.shuffled(place, few), _shuffle.shuffled(place, many))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 97, 270, 1000])
def test_shuffles_are_uniform(size):
    def one(seed, number, size_given):
        shuffle = _shuffle.shuffle_of_pass(seed, number, size_given, _shuffle.rounds_for(size))
        return _shuffle.shuffled(jnp.arange(size, dtype=jnp.int32), shuffle)

    passes = 3000 if size > 5 else 20_000
    seeds = jax.vmap(jax.random.key_data)(jax.random.split(KEY, 4))
    over_passes = jax.vmap(jax.vmap(one, (None, 0, None)), (0, None, None))
    many = np.asarray(jax.jit(over_passes)(seeds, jnp.arange(passes), jnp.int32(size))).reshape(-1, size)
    assert np.all(np.sort(many, axis=1) == np.arange(size))
    if size == 1:
        return
    if size <= 5:  # all permutations alike
        _, counts = np.unique(many @ 10 ** np.arange(size), return_counts=True)
        assert len(counts) == np.prod(np.arange(1, size + 1))
        assert stats.chisquare(counts).pvalue > 1e-4
        return
    for place in (0, size // 2, size - 1):
        assert stats.chisquare(np.bincount(many[:, place], minlength=size)).pvalue > 1e-4
    for apart in (1, 2, 7):  # neighbours are not kept together
        difference = (many[:, apart] - many[:, 0]) % size
        assert stats.chisquare(np.bincount(difference, minlength=size)[1:]).pvalue > 1e-4


OPTIMIZERS = {
    "adam": optax.adam(0.1),
    "adam with a schedule": optax.adam(optax.piecewise_constant_schedule(0.1, {5: 0.1, 10: 0.1})),
    "clipped": optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(0.05)),
    "momentum": optax.sgd(0.02, momentum=0.9, nesterov=True),
    "lion": optax.lion(0.01),
    "rmsprop": optax.rmsprop(0.05),
    "without state": optax.sgd(0.05),
    "wants the loss": optax.chain(optax.adam(0.1), optax.contrib.reduce_on_plateau(patience=2)),
    "wants the function": optax.lbfgs(),
}


LONG = ("clipped", "lion", "rmsprop", "wants the function")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in OPTIMIZERS])
@jax.numpy_dtype_promotion("standard")  # optax's own counters need it with 64 bits
def test_any_optimizer_is_that_of_a_plain_loop(name):
    result = fit(optimizer=OPTIMIZERS[name], epochs=15, batch_size=None)
    params = batches_of(KEY, 0)[1].params
    optimizer = optax.with_extra_args_support(OPTIMIZERS[name])
    state = optimizer.init(params)

    def mean(w):
        return jnp.mean(squared(jnp.asarray(X) @ w, jnp.asarray(Y)))

    for _ in range(15):
        value, gradient = jax.value_and_grad(mean)(params)
        updates, state = optimizer.update(gradient, state, params, value=value, grad=gradient, value_fn=mean)
        params = optax.apply_updates(params, updates)
    np.testing.assert_allclose(result.params, params, rtol=1e-6)
    assert result.history.train[-1] < result.history.train[0]


def test_early_stopping_keeps_the_best_parameters():
    held_out = (X[:9], -Y[:9])  # the better the fit, the worse this loss
    result = fit(epochs=30, validation=held_out, patience=4, X=X[9:], Y=Y[9:], batch_size=6)
    losses = np.asarray(result.history.validation)
    best = int(result.best_epoch)
    assert best == np.nanargmin(losses) and int(result.stopped_at) == best + 4
    assert np.isfinite(losses[: best + 5]).all() and np.isnan(losses[best + 5 :]).all()
    assert np.isnan(result.history.train[best + 5 :]).all()
    again = fit(epochs=best + 1, X=X[9:], Y=Y[9:], batch_size=6)
    np.testing.assert_array_equal(result.params, again.params)
    np.testing.assert_allclose(losses[best], np.mean((X[:9] @ np.asarray(again.params) + Y[:9]) ** 2), rtol=1e-12)
    patient = fit(epochs=30, validation=held_out, X=X[9:], Y=Y[9:], batch_size=6)
    assert patient.stopped_at == -1 and int(patient.best_epoch) == np.argmin(patient.history.validation)


def exploding(output, y):
    """Finite at first; NaN once the fit is good."""
    loss = (output - y) ** 2
    return jnp.where(jnp.mean(loss) < 0.2, jnp.nan, loss)


def steep(output, y):
    """A finite loss whose gradient becomes NaN once the fit is good."""
    loss = (output - y) ** 2
    return loss + 0.0 * jnp.sqrt(jnp.where(jnp.mean(loss) < 0.2, 0.0, 1.0) * loss)


@pytest.mark.parametrize("loss", [exploding, steep])
def test_a_run_that_becomes_non_finite_goes_back_and_stays(loss):
    result = fit(loss=loss, epochs=20)
    epoch = int(result.diverged_at)
    assert 0 < epoch < 19
    np.testing.assert_array_equal(result.params, fit(epochs=epoch).params)
    assert np.isfinite(result.history.train[:epoch]).all() and np.isnan(result.history.train[epoch + 1 :]).all()


def test_infinite_learning_rate_leaves_the_first_parameters():
    result = fit(optimizer=optax.sgd(np.inf))
    assert result.diverged_at == 0
    np.testing.assert_array_equal(result.params, batches_of(KEY, 0)[1].params)


def test_jit_and_vmap_change_nothing_and_it_traces_once():
    traces = []

    def run(key):
        traces.append(1)
        return fit(key).params

    keys = jax.random.split(KEY, 3)
    jitted = jax.jit(run)
    alone = np.stack([jitted(key) for key in keys])
    assert len(traces) == 1
    np.testing.assert_allclose(alone, [fit(key).params for key in keys], rtol=1e-12)
    np.testing.assert_allclose(jax.vmap(run)(keys), alone, rtol=1e-12)


def test_a_fit_can_be_differentiated():
    def final(rate):
        return fit(optimizer=optax.sgd(rate)).history.train[-1]

    step = 1e-5
    difference = (final(0.03 + step) - final(0.03 - step)) / (2 * step)
    np.testing.assert_allclose(jax.grad(final)(0.03), difference, rtol=1e-5)


def test_one_scan_over_epochs():
    program = jax.make_jaxpr(lambda key: fit(key, epochs=7).params)(KEY)
    lengths = [eqn.params["length"] for eqn in program.eqns if eqn.primitive.name == "scan"]
    assert lengths == [7]


def test_old_style_keys_work():
    old, new = jax.random.PRNGKey(5), jax.random.key(5)
    np.testing.assert_array_equal(fit(old).params, fit(new).params)


def test_keys_of_another_kind_work_and_keep_their_numbers_under_vmap():
    keys = jax.random.split(jax.random.key(5, impl="rbg"), 3)
    together = jax.vmap(lambda key: fit(key).params)(keys)
    np.testing.assert_allclose(together, [fit(key).params for key in keys], rtol=1e-12)


def test_a_validation_loss_that_is_never_finite_leaves_the_last_parameters():
    result = fit(validation=(X, np.full(27, np.nan)))
    assert result.best_epoch == -1 and np.isnan(result.history.validation).all()
    np.testing.assert_array_equal(result.params, fit().params)


def test_numpy_data_are_checked_while_tracing_too():
    with pytest.raises(ValueError, match="X must be finite"):
        jax.jit(lambda key: fit(key, X=with_value(X, (4, 2), np.nan)).params)(KEY)


def test_many_validation_rows_and_few():
    params = np.asarray(fit(epochs=1).params)
    for rows in (1, 3000):
        x, y = np.resize(X, (rows, 3)), np.resize(Y, rows)
        result = fit(epochs=1, validation=(x, y))
        np.testing.assert_allclose(result.history.validation[-1], np.mean((x @ params - y) ** 2), rtol=1e-10)


def test_the_validation_loss_is_a_weighted_mean():
    params, weights = np.asarray(fit(epochs=1).params), np.arange(27.0)
    result = fit(epochs=1, validation=(X, with_value(Y, 0, np.nan), weights))  # the row of weight 0 is not there
    expected = np.average((X @ params - Y) ** 2, weights=weights)
    np.testing.assert_allclose(result.history.validation[-1], expected, rtol=1e-10)


def test_float32_stays_float32():
    x, y = X.astype(np.float32), Y.astype(np.float32)
    start = mder.Network(lambda key, x: jnp.zeros(3, x.dtype), LINE.apply)
    result = fit(X=x, Y=y, network=start, validation=(x, y))
    assert result.params.dtype == jnp.float32
    np.testing.assert_allclose(result.params, fit(network=start, validation=(X, Y)).params, atol=1e-5)


def bad(**changes):
    return {"key": KEY, "network": LINE, "loss": squared, "X": X, "Y": Y, **changes}


def with_value(array, index, value):
    array = array.copy()
    array[index] = value
    return array


BAD = {
    "NaN in X": (bad(X=with_value(X, (4, 2), np.nan)), ValueError, r"X must be finite; got nan at index \(4, 2\)"),
    "inf in X": (bad(X=with_value(X, (0, 1), -np.inf)), ValueError, r"X must be finite; got -inf at index \(0, 1\)"),
    "inf in Y": (bad(Y=with_value(Y, 5, np.inf)), ValueError, r"no infinity; got inf at index \(5,\)"),
    "rows": (bad(Y=Y[:20]), ValueError, r"same number of rows; got \(27, 3\) and \(20,\)"),
    "one axis": (bad(X=X[:, 0]), ValueError, r"at least two axes; got \(27,\)"),
    "empty": (bad(X=X[:0], Y=Y[:0]), ValueError, r"X has no rows; got shape \(0, 3\)"),
    "batch": (bad(batch_size=28), ValueError, "batch_size 28 exceeds the 27 rows; use batch_size=27 or None"),
    "no batch": (bad(batch_size=0), ValueError, "batch_size must be an integer, 1 or more, or None; got 0"),
    "epochs": (bad(epochs=0), ValueError, "epochs must be an integer, 1 or more; got 0"),
    "half an epoch": (bad(epochs=1.5), ValueError, "epochs must be an integer, 1 or more; got 1.5"),
    "mean": (bad(loss=lambda f, y: jnp.mean(f - y)), ValueError, "one value per row.*got a mean or sum; leave out"),
    "shape": (
        bad(loss=lambda f, y: jnp.stack([f - y] * 2, 1)),
        ValueError,
        r"one value per row, shape \(rows,\); got shape \(3, 2\) for 3 rows",
    ),
    "whole losses": (bad(loss=lambda f, y: (f > y).astype(int)), TypeError, "loss must return floats; got int"),
    "no loss": (bad(loss="mse"), TypeError, r"function of \(network output, y\); got str"),
    "optimizer": (bad(optimizer=optax.adam), TypeError, r"optax optimiser, with init and update, such as optax.adam"),
    "rate": (bad(optimizer=1e-3), TypeError, r"such as optax.adam\(1e-3\); got 0.001"),
    "network": (bad(network=lambda x: x), TypeError, r"network must be a Network\(init, apply\).*got function"),
    "nothing": (bad(network=mder.Network(lambda k, x: {}, lambda p, x: x[:, 0])), ValueError, r"are floats; got \[\]"),
    "whole": (bad(network=mder.Network(lambda k, x: jnp.arange(3), LINE.apply)), ValueError, r"are floats; got \['int"),
    "rows last": (bad(network=mder.Network(LINE.init, lambda w, x: w[None])), ValueError, "arrays with the rows first"),
    "over rows": (bad(loss=lambda f, y: jnp.stack([f] * 3, 1).sum(0)), ValueError, r"got shape \(3,\) for 7 rows"),
    "key": (bad(key=7), TypeError, r"random key such as jax.random.key\(0\); got 7"),
    "weights": (bad(weights=np.ones(5)), ValueError, r"weights must have shape \(27,\), one per row; got \(5,\)"),
    "negative": (bad(weights=with_value(np.ones(27), 3, -1.0)), ValueError, r"not negative; got -1.0 at index \(3,\)"),
    "no weight": (bad(weights=np.zeros(27)), ValueError, "all weights are 0"),
    "patience": (bad(patience=3), ValueError, r"patience needs validation data: pass validation=\(X_val, Y_val\)"),
    "pair": (bad(validation=X), ValueError, r"validation must be a pair \(X, Y\).*got array"),
    "half": (bad(validation=(X, None)), ValueError, r"validation must be a pair \(X, Y\)"),
    "columns": (bad(validation=(X[:, :2], Y)), ValueError, r"validation X must have rows of shape \(3,\).*got \(2,\)"),
    "validation weights": (bad(validation=(X, Y, Y)), ValueError, "validation weights must be finite and not negative"),
    "no validation": (bad(validation=(X, Y, 0 * Y)), ValueError, "all validation weights are 0"),
    "validation NaN": (bad(validation=(with_value(X, (1, 1), np.nan), Y)), ValueError, "validation X must be finite"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("ensemble", [False, True])
def test_bad_input_is_named_before_anything_is_compiled(name, ensemble, monkeypatch):
    arguments, error, message = BAD[name]
    arguments = {"optimizer": optax.sgd(0.1), "epochs": 2, **arguments}
    monkeypatch.setattr(jax.lax, "scan", lambda *_, **__: pytest.fail("it went on to train"))
    function = mder.fit
    if ensemble:
        function, arguments = mder.fit_ensemble, arguments | {"members": 2}
        monkeypatch.setattr("mder_jax.ensemble._layout.Layout.compile", lambda *_: pytest.fail("it went on to compile"))
    with pytest.raises(error, match=message):
        function(**arguments)
