"""The mixture of an ensemble's members against scipy, its moments by sampling, and its quantiles by bisection."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats

import mder_jax as mder
from mder_jax.mixture import Mixture
from tests.support.cases import factors, long

DFS = (2.5, 4.0, 7.0, np.inf, 30.0)


def students(size=3, batch=(), n=2, df=None, seed=0):
    rng = np.random.default_rng(seed)
    df = np.resize(DFS, (*batch, size)).T if df is None else np.full((size, *batch), df)
    loc = jnp.asarray(2 * rng.normal(size=(size, *batch, n)))
    return mder.StudentT(df, loc, factors(rng, (size, *batch), n))


def niws(size=3, batch=(), n=2, nu=None, seed=0):
    rng = np.random.default_rng(seed)
    nu = n + 2 + 5 * rng.uniform(size=(size, *batch)) if nu is None else nu
    kappa = 0.3 + 4 * rng.uniform(size=(size, *batch))
    return mder.NIW(jnp.asarray(2 * rng.normal(size=(size, *batch, n))), factors(rng, (size, *batch), n), kappa, nu)


def line(df, loc, scale, dtype=jnp.float64):
    """A mixture of one target."""
    df, loc, scale = (jnp.asarray(value, dtype) for value in (df, loc, scale))
    return Mixture(mder.StudentT(df, loc[:, None], scale[:, None, None]))


def scipy_joint(t, i):
    L = np.asarray(t.scale_tril[i])
    return scipy.stats.multivariate_t(np.asarray(t.loc[i]), L @ L.T, df=float(t.df[i]))


def scipy_cdf(t, y):
    """Mean over members of scipy's univariate cdf; t has batch shape (M,) and y is (..., n)."""
    L = np.asarray(t.scale_tril)
    scale = np.sqrt(np.diagonal(L @ np.swapaxes(L, -1, -2), axis1=-2, axis2=-1))
    members = zip(np.asarray(t.df), np.asarray(t.loc), scale, strict=True)
    return np.mean([scipy.stats.t.cdf(y, df, loc, width) for df, loc, width in members], axis=0)


def scipy_ppf(t, p, j):
    """Quantile of target j: a bracket from the members' own quantiles, then brentq."""
    scale = np.sqrt(np.sum(np.asarray(t.scale_tril)[:, j] ** 2, axis=-1))
    own = scipy.stats.t.ppf(p, np.asarray(t.df), np.asarray(t.loc)[:, j], scale)
    if np.ptp(own) == 0:
        return own[0]
    part = t.marginal([j])

    def gap(y):
        return scipy_cdf(part, np.array([y]))[0] - p

    margin = 1e-9 * np.abs(own).max()
    return scipy.optimize.brentq(gap, own.min() - margin, own.max() + margin, xtol=1e-14, rtol=1e-14)


@pytest.mark.parametrize("n", [1, 3, long(2), long(5)])
def test_log_prob_is_the_mean_of_scipys_densities(n):
    t = students(4, n=n)
    y = np.random.default_rng(1).normal(size=(7, 20, n)) * 3
    densities = [scipy_joint(t, i).pdf(y.reshape(-1, n)).reshape(7, 20) for i in range(4)]
    np.testing.assert_allclose(Mixture(t).log_prob(y), np.log(np.mean(densities, axis=0)), rtol=1e-9)


@pytest.mark.slow
def test_rows_of_a_batch_and_samples_in_front():
    t = students(3, batch=(4,))
    y = np.random.default_rng(1).normal(size=(5, 4, 2))
    mixture = Mixture(t)
    assert mixture.log_prob(y).shape == (5, 4) and mixture.cdf(y).shape == (5, 4, 2)
    for row in range(4):
        part = jax.tree.map(lambda leaf, row=row: leaf[:, row], t)
        densities = [scipy_joint(part, i).pdf(y[:, row]) for i in range(3)]
        np.testing.assert_allclose(mixture.log_prob(y)[:, row], np.log(np.mean(densities, axis=0)), rtol=1e-9)
        np.testing.assert_allclose(mixture.cdf(y)[:, row], scipy_cdf(part, y[:, row]), rtol=1e-9)
        np.testing.assert_allclose(mixture.ppf(0.2)[row], [scipy_ppf(part, 0.2, j) for j in range(2)], rtol=1e-9)


def test_log_prob_far_out_does_not_underflow():
    mixture = line([np.inf, np.inf], [0.0, 1.0], [1.0, 1.0])
    expected = scipy.stats.norm.logpdf(99.0) - np.log(2)
    np.testing.assert_allclose(mixture.log_prob(jnp.array([100.0])), expected, rtol=1e-12)


def test_members_are_mixed_not_averaged():
    mixture = line([5.0, 5.0], [-10.0, 10.0], [1.0, 1.0])
    at_members, between = mixture.log_prob(jnp.array([[-10.0], [10.0]])), mixture.log_prob(jnp.zeros(1))
    assert float(between) < float(at_members.min()) - 8
    np.testing.assert_allclose(at_members, scipy.stats.t.logpdf(0, 5) - np.log(2), atol=1e-4)


@pytest.mark.parametrize("n", [2, long(1), long(4)])
def test_total_covariance_is_that_of_the_members_predictives(n):
    members = niws(5, batch=(3,), n=n)
    mixture, t = Mixture(members), mder.predictive(members)
    between = np.stack([np.cov(np.asarray(t.loc[:, row]).T, ddof=0).reshape(n, n) for row in range(3)])
    np.testing.assert_allclose(mixture.epistemic_between(), between, rtol=1e-10, atol=1e-12)
    total = np.asarray(t.covariance()).mean(axis=0) + between
    np.testing.assert_allclose(mixture.total(), total, rtol=1e-10)
    np.testing.assert_allclose(mixture.covariance(), total, rtol=1e-10)
    np.testing.assert_allclose(mixture.std() ** 2, np.diagonal(total, axis1=-2, axis2=-1), rtol=1e-10)
    np.testing.assert_allclose(Mixture(t).total(), total, rtol=1e-10)
    np.testing.assert_allclose(mixture.mean(), np.asarray(t.loc).mean(axis=0), rtol=1e-12)


def test_parts_of_the_covariance_by_numpy():
    members = niws(4, n=3)
    L, nu, kappa = (np.asarray(leaf) for leaf in (members.L, members.nu, members.kappa))
    noise = (nu / (nu - 4))[:, None, None] * (L @ np.swapaxes(L, -1, -2))
    mixture = Mixture(members)
    np.testing.assert_allclose(mixture.aleatoric(), noise.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(mixture.epistemic_within(), (noise / kappa[:, None, None]).mean(axis=0), rtol=1e-12)
    epistemic = mixture.epistemic_within() + mixture.epistemic_between()
    np.testing.assert_array_equal(mixture.epistemic(), epistemic)
    np.testing.assert_array_equal(mixture.total(), mixture.aleatoric() + epistemic)


def test_student_t_members_have_no_epistemic_part_of_their_own():
    mixture = Mixture(students(3, df=5.0))
    np.testing.assert_array_equal(mixture.epistemic_within(), np.zeros((2, 2)))
    np.testing.assert_array_equal(mixture.epistemic(), mixture.epistemic_between())


def test_close_means_far_from_zero_keep_their_digits():
    loc = 4096 + np.arange(-2, 3) / 2048  # exact in float32, with squares that are not
    mixture = line(5.0 * np.ones(5), loc, np.ones(5), jnp.float32)
    np.testing.assert_allclose(mixture.epistemic_between(), [[np.var(loc)]], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("members", [students(3, n=2, df=9.0), niws(3, n=2, nu=10.0)], ids=["t", "niw"])
def test_samples_have_the_stated_moments_and_quantiles(members):
    mixture = Mixture(members)
    draws = np.asarray(mixture.sample(jax.random.key(3), (200_000,)))
    mean = np.asarray(mixture.mean())
    assert np.all(np.abs(draws.mean(0) - mean) < 4 * draws.std(0) / np.sqrt(len(draws)))
    products = (draws - mean)[:, :, None] * (draws - mean)[:, None, :]
    error = products.std(0) / np.sqrt(len(draws))
    assert np.all(np.abs(products.mean(0) - np.asarray(mixture.total())) < 4 * error)
    for p in (0.05, 0.5, 0.9):
        share = np.mean(draws <= np.asarray(mixture.ppf(p)), axis=0)
        assert np.all(np.abs(share - p) < 4 * np.sqrt(p * (1 - p) / len(draws)))
    lower, upper = (np.asarray(bound) for bound in mixture.interval(0.8))
    share = np.mean((draws >= lower) & (draws <= upper), axis=0)
    assert np.all(np.abs(share - 0.8) < 4 * np.sqrt(0.8 * 0.2 / len(draws)))


def test_a_draw_is_of_one_member_in_all_targets_and_of_any_in_each_row():
    loc = jnp.asarray(100.0 * np.arange(3)[:, None, None] + 1000 * np.arange(4)[:, None] + np.zeros((3, 4, 2)))
    mixture = Mixture(mder.StudentT(np.inf, loc, jnp.broadcast_to(jnp.eye(2), (3, 4, 2, 2))))
    draws = np.asarray(mixture.sample(jax.random.key(0), (2, 3000)))
    assert draws.shape == (2, 3000, 4, 2)
    member = np.round((draws - 1000 * np.arange(4)[:, None]) / 100)
    np.testing.assert_array_equal(member[..., 0], member[..., 1])
    shares = np.mean(member[..., 0].reshape(-1, 4, 1) == np.arange(3), axis=0)
    assert np.all(np.abs(shares - 1 / 3) < 4 * np.sqrt(2 / 9 / 6000))
    agree = np.mean(member[..., 0, 0] == member[..., 1, 0])  # rows choose on their own
    assert abs(agree - 1 / 3) < 4 * np.sqrt(2 / 9 / 6000)


def test_quantiles_are_where_scipys_cdf_says():
    t = students(5, n=2)
    mixture, levels = Mixture(t), np.array([1e-8, 1e-3, 0.05, 0.3, 0.5, 0.51, 0.9, 0.999])
    expected = [[scipy_ppf(t, p, j) for j in range(2)] for p in levels]
    found = mixture.quantiles(levels)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    np.testing.assert_allclose(mixture.cdf(found), np.broadcast_to(levels[:, None], (8, 2)), rtol=1e-12)
    np.testing.assert_allclose(found[3], mixture.ppf(0.3), rtol=1e-14)
    np.testing.assert_allclose(mixture.interval(0.4), [mixture.ppf(0.3), mixture.ppf(0.7)], rtol=1e-13)


@pytest.mark.slow
def test_a_level_for_each_row_and_target():
    t = students(3, batch=(4,))
    p = np.random.default_rng(2).uniform(size=(4, 2))
    found = Mixture(t).ppf(p)
    np.testing.assert_allclose(Mixture(t).cdf(found), p, rtol=1e-12)
    np.testing.assert_allclose(found[2, 1], Mixture(t).ppf(p[2, 1])[2, 1], rtol=1e-14)


@pytest.mark.slow
def test_gaussian_members():
    mixture = line([np.inf, np.inf], [-1.0, 2.0], [1.0, 3.0])
    y = np.linspace(-5, 8, 30)[:, None]
    normals = scipy.stats.norm(np.array([-1.0, 2.0]), np.array([1.0, 3.0]))
    np.testing.assert_allclose(mixture.log_prob(y), np.log(normals.pdf(y).mean(-1)), rtol=1e-12)
    np.testing.assert_allclose(mixture.cdf(y)[:, 0], normals.cdf(y).mean(-1), rtol=1e-12)
    np.testing.assert_allclose(jax.vmap(mixture.ppf)(mixture.cdf(y)[:, 0]), y, rtol=1e-10)
    np.testing.assert_allclose(mixture.total(), [[(1 + 9) / 2 + 1.5**2]], rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, long(np.float64)])
@pytest.mark.parametrize("df", [[4.0, 4.0], [np.inf, np.inf], [1.0, np.inf]])
def test_quantiles_of_members_a_million_scales_apart(df, dtype):
    mixture = line(df, [0.0, 1e6], [1.0, 1.0], dtype)
    # Below one half it is the left member's, above the right one's, each at twice the level, but for the other's tail.
    levels = np.array([0.02, 0.2, 0.45])
    left, right = (scipy.stats.t(m, loc) for m, loc in zip(df, [0.0, 1e6], strict=True))
    tolerance = {"rtol": 10 * np.finfo(dtype).eps, "atol": 1e-4}
    np.testing.assert_allclose(mixture.quantiles(levels)[:, 0], left.ppf(2 * levels), **tolerance)
    np.testing.assert_allclose(mixture.quantiles(0.5 + levels)[:, 0], right.ppf(2 * levels), **tolerance)


def test_median_between_far_members_weighs_their_tails():
    np.testing.assert_allclose(line([4.0, 4.0], [0.0, 1e6], [1.0, 1.0]).ppf(0.5), [5e5], rtol=1e-9)
    thirds = line([4.0] * 3, [0.0, 1e6, 3e6], [1.0] * 3).quantiles(np.array([0.5]))
    np.testing.assert_allclose(thirds, [[1e6]], rtol=1e-6)
    # Gaussian tails vanish: any point between is a median.
    gap = line([np.inf, np.inf], [0.0, 1e6], [1.0, 1.0]).ppf(0.5)
    assert 30 < float(gap[0]) < 1e6 - 30


@pytest.mark.parametrize("df", [[0.05, np.inf], [0.5, 9.0], [1.0, 2.0], [0.3, 0.3]])
@pytest.mark.parametrize("dtype", [np.float32, long(np.float64)])
def test_heavy_tails_do_not_break_quantiles(df, dtype):
    mixture, levels = line(df, [0.0, 30.0], [1.0, 0.01], dtype), np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    expected = [scipy_ppf(line(df, [0.0, 30.0], [1.0, 0.01]).components(), p, 0) for p in levels]
    rtol = 2e-4 if dtype == np.float32 else 1e-9  # a quantile at df = 0.05 moves 1/df times as far as its level
    np.testing.assert_allclose(mixture.quantiles(levels.astype(dtype))[:, 0], expected, rtol=rtol)


@pytest.mark.parametrize("df", [0.8, 1.5, 2.0])
def test_moments_that_do_not_exist_are_reported_as_by_the_member(df):
    heavy = mder.StudentT(np.array([df, 9.0]), jnp.zeros((2, 2)), jnp.broadcast_to(jnp.eye(2), (2, 2, 2)))
    mixture = Mixture(heavy)
    np.testing.assert_array_equal(np.isfinite(mixture.mean()), df > 1)
    np.testing.assert_array_equal(mixture.total(), np.asarray(heavy.covariance()[0]))
    assert np.isfinite(mixture.ppf(0.2)).all() and np.isfinite(mixture.log_prob(jnp.zeros(2)))


def test_niw_without_moments():
    mixture = Mixture(niws(2, n=2, nu=np.array([2.5, 9.0])))
    for part in (mixture.aleatoric(), mixture.epistemic_within(), mixture.total()):
        np.testing.assert_array_equal(np.diagonal(part), np.inf)
        assert np.isnan(part[0, 1])
    np.testing.assert_array_equal(mixture.std(), np.inf)


@pytest.mark.parametrize("p, expected", [(0, -np.inf), (1, np.inf), (-0.1, np.nan), (1.1, np.nan), (np.nan, np.nan)])
def test_quantiles_at_and_beyond_the_ends(p, expected):
    mixture = Mixture(students(3, batch=(4,)))
    np.testing.assert_array_equal(mixture.ppf(p), np.full((4, 2), expected))
    mixed = mixture.ppf(jnp.full((4, 2), 0.3).at[0, 0].set(p))  # the other levels do not notice
    np.testing.assert_allclose(mixed[0, 1], mixture.ppf(0.3)[0, 1], rtol=1e-14)


def test_widest_and_narrowest_interval():
    mixture = Mixture(students(3, batch=(4,)))
    np.testing.assert_array_equal(mixture.interval(1.0), [np.full((4, 2), -np.inf), np.full((4, 2), np.inf)])
    np.testing.assert_allclose(mixture.interval(0.0), [mixture.ppf(0.5)] * 2, rtol=1e-12)


@pytest.mark.parametrize("df", [long(1.5), long(np.inf)])
def test_one_member_is_itself(df):
    t = students(1, batch=(4,), df=df)
    mixture, member = Mixture(t), Mixture(t).member(0)
    y = np.random.default_rng(3).normal(size=(6, 4, 2))
    np.testing.assert_allclose(mixture.log_prob(y), member.log_prob(y), rtol=1e-14)
    np.testing.assert_allclose(mixture.cdf(y), member.cdf(y), rtol=1e-14)
    np.testing.assert_allclose(mixture.interval(0.9), member.interval(0.9), rtol=1e-13)
    p = jnp.array([[0.0, 1e-12], [0.2, 0.5], [0.7, 0.97], [1 - 1e-12, 1.0]])
    np.testing.assert_allclose(mixture.ppf(p), member.ppf(p), rtol=1e-14)
    np.testing.assert_array_equal(mixture.mean(), member.mean())
    np.testing.assert_array_equal(mixture.total(), member.covariance())
    np.testing.assert_array_equal(mixture.epistemic_between(), np.zeros((4, 2, 2)))


def test_one_niw_is_itself():
    members = niws(1, batch=(4,))
    mixture, alone = Mixture(members), jax.tree.map(lambda leaf: leaf[0], members)
    np.testing.assert_array_equal(mixture.aleatoric(), mder.aleatoric(alone))
    np.testing.assert_array_equal(mixture.epistemic(), mder.epistemic(alone))
    np.testing.assert_allclose(mixture.log_prob(jnp.zeros((4, 2))), mder.log_evidence(alone, jnp.zeros((4, 2))))
    np.testing.assert_array_equal(mixture.member(0).df, mder.predictive(alone).df)


@pytest.mark.slow
def test_identical_members_do_not_disagree():
    one = niws(1, batch=(4,))
    same, alone = Mixture(jax.tree.map(lambda leaf: jnp.repeat(leaf, 3, axis=0), one)), Mixture(one)
    np.testing.assert_array_equal(same.epistemic_between(), np.zeros((4, 2, 2)))
    np.testing.assert_allclose(same.total(), alone.total(), rtol=1e-14)
    np.testing.assert_allclose(same.log_prob(jnp.ones((4, 2))), alone.log_prob(jnp.ones((4, 2))), rtol=1e-14)
    np.testing.assert_allclose(same.ppf(0.3), alone.ppf(0.3), rtol=1e-14)


def test_the_order_of_members_does_not_matter():
    members = niws(3, batch=(4,))
    order = jnp.array([2, 0, 1])
    one, other = Mixture(members), Mixture(jax.tree.map(lambda leaf: leaf[order], members))
    np.testing.assert_allclose(one.total(), other.total(), rtol=1e-13)
    np.testing.assert_allclose(one.epistemic_between(), other.epistemic_between(), rtol=1e-12)
    np.testing.assert_allclose(one.log_prob(jnp.ones((4, 2))), other.log_prob(jnp.ones((4, 2))), rtol=1e-13)
    np.testing.assert_allclose(one.ppf(0.2), other.ppf(0.2), rtol=1e-12)
    np.testing.assert_array_equal(one.member(2).loc, other.member(0).loc)


@pytest.mark.slow
def test_names_of_shapes_and_members():
    mixture = Mixture(niws(3, batch=(4, 5), n=2))
    assert (mixture.size, mixture.n, mixture.batch_shape) == (3, 2, (4, 5))
    np.testing.assert_array_equal(mixture.member(-1).loc, mixture.members.mu[2])
    shapes = {"mean": (4, 5, 2), "std": (4, 5, 2), "total": (4, 5, 2, 2), "aleatoric": (4, 5, 2, 2)}
    assert {name: getattr(mixture, name)().shape for name in shapes} == shapes
    key = jax.random.key(0)
    assert jax.eval_shape(lambda: mixture.quantiles([0.1, 0.5, 0.9])).shape == (3, 4, 5, 2)
    shapes = {(): (4, 5, 2), 6: (6, 4, 5, 2), (6, 7): (6, 7, 4, 5, 2)}
    for shape, expected in shapes.items():
        assert jax.eval_shape(lambda shape=shape: mixture.sample(key, shape)).shape == expected


METHODS = {
    "log_prob": lambda m, y: m.log_prob(y),
    "cdf": lambda m, y: m.cdf(y),
    "ppf": lambda m, y: m.ppf(0.2),
    "total": lambda m, y: m.total(),
    "std": lambda m, y: m.std(),
    "sample": lambda m, y: m.sample(jax.random.key(1)),
}


@pytest.mark.parametrize("method", ["log_prob", "ppf", *(long(name) for name in ("cdf", "total", "std", "sample"))])
def test_compiled_equals_eager(method):
    mixture, y = Mixture(niws(3, batch=(4,))), jnp.ones((4, 2))
    np.testing.assert_allclose(jax.jit(METHODS[method])(mixture, y), METHODS[method](mixture, y), rtol=1e-12)


def test_built_inside_a_compiled_function_and_returned_from_it():
    members, y = niws(3, batch=(4,)), jnp.ones((4, 2))
    density, mixture = jax.jit(lambda niw, y: (Mixture(niw).log_prob(y), Mixture(niw)))(members, y)
    np.testing.assert_allclose(density, Mixture(members).log_prob(y), rtol=1e-12)
    assert isinstance(mixture, Mixture) and mixture.size == 3
    np.testing.assert_array_equal(mixture.members.nu, members.nu)


@pytest.mark.parametrize("method", ["ppf", *(long(name) for name in ("log_prob", "cdf", "total", "std"))])
def test_vmap_over_rows_equals_the_batch(method):
    mixture, y = Mixture(niws(3, batch=(4,))), jnp.asarray(np.random.default_rng(4).normal(size=(4, 2)))
    rows = jax.vmap(METHODS[method], in_axes=(1, 0))(mixture, y)
    np.testing.assert_allclose(rows, METHODS[method](mixture, y), rtol=1e-12)


def central_differences(f, leaf, step=1e-6):
    gradient = np.zeros(leaf.shape)
    for i in np.ndindex(leaf.shape):
        gradient[i] = (f(leaf.at[i].add(step)) - f(leaf.at[i].add(-step))) / (2 * step)
    return gradient


@pytest.mark.parametrize("method", ["log_prob", "ppf"])
def test_gradients_are_central_differences(method):
    functions = {
        "log_prob": lambda m: m.log_prob(jnp.array([0.3, -0.8])),
        "ppf": lambda m: jnp.sum(m.ppf(jnp.array([0.1, 0.93])) * jnp.array([1.0, 2.0])),
    }
    value = jax.jit(lambda members: functions[method](Mixture(members)))
    members = niws(3)
    gradient = jax.jit(jax.grad(value))(members)
    leaves, structure = jax.tree.flatten(members)
    for k, found in enumerate(jax.tree.leaves(gradient)):

        def moved(leaf, k=k):
            return value(jax.tree.unflatten(structure, [*leaves[:k], leaf, *leaves[k + 1 :]]))

        numeric = central_differences(moved, leaves[k])
        if found.ndim == 3:  # entries above the diagonal of L are not parameters
            found, numeric = np.tril(found), np.tril(numeric)
        np.testing.assert_allclose(found, numeric, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("p", [0.02, long(0.7)])
def test_slope_of_a_quantile_in_its_level_is_one_over_the_density(p):
    mixture = line([3.0, np.inf], [0.0, 2.0], [1.0, 0.5])
    slope = jax.grad(lambda level: mixture.ppf(level)[0])(p)
    np.testing.assert_allclose(slope, np.exp(-mixture.log_prob(mixture.ppf(p))), rtol=1e-12)


@pytest.mark.slow
def test_median_of_members_at_one_place_moves_with_them():
    mixture = line([3.0, 5.0], [1.0, 1.0], [1.0, 2.0])
    gradient = jax.grad(lambda m: m.ppf(0.5)[0])(mixture).members
    np.testing.assert_allclose(jnp.sum(gradient.loc), 1, rtol=1e-12)
    np.testing.assert_allclose(gradient.scale_tril, np.zeros((2, 1, 1)), atol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ppf", "log_prob", "cdf", "total", "std"])
def test_single_precision_is_near_double(method):
    members, y = niws(4, batch=(50,), n=3), np.random.default_rng(5).normal(size=(50, 3))
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), members)
    same = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), single)
    y = y.astype(np.float32)
    low, high = METHODS[method](Mixture(single), y), METHODS[method](Mixture(same), y.astype(np.float64))
    assert jax.tree.leaves(low)[0].dtype == jnp.float32 and jax.tree.leaves(high)[0].dtype == jnp.float64
    np.testing.assert_allclose(low, high, rtol=2e-5, atol=2e-6)


def test_far_quantiles_of_an_interval_in_single_precision():
    df, loc, scale = np.array([4.0, 6.0]), np.array([0.0, 1.0]), np.array([1.0, 2.0])
    coverage = np.float32(0.9999)
    single, double = (line(df, loc, scale, dtype).interval(coverage) for dtype in (jnp.float32, jnp.float64))
    np.testing.assert_allclose(single, double, rtol=2e-6)


def test_wrong_members():
    with pytest.raises(TypeError, match="convert a NIG with to_niw, one target at a time"):
        Mixture(mder.NIG(jnp.zeros((3, 2)), jnp.ones((3, 2)), 2 * jnp.ones((3, 2)), jnp.ones((3, 2))))
    with pytest.raises(TypeError, match=r"one NIW or StudentT with batch shape \(M, \.\.\.\); got list"):
        Mixture([students()])
    with pytest.raises(ValueError, match=r"batch shape \(M, \.\.\.\) with M >= 1; got \(\)"):
        Mixture(mder.StudentT(5.0, jnp.zeros(2), jnp.eye(2)))
    with pytest.raises(ValueError, match=r"with M >= 1; got \(0, 3\)"):
        Mixture(mder.StudentT(5.0, jnp.zeros((0, 3, 2)), jnp.zeros((0, 3, 2, 2))))


def test_wrong_arguments():
    mixture = Mixture(students(3, batch=(4,)))
    with pytest.raises(IndexError, match="members are numbered 0 to 2; got 3"):
        mixture.member(3)
    with pytest.raises(IndexError, match="members are numbered 0 to 2; got -4"):
        mixture.member(-4)
    with pytest.raises(ValueError, match=r"y must have shape \(\.\.\., 2\) to match loc \(4, 2\); got \(4, 3\)"):
        mixture.log_prob(jnp.zeros((4, 3)))
    with pytest.raises(ValueError, match=r"batch shapes do not agree: y \(3,\), loc \(4,\)"):
        mixture.cdf(jnp.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"p must have shape \(4, 2\), that of one member's loc; got \(2,\)"):
        mixture.ppf(jnp.array([0.1, 0.9]))
    with pytest.raises(ValueError, match=r"levels must have shape \(K,\); got \(\)"):
        mixture.quantiles(0.5)
    with pytest.raises(ValueError, match=r"coverage is a probability between 0 and 1; got 1\.5"):
        mixture.interval(1.5)


def test_a_target_that_was_not_observed_is_left_out_exactly():
    t = students(n=3)
    y = jnp.array([0.3, jnp.nan, -1.0])
    expected = np.log(np.mean([scipy_density(marginal, y[jnp.array([0, 2])]) for marginal in each(t.marginal([0, 2]))]))
    np.testing.assert_allclose(Mixture(t).log_prob(y, missing=True), expected, rtol=1e-12)
    np.testing.assert_allclose(Mixture(t).log_prob(jnp.full(3, jnp.nan), missing=True), 0.0, atol=1e-14)
    whole = jnp.array([0.3, 2.0, -1.0])
    np.testing.assert_allclose(Mixture(t).log_prob(whole, missing=True), Mixture(t).log_prob(whole), rtol=1e-12)


def each(t):
    return [jax.tree.map(lambda leaf, i=i: leaf[i], t) for i in range(len(t.df))]


def scipy_density(t, y):
    shape = np.asarray(t.scale_tril @ t.scale_tril.T)
    if np.isinf(t.df):
        return scipy.stats.multivariate_normal.pdf(y, t.loc, shape)
    return scipy.stats.multivariate_t.pdf(y, t.loc, shape, df=float(t.df))


def test_distance_by_the_covariance_of_the_mixture():
    mixture = Mixture(niws(batch=(4,)))
    y = jnp.asarray(np.random.default_rng(1).normal(size=(4, 2)))
    d = np.asarray(y - mixture.mean())
    expected = np.sqrt(np.einsum("ri,rij,rj->r", d, np.linalg.inv(mixture.total()), d))
    np.testing.assert_allclose(mixture.mahalanobis(y), expected, rtol=1e-10)
    several = jnp.stack([y, y + 1])
    np.testing.assert_allclose(mixture.mahalanobis(several)[0], expected, rtol=1e-10)
    assert np.isnan(mixture.mahalanobis(y.at[2, 0].set(jnp.nan))).tolist() == [False, False, True, False]
    slope = jax.grad(lambda y: mixture.mahalanobis(y).sum())(mixture.mean())
    np.testing.assert_array_equal(slope, 0.0)


def exact_tail(radius, loc, variance, df):
    """P(|Y| > radius) of a mixture of univariate t around 0, by scipy."""
    t = scipy.stats.t(df, loc, np.sqrt(variance))
    return np.mean(t.sf(radius) + t.cdf(-radius))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_region_of_one_target_has_the_miss_rate_it_says(dtype):
    rng = np.random.default_rng(0)
    for df in (3.0, 8.0, 1000.0):
        loc, scale = rng.normal(size=(5, 1)), np.exp(rng.normal(size=(5, 1, 1)))
        mixture = Mixture(mder.StudentT(np.full(5, df, dtype), loc.astype(dtype), scale.astype(dtype)))
        std, centre = float(mixture.std()[0]), float(mixture.mean()[0])
        for coverage in (0.05, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.999999):
            radius = float(mixture.region_radius(coverage)) * std
            miss = exact_tail(radius, loc[:, 0] - centre, scale[:, 0, 0] ** 2, df)
            np.testing.assert_allclose(miss, 1 - coverage, rtol=2e-3)


def around_an_ellipse(radius, loc, factor, df, angles=4001):
    """P(‖loc + factor T‖ > radius) of a bivariate t: over the direction of T, whose length is Fisher's, by a sum."""
    angle = np.arange(angles) / angles * np.pi
    along = np.stack([np.cos(angle), np.sin(angle)], axis=1) @ factor.T
    square, mixed = np.sum(along**2, axis=1), along @ loc
    root = np.sqrt(np.maximum(mixed**2 - square * (loc @ loc - radius**2), 0.0))
    ends = (-mixed + root) / square, (-mixed - root) / square  # inside between them
    beyond = [scipy.stats.f.sf(end**2 / 2, 2, df) for end in ends]
    share = [np.where(end > 0, 0.5 * tail, 1 - 0.5 * tail) for end, tail in zip(ends, beyond, strict=True)]
    return np.mean(np.where(root > 0, share[0] + 1 - share[1], 1.0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_region_of_two_targets_has_the_miss_rate_it_says(dtype):
    """Members of other shapes, far apart, one of them outside altogether for small coverages."""
    rng = np.random.default_rng(1)
    for df, apart in ((4.0, 0.3), (9.0, 3.0), (60.0, 1.0)):
        loc, factor = apart * rng.normal(size=(4, 2)), np.asarray(factors(rng, (4,), 2)) * [[1.0], [0.1]]
        mixture = Mixture(mder.StudentT(np.full(4, df, dtype), loc.astype(dtype), factor.astype(dtype)))
        C, centre = np.linalg.cholesky(np.asarray(mixture.total(), float)), loc.mean(axis=0)
        for coverage in (0.05, 0.5, 0.9, 0.99, 0.9999):
            radius = float(mixture.region_radius(coverage))
            parts = zip(np.linalg.solve(C, (loc - centre).T).T, np.linalg.solve(C, factor), strict=True)
            miss = np.mean([around_an_ellipse(radius, *part, df) for part in parts])
            np.testing.assert_allclose(miss, 1 - coverage, rtol=2e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [3, long(8), 16])
def test_region_of_round_members_has_fishers_miss_rate(n, dtype):
    """Down to small coverages, where the density in float32 once overflowed and the region was a point."""
    scale, df = np.array([0.5, 1.0, 2.0]), np.array([4.0, 20.0, np.inf])
    arrays = (df, np.zeros((3, n)), scale[:, None, None] * np.eye(n))
    mixture = Mixture(mder.StudentT(*(array.astype(dtype) for array in arrays)))
    variance = float(mixture.total()[0, 0])
    for coverage in (0.01, 0.05, 0.5, 0.9, 0.9999):
        square = float(mixture.region_radius(coverage)) ** 2 * variance
        tails = [scipy.stats.f.sf(square / n / s**2, n, m) for s, m in zip(scale[:2], df[:2], strict=True)]
        miss = (sum(tails) + scipy.stats.chi2.sf(square / scale[2] ** 2, n)) / 3
        np.testing.assert_allclose(miss, 1 - coverage, rtol=1e-3)


def test_region_holds_its_share_of_draws():
    mixture, draws = Mixture(niws(batch=(3,))), 20_000
    radius = mixture.region_radius(0.8)
    inside = mixture.mahalanobis(mixture.sample(jax.random.key(1), draws)) <= radius[None]
    np.testing.assert_allclose(inside.mean(axis=0), 0.8, atol=4 * np.sqrt(0.16 / draws))
    one = Mixture(niws(size=1, batch=(3,)))
    held = one.mahalanobis(one.sample(jax.random.key(1), draws)) <= one.region_radius(0.8)[None]
    np.testing.assert_allclose(held.mean(axis=0), 0.8, atol=4 * np.sqrt(0.16 / draws))
    with pytest.raises(ValueError, match=r"probability.*1\.2"):
        mixture.region_radius(1.2)


def test_region_of_a_row_does_not_depend_on_the_others_under_jit_and_vmap():
    members = niws(batch=(5,))
    of_members = jax.jit(lambda m: Mixture(m).region_radius(0.95))
    whole = of_members(members)
    alone = [of_members(jax.tree.map(lambda leaf, i=i: leaf[:, i], members)) for i in range(5)]
    np.testing.assert_allclose(whole, alone, rtol=1e-12)
    np.testing.assert_allclose(jax.jit(jax.vmap(of_members, in_axes=1))(members), whole, rtol=1e-12)


def test_gradient_of_a_region():
    members = niws()

    def radius(steps):
        first = jnp.zeros(members.mu.shape).at[0].set(1.0)
        mu, L = members.mu + steps[0] * first, members.L * (1 + steps[1] * first[..., None])
        return Mixture(mder.NIW(mu, L, members.kappa, members.nu + steps[2])).region_radius(0.95)

    both, step = jax.jit(radius), 1e-4 * np.eye(3)
    expected = [(both(jnp.asarray(e)) - both(jnp.asarray(-e))) / 2e-4 for e in step]
    np.testing.assert_allclose(jax.jit(jax.grad(radius))(jnp.zeros(3)), expected, rtol=1e-4)


def test_a_member_whose_distance_overflows_leaves_the_density_to_the_others():
    # two steps of a solve with such a factor are 1e26 and 1e40, and their difference is not a number in float32
    bad = jnp.float32([[1e-13, 0, 0], [1.0, 1e-13, 0], [1e13, -1e13, 1e-13]])
    t = mder.StudentT(4.0, jnp.zeros((2, 3), jnp.float32), jnp.stack([bad, jnp.eye(3, dtype=jnp.float32)]))
    y = jnp.float32([20.0, -20.0, 20.0])
    assert np.isnan(mder.Mixture(t).components().log_prob(y)[0])
    alone = mder.StudentT(4.0, jnp.zeros(3, jnp.float32), jnp.eye(3, dtype=jnp.float32)).log_prob(y)
    np.testing.assert_allclose(mder.Mixture(t).log_prob(y), float(alone) - np.log(2), rtol=1e-6)
    assert np.isnan(mder.Mixture(t).log_prob(y.at[0].set(jnp.nan)))
    broken = mder.StudentT(4.0, jnp.zeros((2, 3)).at[0].set(jnp.nan), jnp.stack([jnp.eye(3), jnp.eye(3)]))
    assert np.isnan(mder.Mixture(broken).log_prob(jnp.zeros(3)))


WEIGHTS = np.array([1.0, 3.0, 0.0, 2.0])


def repeated(members):
    """The equally weighted mixture in which member i is there WEIGHTS[i] times."""
    index = np.repeat(np.arange(4), WEIGHTS.astype(int))
    return Mixture(jax.tree.map(lambda leaf: leaf[index], members))


@pytest.mark.parametrize("members", [students(4, batch=(3,), df=5.0), niws(4, batch=(3,))], ids=["t", "niw"])
def test_weights_are_as_repeated_members(members):
    with np.errstate(divide="ignore"):
        weighted = Mixture(members, np.log(WEIGHTS) + 7.0)  # up to a constant
    same, y = repeated(members), np.random.default_rng(1).normal(size=(2, 3, 2))
    for name in ("mean", "aleatoric", "epistemic_within", "epistemic_between", "total", "std"):
        np.testing.assert_allclose(
            getattr(weighted, name)(), getattr(same, name)(), rtol=1e-9, atol=1e-12, err_msg=name
        )
    for name in ("log_prob", "cdf", "mahalanobis"):
        np.testing.assert_allclose(getattr(weighted, name)(y), getattr(same, name)(y), rtol=1e-9, err_msg=name)
    for p in (1e-6, 0.3, 0.5, 0.99):
        np.testing.assert_allclose(weighted.ppf(p), same.ppf(p), rtol=1e-9)
    np.testing.assert_allclose(weighted.interval(0.9).upper, same.interval(0.9).upper, rtol=1e-9)
    np.testing.assert_allclose(weighted.region_radius(0.9), same.region_radius(0.9), rtol=1e-6)
    np.testing.assert_allclose(mder.metrics.crps(y[0], weighted), mder.metrics.crps(y[0], same), rtol=1e-4)
    np.testing.assert_allclose(mder.metrics.nll(y[0], weighted), mder.metrics.nll(y[0], same), rtol=1e-9)
    scale = mder.Scale(2.0, 3.0)
    np.testing.assert_allclose(mder.rescale(weighted, scale).total(), mder.rescale(same, scale).total(), rtol=1e-9)


def test_draws_come_from_members_as_often_as_they_weigh():
    far = line([np.inf] * 3, [-90.0, 0.0, 90.0], [1.0] * 3).members
    drawn = np.asarray(Mixture(far, np.log([0.2, 0.5, 0.3])).sample(jax.random.key(0), 10_000))[:, 0]
    counts = np.histogram(drawn, [-200, -45, 45, 200])[0]
    assert scipy.stats.chisquare(counts, [2000, 5000, 3000]).pvalue > 1e-3


def test_equal_weights_are_those_without():
    members = niws(4, batch=(3,))
    np.testing.assert_allclose(Mixture(members, np.zeros(4)).ppf(0.1), Mixture(members).ppf(0.1), rtol=1e-12)
    assert len(jax.tree.leaves(Mixture(members))) == len(jax.tree.leaves(members))


def test_wrong_weights():
    members = niws(4, batch=(3,))
    with pytest.raises(ValueError, match="log_weights"):
        Mixture(members, np.zeros(3))
    with pytest.raises(ValueError, match="log_weights"):
        Mixture(members, np.zeros((4, 2)))
    with pytest.raises(ValueError, match="log_weights must be finite, or -inf for some"):
        Mixture(members, np.full(4, -np.inf))


@pytest.mark.parametrize("weights", [None, np.log([0.2, 0.5, 0.3])])
def test_conditional_times_marginal_is_the_joint(weights):
    t, y = students(3, n=3), np.array([0.4, -1.0, 2.0])
    mixture = Mixture(t, weights)
    own = np.full(3, 1 / 3) if weights is None else np.exp(weights)
    joint = sum(w * scipy_density(one, y) for w, one in zip(own, each(t), strict=True))
    given = sum(w * scipy_density(one, y[[2, 0]]) for w, one in zip(own, each(t.marginal([2, 0])), strict=True))
    conditional = mixture.conditional([2, 0], y[[2, 0]])
    assert conditional.n == 1 and conditional.size == 3
    np.testing.assert_allclose(np.exp(conditional.log_prob(y[[1]])), joint / given, rtol=1e-9)
    rows = Mixture(jax.tree.map(lambda leaf: jnp.stack([leaf, leaf], 1), t)).conditional([0], np.array([[0.4], [5.0]]))
    assert rows.batch_shape == (2,) and rows.mean().shape == (2, 2)
    with pytest.raises(ValueError, match="at least one must be left"):
        mixture.conditional([0, 1, 2], y)
