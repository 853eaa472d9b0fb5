"""A tiny run of the study `uncertainty_types`, its numbers against scipy and closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize, stats

import mder_jax as mder
from experiments.harness import storage
from experiments.harness.claims import FAILS, HOLDS, OPEN, by_id
from experiments.paper import uncertainty_types
from experiments.paper.uncertainty_types.claims import is_steady, sample_size_claims
from experiments.paper.uncertainty_types.statistics import GRID, LOOKED_AT, slope, stds
from tests.support.figures import line
from tests.support.studies import claims_and_figures

CONFIG = uncertainty_types.Config(data_sets=3, members=2, repeats=(5, 400), epochs=250)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        found = uncertainty_types.run(CONFIG)
    folder = tmp_path_factory.mktemp("results")
    storage.save(folder, "uncertainty_types", {"results": found})
    return storage.load(folder, "uncertainty_types")["results"]


def width_of_t_fitted_to_a_gaussian(df):
    """The scale of the t that fits a standard normal best."""

    def loss(scale):
        return integrate.quad(lambda z: -stats.t.logpdf(z, df, 0, scale) * stats.norm.pdf(z), -10, 10)[0]

    return optimize.minimize_scalar(loss, bounds=(0.5, 1.5), method="bounded").x


def aleatoric_of_width(width, nu=12.0):
    """√(ν/(ν−2)) L of the coupled NIW (κ = ν) whose predictive has this width."""
    return np.sqrt(nu / (nu - 2) / (1 + 1 / nu)) * width


def test_grid_has_the_points():
    np.testing.assert_allclose(GRID[LOOKED_AT], [0, 1, 2, 3], atol=1e-12)


def test_members_see_so_many_of_the_first_measurements():
    y = np.arange(3 * 3 * 400, dtype=float).reshape(3, 3, 400)
    drawn = uncertainty_types.resample(CONFIG, y, [5, 400]).reshape(2, 3, 2, 3, 400)
    assert np.all(np.sum(~np.isnan(drawn), axis=-1) == np.array([5, 400])[:, None, None, None])
    assert all(np.isin(drawn[0, i, :, j, :5], y[i, j, :5]).all() for i in range(3) for j in range(3))


def test_loss_is_the_mean_over_what_was_measured():
    niw = mder.couple(jnp.array([[0.1], [0.2], [0.3]]), jnp.ones((3, 1, 1)), jnp.array([3.0, 5.0, 9.0]))
    y = np.array([[0.5, np.nan], [1.0, 2.0], [-1.0, np.nan]])
    width = np.sqrt(1 + 1 / np.asarray(niw.kappa))
    density = stats.t.logpdf(y, np.asarray(niw.nu)[:, None], np.asarray(niw.mu), width[:, None])
    found = jax.jit(uncertainty_types.mean_nll)(niw, jnp.asarray(y))
    np.testing.assert_allclose(found, -np.nanmean(density, axis=1), rtol=1e-9)


def test_with_many_measurements_the_flexible_ensemble_finds_mean_and_noise(results):
    number = results["kinds"].index("line") - 1
    at = [LOOKED_AT[x] for x in (0, 1, 3)]
    noise = np.array(results["noise"])
    error = np.abs(results["mean"][number][:, at] - np.array([0.0, 1.0, -1.0]))
    assert np.all(error < 5 * noise / np.sqrt(400))
    expected = aleatoric_of_width(width_of_t_fitted_to_a_gaussian(12.0) * noise)
    found = np.sqrt(results["aleatoric"][number][:, at])
    np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), rtol=5 * np.sqrt(1 / 800) + 0.05)


def test_what_a_line_misses_becomes_aleatoric(results):
    line = results["kinds"].index("line")
    residual = results["y"][:, 1].mean(-1) - results["mean"][line][:, LOOKED_AT[1]]
    assert np.all(residual > 1)
    np.testing.assert_allclose(stds(results, "aleatoric", line)[:, 1], aleatoric_of_width(residual), rtol=0.03)


def test_within_is_a_fixed_share_of_aleatoric_where_the_gate_is_open(results):
    line = results["kinds"].index("line")
    ratio = results["aleatoric"][line][:, LOOKED_AT[1]] / results["within"][line][:, LOOKED_AT[1]]
    np.testing.assert_allclose(ratio, 12, rtol=0.02)


def made(within_power, between_power):
    """Results whose parts have these powers of the number of repeats."""
    repeats = [10, 100, 100]
    size = np.array(repeats, float)[:, None, None] * np.ones((3, 4, len(GRID)))
    return {
        "kinds": ["flexible", "flexible", "line"],
        "repeats": repeats,
        "aleatoric": (1 + np.arange(4)[:, None] / size),
        "within": size**within_power,
        "between": size**between_power,
    }


def test_slopes_and_verdicts_of_known_powers():
    results = made(within_power=0.0, between_power=-1.0)
    assert slope(results, "between", [0, 1, 3])[0] == pytest.approx(-0.5)
    verdicts = {name: claim.verdict for name, claim in by_id(sample_size_claims(results)).items()}
    expected = {"aleatoric": HOLDS, "within": FAILS, "between": HOLDS, "sharpness": HOLDS}
    assert verdicts == {f"uncertainty_types.size_{name}": verdict for name, verdict in expected.items()}
    assert is_steady((0.0, -0.3, 0.3)) == OPEN


def test_claims_figures_and_report(results):
    found, figures = claims_and_figures(uncertainty_types, results)
    assert found["uncertainty_types.missed_line"].ours.startswith("100%")
    assert found["uncertainty_types.separation"].verdict == FAILS
    for axes, kind in zip(figures["unctypes"].axes, ("flexible", "line"), strict=True):
        last = [setting for setting, name in enumerate(results["kinds"]) if name == kind][-1]
        np.testing.assert_array_equal(line(axes, "model"), results["mean"][last, 0])
    between = [np.median(stds(results, "between", setting)[:, 3]) for setting in (0, 1)]
    np.testing.assert_allclose(line(figures["size"].axes[2], "between members"), between)
    assert "0 networks became non-finite" in uncertainty_types.report(results)
