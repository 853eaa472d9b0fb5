"""The unit of work, one method on one problem: it is saved when it is done, and a run that was stopped goes on."""

import dataclasses
import hashlib
import json
import pathlib
import re
import warnings
from typing import Any

from experiments import _progress, _store

MODULES = ("tasks", "scores", "neural", "others", "methods", "problems")


def home(folder: pathlib.Path) -> pathlib.Path:
    """Where cells are kept."""
    return folder / "benchmark_cells"


def path_of(folder: pathlib.Path, label: str, method: str) -> pathlib.Path:
    """Where a cell is kept."""
    return home(folder) / (re.sub(r"[^\w-]+", "_", f"{label} {method}") + ".json")


def identity(config: Any) -> dict[str, Any]:
    """What decides the numbers of a cell besides its problem and method: settings, code and version of JAX."""
    import jax

    import mder_jax

    here, library = pathlib.Path(__file__).parent, pathlib.Path(mder_jax.__file__).parent
    sources = [*(here / f"_bench_{name}.py" for name in MODULES), *sorted(library.glob("*.py"))]
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

    import mder_jax

    threadpoolctl.threadpool_limits(1)
    if cache:
        mder_jax.use_compilation_cache()


def perform(label: str, name: str, config: Any, folder: pathlib.Path) -> None:
    """One cell: a method on a problem."""
    from experiments._bench_methods import METHODS
    from experiments._bench_problems import all_problems

    (problem,) = [problem for problem in all_problems(config) if problem.label == label]
    _progress.running(f"{label}: {name}")
    cell = {"identity": identity(config), **_run(problem, METHODS[name], problem.tasks())}
    path = path_of(folder, label, name)
    path.parent.mkdir(exist_ok=True)
    _store.write(path, json.dumps(cell).encode())


def _run(problem: Any, method: Any, tasks: Any) -> dict[str, Any]:
    """The rows that a method gives on a problem, or why it does not."""
    from experiments._bench_scores import of_rows, of_splits
    from experiments._bench_tasks import first_splits

    recipe = problem.recipe(tasks)
    shape = {
        "training_rows": tasks.X.shape[1],
        "test_rows": tasks.X_test.shape[1],
        "inputs": tasks.X.shape[2],
        "targets": tasks.targets,
        "recipe": dataclasses.asdict(recipe),
    }
    if method.left_out(tasks):
        return {**shape, "rows": {}, "left_out": method.left_out(tasks)}
    if method.most_splits:
        tasks = first_splits(tasks, method.most_splits)
    rows = {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*became non-finite")  # counted below
        try:
            made = method.run(tasks, recipe)
        except ModuleNotFoundError as error:
            return {**shape, "rows": {}, "left_out": f"{error}: pip install 'mder-jax[bench]'"}
    for row in made:
        scores = of_rows(row.forecast, tasks)
        rows[row.name] = {
            **of_splits(scores),
            **problem.more(scores, tasks),
            "training": row.training,
            "predicting": row.predicting,
            "compiling": row.compiling,
            "failures": row.failures,
            **({} if row.rates is None else {"rates": row.rates}),
        }
    return {**shape, "rows": rows, "left_out": ""}
