"""The scikit-learn face: tables in; means, covariances, intervals and regions in original units out."""

import contextlib
import pathlib
import warnings
from collections.abc import Sequence
from typing import Any, Self

import jax
import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, validate_data

from mder_jax import calibration, plotting
from mder_jax._checks import check_option, doubles, in_order, is_integer, names_of, plain_number, target_names
from mder_jax.calibration import Scale
from mder_jax.devices import use_all_cores
from mder_jax.estimator import _calibration, model_file
from mder_jax.estimator._checks import (
    check_same_networks,
    check_settings,
    generator,
    refuse_gaps,
    refuse_huge,
    refuse_other_things,
    refuse_text_columns,
    rows_to_train_on,
    warn_of_degenerate_targets,
)
from mder_jax.estimator._design import Design
from mder_jax.estimator._prediction import Prediction
from mder_jax.estimator._predictor import Predictor
from mder_jax.estimator._standardizer import standardizer_of
from mder_jax.estimator.recipe import train
from mder_jax.estimator.results import Region, Uncertainty
from mder_jax.estimator.trained_rows import NOTICED, REFUSED, TrainedRows, found_among, remember
from mder_jax.mixture import Mixture
from mder_jax.student_t import Interval, StudentT

__all__ = ["MDERRegressor", "Prediction", "Region", "Uncertainty"]

PICTURES = ("calibration", "pit", "predicted_observed", "sparsification", "ellipses")


class MDERRegressor(RegressorMixin, BaseEstimator):
    r"""Multivariate deep evidential regression: an ensemble of networks that predict a mean and two covariances.

    Each member predicts a Normal-Inverse-Wishart distribution for every row, coupled by ν = r κ; the prediction is the
    mixture of the members' Student-t distributions. Inputs and targets are standardised inside, and everything comes
    back in original units. A NaN in Y is a target that was not observed: it costs no row, and the likelihood of the
    others is exact. Rows of X must be complete.

    **return_cov gives, for every row, the covariance between its targets, (N, n, n). It is not the covariance between
    rows that GaussianProcessRegressor returns.**

    The first fit in a process lets JAX see one device for each core, unless JAX was used before: see `use_all_cores`.

    Args:
      hidden_layer_sizes: widths of the hidden layers.
      activation: "relu", "tanh", "gelu" or "silu".
      members: networks of the ensemble.
      r: the coupling ν = r κ. It moves the border between aleatoric and epistemic and leaves the predictive
        distribution as it is; the scale that data can tell is fitted by `calibrate`.
      nu_max: largest ν, above n + 1; None for n + 11, as in the paper.
      bootstrap: each member trains on rows drawn with replacement.
      standardize: whether to standardise inputs and targets.
      alpha: weight decay of AdamW, relative to the learning rate.
      learning_rate_init: reached after a twentieth of the steps; then it falls to 0 along a cosine.
      batch_size: rows of a minibatch; "auto" for a fiftieth of the rows, but at least 32 and at most 256.
      max_iter: epochs.
      early_stopping: each member holds out rows of its own, keeps the parameters that were best on them, and stops when
        they have not been bettered for `n_iter_no_change` epochs.
      validation_fraction: rows that a member holds out, at most 10,000.
      n_iter_no_change: epochs without a better validation loss; "auto" for 50, or those of 1000 steps if they are
        fewer, but at least 10.
      random_state: seed of initial parameters, held-out rows, shuffles and bootstrap.
      verbose: whether to show a bar.
      warm_start: go on from the networks of the last fit, with its standardisation.

    Example:
      >>> X = np.random.default_rng(0).normal(size=(60, 3))
      >>> Y = X[:, :2] + np.random.default_rng(1).normal(size=(60, 2))
      >>> model = MDERRegressor(hidden_layer_sizes=(8,), members=2, max_iter=5, random_state=0).fit(X[:30], Y[:30])
      >>> mean, cov = model.predict(X[30:], return_cov=True)
      >>> print(mean.shape, cov.shape, model.predict_interval(X[30:], coverage=0.9).lower.shape)
      (30, 2) (30, 2, 2) (30, 2)
    """

    predictor_: Predictor
    calibration_: _calibration.Calibration | None
    trained_rows_: TrainedRows | None

    def __init__(
        self,
        hidden_layer_sizes: tuple[int, ...] = (64, 64),
        activation: str = "relu",
        *,
        members: int = 10,
        r: float = 1.0,
        nu_max: float | None = None,
        bootstrap: bool = False,
        standardize: bool = True,
        alpha: float = 1e-4,
        learning_rate_init: float = 1e-2,
        batch_size: int | str = "auto",
        max_iter: int = 500,
        early_stopping: bool = True,
        validation_fraction: float = 0.1,
        n_iter_no_change: int | str = "auto",
        random_state: Any = None,
        verbose: bool = False,
        warm_start: bool = False,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.members = members
        self.r = r
        self.nu_max = nu_max
        self.bootstrap = bootstrap
        self.standardize = standardize
        self.alpha = alpha
        self.learning_rate_init = learning_rate_init
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.random_state = random_state
        self.verbose = verbose
        self.warm_start = warm_start

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(
        self,
        X: Any,
        y: Any,
        checkpoint: str | pathlib.Path | None = None,
        target_names: Sequence[str] | None = None,
    ) -> Self:
        """Train the ensemble.

        Args:
          X: (N, d), an array or a data frame of numbers.
          y: (N, n) or (N,); NaN for targets that were not observed.
          checkpoint: a directory. If training is interrupted, the same call goes on from there.
          target_names: for messages, pictures and files; None for those of a data frame.

        Example:
          >>> X = np.random.default_rng(0).normal(size=(60, 3))
          >>> Y = X[:, :2] + np.random.default_rng(1).normal(size=(60, 2))
          >>> model = MDERRegressor(hidden_layer_sizes=(8,), members=2, max_iter=5, random_state=0).fit(X[:30], Y[:30])
          >>> print(model.n_iter_, model.loss_curve_.shape, model.n_features_in_, model.n_outputs_)
          5 (2, 5) 3 2
        """
        check_settings(self)
        with contextlib.suppress(RuntimeError):  # JAX has started, and keeps the devices it has
            use_all_cores()
        before = dict(self.__dict__)
        try:
            return self._fit(X, y, checkpoint, target_names)
        except BaseException:  # a fit that was refused or interrupted leaves the model as it was
            self.__dict__ = before
            raise

    def _fit(self, X: Any, y: Any, checkpoint: str | pathlib.Path | None, named: Sequence[str] | None) -> Self:
        X, Y, flat, names = self._checked(X, y, reset=True)
        names = names if named is None else list(target_names(named, Y.shape[1]))
        X, Y = rows_to_train_on(X, Y, names)
        warn_of_degenerate_targets(Y, names)
        design = self._design(X.shape[1], Y.shape[1])
        last = self.predictor_ if self.warm_start and hasattr(self, "predictor_") else None
        if last is not None:
            check_same_networks(last, design, int(self.members), self.standardize)
        inputs = standardizer_of(X, self.standardize, constant=np.inf) if last is None else last.inputs
        targets = standardizer_of(Y, self.standardize) if last is None else last.targets
        start = None if last is None else last.params
        random = self._random(again=last is not None)
        trained = train(self, design, random, inputs.forward(X), targets.forward(Y), start, checkpoint)
        self.predictor_ = Predictor(design, jax.tree.map(np.asarray, trained.params), inputs, targets, Scale(1.0, 1.0))
        self.calibration_ = None
        self.trained_rows_ = remember(X, Y, None if last is None else self.trained_rows_)
        self.flat_, self.target_names_, self.n_outputs_ = flat, names, Y.shape[1]
        self.n_iter_, self.n_rows_ = trained.epochs, len(X)
        self.loss_curve_ = np.asarray(trained.history.train)
        validation = trained.history.validation
        self.validation_curve_ = None if validation is None else np.asarray(validation)
        self.diverged_at_, self.best_epoch_ = trained.diverged_at, trained.best_epoch
        return self

    def _random(self, again: bool) -> np.random.RandomState:
        """The generator of a fit; a warm start holds out the rows that were held out before."""
        if self.random_state is not None:
            return generator(self.random_state)
        if not (again and hasattr(self, "seed_")):
            self.seed_ = int(generator(None).randint(2**31 - 1))
        return generator(self.seed_)

    def _design(self, inputs: int, targets: int) -> Design:
        widths = tuple(int(width) for width in np.atleast_1d(self.hidden_layer_sizes))
        bound = None if self.nu_max is None else float(self.nu_max)
        return Design(inputs, targets, widths, self.activation, float(self.r), bound, relative=True)

    def _checked_inputs(self, X: Any, reset: bool = False) -> np.ndarray:
        """X as floats."""
        refuse_text_columns(X)
        refuse_other_things("X", X)
        X = validate_data(self, X, dtype=(np.float64, np.float32), order="C", ensure_all_finite=False, reset=reset)
        refuse_gaps(X, getattr(self, "feature_names_in_", None))
        refuse_huge("X", X)
        return X

    def _checked(self, X: Any, y: Any, reset: bool = False) -> tuple[np.ndarray, np.ndarray, bool, list[str] | None]:
        """X as floats, Y as (N, n) floats, whether y was (N,), and the names of its columns."""
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        X = self._checked_inputs(X, reset)
        y = y if reset else in_order(y, self.target_names_)
        names = names_of(y)
        refuse_other_things("y", y)
        Y = check_array(y, ensure_2d=False, dtype=np.float64, order="C", ensure_all_finite="allow-nan", input_name="y")
        refuse_huge("y", Y)
        check_consistent_length(X, Y)
        flat = Y.ndim == 1
        Y = Y[:, None] if flat else Y
        if not reset and Y.shape[1] != self.n_outputs_:
            raise ValueError(f"y must have the {self.n_outputs_} targets of the fit; got shape {Y.shape}")
        return X, Y, flat, names

    def _for_prediction(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return self._checked_inputs(X)

    def _shaped(self, values: Any) -> Any:
        """(N, 1, ...) as (N, ...) if y was one-dimensional."""
        return values[:, 0] if self.flat_ else values

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """The mean, (N, n), or (N,) if y was; and with it, if asked for, standard deviations or covariances.

        Args:
          X: (N, d).
          return_std: standard deviation of a new observation (aleatoric and epistemic), in the shape of the mean.
          return_cov: **its covariance between the targets of each row**, (N, n, n).

        Example:
          >>> X = np.random.default_rng(0).normal(size=(60, 3))
          >>> Y = X[:, :2] + np.random.default_rng(1).normal(size=(60, 2))
          >>> model = MDERRegressor(hidden_layer_sizes=(8,), members=2, max_iter=5, random_state=0).fit(X[:30], Y[:30])
          >>> mean, std = model.predict(X[30:], return_std=True)
          >>> print(mean.shape, std.shape, model.predict(X[30:], return_cov=True)[1].shape)
          (30, 2) (30, 2) (30, 2, 2)
        """
        if return_std and return_cov:
            raise ValueError("ask for return_std or return_cov; the former are the roots of the latter's diagonal")
        found = self.predict_uncertainty(X)
        if return_std:
            return found.mean, found.std
        return (found.mean, found.total) if return_cov else found.mean

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Mean, (N, n), and aleatoric, epistemic and total covariance between the targets of each row, (N, n, n).

        Example:
          >>> X = np.random.default_rng(0).normal(size=(60, 3))
          >>> Y = X[:, :2] + np.random.default_rng(1).normal(size=(60, 2))
          >>> model = MDERRegressor(hidden_layer_sizes=(8,), members=2, max_iter=5, random_state=0).fit(X[:30], Y[:30])
          >>> u = model.predict_uncertainty(X[30:])
          >>> print(u.mean.shape, u.aleatoric.shape, u.epistemic.shape, u.std.shape)
          (30, 2) (30, 2, 2) (30, 2, 2) (30, 2)
        """
        X = self._for_prediction(X)
        found = self.predictor_.uncertainty(X)
        return found._replace(mean=self._shaped(found.mean))

    def predict_interval(self, X: Any, coverage: float = 0.9, joint: bool = False) -> Interval | Region:
        """Where a new observation lies with probability `coverage`: after `calibrate`, by the conformal scores.

        Args:
          X: (N, d).
          coverage: between 0 and 1.
          joint: False for an interval of each target on its own, `lower` and `upper`; True for one ellipsoid of all
            targets of a row: `centre`, `scale_tril` (Cholesky factor of the covariance) and `radius`.

        Example:
          >>> X = np.random.default_rng(0).normal(size=(60, 3))
          >>> Y = X[:, :2] + np.random.default_rng(1).normal(size=(60, 2))
          >>> model = MDERRegressor(hidden_layer_sizes=(8,), members=2, max_iter=5, random_state=0).fit(X[:30], Y[:30])
          >>> lower, upper = model.predict_interval(X[30:], coverage=0.9)
          >>> region = model.predict_interval(X[30:], coverage=0.9, joint=True)
          >>> print(lower.shape, upper.shape, region.centre.shape, region.contains(Y[30:]).shape)
          (30, 2) (30, 2) (30, 2) (30,)
        """
        coverage = plain_number("coverage", coverage)
        if not 0 < coverage < 1:
            raise ValueError(f"coverage is a probability between 0 and 1; got {coverage}")
        X = self._for_prediction(X)
        radius = self._conformal_radius(coverage, joint)
        if joint:
            region = self.predictor_.region(X, coverage, radius)
            return (
                region if radius is not None else region._replace(radius=np.maximum(region.radius, self._widest(True)))
            )
        if radius is None or np.isinf(radius).any():
            lower, upper = self.predictor_.interval(X, coverage)
        if radius is not None:
            few = np.isinf(radius)
            ends = self._conformal_interval(X, np.where(few, self._widest(False), radius))
            lower = np.where(few, np.minimum(lower, ends[0]), ends[0]) if few.any() else ends[0]
            upper = np.where(few, np.maximum(upper, ends[1]), ends[1]) if few.any() else ends[1]
        return Interval(self._shaped(lower), self._shaped(upper))

    def _widest(self, joint: bool) -> np.ndarray:
        """The largest conformal score, () or (n,), 0 if there is none: no interval of a higher coverage is narrower."""
        if self.calibration_ is None:
            return np.zeros(())
        scores = self.calibration_.joint_scores if joint else self.calibration_.target_scores
        return np.max(np.nan_to_num(scores), axis=0, initial=0.0)

    @np.errstate(invalid="ignore", over="ignore")
    def _conformal_interval(self, X: np.ndarray, radius: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """mean ± radius std of each target, or everything where they are not finite."""
        parts = self.predictor_.uncertainty(X)
        half = radius * parts.std
        known = np.isfinite(parts.mean) & np.isfinite(half)
        return np.where(known, parts.mean - half, -np.inf), np.where(known, parts.mean + half, np.inf)

    def _conformal_radius(self, coverage: float, joint: bool) -> np.ndarray | None:
        """From the calibration, () or (n,); ∞ for a target with too few rows for this coverage, None without any."""
        if self.calibration_ is None:
            return None
        radius = self.calibration_.radius(coverage, joint)
        if np.isfinite(radius).all():
            return radius
        needed, counts = calibration.rows_needed(coverage), self.calibration_.counts(joint)
        who = "complete calibration rows" if joint else "calibration rows"
        if joint or np.isinf(radius).all():
            here = f"{counts.min()} {'is' if counts.min() == 1 else 'are'} there"
            told = f"{here}: the model's own distribution is used"
        else:
            few = [f"{name!r} has {count}" for name, count in zip(self._names(), counts, strict=True) if count < needed]
            told = f"{', '.join(few)}: for {'it' if len(few) == 1 else 'them'} the model's own quantiles are used"
        message = f"conformal coverage {coverage:g} needs {needed} {who}; {told}"
        warnings.warn(message, UserWarning, stacklevel=3)
        return None if joint else radius

    def _names(self) -> tuple[str, ...]:
        return target_names(self.target_names_, self.n_outputs_)

    def predict_quantiles(self, X: Any, quantiles: Any = (0.05, 0.5, 0.95)) -> np.ndarray:
        """Of each target on its own, (N, n, K) for K quantiles, or (N, K) if y was one-dimensional.

        They are those of the predictive distribution, scaled by `calibrate` but not conformal: `predict_interval` is,
        and its ends are not these quantiles.

        Example:
          >>> X = np.random.default_rng(0).normal(size=(60, 3))
          >>> Y = X[:, :2] + np.random.default_rng(1).normal(size=(60, 2))
          >>> model = MDERRegressor(hidden_layer_sizes=(8,), members=2, max_iter=5, random_state=0).fit(X[:30], Y[:30])
          >>> lower, upper = np.moveaxis(model.predict_quantiles(X[30:], [0.05, 0.95]), -1, 0)
          >>> print(lower.shape, (lower < upper).all())
          (30, 2) True
        """
        levels = doubles("quantiles", quantiles)
        if levels.ndim != 1 or not len(levels) or not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"quantiles are a list of probabilities between 0 and 1; got {quantiles}")
        X = self._for_prediction(X)
        return self._shaped(self.predictor_.quantiles(X, levels))

    def predict_dist(self, X: Any) -> Mixture | StudentT:
        """The predictive distribution of the rows, batch shape (N,): a `Mixture`, or the `StudentT` of one member.

        In original units and the precision of JAX, float32 unless it is told otherwise. Then 2020.5 ± 0.001 has no
        digits left; the other methods keep them.

        Example:
          >>> X = np.random.default_rng(0).normal(size=(60, 3))
          >>> Y = X[:, :2] + np.random.default_rng(1).normal(size=(60, 2))
          >>> model = MDERRegressor(hidden_layer_sizes=(8,), members=2, max_iter=5, random_state=0).fit(X[:30], Y[:30])
          >>> mixture = model.predict_dist(X[30:])
          >>> print(type(mixture).__name__, mixture.size, mixture.batch_shape, mixture.n)
          Mixture 2 (30,) 2
        """
        X = self._for_prediction(X)
        return self.predictor_.distribution(X)

    def predict_all(self, X: Any) -> Prediction:
        """Uncertainty, intervals and distribution of the rows X, (N, d), from one run of the networks.

        Use it where more than one of `predict_uncertainty`, `predict_interval` and `predict_dist` is needed for the
        same rows: the results are the same.

        Example:
          >>> X = np.random.default_rng(0).normal(size=(60, 3))
          >>> Y = X[:, :2] + np.random.default_rng(1).normal(size=(60, 2))
          >>> model = MDERRegressor(hidden_layer_sizes=(8,), members=2, max_iter=5, random_state=0).fit(X[:30], Y[:30])
          >>> prediction = model.predict_all(X[30:])
          >>> lower, upper = prediction.interval(coverage=0.9)
          >>> print(prediction.uncertainty().std.shape, lower.shape, prediction.distribution().batch_shape)
          (30, 2) (30, 2) (30,)
        """
        return Prediction(self, X, self.predictor_.outputs(self._for_prediction(X)))

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Joint draws of new observations, (N, n, n_samples), or (N, n_samples) if y was one-dimensional.

        Example:
          >>> X = np.random.default_rng(0).normal(size=(60, 3))
          >>> Y = X[:, :2] + np.random.default_rng(1).normal(size=(60, 2))
          >>> model = MDERRegressor(hidden_layer_sizes=(8,), members=2, max_iter=5, random_state=0).fit(X[:30], Y[:30])
          >>> print(model.sample_y(X[30:], n_samples=100).shape)
          (30, 2, 100)
        """
        if not is_integer(n_samples) or n_samples < 1:
            raise ValueError(f"n_samples must be an integer, 1 or more; got {n_samples!r}")
        X = self._for_prediction(X)
        key = jax.random.key(int(generator(random_state).randint(2**31 - 1)))
        return self._shaped(self.predictor_.sample(X, key, int(n_samples)))

    def log_prob(self, X: Any, y: Any) -> np.ndarray:
        """ln p(y) of each row, (N,), in original units; a NaN in y is a target that was not observed.

        Example:
          >>> X = np.random.default_rng(0).normal(size=(60, 3))
          >>> Y = X[:, :2] + np.random.default_rng(1).normal(size=(60, 2))
          >>> model = MDERRegressor(hidden_layer_sizes=(8,), members=2, max_iter=5, random_state=0).fit(X[:30], Y[:30])
          >>> Y[30, 1] = np.nan  # not observed
          >>> print(model.log_prob(X[30:], Y[30:]).shape, np.isfinite(model.log_prob(X[30:], Y[30:])).all())
          (30,) True
        """
        check_is_fitted(self)
        X, Y, _, _ = self._checked(X, y)
        return self.predictor_.log_prob(X, Y)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² = 1 − Σ(y − mean)²/Σ(y − ȳ)², of each target over the rows in which it was observed, averaged.

        Example:
          >>> X = np.random.default_rng(0).normal(size=(60, 3))
          >>> Y = X[:, :2] + np.random.default_rng(1).normal(size=(60, 2))
          >>> model = MDERRegressor(hidden_layer_sizes=(8,), members=2, max_iter=5, random_state=0).fit(X[:30], Y[:30])
          >>> print(model.score(X[30:], Y[30:]) < 1)
          True
        """
        check_is_fitted(self)
        X, Y, _, _ = self._checked(X, y)
        mean = self.predictor_.uncertainty(X).mean
        weights = None if sample_weight is None else doubles("sample_weight", sample_weight)
        if weights is not None and weights.shape != (len(X),):
            raise ValueError(f"sample_weight must have shape ({len(X)},), one per row; got {weights.shape}")
        if not np.isfinite(mean).all():
            raise ValueError(f"R² needs finite predictions; that of row {np.argwhere(~np.isfinite(mean))[0][0]} is not")
        scores, known = [], np.isfinite(Y)
        if not known.any():
            raise ValueError(f"no target was observed: all {len(Y)} rows of y are NaN")
        for target in np.flatnonzero(known.any(axis=0)):
            seen = known[:, target]
            own = None if weights is None else weights[seen]
            scores.append(r2_score(Y[seen, target], mean[seen, target], sample_weight=own))
        return float(np.mean(scores))

    def calibrate(self, X: Any, y: Any, method: str = "likelihood", separate: bool = False) -> Self:
        """Fit the scale of the predictive covariance, and conformal scores, to rows that were held out from `fit`.

        Everything predicted afterwards is rescaled, and intervals and regions are conformal: they hold a new row with
        the probability they say, or more where scores are tied, if it is exchangeable with these rows. What was found,
        with the coverage before and after, is in ``calibration_``; print it. If the rows do not determine the scale, a
        warning says so and the covariance stays as it is; rows that were trained on are refused.

        Args:
          X: (N, d), not rows of the fit.
          y: (N, n) or (N,).
          method: "likelihood", "pull" or "posterior"; see `calibration.fit_scale`.
          separate: one factor for the members' own covariance and one for their disagreement.

        Example:
          >>> X = np.random.default_rng(0).normal(size=(60, 3))
          >>> Y = X[:, :2] + np.random.default_rng(1).normal(size=(60, 2))
          >>> model = MDERRegressor(hidden_layer_sizes=(8,), members=2, max_iter=5, random_state=0).fit(X[:30], Y[:30])
          >>> model = model.calibrate(X[30:], Y[30:])
          >>> print(model.calibration_.fit.rows, model.calibration_.joint_scores.shape)
          30 (30,)
        """
        check_is_fitted(self)
        X, Y, _, _ = self._checked(X, y)
        known = self._trained_on(X, Y)
        plain = self.predictor_.with_scale(Scale(1.0, 1.0))
        found = _calibration.calibrate(plain, X, Y, method, separate, known)
        for note in found.notes:
            warnings.warn(note, UserWarning, stacklevel=2)
        unseen = [name for name, count in zip(self._names(), found.counts(joint=False), strict=True) if not count]
        if unseen:
            named = ", ".join(map(repr, unseen))
            message = (
                f"target {named} was not observed in any calibration row; it is scaled like the others, not conformal"
            )
            warnings.warn(message, UserWarning, stacklevel=2)
        self.predictor_, self.calibration_ = plain.with_scale(found.fit.scale), found
        return self

    def _trained_on(self, X: np.ndarray, Y: np.ndarray) -> str:
        """What to say if some of these rows were trained on, empty if none; an error if it is half of them."""
        trained: TrainedRows | None = getattr(self, "trained_rows_", None)
        if trained is None:  # version 0.1.0 did not remember them
            return ""
        found, share = found_among(trained, X, Y)
        if share < NOTICED:
            return ""
        remedy = "calibrate with rows that fit has not seen"
        if share >= REFUSED:
            raise ValueError(
                f"{found} of these {len(X)} rows are rows of the fit, which say nothing of new ones; {remedy}"
            )
        return f"{found} of these {len(X)} rows are rows of the fit, so the coverage is not checked; {remedy}"

    def plot(self, X: Any, y: Any, kind: str = "calibration", ax: Any = None, **options: Any) -> Any:
        """A picture of the predictions for rows with known targets, as matplotlib Axes.

        Args:
          X: (N, d).
          y: (N, n) or (N,).
          kind: "calibration", "pit", "predicted_observed", "sparsification" or "ellipses", as in `mder_jax.plotting`.
          ax: where to draw; None for a new figure, ``ax.figure``.
          options: of that function, such as ``target=1`` or ``joint=True``.

        Example:
          >>> X = np.random.default_rng(0).normal(size=(60, 3))
          >>> Y = X[:, :2] + np.random.default_rng(1).normal(size=(60, 2))
          >>> model = MDERRegressor(hidden_layer_sizes=(8,), members=2, max_iter=5, random_state=0).fit(X[:30], Y[:30])
          >>> print(model.plot(X[30:], Y[30:], kind="predicted_observed", target=1).get_xlabel())
          predicted y1
        """
        check_option("kind", kind, PICTURES)
        check_is_fitted(self)
        X, Y, _, _ = self._checked(X, y)
        names = self.target_names_
        if kind == "predicted_observed" and names:
            options = {"name": names[options.get("target", 0)]} | options
        elif kind != "predicted_observed":
            options = {"names": names} | options
        with jax.enable_x64(True):  # in original units: 2020.5 ± 0.001 has no digits left in float32
            prediction = self.predictor_.distribution(X)
            if kind == "ellipses":
                return plotting.ellipses(prediction, y=Y, **options, ax=ax)
            return getattr(plotting, kind)(Y, prediction, **options, ax=ax)

    def save(self, path: str | pathlib.Path, extra: dict[str, Any] | None = None) -> None:
        """Write the fitted model to one file, without pickle, whole or not at all.

        Args:
          path: of the file.
          extra: anything JSON can hold, to be found as ``extra_`` of the loaded model; None for what this model was
            loaded with.

        Example:
          >>> X = np.random.default_rng(0).normal(size=(60, 3))
          >>> Y = X[:, :2] + np.random.default_rng(1).normal(size=(60, 2))
          >>> model = MDERRegressor(hidden_layer_sizes=(8,), members=2, max_iter=5, random_state=0).fit(X[:30], Y[:30])
          >>> import tempfile
          >>> with tempfile.TemporaryDirectory() as folder:
          ...     model.save(f"{folder}/model.mder")
          ...     same = MDERRegressor.load(f"{folder}/model.mder")
          >>> print(np.array_equal(same.predict(X[30:]), model.predict(X[30:])))
          True
        """
        check_is_fitted(self)
        model_file.save(self, path, extra)

    @classmethod
    def load(cls, path: str | pathlib.Path) -> Self:
        """The model of a file that `save` wrote. Any other file raises a `ModelFileError`; no code in it is run.

        Example:
          >>> X = np.random.default_rng(0).normal(size=(60, 3))
          >>> Y = X[:, :2] + np.random.default_rng(1).normal(size=(60, 2))
          >>> model = MDERRegressor(hidden_layer_sizes=(8,), members=2, max_iter=5, random_state=0).fit(X[:30], Y[:30])
          >>> import tempfile
          >>> with tempfile.TemporaryDirectory() as folder:
          ...     model.save(f"{folder}/model.mder")
          ...     same = MDERRegressor.load(f"{folder}/model.mder")
          >>> print(np.array_equal(same.predict(X[30:]), model.predict(X[30:])))
          True
        """
        return model_file.load(cls, path)

    def export(self, path: str | pathlib.Path) -> None:
        """Write the predictor as an artefact of `jax.export`, which runs where only jax is installed.

        ``jax.export.deserialize(bytes).call(x)``, with x (rows, d) in float32 and original units, any number of rows,
        gives a dict of mean (rows, n), aleatoric, epistemic and total covariance (rows, n, n). All of it is in float32:
        a target such as 2020.5 ± 0.001 loses its digits, which is said with a warning.

        Example:
          >>> X = np.random.default_rng(0).normal(size=(60, 3))
          >>> Y = X[:, :2] + np.random.default_rng(1).normal(size=(60, 2))
          >>> model = MDERRegressor(hidden_layer_sizes=(8,), members=2, max_iter=5, random_state=0).fit(X[:30], Y[:30])
          >>> import tempfile
          >>> with tempfile.TemporaryDirectory() as folder:
          ...     model.export(f"{folder}/model.jaxexp")
          ...     predictor = jax.export.deserialize(bytearray(pathlib.Path(folder, "model.jaxexp").read_bytes()))
          >>> print(predictor.call(X[30:].astype(np.float32))["total"].shape)
          (30, 2, 2)
        """
        check_is_fitted(self)
        model_file.export(self.predictor_, path)
