"""Runs that are killed, interrupted, moved to other devices or spread over processes end as if nothing had happened."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mder_jax as mder
from tests.support.cases import long

KEY = jax.random.key(1)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(27, 2)).astype(np.float32)
Y = (X @ np.array([1.0, -2.0])).astype(np.float32)
LINE = mder.Network(lambda key, x: jax.random.normal(key, x.shape[1:], x.dtype), lambda w, x: x @ w)


def squared(output, y):
    return (output - y) ** 2


@pytest.fixture(autouse=True)
def lenient():
    with jax.numpy_dtype_promotion("standard"):  # optax's counters need it with 64 bits
        yield


def fit(directory=None, **changes):
    options = {"members": 3, "optimizer": optax.adam(1e-2), "epochs": 8, "batch_size": 10, "progress": False, **changes}
    parts = [options.pop(name, value) for name, value in {"network": LINE, "loss": squared, "X": X, "Y": Y}.items()]
    return mder.fit_ensemble(options.pop("key", KEY), *parts, checkpoint=directory, **options)


def interrupted_at(epoch):
    def look(progress):
        if progress.epoch == epoch:
            raise KeyboardInterrupt

    return {"callback": look, "callback_every": 1}


def interrupt(directory, epoch=5, **changes):
    with pytest.warns(RuntimeWarning, match="and the same call resumes from there"):
        return fit(directory, **interrupted_at(epoch), **changes)


WORKER = """
import os, signal, sys
import jax, numpy as np, optax
import mder_jax as mder

mder.ensemble.CHUNK_SECONDS = 1e9  # no clock decides how many epochs run at once, and so how many calls there are
calls, last = 0, int(sys.argv[3])

def count(frame, event, _):
    global calls
    calls += event in ("call", "c_call")
    if calls == last:
        os.kill(os.getpid(), signal.SIGKILL)

def look(progress):
    print(progress.epoch, flush=True)
    sys.setprofile(count)

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3)).astype(np.float32)
Y = X.sum(1, keepdims=True) + 0.1 * rng.normal(size=(60, 1)).astype(np.float32)
network = mder.mlp((8,), 1, dropout=0.1)
result = mder.fit_ensemble(
    jax.random.key(0), network, lambda f, y: ((f - y) ** 2)[:, 0], X, Y, members=3, epochs=200, batch_size=25,
    optimizer=optax.adam(1e-3), bootstrap=True, validation=(X, Y), checkpoint=sys.argv[1], checkpoint_every=5,
    callback=look, callback_every=5, progress=False,
)
sys.setprofile(None)
print(calls)
np.savez(sys.argv[2], *jax.tree.leaves((result.params, result.history, result.best_epoch)))
"""


def worker(tmp_path, directory, calls=-1):
    """A run in a process that kills itself so many calls after its first epochs: exit code and what it printed."""
    environment = {
        **os.environ,
        "JAX_NUM_CPU_DEVICES": "2",
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    command = [sys.executable, "-c", WORKER, directory, f"{directory}.npz", str(calls)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    return done.returncode, [int(line) for line in done.stdout.split()]


@pytest.mark.parametrize("kills", [2, long(10)])
def test_killed_at_random_moments_it_ends_with_the_same_parameters(tmp_path, kills):
    """Moments are numbers of calls: enough for two of the forty checkpoints, too few to come to the end."""
    code, (*_, calls) = worker(tmp_path, "whole")
    assert code == 0
    starts = []
    for share in np.random.default_rng(0).uniform(1 / 20, 1 / (kills + 2), kills):
        code, (first, *_) = worker(tmp_path, "killed", int(share * calls))
        starts.append(first)
        assert code == -signal.SIGKILL, starts
    code, (first, *_) = worker(tmp_path, "killed")
    assert code == 0
    starts.append(first)
    assert starts == sorted(set(starts)), "each start goes on where a checkpoint left off"
    whole, resumed = np.load(tmp_path / "whole.npz"), np.load(tmp_path / "killed.npz")
    assert set(whole) == set(resumed)
    for name in whole:
        np.testing.assert_array_equal(whole[name], resumed[name])


def test_ctrl_c_and_the_same_call_again(tmp_path):
    assert interrupt(tmp_path).epochs == 5
    resumed, whole = fit(tmp_path), fit()
    np.testing.assert_array_equal(resumed.params, whole.params)
    np.testing.assert_array_equal(resumed.history.train, whole.history.train)
    calls = []
    again = fit(tmp_path, callback=calls.append)  # nothing is left to do
    np.testing.assert_array_equal(again.params, whole.params)
    assert again.epochs == 8 and not calls


def test_saved_on_two_devices_it_loads_on_one(tmp_path):
    interrupt(tmp_path, devices=jax.devices()[:2])
    one = fit(tmp_path, devices=jax.devices()[:1])
    np.testing.assert_allclose(one.params, fit().params, rtol=1e-5)
    np.testing.assert_array_equal(one.history.train[:, :5], fit().history.train[:, :5])


def test_relative_directories_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    interrupt("some/where")
    assert (tmp_path / "some" / "where" / "5").is_dir()
    np.testing.assert_array_equal(fit("some/where").params, fit().params)


def bent(w, x):
    return jnp.tanh(x @ w)


OTHER = {
    "X": {"X": X + 1},
    "Y": {"Y": 2 * Y},
    "network": {"network": mder.Network(LINE.init, bent)},
    "loss": {"loss": lambda output, y: jnp.abs(output - y)},
    "optimizer": {"optimizer": optax.adam(2e-2)},
    "batch_size": {"batch_size": 9},
    "epochs": {"epochs": 9},
    "members": {"members": 4},
    "key": {"key": jax.random.key(2)},
    "weights": {"weights": np.ones(27)},
    "bootstrap": {"bootstrap": True},
    "validation X": {"validation": (X, Y)},
    "validation weights": {"validation": (X, Y, np.ones(27))},
    "judged": {"judge": lambda progress: 1.0},
    "values of optimizer": {"optimizer": mder.PerMember(np.full(3, 1e-2, np.float32), optax.adam)},
}


@pytest.fixture(scope="module")
def five_epochs(tmp_path_factory):
    directory = tmp_path_factory.mktemp("run")
    with jax.numpy_dtype_promotion("standard"):
        interrupt(directory)
    return directory


@pytest.mark.parametrize("name", OTHER)
def test_another_run_is_refused_and_the_difference_named(name, five_epochs):
    with pytest.raises(ValueError, match="holds the checkpoints of another run") as caught:
        fit(five_epochs, **OTHER[name])
    named = {line.strip().split(":")[0] for line in str(caught.value).splitlines()[1:]}
    assert name in named
    implied = {"members": {"key"}, "validation X": {"validation Y"}, "values of optimizer": {"optimizer"}}
    implied["validation weights"] = {"validation X", "validation Y"}
    assert named == {name} | implied.get(name, set())


def test_more_epochs_from_a_checkpoint_end_as_one_long_run(tmp_path):
    held_out = {"validation": (X[:5], Y[:5])}
    for epochs in (5, 8):
        found = fit(tmp_path, epochs=epochs, extend=True, checkpoint_every=2, **held_out)
    whole = fit(epochs=8, **held_out)
    np.testing.assert_array_equal(found.params, whole.params)
    jax.tree.map(np.testing.assert_array_equal, found.history, whole.history)
    np.testing.assert_array_equal(found.best_epoch, whole.best_epoch)
    shutil.rmtree(tmp_path / "8" / "state")  # the one before it is of the run with fewer epochs
    with pytest.warns(RuntimeWarning, match="epoch 8 .* cannot be read"):
        again = fit(tmp_path, epochs=8, **held_out)
    np.testing.assert_array_equal(again.params, whole.params)


def test_a_longer_run_is_refused_unless_it_is_to_be_extended(five_epochs, tmp_path):
    shutil.copytree(five_epochs, tmp_path / "run")
    with pytest.raises(
        ValueError, match=r"or train it for more epochs with extend=True:\n  epochs: 8 when saved, 9 now"
    ):
        fit(tmp_path / "run", epochs=9)
    for other in ({"epochs": 7}, {"epochs": 9, "batch_size": 9}):
        with pytest.raises(ValueError, match="go back to the arguments it was started with:"):
            fit(tmp_path / "run", extend=True, **other)
    with pytest.raises(ValueError, match=r"state of the optimizer in .* is not that of this one"):
        fit(tmp_path / "run", epochs=9, extend=True, optimizer=optax.sgd(1e-2))
    for epochs in (2, 3):
        cosine = optax.adam(optax.cosine_decay_schedule(1e-2, 3 * epochs))
        found = fit(tmp_path / "cosine", epochs=epochs, extend=True, optimizer=cosine)
    assert found.epochs == 3 and np.isfinite(found.history.train).all()
    with pytest.raises(ValueError, match="extend=True trains a run from its checkpoints further: pass checkpoint="):
        fit(extend=True)


def test_constants_and_first_states_tell_runs_apart(tmp_path):
    def options(constant=1.0, start=0.1, factor=1.0):
        inner = jax.jit(lambda output, y: jnp.full(3, constant).sum() * (output - y) ** 2)
        rows = mder.PerMember(np.stack([X] * 3), lambda x: x * factor)
        return {"loss": inner, "optimizer": optax.adagrad(1e-2, initial_accumulator_value=start), "X": rows}

    fit(tmp_path, **options())
    assert fit(tmp_path, **options()).epochs == 8
    for change, name in (({"constant": 2.0}, "loss"), ({"start": 5.0}, "optimizer"), ({"factor": 2.0}, "X")):
        with pytest.raises(ValueError, match=rf"another run(.|\n)*  {name}: "):
            fit(tmp_path, **options(**change))


def test_optimizers_with_a_key_in_their_state(tmp_path):
    noisy = {"optimizer": optax.noisy_sgd(1e-2, key=0)}
    interrupt(tmp_path, **noisy)
    np.testing.assert_array_equal(fit(tmp_path, **noisy).params, fit(**noisy).params)


def test_a_stop_or_an_error_of_the_callback_is_saved(tmp_path):
    fit(tmp_path / "stop", callback=lambda progress: progress.epoch == 3, callback_every=1)
    assert (tmp_path / "stop" / "3").is_dir()

    def fails(progress):
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        fit(tmp_path / "error", callback=fails, callback_every=5)
    assert (tmp_path / "error" / "5").is_dir()
    np.testing.assert_array_equal(fit(tmp_path / "error").params, fit().params)


SCORES = [5.0, 4.0, 1.0, 3.0, 2.0, 3.0, 0.5, 2.0]


def judged(calls=None, fails=None):
    """The score of each epoch, noted in `calls`; an error the first time it sees the epoch `fails`."""
    failing = [fails]

    def judge(progress):
        if progress.epoch == failing[0]:
            failing.clear()
            failing.append(None)
            raise RuntimeError("cannot tell")
        if calls is not None:
            calls.append(progress.epoch)
        return SCORES[progress.epoch - 1]

    return {"judge": judge, "judge_every": 1}


def assert_same_judgement(found, whole):
    for name in ("params", "best_epoch", "stopped_at", "diverged_at"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name))
    jax.tree.map(np.testing.assert_array_equal, found.history, whole.history)
    assert found.epochs == whole.epochs


@pytest.mark.parametrize("epoch", [2, 3, 5, 7])
@pytest.mark.parametrize("patience", [None, 3])
def test_a_judged_run_is_interrupted_and_goes_on(tmp_path, epoch, patience):
    """Before and after its best epochs, 3 and 7; with patience it stops in epoch 6 and never sees the second."""
    options = {"patience": patience, "checkpoint_every": 1}
    whole = fit(None, patience=patience, **judged())
    assert set(whole.best_epoch) == ({6} if patience is None else {2})
    assert whole.epochs == (8 if patience is None else 6)
    if epoch <= whole.epochs:
        assert interrupt(tmp_path, epoch, **judged(), **options).epochs == epoch
    calls = []
    found = fit(tmp_path, **judged(calls), **options)
    assert calls == list(range(epoch + 1 if epoch <= whole.epochs else 1, whole.epochs + 1))
    assert_same_judgement(found, whole)
    assert_same_judgement(fit(tmp_path, **judged(calls), **options), whole)  # nothing is left to do
    assert calls[-1] == whole.epochs


@pytest.mark.parametrize("epoch", [1, 3, 7, 8])
def test_an_epoch_that_could_not_be_judged_is_judged_after_resuming(tmp_path, epoch):
    with pytest.raises(RuntimeError, match="cannot tell"):
        fit(tmp_path, **judged(fails=epoch), checkpoint_every=2)
    assert_same_judgement(fit(tmp_path, **judged(), checkpoint_every=2), fit(None, **judged()))


def test_a_directory_that_is_a_file_is_refused_at_once(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("mder_jax.ensemble._layout.Layout.compile", lambda *_: pytest.fail("it went on to compile"))
    with pytest.raises(FileExistsError):
        fit(tmp_path / "file")


def test_a_second_training_is_kept_out_of_the_directory(tmp_path):
    def second(_):
        with pytest.raises(BlockingIOError, match="in use by another training; wait until it ends, or name another"):
            fit(tmp_path)

    result = fit(tmp_path, callback=second, callback_every=4)
    np.testing.assert_array_equal(result.params, fit().params)
    np.testing.assert_array_equal(fit(tmp_path).params, result.params)


def test_functions_that_compute_the_same_are_the_same(five_epochs, tmp_path):
    copy = shutil.copytree(five_epochs, tmp_path / "copy")
    same = mder.Network(lambda key, x: jax.random.normal(key, x.shape[1:], x.dtype), lambda params, rows: rows @ params)
    result = fit(copy, network=same, loss=lambda f, y: (f - y) ** 2, optimizer=optax.adam(1e-2))
    np.testing.assert_array_equal(result.params, fit().params)


def test_a_checkpoint_that_was_not_finished_is_never_loaded(five_epochs, tmp_path):
    copy = pathlib.Path(shutil.copytree(five_epochs, tmp_path / "copy"))
    shutil.copytree(copy / "5", copy / "7.orbax-checkpoint-tmp")
    result = fit(copy)
    np.testing.assert_array_equal(result.params, fit().params)


def test_a_damaged_checkpoint_is_passed_over(tmp_path):
    interrupt(tmp_path, checkpoint_every=2)
    steps = sorted(int(path.name) for path in tmp_path.iterdir() if path.name.isdigit())
    assert steps == [4, 5]
    for file in (tmp_path / "5" / "state").rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[:3])
    with pytest.warns(RuntimeWarning, match="checkpoint of epoch 5 .* cannot be read .*; an older one is used"):
        result = fit(tmp_path)
    np.testing.assert_array_equal(result.params, fit().params)


def test_a_full_disk_does_not_end_training(tmp_path, monkeypatch):
    import orbax.checkpoint as ocp

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ocp.CheckpointManager, "save", full)
    with pytest.warns(RuntimeWarning, match="could not be written to .*No space left on device.*; training continues"):
        result = fit(tmp_path, checkpoint_every=4)
    np.testing.assert_array_equal(result.params, fit().params)


def test_a_disk_without_room_for_a_checkpoint_is_not_tried(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=10))
    with pytest.warns(
        RuntimeWarning, match=r"a checkpoint may need [\d,]+ bytes, and the disk has 10 left\); training continues"
    ):
        fit(tmp_path, checkpoint_every=4)
    assert not [path for path in tmp_path.iterdir() if path.name != ".lock"]


PROCESS = """
import sys
import jax
process, port, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]
jax.distributed.initialize(f"localhost:{port}", num_processes=2, process_id=process)
import numpy as np, optax
import mder_jax as mder

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 2)).astype(np.float32)
Y = X.sum(1)
line = mder.Network(lambda key, x: jax.random.normal(key, x.shape[1:]), lambda w, x: x @ w)
result = mder.fit_ensemble(
    jax.random.key(0), line, lambda f, y: (f - y) ** 2, X, Y, members=5, epochs=7, batch_size=15,
    optimizer=optax.adam(1e-2), progress=True, checkpoint=sys.argv[4], checkpoint_every=3,
)
assert len(jax.devices()) == 2 and len(jax.local_devices()) == 1
mean = mder.predict(result, X, reduce=lambda outputs: outputs.mean(0))
np.savez(out, params=result.params, train=result.history.train, outputs=mder.predict(result, X), mean=mean)
"""


@pytest.mark.slow
def test_two_processes_train_the_same_members_as_one(tmp_path, free_port):
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "1"}
    outs = [tmp_path / f"{process}.npz" for process in range(2)]
    shared = str(tmp_path / "checkpoints")
    commands = [[sys.executable, "-c", PROCESS, str(i), str(free_port), str(out), shared] for i, out in enumerate(outs)]
    processes = [subprocess.Popen(command, env=environment) for command in commands]
    assert [process.wait() for process in processes] == [0, 0]

    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2)).astype(np.float32)
    line = mder.Network(lambda key, x: jax.random.normal(key, x.shape[1:], jnp.float32), lambda w, x: x @ w)
    options = {"members": 5, "epochs": 7, "batch_size": 15, "optimizer": optax.adam(1e-2), "progress": False}
    one = mder.fit_ensemble(jax.random.key(0), line, squared, x, x.sum(1), **options)
    assert (tmp_path / "checkpoints" / "7").is_dir()
    for out in outs:
        saved = np.load(out)
        np.testing.assert_allclose(saved["params"], one.params, rtol=1e-5)
        np.testing.assert_allclose(saved["train"], one.history.train, rtol=1e-5)
        np.testing.assert_allclose(saved["outputs"], mder.predict(one, x), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(saved["mean"], saved["outputs"].mean(0), rtol=1e-4, atol=1e-6)
