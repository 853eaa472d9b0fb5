"""A job on its devices: compile, begin, advance by epochs, and the members as a result."""

import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import PartitionSpec as P

from mder_jax._checks import is_key
from mder_jax.ensemble._checkpoints import Checkpoints
from mder_jax.ensemble._layout import AXIS, Layout, fetch
from mder_jax.ensemble.members import Job, take
from mder_jax.ensemble.results import Ensemble, Progress
from mder_jax.train import epochs
from mder_jax.train.epochs import Losses, State


class Run:
    """A job on its devices: what changes is `epoch`, `state`, `history`, and whether it is `unfinished`."""

    def __init__(self, job: Job, devices: Sequence[jax.Device] | None) -> None:
        self.job = job
        self.layout = Layout(job.members, devices)
        self.epoch = 0
        self.unfinished = True
        self.seconds = 0.0

    def start(self, store: Checkpoints | None = None) -> None:
        """Compile, and make initial parameters or restore those of the latest checkpoint."""
        layout, job = self.layout, self.job
        self._own, self._shared = layout.spread(job.own), layout.everywhere(job.shared)
        keys = layout.spread(job.key_data)
        members, same = P(AXIS), P()
        begin = layout.compile(layout.on_each(self._begin, (members, members, same)), keys, self._own, self._shared)
        self.state, self.history, self._plan = begin(keys, self._own, self._shared)
        advance = layout.on_each(self._train, (members, members, members, members, same, same, same))
        self._program = layout.compile(advance, *self._arguments(0))
        found = store.latest(self.leaves) if store else None
        if found:
            epoch, leaves = found
            like = (self.state, self.history)
            state, history = jax.tree.unflatten(jax.tree.structure(like), leaves)
            history = jax.tree.map(self._with_unknown_epochs, history)
            self._arrive(epoch, *jax.tree.map(_with_key_of, like, layout.spread((state, history))))

    def advance(self, stop: int) -> None:
        """Train up to an epoch, or until all members have ended; an interruption leaves the run as it was."""
        start = time.perf_counter()
        self._arrive(stop, *jax.block_until_ready(self._program(*self._arguments(stop))))
        self.seconds += time.perf_counter() - start

    def _arrive(self, epoch: int, state: State, history: Losses) -> None:
        ended = np.maximum(fetch(state.diverged_at), fetch(state.stopped_at))
        running = bool(np.any(ended < 0))
        epoch = epoch if running else int(ended.max()) + 1
        unfinished = running and epoch < self.job.settings.epochs
        # All at once, so that no interruption can come between them.
        self.state, self.history, self.epoch, self.unfinished = state, history, epoch, unfinished

    def judged(self, score: float) -> None:
        """Keep the parameters of all members if the score of this epoch is the smallest so far.

        If `patience` epochs have brought no smaller one, members that are still running stop.
        """
        state, now, patience = self.state, self.epoch - 1, self.job.settings.patience
        if score < float(fetch(state.best_loss)[0]):
            best = jnp.full_like(state.best_loss, score), jnp.full_like(state.best_epoch, np.int32(now))
            state = state._replace(best_params=state.params, best_loss=best[0], best_epoch=best[1])
        if patience is not None and now - int(fetch(state.best_epoch)[0]) >= patience:
            stopped_at = jnp.where(epochs.is_running(state), jnp.int32(now), state.stopped_at)
            state = state._replace(stopped_at=stopped_at)
        validation = self.history.validation.at[:, now].set(score)
        self._arrive(self.epoch, state, self.history._replace(validation=validation))

    def leaves(self, epochs: int | None = None) -> list[np.ndarray]:
        """The arrays of the state and the history, for a checkpoint; of the first so many epochs."""
        state, history = self.layout.gathered(jax.tree.map(_without_key, (self.state, self.history)))
        return jax.tree.leaves((state, take(history, np.s_[:, :epochs])))

    def _with_unknown_epochs(self, losses: np.ndarray) -> np.ndarray:
        """Losses (M, epochs) of a run that had fewer epochs, with NaN for the others."""
        more = self.job.settings.epochs - losses.shape[1]
        return np.pad(losses, ((0, 0), (0, more)), constant_values=np.nan)

    def progress(self, latest: bool = False) -> Progress:
        """For callbacks; with `latest` the parameters of this epoch, also if those of another are kept."""
        state = self._public_state()
        state = state._replace(best_params=None) if latest else state
        fit = epochs.finish(*self.layout.gathered((state, self.history)))
        return Progress(self.epoch, self.job.settings.epochs, take(fit.history, np.s_[:, : self.epoch]), fit.params)

    def result(self, interrupted: bool) -> Ensemble:
        """The members as they are."""
        fit = epochs.finish(*self.layout.gathered((self._public_state(), self.history)))
        return Ensemble(
            network=self.job.parts.network,
            params=jax.tree.map(jnp.asarray, fit.params),
            history=fit.history,
            diverged_at=np.asarray(fit.diverged_at),
            stopped_at=np.asarray(fit.stopped_at),
            best_epoch=np.asarray(fit.best_epoch),
            epochs=self.epoch,
            row_shape=self.job.number(0)[1].X.shape[1:],
            interrupted=interrupted,
            seconds=self.seconds,
        )

    def _public_state(self) -> State:
        return self.state._replace(optimizer_state=None)

    def _arguments(self, stop: int) -> tuple[Any, ...]:
        bounds = self.layout.everywhere((np.int32(self.epoch), np.int32(stop)))
        return (self.state, self.history, self._plan, self._own, self._shared, *bounds)

    def _begin(self, key_data: Array, own: Any, shared: Any) -> tuple[State, Losses, epochs.Plan]:
        def member(key_data: Array, own: Any) -> tuple[State, epochs.Plan]:
            return epochs.begin(*self.job.member(shared, own), self.job.key(key_data))

        state, plan = jax.vmap(member)(key_data, own)
        unknown = jnp.full((len(key_data), self.job.settings.epochs), jnp.nan, jnp.result_type(float))
        return state, Losses(unknown, None if state.best_params is None else unknown), plan

    def _train(
        self, state: State, history: Losses, plan: epochs.Plan, own: Any, shared: Any, start: Array, stop: Array
    ) -> tuple[State, Losses]:
        def member(state: State, plan: epochs.Plan, own: Any, epoch: Array) -> tuple[State, Losses]:
            return epochs.run_epoch(*self.job.member(shared, own), plan, state, epoch)

        def group(part: tuple[State, Losses, epochs.Plan, Any]) -> tuple[State, Losses]:
            state, history, plan, own = part

            def unfinished(carry: tuple[Array, State, Losses]) -> Array:
                return (carry[0] < stop) & jnp.any(epochs.is_running(carry[1]))

            def epoch(carry: tuple[Array, State, Losses]) -> tuple[Array, State, Losses]:
                number, state, history = carry
                state, losses = jax.vmap(member, (0, 0, 0, None))(state, plan, own, number)

                def write(whole: Array, this: Array) -> Array:
                    return whole.at[:, number].set(this.astype(whole.dtype))

                return number + 1, state, jax.tree.map(write, history, losses)

            return lax.while_loop(unfinished, epoch, (start, state, history))[1:]

        return self.layout.by_group(group, (state, history, plan, own))


def _without_key(leaf: Array) -> Array:
    """The bits of a random key, which some optimisers have in their state; other arrays as they are."""
    return jax.random.key_data(leaf) if is_key(leaf) else leaf


def _with_key_of(like: Array, leaf: Array) -> Array:
    return jax.random.wrap_key_data(leaf, impl=jax.random.key_impl(like)) if is_key(like) else leaf
