"""What is running, on one line of standard error."""

import contextlib
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
    time = progress.TimeElapsedColumn()
    columns = (progress.BarColumn(), progress.MofNCompleteColumn(), "studies", time, "{task.description}")
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
