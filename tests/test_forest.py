"""`mder_jax.forest` against scikit-learn's own trees, and the forest as a member of an ensemble."""

import copy

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from sklearn.ensemble import ExtraTreesRegressor

from mder_jax import MDERRegressor, forest as forests, niw
from mder_jax.estimator import forest_member
from mder_jax.estimator._rows import CLIP, MOST_LEVELS, Rows, plain_inputs
from mder_jax.forest import Forest, fit_forest
from mder_jax.persistence import ModelFileError


def table(rows=120, seed=0, columns=3):
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, columns)).astype(np.float32).astype(float)
    return X, np.stack([X[:, 0] ** 2 + X[:, 1], X[:, 2] - X[:, 0]], axis=1) + 0.1 * random.normal(size=(rows, 2))


@pytest.fixture(scope="module")
def both():
    """A forest, and scikit-learn's trees with the same seed."""
    X, Y = table()
    return fit_forest(X, Y, trees=20, seed=3), ExtraTreesRegressor(20, random_state=3).fit(X, Y), X, Y


NEW = table(500, seed=1)[0]


def test_mean_and_covariance_are_those_of_the_predictions_of_scikit_learns_trees(both):
    forest, theirs, _, _ = both
    each = np.stack([tree.predict(NEW) for tree in theirs.estimators_])
    found = forest.predict(NEW)
    assert_allclose(found.mu, theirs.predict(NEW), atol=1e-6)
    assert_allclose(found.covariance, [np.cov(rows.T, bias=True) for rows in np.swapaxes(each, 0, 1)], atol=1e-5)


def test_a_tree_answers_with_a_row_of_the_leaf(both):
    forest, theirs, X, _ = both
    assert_array_equal(theirs.apply(X[forest.rows(NEW)[:, 0]])[:, 0], theirs.apply(NEW)[:, 0])


def test_values_at_a_threshold_go_where_they_go_in_scikit_learn():
    random = np.random.default_rng(0)
    X, Y = random.integers(0, 40, size=(300, 2)) / 3, random.normal(size=(300, 1))
    forest, theirs = fit_forest(X, Y, trees=10), ExtraTreesRegressor(10, random_state=0).fit(X, Y[:, 0])
    exact = np.unique(np.concatenate([tree.tree_.threshold for tree in theirs.estimators_]))
    near = exact.astype(np.float32)
    near = np.concatenate([np.nextafter(near, np.float32(side)) for side in (-np.inf, np.inf)] + [near])
    new = np.stack([near, near[::-1]], axis=1).astype(float)
    found, leaves = forest.rows(new), theirs.apply(new)
    for tree in range(10):
        assert_array_equal(theirs.apply(X)[found[:, tree], tree], leaves[:, tree])


def test_kappa_counts_the_rows_that_answer(both):
    rows = both[0].rows(NEW)
    fractions = [np.unique(row, return_counts=True)[1] / len(row) for row in rows]
    assert_allclose(both[0].predict(NEW).kappa, [1 / np.sum(own**2) for own in fractions])


def test_rows_that_are_alike_are_all_among_the_answers():
    """Rows that no column tells apart: each tree draws one of them, so that the spread of their targets is kept."""
    random = np.random.default_rng(0)
    X, Y = np.repeat([[0.0], [1.0]], 200, axis=0), np.concatenate([random.normal(0, 1, 200), random.normal(5, 3, 200)])
    found = fit_forest(X, Y[:, None], trees=4000).predict(np.array([[0.0], [1.0]]))
    for mean, variance, kappa, own in zip(found.mu, found.covariance, found.kappa, (Y[:200], Y[200:]), strict=True):
        assert_allclose(mean, own.mean(), atol=4 * own.std() / np.sqrt(4000))
        assert_allclose(variance, own.var(), rtol=0.15)
        assert 170 < kappa < 200


def test_only_the_rows_that_are_given_are_learnt(both):
    _, _, X, Y = both
    own = np.arange(0, 120, 3)
    forest = fit_forest(X, np.where(np.isin(np.arange(120), own)[:, None], Y, 1e9), trees=5, rows=own)
    assert set(np.unique(forest.rows(NEW))) <= set(own) and np.abs(forest.predict(NEW).mu).max() < 100


def test_trees_can_be_taken_apart_and_joined(both):
    forest = both[0]
    parts = [forest.trees(slice(0, 7)), forest.trees(slice(7, 20))]
    assert_array_equal(parts[1].rows(NEW), forest.rows(NEW)[:, 7:])
    for whole, again in zip(forest, Forest.joined(parts), strict=True):
        assert_array_equal(whole, again)
        assert whole.dtype == again.dtype


def test_a_block_of_rows_is_predicted_as_each_row(both, monkeypatch):
    whole = both[0].predict(NEW)
    monkeypatch.setattr(forests, "BLOCK", 7)
    for one, other in zip(whole, both[0].predict(NEW), strict=True):
        assert_allclose(one, other, rtol=1e-12)
    assert [part.shape for part in both[0].predict(NEW[:0])] == [(0, 2), (0, 2, 2), (0,)]


def test_a_table_without_columns_or_with_one_row():
    none = fit_forest(np.zeros((5, 0)), np.arange(5.0)[:, None], trees=200).predict(np.zeros((3, 0)))
    assert none.mu.shape == (3, 1) and np.all((none.mu > 1) & (none.mu < 3))
    assert_array_equal(fit_forest([[1.0]], [[2.0]], trees=2).predict([[7.0]]).mu, [[2.0]])


@pytest.mark.parametrize(
    ("X", "Y", "options", "message"),
    [
        (np.zeros(3), np.zeros((3, 1)), {}, r"X and Y must be \(N, d\) and \(N, n\)"),
        (np.zeros((3, 1)), np.zeros((2, 1)), {}, r"got shapes \(3, 1\) and \(2, 1\)"),
        (np.array([[np.nan]]), np.zeros((1, 1)), {}, "X must be finite"),
        (np.zeros((1, 1)), np.array([[np.inf]]), {}, "Y must be finite"),
        (np.zeros((1, 1)), np.zeros((1, 1)), {"trees": 0}, "trees must be"),
    ],
)
def test_what_is_wrong_is_said(X, Y, options, message):
    with pytest.raises(ValueError, match=message):
        fit_forest(X, Y, **options)


def test_rows_of_another_width_are_refused(both):
    with pytest.raises(ValueError, match=r"X must have the columns of the fit; got shape \(2, 1\)"):
        both[0].predict(np.zeros((2, 1)))


# ---- Beside networks


def rows_with_gaps(count=60):
    X, Y = table(count)
    Y[::7, 1] = np.nan
    return Rows(X.astype(np.float32), Y.astype(np.float32))


HELD = np.zeros((4, 60), bool)
HELD[:2, :6] = HELD[2:, 30:36] = True


@pytest.fixture(scope="module")
def member():
    return forest_member.fit_forest_member(rows_with_gaps(), HELD, (), seed=5)


def test_trees_leave_out_the_rows_that_networks_held_out(member):
    assert member.groups == ((0, 1), (2, 3)) and len(member.forest.roots) == forest_member.TREES
    rows = member.forest.rows(plain_inputs(rows_with_gaps().X, ()))
    known = np.flatnonzero(~np.isnan(rows_with_gaps().Y).any(axis=1))
    for own, part in ((HELD[0], rows[:, :50]), (HELD[2], rows[:, 50:])):
        assert set(np.unique(part)) <= set(known) - set(np.flatnonzero(own))
    assert_array_equal(member.of_members((2, 3)).forest.rows(NEW), member.forest.rows(NEW)[:, 50:])
    assert member.of_members((0,)) is None and member.of_members((0, 1, 2)).groups == ((0, 1),)


def by_hand(rows, Y, v, f):
    """ln p of targets, NaN where missing, from answers of trees (N, T) by scipy."""
    targets, found = rows_with_gaps().Y.astype(float), []
    for answers, y in zip(rows, Y, strict=True):
        own, seen = targets[answers], ~np.isnan(y)
        S = v * np.cov(own.T, bias=True) + f * np.eye(2)
        if seen.any():
            t = stats.multivariate_t(own.mean(axis=0)[seen], S[np.ix_(seen, seen)], df=forest_member.DF)
        found.append(t.logpdf(y[seen]) if seen.any() else 0.0)
    return found


def test_densities_of_held_out_rows_are_by_trees_that_did_not_learn_from_them(member):
    judged = np.r_[0:6, 30:36]
    data = rows_with_gaps()
    mine = Rows(data.X[judged], data.Y[judged].astype(float))
    rows = member.forest.rows(plain_inputs(mine.X, ()))
    apart = np.concatenate([rows[:6, :50], rows[6:, 50:]])
    log_prob = member.candidate(mine, HELD[:, judged]).log_prob(np.log([0.7, 0.02]))
    assert_allclose(log_prob, by_hand(apart, mine.Y, 0.7, 0.02), rtol=1e-5, atol=1e-5)
    together = member.candidate(mine, None).log_prob(np.log([2.0, 1e-3]))
    assert_allclose(together, by_hand(rows, mine.Y, 2.0, 1e-3), rtol=1e-4, atol=1e-4)


def test_its_prediction_has_that_density_and_kappa(member):
    new, Y = NEW[:20], table(500, seed=1)[1][:20]
    own = member._replace(spread=0.7, floor=0.02)
    rows = own.forest.rows(plain_inputs(new, ()))
    found = own.predict(new)
    assert_allclose(niw.predictive(found).log_prob(Y), by_hand(rows, Y, 0.7, 0.02), rtol=1e-4, atol=1e-4)
    assert_allclose(found.kappa, own.forest.predict(plain_inputs(new, ())).kappa, rtol=1e-6)


def test_few_trees_for_large_tables_and_few_rows_for_each(monkeypatch):
    monkeypatch.setattr(forest_member, "MOST_NODES", 4000)
    assert len(forest_member.fit_forest_member(rows_with_gaps(), None, (), 0).forest.roots) == 50
    monkeypatch.setattr(forest_member, "MOST_ROWS", 20)
    few = forest_member.fit_forest_member(rows_with_gaps(), HELD, (), 0)
    rows = few.forest.rows(plain_inputs(rows_with_gaps().X, ()))
    assert len(np.unique(rows[:, :25])) == 20 and len(np.unique(rows)) > 20
    ten = np.eye(10, 60, dtype=bool)
    assert len(forest_member.fit_forest_member(rows_with_gaps(), ten, (), 0).forest.roots) == 250


def test_categories_are_one_hot_and_those_of_many_levels_are_left_out():
    X = np.array([[0.5, 1.0, 3.0], [-9.0, 0.0, 2.0]], np.float32)
    found = plain_inputs(X, ((1, 2), (2, MOST_LEVELS + 1)))
    clipped = X[:, 0] / np.sqrt(1 + (X[:, 0] / CLIP) ** 2)
    assert_allclose(found, np.stack([clipped, [0, 1], [1, 0]], axis=1), rtol=1e-6)


def damage(arrays, name, change):
    damaged = {key: value.copy() for key, value in arrays.items()}
    damaged[f"forest/{name}"] = change(damaged[f"forest/{name}"])
    return damaged


def with_entry(index, value):
    def change(array):
        array[index] = value
        return array

    return change


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("column", lambda array: array[:-1]),
        ("column", lambda array: array.astype(np.int64)),
        ("column", with_entry(0, 3)),
        ("column", with_entry(-1, -1000)),
        ("threshold", with_entry(0, np.nan)),
        ("right", with_entry(0, 0)),
        ("right", with_entry(0, 1)),
        ("right", lambda array: np.where(array == array[0], 10**6, array).astype(np.int32)),
        ("roots", with_entry(1, 0)),
        ("roots", with_entry(0, 1)),
        ("roots", lambda array: array[:-1]),
        ("roots", lambda array: array[:0]),
        ("targets", lambda array: array[:, :1]),
        ("targets", lambda array: array[:0]),
        ("targets", with_entry((0, 0), np.inf)),
    ],
)
def test_damaged_arrays_are_refused(member, name, change):
    arrays = forest_member.forest_arrays(member.forest)
    again = forest_member.forest_of(arrays, 3, 2, 2)
    assert all(np.array_equal(one, other) for one, other in zip(member.forest, again, strict=True))
    with pytest.raises(ValueError, match="forest"):
        forest_member.forest_of(damage(arrays, name, change), 3, 2, 2)


@pytest.fixture(scope="module")
def steps():
    """A model that the forest helps: a function with many jumps, and networks that have hardly been trained."""
    random = np.random.default_rng(0)
    X = random.uniform(-1, 1, size=(400, 2))
    Y = np.stack([np.floor(5 * X[:, 0]), np.sign(X[:, 1])], axis=1) * [100, 1] + random.normal(size=(400, 2)) * [
        10,
        0.1,
    ]
    model = MDERRegressor((8,), embedding=None, members=4, max_iter=3, beside=["forest"], random_state=0)
    return model.fit(X[:300], Y[:300]), X, Y


def test_a_model_with_a_forest_is_the_mixture_by_hand(steps):
    model, X, Y = steps
    new, beside = X[300:], model.predictor_.beside
    share = beside.weights["forest"]
    assert share > 0.5 and list(beside.members) == ["forest"]
    mixture = model.predict_dist(new)
    t = mixture.components()
    loc, S, df = (np.asarray(part, float) for part in (t.loc, t.scale_tril @ np.swapaxes(t.scale_tril, -1, -2), t.df))
    weights = np.array([(1 - share) / 4] * 4 + [share])
    expected = [
        np.log(sum(w * stats.multivariate_t(loc[m, i], S[m, i], df[m, i]).pdf(y) for m, w in enumerate(weights)))
        for i, y in enumerate(Y[300:])
    ]
    assert_allclose(model.log_prob(new, Y[300:]), expected, rtol=1e-4, atol=1e-3)
    assert_allclose(model.predict(new), np.einsum("m,mni->ni", weights, loc), rtol=1e-4, atol=1e-3)
    standardised = (new - model.predictor_.inputs.mean) / model.predictor_.inputs.std
    rows = beside.members["forest"].forest.rows(plain_inputs(standardised, ()))
    assert_allclose(loc[4], Y[rows].mean(axis=1), rtol=1e-3, atol=0.1)


def test_it_is_better_than_networks_alone(steps):
    model, X, Y = steps
    alone = MDERRegressor((8,), embedding=None, members=4, max_iter=3, beside=None, random_state=0).fit(
        X[:300], Y[:300]
    )
    assert model.log_prob(X[300:], Y[300:]).mean() > alone.log_prob(X[300:], Y[300:]).mean() + 1


def test_by_members_each_row_is_scored_by_trees_that_do_not_know_it(steps, tmp_path):
    model, X, Y = steps
    model = copy.deepcopy(model)
    model.calibrate(X[:300], Y[:300], cv="members")
    folds = model.calibration_.folds
    assert {fold.members for fold in folds} == {(0, 1), (2, 3)}
    standardised = plain_inputs((X[:300] - model.predictor_.inputs.mean) / model.predictor_.inputs.std, ())
    for fold in folds:
        rows = fold.beside.members["forest"].forest.rows(standardised)
        never = np.setdiff1d(np.arange(300), rows)
        assert len(fold.scores) == 30 == len(never)
    new = model.predict_interval(X[300:], 0.8)
    assert 0.6 < np.mean((new.lower <= Y[300:]) & (Y[300:] <= new.upper)) < 0.95
    model.save(tmp_path / "model.mder")
    again = MDERRegressor.load(tmp_path / "model.mder").predict_interval(X[300:], 0.8)
    assert_array_equal(new.lower, again.lower)
    assert_array_equal(new.upper, again.upper)


@pytest.mark.parametrize("value", ["forest", ("forest", "trees"), True, [1]])
def test_other_members_beside_are_refused(value):
    with pytest.raises(ValueError, match="beside must be None, or a list of some of process, forest"):
        MDERRegressor(beside=value).fit(*table(20))


def test_without_rows_enough_for_each_group_there_is_no_forest():
    """The networks hold out nine rows of ten, so that each group of trees would have six."""
    X, Y = table(60)
    model = MDERRegressor((4,), embedding=None, members=2, max_iter=2, validation_fraction=0.9, random_state=0)
    assert model.fit(X, Y).predictor_.beside is None


def test_many_blocks_share_the_nodes_and_the_rows_of_large_tables(monkeypatch):
    monkeypatch.setattr(forest_member, "MOST_NODES", 10 * 25 * 2 * 15)
    many = forest_member.fit_forest_member(rows_with_gaps(), np.eye(10, 60, dtype=bool), (), 0)
    assert len(many.forest.roots) == 250 and len(many.forest.column) <= forest_member.MOST_NODES
    assert len(np.unique(many.forest.rows(plain_inputs(rows_with_gaps().X, ()))[:, :25])) == 15


@pytest.mark.parametrize("change", [{"spread": 1e80}, {"floor": 1e-90}, {"spread": 0.0}, {"floor": -1.0}])
def test_a_file_with_numbers_that_no_fit_finds_is_refused(steps, tmp_path, change):
    model = copy.deepcopy(steps[0])
    forest = model.predictor_.beside.members["forest"]
    model.predictor_.beside.members["forest"] = forest._replace(**change)
    model.save(tmp_path / "model.mder")
    with pytest.raises(ModelFileError, match="groups and scale of the forest are inconsistent"):
        MDERRegressor.load(tmp_path / "model.mder")


def test_an_exported_forest_predicts_the_same_also_far_from_zero(steps, tmp_path):
    _, X, Y = steps
    far = np.round(20 * X) + 1e6  # single precision holds it, but not its mean
    model = MDERRegressor((8,), embedding=None, members=2, max_iter=3, beside=["forest"], random_state=0)
    model.fit(far[:300], Y[:300]).export(tmp_path / "model.jaxexp")
    exported = jax.export.deserialize(bytearray((tmp_path / "model.jaxexp").read_bytes()))
    found, expected = exported.call(far[:300].astype(np.float32)), model.predict_uncertainty(far[:300])
    assert model.predictor_.beside.weights["forest"] > 0.5
    for part in ("mean", "aleatoric", "epistemic"):
        assert_allclose(found[part], getattr(expected, part), rtol=1e-3, atol=1e-3)


def test_trees_are_taken_one_after_the_other(both):
    with pytest.raises(ValueError, match="one after the other"):
        both[0].trees(slice(0, 10, 2))
