"""The study of sample sizes: its statistics on made-up networks, and a tiny run."""

import dataclasses

import jax
import numpy as np
import pytest
from scipy import stats

from experiments.harness import storage
from experiments.harness.claims import FAILS, HOLDS, IN_PART, OPEN, by_id
from experiments.paper import circle_recipe, sample_size
from experiments.paper.sample_size import statistics
from tests.support.figures import line
from tests.support.studies import claims_and_figures

SIZES, DATA_SETS, MEMBERS, T = [50, 300, 30_000], 3, 2, len(circle_recipe.GRID)
CONFIG = sample_size.Config(sizes=(250, 350), data_sets=2, members=1, epochs=3, fresh=40)


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
    found["correlation"] = np.broadcast_to(circle_recipe.true_correlation(), (*shape, T))
    found |= {"diverged": np.zeros(shape, bool), "steps": [4500] * len(SIZES)}
    return {"sizes": SIZES, "t": circle_recipe.GRID, "budgets": {budget: found}}


def verdicts(results):
    return {name: claim.verdict for name, claim in by_id(sample_size.claims(results)).items()}


def test_all_claims_hold_for_networks_made_to_agree():
    found = verdicts(made_up())
    assert len(found) == 5 and set(found.values()) == {HOLDS}


@pytest.mark.parametrize(
    ("claim", "name", "change", "expected"),
    [
        ("gate", "nu", lambda nu: np.full_like(nu, 4.0), FAILS),  # the gate stays shut
        # shut away from the centre
        ("gate", "nu", lambda nu: np.where(circle_recipe.NEAR_CENTRE, 9.0, 0 * nu + 4.0), FAILS),
        ("over_fitting", "fresh", lambda fresh: np.full_like(fresh, -5.0), FAILS),  # no over-fitting with few data
        ("nu_and_error", "nu", lambda nu: nu[::-1], FAILS),  # ν falls with more data
        ("mean", "mean_error", lambda error: 10 * error, IN_PART),  # better, but not good
        ("mean", "mean_error", lambda error: np.full_like(error, 0.2), FAILS),
        ("correlation", "correlation", lambda rho: -rho, FAILS),
    ],
)
def test_a_claim_fails_where_the_networks_disagree(claim, name, change, expected):
    results = made_up()
    found = results["budgets"]["steps"]
    found[name] = change(found[name])
    assert verdicts(results)[f"sample_size.{claim}_steps"] == expected


def test_networks_that_differ_leave_the_gate_undecided():
    results = made_up()
    found = results["budgets"]["steps"]
    found["nu"] = np.array(found["nu"])
    found["nu"][:, 0] = 4.0  # one data set of three never opens
    assert verdicts(results)["sample_size.gate_steps"] == OPEN


def test_a_correlation_wrong_at_the_flips_only_is_stable():
    results = made_up()
    found = results["budgets"]["steps"]
    found["correlation"] = np.where(circle_recipe.near_sign_flips(), 0.0, found["correlation"])
    assert verdicts(results)["sample_size.correlation_steps"] == HOLDS
    values = statistics.by_data_set(found)
    assert np.all(values["wrong_away"] == 0) and np.all(values["wrong_flips"] == 1)


def test_outcome_is_the_mean_of_scipys_density_over_the_rows_that_count():
    data, size = circle_recipe.draw(seed=3, data_sets=2, points=30, fresh=20, keys=2), 12
    rng = np.random.default_rng(0)
    shapes = {"dense_0": (1, 32), "dense_1": (32, 32), "dense_2": (32, 6)}
    params = {
        layer: {"kernel": rng.uniform(-0.3, 0.3, (2, *shape)), "bias": rng.uniform(-0.3, 0.3, (2, shape[1]))}
        for layer, shape in shapes.items()
    }
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        own, fresh, niw = sample_size._outcome(params, np.array([1, 0]), np.int32(size), data)
    mine = [{name: values[0] for name, values in layer.items()} for layer in params.values()]
    assert np.isclose(own[0], nll(mine, data.t[1, :size], data.xy[1, :size]), rtol=1e-6)
    assert np.isclose(fresh[0], nll(mine, data.fresh_t, data.fresh_xy), rtol=1e-6)
    assert niw.nu.shape == (2, T)


def nll(layers, t, xy):
    """Forward pass and link of Sec. 4 in numpy, eq:modev by scipy."""
    hidden = t
    for layer in layers[:-1]:
        hidden = np.maximum(hidden @ layer["kernel"] + layer["bias"], 0)
    raw = hidden @ layers[-1]["kernel"] + layers[-1]["bias"]
    values = []
    for p, y in zip(raw, xy, strict=True):
        L, nu = np.array([[np.exp(p[2]), 0], [p[3], np.exp(p[4])]]), 8 + 5 * np.tanh(p[5])
        shape = (1 + nu) / nu * nu * L @ L.T / (nu - 1)
        values.append(-stats.multivariate_t(p[:2], shape, nu - 1).logpdf(y))
    return np.mean(values)


def test_padding_changes_nothing(results):
    """250 rows make three steps in an epoch, so that equal steps, there on padded rows, are equal epochs."""
    alone = dataclasses.replace(CONFIG, sizes=(250,))
    data = circle_recipe.draw(CONFIG.seed, 2, 350, 40, keys=2)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        epochs = sample_size.equal_epochs(alone, data)
    steps = results["budgets"]["steps"]
    assert steps["steps"] == [9, 9] and epochs["steps"] == [9]
    for name in ("train", "fresh", "nu", "mean_error", "correlation"):
        np.testing.assert_allclose(steps[name][0], epochs[name][0], rtol=1e-4, atol=1e-5)
        assert np.abs(steps[name][1] - epochs[name][0]).max() > 1e-4
    assert not steps["diverged"].any() and not epochs["diverged"].any()


def test_saved_results_can_be_told_and_drawn(results, tmp_path):
    both = results | {"budgets": dict.fromkeys(("steps", "epochs"), results["budgets"]["steps"])}
    storage.save(tmp_path, "sample_size", {"results": both})
    loaded = storage.load(tmp_path, "sample_size")["results"]
    text = sample_size.report(loaded)
    assert "equal steps" in text and "equal epochs" in text and "   350        9 " in text
    _, figures = claims_and_figures(sample_size, loaded)
    steps = results["budgets"]["steps"]
    nll, over_t = figures["over_n"].axes[1], figures["over_t"].axes[0]
    np.testing.assert_allclose(line(nll, "fresh data, equal epochs"), steps["fresh"].mean((1, 2)), rtol=1e-6)
    np.testing.assert_allclose(line(over_t, "350"), steps["nu"][1].mean((0, 1)), rtol=1e-6)


def test_data_are_distinct_points_at_their_angles_and_the_same_again():
    few, again = (circle_recipe.draw(seed=0, data_sets=2, points=10, fresh=5, keys=3) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(few, again, strict=True))
    assert few.t.shape == (2, 10, 1) and few.fresh_xy.shape == (5, 2) and few.keys.shape == (3, 2)
    assert len({float(t) for t in np.concatenate([few.t.ravel(), few.fresh_t.ravel()])}) == 25
    np.testing.assert_allclose(np.arctan2(few.xy[..., 1], few.xy[..., 0]) % (2 * np.pi), few.t[..., 0], rtol=1e-5)


def test_statistics_of_the_circle():
    L = np.array([[0.3, 0.0], [-0.4, 0.3]])
    sigma = L @ L.T
    assert np.isclose(circle_recipe.covariance(L), sigma[0, 1])
    assert np.isclose(circle_recipe.correlation(L), sigma[0, 1] / np.sqrt(sigma[0, 0] * sigma[1, 1]))
    np.testing.assert_array_equal(circle_recipe.true_correlation(np.array([0.3, 2.0, 4.0, 6.0])), [1, -1, 1, -1])
    np.testing.assert_allclose(circle_recipe.true_covariance(), 0.005 * np.sin(2 * circle_recipe.GRID), atol=1e-15)
    np.testing.assert_allclose(circle_recipe.nu_drop(np.where(circle_recipe.NEAR_CENTRE, 4.0, 9.0)[None]), [5.0])
    assert circle_recipe.error_of_mean(circle_recipe.true_mean()[None] + [0.3, 0.4]) == pytest.approx(0.5)
    assert [mask.mean().round(2) for mask in circle_recipe.QUADRANT_MIDDLES] == [0.15] * 4
    assert np.isclose(circle_recipe.NEAR_ENDS.mean(), 0.25, atol=0.01) and circle_recipe.near_sign_flips()[125]


def test_recipe_lowers_the_rate_after_each_third():
    optimizer = circle_recipe.optimizer(9)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        state, sizes = optimizer.init(np.zeros(1)), []
        for _ in range(9):
            update, state = optimizer.update(np.ones(1), state)
            sizes.append(float(-update[0]))
    np.testing.assert_allclose(sizes, np.repeat([1e-2, 1e-3, 1e-4], 3), rtol=1e-4)
