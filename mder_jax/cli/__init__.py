"""The command `mder`: train, predict, evaluate, info.

Exit codes: 0 success, 1 something is wrong with a file or its data, 2 with the command line, 130 Ctrl-C. Results go to
standard output, everything else to standard error. Slow imports come after Ctrl-C is handled, and the module of a
command after the command line is parsed: ``--help`` is quick.
"""

import contextlib
import math
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from mder_jax import _interrupts

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    Args:
      arguments: None for those of the process, which Ctrl-C then ends.

    Example:
      >>> main(["info", "nowhere.mder"])  # and prints on standard error that there is no such file
      1
    """
    ctrl_c = _interrupts.CtrlC()
    if arguments is not None:
        return _answer(arguments, ctrl_c)
    ctrl_c.take_over()
    try:
        return _answer(None, ctrl_c)
    finally:
        _interrupts.ignore()


def _answer(arguments: Sequence[str] | None, ctrl_c: _interrupts.CtrlC) -> int:
    from mder_jax.cli import _options

    options = _options.read(arguments)
    ctrl_c.output = getattr(options, "out", None) or getattr(options, "report", None)
    ctrl_c.checkpoint = getattr(options, "checkpoint", None)
    with _short_messages(options.quiet):
        try:
            return _run(options)
        except KeyboardInterrupt:
            return _failed(ctrl_c.last_words(), 130)
        except ModuleNotFoundError as error:
            return _failed(f"{error}; try: pip install {error.name}")
        except BrokenPipeError:  # the reader of our output has closed it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        except (ValueError, OSError) as error:
            return _failed(str(error))


@contextlib.contextmanager
def _short_messages(quiet: bool) -> Iterator[None]:
    """A warning is one line, and so is a notice, unless all is quiet; of what libraries log only errors are shown."""
    import logging

    from mder_jax.cli._text_files import Notice

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        _say(f"{message}" if issubclass(category, Notice) else f"warning: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.simplefilter("ignore" if quiet else "default", Notice)
        warnings.showwarning = show
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


def _run(options: Any) -> int:
    import importlib
    import json

    command = importlib.import_module(f"mder_jax.cli._{options.command}")
    result, text = getattr(command, options.command)(options)
    if options.json:
        print(json.dumps(_plain(result), indent=2, allow_nan=False), flush=True)
    elif not options.quiet:
        print(text, flush=True)
    return 0


def _failed(message: str, code: int = 1) -> int:
    _say(message)
    return code


def _say(message: str) -> None:
    print(f"mder: {message}", file=sys.stderr)


def _plain(value: Any) -> Any:
    """What JSON can hold; a number that is not finite becomes null."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
