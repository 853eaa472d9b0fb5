"""Preprocessing and model as one estimator: a scikit-learn Pipeline that keeps everything `MDERRegressor` can do."""

import functools
import inspect
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, Self

import sklearn.pipeline
from sklearn.utils.validation import check_is_fitted

from mder_jax.estimator import MDERRegressor

__all__ = ["Pipeline", "make_pipeline"]

VALIDATION = "validation"  # the argument of `MDERRegressor.fit`
# What is said of a method that only passes X through the steps.
DOCUMENTATION = """As `MDERRegressor.{name}`, with X as it is before the steps:

{text}

Example:
  >>> import numpy as np
  >>> from sklearn.preprocessing import StandardScaler
  >>> X, Y = np.random.default_rng(0).uniform(size=(2, 60, 2))
  >>> model = make_pipeline(StandardScaler(), MDERRegressor((8,), members=2, max_iter=5)).fit(X[:30], Y[:30])
  >>> found = model.{call}
"""


class Pipeline(sklearn.pipeline.Pipeline):
    """`sklearn.pipeline.Pipeline` whose last step is an `MDERRegressor`, with all methods of that.

    Each method of `MDERRegressor` that is given rows X takes them as they are before the steps: `predict_interval`,
    `predict_uncertainty`, `log_prob`, `calibrate`, `plot` and so on. Keywords of these methods go to the model. Sparse
    results of the steps are made dense. Rows to validate with are also given as they are before the steps:
    ``fit(X, y, model__validation=(X, y))`` for a step named model. The model itself, with ``calibration_`` and the
    like, is ``pipeline[-1]``.

    Args:
      steps: pairs (name, transformer), and last (name, MDERRegressor).
      transform_input: as in scikit-learn.
      memory: as in scikit-learn.
      verbose: as in scikit-learn.

    Example:
      >>> import numpy as np
      >>> from sklearn.preprocessing import OneHotEncoder
      >>> kind, Y = np.array([["a"], ["b"]] * 30), np.random.default_rng(0).normal(size=(60, 2))
      >>> steps = [("encode", OneHotEncoder()), ("model", MDERRegressor((8,), members=2, max_iter=5))]
      >>> model = Pipeline(steps).fit(kind[:30], Y[:30]).calibrate(kind[30:], Y[30:])
      >>> print(model.predict_interval([["b"]], coverage=0.9).lower.shape)
      (1, 2)
    """

    def _fit(self, X: Any, y: Any = None, routed_params: Any = None, **options: Any) -> Any:
        """What scikit-learn's `fit` gives to the last step; rows to validate with go through the steps before it."""
        found = _dense(super()._fit(X, y, routed_params, **options))
        given = routed_params[self.steps[-1][0]]["fit"] if routed_params else {}
        for name, rows in given.items():
            if name.endswith(VALIDATION) and type(rows) is tuple and rows:
                given[name] = (self._before_the_model(rows[0]), *rows[1:])
        return found

    def _model(self) -> Any:
        """The last step."""
        name, last = self.steps[-1]
        if not isinstance(last, MDERRegressor | Pipeline):
            raise TypeError(
                f"the last step must be an MDERRegressor; {name!r} is {type(last).__name__}. "
                "For other models there is sklearn.pipeline.Pipeline"
            )
        return last

    def _before_the_model(self, X: Any) -> Any:
        """X behind all steps but the last."""
        for _, step in self.steps[:-1]:
            X = X if step in (None, "passthrough") else step.transform(X)
        return _dense(X)

    def save(self, path: str | pathlib.Path, extra: dict[str, Any] | None = None) -> None:
        """Write the model, **without the steps before it**, as `MDERRegressor.save` does.

        The steps are code, of which the file holds none. Keep them beside it, or fit them again to the same table, and
        give them to `load`.

        Args:
          path: of the file.
          extra: as in `MDERRegressor.save`.

        Example:
          >>> import numpy as np, tempfile
          >>> from sklearn.preprocessing import StandardScaler
          >>> X, Y = np.random.default_rng(0).uniform(size=(2, 60, 2))
          >>> model = make_pipeline(StandardScaler(), MDERRegressor((8,), members=2, max_iter=5)).fit(X[:30], Y[:30])
          >>> with tempfile.TemporaryDirectory() as folder:
          ...     model.save(f"{folder}/model.mder")
          ...     same = Pipeline.load(f"{folder}/model.mder", steps=[("scale", StandardScaler().fit(X[:30]))])
          >>> print(np.array_equal(same.predict(X[30:]), model.predict(X[30:])))
          True
        """
        check_is_fitted(self)
        self._model().save(path, extra)

    @classmethod
    def load(cls, path: str | pathlib.Path, steps: Sequence[tuple[str, Any]]) -> Self:
        """The model of a file that `save` or `MDERRegressor.save` wrote, behind steps that are fitted.

        **Other steps give other predictions.** They are not recognised unless the number of their columns is wrong,
        which the first prediction tells.

        Args:
          path: of the file.
          steps: pairs (name, fitted transformer), those of ``pipeline.steps[:-1]``.

        Example:
          >>> import numpy as np, tempfile
          >>> from sklearn.preprocessing import StandardScaler
          >>> X, Y = np.random.default_rng(0).uniform(size=(2, 60, 2))
          >>> model = make_pipeline(StandardScaler(), MDERRegressor((8,), members=2, max_iter=5)).fit(X[:30], Y[:30])
          >>> with tempfile.TemporaryDirectory() as folder:
          ...     model.save(f"{folder}/model.mder")
          ...     print(list(Pipeline.load(f"{folder}/model.mder", steps=model.steps[:-1]).named_steps))
          ['standardscaler', 'mderregressor']
        """
        made = cls([*_pairs(steps), ("mderregressor", MDERRegressor.load(path))])
        for _, step in made.steps[:-1]:
            if step not in (None, "passthrough"):
                check_is_fitted(step)
        return made

    def export(self, path: str | pathlib.Path) -> None:
        """Write the predictor as `MDERRegressor.export` does; **it takes the columns behind the steps**.

        Example:
          >>> import jax, numpy as np, tempfile
          >>> from sklearn.preprocessing import StandardScaler
          >>> X, Y = np.random.default_rng(0).uniform(size=(2, 60, 2))
          >>> model = make_pipeline(StandardScaler(), MDERRegressor((8,), members=2, max_iter=5)).fit(X[:30], Y[:30])
          >>> with tempfile.TemporaryDirectory() as folder:
          ...     model.export(f"{folder}/model.jaxexp")
          ...     predictor = jax.export.deserialize(bytearray(pathlib.Path(folder, "model.jaxexp").read_bytes()))
          >>> print(predictor.call(model[:-1].transform(X).astype(np.float32))["mean"].shape)
          (60, 2)
        """
        check_is_fitted(self)
        self._model().export(path)


def make_pipeline(*steps: Any, memory: Any = None, verbose: bool = False) -> Pipeline:
    """A `Pipeline` whose steps are named by their classes, as `sklearn.pipeline.make_pipeline` does it.

    Args:
      steps: transformers, and last an `MDERRegressor`.
      memory: as in scikit-learn.
      verbose: as in scikit-learn.

    Example:
      >>> import numpy as np
      >>> from sklearn.preprocessing import StandardScaler
      >>> X, Y = np.random.default_rng(0).uniform(size=(2, 60, 2))
      >>> model = make_pipeline(StandardScaler(), MDERRegressor((8,), members=2, max_iter=5)).fit(X[:30], Y[:30])
      >>> print(list(model.named_steps), model.predict_uncertainty(X[30:]).total.shape)
      ['standardscaler', 'mderregressor'] (30, 2, 2)
    """
    if not steps:
        raise ValueError("make_pipeline needs steps, the last of them an MDERRegressor; got none")
    made = Pipeline(sklearn.pipeline.make_pipeline(*steps).steps, memory=memory, verbose=verbose)
    made._model()
    return made


def _pairs(steps: Any) -> list[tuple[str, Any]]:
    pairs = list(steps) if isinstance(steps, list | tuple) else [steps]
    for pair in pairs:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)):
            wanted = "pairs (name, fitted transformer), such as pipeline.steps[:-1]"
            raise TypeError(f"steps must be {wanted}; got {type(pair).__name__}")
    return pairs


def _dense(X: Any) -> Any:
    """A sparse matrix as an array; anything else as it is."""
    return X.toarray() if hasattr(X, "toarray") else X


def _behind_the_steps(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of `MDERRegressor` for rows before the steps; where it returns the model, this returns the pipeline."""

    @functools.wraps(method)
    def for_all_steps(self: Pipeline, X: Any, *arguments: Any, **options: Any) -> Any:
        model = self._model()
        check_is_fitted(self)
        found = getattr(model, method.__name__)(self._before_the_model(X), *arguments, **options)
        return self if found is model else found

    name, parameters = method.__name__, inspect.signature(method).parameters
    text, _, _ = (inspect.getdoc(method) or "").partition("\n\nExample:")
    call = f"{name}(X[30:], Y[30:])" if "y" in parameters else f"{name}(X[30:])"
    for_all_steps.__module__, for_all_steps.__qualname__ = __name__, f"Pipeline.{name}"
    for_all_steps.__doc__ = DOCUMENTATION.format(name=name, text=text, call=call)
    return for_all_steps


def _takes_rows(name: str, method: Any) -> bool:
    """Whether it is a public method of X."""
    return inspect.isfunction(method) and not name.startswith("_") and "X" in inspect.signature(method).parameters


for _name, _method in vars(MDERRegressor).items():
    if _takes_rows(_name, _method) and _name != "fit":
        setattr(Pipeline, _name, _behind_the_steps(_method))
