"""Which rows each member holds out for early stopping. A warm start recognises them by content and keeps them."""

from typing import NamedTuple

import numpy as np

from mder_jax.estimator.recipe import rows_held_out
from mder_jax.estimator.trained_rows import TrainedRows

# Copies of a row to hold out, where no copy was trained on.
ALL = np.iinfo(np.int32).max


class HeldOut(NamedTuple):
    """What is remembered of the rows that members hold out.

    Args:
      hashes: of distinct rows, uint64, sorted within each member, the members one after the other.
      copies: (K,), how many rows of this hash to hold out: as many as before if others of them were trained on.
      sizes: (M,), how many of the hashes are each member's.
    """

    hashes: np.ndarray
    copies: np.ndarray
    sizes: np.ndarray

    def members(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Hashes and copies of each member."""
        ends = np.cumsum(self.sizes)[:-1]
        return list(zip(np.split(self.hashes, ends), np.split(self.copies, ends), strict=True))


class Before(NamedTuple):
    """What a warm start knows: the rows that members held out, and all rows of the fits so far."""

    held_out: HeldOut
    rows: TrainedRows


class Split(NamedTuple):
    """The rows of a fit as remembered; the mask (M, N) of those that members hold out, and these as remembered."""

    rows: TrainedRows
    held: np.ndarray | None = None
    held_out: HeldOut | None = None


def choose(
    random: np.random.RandomState,
    hashes: np.ndarray,
    members: int,
    fraction: float,
    last: bool = False,
    groups: np.ndarray | None = None,
    before: Before | None = None,
) -> np.ndarray:
    """Which rows each member holds out, a mask (M, N): about `fraction` of them, at least one and never all.

    Args:
      random: draws the rows, or groups.
      hashes: of the rows, (N,).
      members: number of networks, M.
      fraction: of the rows.
      last: the last rows, not random ones.
      groups: (N,) numbers; whole groups are held out.
      before: rows that members held out before are held out again, and of rows that are new so many that the fraction
        is right.
    """
    kept, is_new = np.zeros((members, len(hashes)), bool), np.ones(len(hashes), bool)
    if before is not None:
        kept, is_new = _again(before.held_out, hashes), ~_is_known(before.rows, hashes)
    return np.stack([_of_member(random, own, is_new, fraction, last, groups) for own in kept])


def _of_member(
    random: np.random.RandomState,
    kept: np.ndarray,
    is_new: np.ndarray,
    fraction: float,
    last: bool,
    groups: np.ndarray | None,
) -> np.ndarray:
    if kept.all():
        raise ValueError(f"a member held out all of these {len(kept)} rows in the last fit; give other rows as well")
    if groups is not None and kept.any():
        kept = kept | _of_whole_groups(kept, is_new, groups)
    if not (kept.any() or is_new.any()):  # the held-out rows are gone, so some that were trained on are held out
        is_new = ~is_new
    wanted = max(rows_held_out(fraction, len(kept)) - int(kept.sum()), 0)
    free = np.flatnonzero(is_new & ~kept)
    if groups is not None:
        chosen = _groups_held_out(random, kept, free, wanted, groups)
    elif last:
        chosen = free[len(free) - min(wanted, len(free)) :]
    else:
        chosen = free[random.permutation(len(free))[:wanted]]
    held = kept.copy()
    held[chosen] = True
    return held


def _of_whole_groups(kept: np.ndarray, is_new: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The rows of groups of which all rows that are not new are held out."""
    trained = np.isin(groups, groups[~is_new & ~kept])
    return np.isin(groups, groups[kept]) & ~trained


def _groups_held_out(
    random: np.random.RandomState, kept: np.ndarray, free: np.ndarray, wanted: int, groups: np.ndarray
) -> np.ndarray:
    """Rows of random groups, all of whose rows are free, nearest to the number of rows that is wanted."""
    others = np.setdiff1d(np.arange(len(groups)), free)
    names, sizes = np.unique(groups[free][~np.isin(groups[free], groups[others])], return_counts=True)
    order = random.permutation(len(names))
    rows = np.concatenate([[0], np.cumsum(sizes[order])])
    least = 0 if kept.any() else 1
    most = len(names) if len(free) < np.sum(~kept) else len(names) - 1
    count = least + int(np.argmin(np.abs(rows[least : most + 1] - wanted))) if most >= least else 0
    return free[np.isin(groups[free], names[order[:count]])]


def _is_known(rows: TrainedRows, hashes: np.ndarray) -> np.ndarray:
    """Whether a row was in the table of a fit; where only the smallest hashes are remembered, others count as known."""
    known = np.isin(hashes, rows.hashes)
    return known if rows.whole else known | (hashes > rows.hashes[-1])


def _again(held_out: HeldOut, hashes: np.ndarray) -> np.ndarray:
    """The rows (M, N) that members held out before, of equal ones no more than then."""
    _, inverse, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    order = np.argsort(inverse, kind="stable")
    number = np.empty(len(hashes), np.int64)  # of a row among those that equal it
    number[order] = np.arange(len(hashes)) - np.repeat(np.cumsum(counts) - counts, counts)

    def of_member(own: np.ndarray, copies: np.ndarray) -> np.ndarray:
        if not len(own):
            return np.zeros(len(hashes), bool)
        place = np.minimum(np.searchsorted(own, hashes), len(own) - 1)
        return (own[place] == hashes) & (number < copies[place])

    return np.stack([of_member(*member) for member in held_out.members()])


def remember(held: np.ndarray, hashes: np.ndarray, before: HeldOut | None = None) -> HeldOut:
    """The rows of a mask (M, N) that `choose` made, and those remembered before."""
    found = []
    for member, own in enumerate(held):
        distinct, counts = np.unique(hashes[own], return_counts=True)
        copies = np.where(np.isin(distinct, hashes[~own]), counts, ALL).astype(np.int32)
        if before is not None:
            earlier, earlier_copies = before.members()[member]
            new = ~np.isin(distinct, earlier)
            distinct = np.concatenate([earlier, distinct[new]])
            copies = np.concatenate([earlier_copies, copies[new]])
        order = np.argsort(distinct)
        found.append((distinct[order], copies[order]))
    rows, copies = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return HeldOut(rows, copies, np.array([len(part) for part, _ in found], np.int64))
