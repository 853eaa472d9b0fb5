"""The design of the networks, and a trained ensemble with its standardisers: all that prediction needs."""

import functools
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mder_jax.calibration import Scale
from mder_jax.columns import Encoded
from mder_jax.ensemble.forward import Forward
from mder_jax.estimator._own_network import as_network
from mder_jax.estimator._predicted_rows import BLOCK, PredictedRows, swapped
from mder_jax.estimator._standardizer import Standardizer
from mder_jax.estimator.beside import Beside
from mder_jax.estimator.target_transforms import TargetTransforms
from mder_jax.links import log_diagonal_outputs, niw_link, num_outputs
from mder_jax.networks import Network, mlp, table_network


class Design(NamedTuple):
    """Columns of X and Y, widths and activation of the network, and the options r, nu_max and relative of `niw_link`.

    `embedded` are the columns of X that hold indices of levels, with the number of levels, and `periodic` those with
    numbers to embed, as in `table_network`; None for an `mlp`, as in files of earlier versions. `own` is the user's
    network in their place, or None.
    """

    inputs: int
    targets: int
    widths: tuple[int, ...]
    activation: str
    r: float
    nu_max: float | None
    relative: bool
    embedded: tuple[tuple[int, int], ...] = ()
    own: Any = None
    periodic: tuple[int, ...] | None = None

    def network(self) -> Network:
        """From standardised rows to a NIW of standardised targets."""
        link = functools.partial(niw_link, n=self.targets, r=self.r, nu_max=self.nu_max, relative=self.relative)
        if self.own is not None:
            return as_network(self.own, link)
        options = (self.widths, num_outputs(self.targets), self.activation, link)
        if self.periodic is None:
            return mlp(*options, embedded=self.embedded)
        return table_network(*options, embedded=self.embedded, periodic=self.periodic)

    def rescaled(self, params: Any, factor: float) -> Any:
        """The parameters of members, stacked, whose outputs are the same with L multiplied by the factor."""
        last = f"dense_{len(self.widths)}"
        bias = np.array(params[last]["bias"])
        bias[:, log_diagonal_outputs(self.targets)] += np.log(factor)
        return params | {last: params[last] | {"bias": bias}}

    def shapes(self) -> Any:
        """Shapes and dtypes of the parameters of one member."""
        row = jax.ShapeDtypeStruct((1, self.inputs), jnp.float32)
        return jax.eval_shape(self.network().init, jax.random.key(0), row)


@dataclass(frozen=True)
class Predictor:
    """The stacked parameters of all members, standardisers of X and Y, and factors on the predictive covariance.

    With a `transform` the standardiser is of the transformed targets. `beside` are members that are no networks, or
    None. Arrays are numpy's.
    """

    design: Design
    params: Any
    inputs: Standardizer
    targets: Standardizer
    scale: Scale
    transform: TargetTransforms | None = None
    beside: Beside | None = None

    @property
    def members(self) -> int:
        """Number of networks."""
        return len(jax.tree.leaves(self.params)[0])

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: without what is on devices."""
        return {name: value for name, value in self.__dict__.items() if name != "forward"}

    @functools.cached_property
    def forward(self) -> Forward:
        """The networks on all devices."""
        return Forward(self.design.network(), self.params)

    def with_scale(self, scale: Scale) -> "Predictor":
        """The same networks with another calibration."""
        made = replace(self, scale=Scale(*(float(factor) for factor in scale)))
        made.__dict__["forward"] = self.forward
        return made

    def rows(self, encoded: Encoded, keep: bool = False, **options: Any) -> PredictedRows:
        """Predictions for N rows; with `keep` the networks run now and their outputs are kept, else at each use."""
        z = self.inputs.forward(encoded.X)
        outputs = swapped(self.forward(z, BLOCK)) if keep else None
        novelty = encoded.novelty if encoded.novelty.any() else None
        parts = self.forward, z, outputs, self.targets, self.scale
        if self.beside is not None:
            options |= {"further": self.beside.predict(z), "log_weights": self.beside.log_weights(self.members)}
        return PredictedRows(*parts, novelty=novelty, transform=self.transform, **options)
