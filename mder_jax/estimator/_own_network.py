"""Networks of the user in `MDERRegressor`: what they may be, and what they must return."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from mder_jax.estimator.recipe import usual_promotion
from mder_jax.links import num_outputs
from mder_jax.networks import Network, from_linen, from_nnx
from mder_jax.niw import NIW

KINDS = "a Network that returns a NIW, a Flax Linen module, or a function of rngs that builds a Flax NNX module"


def is_network(value: Any) -> bool:
    """Whether it may be a network: of the kinds above."""
    from flax import linen, nnx

    if isinstance(value, Network | linen.Module):
        return True
    is_class_of_linen = isinstance(value, type) and issubclass(value, linen.Module)
    return callable(value) and not isinstance(value, nnx.Module) and not is_class_of_linen


def as_network(value: Any, link: Callable[[Any], NIW] | None) -> Network:
    """The `Network` of a user's network; the link is applied to raw outputs, so not to those of a `Network`."""
    from flax import linen

    if isinstance(value, Network):
        return value
    return from_linen(value, link) if isinstance(value, linen.Module) else from_nnx(value, link)


def check_network(value: Any, inputs: int, targets: int) -> None:
    """Raise unless it returns, for rows (B, inputs), a NIW of the targets or as many raw outputs as its link needs."""
    rows = 3 if targets != 3 else 4  # so that rows and targets are told apart
    x = jax.ShapeDtypeStruct((rows, inputs), jnp.float32)
    try:
        network = as_network(value, None)
        with usual_promotion():
            params = jax.eval_shape(network.init, jax.random.key(0), x)
            output = jax.eval_shape(network.apply, params, x)
    except (TypeError, ValueError, AttributeError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"network does not accept standardised rows of shape ({rows}, {inputs}): {error}") from error
    if isinstance(value, Network):
        _check_niw(output, rows, targets)
        return
    wanted, got = (rows, num_outputs(targets)), getattr(output, "shape", None)
    if got != wanted:
        found = type(output).__name__ if got is None else f"shape {got}"
        raise ValueError(f"network must return num_outputs({targets}) raw outputs, shape {wanted}; got {found}")


def _check_niw(output: Any, rows: int, targets: int) -> None:
    if not isinstance(output, NIW):
        got = f"an array of shape {output.shape}" if hasattr(output, "shape") else f"a {type(output).__name__}"
        raise ValueError(f"network must return a NIW of the {targets} targets, as niw_link makes it; got {got}")
    wanted = {"mu": (rows, targets), "L": (rows, targets, targets), "kappa": (rows,), "nu": (rows,)}
    for name, shape in wanted.items():
        got = getattr(output, name).shape
        if got != shape:
            raise ValueError(f"{name} of the network's NIW must have shape {shape} for {rows} rows; got {got}")
