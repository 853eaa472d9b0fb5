"""The unit of work, one method on one problem: it is saved when it is done, and a run that was stopped resumes."""

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import json
import os
import pathlib
import re
import warnings
from typing import Any

import jax

import mder_jax
from experiments.benchmark.as_it_comes import AS_IT_COMES
from experiments.benchmark.methods import METHODS, Method
from experiments.benchmark.problems import Problem
from experiments.benchmark.scores import of_rows, of_splits
from experiments.benchmark.splits import TableTasks, Tasks
from experiments.harness import progress, storage

# What decides the numbers: this module and all that it imports of this package.
MODULES = (
    *("splits", "networks", "baselines", "scores", "methods", "problems", "cells", "mixed_tables", "as_it_comes"),
    *("table_encoder", "noise", "rivals", "rival_networks"),
)


def home(folder: pathlib.Path) -> pathlib.Path:
    """Where cells are kept."""
    return folder / "benchmark_cells"


def path_of(folder: pathlib.Path, problem: Problem, method: str) -> pathlib.Path:
    """Where a cell is kept."""
    return home(folder) / (re.sub(r"[^\w-]+", "_", f"{problem.label} {method}") + ".json")


def method_of(problem: Problem, name: str) -> Method:
    """A method by name, as it is in this part."""
    return AS_IT_COMES[name] if problem.part == "E" else METHODS[name]


def identity_of(config: Any, problem: Problem, name: str) -> dict[str, Any]:
    """That of a cell; a rival of part E is not of this library, which only scores it, and may change without it.

    Days of other people's networks need not be run again for each change here. Tests hold that a Gaussian's scores are
    right.
    """
    if problem.part != "E":
        return identity(config)
    packages = AS_IT_COMES[name].packages
    versions = {package: _version(package) for package in packages}
    return {**identity(config, with_library=not packages), "versions": versions}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def identity(config: Any, with_library: bool = True) -> dict[str, Any]:
    """What decides the numbers of a cell besides its problem and method: settings, code and version of JAX."""
    here, library = pathlib.Path(__file__).parent, pathlib.Path(mder_jax.__file__).parent
    sources = [here / f"{name}.py" for name in MODULES] + (sorted(library.rglob("*.py")) if with_library else [])
    code = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    numbers = {name: getattr(config, name) for name in ("seed", "splits", "members", "small_members", "steps")}
    return {**numbers, "rates": list(config.rates), "code": code, "jax": jax.__version__}


def load(path: pathlib.Path, wanted: dict[str, Any]) -> dict[str, Any] | None:
    """A saved cell, or None if there is none of this identity."""
    try:
        cell = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return cell if isinstance(cell, dict) and cell.get("identity") == wanted else None


def begin(cache: bool) -> None:
    """What a process does first: it keeps to one core, so that costs can be compared and cores are shared."""
    import threadpoolctl

    threadpoolctl.threadpool_limits(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # of libraries that are loaded later
    with contextlib.suppress(RuntimeError):  # JAX has started, and keeps the devices it has
        mder_jax.use_all_cores(1)
    if cache:
        mder_jax.use_compilation_cache()


def perform(problem: Problem, name: str, config: Any, folder: pathlib.Path) -> None:
    """One cell: a method on a problem."""
    progress.running(f"{problem.label}: {name}")
    cell = {"identity": identity_of(config, problem, name), **_run(problem, method_of(problem, name), config)}
    path = path_of(folder, problem, name)
    path.parent.mkdir(exist_ok=True)
    storage.write(path, json.dumps(cell).encode())


def _run(problem: Problem, method: Method, config: Any) -> dict[str, Any]:
    """The rows that a method gives on a problem, or why it does not."""
    tasks = problem.tasks(config.splits)
    recipe = problem.recipe(config, tasks.training_rows)
    left_out, not_installed, rows = method.left_out(tasks), "", {}
    if not left_out:
        tasks = tasks.first(method.most_splits)
        try:
            rows = _rows(problem, method, tasks, recipe)
        except ModuleNotFoundError as error:
            not_installed = f"{error}: pip install 'mder-jax[bench]'"
    return {
        "training_rows": tasks.training_rows,
        "test_rows": tasks.Y_test.shape[1],
        "inputs": tasks.inputs,
        "targets": tasks.targets,
        "recipe": recipe and dataclasses.asdict(recipe),
        "rows": rows,
        "left_out": left_out,
        "not_installed": not_installed,
    }


def _rows(problem: Problem, method: Method, tasks: Tasks | TableTasks, recipe: Any) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*became non-finite")  # counted as failures
        made = method.run(tasks, recipe)
    rows = {}
    for result in made:
        scores, rates = of_rows(result.forecast, tasks), {} if result.rates is None else {"rates": result.rates}
        more = problem.more(scores, tasks) if problem.more else {}
        cost = {name: getattr(result, name) for name in ("training", "predicting", "compiling", "failures")}
        rows[result.row.label] = {**of_splits(scores), **more, **cost, **rates}
    return rows
