"""A Gaussian process as a further member of the ensemble."""

from typing import NamedTuple

import numpy as np

from mder_jax._checks import doubles
from mder_jax.estimator._judge import Candidate
from mder_jax.estimator._rows import Rows, plain_inputs
from mder_jax.niw import NIW
from mder_jax.process import Kernel, Process, best_kernel

# The process is given so many rows of a larger table, and has so many landmarks.
MOST_ROWS, LANDMARKS = 10_000, 1000
# At most this fraction of the rows is left out of the process whose predictions determine the weight.
MOST_LEFT_OUT = 0.35
# Of a row, relative to the mean.
LEAST_WEIGHT = 1e-9
# In single precision.
LARGEST = float(np.finfo(np.float32).max)
# What a file holds of the process.
PARTS = ("lengths", "variances", "landmarks", "precision_root", "coefficients", "Psi")


class ProcessMember(NamedTuple):
    """The process, and what it is given.

    Args:
      process: of standardised targets.
      embedded: columns of the standardised inputs with indices of levels, and the number of levels.
    """

    process: Process
    embedded: tuple[tuple[int, int], ...]

    def predict(self, X: np.ndarray) -> NIW:
        """For standardised rows (N, d), as arrays of numpy in single precision."""
        mu, L, kappa, nu = self.process.predict(plain_inputs(X, self.embedded))
        parts = mu, np.broadcast_to(L, (len(mu), *L.shape)), kappa, np.full(len(mu), nu)
        return NIW(*(np.asarray(part, np.float32) for part in parts))

    def candidate(self, judge_rows: Rows) -> Candidate:
        """For `Judge.blend`."""
        return Candidate.fixed(self.predict(judge_rows.X), judge_rows.Y)

    def given(self, rows: Rows, kept: np.ndarray) -> "ProcessMember":
        """The same kernel and landmarks, given the rows of a mask (N,)."""
        kernel, landmarks = self.process.kernel, self.process.landmarks
        return self._replace(process=Process.given(kernel, landmarks, *_data(rows, self.embedded, kept)))


def fit_process_member(rows: Rows, kept: np.ndarray, embedded: tuple[tuple[int, int], ...], seed: int) -> ProcessMember:
    """The process given the rows of a mask (N,); its landmarks are of these, or of a small table all rows."""
    known = _data(rows, embedded, kept)
    kernel = best_kernel(*known, seed=seed)
    several = np.flatnonzero(kept) if kept.sum() >= LANDMARKS else np.arange(len(rows.X))
    chosen = np.random.default_rng(seed).permutation(several)[:LANDMARKS]
    landmarks = plain_inputs(rows.X[np.sort(chosen)], embedded)
    return ProcessMember(Process.given(kernel, landmarks, *known), embedded)


def left_out(held_out: np.ndarray) -> np.ndarray:
    """Rows that the first members held out, a mask (N,): those of as many members as leave enough to the process."""
    rows = held_out[0].copy()
    for own in held_out[1:]:
        if np.mean(rows | own) <= MOST_LEFT_OUT:
            rows |= own
    return rows


def _data(
    rows: Rows, embedded: tuple[tuple[int, int], ...], kept: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Inputs, targets and weights of the rows of a mask that have all targets; of many rows some at random.

    Weights have a mean of 1, so that σ² is the noise of a usual row.
    """
    known = rows.complete(kept)
    if len(known) > MOST_ROWS:
        known = np.sort(np.random.default_rng(0).permutation(known)[:MOST_ROWS])
    weights = None if rows.weights is None else np.asarray(rows.weights, np.float64)[known]
    if weights is not None:
        weights = np.maximum(weights / weights.mean(), LEAST_WEIGHT)
    return plain_inputs(rows.X[known], embedded), np.asarray(rows.Y[known], np.float64), weights


def process_arrays(process: Process) -> dict[str, np.ndarray]:
    """For a file: all that the process is made of; of the triangular matrix the entries that are not 0."""
    kernel = process.kernel
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
    positive = lengths, variances, np.diagonal(root), np.linalg.eigvalsh(Psi)
    if not all(np.all(values > 0) for values in positive) or variances[3] <= targets + 1 or not np.allclose(Psi, Psi.T):
        raise ValueError("lengths, variances, and matrices of the process must be positive")
    linear, constant, noise, nu = map(float, variances)
    process = Process(Kernel(lengths, linear, constant, noise), landmarks, root, coefficients, Psi, nu)
    with np.errstate(all="ignore"):
        found = process.predict(np.concatenate([np.zeros((1, width)), landmarks]))
        mu, L, kappa = (np.asarray(part, np.float32) for part in found[:3])
    finite = all(np.isfinite(part).all() for part in (mu, L, kappa)) and nu < LARGEST
    if not finite or np.any(kappa <= 0) or np.any(np.diagonal(L) <= 0):
        raise ValueError("the process does not predict finite numbers")
    return process
