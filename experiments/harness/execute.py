"""Run studies, save their results and draw their figures, in this process or in several."""

import argparse
import contextlib
import dataclasses
import functools
import gc
import json
import multiprocessing
import os
import pathlib
import platform
import signal
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from datetime import UTC, datetime
from typing import Any

import numpy as np

import mder_jax
from experiments.harness import progress, storage
from experiments.harness.claims import by_id
from experiments.harness.command_options import make_config
from experiments.harness.figures import rendered
from experiments.harness.study import STUDIES, find

PROCESSES = 2  # compiling and drawing keep one core busy, training all


def studies(names: list[str], options: argparse.Namespace, done: Callable[[], None]) -> None:
    """Run, save and draw one study here, or several in other processes; `done` is called after each."""
    cache = not options.no_cache
    if len(names) == 1:
        _prepare_jax(cache)
        one(names[0], options)
        done()
    else:
        work = [(name, options) for name in names]
        in_processes(one, work, PROCESSES, functools.partial(_begin_studies, cache), done, options.out)


def one(name: str, options: argparse.Namespace) -> None:
    """Run a study, unless only the figures are requested, and draw it."""
    progress.running(name)
    if not options.plot_only:
        compute(name, options)
    progress.running(f"{name}: drawing")
    draw(name, options.out)


def compute(name: str, options: argparse.Namespace) -> None:
    """Run a study and save its results with config, versions, date and time."""
    config = make_config(find(name).Config, options, options.full)
    date, start = datetime.now(UTC), time.perf_counter()
    results = find(name).run(config, *([options.out] if STUDIES[name].resumable else []))
    seconds = round(time.perf_counter() - start, 2)
    document = {"study": name, "config": dataclasses.asdict(config), "full": options.full, "versions": _versions()}
    document |= {"date": date.isoformat(timespec="seconds"), "seconds": seconds, "results": results}
    storage.save(options.out, name, document)


def draw(name: str, folder: pathlib.Path) -> None:
    """All figures of a study, and its part of the report, from saved results."""
    document = storage.load(folder, name)
    study, results = find(name), document.pop("results")
    for label, figure in study.plot(results).items():
        for ending, content in rendered(figure).items():
            storage.write(folder / f"{name}_{label}.{ending}", content)
    part = {
        **document,
        "what": (study.__doc__ or "").strip().splitlines()[0],
        "report": study.report(results),
        "claims": [dataclasses.asdict(claim) for claim in by_id(study.claims(results)).values()],
        "captions": study.CAPTIONS,
    }
    storage.write(folder / f"{name}{storage.PART}", json.dumps(part, indent=1, ensure_ascii=False).encode())


def in_processes(
    perform: Callable[..., None],
    work: Iterable[tuple[Any, ...]],
    processes: int,
    begin: Callable[[], None],
    done: Callable[[], None],
    folder: pathlib.Path,
) -> None:
    """Call ``perform(*item)`` for every item of the work, in order, in several processes.

    Each process calls `begin` first, and `done` is called here after each item. Ctrl-C stops them and removes their
    unfinished files from the folder. `perform` and `begin` must be functions of a module, or partials of them.
    """
    spawn = multiprocessing.get_context("spawn")
    messages = spawn.Queue()
    pool = ProcessPoolExecutor(processes, spawn, _begin_process, (messages, begin))
    try:
        running = {pool.submit(perform, *item) for item in work}
        while running:
            finished, running = wait(running, timeout=0.2, return_when=FIRST_COMPLETED)
            progress.pass_on(messages)
            for future in finished:
                future.result()
                done()
        pool.shutdown()
    except BaseException:
        for process in multiprocessing.active_children():
            process.terminate()
        storage.remove_drafts(folder)
        raise


def _begin_process(messages: Any, begin: Callable[[], None]) -> None:
    """Leave Ctrl-C and the progress bar to the main process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    progress.report_to(messages)
    begin()


def _begin_studies(cache: bool) -> None:
    gc.set_threshold(500_000, 20, 20)  # tracing and drawing make many objects: 6 % of the time
    _prepare_jax(cache)


def _prepare_jax(cache: bool) -> None:
    """Use one device for each core, and keep compiled programs for the next run."""
    with contextlib.suppress(RuntimeError):  # JAX may run already, in a notebook or a test
        mder_jax.use_all_cores()
    if cache:
        mder_jax.use_compilation_cache()


def _versions() -> dict[str, str]:
    import jax

    return {
        "mder_jax": mder_jax.__version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "devices": f"{jax.device_count()} {jax.default_backend()}",
    }
