"""The multilayer perceptron as a Flax module. It is imported when one is built, since importing Flax takes a while."""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from mder_jax.networks._dense import row_dot_general, uniform_fan_in

Initializer = Callable[..., Array]


class MLP(nn.Module):
    """Dense layers ``dense_0``, ``dense_1``, ... with an activation, and dropout while training, between them."""

    sizes: Sequence[int]
    activation: Callable[[Array], Array]
    dropout: float = 0.0
    kernel_init: Initializer | None = None
    bias_init: Initializer | None = None

    @nn.compact
    def __call__(self, x: Array, training: bool = False) -> Array:
        """From rows (B, d) to raw outputs (B, sizes[-1])."""
        x = x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(jnp.result_type(float))
        zeros = nn.initializers.zeros
        for i, size in enumerate(self.sizes):
            if i:
                x = nn.Dropout(self.dropout, deterministic=not training)(self.activation(x))
            x = nn.Dense(
                size,
                kernel_init=self.kernel_init or zeros,
                bias_init=self.bias_init or zeros,
                param_dtype=x.dtype,
                dot_general=row_dot_general,
                name=f"dense_{i}",
            )(x)
        return x

    def initial(self, key: Array, x: Array) -> Any:
        """Parameters for rows like x: by the initialisers that were given, else uniform in ±1/√fan_in."""
        made = self.init(key, x)["params"]
        drawn = uniform_fan_in(key, made)
        given = {"kernel": self.kernel_init is not None, "bias": self.bias_init is not None}
        return {
            layer: {name: (made if given[name] else drawn)[layer][name] for name in params}
            for layer, params in made.items()
        }
