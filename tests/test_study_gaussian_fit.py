"""A tiny run of the study `gaussian_fit`, its numbers against scipy and closed forms."""

import jax
import numpy as np
import pytest
from scipy import stats

from experiments.harness import storage
from experiments.harness.claims import FAILS, HOLDS, by_id
from experiments.paper import gaussian_fit
from experiments.paper.gaussian_fit import statistics
from experiments.paper.gaussian_fit.statistics import GAP, GRID, IN_GAP
from tests.support.figures import line
from tests.support.studies import claims_and_figures


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    config = gaussian_fit.Config(members=3, points=16, epochs=300, stiff_penalty=10.0)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        found = gaussian_fit.run(config)
    folder = tmp_path_factory.mktemp("results")
    storage.save(folder, "gaussian_fit", {"results": found})
    return storage.load(folder, "gaussian_fit")["results"]


def perfect(noise=0.2, members=4):
    """Results of networks that know truth and noise."""
    phase = np.linspace(0, 1, members)[:, None]
    truth = np.broadcast_to(gaussian_fit.truth(GRID, phase), (3, members, len(GRID)))
    return {"noise": noise, "truth": truth[0], "mean": truth, "std": np.full(truth.shape, noise)}


def test_no_point_lies_in_the_gap_and_the_grid_knows_the_gap():
    x = gaussian_fit.draw_inputs(np.random.default_rng(0), 1000)
    assert not np.any((x > GAP[0]) & (x < GAP[1])) and x.min() >= 0 and x.max() <= 1
    assert np.all(np.diff(x) > 0) and GRID[IN_GAP].min() > GAP[0] and GRID[IN_GAP].max() < GAP[1]


def test_total_loss_is_scipys(results):
    density = stats.norm.logpdf(results["y"], results["mean_at_points"], results["std_at_points"])
    np.testing.assert_allclose(statistics.total_loss(results), -density.sum(-1), rtol=1e-10)


def test_networks_that_know_the_truth_have_the_entropy_as_loss_and_understate_nothing():
    known = perfect(noise=0.2)
    np.testing.assert_allclose(statistics.unseen_loss(known), stats.norm(scale=0.2).entropy())
    for ratio in (*(statistics.shortfall(known, where) for where in (IN_GAP, ~IN_GAP)), statistics.widening(known)):
        np.testing.assert_allclose(ratio, 1)


def test_expected_loss_of_new_data_is_the_mean_over_draws(results):
    rng, draws = np.random.default_rng(0), 4000
    y = results["truth"][0] + results["noise"] * rng.normal(size=(draws, len(GRID)))
    losses = -stats.norm.logpdf(y, results["mean"][0, 0], results["std"][0, 0])[:, ~IN_GAP].mean(1)
    error = losses.std() / np.sqrt(draws)
    assert abs(losses.mean() - statistics.unseen_loss(results)[0, 0]) < 4 * error


def test_a_network_without_weights_left_is_the_mean_and_the_std_of_the_data(results):
    mean, std = results["mean"][2], results["std"][2]
    np.testing.assert_allclose(mean, np.broadcast_to(results["y"].mean(1)[:, None], mean.shape), atol=0.03)
    np.testing.assert_allclose(std, np.broadcast_to(results["y"].std(1)[:, None], std.shape), rtol=0.05)


def test_less_penalty_means_less_loss_on_the_training_points(results):
    fit, over, under = statistics.total_loss(results)
    assert results["diverged"] == 0 and np.all(over < fit) and np.all(fit < under)


def test_claims_follow_from_the_numbers(results):
    arrays = ("mean", "std", "mean_at_points", "std_at_points")
    swapped = results | {name: results[name][[1, 0, 2]] for name in arrays}
    many = {name: np.repeat(results[name], 4, axis=1) for name in arrays}
    many = results | many | {name: np.repeat(results[name], 4, axis=0) for name in ("y", "truth")}
    wide = results | {"std": np.where(IN_GAP, 50.0, results["std"])}
    assert claim("smaller_loss", results).ours.startswith("smaller in 100%")
    assert claim("smaller_loss", many).verdict == HOLDS and claim("smaller_loss", swapped).verdict == FAILS
    assert claim("interpolation", wide).verdict == claim("understatement", wide).verdict == FAILS


def claim(name, results):
    """The claim of this short name."""
    return by_id(gaussian_fit.claims(results))[f"gaussian_fit.{name}"]


def test_figures_and_report(results):
    _, figures = claims_and_figures(gaussian_fit, results)
    for axes, mean in zip(figures["gap"].axes, results["mean"], strict=True):
        np.testing.assert_array_equal(line(axes, "μ"), mean[0])
    drawn = np.array([one.get_ydata() for one in figures["losses"].axes[0].lines])
    np.testing.assert_allclose(drawn, statistics.total_loss(results)[[1, 0, 2]].T / 16)  # over-fit, fit, under-fit
    assert "0 networks became non-finite" in gaussian_fit.report(results)
