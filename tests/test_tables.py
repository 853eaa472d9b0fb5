"""Tables in files are read as pandas and Python read them, and what is wrong with one is said with its line."""

import csv
import gzip
import io
import pathlib
import re
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from mder_jax._files import draft, write_whole
from mder_jax.cli import _rows, _tables
from mder_jax.cli._accuracy import accuracy, described
from mder_jax.cli._predict import prediction_columns, prediction_names
from mder_jax.cli._rows import check_transforms, sample, unreadable
from mder_jax.cli._tables import TableError, check_output, open_table, significant, with_bad_rows, write_table
from mder_jax.cli._text_files import Notice, Reading
from mder_jax.cli._training_rows import check_targets
from mder_jax.columns import CellError, learn


def csv_file(folder, text):
    path = folder / "table.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def parquet_file(folder, **columns):
    path = folder / "table.parquet"
    pq.write_table(pa.table(columns), path)
    return path


class Numbers(NamedTuple):
    """Rows of a file as numbers."""

    X: np.ndarray
    Y: np.ndarray
    row_index: np.ndarray


def read(table, features, targets):
    """How the features of a file become numbers, and all rows. What is drawn from it must be the same cells."""
    table = table if hasattr(table, "blocks") else open_table(table)
    rows = _rows.read(table, features, targets)
    drawn = sample(table, features, targets, rows.total)
    assert drawn.features.equals(rows.features) and drawn.total == rows.total
    np.testing.assert_array_equal(drawn.Y, rows.Y)
    with _rows.located(table):
        encoding, encoded = learn(rows.features)
    return encoding, Numbers(encoded.X, rows.Y, rows.row_index)


def people(rows, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"height": rng.normal(170, 10, rows), "age": rng.integers(18, 90, rows)})
    frame["city"] = rng.choice(["Köln", "Aachen", "a, b", 'say "hi"', "=1+1"], rows)
    frame["member"] = rng.random(rows) < 0.5
    frame["weight"] = np.where(rng.random(rows) < 0.2, np.nan, rng.normal(70, 8, rows))
    return frame


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("rows", [7, 40_000])
def test_numbers_are_those_of_pandas(tmp_path, ending, rows):
    frame = people(rows)
    path = tmp_path / f"people.{ending}"
    getattr(frame, f"to_{ending}")(path, index=False)
    encoding, data = read(path, ["height", "age", "city", "member"], ["weight"])
    expected = pd.get_dummies(frame.drop(columns="weight"), columns=["city"])
    names = ["height", "age", *sorted(c for c in expected if c.startswith("city_")), "member"]
    np.testing.assert_array_equal(data.X, expected[names].to_numpy(np.float64))
    np.testing.assert_array_equal(data.Y[:, 0], frame["weight"])
    np.testing.assert_array_equal(data.row_index, np.arange(rows))
    assert data.X.dtype == data.Y.dtype == np.float64
    assert encoding.columns[2].levels == tuple(sorted(frame["city"].unique()))


cells = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=8)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(cells, st.floats(allow_nan=False, width=32)), min_size=1, max_size=12))
def test_text_is_read_as_python_reads_it(tmp_path_factory, rows):
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([("t", "y"), *((f"_{text}_", value) for text, value in rows)])
    path = csv_file(tmp_path_factory.mktemp("t"), buffer.getvalue())
    got = [value for block in open_table(path).blocks(["t"]) for value in block["t"].to_pylist()]
    assert got == [f"_{text}_" for text, _ in rows]


def test_spellings_of_numbers_of_booleans_and_of_nothing(tmp_path):
    text = " a, b ,y,z\n1,TRUE,+1.5,\n 2 ,false,-1e-3,NA\n.5,True,7.,NaN\n1E1,False,0,null\n4,true,1, 3\n"
    encoding, data = read(csv_file(tmp_path, text), ["a", "b"], ["y", "z"])
    assert [column.kind for column in encoding.columns] == ["number", "boolean"]
    np.testing.assert_array_equal(data.X, np.float64([[1, 1], [2, 0], [0.5, 1], [10, 0], [4, 1]]))
    np.testing.assert_array_equal(data.Y[:, 0], [1.5, -1e-3, 7, 0, 1])
    np.testing.assert_array_equal(data.Y[:, 1], [np.nan] * 4 + [3])


@pytest.mark.parametrize(("learnt", "later"), [("csv", "parquet"), ("parquet", "csv")])
def test_booleans_of_either_format_are_read_from_the_other(tmp_path, learnt, later):
    files = {
        "csv": csv_file(tmp_path, "f,y\nTRUE,1\nfalse,0\ntrue,1\n"),
        "parquet": parquet_file(tmp_path, f=[True, False, True], y=[True, False, True]),
    }
    encoding, first = read(files[learnt], ["f"], ["y"])
    assert encoding.columns[0].kind == "boolean"
    second = _rows.read(open_table(files[later]), ["f"], ["y"])
    np.testing.assert_array_equal(first.X, encoding.encode(second.features).X)
    np.testing.assert_array_equal(first.Y, second.Y)


def test_numbers_as_text_in_parquet(tmp_path):
    path = parquet_file(tmp_path, a=["1", " 2.5 ", "-3"], y=["1", "NaN", None])
    encoding, data = read(path, ["a"], ["y"])
    assert encoding.columns[0].kind == "number"
    np.testing.assert_array_equal(data.X[:, 0], [1, 2.5, -3])
    np.testing.assert_array_equal(data.Y[:, 0], [1, np.nan, np.nan])


@pytest.mark.parametrize("start", ["", "\n\n", "\ufeff\n"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_an_empty_line_is_a_row_where_there_is_one_column(tmp_path, start, end):
    path = csv_file(tmp_path, (start + "a\n1\n\n3\n").replace("\n", end))
    table = open_table(path)
    assert [cell for block in table.blocks(["a"]) for cell in block["a"].to_pylist()] == ["1", "", "3"]
    lines = start.count("\n")
    assert [table.place(row) for row in range(3)] == [f"line {lines + row}" for row in (2, 3, 4)]


def test_an_empty_line_is_none_where_there_are_more_columns(tmp_path):
    table = open_table(csv_file(tmp_path, "\n\na,b\n1,2\n\n3,4\n\n"))
    assert [cell for block in table.blocks(["a"]) for cell in block["a"].to_pylist()] == ["1", "3"]
    assert table.place(1) == "line 6"


def test_parquet_types(tmp_path):
    path = parquet_file(
        tmp_path,
        small=pa.array([1, 2, 3], pa.int8()),
        huge=pa.array([2**60 + 1, 0, 1], pa.int64()),
        half=pa.array(np.array([0.5, 1, 2], np.float16)),
        exact=pa.array([1, 2, 3]).cast(pa.decimal128(30, 2)),
        large=pa.array(["u", "v", "u"], pa.large_string()),
        coded=pa.array(["1", "2", "1"]).dictionary_encode(),
        y=[None, 1.0, 2.0],
    )
    encoding, data = read(path, ["small", "huge", "half", "exact", "large", "coded"], ["y"])
    assert [column.kind for column in encoding.columns] == ["number"] * 4 + ["category"] * 2
    np.testing.assert_array_equal(data.X[0], np.float64([1, 2**60, 0.5, 1, 1, 0, 1, 0]))
    np.testing.assert_array_equal(data.Y[:, 0], [np.nan, 1, 2])


def test_an_index_without_a_name_is_no_column(tmp_path):
    frame = people(5).set_index(pd.Index([3, 1, 4, 15, 9]))
    frame.to_csv(tmp_path / "a.csv")
    frame.to_parquet(tmp_path / "a.parquet")
    for name in ("a.csv", "a.parquet"):
        assert open_table(tmp_path / name).names == list(frame.columns)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,y\n1,2\ninf,3\n", r"column 'a' must hold finite numbers below 3\.4e38; got inf \(line 3\)"),
        ('a,c,y\n1,"two\nlines",2\n1e39,q,3\n', r"column 'a' must hold finite .* got 1e\+39 \(line 4\)"),
        ("a,y\n1,2\n\n\n3,-inf\n", r"column 'y' must hold finite numbers below 3\.4e38; got -inf \(line 5\)"),
        ("a,y\n1,2\n3,x\n", r"column 'y' is a target and must hold numbers; got 'x' \(line 3\)"),
        ("a,y\n1,2,3\n", "line 2: 3 fields where the first line has 2: '1,2,3'"),
        ("a,y\n1,2\n\n3\n", "line 4: 1 field where the first line has 2: '3'"),
        ("a,y," + "x" * 200_000 + "\n1,2,3\n", "line 1: field larger than field limit"),
        ("a,y\n1,2\n" + "x" * (1 << 21) + ",3\n", "a line is longer than 1048576 bytes"),
        ("x" * (1 << 21), "line 1: longer than 1048576 bytes"),
        ('a,y\n1,"2\n' + "3,4\n" * 1_000_000, "a line is longer than 1048576 bytes, or a quote is never closed"),
        ("a,a,y\n1,2,3\n", "2 columns are named 'a'; rename all but one"),
        (" a,b,y,a,b,b\n1,2,3,4,5,6\n", "2 columns are named 'a', 3 columns are named 'b'; rename all but one"),
        ("\n\n", "no column has a name"),
        ("a,y\n", "the table has no rows"),
        ("a,y", "the table has no rows"),
        ("", "the file is empty"),
        (b"PAR1....", r"this is a Parquet file; let its name end in \.parquet"),
        (b"ARROW1..", r"this is a Feather file; let its name end in \.feather"),
        (b"\x1f\x8b...", r"this is a gzip file; let its name end in \.csv\.gz"),
        (b"PK\x03\x04..", "this is a spreadsheet or a zip file; save the table as CSV"),
        (b"\x7fELF\0\0", "holds binary data"),
    ],
)
def test_what_is_wrong_with_a_csv_file(tmp_path, text, message):
    with pytest.raises(TableError, match=message):
        read(csv_file(tmp_path, text), ["a"], ["y"])


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([[1], [2]], r"table\.parquet: column 'a' holds list<.*>; leave it out"),
        ([b"x", b"y"], r"table\.parquet: column 'a' holds binary; leave it out"),
        ([np.inf, 1.0], r"column 'a' must hold finite numbers below 3\.4e38; got inf \(row 1\)"),
        (pa.array([None, None]), r"no column to learn from: 'a' \(no value in any row\)"),
    ],
)
def test_what_is_wrong_with_a_parquet_column(tmp_path, column, message):
    with pytest.raises(ValueError, match=message):
        read(parquet_file(tmp_path, a=column, y=[1, 2]), ["a"], ["y"])


def test_a_damaged_parquet_file(tmp_path):
    path = parquet_file(tmp_path, a=np.arange(1000.0), y=np.arange(1000.0))
    whole = path.read_bytes()
    for cut in (1, 4, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(TableError, match="not a Parquet file, or a damaged one"):
            read(path, ["a"], ["y"])


def test_a_late_bad_value_is_found_with_its_line(tmp_path):
    text = "a,y\n" + "1,2\n" * 70_000 + "1,word\n" + "1,2\n" * 10
    with pytest.raises(TableError, match=r"got 'word' \(line 70002\)"):
        _rows.read(open_table(csv_file(tmp_path, text)), ["a"], ["y"])
    with pytest.raises(TableError, match=r"got 'word' \(line 70002\)"):
        sample(open_table(csv_file(tmp_path, text)), ["a"], ["y"], 9)


def test_all_columns_with_a_wrong_cell_are_named_at_once(tmp_path):
    path = csv_file(tmp_path, "a,b,y,z,t\n1,2,3,4,1\ninf,2,word,1,2\n1,1e39,5,more,3\n")
    with pytest.raises(
        TableError, match=r"2 columns cannot be used:\n  column 'y' .* \(line 3\)\n  column 'z' .* \(line 4\)"
    ):
        read(path, ["a", "b"], ["y", "z"])
    with pytest.raises(
        TableError, match=r"2 columns cannot be used:\n  column 'a' .* \(line 3\)\n  column 'b' .* \(line 4\)"
    ):
        read(path, ["a", "b"], ["t"])


def test_rows_that_cannot_be_read_are_found_one_by_one(tmp_path):
    table = pa.table({"a": [1.0, 2.0, 3.0, 2.5], "b": ["u", "v", "u", "v"]})
    encoding, _ = learn(table)
    later = pa.table({"a": [2.0, np.inf, 1.0, -1e39, 1.0, np.inf], "b": ["u"] * 6})
    wrong = unreadable(later, lambda part: encoding.encode(part, quiet=True))
    assert list(wrong) == [1, 3, 5] and wrong[3] == "column 'a' must hold finite numbers below 3.4e38; got -1e+39"
    days, _ = learn(pa.table({"day": ["2024-01-05", "2024-02-01", "2024-03-01"], "b": ["1.5", "2", "4"]}))
    later = pa.table({"day": ["2024-02-30", "2024-02-02", None, "2024-02-30"], "b": ["2", "inf", "2", "inf"]})
    assert unreadable(later, lambda part: days.encode(part, quiet=True)) == {
        0: "column 'day' holds '2024-02-30', a date that does not exist",
        1: "column 'b' must hold finite numbers below 3.4e38; got inf",
        3: "column 'day' holds '2024-02-30', a date that does not exist; "
        "column 'b' must hold finite numbers below 3.4e38; got inf",
    }
    assert unreadable(table, encoding.encode) == {}
    moments = table.set_column(0, "a", pa.array([0] * 4, pa.timestamp("s")))
    with pytest.raises(CellError, match="column 'a' held numbers in training and holds times now"):
        unreadable(moments, encoding.encode)


def special(path, **columns):
    """All rows of a file with a column of weights or groups."""
    return _rows.read(open_table(path), ["a"], ["y"], **columns)


def test_weights_and_groups_are_read_from_any_column(tmp_path):
    path = csv_file(tmp_path, "a,y,w,g\n1,2,0.5,u\n2,3,0, v \n3,4,1e3,u\n")
    rows = special(path, weights="w", groups="g")
    np.testing.assert_array_equal(rows.weights, [0.5, 0, 1000])
    np.testing.assert_array_equal(rows.groups, [0, 1, 0])
    some = rows.take(np.array([2, 1]))
    assert some.weights.tolist() == [1000, 0] and some.groups.tolist() == [0, 1] and some.features.column_names == ["a"]
    path = parquet_file(tmp_path, a=[1, 2, 3], y=[1, 2, 3], w=[3, 1, 1], g=[2.5, 2.5, 1.0])
    rows = special(path, weights="w", groups="g")
    assert rows.weights.tolist() == [3, 1, 1] and rows.groups.tolist() == [0, 0, 1]
    assert special(path).weights is special(path).groups is None


@pytest.mark.parametrize(
    ("cells", "column", "message"),
    [
        (["1", "x"], "weights", r"column 's' holds weights and must hold numbers; got 'x' \(line 3\)"),
        (["1", "-2"], "weights", r"column 's' holds weights and must be 0 or more in every row; got -2 \(line 3\)"),
        (["1", ""], "weights", r"column 's' holds weights and must be 0 or more in every row; got nothing \(line 3\)"),
        (["1", "inf"], "weights", r"column 's' must hold finite numbers below 3\.4e38; got inf \(line 3\)"),
        (["0", "0"], "weights", r"column 's' holds weights, which are 0 in every row$"),
        (["u", "NA"], "groups", r"column 's' holds groups and must have a value in every row; got nothing \(line 3\)"),
        (["u", "u"], "groups", r"column 's' holds groups, and all rows are of one: 'u'$"),
    ],
)
def test_wrong_weights_and_groups(tmp_path, cells, column, message):
    path = csv_file(tmp_path, "a,y,s\n" + "".join(f"{i},{i},{cell}\n" for i, cell in enumerate(cells)))
    with pytest.raises(TableError, match=message):
        special(path, **{column: "s"})


def test_targets_without_a_logarithm_are_found_before_training(tmp_path):
    path = csv_file(tmp_path, "a,y,z\n1,1,4\n2,0,-1\n3,,0\n4,-1,1\n")
    table = open_table(path)
    rows = _rows.read(table, ["a"], ["y", "z"])
    both = r"column 'y' must be above 0, since its log is learnt; got 0, and others in 1 more rows \(line 3\)\n"
    with pytest.raises(
        TableError, match=both + r"  column 'z' must be 0 or more, .* sqrt is learnt; got -1 \(line 3\)"
    ):
        check_transforms(table, rows, ["y", "z"], {"y": "log", "z": "sqrt"})
    with pytest.raises(TableError, match=r"column 'y' must be above -1, since its log1p .*; got -1 \(line 5\)$"):
        check_transforms(table, rows, ["y", "z"], {"y": "log1p"})
    check_transforms(table, rows, ["y", "z"], {})


def test_accuracy_is_that_of_scikit_learn():
    from sklearn.metrics import r2_score, root_mean_squared_error

    Y, mean = np.random.default_rng(0).normal(size=(2, 40, 4))
    Y[::3, 1], Y[:, 2], Y[:, 3] = np.nan, np.nan, 5.0
    found, known = accuracy(Y, mean), ~np.isnan(Y)
    for j in (0, 1):
        y, m = Y[known[:, j], j], mean[known[:, j], j]
        np.testing.assert_allclose(found.r2[j], r2_score(y, m), rtol=1e-12)
        np.testing.assert_allclose(found.rmse[j], root_mean_squared_error(y, m), rtol=1e-12)
        np.testing.assert_allclose(found.spread[j], np.std(y), rtol=1e-12)
    assert np.isnan(found.r2[2:]).all() and np.isnan(found.rmse[2]) and found.spread[3] == 0
    line = described(found._replace(r2=np.array([0.51, 0.9, np.nan, np.nan])), "abcd")
    assert line.startswith("a R² 0.510, rmse 1.") and "; c not observed; " in line


def test_control_characters_do_not_reach_the_terminal(tmp_path):
    with pytest.raises(TableError) as caught:
        read(csv_file(tmp_path, "a,y\n1,\x1b[31mred\n"), ["a"], ["y"])
    assert "\x1b" not in str(caught.value)


def test_a_larger_table_is_represented_by_rows_drawn_evenly(tmp_path):
    path = parquet_file(tmp_path, a=np.arange(40_000.0), y=np.arange(40_000.0))
    data = sample(open_table(path), ["a"], ["y"], 5_000, seed=1)
    assert data.total == 40_000 and len(np.unique(data.row_index)) == 5_000
    np.testing.assert_array_equal(data.Y[:, 0], data.row_index)
    np.testing.assert_array_equal(data.features["a"].to_numpy(), data.row_index)
    share = np.bincount(data.row_index // 4_000, minlength=10) / 5_000
    assert np.abs(share - 0.1).max() < 4 * np.sqrt(0.1 * 0.9 / 5_000)


@pytest.mark.parametrize(
    ("Y", "message"),
    [
        ([[1, 2]], "1 row with a target that is left is too few for 2 targets; at least 3 are needed"),
        ([[1, 2], [2, 3]], "2 rows with a target that is left are too few for 2 targets; at least 3 are needed"),
        ([[1, np.nan]] * 3, "target 'z' has no value in any row that is left$"),
        (np.empty((0, 2)), "target 'y' has no value in any row that is left$"),
        ([[1, 4], [2, np.nan], [3, 4]], "target 'z' is 4 in every row that is left; nothing to learn"),
    ],
)
def test_targets_that_cannot_be_learnt(tmp_path, Y, message):
    table = open_table(csv_file(tmp_path, "a,y\n1,2\n"))
    with pytest.raises(TableError, match=message):
        check_targets(table, ["y", "z"], np.float64(Y), " that is left")


def test_a_training_table_is_parsed_once(tmp_path, monkeypatch):
    people(100).to_csv(tmp_path / "people.csv", index=False)
    table, read_columns = open_table(tmp_path / "people.csv"), []
    blocks = _tables.CsvTable.blocks
    monkeypatch.setattr(
        _tables.CsvTable, "blocks", lambda self, names: read_columns.append(names) or blocks(self, names)
    )
    _rows.read(table, ["height", "age", "city", "member"], ["weight"])
    assert read_columns == [["height", "age", "city", "member", "weight"]]


def test_only_rows_with_a_target_are_drawn(tmp_path):
    y = np.where(np.arange(40_000) % 4 == 0, np.arange(40_000.0), np.nan)
    path = parquet_file(tmp_path, a=np.arange(40_000.0), y=y, z=np.full(40_000, np.nan))
    for most in (40_000, 10_000, 5_000):
        data = sample(open_table(path), ["a"], ["y", "z"], most, with_target=True)
        assert data.total == 40_000 and len(np.unique(data.row_index)) == min(most, 10_000)
        np.testing.assert_array_equal(data.features["a"].to_numpy(), data.row_index)
        np.testing.assert_array_equal(data.Y[:, 0], data.row_index)


def test_names_of_predictions_and_their_values():
    rng = np.random.default_rng(0)
    names = prediction_names(["a", "b", "c"])
    assert names[:6] == ["a_mean", "a_std", "a_aleatoric_std", "a_epistemic_std", "a_lower", "a_upper"]
    assert names[18:] == ["corr_a_b", "corr_a_c", "corr_b_c"]

    class Parts:
        mean = rng.normal(size=(4, 3))
        aleatoric, epistemic = (x @ np.swapaxes(x, 1, 2) for x in rng.normal(size=(2, 4, 3, 5)))
        total = aleatoric + epistemic

    columns = prediction_columns(["a", "b", "c"], Parts, Parts.mean - 1, Parts.mean + 2)
    assert list(columns) == names
    np.testing.assert_array_equal(columns["b_upper"], Parts.mean[:, 1] + 2)
    for row in range(4):
        spread = np.sqrt(np.diag(Parts.total[row]))
        correlation = Parts.total[row] / np.outer(spread, spread)
        np.testing.assert_allclose(columns["corr_b_c"][row], correlation[1, 2])
        np.testing.assert_allclose(columns["c_std"][row], spread[2])
        np.testing.assert_allclose(columns["c_epistemic_std"][row] ** 2, Parts.epistemic[row, 2, 2])
        np.testing.assert_allclose(columns["a_aleatoric_std"][row] ** 2, Parts.aleatoric[row, 0, 0])


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_what_is_written_is_read_again(tmp_path, ending):
    path = tmp_path / f"out.{ending}"
    frame = people(9)
    batch = pa.RecordBatch.from_pandas(frame)
    assert write_table(path, [batch, batch]) == 18
    again = getattr(pd, f"read_{ending}")(path)
    pd.testing.assert_frame_equal(again, pd.concat([frame, frame], ignore_index=True))
    assert list(tmp_path.iterdir()) == [path]


def test_text_is_quoted_only_where_it_must_be(tmp_path):
    write_table(tmp_path / "a.csv", [pa.RecordBatch.from_pydict({"id": ["7", "8"], "v": [0.5, 1.0]})])
    assert (tmp_path / "a.csv").read_text() == "id,v\n7,0.5\n8,1\n"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_no_draft_is_left_and_the_old_file_stays(tmp_path, error):
    path = tmp_path / "out.csv"
    path.write_text("old")

    def batches():
        yield pa.RecordBatch.from_pydict({"a": [1]})
        raise error

    with pytest.raises(error):
        write_table(path, batches())
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_written_file_has_the_usual_permissions(tmp_path):
    with draft(tmp_path / "a") as beside:
        beside.write_text("")
    (tmp_path / "b").write_text("")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


@pytest.mark.parametrize("there", [True, False])
def test_a_symbolic_link_stays_and_its_file_is_replaced(tmp_path, there):
    folder, link, second = tmp_path / "folder", tmp_path / "link.csv", tmp_path / "second.csv"
    folder.mkdir()
    link.symlink_to("folder/file.csv")
    second.symlink_to(link)
    if there:
        (folder / "file.csv").write_text("old")
    check_output(second, force=there)
    write_whole(second, b"new")
    assert second.is_symlink() and link.is_symlink()
    assert [path.read_text() for path in folder.iterdir()] == ["new"]


def test_a_symbolic_link_into_no_folder(tmp_path):
    (tmp_path / "link.csv").symlink_to("no/file.csv")
    with pytest.raises(TableError, match=r"link\.csv: cannot be written, there is no folder .*no$"):
        check_output(tmp_path / "link.csv", force=False)


def test_outputs_that_cannot_be_written(tmp_path):
    (tmp_path / "there.csv").write_text("")
    with pytest.raises(TableError, match="exists already; give another name, or --force"):
        check_output(tmp_path / "there.csv", force=False)
    check_output(tmp_path / "there.csv", force=True)
    with pytest.raises(TableError, match="it is a folder"):
        check_output(tmp_path, force=True)
    with pytest.raises(TableError, match="there is no folder"):
        check_output(tmp_path / "no" / "a.csv", force=False)
    with pytest.raises(TableError, match="cannot be written"):
        check_output(pathlib.Path("/proc/a.csv"), force=False)
    assert [path.name for path in tmp_path.iterdir()] == ["there.csv"]


def test_a_block_is_bounded(tmp_path):
    path = csv_file(tmp_path, "a,y\n" + "1,2\n" * 100_000)
    sizes = [block.num_rows for block in open_table(path).blocks(["a"])]
    assert sum(sizes) == 100_000 and max(sizes) <= _tables.ROWS


def cells_of(table):
    """All cells, by column."""
    return pa.Table.from_batches(table.blocks(table.names)).to_pydict()


CARSEATS = pd.DataFrame({"Sales": [9.5, 11.22, -0.25], "Price": [120, 83, 80], "Shelf": ["Bad", "a, b", 'say "hi"']})


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
@pytest.mark.parametrize("decimal", [".", ","])
def test_the_delimiter_and_the_decimal_mark_are_found(tmp_path, delimiter, decimal):
    path = csv_file(tmp_path, CARSEATS.to_csv(index=False, sep=delimiter, decimal=decimal))
    comma = " and ',' as the decimal mark" if decimal == "," else ""
    with pytest.warns(Notice, match=re.escape(f"table.csv: read with {delimiter!r} between the cells{comma}") + "$"):
        table = open_table(path)
    assert table.decimal == ("," if decimal == "," else None) and table.place(2) == "line 4"
    _, data = read(table, ["Price", "Shelf"], ["Sales"])
    np.testing.assert_array_equal(data.Y[:, 0], CARSEATS["Sales"])
    np.testing.assert_array_equal(data.X[:, 0], CARSEATS["Price"])


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("a\n1\n2\n", ","),
        ("a,b\n1;2,3\n4;5,6\n", ","),
        ('a,b\n"x;y;z",2\n"p;q",3\n', ","),
        ("a;b,c|d\n1,2\n3,4\n", ","),
        ("Price, EUR;Size, m\n1,5;2\n1;2,5\n", ";"),
        ("x,m;y,m\n1,5;2,5\n1,0;2,2\n", ";"),
        ('note;y\n"a, b; c";1\n"two\nlines";2\n', ";"),
        ("a;b;c\n1;2;3\n1;2\n4;5;6\n", ";"),
        ("Name, first;City\nAda;Ulm\nBo, K;Bonn\n", ";"),
        ("a;b\n", ";"),
        ("SEP=|\na|b;c\n1|2\n", "|"),
        ('"sep=;"\r\na;b,c\r\n1;2\r\n', ";"),
    ],
)
@pytest.mark.filterwarnings("ignore::mder_jax.cli._text_files.Notice")
def test_the_delimiter_is_that_with_which_the_lines_agree(tmp_path, text, delimiter):
    table = open_table(csv_file(tmp_path, text))
    header = next(line for line in text.splitlines() if "sep=" not in line.lower())
    assert table.names == header.split(delimiter)


@pytest.mark.filterwarnings("ignore::mder_jax.cli._text_files.Notice")
@pytest.mark.parametrize(
    ("cells", "decimal"),
    [
        (["1,5", "2", "3", "4"], ","),
        (["1,5", "2.5"], ","),
        (["1,5", "2.5", "2.5"], None),
        (["1.234,5", "7"], ","),
        (["1,234", "12,500"], None),  # thousands, perhaps
        (["0,234", "12,500"], ","),
        (["1,234.5", "2"], None),
        (["a,b", "1,5 kg", "31.12.2024"], None),
        (["-,5e-3"], ","),
    ],
)
def test_the_decimal_mark_is_that_of_the_numbers(tmp_path, cells, decimal):
    assert open_table(csv_file(tmp_path, "a;b\n" + "".join(f"{cell};x\n" for cell in cells))).decimal == decimal


@pytest.mark.filterwarnings("ignore::mder_jax.cli._text_files.Notice")
@pytest.mark.parametrize(
    ("cell", "value"), [("1.234", 1234), ("1.234,5", 1234.5), ("-1.234.567", -1234567), ("1.25", 1.25)]
)
def test_points_in_a_table_with_decimal_commas_stand_for_thousands(tmp_path, cell, value):
    path = csv_file(tmp_path, f"a;y\n1,5;2\n{cell};{cell}\n2,5;1\n")
    encoding, data = read(path, ["a"], ["y"])
    assert encoding.columns[0].kind == "number"
    np.testing.assert_array_equal(data.Y[:, 0], [2, value, 1])
    np.testing.assert_array_equal(data.X[:, 0], [1.5, value, 2.5])
    with pytest.raises(TableError, match=r"column 'a' is a target and must hold numbers; got '1\.5,5' \(line 2\)"):
        read(csv_file(tmp_path, f"a;y\n1.5,5;2\n{cell};1,5\n2,5;1\n"), ["y"], ["a"])


def test_dates_and_words_with_marks_stay_as_they_are(tmp_path):
    path = csv_file(tmp_path, "d;w;y\n31.12.2024;a,b;1,5\n1.1.2025;1.2.3;2,5\n")
    table = open_table(path, Reading(delimiter=";", decimal=","))
    encoding, _ = read(table, ["w", "d"], ["y"])
    assert encoding.columns[0].levels == ("1.2.3", "a,b") and encoding.columns[1].kind == "date"


def test_what_is_said_about_a_table_is_not_guessed(tmp_path):
    reading = Reading(delimiter=":", decimal=",", missing=("?", "none"), encoding="cp850")
    table = open_table(csv_file(tmp_path, "a;b:y\nKöln:1,5\nUlm:?\nUlm:none\nUlm:2\n".encode("cp850")), reading)
    encoding, data = read(table, ["a;b"], ["y"])
    assert encoding.columns[0].levels == ("Köln", "Ulm")
    np.testing.assert_array_equal(data.Y[:, 0], [1.5, np.nan, np.nan, 2])
    assert open_table(csv_file(tmp_path, "a;y\n1,5;2\n"), Reading(delimiter=";", decimal=".")).decimal is None
    quoted = open_table(csv_file(tmp_path, 'a,y\n"1,5",2\n"2,5",1\n'), Reading(decimal=","))
    np.testing.assert_array_equal(read(quoted, ["a"], ["y"])[1].X[:, 0], [1.5, 2.5])
    parquet = open_table(parquet_file(tmp_path, a=["1,5", "?"], y=[1, 2]), Reading(missing=("?",), decimal=","))
    np.testing.assert_array_equal(_rows.read(parquet, ["y"], ["a"]).Y[:, 0], [1.5, np.nan])


def test_the_line_of_excel_that_names_the_delimiter(tmp_path):
    path = csv_file(tmp_path, "\ufeffsep=;\r\na;b\r\n1;2\r\n;4\r\n")
    with pytest.warns(Notice, match="read with ';' between the cells$"):
        table = open_table(path)
    assert cells_of(table) == {"a": ["1", ""], "b": ["2", "4"]} and table.place(1) == "line 4"


@pytest.mark.parametrize(
    ("encoding", "said"),
    [
        ("utf-8", None),
        ("utf-8-sig", None),
        ("utf-16", "UTF-16"),
        ("cp1252", "Windows-1252"),
    ],
)
@pytest.mark.parametrize("rows", [3, 200_000])
def test_the_encoding_is_found(tmp_path, encoding, said, rows):
    text = "Stadt,y\n" + "Köln €,1\n" * rows + "Ulm,2\n"
    path = csv_file(tmp_path, text.encode(encoding))
    if said:
        with pytest.warns(Notice, match=f"table.csv: not UTF-8, and read as {said}; --encoding names another"):
            table = open_table(path)
    else:
        table = open_table(path)
    assert cells_of(table) == {"Stadt": ["Köln €"] * rows + ["Ulm"], "y": ["1"] * rows + ["2"]}
    assert table.place(rows) == f"line {rows + 2}"


def test_an_encoding_that_the_file_does_not_have(tmp_path):
    with pytest.raises(TableError, match=r"table\.csv: not text in utf-16 \(UTF-16 stream does not start with BOM\)"):
        open_table(csv_file(tmp_path, "a,y\n1,2\n"), Reading(encoding="utf-16"))


def test_bytes_that_windows_does_not_have_are_latin_1(tmp_path):
    with pytest.warns(Notice, match="read as Latin-1"):
        assert cells_of(open_table(csv_file(tmp_path, b"a\nK\xf6ln\x81\n"))) == {"a": ["Köln\x81"]}


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_a_late_byte_in_another_encoding_is_found_with_its_line(tmp_path, ending):
    content, path = b"a,y\n" + b"x,2\n" * 400_000 + b"K\xf6ln,3\nx,1\n", tmp_path / f"t{ending}"
    path.write_bytes(gzip.compress(content, 1) if "gz" in ending else content)
    with pytest.raises(TableError, match=r"line 400002: not text in UTF-8; .* try --encoding latin-1"):
        cells_of(open_table(path))
    assert cells_of(open_table(path, Reading(encoding="latin-1")))["a"][-2:] == ["Köln", "x"]
    with pytest.raises(TableError, match="line 400002: not text in ascii"):
        cells_of(open_table(path, Reading(encoding="ascii")))


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".TXT.GZ", ".feather", ".arrow"])
def test_a_table_is_the_same_in_every_format(tmp_path, ending):
    frame, path = people(40_000).fillna({"weight": 70}), tmp_path / f"people.v1{ending}"
    if ending in (".feather", ".arrow"):
        pyarrow.feather.write_feather(frame, path, chunksize=30_000)
    else:
        frame.to_csv(path, index=False, sep="\t" if "tsv" in ending else ",")  # and compresses it
    _, data = read(path, ["height", "age", "city", "member"], ["weight"])
    np.testing.assert_array_equal(data.X[:, :2], frame[["height", "age"]])
    np.testing.assert_array_equal(data.Y[:, 0], frame["weight"])
    sizes = [block.num_rows for block in open_table(path).blocks(["city"])]
    assert sum(sizes) == 40_000 and max(sizes) <= _tables.ROWS


def test_a_stream_of_arrow_in_a_file(tmp_path):
    table = pa.table({"a": [1, 2], "b": ["x", "y"]})
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    assert cells_of(open_table(tmp_path / "t.arrow")) == table.to_pydict()


@pytest.mark.parametrize("content", [b"x", b"a,b\n1,2\n", b"ARROW1\0\0", "half"])
def test_a_damaged_feather_file(tmp_path, content):
    pyarrow.feather.write_feather(people(100), tmp_path / "t.feather")
    whole = (tmp_path / "t.feather").read_bytes()
    (tmp_path / "t.feather").write_bytes(whole[: len(whole) // 2] if content == "half" else content)
    with pytest.raises(TableError, match="not a Feather file, or a damaged one"):
        cells_of(open_table(tmp_path / "t.feather"))


def test_a_damaged_gzip_file(tmp_path):
    rng, path = np.random.default_rng(0), tmp_path / "t.csv.gz"
    lines = pd.DataFrame(rng.integers(0, 10**9, (100_000, 2)), columns=["a", "y"]).to_csv(index=False)
    whole = gzip.compress(lines.encode(), 1)
    for damaged in (b"a,y\n1,2\n", whole[:5], whole[:-4], whole[: len(whole) // 2], whole[:-8] + b"12345678"):
        path.write_bytes(damaged)
        with pytest.raises(TableError, match=r"t\.csv\.gz: not a gzip file, or a damaged one"):
            cells_of(open_table(path))
    path.write_bytes(gzip.compress(b""))
    with pytest.raises(TableError, match="the file is empty"):
        open_table(path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("t.xlsx", "spreadsheets are not read; save the sheet as CSV"),
        ("t.ODS", "spreadsheets are not read; save the sheet as CSV"),
        ("t.parquet.gz", r"ends in \.csv, \.tsv, \.txt \(also with \.gz\), .*; got '\.gz'"),
        ("t.gz", "got '.gz'"),
        ("t", "got 'no ending'"),
    ],
)
def test_files_that_are_no_tables_by_their_name(tmp_path, name, message):
    (tmp_path / name).write_text("a,b\n1,2\n")
    with pytest.raises(TableError, match=message):
        open_table(tmp_path / name)


@pytest.mark.parametrize("content", ["a,y\n" + "1,2\n" * 9, None])
def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, content):
    path = csv_file(tmp_path, content) if content else parquet_file(tmp_path, a=np.arange(9), y=np.arange(9))
    table = open_table(path)
    blocks = table.blocks(["a"])
    next(blocks)
    with path.open("ab") as file:
        file.write(b"3,4\n")
    with pytest.raises(TableError, match="the file was changed while it was read"):
        list(blocks)


def test_columns_without_a_name_are_said_to_be_unused(tmp_path):
    path = csv_file(tmp_path, ",a, ,b,\n0,1,2,3,4\n")
    with pytest.warns(Notice, match=r"table\.csv: columns 3, 5 without a name; not used"):
        assert open_table(path).names == ["a", "b"]


RAGGED = "\n".join(["a,y", "1,2", "3", "", "4,5,6", '"x\ny",7', "8", "9", "10", "11", "12,13", "14", ""])


def test_all_rows_with_a_wrong_number_of_fields_are_refused_at_once(tmp_path):
    path = csv_file(tmp_path, RAGGED)
    message = r"table\.csv, lines 3, 5, 8, 9, 10 and 2 more: 7 rows have another number of fields than the first line"
    first = r" \(line 3: 1 field where the first line has 2: '3'\); --bad-rows skip leaves out such rows"
    with pytest.raises(TableError, match=message + first):
        cells_of(open_table(path))
    with pytest.raises(TableError, match=message):
        read(path, ["a"], ["y"])


@pytest.mark.parametrize("bad_rows", ["skip", "flag"])
def test_rows_with_a_wrong_number_of_fields_are_left_out(tmp_path, monkeypatch, bad_rows):
    monkeypatch.setattr(_tables, "ROWS", 2)
    table = open_table(csv_file(tmp_path, RAGGED), Reading(bad_rows=bad_rows))
    with pytest.warns(UserWarning, match="lines 3, 5, 8, 9, 10 and 2 more: 7 rows .*; not used$"):
        assert cells_of(table) == {"a": ["1", "x\ny", "12"], "y": ["2", "7", "13"]}
    assert [table.place(row) for row in range(3)] == ["line 2", "line 6", "line 12"]
    assert [bad.row for bad in table.bad_rows] == [1, 2, 4, 5, 6, 7, 9]
    assert [bad.line for bad in table.bad_rows] == [3, 5, 8, 9, 10, 11, 13]
    assert table.bad_rows[1].reason == "3 fields where the first line has 2: '4,5,6'"
    whole = pa.Table.from_batches(with_bad_rows(table.blocks(["y"]), table.bad_rows)).to_pydict()
    assert whole["y"] == ["2", None, None, "7", None, None, None, None, "13", None]
    assert [reason is None for reason in whole["reason"]] == [cell is not None for cell in whole["y"]]
    assert whole["reason"][9] == "1 field where the first line has 2: '14'"


def test_a_table_of_bad_rows_has_none(tmp_path):
    path = csv_file(tmp_path, "a,y\n1\n2\n")
    with pytest.raises(TableError, match="lines 2, 3: 2 rows have another number of fields"):
        cells_of(open_table(path))
    with pytest.raises(TableError, match="the table has no rows"), pytest.warns(UserWarning, match="not used"):
        cells_of(open_table(path, Reading(bad_rows="skip")))


def test_reasons_are_a_column_also_where_no_row_is_bad(tmp_path):
    batch = pa.RecordBatch.from_pydict({"v": [1.5, 2.5]})
    assert [b.to_pydict() for b in with_bad_rows([batch], ())] == [{"v": [1.5, 2.5], "reason": [None, None]}]


def test_numbers_are_written_with_nine_digits():
    rng = np.random.default_rng(0)
    values = rng.normal(size=20_000) * 10.0 ** rng.integers(-40, 40, 20_000)
    values = np.append(values, [0, 2020.123456789, 999999999.9, -1e-310, 1e308, np.inf, -np.inf, np.nan])
    rounded = significant(values)
    np.testing.assert_array_equal(rounded, [float(f"{value:.9g}") for value in values])
    lines = _tables._csv_lines(pa.RecordBatch.from_pydict({"v": rounded[:-3]})).split()
    assert max(len(re.sub(r"e.*|[-.]|^-?0\.0*", "", line).strip("0")) for line in lines) == 9


def test_memory_is_bounded_however_long_the_file(tmp_path):
    path, before, line = tmp_path / "long.csv.gz", pa.total_allocated_bytes(), b"1,5;" + b"2" * 595 + b"\n"
    with gzip.open(path, "wb", 1) as file:
        file.writelines([b"a;y\n", *[line * 10_000] * 20])
    with pytest.warns(Notice, match="as the decimal mark"):
        table = open_table(path)
    largest = max(pa.total_allocated_bytes() for _ in table.blocks(["a", "y"])) - before
    assert largest < 64 << 20 < 120_000_000  # of the 200,000 rows
