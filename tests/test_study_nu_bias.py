"""The fits of the study nu_bias against scipy, and its numbers against asymptotic theory and the authors' notebook."""

import dataclasses

import jax
import numpy as np
import pytest
from scipy import optimize, stats

import mder_jax as mder
from experiments.harness import storage
from experiments.harness.claims import by_id
from experiments.paper import nu_bias
from experiments.paper.nu_bias import fits as fitting, statistics
from experiments.paper.nu_bias.claims import above
from experiments.paper.student_fits import integrals
from tests.support.figures import line
from tests.support.studies import claims_and_figures


@pytest.fixture(autouse=True, scope="module")
def relaxed():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


CONFIG = nu_bias.Config(sizes=(50, 100, 200, 2000), fits=200, large_fits=100)


@pytest.fixture(scope="module")
def results(relaxed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("nu_bias")
    storage.save(folder, "nu_bias", {"results": nu_bias.run(CONFIG)})
    return storage.load(folder, "nu_bias")["results"]


@pytest.fixture(scope="module")
def some(relaxed):
    """Samples whose sizes fill their last block or do not, n = 1 and 2, the last without tails, and their fits."""
    sizes, targets = np.array([40, 75, 60, 200, 30, 90, 80, 200, 310]), np.array([1] * 4 + [2] * 4 + [1])
    samples = fitting.draw(np.random.default_rng(3), np.full(9, 3.0), sizes, targets)
    samples.y[:, samples.fit == 8] = np.clip(samples.y[:, samples.fit == 8], -1.5, 1.5)
    found, gradient, _ = fitting.fit_all(samples, 1.0, 100.0)
    return samples, jax.tree.map(np.asarray, found), np.asarray(gradient)


def points(samples, fit):
    """The sample of one fit, (N, n)."""
    blocks = samples.fit == fit
    y = samples.y[:, blocks].reshape(2, -1)[: int(samples.targets[fit])]
    return y[:, samples.weights[blocks].ravel() == 1].T


def test_draws_have_the_sizes_asked_for_and_the_distribution_of_the_library(some):
    samples, _, _ = some
    assert [len(points(samples, fit)) for fit in range(8)] == [40, 75, 60, 200, 30, 90, 80, 200]
    assert points(samples, 0).shape == (40, 1) and points(samples, 4).shape == (30, 2)
    many = fitting.draw(np.random.default_rng(0), np.array([3.0, 6.0]), np.array([4000, 4000]), np.array([1, 2]))
    assert stats.kstest(points(many, 0)[:, 0], stats.t(3).cdf).pvalue > 1e-3
    squares = np.sum(points(many, 1) ** 2, axis=1)
    assert stats.kstest(squares / 2, stats.f(2, 6).cdf).pvalue > 1e-3


def test_the_likelihood_is_that_of_the_library_and_its_derivatives_are_right(some):
    samples, found, _ = some
    u = found.u * np.random.default_rng(0).uniform(0.8, 1.2, found.u.shape)
    free = np.where(samples.targets[:, None] == 1, [True, True, False, False], True)
    u = np.where(free, u, [0.0, 0.0, 0.0, 1.0])
    evaluate = jax.jit(lambda u: fitting.likelihood(u, samples))
    at = evaluate(u)
    for fit in range(9):
        n = int(samples.targets[fit])
        precision = np.array([[u[fit, 1], u[fit, 2]], [u[fit, 2], u[fit, 3]]])[:n, :n]
        shape = np.linalg.inv(precision)
        density = stats.multivariate_t.logpdf(points(samples, fit), np.zeros(n), shape, 1 / u[fit, 0])
        assert at.value[fit] == pytest.approx(-np.mean(density), rel=1e-10)
    library = mder.StudentT(1 / u[8, 0], np.zeros(1), np.full((1, 1), u[8, 1] ** -0.5))
    assert at.value[8] == pytest.approx(-np.mean(np.asarray(library.log_prob(points(samples, 8)))), rel=1e-10)
    for entry, step in enumerate(1e-5 * np.eye(4)):
        ahead, behind = evaluate(u + step), evaluate(u - step)
        rows, both = free[:, entry], free[:, [entry]] & free
        slope, curvature = ((a - b) / 2e-5 for a, b in zip(ahead[1:3], behind[1:3], strict=True))
        np.testing.assert_allclose(at.gradient[rows, entry], slope[rows], rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(at.hessian[:, entry][both], curvature[both], rtol=1e-5, atol=1e-5)


def test_fits_of_one_target_are_those_of_scipy(some):
    samples, found, gradient = some
    assert np.all(gradient < fitting.TOLERANCE)
    for fit in range(4):
        nu, _, sigma = stats.t.fit(points(samples, fit)[:, 0], floc=0)
        assert nu < 100
        assert 1 / found.u[fit, 0] == pytest.approx(nu, rel=2e-3)
        assert found.u[fit, 1] ** -0.5 == pytest.approx(sigma, rel=1e-3)


def test_fits_of_two_targets_are_those_of_scipy(some):
    samples, found, _ = some

    def loss(v, y):
        L = np.array([[np.exp(v[1]), 0], [v[2], np.exp(v[3])]])
        return -np.mean(stats.multivariate_t.logpdf(y, np.zeros(2), L @ L.T, np.exp(v[0])))

    for fit in range(4, 8):
        y = points(samples, fit)
        best = optimize.minimize(loss, np.zeros(4), (y,), "L-BFGS-B", bounds=[(0, np.log(100))] + [(None, None)] * 3)
        assert found.value[fit] == pytest.approx(best.fun, abs=1e-7)
        assert 1 / found.u[fit, 0] == pytest.approx(np.exp(best.x[0]), rel=5e-3)


def test_a_sample_without_tails_ends_at_the_bound_with_the_scale_that_is_best_there(some):
    samples, found, _ = some
    y = points(samples, 8)[:, 0]
    assert found.u[8, 0] == 1 / 100
    best = optimize.minimize_scalar(
        lambda s: -np.sum(stats.t.logpdf(y, 100, scale=s)), bounds=(0.1, 3), method="bounded"
    )
    assert found.u[8, 1] ** -0.5 == pytest.approx(best.x, rel=1e-5)


def test_the_rule_of_minuit():
    value, error = np.array([5.0, 5.0, 9.9, 6.5, 11.0]), np.array([2.0, 20.0, 1.0, 7.155, 0.1])
    # at 5, dt = 4: the way up counts as 10, the way down is 5 |sin 4|, and 5 is more than half of e = 6.9;
    # at 6.5, dt = 1.5: e = ½ (10 + 6.5 − 5 (1 + sin(0.305 − 1.5))) = 8.1, and 3.5 is less than half of it
    np.testing.assert_array_equal(nu_bias.off_limit(value, error, 10.0), [True, True, False, False, False])


def test_spread_of_large_samples_is_that_of_the_fisher_information(results):
    expected = integrals.error_of_nu(integrals.information(5.0)) / np.sqrt(2000)
    group = statistics.pick(results, 2000)
    low, high = np.quantile(group["nu"], [0.16, 0.84])
    assert (high - low) / 2 == pytest.approx(expected, rel=4 * 0.1)
    assert np.median(group["nu_residual"]) == pytest.approx(0, abs=4 * 1.25 * expected / np.sqrt(100))
    assert results["fits"]["converged"].all() and not group["at_bound"].any()


def test_shares_and_ranges_of_kept_fits_are_those_of_the_notebook(results):
    for size in (50, 100, 200):
        count = statistics.PRINTED[size][0]
        kept = int(np.sum(statistics.pick(results, size)["kept"]))
        assert abs(kept - count) < 4 * np.sqrt(2 * 200 * 0.25)
    scores = np.concatenate(list(statistics.printed_scores(results).values()))
    assert np.max(np.abs(scores)) < 5


def test_selection_turns_the_bias_of_small_samples_around(results):
    group = statistics.pick(results, 50)
    assert np.median(group["nu_residual"]) > 0 > np.median(group["nu_residual"][group["kept"]])
    assert group["nu"][group["kept"]].max() < statistics.LIMITS[0]
    assert by_id(nu_bias.claims(results))["nu_bias.selection"].verdict == "does not hold"


def test_runs_repeat_with_their_seed_and_differ_without(results):
    again, other = (nu_bias.run(dataclasses.replace(CONFIG, seed=seed))["fits"]["nu"] for seed in (0, 1))
    np.testing.assert_array_equal(results["fits"]["nu"], again)
    assert not np.array_equal(other, again)


def test_verdicts_follow_the_numbers():
    assert above((0.5, 0.1, 0.9)) == "holds"
    assert above((0.5, -0.1, 0.9)) == "cannot be decided"
    assert above((0.7, 0.6, 0.8), 1.0) == "does not hold"
    assert above(statistics.compared(np.array([]), np.ones(3), statistics.fall_of_bias)) == "cannot be decided"
    small, large = np.full(30, -2.0), np.full(30, 0.5)
    assert statistics.compared(small, large, statistics.fall_of_bias) == (1.5, 1.5, 1.5)


def test_claims_report_and_figures_come_from_saved_results(results):
    _, figures = claims_and_figures(nu_bias, results)
    assert "5 2  2000" in nu_bias.report(results)
    groups = [statistics.pick(results, size) for size in CONFIG.sizes]
    (selection,) = figures["selection"].axes
    kept = [100 * np.mean(group["kept"]) for group in groups]
    np.testing.assert_allclose(line(selection, "kept by the notebook's rule"), kept)
    _, widths = figures["multivariate"].axes
    np.testing.assert_allclose(
        line(widths, "n = 1"), [np.diff(np.quantile(group["nu"], [0.16, 0.84]))[0] / 5 * 100 for group in groups]
    )
