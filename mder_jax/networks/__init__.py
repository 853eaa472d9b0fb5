"""Networks as pairs of pure functions, and adapters for Flax modules; the trainer knows nothing else."""

import inspect
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from mder_jax._arguments import check_type, is_integer
from mder_jax._checks import plain_number, plain_probability
from mder_jax.networks._dense import row_dot_general
from mder_jax.networks.embeddings import PeriodicEmbedding, checked_spread

__all__ = ["ACTIVATIONS", "Network", "from_linen", "from_nnx", "mlp", "row_dot_general", "table_network"]

Initializer = Callable[..., Array]
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
}
LEARNED = "swish"  # the activation of `table_network` with a learned sharpness


class Network(NamedTuple):
    """What the trainer knows of a network: how to make parameters, and what they do to a batch of rows.

    Args:
      init: ``init(key, x) -> params``, any pytree of floats; x is a small batch of rows, for its shape and dtype.
      apply: ``apply(params, x) -> output``, every array of the output with the rows of x as its first axis.
      train: ``train(params, x, key) -> output``, used instead of `apply` while training, for networks with noise such
        as dropout. None: the same as `apply`.

    Example:
      >>> line = Network(init=lambda key, x: jnp.zeros(x.shape[1]), apply=lambda params, x: x @ params)
      >>> print(line.apply(line.init(jax.random.key(0), jnp.ones((1, 3))), jnp.ones((2, 3))))
      [0. 0.]
    """

    init: Callable[[Array, Array], Any]
    apply: Callable[[Any, Array], Any]
    train: Callable[[Any, Array, Array], Any] | None = None


def mlp(
    widths: Sequence[int],
    outputs: int,
    activation: str = "relu",
    link: Callable[[Array], Any] | None = None,
    dropout: float = 0.0,
    kernel_init: Initializer | None = None,
    bias_init: Initializer | None = None,
    embedded: Sequence[tuple[int, int]] = (),
) -> Network:
    """A multilayer perceptron of Flax, from rows (B, d) to raw outputs (B, outputs) or, with a link, what it makes.

    Args:
      widths: of the hidden layers.
      outputs: raw outputs, such as ``num_outputs(n)`` for `niw_link`.
      activation: "relu", "tanh", "gelu" or "silu".
      link: from raw outputs to a distribution's parameters, such as ``functools.partial(niw_link, n=2)``.
      dropout: fraction of hidden units left out at random in each training step.
      kernel_init: initialiser of the weights, as in `jax.nn.initializers`; default uniform in ±1/√fan_in.
      bias_init: initialiser of the biases; default uniform in ±1/√fan_in.
      embedded: (column, levels) of the columns of x that hold categories as integers 0, ..., levels − 1; each is
        replaced by a learned vector.

    Example:
      >>> from mder_jax.links import niw_link, num_outputs
      >>> network = mlp((32, 32), num_outputs(2), link=lambda raw: niw_link(raw, n=2))
      >>> params = network.init(jax.random.key(0), jnp.ones((1, 3)))
      >>> print(network.apply(params, jnp.ones((5, 3))).L.shape)
      (5, 2, 2)
    """
    from mder_jax.networks._mlp import MLP

    sizes = _checked_sizes(widths, outputs)
    _check_activation(activation, ACTIVATIONS)
    dropout = plain_probability("dropout", dropout, "[)")
    _check_functions(link=link, kernel_init=kernel_init, bias_init=bias_init)
    module = MLP(sizes, ACTIVATIONS[activation], dropout, kernel_init, bias_init, _checked_pairs(embedded))

    def apply(params: Any, x: Array) -> Any:
        return _linked(link, module.apply({"params": params}, x))

    def train(params: Any, x: Array, key: Array) -> Any:
        return _linked(link, module.apply({"params": params}, x, training=True, rngs={"dropout": key}))

    return Network(module.initial, apply, train if dropout else None)


def table_network(
    widths: Sequence[int],
    outputs: int,
    activation: str = LEARNED,
    link: Callable[[Array], Any] | None = None,
    embedded: Sequence[tuple[int, int]] = (),
    periodic: Sequence[int] | None = None,
    embedding: PeriodicEmbedding = PeriodicEmbedding(),  # noqa: B008
    sharpness: tuple[float, float] = (1.0, 8.0),
    clip: float = 3.0,
) -> Network:
    """The network of `MDERRegressor`, from standardised rows of a table (B, d) to raw outputs or what the link makes.

    Numbers are clipped smoothly and go through a `PeriodicEmbedding`. Each network draws how rough the functions are
    that it finds first: σ of the embedding, and the sharpness of its activation. An ensemble has networks for smooth
    tables and for ones with steps.

    Args:
      widths: of the hidden layers.
      outputs: raw outputs, such as ``num_outputs(n)`` for `niw_link`.
      activation: "swish" for x σ(β x) with a sharpness β that is learned for each unit, from SiLU (β = 1) to nearly
        ReLU; or "relu", "tanh", "gelu", "silu".
      link: from raw outputs to a distribution's parameters, such as ``functools.partial(niw_link, n=2)``.
      embedded: (column, levels) of the columns of x that hold categories as integers 0, ..., levels − 1; each is
        replaced by a learned vector.
      periodic: the columns that are embedded, None for all that are not in `embedded`; others, such as those of zeros
        and ones, go in as they are.
      embedding: of numbers.
      sharpness: smallest and largest β at the start; a network draws one, log-uniform.
      clip: bound of the inputs, see `smooth_clip`.

    Example:
      >>> from mder_jax.links import niw_link, num_outputs
      >>> network = table_network((32, 32), num_outputs(2), link=lambda raw: niw_link(raw, n=2))
      >>> params = network.init(jax.random.key(0), jnp.ones((1, 3)))
      >>> print(network.apply(params, jnp.ones((5, 3))).L.shape)
      (5, 2, 2)
    """
    from mder_jax.networks._table import TableNetwork

    sizes = _checked_sizes(widths, outputs)
    _check_activation(activation, (LEARNED, *ACTIVATIONS))
    _check_functions(link=link)
    check_type("embedding", embedding, PeriodicEmbedding)
    bound = plain_number("clip", clip)
    if not bound > 0:
        raise ValueError(f"clip must be above 0; got {clip!r:.60}")
    columns, pairs = None if periodic is None else _checked_columns(periodic), _checked_pairs(embedded)
    both = {column for column, _ in pairs} & set(columns or ())
    if both:
        raise ValueError(f"column {min(both)} is both embedded, as a category, and periodic, as a number")
    spread = checked_spread("sharpness", sharpness)
    function = ACTIVATIONS.get(activation)
    module = TableNetwork(sizes, function, columns, pairs, embedding.checked(), spread, bound)

    def apply(params: Any, x: Array) -> Any:
        return _linked(link, module.apply(params, x))

    return Network(module.init, apply)


def from_linen(module: Any, link: Callable[[Any], Any] | None = None, rngs: Sequence[str] = ("dropout",)) -> Network:
    """A `Network` of a Flax Linen module. Its parameters are trained; other collections (batch statistics) raise.

    A module whose ``__call__`` accepts ``train``, ``training`` or ``deterministic`` is called accordingly.

    Args:
      module: called as ``module(x)`` on a batch of rows.
      link: applied to what it returns.
      rngs: names of the random streams it draws from while training.

    Example:
      >>> from flax import linen as nn
      >>> network = from_linen(nn.Sequential([nn.Dense(8), nn.tanh, nn.Dense(2)]))
      >>> params = network.init(jax.random.key(0), jnp.ones((1, 3), jnp.float32))
      >>> print(network.apply(params, jnp.ones((5, 3), jnp.float32)).shape)
      (5, 2)
    """
    if not (callable(getattr(module, "init", None)) and callable(getattr(module, "apply", None))):
        raise TypeError(f"module must be a Flax Linen module, with init and apply; got {module!r:.60}")
    if isinstance(rngs, str) or not isinstance(rngs, Sequence) or not all(isinstance(name, str) for name in rngs):
        raise TypeError(f"rngs must be a list of the names of random streams; got {rngs!r:.60}")
    _check_functions(link=link)
    accepted = inspect.signature(module.__call__).parameters
    modes = {"train": True, "training": True, "deterministic": False}
    flag = next((name for name in modes if name in accepted), None)

    def mode(training: bool) -> dict[str, bool]:
        return {} if flag is None else {flag: modes[flag] == training}

    def init(key: Array, x: Array) -> Any:
        streams = dict(zip(("params", *rngs), jax.random.split(key, 1 + len(rngs)), strict=True))
        variables = dict(module.init(streams, x, **mode(False)))
        params = variables.pop("params", {})
        _refuse_state(type(module).__name__, sorted(variables))
        return params

    def apply(params: Any, x: Array) -> Any:
        return _linked(link, module.apply({"params": params}, x, **mode(False)))

    def train(params: Any, x: Array, key: Array) -> Any:
        streams = dict(zip(rngs, jax.random.split(key, max(len(rngs), 1)), strict=False))
        return _linked(link, module.apply({"params": params}, x, rngs=streams, **mode(True)))

    return Network(init, apply, train if rngs or flag else None)


def from_nnx(make_module: Callable[[Any], Any], link: Callable[[Any], Any] | None = None) -> Network:
    """A `Network` of a Flax NNX module. Its `nnx.Param` variables are trained; other state (batch statistics) raises.

    Modules are set to ``train()`` while training (dropout on) and to ``eval()`` otherwise.

    Args:
      make_module: ``make_module(rngs)`` builds the module from a `flax.nnx.Rngs`; it is called as ``module(x)``.
      link: applied to what the module returns.

    Example:
      >>> from flax import nnx
      >>> network = from_nnx(lambda rngs: nnx.Linear(3, 2, rngs=rngs))
      >>> params = network.init(jax.random.key(0), jnp.ones((1, 3), jnp.float32))
      >>> print(network.apply(params, jnp.ones((5, 3), jnp.float32)).shape)
      (5, 2)
    """
    from flax import nnx

    if not callable(make_module):
        raise TypeError(f"make_module must be a function that builds a module; got {make_module!r:.60}")
    _check_functions(link=link)

    def split(module: Any) -> tuple[Any, Any, Any]:
        parts: Any = nnx.split(module, nnx.Param, nnx.RngState, ...)
        structure, params, streams, rest = parts
        kinds = {type(variable).__name__ for _, variable in nnx.to_flat_state(rest)}
        _refuse_state(type(module).__name__, sorted(kinds))
        return structure, params, streams

    example = make_module(nnx.Rngs(0))
    example.eval()
    evaluating, _, streams = split(example)
    example.train()
    training = split(example)[0]

    def copied(*states: Any) -> Any:  # variables of this trace's own: drawing a random number changes them in place
        return jax.tree.map(lambda leaf: leaf, states)

    def init(key: Array, x: Array) -> Any:
        return split(make_module(nnx.Rngs(key)))[1]

    def apply(params: Any, x: Array) -> Any:
        return _linked(link, nnx.merge(evaluating, *copied(params, streams))(x))

    def train(params: Any, x: Array, key: Array) -> Any:
        module = nnx.merge(training, *copied(params, streams))
        nnx.reseed(module, default=key, dropout=key)
        return _linked(link, module(x))

    return Network(init, apply, train)


def _checked_sizes(widths: Any, outputs: Any) -> tuple[int, ...]:
    sizes = [*np.atleast_1d(np.asarray(widths, object)), outputs]
    if not all(is_integer(size) and 0 < size < 1 << 31 for size in sizes):
        raise ValueError(f"widths and outputs must be integers above 0; got {widths!r:.60} and {outputs!r:.60}")
    return tuple(sizes)


def _check_activation(activation: Any, known: Iterable[str]) -> None:
    if not isinstance(activation, str) or activation not in known:
        raise ValueError(f"activation must be one of {', '.join(known)}; got {activation!r:.60}")


def _checked_pairs(embedded: Any) -> tuple[tuple[int, int], ...]:
    try:
        pairs = tuple((operator.index(column), operator.index(levels)) for column, levels in embedded)
    except (TypeError, ValueError):
        pairs = ((-1, 0),)
    if not all(column >= 0 and levels >= 1 for column, levels in pairs):
        raise ValueError(f"embedded must be pairs (column, levels) of integers, levels above 0; got {embedded!r:.60}")
    _check_named_once("embedded", [column for column, _ in pairs], embedded)
    return pairs


def _checked_columns(periodic: Any) -> tuple[int, ...]:
    try:
        columns = tuple(map(operator.index, periodic))
    except TypeError:
        columns = (-1,)
    if not all(column >= 0 for column in columns):
        raise ValueError(f"periodic must be columns, integers from 0, or None; got {periodic!r:.60}")
    _check_named_once("periodic", columns, periodic)
    return columns


def _check_named_once(name: str, columns: Sequence[int], given: Any) -> None:
    twice = next((column for column in columns if columns.count(column) > 1), None)
    if twice is not None:
        raise ValueError(f"{name} must name each column once, and has column {twice} twice; got {given!r:.60}")


def _check_functions(**functions: Any) -> None:
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise TypeError(f"{name} must be a function, or None; got {function!r:.60}")


def _linked(link: Callable[[Any], Any] | None, output: Any) -> Any:
    return output if link is None else link(output)


def _refuse_state(name: str, kinds: list[str]) -> None:
    if kinds:
        raise ValueError(
            f"{name} keeps state besides its parameters ({', '.join(kinds)}); only parameters can be trained here, so "
            "use a layer without it, such as LayerNorm for BatchNorm"
        )
