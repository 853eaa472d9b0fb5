"""What is running, on one line of standard error, and training that reports to it."""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from queue import Empty
from typing import Any

_now: list[Callable[[str, float], None]] = []


@contextlib.contextmanager
def bar(studies: int) -> Iterator[Callable[[], None]]:
    """A bar over studies while the block runs; what it yields marks one study as done."""
    from rich import progress
    from rich.console import Console

    console = Console(stderr=True)
    columns = (
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("studies"),
        progress.TimeElapsedColumn(),
        progress.TextColumn("{task.description}"),
    )
    with progress.Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as shown:
        task = shown.add_task("", total=studies)
        _now.append(lambda what, part: shown.update(task, description=f"{what} {part:.0%}" if part else what))
        try:
            yield lambda: shown.update(task, advance=1)
        finally:
            _now.pop()


def report_to(queue: Any) -> None:
    """Send what is running to a queue, from which the process that has the bar reads it."""
    _now.append(lambda what, part: queue.put((what, part)))


def pass_on(queue: Any) -> None:
    """Show the latest that other processes sent."""
    with contextlib.suppress(Empty):
        while True:
            running(*queue.get_nowait())


def running(what: str, part: float = 0.0) -> None:
    """Say what is running and how much of it is done; nothing happens without a bar."""
    if _now:
        _now[-1](what, part)


def train(what: str, *arguments: Any, callback: Callable[[Any], Any] | None = None, **options: Any) -> Any:
    """`fit_ensemble` under the bar. Ctrl-C raises, as results of half a training must not be saved."""
    import mder_jax as mder

    running(what)

    def report(progress: mder.Progress) -> Any:
        running(what, progress.epoch / progress.epochs)
        return callback(progress) if callback else None

    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="interrupted", category=RuntimeWarning)
        try:
            return mder.fit_ensemble(*arguments, **options, progress=False, callback=report)
        except RuntimeWarning:
            raise KeyboardInterrupt from None
