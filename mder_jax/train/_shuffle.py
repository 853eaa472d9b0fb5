"""A permutation for every pass over the data, evaluated place by place and without sorting."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

FEWEST_ROUNDS = 12


class Shuffle(NamedTuple):
    """A permutation of 0 … size−1: in each round every place has a partner, found with an offset, and a salt."""

    offsets: Array
    salts: Array
    needed: Array
    size: Array


def rounds_for(largest: int) -> int:
    """Rounds for this many places, enough that each place moves: it stays with probability 2^-rounds."""
    return max(FEWEST_ROUNDS, (10 * largest - 1).bit_length())


def shuffle_of_pass(seed: Array, number: Array, size: Array, rounds: int) -> Shuffle:
    """The shuffle for a pass over the data. Its bits are a hash: a generator's would cost more than the shuffle.

    `rounds` is enough for the largest size. A smaller size uses only the first of them, so its shuffle does not depend
    on the largest size.
    """
    round_number = jnp.arange(rounds, dtype=jnp.uint32)
    base = _mixed(_mixed(number.astype(jnp.uint32) ^ seed[0]) ^ seed[1])
    offsets = _mixed(base + np.uint32(2) * round_number) % size.astype(jnp.uint32)
    salts = _mixed(base + np.uint32(2) * round_number + np.uint32(1))
    needed = jnp.maximum(FEWEST_ROUNDS, 32 - lax.clz(10 * size - 1))
    return Shuffle(offsets.astype(jnp.int32), salts, needed, size)


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
    for number in range(len(shuffle.offsets)):
        partner = shuffle.offsets[number] - position
        partner = jnp.where(partner < 0, partner + shuffle.size, partner)
        hashed = (jnp.maximum(position, partner).astype(jnp.uint32) ^ shuffle.salts[number]) * np.uint32(0x9E3779B1)
        hashed = (hashed ^ (hashed >> 15)) * np.uint32(0x85EBCA77)
        swaps = (hashed >> 31) == 1
        if number >= FEWEST_ROUNDS:
            swaps &= number < shuffle.needed
        position = jnp.where(swaps, partner, position)
    return position
