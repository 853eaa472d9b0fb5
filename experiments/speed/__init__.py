"""How fast the library is: evidence, training, its growth, and the estimator. What counts are ratios within one run.

Command: ``python -m experiments speed --parts evidence training growth estimator``. Run time on two cores: about two
minutes for the evidence, five for training, ten for growth, eight for the estimator. The peers of the training need
PyTorch: ``pip install -e '.[bench]'``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax

from experiments.harness.claims import Claim
from experiments.harness.command_options import option
from experiments.speed import estimator, evidence, growth, training
from experiments.speed.job import Job

CAPTIONS = {
    "evidence": "The stable form of the evidence against the form as printed: time and gradient, by number of targets.",
    "training": "One step of all networks: this library, the same in plain JAX, PyTorch four ways, and the floor.",
    "estimator": "A whole fit of MDERRegressor against MLPRegressor trained once for each member.",
    "growth": "How training time and memory grow with networks, rows, width and targets.",
}
PARTS = {"evidence": evidence, "training": training, "growth": growth, "estimator": estimator}


@dataclass(frozen=True)
class Config:
    """Options of the study."""

    parts: tuple[str, ...] = option(tuple(PARTS), "what to measure", choices=tuple(PARTS))
    repeats: int = option(7, "timings of each, the median counts")
    seed: int = option(0, "seed of examples and training", least=0)
    points: int = option(20_000, "evidence: examples")
    sizes: tuple[int, ...] = option((1, 2, 3, 4, 8, 16, 32), "evidence: numbers of targets")
    compile_up_to: int = option(32, "evidence: compile times for every n up to this", least=0)
    members: int = option(100, "training: networks")
    rows: int = option(270, "training: points on the circle")
    batch: int = option(100, "training: rows of a minibatch")
    epochs: int = option(1500, "training: epochs of the whole job")
    turn_epochs: int = option(200, "training: epochs for one timing of a step")
    whole_runs: int = option(3, "training: runs of the whole job")
    growth_members: tuple[int, ...] = option((2, 10, 100, 1000, 10_000), "growth: networks")
    growth_rows: tuple[int, ...] = option((270, 1000, 10_000, 100_000), "growth: points")
    growth_widths: tuple[int, ...] = option((32, 64, 128, 256), "growth: widths")
    growth_targets: tuple[int, ...] = option((1, 2, 4, 8, 16), "growth: numbers of targets")
    growth_work: float = option(200.0, "growth: GFLOP of matrix products for one timing")
    growth_runs: int = option(3, "growth: processes for each size")
    table_rows: int = option(10_000, "estimator: rows of the table")
    table_epochs: int = option(200, "estimator: epochs, by default those of MLPRegressor")
    table_runs: int = option(3, "estimator: fits of each")


def run(config: Config) -> dict[str, Any]:
    """Measure the parts, one after the other."""
    with _without_cache():
        return {part: _measure(part, config) for part in PARTS if part in config.parts}


@contextmanager
def _without_cache() -> Iterator[None]:
    """Compile times are measured, so no program may come from an earlier run."""
    before = jax.config.values["jax_enable_compilation_cache"]
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", before)


def _measure(part: str, config: Config) -> dict[str, Any]:
    print(f"{part}:", flush=True)
    job = Job(config.members, config.rows, batch=config.batch, epochs=config.epochs, seed=config.seed)
    if part == "evidence":
        return evidence.measure(config.points, config.sizes, config.compile_up_to, config.repeats, config.seed)
    if part == "estimator":
        return estimator.measure(config.table_rows, config.table_epochs, config.table_runs, config.seed)
    if part == "training":
        return training.measure(job, config.turn_epochs, config.repeats, config.whole_runs)
    sizes = {"members": config.growth_members, "rows": config.growth_rows}
    sizes |= {"width": config.growth_widths, "targets": config.growth_targets}
    return growth.measure(job, sizes, config.growth_work, config.growth_runs)


def report(results: dict[str, Any]) -> str:
    """The tables of docs/speed, and which goals are reached."""
    return "\n\n".join(PARTS[part].report(values) for part, values in results.items())


def claims(results: dict[str, Any]) -> list[Claim]:
    """None: the paper says nothing of speed."""
    return []


def plot(results: dict[str, Any]) -> dict[str, Any]:
    """One figure for each part."""
    return {part: PARTS[part].plot(values) for part, values in results.items()}
