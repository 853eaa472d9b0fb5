"""Scores of an estimator, for GridSearchCV and cross_validate of scikit-learn: minus a loss, so greater is better."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array

from mder_jax import _arguments, _checks
from mder_jax.metrics import scores
from mder_jax.student_t import StudentT as StudentT  # for the examples


class Scorer:
    """A function (estimator, X, y, sample_weight) -> number, greater is better, to which weights can be routed.

    Args:
      score: the function.
      sample_weight: what `set_score_request` was told.

    Example:
      >>> from mder_jax.metrics import nll_scorer
      >>> weighted = nll_scorer.set_score_request(sample_weight=True)
      >>> print(nll_scorer, weighted)
      nll_scorer nll_scorer.set_score_request(sample_weight=True)
    """

    def __init__(self, score: Callable[..., float], sample_weight: bool | str | None = None) -> None:
        functools.update_wrapper(self, score)
        self._score, self._request = score, sample_weight

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The score of the estimator on these rows."""
        return self._score(estimator, X, y, sample_weight)

    def set_score_request(self, *, sample_weight: bool | str | None) -> "Scorer":
        """A scorer like this one that requests weights, for scikit-learn's metadata routing.

        Args:
          sample_weight: True to be given the weights, False to be scored without, or the name under which they come.

        Example:
          >>> from mder_jax.metrics import nll_scorer
          >>> print(nll_scorer.set_score_request(sample_weight="area").get_metadata_routing().score.requests)
          {'sample_weight': 'area'}
        """
        return Scorer(self._score, sample_weight)

    def get_metadata_routing(self) -> Any:
        """What `set_score_request` was told, as scikit-learn's MetadataRequest.

        Example:
          >>> from mder_jax.metrics import nll_scorer
          >>> print(nll_scorer.get_metadata_routing().score.requests)
          {'sample_weight': None}
        """
        from sklearn.utils.metadata_routing import MetadataRequest

        request = MetadataRequest(owner=self)
        request.score.add_request(param="sample_weight", alias=self._request)
        return request

    def _accept_sample_weight(self) -> bool:
        """Asked by scikit-learn of the scorers in a dict."""
        return True

    def __repr__(self) -> str:
        name = self._score.__name__
        return name if self._request is None else f"{name}.set_score_request(sample_weight={self._request!r})"

    def __reduce__(self) -> Any:
        """Pickled by its name: the name of the function is that of the scorer."""
        name = self._score.__name__
        return name if self._request is None else (_requesting, (name, self._request))


def _requesting(name: str, sample_weight: bool | str) -> Scorer:
    return globals()[name].set_score_request(sample_weight=sample_weight)


@Scorer
def nll_scorer(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    """**Minus** the negative log-likelihood: the mean over rows of `estimator.log_prob(X, y)`. Greater is better.

    Rows without any target are left out. Like all scorers here, it finds an `MDERRegressor` behind the steps of a
    Pipeline and in a fitted search, and gives a weighted mean if there are weights, (N,).

    Example:
      >>> class Model:  # or an MDERRegressor
      ...     log_prob = lambda self, X, y: np.array([-1.0, -3.0])
      >>> print(nll_scorer(Model(), [[0.0], [0.0]], [1.0, 2.0]))
      -2.0
      >>> print(nll_scorer(Model(), [[0.0], [0.0]], [1.0, 2.0], sample_weight=[3.0, 1.0]))
      -1.5
    """
    model, X = _having("log_prob", estimator, X)
    values = np.asarray(model.log_prob(X, y), np.float64)
    return _average(values, ~np.isnan(_targets(model, y)).all(axis=1), sample_weight)


@Scorer
def crps_scorer(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    """**Minus** the `crps` of `estimator.predict_dist(X)`, mean over what was observed. Greater is better.

    Example:
      >>> class Model:  # or an MDERRegressor
      ...     predict_dist = lambda self, X: StudentT(np.inf, np.zeros((len(X), 1)), np.ones((len(X), 1, 1)))
      >>> print(f"{crps_scorer(Model(), [[0.0]], [0.0]):.4f}")  # -(√2 − 1)/√π
      -0.2337
    """
    Y, values = _of_distribution(scores.crps, estimator, X, y)
    return -_average(values, ~np.isnan(Y), sample_weight)


@Scorer
def energy_scorer(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    """**Minus** the `energy_score` of `estimator.predict_dist(X)`, mean over rows. Greater is better.

    Example:
      >>> class Model:  # or an MDERRegressor
      ...     predict_dist = lambda self, X: StudentT(np.inf, np.zeros((len(X), 1)), np.full((len(X), 1, 1), 1e-6))
      >>> print(f"{energy_scorer(Model(), [[0.0]], [3.0]):.3f}")  # of a point: minus the distance
      -3.000
    """
    Y, values = _of_distribution(scores.energy_score, estimator, X, y, scores.DRAWS)
    return -_average(values, ~np.isnan(Y).all(axis=1), sample_weight)


@Scorer
def rmse_scorer(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    """**Minus** √mean (y_j − predicted)² over the rows in which y_j was observed, mean over targets. Greater is better.

    For any regressor. "neg_root_mean_squared_error" is the same without the NaN in y.

    Example:
      >>> class Model:  # or any regressor
      ...     predict = lambda self, X: np.zeros((3, 1))
      >>> print(rmse_scorer(Model(), [[0.0]] * 3, [1.0, 7.0, np.nan]))  # √((1 + 49)/2)
      -5.0
    """
    model, X = _having("predict", estimator, X)
    Y = _targets(model, y)
    predicted = _checks.doubles("the prediction", model.predict(X))
    if predicted.size != Y.size:
        raise ValueError(f"y must have shape {predicted.shape}, that of the prediction; got {Y.shape}")
    squares = (Y - predicted.reshape(Y.shape)) ** 2
    columns = [(square, seen) for square, seen in zip(squares.T, ~np.isnan(Y.T), strict=True) if seen.any()]
    roots = [np.sqrt(_average(square, seen, sample_weight)) for square, seen in columns]
    return -float(np.mean(roots)) if roots else float("nan")


def _of_distribution(
    score: Callable[..., Array], estimator: Any, X: Any, y: Any, *options: Any
) -> tuple[np.ndarray, np.ndarray]:
    """y (N, n) and its scores, in double precision: in original units 2020.5 ± 0.001 has no digits left in float32."""
    model, X = _having("predict_dist", estimator, X)
    values = _targets(model, y)
    with jax.enable_x64(True):
        Y, mixture = scores.prepared(values, model.predict_dist(X))
        return values, np.asarray(scores.in_blocks(score, Y, mixture, jax.random.key(0), options))


def _average(values: np.ndarray, observed: np.ndarray, sample_weight: Any) -> float:
    """Mean of the observed values (N, ...), weighted by rows; NaN if there are none."""
    rows = len(values)
    weights = np.ones(rows) if sample_weight is None else _checks.doubles("sample_weight", sample_weight)
    if weights.shape != (rows,):
        raise ValueError(f"sample_weight must have shape ({rows},), one per row; got {weights.shape}")
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueError(f"sample_weight must be finite, 0 or more; got {weights.min()} to {weights.max()}")
    weights = np.broadcast_to(weights.reshape(rows, *[1] * (values.ndim - 1)), values.shape)[observed]
    return float(weights @ values[observed] / weights.sum()) if weights.any() else float("nan")


def _targets(model: Any, y: Any) -> np.ndarray:
    """y as (N, n); columns of a data frame are found by name."""
    values = _checks.doubles("y", _arguments.in_order(y, _names(model)))
    if values.ndim not in (1, 2):
        raise ValueError(f"y must have shape (N, n), or (N,) for one target; got {values.shape}")
    return values[:, None] if values.ndim == 1 else values


def _names(model: Any) -> list[str] | None:
    """The targets of the fit, if the estimator or what is inside it knows them."""
    while model is not None and not hasattr(model, "target_names_"):
        model = _inside(model)[0]
    return getattr(model, "target_names_", None)


def _having(method: str, estimator: Any, X: Any) -> tuple[Any, Any]:
    """The estimator, or the one inside it, that has the method, and X behind the steps before it."""
    found, steps = estimator, list[Any]()
    while isinstance(found, type) or not callable(getattr(found, method, None)):
        inner, before = _inside(found)
        if inner is None:
            raise TypeError(f"the estimator must have {method}, as MDERRegressor has; got {_described(found)}")
        found, steps = inner, [*steps, *before]
    for step in steps:
        X = step.transform(X)
    return found, X


def _inside(estimator: Any) -> tuple[Any, Sequence[Any]]:
    """The last step of a Pipeline and the transformers before it, or the best estimator of a search; or None."""
    if isinstance(estimator, type):
        return None, ()
    if hasattr(estimator, "named_steps"):
        *before, last = (step for _, step in estimator.steps)
        return last, [step for step in before if step not in (None, "passthrough")]
    return getattr(estimator, "best_estimator_", None), ()


def _described(estimator: Any) -> str:
    """Its class, and what to do about it if it stands around a model."""
    name = f"the class {estimator.__name__}" if isinstance(estimator, type) else type(estimator).__name__
    if hasattr(estimator, "regressor") and hasattr(estimator, "transformer"):
        return f"{name}, which predicts no distribution: use MDERRegressor(target_transform=...) instead"
    return f"{name}, which has no best_estimator_: fit it with refit=True" if hasattr(estimator, "refit") else name
