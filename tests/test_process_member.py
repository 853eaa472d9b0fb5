"""The Gaussian process as one more member: against mixtures that are made by hand with scipy and scikit-learn."""

import copy
import math
import pickle
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import optimize, special, stats
from sklearn.base import clone
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct, Matern

import mder_jax as mder
from mder_jax import MDERRegressor, persistence, process
from mder_jax.estimator import _held_out, _judge, _rows, process_member, recipe
from mder_jax.estimator._fit_calibration import _of_one_size
from mder_jax.estimator._judge import Blend, Candidate, Judge, best_blend, distances
from mder_jax.estimator._rows import MOST_LEVELS, Rows, plain_inputs
from mder_jax.estimator.beside import FEWEST_ROWS, MOST_TARGETS, PROCESS, fit_beside
from mder_jax.estimator.trained_rows import hashes_of
from mder_jax.persistence import ModelFileError
from mder_jax.process import BOUND_OF_LENGTHS, BOUNDS_OF_REST, Kernel, Process

TINY = {"hidden_layer_sizes": (8,), "embedding": None, "members": 4, "max_iter": 5, "random_state": 0}
TINY |= {"learning_rate_init": 1e-2, "beside": (PROCESS,)}  # one rate, so that a fit takes half the time
N, MEMBERS = 80, 4


def table(rows=N, seed=0):
    """Of different units."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(rows, 2)) * [1.0, 50.0]
    Y = np.stack([np.sin(3 * X[:, 0]), X[:, 0] * X[:, 1] / 50], axis=1) + 0.1 * rng.normal(size=(rows, 2))
    return X, Y * [1.0, 200.0] + [0.0, 1000.0]


NEW, NEW_Y = table(12, seed=1)


@pytest.fixture(scope="module")
def fitted():
    return MDERRegressor(**TINY).fit(*table())


@pytest.fixture(scope="module")
def plain():
    return MDERRegressor(**TINY | {"beside": ()}).fit(*table())


def process_of(model):
    return model.predictor_.beside.members[PROCESS]


def weight_of(model):
    return model.predictor_.beside.weights[PROCESS]


@pytest.fixture(scope="module")
def calibrated(fitted):
    return copy.deepcopy(fitted).calibrate(*table(), cv="members")


# ---- The share of a further member


class Parts(NamedTuple):
    """Of NIW distributions, in numpy."""

    mu: np.ndarray
    L: np.ndarray
    kappa: np.ndarray
    nu: np.ndarray


def niw_of(rows, members=3, n=2, seed=0):
    rng = np.random.default_rng(seed)
    L = np.tril(0.3 * rng.normal(size=(members, rows, n, n)), -1) + np.eye(n)
    kappa, nu = rng.uniform(1, 5, (members, rows)), rng.uniform(n + 2, n + 9, (members, rows))
    return Parts(rng.normal(size=(members, rows, n)), L, kappa, nu)


def log_t(niw, Y, c=1.0):
    """ln p(y) of the predictive t, (M, N), with L multiplied by c."""
    n, df = niw.mu.shape[-1], niw.nu - niw.mu.shape[-1] + 1
    S = ((1 + niw.kappa) / niw.kappa * niw.nu / df * c * c)[..., None, None] * (niw.L @ np.swapaxes(niw.L, -1, -2))
    d = Y - niw.mu
    q = np.einsum("mni,mnij,mnj->mn", d, np.linalg.inv(S), d)
    constant = special.gammaln((df + n) / 2) - special.gammaln(df / 2) - n / 2 * np.log(df * math.pi)
    return constant - 0.5 * np.log(np.linalg.det(S)) - (df + n) / 2 * np.log(1 + q / df)


def test_the_formula_of_these_tests_is_scipys():
    niw, Y = niw_of(4), np.random.default_rng(2).normal(size=(4, 2))
    for m in range(3):
        for i in range(4):
            df, kappa = niw.nu[m, i] - 1, niw.kappa[m, i]
            S = (1 + kappa) / kappa * niw.nu[m, i] / df * 4 * niw.L[m, i] @ niw.L[m, i].T
            assert_allclose(
                log_t(niw, Y, 2.0)[m, i], stats.multivariate_t(niw.mu[m, i], S, df=df).logpdf(Y[i]), rtol=1e-9
            )


def penalised(networks, own, weights, log_c, logits):
    """−Σ w ln((1 − s) p_c + s p)/Σ w for each logit, with the Gaussian priors of ln c and ln(s/(1 − s))."""
    share = special.expit(logits)[:, None]
    log_prob = np.logaddexp(np.log1p(-share) + networks, np.log(share) + own)
    prior = 0.5 * (log_c / math.log(2)) ** 2 + 0.5 * ((logits + 1) / 2) ** 2
    return (prior - log_prob @ weights) / weights.sum()


def fixed(log_prob):
    """A candidate of this density."""
    return Candidate(lambda theta: log_prob)


def brute_force(niw, Y, mask, weights, own):
    """The smallest loss on a grid, with its ln c and logit."""
    found, logits = [], np.linspace(-9, 9, 181)
    for log_c in np.linspace(-1.5, 1.5, 31):
        each = np.where(mask, log_t(niw, Y, math.exp(log_c)), -np.inf)
        networks = special.logsumexp(each, axis=0) - np.log(mask.sum(axis=0))
        losses = penalised(networks, own, weights, log_c, logits)
        found.append((losses.min(), log_c, logits[losses.argmin()]))
    return min(found)


@pytest.mark.parametrize("case", ["often better", "seldom better", "few rows"])
def test_the_blend_by_brute_force(case):
    rows, fraction = {"often better": (30, 0.7), "seldom better": (30, 0.1), "few rows": (4, 0.7)}[case]
    rng = np.random.default_rng(2)
    niw, Y, weights = niw_of(rows), 1.5 * rng.normal(size=(rows, 2)), rng.uniform(0.3, 1, rows)
    mask = rng.random((3, rows)) < 0.6
    mask[0] |= ~mask.any(axis=0)
    own = log_t(niw, Y).max(axis=0) + np.where(rng.random(rows) < fraction, 2.0, -3.0)
    (share,), factor, _ = best_blend(distances(*niw, Y), mask, weights, [fixed(own)])
    loss, log_c, logit = brute_force(niw, Y, mask, weights, own)
    assert abs(math.log(factor) - log_c) < 0.11
    assert abs(special.logit(share) - logit) < 0.11
    each = np.where(mask, log_t(niw, Y, factor), -np.inf)
    networks = special.logsumexp(each, axis=0) - np.log(mask.sum(axis=0))
    assert penalised(networks, own, weights, math.log(factor), special.logit([share]))[0] <= loss + 1e-6


def blend_of(own, rows=60, niw=None, weights=None):
    Y = np.random.default_rng(2).normal(size=(rows, 2))
    found = distances(*(niw_of(rows) if niw is None else niw), Y)
    ones = np.ones(rows) if weights is None else weights
    (share,), factor, _ = best_blend(found, np.ones((3, rows), bool), ones, [fixed(own(found))])
    return share, factor


def test_a_good_member_has_a_large_share_and_a_bad_one_almost_none():
    shares = [blend_of(lambda found, more=more: found.log_prob.max(axis=0) + more)[0] for more in (-30, -2, 0, 1, 30)]
    assert shares == sorted(shares) and shares[0] < 0.02 and shares[-1] > 0.95
    networks = distances(*niw_of(60), np.random.default_rng(2).normal(size=(60, 2)))
    alone = _judge.best_factor(networks, np.ones((3, 60), bool), np.ones(60))[1]
    assert_allclose(blend_of(lambda found: found.log_prob.max(axis=0) - 30)[1], alone, rtol=0.03)


def test_no_row_and_hardly_any_weight_leave_the_prior():
    share, factor = blend_of(lambda found: found.log_prob.max(axis=0) + 30, weights=np.full(60, 1e-9))
    assert_allclose([share, factor], [special.expit(-1.0), 1.0], atol=1e-3)


@pytest.mark.parametrize("which", ["one row", "all rows"])
def test_a_density_of_zero_of_the_further_member(which):
    where = np.arange(60) == 3 if which == "one row" else np.ones(60, bool)
    share, factor = blend_of(lambda found: np.where(where, -np.inf, found.log_prob.max(axis=0) + 3))
    assert np.isfinite([share, factor]).all() and 0 < share < 1 and factor > 0
    assert share < 0.02 if which == "all rows" else 0.8 < share < 0.99


def test_a_row_of_which_no_member_knows_anything():
    niw = niw_of(60)
    broken = np.array(niw.L)
    broken[:, 3] = 0.0
    share, factor = blend_of(
        lambda found: np.where(np.arange(60) == 3, -np.inf, found.log_prob.max(axis=0) + 3), niw=niw._replace(L=broken)
    )
    assert 0.8 < share < 1 and 0.2 < factor < 5


@pytest.mark.parametrize("field", ["mu", "L", "kappa"])
@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_a_density_of_zero_of_the_networks(field, value):
    niw = niw_of(60)
    broken = np.array(getattr(niw, field))
    broken[:, 3] = value
    own = blend_of(lambda found: np.where(np.isfinite(found.log_prob), found.log_prob, -5.0).max(axis=0) + 5)
    given = np.full(60, 0.0)
    share, factor = blend_of(lambda _: given, niw=niw._replace(**{field: broken}))
    assert np.isfinite([share, factor]).all() and 0 < share < 1 and factor > 0
    assert share > 0.9 and own[0] > 0.9, "the other rows still count"


def test_the_blend_of_two_members_by_another_search():
    """ln of a share relative to that of the networks has a prior each, and so has the parameter of the second one."""
    rng = np.random.default_rng(4)
    niw, Y = niw_of(40), 1.5 * rng.normal(size=(40, 2))
    first = log_t(niw, Y).max(axis=0) + np.where(rng.random(40) < 0.4, 2.0, -3.0)
    second = log_t(niw, Y).max(axis=0) + np.where(rng.random(40) < 0.4, 2.0, -3.0)
    tilt, weights = rng.normal(size=40), rng.uniform(0.3, 1, 40)
    other = Candidate(lambda theta: second + theta[0] * tilt, ((0.3, 0.5),), ((-2.0, 2.0),))
    found = distances(*niw, Y)

    def loss(at):
        shares = special.softmax([0.0, at[1], at[2]])
        networks = special.logsumexp(found.scaled(math.exp(at[0])), axis=0) - math.log(3)
        each = np.stack([networks, first, second + at[3] * tilt])
        prior = (
            (at[0] / math.log(2)) ** 2 + ((at[1] + 1) / 2) ** 2 + ((at[2] + 1) / 2) ** 2 + ((at[3] - 0.3) / 0.5) ** 2
        )
        return (0.5 * prior - weights @ special.logsumexp(each, axis=0, b=shares[:, None])) / weights.sum()

    best = optimize.minimize(loss, np.zeros(4), method="Nelder-Mead", options={"xatol": 1e-4, "fatol": 1e-8}).x
    shares, factor, theta = best_blend(found, np.ones((3, 40), bool), weights, [fixed(first), other])
    assert_allclose(shares, special.softmax([0.0, best[1], best[2]])[1:], atol=5e-3)
    assert_allclose([math.log(factor), *theta[1]], [best[0], best[3]], atol=2e-2)
    assert len(theta[0]) == 0 and min(shares) > 0.1


def test_some_of_the_rows():
    Y = np.random.default_rng(2).normal(size=(20, 2))
    mask = np.arange(20) % 3 == 0
    some = jax.tree.map(lambda leaf: leaf[:, mask], niw_of(20))
    for ours, theirs in zip(distances(*niw_of(20), Y).take(mask), distances(*some, Y[mask]), strict=True):
        assert_allclose(ours, theirs)


LINE = mder.Network(
    lambda key, x: {"w": jax.random.normal(key, (x.shape[1], mder.num_outputs(2)), x.dtype)},
    lambda params, x: mder.niw_link(x @ params["w"], n=2, relative=True),
)


def lines(members):
    return jax.vmap(LINE.init, (0, None))(jax.random.split(jax.random.key(0), members), jnp.ones((1, 2), jnp.float32))


def standard_rows(rows=40, weights=None):
    X, Y = (np.float32((part - part.mean(axis=0)) / part.std(axis=0)) for part in table(rows))
    return Rows(X, Y, weights)


def test_a_judge_blends_by_the_judged_rows_only():
    """With their weights, here 1 on average, and the members that held them out."""
    rows, params = standard_rows(weights=np.where(np.arange(40) // 4 % 2, 0.1, 1.9)), lines(3)
    held_out = np.random.default_rng(0).random((3, 40)) < 0.5
    held_out[0] |= ~held_out.any(axis=0)
    judge, judged = Judge(LINE, rows, held_out), np.arange(40) % 4 == 0
    own = 2 * np.random.default_rng(100).normal(size=40) - 3
    (share,), factor, _ = judge.blend(params, [fixed(own)], judged)
    same = judge.blend(params, [fixed(np.where(judged, own, -1e3))], judged)
    assert (same.shares, same.factor) == ([share], factor)
    niw = jax.vmap(LINE.apply, (0, None))(params, rows.X[judged])
    parts = Parts(*(np.float64(part) for part in (niw.mu, niw.L, niw.kappa, niw.nu)))
    _, log_c, logit = brute_force(parts, rows.Y[judged], held_out[:, judged], rows.weights[judged], own[judged])
    assert abs(special.logit(share) - logit) < 0.11 and abs(math.log(factor) - log_c) < 0.11


def test_a_fixed_candidate_has_the_density_of_its_t():
    niw, Y = niw_of(20, members=1, seed=5), np.random.default_rng(2).normal(size=(20, 2))
    further = mder.NIW(*(np.float32(leaf[0]) for leaf in niw))
    candidate = Candidate.fixed(further, Y)
    assert_allclose(candidate.log_prob(np.zeros(0)), log_t(niw, Y)[0], rtol=1e-5)
    assert_array_equal(candidate.take(np.arange(20) % 3 == 0).log_prob(None), candidate.log_prob(None)[::3])


def test_a_heavy_row_does_not_silence_the_others():
    """The weights of the rows are relative: with a thousandth of the largest they say as much as without weights."""
    found = []
    for weights in (None, np.where(np.arange(40) == 5, 1.0, 1e-3)):
        judge = Judge(LINE, standard_rows(weights=weights), np.ones((3, 40), bool))
        found.append(judge.blend(lines(3), [fixed(np.zeros(40))], np.arange(40) != 5))
    assert found[0].shares[0] > 0.9
    assert_allclose(found[1].shares, found[0].shares, atol=0.05)


# ---- What the process is given


def test_numbers_are_clipped_smoothly_and_categories_are_one_hot():
    X = np.array([[0.0, 2.0, -1.5, 0.0], [1e6, 0.0, 3.0, 70.0], [-1e38, 1.0, 0.1, 5.0]], np.float32)
    found = plain_inputs(X, ((1, 3), (3, MOST_LEVELS + 1)))
    numbers = np.float64(X[:, [0, 2]])
    assert_allclose(found[:, :2], numbers / np.sqrt(1 + (numbers / 3) ** 2), rtol=1e-12)
    assert_array_equal(found[:, 2:], [[0, 0, 1], [1, 0, 0], [0, 1, 0]])
    assert found.dtype == np.float64 and np.abs(found).max() <= 3
    many = np.float32(np.arange(5))[:, None]
    assert_array_equal(plain_inputs(many, ((0, MOST_LEVELS),)), np.eye(MOST_LEVELS)[:5])
    assert plain_inputs(many, ((0, MOST_LEVELS + 1),)).shape == (5, 0)


class OwnJudge:
    """Of the rows that members held out; it finds a weight of a half."""

    def __init__(self, rows, held_out):
        self.index = np.flatnonzero(held_out.any(axis=0))
        self.rows = Rows(rows.X[self.index], rows.Y[self.index])
        self.judged = None

    def loss_and_factor(self, params):
        return 0.0, 1.25

    def blend(self, params, candidates, judged):
        self.judged = self.index[judged]
        return Blend([0.5], 0.75, [np.zeros(0)])


def member_of(rows, held_out=None, embedded=(), seed=0):
    if held_out is None:
        held_out = np.arange(len(rows.X)) % 10 == np.array([[3], [7]])
    judge = OwnJudge(rows, held_out)
    beside, factor = fit_beside((PROCESS,), rows, held_out, embedded, judge, None, seed)
    return beside and beside.members[PROCESS], factor, judge


@pytest.mark.parametrize(
    ("rows", "targets", "expected"),
    [(40, MOST_TARGETS, True), (40, MOST_TARGETS + 1, False), (12, 2, True), (11, 2, False)],
)
def test_too_few_rows_or_too_many_targets(rows, targets, expected):
    """Of 12 rows two are held out, which leaves the fewest."""
    rng = np.random.default_rng(0)
    given = Rows(*(np.float32(rng.normal(size=(rows, width))) for width in (2, targets)))
    member, factor, _ = member_of(given)
    assert (member is not None, factor) == ((True, 0.75) if expected else (False, 1.25))
    assert FEWEST_ROWS == 10 and MOST_TARGETS == 32


def test_rows_that_miss_a_target_do_not_count():
    """Of 24 rows five are held out, of the others ten have gaps, and then nine."""
    rows = standard_rows(24)
    gaps = np.flatnonzero(~np.isin(np.arange(24) % 10, [3, 7]))[:10]
    rows.Y[gaps, 1] = np.nan
    assert member_of(rows)[0] is None
    rows.Y[gaps[0], 1] = 0.0
    member, _, _ = member_of(rows)
    assert member.process.nu == 2 + 2 + (24 - 9)


def test_members_that_hold_out_too_much_together_do_not_all_count():
    """A third of the rows at most, but for what the first member holds out."""
    place = np.arange(N) % 10
    held_out = np.stack([place == 0, place == 1, place < 8, place == 2, place == 3])
    _, _, judge = member_of(standard_rows(N), held_out)
    assert_array_equal(judge.judged, np.flatnonzero(place < 3))
    _, _, judge = member_of(standard_rows(N), held_out[2:])
    assert_array_equal(judge.judged, np.flatnonzero(place < 8))


def test_a_member_of_hardly_any_weight_is_left_out(monkeypatch):
    monkeypatch.setattr(OwnJudge, "blend", lambda *_: Blend([0.019], 0.75, [np.zeros(0)]))
    assert member_of(standard_rows())[:2] == (None, 1.25)
    monkeypatch.setattr(OwnJudge, "blend", lambda *_: Blend([0.021], 0.75, [np.zeros(0)]))
    assert member_of(standard_rows())[1] == 0.75


def noise_std(member):
    return np.sqrt(np.diagonal(member.process.factor @ member.process.factor.T))


@pytest.mark.parametrize("weights", ["uneven", "one heavy row", "hardly any", "almost none"])
def test_weights_do_not_change_what_noise_is_expected(weights):
    """Each row of a table has the same noise, whatever its weight: the predicted one is that of a new row."""
    each = {
        "uneven": np.random.default_rng(0).uniform(size=N) ** 3 + 0.01,
        "one heavy row": np.where(np.arange(N) == 5, 1.0, 1 / 30),
        "hardly any": np.where(np.arange(N) == 5, 1e-30, 1.0),
        "almost none": np.where(np.arange(N) == 5, 1e-310, 1.0),
    }
    expected = noise_std(member_of(standard_rows(N))[0])
    assert_allclose(noise_std(member_of(standard_rows(N, each[weights]))[0]), expected, rtol=0.5)


def test_some_of_many_rows_are_any_of_them(monkeypatch):
    """Not every other one: in a table of which two kinds take turns these would be of one kind."""
    monkeypatch.setattr(process_member, "MOST_ROWS", 70)
    rows = standard_rows(N)
    given = spied(monkeypatch)
    member = member_of(rows)[0]
    last, index = given[-1], plain_inputs(rows.X, ())
    places = [int(np.flatnonzero((index == x).all(axis=1))[0]) for x in last]
    assert len(places) == len(set(places)) == 70 == member.process.nu - 4
    assert 25 <= np.sum(np.array(places) % 2) <= 45


def test_a_block_of_which_the_judge_looks_at_no_row(monkeypatch):
    """The first member holds out one row, as one of a small group does; of many rows the judge looks at some."""
    rows, held_out = standard_rows(N), np.arange(N) == np.zeros((2, 1))
    held_out[1] = np.arange(N) >= 40
    monkeypatch.setattr(_judge, "MOST_ROWS", 20)
    judge = Judge(LINE, rows, held_out)
    assert 0 not in judge.index
    beside, factor = fit_beside((PROCESS,), rows, held_out, (), judge, lines(2), 0)
    assert factor > 0 and (beside is None or 0 < beside.weights[PROCESS] < 1)


def test_equal_rows_and_columns_are_no_obstacle():
    """At the bounds of a kernel, where the linear part is largest and noise is smallest."""
    t = np.repeat(np.random.default_rng(0).normal(size=(30, 1)), 10, axis=0)
    X = plain_inputs(np.repeat(t, 1000, axis=1), ())
    linear, constant, noise = (math.exp(BOUNDS_OF_REST[k][end]) for k, end in ((0, 1), (1, 1), (2, 0)))
    kernel = Kernel(np.full(1000, math.exp(BOUND_OF_LENGTHS[1])), linear, constant, noise)
    found = Process.given(kernel, X, X, (X[:, :1] - X[:, 0].mean()) / X[:, 0].std())
    assert np.isfinite(found.predict(X).mu).all()


def spied(monkeypatch):
    """The inputs of the rows that each process is given, a list that grows."""
    given, original = [], Process.given

    def noted(kernel, landmarks, X, Y, weights=None):
        given.append(np.array(X))
        return original(kernel, landmarks, X, Y, weights)

    monkeypatch.setattr(Process, "given", staticmethod(noted))
    return given


# ---- Rows that determine the weight


class Record(NamedTuple):
    """What a fit did."""

    model: MDERRegressor
    given: list
    judge: Judge
    params: object
    candidates: list
    judged: np.ndarray
    found: Blend
    trained: np.ndarray


def recorded(monkeypatch, settings=None, data=None, **given_to_fit):
    given, notes, weights = spied(monkeypatch), [], []
    blend, fit_ensemble = Judge.blend, recipe.fit_ensemble

    def noted(self, params, candidates, judged):
        notes.append((self, params, candidates, judged, blend(self, params, candidates, judged)))
        return notes[-1][-1]

    def trains(*args, **options):
        weights.append(options.get("weights"))
        return fit_ensemble(*args, **options)

    monkeypatch.setattr(Judge, "blend", noted)
    monkeypatch.setattr(recipe, "fit_ensemble", trains)
    model = MDERRegressor(**TINY | (settings or {})).fit(*(data or table()), **given_to_fit)
    return Record(model, given, *notes[-1], getattr(weights[-1], "values", weights[-1]))


def same_rows(X, Z):
    """Which of the rows of X are among those of Z."""
    return np.array([bool((x == Z).all(axis=1).any()) for x in X])


WAYS = {
    "as it comes": ({}, {}),
    "groups": ({}, {"groups": np.arange(N) // 8}),
    "last": ({"early_stopping": "last"}, {}),
    "bootstrap": ({"bootstrap": True}, {}),
    "single": ({"members": 1}, {}),
}


@pytest.mark.parametrize("way", WAYS)
def test_neither_networks_nor_the_process_were_given_the_judged_rows(way, monkeypatch):
    settings, given_to_fit = WAYS[way]
    seen = recorded(monkeypatch, settings, **given_to_fit)
    model, (apart, whole) = seen.model, seen.given
    rows = plain_inputs(model.predictor_.inputs.forward(table()[0]), ())
    judged = plain_inputs(seen.judge.rows.X[seen.judged], ())
    place = np.flatnonzero(same_rows(rows, judged))
    assert len(judged) >= 8 and same_rows(judged, rows).all() and not same_rows(judged, apart).any()
    assert_array_equal(np.sort(np.concatenate([np.flatnonzero(same_rows(rows, apart)), place])), np.arange(N))
    held_out = seen.judge._held_out[:, seen.judged]
    assert held_out.any(axis=0).all() and not seen.trained[:, seen.judge.index[seen.judged]][held_out].any()
    assert_array_equal(whole, rows)
    assert [weight_of(model)] == seen.found.shares and process_of(model).process.nu == 4 + N
    if way == "groups":
        assert not set(place // 8) & set(np.flatnonzero(same_rows(rows, apart)) // 8)
    if way == "last":
        assert_array_equal(place, np.arange(N - 8, N))


def test_rows_to_validate_with_judge_the_process_of_all_rows(monkeypatch):
    seen = recorded(monkeypatch, validation=(NEW, NEW_Y))
    assert len(seen.given) == 1 and seen.given[0].shape == (N, 2)
    assert seen.judged.shape == (12,) and seen.judged.all()
    assert_allclose(seen.judge.rows.X, seen.model.predictor_.inputs.forward(NEW))
    assert [weight_of(seen.model)] == seen.found.shares


def test_the_weight_and_the_factor_of_a_fit_by_brute_force(monkeypatch):
    monkeypatch.setattr(process, "JITTER_OF_NOISE", 0.0)
    seen = recorded(monkeypatch)
    model, weight = seen.model, weight_of(seen.model)
    Z, T_ = standard(table())
    judged = seen.judge.index[seen.judged]
    kept = np.setdiff1d(np.arange(N), judged)
    networks = outputs_of(model, Z[judged], seen.params)
    own = of_process(process_of(model).process.kernel, Z[kept], T_[kept], Z[judged]).log_prob(T_[judged])
    held_out = _held_out.again(model.held_out_, hashes_of(model.trained_rows_, *table()))[:, judged]
    assert len(judged) == 16 and held_out.any(axis=0).all()
    _, log_c, logit = brute_force(networks, T_[judged], held_out, np.ones(16), own)
    assert abs(special.logit(weight) - logit) < 0.11 and abs(math.log(seen.found.factor) - log_c) < 0.11
    assert_allclose(outputs_of(model, Z[judged]).L, seen.found.factor * networks.L, rtol=1e-4)


# ---- The distribution, by hand


class T(NamedTuple):
    """Student-t distributions, (M, N), with weights (M,)."""

    loc: np.ndarray
    S: np.ndarray
    df: np.ndarray
    weights: np.ndarray

    def each(self, Y):
        M, rows = self.df.shape
        cells = [
            [stats.multivariate_t(self.loc[m, i], self.S[m, i], self.df[m, i]) for i in range(rows)] for m in range(M)
        ]
        return np.array([[cell.logpdf(Y[i]) for i, cell in enumerate(row)] for row in cells])

    def log_prob(self, Y):
        return special.logsumexp(self.each(Y), axis=0, b=self.weights[:, None])

    def moments(self):
        """Mean and covariance."""
        w = self.weights[:, None, None]
        mean = np.sum(w * self.loc, axis=0)
        own = self.S * (self.df / (self.df - 2))[..., None, None]
        second = own + self.loc[..., :, None] * self.loc[..., None, :]
        return mean, np.sum(w[..., None] * second, axis=0) - mean[:, :, None] * mean[:, None, :]

    def quantile(self, row, target, level):
        loc, scale = self.loc[:, row, target], np.sqrt(self.S[:, row, target, target])

        def above(y):
            return self.weights @ stats.t(self.df[:, row]).cdf((y - loc) / scale) - level

        return optimize.brentq(above, (loc - 1e3 * scale).min(), (loc + 1e3 * scale).max(), xtol=1e-12)

    def draw(self, rng, row, count):
        """(count, n)."""
        which = rng.choice(len(self.weights), size=count, p=self.weights)
        cells = [stats.multivariate_t(self.loc[m, row], self.S[m, row], self.df[m, row]) for m in range(len(self.df))]
        drawn = np.stack([cell.rvs(count, random_state=rng) for cell in cells])
        return drawn[which, np.arange(count)]

    def back(self, mean, std):
        return self._replace(loc=mean + std * self.loc, S=self.S * std[:, None] * std)


def standard(data):
    """As the networks see them, by numpy."""
    return tuple((part - part.mean(axis=0)) / part.std(axis=0) for part in data)


def outputs_of(model, z, params=None):
    """Of the networks, in double precision."""
    network = model.predictor_.design.network()
    params = model.predictor_.params if params is None else params
    niw = jax.vmap(network.apply, (0, None))(params, np.float32(z))
    return Parts(*(np.asarray(part, np.float64) for part in (niw.mu, niw.L, niw.kappa, niw.nu)))


def of_networks(niw):
    n = niw.mu.shape[-1]
    df = niw.nu - n + 1
    S = ((1 + niw.kappa) / niw.kappa * niw.nu / df)[..., None, None] * (niw.L @ np.swapaxes(niw.L, -1, -2))
    return T(niw.mu, S, df, np.full(len(df), 1 / len(df)))


def clipped(z):
    return z / np.sqrt(1 + (z / 3) ** 2)


def of_process(kernel, Z, Y, z, weights=None):
    """The predictive of a Gaussian process with scikit-learn's kernels and a plain inverse, Ψ₀ = 0.01 I, ν₀ = n + 2."""
    k = ConstantKernel(kernel.linear) * DotProduct(math.sqrt(kernel.constant / kernel.linear)) + Matern(
        kernel.lengths, nu=2.5
    )
    Z, z, n = clipped(Z), clipped(z), Y.shape[1]
    inverse = np.linalg.inv(k(Z) + np.diag(kernel.noise / (np.ones(len(Z)) if weights is None else weights)))
    near, df = k(z, Z), len(Z) + n + 2 - n + 1
    Psi = 0.01 * np.eye(n) + Y.T @ inverse @ Y
    variance = k.diag(z) - np.einsum("ij,jk,ik->i", near, inverse, near)
    S = (variance + kernel.noise)[:, None, None] * Psi / df
    return T((near @ inverse @ Y)[None], S[None], np.full((1, len(z)), float(df)), np.ones(1))


def blended(networks, own, weight):
    parts = (np.concatenate(both) for both in zip(networks[:3], own[:3], strict=True))
    return T(*parts, np.append((1 - weight) * networks.weights, weight))


@pytest.fixture(scope="module")
def exact():
    """A model whose process has no part of the jitter that is seen in the result, and one calibrated by members."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "JITTER_OF_NOISE", 0.0)
        model = MDERRegressor(**TINY).fit(*table())
        model.predict(NEW)
        other = copy.deepcopy(model).calibrate(*table(), cv="members")
        other.predict_interval(NEW)
        yield model, other


@pytest.fixture(scope="module")
def hand(exact):
    """The predictive distribution of new rows in original units, with nothing of the library but the networks."""
    model, _ = exact
    X, Y = table()
    z = (NEW - X.mean(axis=0)) / X.std(axis=0)
    own = of_process(process_of(model).process.kernel, *standard(table()), z)
    return blended(of_networks(outputs_of(model, z)), own, weight_of(model)).back(Y.mean(axis=0), Y.std(axis=0))


def test_log_prob_is_that_of_the_mixture(exact, hand):
    model, _ = exact
    assert 0.5 < weight_of(model) < 1 and hand.df.shape == (MEMBERS + 1, 12)
    assert_allclose(model.log_prob(NEW, NEW_Y), hand.log_prob(NEW_Y), rtol=2e-4, atol=2e-4)


def test_log_prob_of_some_of_the_targets(exact, hand):
    model, _ = exact
    Y = NEW_Y.copy()
    Y[:, 0] = np.nan
    other = hand._replace(loc=hand.loc[..., 1:], S=hand.S[..., 1:, 1:])
    assert_allclose(model.log_prob(NEW, Y), other.log_prob(NEW_Y[:, 1:]), rtol=2e-4, atol=2e-4)


def test_moments_are_those_of_the_mixture(exact, hand):
    model, _ = exact
    mean, total = hand.moments()
    size = np.sqrt(np.diagonal(total, axis1=1, axis2=2))
    found = model.predict_uncertainty(NEW)
    assert np.abs((found.mean - mean) / size).max() < 2e-4
    assert np.abs((found.total - total) / (size[:, :, None] * size[:, None, :])).max() < 1e-3
    assert_allclose(found.aleatoric + found.epistemic, found.total, rtol=1e-6)
    ours, std = model.predict(NEW, return_std=True)
    assert_array_equal(ours, found.mean)
    assert_allclose(std, size, rtol=5e-4)


def test_the_parts_of_the_covariance(exact, hand):
    """Aleatoric: Σ w E[Σ] with E[Σ] = S κ/(1 + κ) df/(df − 2); between: the covariance of the members' means."""
    model, _ = exact
    found = model.predict_uncertainty(NEW)
    mean = np.einsum("m,mij->ij", hand.weights, hand.loc)
    apart = hand.loc - mean
    between = np.einsum("m,mij,mik->ijk", hand.weights, apart, apart)
    size = np.sqrt(np.diagonal(found.total, axis1=1, axis2=2))
    units = size[:, :, None] * size[:, None, :]
    assert np.abs((found.between - between) / units).max() < 1e-3
    X = table()[0]
    z = (NEW - X.mean(axis=0)) / X.std(axis=0)
    own = hand.S * (hand.df / (hand.df - 2))[..., None, None]
    of_its_own = kappa_by_hand(process_of(model).process.kernel, standard(table())[0], z)
    kappa = np.append(outputs_of(model, z).kappa, [of_its_own], axis=0)
    aleatoric = np.einsum("m,mijk->ijk", hand.weights, own * (kappa / (1 + kappa))[..., None, None])
    assert np.abs((found.aleatoric - aleatoric) / units).max() < 1e-3


def kappa_by_hand(kernel, Z, z):
    k = ConstantKernel(kernel.linear) * DotProduct(math.sqrt(kernel.constant / kernel.linear)) + Matern(
        kernel.lengths, nu=2.5
    )
    Z, z = clipped(Z), clipped(z)
    inverse = np.linalg.inv(k(Z) + kernel.noise * np.eye(len(Z)))
    return kernel.noise / (k.diag(z) - np.einsum("ij,jk,ik->i", k(z, Z), inverse, k(z, Z)))


def test_quantiles_invert_the_distribution_function(exact, hand):
    levels = [0.001, 0.1, 0.5, 0.975]
    found = exact[0].predict_quantiles(NEW[:3], levels)
    expected = [[[hand.quantile(i, j, level) for level in levels] for j in range(2)] for i in range(3)]
    size = np.sqrt(np.diagonal(hand.moments()[1], axis1=1, axis2=2))[:3, :, None]
    assert np.abs((found - expected) / size).max() < 1e-3
    lower, upper = exact[0].predict_interval(NEW[:3], coverage=0.8)
    expected = [[[hand.quantile(i, j, level) for j in range(2)] for i in range(3)] for level in (0.1, 0.9)]
    assert np.abs((np.stack([lower, upper]) - expected) / size[..., 0]).max() < 1e-3


def test_draws_have_the_moments_of_the_mixture(exact, hand):
    draws = 8000
    found = exact[0].sample_y(NEW[:3], draws, random_state=1)
    mean, total = (part[:3] for part in hand.moments())
    size = np.sqrt(np.diagonal(total, axis1=1, axis2=2))
    assert np.abs((found.mean(axis=-1) - mean) / size).max() < 5 / math.sqrt(draws)
    quantiles = [[hand.quantile(i, j, 0.9) for j in range(2)] for i in range(3)]
    assert np.abs((found < np.array(quantiles)[..., None]).mean(axis=-1) - 0.9).max() < 5 * 0.3 / math.sqrt(draws)
    correlation = [np.corrcoef(row)[0, 1] for row in stats.rankdata(found, axis=-1)]
    expected = [stats.spearmanr(hand.draw(np.random.default_rng(0), i, draws)).statistic for i in range(3)]
    assert_allclose(correlation, expected, atol=0.06)


def test_a_joint_region_holds_what_it_says(exact, hand):
    region = exact[0].predict_interval(NEW[:3], coverage=0.9, joint=True)
    mean, total = (part[:3] for part in hand.moments())
    for i in range(3):
        apart = hand.draw(np.random.default_rng(i), i, 20_000) - mean[i]
        distance = np.sqrt(np.einsum("ki,ij,kj->k", apart, np.linalg.inv(total[i]), apart))
        assert abs(np.mean(distance <= region.radius[i]) - 0.9) < 0.012


def test_the_distribution_and_all_at_once(exact, hand):
    model, _ = exact
    mixture, everything = model.predict_dist(NEW), model.predict_all(NEW)
    assert mixture.size == MEMBERS + 1 and mixture.batch_shape == (12,)
    assert_allclose(mixture.log_prob(jnp.asarray(NEW_Y)), hand.log_prob(NEW_Y), rtol=2e-4, atol=2e-4)
    assert_allclose(np.exp(mixture.log_weights), np.broadcast_to(hand.weights[:, None], (5, 12)), rtol=1e-5)
    pairs = (everything.distribution(), mixture), (everything.uncertainty(), model.predict_uncertainty(NEW))
    for ours, theirs in (*pairs, (everything.interval(0.7), model.predict_interval(NEW, 0.7))):
        jax.tree.map(lambda one, other: assert_allclose(one, other, rtol=1e-4, atol=1e-4), ours, theirs)


def test_a_scale_is_on_the_whole_mixture(exact, hand):
    """Factors of 4: means twice as far from their mean, and S four times as large."""
    model = copy.deepcopy(exact[0])
    model.predictor_ = model.predictor_.with_scale(mder.calibration.Scale(4.0, 4.0))
    mean, total = hand.moments()
    wide = hand._replace(loc=mean + 2 * (hand.loc - mean), S=4 * hand.S)
    found = model.predict_uncertainty(NEW)
    size = np.sqrt(np.diagonal(total, axis1=1, axis2=2))
    assert np.abs((found.total - 4 * total) / (size[:, :, None] * size[:, None, :])).max() < 4e-3
    assert_allclose(model.log_prob(NEW, NEW_Y), wide.log_prob(NEW_Y), rtol=3e-4, atol=3e-4)


@pytest.mark.filterwarnings("ignore:.*outside the range of training")
def test_far_rows_are_uncertain_and_finite(fitted):
    far = np.array([[1e30, 0.0], [-1e30, 1e30], [4.0, 0.0]])
    found, near = fitted.predict_uncertainty(far), fitted.predict_uncertainty(NEW)
    assert np.isfinite(found.total).all() and np.isfinite(fitted.log_prob(far, NEW_Y[:3])).all()
    assert found.std.min(axis=0)[0] > np.median(near.std, axis=0)[0]


def test_a_row_is_predicted_alike_alone_and_among_others(fitted):
    whole = fitted.predict_uncertainty(np.tile(NEW, (20, 1)))
    jax.tree.map(lambda leaf, own: assert_array_equal(leaf[3:4], own), whole, fitted.predict_uncertainty(NEW[3:4]))


def test_beside_a_forest(monkeypatch, tmp_path):
    """Each with the weight that the blend says, and the networks with equal shares of the rest."""
    blend = Blend([0.3, 0.2], 1.0, [np.zeros(0), np.array([0.0, -4.0])])
    monkeypatch.setattr(Judge, "blend", lambda *_: blend)
    model = MDERRegressor(**TINY | {"beside": ("process", "forest")}).fit(*table())
    z, own = model.predictor_.inputs.forward(NEW), model.predictor_.beside
    assert own.weights == {"process": 0.3, "forest": 0.2}
    further = [own.members[kind].predict(z) for kind in ("process", "forest")]
    parts = [of_networks(Parts(*(np.float64(leaf[None]) for leaf in (t.mu, t.L, t.kappa, t.nu)))) for t in further]
    networks = of_networks(outputs_of(model, z))
    joined = [np.concatenate(leaves) for leaves in zip(networks[:3], *(part[:3] for part in parts), strict=True)]
    hand = T(*joined, np.array([0.125] * 4 + [0.3, 0.2]))
    hand = hand.back(model.predictor_.targets.mean, model.predictor_.targets.std)
    assert_allclose(model.log_prob(NEW, NEW_Y), hand.log_prob(NEW_Y), rtol=2e-4, atol=2e-4)
    assert model.predict_dist(NEW).size == MEMBERS + 2
    model.save(tmp_path / "model.mder")
    assert_array_equal(MDERRegressor.load(tmp_path / "model.mder").predict(NEW), model.predict(NEW))
    model.calibrate(*table(), cv="members")
    assert [list(fold.beside.weights) for fold in model.calibration_.folds] == 2 * [["process", "forest"]]


# ---- When there is none


def test_without_it_the_networks_are_alone(fitted, plain):
    assert plain.predictor_.beside is None and fitted.predictor_.beside is not None
    assert plain.predict_dist(NEW).size == MEMBERS and plain.predict_dist(NEW).log_weights is None
    z = plain.predictor_.inputs.forward(NEW)
    std = plain.predictor_.targets.std
    hand = of_networks(outputs_of(plain, z)).back(plain.predictor_.targets.mean, std)
    assert_allclose(plain.log_prob(NEW, NEW_Y), hand.log_prob(NEW_Y), rtol=2e-4, atol=2e-4)
    assert plain.get_params()["beside"] == () and fitted.get_params()["beside"] == (PROCESS,)
    none = MDERRegressor(**TINY | {"beside": None}).fit(*table())
    assert_array_equal(none.predict(NEW), plain.predict(NEW))


NONE = {
    "early_stopping": {"early_stopping": False},
    "network": {"network": mder.mlp((4,), mder.num_outputs(2), link=lambda raw: mder.niw_link(raw, n=2))},
    "loss": {"loss": lambda niw, y: mder.mder_nll(niw, y)},
}


@pytest.mark.parametrize("why", NONE)
def test_there_is_none(why, monkeypatch):
    """Without rows that were held out nothing tells its weight."""
    monkeypatch.setattr(process_member, "best_kernel", lambda *_, **__: pytest.fail("a kernel is sought"))
    model = MDERRegressor(**TINY | {"max_iter": 1} | NONE[why]).fit(*table())
    assert model.predictor_.beside is None and model.predict_dist(NEW).size == MEMBERS


@pytest.mark.parametrize("value", [True, 1, "process", ["network"], [None], {"process"}, [np.zeros(2)]], ids=repr)
def test_wrong_values_are_refused(value):
    with pytest.raises(ValueError, match="beside must be None, or a list of some of process, forest; got "):
        MDERRegressor(**TINY | {"beside": value}).fit(*table())


# ---- Tables


def test_missing_targets(monkeypatch):
    X, Y = table()
    Y[::3, 1] = np.nan
    Y[4] = np.nan
    seen = recorded(monkeypatch, data=(X, Y))
    complete = ~np.isnan(Y).any(axis=1)
    rows = plain_inputs(seen.model.predictor_.inputs.forward(X), ())
    assert_array_equal(np.flatnonzero(same_rows(rows, seen.given[-1])), np.flatnonzero(complete))
    assert process_of(seen.model).process.nu == 4 + complete.sum()
    assert np.isnan(seen.judge.rows.Y[seen.judged]).any(), "rows with one target are judged by this one"
    kept = np.flatnonzero(complete)
    T_ = seen.model.predictor_.targets.forward(Y).astype(float)
    z = seen.model.predictor_.inputs.forward(X).astype(float)
    own = of_process(process_of(seen.model).process.kernel, z[kept], T_[kept], z[:5])
    assert_allclose(process_of(seen.model).predict(np.float32(z[:5])).mu, own.loc[0], atol=2e-3)
    assert np.isfinite(seen.model.log_prob(X, np.nan_to_num(Y, nan=1.0))).all()


def test_rows_without_weight_are_not_there():
    X, Y = table()
    weights = np.where(np.arange(N) < 20, 0.0, 2.0)
    Y[:20] = 1e6
    model = MDERRegressor(**TINY).fit(X, Y, sample_weight=weights)
    same = MDERRegressor(**TINY).fit(X[20:], Y[20:], sample_weight=np.full(60, 7.0))
    assert process_of(model).process.nu == 4 + 60
    assert_array_equal(model.predict(NEW), same.predict(NEW))


def test_weights_are_those_of_rows(monkeypatch):
    """A row of a small weight is as one of large noise: the process goes through the others."""
    X, Y = table()
    wrong = np.arange(N) % 4 == 1
    Y[wrong, 0] += 5.0
    model = MDERRegressor(**TINY).fit(X, Y, sample_weight=np.where(wrong, 1e-3, 1.0))
    equal = MDERRegressor(**TINY).fit(X, Y)
    means = [
        one.predictor_.targets.back(process_of(one).predict(one.predictor_.inputs.forward(NEW)).mu)[:, 0]
        for one in (model, equal)
    ]
    errors = [np.abs(mean - np.sin(3 * NEW[:, 0])).max() for mean in means]
    assert errors[0] < 0.5 < errors[1]


def test_one_heavy_row_does_not_ruin_the_rest(fitted):
    weights = np.ones(N)
    weights[7] = 30.0
    model = MDERRegressor(**TINY).fit(*table(), sample_weight=weights)
    ours, theirs = (noise_std(process_of(one)) * one.predictor_.targets.std for one in (model, fitted))
    assert_allclose(ours, theirs, rtol=0.5)


def test_a_warm_start_is_given_the_new_rows():
    X, Y = table()
    model = MDERRegressor(**TINY, warm_start=True).fit(X[:60], Y[:60])
    assert process_of(model).process.nu == 4 + 60
    before = process_of(model).process.predict(plain_inputs(model.predictor_.inputs.forward(NEW), ())).mu
    model.fit(X, Y)
    assert process_of(model).process.nu == 4 + N
    after = process_of(model).process.predict(plain_inputs(model.predictor_.inputs.forward(NEW), ())).mu
    assert 1e-3 < np.abs(after - before).max() < 1


def test_the_same_seed_gives_the_same_model(fitted):
    again = MDERRegressor(**TINY).fit(*table())
    jax.tree.map(assert_array_equal, again.predict_uncertainty(NEW), fitted.predict_uncertainty(NEW))
    assert weight_of(again) == weight_of(fitted)
    other = MDERRegressor(**TINY | {"random_state": 1}).fit(*table())
    assert weight_of(other) != weight_of(fitted)


def test_one_target_without_an_axis():
    X, Y = table()
    model = MDERRegressor(**TINY).fit(X, Y[:, 0]).calibrate(X, Y[:, 0], cv="members")
    assert process_of(model).process.Psi.shape == (1, 1)
    mean, std = model.predict(NEW, return_std=True)
    assert mean.shape == std.shape == (12,) and model.sample_y(NEW, 3).shape == (12, 3)
    assert model.predict_interval(NEW).lower.shape == (12,) and model.log_prob(NEW, NEW_Y[:, 0]).shape == (12,)


@pytest.mark.parametrize("constant", ["column", "target", "only target"])
@pytest.mark.filterwarnings("ignore:target 'y1' is 1000 in every row", "ignore:.*columns left out", "ignore:.*constant")
def test_what_is_constant(constant):
    X, Y = table()
    if constant == "column":
        X[:, 1] = 3.0
    else:
        Y[:, 1] = 1000.0
    model = MDERRegressor(**TINY).fit(X, Y[:, 1:] if constant == "only target" else Y)
    found = model.predict_uncertainty(X)
    assert np.isfinite(found.total).all() and (found.std > 0).all()
    if constant != "column":
        assert_allclose(found.mean[:, -1], 1000.0, rtol=1e-2)


def frame(rows, seed=0):
    X, Y = table(rows, seed)
    return pd.DataFrame({"a": X[:, 0], "plot": [f"p{k}" for k in np.arange(rows) % 16], "b": X[:, 1]}), Y


@pytest.fixture(scope="module")
def of_frame():
    return MDERRegressor(**TINY).fit(*frame(N))


@pytest.mark.filterwarnings("ignore")
def test_a_frame_with_a_category(of_frame, monkeypatch):
    data, _ = frame(N)
    (pair,) = of_frame.encoding_.embedded
    beside = process_of(of_frame)
    assert beside.embedded == (pair,) and beside.process.landmarks.shape == (N, 2 + pair[1])
    new, _ = frame(12, seed=1)
    moved = new.assign(plot="p3")
    assert np.abs(of_frame.predict(new) - of_frame.predict(moved)).max() > 0
    assert np.isfinite(of_frame.predict_uncertainty(new).total).all()
    monkeypatch.setattr(_rows, "MOST_LEVELS", 8)
    without = MDERRegressor(**TINY).fit(data, frame(N)[1])
    assert process_of(without).process.landmarks.shape == (N, 2)


@pytest.mark.filterwarnings("ignore")
def test_unseen_levels_and_gaps_are_predicted(of_frame):
    new, _ = frame(12, seed=1)
    new.loc[0, "plot"], new.loc[1, "plot"], new.loc[2, "a"], new.loc[3, "b"] = "other", None, np.nan, 1e30
    assert np.isfinite(of_frame.predict_uncertainty(new).total).all()


# ---- Transformed targets


@pytest.fixture(scope="module")
def logs():
    X, Y = table()
    return MDERRegressor(**TINY, target_transform="log").fit(X, np.exp((Y - [0.0, 1000.0]) / [1.0, 200.0]))


def in_logs(model):
    """The mixture of ln y by `predict_dist`, which is tested above."""
    t = model.predict_dist(NEW, transformed=True).components()
    loc, L, df = (np.asarray(part, np.float64) for part in (t.loc, t.scale_tril, t.df))
    weight = weight_of(model)
    return T(loc, L @ np.swapaxes(L, -1, -2), df, np.append(np.full(MEMBERS, (1 - weight) / MEMBERS), weight))


def test_density_and_quantiles_of_transformed_targets(logs):
    hand, Y = in_logs(logs), np.exp((NEW_Y - [0.0, 1000.0]) / [1.0, 200.0])
    assert_allclose(logs.log_prob(NEW, Y), hand.log_prob(np.log(Y)) - np.log(Y).sum(axis=1), rtol=3e-4, atol=3e-4)
    expected = [hand.quantile(0, 1, level) for level in (0.05, 0.5, 0.9)]
    assert_allclose(np.log(logs.predict_quantiles(NEW[:3], [0.05, 0.5, 0.9])[0, 1]), expected, atol=1e-3)


def test_moments_of_transformed_targets_are_those_of_the_mixture(logs):
    """The mean of exp over each member's distribution, cut at 0.1 % on each side, weighted as members are."""
    hand, found = in_logs(logs), logs.predict_uncertainty(NEW)
    levels = (np.arange(4000) + 0.5) / 4000
    for i in range(4):
        for j in range(2):
            low, high = hand.quantile(i, j, 0.001), hand.quantile(i, j, 0.999)
            centre, spread = logs.predictor_.targets.mean[j], 4 * logs.predictor_.targets.std[j]
            low, high = np.clip([low, high], centre - spread, centre + spread)
            points = (
                stats.t(hand.df[:, i, None]).ppf(levels) * np.sqrt(hand.S[:, i, j, j])[:, None]
                + hand.loc[:, i, j, None]
            )
            values = np.exp(np.clip(points, low, high))
            mean = hand.weights @ values.mean(axis=1)
            std = math.sqrt(hand.weights @ ((values - mean) ** 2).mean(axis=1))
            assert_allclose([found.mean[i, j], found.std[i, j]], [mean, std], rtol=5e-3)


# ---- Files, copies and exports


METHODS = ("predict", "predict_uncertainty", "predict_interval", "predict_quantiles", "sample_y")


def assert_same(one, other):
    for method in METHODS:
        jax.tree.map(assert_array_equal, getattr(one, method)(NEW), getattr(other, method)(NEW))
    assert_array_equal(one.log_prob(NEW, NEW_Y), other.log_prob(NEW, NEW_Y))


def test_what_is_loaded_is_what_was_saved(calibrated, tmp_path):
    calibrated.save(tmp_path / "model.mder")
    loaded = MDERRegressor.load(tmp_path / "model.mder")
    assert loaded.predictor_.beside.weights == calibrated.predictor_.beside.weights
    assert_same(loaded, calibrated)
    assert all(fold.beside is not None for fold in loaded.calibration_.folds)
    loaded.save(tmp_path / "again.mder")
    ours, theirs = (persistence.load(tmp_path / name)[1] for name in ("model.mder", "again.mder"))
    jax.tree.map(assert_array_equal, ours, theirs)


def test_a_saved_model_of_a_frame(of_frame, tmp_path):
    of_frame.save(tmp_path / "model.mder")
    new, _ = frame(12, seed=1)
    assert_array_equal(MDERRegressor.load(tmp_path / "model.mder").predict(new), of_frame.predict(new))


def test_a_file_without_a_process(fitted, plain, tmp_path):
    """As those of earlier versions are, which do not mention it."""
    plain.save(tmp_path / "plain.mder")
    document, arrays = persistence.load(tmp_path / "plain.mder")
    assert not any("process" in name for name in arrays)
    del document["beside"], document["settings"]["beside"]
    persistence.save(tmp_path / "older.mder", document, arrays)
    loaded = MDERRegressor.load(tmp_path / "older.mder")
    assert loaded.predictor_.beside is None
    assert_array_equal(loaded.predict(NEW), plain.predict(NEW))


def test_copies(calibrated):
    assert_same(pickle.loads(pickle.dumps(calibrated)), calibrated)
    assert_same(copy.deepcopy(calibrated), calibrated)
    made = clone(MDERRegressor(**TINY))
    assert made.beside == (PROCESS,) and not hasattr(made, "predictor_")


def at(name, value, place=0):
    def change(document, arrays):
        arrays[name] = np.array(arrays[name])
        arrays[name].flat[place] = value

    return change


def other(name, make):
    def change(document, arrays):
        arrays[name] = make(arrays[name])

    return change


def about(**fields):
    return lambda document, arrays: document["beside"].update(fields)


DAMAGED = {
    **{
        f"{part} {value}": at(f"process/{part}", value)
        for part in ("lengths", "variances", "landmarks", "precision_root", "coefficients", "Psi")
        for value in (np.nan, np.inf)
    },
    **{
        f"{part} {what}": other(f"process/{part}", make)
        for part in ("lengths", "variances", "landmarks", "precision_root", "coefficients", "Psi")
        for what, make in (("short", lambda array: array[:-1]), ("a number", lambda array: np.ones(())))
    },
    "a length of zero": at("process/lengths", 0.0),
    "a length that is hardly any": at("process/lengths", 1e-200),
    "a negative noise": at("process/variances", -0.1, 2),
    "a noise that is hardly any": at("process/variances", 1e-300, 2),
    "a huge linear part": at("process/variances", 1e200, 0),
    "few degrees of freedom": at("process/variances", 3.0, 3),
    "too many degrees of freedom": at("process/variances", 1e300, 3),
    "a huge landmark": at("process/landmarks", 1e200),
    "a root with a zero": at("process/precision_root", 0.0),
    "a root that is hardly any": at("process/precision_root", 1e-200),
    "a scale that is no covariance": at("process/Psi", -1.0),
    "a scale that is not symmetric": at("process/Psi", 5.0, 1),
    "of booleans": other("process/Psi", lambda array: array > 0),
    "no array": lambda document, arrays: arrays.pop("process/Psi"),
    "no array of a fold": lambda document, arrays: arrays.pop("fold1/process/landmarks"),
    "a fold": at("fold1/process/lengths", -1.0),
    "no weight": about(weights={PROCESS: 0.0}),
    "all the weight": about(weights={PROCESS: 1.0}),
    "a weight of NaN": about(weights={PROCESS: "nan"}),
    "no weights": about(weights={}),
    "another kind": about(weights={"network": 0.5}),
    "other categories": about(embedded=[[0, 3]]),
    "no pairs": about(embedded=7),
    "no fields": lambda document, arrays: document.update(beside=[1]),
    "no fields of a fold": lambda document, arrays: document["folds"]["models"][0].update(
        beside={"weights": {PROCESS: 0.5}}
    ),
}


@pytest.fixture(scope="module")
def saved(calibrated, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "model.mder"
    calibrated.save(path)
    return persistence.load(path)


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_refused(damage, saved, tmp_path):
    document, arrays = copy.deepcopy(saved[0]), dict(saved[1])
    DAMAGED[damage](document, arrays)
    persistence.save(tmp_path / "damaged.mder", document, arrays)
    with pytest.raises(ModelFileError, match=r"damaged\.mder does not fit together"):
        MDERRegressor.load(tmp_path / "damaged.mder")


def exported(model, path):
    model.export(path)
    return jax.export.deserialize(bytearray(path.read_bytes())).call


def assert_moments(found, expected):
    size = np.sqrt(np.diagonal(expected.total, axis1=1, axis2=2))
    assert np.abs((np.asarray(found["mean"]) - expected.mean) / size).max() < 1e-3
    for name in ("aleatoric", "epistemic", "total"):
        apart = np.asarray(found[name]) - getattr(expected, name)
        assert np.abs(apart / (size[:, :, None] * size[:, None, :])).max() < 1e-3, name


@pytest.mark.filterwarnings("ignore:.*outside the range of training")
@pytest.mark.parametrize("which", ["fitted", "logs"])
def test_an_exported_predictor(which, request, tmp_path):
    model = request.getfixturevalue(which)
    call = exported(model, tmp_path / "model.jaxexp")
    rows = np.float32([*NEW, [3.0, 0.0], [0.0, -1e9]])
    assert_moments(call(rows), model.predict_uncertainty(rows))


def test_an_exported_predictor_with_a_category(of_frame, tmp_path):
    new, _ = frame(12, seed=1)
    call = exported(of_frame, tmp_path / "model.jaxexp")
    assert_moments(call(np.float32(of_frame.encoding_.encode(new).X)), of_frame.predict_uncertainty(new))


# ---- Calibration


def folds_by_hand(model, calibrated, new):
    """Of each fold its rows, |y − mean|/std of them, and mean and std of new rows, by a process without its rows."""
    X, Y = table()
    own, (Z, T_) = model.predictor_, standard(table())
    held = _held_out.again(model.held_out_, hashes_of(model.trained_rows_, model.encoding_.encode(X).X, Y))
    for fold in calibrated.calibration_.folds:
        rows = np.flatnonzero(held[list(fold.members)].all(axis=0) & (held.sum(axis=0) == len(fold.members)))
        rest = np.setdiff1d(np.arange(N), rows)
        found = []
        for z in (Z[rows], (new - X.mean(axis=0)) / X.std(axis=0)):
            niw = jax.tree.map(lambda leaf, fold=fold: leaf[list(fold.members)], outputs_of(model, z))
            alone = of_process(process_of(model).process.kernel, Z[rest], T_[rest], z)
            mean, total = blended(of_networks(niw), alone, weight_of(model)).moments()
            found.append((own.targets.back(mean), own.targets.std * np.sqrt(np.diagonal(total, axis1=1, axis2=2))))
        (mean, std), there = found
        yield rows, np.abs(Y[rows] - mean) / std, there


def test_a_row_is_scored_by_a_process_that_has_not_seen_it(exact):
    model, by_members = exact
    seen = []
    for fold, (rows, scores, _) in zip(
        by_members.calibration_.folds, folds_by_hand(model, by_members, NEW), strict=True
    ):
        assert len(rows) == 8 and fold.beside.members[PROCESS].process.nu == 4 + N - 8
        assert_allclose(fold.scores, np.sort(scores, axis=0), rtol=2e-3, atol=2e-3)
        seen.append(scores)
    with_all = np.abs(table()[1] - model.predict(table()[0])) / model.predict_uncertainty(table()[0]).std
    assert np.mean(np.concatenate(seen)) > np.mean(with_all), "errors of rows that a process was given are smaller"


def test_intervals_of_members_are_those_of_the_definition(exact):
    model, by_members = exact
    ends = [[], []]
    for _, scores, (mean, std) in folds_by_hand(model, by_members, NEW):
        ends[0] += list(mean - scores[:, None] * std)
        ends[1] += list(mean + scores[:, None] * std)
    lower, upper = (np.sort(np.stack(part), axis=0) for part in ends)
    count, coverage = len(lower), 0.8
    found = by_members.predict_interval(NEW, coverage)
    size = model.predict_uncertainty(NEW).std
    low, high = math.floor(round((1 - coverage) * (count + 1), 9)), math.ceil(round(coverage * (count + 1), 9))
    assert np.abs((found.lower - lower[low - 1]) / size).max() < 3e-3
    assert np.abs((found.upper - upper[high - 1]) / size).max() < 3e-3
    assert_array_equal(by_members.predict_all(NEW).interval(coverage), found)
    jax.tree.map(assert_array_equal, by_members.predict_uncertainty(NEW), model.predict_uncertainty(NEW))


def test_members_and_rows_in_another_order(fitted, calibrated):
    X, Y = (part[::-1] for part in table())
    found = copy.deepcopy(fitted).calibrate(X, Y, cv="members").predict_interval(NEW)
    size = fitted.predict_uncertainty(NEW).std
    for ours, theirs in zip(found, calibrated.predict_interval(NEW), strict=True):
        assert np.abs((ours - theirs) / size).max() < 1e-4


def test_calibration_with_other_rows(fitted):
    """The factor is the most likely one, and it is on the whole mixture."""
    X, Y = table(60, seed=2)
    model = copy.deepcopy(fitted).calibrate(X, Y)
    factor = model.calibration_.fit.scale.within
    assert factor == model.calibration_.fit.scale.between
    assert_allclose(model.predict_uncertainty(NEW).total, factor * fitted.predict_uncertainty(NEW).total, rtol=1e-4)

    def loss(log_factor):
        scale = mder.calibration.Scale(math.exp(log_factor), math.exp(log_factor))
        return -replace(fitted.predictor_, scale=scale).rows(fitted.encoding_.encode(X)).log_prob(Y).sum()

    grid = math.log(factor) + np.array([-0.2, 0.0, 0.2])
    left, middle, right = map(loss, grid)
    assert middle < min(left, right)
    inside = (model.predict_interval(X, 0.9).lower <= Y) & (model.predict_interval(X, 0.9).upper >= Y)
    assert 0.88 <= inside.mean() <= 0.95


@pytest.mark.parametrize("some", [False, True])
def test_folds_with_and_without_a_process(some, fitted, monkeypatch):
    """The second fold has none, or each has its own."""
    calls, original = [], recipe.fit_beside

    def every_other(kinds, rows, *others):
        calls.append(len(rows.X))
        found = original(kinds, rows, *others)
        return (None, found[1]) if some and len(calls) == 2 else found

    monkeypatch.setattr(recipe, "fit_beside", every_other)
    model = copy.deepcopy(fitted).calibrate(*table(), cv=2)
    processes = [fold.predictor.beside for fold in model.calibration_.folds]
    assert calls == [40, 40] and [one is None for one in processes] == [False, some]
    assert all(one.members[PROCESS].process.nu == 4 + 40 for one in processes if one)
    assert model.calibration_.counts(joint=False).tolist() == [N, N] and model.calibration_.fit.scale.within > 0
    assert np.isfinite(model.predict_interval(NEW)).all()


def test_mixtures_of_one_size():
    parts = niw_of(12, members=5)
    members = mder.NIW(*map(jnp.asarray, parts))
    weights = np.log([0.1, 0.2, 0.3, 0.4])

    def of(count, log_weights=None):
        return mder.Mixture(jax.tree.map(lambda leaf: leaf[:count], members), log_weights)

    same = of(2), of(3)
    assert _of_one_size(same) == list(same)
    mixtures = of(2), of(4, weights), of(3)
    filled = _of_one_size(mixtures)
    assert [one.size for one in filled] == [4, 4, 4]
    for before, after, w in zip(mixtures, filled, (np.full(2, 0.5), np.exp(weights), np.full(3, 1 / 3)), strict=True):
        each = log_t(jax.tree.map(lambda leaf, w=w: leaf[: len(w)], parts), NEW_Y / 500)
        expected = special.logsumexp(each, axis=0, b=w[:, None])
        assert_allclose(after.log_prob(jnp.asarray(NEW_Y / 500)), expected, rtol=1e-9)
        assert_allclose(after.total(), before.total(), rtol=1e-9)
