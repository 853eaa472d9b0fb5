"""Many fits as one program: the same members as one by one, on any number of devices, whatever looks on."""

import itertools
import os
import signal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mder_jax as mder
from mder_jax import ensemble
from mder_jax.ensemble import _layout

KEY = jax.random.key(1)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(27, 2)).astype(np.float32)
Y = np.stack([X.sum(1), X[:, 0] * X[:, 1]], axis=1) + 0.1 * RNG.normal(size=(27, 2)).astype(np.float32)
Y = Y.astype(np.float32)


def squared(output, y):
    return jnp.sum(jnp.where(jnp.isnan(y), 0.0, output - y) ** 2, axis=-1)


NETWORK = mder.mlp((4,), 2, activation="tanh")
OPTIONS = {"optimizer": optax.adam(1e-2), "epochs": 6, "batch_size": 10, "progress": False}


DEFAULTS = {"network": NETWORK, "loss": squared, "X": X, "Y": Y}


@pytest.fixture(autouse=True)
def lenient():
    with jax.numpy_dtype_promotion("standard"):  # optax's counters need it with 64 bits
        yield


def fit_ensemble(**changes):
    options = {"members": 5, **OPTIONS, **changes}
    arguments = [options.pop(name, default) for name, default in {"key": KEY, **DEFAULTS}.items()]
    return mder.fit_ensemble(*arguments, **options)


def fits(keys, **changes):
    """One fit after the other, with the same options."""
    options = {name: value for name, value in {**OPTIONS, **changes}.items() if name != "progress"}
    arguments = (
        options.pop("network", NETWORK),
        options.pop("loss", squared),
        options.pop("X", X),
        options.pop("Y", Y),
    )
    one = jax.jit(lambda key: mder.fit(key, *arguments, **options))
    return [one(key) for key in keys]


def assert_same(one, other, exact=True, **tolerance):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        if exact:
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, **{"rtol": 2e-4, "atol": 2e-5, **tolerance})


def member(result, i):
    return jax.tree.map(lambda leaf: leaf[i], result.params)


def test_member_i_is_the_fit_with_key_i():
    result = fit_ensemble()
    for i, alone in enumerate(fits(jax.random.split(KEY, 5))):
        assert_same(member(result, i), alone.params, exact=False)
        assert_same(result.history.train[i], alone.history.train, exact=False)
    one = fit_ensemble(key=jax.random.split(KEY, 5)[:1], members=None)
    assert_same(member(one, 0), member(result, 0), exact=False)
    assert len(result) == 5 and result.history.train.shape == (5, 6)
    assert repr(result) == "Ensemble(5 members, 6 epochs, 0 diverged)"


def test_members_differ_and_more_members_change_no_member():
    small, large = fit_ensemble(), fit_ensemble(members=7)
    assert_same(small.params, jax.tree.map(lambda leaf: leaf[:5], large.params), exact=False)
    kernels = large.params["dense_0"]["kernel"].reshape(7, -1)
    assert len(np.unique(np.round(kernels, 4), axis=0)) == 7


@pytest.mark.parametrize("options", [{"bootstrap": True}, {"weights": RNG.uniform(size=27)}, {"steps_per_epoch": 2}])
def test_options_act_as_in_a_single_fit(options):
    result = fit_ensemble(members=3, **options)
    for i, alone in enumerate(fits(jax.random.split(KEY, 3), **options)):
        assert_same(member(result, i), alone.params, exact=False)


def test_dropout_is_the_same_in_an_ensemble():
    network = mder.mlp((4,), 2, dropout=0.3)
    result = fit_ensemble(members=3, network=network)
    for i, alone in enumerate(fits(jax.random.split(KEY, 3), network=network)):
        assert_same(member(result, i), alone.params, exact=False)


@pytest.mark.slow
def test_own_learning_rate_coupling_and_loss_in_one_program():
    rates, couplings, scales = jnp.array([1e-2, 1e-3, 3e-2]), jnp.array([0.5, 1.0, 2.0]), jnp.array([1.0, 2.0, 3.0])

    def network(r):
        return mder.mlp((4,), mder.num_outputs(2), link=lambda raw: mder.niw_link(raw, n=2, r=r))

    def loss(scale):
        return lambda output, y: scale * mder.mder_nll(output, y, missing=False)

    before = len(_layout._programs)
    result = fit_ensemble(
        members=None,
        network=mder.PerMember(couplings, network),
        loss=mder.PerMember(scales, loss),
        optimizer=mder.PerMember(rates, optax.adam),
    )
    assert len(_layout._programs) == before + 2  # one to begin, one to train
    outputs = mder.predict(result, X)
    np.testing.assert_allclose(outputs.nu / outputs.kappa, np.broadcast_to(couplings[:, None], (3, 27)), rtol=1e-6)
    own = {"network": network(couplings[2]), "loss": loss(scales[2]), "optimizer": optax.adam(rates[2])}
    (alone,) = fits(jax.random.split(KEY, 3)[2:], **own)
    assert_same(member(result, 2), alone.params, exact=False)
    kept = result.keep([2, 0])
    np.testing.assert_allclose(mder.predict(kept, X).mu, outputs.mu[jnp.array([2, 0])], rtol=1e-6)


def test_own_data_of_different_size():
    sizes = [27, 10, 15]
    own_x = np.stack([np.where(np.arange(27)[:, None] < size, X * (i + 1), 0) for i, size in enumerate(sizes)])
    own_y = np.stack([np.where(np.arange(27)[:, None] < size, Y, 0) for size in sizes])
    present = np.stack([(np.arange(27) < size).astype(np.float32) for size in sizes])
    result = fit_ensemble(
        members=None, X=mder.PerMember(own_x), Y=mder.PerMember(own_y), weights=mder.PerMember(present)
    )
    for i, (key, size) in enumerate(zip(jax.random.split(KEY, 3), sizes, strict=True)):
        (alone,) = fits(key[None], X=X[:size] * (i + 1), Y=Y[:size])
        assert_same(member(result, i), alone.params, exact=False)


@pytest.mark.parametrize("members", [1, 3])
def test_devices_change_no_member(members):
    one = fit_ensemble(members=members, devices=jax.devices()[:1])
    two = fit_ensemble(members=members, devices=jax.devices()[:2])
    assert_same(one.params, two.params, exact=False, rtol=1e-4, atol=1e-6)
    assert_same(one.history, two.history, exact=False, rtol=1e-4, atol=1e-6)


def test_groups_change_no_member(monkeypatch):
    whole = fit_ensemble(members=7)
    monkeypatch.setattr(_layout, "GROUP", 2)
    groups = fit_ensemble(members=7)
    assert_same(whole.params, groups.params, exact=False, rtol=1e-4, atol=1e-6)
    assert_same(mder.predict(whole, X), mder.predict(groups, X), exact=False)


def test_no_collective_in_the_step():
    run = started()
    text = run._program.as_text()
    assert not [word for word in ("all-reduce", "all-gather", "all-to-all", "collective-permute") if word in text]
    assert "num_partitions=2" in text


def started(**changes):
    from mder_jax.ensemble._training import Run
    from mder_jax.ensemble.members import Members, make_job
    from mder_jax.train.problem import Data, Settings

    parts = Members(NETWORK, squared, optax.adam(1e-2), Data(X, Y))
    run = Run(make_job(parts._replace(**changes), Settings(6, 10), KEY, 5), None)
    run.start()
    return run


def test_same_key_same_bits_and_nothing_is_compiled_twice():
    first = fit_ensemble()
    programs = len(_layout._programs)
    compilations = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compilations.append(event) if "backend_compile" in event else None
    )
    try:
        again = fit_ensemble(
            network=mder.mlp((4,), 2, activation="tanh", link=lambda raw: raw),
            optimizer=optax.adam(1e-2),
        )
        watched = fit_ensemble(progress=True)
        called = fit_ensemble(callback=lambda progress: None)
    finally:
        jax.monitoring.clear_event_listeners()
    assert len(_layout._programs) == programs and len(compilations) == 0
    for other in (again, watched, called):
        assert_same(first.params, other.params)
        assert_same(first.history, other.history)


def test_one_call_unless_somebody_looks(monkeypatch):
    stops = []
    advance = ensemble.Run.advance
    monkeypatch.setattr(ensemble.Run, "advance", lambda run, stop: stops.append(stop) or advance(run, stop))
    fit_ensemble()
    assert stops == [6]
    stops.clear()
    fit_ensemble(callback=lambda progress: None, callback_every=4)
    assert {4, 6} <= set(stops)


def test_bar_shows_epochs_loss_and_time(capfd):
    fit_ensemble(progress=True)
    shown = capfd.readouterr().err
    assert "5 networks" in shown and "6/6 epochs" in shown and "loss" in shown and "left" in shown
    fit_ensemble(progress=None)  # standard error is no terminal here
    assert capfd.readouterr().err == ""


def test_callback_sees_losses_and_parameters_and_can_stop():
    seen = []

    def look(progress):
        seen.append(progress)
        return progress.epoch >= 4

    result = fit_ensemble(callback=look, callback_every=2)
    assert [progress.epoch for progress in seen] == [2, 4] and result.epochs == 4
    assert seen[0].history.train.shape == (5, 2) and seen[0].epochs == 6
    assert_same(seen[-1].params, result.params)
    assert np.isfinite(result.history.train[:, :4]).all() and np.isnan(result.history.train[:, 4:]).all()
    assert_same(result.params, fit_ensemble(epochs=4).params)


def test_ctrl_c_returns_what_is_there():
    def interrupt(progress):
        if progress.epoch == 3:
            raise KeyboardInterrupt

    with pytest.warns(RuntimeWarning, match="returned as they are after 3 of 6 epochs"):
        result = fit_ensemble(callback=interrupt, callback_every=1)
    assert result.epochs == 3 and result.interrupted
    assert_same(result.params, fit_ensemble(epochs=3).params)
    with pytest.raises(KeyboardInterrupt):
        fit_ensemble(callback=interrupt, callback_every=1, on_interrupt="raise")
    with pytest.raises(ValueError, match="on_interrupt must be 'return' or 'raise'; got 'stop'"):
        fit_ensemble(on_interrupt="stop")


def test_ctrl_c_in_one_call_is_an_interrupt(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(ensemble.Run, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit_ensemble()


def test_lists_and_trees_of_own_values():
    listed = fit_ensemble(
        members=None, optimizer=mder.PerMember([1e-2, 1e-3], optax.adam), X=mder.PerMember([X, 2 * X])
    )
    stacked = mder.PerMember(np.array([1e-2, 1e-3]), optax.adam)
    tree = mder.PerMember({"rows": np.stack([X, X]), "factor": np.array([1, 2], np.float32)}, scaled)
    assert_same(fit_ensemble(members=2, optimizer=stacked, X=tree).params, listed.params, exact=False)


def scaled(own):
    return own["rows"] * own["factor"]


def test_validation_that_is_never_finite_is_said():
    def strict(output, y):
        return jnp.sum((output - y) ** 2, axis=-1)

    held_out = (X, np.full_like(Y, np.nan))
    with pytest.warns(RuntimeWarning, match="validation loss of 2 members was never finite.*validation Y holds NaN"):
        result = fit_ensemble(members=2, loss=strict, validation=held_out)
    assert_same(result.params, fit_ensemble(members=2, loss=strict).params, exact=False)


def test_a_real_ctrl_c_while_the_program_runs():
    calls = itertools.count()

    def interrupt():
        if next(calls) == 50:
            os.kill(os.getpid(), signal.SIGINT)

    def loss(output, y):
        jax.debug.callback(interrupt)
        return squared(output, y)

    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.warns(RuntimeWarning, match="interrupted"):
            result = fit_ensemble(loss=loss, epochs=400, callback=lambda progress: None, callback_every=400)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert result.interrupted and 1 <= result.epochs < 400
    assert np.isfinite(result.history.train[:, : result.epochs]).all()


def test_a_member_that_diverges_is_frozen_and_the_others_do_not_notice():
    rates = jnp.array([1e-2, 1e-2, jnp.inf, 1e-2, 1e-2])
    with pytest.warns(RuntimeWarning, match=r"1 of 5 members became non-finite .*: 2 \(epoch 0\)"):
        broken = fit_ensemble(optimizer=mder.PerMember(rates, optax.adam))
    whole = fit_ensemble(optimizer=mder.PerMember(jnp.full(5, 1e-2), optax.adam))
    np.testing.assert_array_equal(broken.diverged_at, [-1, -1, 0, -1, -1])
    others = broken.diverged_at < 0
    assert_same(broken.keep(others).params, whole.keep(others).params)
    assert np.isfinite(broken.params["dense_0"]["kernel"]).all()
    untrained = fit_ensemble(epochs=1, optimizer=optax.sgd(0.0))
    assert_same(member(broken, 2), member(untrained, 2))
    left = np.flatnonzero(others)
    rates = mder.PerMember(jnp.full(4, 1e-2), optax.adam)
    without = fit_ensemble(key=jax.random.split(KEY, 5)[left], members=None, optimizer=rates)
    assert_same(broken.keep(others).params, without.params)


def test_all_members_diverging_ends_the_run_and_says_why():
    gaps = Y.copy()
    gaps[3, 0] = np.nan

    def complete_only(output, y):
        return jnp.sum((output - y) ** 2, axis=-1)

    with pytest.warns(RuntimeWarning, match=r"5 of 5 members .*Y holds NaN: does the loss accept missing targets\?"):
        result = fit_ensemble(Y=gaps, loss=complete_only, callback=lambda progress: None)
    assert result.epochs < 6
    assert np.all(fit_ensemble(Y=gaps).diverged_at < 0)


def test_each_member_stops_early_on_its_own():
    options = {"epochs": 40, "validation": (X[:9], -Y[:9]), "patience": 3, "X": X[9:], "Y": Y[9:], "batch_size": 6}
    result = fit_ensemble(members=6, **options)
    for i, alone in enumerate(fits(jax.random.split(KEY, 6), **options)):
        assert int(alone.best_epoch) == result.best_epoch[i] and int(alone.stopped_at) == result.stopped_at[i]
        assert_same(member(result, i), alone.params, exact=False)
    assert len(set(result.best_epoch)) > 1 and result.history.validation.shape == (6, 40)
    assert result.epochs == result.stopped_at.max() + 1 < 40


def test_prediction_in_blocks():
    result = fit_ensemble()
    grid = RNG.normal(size=(103, 2)).astype(np.float32)
    whole = mder.predict(result, grid)
    assert whole.shape == (5, 103, 2)
    direct = jax.vmap(NETWORK.apply, (0, None))(result.params, grid)
    assert_same(whole, direct, exact=False, rtol=1e-5, atol=1e-6)
    programs = len(_layout._programs)
    for rows in (16, 16):
        assert_same(mder.predict(result, grid, rows=rows), whole, exact=False, rtol=1e-5, atol=1e-6)
    assert len(_layout._programs) == programs + 1
    means = mder.predict(result, grid, rows=16, reduce=lambda outputs: {"mean": outputs.mean(0)})["mean"]
    assert means.shape == (103, 2)
    np.testing.assert_allclose(means, whole.mean(0), rtol=1e-5, atol=1e-6)
    assert mder.predict(result, grid[:1]).shape == (5, 1, 2)
    with pytest.raises(ValueError, match=r"reduce must return arrays with the 16 rows of a block first; got shapes"):
        mder.predict(result, grid, rows=16, reduce=lambda outputs: outputs)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (X[:, :1], r"X must have shape \(N, 2\) with N >= 1, as in training; got \(27, 1\)"),
        (X[:0], r"got \(0, 2\)"),
        (np.where(X > 1, np.nan, X), r"X must be finite; got nan at index"),
    ],
)
def test_bad_rows_to_predict_are_named(value, message):
    result = fit_ensemble(epochs=1)
    with pytest.raises(ValueError, match=message):
        mder.predict(result, value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"members": 0}, "members must be an integer, 1 or more; got 0"),
        ({"members": 2.5}, "members must be an integer, 1 or more; got 2.5"),
        ({"members": None}, "say how many networks to train: members=10"),
        ({"optimizer": mder.PerMember(np.ones(3), optax.adam)}, "'members': 5, 'optimizer': 3"),
        ({"optimizer": mder.PerMember(1e-3, optax.adam)}, "members as first axis; optimizer has shapes"),
        ({"X": mder.PerMember(np.stack([X] * 4 + [np.where(X > 1, np.inf, X)]))}, "member 4: X must be finite"),
        ({"callback": print, "callback_every": 0}, "callback_every must be an integer, 1 or more"),
        ({"members": 2**70}, "members must be an integer"),
        ({"devices": []}, "devices is empty; None means all of them"),
        ({"devices": "cpu"}, "devices must be a list such as jax.devices().*got 'cpu'"),
        ({"callback": 3}, "callback must be a function of a Progress, or None; got 3"),
        ({"X": None}, "data must be numbers; got an array of object|got None"),
        ({"X": [[1.0], [1.0, 2.0]]}, "data must be arrays of numbers"),
        ({"checkpoint": 5}, "a path must be a str or a Path; got 5"),
    ],
)
def test_bad_arguments_are_named(changes, message, monkeypatch):
    monkeypatch.setattr(_layout.Layout, "compile", lambda *_: pytest.fail("it went on to compile"))
    with pytest.raises((ValueError, TypeError), match=message):
        fit_ensemble(**changes)


def test_all_cores_must_be_asked_for_before_jax_starts():
    jax.devices()
    with pytest.raises(RuntimeError, match="before any JAX computation, or start Python with JAX_NUM_CPU_DEVICES=3"):
        mder.use_all_cores(3)


def test_keep_refuses_nothing():
    result = fit_ensemble(epochs=1)
    with pytest.raises(ValueError, match="no member is left"):
        result.keep([])
    with pytest.raises(ValueError, match="members must be numbers from 0 to 4, or a mask; got 'a'"):
        result.keep("a")
    with pytest.raises(TypeError, match="reduce must be a function of the stacked outputs, or None; got 3"):
        mder.predict(result, X, reduce=3)
    assert len(result.keep(2)) == 1


def test_data_that_all_members_share_are_checked_once(monkeypatch):
    from mder_jax.train import problem

    looked_at = []
    check_finite = problem.check_finite
    monkeypatch.setattr(problem, "check_finite", lambda name, x: (looked_at.append(name), check_finite(name, x)))
    own = mder.PerMember(np.stack([X[:7]] * 5)), mder.PerMember(np.stack([Y[:7]] * 5))
    fit_ensemble(epochs=1, validation=own)
    assert looked_at.count("X") == 1 and looked_at.count("validation X") == 5


def test_what_reduces_the_outputs_is_traced_in_every_call():
    ensemble, unit = fit_ensemble(members=2, epochs=1), 1.0

    def in_unit(outputs):
        return unit * outputs.mean(0)

    first = mder.predict(ensemble, X, reduce=in_unit)
    unit = 1000.0
    np.testing.assert_allclose(mder.predict(ensemble, X, reduce=in_unit), 1000 * first, rtol=1e-6)


def test_what_reduces_the_outputs_sees_whole_blocks():
    """Each row has its own noise, however many devices share the work."""
    ensemble = fit_ensemble(members=2, epochs=1)

    def noise(outputs):
        return jax.random.normal(jax.random.key(0), outputs.shape[1:2])

    assert np.unique(mder.predict(ensemble, X[:16], reduce=noise)).size == 16


# ---- All members judged together


def judge_of(*scores, seen=None):
    """Returns the scores one after the other, and notes the epochs and parameters."""
    numbers = iter(scores)

    def judge(progress):
        if seen is not None:
            seen[progress.epoch] = progress.params
        return next(numbers)

    return judge


# name: scores of epochs 1 to 6, the best of them (-1: none)
SCORES = {
    "middle": ([3.0, 2.0, 1.0, 2.0, 3.0, 4.0], 3),
    "first": ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 1),
    "last": ([6.0, 5.0, 4.0, 3.0, 2.0, 1.0], 6),
    "equal": ([2.0, 1.0, 1.0, 1.0, 2.0, 2.0], 2),
    "some nan": ([np.nan, 2.0, np.nan, 1.0, np.nan, np.nan], 4),
    "some infinite": ([np.inf, np.inf, 5.0, -np.inf, np.inf, 4.0], 4),
    "all nan": ([np.nan] * 6, -1),
    "all infinite": ([np.inf] * 6, -1),
}


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("name", SCORES)
def test_a_judge_chooses_the_epoch_of_all_members(name, devices):
    scores, best = SCORES[name]
    seen = {}
    result = fit_ensemble(judge=judge_of(*scores, seen=seen), judge_every=1, devices=jax.devices()[:devices])
    assert list(seen) == [1, 2, 3, 4, 5, 6] and result.epochs == 6
    assert_same(result.params, seen[best if best > 0 else 6])
    np.testing.assert_array_equal(result.best_epoch, np.full(5, best - 1 if best > 0 else -1))
    np.testing.assert_array_equal(result.history.validation, np.tile(scores, (5, 1)))
    np.testing.assert_array_equal(result.stopped_at, np.full(5, -1))
    plain = fit_ensemble(devices=jax.devices()[:devices])
    np.testing.assert_array_equal(result.history.train, plain.history.train)
    assert_same(seen[6], plain.params)


def test_a_judge_sees_the_epochs_at_its_intervals_and_the_last():
    seen, calls = {}, []
    judge = judge_of(3.0, 1.0, 2.0, 4.0, seen=seen)
    options = {"epochs": 7, "callback": lambda progress: calls.append(progress), "callback_every": 3}
    result = fit_ensemble(judge=judge, judge_every=2, **options)
    assert list(seen) == [2, 4, 6, 7] and [progress.epoch for progress in calls] == [3, 6, 7]
    expected = [np.nan, 3, np.nan, 1, np.nan, 2, 4]
    np.testing.assert_array_equal(result.history.validation, np.tile(expected, (5, 1)))
    assert_same(result.params, seen[4])
    assert_same(calls[1].params, seen[4])  # callbacks get those that would be kept
    np.testing.assert_array_equal(calls[1].history.validation[0], expected[:6])


def test_without_an_interval_a_judge_is_called_about_a_hundred_times():
    calls = []
    fit_ensemble(judge=lambda progress: calls.append(progress.epoch) or 1.0, epochs=240, members=1)
    assert calls == list(range(2, 241, 2))


@pytest.mark.parametrize(("every", "stops"), [(1, 5), (2, 6), (3, 6)])
def test_patience_with_a_judge(every, stops):
    """Smallest in epoch 2, or the first one judged; three epochs later, as soon as it is judged again, all stop."""
    score = {1: 5.0, 2: 1.0, 3: 1.0, 4: 2.0, 5: 3.0, 6: 3.0}
    options = {"judge": lambda progress: score.get(progress.epoch, 3.0), "judge_every": every, "epochs": 40}
    for progress in (False, True):  # a bar makes no difference
        result = fit_ensemble(patience=3, **options, progress=progress)
        assert result.epochs == stops
        np.testing.assert_array_equal(result.stopped_at, np.full(5, stops - 1))
        np.testing.assert_array_equal(result.best_epoch, np.full(5, max(2, every) - 1))
        assert np.isnan(result.history.train[:, stops:]).all() and np.isfinite(result.history.train[:, :stops]).all()


def test_scores_that_are_no_numbers_end_the_patience():
    result = fit_ensemble(judge=lambda progress: np.nan, judge_every=1, patience=3)
    assert (
        result.epochs == 3
        and set(result.best_epoch) == {-1}
        and np.isfinite(np.asarray(result.history.train)[:, :3]).all()
    )


def test_a_judge_of_what_it_is_shown():
    """The mean loss over all rows of the mean of the members is smallest at the chosen epoch."""

    def judge(progress):
        output = jnp.mean(jax.vmap(NETWORK.apply, (0, None))(progress.params, X), axis=0)
        return jnp.mean(squared(output, Y))

    result = fit_ensemble(judge=judge, judge_every=1, optimizer=optax.adam(0.3), epochs=20)
    scores = np.asarray(result.history.validation[0])
    assert result.best_epoch[0] == np.argmin(scores)
    np.testing.assert_allclose(judge(result), scores.min(), rtol=1e-5)


def test_members_that_diverge_are_judged_with_what_they_had():
    rates = mder.PerMember(np.array([1e-2, 1e30], np.float32), optax.sgd)
    seen = {}
    judge = judge_of(*[6.0, 5.0, 4.0, 3.0, 2.0, 1.0], seen=seen)
    with pytest.warns(RuntimeWarning, match="1 of 2 members became non-finite"):
        result = fit_ensemble(members=2, optimizer=rates, judge=judge, judge_every=1)
    assert result.diverged_at[0] == -1 and result.diverged_at[1] >= 0 and set(result.best_epoch) == {5}
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(seen[6]))
    assert_same(result.params, seen[6])
    np.testing.assert_array_equal(result.stopped_at, [-1, -1])


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"judge": judge_of(1.0), "validation": (X, Y)}, ValueError, "in the place of validation; give one of the two"),
        ({"judge": 3}, ValueError, "judge must be a function of a Progress"),
        (
            {"judge": judge_of(1.0), "judge_every": 0},
            ValueError,
            "judge_every must be an integer, 1 or more, or None; got 0",
        ),
        ({"judge_every": 1.5}, ValueError, "judge_every must be an integer"),
        ({"patience": 3}, ValueError, "patience needs validation data"),
        ({"judge": lambda progress: "good", "judge_every": 1}, ValueError, "could not convert string to float: 'good'"),
    ],
)
def test_wrong_judges(changes, error, message):
    with pytest.raises(error, match=message):
        fit_ensemble(**changes)
