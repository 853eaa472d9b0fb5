"""Conformal intervals and regions as a promise: coverage over many calibrations, with ties, categories and gaps."""

import functools
import itertools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import mder_jax as mder
from mder_jax import MDERRegressor, calibration
from mder_jax.calibration import conformal_radius, rows_needed
from mder_jax.estimator import _calibration
from mder_jax.estimator._fit_calibration import row_scores
from mder_jax.estimator.results import Uncertainty
from tests.support.cases import long

CALIBRATIONS, ROWS, NEW = 500, 29, 20
NETWORKS_ALONE = {"embedding": None, "beside": None}


def categories(rng, rows):
    """A yes/no feature, a 0/1 target and a rating: the mass of a tie is a large share of the rows."""
    X = rng.integers(0, 2, size=(rows, 1)).astype(float)
    return X, np.stack([rng.integers(0, 2, rows), rng.integers(1, 6, rows)], axis=1).astype(float)


def counts(rng, rows):
    """Counts 0 to 4 in three groups."""
    group = rng.integers(0, 3, rows)
    Y = rng.binomial(4, np.array([0.2, 0.5, 0.8])[group][:, None], size=(rows, 2))
    return np.eye(3)[group], Y.astype(float)


def rounded(rng, rows):
    """Continuous inputs, targets far from 0 that are rounded to few digits."""
    X = rng.normal(size=(rows, 2))
    return X, np.round(X + 0.3 * rng.normal(size=(rows, 2)), 1) * [0.001, 1.0] + [2020.5, -40.0]


def gaps(rng, rows):
    """A third of the second target is not observed, and some of the first."""
    X, Y = counts(rng, rows)
    Y[rng.uniform(size=rows) < 0.3, 1] = np.nan
    Y[rng.uniform(size=rows) < 0.1, 0] = np.nan
    return X, Y


def continuous(rng, rows):
    X = rng.normal(size=(rows, 2))
    return X, X + rng.standard_t(3, size=(rows, 2))


@functools.cache
def trained(draw):
    X, Y = draw(np.random.default_rng(0), 100)
    return MDERRegressor(hidden_layer_sizes=(8,), members=3, max_iter=15, random_state=0, **NETWORKS_ALONE).fit(X, Y)


def in_calibrations(values):
    """The rows of each calibration, and the new ones: (CALIBRATIONS, ROWS, ...), (CALIBRATIONS, NEW, ...)."""
    apart = values.reshape(CALIBRATIONS, ROWS + NEW, *values.shape[1:])
    return apart[:, :ROWS], apart[:, ROWS:]


@pytest.mark.parametrize("draw", [categories, counts, rounded, gaps, continuous])
def test_coverage_is_never_below_nominal(draw):
    """Over 500 calibrations, by the functions that `calibrate`, `predict_interval` and `contains` are made of."""
    model = trained(draw)
    X, Y = draw(np.random.default_rng(1), CALIBRATIONS * (ROWS + NEW))
    joint, single = map(in_calibrations, row_scores(model.predictor_.rows(model.encoding_.encode(X, quiet=True)), Y))
    new_X, new_Y = (in_calibrations(values)[1].reshape(-1, values.shape[1]) for values in (X, Y))
    new = model.predictor_.rows(model.encoding_.encode(new_X, quiet=True), keep=True)
    for coverage in (0.5, 0.8, 0.9):
        radius = np.stack([calibration.radius_from(scores, coverage) for scores in single[0]])
        lower, upper = new.within(np.repeat(radius, NEW, axis=0), joint=False)
        inside = np.where(np.isnan(new_Y), np.nan, (lower <= new_Y) & (new_Y <= upper))
        radius = np.array([calibration.radius_from(scores, coverage) for scores in joint[0]])
        region = new.within(np.repeat(radius, NEW), joint=True)
        complete = ~np.isnan(new_Y).any(axis=1)
        held = np.full(len(new_X), np.nan)
        held[complete] = type(region)(*(part[complete] for part in region[:3])).contains(new_Y[complete])
        for shares in (*inside.T, held):
            shares = np.nanmean(shares.reshape(CALIBRATIONS, NEW), axis=1)
            error = np.std(shares) / np.sqrt(CALIBRATIONS)
            assert shares.mean() >= coverage - 3 * error


@pytest.mark.parametrize("calibrations", [4, long(500)])
def test_the_rows_on_the_edge_are_inside_also_after_save_and_load(calibrations, tmp_path):
    """As many calibration rows as the rank says are inside, at least, whatever is tied."""
    model = trained(categories)
    for seed in range(calibrations):
        X, Y = categories(np.random.default_rng([2, seed]), 12)
        calibrated = model.calibrate(X, Y)
        calibrated.save(tmp_path / "model.mder")
        for made in (calibrated, MDERRegressor.load(tmp_path / "model.mder")):
            lower, upper = made.predict_interval(X, 0.8)
            assert (((lower <= Y) & (upper >= Y)).sum(axis=0) >= 11).all()  # ⌈0.8 · 13⌉
            assert made.predict_interval(X, 0.8, joint=True).contains(Y).sum() >= 11


def test_scores_of_an_older_file_are_rounded_up_when_it_is_read():
    model = trained(categories).calibrate(*categories(np.random.default_rng(3), 40))
    document, arrays = _calibration.to_document(model.calibration_)
    old = {name: scores.astype(np.float32) for name, scores in arrays.items()}
    older = [{key: value for key, value in check.items() if "region_" not in key} for check in document["checks"]]
    read = _calibration.from_document({"fit": document["fit"], "checks": older}, old, 2)
    assert (read.joint_scores > arrays["joint_scores"]).all() and read.checks[0].region_rows == 40
    np.testing.assert_allclose(read.target_scores, arrays["target_scores"], rtol=2e-5)


@pytest.mark.parametrize("cases", [8, long(400)])
@pytest.mark.parametrize("dtype", [np.float32, long(np.float64)])
def test_equal_rows_are_inside_their_own_radius(dtype, cases):
    """`mahalanobis` ≤ `conformal_radius`, and mean ± radius std holds y, compiled or not."""
    distance = jax.jit(lambda mixture, y: mixture.mahalanobis(y))
    for case in range(cases):
        rng = np.random.default_rng(case)
        n, size = (1 + case % 2, 1 + case // 2 % 2) if cases < 10 else (1 + case % 4, 1 + case // 4 % 3)
        A = rng.normal(size=(size, n, n))
        A[:, 1:] = A[:, :1] + A[:, 1:] * 10 ** rng.uniform(-2, 0)  # correlated
        L = np.linalg.cholesky(A @ A.swapaxes(1, 2) + 1e-4 * np.eye(n))
        far = 10 ** rng.uniform(-1, 2) * rng.normal(size=n)
        loc, y = rng.normal(size=(size, n)) + far, rng.normal(size=n) + far
        twenty = [np.repeat(part[:, None], 20, axis=1).astype(dtype) for part in (loc, L)]
        mixture = mder.Mixture(mder.StudentT(np.full((size, 20), rng.uniform(3, 20), dtype), *twenty))
        Y = np.repeat(y[None], 20, axis=0).astype(dtype)
        joint, single = (conformal_radius(mixture, Y, 0.9, joint) for joint in (True, False))
        assert np.all(mixture.mahalanobis(Y) <= joint) and np.all(distance(mixture, Y) <= joint)
        mean, half = mixture.mean(), single[None] * mixture.std()
        assert np.all((mean - half <= Y) & (mean + half >= Y))
        assert joint.dtype == single.dtype == dtype


@pytest.mark.parametrize("correlation", [0.0, 0.99, 0.9999])
def test_joint_scores_cover_the_rounding_of_covariances(correlation):
    """Another program, or another device, rounds the entries of a covariance in another way."""
    rng = np.random.default_rng(0)
    std, size = np.array([0.1, 3.0]), 200
    total = np.outer(std, std) * [[1, correlation], [correlation, 1]] * np.ones((size, 1, 1))
    Y, zero = rng.normal(size=(size, 2)) * std, np.zeros_like(total)
    signs = rng.choice([-1, 1], size=(size, 3))
    rounded = total * (1 + np.finfo(np.float32).eps * signs[:, [[0, 1], [1, 2]]])

    def scores(total, *resolution):
        parts = Uncertainty(np.zeros((size, 2)), total, zero, zero)
        rows = types.SimpleNamespace(moments=lambda: parts, targets=types.SimpleNamespace(std=std))
        return row_scores(rows, Y, *resolution)[0]

    assert (scores(rounded, 0.0) <= scores(total)).all()
    assert (scores(total) <= scores(total, 0.0) * 1.01).all()


def test_scores_are_rounded_up_by_rounding_only():
    t = mder.StudentT(np.full(5, np.inf), np.zeros((5, 2)), np.broadcast_to(np.eye(2), (5, 2, 2)))
    y = np.random.default_rng(0).normal(size=(5, 2))
    for dtype, most in ((jnp.float32, 1e-5), (jnp.float64, 1e-13)):
        single = jax.tree.map(lambda leaf, dtype=dtype: jnp.asarray(leaf, dtype), t)
        scores = calibration.conformal_scores(single, y.astype(dtype))
        exact = np.sort(np.linalg.norm(y.astype(dtype), axis=1))
        assert np.all(scores >= exact) and np.all(scores <= exact * (1 + most))


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.95, 0.99, 0.999, 0.07, 1 / 3])
def test_rows_needed_is_the_smallest_number_with_a_radius(coverage):
    needed = rows_needed(coverage)
    assert np.isfinite(calibration.radius_from(np.arange(float(needed)), coverage))
    assert needed == 1 or np.isinf(calibration.radius_from(np.arange(needed - 1.0), coverage))
    assert rows_needed(0.9) == 9 and rows_needed(0.95) == 19


def test_a_target_with_few_rows_leaves_the_others_conformal():
    model = trained(continuous)
    X, Y = continuous(np.random.default_rng(4), 100)
    new, _ = continuous(np.random.default_rng(5), 50)
    whole = model.calibrate(X, Y).predict_interval(new)
    Y[3:, 1] = np.nan
    model.calibrate(X, Y)
    with pytest.warns(
        UserWarning, match=r"0\.9 needs 9 calibration rows; 'y1' has 3: for it the model's own quantiles"
    ):
        lower, upper = model.predict_interval(new)
    std = model.predict_uncertainty(new).std
    factor = (upper - lower)[:, 0] / std[:, 0] / 2
    np.testing.assert_allclose(factor, model.calibration_.radius(0.9, joint=False)[0], rtol=1e-6)
    assert np.abs((upper - lower)[:, 0] / (whole.upper - whole.lower)[:, 0] - 1).max() < 0.2
    own = model.predict_quantiles(new, [0.05, 0.95])
    widest = np.nanmax(model.calibration_.target_scores[:, 1]) * std[:, 1]
    mean = model.predict(new)[:, 1]
    np.testing.assert_allclose(lower[:, 1], np.minimum(own[:, 1, 0], mean - widest), rtol=1e-6)
    np.testing.assert_allclose(upper[:, 1], np.maximum(own[:, 1, 1], mean + widest), rtol=1e-6)
    with pytest.warns(UserWarning, match=r"0\.9 needs 9 complete calibration rows; 3 are there"):
        model.predict_interval(new, joint=True)
    Y[:, 1] = np.nan
    with pytest.warns(UserWarning, match="target 'y1' was not observed in any calibration row"):
        model.calibrate(X, Y)


@pytest.mark.filterwarnings("ignore:conformal coverage")
def test_intervals_and_regions_of_a_higher_coverage_are_not_narrower():
    """Also where there are too few rows and the model's own quantiles take over."""
    model = trained(continuous).calibrate(*continuous(np.random.default_rng(7), 30))
    new, _ = continuous(np.random.default_rng(8), 20)
    levels = (0.5, 0.9, 0.95, 0.967, 0.968, 0.97, 0.98, 0.99)
    intervals = [model.predict_interval(new, level) for level in levels]
    regions = [model.predict_interval(new, level, joint=True).radius for level in levels]
    for narrow, wide in itertools.pairwise(intervals):
        assert (narrow.lower >= wide.lower).all() and (narrow.upper <= wide.upper).all()
    assert all((narrow <= wide).all() for narrow, wide in itertools.pairwise(regions))


def test_ends_of_wide_intervals_are_symmetric_and_finite():
    """(1 + coverage)/2 has no digits left in float32."""
    rng = np.random.default_rng(6)
    X, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    model = MDERRegressor(hidden_layer_sizes=(8,), members=1, max_iter=5, random_state=0, **NETWORKS_ALONE).fit(X, y)
    mean = model.predict(X)
    t = model.predict_dist(X)
    for coverage in (0.9, 0.999999, 0.9999999, 0.99999999, 1 - 1e-12):
        lower, upper = model.predict_interval(X, coverage)
        np.testing.assert_allclose(upper - mean, mean - lower, rtol=1e-5)
        expected = scipy.stats.t.isf((1 - coverage) / 2, np.asarray(t.df)) * np.asarray(t.scale_tril)[:, 0, 0]
        np.testing.assert_allclose(upper - mean, expected, rtol=1e-4)
    lower, upper = model.predict_quantiles(X, [1e-9, 1 - 1e-9]).T
    np.testing.assert_allclose(upper - mean, mean - lower, rtol=1e-5)


def test_uncalibrated_regions_are_deterministic_and_do_not_depend_on_the_batch():
    model = MDERRegressor(hidden_layer_sizes=(8,), members=3, max_iter=15, random_state=0, **NETWORKS_ALONE)
    X, Y = continuous(np.random.default_rng(0), 100)
    model.fit(X, Y)
    radii = model.predict_interval(np.repeat(X[:1], 5, axis=0), joint=True).radius
    assert np.unique(radii).size == 1
    batch = model.predict_interval(X, joint=True).radius
    alone = [model.predict_interval(X[i : i + 1], joint=True).radius[0] for i in range(3)]
    np.testing.assert_allclose(batch[:3], alone, rtol=1e-10)
    for coverage in (0.5, 0.999):
        region = model.predict_interval(X[:1], coverage, joint=True)
        drawn = np.moveaxis(model.sample_y(X[:1], 100_000), -1, 0)
        miss = 1 - region.contains(drawn).mean()
        assert abs(miss / (1 - coverage) - 1) < 4 / np.sqrt(1e5 * (1 - coverage))
