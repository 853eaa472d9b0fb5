"""How `MDERRegressor` is trained: weights of rows, what early stopping validates with, warm starts, own networks."""

import pickle
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
import scipy.stats
from flax import linen, nnx
from sklearn.base import clone

import mder_jax as mder
from mder_jax import MDERRegressor, persistence
from mder_jax.estimator import _held_out, recipe
from mder_jax.estimator._held_out import Before
from mder_jax.estimator._standardizer import standardizer_of
from mder_jax.estimator.trained_rows import hashes_of, remember
from mder_jax.persistence import ModelFileError

# One pace of training.
TINY = {"hidden_layer_sizes": (4,), "members": 2, "max_iter": 3, "learning_rate_init": 5e-3, "random_state": 0}
TINY |= {"embedding": None, "beside": None}


def table(rows=60, seed=0):
    return np.random.default_rng(seed).normal(size=(2, rows, 2))


X, Y = table()


# With a loss of one's own each member validates its own loss; otherwise all are judged together.
APART = {"loss": mder.mder_nll}


@pytest.fixture
def given(monkeypatch):
    """What `fit_ensemble` was called with."""
    calls, original = [], recipe.fit_ensemble

    def fit_ensemble(key, network, loss, X, Y, **options):
        calls.append({"X": X, "Y": Y} | options)
        return original(key, network, loss, X, Y, **options)

    monkeypatch.setattr(recipe, "fit_ensemble", fit_ensemble)
    return calls


# ---- Weights of rows


def test_weighted_standardisation_is_that_of_repeated_rows():
    values, counts = np.random.default_rng(1).normal(3, 2, size=(40, 2)), np.arange(40) % 4
    values[3, 1] = np.nan
    expected = standardizer_of(np.repeat(values, counts, axis=0))
    found = standardizer_of(values, weights=counts / 3)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-13)
    np.testing.assert_allclose(found.std, expected.std, rtol=1e-13)
    assert standardizer_of(np.full((5, 1), 0.1), constant=np.inf, weights=np.arange(5.0)).std == np.inf


def test_an_integer_weight_is_about_as_many_rows_and_a_weight_of_0_none():
    counts = np.random.default_rng(2).integers(0, 4, 15)
    options = TINY | {"early_stopping": False, "max_iter": 20}
    weighted = MDERRegressor(**options).fit(X[:15], Y[:15], sample_weight=100 * counts)
    repeated = MDERRegressor(**options).fit(*(np.repeat(part[:15], counts, axis=0) for part in (X, Y)))
    assert weighted.n_rows_ == np.sum(counts > 0)
    np.testing.assert_allclose(weighted.predict(X[:15]), repeated.predict(X[:15]), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("early_stopping", [True, "last"])
def test_a_row_of_weight_0_is_as_if_it_were_not_there(early_stopping):
    far = np.concatenate([[[1e6, -1e6]], X]), np.concatenate([[[1e6, 1e6]], Y])
    with_it = MDERRegressor(**TINY, early_stopping=early_stopping).fit(*far, sample_weight=[0] + [2] * 60)
    without = MDERRegressor(**TINY, early_stopping=early_stopping).fit(X, Y, sample_weight=np.ones(60))
    np.testing.assert_array_equal(with_it.predict(X), without.predict(X))


def test_weights_are_in_the_loss_and_in_the_validation_loss(given):
    weights = np.random.default_rng(3).uniform(0.1, 2, 60)
    options = TINY | APART | {"early_stopping": "last", "max_iter": 1, "learning_rate_init": 1e-30, "batch_size": 54}
    model = MDERRegressor(**options).fit(X, Y, sample_weight=weights)
    losses = -np.stack([standardised_log_prob(model, member) for member in range(2)])
    np.testing.assert_allclose(model.loss_curve_[:, 0], losses[:, :54] @ weights[:54] / weights[:54].sum(), rtol=1e-5)
    expected = losses[:, 54:] @ weights[54:] / weights[54:].sum()
    np.testing.assert_allclose(model.validation_curve_[:, 0], expected, rtol=1e-5)
    equal = MDERRegressor(**options).fit(X, Y)
    assert not np.allclose(equal.validation_curve_, model.validation_curve_)


def test_weights_are_in_the_score_of_all_members(given):
    weights = np.random.default_rng(3).uniform(0.1, 2, 60)
    MDERRegressor(**TINY, early_stopping="last").fit(X, Y, sample_weight=weights)
    np.testing.assert_allclose(given[0]["judge"]._weights, weights[54:] / weights[54:].mean(), rtol=1e-6)


def standardised_log_prob(model, member):
    """ln p of standardised targets, by scipy."""
    found = model.predict_dist(X).member(member)
    constant = np.log(model.predictor_.targets.std).sum()
    rows = zip(Y, found.loc, found.scale_tril, found.df, strict=True)
    return np.array([scipy.stats.multivariate_t.logpdf(y, m, L @ L.T, df) for y, m, L, df in rows]) + constant


def test_r2_leaves_out_what_has_no_weight():
    model, gaps = MDERRegressor(**TINY).fit(X, Y), Y.copy()
    gaps[1:, 1] = np.nan
    weights = np.array([0.0] + [1.0] * 59)
    assert model.score(X, gaps, sample_weight=weights) == pytest.approx(r2(Y[1:, 0], model.predict(X)[1:, 0]))
    with pytest.raises(ValueError, match="all 60 rows of y are NaN or of weight 0"):
        model.score(X, np.where(weights[:, None] > 0, np.nan, Y), sample_weight=weights)


def r2(y, mean):
    return 1 - np.sum((y - mean) ** 2) / np.sum((y - y.mean()) ** 2)


# ---- What early stopping validates with


def test_own_rows_to_validate_with_are_those_of_all_members(given):
    frame, names = pd.DataFrame(X, columns=["a", "b"]), ["u", "v"]
    held = pd.DataFrame(X[:9], columns=["a", "b"]), pd.DataFrame(Y[:9, ::-1], columns=["v", "u"])
    model = MDERRegressor(**TINY | APART).fit(frame, pd.DataFrame(Y, columns=names), validation=held)
    (call,) = given
    assert len(call["X"]) == 60 and "weights" not in call and call["judge"] is None
    np.testing.assert_array_equal(call["validation"][0], call["X"][:9])
    np.testing.assert_array_equal(call["validation"][1], call["Y"][:9])
    assert model.validation_curve_.shape == (2, 3) and model.held_out_ is None
    weights = np.arange(9.0)
    model.fit(frame, pd.DataFrame(Y, columns=names), validation=(*held, weights))
    np.testing.assert_allclose(given[1]["validation"][2], weights[1:] / 8, rtol=1e-6)


def test_own_rows_judge_all_members_together(given):
    held, weights = (X[:9], Y[:9]), np.arange(9.0)
    model = MDERRegressor(**TINY).fit(X, Y, validation=(*held, weights))
    (call,) = given
    judge = call["judge"]
    assert len(call["X"]) == 60 and not {"weights", "validation"} & set(call)
    np.testing.assert_array_equal(judge._X, call["X"][1:9])
    np.testing.assert_array_equal(judge.rows.Y, call["Y"][1:9])
    np.testing.assert_allclose(judge._weights, weights[1:] / 4.5, rtol=1e-6)
    assert judge._held_out.shape == (2, 8) and judge._held_out.all()
    assert model.validation_curve_.shape == (2, 3) and model.held_out_ is None


def test_the_last_rows_are_held_out(given):
    for number, change in enumerate((APART, {})):
        MDERRegressor(**TINY | change, early_stopping="last", validation_fraction=0.2).fit(X, Y)
        call = given[number]
        np.testing.assert_array_equal(call["weights"].values, np.float32(np.arange(60) < 48)[None].repeat(2, 0))
    np.testing.assert_array_equal(given[0]["validation"][0].values, np.stack([call["X"][48:]] * 2))
    np.testing.assert_array_equal(given[1]["judge"]._X, call["X"][48:])
    assert given[1]["judge"]._held_out.all() and "validation" not in given[1]


@pytest.mark.parametrize("groups", [np.arange(60) % 7, (list("abcdefg") * 9)[:60]])
def test_whole_groups_are_held_out(given, groups):
    MDERRegressor(**TINY | APART | {"members": 6, "max_iter": 1}).fit(X, Y, groups=groups)
    held = given[0]["weights"].values == 0
    for member in range(6):
        inside, outside = (set(np.arange(60)[mask] % 7) for mask in (held[member], ~held[member]))
        assert len(inside) == 1 and not inside & outside
    assert len({tuple(mask) for mask in held}) > 1
    assert given[0]["validation"][2].values.sum(axis=1).tolist() == held.sum(axis=1).tolist()
    MDERRegressor(**TINY | {"members": 6, "max_iter": 1}).fit(X, Y, groups=groups)
    np.testing.assert_array_equal(given[1]["weights"].values == 0, held)
    np.testing.assert_array_equal(given[1]["judge"]._held_out, held[:, held.any(axis=0)])


def test_groups_of_different_size_hold_out_about_the_fraction():
    random = np.random.RandomState(0)
    groups = np.repeat(np.arange(40), np.arange(1, 41))
    held = _held_out.choose(random, np.arange(820, dtype=np.uint64), 50, 0.2, groups=groups)
    assert np.all(np.abs(held.sum(axis=1) - 164) <= 20)
    two = _held_out.choose(random, np.arange(10, dtype=np.uint64), 9, 0.9, groups=np.array([0] * 9 + [1]))
    assert set(two.sum(axis=1)) <= {1, 9}


WEIGHTS = np.ones(60)
BAD = [
    ({"sample_weight": np.ones(59)}, r"sample_weight must have shape \(60,\), one per row; got \(59,\)"),
    ({"sample_weight": np.ones((60, 1))}, r"sample_weight must have shape \(60,\)"),
    ({"sample_weight": 0 * WEIGHTS}, "sample_weight is zero in all rows"),
    ({"sample_weight": np.r_[WEIGHTS[1:], -1]}, "sample_weight must be finite and not negative; got -1 in row 59"),
    ({"sample_weight": np.r_[np.nan, WEIGHTS[1:]]}, "sample_weight must be finite and not negative; got nan in row 0"),
    ({"groups": np.arange(59)}, r"groups must have shape \(60,\), one for each row; got \(59,\)"),
    ({"groups": ["a"] * 60}, "groups must hold two groups or more; all 60 rows to train on are of one"),
    ({"groups": ["a"] * 59 + [None]}, "groups must name a group for every row; it is missing in row 59"),
    ({"groups": np.r_[np.nan, WEIGHTS[1:]]}, "it is missing in row 0"),
    ({"groups": np.arange(60), "validation": (X, Y)}, "one way to validate; got validation and groups"),
    ({"validation": X}, r"validation must be \(X, y\) or \(X, y, sample_weight\); got array"),
    ({"validation": (X, None)}, r"validation must be \(X, y\)"),
    ({"validation": (X[:, :1], Y)}, "validation: X has 1 features, but MDERRegressor is expecting 2"),
    ({"validation": (X, Y[:, :1])}, r"validation: y must have the 2 targets of the fit; got shape \(60, 1\)"),
    ({"validation": (X[:5], Y)}, "validation: .*inconsistent numbers of samples"),
    ({"validation": (np.full((3, 2), np.inf), Y[:3])}, "validation: (.|\n)*'x0' must hold finite numbers.*got inf"),
    ({"validation": (X, np.full((60, 2), np.nan))}, "validation: y has no target in any of its 60 rows"),
    ({"validation": (X, Y, -WEIGHTS)}, "validation: sample_weight must be finite and not negative"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_arguments_of_fit(options, message):
    with pytest.raises(ValueError, match=message):
        MDERRegressor(**TINY).fit(X, Y, **options)


def test_ways_to_validate_that_contradict_early_stopping():
    with pytest.raises(ValueError, match="with validation early_stopping must be True; got False"):
        MDERRegressor(early_stopping=False).fit(X, Y, validation=(X, Y))
    with pytest.raises(ValueError, match="one way to validate; got groups and early_stopping='last'"):
        MDERRegressor(early_stopping="last").fit(X, Y, groups=np.arange(60))
    with pytest.raises(ValueError, match="early_stopping must be True, False or 'last'; got 'first'"):
        MDERRegressor(early_stopping="first").fit(X, Y)
    with pytest.raises(ValueError, match="target 1 is NaN in all 1 rows with a weight above 0"):
        MDERRegressor().fit([[0.0], [1.0]], [[0.0, np.nan], [1.0, 1.0]], sample_weight=[1, 0])
    with pytest.raises(TypeError, match="groups must hold numbers or names; unhashable type"):
        MDERRegressor().fit(X, Y, groups=np.array([*[{}] * 60, None], object)[:60])


# ---- A warm start


def held_out_contents(calls):
    """Of each call the rows (X, Y) that each member holds out, and those it trains on, as sets."""
    for call in calls:
        rows = [tuple(row) for row in np.hstack([call["X"], call["Y"]]).tolist()]
        yield [
            [{row for row, kept in zip(rows, own, strict=True) if kept} for own in (mask, ~mask)]
            for mask in call["weights"].values == 0
        ]


@pytest.mark.parametrize("seed", [0, None])
@pytest.mark.parametrize("saved", [False, True])
def test_a_warm_start_never_trains_on_what_was_held_out(given, tmp_path, seed, saved):
    model = MDERRegressor(**TINY | {"warm_start": True, "random_state": seed, "max_iter": 1}).fit(X, Y)
    if saved:
        model.save(tmp_path / "model.mder")
        model = MDERRegressor.load(tmp_path / "model.mder")
    more = [np.concatenate([new, old])[::-1] for new, old in zip(table(90, seed=5), (X, Y), strict=True)]
    model.fit(*more).fit(X, Y).fit(*more)
    first, second, third, fourth = held_out_contents(given)
    for member in range(2):
        (held, _), (held_later, trained_later) = first[member], second[member]
        assert len(held) == 6 and len(held_later) == 15
        assert held <= held_later and not held & trained_later
        assert third[member] == first[member] and fourth[member] == second[member]


def test_rows_that_come_in_pieces_are_added_by_warm_starts(tmp_path):
    """In the place of partial_fit, also through files: units and columns are those of the first piece, errors fall."""
    random = np.random.default_rng(0)
    X = random.uniform(-2, 2, size=(300, 2))
    Y = np.sin(2 * X) + 0.1 * random.normal(size=(300, 2))
    model = MDERRegressor((16,), members=3, max_iter=60, random_state=0, warm_start=True)
    errors = []
    for rows in (40, 120, 300):
        model.fit(X[:rows], Y[:rows])
        errors.append(1 - model.score(X, Y))
        model.save(tmp_path / "model.mder")
        model = MDERRegressor.load(tmp_path / "model.mder")
        np.testing.assert_allclose(model.predictor_.inputs.mean, X[:40].mean(axis=0))
        assert model.encoding_.columns[0].ranges[0].high == X[:40, 0].max()
    assert errors[2] < errors[1] < errors[0] and model.n_rows_ == 300
    assert not hasattr(model, "partial_fit")


def test_rows_with_copies_are_held_out_as_often_as_before():
    number = np.repeat(np.arange(5), 20)
    values = number[:, None].astype(float)
    known = remember(values, values)
    hashes = hashes_of(known, values, values)
    held = _held_out.choose(np.random.RandomState(0), hashes, 3, 0.3)
    again = _held_out.choose(
        np.random.RandomState(1), hashes, 3, 0.3, before=Before(_held_out.remember(held, hashes), known)
    )
    for first, second in zip(held, again, strict=True):
        np.testing.assert_array_equal(np.bincount(number[first]), np.bincount(number[second]))


def chosen_again(rows, new, groups=None, last=False, members=3):
    """Rows held out at first, and again with `new` rows after them; contents are the numbers of the rows."""
    values = np.arange(float(rows + new))[:, None]
    known = remember(values[:rows], values[:rows])
    hashes, random = hashes_of(known, values, values), np.random.RandomState(0)
    first = _held_out.choose(random, hashes[:rows], members, 0.1, last, None if groups is None else groups[:rows])
    before = Before(_held_out.remember(first, hashes[:rows]), known)
    return first, _held_out.choose(random, hashes, members, 0.1, last, groups, before)


def test_new_rows_are_held_out_in_the_same_fraction_row_by_row():
    for new in range(25):
        first, second = chosen_again(100, new)
        np.testing.assert_array_equal(second[:, :100], first)
        assert np.all(second.sum(axis=1) == np.ceil(0.1 * (100 + new)))


def test_new_rows_at_the_end_and_new_groups():
    first, second = chosen_again(100, 50, last=True)
    assert np.flatnonzero(second[0]).tolist() == [*range(90, 100), *range(145, 150)]
    groups = np.arange(200) // 2 % 50  # of rows 100 to 199, those of known groups
    first, second = chosen_again(100, 100, groups)
    for member in range(3):
        assert set(groups[second[member]]) == set(groups[:100][first[member]])
    groups = np.arange(200) // 4
    first, second = chosen_again(100, 100, groups)
    np.testing.assert_array_equal(second[:, :100], first)
    assert np.all(first.sum(axis=1) == 8) and np.all(second.sum(axis=1) == 20)


def test_a_table_of_which_all_or_nothing_was_held_out():
    values = np.arange(10.0)[:, None]
    known = remember(values, values)
    hashes = hashes_of(known, values, values)
    held = (np.arange(10) < 3)[None]
    before = Before(_held_out.remember(held, hashes), known)
    with pytest.raises(ValueError, match="held out all of these 3 rows in the last fit; give other rows as well"):
        _held_out.choose(np.random.RandomState(0), hashes[:3], 1, 0.1, before=before)
    assert _held_out.choose(np.random.RandomState(0), hashes[3:], 1, 0.1, before=before).sum() == 1


# ---- Networks and losses of the user


class Dense(linen.Module):
    width: int = 6
    dropout: float = 0.0

    @linen.compact
    def __call__(self, x, training=False):
        x = linen.Dropout(self.dropout, deterministic=not training)(linen.tanh(linen.Dense(4)(x)))
        return linen.Dense(self.width)(x)


class Normed(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(6)(linen.BatchNorm(use_running_average=False)(x))


class Block(nnx.Module):
    def __init__(self, rngs):
        self.hidden, self.out = nnx.Linear(2, 4, rngs=rngs), nnx.Linear(4, 6, rngs=rngs)

    def __call__(self, x):
        return self.out(nnx.tanh(self.hidden(x)))


def linked(raw):
    return mder.niw_link(raw, n=2, r=2.0, nu_max=20.0, relative=True)


def init_line(key, x):
    return {"slope": jax.random.normal(key, (x.shape[1], 6), x.dtype), "raw": jnp.zeros(6, x.dtype)}


def apply_line(params, x):
    return linked(x @ params["slope"] + params["raw"][None])


LINE = mder.Network(init_line, apply_line)
NETWORKS = {"linen": Dense(dropout=0.1), "nnx": Block, "network": LINE}


def own(network, **options):
    return MDERRegressor(**TINY | {"network": network, "r": 2.0, "nu_max": 20.0} | options)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_of_the_user_does_all_that_the_usual_one_does(name, tmp_path):
    network = NETWORKS[name]
    model = own(network, warm_start=True).fit(X, Y).calibrate(*table(seed=1))
    adapted = network if name == "network" else (mder.from_nnx if name == "nnx" else mder.from_linen)(network, linked)
    raw = [adapted.apply(jax.tree.map(lambda leaf, i=i: leaf[i], model.predictor_.params), z32(model)) for i in (0, 1)]
    mean = np.mean([niw.mu for niw in raw], axis=0) * Y.std(axis=0) + Y.mean(axis=0)
    np.testing.assert_allclose(model.predict(X), mean, rtol=1e-4, atol=1e-5)
    assert model.predict_interval(X, joint=True).contains(Y).mean() > 0.5
    model.save(tmp_path / "model.mder")
    with pytest.raises(ModelFileError, match=r"a network of your own \('\w+'\) and no code; give the network again"):
        MDERRegressor.load(tmp_path / "model.mder")
    loaded = MDERRegressor.load(tmp_path / "model.mder", network=network)
    for method in ("predict_uncertainty", "predict_interval", "predict_quantiles"):
        jax.tree.map(np.testing.assert_array_equal, getattr(loaded, method)(X), getattr(model, method)(X))
    assert loaded.get_params() == model.get_params() == clone(model).get_params()
    loaded.export(tmp_path / "model.jaxexp")
    exported = jax.export.deserialize(bytearray((tmp_path / "model.jaxexp").read_bytes()))
    np.testing.assert_allclose(exported.call(np.float32(X))["mean"], model.predict(X), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(loaded.fit(X, Y).predict(X), model.fit(X, Y).predict(X))
    if name != "linen":  # which has noise
        assert model.loss_curve_[:, -1].mean() < own(network).fit(X, Y).loss_curve_[:, 0].mean()
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def z32(model):
    return model.predictor_.inputs.forward(X)


@pytest.mark.parametrize("change", [APART, {"early_stopping": False}])
def test_the_usual_network_written_by_hand_is_the_usual_network(change):
    """But for what needs the usual network and loss: one epoch for all members, and a factor on the scale."""
    hidden = mder.table_network((4,), 6, link=lambda raw: mder.niw_link(raw, n=2, relative=True))
    usual = MDERRegressor(**TINY | change | {"embedding": "periodic"}).fit(X, Y)
    np.testing.assert_array_equal(MDERRegressor(**TINY | change, network=hidden).fit(X, Y).predict(X), usual.predict(X))


def test_another_network_is_refused_by_load(tmp_path):
    own(Dense()).fit(X, Y).save(tmp_path / "own.mder")
    with pytest.raises(ModelFileError, match=r"parameters must be named \['raw', 'slope'\]; got \['Dense_0/bias'"):
        MDERRegressor.load(tmp_path / "own.mder", network=LINE)
    with pytest.raises(ModelFileError, match=r"shape \(3, 6\); got shape \(3, 5\)"):
        MDERRegressor.load(tmp_path / "own.mder", network=Dense(5))
    with pytest.raises(TypeError, match="network must be that of the fit, or None; got 'mlp'"):
        MDERRegressor.load(tmp_path / "own.mder", network="mlp")
    MDERRegressor(**TINY).fit(X, Y).save(tmp_path / "usual.mder")
    with pytest.raises(ModelFileError, match="was not trained with a network of your own; leave out network="):
        MDERRegressor.load(tmp_path / "usual.mder", network=Dense())
    document, arrays = persistence.load(tmp_path / "usual.mder")
    persistence.save(tmp_path / "newer.mder", document | {"version": 4}, arrays)
    with pytest.raises(ModelFileError, match=r"newer mder_jax \(version 4 of its models, this one reads 3\)"):
        MDERRegressor.load(tmp_path / "newer.mder")
    for name in ("version", "own_network", "own_loss"):  # as files of today are
        del document[name]
    for name in ("network", "loss"):
        del document["settings"][name]
    persistence.save(tmp_path / "older.mder", document, {k: v for k, v in arrays.items() if "held_out" not in k})
    older = MDERRegressor.load(tmp_path / "older.mder")
    np.testing.assert_array_equal(older.predict(X), MDERRegressor.load(tmp_path / "usual.mder").predict(X))
    assert older.set_params(warm_start=True).fit(X, Y).held_out_ is not None


BAD_NETWORKS = [
    (Dense(5), ValueError, r"num_outputs\(2\) raw outputs, shape \(3, 6\); got shape \(3, 5\)"),
    (lambda rngs: nnx.Linear(2, 7, rngs=rngs), ValueError, r"shape \(3, 6\); got shape \(3, 7\)"),
    (
        lambda rngs: nnx.Linear(3, 6, rngs=rngs),
        (TypeError, ValueError),
        r"does not accept standardised rows of shape \(3, 2\)",
    ),
    (Normed(), ValueError, r"BatchNorm|keeps state besides its parameters \(batch_stats\)"),
    (lambda rngs: 3, ValueError, "network does not accept standardised rows"),
    (mder.Network(init_line, lambda p, x: x), ValueError, r"a NIW of the 2 targets.*got an array of shape \(3, 2\)"),
    (
        mder.mlp((4,), 10, link=lambda raw: mder.niw_link(raw, n=3)),
        ValueError,
        r"mu of the network's NIW must have shape \(3, 2\).*got \(3, 3\)",
    ),
    ("relu", ValueError, "network must be None, a Network that returns a NIW, a Flax Linen module, or .* got 'relu'"),
    (Dense, ValueError, "network must be None, a Network"),
    (Block(nnx.Rngs(0)), ValueError, "network must be None, a Network"),
]


@pytest.mark.parametrize(("network", "kind", "message"), BAD_NETWORKS)
def test_networks_that_do_not_fit_are_refused_before_training(given, network, kind, message):
    with pytest.raises(kind, match=message):
        MDERRegressor(**TINY, network=network).fit(X, Y)
    assert not given


def tempered(niw, y):
    return (1 - jnp.exp(-0.2 * mder.mder_nll(niw, y))) / 0.2


def complete_only(niw, y):
    return mder.mder_nll(niw, y, missing=False)


def test_a_loss_of_the_user(tmp_path):
    model = MDERRegressor(**TINY, loss=tempered, warm_start=True).fit(X, Y)
    usual = MDERRegressor(**TINY, loss=mder.mder_nll).fit(X, Y)
    np.testing.assert_allclose(usual.predict(X), MDERRegressor(**TINY).fit(X, Y).predict(X), rtol=1e-5, atol=1e-6)
    assert not np.allclose(usual.predict(X), model.predict(X)) and clone(model).loss is tempered
    model.save(tmp_path / "model.mder")
    loaded = MDERRegressor.load(tmp_path / "model.mder")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    with pytest.raises(ValueError, match="trained with a loss of your own; give it again"):
        loaded.fit(X, Y)
    again = MDERRegressor.load(tmp_path / "model.mder", loss=tempered)
    np.testing.assert_array_equal(again.fit(X, Y).predict(X), model.fit(X, Y).predict(X))


def test_a_loss_and_missing_targets(given):
    gaps = Y.copy()
    gaps[3, 1] = np.nan
    with pytest.raises(ValueError, match="not finite for rows with a missing target, and y holds NaN"):
        MDERRegressor(**TINY, loss=complete_only).fit(X, gaps)
    with pytest.raises(ValueError, match="loss must be None or a function"):
        MDERRegressor(**TINY, loss="mse").fit(X, Y)
    with pytest.raises(ValueError, match=r"loss must return one value per row, shape \(rows,\); got a mean or sum"):
        MDERRegressor(**TINY, loss=lambda niw, y: mder.mder_nll(niw, y).mean()).fit(X, Y)
    given.clear()
    MDERRegressor(**TINY, loss=tempered).fit(X, gaps)
    assert len(given) == 1


def test_a_warm_start_says_which_setting_differs():
    start = "warm_start resumes from the networks of the last fit; "
    model = own(Dense(), warm_start=True).fit(X, Y)
    with pytest.raises(ValueError, match=rf"{start}network was Dense\((.|\n)* then and is <class .*Block"):
        model.set_params(network=Block).fit(X, Y)
    with pytest.raises(ValueError, match=f"{start}r was 2.0 then and is 3.0 now"):
        model.set_params(network=Dense(), r=3.0).fit(X, Y)
    with pytest.raises(ValueError, match=f"{start}the number of columns of X was 2 then and is 1 now"):
        model.set_params(r=2.0).fit(X[:, :1], Y)


# ---- Ensembles: saved, and trained further


def ensemble(network=LINE, epochs=2, **options):
    x, y = np.float32(X), np.float32(Y)
    options = {"members": 2, "optimizer": optax.sgd(1e-3), "epochs": epochs, "progress": False} | options
    with jax.numpy_dtype_promotion("standard"):
        return mder.fit_ensemble(jax.random.key(0), network, mder.mder_nll, x, y, **options)


@pytest.fixture(scope="module")
def short():
    return ensemble()


SLOPES = mder.PerMember(
    np.float32([1, 2]), lambda slope: mder.Network(init_line, lambda p, x: apply_line(p, slope * x))
)


@pytest.mark.parametrize("network", [LINE, SLOPES, mder.from_nnx(Block, linked)], ids=["shared", "per member", "nnx"])
def test_a_saved_ensemble_is_the_same(network, tmp_path):
    made = ensemble(network, validation=(np.float32(X), np.float32(Y)))
    made.save(tmp_path / "ensemble.mder")
    loaded = mder.load_ensemble(tmp_path / "ensemble.mder", network)
    for name in ("params", "history", "diverged_at", "stopped_at", "best_epoch", "epochs", "row_shape", "seconds"):
        jax.tree.map(np.testing.assert_array_equal, getattr(loaded, name), getattr(made, name))
    x = np.float32(X)
    jax.tree.map(np.testing.assert_array_equal, mder.predict(loaded, x), mder.predict(made, x))


def test_an_ensemble_is_trained_further(short):
    for init in (short, short.params):
        further = ensemble(init=init, members=None)
        assert further.network is LINE and len(further) == 2
        np.testing.assert_allclose(further.history.train, ensemble(epochs=4).history.train[:, 2:], rtol=1e-5)
    both = ensemble(SLOPES, init=short)
    assert both.network.build is SLOPES.build and len(both.keep([1])) == 1


BAD_INIT = [
    ({"members": 3}, r"init must have the members first: raw must have shape \(3, 6\); got \(2, 6\)"),
    ({"init": {"raw": np.ones((2, 6))}}, r"init must be named \['raw', 'slope'\]; got \['raw'\]"),
    (
        {"init": {"raw": np.ones((2, 6)), "slope": np.full((2, 2, 6), np.nan)}},
        "init must be finite floats; slope is not",
    ),
]


@pytest.mark.parametrize(("options", "message"), BAD_INIT)
def test_other_parameters_to_start_from(short, options, message):
    with pytest.raises(ValueError, match=message):
        ensemble(**{"init": short} | options)


def test_other_files_and_networks_are_no_ensemble(short, tmp_path):
    path = tmp_path / "ensemble.mder"
    short.save(path)
    with pytest.raises(ModelFileError, match="parameters must be named"):
        mder.load_ensemble(path, mder.mlp((4,), 6))
    with pytest.raises(ModelFileError, match="the network is of 3 members, the file of 2"):
        mder.load_ensemble(path, mder.PerMember(np.ones(3), SLOPES.build))
    with pytest.raises(TypeError, match="network must be a Network, or a PerMember of them"):
        mder.load_ensemble(path, "line")
    with pytest.raises(ModelFileError, match="holds a 'Ensemble', not a MDERRegressor"):
        MDERRegressor.load(path)
    document, arrays = persistence.load(path)
    changes = [
        ({"kind": "Mixture"}, {}, "holds a 'Mixture', not an Ensemble"),
        ({"version": 2}, {}, "has version 2; this mder_jax reads 1"),
        ({"row_shape": ["a"]}, {}, "must be integers, 1 or more"),
        ({}, {"best_epoch": np.zeros(2)}, "must be integers of the 2 members"),
        ({}, {"history/train": np.zeros(2)}, r"losses must be floats of shape \(2, epochs\)"),
    ]
    for about, others, message in changes:
        persistence.save(tmp_path / "other.mder", document | about, arrays | others)
        with pytest.raises(ModelFileError, match=message):
            mder.load_ensemble(tmp_path / "other.mder", LINE)


# ---- What is said when members cannot be trained


STATIC = {
    "widths": {"network": mder.PerMember(np.array([4, 8]), lambda width: mder.mlp((width,), 6, link=linked))},
    "unequal widths": {"network": mder.PerMember([(4,), (8, 8)], lambda widths: mder.mlp(widths, 6, link=linked))},
    "names": {"network": mder.PerMember(["relu", "tanh"], lambda name: mder.mlp((4,), 6, name, link=linked))},
    "a condition": {"loss": mder.PerMember(np.ones(2), lambda a: mder.mder_nll if a > 0 else tempered)},
    "a condition in a loss": {
        "loss": mder.PerMember(np.ones(2), lambda a: lambda niw, y: niw.nu if a > 0 else niw.kappa)
    },
    "steps": {"optimizer": mder.PerMember(np.array([4, 8]), lambda steps: optax.sgd(np.ones(steps)[0]))},
}


@pytest.mark.parametrize("name", STATIC)
def test_values_that_must_be_the_same_for_all_members_are_named(name):
    ((argument, part),) = STATIC[name].items()
    with pytest.raises(
        TypeError, match=f"{argument}: the values of a PerMember must be numbers, in arrays of one shape"
    ):
        with_part = {"network": LINE, "loss": mder.mder_nll, "optimizer": optax.sgd(1e-3)} | {argument: part}
        network, loss = with_part.pop("network"), with_part.pop("loss")
        mder.fit_ensemble(jax.random.key(0), network, loss, np.float32(X), np.float32(Y), **with_part, epochs=1)


def diverging(factor_x, factor_y, gap=False):
    def loss(output, y):
        return jnp.sum((output - jnp.where(jnp.isnan(y), output, y)) ** 2, axis=1)

    network = mder.Network(lambda key, x: jnp.ones((2, 2), x.dtype), lambda w, x: x @ w)
    y = factor_y * np.float32(Y)
    y[0, 0] = np.nan if gap else y[0, 0]
    options = {"optimizer": optax.sgd(np.inf), "members": 2, "epochs": 1, "progress": False}
    with pytest.warns(RuntimeWarning, match="2 of 2 members became non-finite") as caught:
        mder.fit_ensemble(jax.random.key(0), network, loss, factor_x * np.float32(X), y, **options)
    return str(caught[0].message)


def test_a_hint_is_given_only_if_it_may_be_the_reason():
    assert diverging(1, 1).endswith(": 0 (epoch 0), 1 (epoch 0)")
    assert "NaN" not in diverging(1, 1, gap=True)
    said = diverging(1000, 1, gap=True)
    assert "NaN" not in said and "; Y has" not in said
    assert re.search(
        r"; X has means up to \d+ and standard deviations from \d+ to \d+e?.*, far from 0 and 1: standardise it", said
    )
    assert "; Y has means up to" in diverging(1, 0.01)
