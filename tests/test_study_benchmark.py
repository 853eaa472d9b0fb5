"""The benchmark: splits, scores against independent ones, comparisons, and a small run that is stopped and resumed."""

import ast
import copy
import itertools
import json
import math
import pathlib
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import Ridge, RidgeCV

import mder_jax as mder
from experiments import benchmark
from experiments.__main__ import main
from experiments.benchmark import (
    as_it_comes,
    baselines as others,
    cells,
    comparisons as compare,
    goals,
    methods,
    mixed_tables,
    networks as neural,
    problems,
    scores,
    splits as tasks_of,
    statistics,
    summary,
)
from experiments.harness import storage
from tests.support.cases import long

SMALL = ["--splits", "2", "--steps", "60", "--members", "2", "--small-members", "2", "--workers", "1", "--no-cache"]


def correlated_table(rows=60, inputs=3, targets=2, seed=0):
    random = np.random.RandomState(seed)
    X = random.normal(size=(rows, inputs))
    noise = random.multivariate_normal(np.zeros(targets), 0.2 * np.eye(targets) + 0.3, size=rows)
    return X, X @ random.normal(size=(inputs, targets)) + noise


@pytest.fixture(scope="module")
def small_tasks():
    X, Y = correlated_table()
    return tasks_of.make_tasks(10 + 3 * X, 5 * Y, tasks_of.seeded_splits(len(X), 2))


@pytest.fixture
def recipe():
    return neural.Recipe((8,), 20, 2, 0, (0.01,))


def test_splits_are_those_of_the_protocol():
    np.random.seed(1)
    for train, test in tasks_of.seeded_splits(103, 3):
        order = np.random.choice(range(103), 103, replace=False)
        assert np.array_equal(train, order[:93]) and np.array_equal(test, order[93:])


def test_tasks_are_standardised_on_the_training_part_alone():
    X, Y = correlated_table()
    X[3, 1] = np.nan
    train, test = np.arange(40), np.arange(40, 60)
    Y[test] += 1000
    tasks = tasks_of.make_tasks(X, Y, [(train, test)])
    assert np.allclose(tasks.Y[0].mean(0), 0, atol=1e-6) and np.allclose(tasks.Y[0].std(0), 1, atol=1e-6)
    assert tasks.Y_test.min() > 100 and tasks.X[0, 3, 1] == 0 and np.isfinite(tasks.X).all()
    assert np.allclose(tasks.Y_test[0] * tasks.unit[0] + Y[train].mean(0), Y[test], rtol=1e-5)
    kept, _, Y_apart = tasks_of.set_apart(tasks, 0.25)
    assert kept.X.shape[1] == 30 and np.array_equal(Y_apart, tasks.Y[:, 30:])


def test_scores_are_those_of_scipy_for_a_gaussian(small_tasks):
    random = np.random.RandomState(0)
    rows = small_tasks.Y_test.shape[1]
    loc = random.normal(size=(2, rows, 2)).astype(np.float32)
    factor = np.broadcast_to(np.float32([[0.5, 0.0], [0.4, 1.2]]), (2, rows, 2, 2))
    found = scores.of_rows(scores.Forecast(scores.gaussians(loc, factor)), small_tasks)
    for split in range(2):
        for row in range(rows):
            d = small_tasks.Y_test[split, row] - loc[split, row]
            covariance = factor[0, 0] @ factor[0, 0].T
            exact = -stats.multivariate_normal([0, 0], covariance).logpdf(d)
            assert found["nll"][split, row] == pytest.approx(exact, rel=1e-5)
            distance = d @ np.linalg.solve(covariance, d)
            radii = stats.chi2.ppf([0.5, 0.9], 2)
            clear = np.abs(distance / radii - 1) > 0.5
            assert np.array_equal(found["inside"][split, row][clear], (distance <= radii)[clear])
    volume = np.log(np.pi * stats.chi2.ppf([0.5, 0.9], 2) * 0.5 * 1.2)
    assert np.allclose(found["log_volume"].mean((0, 1)), volume, atol=0.05)
    assert np.all(found["epistemic"] == 0)


def test_scores_are_those_of_the_metrics_for_a_mixture(small_tasks):
    key, rows = jax.random.key(0), small_tasks.Y_test.shape[1]
    raw = jax.random.normal(key, (2, 3, rows, mder.num_outputs(2)), jnp.float32)
    niw = mder.niw_link(raw, n=2)
    found = scores.of_rows(scores.Forecast(niw), small_tasks)
    for split in range(2):
        mixture = mder.Mixture(neural.take(niw, split))
        y = jnp.asarray(small_tasks.Y_test[split])
        assert np.allclose(found["nll"][split], -mixture.log_prob(y), rtol=1e-5)
        assert np.allclose(found["covariance"][split], mixture.total(), rtol=1e-4)
        assert np.allclose(found["epistemic"][split], np.trace(mixture.epistemic(), axis1=-2, axis2=-1), rtol=1e-4)
    whole = scores.of_splits(found)
    assert whole["nll"] == pytest.approx(found["nll"].mean(1).tolist())


def test_energy_scores_are_means_over_all_pairs_of_draws():
    random = np.random.RandomState(0)
    y, draws = random.normal(size=(4, 3)), random.normal(size=(7, 4, 3))
    to_y = np.linalg.norm(draws - y, axis=-1).mean(0)
    between = [np.linalg.norm(one - other, axis=-1) for one, other in itertools.permutations(draws, 2)]
    assert np.allclose(scores.energy(jnp.asarray(y), jnp.asarray(draws)), to_y - 0.5 * np.mean(between, axis=0))


def test_regions_that_were_calibrated_keep_their_radius(small_tasks):
    rows = small_tasks.Y_test.shape[1]
    members = scores.gaussians(
        np.zeros((2, rows, 2), np.float32), np.tile(np.eye(2, dtype=np.float32), (2, rows, 1, 1))
    )
    radii = np.float32([[1.0, 2.0], [0.5, 3.0]])
    found = scores.of_rows(scores.Forecast(members, radii=radii), small_tasks)
    distance = np.linalg.norm(small_tasks.Y_test, axis=-1)
    assert np.array_equal(found["inside"].astype(bool), distance[..., None] <= radii[:, None])


def test_a_row_without_a_region_counts_as_outside_and_is_told(small_tasks):
    rows = small_tasks.Y_test.shape[1]
    factor = np.tile(np.eye(2, dtype=np.float32), (2, rows, 1, 1))
    found = scores.of_rows(scores.Forecast(scores.gaussians(np.zeros((2, rows, 2), np.float32), factor)), small_tasks)
    before = scores.of_splits(found)
    found["log_volume"][0, 1], found["inside"][0, 1] = np.nan, False
    after = scores.of_splits(found)
    assert before["no_region"] == [0, 0] and after["no_region"] == [1, 0]
    others = np.delete(found["log_volume"][0, :, 1], 1)
    assert after["log_volume_90%"] == pytest.approx([others.mean(), before["log_volume_90%"][1]])
    whole = told(ridge=scored("ridge", [1.0, 2.0], no_region=[1, 0]))
    assert "ridge: 0 splits with a failure, 0 rows with a non-finite NLL, 1 without a joint region" in summary.text(
        whole
    )


def test_targets_one_by_one_are_scored_as_a_product_of_t_distributions(small_tasks):
    rows = small_tasks.Y_test.shape[1]
    raw = jax.random.normal(jax.random.key(1), (2, rows, 8), jnp.float32)
    nig = mder.nig_link(raw, n=2)
    found = scores.of_rows(scores.Forecast(nig), small_tasks)
    width = np.sqrt(np.asarray(nig.beta / nig.alpha * (1 + 1 / nig.kappa)))
    exact = -stats.t.logpdf(small_tasks.Y_test, 2 * np.asarray(nig.alpha), np.asarray(nig.mu), width).sum(-1)
    assert np.allclose(found["nll"], exact, rtol=1e-4)


def test_diagonal_link_leaves_out_what_is_below_the_diagonal():
    raw = jnp.array([[0.1, 0.2, 0.3, -1.0, 0.0, 1.0, 0.5]])
    niw = neural.diagonal_niw_link(raw, 3)
    assert np.allclose(niw.mu, raw[:, :3]) and np.allclose(niw.L[0], np.diag(np.exp([-1.0, 0.0, 1.0])))
    assert niw.nu[0] == pytest.approx(9 + 5 * math.tanh(0.5))


def constant_nll(tasks):
    """NLL of each split under the Gaussian of its training targets, which knows nothing of the inputs."""
    each = zip(tasks.Y, tasks.Y_test, strict=True)
    return [-stats.multivariate_normal(y.mean(0), np.cov(y.T)).logpdf(test).mean() for y, test in each]


SHORT = ("niw", "nig", "ngboost", "process", "ridge", "trees")  # the others take long to compile


@pytest.mark.parametrize("name", [name if name in SHORT else long(name) for name in methods.METHODS])
def test_every_method_says_something_sensible_of_every_split(name):
    if name == "ngboost":
        pytest.importorskip("ngboost")
    X, Y = correlated_table(120)
    tasks = tasks_of.make_tasks(10 + 3 * X, 5 * Y, tasks_of.seeded_splits(len(X), 2))
    method = methods.METHODS[name]
    made = method.run(tasks, neural.Recipe((16,), 100, 2, 0, (0.03,)))
    assert [result.row for result in made] == list(method.rows)
    constant = constant_nll(tasks)
    for result in made:
        found = scores.of_splits(scores.of_rows(result.forecast, tasks))
        assert len(found["nll"]) == 2 and not sum(found["broken"]) and not any(result.failures)
        assert np.all(np.array(found["nll"]) < constant) and np.all(np.array(found["rmse"]) < 0.9)
        assert result.training > 0 and result.predicting > 0


def test_constant_covariance_of_ridge_is_that_of_rows_left_out_one_by_one(small_tasks):
    X, Y = (np.asarray(field[0], float) for field in small_tasks[:2])
    X = 2 + X[:20]  # few rows: a residual of training is much smaller
    Y = Y[:20]
    alpha = RidgeCV(np.logspace(-4, 4, 17)).fit(X, Y).alpha_
    without = [np.delete(np.arange(20), row) for row in range(20)]
    left_out = [Y[row] - Ridge(alpha).fit(X[kept], Y[kept]).predict(X[[row]])[0] for row, kept in enumerate(without)]
    residuals = np.stack(left_out)
    mean, factor, _ = others.ridge(X, Y)(X)
    assert np.allclose(mean, Ridge(alpha).fit(X, Y).predict(X))
    assert np.allclose(factor[0] @ factor[0].T, residuals.T @ residuals / 20)
    alone = others.without_correlations(factor)
    assert np.allclose(alone[0] @ alone[0].T, np.diag(np.mean(residuals**2, axis=0)))


def fit_at(tasks, *rates):
    return neural.fit(neural.KINDS["gaussian-diagonal"], tasks, neural.Recipe((8,), 20, 2, 0, rates), 2)


def same_networks(one, other):
    return all(np.array_equal(*pair) for pair in zip(*map(jax.tree.leaves, (one.params, other.params)), strict=True))


def test_networks_are_those_of_the_rate_that_was_chosen(small_tasks):
    chosen, alone, bad = fit_at(small_tasks, 1e-6, 0.03), fit_at(small_tasks, 0.03), fit_at(small_tasks, 1e-6)
    assert chosen.rates.tolist() == alone.rates.tolist() == [0.03, 0.03]
    assert same_networks(chosen, alone) and not same_networks(chosen, bad)
    assert chosen.seconds > 0 and jax.tree.leaves(chosen.params)[0].shape[:2] == (2, 2)
    other = small_tasks._replace(X_test=small_tasks.X_test + 7, Y_test=-9 * small_tasks.Y_test)
    assert same_networks(fit_at(other, 0.03, 1e-6), chosen)


@pytest.mark.filterwarnings("ignore:.*became non-finite")
def test_a_rate_at_which_networks_diverge_is_not_chosen(small_tasks):
    assert fit_at(small_tasks, 1e12).diverged.tolist() == [2, 2]
    chosen = fit_at(small_tasks, 1e12, 0.01)
    assert chosen.rates.tolist() == [0.01, 0.01] and chosen.diverged.tolist() == [0, 0]


def test_each_split_has_the_rate_of_its_best_mean_validation_loss():
    unknown = [np.nan, np.nan]
    first = [[3.0, 1.0], [2.0, 4.0], [5.0, 6.0], [7.0, 5.5]]  # two splits with two members: bests 1, 2 and 5, 5.5
    second = [[0.5, np.nan], [2.0, 1.5], [9.0, 6.0], [np.inf, 5.0]]  # 0.5, 1.5 and 6, 5
    assert neural.best_rates(np.array([first, second]), 2).tolist() == [1, 0]
    never_finite = [[0.1, 0.1], unknown, [-np.inf, np.nan], unknown]
    assert neural.best_rates(np.array([never_finite, first]), 2).tolist() == [1, 1]
    assert neural.best_rates(np.array([[unknown] * 4] * 2), 2).tolist() == [0, 0]


def test_rates_are_compared_on_rows_held_out_of_training_and_equal_for_all(small_tasks, monkeypatch):
    calls, fit_ensemble = [], mder.fit_ensemble

    def spy(key, network, loss, X, Y, **options):
        held, targets = (data.values for data in options["validation"])
        rate = options["optimizer"].values
        calls.append((np.asarray(jax.random.key_data(key)), rate, X.values, Y.values, held, targets))
        return fit_ensemble(key, network, loss, X, Y, **options)

    monkeypatch.setattr(mder, "fit_ensemble", spy)
    fit_at(small_tasks, 0.003, 0.01)
    assert [call[1].tolist() for call in calls] == [[np.float32(rate)] * 4 for rate in (0.003, 0.01)]
    assert all(np.array_equal(*pair) for place in (0, 2, 3, 4, 5) for pair in [[call[place] for call in calls]])
    _, _, X, Y, held, targets = calls[0]
    for member in range(4):
        learnt, apart = np.hstack([X[member], Y[member]]), np.hstack([held[member], targets[member]])
        rows = np.hstack([small_tasks.X[member // 2], small_tasks.Y[member // 2]])
        assert len(apart) == 6 and sorted(map(tuple, [*learnt, *apart])) == sorted(map(tuple, rows))


def test_a_split_that_fails_is_told_and_spoils_its_score(small_tasks, recipe):
    def fails(X, Y):
        raise np.linalg.LinAlgError("not positive definite")

    (result,) = methods.Baseline(fit=fails, rows=(methods.Row("broken"),)).run(small_tasks, recipe)
    found = scores.of_splits(scores.of_rows(result.forecast, small_tasks))
    assert result.failures == ["LinAlgError: not positive definite"] * 2
    assert found["broken"] == [6, 6] and np.isnan(found["nll"]).all()


def test_calibration_finds_the_factor_that_was_taken_away():
    random = np.random.RandomState(0)
    Y = random.normal(size=(1, 4000, 2)).astype(np.float32)

    def told(rows):
        tril = np.broadcast_to(0.5 * np.eye(2, dtype=np.float32), (1, 2, rows, 2, 2))
        return mder.StudentT(jnp.inf, jnp.zeros((1, 2, rows, 2), jnp.float32), jnp.asarray(tril))

    forecast, failures = neural.calibrated(told(7), told(4000), Y)
    assert np.allclose(forecast.predictive.scale_tril[0, :, :, 0, 0], 1, atol=0.03)
    assert np.allclose(forecast.radii, np.sqrt(stats.chi2.ppf([0.5, 0.9], 2)), atol=0.05) and failures == [""]
    broken = jax.tree.map(lambda leaf: leaf * np.nan, told(4000))
    forecast, failures = neural.calibrated(told(7), broken, Y)
    assert np.isnan(forecast.radii).all() and "not calibrated: " in failures[0]
    assert np.allclose(forecast.predictive.scale_tril[0, :, :, 0, 0], 0.5)


def test_paired_differences_are_those_of_the_corrected_t_test():
    ours, theirs = np.array([1.0, 2.0, 4.0, 3.0]), np.array([1.5, 2.1, 4.9, 3.0])
    plain = stats.ttest_rel(ours, theirs)
    found = compare.paired(ours, theirs, 10**9, 1)
    low, high = plain.confidence_interval(0.95)
    assert (found.low, found.high, found.p) == pytest.approx((low, high, plain.pvalue), rel=1e-6)
    wider = compare.paired(ours, theirs, 90, 10)
    assert (wider.high - wider.low) / (high - low) == pytest.approx(math.sqrt((1 / 4 + 1 / 9) / (1 / 4)))
    assert compare.paired([1.0, math.nan], [1.0, 2.0], 9, 1).tied


def test_published_errors_are_those_of_means():
    known = compare.published("energy")
    assert known["PBP"] == (2.04, 0.02, 20) and known["Deep Ensembles 2017"][1] == pytest.approx(0.22 / math.sqrt(20))
    assert compare.published("protein")["NGBoost"] == (2.81, pytest.approx(0.03 / math.sqrt(5)), 5)
    assert compare.published("slump") == {}


def test_differences_to_published_means_are_those_of_welch():
    ours = np.array([1.0, 1.2, 1.7])

    def p(difference):
        own, theirs = (ours.mean() - difference, ours.std(ddof=1), 3), (1.5, 0.05 * math.sqrt(20), 20)
        return stats.ttest_ind_from_stats(*own, *theirs, equal_var=False).pvalue

    found = compare.against_published(ours, 1.5, 0.05, 20)
    assert (found.mean, found.p) == pytest.approx((-0.2, p(0))) and found.low < found.mean < found.high
    assert (p(found.low), p(found.high)) == pytest.approx((0.05, 0.05))


def test_rows_out_are_told_from_rows_in():
    X, Y = correlated_table(200)
    parts = [(np.arange(150), np.arange(150, 200))]
    tasks = problems._in_out_tasks(X, Y, parts)
    assert tasks.X.shape[1] == 135 and tasks.outside.sum() == 50 and not tasks.outside[0, :15].any()
    assert np.array_equal(tasks.outside, tasks.rows >= 150)
    errors = np.random.RandomState(0).normal(size=(1, 65, 2))
    perfect = {
        "epistemic": tasks.outside.astype(float),
        "covariance": np.einsum("skj,jl->skjl", np.abs(errors).sum(-1, keepdims=True) * np.ones(2), np.eye(2)),
        "errors": errors,
        "nll": np.arange(65.0)[None],
    }
    found = problems._in_and_out(perfect, tasks)
    assert found["auroc"] == [1.0] and found["nll_in"] == [7.0] and found["nll_out"] == [39.5]
    perfect["covariance"] = np.einsum("sk,jl->skjl", (errors**2).sum(-1), np.eye(2))
    assert problems._in_and_out(perfect, tasks)["ause"][0] == pytest.approx(0, abs=1e-6)


def test_errors_against_the_truth_vanish_for_the_truth():
    std, correlation = np.array([[[0.5, 2.0]]]), np.array([[[[1.0, 0.3], [0.3, 1.0]]]])
    covariance = std[..., None] * correlation * std[..., None, :]
    found = problems._against(covariance, std, correlation)
    assert found == {"std_error": [0.0], "correlation_error": [pytest.approx(0, abs=1e-12)]}
    assert problems._against(4 * covariance, std, correlation)["std_error"] == [1.0]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with a table in the shape of slump."""
    folder = tmp_path_factory.mktemp("data")
    X, Y = correlated_table(103, 7, 3)
    (folder / "slump").mkdir()
    np.savetxt(folder / "slump" / "data.csv", np.hstack([X, Y]), delimiter=",", header="x", comments="")
    return folder


@pytest.fixture
def run(monkeypatch, data, capsys):
    def call(out, *arguments):
        monkeypatch.setenv("MDER_DATA", str(data))
        code = main(["benchmark", *SMALL, *arguments, "--out", str(out)])
        return code, *capsys.readouterr()

    return call


def test_a_run_prints_saves_and_goes_on_where_it_stopped(run, tmp_path):
    out = tmp_path / "results"
    code, printed, _ = run(out, "--parts", "B", "--sets", "slump", "--methods", "ridge", "niw")
    assert code == 0 and "NIW ensemble" in printed and "ridge, diagonal" in printed
    kept = {path: path.stat().st_mtime_ns for path in (out / "benchmark_cells").iterdir()}
    assert len(kept) == 2 and (out / "benchmark_joint.png").stat().st_size > 10_000
    first = json.loads((out / "benchmark.json").read_text())["results"]
    rates = {name: row.get("rates") for name, row in first["problems"]["B slump"]["rows"].items()}
    assert rates["NIW ensemble"] == rates["one NIW network"] == [0.01, 0.01] and rates["ridge"] is None
    assert "learning rates chosen, and by how many splits: niw 0.01 (2)" in printed
    code, _, _ = run(out, "--parts", "B", "--sets", "slump", "--methods", "ridge", "niw", "trees")
    assert code == 0
    after = {path: path.stat().st_mtime_ns for path in (out / "benchmark_cells").iterdir()}
    assert len(after) == 3 and after.items() >= kept.items()
    second = json.loads((out / "benchmark.json").read_text())["results"]
    assert first["problems"]["B slump"]["rows"].items() <= second["problems"]["B slump"]["rows"].items()


def test_options_name_every_method_and_table():
    assert set(benchmark.METHODS) == {*methods.METHODS, *as_it_comes.AS_IT_COMES}
    assert set(problems.OF_TABLES) == set(as_it_comes.AS_IT_COMES)
    named = {problem.table for problem in problems.all_problems((40,), 0)}
    real = {*mder.datasets.REAL_TABLES, *mixed_tables.SOURCES}
    assert named == set(benchmark.SETS) == real | {"circle", "gap"}


def test_a_cell_that_is_damaged_or_of_other_settings_is_made_again(tmp_path):
    path = tmp_path / "cell.json"
    wanted = cells.identity(benchmark.Config())
    assert cells.load(path, wanted) is None
    path.write_text(json.dumps({"identity": json.loads(json.dumps(wanted)), "rows": {}}))
    assert cells.load(path, wanted) is not None
    assert cells.load(path, cells.identity(benchmark.Config(splits=4))) is None
    assert cells.load(path, cells.identity(benchmark.Config(rates=(0.01,)))) is None
    path.write_text(path.read_text()[:-5])
    assert cells.load(path, wanted) is None


def test_changed_code_anywhere_in_the_library_makes_saved_cells_stale(tmp_path, monkeypatch):
    library = tmp_path / "mder_jax"
    shutil.copytree(pathlib.Path(mder.__file__).parent, library, ignore=shutil.ignore_patterns("__pycache__"))
    before = cells.identity(benchmark.Config())
    monkeypatch.setattr(mder, "__file__", str(library / "__init__.py"))
    assert cells.identity(benchmark.Config()) == before
    for path in library.rglob("*.py"):
        original = path.read_text()
        path.write_text(original + "# changed\n")
        assert cells.identity(benchmark.Config())["code"] != before["code"], path
        path.write_text(original)


def test_saved_cells_are_of_all_code_that_they_run():
    def imported(name):
        code = ast.parse(pathlib.Path(benchmark.__file__).with_name(f"{name}.py").read_text())
        named = [node for node in ast.walk(code) if isinstance(node, ast.ImportFrom)]
        inside = {node.module.removeprefix("experiments.benchmark.") for node in named}
        return inside | {alias.name for node in named if node.module == "experiments.benchmark" for alias in node.names}

    files = {path.stem for path in pathlib.Path(benchmark.__file__).parent.glob("*.py")} - {"__init__"}
    needed, before = {"cells"}, set()
    while needed != before:
        before, needed = needed, needed.union(*(imported(name) & files for name in needed))
    assert needed == set(cells.MODULES)


def test_tables_that_are_not_there_are_told_loudly(run, tmp_path):
    code, printed, errors = run(tmp_path / "a", "--parts", "B", "--sets", "slump", "births1", "--methods", "ridge")
    assert code == 0 and "MISSING: the table births1" in errors and "MISSING, not run: the table births1" in printed
    code, _, errors = run(tmp_path / "b", "--parts", "B", "--sets", "births1")
    assert code == 1 and "MISSING" in errors and "no table was found" in errors


@pytest.mark.slow
def test_every_problem_runs_on_real_tables(tmp_path):
    for name in mder.datasets.REAL_TABLES:
        try:
            mder.datasets.real(name)
        except mder.datasets.MissingTableError as error:
            pytest.skip(str(error))
    every = ["--epochs", "1", "--parts", *"ABCD", "--growth", "1"]
    assert main(["benchmark", *SMALL, *every, "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "benchmark.json").read_text())["results"]["problems"]
    assert set(found) == {problem.label for problem in problems.all_problems((1,), growth=1) if problem.part != "E"}


def scored(method, nll, **more):
    nll = np.asarray(nll, float)
    whole = {"method": method, "nll": nll, "energy": nll, "rmse": nll, "inside_50%": nll * 0 + 0.5, "failures": [""]}
    whole |= {"inside_90%": nll * 0 + 0.9, "log_volume_90%": nll * 0, "broken": [0], "epistemic": nll * 0 + 1}
    return whole | {"training": 1.0, "predicting": 0.1, "compiling": 0.0} | more


def told(**rows):
    """Results of part B on ansur2 with these rows."""
    recipe = {"widths": [8], "epochs": 3, "members": 5, "seed": 0, "rates": [0.01]}
    shape = {"training_rows": 1787, "test_rows": 199, "inputs": 1, "targets": 2, "recipe": recipe, "left_out": {}}
    what = {"part": "B", "name": "ansur2", "table": "ansur2", "epochs": None, "fraction": 1.0}
    problem = {**what, **shape, "rows": {name.replace("_", " "): row for name, row in rows.items()}}
    return {"problems": {"B ansur2": problem}, "missing": {}, "splits": 4}


def test_goals_follow_from_the_numbers():
    noise = np.array([0.0, 0.01, -0.01, 0.005])
    ours, calibrated = scored("niw", 1.7 + noise), scored("niw-calibrated", 1.7 + noise)
    rows = {"NIW_ensemble": ours, "ridge": scored("ridge", 1.79 + noise), "NIW_ensemble,_calibrated": calibrated}
    good = told(**rows, Gaussian_ensemble=scored("gaussian", 1.75 + 2 * noise))
    assert [goal.verdict for goal in goals.rows(good)] == ["holds", "holds", "holds"]
    worse = told(**rows | {"ridge": scored("ridge", 1.6 + noise)}, Gaussian_ensemble=scored("gaussian", 1.6 - noise))
    calibrated["inside_90%"] = calibrated["inside_90%"] - 0.03
    assert [goal.verdict for goal in goals.rows(worse)] == ["does not hold"] * 3
    assert "holds" in benchmark.report(good) and "NIW ensemble" in benchmark.report(good)
    mine = {**good, "problems": {"B mine": {**good["problems"]["B ansur2"], "name": "mine", "table": "mine"}}}
    assert "mine" in benchmark.report(mine) and benchmark.plot(mine)["joint"]  # a table with no published numbers
    first = goals.rows(mine)[0]
    assert first.verdict == "cannot be decided" and "not run: ExtraTrees, ExtraTrees, diagonal" in first.statistic
    assert "Goals" not in benchmark.report({**mine, "problems": {}})


def test_a_file_that_is_another_table_ends_the_run_with_a_sentence(tmp_path, monkeypatch):
    (tmp_path / "slump").mkdir()
    (tmp_path / "slump" / "data.csv").write_text("x,y\n1,2\n")
    monkeypatch.setenv("MDER_DATA", str(tmp_path))
    with pytest.raises(storage.ResultsError, match=r"data\.csv is not the table slump: it has shape \(2,\)"):
        problems.Problem(part="B", table="slump", make=problems._seeded).tasks(3)


def test_the_table_marks_what_is_worse_or_better_than_the_ensemble():
    noise = np.array([0.0, 0.01, -0.01, 0.005])
    rows = {"NIW_ensemble": scored("niw", 1.7 + noise), "ridge": scored("ridge", 1.9 - noise)}
    rows |= {"ExtraTrees": scored("trees", 1.5 - noise), "NGBoost": scored("ngboost", 1.7 - noise)}
    lines = summary.joint_table(told(**rows)).splitlines()
    assert lines[0] == "| joint NLL | ansur2 |" and lines[2] == "| **NIW ensemble** | 1.70 ± 0.00 |"
    assert lines[3:] == ["| NGBoost | 1.70 ± 0.00 |", "| ridge | 1.90 ± 0.00 * |", "| ExtraTrees | 1.50 ± 0.00 ° |"]


def test_tables_on_which_nothing_was_chosen_are_counted_apart():
    groups = {name: problems.group(name) for name in (*mder.datasets.REAL_TABLES, *problems.SIMULATED_HERE)}
    never = {name for name, group in groups.items() if group == problems.NEVER_USED}
    assert never == {"boston", "rf1"}
    of_label = {problem.label: problems.group(problem.table) for problem in problems.all_problems((40,), 0)}
    assert of_label["A boston, 40 epochs"] == problems.NEVER_USED
    assert {name for name, group in groups.items() if group == problems.SIMULATED} == {"circle", "gap"}
    noise = np.array([0.0, 0.01, -0.01, 0.005])
    seen = told(NIW_ensemble=scored("niw", 1.7 + noise), Gaussian_ensemble=scored("gaussian", 1.8 - noise))
    apart = told(NIW_ensemble=scored("niw", 1.7 + noise), Gaussian_ensemble=scored("gaussian", 1.5 - noise))
    fresh = {"B rf1": {**apart["problems"]["B ansur2"], "name": "rf1", "table": "rf1"}}
    both = {**seen, "problems": fresh | seen["problems"]}
    found = {goal.tables: (goal.aim, goal.ours[:6], goal.verdict) for goal in goals.rows(both)}
    assert found == {
        problems.USED: ("1 of 1 tables (4/5)", "1 of 1", "holds"),
        problems.NEVER_USED: ("1 of 1 tables (4/5)", "0 of 1", "does not hold"),
    }
    assert summary.joint_table(both).startswith("| joint NLL | ansur2 | rf1, never used to choose anything |\n")
    printed = benchmark.report(both)
    assert printed.count("ensembles of 5; used to choose defaults") == 1
    assert printed.count("ensembles of 5; never used to choose anything") == 1
    titles = [axes.get_title() for axes in benchmark.plot(both)["joint"].axes]
    assert sorted(titles) == ["ansur2", "rf1 (never used)"]


def test_problems_of_an_older_document_are_known_by_their_labels():
    path = pathlib.Path(benchmark.__file__).parents[1] / "results" / "benchmark.json"
    older = json.loads(path.read_text())["results"]
    assert not any("table" in problem for problem in older["problems"].values())
    known = {problem.label: problem for problem in problems.all_problems((40, 400), growth=2)}
    newer = copy.deepcopy(older)
    for label, problem in newer["problems"].items():
        problem |= statistics.fields_of(known[label])
    assert statistics.problems_of(older) == list(newer["problems"].values()) == statistics.problems_of(newer)
    assert {(p["table"], p["fraction"]) for p in statistics.grown(statistics.problems_of(older))["energy"]} == {
        ("energy", fraction) for fraction in (0.0625, 0.25, 1.0)
    }


def test_boosting_is_left_out_where_there_are_many_targets(small_tasks):
    assert methods.METHODS["ngboost"].left_out(small_tasks) == ""
    many = small_tasks._replace(Y=np.zeros((2, 54, 8), np.float32))
    assert methods.METHODS["ngboost"].left_out(many) == "more than 3 targets"
    long = small_tasks._replace(X=np.zeros((2, 2001, 3), np.float32))
    assert methods.METHODS["process"].left_out(long) == "more than 2000 training rows"


def test_epistemic_variances_are_compared_on_the_splits_that_all_sizes_have():
    few, all_rows = (told(NIW_ensemble=scored("niw", np.zeros(count)))["problems"]["B ansur2"] for count in (2, 4))
    few["rows"]["NIW ensemble"]["epistemic"] = [1.0, 3.0]
    all_rows["rows"]["NIW ensemble"]["epistemic"] = [0.5, 1.5, 100.0, 100.0]
    assert statistics.epistemic_of([few, all_rows], "NIW ensemble") == [2.0, 1.0]


def test_the_table_of_part_a_is_rounded_once():
    def problem(name, epochs, nll):
        whole = told(NIW_ensemble=scored("niw", nll, nll_in_units=nll))["problems"]["B ansur2"]
        return {**whole, "part": "A", "name": f"{name}, {epochs} epochs", "table": name, "epochs": epochs}

    given = [("boston", 40, [2.6546, 2.6546]), ("yacht", 40, [-0.4, 0.39]), ("yacht", 400, [1.0, 1.0096])]
    found = {"problems": {f"A {number}": problem(*of) for number, of in enumerate(given)}}
    assert summary.univariate_table(found).splitlines() == [
        "| NLL | NIW, 40 epochs | Gaussian, 40 epochs | Deep Ensembles 2017, 40 epochs | NIW, 400 epochs "
        "| Gaussian, 400 epochs |",
        "| --- | --- | --- | --- | --- | --- |",
        "| yacht | −0.01 ± 0.40 |  | 1.18 ± 0.05 | 1.00 ± 0.00 |  |",
        "| boston, never used to choose anything | 2.65 ± 0.00 |  | 2.41 ± 0.06 |  |  |",
    ]
    assert "| 1.1e+06 ± 0.0e+00 |" in summary.joint_table(told(NIW_ensemble=scored("niw", [1061697.5] * 2)))
    rates = told(NIW_ensemble=scored("niw", np.zeros(3), rates=[0.01, 0.003, 0.01]))
    assert summary.rates_table(rates).splitlines()[2] == "| NIW ensemble | 0.01 (2), 0.003 (1) |"
