"""Training of ensembles under the progress bar."""

from collections.abc import Callable
from typing import Any

import mder_jax as mder
from experiments.harness.progress import running


def train(what: str, *arguments: Any, callback: Callable[[Any], Any] | None = None, **options: Any) -> mder.Ensemble:
    """`fit_ensemble` under the bar. Ctrl-C raises, as results of half a training must not be saved."""
    running(what)

    def report(progress: mder.Progress) -> Any:
        running(what, progress.epoch / progress.epochs)
        return callback(progress) if callback else None

    return mder.fit_ensemble(*arguments, **options, progress=False, callback=report, on_interrupt="raise")
