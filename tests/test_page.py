"""The evaluation page: what it holds, that it is one file, and that a browser opens it."""

import base64
import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mder_jax as mder
from mder_jax import metrics
from mder_jax.cli import _report_page
from tests.support.cases import factors
from tests.support.pages import Page, browser_messages, needs_browser

SCRIPT = "<script>alert('x')</script>"


@jax.jit
def parts_of(mixture):
    return {name: getattr(mixture, name)() for name in ("mean", "aleatoric", "epistemic", "total")}


def prediction_of(N, n, members=1, seed=0):
    """A mixture, y with gaps, and what an estimator says of its uncertainty."""
    rng = np.random.default_rng(seed)
    L = np.asarray(factors(rng, (members, N), n, below=0.3))
    mu = rng.normal(size=(1, N, n)) + 0.3 * rng.normal(size=(members, N, n))
    y = mu[0] + np.squeeze(L[0] @ rng.normal(size=(N, n, 1)), -1)
    y[rng.uniform(size=y.shape) < 0.1] = np.nan
    nu = n + 4 + 4 * rng.uniform(size=(members, N))
    mixture = mder.Mixture(mder.NIW(mu, L, nu / 2, nu))
    return y, mixture, SimpleNamespace(**jax.tree.map(np.asarray, parts_of(mixture)))


def page_of(y, prediction, names, uncertainty, **options):
    half = 2 * np.sqrt(np.diagonal(uncertainty.total, axis1=1, axis2=2))
    options = {"title": "Evaluation", "facts": {"model": "a.mder"}} | options
    ends = {"lower": uncertainty.mean - half, "upper": uncertainty.mean + half}
    report = options.pop("report", None) or metrics.report(y, prediction, options.pop("coverage", 0.9), names)
    return _report_page.evaluation_page(y, prediction, report, uncertainty=uncertainty, **ends, **options)


NAMES = ["price (EUR)", SCRIPT, "$x & _y 价格"]
N = 50


def about(rows):
    return {"row": [f"<b>row {i}</b>" for i in rows], "<i>size</i>": [f"<i>{i % 3}</i>" for i in rows]}


@pytest.fixture(scope="module")
def case():
    return prediction_of(N, 3)


@pytest.fixture(scope="module")
def text(case):
    y, mixture, uncertainty = case
    facts = {"model": f"a {SCRIPT}", "rows": "50"}
    return page_of(y, mixture, NAMES, uncertainty, title=f"Of {SCRIPT}", facts=facts, about=about)


def test_page_is_one_closed_document_with_all_pictures_inside(text):
    page = Page(text)
    assert not page.open
    assert all(item.startswith(("#", "data:")) for item in page.loads)
    anchors = {item[1:] for item in page.loads if item.startswith("#")}
    assert anchors == set(re.findall(r'<h2 id="([^"]+)"', text)) and len(anchors) == 5
    assert len(page.images) == 3 + 3 + 3  # calibration, targets, pairs
    for image in page.images:
        assert image["alt"] and base64.b64decode(image["src"].split(",")[1]).startswith(b"\x89PNG")
    assert 'name="viewport"' in text


def test_all_text_is_escaped(text):
    assert "<script" not in text and "<b>" not in text and "<i>" not in text
    shown = "".join(Page(text).text)
    assert shown.count(SCRIPT) >= 5 and "<b>row " in shown and NAMES[2] in shown


def test_page_holds_the_numbers_of_the_report(text, case):
    y, mixture, uncertainty = case
    report = metrics.report(y, mixture, 0.9, NAMES)
    tables = Page(text).tables
    assert tables[0] == [["model", f"a {SCRIPT}"], ["rows", "50"]]
    near, joint, single = ({row[0]: row[1:-1] for row in table} for table in tables[1:4])
    assert joint["negative log-likelihood"] == [f"{report.nll.value:.4g} ± {report.nll.standard_error:.2g}"]
    assert joint["joint coverage at 90%, distribution"][0].startswith(f"{report.joint_coverage.value:.4g} ±")
    assert single[""] == near[""] == NAMES
    spread, rmse = np.nanstd(y, axis=0), np.sqrt(np.nanmean((y - uncertainty.mean) ** 2, axis=0))
    assert near["RMSE"] == [f"{value:.4g}" for value in rmse] == [f"{value:.4g}" for value in report.rmse]
    assert near["RMSE of predicting the mean"] == [f"{value:.4g}" for value in spread]
    assert near["R²"] == [f"{value:.4g}" for value in 1 - (rmse / spread) ** 2]
    assert single["CRPS"] == [f"{v:.4g} ± {e:.2g}" for v, e in zip(*report.crps, strict=True)]
    half = 2 * np.sqrt(np.diagonal(uncertainty.total, axis1=1, axis2=2))
    inside = [
        np.mean(np.abs(y - uncertainty.mean)[known, j] <= half[known, j]) for j, known in enumerate(~np.isnan(y.T))
    ]
    own = report.coverage
    assert single["coverage at 90%, distribution"] == [f"{v:.4g} ± {e:.2g}" for v, e in zip(*own[:2], strict=True)]
    assert [cell.split(" ")[0] for cell in near["coverage at 90%, intervals of mder predict"]] == [
        f"{v:.4g}" for v in inside
    ]


def test_least_known_rows_come_in_order_with_their_values(text, case):
    y, _, uncertainty = case
    variance = np.diagonal(uncertainty.epistemic, axis1=1, axis2=2)
    order = np.argsort(-np.sum(variance / np.nanvar(y, axis=0), axis=1))[:20]
    head, titles, *rows = Page(text).tables[4]
    assert head == ["row", "<i>size</i>", *NAMES] and titles == ["observed", "mean", "interval", "epistemic std"] * 3
    assert [row[:2] for row in rows] == [[f"<b>row {i}</b>", f"<i>{i % 3}</i>"] for i in order]
    for i, row in zip(order, rows, strict=True):
        for j in range(3):
            observed, mean, interval, std = row[2 + 4 * j : 6 + 4 * j]
            width = 4 * np.sqrt(uncertainty.total[i, j, j])
            assert observed == "–" if np.isnan(y[i, j]) else float(observed) == pytest.approx(y[i, j], abs=width / 100)
            assert float(mean) == pytest.approx(uncertainty.mean[i, j], abs=width / 100)
            assert float(std) == pytest.approx(np.sqrt(variance[i, j]), rel=1e-2)
            low, high = map(float, interval.split(" to "))
            assert high - low == pytest.approx(width, rel=0.02)


def test_what_was_learnt_in_other_units_is_shown_in_these(case):
    """A prediction of the logarithms; everything about y itself is in its own units."""
    t, mixture, parts = case
    y = np.exp(t)
    variance = np.diagonal(parts.total, axis1=1, axis2=2)
    mean, labels = np.exp(parts.mean), [f"log({name})" for name in NAMES]
    scaled = {name: getattr(parts, name) * mean[:, :, None] * mean[:, None, :] for name in ("epistemic", "total")}
    uncertainty = SimpleNamespace(mean=mean, **scaled)
    ends = {side: np.exp(parts.mean + sign * 2 * np.sqrt(variance)) for side, sign in (("lower", -1), ("upper", 1))}
    report = metrics.report(t, mixture, 0.9, labels)
    options = {"title": "Logarithms", "facts": {}, "learned": t, "names": NAMES, "uncertainty": uncertainty}
    page = Page(_report_page.evaluation_page(y, mixture, report, **options, **ends))
    _, near, joint, single, rows = page.tables
    assert near[0][1:-1] == NAMES == rows[0][1:] and single[0][1:-1] == labels
    rmse = np.sqrt(np.nanmean((y - mean) ** 2, axis=0))
    assert near[2][1:-1] == [f"{value:.4g}" for value in rmse]
    assert single[1][1].startswith(f"{report.crps.value[0]:.4g} ±") and "±" in joint[1][1]
    captions = [image["alt"] for image in page.images]
    assert f"{NAMES[0]}: observed against predicted mean." in captions
    assert f"{labels[0]} and {labels[1]}: predicted covariance of a few rows." in captions
    assert f"Of {', '.join(labels)}, except the likelihood, which is of the targets in their units:" in "".join(
        page.text
    )


def test_one_target_has_no_pairs():
    y, mixture, _ = prediction_of(N, 1)
    assert _report_page._ellipses_section(y, mixture, ["a"], 0.9) == ""


@pytest.mark.slow
def test_page_of_one_target_and_one_member():
    y, _, uncertainty = prediction_of(N, 1, seed=1)
    t = mder.StudentT(5.0, jnp.asarray(uncertainty.mean), jnp.asarray(np.sqrt(uncertainty.total)))
    page = Page(page_of(y, t, ["a"], uncertainty))
    assert len(page.images) == 3 and "variogram" not in "".join(page.text)
    assert [row[0] for row in page.tables[4][2:]] == [
        str(1 + i) for i in np.argsort(-uncertainty.epistemic[:, 0, 0], kind="stable")[:20]
    ]


def test_pictures_of_many_rows_are_of_an_even_part_and_scores_of_all(case, monkeypatch):
    y, mixture, _ = case
    y = y.copy()
    y[10] = np.nan  # drawn rows have something to show
    monkeypatch.setattr(_report_page, "DRAWN_ROWS", 20)
    some, part = _report_page._drawn(y, mixture)
    assert len(some) == 20 and part.batch_shape == (20,)
    rows = [int(np.flatnonzero(np.asarray(mixture.members.mu)[0, :, 0] == mu)[0]) for mu in part.members.mu[0, :, 0]]
    np.testing.assert_array_equal(some, y[rows])
    assert rows[0] == 0 and rows[-1] == N - 1 and set(np.diff(rows)) <= {2, 3, 4} and 10 not in rows
    _, alone = _report_page._drawn(y, mixture.member(0))
    np.testing.assert_array_equal(alone.loc, part.member(0).loc)


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (2020.51234, 0.004, "2020.51234"),
        (2020.51234, 40.0, "2020.5"),
        (-3.14159, 1.0, "-3.14"),
        (123456789.0, 5e7, "1.23457e+08"),
        (float("nan"), 1.0, "–"),
        (1.5, float("inf"), "1.5"),
        (1.5, 0.0, "1.5"),
    ],
)
def test_numbers_have_the_digits_that_count(value, unit, shown):
    assert _report_page._number(value, unit) == shown


def test_wrong_arguments_are_named(case):
    y, mixture, uncertainty = case
    report = metrics.report(y, mixture, 0.9, NAMES)
    with pytest.raises(ValueError, match="nothing was observed"):
        page_of(np.full_like(y, np.nan), mixture, NAMES, uncertainty, report=report)
    with pytest.raises(ValueError, match=r"lower must have shape \(40, 3\)"):
        page_of(y[:40], mixture, NAMES, uncertainty, report=report)


@needs_browser
def test_page_opens_in_a_browser_without_an_error(text, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(text)
    assert browser_messages(path) == []


@pytest.mark.slow
def test_page_of_ten_thousand_rows_is_below_three_megabytes():
    y, mixture, uncertainty = prediction_of(10_000, 3, members=2)
    assert len(page_of(y, mixture, NAMES, uncertainty)) < 3e6
