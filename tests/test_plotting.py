"""What the pictures hold, against scipy and closed forms; how they are made."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
import scipy.stats
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.path import Path

import mder_jax as mder
from mder_jax import plotting
from mder_jax.plotting import _drawing
from tests.support.cases import factors

N, n = 40, 3


def normal(rng, *shape):
    return jnp.asarray(rng.normal(size=shape))


@pytest.fixture(scope="module")
def student():
    rng = np.random.default_rng(0)
    return mder.StudentT(jnp.asarray(3 + 5 * rng.uniform(size=N)), 2 * normal(rng, N, n), factors(rng, (N,), n))


@pytest.fixture(scope="module")
def niw():
    rng = np.random.default_rng(1)
    kappa, nu = (jnp.asarray(low + 4 * rng.uniform(size=N)) for low in (0.5, n + 2))
    return mder.NIW(2 * normal(rng, N, n), factors(rng, (N,), n), kappa, nu)


@pytest.fixture(scope="module")
def mixture():
    rng = np.random.default_rng(2)
    kappa, nu = (jnp.asarray(low + 4 * rng.uniform(size=(3, N))) for low in (0.5, n + 3))
    return mder.Mixture(mder.NIW(normal(rng, 3, N, n), factors(rng, (3, N), n), kappa, nu))


@pytest.fixture(scope="module")
def y(student):
    values = np.array(student.sample(jax.random.key(3)))
    values[np.random.default_rng(4).uniform(size=values.shape) < 0.1] = np.nan
    return values


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(5).uniform(size=N)


def scale_matrix(t):
    L = np.asarray(t.scale_tril)
    return L @ np.swapaxes(L, 1, 2)


def scipy_t(t):
    """The targets' own t distributions, (N, n)."""
    scale = np.sqrt(np.diagonal(scale_matrix(t), axis1=1, axis2=2))
    return scipy.stats.t(np.asarray(t.df)[:, None], np.asarray(t.loc), scale)


def scipy_joint_pit(t, y):
    """P(δ ≤ δ(y)) with δ/n distributed as F(n, df), of the complete rows."""
    d = (y - np.asarray(t.loc))[..., None]
    q = np.squeeze(np.swapaxes(d, 1, 2) @ np.linalg.solve(scale_matrix(t), d))
    return scipy.stats.f.cdf(q / n, n, np.asarray(t.df))[~np.isnan(q)]


def distance(points, centre, covariance):
    d = points - centre
    return np.sqrt(np.einsum("ki,ij,kj->k", d, np.linalg.inv(covariance), d))


def label_of(artists, start):
    (found,) = [artist for artist in artists if artist.get_label().startswith(start)]
    return found


def ends(band, x):
    """Lower and upper edge of a filled band at each x."""
    vertices = np.concatenate([path.vertices for path in band.get_paths()])
    at = [vertices[np.isclose(vertices[:, 0], value, rtol=0, atol=1e-12), 1] for value in x]
    return np.array([(values.min(), values.max()) for values in at]).T


def every_picture(x, y, niw, ax=lambda: None, names=None, **options):
    name = None if names is None else names[0]
    yield plotting.ellipses(niw, y=y, names=names, ax=ax(), **options)
    yield plotting.bands(x, niw, y=y, name=name, ax=ax(), **options)
    yield plotting.nu_gate(x, niw, ax=ax(), **options)
    yield plotting.calibration(y, niw, names=names, ax=ax(), **options)
    yield plotting.pit(y, niw, names=names, ax=ax(), **options)
    yield plotting.pit(y, niw, joint=True, ax=ax(), **options)
    yield plotting.predicted_observed(y, niw, name=name, ax=ax(), **options)
    yield plotting.sparsification(y, niw, names=names, ax=ax(), **options)


@pytest.fixture(scope="module")
def pictures(x, y, niw):
    return list(every_picture(x, y, niw))


def test_ellipse_of_a_t_is_its_region_by_the_f_distribution(student):
    rows, pair = [3, 17], [2, 0]
    ax = plotting.ellipses(student, rows, pair, coverage=0.8)
    assert len(ax.patches) == 2
    for row, patch in zip(rows, ax.patches, strict=True):
        S, loc = scale_matrix(student)[row][np.ix_(pair, pair)], np.asarray(student.loc)[row, pair]
        radius = np.sqrt(2 * scipy.stats.f.ppf(0.8, 2, float(student.df[row])))
        np.testing.assert_allclose(distance(patch.get_xy(), loc, S), radius, rtol=1e-6)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("y2", "y0")


def test_aleatoric_ellipse_has_the_radius_of_the_total_one(niw):
    ax = plotting.ellipses(niw, rows=[5], targets=(0, 1), coverage=0.9)
    total, aleatoric = ax.patches
    assert total.get_label() == "total, 90% inside" and aleatoric.get_label() == "aleatoric"
    nu, kappa, L = float(niw.nu[5]), float(niw.kappa[5]), np.asarray(niw.L[5])
    noise, df, loc = (nu / (nu - n - 1) * L @ L.T)[:2, :2], nu - n + 1, np.asarray(niw.mu[5, :2])
    radius = np.sqrt(2 * scipy.stats.f.ppf(0.9, 2, df) * (df - 2) / df)  # in standard deviations
    np.testing.assert_allclose(distance(total.get_xy(), loc, noise * (1 + 1 / kappa)), radius, rtol=1e-6)
    np.testing.assert_allclose(distance(aleatoric.get_xy(), loc, noise), radius, rtol=1e-6)


def test_ellipse_of_a_mixture_holds_the_stated_share(mixture):
    outline = plotting.ellipses(mixture, rows=[7], targets=(1, 2), coverage=0.7).patches[0].get_xy()
    t, rng, draws = mixture.components(), np.random.default_rng(6), 20_000
    S = np.asarray(t.scale_tril)[:, 7] @ np.swapaxes(np.asarray(t.scale_tril)[:, 7], 1, 2)
    members = zip(np.asarray(t.loc)[:, 7], S, np.asarray(t.df)[:, 7], strict=True)
    parts = [scipy.stats.multivariate_t(loc, S, df).rvs(draws, random_state=rng) for loc, S, df in members]
    inside = Path(outline).contains_points(np.concatenate(parts)[:, 1:])
    noise = np.sqrt(0.7 * 0.3 * (1 / inside.size))
    assert abs(inside.mean() - 0.7) < 4 * noise + 2e-3  # a polygon of 100 corners is smaller by 0.1 %


def test_ellipses_choose_spread_rows_whose_targets_were_seen(niw, y):
    ax = plotting.ellipses(niw, targets=(0, 1), y=y)
    points = np.stack(label_of(ax.lines, "observed").get_data(), axis=-1)
    means = np.stack(label_of(ax.lines, "mean").get_data(), axis=-1)
    assert points.shape == (_drawing.ELLIPSES, 2) and np.isfinite(points).all()
    rows = [int(np.flatnonzero((y[:, :2] == point).all(axis=1))[0]) for point in points]
    all_means = np.asarray(niw.mu)[:, :2]
    np.testing.assert_allclose(all_means[rows], means)
    complete = all_means[np.isfinite(y[:, :2]).all(axis=1), 0]
    assert means[0, 0] == complete.min() and means[-1, 0] == complete.max()
    assert [len(line.get_xdata()) for line in ax.lines].count(2) == _drawing.ELLIPSES


def test_rows_without_a_covariance_have_no_ellipse():
    t = mder.StudentT(jnp.array([1.5, 5.0]), jnp.zeros((2, 2)), jnp.broadcast_to(jnp.eye(2), (2, 2, 2)))
    assert len(plotting.ellipses(t).patches) == 1


def test_bands_of_a_t_are_scipys_quantiles(student, y, x):
    ax = plotting.bands(x, student, target=1, coverage=(0.5, 0.9), y=y, name="mass (kg)")
    order = np.argsort(x)
    for level, band in zip((0.9, 0.5), ax.collections, strict=True):
        lower, upper = scipy_t(student).interval(level)
        np.testing.assert_allclose(ends(band, x[order]), [lower[order, 1], upper[order, 1]], rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), x[order])
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), np.asarray(student.loc)[order, 1])
    np.testing.assert_array_equal(label_of(ax.lines, "observed").get_ydata(), y[order, 1])
    assert ax.get_ylabel() == "mass (kg)"


def test_bands_of_a_niw_show_the_spread_of_the_mean(niw, x):
    ax = plotting.bands(x, niw, target=2, coverage=(0.9,))
    L, order = np.asarray(niw.L), np.argsort(x)
    variance = np.sum(L[:, 2] ** 2, axis=-1) * np.asarray(niw.nu / (niw.nu - n - 1) / niw.kappa)
    mean, std = np.asarray(niw.mu)[order, 2], np.sqrt(variance)[order]
    band = label_of(ax.collections, "± epistemic std")
    np.testing.assert_allclose(ends(band, x[order]), [mean - std, mean + std], rtol=1e-6)


def test_nu_gate_draws_members_and_median(mixture, niw, x):
    nu, order = np.asarray(mixture.members.nu), np.argsort(x)
    *members, key, median = plotting.nu_gate(x, mixture.members).lines
    np.testing.assert_array_equal([line.get_ydata() for line in members], nu[:, order])
    np.testing.assert_array_equal(median.get_ydata(), np.sort(nu, axis=0)[1, order])
    assert median.get_linewidth() > 3 * members[0].get_linewidth()
    assert key.get_label() == f"{len(nu)} members" and key.get_alpha() is None
    (single,) = plotting.nu_gate(x, niw).lines
    np.testing.assert_array_equal(single.get_ydata(), np.asarray(niw.nu)[order])


def test_calibration_lines_are_coverage_counted_by_hand(student, y):
    ax = plotting.calibration(y, student, names=["a", "b", "c"])
    levels = label_of(ax.lines, "a").get_xdata()
    for j, name in enumerate("abc"):
        line = label_of(ax.lines, name)
        for level, share in zip(levels[5:95:9], line.get_ydata()[5:95:9], strict=True):
            lower, upper = (end[:, j] for end in scipy_t(student).interval(level))
            known = ~np.isnan(y[:, j])
            assert share == pytest.approx(np.mean((lower <= y[:, j])[known] & (y[:, j] <= upper)[known]))
    joint = scipy_joint_pit(student, y)
    expected = [np.mean(joint <= level) for level in levels]
    np.testing.assert_allclose(label_of(ax.lines, "joint region").get_ydata(), expected)
    fewest = (~np.isnan(y)).sum(axis=0).min()
    low, high = ends(label_of(ax.collections, "95% band"), levels)
    np.testing.assert_allclose(low, scipy.stats.binom.ppf(0.025, fewest, levels) / fewest)
    np.testing.assert_allclose(high, scipy.stats.binom.ppf(0.975, fewest, levels) / fewest)


def test_calibration_of_given_intervals_and_regions_is_counted(student, y):
    lines = plotting.calibration(y, student.interval, names=["a", "b", "c"]).lines
    levels = label_of(lines, "b").get_xdata()
    np.testing.assert_allclose(levels, np.arange(1, 20) / 20)
    for level, share in zip(levels, label_of(lines, "b").get_ydata(), strict=True):
        lower, upper = (end[:, 1] for end in scipy_t(student).interval(level))
        known = ~np.isnan(y[:, 1])
        assert share == pytest.approx(np.mean((lower <= y[:, 1])[known] & (y[:, 1] <= upper)[known]))

    class Ball:
        """Holds the rows whose squares sum to less than the square of 10 c."""

        def __init__(self, coverage):
            self.radius = 10 * coverage

        def contains(self, values):
            return np.linalg.norm(values, axis=1) <= self.radius

    (joint,) = [line for line in plotting.calibration(y, Ball).lines if line.get_label() == "joint region"]
    norms = np.linalg.norm(y, axis=1)
    expected = [np.mean(norms[~np.isnan(norms)] <= 10 * level) for level in levels]
    np.testing.assert_allclose(joint.get_ydata(), expected)
    assert 0 < expected[5] < 1


def test_calibration_of_one_target_has_no_joint_region(student, y):
    ax = plotting.calibration(y[:, :1], student.marginal([0]))
    assert [line.get_label() for line in ax.lines if not line.get_label().startswith("_")] == ["y0"]


@pytest.mark.parametrize("joint", [False, True])
def test_pit_histogram_is_that_of_scipys_values(student, y, joint):
    ax = plotting.pit(y, student, joint=joint)
    columns = [scipy_joint_pit(student, y)] if joint else [c[~np.isnan(c)] for c in scipy_t(student).cdf(y).T]
    stairs = [patch for patch in ax.patches if hasattr(patch, "get_data")]
    fewest = min(map(len, columns))
    for values, patch in zip(columns, stairs, strict=True):
        bars, edges = patch.get_data()[:2]
        counts = np.histogram(values, edges)[0]
        np.testing.assert_allclose(bars, counts / len(values) * len(counts))
    assert len(edges) == 6  # five bins for so few rows
    band = label_of(ax.patches, "95% band").get_bbox()
    expected = scipy.stats.binom.ppf([0.025, 0.975], fewest, 0.2) / fewest * 5
    np.testing.assert_allclose([band.y0, band.y1], expected)


def test_predicted_observed_has_a_point_with_its_std_for_each_observation(student, y):
    ax = plotting.predicted_observed(y, student, target=1, name="mass (kg)")
    known = ~np.isnan(y[:, 1])
    mean, std = np.asarray(student.loc)[known, 1], scipy_t(student).std()[known, 1]
    (container,) = ax.containers
    points, _, (bars,) = container
    np.testing.assert_array_equal(points.get_data(), [mean, y[known, 1]])
    np.testing.assert_allclose([s[:, 0] for s in bars.get_segments()], np.stack([mean - std, mean + std], axis=-1))
    diagonal = label_of(ax.lines, "observed = predicted")
    np.testing.assert_array_equal(*diagonal.get_data())
    assert ax.get_xlabel() == "predicted mass (kg)" and ax.get_xlim() == ax.get_ylim()


def test_predicted_observed_of_many_rows_counts_each_once():
    rng = np.random.default_rng(0)
    rows = _drawing.POINTS + 100
    t = mder.StudentT(4.0, normal(rng, rows, 1), jnp.ones((rows, 1, 1)))
    ax = plotting.predicted_observed(np.asarray(t.loc) + rng.normal(size=(rows, 1)), t)
    assert ax.collections[0].get_array().sum() == rows
    assert not ax.containers


def test_sparsification_is_the_rmse_of_the_rows_left(student, y):
    ax = plotting.sparsification(y, student, names=["a", "b", "c"])
    known = ~np.isnan(y[:, 0])
    error, std = (y - np.asarray(student.loc))[known, 0], scipy_t(student).std()[known, 0]
    line, oracle = ax.lines[:2]
    assert line.get_label() == "a"
    for k in (0, 10, 50, 99):
        kept = len(error) - k * len(error) // 100
        for curve, order in ((line, np.argsort(std)), (oracle, np.argsort(np.abs(error)))):
            expected = np.sqrt(np.mean(error[order[:kept]] ** 2) / np.mean(error**2))
            assert curve.get_ydata()[k] == pytest.approx(expected)
            assert curve.get_xdata()[k] == pytest.approx(k / 100)


def test_given_axes_are_used_and_pyplot_holds_no_figure(x, y, niw, pictures):
    given = [Figure().subplots() for _ in pictures]
    axes = iter(given)
    assert list(every_picture(x, y, niw, lambda: next(axes))) == given
    assert all(ax.lines for ax in given)
    assert plt.get_fignums() == []


def test_nothing_is_clipped_and_legends_cover_no_data(pictures):
    for ax in pictures:
        canvas = FigureCanvasAgg(ax.figure)
        canvas.draw()
        whole, drawn = (
            ax.figure.bbox,
            ax.figure.get_tightbbox(canvas.get_renderer()).transformed(ax.figure.dpi_scale_trans),
        )
        assert drawn.x0 >= 0 and drawn.y0 >= 0 and drawn.x1 <= whole.x1 and drawn.y1 <= whole.y1
        assert ax.get_legend().get_window_extent().y0 >= ax.get_window_extent().y1


def test_no_legend_if_none_is_wanted(x, y, niw):
    pictures = list(every_picture(x, y, niw, legend=False))
    assert all(ax.get_legend() is None and ax.get_legend_handles_labels()[1] for ax in pictures)
    with pytest.raises(TypeError, match="legend must be True or False; got 'best'"):
        plotting.nu_gate(x, niw, legend="best")


@pytest.mark.parametrize("layout", ["constrained", None])
def test_titles_of_narrow_panels_are_above_legends_no_wider_than_the_panels(x, mixture, y, layout):
    figure = Figure(figsize=(7.0, 4.0), layout=layout)
    left, middle, right = figure.subplots(1, 3)
    plotting.nu_gate(x, mixture.members, ax=left)
    plotting.ellipses(mixture, ax=middle)
    plotting.predicted_observed(y, mixture, ax=right)
    for ax in (left, middle, right):
        ax.set_title("(a) a title")
    FigureCanvasAgg(figure).draw()
    for ax in (left, middle, right):
        panel, legend, title = (part.get_window_extent() for part in (ax, ax.get_legend(), ax.title))
        assert title.y0 >= legend.y1 - 1 and legend.y0 >= panel.y1
        assert legend.width <= 1.1 * panel.width and panel.width > 0.2 * figure.bbox.width


def test_any_name_is_printed_as_it_is(x, y, niw):
    names = ["$x_1 & {", "_hidden", "a name\nof " + "very " * 20 + "many words"]
    for ax in every_picture(x, y, niw, names=names):
        FigureCanvasAgg(ax.figure).draw()
    shown = [text.get_text() for text in plotting.pit(y, niw, names=names).get_legend().get_texts()[1:]]
    assert shown[:2] == [r"\$x_1 & {", " _hidden"]
    assert shown[2].startswith("a name of very") and shown[2].endswith("many words") and len(shown[2]) == 40


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda x, y, t: plotting.ellipses(t, targets=[0]), r"two targets; got \(0,\)"),
        (lambda x, y, t: plotting.ellipses(t, targets=[0, 3]), "0 to 2; got 3"),
        (lambda x, y, t: plotting.ellipses(t, rows=[99]), r"0 to 39, or a mask; got \[99\]"),
        (lambda x, y, t: plotting.ellipses(t, coverage=90), "between 0 and 1; got 90"),
        (lambda x, y, t: plotting.ellipses(t, y=y[:5]), r"\(40, 3\).*got \(5, 3\)"),
        (lambda x, y, t: plotting.bands(x[:, None], t), r"\(40,\).*got \(40, 1\)"),
        (lambda x, y, t: plotting.bands(np.where(x == x[7], np.nan, x), t), "nan in row 7"),
        (lambda x, y, t: plotting.bands(x, t, coverage=(0.5, 1.0)), "between 0 and 1; got 1.0"),
        (lambda x, y, t: plotting.calibration(y, t, names=["a"]), r"3 targets; got \['a'\]"),
        (lambda x, y, t: plotting.pit(np.full_like(y, np.nan), t), r"nothing was observed.*\(40, 3\)"),
        (lambda x, y, t: plotting.predicted_observed(y, t, target=5), "0 to 2; got 5"),
    ],
)
def test_wrong_arguments_are_named(x, y, student, draw, message):
    with pytest.raises(ValueError, match=message):
        draw(x, y, student)


def test_an_infinite_observation_does_not_stretch_the_axes(y, student):
    far = np.asarray(y).copy()
    far[0, 0] = np.inf
    assert np.isfinite(plotting.predicted_observed(far, student).get_xlim()).all()


def test_nu_needs_a_niw(x, student, mixture):
    with pytest.raises(TypeError, match="got Mixture"):
        plotting.nu_gate(x, mixture)
    with pytest.raises(TypeError, match="got StudentT"):
        plotting.nu_gate(x, student)


def test_importing_does_not_import_matplotlib():
    script = "import sys, mder_jax.plotting; assert not {'matplotlib', 'scipy.stats'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
