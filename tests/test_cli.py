"""The command line: what it writes, what it says, its exit codes, and that nothing half-written stays behind."""

import json
import os
import pathlib
import re
import subprocess
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mder_jax
from mder_jax import cli, columns, persistence
from mder_jax.cli import _evaluate, _tables
from tests.support.cases import with_mlp
from tests.support.pages import Page

SMALL = ["--members", "2", "--hidden", "8", "--epochs", "5", "--quiet"]


def frame(rows, seed):
    """Two targets with correlated noise on different scales, a category, text that is no feature, missing targets."""
    rng = np.random.default_rng(seed)
    x, noise = rng.uniform(-2, 2, (rows, 2)), rng.multivariate_normal([0, 0], [[0.04, 0.03], [0.03, 0.04]], rows)
    group = rng.choice(["u", "v"], rows)
    a = x[:, 0] + (group == "u") + noise[:, 0]
    table = pd.DataFrame({"id": [f"r{i}" for i in range(rows)], "x": x[:, 0], "w": x[:, 1], "group": group})
    return table.assign(a=np.where(np.arange(rows) % 7 == 0, np.nan, a), b=100 + 10 * (x[:, 1] + noise[:, 1]))


@pytest.fixture(scope="module", autouse=True)
def settings_of_a_new_process():
    """JAX as a command finds it, and no programs of these tests in the user's cache."""
    with (
        pytest.MonkeyPatch.context() as patch,
        jax.enable_x64(False),
    ):
        patch.setattr(mder_jax, "use_compilation_cache", lambda: None)
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a training table, a test table and a model."""
    folder = tmp_path_factory.mktemp("trained")
    frame(120, seed=0).to_csv(folder / "train.csv", index=False)
    frame(60, seed=1).to_csv(folder / "test.csv", index=False)
    arguments = [folder / "train.csv", "--targets", "a,b", "--exclude", "id", "--out", folder / "model.mder"]
    assert cli.main(["train", *map(str, arguments), *SMALL]) == 0
    return folder


@pytest.fixture
def run(capfd):
    """A command in this process: exit code, standard output, standard error."""

    def call(*arguments):
        try:
            code = cli.main([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = stop.code
        return code, *capfd.readouterr()

    return call


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_train_leaves_only_the_model(trained):
    assert names(trained) == ["model.mder", "test.csv", "train.csv"]


def test_predictions_are_those_of_the_estimator(trained, run, tmp_path):
    from mder_jax.estimator import MDERRegressor

    out = tmp_path / "out.csv"
    code, said, error = run("predict", trained / "model.mder", trained / "test.csv", "-o", out, "--coverage", "0.8")
    assert (code, said, error) == (0, f"{out}: 60 rows, 2 targets\n", "")
    table, got = pd.read_csv(trained / "test.csv"), pd.read_csv(out)
    X = table[["x", "w", "group"]]
    model = MDERRegressor.load(trained / "model.mder")
    parts, (lower, upper) = model.predict_uncertainty(X), model.predict_interval(X, coverage=0.8)
    for j, name in enumerate("ab"):
        np.testing.assert_allclose(got[f"{name}_mean"], parts.mean[:, j], rtol=1e-5)
        np.testing.assert_allclose(got[f"{name}_std"] ** 2, parts.total[:, j, j], rtol=1e-5)
        np.testing.assert_allclose(got[f"{name}_aleatoric_std"] ** 2, parts.aleatoric[:, j, j], rtol=1e-5)
        np.testing.assert_allclose(got[f"{name}_epistemic_std"] ** 2, parts.epistemic[:, j, j], rtol=1e-5)
        np.testing.assert_allclose(got[f"{name}_lower"], lower[:, j], rtol=1e-5)
        np.testing.assert_allclose(got[f"{name}_upper"], upper[:, j], rtol=1e-5)
    np.testing.assert_allclose(got["corr_a_b"], parts.total[:, 0, 1] / got["a_std"] / got["b_std"], rtol=1e-5)
    assert list(got.columns[13:]) == ["outside"] and got["outside"].isna().all()


def test_order_of_columns_blocks_and_formats_do_not_matter(trained, run, tmp_path, monkeypatch):
    model, table = trained / "model.mder", pd.read_csv(trained / "test.csv")
    assert run("predict", model, trained / "test.csv", "-o", tmp_path / "a.csv", "--keep", "id,x")[0] == 0
    shuffled = table[["group", "b", "x", "id", "w"]].assign(more="text")
    shuffled["group"] = shuffled["group"].astype("category")
    shuffled.to_parquet(tmp_path / "shuffled.parquet")
    monkeypatch.setattr(_tables, "ROWS", 25)
    options = ["-o", tmp_path / "b.parquet", "--keep", "id,x", "--json"]
    code, said, error = run("predict", model, tmp_path / "shuffled.parquet", *options)
    got, expected = pd.read_parquet(tmp_path / "b.parquet"), pd.read_csv(tmp_path / "a.csv")
    assert (code, error) == (0, "")
    about = {"predictions": f"{tmp_path}/b.parquet", "rows": 60, "columns": list(expected.columns)}
    assert json.loads(said) == about | {"unreadable": 0, "outside": {}}
    pd.testing.assert_frame_equal(got.drop(columns="outside"), expected.drop(columns="outside"), rtol=1e-6)
    assert got["outside"].isna().all()
    assert list(got["id"]) == list(table["id"])


@pytest.mark.parametrize("report", [False, True])
def test_the_networks_run_once_for_each_row(trained, run, tmp_path, monkeypatch, report):
    from mder_jax.ensemble.forward import Forward

    rows, call = [], Forward.__call__
    monkeypatch.setattr(Forward, "__call__", lambda self, X, *rest: rows.append(len(X)) or call(self, X, *rest))
    monkeypatch.setattr("mder_jax.metrics.report", lambda y, *_: type("Scores", (dict,), {"_asdict": dict.copy})())
    monkeypatch.setattr("mder_jax.cli._report_page.evaluation_page", lambda *_, **__: "")
    assert run("predict", trained / "model.mder", trained / "test.csv", "-o", tmp_path / "out.csv")[0] == 0
    assert rows == [60]
    more = ["--report", tmp_path / "report.html"] if report else []
    assert run("evaluate", trained / "model.mder", trained / "test.csv", *more)[0] == 0
    assert rows == [60, 60]


def test_a_table_can_be_replaced_by_its_predictions(trained, run, tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes((trained / "test.csv").read_bytes())
    assert run("predict", trained / "model.mder", path, "-o", path, "--keep", "id", "--force", "--quiet") == (0, "", "")
    assert len(pd.read_csv(path)) == 60 and names(tmp_path) == ["table.csv"]


def test_training_again_gives_the_same_model_and_json(trained, run, tmp_path):
    from mder_jax.estimator import MDERRegressor

    arguments = [trained / "train.csv", "--targets", "a,b", "--features", "x,w,group", "--out", tmp_path / "m.mder"]
    code, said, error = run("train", *arguments, *SMALL, "--json")
    result = json.loads(said)
    assert (code, error) == (0, "")
    assert result.pop("seconds") > 0
    assert result == {
        "model": f"{tmp_path}/m.mder",
        "members": 2,
        "rows": 120,
        "rows_without_target": 0,
        "rows_without_weight": 0,
        "calibration_rows": 0,
        "missing_targets": 18,
        "calibration": None,
        "accuracy": None,
        "features": ["x", "w", "group"],
        "left_out": [],
        "targets": ["a", "b"],
    }
    X = pd.DataFrame({"x": [0.1, 1], "w": [0.2, -1], "group": ["u", "v"]})
    first, again = (MDERRegressor.load(path) for path in (trained / "model.mder", tmp_path / "m.mder"))
    np.testing.assert_array_equal(again.predict(X), first.predict(X))
    assert names(tmp_path) == ["m.mder"]


def test_settings_reach_the_estimator(trained, run, tmp_path, monkeypatch):
    seen = {}

    class Stub:
        def __init__(self, **settings):
            seen.clear()
            seen.update(settings)

        def fit(self, X, Y, checkpoint, **more):
            seen.update(columns=X.column_names, rows=len(X), checkpoint=checkpoint, **more)
            raise ValueError("as far as it goes")

    monkeypatch.setattr("mder_jax.estimator.MDERRegressor", Stub)
    start = ["train", trained / "train.csv", "--targets", "a", "--exclude", "id", "--out", tmp_path / "m.mder"]
    assert run(*start)[0] == 1
    always = {"random_state": 0, "verbose": False, "target_names": ["a"]}
    checkpoint = tmp_path / "m.mder.checkpoint"
    assert seen == always | {"columns": ["x", "w", "group", "b"], "rows": 102, "checkpoint": checkpoint}
    options = (
        "--members 3 --hidden 7,5 --epochs 9 --learning-rate 0.01 --seed 4 --validation 0.3 --calibrate 0.25 --last"
        " --beside forest"
    )
    code, _, error = run(*start, *options.split(), "--checkpoint", tmp_path / "here")
    assert (code, error) == (1, "mder: as far as it goes\n")
    given = {"members": 3, "hidden_layer_sizes": (7, 5), "max_iter": 9, "learning_rate_init": 0.01}
    given |= {"beside": ["forest"]}
    given |= {
        "random_state": 4,
        "validation_fraction": 0.3,
        "early_stopping": "last",
        "columns": ["x", "w", "group", "b"],
    }
    assert seen == always | given | {"rows": 76, "checkpoint": tmp_path / "here"}
    assert names(tmp_path) == []
    more = {"c": np.arange(120.0), "n": 1 + np.arange(120) % 4}
    pd.read_csv(trained / "train.csv").assign(**more).to_csv(tmp_path / "t.csv", index=False)
    start = ["train", tmp_path / "t.csv", "--targets", "b,c,a", "--exclude", "id", "--out", tmp_path / "m.mder"]
    options = "--log b --sqrt c --categorical w --weights n --groups group"
    assert run(*start, *options.split())[0] == 1
    np.testing.assert_array_equal(seen.pop("sample_weight"), 1 + np.arange(120) % 4)
    assert len(set(zip(seen.pop("groups"), pd.read_csv(tmp_path / "t.csv")["group"], strict=True))) == 2
    given = {
        "target_transform": {"b": "log", "c": "sqrt"},
        "categorical_features": ["w"],
        "target_names": ["b", "c", "a"],
    }
    assert seen == always | given | {"columns": ["x", "w"], "rows": 120, "checkpoint": checkpoint}


@pytest.mark.parametrize("rows", ["0.25", "test.csv"])
def test_rows_to_calibrate_with_are_held_out(trained, run, tmp_path, recorder, rows):
    rows = rows if rows == "0.25" else trained / rows
    arguments = [trained / "train.csv", "--targets", "a,b", "--exclude", "id", "--out", tmp_path / "m.mder"]
    result = json.loads(run("train", *arguments, "--calibrate", rows, "--json")[1])
    fitted, calibrated = (part[0].to_pandas() for part in (recorder.last.fitted, recorder.last.calibrated))
    assert result["rows"] == len(fitted) == (90 if rows == "0.25" else 120)
    assert result["calibration_rows"] == len(calibrated) == (30 if rows == "0.25" else 60)
    assert result["calibration"] == {"fit": {"factor": 2.0}, "coverage": []}
    spread = np.nanstd(recorder.last.calibrated[1], axis=0)
    np.testing.assert_allclose(result["accuracy"]["rmse"], [1, 1])
    np.testing.assert_allclose(result["accuracy"]["r2"], 1 - 1 / spread**2)
    assert fitted.merge(calibrated).empty and not fitted.duplicated().any()


def test_a_line_of_accuracy_on_the_calibration_rows(trained, run, tmp_path, recorder, monkeypatch):
    start = [
        "train",
        trained / "train.csv",
        "--targets",
        "a,b",
        "--exclude",
        "id",
        "--force",
        "--out",
        tmp_path / "m.mder",
    ]
    code, said, error = run(*start, "--calibrate", "0.25")
    each = "; ".join(rf"{name} R² 0\.\d{{3}}, rmse 1 \(1\d*\.\d+ by predicting the mean\)" for name in "ab")
    assert (code, error) == (0, "") and re.search(rf"\naccuracy on 30 calibration rows: {each}\n$", said)
    assert "accuracy on" not in run(*start)[1]
    monkeypatch.setattr(recorder, "error", 1e-3)
    exact = (
        "'a', 'b' is predicted almost exactly (R² above 0.999); if a feature is computed from it, leave that out with"
    )
    assert run(*start, "--calibrate", "0.25")[2] == f"mder: warning: {exact} --exclude\n"


def test_the_last_rows_calibrate_or_whole_groups(trained, run, tmp_path, recorder):
    table = pd.DataFrame({"x": np.arange(40.0) ** 2, "site": np.arange(40) % 9, "y": np.arange(40.0)})
    table.to_csv(tmp_path / "t.csv", index=False)
    start = [
        "train",
        tmp_path / "t.csv",
        "--targets",
        "y",
        "--force",
        "--out",
        tmp_path / "m.mder",
        "--calibrate",
        "0.3",
    ]
    assert run(*start, "--last")[0] == 0
    np.testing.assert_array_equal(recorder.last.calibrated[1][:, 0], np.arange(28, 40))
    sites = set()
    for seed in range(4):
        assert run(*start, "--groups", "site", "--seed", seed)[0] == 0
        parts = [set(Y[:, 0] % 9) for Y in (recorder.last.fitted[1], recorder.last.calibrated[1])]
        assert not parts[0] & parts[1] and len(parts[0] | parts[1]) == 9
        assert abs(len(recorder.last.calibrated[1]) - 12) <= 3
        sites.add(tuple(parts[1]))
    assert len(sites) > 1


def test_rows_of_weight_0_are_not_used(run, tmp_path, recorder):
    table = pd.DataFrame(
        {"x": np.arange(40.0) ** 2, "n": np.arange(40) % 4, "y": np.where(np.arange(40) < 8, np.nan, 1)}
    )
    table.assign(y=table["y"] * np.arange(40)).to_csv(tmp_path / "t.csv", index=False)
    start = ["train", tmp_path / "t.csv", "--targets", "y", "--weights", "n", "--force", "--out", tmp_path / "m.mder"]
    result = json.loads(run(*start, "--json", "--calibrate", "0.25")[1])
    counts = [result[name] for name in ("rows", "rows_without_target", "rows_without_weight", "calibration_rows")]
    assert counts == [18, 8, 8, 6]
    X, Y = recorder.last.fitted
    assert (
        X.column_names == ["x"] and (Y[:, 0] % 4 == recorder.last.weights).all() and (recorder.last.weights > 0).all()
    )
    assert "24 rows (8 more have no target, 8 more have weight 0), 1 feature, 1 target, " in run(*start)[1]


TABLES = {
    "good.csv": "x,y,z\n" + "".join(f"{i},{i * i},{-i}\n" for i in range(12)),
    "empty.csv": "",
    "header.csv": "x,y,z\n",
    "one_row.csv": "x,y,z\n1,2,3\n",
    "two_rows.csv": "x,y,z\n1,2,3\n4,5,7\n",
    "twice.csv": "x,y,x\n1,2,3\n",
    "names.csv": "x,y\n" + "".join(f"n{i},{i}\n" for i in range(60)),
    "words.csv": "x,y\n1,two\n2,three\n",
    "infinite.csv": "x,y\n1,2\ninf,3\n4,5\n",
    "unknown.csv": "x,y\n1,\n2,NA\n3,NaN\n",
    "constant_target.csv": "x,y\n1,5\n2,5\n3,5\n",
    "ragged.csv": "x,y\n1,2\n1,2,3\n",
    "dates.csv": "x,y\n2024-01-01,2\n2024-02-30,3\n2024-01-03,4\n",
    "long.csv": "x,y\n1," + "9" * 3_000_000 + "\n",
    "binary.csv": bytes(range(256)),
    "binary.parquet": bytes(range(256)),
    "table.xlsx": b"PK",
    "only_target.csv": "y\n1\n2\n3\n",
    "clash.csv": "x,a,b_c,a_b,c\n" + "1,2,3,4,5\n2,3,4,5,6\n" * 5,
}
BAD_TRAINING = [
    ("empty.csv", "y", 1, r"empty\.csv: the file is empty"),
    ("header.csv", "y", 1, r"header\.csv: the table has no rows"),
    ("one_row.csv", "y", 1, r"one_row\.csv: 1 row with a target is too few for 1 target; at least 2 are needed"),
    ("two_rows.csv", "y,z", 1, r"2 rows with a target are too few for 2 targets; at least 3 are needed"),
    ("good.csv", "Y1", 1, r"no column 'Y1' \(did you mean 'y'\?\), named in --targets; its columns are 'x', 'y', 'z'"),
    ("good.csv", "price", 1, r"no column 'price', named in --targets; its columns are 'x', 'y', 'z'"),
    ("good.csv", "y,y", 2, r"argument --targets: 'y' is named twice"),
    ("good.csv", "y,", 2, r"expected names with commas between them; got 'y,'"),
    ("good.csv", "y --features x,y", 2, r"'y' is named in --targets and in --features; give one of them"),
    ("good.csv", "y --weights y", 2, r"'y' is named in --targets and in --weights; give one of them"),
    ("good.csv", "y --groups z --weights z", 2, r"'z' is named in --weights and in --groups; give one of them"),
    ("good.csv", "y --groups z --categorical z", 2, r"'z' is named in --groups and in --categorical; give one of them"),
    ("good.csv", "y,z --log y --log1p y,z", 2, r"'y' is named in --log and in --log1p; give one of them"),
    ("good.csv", "y --sqrt z", 2, r"--sqrt: 'z' is not one of --targets"),
    ("good.csv", "y --features x --categorical z", 2, r"--categorical: 'z' is not one of --features"),
    ("good.csv", "y --groups z --last", 2, r"--groups and --last are two ways to hold out rows; give one of them"),
    ("good.csv", "y --weights x,z", 2, r"--weights: expected the name of one column; got 'x,z'"),
    ("good.csv", "y --log y", 1, r"column 'y' must be above 0, since its log is learnt; got 0 \(line 2\)"),
    ("good.csv", "y --weights z", 1, r"column 'z' holds weights and must be 0 or more in every row; got -1 \(line 3\)"),
    ("good.csv", "y --features x --exclude z", 2, r"not allowed with argument"),
    ("good.csv", "y --features xx", 1, r"no column 'xx' \(did you mean 'x'\?\), named in --features; its"),
    ("good.csv", "y --exclude zz", 1, r"no column 'zz' \(did you mean 'z'\?\), named in --exclude; its columns"),
    (
        "good.csv",
        "y1,price --features x,xx --groups g",
        1,
        r"no column 'y1' \(did you mean 'y'\?\), 'price', named in --targets, nor 'xx' \(did you mean 'x'\?\), named in"
        r" --features, nor 'g', named in --groups; its columns are 'x', 'y', 'z'",
    ),
    ("good.csv", "y --members 0", 2, r"--members: expected an integer, 1 or more; got '0'"),
    ("good.csv", "y --hidden 8,x", 2, r"--hidden: expected an integer, 1 or more; got 'x'"),
    ("good.csv", "y --validation 1", 2, r"--validation: expected a number between 0 and 1; got '1'"),
    ("good.csv", "y --learning-rate nan", 2, r"--learning-rate: expected a positive number; got 'nan'"),
    ("good.csv", "y --calibrate 1.5", 2, r"--calibrate: expected a number between 0 and 1; got '1.5'"),
    ("good.csv", "y --seed -1", 2, r"--seed: expected an integer from 0 to 4294967295; got '-1'"),
    ("good.csv", "y --calibrate no.csv", 1, r"no\.csv: there is no such file"),
    ("good.csv", "y --calibrate 0.99", 1, r"target 'y' has no value in any row that --calibrate 0\.99 leaves"),
    ("good.csv", "y --calibrate 0.9", 1, r"1 row with a target that --calibrate 0\.9 leaves is too few for 1 target"),
    ("names.csv", "y", 1, r"no column to learn from: 'x' \(text that is different in most rows\)"),
    ("twice.csv", "y", 1, r"2 columns are named 'x'"),
    ("words.csv", "y", 1, r"words\.csv: column 'y' is a target and must hold numbers; got 'two' \(line 2\)"),
    ("infinite.csv", "y", 1, r"infinite\.csv: column 'x' must hold finite numbers below 3\.4e38; got inf \(line 3\)"),
    ("unknown.csv", "y", 1, r"target 'y' has no value in any row"),
    ("constant_target.csv", "y", 1, r"target 'y' is 5 in every row; nothing to learn"),
    ("ragged.csv", "y", 1, r"line 3: 3 fields where the first line has 2: '1,2,3'"),
    ("dates.csv", "y", 1, r"dates\.csv: column 'x' holds '2024-02-30', a date that does not exist"),
    ("long.csv", "y", 1, r"a line is longer than 1048576 bytes"),
    ("binary.csv", "y", 1, r"not a table; a CSV file is text, and this holds binary data"),
    ("binary.parquet", "y", 1, r"not a Parquet file, or a damaged one"),
    ("table.xlsx", "y", 1, r"table\.xlsx: spreadsheets are not read; save the sheet as CSV"),
    ("good.csv", "y --delimiter ab", 2, r"--delimiter: expected one character .* or the word tab; got 'ab'"),
    ("good.csv", "y --decimal x", 2, r"--decimal: invalid choice: 'x'"),
    ("good.csv", "y --encoding klingon", 2, r"--encoding: expected the name of an encoding such as .*; got 'klingon'"),
    ("good.csv", "y --encoding hex", 2, r"--encoding: expected the name of an encoding such as .*; got 'hex'"),
    ("good.csv", "y --bad-rows flag", 2, r"--bad-rows: invalid choice: 'flag'"),
    ("good.csv", "y --na a,", 2, r"--na: expected names with commas between them; got 'a,'"),
    ("good.csv", "y --delimiter ;", 1, r"has no column 'y', .* its columns are 'x,y,z'"),
    ("nowhere.csv", "y", 1, r"nowhere\.csv: there is no such file"),
    (".", "y", 1, r"not a file"),
    ("only_target.csv", "y", 1, r"no column is left to learn from besides the targets"),
    ("clash.csv", "a,b_c,a_b,c", 1, r"columns of predictions would have the same name"),
]


def write(folder, name):
    content = TABLES.get(name)
    if content is not None:
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def check(result, code, message):
    """One error on standard error, nothing on standard output."""
    got, said, error = result
    assert (got, said) == (code, ""), error
    assert re.search(message, error), error
    assert "Traceback" not in error and (code == 2 or error.count("\n") == 1 + error.count("\n  "))


class Recorder:
    """Stands for the estimator: what it was given, and what was on disk when. Its predictions are `error` too high."""

    members, error = 1, 1.0
    calibration_ = None

    def __init__(self, **settings):
        self.settings, self.saved = settings, []

    def fit(self, X, Y, checkpoint, target_names=None, sample_weight=None, groups=None):
        Recorder.last, self.fitted, self.weights = self, (X, Y), sample_weight
        self.encoding_, _ = columns.learn(X, self.settings.get("categorical_features"))
        (checkpoint / "5").mkdir(parents=True)

    def calibrate(self, X, Y):
        self.encoding_.encode(X)
        self.calibrated = X, Y
        self.calibration_ = SimpleNamespace(fit={"factor": 2.0}, checks=[])

    def predict_uncertainty(self, X):
        return SimpleNamespace(mean=np.nan_to_num(self.calibrated[1]) + self.error)

    def save(self, path):
        self.saved.append(self.calibration_ is not None)
        path.write_text("the model")


@pytest.fixture
def recorder(monkeypatch):
    monkeypatch.setattr("mder_jax.estimator.MDERRegressor", Recorder)
    return Recorder


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ValueError("no maximum"), 1, r"no maximum; the trained model is in .*m\.mder, not calibrated$"),
        (KeyboardInterrupt(), 130, r"interrupted; the same command resumes from .*m\.mder\.checkpoint$"),
        (OSError("no disk"), 1, "no disk$"),
    ],
)
def test_what_was_trained_outlives_a_calibration_that_fails(
    trained, run, tmp_path, recorder, monkeypatch, error, code, message
):
    def fail(self, X, Y):
        raise error

    monkeypatch.setattr(recorder, "calibrate", fail)
    arguments = [trained / "train.csv", "--targets", "a,b", "--exclude", "id", "--out", tmp_path / "m.mder"]
    check(run("train", *arguments, "--calibrate", "0.2"), code, message)
    saved = ["m.mder"] if isinstance(error, ValueError) else []
    assert names(tmp_path) == [*saved, "m.mder.checkpoint"]


def test_a_checkpoint_outlives_a_training_that_fails(trained, run, tmp_path, recorder, monkeypatch):
    def fail(self, X, Y, checkpoint, **more):
        (checkpoint / "5").mkdir(parents=True)
        raise ValueError("no loss is finite")

    monkeypatch.setattr(recorder, "fit", fail)
    arguments = [trained / "train.csv", "--targets", "a,b", "--exclude", "id", "--out", tmp_path / "m.mder"]
    check(run("train", *arguments), 1, "no loss is finite")
    assert names(tmp_path) == ["m.mder.checkpoint"]


def never(*_, **__):
    raise AssertionError("nothing must be trained")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x,y\n1,\n2,NA\n", r"other\.csv: no row has a value of 'y', so that there is nothing to calibrate with"),
        ("x,z\n1,2\n", r"other\.csv has no column 'y', named in the table to train on; its columns are 'x', 'z'"),
        ("x,y\n1,2\ninf,2\n", r"other\.csv: column 'x' must hold finite numbers below 3\.4e38; got inf \(line 3\)"),
        ("x,y\n1,low\n", r"other\.csv: column 'y' is a target and must hold numbers; got 'low' \(line 2\)"),
        (None, r"other\.csv: these are the rows to train on.*; give other rows, or a"),
    ],
)
def test_a_table_that_cannot_calibrate_is_refused_before_training(run, tmp_path, monkeypatch, content, message):
    monkeypatch.setattr("mder_jax.estimator.MDERRegressor.fit", never)
    write(tmp_path, "good.csv")
    (tmp_path / "other.csv").write_text(content or TABLES["good.csv"])
    arguments = [tmp_path / "good.csv", "--targets", "y", "--features", "x", "--out", tmp_path / "m.mder"]
    check(run("train", *arguments, "--calibrate", tmp_path / "other.csv"), 1, message)
    assert names(tmp_path) == ["good.csv", "other.csv"]


def test_the_training_table_does_not_calibrate_by_whatever_path(run, tmp_path, monkeypatch):
    monkeypatch.setattr("mder_jax.estimator.MDERRegressor.fit", never)
    write(tmp_path, "good.csv")
    (tmp_path / "link.csv").symlink_to("good.csv")
    (tmp_path / "hard.csv").hardlink_to(tmp_path / "good.csv")
    start = ["train", tmp_path / "good.csv", "--targets", "y", "--out", tmp_path / "m.mder", "--calibrate"]
    for path in ("good.csv", "link.csv", "hard.csv", f"../{tmp_path.name}/good.csv"):
        check(
            run(*start, tmp_path / path),
            1,
            "these are the rows to train on.*; give other rows, or a fraction such as 0.2",
        )


def test_rows_without_a_target_are_neither_trained_on_nor_calibrated_with(run, tmp_path, recorder):
    lines = [f"{i},{i * i if i % 10 == 0 else ''}" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["x,y", *lines, ""]))
    start = ["train", tmp_path / "t.csv", "--targets", "y", "--out", tmp_path / "m.mder", "--force"]
    for seed in range(6):
        result = json.loads(run(*start, "--calibrate", "0.34", "--seed", seed, "--json")[1])
        counts = [result[name] for name in ("rows", "rows_without_target", "calibration_rows", "missing_targets")]
        assert counts == [4, 54, 2, 0]
        parts = recorder.last.fitted, recorder.last.calibrated
        x = np.concatenate([np.float64(X["x"].to_pylist()) for X, _ in parts])
        assert sorted(x) == [0, 10, 20, 30, 40, 50] and (x**2 == np.vstack([Y for _, Y in parts])[:, 0]).all()
    said = run(*start)[1]
    assert ": 1 member, 6 rows (54 more have no target), 1 feature, 1 target, " in said


def test_a_category_is_known_only_if_it_is_trained_on(run, tmp_path, recorder):
    """Of 40 rows the draw of this seed holds out 12; they alone have the category 'rare', some of them."""
    held_out = np.random.default_rng(0).permutation(40)[:12]
    group = np.where(np.arange(40) % 2, "u", "v").astype(object)
    group[held_out[:3]] = "rare"
    table = pd.DataFrame({"c": group, "x": np.arange(40.0) ** 2, "y": np.arange(40.0)})
    table.to_csv(tmp_path / "t.csv", index=False)
    start = ["train", tmp_path / "t.csv", "--targets", "y", "--json", "--force", "--out", tmp_path / "m.mder"]
    code, said, error = run(*start, "--calibrate", "0.3")
    unseen = "3 of 12 rows have a level of 'c' that training had rarely or never: 'rare' (3)"
    assert code == 0 and error == f"mder: warning: {unseen}\n"
    assert (json.loads(said)["rows"], json.loads(said)["calibration_rows"]) == (28, 12)
    assert recorder.last.encoding_.columns[0].levels == ("u", "v")
    assert run(*start)[2] == "" and recorder.last.encoding_.columns[0].levels == ("rare", "u", "v")


def test_a_column_that_is_the_same_only_in_rows_trained_on(run, tmp_path, recorder):
    held_out = np.random.default_rng(0).permutation(40)[:12]
    same = np.isin(np.arange(40), held_out[:2]).astype(int)
    pd.DataFrame({"same": same, "x": np.arange(40) ** 2, "y": np.arange(40.0)}).to_csv(tmp_path / "t.csv", index=False)
    start = ["train", tmp_path / "t.csv", "--targets", "y", "--quiet", "--force", "--out", tmp_path / "m.mder"]
    warning = "mder: warning: columns left out: 'same' (the same in every row)\n"
    assert run(*start, "--calibrate", "0.3") == (0, "", warning)
    assert run(*start) == (0, "", "")


def test_a_column_that_counts_the_rows_is_left_out_also_if_some_are_held_out(run, tmp_path, recorder):
    table = pd.DataFrame({"ID": np.arange(1, 41), "x": np.arange(40.0) ** 2, "y": np.arange(40.0)})
    table.to_csv(tmp_path / "t.csv", index=False)
    start = ["train", tmp_path / "t.csv", "--targets", "y", "--json", "--force", "--out", tmp_path / "m.mder"]
    for options in ([], ["--calibrate", "0.3"]):
        code, said, error = run(*start, *options)
        assert (code, error) == (0, "mder: warning: columns left out: 'ID' (a number of its own in every row)\n")
        assert json.loads(said)["features"] == ["x"] and json.loads(said)["left_out"] == ["ID"]
    table.assign(ID=table["ID"] // 2).to_csv(tmp_path / "t.csv", index=False)
    assert json.loads(run(*start, "--calibrate", "0.3")[1])["features"] == ["ID", "x"]


def test_a_category_of_rows_without_a_target_is_not_known(run, tmp_path, recorder):
    table = pd.DataFrame({"c": ["u", "v"] * 9 + ["w"], "y": [*range(18), None]})
    table.to_csv(tmp_path / "t.csv", index=False)
    start = ["train", tmp_path / "t.csv", "--targets", "y", "--quiet", "--out", tmp_path / "m.mder"]
    assert run(*start)[0] == 0 and recorder.last.encoding_.columns[0].levels == ("u", "v")


@pytest.mark.parametrize(("table", "options", "code", "message"), BAD_TRAINING)
def test_bad_training_input(run, tmp_path, table, options, code, message):
    write(tmp_path, table)
    before = names(tmp_path)
    arguments = [tmp_path / table, "--out", tmp_path / "m.mder", "--targets", *options.split()]
    check(run("train", *arguments), code, message)
    assert names(tmp_path) == before


def test_bad_outputs_are_found_before_training(trained, run, tmp_path):
    (tmp_path / "there").write_text("mine")
    start = ["train", trained / "train.csv", "--targets", "a,b", "--out"]
    check(run(*start, tmp_path / "there"), 1, "exists already; give another name, or --force to overwrite it")
    check(run(*start, tmp_path), 1, "cannot be written, it is a folder")
    check(run(*start, tmp_path / "no" / "m.mder"), 1, "cannot be written, there is no folder")
    check(run(*start, tmp_path / "there" / "m.mder"), 1, "cannot be written, there is no folder")
    check(run(*start, "/proc/m.mder"), 1, "cannot be written")
    assert (tmp_path / "there").read_text() == "mine" and names(tmp_path) == ["there"]


@pytest.mark.parametrize(
    ("table", "options", "code", "message"),
    [
        (
            lambda t: t.drop(columns="w").assign(W2=1),
            "",
            1,
            r"no column 'w' \(did you mean 'W2'\?\), named in the model",
        ),
        (
            lambda t: t.assign(x=[1] * 59 + [np.inf]),
            "",
            1,
            r"t\.csv: column 'x' must hold finite numbers below 3\.4e38; got inf \(line 61\)",
        ),
        (
            lambda t: t.assign(x=[1] * 59 + [np.inf], w=[-1e39] + [1] * 59),
            "",
            1,
            r"(?s)t\.csv: 2 columns cannot be used:\n  column 'x' .* \(line 61\)\n  column 'w' .* -1e\+39 \(line 2\)$",
        ),
        (lambda t: t[:0], "", 1, r"the table has no rows"),
        (lambda t: t.assign(a_mean=1), "--keep a_mean", 1, r"--keep a_mean: the predictions have a column"),
        (lambda t: t, "--keep idd", 1, r"no column 'idd' \(did you mean 'id'\?\), named in --keep"),
        (lambda t: t, "--coverage 90", 2, r"--coverage: expected a number between 0 and 1; got '90'"),
    ],
)
def test_bad_tables_to_predict(trained, run, tmp_path, table, options, code, message):
    table(pd.read_csv(trained / "test.csv")).to_csv(tmp_path / "t.csv", index=False)
    arguments = [trained / "model.mder", tmp_path / "t.csv", "-o", tmp_path / "out.csv", *options.split()]
    check(run("predict", *arguments), code, message)
    assert names(tmp_path) == ["t.csv"]


def test_a_bad_row_far_down_leaves_no_half_of_the_predictions(trained, run, tmp_path, monkeypatch):
    monkeypatch.setattr(_tables, "ROWS", 10)
    table = pd.read_csv(trained / "test.csv").assign(x=[1] * 59 + [np.inf])
    for ending in ("csv", "parquet"):
        getattr(table, f"to_{ending}")(tmp_path / f"t.{ending}", index=False)
        arguments = [trained / "model.mder", tmp_path / f"t.{ending}", "-o", tmp_path / f"out.{ending}"]
        check(run("predict", *arguments), 1, r"column 'x' must hold finite .*; got inf \((line 61|row 60)\)")
    assert names(tmp_path) == ["t.csv", "t.parquet"]


def test_a_truncated_parquet_file(trained, run, tmp_path):
    pq.write_table(pa.Table.from_pandas(pd.read_csv(trained / "test.csv")), tmp_path / "t.parquet")
    whole = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(whole[:-100])
    arguments = [trained / "model.mder", tmp_path / "t.parquet", "-o", tmp_path / "out.csv"]
    check(run("predict", *arguments), 1, "not a Parquet file, or a damaged one")


def test_outputs_of_predict(trained, run, tmp_path):
    (tmp_path / "out.csv").write_text("mine")
    start = ["predict", trained / "model.mder", trained / "test.csv", "-o"]
    check(run(*start, tmp_path / "out.csv"), 1, "exists already")
    check(run(*start, tmp_path / "out.txt"), 1, r"predictions go to a file that ends in \.csv or \.parquet")
    assert (tmp_path / "out.csv").read_text() == "mine" and names(tmp_path) == ["out.csv"]


@pytest.mark.parametrize("command", ["predict", "evaluate", "info"])
@pytest.mark.parametrize("content", [None, b"", b"not a model", "half"])
def test_a_model_file_that_is_none(trained, run, tmp_path, command, content):
    path = tmp_path / "bad.mder"
    if content is not None:
        whole = (trained / "model.mder").read_bytes()
        path.write_bytes(whole[: len(whole) // 2] if content == "half" else content)
    before = names(tmp_path)
    table = [] if command == "info" else [trained / "test.csv"]
    output = ["-o", tmp_path / "out.csv"] if command == "predict" else []
    check(run(command, path, *table, *output), 1, r"bad\.mder")
    assert names(tmp_path) == before


def test_models_of_python_predict_files_if_they_know_their_columns(trained, run, tmp_path):
    from mder_jax.estimator import MDERRegressor

    table, settings = pd.read_csv(trained / "train.csv"), {"members": 2, "max_iter": 5, "random_state": 0}
    model = MDERRegressor((8,), **settings).fit(table[["x", "w", "group"]], table["b"])
    model.save(tmp_path / "frame.mder")
    out = tmp_path / "out.csv"
    assert run("predict", tmp_path / "frame.mder", trained / "test.csv", "-o", out)[0] == 0
    later = pd.read_csv(trained / "test.csv")[["x", "w", "group"]]
    np.testing.assert_allclose(pd.read_csv(out)["b_mean"], model.predict(later), rtol=1e-5)
    MDERRegressor((8,), **settings).fit(table[["x", "w"]].to_numpy(), table["b"]).save(tmp_path / "array.mder")
    result = run("predict", tmp_path / "array.mder", trained / "test.csv", "-o", tmp_path / "no.csv")
    check(result, 1, r"array\.mder was trained on arrays without names of columns; fit a data frame, or use mder train")


def test_a_model_file_of_version_0_1_0_still_predicts(trained, run, tmp_path):
    """Such a file has its columns in "extra", no ranges, no trained rows and other names of layers."""
    from mder_jax.estimator import MDERRegressor

    with_mlp(MDERRegressor.load(trained / "model.mder")).save(tmp_path / "model.mder")
    document, arrays = persistence.load(tmp_path / "model.mder")
    features = [{"name": name, "kind": "number", "categories": []} for name in "xw"]
    features.append({"name": "group", "kind": "category", "categories": ["u", "v"]})
    targets = [{"name": name, "kind": "number", "categories": []} for name in "ab"]
    for name in ("encoding", "trained_rows", "target_transforms", "own_loss"):
        document.pop(name, None)
    new = {"categorical_features", "target_transform", "warm_start", "embedding"}
    document["settings"] = {name: value for name, value in document["settings"].items() if name not in new}
    document |= {"feature_names": None, "extra": {"encoding": {"features": features, "targets": targets}}}
    document["fitted"] |= {"n_features_in_": 4}
    for name in ("embedded", "periodic"):
        document["design"].pop(name)
    layers = {f"params/dense_{number}": f"params/layers_{3 * number}" for number in range(3)}
    old = {
        name.replace(path := name.rpartition("/")[0], layers.get(path, path)): array
        for name, array in arrays.items()
        if not name.startswith(("trained/", "held_out/"))
    }
    persistence.save(tmp_path / "old.mder", document, old)
    table = pd.read_csv(trained / "test.csv")
    table.loc[0, ["x", "group"]] = 1e6, "q"
    table.to_csv(tmp_path / "t.csv", index=False)
    for model in (tmp_path / "model.mder", tmp_path / "old.mder"):
        assert run("predict", model, tmp_path / "t.csv", "-o", tmp_path / f"{model.name}.csv")[0] == 0
    new, old = (pd.read_csv(tmp_path / f"{name}.mder.csv") for name in ("model", "old"))
    pd.testing.assert_frame_equal(old[1:], new[1:], check_dtype=False)
    assert (new["outside"][0], old["outside"][0]) == ("x; group", "group")  # its ranges are not known
    assert run("evaluate", tmp_path / "old.mder", trained / "test.csv")[0] == 0
    said = run("info", tmp_path / "old.mder")[1]
    assert "'group' (2 levels: 'u', 'v')" in said and "38" not in said.split("\n")[2]


def test_columns_that_nothing_can_be_learnt_from_are_left_out_with_a_warning(run, tmp_path, recorder):
    lines = [f"{i},r{i},7,{'?' if i % 5 == 0 else i * i},2024-01-{i + 1:02d},{i}" for i in range(25)]
    (tmp_path / "t.csv").write_text("\n".join(["id,name,same,x,day,y", *lines, ""]))
    code, said, error = run("train", tmp_path / "t.csv", "--targets", "y", "--json", "--out", tmp_path / "m.mder")
    left_out = "'id' (a number of its own in every row), 'name' (text that is different in most rows), "
    left_out += "'same' (the same in every row)"
    assert code == 0 and error.splitlines() == [
        "mder: warning: text was read so: 'x' ('?' counts as missing)",
        f"mder: warning: columns left out: {left_out}",
    ]
    result = json.loads(said)
    assert (result["features"], result["left_out"]) == (["x", "day"], ["id", "name", "same"])


def test_a_full_disk_does_not_lose_the_trained_model(trained, run, tmp_path, monkeypatch):
    def full(descriptor):
        monkeypatch.undo()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mder_jax._files.os.fsync", full)
    arguments = [trained / "train.csv", "--targets", "a,b", "--exclude", "id", "--out", tmp_path / "m.mder"]
    code, said, error = run("train", *arguments, *SMALL)
    message = r"m\.mder could not be written \(.*No space left.*\); the trained model was saved as (\S+)"
    saved = pathlib.Path(re.search(message, error)[1])
    assert (code, said) == (1, "") and mder_jax.MDERRegressor.load(saved).members == 2
    saved.unlink()
    saved.parent.rmdir()


def interrupt(self, X, Y, checkpoint, **more):
    (checkpoint / "5").mkdir(parents=True)
    raise KeyboardInterrupt


def test_an_interruption_keeps_the_checkpoint(trained, run, tmp_path, monkeypatch):
    monkeypatch.setattr("mder_jax.estimator.MDERRegressor.fit", interrupt)
    arguments = [trained / "train.csv", "--targets", "a,b", "--exclude", "id", "--out", tmp_path / "m.mder"]
    check(run("train", *arguments), 130, r"interrupted; the same command resumes from .*m\.mder\.checkpoint")
    assert names(tmp_path) == ["m.mder.checkpoint"]


def test_an_interrupted_prediction_leaves_nothing(trained, run, tmp_path, monkeypatch):
    def stop(self, X):
        raise KeyboardInterrupt

    monkeypatch.setattr("mder_jax.estimator.MDERRegressor.predict_all", stop)
    arguments = [trained / "model.mder", trained / "test.csv", "-o", tmp_path / "out.csv"]
    check(run("predict", *arguments), 130, "interrupted")
    assert names(tmp_path) == []


def command(*arguments):
    return [sys.executable, "-m", "mder_jax", *map(str, arguments)]


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["info", "-h"]])
def test_help_needs_nothing_that_takes_time(arguments):
    heavy = {"jax", "numpy", "pyarrow", "sklearn", "scipy", "rich", "mder_jax.cli._train"}
    at_exit = f"import atexit, sys; atexit.register(lambda: print(sorted({heavy} & set(sys.modules)), file=sys.stderr))"
    script = f"{at_exit}; from mder_jax import cli; cli.main({arguments})"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("usage: mder") and done.stderr == "[]\n"


def test_version_usage_and_exit_codes():
    done = subprocess.run(command("--version"), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"mder {mder_jax.__version__}\n")
    done = subprocess.run(command(), capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("usage: mder")
    done = subprocess.run(command("train", "no.csv", "--targets", "a", "--out", "m"), capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "mder: no.csv: there is no such file\n")


def test_tables_are_looked_at_before_jax_is_imported():
    script = "import sys; from mder_jax.cli import _train; assert not {'jax', 'sklearn'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_reader_that_has_seen_enough():
    script = "import sys; from mder_jax import cli; cli._run = lambda _: print('x' * 100_000, flush=True); "
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", script + "sys.exit(cli.main(['info', 'm']))"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_info_says_the_first_things_as_text_and_all_as_json(trained, run):
    code, text, error = run("info", trained / "model.mder")
    assert (code, error) == (0, "") and "\ntargets:   'a', 'b'\n" in text
    assert re.search(
        r"2 networks with hidden layers of 8\nbeside:    a process with \d+%(, a forest with \d+%)? of", text
    )
    assert re.search(
        r"features:  'x' \(-\S+ to \S+\), 'w' \(\S+ to \S+\), 'group' \(2 levels: 'u', 'v'\)\ntrained: ", text
    )
    assert "trained:   120 rows, 5 epochs\n" in text
    assert "max_iter 5" in text and text.endswith("\nnot calibrated\n")
    code, said, error = run("info", trained / "model.mder", "--json")
    about = json.loads(said)
    assert (code, error) == (0, "")
    found = about["encoding"]["columns"]
    assert [column["name"] for column in found] == ["x", "w", "group"] and found[2]["levels"] == ["u", "v"]


def test_scores_of_a_larger_table_are_of_rows_drawn_at_random(trained, run, monkeypatch):
    seen = {}

    class Scores(dict):
        _asdict = dict.copy

        def __str__(self):
            return "the report"

    def report(y, prediction, level, names):
        seen.update(y=y, level=level, names=names)
        return Scores(nll=np.float32(1.5), ence=np.float32([np.nan, 2]), pit=y)

    monkeypatch.setattr("mder_jax.metrics.report", report)
    monkeypatch.setattr(_evaluate, "MOST_ROWS", 40)
    start = ["evaluate", trained / "model.mder", trained / "test.csv", "--coverage", "0.8"]
    code, said, error = run(*start, "--json")
    result = json.loads(said)
    assert (code, error) == (0, "")
    assert (result["rows"], result["rows_used"], result["nll"], result["ence"]) == (60, 40, 1.5, [None, 2])
    assert seen["y"].shape == (40, 2) and (seen["level"], seen["names"]) == (0.8, ["a", "b"]) and "pit" not in result
    code, said, error = run(*start)
    assert (code, error) == (0, "") and re.match(
        r"40 of 60 rows, drawn at random\n\naccuracy: a R² .*\n\nscores of the predictive .*:\n\nthe report\n", said
    )


def test_coverage_counts_what_predict_writes(trained, run, tmp_path, monkeypatch):
    monkeypatch.setattr("mder_jax.metrics.report", lambda y, *_: type("Scores", (dict,), {"_asdict": dict.copy})())
    model, table = trained / "model.mder", pd.read_csv(trained / "test.csv")
    result = json.loads(run("evaluate", model, trained / "test.csv", "--json")[1])
    run("predict", model, trained / "test.csv", "-o", tmp_path / "out.csv")
    got = pd.read_csv(tmp_path / "out.csv")
    for j, name in enumerate("ab"):
        known = table[name].notna()
        share = ((got[f"{name}_lower"] <= table[name]) & (table[name] <= got[f"{name}_upper"]))[known].mean()
        assert result["intervals"]["coverage"][j] == pytest.approx(share)
        error = np.sqrt(share * (1 - share) / known.sum())
        assert result["intervals"]["standard_error"][j] == pytest.approx(error)


def test_a_target_that_was_never_observed_has_no_coverage(trained, run, tmp_path, monkeypatch):
    monkeypatch.setattr("mder_jax.metrics.report", lambda y, *_: type("Scores", (dict,), {"_asdict": dict.copy})())
    pd.read_csv(trained / "test.csv").assign(a=np.nan).to_csv(tmp_path / "t.csv", index=False)
    start = ["evaluate", trained / "model.mder", tmp_path / "t.csv"]
    intervals = json.loads(run(*start, "--json")[1])["intervals"]
    assert intervals["coverage"][0] is intervals["standard_error"][0] is None
    assert 0 < intervals["coverage"][1] <= 1
    assert re.search(r"at 0\.9 \(.*\): a not observed, b \d\.\d{3} ± \d\.\d{3}$", run(*start)[1])


@pytest.mark.slow
def test_scores_as_text_as_json_and_as_a_page(trained, run, tmp_path):
    page = tmp_path / "page.html"
    start = ["evaluate", trained / "model.mder", trained / "test.csv", "--report", page]
    code, said, error = run(*start)
    assert (code, error) == (0, "") and "coverage at 0.9" in said and "60 rows" in said
    assert "<html" in page.read_text() and names(tmp_path) == ["page.html"]
    check(run(*start), 1, "exists already")
    assert json.loads(run(*start, "--force", "--json")[1])["names"] == ["a", "b"]


def test_rows_of_the_training_table_in_another_form_do_not_calibrate(run, tmp_path, monkeypatch):
    monkeypatch.setattr("mder_jax.estimator.MDERRegressor.fit", never)
    table = frame(40, seed=0)
    table.to_csv(tmp_path / "train.csv", index=False)
    table[::-1].to_parquet(tmp_path / "turned.parquet")
    start = ["train", tmp_path / "train.csv", "--targets", "a,b", "--exclude", "id", "--out", tmp_path / "m.mder"]
    result = run(*start, "--calibrate", tmp_path / "turned.parquet")
    check(result, 1, r"turned\.parquet: 40 of 40 rows are rows to train on; calibrate with others, or with a fraction")


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ({"a": 30, "b": 30}, "(conformal)"),
        ({"a": 3, "b": 30}, "(conformal for b; the model's own quantiles for a)"),
        ({"a": 6, "b": 6}, "(the model's own quantiles)"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*calibration row")
def test_evaluate_says_which_intervals_are_conformal(trained, run, tmp_path, rows, kind):
    from mder_jax.estimator import MDERRegressor

    rng, model = np.random.default_rng(3), MDERRegressor.load(trained / "model.mder")
    Y = rng.normal(size=(30, 2))
    Y[rows["a"] :, 0], Y[rows["b"] :, 1] = np.nan, np.nan
    X = pd.DataFrame({"x": rng.uniform(-1, 1, 30), "w": rng.uniform(-1, 1, 30), "group": ["u", "v"] * 15})
    model.calibrate(X, Y).save(tmp_path / "m.mder")
    code, said, _ = run("evaluate", tmp_path / "m.mder", trained / "test.csv")
    assert code == 0 and f"coverage of the intervals that mder predict writes, at 0.9 {kind}: a " in said
    assert "scores of the predictive distribution; coverage and width are those of its own quantiles:\n\n" in said


def test_evaluate_says_on_standard_error_and_in_its_report_that_rows_were_trained_on(trained, run, tmp_path):
    page = tmp_path / "report.html"
    code, _, errors = run("evaluate", trained / "model.mder", trained / "train.csv", "--report", page)
    assert code == 0 and "rows are rows that the model was trained on; expect worse scores on new rows" in errors
    assert "rows are rows that the model was trained on" in page.read_text()
    run("evaluate", trained / "model.mder", trained / "test.csv", "--report", page, "--force")
    assert "trained on" not in page.read_text()


def test_a_table_of_another_country_is_predicted_and_what_was_found_is_said(trained, run, tmp_path):
    model, table, german = trained / "model.mder", pd.read_csv(trained / "test.csv"), tmp_path / "german.csv"
    table.assign(straße="groß").to_csv(german, index=False, sep=";", decimal=",", encoding="cp1252")
    said = [
        f"mder: {german}: not UTF-8, and read as Windows-1252; --encoding names another",
        f"mder: {german}: read with ';' between the cells and ',' as the decimal mark",
    ]
    assert run("predict", model, trained / "test.csv", "-o", tmp_path / "a.csv")[0] == 0
    code, _, errors = run("predict", model, german, "-o", tmp_path / "b.csv", "--keep", "straße,x")
    assert code == 0 and errors.splitlines() == said
    got = pd.read_csv(tmp_path / "b.csv")
    assert set(got.pop("straße")) == {"groß"} and list(got.pop("x").str.replace(",", ".").map(float)) == list(
        table["x"]
    )
    pd.testing.assert_frame_equal(got, pd.read_csv(tmp_path / "a.csv"))
    options = ["--delimiter", ";", "--decimal", ",", "--encoding", "cp1252"]
    assert run("predict", model, german, "-o", tmp_path / "c.csv", *options)[2] == ""
    assert run("predict", model, german, "-o", tmp_path / "d.csv", "--quiet") == (0, "", "")
    assert (tmp_path / "c.csv").read_bytes() == (tmp_path / "d.csv").read_bytes() == (tmp_path / "a.csv").read_bytes()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_rows_with_a_wrong_number_of_fields_are_predicted_as_empty_cells(trained, run, tmp_path, monkeypatch, ending):
    monkeypatch.setattr(_tables, "ROWS", 25)
    lines, out = (trained / "test.csv").read_text().splitlines(), tmp_path / f"out.{ending}"
    broken = [*lines[:1], "first", *lines[1:26], "a,b,c", "d", *lines[26:], "last"]
    (tmp_path / "t.csv").write_text("\n".join(broken) + "\n")
    start = ["predict", trained / "model.mder", tmp_path / "t.csv", "-o", out, "--keep", "id"]
    check(run(*start), 1, r"t\.csv, lines 2, 28, 29, 65: 4 rows have another number of fields than the first line")
    code, said, errors = run(*start, "--bad-rows", "flag", "--json")
    assert code == 0 and json.loads(said)["rows"] == 64 and json.loads(said)["columns"][-1] == "reason"
    assert errors.startswith("mder: warning: ") and errors.endswith("; not used\n") and errors.count("\n") == 1
    got = getattr(pd, f"read_{ending}")(out)
    bad = got["reason"].notna()
    assert list(np.flatnonzero(bad)) == [0, 26, 27, 63] and got.loc[bad].drop(columns="reason").isna().all(axis=None)
    assert got["reason"][26] == "3 fields where the first line has 6: 'a,b,c'"
    assert list(got["id"][~bad]) == list(pd.read_csv(trained / "test.csv")["id"])
    whole = tmp_path / f"whole.{ending}"
    run("predict", trained / "model.mder", trained / "test.csv", "-o", whole, "--keep", "id")
    expected = getattr(pd, f"read_{ending}")(whole)
    pd.testing.assert_frame_equal(got[~bad].drop(columns="reason").reset_index(drop=True), expected)
    assert json.loads(run(*start, "--bad-rows", "skip", "--force", "--json")[1])["rows"] == 60
    pd.testing.assert_frame_equal(getattr(pd, f"read_{ending}")(out), expected)


def test_predictions_have_nine_digits_in_csv_and_all_of_them_in_parquet(trained, run, tmp_path):
    for ending in ("csv", "parquet"):
        run("predict", trained / "model.mder", trained / "test.csv", "-o", tmp_path / f"out.{ending}")
    written, exact = pd.read_csv(tmp_path / "out.csv", dtype=str), pd.read_parquet(tmp_path / "out.parquet")
    written, exact = (part.drop(columns="outside") for part in (written, exact))
    assert (written.map(float) == exact.map(lambda value: float(f"{value:.9g}"))).all(axis=None)
    assert written.map(lambda text: len(text.strip("-0").replace(".", "").strip("0"))).max(axis=None) == 9
    assert (exact != written.map(float)).any(axis=None)


def test_texts_that_mean_a_missing_value(run, tmp_path, recorder):
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{i * i},{['?', 'none', '-', i][i % 4]}\n" for i in range(40)))
    start = ["train", tmp_path / "t.csv", "--targets", "y", "--json", "--out", tmp_path / "m.mder"]
    check(run(*start), 1, r"column 'y' is a target and must hold numbers; got 'none' \(line 3\)")
    result = json.loads(run(*start, "--na", "none")[1])
    assert (result["rows"], result["rows_without_target"]) == (10, 30)


def test_texts_that_meant_a_missing_value_in_training_mean_it_again(run, tmp_path):
    """Of a feature and of a target, in CSV and in Parquet; a model trained without --na knows none."""
    rows = [{"c": ["u", "v", "none"][i % 3], "x": i * i % 17, "y": "gone" if i == 4 else str(i)} for i in range(40)]
    table = pd.DataFrame(rows)
    table.to_csv(tmp_path / "t.csv", index=False)
    table.astype({"y": str}).to_parquet(tmp_path / "t.parquet")
    start = ["train", tmp_path / "t.csv", "--targets", "y", "--epochs", "1", "--members", "2", "--hidden", "4"]
    assert run(*start, "--na", "none", "--na", "gone", "--out", tmp_path / "m.mder")[0] == 0
    for ending in ("csv", "parquet"):
        code, said, error = run(
            "predict", tmp_path / "m.mder", tmp_path / f"t.{ending}", "-o", tmp_path / "p.csv", "--force"
        )
        assert code == 0 and "unlike" not in error
        code, said, _ = run("evaluate", tmp_path / "m.mder", tmp_path / f"t.{ending}", "--json")
        assert code == 0 and json.loads(said)["rows"] == 40
    table.replace("gone", "4").to_csv(tmp_path / "t.csv", index=False)
    assert run(*start, "--force", "--out", tmp_path / "m.mder")[0] == 0
    table.to_csv(tmp_path / "t.csv", index=False)
    check(run("evaluate", tmp_path / "m.mder", tmp_path / "t.csv"), 1, "column 'y' is a target .* got 'gone'")


def test_rows_unlike_training_are_counted_and_named(trained, run, tmp_path):
    table = pd.read_csv(trained / "test.csv")
    table["group"] = ["q", *table["group"][1:]]
    table["x"] = [9.0, 9.0, *table["x"][2:59], np.nan]
    table.to_csv(tmp_path / "t.csv", index=False)
    code, said, error = run("predict", trained / "model.mder", tmp_path / "t.csv", "-o", tmp_path / "out.csv", "--json")
    unlike = "unlike the training rows: 'x' in 3, 'group' in 1 of 60 rows; see the column outside"
    assert (code, error) == (0, f"mder: warning: {unlike}\n") and json.loads(said)["outside"] == {"x": 3, "group": 1}
    got = pd.read_csv(tmp_path / "out.csv")
    assert got["outside"].fillna("").tolist() == ["x; group", "x", *[""] * 57, "x"]
    run("predict", trained / "model.mder", trained / "test.csv", "-o", tmp_path / "usual.csv")
    wider = got["a_epistemic_std"] / pd.read_csv(tmp_path / "usual.csv")["a_epistemic_std"]
    assert (wider[:2] > 2).all() and wider[59] > 1 and np.allclose(wider[2:59], 1)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("size", [4, 25])
def test_rows_with_a_cell_that_cannot_be_read(trained, run, tmp_path, monkeypatch, ending, size):
    """In blocks of 4 rows, one block has no row that can be read."""
    monkeypatch.setattr(_tables, "ROWS", size)
    table, bad = pd.read_csv(trained / "test.csv"), [0, 20, 21, 22, 23, 59]
    table.loc[bad, "x"] = np.inf
    lines = table.to_csv(index=False).splitlines()
    (tmp_path / "t.csv").write_text("\n".join([*lines[:31], "short", *lines[31:], ""]))
    start = ["predict", trained / "model.mder", tmp_path / "t.csv", "--keep", "id", "--json"]
    code, said, error = run(*start, "-o", tmp_path / f"flag.{ending}", "--bad-rows", "flag")
    reason = "column 'x' must hold finite numbers below 3.4e38; got inf"
    where = f"{tmp_path}/t.csv, line 2, line 22, line 23, line 24, line 25 and 1 more: {reason}"
    assert code == 0 and f"{where}; predicted as empty cells, see the column reason\n" in error
    assert (json.loads(said)["rows"], json.loads(said)["unreadable"]) == (61, 6)
    got = getattr(pd, f"read_{ending}")(tmp_path / f"flag.{ending}")
    flagged = np.flatnonzero(got["reason"].notna()).tolist()
    assert flagged == [0, 20, 21, 22, 23, 30, 60] and got["reason"][60] == reason and "1 field" in got["reason"][30]
    assert got.loc[flagged, "a_mean":"outside"].isna().all(axis=None) and got["a_mean"].notna().sum() == 54
    assert got["id"].isna().sum() == 1 and got["id"][60] == "r59"
    code, _, error = run(*start, "-o", tmp_path / f"skip.{ending}", "--bad-rows", "skip")
    assert code == 0 and f"{where}; left out\n" in error
    rest = got[got["reason"].isna()].drop(columns="reason").reset_index(drop=True)
    pd.testing.assert_frame_equal(getattr(pd, f"read_{ending}")(tmp_path / f"skip.{ending}"), rest)
    monkeypatch.undo()
    code, said, error = run("evaluate", *start[1:3], "--bad-rows", "skip", "--json")
    assert code == 0 and f"{where}; left out\n" in error and json.loads(said)["rows_used"] == 54


@pytest.fixture(scope="module")
def logarithmic(trained):
    """A model of the logarithm of b."""
    arguments = [trained / "train.csv", "--targets", "a,b", "--exclude", "id", "--log", "b", "--calibrate", "0.25"]
    assert cli.main(["train", *map(str, arguments), "--out", str(trained / "log.mder"), *SMALL]) == 0
    yield trained / "log.mder"
    (trained / "log.mder").unlink()


@pytest.mark.filterwarnings("ignore:.*far outside")
def test_scores_of_a_model_of_logarithms_are_in_original_units(logarithmic, trained, run, tmp_path):
    from mder_jax.estimator import MDERRegressor

    page = tmp_path / "page.html"
    start = ["evaluate", logarithmic, trained / "test.csv"]
    result = json.loads(run(*start, "--json")[1])
    table, model = pd.read_csv(trained / "test.csv"), MDERRegressor.load(logarithmic)
    X, Y = table[["x", "w", "group"]], table[["a", "b"]].to_numpy()
    np.testing.assert_allclose(result["nll"]["value"], -model.log_prob(X, Y).mean(), rtol=1e-5)
    error = Y - model.predict(X)
    np.testing.assert_allclose(result["rmse"], np.sqrt(np.nanmean(error**2, axis=0)), rtol=1e-5)
    np.testing.assert_allclose(
        result["accuracy"]["r2"], 1 - np.nanmean(error**2, axis=0) / np.nanvar(Y, axis=0), rtol=1e-5
    )
    lower, upper = model.predict_interval(X, 0.9)
    inside = np.where(np.isnan(Y), np.nan, (lower <= Y) & (upper >= Y))
    np.testing.assert_allclose(result["intervals"]["coverage"], np.nanmean(inside, axis=0))
    assert result["names"] == ["a", "b"] and result["transformed"] == ["a", "log(b)"]
    code, said, _ = run(*start, "--report", page)
    assert code == 0 and "distribution, of a, log(b) but for nll, which is in original units; coverage and" in said
    assert re.search(r"\neach target +a +log\(b\)\n", said) and "(conformal): a " in said
    shown = Page(page.read_text())
    assert shown.tables[1][0][1:3] == ["a", "b"] and shown.tables[3][0][1:3] == ["a", "log(b)"]
    text = "".join(shown.text)
    assert "Of log(b), except the likelihood" in text and "a and log(b): predicted covariance" in text
    assert "b: observed against predicted mean" in text
    table.assign(b=-1).to_csv(tmp_path / "t.csv", index=False)
    negative = r"column 'b' must be above 0, since its log is learnt; got -1, and others in 59 more rows \(line 2\)"
    check(run("evaluate", logarithmic, tmp_path / "t.csv"), 1, negative)
    assert "targets:   'a', 'b'\nlearnt as: a, log(b)\n" in run("info", logarithmic)[1]


def test_the_most_uncertain_rows_of_the_report_show_their_line_and_features(trained, run, tmp_path):
    table, page = pd.read_csv(trained / "test.csv"), tmp_path / "page.html"
    table.loc[41, "x"] = 8.0
    table.to_csv(tmp_path / "t.csv", index=False)
    assert run("evaluate", trained / "model.mder", tmp_path / "t.csv", "--report", page)[0] == 0
    head, _, first, *_ = Page(page.read_text()).tables[4]
    assert head == ["row", "x", "w", "group", "a", "b"] and first[:2] == ["line 43", "8.0"]
    assert first[3] == table["group"][41]
