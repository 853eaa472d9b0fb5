"""What the networks of an estimator are, enough to build them again."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from mder_jax.links import niw_link, num_outputs
from mder_jax.networks import Network, mlp


class Design(NamedTuple):
    """What a network is, enough to build it again.

    Args:
      inputs: columns of X.
      targets: columns of Y.
      widths: of the hidden layers.
      activation: see `mlp`.
      r: the coupling ν = r κ.
      nu_max: upper bound of ν, see `niw_link`.
      relative: how L is packed, see `niw_link`.
    """

    inputs: int
    targets: int
    widths: tuple[int, ...]
    activation: str
    r: float
    nu_max: float | None
    relative: bool

    def network(self) -> Network:
        """From standardised rows to a NIW of standardised targets."""
        link = functools.partial(niw_link, n=self.targets, r=self.r, nu_max=self.nu_max, relative=self.relative)
        return mlp(self.widths, num_outputs(self.targets), self.activation, link)

    def shapes(self, members: int) -> Any:
        """Shapes and dtypes of the parameters of all members."""
        row = jax.ShapeDtypeStruct((1, self.inputs), jnp.float32)
        one = jax.eval_shape(self.network().init, jax.random.key(0), row)
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((members, *leaf.shape), leaf.dtype), one)
