"""Ctrl-C: deferred while something must not be interrupted, and as the orderly end of a command."""

import contextlib
import os
import pathlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import NoReturn

# Files that are being written under another name, and the one that was last put in its place.
drafts: set[pathlib.Path] = set()
written: list[pathlib.Path] = []


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Ctrl-C waits for the end of the block; then it does what it would have done, such as raise KeyboardInterrupt."""
    handler = _handler()
    if handler is None:
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            handler(signal.SIGINT, None)


def _handler() -> Callable[..., None] | None:
    """What Ctrl-C calls; None if it is ignored, or if this is not the main thread."""
    handler = signal.getsignal(signal.SIGINT)
    is_ours = threading.current_thread() is threading.main_thread()
    return handler if is_ours and callable(handler) else None


class CtrlC:
    """Ctrl-C in a command: one line on standard error, exit code 130, no half-written file.

    A separate process ends at once, as if it were killed; training and files are made for that. An exception could be
    raised anywhere: in a destructor, which loses it, or in a library that replaces it.

    Attributes:
      output: the file that the command writes. Once it is written, Ctrl-C is ignored.
      checkpoint: from where the same command resumes, if it exists.
    """

    def __init__(self) -> None:
        self.output: pathlib.Path | None = None
        self.checkpoint: pathlib.Path | None = None
        self._in_charge = False
        written.clear()

    def take_over(self) -> None:
        """From now on Ctrl-C ends this process, unless it was started to ignore it."""
        if _handler() is not None:
            self._in_charge = True
            signal.signal(signal.SIGINT, self._handle)

    def last_words(self) -> str:
        """The message after a KeyboardInterrupt; a separate process ends here."""
        if self._in_charge:
            self._leave()
        return self._message()

    def _handle(self, number: int, frame: object) -> None:
        if self.output in written:
            return
        if frame is None:  # from `deferred`, where an exception does no harm
            raise KeyboardInterrupt
        self._leave()

    def _leave(self) -> NoReturn:
        ignore()
        for path in list(drafts):
            path.unlink(missing_ok=True)
        over_the_bar = "\r\x1b[K\x1b[?25h" if sys.stderr.isatty() else ""  # which has hidden the cursor
        with contextlib.suppress(OSError):
            os.write(2, f"{over_the_bar}mder: {self._message()}\n".encode())
        os._exit(130)

    def _message(self) -> str:
        if self.checkpoint and self.checkpoint.exists():
            return f"interrupted; the same command resumes from {self.checkpoint}"
        return "interrupted"


def ignore() -> None:
    """From now on Ctrl-C does nothing."""
    if _handler() is not None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
