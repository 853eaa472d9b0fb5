"""`calibrate(X, y, cv=...)`: CV+ against brute force, its coverage over many tables, folds of every kind, and files."""

import copy
import json
import math
import pickle

import jax
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from flax import linen
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit
from sklearn.preprocessing import FunctionTransformer, PowerTransformer

from mder_jax import MDERRegressor, calibration, cli, mder_nll, num_outputs, persistence
from mder_jax.estimator import _folds
from mder_jax.estimator._fit_calibration import row_scores
from mder_jax.estimator.cross_conformal import guarantee, interval, smallest
from mder_jax.mixture import Mixture
from mder_jax.niw import NIW
from mder_jax.persistence import ModelFileError
from tests.support.cases import noisy_line as table

TINY = {"hidden_layer_sizes": (4,), "members": 2, "max_iter": 4, "random_state": 0}
TINY |= {"embedding": None, "beside": None}
N = 60


@pytest.fixture(scope="module")
def fitted():
    return MDERRegressor(**TINY).fit(*table())


@pytest.fixture(scope="module")
def calibrated(fitted):
    return copy.deepcopy(fitted).calibrate(*table(), cv=3)


@pytest.fixture
def model(fitted):
    return copy.deepcopy(fitted)


def all_ends(model, X):
    """Lower and upper ends by every score, (N, scores, n) both, as the definition says."""
    lower, upper = [], []
    for fold in model.calibration_.folds:
        found = fold.rows(X).moments()
        half = fold.scores[None] * found.std[:, None]
        lower.append(found.mean[:, None] - half)
        upper.append(found.mean[:, None] + half)
    return np.concatenate(lower, axis=1), np.concatenate(upper, axis=1)


def by_sorting(model, X, coverage):
    """The ⌊α(K + 1)⌋-th smallest lower and the ⌈(1 − α)(K + 1)⌉-th smallest upper end of each target."""
    ends = []
    for part, place in zip(all_ends(model, X), (math.floor, math.ceil), strict=True):
        columns = []
        for j in range(part.shape[2]):
            own = np.sort(part[:, ~np.isnan(part[0, :, j]), j], axis=1)
            share = 1 - coverage if place is math.floor else coverage
            columns.append(own[:, place(round(share * (own.shape[1] + 1), 9)) - 1])
        ends.append(np.stack(columns, axis=1))
    return ends


@pytest.mark.parametrize("seed", range(3))
def test_a_rank_of_the_union_is_that_of_sorting_it(seed):
    rng = np.random.default_rng(seed)
    lists = []
    for size in (1, 4, 30, 7):
        R = np.sort(rng.exponential(size=size))
        R = np.round(R, 1) if seed == 1 else R * 10.0 ** rng.integers(-4, 4, size if seed == 2 else 1)  # ties, outliers
        lists.append((rng.normal(size=50), rng.exponential(size=50), np.sort(R)))
    union = np.sort(np.concatenate([mean[:, None] + std[:, None] * R for mean, std, R in lists], axis=1), axis=1)
    spread = np.ptp(union, axis=1)
    for rank in range(1, union.shape[1] + 1):
        assert np.all(np.abs(smallest(lists, rank) - union[:, rank - 1]) <= 1e-14 * spread + 1e-14)


def test_a_fold_without_a_finite_prediction_counts_as_infinite():
    mean, std = np.zeros(3), np.ones(3)
    broken = np.array([0.0, np.nan, np.inf]), std
    lists = [(mean, std, np.array([1.0, 2.0, 3.0])), (*broken, np.array([0.5, 9.0]))]
    np.testing.assert_allclose(smallest(lists, 3), [2.0, 3.0, 3.0])
    np.testing.assert_allclose(smallest(lists, 4), [3.0, np.inf, np.inf])
    found = interval(
        [(part[0][:, None], part[1][:, None]) for part in lists], [part[2][:, None] for part in lists], [4]
    )
    np.testing.assert_allclose(found.lower[:, 0], [-3.0, -np.inf, -np.inf])


def test_ends_that_cross_meet_in_the_middle_and_a_target_without_scores_has_no_interval():
    moments = [(np.array([[0.0, 0.0]]), np.ones((1, 2))), (np.array([[10.0, 0.0]]), np.ones((1, 2)))]
    scores = [np.array([[1.0, np.nan]]), np.array([[1.0, np.nan]])]
    lower, upper = interval(moments, scores, [1, 0])
    assert lower[0].tolist() == [5.0, np.inf] and upper[0].tolist() == [5.0, -np.inf]


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.95])
def test_intervals_are_those_of_the_definition(calibrated, coverage):
    X, _ = table(30, seed=1)
    found, wanted = calibrated.predict_interval(X, coverage), by_sorting(calibrated, X, coverage)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    np.testing.assert_array_equal(calibrated.predict_all(X).interval(coverage), found)


def test_scores_are_those_of_models_that_have_not_seen_the_row(model):
    """With the folds known, each fold model is a fit to the other rows, and the scores are |y − mean|/std."""
    X, Y = table()
    folds = [np.arange(20), np.arange(20, 45), np.arange(45, N)]
    model.calibrate(X, Y, cv=folds)
    for rows, fold in zip(folds, model.calibration_.folds, strict=True):
        others = np.setdiff1d(np.arange(N), rows)
        np.testing.assert_allclose(fold.predictor.inputs.mean, X[others].mean(axis=0))
        np.testing.assert_allclose(fold.predictor.targets.std, Y[others].std(axis=0))
        found = fold.rows(X[rows]).moments()
        scores = np.sort(np.abs(Y[rows] - found.mean) / found.std, axis=0)
        np.testing.assert_allclose(fold.scores, scores, rtol=1e-4, atol=1e-4)
        assert np.all(fold.scores >= scores)


def test_the_factor_is_that_of_all_out_of_fold_predictions_and_regions_have_their_radius(model):
    X, Y = table()
    folds = [np.arange(0, N, 2), np.arange(1, N, 2)]
    model.calibrate(X, Y, cv=folds)
    parts = [fold.rows(X[rows]) for rows, fold in zip(folds, model.calibration_.folds, strict=True)]
    members = [part.standardized().members for part in parts]
    pooled = Mixture(
        NIW(*(np.concatenate(leaves, axis=1) for leaves in zip(*map(jax.tree.leaves, members), strict=True)))
    )
    z = np.concatenate([part.targets.forward(Y[rows]) for part, rows in zip(parts, folds, strict=True)])
    wanted = calibration.fit_scale(pooled, z)
    assert model.calibration_.fit.rows == N
    np.testing.assert_allclose(model.calibration_.fit.scale, wanted.scale, rtol=1e-5)
    assert model.predictor_.scale == model.calibration_.fit.scale
    scaled = [part.with_scale(model.calibration_.fit.scale) for part in parts]
    distances = np.sort(
        np.concatenate([row_scores(part, Y[rows])[0] for part, rows in zip(scaled, folds, strict=True)])
    )
    radius = model.predict_interval(X[:2], coverage=0.9, joint=True).radius
    np.testing.assert_allclose(radius, distances[math.ceil(0.9 * (N + 1)) - 1], rtol=1e-6)  # networks in float32


def test_factors_cancel_in_intervals(fitted):
    """So that fitting them to the same rows does not touch the guarantee, also if there are two."""
    X, _ = table(10, seed=1)
    one, other = (copy.deepcopy(fitted).calibrate(*table(), cv=2, **options) for options in ({}, {"method": "pull"}))
    assert one.predictor_.scale != other.predictor_.scale
    np.testing.assert_array_equal(one.predict_interval(X), other.predict_interval(X))


def test_the_bound_of_the_theorem():
    assert guarantee(0.9, 60, 60) == pytest.approx(0.8)  # jackknife+: 1 − 2α
    assert guarantee(0.9, 5, 300) == pytest.approx(0.8 - 2 * 0.8 / 61)
    assert guarantee(0.9, 50, 100) == pytest.approx(0.8 - 0.5 / 51)
    assert guarantee(0.5, 5, 60) == 0


def least_squares(X, y):
    design = np.hstack([np.ones((len(X), 1)), X])
    slopes = np.linalg.lstsq(design, y, rcond=None)[0]
    spread = np.std(y - design @ slopes, axis=0)
    return lambda new: (
        np.hstack([np.ones((len(new), 1)), new]) @ slopes,
        np.broadcast_to(spread, (len(new), y.shape[1])),
    )


def test_coverage_over_many_tables():
    """Least squares in the place of networks, heavy tails, 24 rows: above the bound, and close to nominal."""
    rng, inside, rows, count = np.random.default_rng(0), [], 24, 4
    for _ in range(500):
        X = rng.normal(size=(rows + 20, 2))
        Y = X + rng.standard_t(3, size=(rows + 20, 2))
        moments, scores = [], []
        for fold in np.array_split(rng.permutation(rows), count):
            predict = least_squares(X[np.setdiff1d(np.arange(rows), fold)], Y[np.setdiff1d(np.arange(rows), fold)])
            mean, std = predict(X[fold])
            scores.append(np.sort(np.abs(Y[fold] - mean) / std, axis=0))
            moments.append(predict(X[rows:]))
        lower, upper = interval(moments, scores, calibration.rank(np.full(2, rows), 0.8))
        inside.append(((lower <= Y[rows:]) & (Y[rows:] <= upper)).mean(axis=0))
    coverage, error = np.mean(inside, axis=0), np.std(inside, axis=0) / math.sqrt(500)
    assert np.all(coverage - 4 * error > guarantee(0.8, count, rows))
    assert np.all(np.abs(coverage - 0.8) < 0.03 + 4 * error)


@pytest.mark.parametrize("simulations", [5, pytest.param(500, marks=pytest.mark.slow)])
def test_coverage_with_networks(simulations):
    inside, regions = [], []
    for seed in range(simulations):
        X, Y = table(N, seed=100 + seed)
        model = MDERRegressor(**TINY | {"random_state": seed}).fit(X, Y).calibrate(X, Y, cv=3)
        new, observed = table(200, seed=10_000 + seed)
        lower, upper = model.predict_interval(new, coverage=0.8)
        inside.append(((lower <= observed) & (observed <= upper)).mean())
        regions.append(model.predict_interval(new, coverage=0.8, joint=True).contains(observed).mean())
    error = 0.06 / math.sqrt(simulations)
    assert np.mean(inside) - 4 * error > guarantee(0.8, 3, N)
    assert abs(np.mean(inside) - 0.8) < 0.02 + 4 * error
    assert abs(np.mean(regions) - 0.8) < 0.05 + 4 * error


def test_targets_with_gaps_and_rows_without_a_target(model):
    X, Y = table()
    Y[::5, 1] = np.nan
    Y[::20] = np.nan
    model.fit(X, Y).calibrate(X, Y, cv=3)
    assert model.calibration_.counts(joint=False).tolist() == [57, 48] and len(model.calibration_.joint_scores) == 48
    new = X[:10]
    np.testing.assert_allclose(model.predict_interval(new, 0.8), by_sorting(model, new, 0.8), rtol=1e-12)


def test_too_few_scores_for_a_coverage(calibrated):
    X, _ = table(10, seed=1)
    with pytest.warns(
        UserWarning, match="conformal coverage 0.99 needs 99 calibration rows; 60 are there: the model's"
    ):
        lower, upper = calibrated.predict_interval(X, 0.99)
    ends = all_ends(calibrated, X)
    own = np.moveaxis(calibrated.predict_quantiles(X, [0.005, 0.995]), -1, 0)
    np.testing.assert_allclose(lower, np.minimum(ends[0].min(axis=1), own[0]), rtol=1e-6)
    np.testing.assert_allclose(upper, np.maximum(ends[1].max(axis=1), own[1]), rtol=1e-6)


def test_digits_of_float64_are_kept(fitted):
    """2020.5 ± 0.001: the same as for targets about 0, to 1e-6 of their spread."""
    X, Y = table()
    unit = np.array([0.001, 1.0])
    far = MDERRegressor(**TINY).fit(X, 2020.5 + unit * Y).calibrate(X, 2020.5 + unit * Y, cv=3)
    near = copy.deepcopy(fitted).calibrate(X, Y, cv=3)
    found, wanted = far.predict_interval(X), near.predict_interval(X)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose((one - 2020.5) / unit, other, atol=1e-5)


def test_one_target_has_the_shape_of_y(fitted):
    X, Y = table()
    model = MDERRegressor(**TINY).fit(X, Y[:, 0]).calibrate(X, Y[:, 0], cv=2)
    assert model.predict_interval(X).lower.shape == (N,)


def test_the_same_seed_gives_the_same_folds(fitted, calibrated):
    X, Y = table()
    again = copy.deepcopy(fitted).calibrate(X, Y, cv=3)
    np.testing.assert_array_equal(again.predict_interval(X), calibrated.predict_interval(X))
    other = copy.deepcopy(fitted).set_params(random_state=1).calibrate(X, Y, cv=3)
    assert np.any(other.predict_interval(X).lower != calibrated.predict_interval(X).lower)


def test_folds_of_every_kind(model):
    X, Y = table()
    sizes = {20: 3, KFold(3): 3, N: N}
    random = np.random.RandomState(0)
    kept = np.ones(N, bool)
    for cv, folds in sizes.items():
        cv = folds if isinstance(cv, int) else cv
        found = _folds.folds_of(cv, X, Y, kept, None, random)
        assert len(found) == folds and np.array_equal(np.sort(np.concatenate(found)), np.arange(N))
    kept[::2] = False
    assert [len(fold) for fold in _folds.folds_of(4, X, Y, kept, None, random)] == [8, 8, 7, 7]
    assert [len(fold) for fold in _folds.folds_of(KFold(3), X, Y, kept, None, random)] == [10, 10, 10]
    groups = np.repeat(np.arange(10), 6)
    for cv in (GroupKFold(5), 5):
        found = _folds.folds_of(cv, X, Y, np.ones(N, bool), groups, random)
        assert len(found) == 5 and all(len(np.unique(groups[fold])) == 2 and len(fold) == 12 for fold in found)


def test_groups_weights_and_their_fits(model, monkeypatch):
    X, Y = table()
    groups, weights, fits = np.repeat(list("abcdef"), 10), np.linspace(0, 1, N), []
    model.fit(X, Y, groups=groups, sample_weight=weights)
    fit = MDERRegressor._fit
    monkeypatch.setattr(MDERRegressor, "_fit", lambda *given: fits.append(given) or fit(*given))
    model.calibrate(X, Y, cv=3, groups=groups, sample_weight=weights)
    assert len(model.calibration_.joint_scores) == N - 1  # a row of weight 0 is left out
    assert sorted(len(np.unique(own)) for *_, own, _ in fits) == [4, 4, 4]
    assert all(len(own) == len(grouped) for *_, own, _, grouped, _ in fits)


BAD = [
    ({"cv": 1}, "cv must be an integer, 2 or more.*of folds at most the 60 rows with a target; got 1"),
    ({"cv": 61}, "at most the 60 rows with a target; got 61"),
    ({"cv": True}, "cv must be an integer, 2 or more, 'members', a list with the indices.*got True"),
    ({"cv": 2.5}, "got 2.5"),
    ({"cv": "rows"}, "got 'rows'"),
    ({"cv": KFold}, "cv must be .* a scikit-learn splitter; got <class"),
    ({"cv": [np.arange(40), np.arange(30, 60)]}, "exactly one fold of cv; row 30 is in 2"),
    ({"cv": [np.arange(20), np.arange(30, 60)]}, "exactly one fold of cv; row 20 is in 0"),
    ({"cv": [np.arange(60)]}, "2 folds or more; got 1"),
    ({"cv": [np.arange(30), np.arange(30, 61)]}, "indices of rows are 0 to 59; fold 1 of cv holds 60"),
    ({"cv": [np.arange(60), []]}, "at least one; fold 1 is \\[\\]"),
    ({"cv": [np.ones(60, bool), np.zeros(60, bool)]}, "list of indices of rows, at least one; fold 0 is array"),
    ({"cv": ShuffleSplit(3, test_size=0.5, random_state=0)}, "exactly one fold of cv; row"),
    ({"cv": 3, "groups": np.arange(5)}, r"groups must have shape \(60,\)"),
    ({"cv": 3, "sample_weight": -np.ones(60)}, "sample_weight must be finite and not negative"),
    ({"cv": 3, "method": "guess"}, "method"),
    ({"groups": np.arange(60)}, "groups and sample_weight are for the fits without a fold; give cv"),
    ({}, "60 of these 60 rows are rows of the fit, which say nothing about new rows"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_input(model, options, message, monkeypatch):
    if options.get("method") is None:
        monkeypatch.setattr(MDERRegressor, "_fit", None)  # found before anything is fitted
    with pytest.raises(ValueError, match=message):
        model.calibrate(*table(), **options)
    assert model.calibration_ is None


def test_rows_and_settings_must_be_those_of_the_fit(model):
    with pytest.raises(ValueError, match="with cv the rows must be those of the fit; 0 of 60 are; leave out cv"):
        model.calibrate(*table(seed=1), cv=3)
    with pytest.raises(ValueError, match="the settings of the networks, or members, are not those of the fit"):
        model.set_params(members=3).calibrate(*table(), cv=3)
    with pytest.raises(NotFittedError):
        MDERRegressor(**TINY).calibrate(*table(), cv=3)


def test_a_fold_that_cannot_be_fitted_is_named(model):
    X, Y = table()
    Y[20:, 1] = np.nan
    model.fit(X, Y)
    with pytest.raises(ValueError, match=r"the fit without fold 0 of 2, on 40 rows: target 1 is NaN in all 40 rows"):
        model.calibrate(X, Y, cv=[np.arange(20), np.arange(20, N)])


def test_rows_that_only_a_warm_start_has_seen_are_said_and_the_fits_start_anew(model, calibrated):
    X, Y = table()
    model.set_params(warm_start=True).fit(X, Y)
    model.calibrate(X, Y, cv=3)  # no warning: these are all rows
    np.testing.assert_array_equal(model.predict_interval(X), calibrated.predict_interval(X))
    model.fit(*(np.concatenate(parts) for parts in zip((X, Y), table(20, seed=1), strict=True)))
    with pytest.warns(
        UserWarning, match="fit has seen 80 rows in all, the models without a fold are fitted to these 60"
    ):
        model.calibrate(X, Y, cv=3)


def test_an_own_network_and_an_own_loss_are_those_of_the_folds(tmp_path):
    X, Y = table()
    network, calls = linen.Dense(num_outputs(2)), []

    def loss(niw, y):
        calls.append(len(y))
        return mder_nll(niw, y)

    settings = TINY | {"network": network, "loss": loss, "max_iter": 2}
    model = MDERRegressor(**settings).fit(X, Y)
    calls.clear()
    model.calibrate(X, Y, cv=2).save(tmp_path / "own.mder")
    assert calls and all(fold.predictor.design.own is network for fold in model.calibration_.folds)
    loaded = MDERRegressor.load(tmp_path / "own.mder", network=network)
    np.testing.assert_array_equal(loaded.predict_interval(X), model.predict_interval(X))
    with pytest.raises(ValueError, match="trained with a loss of your own; give it again"):
        loaded.calibrate(X, Y, cv=2)


def test_ctrl_c_in_a_fold_ends_the_calibration(model, monkeypatch):
    def interrupted(*arguments, **options):
        import warnings

        warnings.warn("interrupted: the members are returned as they are", RuntimeWarning, stacklevel=2)

    monkeypatch.setattr(MDERRegressor, "_fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.calibrate(*table(), cv=3)
    assert model.calibration_ is None


@pytest.mark.parametrize("frame", [pd.DataFrame, pa.table])
def test_frames_with_levels_that_a_fold_lacks(frame, tmp_path):
    """Each fold learns its own encoding; a level that it lacks is new to it, and not warned of."""
    X, Y = table()
    kind = np.where(np.arange(N) < 5, "rare", np.where(np.arange(N) % 2, "odd", "even"))
    columns = frame({"x": X[:, 0], "kind": kind})
    folds = [np.arange(20), np.arange(20, 40), np.arange(40, N)]
    model = MDERRegressor(**TINY).fit(columns, Y).calibrate(columns, Y, cv=folds)
    widths = [fold.predictor.design.inputs for fold in model.calibration_.folds]
    assert widths == [3, 4, 4] and model.predictor_.design.inputs == 4
    found = model.predict_interval(columns)
    model.save(tmp_path / "model.mder")
    np.testing.assert_array_equal(MDERRegressor.load(tmp_path / "model.mder").predict_interval(columns), found)


@pytest.mark.parametrize("frame", [pd.DataFrame, pa.table])
def test_folds_read_columns_as_the_whole_table_does(frame):
    """The decimal mark, the order of a date, numbers as categories, and what is left out, of which few rows decide."""
    _, Y = table()
    day = pd.date_range("2024-01-01", periods=N, freq="12h")
    dates = [f"{one.day}/{one.month}/2024" if row < 30 else f"{one.day % 9 + 1}/1/2024" for row, one in enumerate(day)]
    weight = ["0,125", "1,250", "2,5", *[f"{row},125" for row in range(1, N - 2)]]
    count = np.where(np.arange(N) < N - 2, np.arange(N) + 1, 7)  # it numbers all rows but the last ones
    size = np.where(np.arange(N) < 4, "small", np.where(np.arange(N) % 2, "38", "40"))
    columns = frame({"date": dates, "weight": weight, "id": count, "size": size})
    folds = [np.arange(4), np.arange(4, 30), np.arange(30, N - 2), np.arange(N - 2, N)]
    with pytest.warns(UserWarning, match="text was read so: 'weight'"):
        model = MDERRegressor(**TINY, categorical_features=["size"]).fit(columns, Y)
    model.calibrate(columns, Y, cv=folds)
    whole = {column.name: column for column in model.encoding_.columns}
    assert (whole["date"].order, whole["weight"].decimal, list(whole)) == ("dmy", ",", [*columns_of(columns)])
    for fold in model.calibration_.folds:
        own = {column.name: column for column in fold.encoding.columns}
        for name in ("kind", "order", "decimal", "parts"):
            assert [getattr(own[key], name) for key in whole] == [getattr(whole[key], name) for key in whole]


def columns_of(table):
    return getattr(table, "column_names", None) or table.columns


def test_rows_that_fit_leaves_out_are_not_looked_at(fitted, calibrated):
    """Rows without a target or of weight 0 may hold anything, and do not change the folds of the others."""
    X, Y = (np.concatenate([part, np.ones((2, 2))]) for part in table())
    X[N:, 0], Y[N] = np.inf, np.nan
    Y[N + 1] = -5.0
    weights = np.append(np.ones(N + 1), 0.0)
    model = MDERRegressor(**TINY).fit(X, Y, sample_weight=weights).calibrate(X, Y, cv=3, sample_weight=weights)
    np.testing.assert_allclose(model.predict_interval(X[:N]), calibrated.predict_interval(X[:N]), rtol=1e-12)
    logs = MDERRegressor(**TINY, target_transform="log")
    positive = np.where(np.arange(N + 2)[:, None] < N, np.exp(Y), Y)
    logs.fit(X, positive, sample_weight=weights)
    for cv in (3, "members"):
        assert logs.calibrate(X, positive, cv=cv, sample_weight=weights).calibration_.fit.rows <= N


def test_transformed_targets_are_calibrated_in_their_units(calibrated):
    X, Y = table()
    logs = MDERRegressor(**TINY, target_transform="log").fit(X, np.exp(Y)).calibrate(X, np.exp(Y), cv=3)
    np.testing.assert_allclose(np.log(logs.predict_interval(X)), calibrated.predict_interval(X), rtol=1e-4, atol=1e-5)


def test_a_decreasing_transform_and_one_that_is_fitted(tmp_path):
    X, Y = np.copy(table())
    falling = FunctionTransformer(np.negative, np.negative)
    model = MDERRegressor(**TINY, target_transform=[falling, PowerTransformer()]).fit(X, Y).calibrate(X, Y, cv=3)
    lower, upper = model.predict_interval(X)
    assert np.all(lower < upper) and np.all(((lower <= Y) & (upper >= Y)).mean(axis=0) > 0.7)
    model.save(tmp_path / "model.mder")
    loaded = MDERRegressor.load(tmp_path / "model.mder", target_transform=model.target_transforms_)
    np.testing.assert_array_equal(loaded.predict_interval(X), (lower, upper))


def test_what_is_printed(calibrated):
    least = f"{guarantee(0.9, 3, N):.1%}"
    assert str(calibrated.calibration_).splitlines()[-3:] == [
        "conformal scores: 60 of each target, 60 of complete rows",
        f"cross-conformal, 3 folds: 90% intervals of each target hold at least {least} of exchangeable rows, as a rule"
        " about 90%",
        "joint regions have no such guarantee",
    ]


def test_files_and_pickle_hold_the_folds(calibrated, tmp_path):
    X, _ = table(20, seed=1)
    path = tmp_path / "model.mder"
    calibrated.save(path)
    for same in (MDERRegressor.load(path), pickle.loads(pickle.dumps(calibrated))):
        for joint in (False, True):
            ours, theirs = (each.predict_interval(X, joint=joint) for each in (same, calibrated))
            jax.tree.map(np.testing.assert_array_equal, ours, theirs)
        assert str(same.calibration_) == str(calibrated.calibration_)
    document, arrays = persistence.load(path)
    assert document["folds"]["version"] == 1 and "fold2/params/dense_0/kernel" in arrays
    plain = MDERRegressor.load(path)
    plain.export(tmp_path / "model.jaxexp")
    exported = jax.export.deserialize(bytearray((tmp_path / "model.jaxexp").read_bytes()))
    np.testing.assert_allclose(exported.call(X.astype(np.float32))["mean"], calibrated.predict(X), atol=1e-5)


def no_version(document, arrays):
    document["folds"]["version"] = 2


def no_models(document, arrays):
    document["folds"]["models"] = []


def other_scores(document, arrays):
    arrays["fold0/scores"] = arrays["fold0/scores"] + 1


def unsorted_scores(document, arrays):
    arrays["fold0/scores"] = arrays["fold0/scores"][::-1].copy()


def another_network(document, arrays):
    document["folds"]["models"][1]["design"]["r"] = 2.0


def other_columns(document, arrays):
    document["folds"]["models"][1]["encoding"]["table_width"] = 3


def lost_parameters(document, arrays):
    del arrays["fold1/params/dense_0/kernel"]


def a_negative_unit(document, arrays):
    arrays["fold2/targets/std"] = -arrays["fold2/targets/std"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (no_version, "models of folds, of version 1; got 3 of version 2"),
        (no_models, "there must be models of folds.*got 0"),
        (other_scores, "the conformal scores are not those of the folds"),
        (unsorted_scores, r"scores of a fold must be sorted, of 2 targets; got shape \(20, 2\)"),
        (another_network, "the network of a fold must be that of the model"),
        (other_columns, "a fold must have the columns of the model"),
        (lost_parameters, r"parameters must be named \['dense_0/bias', .*; got \["),
        (a_negative_unit, "targets must have 2 finite means and positive standard deviations"),
    ],
)
def test_a_file_whose_folds_do_not_fit_is_refused(calibrated, tmp_path, change, message):
    calibrated.save(tmp_path / "model.mder")
    document, arrays = persistence.load(tmp_path / "model.mder")
    change(document, arrays)
    persistence.save(tmp_path / "other.mder", document, arrays)
    with pytest.raises(ModelFileError, match=message):
        MDERRegressor.load(tmp_path / "other.mder")


def test_the_command_line(tmp_path, capfd):
    X, Y = table()
    frame = pd.DataFrame({"x": X[:, 0], "w": X[:, 1], "y": Y[:, 0]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    out = tmp_path / "m.mder"
    start = ["train", str(tmp_path / "t.csv"), "--targets", "y", "--out", str(out), "--hidden", "4", "--members", "2"]
    with pytest.MonkeyPatch.context() as patch, jax.enable_x64(False):
        patch.setattr("mder_jax.use_compilation_cache", lambda: None)
        assert cli.main([*start, "--epochs", "2", "--calibrate", "cv2", "--json"]) == 0
        result = json.loads(capfd.readouterr().out)
        assert (result["rows"], result["calibration_rows"], result["calibration"]["coverage"]) == (60, 60, [])
        assert result["accuracy"] is None  # there are no held-out rows
        model = MDERRegressor.load(out)
        assert len(model.calibration_.folds) == 2
        assert cli.main(["predict", str(out), str(tmp_path / "t.csv"), "-o", str(tmp_path / "p.csv"), "--quiet"]) == 0
        predicted = pd.read_csv(tmp_path / "p.csv")
        wanted = model.predict_interval(frame[["x", "w"]])
        np.testing.assert_allclose(predicted[["y_lower", "y_upper"]].to_numpy().T, np.array(wanted)[..., 0], rtol=1e-6)
        grouped = ["--force", "--epochs", "2", "--calibrate", "cv3", "--groups", "g"]
        frame.assign(g=np.arange(N) // 20).to_csv(tmp_path / "t.csv", index=False)
        capfd.readouterr()
        assert cli.main([*start, *grouped]) == 0
        assert "cross-conformal, 3 folds" in capfd.readouterr().out
        assert sorted(len(fold.scores) for fold in MDERRegressor.load(out).calibration_.folds) == [20, 20, 20]
        assert cli.main([*start, "--force", "--calibrate", "cv61"]) == 1
        error = capfd.readouterr().err
        assert "--calibrate cv61: more folds than rows with a target, of which" in error and "has 60" in error


def test_folds_on_the_command_line():
    from mder_jax.cli import _options

    start = ["train", "t.csv", "--targets", "y", "--out", "m.mder", "--calibrate"]
    assert _options.read([*start, "cv"]).calibrate == 5 and _options.read([*start, "cv12"]).calibrate == 12
    assert _options.read([*start, "cv.csv"]).calibrate.name == "cv.csv"
    with pytest.raises(SystemExit) as stopped:
        _options.read([*start, "cv1"])
    assert stopped.value.code == 2
