"""The multilayer perceptron as a Flax module. It is imported when one is built, since importing Flax takes a while."""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import Array

from mder_jax.networks._dense import as_floats, row_dot_general, uniform_fan_in
from mder_jax.networks._vectors import EMBEDDING_STD, embedding_size

Initializer = Callable[..., Array]


class MLP(nn.Module):
    """Dense layers ``dense_0``, ``dense_1``, ... with an activation, and dropout while training, between them.

    Columns of x that hold indices of levels, `embedded` (column, levels), are first replaced by learned vectors, the
    rows of ``embedding_0``, ``embedding_1``, ...
    """

    sizes: Sequence[int]
    activation: Callable[[Array], Array]
    dropout: float = 0.0
    kernel_init: Initializer | None = None
    bias_init: Initializer | None = None
    embedded: Sequence[tuple[int, int]] = ()

    @nn.compact
    def __call__(self, x: Array, training: bool = False) -> Array:
        """From rows (B, d) to raw outputs (B, sizes[-1])."""
        x, zeros = self._with_vectors(as_floats(x)), nn.initializers.zeros
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

    def _with_vectors(self, x: Array) -> Array:
        """Rows with the columns of indices replaced by learned vectors, at the end."""
        if not self.embedded:
            return x
        columns = [column for column, _ in self.embedded]
        if max(columns) >= x.shape[1]:
            raise ValueError(f"embedded names column {max(columns)}, but x has {x.shape[1]} columns, counted from 0")
        parts = [x[:, np.setdiff1d(np.arange(x.shape[1]), columns)]]
        for i, (column, levels) in enumerate(self.embedded):
            draw, size = nn.initializers.normal(EMBEDDING_STD), embedding_size(levels)
            table = nn.Embed(levels, size, embedding_init=draw, param_dtype=x.dtype, name=f"embedding_{i}")
            parts.append(table(x[:, column].astype(jnp.int32)))
        return jnp.concatenate(parts, axis=1)

    def initial(self, key: Array, x: Array) -> Any:
        """Parameters for rows like x: by the initialisers that were given, else uniform in ±1/√fan_in."""
        made = self.init(key, x)["params"]
        vectors = {name: table for name, table in made.items() if name.startswith("embedding")}
        dense = {name: layer for name, layer in made.items() if name not in vectors}
        drawn = uniform_fan_in(key, dense)
        given = {"kernel": self.kernel_init is not None, "bias": self.bias_init is not None}
        chosen = {
            layer: {name: (made if given[name] else drawn)[layer][name] for name in params}
            for layer, params in dense.items()
        }
        return chosen | vectors
