"""`target_transform`: what comes back in original units, against scipy and by integration, and what is refused."""

import pathlib

import jax
import numpy as np
import pandas as pd
import pytest
import scipy.integrate
import scipy.stats
from sklearn.base import clone
from sklearn.metrics import r2_score
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    Normalizer,
    PowerTransformer,
    QuantileTransformer,
    StandardScaler,
)

from mder_jax import MDERRegressor
from mder_jax.estimator.target_transforms import FORMULAS, NamedMap, TargetTransforms, fit_transforms, folded_moments
from mder_jax.persistence import ModelFileError

SETTINGS = {"hidden_layer_sizes": (8,), "members": 2, "max_iter": 10, "learning_rate_init": 0.03, "random_state": 0}
SETTINGS |= {"embedding": None, "beside": None}


def minus_log(y):
    return -np.log(y)


def exp_of_minus(t):
    return np.exp(-t)


FALLING = FunctionTransformer(minus_log, exp_of_minus)


def table(rows=60, seed=0):
    """Two positive targets, correlated in their logarithms."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, 2)).clip(-2.4, 2.4)
    noise = random.multivariate_normal([0, 0], [[0.3, 0.2], [0.2, 0.4]], rows)
    return X, np.exp(X + noise + [3.0, 0.0])


X, Y = table()
NEW, SEEN = X[:5], Y[:5]


def fitted(transform, **settings):
    return MDERRegressor(**SETTINGS | settings, target_transform=transform).fit(X, Y)


@pytest.fixture(scope="module")
def logs():
    return fitted("log")


@pytest.fixture(scope="module")
def mixed():
    """The first target in decreasing order, the second as it is."""
    return fitted([FALLING, None])


@pytest.fixture(scope="module", params=["log", "log1p", "sqrt", "falling", "power"])
def model(request):
    others = {"falling": FALLING, "power": {1: PowerTransformer("box-cox")}}
    return fitted(others.get(request.param, request.param))


def transforms_of(model):
    return model.predictor_.transform


# ---- The maps.


@pytest.mark.parametrize("name", FORMULAS)
def test_maps_lead_back_and_their_slopes_are_central_differences(name):
    y = np.array([0.01, 0.5, 3.0, 1e4, np.nan])
    one = NamedMap(name)
    np.testing.assert_allclose(one.back(one.forward(y)), y, rtol=1e-12)
    h = 1e-6 * y
    slope = (one.forward(y + h) - one.forward(y - h)) / (2 * h)
    np.testing.assert_allclose(one.log_slope(y), np.log(slope), rtol=1e-7, atol=1e-8)
    assert (np.diff(one.back(np.linspace(-9, 9, 99))) >= 0).all()
    assert one.forward(np.array([-2.0])) == -np.inf  # nowhere, and never mistaken for a missing one


@pytest.mark.parametrize("transform", [PowerTransformer("box-cox"), PowerTransformer(), FALLING, StandardScaler()])
def test_slopes_of_transformers_are_central_differences(transform):
    (one,) = fit_transforms(transform, Y[:, :1], ["a"]).maps
    y = np.quantile(Y[:, 0], [0.02, 0.3, 0.9])
    h = 1e-5 * y
    t = [one.transformer.transform((y + step)[:, None])[:, 0] for step in (-h, h)]
    np.testing.assert_allclose(one.log_slope(y), np.log(np.abs(t[1] - t[0]) / (2 * h)), rtol=1e-6, atol=1e-6)
    assert one.decreasing == (transform is FALLING)


def test_the_density_of_an_exponential_of_a_gaussian_is_scipys():
    y = np.array([[0.1], [2.0], [30.0]])
    maps = TargetTransforms((NamedMap("log"),), ("a",))
    found = scipy.stats.norm.logpdf(maps.forward(y), 0.7, 1.3) + maps.log_slope(y)
    np.testing.assert_allclose(found, scipy.stats.lognorm.logpdf(y, 1.3, scale=np.exp(0.7)), rtol=1e-12)


def test_an_inverse_that_turns_around_or_has_a_pole_is_constant_beyond():
    (root,) = fit_transforms(FunctionTransformer(np.sqrt, np.square), Y[:, :1], ["a"]).maps
    assert root.back(np.array([-5.0, -0.1])).max() < 1e-9 and root.back(np.array([2.0])) == pytest.approx(4)
    (over,) = fit_transforms(FunctionTransformer(np.reciprocal, np.reciprocal), Y[:, :1], ["a"]).maps
    most = np.ptp(Y[:, 0])
    assert Y[:, 0].max() + 9 * most < over.back(np.array([-1.0]))[0] < Y[:, 0].max() + 11 * most
    (power,) = fit_transforms(PowerTransformer("box-cox"), np.arange(1.0, 9.0)[:, None], ["a"]).maps
    assert np.isfinite(power.back(np.array([-1e3, 1e3]))).all() and power.back(np.array([-1e3]))[0] >= 0
    assert power.back(np.array([-np.inf, np.nan]))[0] >= 0 and np.isnan(power.back(np.array([np.nan]))[0])


def test_values_that_a_clipping_transformer_cannot_make_have_no_density():
    (steps,) = fit_transforms(QuantileTransformer(n_quantiles=20), Y[:, :1], ["a"]).maps
    assert steps.log_slope(np.array([2 * Y[:, 0].max()])) == -np.inf
    assert np.isfinite(steps.log_slope(np.quantile(Y[:, :1], [0.2, 0.7])))[0]


# ---- Moments.


def test_mean_of_an_exponential_is_near_the_full_one():
    one = np.ones((1, 1))
    for sigma, error in ((0.5, 1e-3), (1.0, 6e-3)):
        ends = sigma * scipy.stats.norm.ppf([0.001, 0.999])
        mean, std = folded_moments(0 * one, sigma * one, np.inf * one, ends[:, None], np.exp)
        full = scipy.stats.lognorm(sigma)
        assert mean == pytest.approx(full.mean(), rel=error) and mean < full.mean()
        assert std == pytest.approx(full.std(), rel=0.25)


@pytest.mark.parametrize("df", [2.5, 7.0, np.inf])
def test_moments_are_those_of_the_folded_mixture(df):
    """Against an integral by scipy."""
    loc, scale, ends = np.array([[-0.5], [0.3]]), np.array([[0.4], [0.7]]), np.array([[-2.2], [2.9]])
    parts = [scipy.stats.t(df, *each) for each in zip(loc[:, 0], scale[:, 0], strict=True)]

    def expected(g):
        inner = [
            scipy.integrate.quad(lambda t, p=p: g(np.exp(t)) * p.pdf(t), -2.2, 2.9, epsabs=1e-10)[0] for p in parts
        ]
        outer = [g(np.exp(-2.2)) * p.cdf(-2.2) + g(np.exp(2.9)) * p.sf(2.9) for p in parts]
        return np.mean(inner) + np.mean(outer)

    mean, std = folded_moments(loc, scale, np.full((2, 1), df), ends, np.exp)
    assert mean == pytest.approx(expected(lambda y: y), rel=1e-3)
    assert std**2 == pytest.approx(expected(lambda y: (y - mean[0]) ** 2), rel=5e-3)


def test_moments_of_a_model_are_folded_at_its_quantiles_and_within_the_targets(model):
    """By sums over a fine grid of the density of the transformed targets."""
    u, maps = model.predict_uncertainty(NEW), transforms_of(model)
    t = model.predict_dist(NEW, transformed=True)
    ends = np.asarray(t.quantiles(np.array([0.001, 0.999])))
    for j, one in enumerate(maps.maps):
        if one is None:
            np.testing.assert_allclose(u.mean[:, j], t.mean()[:, j], rtol=1e-5)
            continue
        for row in range(2):
            grid = np.linspace(*ends[:, row, j], 4001)
            members = t.components().marginal([j])
            width = np.asarray(members.scale_tril[:, row, 0, 0])
            density = np.mean(
                [scipy.stats.t.pdf(grid, members.df[i, row], members.loc[i, row, 0], width[i]) for i in range(2)],
                axis=0,
            )
            centre, unit = (part[j] for part in model.predictor_.targets)
            within = np.clip(grid, centre - 4 * unit, centre + 4 * unit)  # of the training targets
            y, weight = one.back(within), density * (grid[1] - grid[0])
            weight[[0, -1]] = 0.001
            weight /= weight.sum()
            mean = weight @ y
            assert u.mean[row, j] == pytest.approx(mean, rel=3e-3)
            assert u.std[row, j] == pytest.approx(np.sqrt(weight @ (y - mean) ** 2), rel=1e-2)


def test_covariances_keep_correlations_and_shares(logs, mixed):
    for model, sign in ((logs, 1), (mixed, -1)):
        u, t = model.predict_uncertainty(NEW), model.predict_dist(NEW, transformed=True)

        def correlation(total):
            return total[:, 0, 1] / np.sqrt(total[:, 0, 0] * total[:, 1, 1])

        np.testing.assert_allclose(correlation(u.total), sign * correlation(np.asarray(t.total())), rtol=1e-4)
        for part, of_t in ((u.aleatoric, t.aleatoric()), (u.between, t.epistemic_between())):
            share = np.diagonal(part / u.total, axis1=1, axis2=2)
            np.testing.assert_allclose(share, np.diagonal(of_t / t.total(), axis1=1, axis2=2), rtol=1e-4)
    np.testing.assert_allclose(u.total[:, 1, 1], np.asarray(t.total())[:, 1, 1], rtol=1e-5)  # has no map


# ---- Everything else that is predicted.


def test_quantiles_intervals_and_draws_are_mapped(model):
    maps, rows = transforms_of(model), model.predictor_.rows(model.encoding_.encode(NEW))
    t = model.predict_dist(NEW, transformed=True)
    levels = np.array([0.05, 0.5, 0.9])
    flipped = np.where(maps.decreasing, 1 - levels[:, None, None], levels[:, None, None])
    expected = maps.back(np.stack([np.asarray(t.ppf(np.broadcast_to(level, (5, 2)))) for level in flipped]))
    found = model.predict_quantiles(NEW, levels)
    np.testing.assert_allclose(np.moveaxis(found, -1, 0), expected, rtol=2e-3, atol=1e-6)
    assert (np.diff(found) >= 0).all()
    lower, upper = model.predict_interval(NEW, 0.8)
    np.testing.assert_allclose(
        np.stack([lower, upper], axis=-1), model.predict_quantiles(NEW, [0.1, 0.9]), rtol=1e-4, atol=1e-9
    )
    draws = np.moveaxis(rows.learned.sample(jax.random.key(3), 7), 1, -1)
    np.testing.assert_array_equal(np.moveaxis(rows.sample(jax.random.key(3), 7), 1, -1), maps.back(draws))


def test_density_integrates_to_the_probability(model):
    """Of one target, with the other missing, over all values that the inverse does not fold together."""
    mixture = model.predict_dist(NEW[:1], transformed=True)
    low, lower, middle, upper, high = np.asarray(mixture.quantiles(np.array([1e-4, 0.25, 0.5, 0.75, 1 - 1e-4])))[:, 0]
    width = (upper - lower) / 4
    ends = (np.arcsinh((end - middle) / width) for end in (low, high))
    t = middle + width * np.sinh(np.linspace(*ends, 801))
    probability = np.asarray(mixture.cdf(t[:, None]))[:, 0]
    for j, y in enumerate(transforms_of(model).back(t).T):
        kept = np.flatnonzero((np.diff(y, prepend=np.nan) != 0) & (np.diff(y, append=np.nan) != 0))
        rows = np.full((len(kept), 2), np.nan)
        rows[:, j] = y[kept]
        density = np.exp(model.log_prob(np.repeat(NEW[:1], len(rows), axis=0), rows))
        expected = np.ptp(probability[kept, j])
        assert abs(scipy.integrate.trapezoid(density, rows[:, j])) == pytest.approx(expected, abs=2e-3)
        assert expected > 0.7


def test_joint_density_is_that_of_the_transformed_targets_times_the_slopes(logs, mixed):
    for model in (logs, mixed):
        holes = np.where(np.eye(5, 2, k=-1, dtype=bool), np.nan, SEEN)
        t = transforms_of(model).forward(holes)
        slopes = -np.log(holes) * (transforms_of(model).changed)
        joint = model.predict_dist(NEW, transformed=True).log_prob(t, missing=True)
        np.testing.assert_allclose(model.log_prob(NEW, holes), joint + np.nansum(slopes, axis=1), rtol=1e-4, atol=1e-4)


def test_regions_hold_their_share_of_draws_and_take_original_units(model):
    region = model.predict_interval(NEW, 0.8, joint=True)
    np.testing.assert_array_equal(region.centre, transforms_of(model).back(region.transform.centre))
    draws = np.moveaxis(model.sample_y(NEW, 2000), -1, 0)
    excess = region.contains(draws).mean(axis=0) - 0.8
    folded = (draws == 0).any()  # by the root: they are nearer than before
    assert excess.min() > -5 * np.sqrt(0.16 / 2000) and (excess.max() < 5 * np.sqrt(0.16 / 2000) or folded)
    assert np.isfinite(region.distance(SEEN)).all() and region.contains(region.centre).all()


@pytest.mark.parametrize("name", ["log", "sqrt"])
def test_volume_of_a_region_in_original_units(name):
    """Against the share of a box of original units that it holds."""
    region = fitted(name).predict_interval(NEW[:1], 0.5, joint=True)
    random = np.random.default_rng(0)
    angles = np.linspace(0, 2 * np.pi, 400)
    border = region.transform.centre + region.radius * np.c_[np.cos(angles), np.sin(angles)] @ region.scale_tril[0].T
    low, high = (end(region.transform.maps.back(border), axis=0) for end in (np.min, np.max))
    points = random.uniform(low, high, size=(100_000, 1, 2))
    expected = np.prod(high - low) * region.contains(points).mean()
    assert np.exp(region.log_volume())[0] == pytest.approx(expected, rel=0.02)
    assert region._replace(radius=np.array([np.inf])).log_volume() == np.inf


def test_one_dimensional_targets():
    model = MDERRegressor(**SETTINGS, target_transform="log").fit(X, Y[:, 0])
    lower, upper = model.predict_interval(NEW)
    assert lower.shape == model.predict(NEW).shape == (5,) and (lower > 0).all() and (lower < upper).all()
    region = model.predict_interval(NEW, joint=True)
    ends = region.transform.centre + [-1, 1] * region.radius[:, None] * region.scale_tril[:, 0]
    np.testing.assert_allclose(np.exp(region.log_volume()), np.diff(np.exp(ends))[:, 0], rtol=1e-9)
    assert region.contains(lower).shape == (5,) and model.sample_y(NEW, 3).shape == (5, 3)


def test_conformal_scores_live_in_transformed_units(logs, mixed):
    held_out = table(80, seed=1)
    for model in (logs, mixed):
        model = clone(model).fit(X, Y).calibrate(*held_out)
        maps, rows = transforms_of(model), model.predictor_.rows(model.encoding_.encode(NEW)).learned
        radius = model.calibration_.radius(0.9, joint=False)
        parts = rows.moments()
        ends = maps.back(np.stack([parts.mean - radius * parts.std, parts.mean + radius * parts.std]))
        lower, upper = model.predict_interval(NEW, 0.9)
        np.testing.assert_allclose([lower, upper], [ends.min(axis=0), ends.max(axis=0)], rtol=1e-12)
        lower, upper = model.predict_interval(held_out[0], 0.9)
        assert ((lower <= held_out[1]) & (held_out[1] <= upper)).sum(axis=0).tolist() == [73, 73]  # ⌈0.9 · 81⌉
        assert model.predict_interval(held_out[0], 0.9, joint=True).contains(held_out[1]).sum() == 73


def test_score_is_in_original_units(logs):
    assert logs.score(X, Y) == pytest.approx(r2_score(Y, logs.predict(X)))


def test_distribution_is_refused_unless_transformed_is_asked_for(logs):
    with pytest.raises(ValueError, match=r"a mixture of t for log\(y0\), log\(y1\), not for the targets; use trans"):
        logs.predict_dist(NEW)
    with pytest.raises(ValueError, match="not for the targets"):
        logs.predict_all(NEW).distribution()
    assert logs.predict_all(NEW).distribution(transformed=True).batch_shape == (5,)


def test_figures_say_what_they_show():
    named = MDERRegressor(**SETTINGS, target_transform={"b": "log"}).fit(X, pd.DataFrame(Y, columns=["a", "b"]))
    ax = named.plot(X, Y, kind="ellipses")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("a", "log(b)")
    assert "log(b)" in [text.get_text() for text in named.plot(X, Y, kind="pit").get_legend().get_texts()]
    ax = named.plot(X, Y, kind="predicted_observed", target=1)
    assert ax.get_xlabel() == "predicted b"
    drawn = next(line for line in ax.lines if line.get_linestyle() == "None")
    np.testing.assert_allclose(drawn.get_ydata(), Y[:, 1])
    np.testing.assert_allclose(drawn.get_xdata(), named.predict(X)[:, 1])


# ---- Settings.


def test_by_name_by_index_and_for_each():
    frame = pd.DataFrame(Y, columns=["a", "b"])
    names = [
        fit_transforms(setting, Y, frame.columns).settings() for setting in ({"b": "log"}, {1: "log"}, [None, "log"])
    ]
    assert names == [[None, "log"]] * 3
    assert fit_transforms({}, Y, ["a", "b"]) is None and fit_transforms([None, None], Y, ["a", "b"]) is None
    given = PowerTransformer()
    a, b = fit_transforms(given, Y, ["a", "b"]).settings()
    assert not hasattr(given, "lambdas_") and a.lambdas_ != b.lambdas_


def test_without_maps_nothing_changes():
    plain, none = (fitted(setting) for setting in (None, [None, None]))
    np.testing.assert_array_equal(plain.predict(NEW), none.predict(NEW))
    assert plain.target_transforms_ == none.target_transforms_ == [None, None]
    assert plain.predict_interval(NEW, joint=True).transform is None


def zero_at(row, value=0.0):
    changed = Y.copy()
    changed[row, 1] = value
    return changed


class NoWayBack:
    def fit(self, y):
        return self

    def transform(self, y):
        return y


@pytest.mark.parametrize(
    "transform, targets, message",
    [
        (
            "log",
            zero_at([4, 9]),
            r"of 'y1' is log, for which it must be above 0; it is not in 2 of 60 rows, first 0 in",
        ),
        ("sqrt", zero_at(4, -2.0), r"of 'y1' is sqrt, for which it must be 0 or more; .* first -2 in row 4"),
        ("log1p", zero_at(4, -1.0), r"must be above -1; it is not in 1 of 60 rows, first -1 in row 4"),
        ("exp", Y, r"must be 'log', 'log1p', 'sqrt', a transformer .* or None, for all targets or for each; got 'exp'"),
        (["log"], Y, "has 1 entries for 2 targets, 'y0', 'y1'; give one each"),
        ({"price": "log"}, Y, "has no target 'price'; the targets are 'y0', 'y1', or 0 to 1"),
        ({2: "log"}, Y, "has no target 2; the targets are"),
        (PowerTransformer, Y, "got the class PowerTransformer: give an instance"),
        (NoWayBack(), Y, "which has no inverse_transform"),
        (FunctionTransformer(np.log), Y, r"of 'y0': inverse_transform of FunctionTransformer makes .* must lead back"),
        (
            FunctionTransformer(np.sin, np.arcsin, check_inverse=False),
            Y,
            "of 'y0': FunctionTransformer is not monotone on the targets",
        ),
        (
            FunctionTransformer(np.log, np.exp, check_inverse=False),
            zero_at(4, -1.0),
            r"of 'y1': FunctionTransformer gives nan for 1 of 60",
        ),
        (
            PowerTransformer("box-cox"),
            zero_at(4),
            "of 'y1': The Box-Cox transformation can only be applied to strictly",
        ),
        (
            KBinsDiscretizer(4, encode="ordinal", quantile_method="averaged_inverted_cdf"),
            Y,
            "of KBinsDiscretizer makes",
        ),
        (Normalizer(), Y, "which has no inverse_transform"),
    ],
)
def test_settings_and_targets_that_are_refused(transform, targets, message):
    with pytest.raises(ValueError, match=message):
        MDERRegressor(**SETTINGS, target_transform=transform).fit(X, targets)


def test_new_targets_outside_the_domain(logs):
    for call in (logs.log_prob, logs.calibrate, logs.plot):
        with pytest.raises(ValueError, match=r"'y1' is log, .* first 0 in row 4\. Correct these targets or choose"):
            call(X + 0.5, zero_at(4))
    assert np.isfinite(logs.score(X, zero_at(4)))
    region = logs.predict_interval(NEW, joint=True)
    assert not region.contains(zero_at(4)[:5])[4] and region.distance(zero_at(4)[:5])[4] == np.inf


def test_warm_start_keeps_the_maps():
    model = fitted(PowerTransformer(), warm_start=True)
    before = model.target_transforms_
    assert model.fit(X, Y).target_transforms_ == before
    model.target_transform = "log"
    with pytest.raises(ValueError, match=r"keeps the target_transform of the last fit, \['PowerTransformer', 'Power"):
        model.fit(X, Y)


# ---- Files.


def test_names_are_in_the_file(tmp_path, logs):
    logs.save(tmp_path / "model.mder")
    loaded = MDERRegressor.load(tmp_path / "model.mder")
    np.testing.assert_array_equal(loaded.predict(NEW), logs.predict(NEW))
    assert loaded.target_transform == "log" and loaded.target_transforms_ == ["log", "log"]
    fitted({1: "sqrt"}).save(tmp_path / "model.mder")
    assert MDERRegressor.load(tmp_path / "model.mder").target_transform == [None, "sqrt"]
    with pytest.raises(ValueError, match="has no target_transform; load it without one"):
        fitted(None).save(tmp_path / "model.mder")
        MDERRegressor.load(tmp_path / "model.mder", target_transform="log")


def test_transformers_are_given_again(tmp_path):
    path = tmp_path / "model.mder"
    model = fitted({1: PowerTransformer()})
    model.save(path)
    needed = "target 'y1' was transformed by a PowerTransformer, which is code and not in the file; "
    for given, message in (
        (None, "give it, fitted, as target_transform of load"),
        ("log", "give it, fitted"),
        ({1: PowerTransformer()}, "the PowerTransformer that was given does not work: This PowerTransformer instance"),
        ({1: PowerTransformer().fit(Y[:9, 1:])}, "the PowerTransformer that was given makes other numbers of the same"),
    ):
        with pytest.raises(ValueError, match=needed + message) as error:
            MDERRegressor.load(path, target_transform=given)
        assert not isinstance(error.value, ModelFileError)
    for given in (model.target_transforms_, {1: model.target_transforms_[1]}, model.target_transforms_[1]):
        loaded = MDERRegressor.load(path, target_transform=given)
        np.testing.assert_array_equal(loaded.predict_quantiles(NEW), model.predict_quantiles(NEW))
    loaded.save(path)
    clone(loaded).fit(X, Y)


def test_exported_moments_are_those_of_the_model(tmp_path):
    model = fitted(["log", None])
    model.export(tmp_path / "model.jaxexp")
    program = jax.export.deserialize(bytearray(pathlib.Path(tmp_path, "model.jaxexp").read_bytes()))
    found, u = program.call(NEW.astype(np.float32)), model.predict_uncertainty(NEW)
    np.testing.assert_allclose(found["mean"], u.mean, rtol=1e-4)
    for part in ("aleatoric", "epistemic", "total"):
        np.testing.assert_allclose(found[part], getattr(u, part), rtol=1e-3)
    with pytest.raises(ValueError, match="'y0' is transformed by a StandardScaler, which jax cannot run; export needs"):
        fitted(StandardScaler()).export(tmp_path / "model.jaxexp")
