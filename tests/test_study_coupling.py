"""The study of the coupling: closed forms, and a tiny run."""

import copy

import jax
import numpy as np
import pytest
from scipy import stats

import mder_jax as mder
from experiments.harness import storage
from experiments.harness.claims import FAILS, HOLDS, by_id
from experiments.paper import circle_recipe, coupling
from experiments.paper.coupling.statistics import matching_r
from tests.support.figures import line
from tests.support.studies import claims_and_figures

CONFIG = coupling.Config(r=(0.5, 1.0, 20.0), members=2, epochs=3, points=60, fresh=50)


@pytest.fixture(scope="module")
def results():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        return coupling.run(CONFIG)


def example(rng, *batch):
    L = np.tril(rng.normal(size=(*batch, 2, 2)), -1) + np.eye(2) * rng.uniform(0.5, 2, (*batch, 1, 2))
    return mder.NIW(rng.normal(size=(*batch, 2)), L, rng.uniform(0.1, 20, batch), rng.uniform(3.1, 13, batch))


@pytest.mark.parametrize("r", [0.1, 1.0, 100.0])
def test_another_coupling_has_the_same_density_at_every_point(r):
    niw = example(np.random.default_rng(0), 5)
    other = coupling.recoupled(niw, r)
    np.testing.assert_allclose(other.nu, r * other.kappa)
    before, after = mder.predictive(niw), mder.predictive(other)
    np.testing.assert_allclose(after.scale_tril, before.scale_tril, rtol=1e-12)
    np.testing.assert_allclose(after.df, before.df)


def test_evidence_is_scipys_and_the_error_of_the_identity_is_rounding():
    rng = np.random.default_rng(1)
    niw, y = example(rng, 2, 3), rng.normal(size=(3, 2))
    nll, error = coupling.evidence(niw, y)
    t = mder.predictive(niw)
    shape = np.asarray(t.scale_tril[1, 2]) @ np.asarray(t.scale_tril[1, 2]).T
    assert np.isclose(nll[1, 2], -stats.multivariate_t(t.loc[1, 2], shape, float(t.df[1, 2])).logpdf(y[2]))
    assert 0 <= error < 1e-12


def test_evidence_notices_a_wrong_rescaling(monkeypatch):
    monkeypatch.setattr(coupling, "recoupled", lambda niw, r: mder.couple(niw.mu, niw.L, niw.nu, r))
    rng = np.random.default_rng(1)
    assert coupling.evidence(example(rng, 2, 3), rng.normal(size=(3, 2)))[1] > 1e-2


def test_uncertainties_on_the_grid_are_those_of_the_library():
    niw = example(np.random.default_rng(2), 2, len(circle_recipe.GRID))
    found, u = coupling.on_grid(niw), circle_recipe.true_mean()
    for name, covariance in (("aleatoric", mder.aleatoric(niw)), ("epistemic", mder.epistemic(niw))):
        np.testing.assert_allclose(found[name] ** 2, np.einsum("ti,mtij,tj->mt", u, covariance, u))
    total = np.einsum("ti,mtij,tj->mt", u, mder.predictive(niw).covariance(), u)
    np.testing.assert_allclose(found["total"] ** 2, total)
    np.testing.assert_allclose(found["error"], np.einsum("mti,ti->mt", niw.mu, u) - 1)


def test_network_couples_kappa_or_leaves_it_to_the_seventh_output():
    x = np.linspace(0, 6, 5)[:, None]
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        settings = [{"r": 4.0, "free": False, "shift": 0.0}, {"r": 4.0, "free": True, "shift": 8.0}]
        coupled, free = (coupling.network(setting) for setting in settings)
        params = coupled.init(jax.random.key(0), x)
        tied = coupled.apply(params, x)
        loose = free.apply(params, x)
        moved = jax.tree.map(lambda leaf: leaf, params)
        last = max(moved)
        moved[last]["bias"] = moved[last]["bias"].at[6].add(2.0)
        again, still = free.apply(moved, x), coupled.apply(moved, x)
    np.testing.assert_allclose(tied.nu, 4 * tied.kappa)
    np.testing.assert_allclose(loose.kappa, 8, atol=1.5)
    np.testing.assert_allclose(again.kappa - loose.kappa, 2, atol=0.01)
    np.testing.assert_array_equal(still.kappa, tied.kappa)
    np.testing.assert_array_equal(loose.L, tied.L)


def test_the_matching_r_has_a_closed_form_for_constant_nu():
    total, nu = np.full(7, 0.2), np.full(7, 9.0)
    assert np.isclose(matching_r(total, nu, 0.1, "aleatoric"), 9 * (4 - 1), rtol=1e-3)
    assert np.isclose(matching_r(total, nu, 0.1, "epistemic"), 9 / (4 - 1), rtol=1e-3)
    assert np.isnan(matching_r(total, nu, 0.3, "aleatoric"))


def test_matching_r_agrees_with_a_recoupled_niw():
    niw = example(np.random.default_rng(3), 1, len(circle_recipe.GRID))
    before = coupling.on_grid(niw)
    wanted = 0.7 * float(np.median(before["total"]))
    r = matching_r(before["total"][0], before["nu"][0], wanted, "aleatoric")
    after = coupling.on_grid(coupling.recoupled(niw, r))
    assert np.isclose(np.median(after["aleatoric"]), wanted, rtol=1e-3)
    np.testing.assert_allclose(after["total"], before["total"])


def test_tiny_run_couples_what_it_says(results):
    couplings = np.array(CONFIG.r)[:, None, None]
    np.testing.assert_allclose(results["nu"][:3], couplings * results["kappa"][:3], rtol=1e-5)
    ratio = results["epistemic"][:3] / results["aleatoric"][:3]
    np.testing.assert_allclose(ratio, np.sqrt(couplings / results["nu"][:3]), rtol=1e-5)
    np.testing.assert_allclose(np.median(results["kappa"][3:], axis=(1, 2)), results["start"], rtol=0.3)
    assert results["identity_error"] < 1e-12 and results["rows"] == 5 * 2 * 50
    assert not results["diverged"].any()
    # Same weights and data to start from: coupled with r and free κ differ, the two members do too.
    assert np.ptp(results["fresh"], axis=0).min() > 1e-4 and np.ptp(results["fresh"], axis=1).min() > 1e-4


def verdict(results, name):
    return by_id(coupling.claims(results))[f"coupling.{name}"].verdict


def test_verdicts_follow_the_numbers(results):
    assert verdict(results, "identity") == HOLDS
    assert verdict(results | {"identity_error": 1e-3}, "identity") == FAILS
    learned = copy.deepcopy(results)
    learned["kappa"][-1] = learned["kappa"][-2]  # both starts end at the same κ
    assert verdict(results, "free_kappa") != FAILS
    assert verdict(learned, "free_kappa") == FAILS
    narrow = results | {
        "total": 1.5 * results["total"],
        "aleatoric": np.full_like(results["aleatoric"], circle_recipe.NOISE),
    }
    assert verdict(narrow, "noise_scale") == FAILS  # the noise is right as it is
    same = results | {"fresh": np.broadcast_to(results["fresh"][:1], results["fresh"].shape)}
    assert verdict(same, "same_fit") == HOLDS
    worse = results | {"fresh": np.arange(5.0)[:, None] + np.array([0.0, 0.01])}
    assert verdict(worse, "same_fit") == FAILS
    gate = results | {"nu": np.where(np.arange(5)[:, None, None] == 2, 13.0, np.full_like(results["nu"], 5.0))}
    assert verdict(gate, "gate") == FAILS and verdict(gate, "global_scale") == HOLDS
    wavy = results | {"nu": np.broadcast_to(np.where(circle_recipe.NEAR_CENTRE, 3.1, 13.0), results["nu"].shape)}
    assert verdict(wavy, "global_scale") == FAILS


def test_saved_results_can_be_told_and_drawn(results, tmp_path):
    storage.save(tmp_path, "coupling", {"results": results})
    loaded = storage.load(tmp_path, "coupling")["results"]
    text = coupling.report(loaded)
    assert "r = 20" in text and "free κ from 8" in text and len(text.splitlines()) == 7
    nll, nu, _, kappa = claims_and_figures(coupling, loaded)[1]["over_r"].axes
    np.testing.assert_allclose(line(nll, "fresh data"), results["fresh"][:3].mean(1))
    np.testing.assert_allclose(line(nu, "ends (dense)"), results["nu"][:3, :, circle_recipe.NEAR_ENDS].mean((1, 2)))
    np.testing.assert_allclose(line(kappa, "free κ, from 8"), np.median(results["kappa"][4], axis=-1).mean())
