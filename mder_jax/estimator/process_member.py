"""A Gaussian process as a further member of the ensemble, with a weight that rows which networks held out determine."""

from typing import Any, NamedTuple

import jax
import numpy as np

from mder_jax._checks import doubles
from mder_jax.estimator._judge import Judge
from mder_jax.estimator._rows import Rows
from mder_jax.niw import NIW
from mder_jax.process import Kernel, Process, best_kernel

# The process is given so many rows of a larger table, and has so many landmarks.
MOST_ROWS, LANDMARKS = 10_000, 1000
# With fewer rows that have all targets, or more targets, there is no process.
FEWEST_ROWS, MOST_TARGETS = 10, 32
# A category with more levels is not given to the process.
MOST_LEVELS = 64
# Numbers are clipped smoothly within this, as in `table_network`.
CLIP = 3.0
# At most this fraction of the rows is left out of the process whose predictions determine the weight.
MOST_LEFT_OUT = 0.35
# What a file holds of the process.
PARTS = ("lengths", "variances", "landmarks", "precision_root", "coefficients", "Psi")
# A process with less weight is left out, since it takes time.
LEAST_WEIGHT = 0.02


class ProcessMember(NamedTuple):
    """The process, and what it is given.

    Args:
      process: of standardised targets.
      weight: in the mixture, between 0 and 1.
      embedded: columns of the standardised inputs with indices of levels, and the number of levels.
    """

    process: Process
    weight: float
    embedded: tuple[tuple[int, int], ...]

    def predict(self, X: np.ndarray) -> NIW:
        """For standardised rows (N, d), as arrays of numpy in single precision."""
        mu, L, kappa, nu = self.process.predict(inputs_of(X, self.embedded))
        parts = mu, np.broadcast_to(L, (len(mu), *L.shape)), kappa, nu
        return jax.tree.map(np.asarray, NIW(*map(np.float32, parts)))

    def log_weights(self, networks: int) -> np.ndarray:
        """ln w of so many networks, which share what the process leaves, and then its own, (networks + 1,)."""
        return np.log(np.append(np.full(networks, (1 - self.weight) / networks), self.weight)).astype(np.float32)

    def without(self, rows: Rows, left_out: np.ndarray) -> "ProcessMember":
        """The same kernel, landmarks and weight, given the rows of the fit but those of a mask (N,)."""
        kernel, landmarks = self.process.kernel, self.process.landmarks
        return self._replace(process=Process.given(kernel, landmarks, *_data(rows, self.embedded, ~left_out)))


def inputs_of(X: np.ndarray, embedded: tuple[tuple[int, int], ...]) -> np.ndarray:
    """What the process sees of standardised rows: numbers clipped smoothly, categories one-hot."""
    X = np.asarray(X, np.float64)
    numbers = np.delete(X, [column for column, _ in embedded], axis=1)
    levels = [X[:, [column]] == np.arange(count) for column, count in embedded if count <= MOST_LEVELS]
    return np.hstack([numbers / np.hypot(1.0, numbers / CLIP), *levels])


def fit_member(
    rows: Rows,
    held_out: np.ndarray | None,
    embedded: tuple[tuple[int, int], ...],
    judge: Judge,
    params: Any,
    seed: int,
) -> tuple[ProcessMember | None, float]:
    """The process beside networks with these parameters, or None if it is not worth it; and the factor on their L.

    Weight and factor are those of `Judge.blend`, of rows that neither the networks nor the process were given.

    Args:
      rows: of the fit, standardised.
      held_out: which of them the networks held out, (M, N); None if the judge has rows of its own.
      embedded: as in `ProcessMember`.
      judge: of the networks.
      params: of the networks.
      seed: of the choice of rows and landmarks.
    """
    left_out = np.zeros(len(rows.X), bool) if held_out is None else _left_out(held_out)
    kept = ~left_out & ~np.isnan(rows.Y).any(axis=1)
    if kept.sum() < FEWEST_ROWS or rows.Y.shape[1] > MOST_TARGETS:
        return None, judge.loss_and_factor(params)[1]
    known = _data(rows, embedded, kept)
    kernel = best_kernel(*known, seed=seed)
    chosen = np.random.default_rng(seed).permutation(len(rows.X))[:LANDMARKS]
    landmarks = inputs_of(rows.X[np.sort(chosen)], embedded)
    apart = ProcessMember(Process.given(kernel, landmarks, *known), 0.5, embedded)
    judged = np.ones(len(judge.index), bool) if held_out is None else left_out[judge.index]
    weight, factor = judge.blend(params, apart.predict(judge.rows.X), judged)
    if weight < LEAST_WEIGHT:
        return None, judge.loss_and_factor(params)[1]
    whole = apart._replace(weight=weight)
    return (whole if held_out is None else whole.without(rows, np.zeros(len(rows.X), bool))), factor


def _left_out(held_out: np.ndarray) -> np.ndarray:
    """Rows that the first members held out, a mask (N,): those of as many members as leave enough to the process."""
    left_out = held_out[0].copy()
    for own in held_out[1:]:
        if np.mean(left_out | own) <= MOST_LEFT_OUT:
            left_out |= own
    return left_out


def _data(
    rows: Rows, embedded: tuple[tuple[int, int], ...], kept: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Inputs, targets and weights of the rows of a mask that have all targets; of many rows those at equal steps."""
    known = np.flatnonzero(kept & ~np.isnan(rows.Y).any(axis=1))
    known = known[:: -(-len(known) // MOST_ROWS)]
    weights = None if rows.weights is None else np.asarray(rows.weights, np.float64)[known]
    return inputs_of(rows.X[known], embedded), np.asarray(rows.Y[known], np.float64), weights


def process_arrays(member: ProcessMember | None) -> dict[str, np.ndarray]:
    """For a file: all that the process is made of; of the triangular matrix the entries that are not 0."""
    if member is None:
        return {}
    kernel, process = member.process.kernel, member.process
    parts = {
        "lengths": kernel.lengths,
        "variances": np.array([*kernel[1:], process.nu]),
        "landmarks": process.landmarks,
        "precision_root": process.precision_root[np.tril_indices(len(process.landmarks))],
        "coefficients": process.coefficients,
        "Psi": process.Psi,
    }
    return {f"process/{name}": np.asarray(part, np.float64) for name, part in parts.items()}


def process_of(arrays: dict[str, np.ndarray], width: int, targets: int) -> Process:
    """The process of `process_arrays`, for inputs (N, width); a ValueError if they do not fit together."""
    parts = {name: doubles(name, arrays[f"process/{name}"]) for name in PARTS}
    lengths, variances, landmarks, entries, coefficients, Psi = parts.values()
    m = len(landmarks)
    shapes = {
        "lengths": (width,),
        "variances": (4,),
        "landmarks": (m, width),
        "precision_root": (m * (m + 1) // 2,),
        "coefficients": (m, targets),
        "Psi": (targets, targets),
    }
    for name, part in parts.items():
        if part.shape != shapes[name] or not np.isfinite(part).all():
            raise ValueError(f"{name} of the process must be finite, of shape {shapes[name]}; got {part.shape}")
    root = np.zeros((m, m))
    root[np.tril_indices(m)] = entries
    positive = lengths, variances[[0, 1, 2, 3]], np.diagonal(root), np.linalg.eigvalsh(Psi)
    if not all(np.all(values > 0) for values in positive) or variances[3] <= targets + 1 or not np.allclose(Psi, Psi.T):
        raise ValueError("lengths, variances, and matrices of the process must be positive")
    linear, constant, noise, nu = map(float, variances)
    return Process(Kernel(lengths, linear, constant, noise), landmarks, root, coefficients, Psi, nu)
