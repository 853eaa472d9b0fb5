"""Checkpoints of training: killed at any moment, it resumes exactly where it was."""

import hashlib
import pathlib
import shutil
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from mder_jax._files import as_path
from mder_jax._interrupts import deferred
from mder_jax.ensemble.members import Job, Members, PerMember, named, take
from mder_jax.train.epochs import update
from mder_jax.train.problem import Problem


class Checkpoints:
    """Checkpoints of one run in a directory, written by orbax: each appears whole or not at all, and Ctrl-C waits.

    Args:
      directory: made if it is not there; relative paths work.
      identity: what the run is, as text by name. A directory that holds another run is refused, the difference named.
      extend: whether the run may have more epochs than the one that was saved, and another optimizer.
    """

    @deferred()
    def __init__(self, directory: str | pathlib.Path, identity: dict[str, str], extend: bool = False) -> None:
        import orbax.checkpoint as ocp

        as_path(directory).mkdir(parents=True, exist_ok=True)
        self._ocp = ocp
        self._identity = identity
        self._extend = extend
        options = ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=False, create=True)
        names = ("state", "identity")
        self._manager = ocp.CheckpointManager(pathlib.Path(directory).absolute(), options=options, item_names=names)
        self._directory = directory
        self._refuse_another_run()

    @deferred()
    def save(self, epoch: int, leaves: list[np.ndarray]) -> None:
        """Write the arrays of the state after an epoch; the two latest are kept. A full disk only warns."""
        if epoch in self._manager.all_steps():
            return
        args = self._ocp.args.Composite(
            state=self._ocp.args.StandardSave(dict(_named(leaves))),
            identity=self._ocp.args.JsonSave(self._identity),
        )
        try:
            needed, free = sum(leaf.nbytes for leaf in leaves), shutil.disk_usage(self._directory).free
            if needed > free:  # orbax would write a page of tracebacks from its threads first
                raise OSError(f"a checkpoint may need {needed:,} bytes, and the disk has {free:,} left")
            self._manager.save(epoch, args=args, force=True)
        except (OSError, ValueError) as error:
            failed = f"the checkpoint of epoch {epoch} could not be written to {self._directory} ({error})"
            warnings.warn(f"{failed}; training continues", RuntimeWarning, stacklevel=2)

    @deferred()
    def latest(self, like: Callable[[int], list[np.ndarray]]) -> tuple[int, list[np.ndarray]] | None:
        """The epoch and the arrays of the latest checkpoint that can be read, or None if there is none.

        `like` makes arrays like those of a run of so many epochs.
        """
        steps = sorted(self._manager.all_steps(), reverse=True)
        for position, epoch in enumerate(steps):
            same_optimizer = True
            try:
                saved = self._restore(epoch, identity=self._ocp.args.JsonRestore()).identity
                same_optimizer = saved["optimizer"] == self._identity["optimizer"]
                named = _named(like(int(saved["epochs"])))
                state = self._restore(epoch, state=self._ocp.args.StandardRestore(dict(named))).state
            except Exception as error:
                if not same_optimizer:
                    raise ValueError(
                        f"the state of the optimizer in {self._directory} is not that of this one; to extend the run, "
                        "give the optimizer it was started with, or the same with another schedule"
                    ) from error
                self._manager.delete(epoch)
                rest = "an older one is used" if position + 1 < len(steps) else "training starts from the beginning"
                warnings.warn(
                    f"the checkpoint of epoch {epoch} in {self._directory} cannot be read ({error}); {rest}",
                    RuntimeWarning,
                    stacklevel=2,
                )
            else:
                return epoch, [np.asarray(state[name]) for name, _ in named]
        return None

    @deferred()
    def close(self) -> None:
        """Give up the directory."""
        self._manager.close()

    def _restore(self, epoch: int, **items: Any) -> Any:
        return self._manager.restore(epoch, args=self._ocp.args.Composite(**items))

    def _refuse_another_run(self) -> None:
        latest = self._manager.latest_step()
        if latest is None:
            return
        try:
            saved = self._restore(latest, identity=self._ocp.args.JsonRestore()).identity
        except Exception:  # damaged: `latest` passes over it
            return
        names = sorted(saved.keys() | self._identity.keys())
        other = [name for name in names if saved.get(name) != self._identity.get(name)]
        longer = "epochs" in other and int(saved["epochs"]) < int(self._identity["epochs"])
        is_extension = longer and set(other) <= {"epochs", "optimizer"}
        if other and not (is_extension and self._extend):
            lines = [f"  {name}: {saved.get(name)} when saved, {self._identity.get(name)} now" for name in other]
            remedy = "go back to the arguments it was started with"
            remedy += ", or train it for more epochs with extend=True" if is_extension else ""
            raise ValueError(
                f"{self._directory} holds the checkpoints of another run; name another directory, or {remedy}:\n"
                + "\n".join(lines)
            )


def _named(leaves: list[np.ndarray]) -> list[tuple[str, np.ndarray]]:
    return [(f"{number:04}", leaf) for number, leaf in enumerate(leaves)]


def identity(job: Job) -> dict[str, str]:
    """What a run is, for its checkpoints: settings as text, arrays and functions as hashes."""
    text = {name: str(value) for name, value in job.settings._asdict().items()}
    text |= {"members": str(job.members), "jax": jax.__version__, "key": _hash_of_arrays(job.key_data)}
    for name, part in named(job.parts):
        is_function = name in Members._fields
        if isinstance(part, PerMember):
            text[f"values of {name}" if is_function else name] = _hash_of_arrays(part.values)
            if not is_function:
                text[name] += " " + _hash_of_program(part.of, take(part.values, 0))
        elif not is_function:
            text[name] = _hash_of_arrays(part)
    first = take(job.own, 0)
    (network, _, optimizer, _), data = job.member(job.shared, first)
    x, y, key = data.X[:1], data.Y[:1], job.key(job.key_data[0])
    params = jax.eval_shape(network.init, key, x)
    output = jax.eval_shape(network.apply, params, x)
    state = jax.eval_shape(optimizer.init, params)

    def run_network(problem: Problem, key: Array, params: Any, x: Array) -> Any:
        noisy = problem.network.train
        trained = None if noisy is None else noisy(params, x, key)
        return problem.network.init(key, x), problem.network.apply(params, x), trained

    def run_loss(problem: Problem, output: Any, y: Array) -> Any:
        return problem.loss(output, y)

    def run_optimizer(problem: Problem, gradient: Any, state: Any) -> Any:
        updated = update(problem.optimizer, gradient, state, gradient, lambda _: jnp.zeros(()))
        return problem.optimizer.init(gradient), updated

    def hash_of(name: str, function: Callable[..., Any], *examples: Any) -> str:
        def of_member(values: Any, *examples: Any) -> Any:
            return function(job.member(job.shared, first._replace(**{name: values}))[0], *examples)

        return _hash_of_program(of_member, getattr(first, name), *examples)

    text["network"] = hash_of("network", run_network, key, params, x)
    text["loss"] = hash_of("loss", run_loss, output, y)
    text["optimizer"] = hash_of("optimizer", run_optimizer, params, state)
    return text


def _hash_of_arrays(tree: Any) -> str:
    """Shape, dtype and a hash of the values of every array."""
    arrays = map(np.ascontiguousarray, jax.tree.leaves(tree))
    return " ".join(f"{a.dtype}{list(a.shape)} {hashlib.sha256(a.tobytes()).hexdigest()[:16]}" for a in arrays)


def _hash_of_program(function: Callable[..., Any], *examples: Any) -> str:
    """A hash of what a function computes: its operations on arguments of these shapes, and the constants in it."""
    program = jax.jit(function).trace(*examples).lower(lowering_platforms=("cpu",))
    return hashlib.sha256(program.as_text().encode()).hexdigest()[:16]
