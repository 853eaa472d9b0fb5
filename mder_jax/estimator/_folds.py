"""Folds of the rows of a fit, and estimators that are each fitted without one of them."""

import contextlib
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from mder_jax._arguments import is_integer
from mder_jax.estimator._checks import rows_of


def folds_of(cv: Any, X: Any, Y: np.ndarray, kept: np.ndarray, groups: Any, random: np.random.RandomState) -> list[Any]:
    """Indices of the rows of each fold, without those that are not `kept`, a mask (N,).

    `cv` is a number of folds, which are drawn at random, of whole groups if there are groups; a list of the indices of
    each fold; or a scikit-learn splitter.
    """
    wanted = "an integer, 2 or more, 'members', a list with the indices of each fold, or a scikit-learn splitter"
    if is_integer(cv):
        count = int(kept.sum())
        if not 2 <= cv <= count:
            raise ValueError(f"cv must be {wanted}; of folds at most the {count} rows with a target; got {cv}")
        if groups is None:
            return [np.sort(fold) for fold in np.array_split(random.permutation(np.flatnonzero(kept)), int(cv))]
        from sklearn.model_selection import GroupKFold

        cv = GroupKFold(int(cv), shuffle=True, random_state=random)
    if hasattr(cv, "split") and not isinstance(cv, str | type):
        folds: Any = [test for _, test in cv.split(X, Y, groups)]
    elif isinstance(cv, Iterable) and not isinstance(cv, str | bytes | dict):
        folds = list(cv)
    else:
        raise ValueError(f"cv must be {wanted}; got {cv!r:.60}")
    checked = [_indices(fold, number, len(Y)) for number, fold in enumerate(folds)]
    _check_partition(checked, len(Y))
    used = [fold[kept[fold]] for fold in checked]
    return [fold for fold in used if len(fold)]


def _indices(fold: Any, number: int, rows: int) -> np.ndarray:
    try:
        found = np.asarray(fold)
    except ValueError:  # rows that differ in length
        found = np.zeros(())
    if found.ndim != 1 or not len(found) or found.dtype.kind not in "iu":
        raise ValueError(
            f"each fold of cv must be a list of indices of rows, at least one; fold {number} is {fold!r:.60}"
        )
    if found.min() < 0 or found.max() >= rows:
        wrong = found[(found < 0) | (found >= rows)][0]
        raise ValueError(f"indices of rows are 0 to {rows - 1}; fold {number} of cv holds {wrong}")
    return np.sort(found.astype(np.int64))


def _check_partition(folds: list[np.ndarray], rows: int) -> None:
    if len(folds) < 2:
        raise ValueError(f"cv must give 2 folds or more; got {len(folds)}")
    counts = np.bincount(np.concatenate(folds), minlength=rows)
    if np.any(counts != 1):
        row = int(np.argmax(counts != 1))
        raise ValueError(f"each row must be in exactly one fold of cv; row {row} is in {counts[row]}")


def fit_folds(
    model: Any,
    X: Any,
    T: np.ndarray,
    folds: Sequence[np.ndarray],
    random: np.random.RandomState,
    weights: np.ndarray | None,
    groups: np.ndarray | None,
) -> Iterator[tuple[Any, np.ndarray]]:
    """For each fold an estimator with the settings of `model`, fitted to the other folds, and the fold's mask, (N,).

    T are the targets that networks learn, (N, n). What columns hold, and how it is written, is as in the whole table.
    Groups are held out whole for early stopping, if it holds out rows at random.
    """
    settings = model.get_params(deep=False) | {"warm_start": False, "target_transform": None}
    groups = groups if model.early_stopping is True else None
    for number, fold in enumerate(folds):
        held_out = np.zeros(len(T), bool)
        held_out[fold] = True
        rows = ~held_out
        own = [None if values is None else values[rows] for values in (weights, groups)]
        settings["random_state"] = int(random.randint(2**31 - 1))
        fitted = type(model)(**settings)
        try:
            with _quiet():
                like = model.encoding_
                fitted._fit(rows_of(X, rows), T[rows], None, model.target_names_, own[0], None, own[1], like)
        except ValueError as error:
            raise ValueError(f"the fit without fold {number} of {len(folds)}, on {rows.sum()} rows: {error}") from error
        yield fitted, held_out


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What a fit warns of, `fit` has said of all rows; Ctrl-C ends it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.filterwarnings("error", "interrupted", RuntimeWarning)
        try:
            yield
        except RuntimeWarning:
            raise KeyboardInterrupt from None
