"""Rows in blocks of one size: memory is bounded, and one compiled program serves any number of rows.

The last block is filled by repeating the last row. What is computed from the filling is cut off.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax


def host_blocks(rows: int, *trees: Any, axis: int = 0) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Blocks of exactly `rows` rows of pytrees of numpy arrays, each after its number of real rows.

    Example:
      >>> for real, (x,) in host_blocks(2, np.arange(3)):
      ...     print(real, x)
      2 [0 1]
      1 [2 2]
    """
    number = jax.tree.leaves(trees)[0].shape[axis]
    for start in range(0, number, rows):
        place = np.minimum(np.arange(start, start + rows), number - 1)
        yield min(rows, number - start), jax.tree.map(lambda leaf, place=place: np.take(leaf, place, axis), trees)


def map_host_blocks(function: Callable[..., Any], rows: int, *trees: Any, axis: int = 0, joined_along: int = 0) -> Any:
    """``function(*blocks)`` for all blocks of `host_blocks`, as numpy arrays joined along one of their axes.

    Every result is written into its place in the whole, so two copies of the whole never exist.

    Example:
      >>> print(map_host_blocks(lambda x: -x, 2, np.arange(3)))
      [ 0 -1 -2]
    """
    number = jax.tree.leaves(trees)[0].shape[axis]
    front, whole, start = (slice(None),) * joined_along, None, 0
    for real, block in host_blocks(rows, *trees, axis=axis):
        results = jax.tree.map(np.asarray, function(*block))
        if whole is None:
            whole = jax.tree.map(lambda leaf: np.empty(_with_length(leaf, joined_along, number), leaf.dtype), results)
        for total, leaf in zip(jax.tree.leaves(whole), jax.tree.leaves(results), strict=True):
            total[*front, start : start + real] = leaf[*front, :real]
        start += real
    return whole


def _with_length(leaf: np.ndarray, axis: int, length: int) -> tuple[int, ...]:
    return *leaf.shape[:axis], length, *leaf.shape[axis + 1 :]


def map_traced_blocks(function: Callable[..., Any], rows: int, key: Array, *trees: Any, axes: Sequence[int]) -> Any:
    """``function(key, *trees)``, a pytree of (N, ...), in a compiled program, block after block.

    Args:
      function: called with a separate key for each block; with `key` itself if there is only one.
      rows: of a block.
      key: of random numbers.
      trees: pytrees of arrays with N rows.
      axes: the axis of the rows, for each of the trees.
    """
    number = jax.tree.leaves(trees[0])[0].shape[axes[0]]
    if number <= rows:
        return function(key, *trees)
    blocks = -(-number // rows)

    def cut(axis: int, leaf: Array) -> Array:
        filling = [(0, blocks * rows - number if i == axis else 0) for i in range(leaf.ndim)]
        filled = jnp.pad(leaf, filling, mode="edge")
        return jnp.moveaxis(filled.reshape(*leaf.shape[:axis], blocks, rows, *leaf.shape[axis + 1 :]), axis, 0)

    parts = [jax.tree.map(partial(cut, axis), tree) for axis, tree in zip(axes, trees, strict=True)]
    results = lax.map(lambda block: function(*block), (jax.random.split(key, blocks), *parts))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:number], results)
