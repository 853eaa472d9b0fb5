"""A process that computes studies. What it needs is imported there: the process that waits for it stays light."""

import argparse
import gc


def begin(cache: bool) -> None:
    """What such a process does first."""
    gc.set_threshold(500_000, 20, 20)  # tracing and drawing make many objects: 6 % of the time
    from experiments import _study

    _study.prepare_jax(cache)


def perform(name: str, options: argparse.Namespace) -> None:
    """Run a study, unless saved results will do, and draw it."""
    from experiments import _progress, _study

    _progress.running(name)
    if not options.plot_only:
        _study.compute(name, options, options.out)
    _progress.running(f"{name}: drawing")
    _study.draw(name, options.out)
