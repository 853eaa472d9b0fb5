"""The study of the degeneration: manifold, Hessians and measures against closed forms and the library, and training."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import mder_jax as mder
from experiments.harness import storage
from experiments.harness.claims import FAILS, HOLDS, IN_PART, by_id
from experiments.paper import degeneration
from experiments.paper.degeneration import manifold, training
from experiments.paper.degeneration.manifold import DF, FACTOR, WIDTH
from experiments.paper.degeneration.statistics import DEFINITIONS, null_counts
from tests.support.figures import line
from tests.support.studies import claims_and_figures

KAPPA = np.array([1e-3, 0.7, 50.0])
TINY = {"grid": 9, "hessians": 3, "examples": 50, "members": 3, "epochs": 60, "points": 20, "records": 4}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("degeneration")
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        found = degeneration.run(degeneration.Config(lambdas=(0.1, 1.0), **TINY))
    storage.save(folder, "degeneration", {"results": found})
    return storage.load(folder, "degeneration")["results"]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_points_lie_on_the_manifold_and_tangents_along_it(n):
    niw = manifold.prior(manifold.points(n, KAPPA), n)
    expected = np.broadcast_to(2 * WIDTH * FACTOR[:n, :n] @ FACTOR[:n, :n].T, (3, n, n))
    np.testing.assert_allclose(((1 + KAPPA) / KAPPA)[:, None, None] * niw.Psi, expected, rtol=1e-12)
    steps = manifold.points(n, KAPPA * np.exp(1e-6)) - manifold.points(n, KAPPA * np.exp(-1e-6))
    np.testing.assert_allclose(manifold.tangents(n, KAPPA), steps / 2e-6, atol=1e-8)


def test_hessian_has_the_known_information_of_a_t():
    y, weights = manifold.nodes(1)
    found = manifold.hessian(lambda rows: manifold.nll(rows, y) @ weights, manifold.points(1, KAPPA))
    location = (DF + 1) / (DF + 3) / (2 * WIDTH / DF)
    log_scale = 2 * DF / (DF + 3)
    np.testing.assert_allclose(found[:, 0, 0], location, rtol=1e-9)
    np.testing.assert_allclose(found[:, 1, 1], log_scale, rtol=1e-9)
    np.testing.assert_allclose(found[:, 1, 2], -log_scale / 2 / (1 + KAPPA), atol=1e-9)


def test_hessian_is_that_of_the_library():
    y, weights = manifold.nodes(2)
    theta = manifold.points(2, KAPPA[1:2])

    def nll(row):
        kappa, nu = jnp.exp(row[5]), jnp.exp(row[6])
        root = jnp.exp(row[2:4])[:, None] * jnp.array([[1.0, 0.0], [0.0, 1.0]]).at[1, 0].set(row[4])
        niw = mder.NIW(row[:2], root / jnp.sqrt(nu), kappa, nu)
        return -jnp.sum(weights * mder.log_evidence(niw, y))

    ours = manifold.hessian(lambda rows: manifold.nll(rows, y) @ weights, theta)[0]
    with jax.numpy_rank_promotion("allow"):
        np.testing.assert_allclose(ours, jax.jit(jax.hessian(nll))(theta[0]), atol=1e-9)


def test_only_the_likelihood_alone_has_a_null_direction():
    y, weights = manifold.nodes(1)
    theta = manifold.points(1, KAPPA)

    def regularised(rows):
        return manifold.nll(rows, y) @ weights + 0.1 * np.exp(rows[..., -2])

    assert null_counts(manifold.examine(1, KAPPA, 3)["eigenvalues"]) == [1]
    found = np.linalg.eigvalsh(manifold.hessian(regularised, theta))
    assert null_counts(found / np.abs(found).max(axis=1, keepdims=True)) == [0]


@pytest.mark.parametrize("n", [1, 2])
def test_measures_are_the_librarys(n):
    theta = manifold.points(n, KAPPA)
    niw = manifold.prior(theta, n)
    found = manifold.measures(niw)
    L = np.linalg.cholesky(niw.Psi / niw.nu[:, None, None])

    @jax.jit
    def library(ours):
        t = mder.predictive(ours)
        return {"entropy": t.entropy(), "log_peak": t.log_prob(ours.mu), "information": mder.mutual_information(ours)}

    for name, expected in library(mder.NIW(niw.mu, L, niw.kappa, niw.nu)).items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-10)


def test_divergences_are_integrals():
    found = manifold.divergences(np.array([5.0]), np.array([1.2]))
    p, q = stats.t(5, 0, np.sqrt(1.2)), stats.t(3, 0.5, 1)
    kl = integrate.quad(lambda y: p.pdf(y) * (p.logpdf(y) - q.logpdf(y)), -200, 200, limit=500, points=[0])[0]
    variation = integrate.quad(lambda y: abs(p.pdf(y) - q.pdf(y)) / 2, -200, 200, limit=500, points=[0])[0]
    np.testing.assert_allclose(found["KL(t, reference)"], kl, atol=1e-7)
    np.testing.assert_allclose(found["total variation"], variation, atol=1e-4)
    same = manifold.divergences(np.array([3.0]), np.array([1.0]))
    assert same["squared Hellinger"] > 1e-3  # the reference is shifted


def test_loss_along_the_manifold_is_aminis(results):
    kappa, loss = results["kappa"], results["loss"]
    y = np.sqrt(2 * WIDTH / DF) * np.random.default_rng(0).standard_t(DF, 50)
    np.testing.assert_allclose(loss["amini2020"], np.abs(y).mean() * (2 * kappa + DF / 2), rtol=1e-12)
    np.testing.assert_allclose(loss["meinert2021"], np.abs(y).mean() * (kappa + DF), rtol=1e-12)
    nll = -stats.t(DF, 0, np.sqrt(2 * WIDTH / DF)).logpdf(y).mean()
    np.testing.assert_allclose(loss["nll"], nll, rtol=1e-12)
    np.testing.assert_allclose(loss["epistemic"], WIDTH / (1 + kappa) / (DF / 2 - 1), rtol=1e-12)


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_members_train_with_aminis_loss(definition):
    nig, y = mder.NIG(jnp.zeros(3), jnp.ones(3), 2 * jnp.ones(3), jnp.ones(3)), jnp.arange(3.0)
    found = training._loss(0.3, jnp.asarray(definition == "amini2020"))(nig, y)
    np.testing.assert_allclose(found, mder.der_loss(nig, y, 0.3, definition))
    np.testing.assert_allclose(training._nll(nig, np.arange(3.0)), -mder.nig.log_evidence(nig, y).mean())


def test_training_records_kappa_for_every_network(results):
    found = results["training"]
    assert found["kappa"].shape == (5, 3, 4) and list(found["epoch"]) == [15, 30, 45, 60]
    assert [group["lambda"] for group in found["groups"]] == [0.0, 0.1, 1.0, 0.1, 1.0]
    assert found["diverged"] == 0 and np.all(found["nll"] < 3)
    strong = found["kappa"][[2, 4], :, -1]
    assert np.all(strong < found["kappa"][0, :, -1])  # same starts, with λ = 1 and without
    assert np.all(np.diff(found["kappa"][0, :, 0]) > 0)  # members start in order of κ


def test_float32_is_right_far_beyond_the_least_kappa_of_the_link(results):
    assert results["float32"]["least_kappa"] < 1e-12 and results["float32"]["error"] < 1e-4


def test_rows_figures_and_text_follow_from_saved_results(results):
    claims, figures = claims_and_figures(degeneration, results)
    assert claims["degeneration.in_practice"].verdict == IN_PART
    exact = [claim for claim in claims.values() if claim.paper]
    assert len(exact) == 6 and all(claim.verdict == HOLDS for claim in exact)
    loss, eigenvalues = figures["manifold"].axes
    np.testing.assert_array_equal(line(loss, "λ = 0.1, Φ = 2κ + α"), 0.1 * results["loss"]["amini2020"])
    coupled = [np.abs(row["coupled_eigenvalues"][:, 0]) for row in results["targets"] if row["n"] == 1]
    np.testing.assert_array_equal(line(eigenvalues, "n = 1, ν = rκ"), *coupled)
    over_epochs, _ = figures["training"].axes
    np.testing.assert_array_equal(line(over_epochs, "λ = 1"), np.median(results["training"]["kappa"][2], axis=0))
    assert "null [1], with nu = r kappa [0]" in degeneration.report(results)


def test_verdicts_follow_from_numbers(results):
    targets = [row | {"nll_deviation": 1e-3, "eigenvalues": row["coupled_eigenvalues"]} for row in results["targets"]]
    growing = results["training"] | {"kappa": 1 / results["training"]["kappa"]}
    flat = results["loss"] | {"amini2020": 0 * results["loss"]["nll"]}
    spoilt = results | {"targets": targets, "training": growing, "loss": flat}
    verdicts = {name: claim.verdict for name, claim in by_id(degeneration.claims(spoilt)).items()}
    assert all(verdicts[f"degeneration.{name}"] == FAILS for name in ("constant", "one_null", "falls"))
    assert sum(verdict == HOLDS for verdict in verdicts.values()) < 8
