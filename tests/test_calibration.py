"""The fitted scale against scipy, brute force and simulations; conformal regions by their exact coverage."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats

import mder_jax as mder
from mder_jax.calibration import (
    Scale,
    conformal_radius,
    conformal_scores,
    fit_scale,
    radius_of,
    rescale,
)
from mder_jax.calibration._scale_search import PRIOR_SD
from mder_jax.mixture import Mixture
from tests.support.cases import factors, long


def student(rows, n=2, df=8.0, seed=0):
    rng = np.random.default_rng(seed)
    return mder.StudentT(df, jnp.asarray(rng.normal(size=(rows, n))), factors(rng, (rows,), n))


def students(size, rows, n=2, df=8.0, seed=0):
    rng = np.random.default_rng(seed)
    return Mixture(mder.StudentT(df, jnp.asarray(rng.normal(size=(size, rows, n))), factors(rng, (size, rows), n)))


def niws(size, rows, n=2, seed=0):
    rng = np.random.default_rng(seed)
    nu, kappa = n + 5 + 5 * rng.uniform(size=(size, rows)), 0.3 + 4 * rng.uniform(size=(size, rows))
    return Mixture(mder.NIW(jnp.asarray(rng.normal(size=(size, rows, n))), factors(rng, (size, rows), n), kappa, nu))


def draw(prediction, within, between=1.0, seed=0):
    """Data from the prediction with its factors."""
    return rescale(prediction, Scale(within, between)).sample(jax.random.key(seed))


def holes(y, share=0.3, seed=0):
    return jnp.where(np.random.default_rng(seed).uniform(size=y.shape) < share, jnp.nan, y)


def numbers(fit):
    return np.array([fit.scale, fit.standard_error, fit.lower, fit.upper])


# --- rescale


@pytest.mark.parametrize("mixture", [students(4, 5), niws(4, 5)], ids=["t", "niw"])
def test_rescaled_parts_of_the_covariance(mixture):
    scaled = rescale(mixture, Scale(3.0, 0.2))
    assert type(scaled.members) is type(mixture.members)
    np.testing.assert_allclose(scaled.aleatoric(), 3 * mixture.aleatoric(), rtol=1e-12)
    np.testing.assert_allclose(scaled.epistemic_within(), 3 * mixture.epistemic_within(), rtol=1e-12)
    np.testing.assert_allclose(scaled.epistemic_between(), 0.2 * mixture.epistemic_between(), rtol=1e-11)
    np.testing.assert_allclose(scaled.mean(), mixture.mean(), atol=1e-14)
    np.testing.assert_allclose(rescale(mixture, Scale(3.0, 3.0)).total(), 3 * mixture.total(), rtol=1e-12)


def test_rescaled_niw_keeps_its_evidence_and_r():
    niw = jax.tree.map(lambda leaf: leaf[0], niws(1, 5).members)
    scaled = rescale(niw, Scale(4.0, 100.0))
    assert isinstance(scaled, mder.NIW)
    for kept in ("mu", "kappa", "nu"):
        np.testing.assert_array_equal(getattr(scaled, kept), getattr(niw, kept))
    np.testing.assert_allclose(mder.aleatoric(scaled), 4 * mder.aleatoric(niw), rtol=1e-12)
    np.testing.assert_allclose(mder.predictive(scaled).covariance(), 4 * mder.predictive(niw).covariance(), rtol=1e-12)


@pytest.mark.parametrize("prediction", [student(5), niws(3, 5), students(1, 5)], ids=["t", "mixture", "one member"])
def test_factors_of_one_change_nothing(prediction):
    jax.tree.map(np.testing.assert_array_equal, rescale(prediction, Scale()), prediction)


def test_between_has_no_effect_on_one_member():
    jax.tree.map(np.testing.assert_array_equal, rescale(student(5), Scale(2.0, 50.0)), rescale(student(5), Scale(2.0)))
    one = students(1, 5)
    np.testing.assert_array_equal(rescale(one, Scale(1.0, 50.0)).members.loc, one.members.loc)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_rescale_under_jit(dtype):
    mixture = jax.tree.map(lambda leaf: leaf.astype(dtype), niws(3, 5))
    eager = rescale(mixture, Scale(2.0, 0.5))
    jitted = jax.jit(rescale)(mixture, Scale(jnp.asarray(2.0, dtype), jnp.asarray(0.5, dtype)))
    assert eager.members.L.dtype == jitted.members.L.dtype == dtype
    rtol = 20 * float(jnp.finfo(dtype).eps)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol), jitted, eager)


# --- fit_scale: likelihood


def test_likelihood_of_one_member_against_scipy():
    rng = np.random.default_rng(1)
    t = mder.StudentT(rng.uniform(2.5, 9, size=30), *(getattr(student(30), name) for name in ("loc", "scale_tril")))
    y = np.asarray(draw(t, 5.0))
    S = np.asarray(t.scale_tril @ jnp.swapaxes(t.scale_tril, -1, -2))

    def nll(x):
        rows = zip(y, np.asarray(t.loc), S, np.asarray(t.df), strict=True)
        return -sum(scipy.stats.multivariate_t.logpdf(row, loc, np.exp(x) * s, df) for row, loc, s, df in rows)

    best = scipy.optimize.minimize_scalar(nll, bracket=(0, 2), tol=1e-10)
    curvature = (nll(best.x + 1e-3) - 2 * best.fun + nll(best.x - 1e-3)) / 1e-6
    fit = fit_scale(t, y, level=0.9)
    np.testing.assert_allclose(fit.scale, [np.exp(best.x)] * 2, rtol=1e-6)
    np.testing.assert_allclose(fit.standard_error.within, np.exp(best.x) / np.sqrt(curvature), rtol=1e-4)
    ends = np.exp(best.x + np.array([-1, 1]) * scipy.stats.norm.ppf(0.95) / np.sqrt(curvature))
    np.testing.assert_allclose([fit.lower.within, fit.upper.within], ends, rtol=1e-4)
    assert fit.rows == 30 and fit.method == "likelihood"


@pytest.mark.slow
@pytest.mark.parametrize("separate", [False, True])
def test_slope_is_zero_at_the_optimum(separate):
    mixture = niws(3, 100)
    y = draw(mixture, 2.0, 0.5)
    fit = fit_scale(mixture, y, separate=separate)

    def total(x):
        return jnp.sum(rescale(mixture, Scale(jnp.exp(x[0]), jnp.exp(x[-1]))).log_prob(y))

    x = jnp.log(jnp.array(fit.scale[: 1 + separate]))
    np.testing.assert_allclose(jax.jit(jax.grad(total))(x), 0, atol=1e-6)
    information = -jax.jit(jax.hessian(total))(x)
    errors = np.sqrt(np.diagonal(np.linalg.inv(information)))
    np.testing.assert_allclose(np.array(fit.standard_error[: 1 + separate]) / np.exp(x), errors, rtol=1e-6)


@pytest.mark.parametrize("factor", [1e-6, 0.3, 1e6])
@pytest.mark.parametrize("method", ["likelihood", "pull", "posterior"])
def test_a_common_factor_is_recovered(method, factor):
    mixture = niws(3, 1000)
    fit = fit_scale(mixture, draw(mixture, factor, factor), method)
    assert fit.scale.within == fit.scale.between
    assert abs(fit.scale.within - factor) < 3 * fit.standard_error.within < 0.4 * factor
    assert fit.lower.within < fit.scale.within < fit.upper.within


@pytest.mark.parametrize("within, between", [(2.0, 0.5), (1e-6, 1e6), (1e3, 1e4)])
@pytest.mark.parametrize("method", ["likelihood", long("posterior")])
def test_separate_factors_are_recovered(method, within, between):
    mixture = students(3, 1000, df=6.0)
    fit = fit_scale(mixture, draw(mixture, within, between), method, separate=True)
    np.testing.assert_array_less(np.abs(np.array(fit.scale) - [within, between]), 3 * np.array(fit.standard_error))
    np.testing.assert_array_less(np.array(fit.standard_error), [0.1 * within, 0.5 * between])


def test_heavy_tails_without_moments():
    t = student(100, df=0.7)
    fit = fit_scale(t, draw(t, 50.0))
    assert abs(fit.scale.within - 50) < 3 * fit.standard_error.within < 75


@pytest.mark.parametrize("method", ["likelihood", "pull"])
def test_standard_errors_are_the_spread_of_repeated_fits(method):
    mixture = students(3, 100, df=14.0)
    fits = [fit_scale(mixture, draw(mixture, 2.0, 2.0, seed), method) for seed in range(200)]
    estimates, errors = (np.array([getattr(fit, name).within for fit in fits]) for name in ("scale", "standard_error"))
    assert abs(estimates.mean() - 2) < 3 * estimates.std() / np.sqrt(200) + errors.mean() ** 2 / 2  # the bias of exp
    assert abs(estimates.std(ddof=1) / errors.mean() - 1) < 3 / np.sqrt(2 * 199)
    covered = np.mean([fit.lower.within < 2 < fit.upper.within for fit in fits])
    assert abs(covered - 0.95) < 3 * np.sqrt(0.95 * 0.05 / 200)


# --- fit_scale: pull


def test_pull_by_hand():
    mixture = niws(3, 50)
    y = np.asarray(draw(mixture, 3.0, 3.0))
    d = y - np.asarray(mixture.mean())
    pulls = np.einsum("ni,nij,nj->n", d, np.linalg.inv(mixture.total()), d) / 2
    fit, error = fit_scale(mixture, y, "pull"), pulls.std(ddof=1) / np.sqrt(50)
    np.testing.assert_allclose(fit.scale, [pulls.mean()] * 2, rtol=1e-10)
    np.testing.assert_allclose(fit.standard_error, [error] * 2, rtol=1e-10)
    np.testing.assert_allclose(fit.upper.within, pulls.mean() * np.exp(1.959964 * error / pulls.mean()), rtol=1e-6)


# --- fit_scale: posterior


def quantiles(x, density, levels):
    below = np.cumsum(density) - density / 2
    return np.interp(levels, below / density.sum(), x)


@pytest.mark.parametrize("df", [3.0, np.inf])
def test_posterior_of_one_row_against_a_fine_grid(df):
    t = student(1, n=1, df=df)
    y = t.loc + 4.0
    x = np.linspace(-25, 25, 200_001)
    likelihood = scipy.stats.t.pdf(4.0, df, scale=np.exp(x / 2) * float(t.scale_tril[0, 0, 0]))
    density = likelihood * scipy.stats.norm.pdf(x, scale=PRIOR_SD)
    median, low, high = np.exp(quantiles(x, density, [0.5, 0.05, 0.95]))
    fit = fit_scale(t, y, "posterior", level=0.9)
    np.testing.assert_allclose([fit.scale[0], fit.lower[0], fit.upper[0]], [median, low, high], rtol=1e-3)
    centre = np.average(x, weights=density)
    deviation = np.sqrt(np.average((x - centre) ** 2, weights=density))
    np.testing.assert_allclose(fit.standard_error.within, median * deviation, rtol=1e-3)


@pytest.mark.parametrize("rows", [1, long(30)])
def test_posterior_of_two_factors_against_a_fine_grid(rows):
    mixture = students(2, rows, n=1, df=5.0)
    y = draw(mixture, 0.5, 3.0, seed=1)
    x = np.linspace(-12, 12, 401)
    loc, scale, target = (np.asarray(v) for v in (mixture.members.loc, mixture.members.scale_tril[..., 0], y))
    centre, log_density = loc.mean(0), np.zeros((401, 401))
    for row in range(rows):
        means = centre[row, 0] + np.exp(x / 2)[:, None] * (loc[:, row, 0] - centre[row, 0])
        standard = (target[row, 0] - means) / (np.exp(x / 2)[:, None, None] * scale[:, row, 0])
        log_density += np.log(np.mean(scipy.stats.t.pdf(standard, 5.0) / scale[:, row, 0], -1)) - x[:, None] / 2
    log_density -= 0.5 * (x[:, None] ** 2 + x**2) / PRIOR_SD**2
    density = np.exp(log_density - log_density.max())
    fit = fit_scale(mixture, y, "posterior", separate=True)
    for j in range(2):
        expected = np.exp(quantiles(x, density.sum(1 - j), [0.5, 0.025, 0.975]))
        np.testing.assert_allclose([fit.scale[j], fit.lower[j], fit.upper[j]], expected, rtol=0.02)


def test_credible_intervals_hold_factors_drawn_from_the_prior():
    t, rng = student(1, n=1, df=5.0), np.random.default_rng(0)
    inside = []
    for seed in range(200):
        factor = np.exp(PRIOR_SD * rng.normal())
        fit = fit_scale(t, draw(t, factor, seed=seed), "posterior", level=0.8)
        inside.append(fit.lower.within < factor < fit.upper.within)
    assert abs(np.mean(inside) - 0.8) < 3 * np.sqrt(0.8 * 0.2 / 200)


def test_posterior_of_many_rows_is_the_likelihood():
    mixture = students(3, 1000)
    y = draw(mixture, 2.0, 1.0)
    posterior, likelihood = (numbers(fit_scale(mixture, y, m, separate=True)) for m in ("posterior", "likelihood"))
    np.testing.assert_allclose(posterior, likelihood, rtol=0.1)


# --- fit_scale: rows


@pytest.mark.parametrize("method", ["likelihood", "pull", "posterior"])
def test_missing_targets_are_left_out_by_hand(method):
    t = student(110, n=2)
    y = np.array(draw(t, 2.0))
    y[:20, 0], y[20:40, 1], y[100:] = np.nan, np.nan, np.nan
    fit = fit_scale(t, y, method)
    dropped = jax.tree.map(lambda leaf: leaf[:100], t)
    np.testing.assert_allclose(numbers(fit), numbers(fit_scale(dropped, y[:100], method)), rtol=1e-9)
    assert fit.rows == 100
    y = np.array(draw(dropped, 2.0))
    found = fit_scale(dropped, np.where([False, True], y, np.nan), method)
    expected = fit_scale(dropped.marginal([1]), y[:, 1:], method)
    np.testing.assert_allclose(numbers(found), numbers(expected), rtol=1e-8)


def test_missing_targets_of_a_mixture_of_niws():
    mixture = niws(3, 100, n=3)
    y = holes(draw(mixture, 2.0, 2.0))
    fit = fit_scale(mixture, y)

    def total(x):
        scaled = rescale(mixture, Scale(jnp.exp(x), jnp.exp(x)))
        evidence = jax.vmap(lambda niw: mder.log_evidence(niw, y, missing=True))(scaled.members)
        return jnp.sum(jax.scipy.special.logsumexp(evidence, axis=0))

    np.testing.assert_allclose(jax.jit(jax.grad(total))(jnp.log(fit.scale.within)), 0, atol=1e-6)
    assert abs(fit.scale.within - 2) < 3 * fit.standard_error.within


@pytest.mark.parametrize("method", ["likelihood", "pull", "posterior"])
def test_order_of_rows_does_not_matter(method):
    mixture = students(3, 100)
    y, order = draw(mixture, 2.0, 2.0), np.random.default_rng(0).permutation(100)
    shuffled = jax.tree.map(lambda leaf: leaf[:, order], mixture)
    np.testing.assert_allclose(
        numbers(fit_scale(shuffled, y[order], method)), numbers(fit_scale(mixture, y, method)), rtol=1e-8
    )


@pytest.mark.parametrize("method", ["likelihood", "pull", "posterior"])
def test_a_niw_its_predictive_and_a_mixture_of_one_agree(method):
    one = niws(1, 100)
    y, niw = draw(one, 2.0), jax.tree.map(lambda leaf: leaf[0], one.members)
    fits = [numbers(fit_scale(prediction, y, method)) for prediction in (one, niw, mder.predictive(niw))]
    np.testing.assert_allclose(fits[1], fits[0], rtol=1e-10)
    np.testing.assert_allclose(fits[2], fits[0], rtol=1e-10)


@pytest.mark.parametrize("method", ["likelihood", "posterior"])
def test_single_precision_is_near_double(method):
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), students(3, 1000))
    y = draw(single, 2.0, 2.0).astype(jnp.float32)
    double = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), single)
    low, high = (numbers(fit_scale(p, y.astype(p.members.loc.dtype), method)) for p in (single, double))
    np.testing.assert_allclose(low, high, rtol=1e-3)


def test_the_fit_prints_its_factors():
    mixture = students(3, 100)
    y = draw(mixture, 2.0, 2.0)
    assert str(fit_scale(mixture, y)).count("\n") == 1
    text = str(fit_scale(mixture, y, separate=True))
    assert "likelihood, 100 rows, 95% intervals" in text and "within" in text and "between" in text


# --- conformal


@pytest.mark.parametrize("joint", [True, False])
def test_conformal_coverage_is_exact_though_the_scale_is_wrong(joint):
    """A new score is below the k-th of N with probability k/(N+1), so c ≤ coverage ≤ c + 1/(N+1)."""
    count, coverage = 19, 0.88
    fresh, simulations, t = 400, 500, student(count, n=2, df=5.0)
    held_out = jax.vmap(lambda key: rescale(t, Scale(7.0)).sample(key))(
        jax.random.split(jax.random.key(0), simulations)
    )
    radii = np.array([conformal_radius(t, y, coverage, joint) for y in held_out])
    wide = rescale(t, Scale(7.0)).sample(jax.random.key(1), fresh)
    if joint:
        scores = t.mahalanobis(wide) / np.sqrt(5 / 3)
    else:
        scores = np.abs(wide - t.loc[None])[..., 0] / (t.marginal_scale()[None, :, 0] * np.sqrt(5 / 3))
        radii = radii[:, 0]
    covered = np.mean(np.asarray(scores).reshape(-1)[:, None] <= radii, axis=0)
    expected = np.ceil((count + 1) * coverage) / (count + 1)
    assert coverage <= expected <= coverage + 1 / (count + 1)
    new_rows = np.sqrt(coverage * (1 - coverage) / scores.size)  # the same fresh rows in every simulation
    assert abs(covered.mean() - expected) < 3 * np.hypot(covered.std() / np.sqrt(simulations), new_rows)


@pytest.mark.slow
def test_scores_of_a_mixture_by_hand():
    mixture = niws(3, 25)
    y = np.asarray(draw(mixture, 1.0))
    d, total = y - np.asarray(mixture.mean()), np.asarray(mixture.total())
    joint = np.sqrt(np.einsum("ni,nij,nj->n", d, np.linalg.inv(total), d))
    np.testing.assert_allclose(conformal_scores(mixture, y), np.sort(joint), rtol=1e-10)
    marginal = np.abs(d) / np.sqrt(np.diagonal(total, axis1=-2, axis2=-1))
    np.testing.assert_allclose(conformal_scores(mixture, y, joint=False), np.sort(marginal, axis=0), rtol=1e-10)
    np.testing.assert_allclose(conformal_radius(mixture, y, 0.8), np.sort(joint)[20], rtol=1e-10)  # ⌈26 · 0.8⌉ = 21st
    np.testing.assert_allclose(conformal_radius(mixture, y, 0.5, joint=False), np.sort(marginal, axis=0)[12])


@pytest.mark.parametrize("joint", [True, False])
def test_a_common_factor_cancels_in_the_region_and_two_do_not(joint):
    mixture = niws(3, 40)
    y = draw(mixture, 2.0)
    radius = conformal_radius(mixture, y, 0.8, joint)
    common = conformal_radius(rescale(mixture, Scale(9.0, 9.0)), y, 0.8, joint)
    np.testing.assert_allclose(3 * common, radius, rtol=1e-10)
    between = rescale(mixture, Scale(1.0, 9.0))
    region = conformal_radius(between, y, 0.8, joint) * between.std()[0, 0]
    assert np.all(np.abs(region / (radius * mixture.std()[0, 0]) - 1) > 0.01)


def test_scores_without_missing_targets():
    t = student(30, n=2)
    y = np.array(holes(draw(t, 1.0)))
    complete = ~np.isnan(y).any(axis=1)
    part = jax.tree.map(lambda leaf: leaf[complete], t)
    np.testing.assert_allclose(conformal_scores(t, y), conformal_scores(part, y[complete]), rtol=1e-12)
    scores = conformal_scores(t, y, joint=False)
    assert len(scores) == max(np.sum(~np.isnan(y), axis=0))
    for j in range(2):
        seen = ~np.isnan(y[:, j])
        alone = jax.tree.map(lambda leaf, seen=seen: leaf[seen], t).marginal([j])
        expected = conformal_scores(alone, y[seen][:, [j]])
        np.testing.assert_allclose(scores[: seen.sum(), j], expected, rtol=1e-10)
        assert np.isnan(scores[seen.sum() :, j]).all()
        np.testing.assert_allclose(radius_of(scores, 0.7)[j], radius_of(expected, 0.7), rtol=1e-10)


@pytest.mark.parametrize(
    "count, coverage, rank", [(99, 0.07, 7), (99, 0.95, 95), (99, 0.951, 96), (19, 0.95, 19), (9, 1e-9, 1)]
)
def test_rank_of_the_radius(count, coverage, rank):
    scores = np.random.default_rng(0).permutation(np.arange(1.0, count + 1))
    assert radius_of(scores, coverage) == rank


def test_too_few_rows_give_no_bound():
    assert radius_of(np.arange(18.0), 0.95) == np.inf and radius_of(np.arange(19.0), 0.95) == 18
    assert radius_of(np.arange(1000.0), 1.0) == np.inf
    np.testing.assert_array_equal(radius_of([[1.0, np.nan], [2.0, np.nan]], 0.5), [2.0, np.inf])


# --- errors


def test_wrong_predictions_and_targets():
    t, y = student(4), jnp.zeros((4, 2))
    with pytest.raises(TypeError, match="a StudentT, a NIW or a Mixture; got tuple"):
        fit_scale((t, t), y)
    with pytest.raises(ValueError, match=r"y must have shape \(4, 2\), that of the prediction's mean; got \(4,\)"):
        fit_scale(t, y[:, 0])
    with pytest.raises(ValueError, match=r"batch shape \(N,\), .*; got \(4, 2\)"):
        conformal_scores(mder.StudentT(5.0, jnp.zeros((4, 2, 1)), jnp.ones((4, 2, 1, 1))), y)
    with pytest.raises(ValueError, match=r"y\[1, 0\] is infinite"):
        fit_scale(t, y.at[1, 0].set(jnp.inf))
    with pytest.raises(ValueError, match="all 4 have only NaN"):
        fit_scale(t, jnp.full((4, 2), jnp.nan))
    with pytest.raises(ValueError, match="rows with all 2 targets; every row has a NaN"):
        conformal_scores(t, y.at[:, 0].set(jnp.nan))
    broken = mder.StudentT(5.0, t.loc.at[2, 0].set(jnp.nan), t.scale_tril)
    with pytest.raises(ValueError, match="the prediction is not finite in row 2"):
        fit_scale(broken, y)


def test_wrong_options():
    t, y = student(4), jnp.zeros((4, 2))
    with pytest.raises(ValueError, match="'likelihood', 'pull' or 'posterior'; got 'ml'"):
        fit_scale(t, y, "ml")
    with pytest.raises(ValueError, match=r"between 0 and 1; got 95"):
        fit_scale(t, y, level=95)
    with pytest.raises(ValueError, match=r"above 0 and at most 1; got 90"):
        conformal_radius(t, y, 90)
    with pytest.raises(ValueError, match=r"scores must have shape \(K,\) or \(K, n\); got \(\)"):
        radius_of(1.0, 0.5)
    with pytest.raises(ValueError, match="within must be greater than 0"):
        rescale(t, Scale(-1.0))
    with pytest.raises(ValueError, match=r"between must have shape \(\), that of one number; got \(2,\)"):
        rescale(t, Scale(1.0, jnp.ones(2)))


def test_factors_no_data_can_tell():
    same = Mixture(jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), student(4)))
    y = draw(same, 1.0)
    for prediction in (same, student(4)):
        with pytest.raises(ValueError, match="separate=True needs members whose means differ"):
            fit_scale(prediction, y, separate=True)
    with pytest.raises(ValueError, match="pulls see only the total covariance"):
        fit_scale(students(3, 4), y, "pull", separate=True)
    exact = student(4)
    with pytest.raises(ValueError, match="the likelihood has no maximum that these 4 rows determine"):
        fit_scale(exact, exact.loc)
    with pytest.raises(ValueError, match="every y is exactly the predicted mean"):
        fit_scale(exact, exact.loc, "pull")
    assert 0 < fit_scale(exact, exact.loc, "posterior").scale.within < 1


def test_members_that_disagree_more_than_the_data_can_show():
    mixture = students(3, 100)
    y = mixture.mean() + 0.1 * np.random.default_rng(1).normal(size=(100, 2))  # no spread between members at all
    for method in ("likelihood", "posterior"):
        assert fit_scale(mixture, y, method, separate=True).scale.between < 0.1


def test_pulls_need_two_rows_and_a_covariance():
    with pytest.raises(ValueError, match="needs 2 rows or more; got 1"):
        fit_scale(student(1), jnp.zeros((1, 2)), "pull")
    heavy = mder.StudentT(jnp.array([5.0, 5.0, 2.0]), *(getattr(student(3), name) for name in ("loc", "scale_tril")))
    reason = r"covariance needs df > 2 \(a NIW: ν > n \+ 1\); it is not finite in row 2"
    with pytest.raises(ValueError, match=reason):
        fit_scale(heavy, jnp.zeros((3, 2)), "pull")
    with pytest.raises(ValueError, match=reason):
        conformal_scores(heavy, jnp.zeros((3, 2)))
