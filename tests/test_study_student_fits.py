"""The integrals of the study student_fits against scipy, closed forms and simulation."""

import numpy as np
import pytest
from scipy import integrate, special, stats

from experiments.harness import storage
from experiments.harness.claims import by_id
from experiments.paper import student_fits
from experiments.paper.student_fits import integrals
from experiments.paper.student_fits.statistics import PRINTED_SIGMA
from tests.support.figures import line
from tests.support.studies import claims_and_figures


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("student_fits")
    storage.save(folder, "student_fits", {"results": student_fits.run(student_fits.Config(trials=400))})
    return storage.load(folder, "student_fits")["results"]


def test_least_squares_gives_the_sigma_of_the_figure_and_each_criterion_its_own(results):
    fits = results["fits"]
    assert round(fits["least squares"], 2) == PRINTED_SIGMA
    x = np.linspace(-3, 3, 2001)
    grid = np.linspace(1.0, 1.2, 2001)
    on_grid = [np.sum((stats.t.pdf(x, 5, scale=s) - stats.t.pdf(x, 2)) ** 2) for s in grid]
    assert fits["least squares"] == pytest.approx(grid[np.argmin(on_grid)], abs=2e-4)
    # at the best σ the expected score E[∂ ln t_5(x)/∂σ] under t_2 is 0
    sigma = fits["likelihood on the whole line"]
    pull, _ = integrate.quad(lambda z: stats.t.pdf(z, 2) * 6 * z**2 / (5 * sigma**2 + z**2), -np.inf, np.inf)
    assert pull == pytest.approx(1, abs=1e-6)
    assert fits["likelihood"] < 1 < fits["likelihood, renormalised"] < fits["least squares"]


def test_a_t_is_nearest_to_itself():
    for name, loss in integrals.fit_losses(3.0, nu=5.0, truth=5.0).items():
        if name != "likelihood":  # without renormalisation it prefers more mass inside
            assert integrals.smallest(loss) == pytest.approx(1, abs=1e-5), name


@pytest.mark.parametrize("m, sigma", [(13.0, 1.0), (13.0, integrals.matched_scale(13.0)), (5.0, 1.2)])
def test_distances_from_a_normal_agree_with_quadrature_and_closed_forms(m, sigma):
    found = integrals.from_normal(m, 1, sigma)
    t, normal = stats.t(m), stats.norm(scale=sigma)
    kl = -t.entropy() + 0.5 * np.log(2 * np.pi * sigma**2) + t.var() / (2 * sigma**2)
    assert found["kl"] == pytest.approx(kl, rel=1e-6)
    variation, _ = integrate.quad(lambda x: abs(t.pdf(x) - normal.pdf(x)), 0, 60, limit=400)
    assert found["total_variation"] == pytest.approx(variation, abs=2e-6)
    x = np.linspace(-9, 9, 90_001)
    assert found["kolmogorov"] == pytest.approx(np.max(np.abs(t.cdf(x) - normal.cdf(x))), abs=1e-6)


def test_the_joint_distance_is_that_of_two_dimensional_densities():
    m, sigma = 12.0, integrals.matched_scale(12.0)
    x = np.linspace(-40, 40, 1601)
    grid = np.stack(np.meshgrid(x, x), axis=-1)
    p = stats.multivariate_t.pdf(grid, np.zeros(2), np.eye(2), m)
    q = stats.multivariate_normal.pdf(grid, np.zeros(2), sigma**2 * np.eye(2))
    assert integrals.from_normal(m, 2, sigma)["total_variation"] == pytest.approx(
        0.5 * np.sum(np.abs(p - q)) * (x[1] - x[0]) ** 2, rel=2e-3
    )


def test_the_best_test_has_power_one_half_at_the_size_found():
    m, sigma, trials = 6.0, integrals.matched_scale(6.0), 4000
    found = integrals.half_power(np.random.default_rng(1), m, 1, sigma, trials, most=150)
    assert found["low"] <= found["points"] <= found["high"] < 150
    rng = np.random.default_rng(2)

    def log_ratios(x):
        return np.sum(stats.t.logpdf(x, m) - stats.norm.logpdf(x, scale=sigma), axis=1)

    limit = np.quantile(log_ratios(sigma * rng.standard_normal((trials, found["points"]))), 0.95)
    power = np.mean(log_ratios(rng.standard_t(m, (trials, found["points"]))) > limit)
    assert power == pytest.approx(0.5, abs=5 * np.sqrt(2 / trials))


@pytest.mark.parametrize("nu", [2.0, 5.0, 13.0])
def test_fisher_information_is_the_closed_form_and_a_wide_core_sees_all_of_it(nu):
    trigamma = special.polygamma(1, [nu / 2, (nu + 1) / 2])
    nu_nu = 0.25 * (trigamma[0] - trigamma[1]) - (nu + 5) / (2 * nu * (nu + 1) * (nu + 3))
    nu_sigma, sigma_sigma = -2 / ((nu + 1) * (nu + 3)), 2 * nu / (nu + 3)
    whole = integrals.information(nu)
    np.testing.assert_allclose(whole, [[nu_nu, nu_sigma], [nu_sigma, sigma_sigma]], rtol=1e-5)
    assert integrals.correlation(whole) > 0
    inverse = np.linalg.inv(whole)
    assert integrals.correlation(whole) == pytest.approx(inverse[0, 1] / np.sqrt(inverse[0, 0] * inverse[1, 1]))
    assert integrals.error_of_nu(integrals.information(nu, 2.0)) > integrals.error_of_nu(whole)
    if nu > 2:
        for counted in (False, True):
            np.testing.assert_allclose(integrals.information(nu, 30.0, counted), whole, rtol=2e-2)


def test_the_cut_off_information_is_the_curvature_of_its_own_likelihood():
    nu, core, step = 4.0, 3.0, 1e-3
    x, weights = integrals.interval_nodes(core)
    p = stats.t.pdf(x, nu) / np.diff(stats.t.cdf([-core, core], nu))

    def mean_log(d_nu, d_sigma):
        shape = (nu + d_nu, 0, 1 + d_sigma)
        return weights @ (p * (stats.t.logpdf(x, *shape) - np.log(np.diff(stats.t.cdf([-core, core], *shape)))))

    mixed = (mean_log(step, step) - mean_log(step, -step) - mean_log(-step, step) + mean_log(-step, -step)) / (
        4 * step**2
    )
    own = (mean_log(0, step) - 2 * mean_log(0, 0) + mean_log(0, -step)) / step**2
    found = integrals.information(nu, core)
    assert found[0, 1] == pytest.approx(-mixed, rel=1e-3)
    assert found[1, 1] == pytest.approx(-own, rel=1e-3)


def test_claims_report_and_figures_come_from_saved_results(results):
    assert "1.0948" in student_fits.report(results)
    _, figures = claims_and_figures(student_fits, results)
    fitted = line(figures["dfit"].axes[0], "ν = 5, σ = 1.09:\nleast squares")
    expected = stats.t.pdf(np.linspace(-6, 6, 601), 5, scale=results["fits"]["least squares"])
    np.testing.assert_array_equal(fitted, expected)
    distance, draws = figures["normal"].axes
    for axes, label, name in (
        (distance, "total variation", "total_variation"),
        (draws, "Kolmogorov-Smirnov", "kolmogorov_points"),
    ):
        assert line(axes, label).tolist() == [row[name] for row in results["sweep"]]


def claim(results, name):
    return by_id(student_fits.claims(results))[f"student_fits.{name}"]


def test_verdicts_follow_the_numbers(results):
    changed = results | {"fits": results["fits"] | {"least squares": 1.2, "extended likelihood": 1.2}}
    assert claim(results, "fit").verdict == "holds"
    assert claim(changed, "fit").verdict == "does not hold"
    assert "[−2, 2]" in claim(results | {"core": 2.0}, "fit").claim
    many = [row | {"low": 1000} for row in results["best_test"]]
    assert claim(results, "normal").verdict == "holds in part"
    assert claim(results | {"best_test": many}, "normal").verdict == "holds"
