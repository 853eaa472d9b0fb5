"""Scores of predictions against scipy, scoringrules, properscoring, uncertainty_toolbox and closed forms."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import properscoring
import pytest
import scipy.stats
import scoringrules
import uncertainty_toolbox

import mder_jax as mder
from mder_jax import metrics
from mder_jax.estimator import Region
from mder_jax.metrics import scores
from mder_jax.mixture import Mixture
from mder_jax.student_t import Interval
from tests.support.cases import factors, long

NAN = np.nan
KEY = jax.random.key(7)
SAMPLE = jax.jit(Mixture.sample, static_argnums=2)
ENERGY, VARIOGRAM = jax.jit(scores.energy_of_draws), jax.jit(scores.variogram_of_draws, static_argnums=2)
ROW_SCORES = ("nll", "crps", "energy_score", "variogram_score", "joint_pit", "pit")


def members(size=3, rows=6, n=2, df=(2.5, 4.0, 7.0, np.inf, 30.0), seed=0):
    rng = np.random.default_rng(seed)
    L = factors(rng, (size, rows), n)
    return mder.StudentT(*jax.device_put((np.resize(df, (rows, size)).T, rng.normal(size=(size, rows, n)))), L)


def one(t, i=0):
    return jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf)[i]), t)


def rows_of(t, chosen):
    return jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf)[:, chosen]), t)


def gaussian(rows=200, n=2, seed=0, stretch=1.0):
    """A Gaussian prediction of uneven widths, and y that is `stretch` times as far off as it says."""
    rng = np.random.default_rng(seed)
    loc, std = rng.normal(size=(rows, n)), np.exp(0.5 * rng.normal(size=(rows, n)))
    y = loc + stretch * std * rng.normal(size=(rows, n))
    return y, loc, std, mder.StudentT(np.inf, loc, std[..., None] * np.eye(n))


def observations(rows=6, n=2, seed=5):
    return np.random.default_rng(seed).normal(size=(rows, n)) * 1.5


def with_holes():
    y = observations()
    y[1, 0] = y[2, 1] = y[4, 0] = y[4, 1] = NAN
    return y


def draws_by_numpy(t, size, seed=2):
    """Draws (size, N, n) of the mixture of members with batch (M, N)."""
    rng = np.random.default_rng(seed)
    df, loc, L = (np.asarray(leaf) for leaf in (t.df, t.loc, t.scale_tril))
    shape = (size, loc.shape[1])
    chosen = rng.integers(loc.shape[0], size=shape), np.broadcast_to(np.arange(shape[1]), shape)
    m = df[chosen]
    finite = np.where(np.isinf(m), 1.0, m)
    chi2 = np.where(np.isinf(m), 1.0, rng.chisquare(finite) / finite)
    step = np.einsum("...ij,...j->...i", L[chosen], rng.normal(size=(*shape, loc.shape[2])))
    return loc[chosen] + step / np.sqrt(chi2)[..., None]


def cdf_squared_distance(t, y, j):
    """∫(F − 1{x ≥ y})² dx of target j of a mixture with batch (M,), panel by panel in arcsinh(x)."""
    scale = np.sqrt(np.sum(np.asarray(t.scale_tril)[:, j] ** 2, axis=-1))
    df, loc = np.asarray(t.df), np.asarray(t.loc)[:, j]
    ends = [loc + width * side * scale for side in (-1, 1) for width in (0, 3, 30)]
    edges = np.unique(np.arcsinh(np.concatenate([[y, -1e9, 1e9], *ends])))
    edges = np.unique(np.concatenate([np.linspace(a, b, 9) for a, b in itertools.pairwise(edges)]))
    nodes, weights = np.polynomial.legendre.leggauss(40)
    middle, half = (edges[1:] + edges[:-1])[:, None] / 2, (edges[1:] - edges[:-1])[:, None] / 2
    u = middle + half * nodes
    side = np.where(np.sinh(u) >= y, -1, 1)  # the tail on the other side of y, without cancellation
    tail = np.mean(
        [scipy.stats.t.cdf(side * (np.sinh(u) - m) / s, d) for d, m, s in zip(df, loc, scale, strict=True)], 0
    )
    return np.sum(half * weights * tail**2 * np.cosh(u))


def test_nll_is_scipys_density_of_the_mixture():
    t, y = members(), observations()
    L = np.asarray(t.scale_tril)
    S, loc, df = L @ np.swapaxes(L, -1, -2), np.asarray(t.loc), np.asarray(t.df)
    density = [[scipy.stats.multivariate_t(loc[m, i], S[m, i], df[m, i]).pdf(y[i]) for i in range(6)] for m in range(3)]
    expected = -np.log(np.mean(density, axis=0))
    np.testing.assert_allclose(metrics.nll(y, Mixture(t), reduce=False), expected, rtol=1e-10)
    np.testing.assert_allclose(metrics.nll(y, Mixture(t)), np.mean(expected), rtol=1e-10)


def test_nll_of_what_was_observed_is_that_of_the_marginal():
    t, y = members(n=3), observations(n=3)
    y[:, 1] = NAN
    marginal = Mixture(t.marginal([0, 2]))
    np.testing.assert_allclose(metrics.nll(y, Mixture(t), False), -marginal.log_prob(y[:, [0, 2]]), rtol=1e-12)


@pytest.mark.parametrize("df", [1.2, 2.5, 30.0, np.inf])
def test_crps_of_one_t_is_scoringrules(df):
    t, y = one(members(df=(df,))), observations()
    found = metrics.crps(y, t, reduce=False)
    if np.isinf(df):
        expected = scoringrules.crps_normal(y, np.asarray(t.loc), np.asarray(t.marginal_scale()))
        np.testing.assert_allclose(found, properscoring.crps_gaussian(y, t.loc, t.marginal_scale()), rtol=1e-10)
    else:
        expected = scoringrules.crps_t(y, np.full(y.shape, df), np.asarray(t.loc), np.asarray(t.marginal_scale()))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_crps_of_a_mixture_is_the_integral_over_its_cdf():
    t, y = members(), observations()
    expected = [
        [cdf_squared_distance(one(rows_of(t, [i]), np.s_[:, 0]), y[i, j], j) for j in range(2)] for i in range(6)
    ]
    np.testing.assert_allclose(metrics.crps(y, Mixture(t), reduce=False), expected, atol=2e-6)


@pytest.mark.parametrize("df", [(2.1, 2.1), (1.5, 4.0), (np.inf, 2.5)])
@pytest.mark.parametrize(
    "loc, scale", [((0.0, 5.0), (1.0, 1.0)), ((0.0, 30.0), (1.0, 1e-3)), ((0.0, 0.5), (1e-4, 1.0))]
)
def test_crps_of_unlike_members(df, loc, scale):
    df, loc, scale = (np.array(value) for value in (df, loc, scale))
    t = mder.StudentT(df[:, None], loc[:, None, None], scale[:, None, None, None])
    found = metrics.crps([[0.7]], Mixture(t))
    np.testing.assert_allclose(
        found, cdf_squared_distance(one(t, np.s_[:, 0]), 0.7, 0), atol=5e-5 * np.max(loc + scale)
    )


def test_crps_of_gaussian_mixture_is_scoringrules():
    t, y = members(df=(np.inf,)), observations()
    loc, scale = (np.moveaxis(np.asarray(a), 0, -1) for a in (t.loc, t.marginal_scale()))
    expected = scoringrules.crps_mixnorm(y, loc, scale)
    np.testing.assert_allclose(metrics.crps(y, Mixture(t), reduce=False), expected, rtol=1e-6)


def test_crps_without_a_mean_is_not_a_number():
    t = members(df=(0.9, 3.0, 3.0))
    assert np.isnan(metrics.crps(observations(), Mixture(t)))


@pytest.mark.slow
def test_identical_members_score_as_one():
    t, y = members(1), observations()
    same = Mixture(jax.tree.map(lambda leaf: jnp.repeat(leaf, 3, axis=0), t))
    for name, tolerance in (("nll", 1e-12), ("crps", 1e-6), ("pit", 1e-12), ("joint_pit", 1e-7)):
        score = getattr(metrics, name)
        np.testing.assert_allclose(score(y, same), score(y, one(t)), rtol=tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("df", [2.5, np.inf])
def test_joint_pit_far_out_and_near_the_mean(df, dtype):
    loc = np.array([[[0.0, 0.0]], [[1.0, -1.0]]], dtype)
    t = mder.StudentT(np.full((2, 1), df, dtype), loc, np.tile(np.eye(2, dtype=dtype), (2, 1, 1, 1)))
    mean = np.array([[0.5, -0.5]], dtype)
    for distance, expected in ((0.0, 0.0), (1e-18, 0.0), (1e18, 1.0), (1e37, 1.0)):
        np.testing.assert_allclose(metrics.joint_pit(mean + dtype(distance), Mixture(t)), expected, atol=1e-6)


def test_a_member_without_degrees_of_freedom_shows_in_scores():
    t, y = members(), observations()
    broken = Mixture(mder.StudentT(t.df.at[0].set(jnp.nan), t.loc, t.scale_tril))
    for score in (metrics.nll, metrics.pit, metrics.crps):
        assert np.isnan(score(y, broken)).any(), score.__name__


def test_draws_follow_the_mixture():
    t = members(2, rows=1, n=3, df=(4.5, np.inf))
    found, expected = np.asarray(SAMPLE(Mixture(t), KEY, 20000))[:, 0], draws_by_numpy(t, 20000)[:, 0]
    directions = np.random.default_rng(4).normal(size=(8, 3))  # a distribution is known by its projections
    for direction in [*np.eye(3), *directions]:
        assert scipy.stats.ks_2samp(found @ direction, expected @ direction).pvalue > 1e-3
    assert scipy.stats.ks_2samp(np.sum(found**2, axis=-1), np.sum(expected**2, axis=-1)).pvalue > 1e-3


def test_energy_and_variogram_of_draws_are_the_fair_ones_of_scoringrules():
    y, x = observations(n=3), np.random.default_rng(1).normal(size=(9, 6, 3))
    fct = np.moveaxis(x, 0, 1)
    for draws in (8, 9):  # the pairs of an even number are counted differently
        fair = scoringrules.es_ensemble(y, fct[:, :draws], estimator="fair")
        np.testing.assert_allclose(ENERGY(jnp.asarray(y), jnp.asarray(x[:draws])), fair, rtol=1e-10)
    for p in (0.5, 1.3):
        fair = scoringrules.vs_ensemble(y, fct, p=p, estimator="fair")
        np.testing.assert_allclose(VARIOGRAM(jnp.asarray(y), jnp.asarray(x), p), fair, rtol=1e-9)


@pytest.mark.slow
def test_energy_score_of_one_target_is_the_crps():
    t, y = members(n=1, rows=400, df=(5.0, 9.0, np.inf)), observations(400, 1)
    difference = (
        metrics.energy_score(y, Mixture(t), KEY, reduce=False) - metrics.crps(y, Mixture(t), reduce=False)[:, 0]
    )
    assert abs(np.mean(difference)) < 4 * np.std(difference) / np.sqrt(400)
    other = metrics.energy_score(y, Mixture(t), jax.random.key(1))
    assert other != metrics.energy_score(y, Mixture(t), KEY)


def test_interval_score_is_scoringrules():
    t, y = one(members()), observations()
    lower, upper = t.interval(0.8)
    expected = scoringrules.interval_score(y, np.asarray(lower), np.asarray(upper), 0.2)
    np.testing.assert_allclose(metrics.interval_score(y, t.interval(0.8), 0.8, reduce=False), expected, rtol=1e-10)


def test_coverage_of_given_intervals_counts():
    y, _, _, prediction = gaussian(stretch=1.5)
    y[0, 0] = y[1] = NAN
    lower, upper = map(np.asarray, prediction.interval(0.8))
    seen, inside = ~np.isnan(y), (y >= lower) & (y <= upper)
    found = metrics.coverage(y, Interval(lower, upper))
    share = inside.sum(axis=0) / seen.sum(axis=0)
    np.testing.assert_allclose(found.coverage, share, rtol=1e-12)
    np.testing.assert_allclose(found.standard_error, np.sqrt(share * (1 - share) / seen.sum(axis=0)), rtol=1e-12)
    np.testing.assert_allclose(found.width, np.mean(upper - lower, axis=0, where=seen), rtol=1e-12)
    single = metrics.coverage(y[:, 0], Interval(lower[:, 0], upper[:, 0]))
    np.testing.assert_allclose([part[0] for part in found], single)
    complete = seen.all(axis=1)
    value, error = metrics.joint_coverage(y, Interval(lower, upper))
    both = np.mean(inside[complete].all(axis=1))
    np.testing.assert_allclose([value, error], [both, np.sqrt(both * (1 - both) / complete.sum())], rtol=1e-12)
    traced = jax.jit(metrics.coverage)(y, Interval(lower, upper))
    np.testing.assert_allclose(traced.coverage, found.coverage, rtol=1e-12)
    assert np.isnan(metrics.joint_coverage(y, Interval(np.where(y > 0, NAN, lower), upper)).value)


def test_joint_coverage_of_given_regions_counts_complete_rows():
    y, loc, std, _ = gaussian()
    y[3, 1] = NAN
    region = Region(loc, std[..., None] * np.eye(2), np.full(200, 1.5))
    kept = np.arange(200) != 3
    share = np.mean(np.sum(((y - loc) / std)[kept] ** 2, axis=1) <= 1.5**2)
    value, error = metrics.joint_coverage(y, region)
    np.testing.assert_allclose([value, error], [share, np.sqrt(share * (1 - share) / 199)], rtol=1e-12)
    line = Region(loc[:, :1], std[:, :1, None], np.full(200, 1.0))
    share = np.mean(np.abs((y - loc) / std)[:, 0] <= 1)
    np.testing.assert_allclose(metrics.joint_coverage(y[:, 0], line).value, share)


def test_given_intervals_keep_their_digits_in_single_precision():
    y, near = np.array([[2020.5003], [2020.4999]]), np.full((2, 1), 2020.5)
    interval = Interval(near - 0.00035, near + 0.00025)
    with jax.enable_x64(False):
        found = metrics.coverage(y, interval)
        score = metrics.interval_score(y, interval, 0.5, reduce=False)
        assert metrics.joint_coverage(y, interval).value == 0.5 == found.coverage[0]
    np.testing.assert_allclose(found.width, 0.0006, rtol=1e-5)
    np.testing.assert_allclose(score[:, 0], scoringrules.interval_score(y, *interval, 0.5), rtol=1e-5)
    infinite = metrics.coverage(y, Interval(np.full((2, 1), -np.inf), np.full((2, 1), np.inf)))
    assert infinite.coverage[0] == 1 and np.isinf(infinite.width[0])


@pytest.mark.slow
def test_coverage_counts():
    y, _, _, prediction = gaussian(stretch=1.5)
    found = metrics.coverage(y, prediction, 0.8)
    lower, upper = prediction.interval(0.8)
    inside = np.mean(np.asarray((y >= lower) & (y <= upper)), axis=0)
    np.testing.assert_allclose(found.coverage, inside, rtol=1e-12)
    np.testing.assert_allclose(found.standard_error, np.sqrt(inside * (1 - inside) / 200), rtol=1e-12)
    np.testing.assert_allclose(found.width, np.mean(upper - lower, axis=0), rtol=1e-10)


def test_pit_is_scipys_cdf():
    t, y = members(), observations()
    scale = np.asarray(t.marginal_scale())
    expected = np.mean(scipy.stats.t.cdf(y, np.asarray(t.df)[..., None], np.asarray(t.loc), scale), axis=0)
    np.testing.assert_allclose(metrics.pit(y, Mixture(t)), expected, rtol=1e-10)


def test_joint_pit_of_one_t_is_that_of_f():
    t, y = one(members(n=3, df=(4.0,))), observations(n=3)
    white = np.linalg.solve(np.asarray(t.scale_tril), (y - np.asarray(t.loc))[..., None])[..., 0]
    expected = scipy.stats.f.cdf(np.sum(white**2, axis=-1) / 3, 3, 4.0)
    np.testing.assert_allclose(metrics.joint_pit(y, t), expected, rtol=1e-9)


@pytest.mark.parametrize("n", [long(1), 2, long(3)])
def test_joint_pit_of_a_mixture_is_the_share_of_draws_nearer(n):
    t, y = members(n=n, df=(3.0, 5.0, np.inf)), observations(n=n)
    mixture, x = Mixture(t), draws_by_numpy(t, 100_000)
    C = np.linalg.cholesky(np.asarray(mixture.total()))

    def distance(z):
        white = np.linalg.solve(C, (z - np.asarray(mixture.mean()))[..., None])[..., 0]
        return np.sum(white**2, axis=-1)

    expected = np.mean(distance(x) <= distance(y), axis=0)
    error = np.sqrt(expected * (1 - expected) / 100_000) + 1e-4  # of the draws, and of the integral
    assert np.all(np.abs(metrics.joint_pit(y, mixture) - expected) < 4 * error)
    at_mean = metrics.joint_pit(mixture.mean(), mixture)
    assert np.all(at_mean >= 0) and np.all(at_mean < 1e-9)


@pytest.mark.slow
def test_joint_pit_of_what_the_mixture_draws_is_uniform():
    t = members(rows=2000, df=(4.0, 6.0, np.inf))
    mixture, y = Mixture(t), draws_by_numpy(t, 1)[0]
    assert scipy.stats.kstest(np.asarray(metrics.joint_pit(y, mixture)), "uniform").pvalue > 1e-3
    found = metrics.joint_coverage(y, mixture, 0.7)
    assert abs(found.value - 0.7) < 4 * found.standard_error
    assert abs(found.standard_error - np.sqrt(0.21 / 2000)) < 1e-3


def test_calibration_error_rmse_and_sharpness_are_uncertainty_toolboxs():
    y, loc, std, prediction = gaussian(stretch=1.4)
    expected = [uncertainty_toolbox.mean_absolute_calibration_error(loc[:, j], std[:, j], y[:, j]) for j in range(2)]
    np.testing.assert_allclose(metrics.calibration_error(y, prediction, reduce=False), expected, rtol=1e-10)
    np.testing.assert_allclose(metrics.calibration_error(y, prediction), np.mean(expected), rtol=1e-10)
    nominal, shares = uncertainty_toolbox.get_proportion_lists(loc[:, 0], std[:, 0], y[:, 0])
    curve = metrics.calibration_curve(y, prediction)
    np.testing.assert_allclose(curve.level, nominal, atol=1e-14)
    np.testing.assert_allclose(curve.observed[:, 0], shares, rtol=1e-12)
    sharp = [uncertainty_toolbox.sharpness(std[:, j]) for j in range(2)]
    np.testing.assert_allclose(metrics.sharpness(prediction, reduce=False), sharp, rtol=1e-12)
    off = [np.sqrt(np.mean((y - loc)[:, j] ** 2)) for j in range(2)]
    np.testing.assert_allclose(metrics.rmse(y, prediction, reduce=False), off, rtol=1e-12)
    np.testing.assert_allclose(metrics.rmse(y, prediction), np.mean(off), rtol=1e-12)


def test_ence_by_hand():
    y, loc, std, prediction = gaussian(stretch=1.4)
    expected = []
    for j in range(2):
        bins = np.array_split(np.argsort(std[:, j]), 8)
        rmv = np.array([np.sqrt(np.mean(std[b, j] ** 2)) for b in bins])
        off = np.array([np.sqrt(np.mean((y - loc)[b, j] ** 2)) for b in bins])
        expected.append(np.mean(np.abs(rmv - off) / rmv))
    np.testing.assert_allclose(metrics.ence(y, prediction, bins=8, reduce=False), expected, rtol=1e-12)
    np.testing.assert_allclose(
        metrics.ence(y[:3], one(prediction, np.s_[:3]), bins=8), metrics.ence(y[:3], one(prediction, np.s_[:3]), bins=3)
    )


def test_sparsification_by_hand():
    y, loc, std, prediction = gaussian()
    curve = metrics.sparsification(y, prediction)
    error = np.abs(y - loc)
    for k in (0, 30, 99):
        kept = 200 - 2 * k
        for j in range(2):
            whole = np.sqrt(np.mean(error[:, j] ** 2))
            by_std, by_error = (np.argsort(key[:, j])[:kept] for key in (std, error))
            np.testing.assert_allclose(curve.error[k, j], np.sqrt(np.mean(error[by_std, j] ** 2)) / whole, rtol=1e-10)
            np.testing.assert_allclose(
                curve.oracle[k, j], np.sqrt(np.mean(error[by_error, j] ** 2)) / whole, rtol=1e-10
            )
    np.testing.assert_allclose(curve.fraction[30], 0.3)
    area = np.trapezoid(curve.error - curve.oracle, curve.fraction, axis=0)
    np.testing.assert_allclose(metrics.ause(y, prediction, reduce=False), area, rtol=1e-10)


def test_ause_knows_good_from_bad_ranking():
    y, loc, std, prediction = gaussian()
    perfect, none = metrics.ause(y, prediction, np.abs(y - loc)), metrics.ause(y, prediction, -np.abs(y - loc))
    assert perfect == 0 and perfect < metrics.ause(y, prediction) < none
    first = std[:, 0]
    np.testing.assert_allclose(metrics.ause(y, prediction, first, False)[0], metrics.ause(y, prediction, std, False)[0])


@pytest.mark.parametrize("name", ["nll", *map(long, ROW_SCORES[1:])])
def test_an_ensemble_of_one_scores_as_its_member(name):
    t, y, score = members(1), with_holes(), getattr(metrics, name)
    np.testing.assert_array_equal(score(y, Mixture(t)), score(y, one(t)))
    niw = mder.NIW(t.loc, t.scale_tril, kappa=2.0, nu=6.0)
    np.testing.assert_array_equal(score(y, Mixture(niw)), score(y, one(niw)))
    np.testing.assert_array_equal(score(y, one(niw)), score(y, mder.predictive(one(niw))))


def test_missing_targets_are_left_out():
    t, y = members(), with_holes()
    mixture, complete = Mixture(t), [0, 3, 5]
    deleted = Mixture(rows_of(t, complete))
    for name in ("nll", "crps", "pit"):
        rows = getattr(metrics, name)(y, mixture, *([False] if name != "pit" else []))
        whole = getattr(metrics, name)(y[complete], deleted, *([False] if name != "pit" else []))
        np.testing.assert_allclose(rows[jnp.array(complete)], whole, rtol=1e-10)
        assert np.isnan(rows[4]).all()
    np.testing.assert_allclose(
        metrics.joint_pit(y, mixture)[jnp.array(complete)], metrics.joint_pit(y[complete], deleted)
    )
    rows = metrics.crps(y, mixture, reduce=False)
    np.testing.assert_allclose(metrics.crps(y, mixture), np.nanmean(rows), rtol=1e-12)


@pytest.mark.slow
def test_missing_targets_are_left_out_of_scores_over_all_rows():
    t, y = members(), with_holes()
    mixture, seen = Mixture(t), [0, 2, 3, 5]  # the first target's
    alone = Mixture(rows_of(t.marginal([0]), seen))
    for name in ("rmse", "calibration_error", "ence", "ause"):
        found = getattr(metrics, name)(y, mixture, reduce=False)
        np.testing.assert_allclose(found[0], getattr(metrics, name)(y[seen][:, :1], alone), rtol=1e-8)
    np.testing.assert_allclose(
        [x[0] for x in metrics.coverage(y, mixture)], [x[0] for x in metrics.coverage(y[seen][:, :1], alone)], rtol=1e-8
    )


@pytest.mark.slow
def test_missing_targets_in_scores_that_sample():
    y, x = with_holes(), jax.random.normal(KEY, (20, 6, 2))
    y3, x3 = np.concatenate([y, observations(n=1)], axis=1), jnp.concatenate([x, 2 * x[..., :1] ** 2], axis=-1)
    for row, seen in ((1, [1, 2]), (2, [0, 2]), (4, [2])):
        chosen = jnp.array(seen)
        part = (jnp.asarray(y3[[row]][:, seen]), x3[:, row : row + 1, chosen])
        np.testing.assert_allclose(ENERGY(jnp.asarray(y3), x3)[row], ENERGY(*part)[0])
        whole = VARIOGRAM(jnp.asarray(y3), x3, 0.5)[row]
        np.testing.assert_allclose(whole, VARIOGRAM(*part, 0.5)[0])
    mixture = Mixture(members())
    assert np.isnan(metrics.energy_score(y, mixture, reduce=False)).tolist() == [False] * 4 + [True, False]
    two = np.isnan(metrics.variogram_score(y, mixture, reduce=False))
    assert two.tolist() == [False, True, True, False, True, False]


@pytest.mark.slow
def test_nothing_observed_is_not_a_number():
    mixture, y = Mixture(members()), np.full((6, 2), NAN)
    for name in ("nll", "rmse", "crps", "energy_score", "variogram_score", "calibration_error", "ence", "ause"):
        assert np.isnan(getattr(metrics, name)(y, mixture)), name
    assert np.isnan(metrics.coverage(y, mixture)).all() and np.isnan(metrics.joint_coverage(y, mixture)).all()


def test_a_broken_prediction_is_not_passed_over():
    t, y = members(), observations()
    broken = Mixture(jax.tree.map(lambda leaf: leaf.at[1, 2].set(NAN), t))
    for name in ("nll", "rmse", "crps", "energy_score", "calibration_error", "ence", "ause"):
        assert not np.isfinite(getattr(metrics, name)(y, broken)), name
    assert np.isnan(metrics.coverage(y, broken)).all() and np.isnan(metrics.joint_coverage(y, broken)).all()


def test_blocks_change_nothing(monkeypatch):
    mixture, y = Mixture(members(rows=50)), jnp.asarray(observations(50))
    expected = metrics.nll(y, mixture, reduce=False)
    monkeypatch.setattr(scores, "_BLOCK", 16)
    found = scores.in_blocks.__wrapped__(scores.negative_log_likelihood, y, mixture, KEY)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


JITTED = (
    *("nll", "rmse", "crps", "energy_score", "variogram_score", "coverage", "joint_coverage", "pit", "joint_pit"),
    *("calibration_error", "ence", "sparsification", "ause"),
)


@pytest.mark.parametrize("name", [name if name in ("nll", "crps", "ause") else long(name) for name in JITTED])
def test_compiled_equals_eager_and_single_precision_is_near(name):
    score = getattr(metrics, name)
    y, mixture = with_holes(), Mixture(members(df=(3.0, 5.0, np.inf)))
    expected = score(y, mixture)
    for found, value in zip(jax.tree.leaves(jax.jit(score)(y, mixture)), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-10)
    if name not in ("energy_score", "variogram_score"):  # other draws in single precision
        single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), mixture)
        for found, value in zip(
            jax.tree.leaves(score(y.astype(np.float32), single)), jax.tree.leaves(expected), strict=True
        ):
            assert found.dtype == jnp.float32
            np.testing.assert_allclose(found, value, rtol=3e-5, atol=1e-6)


def test_report_has_all_scores_and_prints_a_table():
    y, mixture = with_holes(), Mixture(members(df=(3.0, 5.0, np.inf)))
    report = metrics.report(y, mixture, level=0.8, names=["price", "rent"], key=KEY)
    for name in ("nll", "energy_score", "variogram_score"):
        arguments = {} if name == "nll" else {"key": KEY}
        rows = np.asarray(getattr(metrics, name)(y, mixture, reduce=False, **arguments))
        rows = rows[~np.isnan(rows)]
        error = np.std(rows, ddof=1) / np.sqrt(len(rows))
        np.testing.assert_allclose(getattr(report, name), [np.mean(rows), error], rtol=1e-8)
    for name in ("rmse", "calibration_error", "ence", "ause"):
        np.testing.assert_allclose(getattr(report, name), getattr(metrics, name)(y, mixture, reduce=False), rtol=1e-8)
    np.testing.assert_allclose(report.crps.value, np.nanmean(metrics.crps(y, mixture, reduce=False), axis=0), rtol=1e-8)
    intervals = metrics.interval_score(y, mixture.interval(0.8), 0.8, reduce=False)
    np.testing.assert_allclose(report.interval_score.value, np.nanmean(intervals, axis=0), rtol=1e-8)
    np.testing.assert_allclose(report.coverage, metrics.coverage(y, mixture, 0.8), rtol=1e-8)
    np.testing.assert_allclose(report.joint_coverage, metrics.joint_coverage(y, mixture, 0.8), rtol=1e-8)
    np.testing.assert_allclose(report.joint_pit, metrics.joint_pit(y, mixture), rtol=1e-8)
    np.testing.assert_allclose(report.sharpness, metrics.sharpness(mixture, reduce=False), rtol=1e-8)
    joint, single = str(report).split("\n\n")
    assert joint.splitlines()[0].split() == ["6", "rows", "all", "targets"]
    header, *lines = single.splitlines()
    assert header.split() == ["each", "target", "price", "rent"]
    assert all(line[header.index("rent") - 1] == " " != line[header.index("rent")] for line in lines)
    assert f"{report.rmse[1]:.4g}" in lines[0] and f"{report.nll.value:.4g} ± " in joint


class Estimator:
    def __init__(self, prediction):
        self.prediction = prediction

    def log_prob(self, X, y):
        return self.predict_dist(X).log_prob(y if y.ndim == 2 else y[:, None])

    def predict_dist(self, X):
        return one(self.prediction, X[:, 0])


@pytest.mark.slow
def test_scorers_prefer_the_truth_and_take_one_dimensional_y():
    y, loc, std, right = gaussian(300, n=1)
    wide = mder.StudentT(np.inf, loc, 3 * std[..., None])
    shifted = mder.StudentT(np.inf, loc + 1, std[..., None])
    X = np.arange(300)[:, None]
    for scorer, score in (
        (metrics.nll_scorer, metrics.nll),
        (metrics.crps_scorer, metrics.crps),
        (metrics.energy_scorer, metrics.energy_score),
    ):
        best = scorer(Estimator(right), X, y)
        assert isinstance(best, float) and best == scorer(Estimator(right), X, y[:, 0])
        np.testing.assert_allclose(best, -float(score(y, right)), rtol=1e-12)
        assert best > max(scorer(Estimator(wide), X, y), scorer(Estimator(shifted), X, y))


def test_wrong_arguments():
    t, y = members(), observations()
    with pytest.raises(ValueError, match=r"y must have shape \(6, 2\), that of the prediction's rows.*got \(6,\)"):
        metrics.nll(y[:, 0], Mixture(t))
    with pytest.raises(ValueError, match=r"batch shape \(N,\), and the members of a Mixture \(M, N\); got \(3, 6\)"):
        metrics.nll(y, t)
    with pytest.raises(TypeError, match="prediction must be a StudentT, a NIW or a Mixture; got ndarray"):
        metrics.crps(y, y)
    with pytest.raises(ValueError, match=r"level is a probability between 0 and 1; got 90"):
        metrics.coverage(y, Mixture(t), 90)
    with pytest.raises(ValueError, match=r"0 or more and below 1; got 1\.0"):
        metrics.interval_score(y, (y, y), 1.0)
    with pytest.raises(ValueError, match=r"upper must have shape \(6, 2\), that of y; got \(6, 1\)"):
        metrics.interval_score(y, (y, y[:, :1]), 0.5)
    with pytest.raises(TypeError, match=r"interval must be an Interval\(lower, upper\); got ndarray"):
        metrics.interval_score(y, y, 0.5)
    with pytest.raises(ValueError, match=r"lower must have shape \(6, 2\), that of y; got \(6,\)"):
        metrics.coverage(y, Interval(y[:, 0], y[:, 0]))
    region = Region(y, np.tile(np.eye(2), (6, 1, 1)), np.ones(6))
    with pytest.raises(TypeError, match="a region is of all targets at once, coverage of each: use joint_coverage"):
        metrics.coverage(y, region)
    with pytest.raises(TypeError, match="y must not be traced where regions are given"):
        jax.jit(lambda y: metrics.joint_coverage(y, region))(y)
    with pytest.raises(ValueError, match=r"y must have shape \(6, 2\), that of the centre; got \(5, 2\)"):
        metrics.joint_coverage(y[:5], region)
    with pytest.raises(ValueError, match="draws must be at least 2; got 1"):
        metrics.energy_score(y, Mixture(t), draws=1)
    with pytest.raises(TypeError, match=r"such as jax\.random\.key\(0\); got 3"):
        metrics.energy_score(y, Mixture(t), 3)
    with pytest.raises(ValueError, match=r"uncertainty must have shape \(6,\), that of the rows of y; got \(5,\)"):
        metrics.ause(y, Mixture(t), np.ones(5))
    with pytest.raises(ValueError, match=r"one for each of 2 targets; got \['a'\]"):
        metrics.report(y, Mixture(t), names=["a"])
