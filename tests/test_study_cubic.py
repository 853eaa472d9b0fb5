"""A tiny run of the study `cubic`, its numbers against the library, scipy and closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import mder_jax as mder
from experiments.harness import storage
from experiments.harness.claims import FAILS, by_id
from experiments.paper import cubic
from experiments.paper.cubic import statistics
from experiments.paper.cubic.statistics import GRID, KINDS, METHODS
from tests.support.figures import line
from tests.support.studies import claims_and_figures

SCALE = 25.0


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    config = cubic.Config(members=3, points=300, new_points=200, epochs=60, width=32, batch_size=50)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        found = cubic.run(config)
    folder = tmp_path_factory.mktemp("results")
    storage.save(folder, "cubic", {"results": found})
    return storage.load(folder, "cubic")["results"]


def compiled(function, *arguments):
    """One program for all, as every operation on its own would be compiled too."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        return jax.tree.map(np.asarray, jax.jit(function)(*arguments))


@jax.jit
def losses_and_gradients(raw, y):
    """Of all kinds, (kinds, rows) and (kinds, rows, 4)."""

    def of_row(kind, raw, y):
        return cubic.loss_of_kind(kind, raw[None], y[None], SCALE, 0.01)[0]

    over_rows = jax.vmap(jax.value_and_grad(of_row, argnums=1), (None, 0, 0))
    return jax.vmap(over_rows, (0, None, None))(jnp.arange(len(KINDS)), raw, y)


def test_every_kind_has_its_own_loss():
    raw = jnp.array([[0.3, -0.2, 0.5, 0.1], [-0.4, 1.0, -0.6, 0.7]], jnp.float32)
    y = jnp.array([[4.0], [-9.0]], jnp.float32)

    def expected(raw, y):
        nig, niw = mder.nig_link(raw), mder.niw_link(raw[:, :3], n=1)
        nig = mder.NIG(SCALE * nig.mu, nig.kappa, nig.alpha, SCALE**2 * nig.beta)
        niw = mder.NIW(SCALE * niw.mu, SCALE * niw.L, niw.kappa, niw.nu)
        der = [mder.der_loss(nig, y[:, 0], lam=lam) for lam in (0.0, 0.01)]
        return jnp.stack([*der, mder.mder_nll(niw, y, missing=False)])

    found = compiled(losses_and_gradients, raw, y)[0]
    np.testing.assert_allclose(found[:3], compiled(expected, raw, y), rtol=1e-5)
    mean, std = SCALE * np.asarray(raw[:, 0]), SCALE * np.exp(np.asarray(raw[:, 1]))
    np.testing.assert_allclose(found[3], -stats.norm.logpdf(np.asarray(y[:, 0]), mean, std), rtol=1e-5)


def test_gradients_are_finite_where_the_loss_of_another_kind_overflows():
    raw = jnp.array([[0.0, -80.0, -80.0, -80.0], [0.0, 80.0, 80.0, 80.0]], jnp.float32)
    y = jnp.array([[300.0], [-300.0]], jnp.float32)
    losses, gradients = compiled(losses_and_gradients, raw, y)
    assert np.isfinite(losses).all() and np.isfinite(gradients[: KINDS.index("Gaussian")]).all()


def test_parts_are_those_of_the_library():
    raw = jax.random.normal(jax.random.key(0), (2 * len(KINDS), 5, 4))

    def expected(raw):
        niw, nig = mder.niw_link(raw[4:6, :, :3], n=1), mder.nig_link(raw[:2])
        t = mder.predictive(mder.NIW(SCALE * niw.mu, SCALE * niw.L, niw.kappa, niw.nu))
        return t.df, t.scale_tril[..., 0, 0], SCALE**2 * mder.nig.epistemic(nig), SCALE**2 * mder.nig.aleatoric(nig)

    parts = cubic.described(compiled(lambda raw: cubic.shapes_of_all(raw, SCALE), raw))
    found = parts["df"][2], parts["width"][2], parts["within"][0], parts["aleatoric"][0]
    for one, other in zip(found, compiled(expected, raw), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)
    np.testing.assert_allclose(parts["width"][3], SCALE * np.exp(raw[6:, :, 1]), rtol=1e-10)


def perfect(points=20_000):
    """Results of networks that know the truth, and say the noise is all there is."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-7, 7, points)
    shape = (len(KINDS), 3, points)
    parts = {"mean": np.broadcast_to(x**3, shape), "df": np.full(shape, np.inf), "width": np.full(shape, 3.0)}
    parts |= {"aleatoric": np.full(shape, 9.0), "within": np.ones(shape), "kappa": np.full(shape, 9.0)}
    return {"new_x": x, "new_y": x**3 + 3 * rng.normal(size=points), "new": parts}


@pytest.mark.parametrize("method", METHODS)
def test_scores_of_the_truth_are_entropy_noise_and_ninety_percent(method):
    known = perfect()
    found = statistics.scores(method, known, np.ones(20_000, bool))
    np.testing.assert_allclose(found["NLL"], stats.norm(scale=3).entropy(), atol=4 * np.sqrt(0.5 / 20_000))
    np.testing.assert_allclose(found["cover"], 0.9, atol=4 * np.sqrt(0.09 / 20_000))
    np.testing.assert_allclose(found["rmse"], 3, rtol=4 / np.sqrt(40_000))
    np.testing.assert_allclose(found["epistemic"], 1)


def test_ensembles_are_mixtures(results):
    kind = KINDS.index("coupled")

    def expected(df, mean, width, y):
        mixture = mder.Mixture(mder.StudentT(df, mean[..., None], width[..., None, None]))
        return mixture.log_prob(y[:, None]), mixture.total()[:, 0, 0]

    t = [results["new"][name][kind] for name in ("df", "mean", "width")]
    log_prob, total = compiled(expected, *t, results["new_y"].astype(float))
    log_density, below = statistics.predictive("ensemble of coupled", results)
    np.testing.assert_allclose(log_density[0], log_prob, rtol=1e-6)
    np.testing.assert_allclose(below[0], np.mean(stats.t.cdf((results["new_y"] - t[1]) / t[2], t[0]), axis=0))
    parts = statistics.parts_of("ensemble of coupled", results["new"])
    np.testing.assert_allclose(parts["aleatoric"][0] + parts["epistemic"][0], total, rtol=1e-8)


def test_networks_fit_inside_and_not_outside(results):
    known = statistics.inside(results["new_x"])
    for kind in KINDS:
        assert np.all(statistics.scores(kind, results, known)["rmse"] < 4.5)
        assert np.all(statistics.scores(kind, results, ~known)["rmse"] > 20)
    assert results["diverged"] == 0


def test_claims_follow_from_the_numbers(results):
    kappa = statistics.typical(results, "kappa")
    assert np.all(kappa["DER, λ > 0"] < kappa["DER, λ = 0"])
    known = results | {"new": dict(results["new"])}
    known["new"]["within"] = (known["new"]["mean"] - known["new_x"] ** 3) ** 2 + 1e-6
    found = by_id(cubic.claims(known))
    assert [found[f"cubic.network_{kind}"].verdict for kind in ("der", "regularised", "coupled")] == [FAILS] * 3
    uncoupled = results | {"new": results["new"] | {"df": 2 * results["new"]["df"]}}
    assert by_id(cubic.claims(uncoupled))["cubic.kappa_coupled"].verdict == FAILS


def test_figures_and_report(results):
    _, figures = claims_and_figures(cubic, results)
    for axes, kappa in zip(figures["kappa"].axes, results["grid"]["kappa"], strict=False):
        np.testing.assert_array_equal([one.get_ydata() for one in axes.lines], kappa)
    for axes, method in zip(figures["methods"].axes, METHODS, strict=True):
        mean = statistics.parts_of(method, results["grid"])["mean"][0]
        np.testing.assert_array_equal(line(axes, "mean"), mean)
    assert "0 of 12 networks became non-finite" in cubic.report(results)
    assert results["grid"]["mean"].shape == (4, 3, len(GRID))
