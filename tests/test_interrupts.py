"""Ctrl-C, as a real signal, at chosen moments: one line, exit code 130, nothing half-written, and it goes on."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import optax
import pytest

import mder_jax as mder
from mder_jax import _interrupts, cli
from tests.support import interrupting

MANAGER = "orbax.checkpoint:CheckpointManager."
TRAIN = ["train", "t.csv", "--targets", "y,z", "--members", "2", "--hidden", "8", "--epochs", "6", "--calibrate", "0.3"]


@pytest.fixture
def folder(tmp_path):
    random = np.random.default_rng(0)
    rows = random.normal(size=(60, 4)).round(6)
    (tmp_path / "t.csv").write_text("\n".join(["v,x,y,z", *(",".join(map(str, row)) for row in rows)]))
    return tmp_path


def environment(folder):
    cache = {"JAX_COMPILATION_CACHE_DIR": str(folder.parent / "cache")}  # its entries may be cut short
    return {**os.environ, **cache, "JAX_NUM_CPU_DEVICES": "1"}


@pytest.fixture
def run(folder, tmp_path_factory):
    """A command in a process of its own, with a Ctrl-C at a moment: exit code, standard output, standard error."""
    command = [sys.executable, "-m", "tests.support.interrupting", tmp_path_factory.mktemp("said")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=folder, env=environment(folder), **pipes) as process:

        def call(arguments, moment=None):
            print(json.dumps([arguments, moment]), file=process.stdin, flush=True)
            return json.loads(process.stdout.readline())

        yield call
        process.stdin.close()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


GOES_ON = "mder: interrupted; the same command resumes from m.mder.checkpoint\n"
MOMENTS_OF_TRAINING = [
    (["mder_jax.cli._tables:open_table", 0, 1], "mder: interrupted\n"),
    (["mder_jax.ensemble._layout:Layout.compile", 0, "garbage"], GOES_ON),
    ([MANAGER + "__init__", 0, 50], GOES_ON),
    (["mder_jax.ensemble._training:Run.advance", 1, 5], GOES_ON),
    ([MANAGER + "save", 0, 100], GOES_ON),
    ([MANAGER + "restore", 1, 20], GOES_ON),
    ([MANAGER + "close", 0, 1], GOES_ON),
    (["mder_jax.estimator:MDERRegressor.calibrate", 0, 500], GOES_ON),
    (["os:fsync", 0, "end"], GOES_ON),
]


def test_training_goes_on_after_ctrl_c_at_any_moment(run, folder):
    command = [*TRAIN, "--out", "m.mder"]
    for moment, message in MOMENTS_OF_TRAINING:
        assert run(command, moment) == [130, "", message], moment
        assert set(names(folder)) <= {"t.csv", "m.mder.checkpoint"}, moment
    code, said, error = run(command, ["os:replace", 0, "end"])  # too late: the model is there
    assert (code, error) == (0, "") and said.startswith("m.mder: 2 members")
    assert run([*TRAIN, "--out", "whole.mder"])[0] == 0
    assert names(folder) == ["m.mder", "t.csv", "whole.mder"]
    for model in ("m", "whole"):
        assert run(["predict", f"{model}.mder", "t.csv", "-o", f"{model}.csv"])[0] == 0
    assert (folder / "m.csv").read_bytes() == (folder / "whole.csv").read_bytes()

    outputs = names(folder)
    stopped = [130, "", "mder: interrupted\n"]
    assert run(["predict", "m.mder", "t.csv", "-o", "o.csv"], ["os:fsync", 0, 1]) == stopped
    assert (
        run(["predict", "m.mder", "t.csv", "-o", "o.parquet"], ["mder_jax.cli._tables:write_table", 0, 99]) == stopped
    )
    evaluate = ["evaluate", "m.mder", "t.csv", "--report", "o.html"]
    code, said, error = run(evaluate, ["mder_jax.metrics:report", 0, 1000])  # it warns of trained rows first
    assert (code, said) == (130, "") and error.endswith("\nmder: interrupted\n") and error.count("\n") == 2
    assert names(folder) == outputs
    assert run(["info", "m.mder", "--quiet"], "exit") == [0, "", ""]


COUNTED = """
import json, sys
from tests.support import interrupting
code, calls = interrupting.perform(*json.loads(sys.argv[1]))
print(calls)
sys.exit(code)
"""


@pytest.fixture
def busy():
    """Every core has something else to do."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count())]
    yield
    for loop in loops:
        loop.kill()
        loop.wait()


@pytest.mark.slow
def test_training_goes_on_after_ctrl_c_at_random_moments(folder, busy):
    """A moment is how many functions have been called since the command took over Ctrl-C, which no clock changes."""

    def run(out, calls):
        moment = json.dumps([[*TRAIN, "--out", out], ["mder_jax.cli:_answer", 0, calls]])
        command = [sys.executable, "-c", COUNTED, moment]
        done = subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    code, said, error = run("whole.mder", 0)  # which never comes
    assert (code, error) == (0, "")
    interrupted = 0
    for calls in np.random.default_rng(0).integers(1, int(said.split()[-1]), 20):
        code, said, error = run("m.mder", int(calls))
        if code:
            interrupted += 1
            assert (code, said) == (130, "") and error in (GOES_ON, "mder: interrupted\n"), error
            assert set(names(folder)) <= {"t.csv", "whole.mder", "m.mder.checkpoint"}
        else:  # it had less to do than the whole run
            assert error == "" and same_model(folder / "m.mder", folder / "whole.mder")
            (folder / "m.mder").unlink()
    assert interrupted >= 10
    assert run("m.mder", 0)[0] == 0 and same_model(folder / "m.mder", folder / "whole.mder")


def same_model(first, second):
    X = np.random.default_rng(1).normal(size=(20, 2))
    parts = [mder.MDERRegressor.load(path).predict_uncertainty(X) for path in (first, second)]
    return all(map(np.array_equal, *parts))


@pytest.fixture
def ctrl_c():
    """A function that does what Ctrl-C does, also if whoever started the tests ignores it."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield interrupting.interrupt
    signal.signal(signal.SIGINT, handler)


def test_ctrl_c_waits_for_the_end_of_a_block(ctrl_c):
    done = []
    with pytest.raises(KeyboardInterrupt), _interrupts.deferred():
        with _interrupts.deferred():
            ctrl_c()
            done.append("inner")
        done.append("outer")
    assert done == ["inner", "outer"]
    with pytest.raises(KeyboardInterrupt):
        ctrl_c()


def test_a_handler_of_the_program_is_called_when_the_block_ends(ctrl_c):
    seen = []
    signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    with _interrupts.deferred():
        ctrl_c()
        assert not seen
    assert seen == [signal.SIGINT]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with _interrupts.deferred():
        ctrl_c()


def test_a_thread_leaves_signals_alone(ctrl_c):
    def work():
        with _interrupts.deferred():
            return signal.getsignal(signal.SIGINT)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(work).result() is signal.default_int_handler


def test_a_command_within_a_program_leaves_signals_alone(ctrl_c, tmp_path):
    assert cli.main(["info", str(tmp_path / "nowhere.mder")]) == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.fixture
def while_saving(monkeypatch, ctrl_c):
    """Ctrl-C in the middle of writing the second checkpoint."""
    from orbax.checkpoint import CheckpointManager

    save, saved = CheckpointManager.save, []

    def interrupted(self, epoch, **arguments):
        saved.append(epoch)
        if len(saved) == 2:
            ctrl_c()
        return save(self, epoch, **arguments)

    monkeypatch.setattr(CheckpointManager, "save", interrupted)
    return saved


def test_ctrl_c_while_a_checkpoint_is_written(while_saving, tmp_path):
    x = np.linspace(-1, 1, 20, dtype=np.float32)[:, None]
    line = mder.Network(lambda key, x: jax.random.normal(key, (1,), x.dtype), lambda w, x: x @ w)
    options = {"members": 2, "optimizer": optax.sgd(0.1), "epochs": 6, "progress": False, "checkpoint_every": 1}

    def fit(directory):
        return mder.fit_ensemble(jax.random.key(0), line, squared, x, x[:, 0], checkpoint=directory, **options)

    with pytest.warns(RuntimeWarning, match="interrupted: .* after 2 of 6 epochs, and the same call resumes"):
        assert fit(tmp_path / "a").epochs == 2
    assert (tmp_path / "a" / "2").is_dir()
    resumed = fit(tmp_path / "a")
    assert not resumed.interrupted
    np.testing.assert_array_equal(resumed.params, fit(tmp_path / "b").params)


def squared(output, y):
    return (output - y) ** 2


def test_an_estimator_raises_and_the_same_fit_goes_on(while_saving, tmp_path):
    X = np.random.default_rng(0).normal(size=(30, 2))
    options = {"members": 2, "max_iter": 4, "random_state": 0, "early_stopping": False}

    def fit(directory):
        return mder.MDERRegressor((8,), **options).fit(X, X[:, ::-1] ** 2, checkpoint=directory)

    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "a")
    assert while_saving == [1, 2] and (tmp_path / "a" / "2").is_dir()
    np.testing.assert_array_equal(fit(tmp_path / "a").predict(X), fit(tmp_path / "b").predict(X))
    assert while_saving[2:] == [3, 4, 1, 2, 3, 4]
