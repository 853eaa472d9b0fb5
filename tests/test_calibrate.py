"""`MDERRegressor.calibrate` protects its user: few rows, trained rows, gaps, factors that nothing determines."""

import copy
import warnings
from dataclasses import replace

import numpy as np
import pytest

from mder_jax import MDERRegressor
from mder_jax.columns.ranges import LARGEST, Range
from mder_jax.ensemble.forward import Forward
from mder_jax.estimator import trained_rows
from tests.support.cases import with_mlp

SMALL = {"hidden_layer_sizes": (8,), "members": 3, "max_iter": 15, "random_state": 0}
SMALL |= {"embedding": None, "beside": None}


def table(rows, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 2))
    return X, X @ [[1.0, 0.5], [0.0, 1.0]] + 0.5 * rng.normal(size=(rows, 2))


@pytest.fixture(scope="module")
def trained():
    return MDERRegressor(**SMALL).fit(*table(120))


@pytest.fixture
def model(trained):
    return copy.deepcopy(trained)


@pytest.mark.parametrize("method", ["likelihood", "posterior"])
@pytest.mark.parametrize("rows", [1, 2, 9])
def test_few_rows_leave_the_scale_as_it_is(model, rows, method):
    new = table(50, seed=1)[0]
    before = model.predict_interval(new)
    with pytest.warns(
        UserWarning, match=f"^{rows} calibration rows? do(es)? not determine the scale.*give at least 10"
    ):
        model.calibrate(*table(rows, seed=2), method=method)
    assert model.calibration_.fit.scale == (1.0, 1.0) and "not determine the scale" in str(model.calibration_)
    if rows < 9:
        with pytest.warns(UserWarning, match="needs 9 calibration rows"):
            after = model.predict_interval(new)
        assert (after.upper >= before.upper).all() and (after.lower <= before.lower).all()


def test_enough_rows_set_the_scale_without_a_word(model):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.calibrate(*table(10, seed=2))
    assert model.calibration_.fit.scale.within != 1


def test_a_factor_that_nothing_determines_is_left_out_and_regions_are_still_conformal(model):
    """Targets that are exactly the predicted mean: the likelihood has no maximum."""
    X, _ = table(60, seed=3)
    with pytest.warns(UserWarning, match=r"scale of the covariance stays as it is: (the likelihood|ln p)"):
        model.calibrate(X, model.predict(X))
    assert model.calibration_.fit.scale == (1.0, 1.0) and len(model.calibration_.joint_scores) == 60
    assert model.predict_interval(X, joint=True).contains(model.predict(X)).all()


def test_separate_factors_do_not_fail_because_of_the_check(model):
    """The halves of the check have a quarter of the rows for each purpose."""
    for seed in range(3):
        X, Y = table(60, seed=seed + 10)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a factor was left as it is
            model.calibrate(X, Y, separate=True)
        assert len(model.calibration_.checks) == 2 and len(model.calibration_.joint_scores) == 30


def test_the_networks_run_once(model, monkeypatch):
    rows, call = [], Forward.__call__
    monkeypatch.setattr(Forward, "__call__", lambda self, X, *rest: rows.append(len(X)) or call(self, X, *rest))
    model.calibrate(*table(60, seed=1))
    assert rows == [60] and len(model.calibration_.checks) == 2


def test_wrong_methods_are_still_refused(model):
    with pytest.raises(ValueError, match="method must be 'likelihood', 'pull' or 'posterior'"):
        model.calibrate(*table(3, seed=1), method="guess")
    with pytest.raises(ValueError, match="pulls see only the total covariance"):
        model.calibrate(*table(30, seed=1), method="pull", separate=True)
    assert model.calibration_ is None


def test_rows_of_the_fit_are_refused_and_some_of_them_are_said(model, tmp_path):
    X, Y = table(120)
    with pytest.raises(ValueError, match=r"120 of these 120 rows are rows of the fit.*has not seen"):
        model.calibrate(X, Y)
    model.save(tmp_path / "model.mder")
    loaded = MDERRegressor.load(tmp_path / "model.mder")
    with pytest.raises(ValueError, match="60 of these 60 rows"):
        loaded.calibrate(X[::2].astype(np.float64), Y[::2])
    assert model.calibration_ is None
    new_X, new_Y = table(60, seed=4)
    with pytest.warns(UserWarning, match="20 of these 60 rows are rows of the fit, so the coverage is not checked"):
        model.calibrate(np.vstack([new_X[:40], X[:20]]), np.vstack([new_Y[:40], Y[:20]]))
    assert not model.calibration_.checks and "rows of the fit" in str(model.calibration_)
    model.save(tmp_path / "model.mder")
    assert str(MDERRegressor.load(tmp_path / "model.mder").calibration_).endswith("not checked, see the note")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.calibrate(new_X, new_Y)
        model.calibrate(X[:60], Y[:60] + 0.01)  # the same inputs measured again are new rows
    assert model.calibration_.checks


def discrete(rng, rows, levels=(3, 3)):
    """Rows of categories and a rating, many of which are equal."""
    X = np.stack([rng.integers(0, level, rows) for level in levels], axis=1).astype(float)
    return X, rng.integers(0, 4, size=(rows, 1)).astype(float)


def share(training, others):
    return trained_rows.found_among(trained_rows.remember(*training), *others)[1]


@pytest.mark.parametrize("rows, others", [(200, 200), (30, 1000), (50, 500), (1000, 20), (1000, 200)])
@pytest.mark.parametrize("levels", [(3, 3), (4, 5, 5), (10, 10, 10)])
def test_rows_equal_by_chance_are_not_taken_for_rows_of_the_fit(rows, others, levels):
    """Over 40 tables: few trained rows, many, and as many as others."""
    alarms = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        alarms += share(discrete(rng, rows, levels), discrete(rng, others, levels)) > trained_rows.NOTICED
    assert alarms == 0


def test_different_rows_of_categories_may_be_met_again():
    """A table of all combinations to train on: every new row is one of them."""
    rng = np.random.default_rng(0)
    X = np.stack(np.meshgrid(np.arange(5.0), np.arange(8.0)), axis=-1).reshape(-1, 2)
    again = rng.integers(0, 40, 200)
    assert share((X, X[:, :1]), (X[again], X[again, :1])) == 0


def test_rows_of_the_fit_are_known_in_another_precision_with_few_digits_and_among_copies():
    X, Y = table(300)
    few = [np.array([[float(f"{value:.6g}") for value in row] for row in part]) for part in (X, Y)]
    for others in ((X, Y), (X.astype(np.float32), Y.astype(np.float32)), few, (X[::7], Y[::7])):
        assert share((X, Y), others) > 0.9
    assert share((np.tile(X, (2, 1)), np.tile(Y, (2, 1))), few) > 0.9
    half = np.vstack([X, X[:150]]), np.vstack([Y, Y[:150]])
    assert share(half, (X, Y)) > 0.9 and share((X, Y), table(300, seed=1)) == 0


def test_large_fits_are_remembered_by_some_of_their_rows(monkeypatch):
    monkeypatch.setattr(trained_rows, "MOST", 1000)
    X, Y = table(20_000)
    trained = trained_rows.remember(X, Y)
    assert len(trained.hashes) == 1000 and trained.rows == 20_000 and not trained.whole
    found, part = trained_rows.found_among(trained, X[:5000], Y[:5000])
    assert 150 < found < 350 and part > 0.9
    assert trained_rows.found_among(trained, *table(5000, seed=1)) == (0, 0.0)
    common = X.copy(), Y.copy()
    common[0][:8000], common[1][:8000] = 1.0, 1.0  # one row that is 40 % of all
    more = table(1000, seed=2)
    more[0][:450], more[1][:450] = 1.0, 1.0
    assert share(common, more) < trained_rows.REFUSED
    for number in range(3):  # going on with other rows, all are known
        trained = trained_rows.remember(*table(5000, seed=3 + number), trained)
    assert trained.rows == 35_000
    for number in range(3):
        assert trained_rows.found_among(trained, *table(5000, seed=3 + number))[1] > 0.9


def test_hashes_tell_rows_apart_and_not_zeros_or_gaps():
    rows = np.array([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0], [np.nan, 1.0], [-np.nan, 1.0]])
    hashes = trained_rows._hashes(rows, np.zeros(2), np.ones(2))
    assert hashes[0] == hashes[1] != hashes[2] and hashes[3] == hashes[4] != hashes[0]
    many = np.random.default_rng(0).integers(0, 1000, size=(50_000, 3)).astype(float)
    assert len(np.unique(trained_rows._hashes(many, np.zeros(3), np.ones(3)))) == len(np.unique(many, axis=0))


def test_the_check_with_missing_targets_counts_what_is_there(model):
    """The second target is there in every other row: the joint coverage was 0 and the intervals 67 % at 50 %."""
    X, Y = table(400, seed=5)
    Y[::2, 1] = np.nan
    checks = model.calibrate(X, Y).calibration_.checks
    for check in checks:
        assert abs(check.interval[2] - check.nominal) < 4 * check.error
        assert abs(check.region[2] - check.nominal) < 4 * check.region_error
        assert check.rows == 400 and check.region_rows == 200
        assert check.region_error == pytest.approx(np.sqrt(check.nominal * (1 - check.nominal) / 200))
    Y[20:, 1] = np.nan  # 10 complete rows: too few in either half for a region of 90 %
    at_half, at_ninety = model.calibrate(X, Y).calibration_.checks
    assert at_half.region_rows == 10 and np.isnan(at_ninety.region[2]) and 0 <= at_half.region[2] <= 1
    assert "–" in str(model.calibration_)


def test_rows_without_a_finite_prediction_are_left_out(model):
    """Only models of version 0.1.0 have such rows: they have an `mlp`, and do not know the ranges of columns."""
    model = with_mlp(model)
    columns = tuple(column._replace(ranges=(Range(-LARGEST, LARGEST, 0.0),)) for column in model.encoding_.columns)
    model.encoding_ = replace(model.encoding_, columns=columns)
    X, Y = table(61, seed=6)
    X[7] = 1e37
    with pytest.warns(UserWarning, match="1 of 61 rows have no finite prediction and are left out"):
        model.calibrate(X, Y)
    assert len(model.calibration_.joint_scores) == 60
    with pytest.raises(ValueError, match="at least one row with an observed target"):
        model.calibrate(X, np.full_like(Y, np.nan))


def test_calibrating_on_one_row_does_not_shorten_intervals(trained):
    """Before, 40 calibrations on one row each gave factors from 0.0004 to 6.5 and 70 % in 90 % intervals."""
    new = table(300, seed=7)
    held = []
    for seed in range(10):
        model = copy.deepcopy(trained)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lower, upper = model.calibrate(*table(1, seed=20 + seed)).predict_interval(new[0])
        held.append(((lower <= new[1]) & (new[1] <= upper)).mean())
    assert min(held) > 0.8
