"""From the tables that `fit` is given to the standardised rows that networks train on."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mder_jax import columns
from mder_jax._arguments import target_names
from mder_jax.columns import Encoding
from mder_jax.estimator import _checks
from mder_jax.estimator._predictor import Predictor
from mder_jax.estimator._rows import Rows
from mder_jax.estimator._standardizer import Standardizer, standardizer_of
from mder_jax.estimator.target_transforms import TargetTransforms, fit_transforms, kinds_of


class Table(NamedTuple):
    """Rows with at least one target and a weight above 0, after all checks.

    Attributes:
      X: (N, d), any table that `columns` reads.
      Y: (N, n), NaN for targets that were not observed.
      weights: (N,), or None.
      groups: (N,) numbers, or None.
      flat: whether y was (N,).
      names: of the targets, if they have any.
    """

    X: Any
    Y: np.ndarray
    weights: np.ndarray | None
    groups: np.ndarray | None
    flat: bool
    names: list[str] | None


def checked(model: Any, X: Any, y: Any, named: Sequence[str] | None, sample_weight: Any, groups: Any) -> Table:
    """The arguments of `fit`; the columns of X become those of the model."""
    X, Y, flat, names = _checks.checked_table(model, X, y, reset=True)
    names = names if named is None else list(target_names(named, Y.shape[1]))
    weights, groups = _checks.checked_weights(sample_weight, len(Y)), _checks.checked_groups(groups, len(Y))
    kept = _checks.rows_to_train_on(Y, weights, names)
    if not kept.all():
        X, Y = _checks.rows_of(X, kept), Y[kept]
        weights, groups = (None if part is None else part[kept] for part in (weights, groups))
    return Table(X, Y, weights, groups, flat, names)


class Preparation(NamedTuple):
    """How tables become standardised rows: what becomes of columns and targets, and the standardisers of both.

    `numbers` are the encoded columns with three values or more: neither indicators nor indices of levels.
    """

    encoding: Encoding
    transform: TargetTransforms | None
    inputs: Standardizer
    targets: Standardizer
    numbers: tuple[int, ...]

    def rows(self, X: np.ndarray, Y: np.ndarray, weights: np.ndarray | None) -> Rows:
        """Encoded inputs (N, width) and targets in original units (N, n), standardised."""
        return Rows(self.inputs.forward(X), self.targets.forward(_transformed(self.transform, Y)), weights)


def _transformed(transform: TargetTransforms | None, Y: np.ndarray) -> np.ndarray:
    return Y if transform is None else transform.checked(Y)


def of_validation(
    preparation: Preparation, validation: tuple[Any, np.ndarray, np.ndarray | None] | None
) -> Rows | None:
    """Checked inputs, targets and weights of the rows to validate with, standardised; None for None."""
    if validation is None:
        return None
    try:
        return preparation.rows(preparation.encoding.encode(validation[0]).X, *validation[1:])
    except ValueError as error:
        raise ValueError(f"validation: {error}") from None


def learn(
    table: Table, categorical: Sequence[Any] | None, target_transform: Any, standardize: bool, like: Encoding | None
) -> tuple[Preparation, np.ndarray]:
    """The preparation that a table asks for, and its encoded inputs; warnings tell what is wrong with the table.

    `like` is as in `columns.learn`, for some of the rows of a table.
    """
    Y, names = table.Y, target_names(table.names, table.Y.shape[1])
    transform = fit_transforms(target_transform, Y, names)
    T = _transformed(transform, Y)
    _checks.warn_of_degenerate_targets(T, table.names)
    encoding, (X, _, _) = columns.learn(table.X, categorical if like is None else None, like=like)
    for leak in columns.leaks(encoding.numbers(X), Y, names):
        warnings.warn(f"{leak}; leave it out unless it is known when you predict", UserWarning, stacklevel=5)
    indices = [column for column, _ in encoding.embedded]
    inputs = standardizer_of(X, standardize, np.inf, table.weights, as_they_are=indices)
    numbers = tuple(j for j in range(X.shape[1]) if j not in indices and _has_three_values(X[:, j]))
    return Preparation(encoding, transform, inputs, standardizer_of(T, standardize, weights=table.weights), numbers), X


def _has_three_values(values: np.ndarray) -> bool:
    return bool(np.any((values != values.min()) & (values != values.max())))


def resumed(table: Table, encoding: Encoding, last: Predictor, target_transform: Any) -> tuple[Preparation, np.ndarray]:
    """The preparation of the last fit, which a warm start keeps, and the encoded inputs of this table."""
    names = target_names(table.names, table.Y.shape[1])
    settings = [None] * len(names) if last.transform is None else last.transform.settings()
    before, now = kinds_of(settings, names), kinds_of(target_transform, names)
    if before != now:
        raise ValueError(f"warm_start keeps the target_transform of the last fit, {before}; it is {now} now")
    _checks.warn_of_degenerate_targets(_transformed(last.transform, table.Y), table.names)
    numbers = last.design.periodic or ()
    return Preparation(encoding, last.transform, last.inputs, last.targets, numbers), encoding.encode(table.X).X
