"""Tables become numbers as pandas would make them, and what is wrong with one is said with its line."""

import csv
import gzip
import io
import json
import pathlib
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from mder_jax._files import draft, write_whole
from mder_jax.cli import _tables
from mder_jax.cli._column_kinds import learn
from mder_jax.cli._encoding import Column, Encoding, encode, sample
from mder_jax.cli._predict import prediction_columns, prediction_names
from mder_jax.cli._tables import TableError, check_output, open_table, significant, with_bad_rows, write_table
from mder_jax.cli._text_files import Notice, Reading
from mder_jax.cli._training_rows import check_targets


def csv_file(folder, text):
    path = folder / "table.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def parquet_file(folder, **columns):
    path = folder / "table.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def read(path, features, targets):
    """The encoding, and all rows by it. What `learn` read at the same time must be the same numbers."""
    table = open_table(path)
    learnt = learn(table, features, targets)
    rows = sample(table, learnt.encoding, learnt.total)
    with_target = ~np.isnan(rows.Y).all(axis=1)
    np.testing.assert_array_equal(learnt.encoding.one_hot(learnt.features), rows.X[with_target])
    np.testing.assert_array_equal(learnt.Y, rows.Y[with_target])
    return learnt.encoding, rows


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
    assert encoding.features[2].categories == tuple(sorted(frame["city"].unique()))


def test_the_encoding_survives_json(tmp_path):
    frame = people(20)
    frame.to_csv(tmp_path / "people.csv", index=False)
    encoding, _ = read(tmp_path / "people.csv", ["city", "member", "age"], ["weight"])
    assert Encoding.from_json(json.loads(json.dumps(encoding.to_json()))) == encoding


@pytest.mark.parametrize("damaged", [None, {}, {"features": [{"name": "a"}], "targets": []}, {"features": 1}, [1]])
def test_a_damaged_encoding_is_refused(damaged):
    with pytest.raises(ValueError, match="does not say how columns become numbers"):
        Encoding.from_json(damaged)


def test_an_encoding_of_unknown_kind_is_refused():
    column = {"name": "a", "kind": "date", "categories": []}
    with pytest.raises(ValueError, match="unknown kind of column 'date'"):
        Encoding.from_json({"features": [column], "targets": []})


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
    text = " a, b ,y,z\n1,TRUE,+1.5,\n 2 ,false,-1e-3,NA\n.5,True,7.,NaN\n1E3,False,0,null\n4,true,1, 3\n"
    encoding, data = read(csv_file(tmp_path, text), ["a", "b"], ["y", "z"])
    assert [column.kind for column in encoding.features] == ["number", "boolean"]
    np.testing.assert_array_equal(data.X, np.float64([[1, 1], [2, 0], [0.5, 1], [1000, 0], [4, 1]]))
    np.testing.assert_array_equal(data.Y[:, 0], [1.5, -1e-3, 7, 0, 1])
    np.testing.assert_array_equal(data.Y[:, 1], [np.nan] * 4 + [3])


def test_a_boolean_column_reads_words_numbers_and_parquet(tmp_path):
    encoding = Encoding((Column("f", "boolean"),), (Column("y", "number"),))
    first = sample(open_table(csv_file(tmp_path, "f,y\ntrue,1\nfalse,1\n")), encoding, 9)
    second = sample(open_table(csv_file(tmp_path, "f,y\n1,1\n0,1\n")), encoding, 9)
    third = sample(open_table(parquet_file(tmp_path, f=[True, False], y=[1, 1])), encoding, 9)
    for data in (first, second, third):
        np.testing.assert_array_equal(data.X, [[1], [0]])


@pytest.mark.parametrize(("learnt", "later"), [("csv", "parquet"), ("parquet", "csv")])
def test_booleans_of_either_format_are_read_from_the_other(tmp_path, learnt, later):
    files = {
        "csv": csv_file(tmp_path, "f,y\nTRUE,1\nfalse,0\ntrue,1\n"),
        "parquet": parquet_file(tmp_path, f=[True, False, True], y=[True, False, True]),
    }
    encoding, first = read(files[learnt], ["f"], ["y"])
    assert encoding.features[0].kind == "boolean"
    second = sample(open_table(files[later]), encoding, 9)
    np.testing.assert_array_equal(first.X, second.X)
    np.testing.assert_array_equal(first.Y, second.Y)


def test_parquet_has_nulls_of_its_own_so_that_na_is_a_category_there(tmp_path):
    path = parquet_file(tmp_path, country=["NA", "DE", "null", "NA"], y=[1, 2, 3, 4])
    encoding, data = read(path, ["country"], ["y"])
    assert encoding.features[0].categories == ("DE", "NA", "null")
    same = csv_file(tmp_path, "country,y\nNA,1\nDE,2\nnull,3\n NA,4\n")
    np.testing.assert_array_equal(sample(open_table(same), encoding, 9).X, data.X)
    with pytest.raises(TableError, match="line 3: column 'country' has no value"):
        sample(open_table(csv_file(tmp_path, "country,y\nNA,1\nNaN,2\n")), encoding, 9)
    for nothing in ("", " ", None):
        path = parquet_file(tmp_path, country=["NA", nothing], y=[1, 2])
        with pytest.raises(TableError, match="row 2: column 'country' has no value"):
            read(path, ["country"], ["y"])


def test_numbers_as_text_in_parquet(tmp_path):
    path = parquet_file(tmp_path, a=["1", " 2.5 ", "-3"], y=["1", "NaN", None])
    encoding, data = read(path, ["a"], ["y"])
    assert encoding.features[0].kind == "number"
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
    assert [column.kind for column in encoding.features] == ["number"] * 4 + ["category"] * 2
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
        ("a,y\n1,2\n,3\n", "line 3: column 'a' has no value"),
        ("a,y\n1,2\n\n\nNA,3\n", "line 5: column 'a' has no value"),
        ('a,c,y\n1,"two\nlines",2\nnull,q,3\n', "line 4: column 'a' has no value"),
        ("a,y\n1,2\ninf,3\n", "line 3: column 'a' must be finite and below 3.4e38; it is 'inf'"),
        ("a,y\n1,2\n1e39,3\n", "line 3: column 'a' must be finite and below 3.4e38; it is '1e39'"),
        ("a,y\n1,2\n3,-inf\n", "line 3: column 'y' must be finite and below 3.4e38; it is '-inf'"),
        ("a,y\n1,2\n3,x\n", r"target 'y' must hold numbers \(line 3 has 'x'\)"),
        ("a,y\n" + "1,2\n" * 20 + "n/a,3\n", r"'a' holds numbers and text \(line 22 has 'n/a'\)"),
        ("a,y\n2024-01-31,2\n2024-02-01,3\n", r"'a' holds dates or times \(line 2 has '2024-01-31'\); exclude"),
        ("a,y\n31.1.2024 08:00,2\n1.2.2024 09:00,3\n", "'a' holds dates or times"),
        ("a,y\n8:30,2\n9:15,3\n", "'a' holds dates or times"),
        ("a,y\n" + "".join(f"t{i},1\n" for i in range(101)), r"more than 100 different values \(line 2 has 't0'\)"),
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
        (pd.to_datetime(["2024-01-01", "2024-01-02"]), r"column 'a' holds dates or times \(timestamp\[.s\]\)"),
        ([[1], [2]], r"column 'a' holds list<.*>; exclude"),
        ([b"x", b"y"], "column 'a' holds binary; exclude"),
        ([1.0, None], "row 2: column 'a' has no value"),
        ([1.0, np.nan], "row 2: column 'a' has no value"),
        ([np.inf, 1.0], "row 1: column 'a' must be finite and below 3.4e38; it is 'inf'"),
        (pa.array([None, None]), "row 1: column 'a' has no value"),
    ],
)
def test_what_is_wrong_with_a_parquet_column(tmp_path, column, message):
    with pytest.raises(TableError, match=message):
        read(parquet_file(tmp_path, a=column, y=[1, 2]), ["a"], ["y"])


def test_a_damaged_parquet_file(tmp_path):
    path = parquet_file(tmp_path, a=np.arange(1000.0), y=np.arange(1000.0))
    whole = path.read_bytes()
    for cut in (1, 4, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(TableError, match="not a Parquet file, or a damaged one"):
            read(path, ["a"], ["y"])


def test_a_late_bad_value_is_found_with_its_line(tmp_path):
    text = "a,y\n" + "1,2\n" * 70_000 + "?,2\n" + "1,2\n" * 10
    with pytest.raises(TableError, match=r"line 70002 has '\?'"):
        read(csv_file(tmp_path, text), ["a"], ["y"])


def test_a_late_gap_is_found_with_its_line(tmp_path):
    text = "a,y\n" + "1,2\n" * 70_000 + ",2\n" + "1,2\n" * 10
    with pytest.raises(TableError, match="line 70002: column 'a' has no value"):
        read(csv_file(tmp_path, text), ["a"], ["y"])


def test_text_in_a_column_that_was_of_numbers_in_training(tmp_path):
    encoding = Encoding((Column("a", "number"),), (Column("y", "number"),))
    table = open_table(csv_file(tmp_path, "a,y\n1,2\n1 kg,2\n"))
    with pytest.raises(TableError, match="line 3: column 'a' must be a number; it is '1 kg'"):
        sample(table, encoding, 9)


def test_an_unknown_category_is_named_with_the_known_ones(tmp_path):
    encoding = Encoding((Column("a", "category", ("blue", "red")),), (Column("y", "number"),))
    table = open_table(csv_file(tmp_path, "a,y\nred,2\ngreen,2\n"))
    with pytest.raises(TableError, match=r"line 3: column 'a' must be one of 'blue', 'red', .* it is 'green'"):
        sample(table, encoding, 9)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_all_unknown_categories_of_a_table_are_counted(tmp_path, ending, monkeypatch):
    monkeypatch.setattr(_tables, "ROWS", 4)
    encoding = Encoding((Column("a", "category", ("red", "blue")),), ())
    frame = pd.DataFrame({"a": ["red", "blue", "x", "red", "y", "x", "red", "green", "red"] * 2})
    getattr(frame, f"to_{ending}")(tmp_path / f"t.{ending}", index=False)
    with pytest.raises(TableError, match=r"as in training \(8 rows are not: 'x', 'y', 'green'\); it is 'x'"):
        list(encode(open_table(tmp_path / f"t.{ending}"), encoding))
    frame = pd.DataFrame({"a": [f"v{i}" for i in range(5000)]})
    getattr(frame, f"to_{ending}")(tmp_path / f"t.{ending}", index=False)
    with pytest.raises(TableError, match=r"\(5,000 rows are not: 'v0', .* 'v9' and others\); it is 'v0'"):
        list(encode(open_table(tmp_path / f"t.{ending}"), encoding))


def column_of(*cells):
    """A table with these cells and a target, as CSV."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([("a", "y"), *((cell, i) for i, cell in enumerate(cells))])
    return buffer.getvalue()


AGES = [str(age) for age in range(21, 61)]
SPELLINGS = [
    "1,5",
    "17,674",
    "17,674.5",
    "1.234,5",
    "1.234.567",
    "3.1%",
    "5 %",
    "0x1f",
    "1_000",
    "−2",
    "17\u202f674",
    "$5",
]


@pytest.mark.parametrize("marker", ["?", "-", "--", "n/a", "N.A.", "unknown", ".", "missing", "#N/A", "#DIV/0!"])
@pytest.mark.parametrize("numbers", [AGES, ["1", "2", "3"] * 9, ["7"]])
def test_numbers_with_a_marker_of_missing_values_are_no_categories(tmp_path, numbers, marker):
    path = csv_file(tmp_path, column_of(*numbers, *[marker] * max(1, len(numbers) // 4)))
    found = f"table.csv: column 'a' holds numbers and text (line {len(numbers) + 2} has {marker!r}), which looks like "
    with pytest.raises(TableError, match=re.escape(found) + "a missing value; .* fill it in, .* or --exclude"):
        read(path, ["a"], ["y"])
    with pytest.raises(TableError, match=f"'a' must hold numbers.*{re.escape(marker)}.* leave a cell .* empty"):
        read(path, ["y"], ["a"])


@pytest.mark.parametrize("spelled", SPELLINGS)
@pytest.mark.parametrize("others", [[], ["2"], AGES, ["?"]])
def test_numbers_that_are_spelled_otherwise_are_no_categories(tmp_path, spelled, others):
    path = csv_file(tmp_path, column_of(spelled, *others))
    with pytest.raises(TableError, match=f"{re.escape(f'line 2 has {spelled!r}')}.*; write numbers like -1234.5"):
        read(path, ["a"], ["y"])
    with pytest.raises(TableError, match=r"'a' must hold numbers.*; write numbers like -1234\.5"):
        read(path, ["y"], ["a"])


@pytest.mark.parametrize(
    "cells",
    [
        [*AGES, *["adult"] * 10],  # many numbers
        [*AGES, *["adult"] * 400],  # few of the cells, but nearly all different ones
        [str(number) for number in range(12)] * 4 + ["tow"],  # a slip
        ["NA", "1", "2"],  # in Parquet only
    ],
)
def test_words_among_numbers_are_no_categories(tmp_path, cells):
    with pytest.raises(TableError, match="column 'a' holds numbers and text"):
        read(parquet_file(tmp_path, a=cells, y=np.arange(len(cells))), ["a"], ["y"])


@pytest.mark.parametrize(
    ("cells", "warns"),
    [
        (["S", "M", "L", "38", "40"] * 4, False),
        (["S", "M", "L", "38", "40", "40", "38"] * 4, True),
        (["1", "2", "3"] * 9 + ["attic"] * 2, True),
        (["1", "2", "attic"], True),
        (["clay", "sand", "loam", "12", "?"] * 9, False),
        (["-", "+", "++"] * 9, False),
        (["1st", "2nd", "3rd"] * 9, False),
        (["1-2", "3-5", "6+"] * 9, False),
        (["1.2.3", "1.2.4"] * 9, False),
        (["u", *AGES[:10], *["v", "w"] * 30], True),
        (["yes", "no", "unknown"], False),
        (["u", "v", *(f"word {i}" for i in range(18))], False),  # too few rows to tell
        ([f"word {i % 30}" for i in range(60)], False),
    ],
)
def test_categories_may_be_numbers(tmp_path, cells, warns):
    path = csv_file(tmp_path, column_of(*cells))
    if warns:
        message = f"column 'a' holds numbers and text .*: each of its {len(set(cells))} different values becomes a cat"
        with pytest.warns(UserWarning, match=message):
            encoding, _ = read(path, ["a"], ["y"])
    else:
        encoding, _ = read(path, ["a"], ["y"])
    assert encoding.features[0].categories == tuple(sorted(set(cells)))


def test_numbers_that_are_categories_by_their_type(tmp_path):
    path = parquet_file(tmp_path, a=pa.array([*AGES, *AGES, "?"]).dictionary_encode(), y=np.arange(81))
    encoding, _ = read(path, ["a"], ["y"])
    assert encoding.features[0].categories == tuple(sorted(["?", *AGES]))


@pytest.mark.parametrize("encode", [lambda column: column, pa.Array.dictionary_encode])
def test_a_text_for_each_row_is_no_category(tmp_path, encode):
    names = pa.array([f"r{i}" for i in range(41)] + ["u"] * 10)
    path = parquet_file(tmp_path, a=encode(names), y=np.arange(51))
    with pytest.raises(TableError, match=r"'a' holds names or remarks \(row 1 has 'r0'\): most rows .*; exclude"):
        read(path, ["a"], ["y"])


@pytest.mark.filterwarnings("ignore:.*column 'a' holds")
@pytest.mark.parametrize(
    "levels",
    [
        [*range(1, 13), "K", "K", "K"],  # grades of a school
        [*range(1, 21), "attic", "G", "P"],  # floors
        [*range(32, 57, 2), "S", "M", "L", "XL"],  # sizes
        [*range(2000, 2011), "before 2000"],  # years
        [*range(11), "12+"],  # counts
        ["A+", "A", "B-"],
        ["1st class", "2nd class"],
        ["yes", "no"],
    ],
)
def test_categories_of_real_tables_are_not_refused(tmp_path, levels):
    cells = [str(level) for level in levels] * 20
    encoding, _ = read(parquet_file(tmp_path, a=cells, y=np.arange(len(cells))), ["a"], ["y"])
    assert encoding.features[0].categories == tuple(sorted(set(cells)))


@pytest.mark.filterwarnings("ignore:.*column 'a' holds")
def test_a_category_that_occurs_once_beside_few_codes_is_one(tmp_path):
    cells = ["0", "1", "2", "3", "4"] * 60 + ["other"]
    encoding, _ = read(parquet_file(tmp_path, a=cells, y=np.arange(301)), ["a"], ["y"])
    assert encoding.features[0].categories == ("0", "1", "2", "3", "4", "other")
    some = [f"r{i}" for i in range(21)] + ["u"] * 20
    encoding, _ = read(parquet_file(tmp_path, a=some, y=np.arange(41)), ["a"], ["y"])
    assert len(encoding.features[0].categories) == 22


def test_control_characters_do_not_reach_the_terminal(tmp_path):
    with pytest.raises(TableError) as caught:
        read(csv_file(tmp_path, "a,y\n1,\x1b[31mred\n"), ["a"], ["y"])
    assert "\x1b" not in str(caught.value)


def test_a_larger_table_is_represented_by_rows_drawn_evenly(tmp_path):
    path = parquet_file(tmp_path, a=np.arange(40_000.0), y=np.arange(40_000.0))
    encoding = Encoding((Column("a", "number"),), (Column("y", "number"),))
    data = sample(open_table(path), encoding, 5_000, seed=1)
    assert data.total == 40_000 and len(np.unique(data.row_index)) == 5_000
    np.testing.assert_array_equal(data.Y[:, 0], data.row_index)
    share = np.bincount(data.row_index // 4_000, minlength=10) / 5_000
    assert np.abs(share - 0.1).max() < 4 * np.sqrt(0.1 * 0.9 / 5_000)


TWO_TARGETS = Encoding(
    (Column("a", "number"), Column("b", "category", ("u",))), (Column("y", "number"), Column("z", "number"))
)


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
        check_targets(table, TWO_TARGETS, np.float64(Y), " that is left")


def test_text_may_come_late_in_a_column_of_few_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(_tables, "ROWS", 4)
    cells = ["1", "2", "1", "", "2", "1", "2", "2", "attic", "1", "", "attic"]
    text = "a,c,y\n" + "".join(f"{i},{cell or 'none'},{i}\n" for i, cell in enumerate(cells))
    with pytest.warns(UserWarning, match="'c' holds numbers and text"):
        encoding, data = read(csv_file(tmp_path, text), ["a", "c"], ["y"])
    assert encoding.features[1].categories == ("1", "2", "attic", "none")
    expected = [[cell == level for level in ("1", "2", "attic", "")] for cell in cells]
    np.testing.assert_array_equal(data.X[:, 1:], expected)


@pytest.mark.parametrize("distinct", [100, 101, 150])
def test_numbers_stay_the_same_when_there_are_too_many_to_be_categories(tmp_path, monkeypatch, distinct):
    monkeypatch.setattr(_tables, "ROWS", 40)
    numbers = np.arange(400) % distinct / 8
    text = "a,y\n" + "".join(f"{number},{'' if i % 3 else i}\n" for i, number in enumerate(numbers))
    _, data = read(csv_file(tmp_path, text), ["a"], ["y"])
    np.testing.assert_array_equal(data.X[:, 0], numbers)
    np.testing.assert_array_equal(data.Y[:, 0], np.where(np.arange(400) % 3, np.nan, np.arange(400)))


def test_a_training_table_is_parsed_once(tmp_path, monkeypatch):
    people(100).to_csv(tmp_path / "people.csv", index=False)
    table, read_columns = open_table(tmp_path / "people.csv"), []
    blocks = _tables.CsvTable.blocks
    monkeypatch.setattr(
        _tables.CsvTable, "blocks", lambda self, names: read_columns.append(names) or blocks(self, names)
    )
    learn(table, ["height", "age", "city", "member"], ["weight"])
    assert read_columns == [["height", "age", "city", "member", "weight"]]


def test_only_rows_with_a_target_are_drawn(tmp_path):
    y = np.where(np.arange(40_000) % 4 == 0, np.arange(40_000.0), np.nan)
    path = parquet_file(tmp_path, a=np.arange(40_000.0), y=y, z=np.full(40_000, np.nan))
    encoding = Encoding((Column("a", "number"),), (Column("y", "number"), Column("z", "number")))
    for most in (40_000, 10_000, 5_000):
        data = sample(open_table(path), encoding, most, with_target=True)
        assert data.total == 40_000 and len(np.unique(data.row_index)) == min(most, 10_000)
        np.testing.assert_array_equal(data.X[:, 0], data.row_index)
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
    _, data = read_again(table, ["Price", "Shelf"], ["Sales"])
    np.testing.assert_array_equal(data.Y[:, 0], CARSEATS["Sales"])
    np.testing.assert_array_equal(data.X[:, 0], CARSEATS["Price"])


def read_again(table, features, targets):
    learnt = learn(table, features, targets)
    return learnt.encoding, sample(table, learnt.encoding, learnt.total)


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
    ("cell", "message"),
    [
        ("1.5", "'a' holds numbers .*line 3 has '1.5'.*; write numbers like -1234,5.* or give --decimal ."),
        ("1.234", "'a' holds numbers .*line 3 has '1.234'.*; write numbers like -1234,5"),
        ("1.234,5", "'a' holds numbers .*line 3 has '1.234,5'.*; write numbers like -1234,5"),
    ],
)
def test_a_point_in_a_table_with_decimal_commas_is_never_guessed(tmp_path, cell, message):
    path = csv_file(tmp_path, f"a;y\n1,5;2\n{cell};3\n2,5;1\n")
    with pytest.raises(TableError, match=message):
        read(path, ["a"], ["y"])
    with pytest.raises(TableError, match=f"line 3: column 'a' must be a number; it is '{cell}'"):
        sample(open_table(path), Encoding((Column("a", "number"),), ()), 9)


def test_dates_and_words_with_marks_stay_as_they_are(tmp_path):
    path = csv_file(tmp_path, "d;w;y\n31.12.2024;a,b;1,5\n1.1.2025;1.2.3;2,5\n")
    table = open_table(path, Reading(delimiter=";", decimal=","))
    assert learn(table, ["w"], ["y"]).encoding.features[0].categories == ("1.2.3", "a,b")
    with pytest.raises(TableError, match="'d' holds dates or times"):
        learn(table, ["d"], ["y"])


def test_what_is_said_about_a_table_is_not_guessed(tmp_path):
    reading = Reading(delimiter=":", decimal=",", missing=("?", "none"), encoding="cp850")
    table = open_table(csv_file(tmp_path, "a;b:y\nKöln:1,5\nUlm:?\nUlm:none\nUlm:2\n".encode("cp850")), reading)
    encoding, data = read_again(table, ["a;b"], ["y"])
    assert encoding.features[0].categories == ("Köln", "Ulm")
    np.testing.assert_array_equal(data.Y[:, 0], [1.5, np.nan, np.nan, 2])
    assert open_table(csv_file(tmp_path, "a;y\n1,5;2\n"), Reading(delimiter=";", decimal=".")).decimal is None
    quoted = open_table(csv_file(tmp_path, 'a,y\n"1,5",2\n"2,5",1\n'), Reading(decimal=","))
    np.testing.assert_array_equal(read_again(quoted, ["a"], ["y"])[1].X[:, 0], [1.5, 2.5])
    parquet = open_table(parquet_file(tmp_path, a=["1,5", "?"], y=[1, 2]), Reading(missing=("?",), decimal=","))
    np.testing.assert_array_equal(learn(parquet, ["y"], ["a"]).Y[:, 0], [1.5])


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
