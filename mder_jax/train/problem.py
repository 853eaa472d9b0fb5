"""What is trained, on what and how, and the checks that come before anything is compiled."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from mder_jax._arguments import is_integer
from mder_jax._checks import is_concrete, is_key
from mder_jax.networks import Network

Loss = Callable[[Any, Array], Array]


class Settings(NamedTuple):
    """How to train, apart from what is trained; see `mder_jax.fit`.

    With `steps_per_epoch`, runs on data of different size make equally many steps, each going round its own data.
    `judged` runs keep the parameters of an epoch that somebody else chooses.
    """

    epochs: int
    batch_size: int | None = None
    steps_per_epoch: int | None = None
    bootstrap: bool = False
    patience: int | None = None
    judged: bool = False


class Problem(NamedTuple):
    """What is trained: functions only, and constant while training."""

    network: Network
    loss: Loss
    optimizer: optax.GradientTransformation
    settings: Settings


class Data(NamedTuple):
    """Rows to train on. A weight of 0 says that the row is not there; `validation` is (X, Y, weights or None)."""

    X: Array
    Y: Array
    weights: Array | None = None
    validation: tuple[Array, Array, Array | None] | None = None


def as_data(X: Any, Y: Any, weights: Any = None, validation: Any = None) -> Data:
    """The arguments as arrays; what is on the host stays there, so that it can be checked also while tracing."""
    held_out = check_validation(validation)

    def optional(value: Any) -> Any:
        return None if value is None else as_numbers(value)

    if held_out is not None:
        held_out = (as_numbers(held_out[0]), as_numbers(held_out[1]), optional(held_out[2]))
    return Data(as_numbers(X), as_numbers(Y), optional(weights), held_out)


def as_numbers(value: Any) -> Any:
    """The value as an array of numbers or booleans, of JAX if it was one."""
    try:
        array = value if isinstance(value, jax.Array) else np.asarray(value)
    except ValueError:  # rows that differ in length
        raise TypeError(f"data must be arrays of numbers; got {value!r:.60}") from None
    if not any(jnp.issubdtype(array.dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_)):
        raise TypeError(f"data must be numbers; got {None if value is None else f'an array of {array.dtype}'}")
    return array


def on_device(data: Data) -> Data:
    """The same as arrays of JAX, the weights as floats."""
    X, Y, weights, validation = jax.tree.map(jnp.asarray, data)
    if validation is not None:
        validation = (*validation[:2], _as_floats(validation[2]))
    return Data(X, Y, _as_floats(weights), validation)


def _as_floats(weights: Array | None) -> Array | None:
    return None if weights is None else weights.astype(jnp.result_type(float))


def check_validation(validation: Any) -> tuple[Any, Any, Any] | None:
    """The triple (X, Y, weights or None) from (X, Y) or (X, Y, weights), or None; anything else raises."""
    if validation is None:
        return None
    plain = isinstance(validation, list) or type(validation) is tuple
    if not plain or len(validation) not in (2, 3) or validation[0] is None or validation[1] is None:
        wanted = "a pair (X, Y) or (X, Y, weights), of which each may be a PerMember"
        raise ValueError(f"validation must be {wanted}; got {validation!r:.60}")
    X, Y, weights = validation if len(validation) == 3 else (*validation, None)
    return X, Y, weights


def check(problem: Problem, data: Data, key: Array) -> None:
    """Raise, before anything is compiled, with what is wrong and what would be right."""
    check_key(key)
    check_data(data)
    check_settings(problem.settings, data)
    check_problem(problem, data, key)


def check_key(key: Any) -> None:
    """Raise unless it is a JAX random key."""
    if not is_key(key) and not (hasattr(key, "dtype") and key.dtype == jnp.uint32 and key.shape[-1:] in ((2,), (4,))):
        raise TypeError(f"key must be a random key such as jax.random.key(0); got {key!r}")


def check_data(data: Data, but: Data | None = None) -> None:
    """Raise unless X is finite, Y has no infinity, and all have the same rows; values also in `but` are known to be."""
    checked = [] if but is None else [id(leaf) for leaf in jax.tree.leaves(but)]

    def check_rows(name: str, X: Array, Y: Array, weights: Array | None) -> None:
        if X.ndim < 2:
            raise ValueError(f"{name}X must have shape (N, ...) with at least two axes; got {X.shape}")
        if Y.ndim < 1 or X.shape[0] != Y.shape[0]:
            raise ValueError(f"{name}X and {name}Y must have the same number of rows; got {X.shape} and {Y.shape}")
        if X.shape[0] == 0:
            raise ValueError(f"{name}X has no rows; got shape {X.shape}")
        if id(X) not in checked:
            check_finite(f"{name}X", X)
        if id(Y) not in checked and is_concrete(Y):
            _refuse(np.isinf(Y), np.asarray(Y), f"{name}Y", "may hold NaN for 'missing' but no infinity")
        if weights is not None:
            if weights.shape != X.shape[:1]:
                raise ValueError(f"{name}weights must have shape {X.shape[:1]}, one per row; got {weights.shape}")
            if id(weights) not in checked and is_concrete(weights):
                values = np.asarray(weights)
                bad = ~(np.isfinite(values) & (values >= 0))
                _refuse(bad, values, f"{name}weights", "must be finite and not negative")
                if not values.any():
                    raise ValueError(f"all {name}weights are 0; at least one row must count")

    check_rows("", data.X, data.Y, data.weights)
    if data.validation is not None:
        check_rows("validation ", *data.validation)
        for name, own, held_out in (("X", data.X, data.validation[0]), ("Y", data.Y, data.validation[1])):
            if own.shape[1:] != held_out.shape[1:]:
                expected = f"rows of shape {own.shape[1:]}, those of {name}"
                raise ValueError(f"validation {name} must have {expected}; got {held_out.shape[1:]}")


def check_finite(name: str, array: Array | np.ndarray) -> None:
    """Raise, with the index, if a concrete array holds NaN or an infinity."""
    if is_concrete(array):
        _refuse(~np.isfinite(array), np.asarray(array), name, "must be finite")


def _refuse(bad: np.ndarray, values: np.ndarray, name: str, rule: str) -> None:
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(f"{name} {rule}; got {values[where]} at index {where} ({int(bad.sum())} such values)")


def check_settings(settings: Settings, data: Data) -> None:
    """Raise unless the numbers make sense for these data."""
    rows = data.X.shape[0]
    for name in ("epochs", "batch_size", "steps_per_epoch", "patience"):
        value, or_none = getattr(settings, name), "" if name == "epochs" else ", or None"
        if not (value is None and or_none) and not (is_integer(value) and 1 <= value < 1 << 31):
            raise ValueError(f"{name} must be an integer, 1 or more{or_none}; got {value!r}")
    if settings.batch_size is not None and settings.batch_size > rows:
        raise ValueError(f"batch_size {settings.batch_size} exceeds the {rows} rows; use batch_size={rows} or None")
    if settings.patience is not None and data.validation is None and not settings.judged:
        raise ValueError("patience needs validation data: pass validation=(X_val, Y_val)")


def check_problem(problem: Problem, data: Data, key: Array) -> None:
    """Raise unless network, loss and optimiser fit together on these shapes (nothing is computed)."""
    network, loss, optimizer = problem.network, problem.loss, problem.optimizer
    if not (callable(getattr(network, "init", None)) and callable(getattr(network, "apply", None))):
        raise TypeError(f"network must be a Network(init, apply), see mlp and from_linen; got {type(network).__name__}")
    if network.train is not None and not callable(network.train):
        raise TypeError(f"network.train must be a function of (params, x, key), or None; got {network.train!r:.60}")
    if not callable(loss):
        raise TypeError(f"loss must be a function of (network output, y); got {type(loss).__name__}")
    if not (callable(getattr(optimizer, "init", None)) and callable(getattr(optimizer, "update", None))):
        raise TypeError(
            f"optimizer must be an optax optimiser, with init and update, such as optax.adam(1e-3); got {optimizer!r}"
        )
    params = _shapes_of("network.init", network.init, key, _like(data.X, 1))
    kinds = [leaf.dtype for leaf in jax.tree.leaves(params)]
    if not kinds or not all(jnp.issubdtype(kind, jnp.floating) for kind in kinds):
        raise ValueError(f"network.init must make parameters that are floats; got {[str(kind) for kind in kinds]}")
    _shapes_of("optimizer.init", optimizer.init, params)
    for rows in (3, 7):  # two numbers of rows, since one could be the number of targets
        _check_rows(problem, data, key, params, rows)


def _shapes_of(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """What a user's function would return; an error if it does not accept arrays of these shapes."""
    try:
        return jax.eval_shape(function, *arguments)
    except (TypeError, ValueError) as error:
        shapes = ", ".join(str(leaf.shape) for leaf in jax.tree.leaves(arguments))
        said = f"{error}\n{name} was called with arrays of shapes {shapes}"
        raise (TypeError if isinstance(error, TypeError) else ValueError)(said) from error


def _like(array: Array, rows: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((rows, *array.shape[1:]), jax.dtypes.canonicalize_dtype(array.dtype))


def _check_rows(problem: Problem, data: Data, key: Array, params: Any, rows: int) -> None:
    X = _like(data.X, rows)
    output = _shapes_of("network.apply", problem.network.apply, params, X)
    if problem.network.train is not None:
        _shapes_of("network.train", problem.network.train, params, X, key)
    shapes = [leaf.shape for leaf in jax.tree.leaves(output)]
    if any(shape[:1] != (rows,) for shape in shapes):
        raise ValueError(f"network.apply must return arrays with the rows first; got shapes {shapes} for {rows} rows")
    losses = _shapes_of("loss", problem.loss, output, _like(data.Y, rows))
    shape = getattr(losses, "shape", None)
    if shape != (rows,):
        got = "a mean or sum; leave out the reduction" if shape == () else f"shape {shape} for {rows} rows"
        raise ValueError(f"loss must return one value per row, shape (rows,); got {got}")
    if not jnp.issubdtype(losses.dtype, jnp.floating):
        raise TypeError(f"loss must return floats; got {losses.dtype}")


def needs_complete_targets(problem: Problem, X: np.ndarray, Y: np.ndarray, key: Array) -> bool:
    """Whether the loss, or its gradient, is finite for complete targets but not where some of them are NaN.

    A few of the rows with a NaN are tried, with initial parameters.
    """
    if Y.dtype.kind != "f":
        return False
    rows = np.flatnonzero(np.isnan(Y).reshape(len(Y), -1).any(axis=1))[:8]
    if not len(rows):
        return False
    x, y = jnp.asarray(X[rows]), jnp.asarray(Y[rows])

    @jax.jit
    def is_finite(params: Any, y: Array) -> Array:
        found = jax.value_and_grad(lambda params: jnp.sum(problem.loss(problem.network.apply(params, x), y)))(params)
        return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(found)]))

    params = problem.network.init(key, x[:1])
    return not is_finite(params, y) and bool(is_finite(params, jnp.nan_to_num(y)))
