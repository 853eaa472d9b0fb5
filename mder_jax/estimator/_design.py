"""The networks of an estimator, as settings to build them from."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from mder_jax.links import niw_link, num_outputs
from mder_jax.networks import Network, mlp


class Design(NamedTuple):
    """Columns of X and Y, widths and activation of `mlp`, and the options r, nu_max and relative of `niw_link`."""

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
