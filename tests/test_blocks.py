"""Rows in blocks: the same results as for all rows at once, and blocks of exactly one size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mder_jax._blocks import host_blocks, map_host_blocks, map_traced_blocks

X = np.arange(14.0).reshape(7, 2)


def test_the_last_block_is_filled_with_the_last_row():
    blocks = list(host_blocks(3, X, {"columns": X[:, 0]}))
    assert [real for real, _ in blocks] == [3, 3, 1]
    assert all(x.shape == (3, 2) and tree["columns"].shape == (3,) for _, (x, tree) in blocks)
    np.testing.assert_array_equal(blocks[-1][1][0], X[[6, 6, 6]])


@pytest.mark.parametrize("rows", [1, 3, 7, 16])
def test_results_on_the_host_are_joined_and_cut_to_length(rows):
    seen = []

    def function(x, y):
        seen.append(len(x))
        return jnp.asarray(x + y), -x

    total, negative = map_host_blocks(function, rows, X, X)
    np.testing.assert_array_equal(total, 2 * X)
    np.testing.assert_array_equal(negative, -X)
    assert set(seen) == {rows} and isinstance(total, np.ndarray)


def test_rows_may_lie_along_another_axis_before_and_after():
    found = map_host_blocks(lambda x: x[None] + np.zeros((4, 1, 1)), 3, X.T, axis=1, joined_along=2)
    np.testing.assert_array_equal(found, np.broadcast_to(X.T, (4, 2, 7)))


@pytest.mark.parametrize("rows", [2, 7, 16])
def test_traced_blocks_give_what_all_rows_at_once_give(rows):
    def function(key, x, tree):
        return x * tree["members"].sum(axis=0)[:, None], jax.random.uniform(key, (len(x),))

    members, key = np.ones((3, 7)), jax.random.key(0)
    product, drawn = jax.jit(
        lambda x, members: map_traced_blocks(function, rows, key, x, {"members": members}, axes=(0, 1))
    )(X, members)
    np.testing.assert_array_equal(product, 3 * X)
    assert len(set(np.asarray(drawn).tolist())) == 7
