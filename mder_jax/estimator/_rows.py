"""Standardised rows of a table."""

from typing import NamedTuple

import numpy as np

# A category with more levels is not given to members that are no networks.
MOST_LEVELS = 64
# Numbers are clipped smoothly within this, as in `table_network`.
CLIP = 3.0


class Rows(NamedTuple):
    """Standardised inputs (N, d) and targets (N, n), NaN where one was not observed, and weights (N,) or None."""

    X: np.ndarray
    Y: np.ndarray
    weights: np.ndarray | None = None

    def complete(self, kept: np.ndarray) -> np.ndarray:
        """Indices of the rows of a mask that have all targets."""
        return np.flatnonzero(kept & ~np.isnan(self.Y).any(axis=1))


def plain_inputs(X: np.ndarray, embedded: tuple[tuple[int, int], ...]) -> np.ndarray:
    """Standardised rows (N, d) for members that are no networks: numbers clipped smoothly, categories one-hot.

    `embedded` are the columns with indices of levels, and the number of levels.
    """
    X = np.asarray(X, np.float64)
    numbers = np.delete(X, [column for column, _ in embedded], axis=1)
    levels = [X[:, [column]] == np.arange(count) for column, count in embedded if count <= MOST_LEVELS]
    return np.hstack([numbers / np.hypot(1.0, numbers / CLIP), *levels])
