"""Checkpoints of a training run that can be killed at any moment and goes on exactly where it was."""

import hashlib
import pathlib
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np


class Checkpoints:
    """Checkpoints of one run in a directory, written by orbax: each appears whole or not at all.

    Args:
      directory: made if it is not there; relative paths work.
      identity: what the run is, as text by name. A directory that holds another run is refused, the difference named.
    """

    def __init__(self, directory: str | pathlib.Path, identity: dict[str, str]) -> None:
        import orbax.checkpoint as ocp

        pathlib.Path(directory).mkdir(parents=True, exist_ok=True)
        self._ocp = ocp
        self._identity = identity
        options = ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=False, create=True)
        names = ("state", "identity")
        self._manager = ocp.CheckpointManager(pathlib.Path(directory).absolute(), options=options, item_names=names)
        self._directory = directory
        self._refuse_another_run()

    def save(self, epoch: int, leaves: list[np.ndarray]) -> None:
        """Write the arrays of a state after so many epochs; the two latest are kept. A full disk only warns."""
        if epoch in self._manager.all_steps():
            return
        args = self._ocp.args.Composite(
            state=self._ocp.args.StandardSave(dict(_named(leaves))),
            identity=self._ocp.args.JsonSave(self._identity),
        )
        try:
            self._manager.save(epoch, args=args, force=True)
        except (OSError, ValueError) as error:
            failed = f"the checkpoint of epoch {epoch} could not be written to {self._directory} ({error})"
            warnings.warn(f"{failed}; training goes on", RuntimeWarning, stacklevel=2)

    def latest(self, like: list[np.ndarray]) -> tuple[int, list[np.ndarray]] | None:
        """The epoch and the arrays of the latest checkpoint that can be read, or None if there is none."""
        steps = sorted(self._manager.all_steps(), reverse=True)
        for position, epoch in enumerate(steps):
            try:
                state = self._restore(epoch, state=self._ocp.args.StandardRestore(dict(_named(like)))).state
            except Exception as error:
                self._manager.delete(epoch)
                rest = "an older one is used" if position + 1 < len(steps) else "training starts from the beginning"
                warnings.warn(
                    f"the checkpoint of epoch {epoch} in {self._directory} cannot be read ({error}); {rest}",
                    RuntimeWarning,
                    stacklevel=2,
                )
            else:
                return epoch, [np.asarray(state[name]) for name, _ in _named(like)]
        return None

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
        if other:
            lines = [f"  {name}: {saved.get(name)} when saved, {self._identity.get(name)} now" for name in other]
            raise ValueError(
                f"{self._directory} holds the checkpoints of another run; name another directory, or go back to the "
                "arguments it was started with:\n" + "\n".join(lines)
            )


def _named(leaves: list[np.ndarray]) -> list[tuple[str, np.ndarray]]:
    return [(f"{number:04}", leaf) for number, leaf in enumerate(leaves)]


def identify_array(array: Any) -> str:
    """Shape, dtype and a hash of the values."""
    values = np.ascontiguousarray(array)
    return f"{values.dtype}{list(values.shape)} {hashlib.sha256(values.tobytes()).hexdigest()[:16]}"


def identify_function(function: Callable[..., Any], *examples: Any) -> str:
    """A hash of what a function computes: its operations on arguments of these shapes, and the constants in it."""
    program = jax.jit(function).trace(*examples).lower(lowering_platforms=("cpu",))
    return hashlib.sha256(program.as_text().encode()).hexdigest()[:16]
