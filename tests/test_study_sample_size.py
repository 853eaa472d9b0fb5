"""The study of sample sizes: its statistics on made-up networks, and a tiny run."""

import jax
import numpy as np
import pytest
from scipy import stats

import mder_jax as mder
from experiments import _circle, _sample_size_claims, _store, sample_size
from experiments._claims import FAILS, HOLDS, IN_PART, OPEN

SIZES, DATA_SETS, MEMBERS, T = [50, 300, 30_000], 3, 2, len(_circle.GRID)
CONFIG = sample_size.Config(sizes=(250, 350), data_sets=2, members=1, epochs=3, budget="both", fresh=40)


@pytest.fixture(scope="module")
def results():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        return sample_size.run(CONFIG)


def made_up(budget="steps"):
    """Networks for which every claim of the paper is true."""
    shape = (len(SIZES), DATA_SETS, MEMBERS)
    by_size = {"nu": [4.0, 9.0, 12.9], "mean_error": [0.3, 0.1, 0.01], "train": [-5.0, -4.5, -4.4]}
    by_size |= {"fresh": [0.0, -4.0, -4.4]}
    found = {name: np.broadcast_to(np.reshape(value, (-1, 1, 1)), shape) for name, value in by_size.items()}
    for name in ("nu", "mean_error"):
        found[name] = np.repeat(found[name][..., None], T, axis=-1)
    found["correlation"] = np.broadcast_to(_circle.true_correlation(), (*shape, T))
    found |= {"diverged": np.zeros(shape, bool), "steps": [4500] * len(SIZES)}
    return {"sizes": SIZES, "t": _circle.GRID, "budgets": {budget: found}}


def verdicts(results):
    return [row.verdict for row in sample_size.claims(results)]


def test_all_claims_hold_for_networks_made_to_agree():
    assert verdicts(made_up()) == [HOLDS] * 5


@pytest.mark.parametrize(
    ("row", "name", "change", "expected"),
    [
        (0, "nu", lambda nu: np.full_like(nu, 4.0), FAILS),  # the gate stays shut
        (0, "nu", lambda nu: np.where(_circle.near_ends(), 4.0, nu + 0 * (nu < 9)), FAILS),  # shut at the ends
        (1, "fresh", lambda fresh: np.full_like(fresh, -4.4), FAILS),  # no over-fitting with few data
        (2, "nu", lambda nu: nu[::-1], FAILS),  # ν falls with more data
        (3, "mean_error", lambda error: 10 * error, IN_PART),  # better, but not good
        (3, "mean_error", lambda error: np.full_like(error, 0.2), FAILS),
        (4, "correlation", lambda rho: -rho, FAILS),
    ],
)
def test_a_claim_fails_where_the_networks_disagree(row, name, change, expected):
    results = made_up()
    found = results["budgets"]["steps"]
    found[name] = change(found[name])
    assert verdicts(results)[row] == expected


def test_networks_that_differ_leave_the_gate_undecided():
    results = made_up()
    found = results["budgets"]["steps"]
    found["nu"] = np.array(found["nu"])
    found["nu"][:, 0] = 4.0  # one data set of three never opens
    assert verdicts(results)[0] in (OPEN, IN_PART)


def test_a_correlation_wrong_at_the_flips_only_is_stable():
    results = made_up()
    found = results["budgets"]["steps"]
    found["correlation"] = np.where(_circle.near_sign_flips(), 0.0, found["correlation"])
    assert verdicts(results)[4] == HOLDS
    values = _sample_size_claims.statistics(found)
    assert np.all(values["wrong_away"] == 0) and np.all(values["wrong_flips"] == 1)


def test_outcome_is_the_mean_of_scipys_density_over_the_rows_that_count():
    data = _circle.draw(seed=3, data_sets=2, points=30, fresh=20, keys=2)
    network, size = _circle.network(), 12
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        params = jax.vmap(lambda key: network.init(key, data.t[0]))(jax.random.split(jax.random.key(0), 2))
        own, fresh, niw = sample_size._outcome(params, np.array([1, 0]), np.int32(size), data)
        mine = jax.tree.map(lambda leaf: leaf[0], params)
        seen, unseen = network.apply(mine, data.t[1, :size]), network.apply(mine, data.fresh_t)
    assert np.isclose(own[0], nll(seen, data.xy[1, :size]), rtol=1e-6)
    assert np.isclose(fresh[0], nll(unseen, data.fresh_xy), rtol=1e-6)
    assert niw.nu.shape == (2, T)


def nll(niw, y):
    t = mder.predictive(niw)
    scale = np.einsum("rij,rkj->rik", t.scale_tril, t.scale_tril)
    rows = zip(y, t.loc, scale, t.df, strict=True)
    return -np.mean([stats.multivariate_t(loc, shape, df).logpdf(row) for row, loc, shape, df in rows])


def test_padding_changes_nothing(results):
    """250 rows make three steps in an epoch, so equal steps, on padded rows, are equal epochs there, but not for 350."""
    steps, epochs = (results["budgets"][budget] for budget in ("steps", "epochs"))
    assert steps["steps"] == [9, 9] and epochs["steps"] == [9, 12]
    for name in ("train", "fresh", "nu", "mean_error", "correlation"):
        np.testing.assert_allclose(steps[name][0], epochs[name][0], rtol=1e-4, atol=1e-5)
        assert np.abs(steps[name][1] - epochs[name][1]).max() > 1e-3
    assert not steps["diverged"].any() and not epochs["diverged"].any()


def test_saved_results_can_be_told_and_drawn(results, tmp_path):
    _store.save(tmp_path, "sample_size", {"results": results})
    loaded = _store.load(tmp_path, "sample_size")["results"]
    text = sample_size.report(loaded)
    assert "equal steps" in text and "equal epochs" in text and "   350       12 " in text
    assert len(sample_size.claims(loaded)) == 10
    assert set(sample_size.plot(loaded)) == set(sample_size.CAPTIONS) == {"over_n", "over_t"}


def test_smaller_data_sets_are_parts_of_larger_and_networks_start_alike():
    few, many = (_circle.draw(seed=0, data_sets=2, points=10, fresh=fresh, keys=3) for fresh in (5, 5))
    assert all(np.array_equal(a, b) for a, b in zip(few, many, strict=True))
    assert few.t.shape == (2, 10, 1) and few.fresh_xy.shape == (5, 2) and few.keys.shape == (3, 2)
    assert len({float(t) for t in np.concatenate([few.t.ravel(), few.fresh_t.ravel()])}) == 25
    np.testing.assert_allclose(np.arctan2(few.xy[..., 1], few.xy[..., 0]) % (2 * np.pi), few.t[..., 0], rtol=1e-5)


def test_statistics_of_the_circle():
    L = np.array([[0.3, 0.0], [-0.4, 0.3]])
    sigma = L @ L.T
    assert np.isclose(_circle.covariance(L), sigma[0, 1])
    assert np.isclose(_circle.correlation(L), sigma[0, 1] / np.sqrt(sigma[0, 0] * sigma[1, 1]))
    t = np.array([0.3, 2.0, 4.0, 6.0])
    np.testing.assert_allclose(_circle.true_covariance(t), mder.datasets.circle_covariance(t)[:, 0, 1])
    np.testing.assert_array_equal(_circle.true_correlation(t), [1, -1, 1, -1])
    np.testing.assert_allclose(_circle.nu_drop(np.where(_circle.near_centre(), 4.0, 9.0)[None]), [5.0])
    assert _circle.error_of_mean(_circle.true_mean()[None] + [0.3, 0.4]) == pytest.approx(0.5)
    assert [mask.mean().round(2) for mask in _circle.quadrant_middles()] == [0.15] * 4
    assert np.isclose(_circle.near_ends().mean(), 0.25, atol=0.01) and _circle.near_sign_flips()[125]


def test_recipe_lowers_the_rate_after_each_third():
    optimizer = _circle.optimizer(9)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        state, sizes = optimizer.init(np.zeros(1)), []
        for _ in range(9):
            update, state = optimizer.update(np.ones(1), state)
            sizes.append(float(-update[0]))
    np.testing.assert_allclose(sizes, np.repeat(_circle.RATES, 3), rtol=1e-4)
