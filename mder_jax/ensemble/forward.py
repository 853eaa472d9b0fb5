"""The one way from rows to predictions: networks on all devices, rows spread over them, block after block."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax.sharding import PartitionSpec as P

from mder_jax._blocks import map_host_blocks
from mder_jax.ensemble._layout import AXIS, GROUP, compiled, fetch, mesh_of, put
from mder_jax.ensemble.members import PerMember
from mder_jax.networks import Network


class Forward:
    """Networks with their parameters on a mesh of devices: each device has all members and a part of a block's rows.

    Args:
      network: of all members, or a `PerMember`.
      params: of all members, each array with the members as first axis.
      devices: to predict on; None for all that JAX sees.

    Example:
      >>> line = Network(lambda key, x: np.ones(1), lambda w, x: x @ w)
      >>> forward = Forward(line, np.array([[1.0], [2.0]], np.float32))
      >>> print(forward(np.ones((3, 1), np.float32), 16))
      [[1. 1. 1.]
       [2. 2. 2.]]
    """

    def __init__(self, network: Network | PerMember, params: Any, devices: Sequence[jax.Device] | None = None) -> None:
        self._mesh = mesh_of(devices)
        self._network = network
        own = network.values if isinstance(network, PerMember) else None
        self._members = put(self._mesh, P(), (params, own))
        self._programs: dict[Any, Callable[..., Any]] = {}

    def __call__(
        self,
        X: np.ndarray,
        rows: int,
        reduce: Callable[..., Any] | None = None,
        columns: Sequence[Any] = (),
        constants: Sequence[Any] = (),
        by_row: bool = False,
    ) -> Any:
        """What the networks return, (M, N, ...), or (N, ...) as reduced, on the host.

        Args:
          X: inputs, (N, ...).
          rows: of a block.
          reduce: applied to the outputs (M, rows, ...) of a block and its further arguments; returns (rows, ...).
          columns: arrays (N, ...), of which `reduce` gets the same rows.
          constants: arrays that `reduce` gets as they are.
          by_row: whether `reduce` evaluates each row by itself and always in the same way. Then each device applies it
            to its rows, and its program is kept; otherwise it is traced in every call.
        """
        rows = -(-rows // self._mesh.size) * self._mesh.size
        constants = put(self._mesh, P(), tuple(constants))
        keeps = by_row or reduce is None
        programs = self._programs if keeps else {}

        def of_block(*block: np.ndarray) -> Any:
            arguments = (*self._members, *put(self._mesh, P(AXIS), block), *constants)
            shapes = tuple((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(arguments))
            name = (reduce if keeps else None, len(columns), shapes, jax.numpy.result_type(float))
            if name not in programs:
                programs[name] = self._program(reduce, len(columns), by_row, arguments)
            return jax.tree.map(fetch, programs[name](*arguments))

        return map_host_blocks(of_block, rows, X, *columns, joined_along=1 if reduce is None else 0)

    def _program(
        self, reduce: Callable[..., Any] | None, columns: int, by_row: bool, arguments: tuple[Any, ...]
    ) -> Callable[..., Any]:
        """The program for arguments of these shapes."""

        def reduced(outputs: Any, *further: Array) -> Any:
            return outputs if reduce is None else reduce(outputs, *further)

        def on_device(params: Any, own: Any, x: Array, *further: Array) -> Any:
            outputs = self._outputs(params, own, x)
            return reduced(outputs, *further) if by_row else outputs

        specs = (P(), P(), *[P(AXIS)] * (1 + columns), *[P()] * (len(arguments) - 3 - columns))
        made_on = P(AXIS) if by_row else P(None, AXIS)
        spread = jax.shard_map(on_device, mesh=self._mesh, in_specs=specs, out_specs=made_on, check_vma=False)

        def forward(params: Any, own: Any, x: Array, *further: Array) -> Any:
            outputs = spread(params, own, x, *further)
            return outputs if by_row else reduced(outputs, *further)

        _check_rows(jax.eval_shape(forward, *arguments), len(arguments[2]), 1 if reduce is None else 0)
        return compiled(self._mesh, forward, *arguments)

    def _outputs(self, params: Any, own: Any, x: Array) -> Any:
        def member(part: tuple[Any, Any]) -> Any:
            network = self._network
            built = network.of(part[1]) if isinstance(network, PerMember) else network
            return built.apply(part[0], x)

        many = len(jax.tree.leaves(params)[0]) > GROUP
        return lax.map(member, (params, own), batch_size=GROUP) if many else jax.vmap(member)((params, own))


def _check_rows(outputs: Any, rows: int, axis: int) -> None:
    shapes = [leaf.shape for leaf in jax.tree.leaves(outputs)]
    if any(shape[axis : axis + 1] != (rows,) for shape in shapes):
        raise ValueError(f"reduce must return arrays with the {rows} rows of a block first; got shapes {shapes}")
