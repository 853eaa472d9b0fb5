"""Work for several processes: what they do is shown on one bar, and Ctrl-C stops them all."""

import multiprocessing
import pathlib
import signal
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from typing import Any


def each(
    perform: Callable[..., None],
    work: Iterable[tuple[Any, ...]],
    processes: int,
    begin: Callable[..., None],
    arguments: tuple[Any, ...],
    done: Callable[[], None],
    folder: pathlib.Path,
) -> None:
    """Call ``perform(*item)`` for every item of the work, in order of the list, in so many processes.

    Args:
      perform: a function of a module.
      work: arguments of the calls.
      processes: how many at a time.
      begin: called first in each process, with the arguments; what a process says is running is shown here.
      arguments: of begin.
      done: called after each item.
      folder: where they write; what they had begun is removed if they are stopped.
    """
    from experiments import _progress, _store

    spawn = multiprocessing.get_context("spawn")
    told = spawn.Queue()
    pool = ProcessPoolExecutor(processes, spawn, _begin, (told, begin, arguments))
    try:
        running = {pool.submit(perform, *item) for item in work}
        while running:
            finished, running = wait(running, timeout=0.2, return_when=FIRST_COMPLETED)
            _progress.pass_on(told)
            for future in finished:
                future.result()
                done()
        pool.shutdown()
    except BaseException:
        for process in multiprocessing.active_children():
            process.terminate()
        _store.remove_drafts(folder)
        raise


def _begin(told: Any, begin: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    """Ctrl-C is the main process's affair, and so is the bar."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from experiments import _progress

    _progress.report_to(told)
    begin(*arguments)
