"""Which epoch is best: the mixture of the members that held out a row, and the scale that suits it."""

import math
import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import mder_jax as mder
from mder_jax.estimator._judge import BOUNDS, MOST_ROWS, PRIOR, Distances, Judge, best_factor, distances
from mder_jax.estimator._predictor import Design
from mder_jax.estimator._rows import Rows

RNG = np.random.default_rng(0)
MEMBERS, ROWS = 4, 40


class Parts(NamedTuple):
    """Of NIW distributions, in numpy; they need not be right."""

    mu: np.ndarray
    L: np.ndarray
    kappa: np.ndarray
    nu: np.ndarray


def as_niw(parts):
    return mder.NIW(*map(jnp.asarray, parts))


def niw_of(n, members=MEMBERS, rows=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    L = np.tril(rng.normal(size=(members, rows, n, n)), -1)
    L += np.exp(0.3 * rng.normal(size=(members, rows, n)))[..., None] * np.eye(n)
    mu = rng.normal(size=(members, rows, n))
    kappa, nu = rng.uniform(1, 5, (members, rows)), rng.uniform(n + 1, n + 9, (members, rows))
    return Parts(mu=mu, L=L, kappa=kappa, nu=nu)


def targets(n, missing, rows=ROWS):
    rng = np.random.default_rng(1)
    Y = 2 * rng.normal(size=(rows, n))
    if missing:
        Y[rng.random((rows, n)) < 0.4] = np.nan
    return Y


def scaled(niw, c):
    return niw._replace(L=c * niw.L)


def found_for(niw, Y):
    return distances(niw.mu, niw.L, niw.kappa, niw.nu, Y)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_distances_are_those_of_the_predictive_t(n, missing):
    niw, Y = niw_of(n), targets(n, missing)
    found = found_for(niw, Y)
    for c in (1.0, 0.3, 4.0):
        expected = mder.predictive(as_niw(scaled(niw, c))).log_prob(jnp.asarray(Y), missing=True)
        np.testing.assert_allclose(found.scaled(c), expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(found.log_prob, found.scaled(1.0))
    np.testing.assert_array_equal(found.observed, np.sum(~np.isnan(Y), axis=1))


def test_distances_by_scipy():
    niw, Y = niw_of(3), targets(3, True)
    found = found_for(niw, Y)
    for member in range(MEMBERS):
        for row, y in enumerate(Y):
            seen = ~np.isnan(y)
            if not seen.any():
                assert found.log_prob[member, row] == found.q[member, row] == 0
                continue
            kappa, nu, L = niw.kappa[member, row], niw.nu[member, row], niw.L[member, row]
            df = nu - 2
            S = ((1 + kappa) * nu / (kappa * df) * L @ L.T)[np.ix_(seen, seen)]
            d = (y - niw.mu[member, row])[seen]
            expected = stats.multivariate_t(shape=S, df=df).logpdf(d)
            np.testing.assert_allclose(found.log_prob[member, row], expected, rtol=1e-9)
            np.testing.assert_allclose(found.q[member, row], d @ np.linalg.inv(S) @ d, rtol=1e-9)
            assert found.df[member, row] == df


def penalised(log_prob, c, weights):
    return -np.sum(weights * log_prob) / weights.sum() + 0.5 * (np.log(c) / PRIOR) ** 2 / weights.sum()


@pytest.mark.parametrize("factor", [0.2, 1.0, 5.0])
def test_the_best_factor_by_brute_force(factor):
    """Of the mixture of NIW distributions with L multiplied by each c of a grid, by `Mixture`."""
    niw, Y = niw_of(2), targets(2, True)
    niw = scaled(niw, 1 / factor)
    weights = RNG.uniform(0.5, 2, ROWS)
    loss, c = best_factor(found_for(niw, Y), np.ones((MEMBERS, ROWS), bool), weights)

    def loss_of(c):
        members = as_niw(scaled(niw, c))
        return penalised(np.asarray(mder.Mixture(members).log_prob(jnp.asarray(Y), missing=True)), c, weights)

    grid = np.exp(np.linspace(*BOUNDS, 121))
    losses = [loss_of(c) for c in grid]
    best = grid[np.argmin(losses)]
    assert abs(math.log(c / best)) <= 0.05 and loss <= min(losses) + 1e-12
    np.testing.assert_allclose(loss, loss_of(c), rtol=1e-9)
    assert BOUNDS[0] < math.log(c) < BOUNDS[1]


def test_only_members_of_the_mask_count():
    niw, Y = niw_of(2), targets(2, False)
    mask = np.random.default_rng(2).random((MEMBERS, ROWS)) < 0.5
    mask[0] |= ~mask.any(axis=0)
    found, weights = found_for(niw, Y), np.ones(ROWS)
    loss, c = best_factor(found, mask, weights)
    each = np.asarray(mder.predictive(as_niw(scaled(niw, c))).log_prob(jnp.asarray(Y)))
    mixed = [special.logsumexp(each[mask[:, row], row]) - math.log(mask[:, row].sum()) for row in range(ROWS)]
    np.testing.assert_allclose(loss, penalised(np.array(mixed), c, weights), rtol=1e-9)
    wild = found._replace(log_prob=np.where(mask, found.log_prob, -1e6), q=np.where(mask, found.q, 1e6))
    assert best_factor(wild, mask, weights) == (loss, c)


def test_a_weight_is_a_number_of_copies():
    niw, Y = niw_of(2), targets(2, True)
    counts = np.random.default_rng(3).integers(0, 3, ROWS)
    mask = np.ones((MEMBERS, ROWS), bool)
    weighted = best_factor(found_for(niw, Y), mask, counts.astype(float))
    copies = np.repeat(np.arange(ROWS), counts)
    repeated = jax.tree.map(lambda leaf: leaf[:, copies], niw)
    expected = best_factor(found_for(repeated, Y[copies]), mask[:, copies], np.ones(len(copies)))
    np.testing.assert_allclose(weighted, expected, rtol=1e-6)


def test_few_rows_move_the_factor_little():
    """One row exactly at the mean of every member asks for c = 0; the prior holds it back."""
    niw = niw_of(1, rows=400)
    few = jax.tree.map(lambda leaf: leaf[:, :1], niw)
    shared = niw._replace(mu=np.zeros_like(niw.mu))
    few = few._replace(mu=np.zeros_like(few.mu))
    of_few = best_factor(found_for(few, np.zeros((1, 1))), np.ones((MEMBERS, 1), bool), np.ones(1))[1]
    of_many = best_factor(found_for(shared, np.zeros((400, 1))), np.ones((MEMBERS, 400), bool), np.ones(400))[1]
    np.testing.assert_allclose(math.log(of_few), -(PRIOR**2), atol=1e-2)  # ln c + (ln c)²/2 prior², smallest
    assert math.log(of_many) < BOUNDS[0] + 0.01


DEGENERATE = {
    "nan mean": {"mu": np.nan},
    "infinite mean": {"mu": np.inf},
    "nan scale": {"L": np.nan},
    "infinite scale": {"L": np.inf},
    "scale of zero": {"L": 0.0},
    "scale that overflows": {"L": 1e200},
    "scale that underflows": {"L": 1e-200},
    "kappa of zero": {"kappa": 0.0},
}


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_distributions_have_an_infinite_loss(name, n):
    niw, Y = niw_of(n), targets(n, False)
    ((field, value),) = DEGENERATE[name].items()
    broken = np.array(getattr(niw, field))
    broken[:, 3] = value
    loss, c = best_factor(found_for(niw._replace(**{field: broken}), Y), np.ones((MEMBERS, ROWS), bool), np.ones(ROWS))
    if math.isfinite(loss):  # so wide or so narrow, but a distribution still
        assert name in ("scale that overflows", "scale that underflows")
    else:
        assert (loss, c) == (math.inf, 1.0)


def test_a_singular_scale_of_one_member_is_no_density_of_its_own():
    """The mixture of the others, with one share less."""
    niw, Y = niw_of(2), targets(2, False)
    broken = np.array(niw.L)
    broken[0] = 0.0
    mask, weights = np.ones((MEMBERS, ROWS), bool), np.ones(ROWS)
    loss, c = best_factor(found_for(niw._replace(L=broken), Y), mask, weights)
    mask[0] = False
    without, same = best_factor(found_for(niw, Y), mask, weights)
    np.testing.assert_allclose([loss, c], [without + math.log(4 / 3), same], rtol=1e-6)


LINE = mder.Network(
    lambda key, x: {"w": jax.random.normal(key, (x.shape[1], mder.num_outputs(2)), x.dtype)},
    lambda params, x: mder.niw_link(x @ params["w"], n=2, relative=True),
)


def stacked(members=MEMBERS):
    return jax.vmap(LINE.init, (0, None))(jax.random.split(jax.random.key(0), members), jnp.ones((1, 3), jnp.float32))


def of_line(params, X):
    niw = jax.vmap(LINE.apply, (0, None))(params, X)
    return Parts(*(np.float64(part) for part in (niw.mu, niw.L, niw.kappa, niw.nu)))


def judged_rows(rows=ROWS, missing=True, weights=None):
    X = np.random.default_rng(4).normal(size=(rows, 3)).astype(np.float32)
    return Rows(X, targets(2, missing, rows).astype(np.float32), weights)


def test_a_judge_is_the_mixture_of_members_that_held_out_a_row():
    rows, params = judged_rows(weights=RNG.uniform(0, 2, ROWS).astype(np.float32)), stacked()
    rows.weights[:5] = 0
    held_out = np.random.default_rng(5).random((MEMBERS, ROWS)) < 0.3
    used = held_out.any(axis=0) & (rows.weights > 0) & ~np.isnan(rows.Y).all(axis=1)
    assert 5 < used.sum() < ROWS
    judge = Judge(LINE, rows, held_out)
    loss, c = judge.loss_and_factor(params)
    niw = of_line(params, rows.X[used])
    weights = np.float64(rows.weights[used]) / np.float64(rows.weights[used]).mean()
    expected = best_factor(found_for(niw, np.float64(rows.Y[used])), held_out[:, used], weights)
    np.testing.assert_allclose((loss, c), expected, rtol=1e-5)
    progress = mder.ensemble.Progress(1, 2, None, params)
    assert judge(progress) == loss


def test_a_judge_of_many_rows_looks_at_some():
    rows = judged_rows(MOST_ROWS + 500, missing=False)
    held_out = np.ones((MEMBERS, len(rows.X)), bool)
    one, other = (Judge(LINE, rows, held_out).loss_and_factor(stacked()) for _ in range(2))
    assert one == other
    exact = found_for(of_line(stacked(), rows.X), np.float64(rows.Y))
    loss, c = best_factor(exact, held_out, np.ones(len(rows.X)))
    assert one != (loss, c)
    np.testing.assert_allclose(one, (loss, c), rtol=0.05)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("periodic", [None, (0, 1)])
def test_rescaling_multiplies_the_factor_and_nothing_else(n, periodic):
    design = Design(2, n, (4,), "relu", 1.0, None, True, periodic=periodic)
    network, x = design.network(), jnp.asarray(RNG.normal(size=(6, 2)), jnp.float32)
    params = jax.vmap(network.init, (0, None))(jax.random.split(jax.random.key(0), 3), x)
    params = jax.tree.map(np.asarray, params)
    kept = jax.tree.map(np.copy, params)
    changed = design.rescaled(params, 2.5)
    jax.tree.map(np.testing.assert_array_equal, params, kept)  # the parameters given stay as they are
    before, after = (jax.vmap(network.apply, (0, None))(each, x) for each in (params, changed))
    np.testing.assert_allclose(after.L, 2.5 * before.L, rtol=1e-5)
    for field in ("mu", "kappa", "nu"):
        np.testing.assert_array_equal(getattr(after, field), getattr(before, field))
    assert jax.tree.structure(changed) == jax.tree.structure(params)
    assert {leaf.dtype for leaf in jax.tree.leaves(changed)} == {np.dtype(np.float32)}


SMALL = {"members": 4, "max_iter": 30, "random_state": 0, "learning_rate_init": 3e-2, "beside": None}


def table(rows=150):
    X = np.random.default_rng(6).normal(size=(rows, 2))
    noise = np.random.default_rng(7).normal(size=(rows, 2))
    return X, np.stack([np.sin(2 * X[:, 0]), X[:, 0] * X[:, 1]], axis=1) + 0.3 * noise


def test_the_factor_is_in_the_networks_after_a_fit(monkeypatch):
    """On the rows that were held out the best factor is 1 then, but for the prior, and the loss is no larger."""
    judges, factors = [], []
    original = Judge.loss_and_factor

    def noted(self, params):
        judges.append(self)
        factors.append(original(self, params))
        return factors[-1]

    monkeypatch.setattr(Judge, "loss_and_factor", noted)
    model = mder.MDERRegressor((8,), **SMALL).fit(*table())
    smallest, factor = factors[-1]
    np.testing.assert_allclose(smallest, min(loss for loss, _ in factors[:-1]), rtol=1e-6)
    assert abs(math.log(factor)) > 0.02
    judge, params = judges[-1], model.predictor_.params
    loss, again = original(judge, params)
    prior = 0.5 * (math.log(factor) / PRIOR) ** 2 / judge._weights.sum()
    assert abs(math.log(again)) < 0.05
    assert loss == pytest.approx(smallest - prior, abs=5e-3)


def test_a_fit_keeps_one_epoch_for_all_members():
    model = mder.MDERRegressor((8,), **SMALL).fit(*table())
    ensemble = model.ensemble_ if hasattr(model, "ensemble_") else None
    curve = np.asarray(model.validation_curve_)
    assert curve.shape[-1] == model.n_iter_
    assert np.all((curve == curve[:1]) | np.isnan(curve)), "one score for all members"
    best = np.asarray(model.best_epoch_)
    assert ensemble is None and len(set(best)) == 1 and best[0] == np.nanargmin(curve[0])


@pytest.mark.parametrize("own", ["loss", "network"])
def test_with_a_network_or_loss_of_ones_own_each_member_has_its_epoch(own, monkeypatch):
    monkeypatch.setattr(Judge, "__init__", lambda *_: pytest.fail("the members are judged together"))
    network = mder.mlp((4,), mder.num_outputs(2), link=lambda raw: mder.niw_link(raw, n=2))
    given = {"loss": {"loss": lambda niw, y: mder.mder_nll(niw, y)}, "network": {"network": network}}[own]
    model = mder.MDERRegressor((8,), **(SMALL | {"max_iter": 5}), **given).fit(*table())
    assert np.isfinite(np.asarray(model.validation_curve_)).any()


def test_without_held_out_rows_there_is_no_factor(monkeypatch):
    monkeypatch.setattr(Design, "rescaled", lambda *_: pytest.fail("there are no rows to fit it to"))
    model = mder.MDERRegressor((8,), **(SMALL | {"max_iter": 3}), early_stopping=False).fit(*table())
    assert model.n_iter_ == 3


def test_rows_to_validate_with_are_held_out_by_all(monkeypatch):
    masks = []
    original = Judge.__init__

    def noted(self, network, rows, held_out):
        masks.append(held_out)
        original(self, network, rows, held_out)

    monkeypatch.setattr(Judge, "__init__", noted)
    X, Y = table()
    mder.MDERRegressor((8,), **(SMALL | {"max_iter": 3})).fit(X[:100], Y[:100], validation=(X[100:], Y[100:]))
    assert len(masks) == 1 and masks[0].shape == (4, 50) and masks[0].all()


def test_a_bad_epoch_does_not_end_the_fit():
    """Distances say nothing by warnings, which would be errors here."""
    niw, Y = niw_of(2), targets(2, False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = found_for(niw._replace(L=np.full_like(niw.L, np.nan)), Y)
    assert isinstance(found, Distances) and np.all(found.log_prob == -np.inf)
