"""A forest as a further member of the ensemble; its trees leave out rows as networks do."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from mder_jax.estimator._judge import Candidate
from mder_jax.estimator._rows import Rows, plain_inputs
from mder_jax.forest import Answer, Forest, fit_forest
from mder_jax.niw import NIW

# Trees; fewer if all would have more nodes than this, but enough for a covariance.
TREES, MOST_NODES, FEWEST_TREES = 100, 4_000_000, 50
# Trees that leave out the same rows: not fewer than this.
FEWEST_OF_GROUP = 25
# A tree learns from at most so many rows.
MOST_ROWS = 40_000
# Degrees of freedom of its predictive t.
DF = 5.0
# Mean and standard deviation of the Gaussian priors of ln v and ln f, and where they are sought.
PRIORS = ((0.0, 1.0), (-5.0, 2.0))
LIMITS = ((-3.0, 3.0), (-14.0, 0.0))
# Of standardised targets.
LARGEST = 1e15
# What a file holds of the forest.
PARTS = Forest._fields


class ForestMember(NamedTuple):
    """The forest, and how its answers become a distribution: a t with scale matrix v C + f I and `DF` degrees.

    Args:
      forest: of standardised targets.
      groups: the networks that held out the rows which a group of trees did not learn from; the groups have equally
        many trees, one after the other.
      spread: v, a factor on the covariance C of the answers.
      floor: f.
      embedded: as in `ProcessMember`.
    """

    forest: Forest
    groups: tuple[tuple[int, ...], ...]
    spread: float
    floor: float
    embedded: tuple[tuple[int, int], ...]

    def predict(self, X: np.ndarray) -> NIW:
        """For standardised rows (N, d), as arrays of numpy in single precision."""
        mu, covariance, kappa = self.forest.predict(plain_inputs(X, self.embedded))
        scale = self.spread * covariance + self.floor * np.eye(mu.shape[1])
        nu = DF + mu.shape[1] - 1
        L = np.linalg.cholesky(scale * (DF / nu * kappa / (1 + kappa))[:, None, None])
        return NIW(*(np.asarray(part, np.float32) for part in (mu, L, kappa, np.full(len(mu), nu))))

    def candidate(self, judge_rows: Rows, held_out: np.ndarray | None) -> Candidate:
        """For `Judge.blend`, with θ = (ln v, ln f), by those trees that did not learn from a row.

        Args:
          judge_rows: of the judge, K of them.
          held_out: which networks held them out, (M, K); None for rows of which no tree knows.
        """
        rows, each = self.forest.rows(plain_inputs(judge_rows.X, self.embedded)), self._trees_of_group
        whole = self.forest.answer(rows)
        if held_out is not None:
            for number, members in enumerate(self.groups):
                own = held_out[members[0]]
                of_group = self.forest.answer(rows[own, number * each : (number + 1) * each])
                for all_rows, these in zip(whole, of_group, strict=True):
                    all_rows[own] = these
        return Candidate(_density_of(whole, judge_rows.Y), PRIORS, LIMITS)

    @property
    def _trees_of_group(self) -> int:
        return len(self.forest.roots) // len(self.groups)

    def of_members(self, members: tuple[int, ...]) -> "ForestMember | None":
        """The trees that did not learn from the rows which these networks, and no others, held out."""
        each = self._trees_of_group
        own = [number for number, group in enumerate(self.groups) if set(group) <= set(members)]
        if not own:
            return None
        parts = [self.forest.trees(slice(number * each, (number + 1) * each)) for number in own]
        return self._replace(forest=Forest.joined(parts), groups=tuple(self.groups[number] for number in own))


def fit_forest_member(
    rows: Rows, held_out: np.ndarray | None, embedded: tuple[tuple[int, int], ...], seed: int
) -> ForestMember:
    """Trees in groups: one for each set of rows that networks held out, (M, N), or one of all rows."""
    networks = [(0,)] if held_out is None else _alike(held_out)
    complete = rows.complete(np.ones(len(rows.X), bool))
    trees = min(TREES, max(FEWEST_TREES, MOST_NODES // (2 * min(len(complete), MOST_ROWS))))
    each = max(FEWEST_OF_GROUP, -(-trees // len(networks)))
    most = min(MOST_ROWS, MOST_NODES // (2 * each * len(networks)))
    inputs = plain_inputs(rows.X, embedded)
    forests, random = [], np.random.default_rng(seed)
    for number, members in enumerate(networks):
        known = complete if held_out is None else complete[~held_out[members[0], complete]]
        if len(known) > most:
            known = np.sort(random.permutation(known)[:most])
        forests.append(fit_forest(inputs, np.nan_to_num(rows.Y), each, (seed + number) % ((1 << 31) - 1), known))
    spread, floor = (float(np.exp(mean)) for mean, _ in PRIORS)
    return ForestMember(Forest.joined(forests), tuple(networks), spread, floor, embedded)


def _alike(held_out: np.ndarray) -> list[tuple[int, ...]]:
    """The networks that held out the same rows."""
    groups: dict[bytes, list[int]] = {}
    for number, own in enumerate(held_out):
        groups.setdefault(np.packbits(own).tobytes(), []).append(number)
    return [tuple(group) for group in groups.values()]


def _density_of(answer: Answer, Y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """ln p(y) at θ = (ln v, ln f), of Y (K, n) with NaN where a target is missing.

    With C = U Λ Uᵀ of the observed targets the scale matrix is U (v Λ + f) Uᵀ.
    """
    seen = ~np.isnan(Y)
    k, both = seen.sum(axis=1), seen[:, :, None] & seen[:, None, :]
    values, vectors = np.linalg.eigh(np.where(both, answer.covariance, 0.0))
    d = np.where(seen, Y - answer.mu, 0.0)
    turned = np.einsum("kij,ki->kj", vectors, d) ** 2
    missing = Y.shape[1] - k
    constant = gammaln(0.5 * (DF + k)) - gammaln(0.5 * DF) - 0.5 * k * np.log(np.pi * DF)

    def log_prob(theta: np.ndarray) -> np.ndarray:
        """A missing target is an eigenvalue 0 of C, whose factor f is taken out of the determinant again."""
        scales = np.exp(theta[0]) * np.maximum(values, 0.0) + np.exp(theta[1])
        log_determinant = np.log(scales).sum(axis=1) - missing * theta[1]
        return constant - 0.5 * log_determinant - 0.5 * (DF + k) * np.log1p((turned / scales).sum(axis=1) / DF)

    return log_prob


def within_limits(spread: float, floor: float) -> bool:
    """Whether v and f may be those of a fit."""
    both = zip((spread, floor), LIMITS, strict=True)
    return all(value > 0 and low - 1e-6 <= np.log(value) <= high + 1e-6 for value, (low, high) in both)


def forest_arrays(forest: Forest) -> dict[str, np.ndarray]:
    """For a file."""
    return {f"forest/{name}": part for name, part in zip(PARTS, forest, strict=True)}


def forest_of(arrays: dict[str, np.ndarray], width: int, targets: int, groups: int) -> Forest:
    """The forest of `forest_arrays`, for inputs (N, width); a ValueError if they do not fit together."""
    column, threshold, right, roots, Y = (arrays[f"forest/{name}"] for name in PARTS)
    K, trees = len(column), len(roots)
    kinds = all(part.dtype == np.int32 for part in (column, right, roots)) and threshold.dtype == Y.dtype == np.float32
    nodes = column.shape == right.shape == threshold.shape == (K,) and roots.shape == (trees,)
    if not (
        kinds and nodes and K and trees and trees % groups == 0 and Y.ndim == 2 and Y.shape[1] == targets and len(Y)
    ):
        raise ValueError(f"arrays of the forest are inconsistent: {K} nodes, {trees} trees, targets {Y.shape}")
    starts = roots[0] == 0 and np.all(np.diff(roots) > 0) and roots[-1] < K
    node, inner = np.arange(K), column >= 0
    end = np.append(roots[1:], K)[np.searchsorted(roots, node, "right") - 1]  # of the tree that a node is in
    below = np.all(right[inner] > node[inner] + 1) and np.all(right[inner] < end[inner])
    known = np.all(column < max(width, 1)) and np.all(~column[~inner] < len(Y))
    if not (starts and below and known and np.isfinite(threshold).all() and np.all(np.abs(Y) < LARGEST)):
        raise ValueError("the trees of the forest are inconsistent")
    return Forest(column, threshold, right, roots, Y)
