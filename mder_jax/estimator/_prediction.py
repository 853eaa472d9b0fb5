"""Everything that a model predicts for some rows, from one run of its networks."""

import copy
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from mder_jax._blocks import map_host_blocks
from mder_jax.estimator._predictor import BLOCK, Predictor
from mder_jax.estimator.results import Region, Uncertainty
from mder_jax.mixture import Mixture
from mder_jax.niw import NIW
from mder_jax.student_t import Interval, StudentT


@functools.partial(jax.jit, static_argnums=0)
def _evaluated(reduce: Callable[..., Any], *arguments: Any) -> Any:
    return reduce(*arguments)


@dataclasses.dataclass(frozen=True)
class _Known(Predictor):
    """A predictor whose networks have run: `each_row` evaluates what they returned, and does not run them again.

    Args:
      known: outputs of the networks for the rows, (M, N).
    """

    known: NIW

    def each_row(self, X: np.ndarray, reduce: Callable[..., Any], *columns: np.ndarray, constants: Any = ()) -> Any:
        """As of `Predictor`, for the rows of the outputs."""
        scale = jax.tree.map(np.float32, self.scale)

        def of_block(outputs: NIW, *block: np.ndarray) -> Any:
            return _evaluated(reduce, _axes_swapped(outputs), *block, scale, *constants)

        return map_host_blocks(of_block, BLOCK, _axes_swapped(self.known), *columns)


def _axes_swapped(niw: NIW) -> NIW:
    return jax.tree.map(lambda leaf: np.moveaxis(leaf, 0, 1), niw)


class Prediction:
    """What `MDERRegressor.predict_all` returns: the networks have run once, and each method only evaluates the result.

    The predictions of all members are kept in memory: 4 M N (n² + n + 2) bytes for M members, N rows and n targets.

    Args:
      model: a fitted `MDERRegressor`, as it is now: a later `fit` or `calibrate` has no effect.
      X: (N, d).
      outputs: of the networks for these rows, (M, N).

    Example:
      >>> from mder_jax import MDERRegressor
      >>> X, Y = np.random.default_rng(0).normal(size=(2, 30, 2))
      >>> model = MDERRegressor(hidden_layer_sizes=(8,), members=2, max_iter=5, random_state=0).fit(X, Y)
      >>> print(type(model.predict_all(X)).__name__)
      Prediction
    """

    def __init__(self, model: Any, X: Any, outputs: NIW) -> None:
        self._model, self._X = copy.copy(model), X
        fields = {field.name: getattr(model.predictor_, field.name) for field in dataclasses.fields(Predictor)}
        self._model.predictor_ = _Known(**fields, known=outputs)

    def uncertainty(self) -> Uncertainty:
        """As `MDERRegressor.predict_uncertainty`.

        Example:
          >>> from mder_jax import MDERRegressor
          >>> X, Y = np.random.default_rng(0).normal(size=(2, 30, 2))
          >>> model = MDERRegressor(hidden_layer_sizes=(8,), members=2, max_iter=5, random_state=0).fit(X, Y)
          >>> print(model.predict_all(X).uncertainty().total.shape)
          (30, 2, 2)
        """
        return self._model.predict_uncertainty(self._X)

    def interval(self, coverage: float = 0.9, joint: bool = False) -> Interval | Region:
        """As `MDERRegressor.predict_interval`.

        Example:
          >>> from mder_jax import MDERRegressor
          >>> X, Y = np.random.default_rng(0).normal(size=(2, 30, 2))
          >>> model = MDERRegressor(hidden_layer_sizes=(8,), members=2, max_iter=5, random_state=0).fit(X, Y)
          >>> print(model.predict_all(X).interval(coverage=0.9).lower.shape)
          (30, 2)
        """
        return self._model.predict_interval(self._X, coverage, joint)

    def distribution(self) -> Mixture | StudentT:
        """As `MDERRegressor.predict_dist`, in the precision of JAX at this call.

        Example:
          >>> from mder_jax import MDERRegressor
          >>> X, Y = np.random.default_rng(0).normal(size=(2, 30, 2))
          >>> model = MDERRegressor(hidden_layer_sizes=(8,), members=2, max_iter=5, random_state=0).fit(X, Y)
          >>> print(model.predict_all(X).distribution().batch_shape)
          (30,)
        """
        return self._model.predict_dist(self._X)
