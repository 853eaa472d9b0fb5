"""What training gives back: trained members, and progress on the way."""

import functools
import pathlib
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from mder_jax._checks import chosen_rows
from mder_jax.ensemble._ensemble_file import PER_MEMBER, read, write
from mder_jax.ensemble.forward import Forward
from mder_jax.ensemble.members import PerMember, take
from mder_jax.networks import Network
from mder_jax.train.epochs import Losses


class Progress(NamedTuple):
    """What a callback sees.

    Args:
      epoch: epochs done.
      epochs: epochs to do.
      history: losses so far, (M, epoch).
      params: of all members, stacked.

    Example:
      >>> import jax, jax.numpy as jnp, optax
      >>> from mder_jax import Network, fit_ensemble
      >>> line = Network(lambda key, x: jax.random.normal(key, (1,)), lambda w, x: x @ w)
      >>> x = jnp.linspace(-1.0, 1.0, 50)[:, None]
      >>> squared = lambda output, y: (output - y) ** 2
      >>> options = dict(members=3, optimizer=optax.sgd(0.5), epochs=20, progress=False)
      >>> enough = lambda progress: bool(progress.history.train[:, -1].max() < 1e-3)  # True ends training
      >>> print(fit_ensemble(jax.random.key(0), line, squared, x, 2 * x[:, 0], **options, callback=enough).epochs < 20)
      True
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
      epochs: epochs that were run; fewer than requested after Ctrl-C, a callback's stop, or if all members ended.
      row_shape: shape of one row of X.
      seconds: time spent training in this process, without compiling.
      interrupted: whether Ctrl-C ended training.

    Example:
      >>> import jax, jax.numpy as jnp, optax
      >>> from mder_jax import Network, fit_ensemble
      >>> line = Network(lambda key, x: jax.random.normal(key, (1,)), lambda w, x: x @ w)
      >>> x = jnp.linspace(-1.0, 1.0, 50)[:, None]
      >>> squared = lambda output, y: (output - y) ** 2
      >>> options = dict(members=3, optimizer=optax.sgd(0.5), epochs=20, progress=False)
      >>> result = fit_ensemble(jax.random.key(0), line, squared, x, 2 * x[:, 0], **options)
      >>> print(result, len(result), result.params.shape, result.history.train.shape)
      Ensemble(3 members, 20 epochs, 0 diverged) 3 (3, 1) (3, 20)
    """

    network: Network | PerMember
    params: Any
    history: Losses
    diverged_at: np.ndarray
    stopped_at: np.ndarray
    best_epoch: np.ndarray
    epochs: int
    row_shape: tuple[int, ...]
    seconds: float
    interrupted: bool = False

    def __len__(self) -> int:
        return len(self.diverged_at)

    def __repr__(self) -> str:
        diverged = int(np.sum(self.diverged_at >= 0))
        return f"Ensemble({len(self)} members, {self.epochs} epochs, {diverged} diverged)"

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: without what is on devices."""
        return {name: value for name, value in self.__dict__.items() if name != "_forward"}

    @functools.cached_property
    def _forward(self) -> Forward:
        """The members on all devices, ready to predict; see `predict`."""
        return Forward(self.network, self.params)

    def save(self, path: str | pathlib.Path) -> None:
        """Write parameters and losses to one file, without pickle, completely or not at all; see `load_ensemble`.

        Example:
          >>> import jax, jax.numpy as jnp, optax, tempfile
          >>> from mder_jax import Network, fit_ensemble, load_ensemble
          >>> line = Network(lambda key, x: jax.random.normal(key, (1,)), lambda w, x: x @ w)
          >>> x = jnp.linspace(-1.0, 1.0, 50)[:, None]
          >>> squared = lambda output, y: (output - y) ** 2
          >>> options = dict(members=3, optimizer=optax.sgd(0.5), epochs=20, progress=False)
          >>> result = fit_ensemble(jax.random.key(0), line, squared, x, 2 * x[:, 0], **options)
          >>> with tempfile.TemporaryDirectory() as folder:
          ...     result.save(f"{folder}/ensemble.mder")
          ...     print(load_ensemble(f"{folder}/ensemble.mder", line))
          Ensemble(3 members, 20 epochs, 0 diverged)
        """
        arrays = {"history/train": self.history.train} | {name: getattr(self, name) for name in PER_MEMBER}
        if self.history.validation is not None:
            arrays["history/validation"] = self.history.validation
        numbers = {"epochs": self.epochs, "seconds": self.seconds, "interrupted": self.interrupted}
        write(path, self.params, numbers | {"row_shape": list(self.row_shape)}, arrays)

    def keep(self, members: Any) -> "Ensemble":
        """Some members only: a list of numbers or a mask, such as ``ensemble.diverged_at < 0``.

        Example:
          >>> import jax, jax.numpy as jnp, optax
          >>> from mder_jax import Network, fit_ensemble
          >>> line = Network(lambda key, x: jax.random.normal(key, (1,)), lambda w, x: x @ w)
          >>> x = jnp.linspace(-1.0, 1.0, 50)[:, None]
          >>> squared = lambda output, y: (output - y) ** 2
          >>> options = dict(members=3, optimizer=optax.sgd(0.5), epochs=20, progress=False)
          >>> result = fit_ensemble(jax.random.key(0), line, squared, x, 2 * x[:, 0], **options)
          >>> print(result.keep([0, 2]), result.keep(result.diverged_at < 0))
          Ensemble(2 members, 20 epochs, 0 diverged) Ensemble(3 members, 20 epochs, 0 diverged)
        """
        chosen = chosen_rows("members", members, len(self))
        if not chosen.size:
            raise ValueError("no member is left; name at least one")
        network = self.network
        if isinstance(network, PerMember):
            network = PerMember(take(network.values, chosen), network.build)
        names = ("params", "history", "diverged_at", "stopped_at", "best_epoch")
        return replace(self, network=network, **take({name: getattr(self, name) for name in names}, chosen))


def load_ensemble(path: str | pathlib.Path, network: Network | PerMember) -> Ensemble:
    """The ensemble of a file that `Ensemble.save` wrote. Any other file raises a `ModelFileError`.

    Args:
      path: of the file.
      network: that of the training: a file holds parameters, but no code. Their names and shapes are checked.

    Example:
      >>> import jax, jax.numpy as jnp, optax, tempfile
      >>> from mder_jax import Network, fit_ensemble, load_ensemble
      >>> line = Network(lambda key, x: jax.random.normal(key, (1,)), lambda w, x: x @ w)
      >>> x = jnp.linspace(-1.0, 1.0, 50)[:, None]
      >>> train = lambda **options: fit_ensemble(
      ...     jax.random.key(0), line, lambda output, y: (output - y) ** 2, x, 2 * x[:, 0], optimizer=optax.sgd(0.5),
      ...     epochs=10, members=3, progress=False, **options)
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     train().save(f"{folder}/ensemble.mder")
      ...     result = load_ensemble(f"{folder}/ensemble.mder", line)
      >>> print(train(init=result).params.round(2).ravel())  # trained further
      [2. 2. 2.]
    """
    return Ensemble(network=network, **read(path, network))
