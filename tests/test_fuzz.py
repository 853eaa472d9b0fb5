"""Every public function returns what it promises or says what is wrong, whatever it is given: see fuzz.py."""

import inspect
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import mder_jax
from tests.support import fuzz

# What needs no case: it calls a function of the user, prints, has no argument with a name, or is lax.dot_general.
NOT_CALLED = {"PerMember.of", "cli.main", "ensemble.clear_programs", "networks.row_dot_general"}
NOT_CALLED |= {"Scorer.get_metadata_routing", "pipeline.make_pipeline"}
# Parts of a process or a forest, which are given what the library has made.
NOT_CALLED |= {"Kernel.at", "Kernel.between", "Posterior.niw", "Process.given", "Process.whiteners", "Process.factor"}
NOT_CALLED |= {"Forest.answer", "Forest.joined", "Forest.trees"}
QUICK = {name: target for name, target in fuzz.targets().items() if "slow" not in target.notes}


def public_names():
    for module in (getattr(mder_jax, name) for name in mder_jax.__all__):
        if inspect.ismodule(module):
            short = module.__name__.rpartition(".")[2]
            for name in module.__all__:
                yield from names_of(f"{short}.{name}", getattr(module, name))


def names_of(name, thing):
    """A function, or the constructor and the methods of a class with something to check."""
    if inspect.isfunction(thing):
        yield name
    elif inspect.isclass(thing) and not issubclass(thing, Exception):
        short = name.rpartition(".")[2]
        if hasattr(thing, "tree_flatten") or short in ("NIW", "NIG", "StudentT", "Mixture"):
            yield short
        for method, function in vars(thing).items():
            if method[0] != "_" and inspect.isroutine(function) and not method.endswith("_request"):
                yield f"{short}.{method}"


def test_every_public_function_is_called():
    assert set(public_names()) - NOT_CALLED - set(fuzz.targets()) == set()


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    """Files go there, and JAX hides no part of a traceback."""
    monkeypatch.chdir(tmp_path)
    settings = {"jax_traceback_filtering": "off", "jax_compilation_cache_dir": str(tmp_path)}
    before = {name: jax.config.values[name] for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.parametrize("name", QUICK)
def test_some_fuzzed_calls(name, own_folder):
    """Of each function the cases that are traced or need no compiling: some 2000 in all."""
    *_, faults = fuzz.run_cases(name, 0, range(0, 36, 2), quick=True)
    assert not faults


@pytest.mark.slow
def test_a_hundred_thousand_fuzzed_calls():
    command = [sys.executable, "-m", "tests.support.fuzz", "--cases", "100000"]
    done = subprocess.run(command, cwd=Path(__file__).parent.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
