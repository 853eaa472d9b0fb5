"""The study of the closed forms: its formulas against scipy, its numbers, and that it would notice an error."""

import argparse

import jax
import numpy as np
import pytest
from scipy import stats

import mder_jax as mder
from experiments.harness import command_options, storage
from experiments.harness.claims import FAILS, HOLDS, IN_PART, by_id
from experiments.paper import brute_force, evidence, printed_formulas as paper
from experiments.paper.evidence import checks
from experiments.paper.printed_formulas import Prior
from tests.support.figures import line
from tests.support.studies import claims_and_figures


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evidence")
    found = evidence.run(evidence.Config(draws=20_000, points=30, cases=50))
    storage.save(folder, "evidence", {"results": found})
    return storage.load(folder, "evidence")["results"]


@pytest.fixture(params=[1, 2, 3])
def cases(request):
    return brute_force.make_cases(np.random.default_rng(request.param), request.param, 20)


def test_printed_densities_are_those_of_scipy(cases):
    (mu0, Psi, kappa, nu), y, mu, Sigma = cases.prior, cases.y, cases.mu, cases.Sigma
    n = y.shape[-1]
    for i in range(5):
        normal = stats.multivariate_normal(mu[i], Sigma[i]).logpdf(y[i])
        wishart = stats.invwishart(nu[i], Psi[i]).logpdf(Sigma[i])
        student = stats.multivariate_t(mu0[i], Psi[i], nu[i]).logpdf(y[i])
        np.testing.assert_allclose(paper.log_normal(y, mu, Sigma)[i], normal, rtol=1e-10)
        np.testing.assert_allclose(paper.log_inverse_wishart(Sigma, Psi, nu)[i], wishart, rtol=1e-10)
        np.testing.assert_allclose(paper.log_t(y, nu, mu0, Psi)[i], student, rtol=1e-10)
        predictive = stats.multivariate_t(mu0[i], (1 + kappa[i]) / kappa[i] / (nu[i] - n + 1) * Psi[i], nu[i] - n + 1)
        np.testing.assert_allclose(paper.minus_nll(cases.prior, y)[i], predictive.logpdf(y[i]), rtol=1e-10)


def test_library_sums_up_observations_as_the_study_does(cases):
    found = brute_force.posterior(cases, np.random.default_rng(0))
    prior = Prior(*found["prior"])
    after = jax.jit(mder.posterior)(mder.NIW(prior.mu, cases.L[0], prior.kappa, prior.nu), found["Y"])
    expected = Prior(*found["sequential"])
    for ours, theirs in zip((after.mu, after.nu * after.L @ after.L.T, after.kappa), expected, strict=False):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10)
    assert float(after.nu) == expected.nu == prior.nu + brute_force.OBSERVATIONS


def test_draws_by_definition_are_those_of_scipy():
    prior = Prior(np.zeros(2), np.array([[2.0, 0.5], [0.5, 1.0]]), np.array(4.0), np.array(9.0))
    mu, Sigma = checks.draws_of(np.random.default_rng(0), prior, 4000)
    others = stats.invwishart(9, prior.Psi).rvs(4000, random_state=1)
    for i, j in ((0, 0), (1, 0), (1, 1)):
        assert stats.ks_2samp(Sigma[:, i, j], others[:, i, j]).pvalue > 1e-3
    scaled = np.linalg.solve(np.linalg.cholesky(Sigma), mu[..., None])[..., 0] * 2
    assert stats.kstest(scaled.ravel(), "norm").pvalue > 1e-3


def test_numbers_agree(results):
    assert [row["n"] for row in results["monte_carlo"]] == [1, 2, 3]
    assert all(abs(row["deviation"]) < 4 for row in results["monte_carlo"])
    assert max(value for row in results["identities"] for value in row.values()) < 1e-10
    assert max(value for row in results["forms"] for value in row.values()) < 1e-10
    assert results["quadrature"]["evidence"] < 1e-12 and results["quadrature"]["cases"] == 10
    assert all(row["over_m"]["spread"] < 1e-9 < 1 < row["over_n"]["spread"] for row in results["posterior"])
    assert max(point["stable"] for point in results["error_over_nu"]) < 1e-5
    assert results["error_over_nu"][-1]["slogdet"] > 1 and results["from_gaussian"] < 1e-5


def test_errors_would_be_noticed(cases):
    n = cases.y.shape[-1]
    exact = paper.predictive(cases.prior, cases.y)
    assert checks.same_evidence(cases, exact + 1e-3)["library"] > 1e-4
    if n == 1:
        assert checks.quadrature(cases, exact + 1e-3)["evidence"] > 1e-4
    closed = {"evidence": exact + 0.1}
    closed |= {name: 1.1 * np.ones((len(exact), n, n)) for name in ("aleatoric", "epistemic")}
    found = checks.monte_carlo(np.random.default_rng(0), cases, closed, 20_000)
    assert abs(found["deviation"]) > 4 and max(map(abs, found["moments"]["epistemic"])) > 4


def test_rows_figures_and_text_follow_from_saved_results(results):
    claims, figures = claims_and_figures(evidence, results)
    verdicts = {name: claim.verdict for name, claim in claims.items()}
    assert list(verdicts.values()).count(HOLDS) == 8
    assert verdicts["evidence.averages"] == FAILS and verdicts["evidence.large_nu"] == IN_PART
    for axes, errors in zip(figures["float32"].axes, ("error_over_nu", "error_over_scale"), strict=True):
        assert line(axes, "stable form").tolist() == [point["stable"] for point in results[errors]]
        assert line(axes, "as printed (eq:nll)").tolist() == [point["slogdet"] for point in results[errors]]
    assert "n = 3" in evidence.report(results)
    spoilt = results | {"univariate": 1e-3, "quadrature": results["quadrature"] | {"evidence": 1e-3}}
    failing = {name for name, claim in by_id(evidence.claims(spoilt)).items() if claim.verdict == FAILS}
    assert failing == {"evidence.averages", "evidence.quadrature", "evidence.univariate"}


def test_values_too_small_are_refused():
    parser = argparse.ArgumentParser(exit_on_error=False)
    command_options.add_options(parser, evidence.Config)
    for arguments in (["--points", "0"], ["--draws", "1"], ["--cases", "0"]):
        with pytest.raises(argparse.ArgumentError, match="or more"):
            parser.parse_args(arguments)


def test_smallest_values_run():
    found = evidence.run(evidence.Config(draws=100, points=1, cases=1))
    assert np.isfinite(found["error_over_nu"][0]["stable"]) and len(evidence.claims(found)) == 10
