"""The circle study: statistics on networks that are right or wrong by construction, and a tiny run."""

import jax
import numpy as np
import pytest

import mder_jax as mder
from experiments.harness import storage
from experiments.harness.claims import by_id
from experiments.paper import circle, circle_recipe
from experiments.paper.circle_recipe import GRID
from tests.support.figures import line
from tests.support.studies import claims_and_figures


def made(members=40, drop=5.0, wrong=0.0, seed=0):
    """Results as of networks that know the truth, whose ν falls by `drop` towards the centre of t."""
    rng = np.random.default_rng(seed)
    centre = np.exp(-(((GRID - np.pi) / 0.8) ** 2))
    nu = 12 - (drop + 0.3 * rng.normal(size=(1, members, 1))) * centre
    mu = circle_recipe.true_mean() + 0.01 * rng.normal(size=(1, members, 500, 2))
    angle = GRID + wrong * np.pi / 2 + (0.6 * centre + 0.01) * rng.normal(size=(1, members, 1))
    L = np.zeros((1, members, 500, 2, 2))
    L[..., 0, 0], L[..., 1, 0], L[..., 1, 1] = 0.1 * np.abs(np.cos(angle)), 0.1 * np.sign(np.cos(angle)), 1e-3
    L[..., 1, 0] *= np.sin(angle)
    fields = {"mu": mu, "L": L, "nu": nu, "loss": np.full((1, members), -4.51) + 0.01 * rng.normal(size=(1, members))}
    reading = {**fields, "diverged": np.zeros((1, members), bool)}
    t, xy = mder.datasets.circle(jax.random.key(0), 30)
    return {
        "t": np.asarray(t).T,
        "xy": np.asarray(xy)[None],
        "readings": {"split": reading},
        "seconds_of_training": 1.0,
    }


def verdicts(results):
    return {name: claim.verdict for name, claim in by_id(circle.claims(results)).items()}


def test_networks_that_know_the_truth_pass():
    found = verdicts(made())
    assert found["circle.nu_falls"] == "holds"
    assert found["circle.not_all_networks"] == "does not hold"
    assert found["circle.correlation_dense"] == "holds"
    assert found["circle.sign_flips"] == "holds"
    assert found["circle.authors_loss"] == "holds"


def test_networks_that_are_wrong_fail():
    found = verdicts(made(drop=-5.0, wrong=1.0))
    assert found["circle.nu_falls"] == "does not hold"
    assert found["circle.epistemic_at_centre"] == "does not hold"
    assert found["circle.correlation_dense"] == "does not hold"
    assert found["circle.authors_correlation"] == "does not hold"


@pytest.fixture(scope="module")
def tiny():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        return circle.run(circle.Config(members=3, members_all=2, points=20, epochs=4, batch=20, data_sets=2))


def test_the_first_reading_trains_on_nine_tenths(tiny):
    """Full batches, so the first member must do as one trained on the first 18 rows alone."""
    _, train_key = jax.random.split(jax.random.key(42))
    X, Y = tiny["t"][0][:18, None], tiny["xy"][0][:18]
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        alone = mder.fit_ensemble(
            jax.random.split(train_key, 10)[:1],
            circle_recipe.network(),
            circle_recipe.loss,
            X,
            Y,
            optimizer=circle_recipe.optimizer(4),
            epochs=4,
            progress=False,
        )
    assert tiny["readings"]["split"]["loss"][0, 0] == pytest.approx(alone.history.train[0, -1], rel=1e-5)
    assert tiny["readings"]["all"]["loss"][0, 0] != pytest.approx(alone.history.train[0, -1], rel=1e-5)


def test_results_can_be_saved_drawn_and_told(tiny, tmp_path):
    storage.save(tmp_path, "circle", {"results": tiny})
    results = storage.load(tmp_path, "circle")["results"]
    assert results["readings"]["all"]["nu"].shape == (2, 2, 500)
    assert "0 non-finite" in circle.report(results)
    _, figures = claims_and_figures(circle, results)
    for axes, reading in zip(figures["nu"].axes, results["readings"].values(), strict=True):
        np.testing.assert_array_equal(line(axes, "median"), np.median(reading["nu"][0], axis=0))
    covariance, correlation = figures["covcorr"].axes
    median = np.median(circle_recipe.covariance(results["readings"]["split"]["L"][0]), axis=0)
    np.testing.assert_array_equal(line(covariance, "median"), median)
    np.testing.assert_array_equal(line(correlation, "J cov Jᵀ"), circle_recipe.true_correlation())
