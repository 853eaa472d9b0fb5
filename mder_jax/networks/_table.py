"""The network for tables: numbers through a periodic embedding, categories as learned vectors, then dense layers."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from mder_jax.networks._dense import as_floats, row_product
from mder_jax.networks._vectors import EMBEDDING_STD, embedding_size
from mder_jax.networks.embeddings import PeriodicEmbedding, normal, smooth_clip


@dataclass(frozen=True)
class TableNetwork:
    """Sizes of the network, and how its parameters are drawn and used; see `mder_jax.table_network`."""

    sizes: tuple[int, ...]
    activation: Callable[[Array], Array] | None  # None: x σ(β x), its sharpness β learned for each unit
    periodic: tuple[int, ...] | None  # None: all columns that are no indices
    embedded: tuple[tuple[int, int], ...]
    embedding: PeriodicEmbedding
    sharpness: tuple[float, float]
    clip: float

    def init(self, key: Array, x: Array) -> Any:
        """Parameters for rows like x, (B, d), all from one draw: each draw is a separate loop to compile."""
        x = as_floats(x)
        waves, plain = self._columns(x.shape[1])
        vectors = [(levels, embedding_size(levels)) for _, levels in self.embedded]
        inputs = len(waves) * self.embedding.size + len(plain) + sum(size for _, size in vectors)
        layers = list(zip((inputs, *self.sizes[:-1]), self.sizes, strict=True))
        counts = [1, self.embedding.count(len(waves)) if waves else 0]
        counts += [math.prod(shape) for shape in vectors] + [(wide + 1) * out for wide, out in layers]
        draw = jax.random.uniform(key, (sum(counts),), x.dtype, -1, 1)
        sharp, numbers, *rest = jnp.split(draw, np.cumsum(counts)[:-1])
        params: dict[str, Any] = {}
        if waves:
            params["numbers"] = self.embedding.from_draw(numbers, len(waves))
        for i, shape in enumerate(vectors):
            params[f"embedding_{i}"] = {"embedding": EMBEDDING_STD * normal(rest[i]).reshape(shape)}
        low, high = map(math.log, self.sharpness)
        beta = low + (high - low) * 0.5 * (1 + sharp[0])
        for i, (wide, out) in enumerate(layers):
            kernel, bias = jnp.split(rest[len(vectors) + i] / math.sqrt(wide), [wide * out])
            params[f"dense_{i}"] = {"kernel": kernel.reshape(wide, out), "bias": bias}
            if self.activation is None and i + 1 < len(layers):
                params[f"dense_{i}"]["log_sharpness"] = jnp.full((out,), beta)
        return params

    def apply(self, params: Any, x: Array) -> Array:
        """From rows (B, d) to raw outputs (B, sizes[-1])."""
        hidden = self._inputs(params, as_floats(x))
        for i in range(len(self.sizes)):
            layer = params[f"dense_{i}"]
            hidden = row_product(hidden, layer["kernel"]) + layer["bias"][None]
            if i + 1 < len(self.sizes):
                hidden = self._activated(layer, hidden)
        return hidden

    def _activated(self, layer: Any, hidden: Array) -> Array:
        if self.activation is not None:
            return self.activation(hidden)
        return hidden * jax.nn.sigmoid(jnp.exp(layer["log_sharpness"])[None] * hidden)

    def _inputs(self, params: Any, x: Array) -> Array:
        """What the first dense layer sees: embedded numbers, plain columns and the vectors of categories."""
        waves, plain = self._columns(x.shape[1])
        parts = []
        if waves:
            parts.append(self.embedding.apply(params["numbers"], smooth_clip(_taken(x, waves), self.clip)))
        if plain:
            parts.append(smooth_clip(_taken(x, plain), self.clip))
        for i, (column, _) in enumerate(self.embedded):
            parts.append(params[f"embedding_{i}"]["embedding"][x[:, column].astype(jnp.int32)])
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=1)

    def _columns(self, columns: int) -> tuple[list[int], list[int]]:
        """The columns that go through waves, and those that go in as they are."""
        named = [column for column, _ in self.embedded] + list(self.periodic or ())
        if named and max(named) >= columns:
            raise ValueError(f"column {max(named)} is named, but x has {columns} columns, counted from 0")
        indices = {column for column, _ in self.embedded}
        numbers = [column for column in range(columns) if column not in indices]
        waves = numbers if self.periodic is None else list(self.periodic)
        return waves, [column for column in numbers if column not in waves]


def _taken(x: Array, columns: Sequence[int]) -> Array:
    return x if len(columns) == x.shape[1] else x[:, np.asarray(columns)]
