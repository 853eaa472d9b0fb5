"""What a user should know after training: what went wrong, and the likely reason."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from mder_jax.ensemble.members import Job
from mder_jax.ensemble.results import Ensemble
from mder_jax.train.problem import Data, Problem, needs_complete_targets

# Means and standard deviations within these bounds are about 0 and 1.
LARGEST_MEAN, LARGEST_STD, SMALLEST_STD = 10.0, 10.0, 0.1


def troubles(result: Ensemble, job: Job, resumes: bool) -> Iterator[str]:
    """Sentences about an interruption, members that diverged, and validation losses that were never finite."""
    if result.interrupted:
        yield (
            f"interrupted: the members are returned as they are after {result.epochs} of {job.settings.epochs} epochs"
            + (", and the same call resumes from there" if resumes else "")
        )
    diverged = np.flatnonzero(result.diverged_at >= 0)
    if len(diverged):
        named = ", ".join(f"{member} (epoch {result.diverged_at[member]})" for member in diverged[:10])
        more = f" and {len(diverged) - 10} more" if len(diverged) > 10 else ""
        first = int(diverged[np.argmin(result.diverged_at[diverged])])
        problem, data = job.number(first)
        at_once = result.diverged_at[first] == 0 and _fails_with_gaps(job, first, problem, data.X, data.Y)
        yield (
            f"{len(diverged)} of {len(result)} members became non-finite and keep the last good parameters: "
            f"{named}{more}{_gaps('Y') if at_once else _scales(data)}"
        )
    lost = np.flatnonzero((result.best_epoch < 0) & (result.diverged_at < 0))
    if job.parts.data.validation is not None and len(lost):
        problem, data = job.number(int(lost[0]))
        fails = data.validation is not None and _fails_with_gaps(job, int(lost[0]), problem, *data.validation[:2])
        yield (
            f"the validation loss of {len(lost)} members was never finite, so the last parameters are kept: "
            f"{lost.tolist()[:10]}{_gaps('validation Y') if fails else ''}"
        )


def _fails_with_gaps(job: Job, member: int, problem: Problem, X: Any, Y: Any) -> bool:
    return needs_complete_targets(problem, np.asarray(X), np.asarray(Y), job.key(job.key_data[member]))


def _gaps(name: str) -> str:
    return f"; {name} holds NaN: does the loss accept missing targets?"


def _scales(data: Data) -> str:
    """Which of X and Y are far from means of 0 and standard deviations of 1, if any."""
    counts = slice(None) if data.weights is None else np.asarray(data.weights) > 0
    hints = [_scale(name, np.asarray(part)[counts]) for name, part in (("X", data.X), ("Y", data.Y))]
    return "".join(hints)


def _scale(name: str, values: np.ndarray) -> str:
    if values.dtype.kind != "f":
        return ""
    columns = [column[~np.isnan(column)] for column in values.reshape(len(values), -1).T.astype(np.float64)]
    means = [abs(float(column.mean())) for column in columns if len(column)]
    stds = [float(column.std()) for column in columns if len(column)]
    spread = [std for std in stds if std > 0] or [1.0]
    if max(means, default=0.0) <= LARGEST_MEAN and max(spread) <= LARGEST_STD and min(spread) >= SMALLEST_STD:
        return ""
    of = f"means up to {max(means):.3g} and standard deviations from {min(spread):.3g} to {max(spread):.3g}"
    return f"; {name} has {of}, far from 0 and 1: standardise it"
