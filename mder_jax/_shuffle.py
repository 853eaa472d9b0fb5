"""A permutation for every pass over the data, evaluated place by place and without sorting."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

# Rounds of the shuffle. A row keeps its place in all of them with probability 2^-ROUNDS, and otherwise its place is
# uniform: the marginal of each row is uniform to 2e-4, below what a year of epochs could tell.
ROUNDS = 12


class Shuffle(NamedTuple):
    """A permutation of 0 … size−1: in each round every place has a partner, found with an offset, and a salt."""

    offsets: Array
    salts: Array
    size: Array


def shuffle_of_pass(seed: Array, number: Array, size: Array) -> Shuffle:
    """The shuffle for a pass over the data. Its bits are a hash: a generator's would cost more than the shuffle."""
    counter = number.astype(jnp.uint32) * np.uint32(2 * ROUNDS) + jnp.arange(2 * ROUNDS, dtype=jnp.uint32)
    offsets, salts = _mixed(_mixed(counter ^ seed[0]) ^ seed[1]).reshape(2, ROUNDS)
    return Shuffle((offsets % size.astype(jnp.uint32)).astype(jnp.int32), salts | np.uint32(1), size)


def _mixed(bits: Array) -> Array:
    """A bijection of 32 bits in which every bit of the result depends on all (the finaliser of MurmurHash3)."""
    bits = (bits ^ (bits >> 16)) * np.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> 13)) * np.uint32(0xC2B2AE35)
    return bits ^ (bits >> 16)


def shuffled(position: Array, shuffle: Shuffle) -> Array:
    r"""Where a shuffle sends a position from 0 to size − 1, without sorting: the swap-or-not shuffle.

    In each round every place x has the partner K − x mod size, and the two swap if a hash of the larger says so
    (Hoang, Morris and Rogaway, *An enciphering scheme based on a card shuffle*, 2012). It is a permutation whatever the
    hash. Sorting random numbers would be the most expensive part of a training step.
    """
    for offset, salt in zip(shuffle.offsets, shuffle.salts, strict=True):
        partner = offset - position
        partner = jnp.where(partner < 0, partner + shuffle.size, partner)
        hashed = (jnp.maximum(position, partner).astype(jnp.uint32) + np.uint32(0x9E3779B9)) * salt
        position = jnp.where((hashed >> 31) == 1, partner, position)
    return position
