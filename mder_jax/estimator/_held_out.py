"""Which rows each member holds out for early stopping. A warm start recognises them by content and keeps them."""

from typing import NamedTuple

import numpy as np

from mder_jax.estimator.recipe import rows_held_out
from mder_jax.estimator.trained_rows import TrainedRows

# Copies of a row to hold out, where no copy was trained on.
ALL = np.iinfo(np.int32).max
# Members that hold out the same rows: a mixture of so few is nearly as good as one of ten.
TOGETHER = 5


class HeldOut(NamedTuple):
    """What is remembered of the rows that members hold out.

    Args:
      hashes: of distinct rows, uint64, sorted within each member, the members one after the other.
      copies: (K,), how many rows of this hash to hold out: as many as before if others of them were trained on.
      trained: (K,), whether the member had trained on the row in an earlier fit, before it held it out.
      sizes: (M,), how many of the hashes are each member's.
    """

    hashes: np.ndarray
    copies: np.ndarray
    trained: np.ndarray
    sizes: np.ndarray

    def members(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Hashes, copies and `trained` of each member."""
        ends = np.cumsum(self.sizes)[:-1]
        return list(zip(*(np.split(part, ends) for part in self[:3]), strict=True))


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

    Blocks of up to five members, at least two blocks, hold out the same rows, so that a mixture can be judged by them.
    The rows, or groups, form a queue in random order. Each block takes the first ones, which then go to its end, so
    that none is held out twice before all are held out once.

    Args:
      random: shuffles the rows, or groups.
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
        kept, is_new = again(before.held_out, hashes), ~_is_known(before.rows, hashes)
    names = np.arange(len(hashes)) if groups is None else groups  # each row is a group of its own
    held: list[np.ndarray] = []
    queue = random.permutation(np.unique(names))
    block = min(TOGETHER, -(-members // 2))
    for number, own in enumerate(kept):
        if number % block and np.array_equal(own, kept[number - 1]):
            held.append(held[-1])
            continue
        rows = _of_member(own, is_new, fraction, last, groups, queue)
        taken = np.isin(queue, names[rows & ~own])
        queue = np.concatenate([queue[~taken], queue[taken]])
        held.append(rows)
    return np.stack(held)


def _of_member(
    kept: np.ndarray,
    is_new: np.ndarray,
    fraction: float,
    last: bool,
    groups: np.ndarray | None,
    queue: np.ndarray,
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
        chosen = _groups_held_out(queue, kept, free, wanted, groups)
    elif last:
        chosen = free[len(free) - min(wanted, len(free)) :]
    else:
        chosen = queue[np.isin(queue, free)][:wanted]
    held = kept.copy()
    held[chosen] = True
    return held


def _of_whole_groups(kept: np.ndarray, is_new: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The rows of groups of which all rows that are not new are held out."""
    trained = np.isin(groups, groups[~is_new & ~kept])
    return np.isin(groups, groups[kept]) & ~trained


def _groups_held_out(
    queue: np.ndarray, kept: np.ndarray, free: np.ndarray, wanted: int, groups: np.ndarray
) -> np.ndarray:
    """Rows of the first groups, all of whose rows are free, nearest to the number of rows that is wanted."""
    others = np.setdiff1d(np.arange(len(groups)), free)
    names = queue[np.isin(queue, groups[free]) & ~np.isin(queue, groups[others])]
    rows = np.concatenate([[0], np.cumsum(np.bincount(groups)[names])])
    least = 0 if kept.any() else 1
    most = len(names) if len(free) < np.sum(~kept) else len(names) - 1
    count = least + int(np.argmin(np.abs(rows[least : most + 1] - wanted))) if most >= least else 0
    return free[np.isin(groups[free], names[:count])]


def _is_known(rows: TrainedRows, hashes: np.ndarray) -> np.ndarray:
    """Whether a row was in the table of a fit; where only the smallest hashes are remembered, others count as known."""
    known = np.isin(hashes, rows.hashes)
    return known if rows.whole else known | (hashes > rows.hashes[-1])


def again(held_out: HeldOut, hashes: np.ndarray, never_trained: bool = False) -> np.ndarray:
    """The rows (M, N) that members held out before, of equal ones no more than then.

    With `never_trained` without those that a member had trained on in an earlier fit.
    """
    _, inverse, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    order = np.argsort(inverse, kind="stable")
    number = np.empty(len(hashes), np.int64)  # of a row among those that equal it
    number[order] = np.arange(len(hashes)) - np.repeat(np.cumsum(counts) - counts, counts)

    def of_member(own: np.ndarray, copies: np.ndarray, trained: np.ndarray) -> np.ndarray:
        if not len(own):
            return np.zeros(len(hashes), bool)
        place = np.minimum(np.searchsorted(own, hashes), len(own) - 1)
        return (own[place] == hashes) & (number < copies[place]) & ~(trained[place] & never_trained)

    return np.stack([of_member(*member) for member in held_out.members()])


def remember(
    held: np.ndarray, hashes: np.ndarray, before: HeldOut | None = None, rows_before: TrainedRows | None = None
) -> HeldOut:
    """The rows of a mask (M, N) that `choose` made, and those remembered before; `rows_before` of earlier fits."""
    found = []
    for member, own in enumerate(held):
        distinct, counts = np.unique(hashes[own], return_counts=True)
        copies = np.where(np.isin(distinct, hashes[~own]), counts, ALL).astype(np.int32)
        trained = np.zeros(len(distinct), bool) if rows_before is None else _is_known(rows_before, distinct)
        parts: tuple[np.ndarray, ...] = (distinct, copies, trained)
        if before is not None:
            earlier = before.members()[member]
            new = ~np.isin(distinct, earlier[0])
            parts = tuple(np.concatenate([old, part[new]]) for old, part in zip(earlier, parts, strict=True))
        order = np.argsort(parts[0])
        found.append([part[order] for part in parts])
    rows, copies, trained = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return HeldOut(rows, copies, trained, np.array([len(own) for own, _, _ in found], np.int64))


def folds_of_members(held_out: HeldOut | None, hashes: np.ndarray | None) -> list[tuple[tuple[int, ...], np.ndarray]]:
    """Members, and the indices of the rows that they and no others held out and never trained on.

    Args:
      held_out: what members held out, if anything.
      hashes: of the rows, (N,), if the rows of the fit are remembered.
    """
    needed, otherwise = "cv='members' needs rows that members held out", "calibrate with cv=5, or with other rows"
    if held_out is None or hashes is None:
        why = "the last fit held out none, since early_stopping was off, or it was given validation="
        why = why if hashes is not None else "a file of version 0.1.0 does not tell which"
        raise ValueError(f"{needed}; {why}; {otherwise}")
    held = again(held_out, hashes, never_trained=True).T
    sets, which = np.unique(held, axis=0, return_inverse=True)
    found = [
        (tuple(np.flatnonzero(members).tolist()), np.flatnonzero(which == number))
        for number, members in enumerate(sets)
        if members.any()
    ]
    if not found:
        raise ValueError(f"{needed}; of these {len(held)} rows they held out none that they had not trained on before")
    if len(found) < 2:
        same = "the single member" if held.shape[1] == 1 else "all members"
        raise ValueError(f"{needed}, each its own; {same} held out the same {held.any(axis=1).sum()} rows; {otherwise}")
    return found
