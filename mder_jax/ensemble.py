"""Many networks as one compiled program: a fit, or a forward pass, over members and over devices.

The members lie on a mesh of devices along their own axis, and nothing crosses devices while they train. A device takes
them in groups that fit its cache; a group goes through all epochs before the next one starts.
"""

import hashlib
import math
import os
import pathlib
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from mder_jax import persistence, train
from mder_jax.networks import Network
from mder_jax.train import Losses, State

# Members that a CPU device trains at once: enough to fill its vector units, few enough for its cache.
GROUP = 64
AXIS = "members"


class PerMember(NamedTuple):
    """One value for each member, in the place of an argument that all members share.

    Args:
      values: an array or a pytree of arrays with the members as first axis.
      build: makes the argument from one member's values; None if the values are the argument.

    Example:
      >>> rates = PerMember(jnp.array([1e-2, 1e-3]), optax.adam)  # optimizer=rates: two members, two learning rates
    """

    values: Any
    build: Callable[[Any], Any] | None = None


class Progress(NamedTuple):
    """What a callback sees.

    Args:
      epoch: epochs done.
      epochs: epochs to do.
      history: losses so far, (M, epoch).
      params: of all members, stacked.
    """

    epoch: int
    epochs: int
    history: Losses
    params: Any


@dataclass(frozen=True)
class Ensemble:
    """Trained members.

    Args:
      network: as it was given.
      params: parameters of all members, each array with the members as first axis.
      history: losses, each (M, epochs); NaN where a member was not trained.
      diverged_at: (M,), the epoch in which a member became non-finite, -1 if it never did; see `Fit`.
      stopped_at: (M,), the epoch after which early stopping ended a member, -1 if it did not.
      best_epoch: (M,), the epoch of the best validation loss, -1 without validation.
      epochs: epochs that were run; fewer than asked for after Ctrl-C, a callback's stop, or if all members ended.
      row_shape: shape of one row of X.
    """

    network: Network | PerMember
    params: Any
    history: Losses
    diverged_at: np.ndarray
    stopped_at: np.ndarray
    best_epoch: np.ndarray
    epochs: int
    row_shape: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.diverged_at)

    def __repr__(self) -> str:
        diverged = int(np.sum(self.diverged_at >= 0))
        return f"Ensemble({len(self)} members, {self.epochs} epochs, {diverged} diverged)"

    def keep(self, members: Any) -> "Ensemble":
        """Some members only: a list of numbers or a mask, such as ``ensemble.diverged_at < 0``."""
        chosen = np.arange(len(self))[np.asarray(members)]
        if not len(chosen):
            raise ValueError("no member is left")
        network = self.network
        if isinstance(network, PerMember):
            network = PerMember(_take(network.values, chosen), network.build)
        arrays = (self.params, self.history, self.diverged_at, self.stopped_at, self.best_epoch)
        params, history, diverged_at, stopped_at, best_epoch = _take(arrays, chosen)
        return replace(
            self,
            network=network,
            params=params,
            history=history,
            diverged_at=diverged_at,
            stopped_at=stopped_at,
            best_epoch=best_epoch,
        )


def use_all_cores(cores: int | None = None) -> None:
    """Let JAX see one device for each CPU core, since one device uses one core. Call it before JAX is used at all.

    The same as starting Python with ``JAX_NUM_CPU_DEVICES`` set in the environment. Accelerators are not affected.
    """
    count = cores or len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1))
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError as error:
        raise RuntimeError(
            "JAX has started already; call use_all_cores() before any JAX computation, "
            f"or start Python with JAX_NUM_CPU_DEVICES={count} in the environment"
        ) from error


def fit_ensemble(
    key: Array,
    network: Network | PerMember,
    loss: train.Loss | PerMember,
    X: Any,
    Y: Any,
    *,
    optimizer: optax.GradientTransformation | PerMember,
    epochs: int,
    members: int | None = None,
    batch_size: int | None = None,
    steps_per_epoch: int | None = None,
    weights: Any = None,
    validation: tuple[Any, Any] | None = None,
    patience: int | None = None,
    bootstrap: bool = False,
    devices: Sequence[jax.Device] | None = None,
    progress: bool | None = None,
    callback: Callable[[Progress], Any] | None = None,
    callback_every: int | None = None,
    checkpoint: str | pathlib.Path | None = None,
    checkpoint_every: int | None = None,
) -> Ensemble:
    """Train many networks as one compiled program; member i is what `fit` makes with key i of ``split(key, members)``.

    Any of network, loss, optimizer, X, Y, weights and the two of validation may be a `PerMember`. Data sets of
    different size are padded to the largest with rows of weight 0.

    Args:
      key: one key, or (M,) keys.
      network: see `Network`.
      loss: ``loss(network output, y) -> (rows,)``, one value per row, not reduced.
      X: inputs, (N, ...).
      Y: targets, (N, ...); what a NaN means is the loss's affair.
      optimizer: any of optax.
      epochs: passes over the data.
      members: how many networks; not needed if keys or a `PerMember` say it.
      batch_size: rows of a minibatch, the last of an epoch may be smaller; None for all.
      steps_per_epoch: None for one pass over the data; see `Settings`.
      weights: of the rows, (N,), 0 or more.
      validation: (X, Y) held out; each member then keeps the parameters of its best validation loss.
      patience: epochs without a better validation loss after which a member stops.
      bootstrap: each member trains on N rows drawn with replacement.
      devices: to train on; None for all that JAX sees. On a CPU, see `use_all_cores`.
      progress: whether to show a bar; None if standard error is a terminal.
      callback: called with a `Progress` every so often; training stops if it returns True.
      callback_every: epochs between calls; None for a hundredth of them.
      checkpoint: directory for checkpoints. If it holds some of the same run, training goes on from the latest.
      checkpoint_every: epochs between checkpoints; None for a twentieth of them.

    Example:
      >>> line = Network(lambda key, x: jax.random.normal(key, (1,)), lambda w, x: x @ w)
      >>> x = jnp.linspace(-1.0, 1.0, 50)[:, None]
      >>> squared = lambda output, y: (output - y) ** 2
      >>> options = dict(members=3, optimizer=optax.sgd(0.5), epochs=20, progress=False)
      >>> result = fit_ensemble(jax.random.key(0), line, squared, x, 2 * x[:, 0], **options)
      >>> print(result, result.params.round(2).ravel())
      Ensemble(3 members, 20 epochs, 0 diverged) [2. 2. 2.]
    """
    settings = train.Settings(epochs, batch_size, steps_per_epoch, bootstrap, patience)
    if validation is not None and (not isinstance(validation, tuple | list) or len(validation) != 2):
        raise ValueError(f"validation must be a pair (X, Y); got {type(validation).__name__}")
    arguments = {"network": network, "loss": loss, "optimizer": optimizer, "X": X, "Y": Y, "weights": weights}
    arguments |= {"validation X": validation[0], "validation Y": validation[1]} if validation else {}
    job = _Job.of(arguments, settings, key, members)
    job.check()
    for name, every in (("callback_every", callback_every), ("checkpoint_every", checkpoint_every)):
        if every is not None and (not isinstance(every, int) or every < 1):
            raise ValueError(f"{name} must be a whole number, 1 or more, or None; got {every!r}")
    run = _Run(job, devices)
    store = None if checkpoint is None else persistence.Checkpoints(checkpoint, job.identity())
    marks = _Marks(
        epochs,
        callback_every=(callback_every or max(1, epochs // 100)) if callback else None,
        checkpoint_every=(checkpoint_every or max(1, epochs // 20)) if store else None,
    )
    try:
        run.start(store)
        with _bar(progress, epochs, job.members) as bar:
            _drive(run, marks, bar, callback, store)
    finally:
        if store:
            store.close()
    result = run.result()
    _report_divergence(result, job)
    return result


def _drive(
    run: "_Run",
    marks: "_Marks",
    bar: "Callable[[_Run], None] | None",
    callback: Callable[[Progress], Any] | None,
    store: persistence.Checkpoints | None,
) -> None:
    """Advance the run to its end, chunk by chunk if anybody is looking."""
    epochs = run.job.settings.epochs
    watched = bar is not None or callback is not None or store is not None
    length = 1 if watched else epochs
    try:
        while run.epoch < epochs and run.is_running():
            stop = marks.next(run.epoch, length)
            start, seconds = run.epoch, time.perf_counter()
            run.advance(stop)
            seconds = time.perf_counter() - seconds
            length = max(1, min(2 * (stop - start), math.ceil((stop - start) * 0.3 / seconds)))
            if bar:
                bar(run)
            if store and (marks.due(run.epoch, marks.checkpoint_every) or not run.is_running()):
                run.save(store)
            if callback and marks.due(run.epoch, marks.callback_every) and callback(run.progress()):
                break
    except KeyboardInterrupt:
        if store:
            run.save(store)
        warnings.warn(
            f"interrupted after {run.epoch} of {epochs} epochs; the members are returned as they are"
            + (", and the checkpoint goes on from there" if store else ""),
            RuntimeWarning,
            stacklevel=3,
        )


class _Marks(NamedTuple):
    """Epochs at which something is due on the host."""

    epochs: int
    callback_every: int | None
    checkpoint_every: int | None

    def next(self, epoch: int, length: int) -> int:
        """Where a chunk of about this length has to end."""
        ends = [epoch + length, self.epochs]
        ends += [(epoch // every + 1) * every for every in (self.callback_every, self.checkpoint_every) if every]
        return min(ends)

    def due(self, epoch: int, every: int | None) -> bool:
        """Whether an action that happens every so many epochs, and at the end, is due."""
        return every is not None and (epoch % every == 0 or epoch == self.epochs)


class _Job(NamedTuple):
    """The arguments, taken apart: what all members share, what each has of its own, and how to put them together."""

    settings: train.Settings
    keys: Array
    shared: dict[str, np.ndarray]
    own: dict[str, Any]
    fixed: dict[str, Any]
    builders: dict[str, Callable[[Any], Any] | None]

    @classmethod
    def of(cls, arguments: dict[str, Any], settings: train.Settings, key: Array, members: int | None) -> "_Job":
        shared, own, fixed, builders = {}, {}, {}, {}
        for name, value in arguments.items():
            if isinstance(value, PerMember):
                own[name], builders[name] = jax.tree.map(_host, value.values), value.build
            elif name in ("network", "loss", "optimizer") or value is None:
                fixed[name] = value
            else:
                shared[name] = _host(value)
        train.check_key(key)
        keys = _member_keys(key, members, own)
        return cls(settings, keys, shared, own, fixed, builders)

    @property
    def members(self) -> int:
        return len(self.keys)

    def member(self, shared: dict[str, Any], own: dict[str, Any]) -> tuple[train.Problem, train.Data]:
        """Problem and data of one member, from arrays that may be traced."""
        parts = {**self.fixed, **shared}
        for name, value in own.items():
            build = self.builders[name]
            parts[name] = value if build is None else build(value)
        validation = (parts["validation X"], parts["validation Y"]) if "validation X" in parts else None
        problem = train.Problem(parts["network"], parts["loss"], parts["optimizer"], self.settings)
        return problem, train.as_data(parts["X"], parts["Y"], parts["weights"], validation)

    def check(self) -> None:
        """Raise, before anything is compiled, with what is wrong and what would be right."""
        first = self.member(self.shared, jax.tree.map(lambda leaf: leaf[0], self.own))
        train.check(*first, self.keys[0])
        if {"X", "Y", "weights", "validation X", "validation Y"} & self.own.keys():
            for number in range(1, self.members):
                own = {name: value[number] for name, value in self.own.items() if name not in self.fixed_kinds()}
                parts = {**self.fixed, **self.shared, **own}
                validation = (parts["validation X"], parts["validation Y"]) if "validation X" in parts else None
                try:
                    train.check_data(train.Data(parts["X"], parts["Y"], parts["weights"], validation))
                except ValueError as error:
                    raise ValueError(f"member {number}: {error}") from None

    @staticmethod
    def fixed_kinds() -> tuple[str, ...]:
        return ("network", "loss", "optimizer")

    def identity(self) -> dict[str, str]:
        """What this run is, for its checkpoints."""
        text = {name: str(value) for name, value in self.settings._asdict().items()}
        text |= {"members": str(self.members), "jax": jax.__version__}
        text |= {"keys": persistence.identify_array(_key_data(self.keys))}
        for name, value in {**self.shared, **self.own}.items():
            text[name] = " ".join(persistence.identify_array(leaf) for leaf in jax.tree.leaves(value))
        own = jax.tree.map(lambda leaf: leaf[0], self.own)
        problem, data = self.member(self.shared, own)
        row, target = data.X[:1], data.Y[:1]
        params = jax.eval_shape(problem.network.init, self.keys[0], row)
        output = jax.eval_shape(problem.network.apply, params, row)
        state = jax.eval_shape(problem.optimizer.init, params)

        def network(shared: Any, own: Any, params: Any, x: Array, key: Array) -> Any:
            network = self.member(shared, own)[0].network
            noisy = None if network.train is None else network.train(params, x, key)
            return network.init(key, x), network.apply(params, x), noisy

        def loss(shared: Any, own: Any, output: Any, y: Array) -> Array:
            return self.member(shared, own)[0].loss(output, y)

        def optimizer(shared: Any, own: Any, gradient: Any, state: Any) -> Any:
            extra = {"value": jnp.zeros(()), "grad": gradient, "value_fn": lambda params: jnp.zeros(())}
            transform = optax.with_extra_args_support(self.member(shared, own)[0].optimizer)
            return transform.update(gradient, state, gradient, **extra)

        here = (self.shared, own)
        text["network"] = persistence.identify_function(network, *here, params, row, self.keys[0])
        text["loss"] = persistence.identify_function(loss, *here, output, target)
        text["optimizer"] = persistence.identify_function(optimizer, *here, params, state)
        return text


def _host(value: Any) -> np.ndarray:
    """The array on the host, in the dtype JAX would give it."""
    array = np.asarray(value)
    return array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)


def _key_data(keys: Array) -> np.ndarray:
    typed = jnp.issubdtype(keys.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(keys) if typed else keys)


def _member_keys(key: Array, members: int | None, own: dict[str, Any]) -> Array:
    """(M,) keys, and a check that everything agrees on M."""
    counts = {}
    if members is not None:
        if not isinstance(members, int | np.integer) or isinstance(members, bool) or members < 1:
            raise ValueError(f"members must be a whole number, 1 or more; got {members!r}")
        counts["members"] = int(members)
    single = 0 if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else 1
    if key.ndim > single:
        counts["key"] = key.shape[0]
    for name, value in own.items():
        leaves = jax.tree.leaves(value)
        if not leaves or any(np.ndim(leaf) == 0 for leaf in leaves):
            raise ValueError(f"the values of a PerMember need the members as first axis; {name} has none")
        counts |= {f"{name}{i or ''}": leaf.shape[0] for i, leaf in enumerate(leaves)}
    if not counts:
        raise ValueError("say how many networks to train: members=10, an array of keys, or a PerMember argument")
    if len(set(counts.values())) > 1:
        raise ValueError(f"arguments do not agree on the number of members: {counts}")
    count = next(iter(counts.values()))
    if count < 1:
        raise ValueError(f"there must be at least one member; got {counts}")
    return key if key.ndim > single else jax.random.split(key, count)


class _Layout:
    """Where members lie: on devices, then in groups that a device takes one after the other."""

    def __init__(self, members: int, devices: Sequence[jax.Device] | None) -> None:
        chosen = list(devices if devices is not None else jax.devices())[:members]
        if not chosen:
            raise ValueError("devices is empty; None means all of them")
        self.members = members
        self.mesh = Mesh(np.array(chosen), (AXIS,))
        local = -(-members // len(chosen))
        self.groups = -(-local // GROUP) if chosen[0].platform == "cpu" else 1
        self.padded = len(chosen) * self.groups * -(-local // self.groups)

    def spread(self, tree: Any) -> Any:
        """Members over devices; the last one is repeated to fill them."""
        index = np.minimum(np.arange(self.padded), self.members - 1)
        return jax.tree.map(lambda leaf: self._put(leaf[index], P(AXIS)), tree)

    def everywhere(self, tree: Any) -> Any:
        """The same on all devices."""
        return jax.tree.map(lambda leaf: self._put(leaf, P()), tree)

    def gathered(self, tree: Any) -> Any:
        """All members on the host, those that fill up left out."""
        return jax.tree.map(lambda leaf: fetch(leaf)[: self.members], tree)

    def _put(self, leaf: Any, spec: P) -> Array:
        sharding = NamedSharding(self.mesh, spec)
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            impl = jax.random.key_impl(leaf)
            return jax.random.wrap_key_data(self._put(jax.random.key_data(leaf), spec), impl=impl)
        values = np.asarray(leaf)
        return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])

    def map(self, function: Callable[..., Any], tree: Any) -> Any:
        """On one device: apply to all its members, group by group."""
        if self.groups == 1:
            return function(tree)
        size = self.padded // len(self.mesh.devices) // self.groups
        split = jax.tree.map(lambda leaf: leaf.reshape(self.groups, size, *leaf.shape[1:]), tree)
        joined = lax.map(function, split)
        return jax.tree.map(lambda leaf: leaf.reshape(self.groups * size, *leaf.shape[2:]), joined)

    def compile(self, function: Callable[..., Any], specs: tuple[P, ...], *arguments: Any) -> Callable[..., Any]:
        """One program for all devices, `function` seeing the members of one of them."""
        mapped = jax.shard_map(function, mesh=self.mesh, in_specs=specs, out_specs=P(AXIS), check_vma=False)
        return compiled(mapped, self.mesh, *arguments)


_programs: dict[tuple[str, tuple[int, ...]], Callable[..., Any]] = {}


def compiled(function: Callable[..., Any], mesh: Mesh, *arguments: Any) -> Callable[..., Any]:
    """The function compiled for these arguments; the same program is compiled once in a process.

    Programs are compared by their text, since every ``optax.adam(1e-3)`` and every lambda is a new object.
    """
    devices = mesh.devices.flatten()
    # Half the compile time, and no slower, on a CPU.
    options = {"xla_backend_optimization_level": 1} if devices[0].platform == "cpu" else None
    lowered = jax.jit(function, compiler_options=options).lower(*arguments)
    text = hashlib.sha256(lowered.as_text().encode()).hexdigest()
    name = (text, tuple(device.id for device in devices))
    if name not in _programs:
        _programs[name] = lowered.compile()
    return _programs[name]


def fetch(array: Array) -> np.ndarray:
    """The whole array on the host, also of members that other processes trained."""
    if array.is_fully_addressable:
        return np.asarray(array)
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(array, tiled=True))


class _Run:
    """A job on its devices: what changes is `epoch`, `state` and `history`."""

    def __init__(self, job: _Job, devices: Sequence[jax.Device] | None) -> None:
        self.job = job
        self.layout = _Layout(job.members, devices)
        self.epoch = 0

    def start(self, store: persistence.Checkpoints | None) -> None:
        """Initial parameters, or those of the latest checkpoint."""
        job, layout = self.job, self.layout
        self._own = layout.spread(job.own)
        self._shared = layout.everywhere(job.shared)
        keys = layout.spread(job.keys)
        begin = layout.compile(self._begin, (P(AXIS), P(AXIS), P()), keys, self._own, self._shared)
        self.state, self._plan, self.history = begin(keys, self._own, self._shared)
        arguments = (*self._carry(), self._own, self._shared, *self._epochs(0, 0))
        specs = (P(AXIS), P(AXIS), P(AXIS), P(AXIS), P(), P(), P())
        self._advance = layout.compile(self._train, specs, *arguments)
        found = store.latest(self._saved()) if store else None
        if found:
            self.epoch, leaves = found
            tree = jax.tree.unflatten(jax.tree.structure((self.state, self.history)), leaves)
            key = self.state.key
            self.state, self.history = layout.spread(tree)
            if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
                key_data = self.state.key
                self.state = self.state._replace(key=jax.random.wrap_key_data(key_data, impl=jax.random.key_impl(key)))

    def advance(self, stop: int) -> None:
        """Train up to an epoch; an interruption leaves the run as it was."""
        carry = self._advance(*self._carry(), self._own, self._shared, *self._epochs(self.epoch, stop))
        self.state, self.history = jax.block_until_ready(carry)
        self.epoch = stop

    def is_running(self) -> bool:
        """Whether any member is neither diverged nor stopped."""
        return bool(np.any((fetch(self.state.diverged_at) < 0) & (fetch(self.state.stopped_at) < 0)))

    def save(self, store: persistence.Checkpoints) -> None:
        """Write a checkpoint of the run as it is."""
        store.save(self.epoch, self._saved())

    def progress(self) -> Progress:
        """For callbacks."""
        history, params = self.layout.gathered((self.history, train.finish(self.state, self.history).params))
        return Progress(self.epoch, self.job.settings.epochs, _take(history, np.s_[:, : self.epoch]), params)

    def result(self) -> Ensemble:
        """The members as they are."""
        fit = self.layout.gathered(train.finish(self.state, self.history))
        network = self.job.fixed.get("network")
        if network is None:
            network = PerMember(self.job.own["network"], self.job.builders["network"])
        X = self.job.shared["X"] if "X" in self.job.shared else self.job.own["X"][0]
        return Ensemble(
            network=network,
            params=jax.tree.map(jnp.asarray, fit.params),
            history=fit.history,
            diverged_at=fit.diverged_at,
            stopped_at=fit.stopped_at,
            best_epoch=fit.best_epoch,
            epochs=self.epoch,
            row_shape=X.shape[1:],
        )

    def _begin(self, keys: Array, own: Any, shared: Any) -> tuple[State, train.Plan, Losses]:
        def member(key: Array, own: Any) -> tuple[State, train.Plan]:
            return train.begin(*self.job.member(shared, own), key)

        state, plan = jax.vmap(member)(keys, own)
        unknown = jnp.full((len(keys), self.job.settings.epochs), jnp.nan, jnp.result_type(float))
        return state, plan, Losses(unknown, None if state.best_params is None else unknown)

    def _train(
        self, state: State, history: Losses, plan: train.Plan, own: Any, shared: Any, start: Array, stop: Array
    ) -> tuple[State, Losses]:
        def member(state: State, plan: train.Plan, own: Any, epoch: Array) -> tuple[State, Losses]:
            return train.run_epoch(*self.job.member(shared, own), plan, state, epoch)

        def group(part: tuple[State, Losses, train.Plan, Any]) -> tuple[State, Losses]:
            state, history, plan, own = part

            def unfinished(carry: tuple[Array, State, Losses]) -> Array:
                epoch, state, _ = carry
                return (epoch < stop) & jnp.any(train.is_running(state))

            def epoch(carry: tuple[Array, State, Losses]) -> tuple[Array, State, Losses]:
                number, state, history = carry
                state, losses = jax.vmap(member, (0, 0, 0, None))(state, plan, own, number)
                history = jax.tree.map(
                    lambda all_epochs, this: all_epochs.at[:, number].set(this.astype(all_epochs.dtype)),
                    history,
                    losses,
                )
                return number + 1, state, history

            return lax.while_loop(unfinished, epoch, (start, state, history))[1:]

        return self.layout.map(group, (state, history, plan, own))

    def _carry(self) -> tuple[State, Losses, train.Plan]:
        return self.state, self.history, self._plan

    def _epochs(self, start: int, stop: int) -> tuple[Array, Array]:
        return self.layout.everywhere((np.int32(start), np.int32(stop)))

    def _saved(self) -> list[np.ndarray]:
        state = self.state._replace(key=jax.random.key_data(self.state.key)) if self._typed() else self.state
        return jax.tree.leaves(self.layout.gathered((state, self.history)))

    def _typed(self) -> bool:
        return jnp.issubdtype(self.state.key.dtype, jax.dtypes.prng_key)


def _take(tree: Any, index: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], tree)


@contextmanager
def _bar(progress: bool | None, epochs: int, members: int) -> Iterator[Callable[[_Run], None] | None]:
    """A progress bar on standard error, as a function that moves it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    if progress is False or (progress is None and not console.is_terminal):
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("epochs  loss {task.fields[loss]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=console) as bar:
        task = bar.add_task(f"{members} networks", total=epochs, loss="")

        def move(run: _Run) -> None:
            losses = run.layout.gathered(run.history.train[:, run.epoch - 1])
            shown = np.median(losses[np.isfinite(losses)]) if np.isfinite(losses).any() else np.nan
            bar.update(task, completed=run.epoch, loss=f"{shown:.4g}")

        yield move


def _report_divergence(result: Ensemble, job: _Job) -> None:
    diverged = np.flatnonzero(result.diverged_at >= 0)
    if not len(diverged):
        return
    named = ", ".join(f"{member} (epoch {result.diverged_at[member]})" for member in diverged[:10])
    more = f" and {len(diverged) - 10} more" if len(diverged) > 10 else ""
    Y = job.shared["Y"] if "Y" in job.shared else job.own["Y"]
    hint = "; Y holds NaN: does the loss take missing targets?" if np.isnan(Y).any() else ""
    warnings.warn(
        f"{len(diverged)} of {len(result)} members became non-finite and keep their last good parameters: "
        f"{named}{more}{hint}",
        RuntimeWarning,
        stacklevel=3,
    )


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
    X = _host(X)
    if X.ndim < 2 or X.shape[1:] != ensemble.row_shape:
        expected = ", ".join(["N", *map(str, ensemble.row_shape)])
        raise ValueError(f"X must have shape ({expected}), as in training; got {X.shape}")
    train.check_finite("X", X)
    if rows < 1:
        raise ValueError(f"rows must be 1 or more; got {rows}")
    number = len(X)
    if not number:
        raise ValueError(f"X has no rows; got shape {X.shape}")
    block = min(rows, max(16, 1 << (number - 1).bit_length()))
    layout = _Layout(len(ensemble), devices)
    own = ensemble.network.values if isinstance(ensemble.network, PerMember) else None
    params, own = layout.spread((ensemble.params, own))

    def forward(params: Any, own: Any, x: Array) -> Any:
        def member(part: tuple[Any, Any]) -> Any:
            params, own = part
            network = ensemble.network
            if isinstance(network, PerMember):
                network = own if network.build is None else network.build(own)
            return network.apply(params, x)

        return layout.map(jax.vmap(member), (params, own))

    def program(params: Any, own: Any, x: Array) -> Any:
        specs = (P(AXIS), P(AXIS), P())
        output = jax.shard_map(forward, mesh=layout.mesh, in_specs=specs, out_specs=P(AXIS), check_vma=False)(
            params, own, x
        )
        return output if reduce is None else reduce(_take(output, np.s_[: layout.members]))

    def of_block(start: int) -> Any:
        taken = X[start : start + block]
        padded = np.concatenate([taken, np.broadcast_to(X[:1], (block - len(taken), *X.shape[1:]))])
        output = run(params, own, layout.everywhere(padded))
        if reduce is None:
            return _take(layout.gathered(output), np.s_[:, : len(taken)])
        return jax.tree.map(lambda leaf: fetch(leaf)[: len(taken)], output)

    first = layout.everywhere(np.zeros((block, *X.shape[1:]), X.dtype))
    run = compiled(program, layout.mesh, params, own, first)
    axis = 1 if reduce is None else 0
    return _filled(of_block, number, block, axis)


def _filled(of_block: Callable[[int], Any], number: int, block: int, axis: int) -> Any:
    """All blocks, written one after the other into arrays that hold all rows."""
    whole: list[np.ndarray] = []
    for start in range(0, number, block):
        leaves, structure = jax.tree.flatten(of_block(start))
        if not whole:
            whole = [np.empty((*leaf.shape[:axis], number, *leaf.shape[axis + 1 :]), leaf.dtype) for leaf in leaves]
        for total, leaf in zip(whole, leaves, strict=True):
            total[(slice(None),) * axis + (slice(start, start + block),)] = leaf
    return jax.tree.unflatten(structure, [jnp.asarray(total) for total in whole])
