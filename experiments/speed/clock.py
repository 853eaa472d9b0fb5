"""Times taken in turn, so that a slow moment of the machine affects all identically, and the ratios made of them."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

K = TypeVar("K")
T = TypeVar("T")


def seconds(work: Callable[[], Any]) -> float:
    """The wall time of a call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turn(what: str, candidates: Mapping[K, Callable[[], T]], repeats: int) -> dict[K, list[T]]:
    """What every candidate returns, round after round."""
    values: dict[K, list[T]] = {name: [] for name in candidates}
    for number in range(repeats):
        for name, candidate in candidates.items():
            values[name].append(candidate())
        print(f"  {what}: round {number + 1} of {repeats}", flush=True)
    return values


def spread(values: Sequence[float] | np.ndarray) -> dict[str, float]:
    """Median and range."""
    return {"median": float(np.median(values)), "low": float(np.min(values)), "high": float(np.max(values))}


def ratio(above: Sequence[float], below: Sequence[float]) -> dict[str, float]:
    """Median and range of the ratios within a round."""
    return spread(np.array(above) / np.array(below))


def shown(values: dict[str, float], places: int = 1) -> str:
    """Median and range, as text."""
    return f"{values['median']:.{places}f} ({values['low']:.{places}f} to {values['high']:.{places}f})"


def verdict(what: str, values: dict[str, float], goal: float, at_least: bool, places: int = 1) -> str:
    """A line that says whether the median reaches its goal."""
    reached = values["median"] >= goal if at_least else values["median"] <= goal
    bound = "at least" if at_least else "at most"
    return f"{'reached' if reached else 'MISSED '}: {what}: {shown(values, places)}, goal {bound} {goal:g}"
