r"""Extremely randomised trees that answer with rows: which of a table are like a new one, and what their targets say.

Each tree splits the rows at thresholds drawn at random, the best of one for each column, until the targets of a leaf
are equal (Geurts, Ernst and Wehenkel 2006). Here a leaf keeps one of its rows, drawn at random, so that the targets
y₁, …, y_T of the rows with which T trees answer are a sample of p(y | x):

.. math:: μ = \frac1T \sum_t y_t, \qquad C = \frac1T \sum_t (y_t - μ)(y_t - μ)^\top, \qquad κ = 1/\sum_i w_i^2

with the fraction wᵢ of trees that answer with row i: κ is the number of rows that the mean is worth. scikit-learn makes
the trees; predicting is numpy alone.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mder_jax._arguments import integer
from mder_jax._checks import doubles

__all__ = ["Answer", "Forest", "fit_forest"]

# Rows that are sent through all trees at once.
BLOCK = 1024


class Answer(NamedTuple):
    """What the trees say of N rows, in double precision.

    Attributes:
      mu: mean, (N, n).
      covariance: C, (N, n, n).
      kappa: κ, (N,), from 1 to the number of trees.

    Example:
      >>> X = np.arange(4.0)[:, None]
      >>> print(fit_forest(X, X, trees=3).predict(X).mu.shape)
      (4, 1)
    """

    mu: np.ndarray
    covariance: np.ndarray
    kappa: np.ndarray


class Forest(NamedTuple):
    """Trees as arrays over the nodes of all of them; the left child of a node follows it.

    Args:
      column: of X, whose value a node compares, (K,); of a leaf −1 − i, with the row i that it answers with.
      threshold: of the values that go left the largest one, (K,), in single precision.
      right: the right child, (K,).
      roots: the first node of each tree, (T,).
      targets: of the rows, (R, n).

    Example:
      >>> X = np.linspace(0, 1, 30)[:, None]
      >>> forest = fit_forest(X, X**2, trees=10)
      >>> print(forest.rows(X[:2]).shape, len(forest.roots))
      (2, 10) 10
    """

    column: np.ndarray
    threshold: np.ndarray
    right: np.ndarray
    roots: np.ndarray
    targets: np.ndarray

    def rows(self, X: np.ndarray) -> np.ndarray:
        """The row with which each tree answers, (N, d) -> (N, T).

        Example:
          >>> X = np.arange(4.0)[:, None]
          >>> print(fit_forest(X, X, trees=3).rows(X))  # each row of the fit with itself
          [[0 0 0]
           [1 1 1]
           [2 2 2]
           [3 3 3]]
        """
        X = self._checked(X)
        blocks = [self._rows_of_block(X[start : start + BLOCK]) for start in range(0, len(X), BLOCK)]
        return np.concatenate([np.empty((0, len(self.roots)), np.int32), *blocks])

    def _checked(self, X: np.ndarray) -> np.ndarray:
        X = _single("X", X)
        if X.ndim != 2 or X.shape[1] <= self.column.max(initial=-1):
            raise ValueError(f"X must have the columns of the fit; got shape {X.shape}")
        return X

    def _rows_of_block(self, X: np.ndarray) -> np.ndarray:
        """All pairs of a row and a tree go down at once; those that have arrived are left out."""
        (N, d), cells = X.shape, X.ravel()
        node, first = np.tile(self.roots, N), np.repeat(np.arange(N) * d, len(self.roots))
        found, place = np.empty(len(node), np.int32), np.arange(len(node))
        while len(node):
            column = self.column[node]
            inner = column >= 0
            if not inner.all():
                found[place[~inner]] = ~column[~inner]
                node, first, place, column = (part[inner] for part in (node, first, place, column))
            left = cells[first + column] <= self.threshold[node]
            node = np.where(left, node + 1, self.right[node])
        return found.reshape(N, -1)

    def predict(self, X: np.ndarray) -> Answer:
        """Mean, covariance and κ of the answers for rows (N, d).

        Example:
          >>> X = np.arange(4.0)[:, None]
          >>> answer = fit_forest(X, X, trees=3).predict(X[:1])
          >>> print(answer.mu, answer.covariance, answer.kappa)
          [[0.]] [[[0.]]] [1.]
        """
        X = self._checked(X)
        blocks = [self.answer(self._rows_of_block(X[start : start + BLOCK])) for start in range(0, len(X), BLOCK)]
        n = self.targets.shape[1]
        nothing = Answer(np.empty((0, n)), np.empty((0, n, n)), np.empty(0))
        return Answer(*map(np.concatenate, zip(nothing, *blocks, strict=True)))

    def answer(self, rows: np.ndarray) -> Answer:
        """The same given the rows with which trees answer, (N, T).

        Example:
          >>> X = np.arange(4.0)[:, None]
          >>> print(fit_forest(X, X, trees=3).answer(np.array([[0, 2]])).covariance)
          [[[1.]]]
        """
        y = self.targets[rows].astype(np.float64)
        mu = y.mean(axis=1)
        d = y - mu[:, None]
        return Answer(mu, np.swapaxes(d, 1, 2) @ d / y.shape[1], _worth(rows))

    def trees(self, chosen: slice) -> "Forest":
        """Some of the trees, one after the other.

        Example:
          >>> X = np.arange(4.0)[:, None]
          >>> print(len(fit_forest(X, X, trees=5).trees(slice(1, 3)).roots))
          2
        """
        ends = np.append(self.roots, len(self.column))
        first, last, step = chosen.indices(len(self.roots))
        if step != 1:
            raise ValueError(f"trees are taken one after the other; got {chosen}")
        nodes = np.s_[ends[first] : ends[last]]
        shifted = self.right[nodes] - ends[first], self.roots[first:last] - ends[first]
        return Forest(self.column[nodes], self.threshold[nodes], *shifted, self.targets)

    @classmethod
    def joined(cls, forests: Sequence["Forest"]) -> "Forest":
        """All trees of forests that answer with rows of the same table.

        Example:
          >>> X = np.arange(4.0)[:, None]
          >>> print(len(Forest.joined(2 * [fit_forest(X, X, trees=5)]).roots))
          10
        """
        starts = np.cumsum([0, *(len(forest.column) for forest in forests)])[:-1]
        right, roots = (
            np.concatenate([part + start for part, start in zip(parts, starts, strict=True)]).astype(np.int32)
            for parts in ([forest.right for forest in forests], [forest.roots for forest in forests])
        )
        column, threshold = (np.concatenate([forest[part] for forest in forests]) for part in (0, 1))
        return cls(column, threshold, right, roots, forests[0].targets)


def _worth(rows: np.ndarray) -> np.ndarray:
    """κ = 1/Σ wᵢ² of answers (N, T), (N,): T² over the sum of squares of how often each row is among them."""
    if not rows.size:
        return np.empty(len(rows))
    ordered = np.sort(rows, axis=1)
    N, T = ordered.shape
    begins = np.concatenate([np.ones((N, 1), bool), ordered[:, 1:] != ordered[:, :-1]], axis=1)
    counts = np.diff(np.append(np.flatnonzero(begins), N * T))
    return T * T / np.add.reduceat(counts.astype(np.float64) ** 2, np.cumsum([0, *begins.sum(axis=1)[:-1]]))


def _single(name: str, values: np.ndarray) -> np.ndarray:
    """In single precision, in which trees compare."""
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(doubles(name, values), np.float32)


def fit_forest(X: np.ndarray, Y: np.ndarray, trees: int = 100, seed: int = 0, rows: np.ndarray | None = None) -> Forest:
    """Trees of inputs (N, d) and standardised targets (N, n), both without gaps.

    Args:
      X: (N, d); a tree looks at one column at a time, so that scales matter little.
      Y: (N, n).
      trees: how many.
      seed: of the thresholds, and of the rows that leaves answer with.
      rows: indices of those to learn from; None for all.

    Example:
      >>> X = np.random.default_rng(0).uniform(size=(200, 2))
      >>> answer = fit_forest(X, X[:, :1] + X[:, 1:]).predict(np.array([[0.5, 0.5]]))
      >>> print(answer.mu.round(1))
      [[1.]]
    """
    from sklearn.ensemble import ExtraTreesRegressor

    X, Y = _single("X", X), doubles("Y", Y)
    if X.ndim != 2 or Y.ndim != 2 or len(X) != len(Y) or not Y.size:
        raise ValueError(f"X and Y must be (N, d) and (N, n) with N, n >= 1; got shapes {X.shape} and {Y.shape}")
    targets = _single("Y", Y)
    for name, values in (("X", X), ("Y", targets)):
        if not np.isfinite(values).all():
            raise ValueError(f"{name} must be finite")
    known = np.arange(len(X)) if rows is None else np.asarray(rows)
    if known.ndim != 1 or known.dtype.kind not in "iu" or not len(known) or known.min() < 0 or known.max() >= len(X):
        raise ValueError(f"rows must be indices of some of the {len(X)} rows; got {rows!r:.60}")
    if X.shape[1] == 0:
        X = np.zeros((len(X), 1), np.float32)
    count, seed = integer("trees", trees), integer("seed", seed, 0)
    random = np.random.default_rng(seed)
    model = ExtraTreesRegressor(count, random_state=seed, n_jobs=-1)
    model.fit(X[known], Y[known] if Y.shape[1] > 1 else Y[known, 0])
    each = zip(model.estimators_, model.apply(X[known]).T, strict=True)
    return Forest.joined([_of_tree(one.tree_, known, leaves, random, targets) for one, leaves in each])


def _of_tree(
    tree: Any, known: np.ndarray, leaves: np.ndarray, random: np.random.Generator, targets: np.ndarray
) -> Forest:
    """One tree of scikit-learn; `leaves` are those of the known rows."""
    left = tree.children_left
    inner = left >= 0
    if not np.array_equal(left[inner], np.flatnonzero(inner) + 1):
        raise RuntimeError("in the trees of this version of scikit-learn the left child does not follow its parent")
    order, answers = random.permutation(len(leaves)), np.zeros(len(left), np.int64)
    answers[leaves[order]] = known[order]
    threshold = tree.threshold.astype(np.float32)
    threshold = np.where(threshold > tree.threshold, np.nextafter(threshold, np.float32(-np.inf)), threshold)
    column, right = np.where(inner, tree.feature, ~answers), np.where(inner, tree.children_right, 0)
    root = np.zeros(1, np.int32)
    return Forest(column.astype(np.int32), np.where(inner, threshold, 0), right.astype(np.int32), root, targets)
