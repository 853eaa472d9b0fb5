r"""A training run taken apart: `begin`, then `run_epoch` for each epoch, then `finish`.

An epoch is a scan over shuffled minibatches. `fit` makes such a run for one network, `mder_jax.ensemble` for many.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from mder_jax._checks import is_key
from mder_jax.train._shuffle import rounds_for, shuffle_of_pass, shuffled
from mder_jax.train.problem import Data, Problem, Settings

Trained = tuple[Any, Any]  # parameters and the state of the optimiser, which a step changes
# Validation rows are evaluated in blocks of a minibatch, but of at least this many rows.
VALIDATION_ROWS = 1024


class Plan(NamedTuple):
    """Which rows a run trains on: the first `size` of `rows` (None: of the data in their order)."""

    rows: Array | None
    size: Array


class State(NamedTuple):
    """All that changes while training, and the bits behind shuffles and noise. Epochs count from 0; -1 means never."""

    seed: Array
    params: Any
    optimizer_state: Any
    diverged_at: Array
    stopped_at: Array
    best_params: Any
    best_loss: Array
    best_epoch: Array


class Losses(NamedTuple):
    """Mean loss over the rows of each epoch, (epochs,), of an ensemble (M, epochs); NaN where an epoch was not run.

    Example:
      >>> losses = Losses(train=jnp.array([3.0, 2.0]), validation=None)  # without validation data
      >>> print(losses.train[-1])
      2.0
    """

    train: Array
    validation: Array | None


class Fit(NamedTuple):
    """A trained network.

    Args:
      params: those of the best validation loss if there are validation data, otherwise the last.
      history: loss of each epoch.
      diverged_at: the epoch in which the loss or a parameter became non-finite, -1 if never. The parameters are those
        before that epoch. A non-finite gradient shows in the parameters, unless the optimiser clips or skips it.
      stopped_at: the epoch after which early stopping ended the run, -1 if it did not.
      best_epoch: the epoch of the best validation loss, -1 without validation.

    Example:
      >>> from mder_jax import Network, fit
      >>> line = Network(lambda key, x: jnp.zeros(1), lambda w, x: x @ w)
      >>> x, squared = jnp.ones((5, 1)), lambda output, y: (output - y) ** 2
      >>> result = fit(jax.random.key(0), line, squared, x, 2 * x[:, 0], optimizer=optax.sgd(0.5), epochs=1)
      >>> print(result.params, result.diverged_at, result.best_epoch)
      [2.] -1 -1
    """

    params: Any
    history: Losses
    diverged_at: Array
    stopped_at: Array
    best_epoch: Array


def begin(problem: Problem, data: Data, key: Array) -> tuple[State, Plan]:
    """The state before the first epoch, and the rows to train on."""
    bits = (jax.random.key_data(key) if is_key(key) else key)[:2]
    # The numbers of this kind of key do not change under `vmap`; those of some others do.
    init_key, row_key, training_key = jax.random.split(jax.random.wrap_key_data(bits, impl="threefry2x32"), 3)
    params = problem.network.init(init_key, data.X[:1])
    never = jnp.full((), -1, jnp.int32)
    state = State(
        seed=jax.random.key_data(training_key),
        params=params,
        optimizer_state=problem.optimizer.init(params),
        diverged_at=never,
        stopped_at=never,
        best_params=params if keeps_best(problem.settings, data) else None,
        best_loss=jnp.full((), jnp.inf, jnp.result_type(float)),
        best_epoch=never,
    )
    return state, _plan(problem.settings, data, row_key)


def keeps_best(settings: Settings, data: Data) -> bool:
    """Whether the parameters of an epoch other than the last may be wanted."""
    return settings.judged or data.validation is not None


def _plan(settings: Settings, data: Data, key: Array) -> Plan:
    rows, size = None, jnp.int32(data.X.shape[0])
    if data.weights is not None:
        rows = jnp.argsort(data.weights <= 0, stable=True).astype(jnp.int32)
        size = jnp.sum(data.weights > 0, dtype=jnp.int32)
    if settings.bootstrap:
        drawn = jax.random.randint(key, (data.X.shape[0],), 0, size, jnp.int32)
        rows = drawn if rows is None else rows[drawn]
    return Plan(rows, size)


def run_epoch(problem: Problem, data: Data, plan: Plan, state: State, epoch: Array) -> tuple[State, Losses]:
    """One epoch of minibatches, then the validation loss and what follows from it.

    A run that becomes non-finite in an epoch goes back to the state before it and stays there.
    """
    before = (state.params, state.optimizer_state)
    batches = _minibatches(problem.settings, data, plan, state.seed, epoch)
    after, (losses, weights) = lax.scan(partial(_step, problem, data, plan, state.seed), before, batches)
    running, good = is_running(state), _all_finite((after[0], losses))
    params, optimizer_state = _choose(running & good, after, before)
    diverged_at = jnp.where(running & ~good, epoch, state.diverged_at)
    state = state._replace(params=params, optimizer_state=optimizer_state, diverged_at=diverged_at)
    train = jnp.where(running, jnp.sum(losses * weights) / jnp.sum(weights), jnp.nan)
    if data.validation is None:
        return state, Losses(train, jnp.full_like(train, jnp.nan) if problem.settings.judged else None)
    validation = _mean_loss(problem, state.params, *data.validation, rows=batches.rows.shape[1])
    state = _keep_best(problem.settings, state, epoch, validation)
    return state, Losses(train, jnp.where(running, validation, jnp.nan))


def is_running(state: State) -> Array:
    """Whether the run has neither diverged nor stopped."""
    return (state.diverged_at < 0) & (state.stopped_at < 0)


def finish(state: State, history: Losses) -> Fit:
    """The result, from the last state."""
    best, last = state.best_params, state.params  # without one finite validation loss there is no best
    params = last if best is None else _choose(state.best_epoch >= 0, best, last)
    return Fit(params, history, state.diverged_at, state.stopped_at, state.best_epoch)


class Minibatch(NamedTuple):
    """The number of a minibatch within the run, its rows, and which of them count (the last may be ragged)."""

    step: Array
    rows: Array
    present: Array


def _minibatches(settings: Settings, data: Data, plan: Plan, seed: Array, epoch: Array) -> Minibatch:
    """The minibatches of an epoch, (steps, rows), as places in the plan; those beyond its last do not count."""
    rows = settings.batch_size or data.X.shape[0]
    steps = settings.steps_per_epoch or -(-data.X.shape[0] // rows)
    index = jnp.arange(steps, dtype=jnp.int32)
    step = epoch * steps + index
    in_a_pass = -(-plan.size // rows)
    number = jnp.broadcast_to(epoch, index.shape)
    if settings.steps_per_epoch is not None:
        number, index = step // in_a_pass, step % in_a_pass
    place = index[:, None] * rows + jnp.arange(rows, dtype=jnp.int32)[None, :]

    def row(number: Array, place: Array) -> Array:
        shuffle = shuffle_of_pass(seed, number, plan.size, rounds_for(data.X.shape[0]))
        return shuffled(jnp.minimum(place, plan.size - 1), shuffle)

    return Minibatch(step, jax.vmap(row)(number, place), place < plan.size)


def _step(
    problem: Problem, data: Data, plan: Plan, seed: Array, before: Trained, batch: Minibatch
) -> tuple[Trained, tuple[Array, Array]]:
    """One step of the optimiser, and the batch's Σ w l / Σ w and Σ w; a batch without weight is left out."""
    # Here and not for the whole epoch: fused with this lookup, the shuffle would not be vectorised.
    rows = batch.rows if plan.rows is None else plan.rows[batch.rows]
    X, Y = data.X[rows], data.Y[rows]
    weights = jnp.where(batch.present, 1.0 if data.weights is None else data.weights[rows], 0.0)
    total = jnp.sum(weights)
    network = problem.network

    def objective(params: Any) -> Array:
        if network.train is None:
            output = network.apply(params, X)
        else:
            key = jax.random.wrap_key_data(seed, impl="threefry2x32")
            output = network.train(params, X, jax.random.fold_in(key, batch.step))
        losses = problem.loss(output, Y)
        return jnp.sum(jnp.where(weights > 0, losses * weights.astype(losses.dtype), 0.0)) / total.astype(losses.dtype)

    params, optimizer_state = before
    value, gradient = jax.value_and_grad(objective)(params)
    after = update(problem.optimizer, gradient, optimizer_state, params, objective, value)
    if data.weights is not None:  # only then can a batch be empty
        after, value = _choose(total > 0, (after, value), (before, jnp.zeros_like(value)))
    return after, (value, total.astype(value.dtype))


def update(
    optimizer: optax.GradientTransformation,
    gradient: Any,
    state: Any,
    params: Any,
    objective: Callable[[Any], Array],
    value: Array | float = 0.0,
) -> tuple[Any, Any]:
    """New parameters and optimiser state; optimisers that want them also get the loss and the function it is of."""
    extended = optax.with_extra_args_support(optimizer)
    updates, state = extended.update(gradient, state, params, value=value, grad=gradient, value_fn=objective)
    return optax.apply_updates(params, updates), state


def _all_finite(tree: Any) -> Array:
    """Whether every float of the tree is finite: 0 x is 0 only for finite x."""
    floats = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return jnp.all(jnp.stack([jnp.sum(0 * leaf) == 0 for leaf in floats]))


def _choose(condition: Array, first: Any, second: Any) -> Any:
    """`where` for trees of arrays, whose first axes are those of the condition."""

    def choose(a: Array, b: Array) -> Array:
        return jnp.where(jnp.reshape(condition, condition.shape + (1,) * (a.ndim - condition.ndim)), a, b)

    return jax.tree.map(choose, first, second)


def _mean_loss(problem: Problem, params: Any, X: Array, Y: Array, weights: Array | None, rows: int) -> Array:
    """The mean loss Σ w l / Σ w, from blocks of rows so that memory stays bounded."""
    number = X.shape[0]
    rows = min(number, max(rows, VALIDATION_ROWS))
    place = jnp.arange(-(-number // rows) * rows, dtype=jnp.int32).reshape(-1, rows)

    def add(total: Array, place: Array) -> tuple[Array, None]:
        row = jnp.minimum(place, number - 1)
        losses, counts = problem.loss(problem.network.apply(params, X[row]), Y[row]), place < number
        if weights is not None:
            losses, counts = losses * weights[row].astype(losses.dtype), counts & (weights[row] > 0)
        return total + jnp.sum(jnp.where(counts, losses, 0.0)).astype(total.dtype), None

    total = lax.scan(add, jnp.zeros((), jnp.result_type(float)), place)[0]
    return total / (number if weights is None else jnp.sum(weights))


def _keep_best(settings: Settings, state: State, epoch: Array, validation: Array) -> State:
    running, best = is_running(state), (state.best_params, state.best_loss, state.best_epoch)
    now = (state.params, validation, epoch)
    params, loss, best_epoch = _choose(running & (validation < state.best_loss), now, best)
    state = state._replace(best_params=params, best_loss=loss, best_epoch=best_epoch)
    if settings.patience is None:
        return state
    waited = epoch - state.best_epoch >= settings.patience
    return state._replace(stopped_at=jnp.where(running & waited, epoch, state.stopped_at))
