"""Commands of `mder` that send themselves a real Ctrl-C at a chosen moment.

As a program it reads commands from standard input, a line of JSON for each, arguments and moment, and prints a line for
each: exit code, standard output, standard error. A moment is None for no signal, "exit" for when the process is about
to end, or a function "module:name", which of its calls, from 0, and when after its start:

- so many calls of Python functions later;
- "end", as soon as it has returned;
- "garbage", in a callback of the next collection of garbage, where an exception is lost.
"""

import atexit
import gc
import importlib
import json
import os
import pathlib
import signal
import sys


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


class Moment:
    """A function wrapped so that the signal comes in time; `calls` counts those of all functions since its start."""

    def __init__(self, function, call, when):
        self.before, self.when, self.calls = call, when, 0
        module, name = function.split(":")
        *path, name = name.split(".")
        owner = importlib.import_module(module)
        for part in path:
            owner = getattr(owner, part)
        original = getattr(owner, name)
        setattr(owner, name, lambda *arguments, **named: self.call(original, arguments, named))

    def call(self, original, arguments, named):
        self.before -= 1
        if self.before != -1:
            return original(*arguments, **named)
        if self.when == "garbage":
            gc.callbacks.append(lambda phase, _: interrupt() if phase == "start" else None)
            gc.collect()
        elif self.when != "end":
            sys.setprofile(self.count)
        result = original(*arguments, **named)
        if self.when == "end":
            interrupt()
        return result

    def count(self, frame, event, _):
        if event == "call":
            self.calls += 1
            if self.calls == self.when:
                interrupt()


def perform(arguments, moment):
    """Make this process that of the command. Returns its exit code, and how many functions were called, if counted."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also if whoever started the tests ignores it
    sys.argv = ["mder", *arguments]
    from mder_jax import cli

    if moment == "exit":
        atexit.register(interrupt)
    watched = Moment(*moment) if isinstance(moment, list) else None
    code = cli.main()
    sys.setprofile(None)
    return code, watched and watched.calls


def in_processes(folder):
    """Each command in a process that is forked from this one, which has imported all that takes time."""
    for module in ("mder_jax.cli._train", "mder_jax.cli._predict", "mder_jax.estimator", "orbax.checkpoint"):
        importlib.import_module(module)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            for number, name in ((1, "out"), (2, "err")):
                os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            sys.exit(perform(*json.loads(line))[0])
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps([code, *((folder / name).read_text() for name in ("out", "err"))]), flush=True)


if __name__ == "__main__":
    in_processes(pathlib.Path(sys.argv[1]))
