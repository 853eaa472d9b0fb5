"""Bad input raises, and the message quotes what was wrong; what is promoted instead is written down here."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mder_jax as mder
from mder_jax import metrics, plotting
from mder_jax.estimator import Region

EYE = np.eye(2)


def niw(batch=()):
    return mder.NIW(np.zeros((*batch, 2)), np.broadcast_to(EYE, (*batch, 2, 2)), np.ones(batch), np.full(batch, 8.0))


def t(batch=(6,)):
    return mder.predictive(niw(batch))


KEY, Y, NIG = jax.random.key(0), np.zeros((6, 2)), mder.NIG(0.0, 1.0, 2.0, 1.0)
# Each was an error of another kind, or one from the depths of JAX, numpy or Python, until fuzz.py came upon it.
FOUND_BY_FUZZING = [
    (lambda: mder.t_cdf("a", 3.0), r"t must hold real numbers; got dtype <U1"),
    (lambda: mder.t_cdf(None, 3.0), r"t must hold real numbers; got None"),
    (lambda: mder.t_cdf([[1], [1, 2]], 3.0), r"t must be an array of real numbers; got \[\[1\], \[1, 2\]\]"),
    (lambda: mder.t_cdf(10**400, 3.0), r"t, df must be below 1e308; got an integer"),
    (lambda: mder.t_cdf(KEY, 3.0), r"t must hold real numbers; got dtype key"),
    (lambda: mder.predictive(8), r"niw must be a NIW; got 8"),
    (lambda: mder.mder_nll(np.zeros((5, 6)), np.zeros((5, 2))), r"niw must be a NIW; got ndarray"),
    (lambda: mder.sample(KEY, None), r"niw must be a NIW; got None"),
    (lambda: mder.to_niw(niw()), r"nig must be a NIG; got NIW"),
    (lambda: mder.inverse_nig_link("a"), r"nig must be a NIG; got 'a'"),
    (lambda: mder.gaussian_nll(niw(), Y), r"gaussian must be a StudentT; got NIW"),
    (lambda: mder.aleatoric(niw(), np.zeros(2)), r"definition must be 'amini2020'.*got ndarray"),
    (lambda: mder.nig.epistemic(NIG, np.zeros(2)), r"definition must be 'amini2020' or 'meinert2023'; got ndarray"),
    (lambda: mder.sample(0, niw()), r"key must be one random key such as.*got 0"),
    (lambda: t().sample(jax.random.split(KEY)), r"key must be one random key.*got key<fry> of shape \(2,\)"),
    (lambda: mder.Mixture(niw((2,))).sample(np.zeros(2)), r"key must be one random key.*got float64 of shape \(2,\)"),
    (lambda: t().sample(KEY, -1), r"shape must be at least 0; got -1"),
    (lambda: t().sample(KEY, 2.5), r"shape must be an integer or a tuple of integers; got 2\.5"),
    (lambda: t().sample(KEY, [2**40]), r"shape must be below 2\^31; got 1099511627776"),
    (lambda: mder.num_outputs("2"), r"n, the number of targets, must be an integer.*got '2'"),
    (lambda: mder.tril_size(True), r"n must be an integer.*got True"),
    (lambda: mder.unpack_tril(np.zeros(3), -3), r"n must be at least 1; got -3"),
    (lambda: mder.log_gamma_ratio(1.0, 0.5), r"n must be an integer.*got 0\.5"),
    (lambda: mder.half_logdet(1.0), r"L must have shape \(\.\.\., n, n\) with n >= 1; got \(\)"),
    (lambda: mder.whiten(np.stack([EYE] * 3), np.zeros((4, 2))), r"batch shapes do not agree: L \(3,\), d \(4,\)"),
    (lambda: mder.couple(Y, np.stack([EYE] * 6), np.full(6, 8.0), np.ones(2)), r"r must have shape \(6,\).*got \(2,\)"),
    (lambda: t().interval(np.full(2, 0.5)), r"coverage must have shape \(\), that of one number; got \(2,\)"),
    (lambda: mder.Mixture(niw((2,))).member("a"), r"i must be an integer.*got 'a'"),
    (lambda: mder.Mixture(niw((2,))).log_prob(0.0), r"y must have shape \(\.\.\., 2\).*got \(\)"),
    (lambda: mder.niw_link(np.zeros(6), 2, nu_max="a"), r"nu_max must hold real numbers; got dtype <U1"),
    (lambda: mder.nig_link(np.zeros(4), floor=1e300), r"floor must be a number from 0 to 1e30; got 1e\+300"),
    (lambda: mder.inverse_nig_link(NIG, 2), r"n = 2 targets has shape \(\.\.\., 2\); got \(\)"),
    (lambda: mder.der_loss(NIG, 0.0, lam=[1.0]), r"lam must have shape \(\).*got \(1,\)"),
    (lambda: metrics.energy_score(Y, t(), draws=2.5), r"draws must be an integer.*got 2\.5"),
    (lambda: metrics.variogram_score(Y, t(), p=-1.0), r"p is a power above 0, up to 100; got -1\.0"),
    (lambda: metrics.variogram_score(Y, t(), p=1e300), r"p is a power above 0, up to 100; got 1e\+300"),
    (lambda: mder.niw_link(np.zeros(6), 2, nu_min=1e300, nu_max=np.inf), r"the bounds of nu must satisfy.*got n = 2"),
    (lambda: metrics.interval_score(Y, None, 0.5), r"interval must be an Interval\(lower, upper\); got NoneType"),
    (lambda: metrics.interval_score(Y, (Y, Y), 1), r"coverage is a probability, 0 or more and below 1; got 1"),
    (lambda: metrics.coverage(Y, t(), [0.5, 0.9]), r"level must have shape \(\).*got \(2,\)"),
    (lambda: metrics.ence(Y, t(), bins=0), r"bins must be at least 1; got 0"),
    (lambda: metrics.calibration_curve(Y, t(), levels=None), r"levels must be an integer.*got None"),
    (lambda: metrics.report(Y, t(), names=5), r"names must hold one for each of 2 targets; got 5"),
    (lambda: metrics.nll_scorer(None, Y, Y), r"the estimator must have log_prob.*got NoneType"),
    (lambda: mder.rescale(t(), 2.0), r"scale must be a Scale; got 2\.0"),
    (lambda: mder.fit_scale(t(), Y, level="a"), r"level must hold real numbers; got dtype <U1"),
    (lambda: mder.fit_scale(t(), Y, separate=np.ones(2)), r"separate must be True or False; got ndarray"),
    (lambda: mder.fit_scale(t(), np.full((6, 2), 1e300)), r"the prediction is not finite in row 0"),
    (lambda: mder.conformal_radius(t(), Y, None), r"coverage must hold real numbers; got None"),
    (lambda: mder.fit_scale(mder.StudentT(1e-320, Y, [EYE] * 6), Y + 1, "posterior"), r"not finite in float64"),
    (lambda: mder.datasets.circle(KEY, 2.5), r"points must be an integer.*got 2\.5"),
    (lambda: mder.datasets.cubic(KEY, noise="a"), r"noise must hold real numbers; got dtype <U1"),
    (lambda: mder.datasets.three_points(KEY, noise=(0.1,)), r"noise must have shape \(3,\).*got \(1,\)"),
    (lambda: mder.datasets.real([]), r"no table is named \[\]"),
    (lambda: mder.datasets.real("energy", 5), r"folder must be a path, or None; got 5"),
    (lambda: plotting.pit(Y, t(), ax="a"), r"ax must be matplotlib Axes.*got str"),
    (lambda: plotting.pit(Y, t(), names=5), r"names must hold one for each of 2 targets; got 5"),
    (lambda: plotting.pit(Y, t(), names=[[1], [1, 2], [3]]), r"names must hold one for each of 2 targets; got \[\[1"),
    (lambda: plotting.ellipses(t(), rows="a"), r"rows must be numbers from 0 to 5, or a mask; got 'a'"),
    (lambda: plotting.bands(np.arange(6.0), t(), coverage="a"), r"coverage must hold real numbers; got dtype <U1"),
    (lambda: mder.mlp(None, 2), r"widths and outputs must be integers above 0; got None and 2"),
    (lambda: mder.mlp((2,), 2, dropout="a"), r"dropout must hold real numbers; got dtype <U1"),
    (lambda: mder.mlp((2,), 2, link=3), r"link must be a function, or None; got 3"),
    (lambda: mder.from_linen(3), r"module must be a Flax Linen module.*got 3"),
    (
        lambda: mder.from_linen(mder.Network(len, len), rngs="dropout"),
        r"rngs must be a list of the names.*got 'dropout'",
    ),
    (lambda: mder.from_nnx(None), r"make_module must be a function.*got None"),
    (lambda: mder.predict(None, Y), r"ensemble must be a Ensemble; got None"),
    (lambda: mder.use_all_cores("2"), r"cores must be an integer, 1 or more; got '2'"),
    (lambda: mder.use_compilation_cache(3), r"directory must be a path, or None; got 3"),
    (lambda: mder.persistence.load(None), r"a path must be a str or a Path; got None"),
    (lambda: mder.persistence.save("", {}, {}), r"a path must name something; got ''"),
    (lambda: mder.persistence.save("a", {"a": object()}, {}), r"the document must be a dict of what JSON can hold"),
    (lambda: mder.persistence.save("a", {}, [1]), r"arrays must be a dict of arrays by name; got \[1\]"),
    (lambda: mder.persistence.save("a", {}, {"a": "b"}), r"array a must hold numbers or booleans; got 'b'"),
    (
        lambda: Region(Y, np.stack([EYE] * 6), np.ones(6)).contains(np.zeros(2)),
        r"y must have shape \(6, 2\).*got \(2,\)",
    ),
]


@pytest.mark.parametrize(
    ("call", "quoted"),
    [
        (lambda: mder.NIW(0.0, EYE, 1.0, 8.0), r"mu must have shape \(\.\.\., n\) with n >= 1; got \(\)"),
        (lambda: mder.NIW(np.zeros(0), np.zeros((0, 0)), 1.0, 8.0), r"n >= 1; got \(0,\)"),
        (lambda: mder.NIW(np.zeros(2), EYE, True, 8.0), r"kappa must hold real numbers; got dtype bool"),
        (lambda: mder.marginal(niw(), [True, False]), r"list of their numbers.*got \[True, False\]"),
        (lambda: mder.marginal(niw(), 0), r"list of their numbers, such as \[0\]; got 0"),
        (lambda: mder.marginal(niw(), [1.7]), r"list of their numbers.*got \[1\.7\]"),
        (lambda: mder.predictive(niw()).interval(90), r"probability between 0 and 1; got 90"),
        (lambda: mder.predictive(niw()).region_radius(-0.1), r"probability between 0 and 1; got -0\.1"),
        (lambda: mder.whiten(np.eye(2), np.ones(3)), r"L must have shape \(\.\.\., 3, 3\).*got \(2, 2\)"),
        (lambda: mder.niw_link(np.zeros(6), n=2, nu_max=1e300), r"both up to 1e30 or nu_max = inf.*1e\+300"),
        (lambda: mder.NIW(np.zeros(3), EYE, 1.0, 8.0), r"L must have shape \(3, 3\).*got \(2, 2\)"),
        (lambda: mder.NIW(np.zeros((4, 2)), EYE, 1.0, 8.0), r"L must have shape \(4, 2, 2\).*got \(2, 2\)"),
        (lambda: mder.NIW(np.zeros(2), EYE, np.ones(2), 8.0), r"kappa must have shape \(\).*got \(2,\)"),
        (lambda: mder.NIW(np.zeros(2), EYE, 1.0, 1.0), r"nu must be greater than 1 .*n = 2.*got 1$"),
        (lambda: mder.NIW(np.zeros(2), EYE, -0.5, 8.0), r"kappa must be greater than 0.*got -0\.5"),
        (lambda: mder.NIW(np.zeros(2), -EYE, 1.0, 8.0), r"diagonal of L must be greater than 0.*got -1"),
        (lambda: mder.NIW(np.zeros(2), EYE + 0.5, 1.0, 8.0), r"L must be lower-triangular; got 0\.5 above"),
        (lambda: mder.NIW(np.zeros(2), EYE * 1j, 1.0, 8.0), r"L must hold real numbers; got dtype complex128"),
        (lambda: mder.NIW(np.zeros(2), EYE > 0, 1.0, 8.0), r"L must hold real numbers; got dtype bool"),
        (lambda: mder.couple(np.zeros(2), EYE, 8.0, r=0.0), r"r must be greater than 0.*got 0"),
        (lambda: mder.StudentT(-1.0, np.zeros(2), EYE), r"df must be greater than 0.*got -1"),
        (lambda: mder.StudentT(3.0, np.zeros(2), EYE.T + 1), r"scale_tril must be lower-triangular"),
        (lambda: mder.NIG(np.zeros(3), np.ones(2), 2.0, 1.0), r"kappa must have shape \(3,\).*got \(2,\)"),
        (lambda: mder.NIG(0.0, 1.0, 0.0, 1.0), r"alpha must be greater than 0.*got 0"),
        (lambda: mder.log_evidence(niw((5,)), np.zeros(5)), r"y must have shape \(\.\.\., 2\).*got \(5,\)"),
        (lambda: mder.log_evidence(niw((5,)), np.zeros((1, 2))), r"batch shapes do not agree.*\(1,\).*\(5,\)"),
        (lambda: mder.log_evidence(niw(), np.zeros(2), form="det"), r"'stable' or 'slogdet'; got 'det'"),
        (lambda: mder.log_evidence(niw(), np.array([0, np.nan])), r"NaN at index \(1,\).*missing=True"),
        (lambda: mder.mder_nll(niw((5,)), np.zeros((4, 2))), r"y must have shape \(5, 2\).*got \(4, 2\)"),
        (lambda: mder.mder_nll(niw(), np.zeros((4, 2))), r"y must have shape \(2,\).*got \(4, 2\)"),
        (lambda: mder.der_loss(mder.NIG(np.zeros(5), 1.0, 2.0, 1.0), np.zeros((5, 1))), r"\(5,\).*got \(5, 1\)"),
        (lambda: mder.gaussian_nll(mder.gaussian_link(np.zeros((5, 2)), 1), np.zeros(5)), r"\(5, 1\).*got \(5,\)"),
        (lambda: mder.niw_link(np.zeros((4, 7)), n=2), r"n = 2 targets need 6 raw outputs; got shape \(4, 7\)"),
        (lambda: mder.niw_link(0.0, n=2), r"need 6 raw outputs; got shape \(\)"),
        (lambda: mder.niw_link(np.zeros(6), n=2, nu_min=0.5), r"n - 1 <= nu_min < nu_max.*got n = 2, 0\.5"),
        (lambda: mder.niw_link(np.zeros(6), n=2, nu_min=9.0, nu_max=9.0), r"got n = 2, 9, 9"),
        (
            lambda: mder.inverse_niw_link(mder.couple(np.zeros(2), EYE, nu=13.5)),
            r"nu must lie within the gate, 3 to 13; got 13\.5",
        ),
        (lambda: mder.nig_link(np.zeros(5)), r"one target needs 4 raw outputs; got shape \(5,\)"),
        (lambda: mder.gaussian_link(np.zeros(6), n=2), r"n = 2 targets need 5 raw outputs; got shape \(6,\)"),
        (lambda: mder.num_outputs(0), r"at least 1; got 0"),
        (lambda: mder.marginal(niw(), [2]), r"numbered 0 to 1; got 2"),
        (lambda: mder.marginal(niw(), [0, 0]), r"each once; got \(0, 0\)"),
        (lambda: mder.predictive(niw()).marginal([]), r"at least one target.*got \(\)"),
        (lambda: mder.predictive(niw()).conditional([0, 1], np.zeros(2)), r"all 2 targets are given"),
        (lambda: mder.predictive(niw((3,))).conditional([0], np.zeros(3)), r"values must have shape \(3, 1\)"),
        (lambda: mder.posterior(niw(), np.zeros((4, 3))), r"observations must have shape \(4, 2\).*got \(4, 3\)"),
        (lambda: mder.posterior(niw(), np.array([[0.0, np.nan]])), r"observations hold a NaN"),
        (lambda: mder.from_niw(niw()), r"one target; this NIW has 2"),
        (lambda: mder.log_prob(niw(), np.zeros(2), np.zeros(2)), r"sigma must have shape \(2, 2\)"),
        (lambda: mder.t_cdf(0.0, -2.0), r"df must be greater than 0.*got -2"),
        (lambda: mder.t_cdf(np.zeros((3, 1)), np.ones(3)), r"batch shapes do not agree"),
        (lambda: mder.log_gamma_ratio(-1.0, 2), r"x must be greater than 0.*got -1"),
        (lambda: mder.joint_radius(0.9, 3.0, 0), r"at least 1; got 0"),
        (lambda: mder.unpack_tril(jnp.zeros(5), 3), r"3 x 3 lower triangle has 6 entries; got shape \(5,\)"),
        (lambda: mder.nig.total_evidence(mder.NIG(0.0, 1.0, 2.0, 1.0), "mine"), r"got 'mine'"),
        *FOUND_BY_FUZZING,
    ],
)
def test_message_quotes_what_was_wrong(call, quoted):
    with pytest.raises((ValueError, TypeError), match=quoted):
        call()


def test_integers_take_the_float_type_of_the_others():
    whole = mder.NIW(np.zeros(2, int), np.eye(2, dtype=int), 1, 8)
    assert {leaf.dtype for leaf in jax.tree.leaves(whole)} == {jnp.dtype(jnp.float64)}
    single = mder.NIW(np.zeros(2, np.float32), np.eye(2, dtype=int), 1, 8)
    assert {leaf.dtype for leaf in jax.tree.leaves(single)} == {jnp.dtype(jnp.float32)}


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    value = mder.mder_nll(mder.niw_link(jnp.zeros((3, 6), dtype), 2), jnp.zeros((3, 2), dtype))
    assert value.dtype == jnp.float32


def test_float32_with_float64_gives_float64():
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), niw())
    y, t = np.zeros(2), mder.predictive(single)
    for value in (
        mder.log_evidence(single, y),
        mder.mder_nll(single, y),
        mder.log_prob(single, y, EYE),
        mder.posterior(single, y[None]).mu,
        t.log_prob(y),
        t.cdf(y),
        t.ppf(y + 0.5),
        t.joint_pit(y),
        t.conditional([0], y[:1]).loc,
        mder.gaussian_nll(t, y),
    ):
        assert value.dtype == jnp.float64


def test_traced_values_are_not_checked_and_give_nan():
    """Under jit there is no value to look at: ν below n − 1 gives NaN, not an error."""
    value = jax.jit(lambda nu: mder.log_evidence(mder.NIW(np.zeros(2), EYE, 1.0, nu), np.ones(2)))(0.5)
    assert bool(jnp.isnan(value))


def test_traced_shapes_are_checked():
    with pytest.raises(ValueError, match=r"y must have shape \(4, 2\)"):
        jax.jit(lambda y: mder.mder_nll(niw((4,)), y))(jnp.zeros((4, 1)))


@pytest.mark.parametrize("missing", [False, True])
def test_nan_parameters_stay_visible_and_are_not_taken_for_missing_targets(missing):
    broken = mder.NIW(np.array([np.nan, np.nan]), EYE, 1.0, 8.0)
    assert bool(jnp.isnan(mder.log_evidence(broken, np.zeros(2), missing=missing)))


def test_lists_and_a_single_number_as_shape():
    assert mder.whiten([[2.0, 0.0], [1.0, 1.0]], [2, 3]).tolist() == [1.0, 2.0]
    assert mder.predictive(niw((3,))).sample(jax.random.key(0), 5).shape == (5, 3, 2)
    assert mder.sample(jax.random.key(0), niw(), 5).sigma.shape == (5, 2, 2)


def test_leading_axes_are_added_not_stretched():
    t = mder.predictive(niw((5,)))
    assert t.log_prob(np.zeros((7, 5, 2))).shape == (7, 5)
    assert mder.log_evidence(niw(), np.zeros((7, 5, 2))).shape == (7, 5)
