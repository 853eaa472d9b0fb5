"""What `MDERRegressor` requires of its settings and its table."""

import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.validation import check_array, check_consistent_length, validate_data

from mder_jax._arguments import in_order, is_integer, names_of, target_names
from mder_jax._checks import doubles
from mder_jax.estimator._own_network import KINDS, is_network
from mder_jax.estimator._predictor import Design, Predictor
from mder_jax.estimator.beside import KINDS as KINDS_BESIDE
from mder_jax.networks import ACTIVATIONS, LEARNED

# Of early_stopping: the rows at the end of the table are held out.
LAST = "last"
KNOWN = (LEARNED, *ACTIVATIONS)
RESUMES = "warm_start resumes from the networks of the last fit"


def check_settings(settings: dict[str, Any]) -> None:
    """Raise with the name of a wrong setting, its value and what would be right."""
    count = _is_count, "an integer, 1 or more"
    positive = _is_positive, "a number above 0"
    auto = lambda value: _is_auto(value) or _is_count(value), "'auto' or an integer, 1 or more"
    rules: dict[str, tuple[Callable[[Any], bool], str]] = {
        "hidden_layer_sizes": (_are_widths, "integers above 0"),
        "activation": (lambda name: isinstance(name, str) and name in KNOWN, f"one of {', '.join(KNOWN)}"),
        "embedding": (
            lambda value: value is None or (isinstance(value, str) and value == "periodic"),
            "'periodic' or None",
        ),
        "r": positive,
        "nu_max": (lambda value: value is None or _is_number(value), "None or a number"),
        "alpha": (
            lambda value: _is_auto(value) or _is_positive(value) or (_is_number(value) and value == 0),
            "'auto' or a number, 0 or more",
        ),
        "learning_rate_init": (lambda value: _is_auto(value) or _is_positive(value), "'auto' or a number above 0"),
        "batch_size": auto,
        "n_iter_no_change": auto,
        "validation_fraction": (lambda value: _is_positive(value) and value < 1, "a fraction between 0 and 1"),
        "network": (lambda value: value is None or is_network(value), f"None, {KINDS}"),
        "loss": (lambda value: value is None or callable(value), "None or a function of (niw, y), one value per row"),
        "beside": (_are_kinds, f"None, or a list of some of {', '.join(KINDS_BESIDE)}"),
        "early_stopping": (_is_early_stopping, "True, False or 'last'"),
        "members": count,
        "max_iter": auto,
    }
    for name, (is_valid, wanted) in rules.items():
        if not is_valid(settings[name]):
            raise ValueError(f"{name} must be {wanted}; got {settings[name]!r:.60}")


def _are_kinds(values: Any) -> bool:
    if values is None:
        return True
    names = isinstance(values, list | tuple) and all(isinstance(value, str) for value in values)
    return names and len(set(values)) == len(values) and set(values) <= set(KINDS_BESIDE)


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def _is_early_stopping(value: Any) -> bool:
    return isinstance(value, bool | np.bool_) or (isinstance(value, str) and value == LAST)


def _is_count(value: Any) -> bool:
    return is_integer(value) and 1 <= value < 1 << 31


def _are_widths(values: Any) -> bool:
    return all(map(_is_count, np.atleast_1d(np.asarray(values, dtype=object))))


def _is_number(value: Any) -> bool:
    """Whether it is a number; infinity is one, NaN and an integer that no float can hold are not."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and not math.isnan(value)
    except OverflowError:
        return False


def _is_positive(value: Any) -> bool:
    return _is_number(value) and 0 < value < math.inf


def checked_inputs(model: Any, X: Any, reset: bool = False) -> Any:
    """X as a table for `columns`: numbers as a float array, a data frame or an array of objects as it is.

    It has the columns of the fit, unless `reset` makes these its columns.
    """
    if not hasattr(X, "columns") and not hasattr(X, "column_names"):
        X = X if hasattr(X, "shape") else _stacked(X)
        if getattr(X.dtype, "kind", "") not in "OUSTMm":
            return validate_data(
                model, X, dtype=(np.float64, np.float32), order="C", ensure_all_finite=False, reset=reset
            )
        check_array(np.zeros(X.shape))  # raises unless there are two axes, with rows and columns
    validate_data(model, X, skip_check_array=True, reset=reset)
    return X


def _stacked(rows: Any) -> np.ndarray:
    """A list of rows as an array: of numbers if all are, else of objects."""
    try:
        array = np.asarray(rows)
    except ValueError as error:
        raise ValueError(f"X must be a table with rows of one length; {error}") from None
    return np.asarray(rows, dtype=object) if array.dtype.kind in "US" else array


def checked_table(model: Any, X: Any, y: Any, reset: bool = False) -> tuple[Any, np.ndarray, bool, list[str] | None]:
    """X as above, Y as (N, n) floats, whether y was (N,), and the names of its columns; `reset` as above."""
    if y is None:
        raise ValueError(f"{type(model).__name__} requires y to be passed, but the target y is None")
    X = checked_inputs(model, X, reset)
    y = y if reset else in_order(y, model.target_names_)
    refuse_other_things("y", y)
    Y = check_array(y, ensure_2d=False, dtype=np.float64, order="C", ensure_all_finite="allow-nan", input_name="y")
    refuse_huge("y", Y)
    check_consistent_length(X, Y)
    flat = Y.ndim == 1
    Y = Y[:, None] if flat else Y
    if not reset and Y.shape[1] != model.n_outputs_:
        raise ValueError(f"y must have the {model.n_outputs_} targets of the fit; got shape {Y.shape}")
    return X, Y, flat, names_of(y)


def refuse_other_things(name: str, values: Any) -> None:
    """Raise if lists, or an array of objects, are not numbers, with the name of the argument and numpy's message."""
    if hasattr(values, "shape") and getattr(getattr(values, "dtype", None), "kind", "") not in ("O", "U", "S", "M"):
        return  # numbers, a data frame or a sparse matrix: scikit-learn has messages for them
    try:
        if np.asarray(values).dtype.kind not in "biuf":
            np.asarray(values, np.float64)
    except (TypeError, OverflowError) as error:
        raise TypeError(f"{name} must be a table of numbers; {error}") from None
    except ValueError as error:
        raise ValueError(f"{name} must be a table of numbers; {error}") from None


def refuse_huge(name: str, values: np.ndarray) -> None:
    """Raise if a number would be infinite in single precision."""
    largest = np.max(np.abs(values), initial=0.0, where=~np.isnan(values))
    if largest > np.finfo(np.float32).max:
        raise ValueError(f"{name} must be finite and below 3.4e38; got {largest:.3g}")


def generator(random_state: Any) -> np.random.RandomState:
    """The random generator of a seed, as in scikit-learn."""
    try:
        return check_random_state(random_state)
    except ValueError as error:
        raise ValueError(f"random_state must be None, a generator or a seed from 0 to 2^32 - 1; {error}") from None


def warn_of_degenerate_targets(Y: np.ndarray, names: list[str] | None) -> None:
    """Warn of targets that are constant or determined by others.

    The likelihood of such a direction rises without bound as the predicted noise in it falls, training does not stop
    in time, and the intervals of the other targets become too short.
    """
    if len(Y) < 3 or Y.shape[1] < 2:
        return
    named = target_names(names, Y.shape[1])
    constant = np.ptp(np.where(np.isnan(Y), np.nanmean(Y, axis=0), Y), axis=0) <= 1e-14 * np.abs(np.nanmean(Y, axis=0))
    remedy = "leave it out of the fit: its likelihood has no bound, and the intervals of the others become too short"
    for target in np.flatnonzero(constant).tolist():
        warnings.warn(f"target {named[target]!r} is {np.nanmax(Y[:, target]):g} in every row; {remedy}", stacklevel=6)
    for target, others in _determined(Y, np.flatnonzero(~constant).tolist()):
        sources = ", ".join(repr(named[other]) for other in others)
        warnings.warn(f"target {named[target]!r} is a linear function of {sources}; {remedy}", stacklevel=6)


def _determined(Y: np.ndarray, varying: list[int]) -> Iterator[tuple[int, list[int]]]:
    """Targets that are linear functions of those before them in all complete rows, to 1e-5 of their spread.

    Where too few rows are complete, pairs of targets are examined.
    """
    complete = Y[np.isfinite(Y[:, varying]).all(axis=1)]
    if len(complete) <= len(varying) + 1:
        for first, second in itertools.combinations(varying, 2) if len(varying) > 2 else ():
            yield from ((second, [first]) for _ in _determined(Y[:, [first, second]], [0, 1]))
        return
    centred = complete - complete.mean(axis=0)
    spread = centred.std(axis=0)
    kept: list[int] = []
    for target in varying:
        if spread[target] == 0:
            continue
        own = centred[:, target] / spread[target]
        if kept:
            others = centred[:, kept] / spread[kept]
            weights = np.linalg.lstsq(others, own, rcond=None)[0]
            if np.std(own - others @ weights) < 1e-5:
                yield target, [other for other, weight in zip(kept, weights, strict=True) if abs(weight) > 1e-4]
                continue
        kept.append(target)


def check_same_columns(before: int, now: int) -> None:
    """Raise if a table has more or fewer columns than that of the last fit."""
    if before != now:
        raise ValueError(f"{RESUMES}; the number of columns of X was {before} then and is {now} now")


def check_same_networks(last: Predictor, design: Design, members: int, standardize: bool) -> None:
    """Raise if a warm start would need other networks than those of the last fit, or another standardisation."""
    if not last.design.relative:
        raise ValueError(f"{RESUMES}, and those of version 0.1.0 cannot be trained further; fit without warm_start")
    if last.design.own is None and last.design.periodic is None:
        raise ValueError(
            f"{RESUMES}, and those of files of earlier versions, an mlp, cannot be trained further; "
            "fit without warm_start"
        )
    names = {
        "targets": "the number of targets",
        "own": "network",
        "widths": "hidden_layer_sizes",
        "periodic": "embedding",
    }
    for field, before, now in zip(design._fields, last.design, design, strict=True):
        if before != now:
            raise ValueError(f"{RESUMES}; {names.get(field, field)} was {before!r:.60} then and is {now!r:.60} now")
    if last.members != members:
        raise ValueError(f"{RESUMES}, which are {last.members}; members is {members} now")
    parts = (last.inputs, last.targets)
    before = any(np.any(part.mean != 0) or np.any((part.std != 1) & np.isfinite(part.std)) for part in parts)
    if before != bool(standardize):
        raise ValueError(f"{RESUMES} and its standardisation; standardize was {before} then and is {standardize} now")


def check_same_settings(before: tuple[Design, int], now: tuple[Design, int]) -> None:
    """Raise if networks, and their number, are not those of the fit, whose settings the fits without a fold have."""
    if before != now:
        raise ValueError(
            "the settings of the networks, or members, are not those of the fit; fit again before calibrate"
        )


def check_same_loss(had_own: bool, loss: Any) -> None:
    """Raise if the networks of a warm start were trained with a loss of the user and none is given now."""
    if had_own and loss is None:
        remedy = "give it again with set_params(loss=...) or load(path, loss=...), or choose loss=mder_nll"
        raise ValueError(f"the networks of the last fit were trained with a loss of your own; {remedy}")


def rows_to_train_on(Y: np.ndarray, weights: np.ndarray | None, names: list[str] | None) -> np.ndarray:
    """Which rows, (N,), have at least one target and a weight above 0; raise if one was never observed."""
    counts = np.ones(len(Y), bool) if weights is None else weights > 0
    seen = np.isfinite(Y) & counts[:, None]
    for target in np.flatnonzero(~seen.any(axis=0)):
        where = f"all {len(Y)} rows" if counts.all() else f"all {counts.sum()} rows with a weight above 0"
        raise ValueError(f"target {names[target] if names else target} is NaN in {where}; leave it out")
    return seen.any(axis=1)


def checked_weights(sample_weight: Any, rows: int) -> np.ndarray | None:
    """The weights of rows as floats, (N,), the largest 1, or None; they are finite, not negative and not all 0."""
    if sample_weight is None:
        return None
    weights = doubles("sample_weight", sample_weight)
    if weights.shape != (rows,):
        raise ValueError(f"sample_weight must have shape ({rows},), one per row; got {weights.shape}")
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        first = int(bad.argmax())
        raise ValueError(f"sample_weight must be finite and not negative; got {weights[first]:g} in row {first}")
    if not weights.any():
        raise ValueError("sample_weight is zero in all rows; at least one row must count")
    return weights / weights.max()


def check_ways_to_validate(early_stopping: bool | str, validation: Any, groups: Any) -> None:
    """Raise unless at most one of the arguments says what early stopping validates with, and early stopping is on."""
    given = {"validation": validation is not None, "groups": groups is not None}
    named = [name for name, there in given.items() if there]
    if named and not early_stopping:
        raise ValueError(f"with {' and '.join(named)} early_stopping must be True; got {early_stopping!r}")
    ways = [*named, *(["early_stopping='last'"] if early_stopping == LAST else [])]
    if len(ways) > 1:
        raise ValueError(f"early stopping has one way to validate; got {' and '.join(ways)}")


def checked_groups(groups: Any, rows: int) -> np.ndarray | None:
    """Groups of rows as numbers, (N,), or None; any values that can be compared, none of them missing."""
    if groups is None:
        return None
    values = np.asarray(groups, None if hasattr(groups, "dtype") else object)
    if values.shape != (rows,):
        raise ValueError(f"groups must have shape ({rows},), one for each row; got {values.shape}")
    listed = values.tolist()
    try:
        missing = [row for row, value in enumerate(listed) if value is None or value != value]
        number = {value: i for i, value in enumerate(dict.fromkeys(listed))}
    except TypeError as error:
        raise TypeError(f"groups must hold numbers or names; {error}") from None
    if missing:
        raise ValueError(f"groups must name a group for every row; it is missing in row {missing[0]}")
    return np.array([number[value] for value in listed], np.int64)


def check_several_groups(groups: np.ndarray) -> None:
    """Raise if all rows are of one group."""
    if np.all(groups == groups[0]):
        raise ValueError(f"groups must hold two groups or more; all {len(groups)} rows to train on are of one")


def checked_validation(model: Any, validation: Any) -> tuple[Any, np.ndarray, np.ndarray | None] | None:
    """Inputs, targets and weights of the rows with a target, after the checks of a table; None for None."""
    if validation is None:
        return None
    plain = isinstance(validation, list) or type(validation) is tuple
    if not plain or len(validation) not in (2, 3) or any(part is None for part in validation[:2]):
        raise ValueError(f"validation must be (X, y) or (X, y, sample_weight); got {validation!r:.60}")
    try:
        X, Y, _, _ = checked_table(model, *validation[:2])
        weights = checked_weights(validation[2] if len(validation) == 3 else None, len(X))
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"validation: {error}") from None
    kept = rows_that_count(Y, weights)
    if not kept.any():
        raise ValueError(f"validation: y has no target in any of its {len(Y)} rows")
    return rows_of(X, kept), Y[kept], None if weights is None else weights[kept]


def rows_that_count(Y: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Which rows, (N,), have a target and a weight above 0: `fit` leaves out the others."""
    return np.isfinite(Y).any(axis=1) & (True if weights is None else weights > 0)


def rows_of(X: Any, kept: np.ndarray) -> Any:
    """The rows of any table for which a mask (N,) is true."""
    return X if kept.all() else _safe_indexing(X, np.flatnonzero(kept))
