r"""One training run as a pure function of a key.

`problem` holds what is trained, on what and how, with the checks that come first; `epochs` the run itself, which `fit`
makes for one network and `mder_jax.ensemble` for many at once.
"""

from functools import partial

import jax.numpy as jnp
import optax
from jax import Array, lax

from mder_jax.networks import Network
from mder_jax.train.epochs import Fit, Losses, begin, finish, run_epoch
from mder_jax.train.problem import Loss, Problem, Settings, as_data, check, on_device

__all__ = ["Fit", "Losses", "fit"]


def fit(
    key: Array,
    network: Network,
    loss: Loss,
    X: Array,
    Y: Array,
    *,
    optimizer: optax.GradientTransformation,
    epochs: int,
    batch_size: int | None = None,
    steps_per_epoch: int | None = None,
    weights: Array | None = None,
    validation: tuple[Array, Array] | tuple[Array, Array, Array] | None = None,
    patience: int | None = None,
    bootstrap: bool = False,
) -> Fit:
    """Train one network: a pure function of the key, for `jax.jit`, `jax.vmap` and `jax.grad`.

    Args:
      key: decides parameters, shuffles, bootstrap and dropout.
      network: see `Network`.
      loss: ``loss(network output, y) -> (rows,)``, one value per row, not reduced.
      X: inputs, (N, ...).
      Y: targets, (N, ...); NaN is passed to the loss.
      optimizer: any Optax optimizer; ``optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))`` clips gradients.
      epochs: passes over the data.
      batch_size: rows of a minibatch, the last of an epoch may be smaller; None for all.
      steps_per_epoch: minibatches that count as one epoch; None for one pass over the data.
      weights: of the rows, (N,), 0 or more; a batch's loss is Σ w l / Σ w.
      validation: (X, Y) or (X, Y, weights) held out; the run then returns the parameters of the best validation loss,
        a mean weighted like that of a batch.
      patience: epochs without a better validation loss after which to stop.
      bootstrap: train on N rows drawn with replacement.

    Example:
      >>> import jax
      >>> line = Network(lambda key, x: jnp.zeros(1), lambda w, x: x @ w)
      >>> x = jnp.linspace(-1.0, 1.0, 50)[:, None]
      >>> squared = lambda output, y: (output - y) ** 2
      >>> result = fit(jax.random.key(0), line, squared, x, 2 * x[:, 0], optimizer=optax.sgd(0.5), epochs=20)
      >>> print(result.params.round(2), result.history.train.shape)
      [2.] (20,)
    """
    problem = Problem(network, loss, optimizer, Settings(epochs, batch_size, steps_per_epoch, bootstrap, patience))
    data = as_data(X, Y, weights, validation)
    check(problem, data, key)
    data = on_device(data)
    state, plan = begin(problem, data, key)
    return finish(*lax.scan(partial(run_epoch, problem, data, plan), state, jnp.arange(epochs, dtype=jnp.int32)))
