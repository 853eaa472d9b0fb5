"""The unit of work, one method on one problem: it is saved when it is done, and a run that was stopped resumes."""

import dataclasses
import hashlib
import json
import pathlib
import re
import warnings
from typing import Any

import jax

import mder_jax
from experiments.benchmark.methods import METHODS, Method
from experiments.benchmark.problems import Problem
from experiments.benchmark.scores import of_rows, of_splits
from experiments.benchmark.splits import Tasks, first_splits
from experiments.harness import progress, storage

# What decides the numbers: this module and all that it imports of this package.
MODULES = ("splits", "networks", "baselines", "scores", "methods", "problems", "cells")


def home(folder: pathlib.Path) -> pathlib.Path:
    """Where cells are kept."""
    return folder / "benchmark_cells"


def path_of(folder: pathlib.Path, problem: Problem, method: str) -> pathlib.Path:
    """Where a cell is kept."""
    return home(folder) / (re.sub(r"[^\w-]+", "_", f"{problem.label} {method}") + ".json")


def identity(config: Any) -> dict[str, Any]:
    """What decides the numbers of a cell besides its problem and method: settings, code and version of JAX."""
    here, library = pathlib.Path(__file__).parent, pathlib.Path(mder_jax.__file__).parent
    sources = [*(here / f"{name}.py" for name in MODULES), *sorted(library.rglob("*.py"))]
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
    if cache:
        mder_jax.use_compilation_cache()


def perform(problem: Problem, name: str, config: Any, folder: pathlib.Path) -> None:
    """One cell: a method on a problem."""
    progress.running(f"{problem.label}: {name}")
    cell = {"identity": identity(config), **_run(problem, METHODS[name], config)}
    path = path_of(folder, problem, name)
    path.parent.mkdir(exist_ok=True)
    storage.write(path, json.dumps(cell).encode())


def _run(problem: Problem, method: Method, config: Any) -> dict[str, Any]:
    """The rows that a method gives on a problem, or why it does not."""
    tasks = problem.tasks(config.splits)
    recipe = problem.recipe(config, tasks.X.shape[1])
    left_out, rows = method.left_out(tasks), {}
    if not left_out:
        tasks = first_splits(tasks, method.most_splits)
        try:
            rows = _rows(problem, method, tasks, recipe)
        except ModuleNotFoundError as error:
            left_out = f"{error}: pip install 'mder-jax[bench]'"
    return {
        "training_rows": tasks.X.shape[1],
        "test_rows": tasks.X_test.shape[1],
        "inputs": tasks.X.shape[2],
        "targets": tasks.targets,
        "recipe": dataclasses.asdict(recipe),
        "rows": rows,
        "left_out": left_out,
    }


def _rows(problem: Problem, method: Method, tasks: Tasks, recipe: Any) -> dict[str, Any]:
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
