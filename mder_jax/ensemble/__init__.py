"""Many networks as one compiled program: a fit, or a forward pass, over members and over devices.

In training the members are spread over a mesh of devices, and nothing crosses devices. A device trains them in groups
that fit its cache; a group runs all epochs of a chunk before the next one does. In prediction the rows are spread over
the mesh, and every device has all members.
"""

import math
import pathlib
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from mder_jax import _files
from mder_jax._arguments import check_option, check_type, flag, is_integer
from mder_jax._interrupts import deferred
from mder_jax.ensemble._checkpoints import Checkpoints, identity
from mder_jax.ensemble._layout import clear_programs
from mder_jax.ensemble._training import Run
from mder_jax.ensemble._troubles import troubles
from mder_jax.ensemble.forward import Forward
from mder_jax.ensemble.members import Job, Members, PerMember, make_job, number_of_members, on_host
from mder_jax.ensemble.results import Ensemble, Progress, load_ensemble
from mder_jax.networks import Network
from mder_jax.train.problem import Data, Loss, Settings, check_finite, check_validation

__all__ = ["Ensemble", "PerMember", "Progress", "clear_programs", "fit_ensemble", "load_ensemble", "predict"]

# A chunk of epochs takes about this long, so that bar and Ctrl-C respond.
CHUNK_SECONDS = 0.3


def fit_ensemble(
    key: Array,
    network: Network | PerMember,
    loss: Loss | PerMember,
    X: Any,
    Y: Any,
    *,
    optimizer: optax.GradientTransformation | PerMember,
    epochs: int,
    members: int | None = None,
    batch_size: int | None = None,
    steps_per_epoch: int | None = None,
    weights: Any = None,
    validation: tuple[Any, Any] | tuple[Any, Any, Any] | None = None,
    patience: int | None = None,
    bootstrap: bool = False,
    init: Any = None,
    devices: Sequence[jax.Device] | None = None,
    progress: bool | None = None,
    callback: Callable[[Progress], Any] | None = None,
    callback_every: int | None = None,
    judge: Callable[[Progress], float] | None = None,
    judge_every: int | None = None,
    checkpoint: str | pathlib.Path | None = None,
    checkpoint_every: int | None = None,
    extend: bool = False,
    on_interrupt: str = "return",
) -> Ensemble:
    """Train many networks as one compiled program; member i is what `fit` makes with key i of ``split(key, members)``.

    Any of network, loss, optimizer, X, Y, weights and the parts of validation may be a `PerMember`. Data sets of
    different size are padded to the largest with rows of weight 0.

    Args:
      key: one key, or (M,) keys.
      network: see `Network`.
      loss: ``loss(network output, y) -> (rows,)``, one value per row, not reduced.
      X: inputs, (N, ...).
      Y: targets, (N, ...); NaN is passed to the loss.
      optimizer: any Optax optimizer.
      epochs: passes over the data.
      members: how many networks; not needed if keys or a `PerMember` say it.
      batch_size: rows of a minibatch, the last of an epoch may be smaller; None for all.
      steps_per_epoch: minibatches that count as one epoch, also where data differ in size; None for one pass over them.
      weights: of the rows, (N,), 0 or more; the loss of a batch is Σ w l / Σ w.
      validation: (X, Y) or (X, Y, weights) held out; each member then keeps the parameters of its best validation loss,
        Σ w l / Σ w.
      patience: epochs without a better validation loss after which a member stops.
      bootstrap: each member trains on N rows drawn with replacement.
      init: parameters to start from, each array with the members as first axis, or an `Ensemble` that has them; None
        for those that the network makes.
      devices: to train on; None for all that JAX sees. On a CPU, see `use_all_cores`.
      progress: whether to show a bar; None if standard error is a terminal or this is a notebook.
      callback: called with a `Progress` at intervals; training stops if it returns True.
      callback_every: epochs between calls; None for a hundredth of them.
      judge: called with a `Progress` at intervals, instead of validation: all members keep the parameters of the epoch
        for which the number that it returns is smallest, and stop when `patience` epochs have brought no smaller one.
        It can judge the members together, for instance their mixture. Its scores are the validation losses of the
        history, NaN in between.
      judge_every: epochs between judgements; None for a hundredth of them.
      checkpoint: directory for checkpoints. If it holds some of the same run, training resumes from the latest.
      checkpoint_every: epochs between checkpoints; None for a twentieth of them.
      extend: whether the checkpoints may be of a run with fewer epochs, which is trained further. The optimizer goes on
        from its state. A schedule over all steps is the caller's: one for more steps may be given, as the optimizer
        may then differ. Members that have stopped or diverged stay so.
      on_interrupt: after Ctrl-C, "return" the members as they are, with a warning, or "raise" KeyboardInterrupt; a
        checkpoint is written first. Without a bar, callback or checkpoint Ctrl-C always raises.

    Example:
      >>> line = Network(lambda key, x: jax.random.normal(key, (1,)), lambda w, x: x @ w)
      >>> x = jnp.linspace(-1.0, 1.0, 50)[:, None]
      >>> squared = lambda output, y: (output - y) ** 2
      >>> options = dict(members=3, optimizer=optax.sgd(0.5), epochs=20, progress=False)
      >>> result = fit_ensemble(jax.random.key(0), line, squared, x, 2 * x[:, 0], **options)
      >>> print(result, result.params.round(2).ravel())
      Ensemble(3 members, 20 epochs, 0 diverged) [2. 2. 2.]
    """
    if judge is not None and (validation is not None or not callable(judge)):
        raise ValueError("judge must be a function of a Progress, in the place of validation; give one of the two")
    settings = Settings(epochs, batch_size, steps_per_epoch, bootstrap, patience, judge is not None)
    parts = Members(network, loss, optimizer, Data(X, Y, weights, check_validation(validation)))
    start = init.params if isinstance(init, Ensemble) else init
    job = make_job(parts, settings, key, number_of_members(start) if members is None else members)
    job.check()
    network = job.parts.network
    if start is not None:
        job = job.starting_from(start)
    check_option("on_interrupt", on_interrupt, ("return", "raise"))
    if flag("extend", extend) and checkpoint is None:
        raise ValueError("extend=True trains a run from its checkpoints further: pass checkpoint=, their directory")
    intervals = _Intervals(epochs, callback_every, checkpoint_every, judge_every)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be a function of a Progress, or None; got {callback!r:.60}")
    run = Run(job, devices)
    with _bar(progress, epochs, job.members) as bar, _checkpoints(checkpoint, job, extend) as store:
        run.start(store)
        interrupted = _drive(run, intervals, bar, callback, store, judge)
    if interrupted and on_interrupt == "raise":
        raise KeyboardInterrupt
    result = replace(run.result(interrupted), network=network)
    for trouble in troubles(result, job, checkpoint is not None):
        warnings.warn(trouble, RuntimeWarning, stacklevel=2)
    return result


class _Intervals:
    """When something is due on the host: at regular intervals of epochs and at the end."""

    def __init__(
        self, epochs: int, callback_every: int | None, checkpoint_every: int | None, judge_every: int | None
    ) -> None:
        given = {"callback_every": callback_every, "checkpoint_every": checkpoint_every, "judge_every": judge_every}
        for name, every in given.items():
            if every is not None and (not is_integer(every) or every < 1):
                raise ValueError(f"{name} must be an integer, 1 or more, or None; got {every!r}")
        self.epochs = epochs
        self.callback = callback_every or max(1, epochs // 100)
        self.checkpoint = checkpoint_every or max(1, epochs // 20)
        self.judge = judge_every or max(1, epochs // 100)

    def end_of_chunk(self, epoch: int, length: int, *intervals: int) -> int:
        """Where a chunk of about this length has to end."""
        return min([epoch + length, self.epochs, *[(epoch // every + 1) * every for every in intervals]])


@contextmanager
def _checkpoints(directory: str | pathlib.Path | None, job: Job, extend: bool) -> Iterator[Checkpoints | None]:
    if directory is None:
        yield None
        return
    with _files.occupied(directory) if jax.process_index() == 0 else nullcontext():
        store = Checkpoints(directory, identity(job), extend)
        try:
            yield store
        finally:
            store.close()


def _drive(
    run: Run,
    intervals: _Intervals,
    bar: Callable[[Run], None] | None,
    callback: Callable[[Progress], Any] | None,
    store: Checkpoints | None,
    judge: Callable[[Progress], float] | None,
) -> bool:
    """Advance to the end, in chunks if anything else needs them; return whether Ctrl-C ended it."""
    alone = jax.process_count() == 1  # several processes must agree on where chunks end, and their clocks do not
    watched = bool(bar or callback or store)
    length = intervals.epochs if alone and not watched else 1 if alone else max(1, intervals.epochs // 100)
    asked = ((callback, intervals.callback), (store, intervals.checkpoint), (judge, intervals.judge))
    due = [every for wanted, every in asked if wanted]
    to_judge = False
    try:
        while run.unfinished:
            with deferred():
                start, clock = run.epoch, time.perf_counter()
                run.advance(intervals.end_of_chunk(run.epoch, length, *due))
                done, seconds = run.epoch - start, time.perf_counter() - clock
                if alone:
                    length = max(1, min(2 * length, math.ceil(done * CHUNK_SECONDS / seconds)))
                to_judge = judge is not None and (run.epoch % intervals.judge == 0 or not run.unfinished)
                if judge and to_judge:
                    run.judged(float(judge(run.progress(latest=True))))
                    to_judge = False
                if bar:
                    bar(run)
                if store and run.epoch % intervals.checkpoint == 0:
                    store.save(run.epoch, run.leaves())
            is_due = run.epoch % intervals.callback == 0 or not run.unfinished
            if callback and is_due and callback(run.progress()):
                break
    except KeyboardInterrupt:
        if not watched:
            raise
        return True
    finally:
        if store and run.epoch and not to_judge:  # resumed from there, this epoch would not be judged
            store.save(run.epoch, run.leaves())
    return False


@contextmanager
def _bar(progress: bool | None, epochs: int, members: int) -> Iterator[Callable[[Run], None] | None]:
    """A progress bar on standard error, as a function that moves it, or None if there is none to show."""
    if progress is False or jax.process_index() > 0:
        yield None
        return
    from rich import progress as bars
    from rich.console import Console

    console = Console(stderr=True)
    if progress is None and not (console.is_terminal or console.is_jupyter):
        yield None
        return
    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TextColumn("epochs  loss {task.fields[loss]}"),
        bars.TimeRemainingColumn(),
        bars.TextColumn("left"),
    )
    with bars.Progress(*columns, console=console) as bar:
        task = bar.add_task(f"{members} networks", total=None, loss="")

        def move(run: Run) -> None:
            bar.update(task, total=epochs)
            here = [np.asarray(shard.data)[:, run.epoch - 1] for shard in run.history.train.addressable_shards]
            losses = np.concatenate(here)
            known = losses[np.isfinite(losses)]
            bar.update(task, completed=run.epoch, loss=f"{np.median(known):.4g}" if len(known) else "nan")

        yield move


def predict(
    ensemble: Ensemble,
    X: Any,
    *,
    rows: int = 4096,
    reduce: Callable[[Any], Any] | None = None,
    devices: Sequence[jax.Device] | None = None,
) -> Any:
    """What the members' networks return for X, stacked: every array has shape (M, N, ...).

    X goes through in blocks of a fixed number of rows, padded, so there is one program and memory stays bounded.

    Args:
      ensemble: from `fit_ensemble`.
      X: inputs, (N, ...).
      rows: of a block. For fewer rows than that, the next power of two.
      reduce: applied to the stacked outputs (M, rows, ...) of each block; what it returns has the rows as first axis.
        With it the outputs of all members never exist for all rows at once:
        ``predict(ensemble, X, reduce=lambda niw: Mixture(niw).mean())``.
      devices: to predict on; None for all that JAX sees.

    Example:
      >>> line = Network(lambda key, x: jnp.ones(1), lambda w, x: x @ w)
      >>> options = dict(members=3, optimizer=optax.sgd(0.1), epochs=1, progress=False)
      >>> squared = lambda output, y: (output - y) ** 2
      >>> result = fit_ensemble(jax.random.key(0), line, squared, jnp.ones((4, 1)), jnp.ones(4), **options)
      >>> print(predict(result, jnp.ones((2, 1))).shape)
      (3, 2)
    """
    check_type("ensemble", ensemble, Ensemble)
    if reduce is not None and not callable(reduce):
        raise TypeError(f"reduce must be a function of the stacked outputs, or None; got {reduce!r:.60}")
    X = on_host(X)
    if X.ndim < 2 or X.shape[1:] != ensemble.row_shape or not len(X):
        expected = ", ".join(["N", *map(str, ensemble.row_shape)])
        raise ValueError(f"X must have shape ({expected}) with N >= 1, as in training; got {X.shape}")
    check_finite("X", X)
    if not is_integer(rows) or rows < 1:
        raise ValueError(f"rows must be an integer, 1 or more; got {rows!r}")
    block = min(rows, max(16, 1 << (len(X) - 1).bit_length()))
    forward = ensemble._forward if devices is None else Forward(ensemble.network, ensemble.params, devices)
    return jax.tree.map(jnp.asarray, forward(X, block, reduce))
