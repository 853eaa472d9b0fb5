"""The scikit-learn interface: from tables to means, covariances, intervals and regions in original units."""

import contextlib
import pathlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

import jax
import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from mder_jax import plotting
from mder_jax._arguments import check_option, is_integer, target_names
from mder_jax.calibration import Scale
from mder_jax.columns import Encoded, Encoding
from mder_jax.devices import use_all_cores
from mder_jax.ensemble import Ensemble
from mder_jax.estimator import _checks, _export, _held_out, _training_table, model_file
from mder_jax.estimator._calibration import Calibration
from mder_jax.estimator._fit_calibration import HeldOut as HeldOutRows, calibrate, calibrate_by_members, cross_calibrate
from mder_jax.estimator._folds import fit_folds, folds_of
from mder_jax.estimator._held_out import Before, HeldOut, Split
from mder_jax.estimator._own_network import check_network
from mder_jax.estimator._predicted_rows import PredictedRows, Prediction
from mder_jax.estimator._predictor import Design, Predictor
from mder_jax.estimator._rows import Rows
from mder_jax.estimator._training_table import Preparation, Table
from mder_jax.estimator.beside import KINDS
from mder_jax.estimator.cross_conformal import FoldModel, MemberFold
from mder_jax.estimator.recipe import Recipe, train
from mder_jax.estimator.results import Region, Uncertainty
from mder_jax.estimator.trained_rows import TrainedRows, hashes_of, note_of_other_rows, note_of_trained_rows, remember
from mder_jax.mixture import Mixture
from mder_jax.networks import LEARNED
from mder_jax.niw import NIW
from mder_jax.student_t import Interval, StudentT

__all__ = ["MDERRegressor", "Prediction", "Region", "Uncertainty"]

# The value of cv for rows that members held out.
MEMBERS = "members"
PERIODIC = "periodic"
FIGURES = ("calibration", "pit", "predicted_observed", "sparsification", "ellipses")


class MDERRegressor(RegressorMixin, BaseEstimator):
    r"""Multivariate deep evidential regression: an ensemble of networks that predict a mean and two covariances.

    Each member predicts a Normal-Inverse-Wishart distribution for every row, coupled by ν = r κ; the prediction is the
    mixture of the members' Student-t distributions. Inputs and targets are standardised inside, and everything comes
    back in original units. A NaN in Y is a target that was not observed: the row is used, with the exact likelihood of
    its other targets. X may hold numbers, categories, text, booleans and dates, with gaps: `mder_jax.columns` makes
    numbers of them. Rows unlike those of the fit, out of range or with an unseen category, are named in a warning and
    have a larger epistemic part.

    **return_cov gives, for every row, the covariance between its targets, (N, n, n). It is not the covariance between
    rows that GaussianProcessRegressor returns.**

    The first fit in a process lets JAX see one device for each core, unless JAX was used before: see `use_all_cores`.

    Args:
      hidden_layer_sizes: widths of the hidden layers.
      activation: "swish", whose sharpness is learned (see `table_network`), "relu", "tanh", "gelu" or "silu".
      embedding: "periodic" to embed numbers, as `PeriodicEmbedding` says; None to use them as they are.
      members: number of networks.
      beside: members that are no networks: "process", a Gaussian process of several targets (see `mder_jax.process`),
        and "forest", trees whose answers are rows of the table (see `mder_jax.forest`); () or None for none. They have
        the weights with which the mixture predicts those rows best that early stopping held out. One with less than 2 %
        is left out. There is none without early stopping, with a network or loss of your own, for fewer than ten rows
        and for more than 32 targets. The model and its file hold targets of rows for the forest, and inputs of up to
        1000 rows for the process.
      r: the coupling ν = r κ. It moves the border between aleatoric and epistemic and leaves the predictive
        distribution as it is; the scale, which data determine, is fitted by `calibrate`.
      nu_max: largest ν, above n + 1; None for n + 11, as in the paper.
      bootstrap: each member trains on rows drawn with replacement.
      standardize: whether to standardise inputs and targets.
      categorical_features: names or positions of columns of X that hold categories though they look like numbers; text
        is recognised.
      target_transform: what the networks learn instead of the targets: "log", "log1p" (ln(1 + y)) or "sqrt", or a
        scikit-learn transformer with inverse_transform, increasing or decreasing, of which a copy is fitted to each
        target; None for the targets themselves. A list has one entry for each target, a dict is by name or index.
        Results are in original units.
      alpha: weight decay of AdamW, relative to the learning rate; "auto" for 0.05, with a rate of 0.001 for 1.
      learning_rate_init: reached after a twentieth of the steps; then it falls to 0 along a cosine. "auto" for 0.005.
        With at most 5000 rows it also trains with 0.001 and keeps the better of both by early stopping's held-out rows.
      batch_size: rows of a minibatch; "auto" for a fiftieth of the rows, but at least 32 and at most 256.
      max_iter: largest number of epochs; "auto" for those of 5000 steps, or 100 if these are more, but at most 500
        epochs and 20,000 steps.
      early_stopping: up to five members hold out the same rows, others hold out others. All keep the parameters of the
        epoch in which the mixtures of those that held out a row predict it best, once their scale is right (one factor
        on L, which is then fitted to these rows), and stop after `n_iter_no_change` epochs without an improvement. With
        a network or loss of your own each member has its own epoch, and there is no factor. "last": all members hold
        out the last rows, for rows in the order of time. `fit` also accepts groups, which are held out whole, or
        separate rows to validate with.
      validation_fraction: of the rows, held out by a member, at most 10,000.
      n_iter_no_change: epochs without a better validation loss; "auto" for those of 1500 steps, but at least 10.
      random_state: seed of initial parameters, held-out rows, shuffles and bootstrap.
      verbose: whether to show a progress bar.
      network: in the place of hidden layers: a `Network` whose output is a `NIW` of the n targets; or a Flax Linen
        module, or a function of ``rngs`` that builds a Flax NNX module, from standardised inputs (B, d) to raw outputs
        (B, num_outputs(n)), to which `niw_link` with `r`, `nu_max` and ``relative=True`` is applied.
      loss: a function (niw, y) -> (B,) of standardised targets, in the place of `mder_nll`.
      warm_start: resume from the networks of the last fit, with its standardisation. Rows that a member held out are
        held out again, also if there are new rows, of which the same fraction is held out.

    Example:
      >>> X, Y = np.random.default_rng(0).uniform(size=(2, 60, 2))
      >>> model = MDERRegressor(hidden_layer_sizes=(8,), members=2, max_iter=5, random_state=0).fit(X[:30], Y[:30])
      >>> mean, cov = model.predict(X[30:], return_cov=True)
      >>> print(mean.shape, cov.shape, model.predict_interval(X[30:], coverage=0.9).lower.shape)
      (30, 2) (30, 2, 2) (30, 2)
    """

    encoding_: Encoding
    predictor_: Predictor
    calibration_: Calibration | None
    trained_rows_: TrainedRows | None
    held_out_: HeldOut | None

    def __init__(
        self,
        hidden_layer_sizes: tuple[int, ...] = (128, 128, 128),
        activation: str = LEARNED,
        *,
        embedding: str | None = PERIODIC,
        members: int = 10,
        beside: Sequence[str] | None = KINDS,
        r: float = 1.0,
        nu_max: float | None = None,
        bootstrap: bool = False,
        standardize: bool = True,
        categorical_features: Sequence[Any] | None = None,
        target_transform: Any = None,
        alpha: float | str = "auto",
        learning_rate_init: float | str = "auto",
        batch_size: int | str = "auto",
        max_iter: int | str = "auto",
        early_stopping: bool | str = True,
        validation_fraction: float = 0.1,
        n_iter_no_change: int | str = "auto",
        random_state: Any = None,
        verbose: bool = False,
        warm_start: bool = False,
        network: Any = None,
        loss: Callable[[NIW, Any], Any] | None = None,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.embedding = embedding
        self.members = members
        self.beside = beside
        self.r = r
        self.nu_max = nu_max
        self.bootstrap = bootstrap
        self.standardize = standardize
        self.categorical_features = categorical_features
        self.target_transform = target_transform
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
        self.network = network
        self.loss = loss

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = True
        return tags

    def fit(
        self,
        X: Any,
        y: Any,
        checkpoint: str | pathlib.Path | None = None,
        target_names: Sequence[str] | None = None,
        *,
        sample_weight: Any = None,
        validation: tuple[Any, ...] | None = None,
        groups: Any = None,
    ) -> Self:
        """Train the ensemble.

        Args:
          X: (N, d), an array or a data frame.
          y: (N, n) or (N,); NaN for targets that were not observed.
          checkpoint: a directory. If training is interrupted, the same call resumes from there.
          target_names: for messages, figures and files; None for those of a data frame.
          sample_weight: (N,), 0 or more: of the rows in standardisation, loss and validation loss. A row of weight 0 is
            left out. A row of weight 2 is not exactly two rows, since a minibatch may have one of two rows.
          validation: (X, y) or (X, y, sample_weight) for early stopping of all members, which then train on all rows.
          groups: (N,), numbers or names. A member holds out whole groups: one or more, never all, with about
            `validation_fraction` of the rows.

        Example:
          >>> X, Y = np.random.default_rng(0).uniform(size=(2, 60, 2))
          >>> model = MDERRegressor((8,), members=2, max_iter=5).fit(X[:30], Y[:30])
          >>> print(model.n_iter_, model.loss_curve_.shape, model.n_features_in_, model.n_outputs_)
          5 (2, 5) 2 2
          >>> model = model.fit(X[:30], Y[:30], sample_weight=np.linspace(0, 1, 30), validation=(X[30:], Y[30:]))
          >>> print(model.n_rows_, model.validation_curve_.shape)
          29 (2, 5)
        """
        _checks.check_settings(self.get_params(deep=False))
        _checks.check_ways_to_validate(self.early_stopping, validation, groups)
        with contextlib.suppress(RuntimeError):  # JAX has started, and keeps the devices it has
            use_all_cores()
        before = dict(self.__dict__)
        try:
            self._fit(X, y, checkpoint, target_names, sample_weight, validation, groups)
        except BaseException:  # a fit that was refused or interrupted leaves the model as it was
            self.__dict__ = before
            raise
        return self

    def _fit(
        self,
        X: Any,
        y: Any,
        checkpoint: str | pathlib.Path | None,
        named: Sequence[str] | None,
        sample_weight: Any,
        validation: Any,
        groups: Any,
        like: Encoding | None = None,
    ) -> None:
        table = _training_table.checked(self, X, y, named, sample_weight, groups)
        self.flat_, self.target_names_, self.n_outputs_ = table.flat, table.names, table.Y.shape[1]
        apart = _checks.checked_validation(self, validation)
        last = self.predictor_ if self.warm_start and hasattr(self, "predictor_") else None
        preparation, X, design = self._prepared(table, last, like)
        random = self._random(again=last is not None)
        seed = int(random.randint(2**31 - 1))
        split = self._split(random, X, table, validated_apart=apart is not None, again=last is not None)
        rows = preparation.rows(X, table.Y, table.weights)
        to_validate = _training_table.of_validation(preparation, apart)
        start, recipe = None if last is None else last.params, self._recipe()
        together = self.loss is None and design.own is None
        data = rows, split.held, to_validate
        what = recipe, design.network(), self.loss, seed
        trained, factor, beside = train(*what, *data, start, checkpoint, together, design.embedded)
        params, (encoding, transform, inputs, targets, _) = jax.tree.map(np.asarray, trained.params), preparation
        params = design.rescaled(params, factor) if factor != 1 else params
        self.predictor_ = Predictor(design, params, inputs, targets, Scale(1.0, 1.0), transform, beside)
        self.encoding_, self.calibration_ = encoding, None
        self.trained_rows_, self.held_out_, self.own_loss_ = split.rows, split.held_out, self.loss is not None
        self._remember_training(trained, len(X))

    def _prepared(
        self, table: Table, last: Predictor | None, like: Encoding | None
    ) -> tuple[Preparation, np.ndarray, Design]:
        """How tables become rows, the encoded inputs of this one, and the networks; as before in a warm start."""
        if last is None:
            settings = self.categorical_features, self.target_transform, self.standardize
            preparation, X = _training_table.learn(table, *settings, like)
            return preparation, X, self._design(preparation.encoding, preparation.numbers)
        _checks.check_same_columns(self.encoding_.table_width, self.n_features_in_)
        preparation, X = _training_table.resumed(table, self.encoding_, last, self.target_transform)
        design = self._design(preparation.encoding, preparation.numbers)
        _checks.check_same_networks(last, design, int(self.members), self.standardize)
        _checks.check_same_loss(getattr(self, "own_loss_", False), self.loss)
        return preparation, X, design

    def _remember_training(self, trained: Ensemble, rows: int) -> None:
        self.n_iter_, self.n_rows_ = trained.epochs, rows
        self.loss_curve_, validation = np.asarray(trained.history.train), trained.history.validation
        self.validation_curve_ = None if validation is None else np.asarray(validation)
        self.diverged_at_, self.best_epoch_ = trained.diverged_at, trained.best_epoch

    def _split(
        self, random: np.random.RandomState, X: np.ndarray, table: Table, validated_apart: bool, again: bool
    ) -> Split:
        """The rows of the fit, and which of them each member holds out, unless there is no need to."""
        before = self.trained_rows_ if again else None
        rows = remember(X, table.Y, before)
        if validated_apart or not self.early_stopping or len(X) == 1:
            return Split(rows)
        if table.groups is not None:
            _checks.check_several_groups(table.groups)
        held_before = getattr(self, "held_out_", None)
        earlier = Before(held_before, before) if before is not None and held_before is not None else None
        last, fraction = self.early_stopping == _checks.LAST, float(self.validation_fraction)
        hashes = hashes_of(rows, X, table.Y)
        held = _held_out.choose(random, hashes, int(self.members), fraction, last, table.groups, earlier)
        return Split(rows, held, _held_out.remember(held, hashes, earlier and earlier.held_out, before))

    def _random(self, again: bool) -> np.random.RandomState:
        """The generator of a fit; a warm start holds out the rows that were held out before."""
        if self.random_state is not None:
            return _checks.generator(self.random_state)
        if not (again and hasattr(self, "seed_")):
            self.seed_ = int(_checks.generator(None).randint(2**31 - 1))
        return _checks.generator(self.seed_)

    def _design(self, encoding: Encoding, numbers: tuple[int, ...]) -> Design:
        widths = tuple(int(width) for width in np.atleast_1d(self.hidden_layer_sizes))
        bound = None if self.nu_max is None else float(self.nu_max)
        periodic: tuple[int, ...] | None = numbers if self.embedding == PERIODIC else ()
        if self.network is not None:
            check_network(self.network, encoding.width, self.n_outputs_)
            periodic = None
        rest = {"embedded": encoding.embedded, "own": self.network, "periodic": periodic}
        sizes = encoding.width, self.n_outputs_, widths
        return Design(*sizes, self.activation, float(self.r), bound, relative=True, **rest)

    def _recipe(self) -> Recipe:
        return Recipe(
            members=int(self.members),
            epochs=None if self.max_iter == "auto" else int(self.max_iter),
            rate=_number_or_auto(self.learning_rate_init),
            alpha=_number_or_auto(self.alpha),
            batch_size=None if self.batch_size == "auto" else int(self.batch_size),
            bootstrap=bool(self.bootstrap),
            patience=None if self.n_iter_no_change == "auto" else int(self.n_iter_no_change),
            progress=bool(self.verbose),
            beside=() if self.beside is None else tuple(self.beside),
        )

    def _encoded(self, X: Any) -> Encoded:
        """Rows X as the networks read them, after checking them."""
        check_is_fitted(self)
        return self.encoding_.encode(_checks.checked_inputs(self, X))

    def _encoded_with_targets(self, X: Any, y: Any) -> tuple[Encoded, np.ndarray]:
        check_is_fitted(self)
        X, Y, _, _ = _checks.checked_table(self, X, y)
        return self.encoding_.encode(X), Y

    def _rows_of(self, encoded: Encoded, keep: bool = False) -> PredictedRows:
        """What is predicted for the rows; with `keep` from one run of the networks."""
        names = target_names(self.target_names_, self.n_outputs_)
        return self.predictor_.rows(encoded, keep, calibration=self.calibration_, flat=self.flat_, names=names)

    def _rows(self, X: Any) -> PredictedRows:
        return self._rows_of(self._encoded(X))

    def _rows_with_folds(self, X: Any, keep: bool = False) -> tuple[PredictedRows, Encoded]:
        """What is predicted for the rows, also by the models of a cross-conformal calibration; and the rows."""
        check_is_fitted(self)
        table = _checks.checked_inputs(self, X)
        encoded = self.encoding_.encode(table)
        folds = () if self.calibration_ is None else self.calibration_.folds
        rows = self._rows_of(encoded, keep or any(isinstance(fold, MemberFold) for fold in folds))
        own = (fold.rows(rows) if isinstance(fold, MemberFold) else fold.rows(table, keep) for fold in folds)
        return replace(rows, folds=tuple(own)), encoded

    def _rows_and_targets(self, X: Any, y: Any) -> tuple[PredictedRows, np.ndarray]:
        encoded, Y = self._encoded_with_targets(X, y)
        return self.predictor_.rows(encoded), Y

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """The mean, (N, n), or (N,) if y was one-dimensional; on request with standard deviations or covariances.

        Args:
          X: (N, d).
          return_std: standard deviation of a new observation (aleatoric and epistemic), in the shape of the mean.
          return_cov: **its covariance between the targets of each row**, (N, n, n).

        Example:
          >>> X, Y = np.random.default_rng(0).uniform(size=(2, 60, 2))
          >>> model = MDERRegressor((8,), members=2, max_iter=5).fit(X[:30], Y[:30])
          >>> mean, std = model.predict(X[30:], return_std=True)
          >>> print(mean.shape, std.shape, model.predict(X[30:], return_cov=True)[1].shape)
          (30, 2) (30, 2) (30, 2, 2)
        """
        if return_std and return_cov:
            raise ValueError(
                "set return_std or return_cov, not both; the first are roots of the diagonal of the second"
            )
        found = self.predict_uncertainty(X)
        if return_std:
            return found.mean, found.std
        return (found.mean, found.total) if return_cov else found.mean

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Mean, (N, n), and aleatoric, epistemic and total covariance between the targets of each row, (N, n, n).

        With a `target_transform` t = f(y) they are in original units all the same. The mean of exp(t) is infinite for a
        Student-t, so mean and standard deviation are those of y with the outer 0.1 % on each side moved to these two
        quantiles: E[g(min(max(t, a), b))], g = f⁻¹, a and b the quantiles of t, by a sum over 91 points of each member.
        For a log-normal y with a σ of ln y of 0.5 the mean is 0.07 % below the full one, with 1 it is 0.5 %. A
        covariance A of t becomes S A S with S = diag(std of y / std of t), negative for a decreasing f: correlations
        and the shares of aleatoric, within and between are those of t.

        Example:
          >>> X, Y = np.random.default_rng(0).uniform(size=(2, 60, 2))
          >>> model = MDERRegressor((8,), members=2, max_iter=5).fit(X[:30], Y[:30])
          >>> u = model.predict_uncertainty(X[30:])
          >>> print(u.mean.shape, u.aleatoric.shape, u.epistemic.shape, u.std.shape)
          (30, 2) (30, 2, 2) (30, 2, 2) (30, 2)
        """
        return self._rows(X).uncertainty()

    def predict_interval(self, X: Any, coverage: float = 0.9, joint: bool = False) -> Interval | Region:
        """Where a new observation lies with probability `coverage`; conformal after `calibrate`.

        Args:
          X: (N, d).
          coverage: between 0 and 1.
          joint: False for a separate interval of each target, `lower` and `upper`; True for one ellipsoid of all
            targets of a row: `centre`, `scale_tril` (Cholesky factor of the covariance) and `radius`. With a
            `target_transform` the ellipsoid is of transformed targets; `Region.contains` takes original units.

        Example:
          >>> X, Y = np.random.default_rng(0).uniform(size=(2, 60, 2))
          >>> model = MDERRegressor((8,), members=2, max_iter=5).fit(X[:30], Y[:30])
          >>> lower, upper = model.predict_interval(X[30:], coverage=0.9)
          >>> region = model.predict_interval(X[30:], coverage=0.9, joint=True)
          >>> print(lower.shape, upper.shape, region.centre.shape, region.contains(Y[30:]).shape)
          (30, 2) (30, 2) (30, 2) (30,)
        """
        return self._rows_with_folds(X)[0].interval(coverage, joint)

    def predict_quantiles(self, X: Any, quantiles: Any = (0.05, 0.5, 0.95)) -> np.ndarray:
        """Quantiles of each target, (N, n, K), or (N, K) if y was one-dimensional.

        They are those of the predictive distribution, scaled by `calibrate` but not conformal, unlike the ends of
        `predict_interval`.

        Example:
          >>> X, Y = np.random.default_rng(0).uniform(size=(2, 60, 2))
          >>> model = MDERRegressor((8,), members=2, max_iter=5).fit(X[:30], Y[:30])
          >>> lower, upper = np.moveaxis(model.predict_quantiles(X[30:], [0.05, 0.95]), -1, 0)
          >>> print(lower.shape, (lower < upper).all())
          (30, 2) True
        """
        return self._rows(X).quantiles(quantiles)

    def predict_dist(self, X: Any, transformed: bool = False) -> Mixture | StudentT:
        """The predictive distribution of the rows, batch shape (N,): a `Mixture`, or the `StudentT` of one member.

        In original units and the precision of JAX, by default float32, in which 2020.5 ± 0.001 has no digits left; the
        other methods keep them.

        Args:
          X: (N, d).
          transformed: with a `target_transform` only the distribution of transformed targets is a mixture of t; it is
            returned if this is True, and refused if not.

        The networks are the first members, those of `beside` the last.

        Example:
          >>> X, Y = np.random.default_rng(0).uniform(size=(2, 60, 2))
          >>> model = MDERRegressor((8,), members=2, max_iter=5).fit(X[:30], Y[:30])
          >>> mixture = model.predict_dist(X[30:])
          >>> print(type(mixture).__name__, mixture.size, mixture.batch_shape, mixture.n)
          Mixture 4 (30,) 2
        """
        return self._rows(X).distribution(transformed)

    def predict_all(self, X: Any) -> Prediction:
        """Uncertainty, intervals and distribution of the rows X, (N, d), from one run of the networks.

        Use it where more than one of `predict_uncertainty`, `predict_interval` and `predict_dist` is needed for the
        same rows: the results are the same.

        Example:
          >>> X, Y = np.random.default_rng(0).uniform(size=(2, 60, 2))
          >>> model = MDERRegressor((8,), members=2, max_iter=5).fit(X[:30], Y[:30])
          >>> prediction = model.predict_all(X[30:])
          >>> lower, upper = prediction.interval(coverage=0.9)
          >>> print(prediction.uncertainty().std.shape, lower.shape, prediction.distribution().batch_shape)
          (30, 2) (30, 2) (30,)
        """
        return Prediction(*self._rows_with_folds(X, keep=True))

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Joint draws of new observations, (N, n, n_samples), or (N, n_samples) if y was one-dimensional.

        Example:
          >>> X, Y = np.random.default_rng(0).uniform(size=(2, 60, 2))
          >>> model = MDERRegressor((8,), members=2, max_iter=5).fit(X[:30], Y[:30])
          >>> print(model.sample_y(X[30:], n_samples=100).shape)
          (30, 2, 100)
        """
        if not is_integer(n_samples) or n_samples < 1:
            raise ValueError(f"n_samples must be an integer, 1 or more; got {n_samples!r}")
        key = jax.random.key(int(_checks.generator(random_state).randint(2**31 - 1)))
        return self._rows(X).sample(key, int(n_samples))

    def log_prob(self, X: Any, y: Any) -> np.ndarray:
        """ln p(y) of each row, (N,), in original units; a NaN in y is a target that was not observed.

        With a `target_transform` t = f(y) it is ln p(t) + Σ ln|dt/dy| over the observed targets: the density of y,
        which can be compared with that of any other model. That of "sqrt" is infinite at y = 0.

        Example:
          >>> X, Y = np.random.default_rng(0).uniform(size=(2, 60, 2))
          >>> model = MDERRegressor((8,), members=2, max_iter=5).fit(X[:30], Y[:30])
          >>> Y[30, 1] = np.nan  # not observed
          >>> print(model.log_prob(X[30:], Y[30:]).shape, np.isfinite(model.log_prob(X[30:], Y[30:])).all())
          (30,) True
        """
        rows, Y = self._rows_and_targets(X, y)
        return rows.log_prob(Y)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² = 1 − Σ(y − mean)²/Σ(y − ȳ)², of each target over the rows in which it was observed, averaged.

        Example:
          >>> X, Y = np.random.default_rng(0).uniform(size=(2, 60, 2))
          >>> model = MDERRegressor((8,), members=2, max_iter=5).fit(X[:30], Y[:30])
          >>> print(model.score(X[30:], Y[30:]) < 1)
          True
        """
        rows, Y = self._rows_and_targets(X, y)
        mean = rows.moments().mean
        weights = _checks.checked_weights(sample_weight, len(Y))
        counts = np.ones(len(Y)) if weights is None else weights
        if not np.isfinite(mean).all():
            raise ValueError(f"R² needs finite predictions; that of row {np.argwhere(~np.isfinite(mean))[0][0]} is not")
        if np.isnan(Y[counts > 0]).all():
            raise ValueError(f"no target was observed: all {len(Y)} rows of y are NaN or of weight 0")
        columns = [(j, seen) for j, seen in enumerate(~np.isnan(Y.T) & (counts > 0)) if seen.any()]
        scores = [r2_score(Y[seen, j], mean[seen, j], sample_weight=counts[seen]) for j, seen in columns]
        return float(np.mean(scores))

    def calibrate(
        self,
        X: Any,
        y: Any,
        method: str = "likelihood",
        separate: bool = False,
        *,
        cv: Any = None,
        groups: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        r"""Fit the scale of the predictive covariance, and conformal scores, to rows that were held out from `fit`.

        Everything predicted afterwards is rescaled, and intervals and regions are conformal: they hold a new row with
        their nominal probability, or more where scores are tied, if it is exchangeable with these rows. The result,
        with the coverage before and after, is in ``calibration_``; print it. If the rows do not determine the scale, a
        warning says so and the covariance stays as it is; rows that were trained on are refused.

        **With** ``cv=5`` **no rows need to be held out**: X and y are those of the fit, and a new estimator with the
        same settings is fitted without each of five folds. Intervals are then cross-conformal (CV+ of Barber and others
        2021): with mean μ_k and std σ_k of the model without fold k, and the score
        :math:`R_i = |y_i - \mu_{k(i)}(x_i)|/\sigma_{k(i)}(x_i)` of each row, they go from the ⌊α(N + 1)⌋-th smallest of
        all μ_{k(i)}(x) − R_i σ_{k(i)}(x) to the ⌈(1 − α)(N + 1)⌉-th smallest of all μ_{k(i)}(x) + R_i σ_{k(i)}(x). At
        a nominal coverage of 1 − α they hold each target of an exchangeable new row with a probability of at least

        .. math:: 1 - 2\alpha - \min\{2(1 - 1/K)/(N/K + 1),\; (1 - K/N)/(K + 1)\}

        for K folds of equal size, and as a rule of about 1 − α. Joint regions are ellipsoids of the model itself whose
        radius is that of the out-of-fold distances; they have no guarantee for finitely many rows. The models of the
        folds are kept in ``calibration_`` and in model files, and each predicts for each interval.

        **With** ``cv="members"`` **nothing is fitted either**: a row of the fit is scored by the mixture of those
        members that held it out for early stopping, which are the model without its fold; the formula is the same. The
        rows chose the epoch at which the members stopped and the factor on their scale, so the theorem does not apply
        strictly. A mixture of five members errs a little more than one of ten. The covariance stays as it is.

        Args:
          X: (N, d), not rows of the fit; with `cv` these, in any order.
          y: (N, n) or (N,).
          method: "likelihood", "pull" or "posterior"; see `calibration.fit_scale`.
          separate: one factor for the members' own covariance and one for their disagreement.
          cv: None for held-out rows; a number of folds, drawn at random; a list with the indices of the rows of each
            fold; a scikit-learn splitter; or "members".
          groups: with `cv` and its fits: (N,), as in `fit`. Folds are made of whole groups, for which the guarantee
            does not hold. With "members" they are those of `fit`.
          sample_weight: with `cv`: (N,), of the rows, as in `fit`.

        Example:
          >>> X, Y = np.random.default_rng(0).uniform(size=(2, 60, 2))
          >>> model = MDERRegressor((8,), members=2, max_iter=5).fit(X[:30], Y[:30])
          >>> model = model.calibrate(X[30:], Y[30:])
          >>> print(model.calibration_.fit.rows, model.calibration_.joint_scores.shape)
          30 (30,)
          >>> model = model.fit(X, Y).calibrate(X, Y, cv=2)
          >>> print(len(model.calibration_.folds), model.predict_interval(X[:3]).lower.shape)
          2 (3, 2)
        """
        by_members = isinstance(cv, str) and cv == MEMBERS
        if cv is None and not (groups is None and sample_weight is None):
            raise ValueError("groups and sample_weight are for the fits without a fold; give cv, or leave them out")
        if by_members and groups is not None:
            raise ValueError("with cv='members' groups are those of fit; leave out groups")
        if by_members and (method, separate) != ("likelihood", False):
            raise ValueError("method and separate are for factors, of which cv='members' fits none; leave them out")
        plain = self._plain_predictor()
        if cv is None:
            encoded, Y = self._encoded_with_targets(X, y)
            trained = note_of_trained_rows(getattr(self, "trained_rows_", None), encoded.X, Y)
            T = Y if plain.transform is None else plain.transform.checked(Y)
            found = calibrate(plain.rows(encoded, keep=True).learned, T, method, separate, trained)
        elif by_members:
            found = self._calibrated_by_members(plain, X, y, sample_weight)
        else:
            found = self._cross_calibrated(X, y, method, separate, cv, groups, sample_weight)
        names = target_names(self.target_names_, self.n_outputs_)
        unseen = [repr(name) for name, count in zip(names, found.counts(joint=False), strict=True) if not count]
        not_conformal = "was not observed in any calibration row; it is scaled like the others, not conformal"
        for note in (*found.notes, *([f"target {', '.join(unseen)} {not_conformal}"] if unseen else [])):
            warnings.warn(note, UserWarning, stacklevel=2)
        self.predictor_, self.calibration_ = plain.with_scale(found.fit.scale), found
        return self

    def _plain_predictor(self) -> Predictor:
        """With factors of 1."""
        check_is_fitted(self)
        return self.predictor_.with_scale(Scale(1.0, 1.0))

    def _cross_calibrated(
        self, X: Any, y: Any, method: str, separate: bool, cv: Any, groups: Any, sample_weight: Any
    ) -> Calibration:
        _checks.check_same_loss(getattr(self, "own_loss_", False), self.loss)
        now = self._design(self.encoding_, self.predictor_.design.periodic or ()), int(self.members)
        _checks.check_same_settings((self.predictor_.design, self.predictor_.members), now)
        X, Y, _, _ = _checks.checked_table(self, X, y)
        weights, numbers = _checks.checked_weights(sample_weight, len(Y)), _checks.checked_groups(groups, len(Y))
        kept = _checks.rows_that_count(Y, weights)
        random = self._random(again=True)
        folds = [np.searchsorted(np.flatnonzero(kept), fold) for fold in folds_of(cv, X, Y, kept, numbers, random)]
        X, Y = _checks.rows_of(X, kept), Y[kept]
        weights, numbers = (None if part is None else part[kept] for part in (weights, numbers))
        note = note_of_other_rows(getattr(self, "trained_rows_", None), self.encoding_.encode(X).X, Y)
        transform = self.predictor_.transform
        T = Y if transform is None else transform.checked(Y)
        models, held_out = [], []
        for model, rows in fit_folds(self, X, T, folds, random, weights, numbers):
            models.append((model.encoding_, model.predictor_))
            predicted = model.predictor_.rows(model.encoding_.encode(_checks.rows_of(X, rows), quiet=True), keep=True)
            held_out.append(HeldOutRows(predicted, T[rows]))
        found, scores = cross_calibrate(held_out, method, separate)
        made = tuple(FoldModel(*model, own) for model, own in zip(models, scores, strict=True))
        return found._replace(folds=made, notes=(*found.notes, *filter(None, [note])))

    def _calibrated_by_members(self, plain: Predictor, X: Any, y: Any, sample_weight: Any) -> Calibration:
        X, Y, _, _ = _checks.checked_table(self, X, y)
        weights = _checks.checked_weights(sample_weight, len(Y))
        kept = _checks.rows_that_count(Y, weights)
        encoded, Y = self.encoding_.encode(_checks.rows_of(X, kept)), Y[kept]
        note_of_other_rows(self.trained_rows_, encoded.X, Y)  # raises if they are not of the fit
        hashes = None if self.trained_rows_ is None else hashes_of(self.trained_rows_, encoded.X, Y)
        folds = _held_out.folds_of_members(self.held_out_, hashes)
        T = Y if plain.transform is None else plain.transform.checked(Y)
        rows = plain.rows(encoded, keep=True)
        data = Rows(rows.X, plain.targets.forward(T), None if weights is None else weights[kept])
        beside = [plain.beside and plain.beside.of_fold(members, data, _mask(own, len(T))) for members, own in folds]
        parts = [
            HeldOutRows(rows.of_members(members, further).take(own), T[own])
            for (members, own), further in zip(folds, beside, strict=True)
        ]
        found, scores = calibrate_by_members(parts)
        made = zip([members for members, _ in folds], scores, beside, strict=True)
        return found._replace(folds=tuple(MemberFold(*parts) for parts in made))

    def plot(self, X: Any, y: Any, kind: str = "calibration", ax: Any = None, **options: Any) -> Any:
        """A figure of the predictions for rows with known targets, as matplotlib Axes.

        Args:
          X: (N, d).
          y: (N, n) or (N,).
          kind: "calibration", "pit", "predicted_observed", "sparsification" or "ellipses", as in `mder_jax.plotting`.
            With a `target_transform` all but "predicted_observed" show transformed targets, as labels such as
            log(price) say.
          ax: where to draw; None for a new figure, ``ax.figure``.
          options: of that function, such as ``target=1`` or ``joint=True``.

        Example:
          >>> X, Y = np.random.default_rng(0).uniform(size=(2, 60, 2))
          >>> model = MDERRegressor((8,), members=2, max_iter=5).fit(X[:30], Y[:30])
          >>> print(model.plot(X[30:], Y[30:], kind="predicted_observed", target=1).get_xlabel())
          predicted y1
        """
        check_option("kind", kind, FIGURES)
        rows, Y = self._rows_and_targets(X, y)
        names, transform = self.target_names_, self.predictor_.transform
        if transform is not None and kind != "predicted_observed":
            names, Y = transform.labels(), transform.checked(Y)
        if kind == "predicted_observed" and names:
            options = {"name": names[options.get("target", 0)]} | options
        elif kind != "predicted_observed":
            options = {"names": names} | options
        with jax.enable_x64(True):  # in original units: 2020.5 ± 0.001 has no digits left in float32
            prediction = rows.learned.distribution() if kind != "predicted_observed" else rows.drawn()
            if kind == "ellipses":
                return plotting.ellipses(prediction, y=Y, **options, ax=ax)
            return getattr(plotting, kind)(Y, prediction, **options, ax=ax)

    def save(self, path: str | pathlib.Path, extra: dict[str, Any] | None = None) -> None:
        """Write the fitted model to one file, without pickle, completely or not at all.

        Args:
          path: of the file.
          extra: anything JSON can hold, ``extra_`` of the loaded model; None for that of this model.

        Example:
          >>> X, Y = np.random.default_rng(0).uniform(size=(2, 60, 2))
          >>> model = MDERRegressor((8,), members=2, max_iter=5).fit(X[:30], Y[:30])
          >>> import tempfile
          >>> with tempfile.TemporaryDirectory() as folder:
          ...     model.save(f"{folder}/model.mder")
          ...     same = MDERRegressor.load(f"{folder}/model.mder")
          >>> print(np.array_equal(same.predict(X[30:]), model.predict(X[30:])))
          True
        """
        check_is_fitted(self)
        model_file.save(self, path, extra)

    @property
    def target_transforms_(self) -> list[Any]:
        """For each target None, "log", "log1p", "sqrt", or the fitted transformer, which `load` needs again.

        Example:
          >>> X, Y = np.random.default_rng(0).uniform(size=(2, 30, 2))
          >>> settings = {"target_transform": {1: "log"}, "members": 2, "max_iter": 5}
          >>> print(MDERRegressor((8,), **settings).fit(X, np.exp(Y)).target_transforms_)
          [None, 'log']
        """
        transform = self.predictor_.transform
        return [None] * self.n_outputs_ if transform is None else transform.settings()

    @classmethod
    def load(
        cls,
        path: str | pathlib.Path,
        network: Any = None,
        loss: Callable[[NIW, Any], Any] | None = None,
        target_transform: Any = None,
    ) -> Self:
        """The model of a file that `save` wrote. Any other file raises a `ModelFileError`; no code in it is run.

        Args:
          path: of the file.
          network: the network of the fit, if it was one of your own: a file holds its parameters, but no code.
          loss: the loss of the fit, if it was one of your own; needed to train further only.
          target_transform: the fitted transformers of ``target_transforms_``, which are code and not in the file, as in
            `MDERRegressor`; the names "log", "log1p" and "sqrt" are in the file.

        Example:
          >>> X, Y = np.random.default_rng(0).uniform(size=(2, 60, 2))
          >>> model = MDERRegressor((8,), members=2, max_iter=5).fit(X[:30], Y[:30])
          >>> import tempfile
          >>> with tempfile.TemporaryDirectory() as folder:
          ...     model.save(f"{folder}/model.mder", extra={"unit": "m"})
          ...     print(MDERRegressor.load(f"{folder}/model.mder").extra_)
          {'unit': 'm'}
        """
        return model_file.load(cls, path, network, loss, target_transform)

    def export(self, path: str | pathlib.Path) -> None:
        """Write the predictor as an artefact of `jax.export`, which runs where only jax is installed.

        ``jax.export.deserialize(bytes).call(x)``, with x (rows, d) in float32, any number of rows, gives a dict of mean
        (rows, n), aleatoric, epistemic and total covariance (rows, n, n), as `predict_uncertainty`. All of it is in
        float32: a target such as 2020.5 ± 0.001 loses its digits, of which a warning is given. A `target_transform` by
        name is part of the artefact; one by a transformer is refused.

        If all columns are numbers or booleans, x has the columns of X in original units, with NaN in gaps: they are
        filled, values out of range are drawn to it, and the epistemic part of such rows is larger. Columns that the fit
        left out are not read. With categories or dates, x is ``model.encoding_.encode(X).X``; the artefact then does
        not know which rows are unlike those of the fit, and their epistemic part is that of other rows.

        Example:
          >>> X, Y = np.random.default_rng(0).uniform(size=(2, 60, 2))
          >>> model = MDERRegressor((8,), members=2, max_iter=5).fit(X[:30], Y[:30])
          >>> import tempfile
          >>> with tempfile.TemporaryDirectory() as folder:
          ...     model.export(f"{folder}/model.jaxexp")
          ...     predictor = jax.export.deserialize(bytearray(pathlib.Path(folder, "model.jaxexp").read_bytes()))
          >>> print(predictor.call(X[30:].astype(np.float32))["total"].shape)
          (30, 2, 2)
        """
        check_is_fitted(self)
        _export.export(self.predictor_, self.encoding_, path)


def _mask(rows: np.ndarray, count: int) -> np.ndarray:
    mask = np.zeros(count, bool)
    mask[rows] = True
    return mask


def _number_or_auto(value: float | str) -> float | None:
    return None if isinstance(value, str) else float(value)
