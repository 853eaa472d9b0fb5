"""How the cells of a column differ from those of training."""

from typing import NamedTuple

import numpy as np

from mder_jax._messages import quoted
from mder_jax.columns import ranges
from mder_jax.columns.column import PARTS, Column
from mder_jax.columns.complaints import share
from mder_jax.columns.reading import Values

OF_GAP, OF_OTHER, OF_UNSEEN = 0.1, 0.05, 1.0  # novelty
FAR = 0.8**4  # novelty of a number that is beyond its range by a fifth of the width: worth saying


class Judged(NamedTuple):
    """Novelty (N,), the rows that are outside (N,) bool, and what to say about them."""

    novelty: np.ndarray
    outside: np.ndarray
    sentences: list[str]


def judge(column: Column, read: Values) -> Judged:
    """Compare what was read with training."""
    category = column.kind == "category"
    judged = _of_category(column, read) if category else _of_numbers(column, read.values)
    if read.remark:
        judged.sentences.append(read.remark)
    return judged


def _of_numbers(column: Column, values: np.ndarray) -> Judged:
    judged = _of_gaps(column, np.isnan(values[:, 0]))
    novelty, beyond = judged.novelty, np.zeros(len(values), bool)
    sentences = judged.sentences
    for k, known in enumerate(column.ranges):
        here = (values[:, k] < known.low) | (values[:, k] > known.high)
        if not here.any():
            continue
        novelty[here] += ranges.novelty(values[here, k], known)
        far = here & (novelty > FAR)
        if far.any() and not beyond.any():
            where = f"far outside the range of training in {quoted(column.name)} ({_range(column, k)})"
            sentences.append(f"{share(int(far.sum()), len(values), 'is', 'are')} {where}")
        beyond |= far
    return Judged(novelty, judged.outside | beyond, sentences)


def _range(column: Column, k: int) -> str:
    known = column.ranges[k]
    low, high = known.low - known.below, known.high + known.above
    if not column.parts:
        return f"{low:.6g} to {high:.6g}"
    part = [part for part in column.parts for _ in range(PARTS[part])][k]
    if part in ("season", "clock"):
        return f"another {'season' if part == 'season' else 'time of day'}"
    from mder_jax.columns import dates

    return f"{dates.described(low, part)} to {dates.described(high, part)}"


def _of_gaps(column: Column, missing: np.ndarray) -> Judged:
    gaps = missing & (not column.gaps)
    count, sentences = int(gaps.sum()), []
    if count:
        rows = share(count, len(gaps), "has", "have")
        sentences.append(f"{rows} no value in {quoted(column.name)}, which had no gaps in training")
    return Judged(OF_GAP * gaps, gaps, sentences)


def _of_category(column: Column, read: Values) -> Judged:
    from mder_jax.columns import categories

    judged = _of_gaps(column, read.values == categories.GAP)
    unseen = read.values == categories.UNSEEN
    count = int(unseen.sum())
    if count:
        shown = ", ".join(f"{quoted(text)} ({times})" for text, times in read.unseen)
        more = " and others" if sum(times for _, times in read.unseen) < count else ""
        level = f"a level of {quoted(column.name)} that training had rarely or never"
        judged.sentences.append(f"{share(count, len(unseen), 'has', 'have')} {level}: {shown}{more}")
    novelty = judged.novelty + (OF_OTHER if column.other else OF_UNSEEN) * unseen
    return Judged(novelty, judged.outside | unseen, judged.sentences)
