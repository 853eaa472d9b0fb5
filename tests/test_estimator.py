"""`MDERRegressor`: units, shapes, missing targets, uncertainty, calibration, and life with scikit-learn."""

import copy
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.stats
from sklearn.base import clone
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mder_jax as mder
from mder_jax import MDERRegressor, Mixture, StudentT, columns
from mder_jax.columns.ranges import LARGEST, Range
from mder_jax.ensemble.forward import Forward
from mder_jax.estimator._standardizer import standardizer_of
from mder_jax.estimator.results import Region
from tests.support.figures import drawn

# As few different programs as can be: these settings, and the number of rows of `table`, unless a test needs others.
SMALL = {"hidden_layer_sizes": (16,), "members": 3, "max_iter": 40, "learning_rate_init": 0.02, "random_state": 0}
SMALL |= {"embedding": None, "beside": None}
SHORT = SMALL | {"max_iter": 3}


def table(rows=300, seed=0):
    """Two correlated targets on very different scales, far from 0: 2020.5 ± 0.001 and −40 ± 300."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, 3)).clip(-3, 3) * [1.0, 100.0, 1e-4] + [0.0, 5000.0, 0.0]
    z = (X - [0.0, 5000.0, 0.0]) / [1.0, 100.0, 1e-4]
    noise = random.multivariate_normal([0, 0], [[1.0, 0.8], [0.8, 1.0]], rows) * (0.2 + 0.2 * (z[:, :1] > 0))
    Y = np.stack([z[:, 0], z[:, 1] + z[:, 2]], axis=1) + noise
    return X, Y * [0.001, 300.0] + [2020.5, -40.0]


def total(covariance):
    return np.trace(covariance, axis1=-2, axis2=-1)


@pytest.fixture(scope="module")
def data():
    return table()


@pytest.fixture(scope="module")
def model(data):
    return MDERRegressor(**SMALL).fit(*data)


@pytest.mark.parametrize("calibrated", [False, True])
def test_everything_is_predicted_from_one_run_of_the_networks(data, model, monkeypatch, calibrated):
    rows = []
    X = table(1500, seed=1)[0]
    model = copy.copy(model)
    if calibrated:
        model.calibrate(*table(seed=2))
    expected = model.predict_uncertainty(X), model.predict_interval(X, 0.8), model.predict_interval(X, 0.8, joint=True)
    call = Forward.__call__

    def counted(self, X, *rest, **options):
        rows.append(len(X))
        return call(self, X, *rest, **options)

    monkeypatch.setattr(Forward, "__call__", counted)
    prediction = model.predict_all(X)
    found = prediction.uncertainty(), prediction.interval(0.8), prediction.interval(0.8, joint=True)
    mean = prediction.distribution().mean()
    assert rows == [1500]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-4), found, expected)  # ± 300
    np.testing.assert_allclose(mean, model.predict_dist(X).mean(), rtol=1e-5, atol=1e-4)


def test_predictions_of_a_data_frame(data):
    frame = pd.DataFrame(data[0], columns=["a", "b", "c"])
    model = MDERRegressor(**SHORT).fit(frame, data[1][:, 0])
    prediction = model.predict_all(frame)
    np.testing.assert_allclose(prediction.uncertainty().mean, model.predict(frame), rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="feature names"):
        model.predict_all(frame[["b", "a", "c"]])


def test_it_learns_and_answers_in_original_units(model):
    X, Y = table(seed=1)
    assert model.score(X, Y) > 0.85
    mean, std = model.predict(X, return_std=True)
    assert mean.dtype == np.float64
    pulls = (Y - mean) / std
    assert np.all(np.abs(pulls.std(axis=0) - 1) < 0.25)
    _, cov = model.predict(X, return_cov=True)
    assert np.median(cov[:, 0, 1] / np.sqrt(cov[:, 0, 0] * cov[:, 1, 1])) > 0.5


def test_shapes_and_the_parts_of_the_uncertainty(model, data):
    X = data[0][:7]
    u = model.predict_uncertainty(X)
    assert u.mean.shape == (7, 2) and u.aleatoric.shape == u.epistemic.shape == u.total.shape == (7, 2, 2)
    np.testing.assert_allclose(u.total, u.aleatoric + u.epistemic)
    np.testing.assert_allclose(u.std, np.sqrt(u.total[:, [0, 1], [0, 1]]))
    np.testing.assert_array_equal(model.predict(X, return_cov=True)[1], u.total)
    assert model.predict_quantiles(X, [0.1, 0.5, 0.9, 0.99]).shape == (7, 2, 4)
    assert model.sample_y(X, 5).shape == (7, 2, 5)
    assert model.log_prob(X, data[1][:7]).shape == (7,)


def test_uncertainty_is_that_of_the_mixture(model, data):
    X, Y = data[0][:9], data[1][:9]
    mixture = model.predict_dist(X)
    assert isinstance(mixture, Mixture) and mixture.size == 3
    u = model.predict_uncertainty(X)
    units = np.outer([0.001, 300.0], [0.001, 300.0])
    np.testing.assert_allclose(np.asarray(mixture.total()) / units, u.total / units, rtol=1e-4)
    np.testing.assert_allclose(mixture.mean()[:, 1], u.mean[:, 1], rtol=1e-5)
    # the first target has no digits left in float32, the second has
    marginal = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), mixture.components().marginal([1]))
    density = scipy.stats.t(marginal.df, marginal.loc[..., 0], marginal.scale_tril[..., 0, 0]).pdf(Y[:, 1])
    only_second = np.stack([np.full(9, np.nan), Y[:, 1]], axis=1)
    np.testing.assert_allclose(model.log_prob(X, only_second), np.log(np.mean(density, axis=0)), rtol=1e-4)


def test_one_member_is_a_student_t_and_its_own_ensemble(data):
    X, Y = data
    one = MDERRegressor(**SHORT | {"members": 1}).fit(X, Y)
    t = one.predict_dist(X[:4])
    assert isinstance(t, StudentT)
    np.testing.assert_allclose(t.covariance()[:, 1, 1], one.predict(X[:4], return_cov=True)[1][:, 1, 1], rtol=1e-5)
    region = one.predict_interval(X[:4], 0.8, joint=True)
    exact = np.asarray(t.region_radius(0.8)) * np.sqrt(1 - 2 / np.asarray(t.df))
    np.testing.assert_allclose(region.radius, exact, rtol=1e-4)


def test_intervals_and_regions_hold_what_they_say(model):
    X, _ = table(rows=50, seed=2)
    draws = model.sample_y(X, 2000)
    lower, upper = model.predict_interval(X, coverage=0.8)
    inside = (draws >= lower[..., None]) & (draws <= upper[..., None])
    assert abs(inside.mean() - 0.8) < 4 * np.sqrt(0.16 / inside.size)
    region = model.predict_interval(X, coverage=0.8, joint=True)
    held = np.stack([region.contains(draws[..., k]) for k in range(200)])
    assert abs(held.mean() - 0.8) < 0.02  # the radius itself is a quantile of 2000 draws
    np.testing.assert_allclose(region.scale_tril @ region.scale_tril.swapaxes(1, 2), model.predict_uncertainty(X).total)
    partly = np.stack([np.where([True, False], np.nan, draws[..., k]) for k in range(200)])
    assert region.contains(partly).mean() > held.mean()  # the ellipsoid's shadow holds more
    disc = np.exp(Region(np.zeros((1, 2)), np.eye(2)[None], np.ones(1)).log_volume())
    np.testing.assert_allclose(disc, np.pi)


def test_regions_of_rows_with_missing_targets_are_those_of_the_others():
    random = np.random.default_rng(0)
    C = np.tril(random.normal(size=(4, 3, 3))) + 2 * np.eye(3)
    y, centre = random.normal(size=(2, 4, 3))
    region = Region(centre, C, np.full(4, 1.2))
    for gone in ([0], [1], [2], [0, 2], [0, 1]):
        holes, kept = y.copy(), [j for j in range(3) if j not in gone]
        holes[1:, gone] = np.nan  # the first row is complete
        part = (C @ np.swapaxes(C, 1, 2))[:, kept][:, :, kept]
        d = (y - centre)[:, kept]
        expected = np.sqrt(np.einsum("ni,nij,nj->n", d, np.linalg.inv(part), d))
        found = region.distance(holes)
        np.testing.assert_allclose(found[1:], expected[1:], rtol=1e-10)
        assert found[0] == region.distance(y)[0] and (found <= region.distance(y) + 1e-12).all()
        np.testing.assert_array_equal(region.contains(holes), found <= 1.2)
        several = region.distance(np.stack([y, holes]))
        np.testing.assert_allclose(several, [region.distance(y), found], rtol=1e-12)
    nothing = np.where(np.arange(4)[:, None] == 2, np.nan, y)
    assert np.isnan(region.distance(nothing)).tolist() == [False, False, True, False]
    assert region.contains(nothing)[2] and not Region(centre, C, np.full(4, 1e-9)).contains(nothing)[[0, 1, 3]].any()


@pytest.mark.slow
def test_quantiles_are_those_of_the_draws(model):
    X, _ = table(rows=20, seed=3)
    quantiles = model.predict_quantiles(X, [0.25, 0.75])
    draws = model.sample_y(X, 4000, random_state=1)
    for k, level in enumerate((0.25, 0.75)):
        below = (draws <= quantiles[..., k : k + 1]).mean()
        assert abs(below - level) < 4 * np.sqrt(level * (1 - level) / draws.size)


def test_missing_targets_cost_nothing_but_themselves(data):
    X, Y = data
    holed = Y.copy()
    holed[::3, 0] = np.nan
    holed[1::3, 1] = np.nan
    holed[2] = np.nan
    model = MDERRegressor(**SMALL).fit(X, holed)
    assert model.n_rows_ == len(X) - 1
    fresh_X, fresh_Y = table(seed=4)
    assert model.score(fresh_X, fresh_Y) > 0.8
    half = fresh_Y.copy()
    half[:, 0] = np.nan
    assert np.isfinite(model.log_prob(fresh_X, half)).all()


def test_one_dimensional_targets_give_one_dimensional_answers(data):
    X, y = data[0], data[1][:, 1]
    flat = MDERRegressor(**SHORT).fit(X, pd.Series(y, name="height"))
    column = MDERRegressor(**SHORT).fit(X, y[:, None])
    assert flat.predict(X).shape == (300,) and column.predict(X).shape == (300, 1)
    np.testing.assert_array_equal(flat.predict(X), column.predict(X)[:, 0])
    mean, std = flat.predict(X, return_std=True)
    assert std.shape == mean.shape == flat.predict_interval(X).lower.shape == (300,)
    assert flat.predict_quantiles(X, [0.5]).shape == flat.sample_y(X, 1).shape == (300, 1)
    assert flat.predict_uncertainty(X).total.shape == (300, 1, 1)
    assert flat.target_names_ == ["height"]


def test_data_frames_of_pandas_and_polars(data):
    X, Y = data
    plain = MDERRegressor(**SHORT).fit(X, Y).predict(X)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    fitted = MDERRegressor(**SHORT).fit(frame, pd.DataFrame(Y, columns=["u", "v"]))
    np.testing.assert_array_equal(fitted.predict(frame), plain)
    assert fitted.target_names_ == ["u", "v"] and list(fitted.feature_names_in_) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(frame[["b", "a", "c"]])
    polars = pl.DataFrame({name: X[:, k] for k, name in enumerate("abc")})
    np.testing.assert_array_equal(MDERRegressor(**SHORT).fit(polars, pl.DataFrame(Y)).predict(polars), plain)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"members": 0}, "members must be an integer, 1 or more; got 0"),
        ({"members": 2.5}, "members must be"),
        ({"r": -1.0}, "r must be a number above 0; got -1.0"),
        ({"activation": "cube"}, "activation must be one of swish, relu, tanh, gelu, silu; got 'cube'"),
        ({"hidden_layer_sizes": (8, 0)}, "hidden_layer_sizes must be integers above 0"),
        ({"batch_size": "all"}, "batch_size must be 'auto' or"),
        ({"validation_fraction": 1.0}, "validation_fraction must be a fraction"),
        ({"nu_max": 1.0}, "nu_max"),
        ({"learning_rate_init": float("nan")}, "learning_rate_init must be"),
        ({"alpha": "much"}, "alpha must be"),
        ({"alpha": 10**400}, "alpha must be"),
        ({"r": float("inf")}, "r must be a number above 0; got inf"),
        ({"activation": ["relu"]}, "activation must be one of"),
        ({"batch_size": np.ones(2)}, "batch_size must be 'auto' or"),
        ({"random_state": -1}, "random_state must be None, a generator or a seed"),
    ],
)
def test_bad_settings(change, message, data):
    with pytest.raises(ValueError, match=message):
        MDERRegressor(**SMALL | change).fit(*data)


def test_bad_tables(data, model):
    X, Y = data
    small = MDERRegressor(**SMALL | {"max_iter": 1})
    with pytest.raises(ValueError, match="target 1 is NaN in all"):
        small.fit(X, np.stack([Y[:, 0], np.full(300, np.nan)], axis=1))
    with pytest.raises(ValueError, match="target v is NaN in all"):
        small.fit(X, pd.DataFrame({"u": Y[:, 0], "v": np.nan}))
    with pytest.raises(ValueError, match="infinity"):
        small.fit(X, np.where(Y[0] == Y, np.inf, Y))
    for wrong in (np.inf, -np.inf, 1e39):
        message = rf"column 'x0' must hold finite numbers below 3.4e38; got {wrong:g} \(row 4, counted from 0\)"
        with pytest.raises(columns.CellError, match=message.replace("+", r"\+")):
            small.fit(np.where(X[4, 0] == X, wrong, X), Y)
    with pytest.raises(ValueError, match=r"no column to learn from: 'a' \(no value in any row\), 'b' \(the same in"):
        small.fit(pd.DataFrame({"a": np.full(300, np.nan), "b": 1.0}), Y)
    for complex_numbers in (X + 1j, (X + 1j).tolist()):
        with pytest.raises(ValueError, match="Complex data not supported"):
            small.fit(complex_numbers, Y)
        with pytest.raises(ValueError, match="Complex data not supported"):
            model.predict(complex_numbers)
    with pytest.raises(ValueError, match="categorical names 'd', but the columns are 'x0', 'x1', 'x2'"):
        clone(small).set_params(categorical_features=["d"]).fit(X, Y)
    with pytest.raises(ValueError, match="3 features"):
        model.predict(X[:, :2])
    with pytest.raises(ValueError, match="2 targets of the fit"):
        model.log_prob(X, Y[:, 0])
    with pytest.raises(ValueError, match=r"coverage is a probability.*1\.5"):
        model.predict_interval(X, coverage=1.5)
    with pytest.raises(ValueError, match="quantiles are a list"):
        model.predict_quantiles(X, [0.0, 0.5])
    with pytest.raises(ValueError, match="return_std or return_cov"):
        model.predict(X, return_std=True, return_cov=True)
    with pytest.raises(ValueError, match="n_samples"):
        model.sample_y(X, 0)
    with pytest.raises(ValueError, match="requires y to be passed, but the target y is None"):
        model.score(X, None)
    with pytest.raises(columns.CellError, match=r"3 columns cannot be used:\n  column 'x0' .* got 1e\+300 \(row 0"):
        model.predict(np.full((1, 3), 1e300))
    with pytest.warns(UserWarning, match=r"1 of 1 rows has text in 'x0' that is no number .* \('a'\)"):
        assert np.isfinite(model.predict([["a", "b", "c"]])).all()
    with pytest.raises(ValueError, match="2D array"):
        model.predict({"a": 1})
    with pytest.raises(ValueError, match=r"sample_weight must have shape \(300,\), one per row; got \(2,\)"):
        model.score(X, Y, sample_weight=[1.0, 2.0])
    with pytest.raises(TypeError, match="quantiles must hold real numbers"):
        model.predict_quantiles(X, "median")
    with pytest.raises(ValueError, match="random_state must be None, a generator or a seed"):
        model.sample_y(X, random_state=-1)


def test_a_target_never_observed_has_no_part_in_the_score(model, data):
    X, Y = data
    first = np.where([True, False], Y, np.nan)
    scores = [r2_score(Y[:, j], model.predict(X)[:, j]) for j in range(2)]
    assert model.score(X, first) == pytest.approx(scores[0])
    assert model.score(X, Y) == pytest.approx(np.mean(scores))
    with pytest.raises(ValueError, match="no target was observed: all 300 rows of y are NaN"):
        model.score(X, np.full_like(Y, np.nan))


def test_distributions_of_targets_beyond_single_precision_say_so(model, data):
    tiny = copy.copy(model)
    tiny.predictor_ = replace(model.predictor_, targets=model.predictor_.targets._replace(std=np.full(2, 1e-60)))
    assert np.isfinite(tiny.predict(data[0])).all()
    with jax.enable_x64(False), pytest.raises(ValueError, match="beyond what float32 can hold"):
        tiny.predict_dist(data[0])


def test_rows_far_beyond_the_training_data_have_finite_regions_that_are_wider(model, data):
    far, near = np.full((1, 3), 1e38), data[0][:3]
    with pytest.warns(UserWarning, match=r"^1 of 4 rows is far outside .* in 'x0' \(-3 to 3\);") as said:
        region = model.predict_interval(np.vstack([far, near]), joint=True)
    assert len(said) == 1
    assert np.isfinite(region.radius).all() and (region.log_volume()[0] > region.log_volume()[1:]).all()
    alone = model.predict_interval(near, joint=True)
    np.testing.assert_array_equal(region.scale_tril[1:], alone.scale_tril)
    np.testing.assert_allclose(region.radius[1:], alone.radius, rtol=1e-6)


def test_predictions_that_are_not_finite_have_unbounded_regions(model, data):
    """Only models of version 0.1.0 have such rows: they do not know the ranges of columns."""
    model, far = copy.deepcopy(model), np.full((1, 3), 1e38)
    known = tuple(column._replace(ranges=(Range(-LARGEST, LARGEST, 0.0),)) for column in model.encoding_.columns)
    model.encoding_ = replace(model.encoding_, columns=known)
    region = model.predict_interval(np.vstack([far, data[0][:3]]), joint=True)
    assert np.isinf(region.radius).tolist() == [True, False, False, False] and np.isinf(region.log_volume()[0])
    assert region.contains([[5.0, 1e9], *[[0.0, 1e9]] * 3]).tolist() == [True, False, False, False]
    alone = model.predict_interval(data[0][:3], joint=True)
    np.testing.assert_allclose(region.radius[1:], alone.radius, rtol=1e-6)
    lower, upper = model.calibrate(*table(seed=5)).predict_interval(np.vstack([far, data[0][:1]]))
    assert np.isinf(lower[0]).all() and np.isinf(upper[0]).all() and np.isfinite([lower[1], upper[1]]).all()


@pytest.mark.slow
def test_constant_columns_one_row_and_more_targets_than_rows():
    X = np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]])
    tiny = MDERRegressor(**SMALL | {"max_iter": 2})
    assert np.isfinite(tiny.fit(X, [1.0, 2.0, 3.0]).predict(X)).all()
    assert np.isfinite(tiny.fit(X, [7.0, 7.0, 7.0]).predict(X)).all()
    assert np.isfinite(tiny.fit(X[:1], [[1.0, 2.0]]).predict(X)).all()
    assert tiny.fit(X[:2], np.arange(10.0).reshape(2, 5)).predict(X).shape == (3, 5)


def test_calibration_is_applied_everywhere_and_can_be_redone(data, model):
    (X, Y), uncalibrated, model = data, model, copy.deepcopy(model)
    fresh_X, fresh_Y = table(seed=5)
    before = model.predict_uncertainty(fresh_X)
    mean = before.mean
    wrong = mean + 3 * (fresh_Y - mean)  # as if the noise were three times what it is
    model.calibrate(fresh_X, wrong)
    factor = model.calibration_.fit.scale.within
    assert 5 < factor < 15
    after = model.predict_uncertainty(fresh_X)
    np.testing.assert_allclose((after.mean - mean) / [0.001, 300.0], 0, atol=1e-5)
    np.testing.assert_allclose(after.total, factor * before.total, rtol=1e-4)
    np.testing.assert_allclose(after.aleatoric, factor * before.aleatoric, rtol=1e-4)
    assert model.log_prob(fresh_X, wrong).mean() > uncalibrated.log_prob(fresh_X, wrong).mean()
    lower, upper = model.predict_interval(fresh_X, 0.9)
    assert 0.9 <= ((wrong >= lower) & (wrong <= upper)).mean() <= 0.93
    region = model.predict_interval(fresh_X, 0.9, joint=True)
    assert region.contains(wrong).sum() in (270, 271)  # ⌈0.9 · 301⌉, the last one on the border
    check = model.calibration_.checks[1]
    assert check.nominal == 0.9 and check.interval[0] < 0.7 and abs(check.interval[1] - 0.9) < 0.06
    assert abs(check.region[2] - 0.9) < 0.06
    assert "covariance" in str(model.calibration_) and "conformal" in str(model.calibration_)
    model.calibrate(fresh_X, fresh_Y)  # from the beginning, not on top
    assert 0.5 < model.calibration_.fit.scale.within < 2
    assert model.fit(X, Y).calibration_ is None


def test_conformal_coverage_that_the_rows_cannot_give_says_so(data):
    model = MDERRegressor(**SHORT).fit(*data).calibrate(*table(rows=15, seed=5))
    with pytest.warns(UserWarning, match="needs 99 calibration rows; 15 are there: the model's own"):
        assert np.isfinite(model.predict_interval(data[0], 0.99).lower).all()
    assert str(model.calibration_).endswith("not checked, which needs 40 rows")


@pytest.mark.slow
def test_separate_factors_take_rows_of_their_own(data):
    model = MDERRegressor(**SMALL | {"max_iter": 10}).fit(*data)
    with pytest.warns(UserWarning, match="150 rows do not determine the scale of their disagreement .* separate=False"):
        model.calibrate(*table(seed=6), separate=True, method="posterior")  # hardly trained, they hardly disagree
    assert model.calibration_.fit.separate and len(model.calibration_.joint_scores) == 150


@pytest.mark.slow
def test_pipelines_searches_clones_and_pickles(data):
    X, Y = data
    small = MDERRegressor(**SMALL | {"max_iter": 3, "members": 2})
    assert clone(small).get_params() == small.get_params()
    pipeline = make_pipeline(StandardScaler(), small).fit(X, Y)
    assert cross_val_predict(pipeline, X, Y, cv=2).shape == Y.shape
    search = GridSearchCV(small, {"random_state": [0, 1]}, cv=2, scoring=mder.metrics.nll_scorer).fit(X, Y)
    assert search.best_params_["random_state"] in (0, 1) and np.isfinite(search.cv_results_["mean_test_score"]).all()
    copy = pickle.loads(pickle.dumps(pipeline))
    np.testing.assert_array_equal(copy.predict(X), pipeline.predict(X))


@pytest.mark.slow
def test_several_processes_fit_at_once(data):
    small = MDERRegressor(**SMALL | {"max_iter": 3, "members": 2})
    alone = cross_val_score(small, *data, cv=2)
    np.testing.assert_allclose(cross_val_score(small, *data, cv=2, n_jobs=2), alone, atol=1e-5)


def test_fits_in_threads_are_those_in_turn(data):
    def predicted(seed):
        return MDERRegressor(**SHORT | {"random_state": seed}).fit(*data).predict(data[0])

    with ThreadPoolExecutor(3) as pool:
        at_once = list(pool.map(predicted, range(3)))
    for seed, predictions in enumerate(at_once):
        np.testing.assert_array_equal(predictions, predicted(seed))


def test_seeds_decide_everything(data):
    X, Y = data
    same = [MDERRegressor(**SHORT).fit(X, Y).predict(X) for _ in range(2)]
    np.testing.assert_array_equal(*same)
    assert not np.allclose(MDERRegressor(**SHORT | {"random_state": 1}).fit(X, Y).predict(X), same[0])


@pytest.mark.slow
def test_warm_start_goes_on(data):
    X, Y = data
    warm = MDERRegressor(**SMALL | {"warm_start": True}).fit(X, Y)
    first = warm.loss_curve_[:, 0].mean()
    assert warm.fit(X, Y).loss_curve_[:, 0].mean() < first - 0.5
    with pytest.raises(ValueError, match="warm_start"):
        warm.set_params(hidden_layer_sizes=(8,)).fit(X, Y)


@pytest.mark.slow
def test_early_stopping_holds_rows_out_for_each_member(data):
    X, Y = data
    model = MDERRegressor(**SMALL | {"max_iter": 500, "n_iter_no_change": 3}).fit(X, Y)
    assert model.n_iter_ < 500 and np.all(model.best_epoch_ >= 0)
    assert model.validation_curve_.shape == model.loss_curve_.shape == (3, 500)
    whole = MDERRegressor(**SMALL | {"early_stopping": False, "max_iter": 3}).fit(X, Y)
    assert whole.n_iter_ == 3 and whole.validation_curve_ is None


def test_predictions_do_not_depend_on_company(model):
    X, _ = table(rows=2500, seed=7)
    together = model.predict(X)
    np.testing.assert_allclose(model.predict(X[2000:2003]), together[2000:2003], rtol=1e-9)


@pytest.mark.slow
def test_pictures(model):
    X, Y = table(rows=60, seed=8)
    with jax.enable_x64(True):
        prediction = model.predict_dist(X)
    for kind, options in (
        ("calibration", {}),
        ("pit", {}),
        ("pit", {"joint": True}),
        ("predicted_observed", {"target": 1}),
        ("sparsification", {}),
    ):
        ours, expected = model.plot(X, Y, kind, **options), getattr(mder.plotting, kind)(Y, prediction, **options)
        assert ours.get_xlabel() == expected.get_xlabel() != "" and ours.get_ylabel() == expected.get_ylabel() != ""
        np.testing.assert_allclose(drawn(ours), drawn(expected), rtol=1e-6, err_msg=kind)
    ellipses = drawn(model.plot(X, Y, "ellipses"))
    np.testing.assert_allclose(ellipses, drawn(mder.plotting.ellipses(prediction, y=Y)), rtol=1e-6)
    with pytest.raises(ValueError, match="kind must be 'calibration', 'pit'"):
        model.plot(X, Y, "pie")


def test_coverage_is_checked_on_the_rows_that_did_not_calibrate(model):
    """Each half is told the scale of the other: drawn so that one is ten times as wide."""
    X, _ = table(rows=400, seed=9)
    order = np.random.default_rng(0).permutation(400)
    u = model.predict_uncertainty(X)
    noise = np.random.default_rng(1).normal(size=(400, 2)) * u.std
    noise[order[:200]] *= 10
    (_, check) = copy.deepcopy(model).calibrate(X, u.mean + noise).calibration_.checks
    before, scaled, conformal = check.interval
    assert 0.5 < before < 0.6 and 0.5 < scaled < 0.6 and 0.5 < conformal < 0.6
    assert check.rows == check.region_rows == 400 and check.error == pytest.approx(np.sqrt(0.09 / 400))


def test_targets_of_a_data_frame_are_found_by_name(data):
    X, Y = data
    frame = pd.DataFrame(Y, columns=["a", "b"])
    model = MDERRegressor(**SMALL).fit(X, frame)
    turned, polars = frame[["b", "a"]], pl.DataFrame({"b": Y[:, 1], "a": Y[:, 0]})
    for other in (turned, polars):
        assert model.score(X, other) == model.score(X, frame) == model.score(X, Y)
        np.testing.assert_array_equal(model.log_prob(X, other), model.log_prob(X, frame))
        assert mder.metrics.nll_scorer(model, X, other) == mder.metrics.nll_scorer(model, X, frame)
        points = [model.plot(X, y, "predicted_observed", target=1).lines[-1].get_ydata() for y in (other, frame)]
        np.testing.assert_array_equal(*points)
    new_X, new_Y = table(seed=1)
    new = pd.DataFrame(new_Y, columns=["a", "b"])
    scale = model.calibrate(new_X, new[["b", "a"]]).calibration_.fit.scale
    assert scale == model.calibrate(new_X, new).calibration_.fit.scale
    for wrong in (new.rename(columns={"b": "c"}), new.assign(c=1.0), new["a"]):
        with pytest.raises(ValueError, match=r"y must have the targets of the fit, \['a', 'b'\], in any order"):
            model.calibrate(new_X, wrong)
    single = MDERRegressor(**SHORT).fit(X, frame["a"])
    assert single.score(X, frame[["a"]]) == single.score(X, frame["a"]) == single.score(X, Y[:, 0])
    for wrong in (frame["b"], frame[["b"]]):
        with pytest.raises(ValueError, match=r"the targets of the fit, \['a'\]"):
            single.score(X, wrong)
    numbered = MDERRegressor(**SHORT).fit(X, pd.DataFrame(Y))  # 0 and 1 are no names
    assert numbered.target_names_ is None and numbered.score(X, frame) == numbered.score(X, Y)


@pytest.mark.parametrize(
    "second, message",
    [
        (lambda y: np.full_like(y, 5.0), "target 'y1' is 5 in every row; leave it out"),
        (lambda y: y, "target 'y1' is a linear function of 'y0'; leave it out"),
        (lambda y: 2 * y + 3, "target 'y1' is a linear function of 'y0'; leave it out"),
    ],
)
def test_degenerate_targets_are_noticed(data, second, message):
    y = data[1][:, 0]
    tiny = MDERRegressor(**SHORT)
    with pytest.warns(UserWarning, match=message):
        tiny.fit(data[0], np.stack([y, second(y)], axis=1))


def test_a_sum_of_targets_is_noticed_and_strong_correlation_is_not(data):
    (X, Y), tiny = data, MDERRegressor(**SHORT)
    z = (Y - Y.mean(axis=0)) / Y.std(axis=0)
    names = ["a", "b", "sum"]
    gaps = np.column_stack([z, z.sum(axis=1)])
    gaps[::3, 0] = np.nan
    with pytest.warns(UserWarning, match="target 'sum' is a linear function of 'a', 'b'"):
        tiny.fit(X, pd.DataFrame(gaps, columns=names))
    few = np.column_stack([z[:, 0], z[:, 0], z[:, 1]])
    few[3:, 2] = np.nan
    with pytest.warns(UserWarning, match="target 'y1' is a linear function of 'y0'"):
        tiny.fit(X, few)
    close = z[:, :1] + 1e-3 * np.random.default_rng(0).normal(size=(len(z), 1))
    close[0] = np.nan  # trained by the same program as those above
    tiny.fit(X, np.column_stack([z, close]))


def test_a_refused_fit_leaves_the_model_as_it_was(data):
    X, Y = data
    model = MDERRegressor(**SHORT).fit(X, Y)
    before = model.predict(X)
    for wrong_X, wrong_Y in (
        (np.hstack([X, X]), np.full_like(Y, np.nan)),
        (X[:, :2], Y[:10]),
        (X[:, :1], np.full_like(Y, np.inf)),
    ):
        with pytest.raises(ValueError):
            model.fit(wrong_X, wrong_Y)
        np.testing.assert_array_equal(model.predict(X), before)
        assert model.n_features_in_ == 3


def test_a_column_that_never_changed_in_training_does_not_move_predictions(data):
    X, Y = data
    constant = np.column_stack([X[:, :2], np.full(len(X), 7.0)])
    for standardize in (True, False):
        scaled = (Y - Y.mean(axis=0)) / Y.std(axis=0)
        model = MDERRegressor(**SHORT | {"standardize": standardize}).fit(constant, scaled)
        moved = constant.copy()
        moved[:, 2] = 1e6
        with pytest.warns(UserWarning, match=r"300 of 300 rows are far outside .* 'x2' \(7 to 7\)"):
            found = model.predict_uncertainty(moved)
        expected = model.predict_uncertainty(constant)
        np.testing.assert_array_equal(found.mean, expected.mean)
        if standardize:  # else networks of inputs such as 5000 predict 1e32
            assert (total(found.epistemic) > total(expected.epistemic)).all()
            noise, before = (np.trace(each.aleatoric, axis1=1, axis2=2) for each in (found, expected))
            np.testing.assert_allclose(noise, before, rtol=1e-4)  # equal units: the same on average over targets


def test_a_spread_of_few_ulp_is_none_and_of_three_digits_is_one():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(100, 1))
    wide, rounding = 1e9 + 1e-4 * noise, 0.1 + 1e-17 * rng.integers(0, 3, size=(100, 1))
    assert standardizer_of(wide).std[0] == pytest.approx(1e-4, rel=0.2)
    assert standardizer_of(rounding, constant=np.inf).std[0] == np.inf


def test_a_warm_start_says_what_differs_and_holds_out_the_same_rows(data):
    X, Y = data
    model = MDERRegressor(**SHORT | {"warm_start": True, "random_state": None}).fit(X, Y)
    seed = model.seed_
    assert model.fit(X, Y).seed_ == seed
    with pytest.raises(ValueError, match="networks of the last fit, which are 3; members is 4 now"):
        model.set_params(members=4).fit(X, Y)
    with pytest.raises(ValueError, match="standardize was True then and is False now"):
        model.set_params(members=3, standardize=False).fit(X, Y)


@pytest.fixture(scope="module")
def far_from_zero():
    """Models of one target y in several units, with X and y."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = X[:, :1] + 0.3 * rng.normal(size=(300, 1))
    changes = (0.0, 1.0), (1e8, 1.0), (0.0, 1e-20)
    return {(shift, unit): MDERRegressor(**SHORT).fit(X, unit * y + shift) for shift, unit in changes}, X, y


@pytest.mark.parametrize("scorer", ["nll_scorer", "crps_scorer", "energy_scorer"])
def test_scorers_do_not_lose_the_digits_of_targets_far_from_zero(scorer, far_from_zero):
    models, X, y = far_from_zero
    scores = {
        (shift, unit): getattr(mder.metrics, scorer)(model, X, unit * y + shift)
        for (shift, unit), model in models.items()
    }
    assert scores[1e8, 1.0] == pytest.approx(scores[0.0, 1.0], abs=1e-4)
    tiny = scores[0.0, 1e-20] - (np.log(1e20) if scorer == "nll_scorer" else 0.0)
    tiny = tiny if scorer == "nll_scorer" else tiny * 1e20
    assert tiny == pytest.approx(scores[0.0, 1.0], abs=1e-4)
    if scorer == "nll_scorer":
        assert scores[0.0, 1.0] == pytest.approx(models[0.0, 1.0].log_prob(X, y).mean(), abs=1e-5)


# ---- Columns of all kinds


def field(rows=300, seed=0):
    """Numbers, few and many levels, booleans, dates and gaps, and two targets that depend on all of them."""
    random, row = np.random.default_rng(seed), np.arange(rows)
    size, depth = random.uniform(0, 10, rows), random.uniform(-1, 1, rows)
    soil, plot, wet, day = row % 3, row % 20, row % 7 < 3, random.integers(0, 800, rows)
    when = pd.Timestamp("2020-01-01") + pd.to_timedelta(day, "D")
    soils, plots = np.array(["clay", "loam", "sand"])[soil], [f"plot {k}" for k in plot]
    frame = pd.DataFrame({"size": size, "soil": soils, "plot": plots, "wet": wet, "when": when, "depth": depth})
    frame.loc[row % 5 == 0, "depth"], frame.loc[row % 10 == 1, "soil"] = np.nan, None
    signal = 0.3 * size + depth * (row % 5 > 0) + np.array([0.0, 2.0, 1.0])[soil] + 2 * (plot % 2) + wet + day / 400
    Y = signal[:, None] * [1.0, -10.0] + random.normal(size=(rows, 2)) * [0.2, 2.0]
    return frame, pd.DataFrame(Y, columns=["yield", "price"])


@pytest.fixture(scope="module")
def farm():
    return MDERRegressor(**SMALL).fit(*field())


def test_a_table_of_all_kinds_is_learnt(farm):
    kinds = {column.name: (column.kind, column.width, column.gaps) for column in farm.encoding_.columns}
    assert kinds == {
        "size": ("number", 1, False),
        "soil": ("category", 4, True),
        "plot": ("category", 1, False),
        "wet": ("boolean", 1, False),
        "when": ("date", 3, False),
        "depth": ("number", 2, True),
    }
    assert farm.predictor_.design.embedded == ((5, 21),)
    frame, Y = field(seed=1)
    assert farm.score(frame, Y) > 0.9
    turned = frame[["depth", "when", "wet", "plot", "soil", "size"]]
    with pytest.raises(ValueError, match="feature names"):
        farm.predict(turned)
    polars = pl.from_pandas(frame)
    np.testing.assert_array_equal(farm.predict(polars), farm.predict(frame))


def test_a_model_of_all_kinds_is_saved_pickled_and_cloned(farm, tmp_path):
    frame, _ = field(seed=1)
    farm.save(tmp_path / "farm.mder")
    for same in (MDERRegressor.load(tmp_path / "farm.mder"), pickle.loads(pickle.dumps(farm)), copy.deepcopy(farm)):
        jax.tree.map(np.testing.assert_array_equal, same.predict_uncertainty(frame), farm.predict_uncertainty(frame))
        assert same.encoding_ == farm.encoding_ and list(same.feature_names_in_) == list(frame.columns)
    again = clone(farm).fit(*field())
    np.testing.assert_array_equal(again.predict(frame), farm.predict(frame))


def test_a_search_takes_tables_of_all_kinds():
    frame, Y = field()
    settings = {"cv": 2, "scoring": mder.metrics.nll_scorer, "error_score": "raise"}
    search = GridSearchCV(MDERRegressor(**SHORT), {"learning_rate_init": [1e-6, 0.05]}, **settings).fit(frame, Y)
    assert search.best_params_ == {"learning_rate_init": 0.05} and search.predict(frame).shape == (300, 2)


@pytest.mark.parametrize(("column", "level"), [("soil", "peat"), ("plot", "plot 20")])
def test_an_unseen_level_is_named_once_and_less_certain(farm, column, level):
    frame, _ = field(seed=1)
    expected = farm.predict_uncertainty(frame)
    frame.loc[2, column] = level
    message = f"1 of 300 rows has a level of '{column}' that training had rarely or never: '{level}' (1)"
    with pytest.warns(UserWarning) as said:
        found = farm.predict_uncertainty(frame)
    assert [str(one.message) for one in said] == [message]
    others = np.arange(300) != 2
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[others], b[others]), found, expected)
    assert total(found.epistemic)[2] > 2 * total(expected.epistemic)[2]
    assert total(found.within)[2] > 0.25 * (farm.predictor_.targets.std**2).sum()  # about half of the table's variance


def test_a_gap_where_there_was_none_is_told(farm):
    frame, _ = field(seed=1)
    expected = farm.predict_uncertainty(frame)
    frame.loc[2, "size"] = np.nan
    with pytest.warns(UserWarning, match="^1 of 300 rows has no value in 'size', which had no gaps in training$"):
        found = farm.predict_uncertainty(frame)
    assert np.isfinite(found.mean).all() and total(found.within)[2] > total(expected.within)[2]


@pytest.mark.parametrize("row", [3, 12, 29])
@pytest.mark.parametrize("column", ["size", "depth"])
def test_a_mistyped_cell_has_a_finite_and_wide_answer(farm, column, row):
    frame, Y = field(seed=1)
    frame.loc[row, column] = 1.1 * frame[column].max()
    plain, others = farm.predict_interval(frame), np.arange(300) != row
    widths = []
    for factor in (2, 10, 1e6, 1e30):
        typed = frame.copy()
        typed.loc[row, column] *= factor
        with pytest.warns(UserWarning, match=f"^1 of 300 rows is far outside the range of training in '{column}'"):
            mean, interval = farm.predict(typed)[row], farm.predict_interval(typed)
        low, high = Y.to_numpy().min(axis=0), Y.to_numpy().max(axis=0)
        assert (mean > low - (high - low)).all() and (mean < high + (high - low)).all()
        jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[others], b[others]), interval, plain)
        widths.append((interval.upper - interval.lower)[row])
    assert (widths[0] > (plain.upper - plain.lower)[row]).all() and np.isfinite(widths).all()
    assert (np.array(widths[1:]) >= 0.99 * widths[0]).all()  # the novelty is as large as can be, X moves a little


def test_numbers_that_are_categories_are_named(data):
    random, code = np.random.default_rng(0), np.arange(300) % 5
    frame = pd.DataFrame({"code": code, "x": random.normal(size=300).clip(-2, 2)})
    Y = np.array([0.0, 3.0, -2.0, 1.0, -3.0])[code] + 0.1 * random.normal(size=300)
    for named in (["code"], [0], np.array(["code"])):
        model = MDERRegressor(**SHORT, categorical_features=named).fit(frame, Y)
        assert [column.kind for column in model.encoding_.columns] == ["category", "number"]
        assert model.encoding_.columns[0].levels == ("0", "1", "2", "3", "4")
    np.testing.assert_array_equal(model.predict(frame.astype({"code": float})), model.predict(frame))
    assert [column.kind for column in MDERRegressor(**SHORT).fit(frame, Y).encoding_.columns] == ["number"] * 2


def test_features_that_give_a_target_away_are_told(data):
    X, Y = data
    for leak, told in ((Y[:, 1], "is a copy of the target 'b'"), (Y.sum(axis=1), "is the sum of the targets 'a', 'b'")):
        with pytest.warns(UserWarning, match=f"^column 'x2' {told}; leave it out unless it is known") as said:
            MDERRegressor(**SHORT).fit(np.column_stack([X[:, :2], leak]), Y, target_names=["a", "b"])
        assert len(said) == 1 and said[0].filename == __file__


def test_rows_to_validate_with_may_have_unseen_levels():
    frame, Y = field()
    other, other_Y = field(60, seed=1)
    other.loc[4, "soil"] = "peat"
    with pytest.warns(UserWarning, match="a level of 'soil' that training had rarely or never: 'peat'") as said:
        model = MDERRegressor(**SHORT).fit(frame, Y, validation=(other, other_Y))
    assert len(said) == 1 and np.isfinite(model.validation_curve_).all()


def test_a_column_of_a_hundred_thousand_levels():
    """Levels of their own have those that are there three times; without a word of the user it is left out."""
    names = [f"n{k}" for k in range(100_000)] + [f"often {k % 30}" for k in range(300)]
    frame = pd.DataFrame({"name": names, "x": np.linspace(0, 1, len(names))})
    tiny = {"hidden_layer_sizes": (4,), "members": 1, "max_iter": 1, "batch_size": 50_150, "early_stopping": False}
    with pytest.warns(UserWarning, match=r"columns left out: 'name' \(text that is different in most rows\)"):
        plain = MDERRegressor(**tiny, random_state=0).fit(frame, frame["x"] ** 2)
    assert plain.encoding_.left_out == ("name",)
    model = MDERRegressor(**tiny, random_state=0, categorical_features=["name"]).fit(frame, frame["x"] ** 2)
    assert model.encoding_.embedded == ((0, 31),) and np.isfinite(model.predict(frame[-40:])).all()


def test_a_column_without_values_is_left_out(data):
    X, Y = data
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    plain = MDERRegressor(**SHORT).fit(frame, Y)
    with pytest.warns(UserWarning, match=r"^columns left out: 'empty' \(no value in any row\)$"):
        model = MDERRegressor(**SHORT).fit(frame.assign(empty=np.nan), Y)
    np.testing.assert_array_equal(model.predict(frame.assign(empty=1.0)), plain.predict(frame))
    assert model.n_features_in_ == 4


def test_cells_of_mixed_types(data):
    X, Y = data
    kinds = [1, "a", 2.5, None, True]
    rows = [[x, kinds[i % 5]] for i, x in enumerate(X[:, 0].tolist())]
    with pytest.warns(UserWarning, match=r"'x1' \(numbers and text such as 'a': each value is a category\)"):
        model = MDERRegressor(**SHORT).fit(rows, Y)
    (_, column) = model.encoding_.columns
    assert column.kind == "category" and column.levels == ("1", "2.5", "True", "a") and column.gaps
    array = np.empty((300, 2), object)
    array[:] = rows
    np.testing.assert_array_equal(model.predict(array), model.predict(rows))
    np.testing.assert_array_equal(model.predict(pd.DataFrame(array)), model.predict(rows))


DEVICES = """
import jax, numpy as np
{before}
from mder_jax import MDERRegressor
X = np.random.default_rng(0).normal(size=(20, 1))
MDERRegressor(hidden_layer_sizes=(2,), members=1, max_iter=1).fit(X, X)
print(jax.device_count("cpu"))
"""


@pytest.mark.parametrize(
    "before, variables, count",
    [
        ("", {"JAX_NUM_CPU_DEVICES": "1"}, 1),
        pytest.param("", {"JAX_NUM_CPU_DEVICES": "3"}, 3, marks=pytest.mark.slow),
        pytest.param("", {"XLA_FLAGS": "--xla_force_host_platform_device_count=3"}, 3, marks=pytest.mark.slow),
        pytest.param("jax.config.update('jax_num_cpu_devices', 3)", {}, 3, marks=pytest.mark.slow),
        pytest.param("", {}, len(os.sched_getaffinity(0)), marks=pytest.mark.slow),
    ],
)
def test_fit_uses_all_cores_unless_it_was_told_otherwise(before, variables, count):
    kept = {name: value for name, value in os.environ.items() if name not in ("JAX_NUM_CPU_DEVICES", "XLA_FLAGS")}
    command = [sys.executable, "-c", DEVICES.format(before=before)]
    said = subprocess.run(command, env={**kept, **variables}, capture_output=True, text=True, check=True)
    assert said.stdout.split() == [str(count)]


def test_an_array_of_dates_is_one_of_dates():
    days = np.datetime64("2020-01-01") + np.arange(60)
    y = np.sin(np.arange(60) / 9)
    model = MDERRegressor((8,), members=2, max_iter=3, random_state=0).fit(days[:, None], y)
    assert [column.kind for column in model.encoding_.columns] == ["date"]
    np.testing.assert_array_equal(model.predict(days[:, None].astype("datetime64[ns]")), model.predict(days[:, None]))
