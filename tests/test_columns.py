"""Columns of tables as numbers: the same from any kind of table, and as other libraries compute them."""

import copy
import datetime
import decimal
import io
import json
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.impute import SimpleImputer

from mder_jax import columns
from mder_jax.columns import dates, numbers, ranges


def learn(table, **options):
    """Learn, and hand back what was said."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        encoding, encoded = columns.learn(table, **options)
    return encoding, encoded, [str(one.message) for one in said]


def quietly(table, **options):
    encoding, encoded, said = learn(table, **options)
    assert not said
    return encoding, encoded.X


def only(encoding):
    (column,) = encoding.columns
    return column


class Named:
    """A table that has nothing but names and columns."""

    def __init__(self, **content):
        self.columns, self._content = list(content), content

    def __getitem__(self, name):
        return self._content[name]


# ---- Any kind of table

ROWS = {"size": [1.5, None, 3.0, 4.5], "kind": ["a", "b", None, "a"], "new": [True, False, True, None]}
TABLES = {
    "lists": [list(row) for row in zip(*ROWS.values(), strict=True)],
    "objects": np.array(list(zip(*ROWS.values(), strict=True)), object),
    "pandas": pd.DataFrame(ROWS),
    "pandas, nullable": pd.DataFrame(ROWS).convert_dtypes(),
    "pandas, objects": pd.DataFrame(ROWS, dtype=object),
    "polars": pl.DataFrame(ROWS),
    "polars, categories": pl.DataFrame(ROWS).with_columns(pl.col("kind").cast(pl.Categorical)),
    "arrow": pa.table(ROWS),
    "arrow, batch": pa.RecordBatch.from_pydict(ROWS),
    "arrow, dictionary": pa.table(ROWS | {"kind": pa.array(ROWS["kind"]).dictionary_encode()}),
    "arrow, chunks": pa.concat_tables([pa.table(ROWS).slice(0, 1), pa.table(ROWS).slice(1)]),
    "text": pd.DataFrame({name: [None if x is None else str(x) for x in column] for name, column in ROWS.items()}),
    "anything": Named(**ROWS),
}


@pytest.mark.parametrize("kind", TABLES)
def test_every_kind_of_table_gives_the_same_numbers(kind):
    encoding, X = quietly(TABLES[kind])
    mean = 2 / 3
    expected = [[1.5, 0, 1, 0, 0, 1, 0], [3, 1, 0, 1, 0, 0, 0], [3, 0, 0, 0, 1, 1, 0], [4.5, 0, 1, 0, 0, mean, 1]]
    np.testing.assert_allclose(X, expected, rtol=1e-15)
    assert [column.kind for column in encoding.columns] == ["number", "category", "boolean"]
    assert encoding.names == (None if kind in ("lists", "objects") else list(ROWS))


@pytest.mark.parametrize("kind", TABLES)
def test_a_later_table_may_be_of_another_kind(kind):
    encoding, X = quietly(TABLES["pandas"])
    later = encoding.encode(TABLES[kind])
    np.testing.assert_array_equal(later.X, X)
    assert not later.novelty.any() and not later.outside


@pytest.mark.parametrize("dtype", [float, np.float32, np.float16, int, np.uint8, bool, object])
def test_arrays_of_numbers_stay_as_they_are(dtype):
    table = np.array([[0, 1, 0], [1, 0, 0], [1, 1, 0]]).astype(dtype)
    encoding, X = quietly(table)  # a constant column of an array without names is kept
    np.testing.assert_array_equal(X, table.astype(float))
    assert encoding.width == 3 and encoding.names is None and encoding.embedded == ()
    np.testing.assert_array_equal(encoding.encode(table).X, X)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table])
def test_frames_of_numbers_stay_as_they_are(frame):
    content = {"a": np.array([1.5, 2.5, -1.0]), "b": np.array([3, 2, 2])}
    encoding, X = quietly(frame(content))
    np.testing.assert_array_equal(X, np.stack(list(content.values()), axis=1))
    np.testing.assert_array_equal(encoding.encode(frame(content)).X, X)


def test_objects_that_are_numbers():
    values = [decimal.Decimal("1.5"), 2, np.float32(2.5), None, np.nan, pd.NA, "4", 10**30]
    _, X = quietly(pd.DataFrame({"x": pd.Series(values, dtype=object)}))
    known = [1.5, 2, 2.5, 4]
    np.testing.assert_array_equal(X[[0, 1, 2, 6], 0], known)
    np.testing.assert_array_equal(X[:, 1], [0, 0, 0, 1, 1, 1, 0, 0])


@pytest.mark.parametrize(
    ("column", "kind", "first"),
    [
        (pd.cut(pd.Series([1.0, 2.0, 3.0]), 2), "category", 1.0),
        (pd.Series(pd.Categorical([5, 7, 5], categories=[9, 7, 5])), "category", 1.0),
        (pd.Series(pd.period_range("1970-01", periods=3, freq="M")), "date", 1970.0),
        (pd.Series(pd.to_timedelta([1, 2, 4], unit="min")), "number", 60.0),
        (np.array([1, 2, 4], "timedelta64[h]"), "number", 3600.0),
        (np.array(["1970-01", "1971-01", "NaT"], "datetime64[M]"), "date", 1970.0),
        (pd.Series([datetime.date(1970, 1, 1), "1970-01-02", pd.NaT], dtype=object), "date", 1970.0),
        (pd.Series(pd.arrays.SparseArray([3.0, 0.0, 1.0])), "number", 3.0),
        (pl.Series(["x", "y", "x"], dtype=pl.Enum(["z", "y", "x"])), "category", 1.0),
        (pa.array([1, 2, 4], pa.decimal128(9, 2)), "number", 1.0),
        (pa.array(["x", "y", "x"], pa.string_view()), "category", 1.0),
    ],
)
def test_other_types_of_columns(column, kind, first):
    table = Named(a=column)
    encoding, X = quietly(table)
    assert only(encoding).kind == kind and X[0, 0] == first
    np.testing.assert_array_equal(encoding.encode(table).X, X)


def test_masked_cells_are_missing():
    table = np.ma.array([[1.0], [7.0], [3.0]], mask=[[False], [True], [False]])
    np.testing.assert_array_equal(quietly(table)[1], [[1, 0], [2, 1], [3, 0]])


def test_plain_numbers_do_not_import_pyarrow():
    script = """
import sys, numpy as np
from mder_jax import columns
X = np.array([[1.0, 2.0], [3.0, np.nan], [4.0, 5.0]])
encoding, _ = columns.learn(X)
encoding.encode(X), encoding.encode(9 * X, quiet=True)
assert not {"pyarrow", "jax", "pandas", "sklearn"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)


# ---- Gaps


def test_gaps_are_filled_and_marked_as_scikit_learn_does():
    rng = np.random.default_rng(0)
    table = np.where(rng.random((50, 3)) < 0.2, np.nan, rng.normal(size=(50, 3)))
    _, X = quietly(table)
    expected = SimpleImputer(add_indicator=True).fit_transform(table)[:, [0, 3, 1, 4, 2, 5]]
    np.testing.assert_allclose(X, expected, rtol=1e-14)


def test_the_same_gaps_are_marked_once():
    gaps = {"a": [1.0, None, 2.0, 4.0], "b": [5.0, None, 7.0, 7.0], "c": [1.0, 2.0, None, 3.0]}
    encoding, _ = quietly(pd.DataFrame(gaps))
    assert [column.indicator for column in encoding.columns] == [True, False, True] and encoding.width == 5
    assert all(column.gaps for column in encoding.columns)
    assert not encoding.encode(pd.DataFrame(gaps)).novelty.any()


def test_a_gap_where_training_had_none():
    encoding, _ = quietly(pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": ["x", "y", "x"], "c": [1.0, None, 2.0]}))
    with pytest.warns(
        UserWarning, match="1 of 2 rows has no value in 'a', which had no gaps in training; 1 of 2 .* 'b'"
    ):
        later = encoding.encode(pd.DataFrame({"a": [None, 1.0], "b": [None, "x"], "c": [None, 2.0]}))
    np.testing.assert_array_equal(later.X, [[2, 0, 0, 1.5, 1], [1, 1, 0, 2, 0]])
    np.testing.assert_array_equal(later.novelty, [0.2, 0])
    assert {name: rows.tolist() for name, rows in later.outside.items()} == {"a": [True, False], "b": [True, False]}


# ---- Numbers in text

SPELLINGS = {
    "decimal comma": (["1,5", "2,25", "-3,125", "4"], [1.5, 2.25, -3.125, 4]),
    "decimal comma, points between thousands": (
        ["1.234,5", "2.000", "12,75", "1.234.567"],
        [1234.5, 2000, 12.75, 1234567],
    ),
    "decimal comma after a zero": (["0,125", "0,250", "1,500"], [0.125, 0.25, 1.5]),
    "commas between thousands": (["17,674.5", "1,200", "15.25"], [17674.5, 1200, 15.25]),
    "only commas between thousands": (["1,234", "5,678", "123"], [1234, 5678, 123]),
    "other marks between thousands": (["1_000", "2'000", "3 000.5", "4\u202f000"], [1000, 2000, 3000.5, 4000]),
    "percent": (["3.1 %", "4%", "5", "7 ‰"], [0.031, 0.04, 5, 0.007]),
    "currency": (["$5", "-$6.5", "€ 7", "8 £"], [5, -6.5, 7, 8]),
    "minus": (["−2", "–3", "+4", "-5"], [-2, -3, 4, -5]),
    "exponent": (["1,5e3", "2,5E-2", "1"], [1500, 0.025, 1]),
}


@pytest.mark.parametrize("kind", SPELLINGS)
def test_numbers_as_people_write_them(kind):
    texts, values = SPELLINGS[kind]
    encoding, encoded, said = learn(pd.DataFrame({"price": texts, "other": range(len(texts))}))
    np.testing.assert_allclose(encoded.X[:, 0], np.clip(values, *encoding.columns[0].ranges[0][:2]), rtol=1e-15)
    np.testing.assert_allclose(numbers.parse(pa.array(texts), encoding.columns[0].decimal), values, rtol=1e-15)
    (warning,) = said
    odd = next(text for text in texts if not text.lstrip("-").replace(".", "", 1).isdigit())
    assert warning.startswith("text was read so: 'price' (") and f"{odd!r} is read as" in warning
    later = encoding.encode(pd.DataFrame({"price": texts, "other": range(len(texts))}), quiet=True)
    np.testing.assert_array_equal(later.X, encoded.X)


@pytest.mark.parametrize(("decimal_mark", "thousands"), [(",", "."), (".", ",")])
def test_numbers_are_those_that_pandas_reads(decimal_mark, thousands):
    values = np.round(np.random.default_rng(0).lognormal(6, 3, 200), 2)
    swap = str.maketrans({",": thousands, ".": decimal_mark})
    texts = [f"{value:,}".translate(swap) for value in values]
    read = pd.read_csv(io.StringIO("\n".join(["x", *texts])), sep=";", decimal=decimal_mark, thousands=thousands)
    assert numbers.decimal_mark(pa.array(texts)) == decimal_mark
    np.testing.assert_array_equal(numbers.parse(pa.array(texts), decimal_mark), read["x"])


def test_what_is_not_a_number():
    texts = ["1.5", "1,23", "a", "5$5", "0x1f", "1.2.3", "--1", "1e5", ""]
    np.testing.assert_array_equal(numbers.parse(pa.array(texts)), [1.5, *[np.nan] * 6, 1e5, np.nan])


@pytest.mark.parametrize("marker", ["?", "-", "n/a", "unknown", "#N/A", "..."])
def test_markers_of_missing_numbers(marker):
    encoding, encoded, said = learn(pd.DataFrame({"hours": ["1", marker, "3", "8"]}))
    np.testing.assert_array_equal(encoded.X, [[1, 0], [4, 1], [3, 0], [8, 0]])
    assert said == [f"text was read so: 'hours' ({marker!r} counts as missing)"]
    with pytest.warns(
        UserWarning, match=r"1 of 2 rows has text in 'hours' that is no number and counts as missing \('x'\)"
    ):
        np.testing.assert_array_equal(encoding.encode([["x"], [marker]]).X, [[4, 1], [4, 1]])


def test_a_few_words_among_many_numbers_are_gaps():
    texts = [str(number) for number in range(40)] + ["sold out", "see below"]
    encoding, encoded, said = learn(pd.DataFrame({"price": texts}))
    assert only(encoding).kind == "number" and encoded.X[-1].tolist() == [19.5, 1]
    assert said == ["text was read so: 'price' ('sold out', 'see below' count as missing)"]


def test_a_few_numbers_among_words_are_categories():
    encoding, _, said = learn(pd.DataFrame({"floor": ["1", "2", "attic", "1", "3"]}))
    assert only(encoding).levels == ("1", "2", "3", "attic")
    assert said == ["text was read so: 'floor' (numbers and text such as 'attic': each value is a category)"]


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e39, "inf", "1e400"])
@pytest.mark.parametrize("later", [False, True])
def test_infinite_numbers_are_refused_with_column_and_row(value, later):
    table = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": pd.Series([1.0, 2.0, value], dtype=object)})
    encoding, _ = quietly(table.iloc[:2])
    with pytest.raises(columns.CellError) as error:
        encoding.encode(table) if later else columns.learn(table)
    told = f"column 'b' must hold finite numbers below 3.4e38; got {float(value):g}"
    assert str(error.value) == f"{told} (row 2, counted from 0)"
    assert error.value.located(lambda row: f"line {row + 2}") == f"{told} (line 4)"


# ---- Categories


def test_one_hot_as_pandas_does():
    table = pd.DataFrame({"island": list("bacabc"), "sex": ["f", "m", None, "m", "f", None]})
    _, X = quietly(table)
    expected = pd.concat([pd.get_dummies(table["island"]), pd.get_dummies(table["sex"], dummy_na=True)], axis=1)
    np.testing.assert_array_equal(X, expected)


def test_numbers_are_categories_if_asked_for():
    table = pd.DataFrame({"code": [3.0, 1.0, 3.0, np.nan], "x": [1.0, 2.0, 4.0, 5.0]})
    for which in (["code"], [0], np.array([0])):
        encoding, X = quietly(table, categorical=which)
        assert encoding.columns[0].levels == ("1", "3")
        np.testing.assert_array_equal(X[:, :3], [[0, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    same = pd.DataFrame({"code": ["3", "1.0", "3.0", ""], "x": [1, 2, 4, 5]})  # as a CSV file may have it
    np.testing.assert_array_equal(encoding.encode(same).X, X)


@pytest.mark.parametrize(
    ("which", "error", "message"),
    [
        (["size"], ValueError, "categorical names 'size', but the columns are 'code'"),
        ([1], ValueError, "categorical names '1', but the columns"),
        ("code", TypeError, "categorical must be a list; got 'code'"),
        ([None], TypeError, "categorical must hold names or positions of columns; got None"),
        ([True], TypeError, "got True"),
    ],
)
def test_categorical_must_name_columns(which, error, message):
    with pytest.raises(error, match=message):
        columns.learn(pd.DataFrame({"code": [1, 2]}), categorical=which)


def test_more_than_twelve_levels_are_one_column_of_indices():
    letters = [*"abcdefghijklm", None]
    encoding, X = quietly(pd.DataFrame({"x": range(14), "letter": letters}))
    assert encoding.embedded == ((1, 15),) and encoding.width == 2
    np.testing.assert_array_equal(X[:, 1], np.arange(1, 15))  # 0 is for others, the last for gaps
    later = encoding.encode(pd.DataFrame({"x": [1, 2, 3], "letter": ["z", None, "b"]}), quiet=True)
    assert later.X[:, 1].tolist() == [0, 14, 2] and later.novelty.tolist() == [1, 0, 0]
    twelve, _ = quietly(pd.DataFrame({"letter": letters[:12]}))
    assert twelve.embedded == () and twelve.width == 12
    thirteen, _ = quietly(pd.DataFrame({"letter": letters[:13]}))
    assert thirteen.embedded == ((0, 14),)


def test_rare_levels_are_put_together():
    table = pd.DataFrame({"kind": ["a"] * 60 + ["b"] * 37 + ["c"] * 2 + ["d"]})
    encoding, X = quietly(table)
    assert only(encoding).levels == ("a", "b") and only(encoding).other
    np.testing.assert_array_equal(X[[0, 60, 97, 99]], [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]])
    message = r"2 of 4 rows have a level of 'kind' that training had rarely or never: 'new' \(2\)$"
    with pytest.warns(UserWarning, match=message):
        later = encoding.encode(pd.DataFrame({"kind": ["a", "new", "new", "b"]}))
    np.testing.assert_array_equal(later.novelty, [0, 0.05, 0.05, 0])
    _, with_gaps = quietly(pd.concat([table, pd.DataFrame({"kind": [None]})]))
    np.testing.assert_array_equal(with_gaps[[0, 60, 97, 100]], np.eye(4)[[0, 1, 3, 2]])
    few, _ = quietly(table.iloc[10:])  # of fewer than 100 rows all levels are kept
    assert only(few).levels == ("a", "b", "c", "d") and not only(few).other


def test_levels_without_training():
    encoding, _ = quietly(pd.DataFrame({"city": ["Gent", "Brugge", "Gent"]}))
    with pytest.warns(UserWarning, match=r"3 of 4 rows have .* 'city' .*: 'Anvers' \(2\), 'Liège' \(1\)$"):
        later = encoding.encode(pd.DataFrame({"city": ["Liège", "Anvers", "Gent", "Anvers"]}))
    np.testing.assert_array_equal(later.X, [[0, 0], [0, 0], [0, 1], [0, 0]])
    np.testing.assert_array_equal(later.novelty, [1, 1, 0, 1])
    assert later.outside["city"].tolist() == [True, True, False, True]
    with pytest.warns(UserWarning, match=r"'e' \(1\) and others$"):
        encoding.encode([[letter] for letter in "abcdefg"])


def test_of_very_many_levels_the_most_frequent_are_kept():
    codes = np.concatenate([np.arange(100_000), np.arange(100_000), np.arange(50_000), np.arange(1500)])
    encoding, X = quietly(pd.DataFrame({"code": codes}), categorical=["code"])
    assert encoding.embedded == ((0, 2001),) and {str(code) for code in range(1500)} <= set(only(encoding).levels)
    assert (X[codes >= 50_000] == 0).all() and (X[codes < 1500] > 0).all()


# ---- Dates


def years(moments):
    """As `dates` counts them, from the nanoseconds of pandas."""
    return 1970 + moments.astype("datetime64[ns]").astype(np.int64).to_numpy() / 1e9 / (365.2425 * 86400)


def angles(fraction):
    return [np.sin(2 * np.pi * fraction), np.cos(2 * np.pi * fraction)]


@pytest.mark.parametrize("kind", ["numpy", "pandas", "polars", "text", "objects", "zone"])
def test_times_become_years_the_season_and_the_time_of_day(kind):
    moments = pd.Series(pd.date_range("2019-11-05", periods=40, freq="301h")).dt.as_unit("us")
    table = {
        "numpy": lambda: moments.to_numpy()[:, None],
        "pandas": lambda: moments.to_frame("when"),
        "polars": lambda: pl.DataFrame({"when": moments.to_list()}),
        "text": lambda: moments.dt.strftime("%Y-%m-%dT%H:%M:%S").to_frame("when"),
        "objects": lambda: [[moment.to_pydatetime()] for moment in moments],
        "zone": lambda: moments.dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo").to_frame("when"),
    }[kind]()
    encoding, X = quietly(table)
    day = (moments.dt.hour * 3600 + moments.dt.minute * 60) / 86400
    season = (moments.dt.day_of_year - 1 + day) / (365 + moments.dt.is_leap_year)
    np.testing.assert_allclose(X, np.stack([years(moments), *angles(season), *angles(day)], axis=1), atol=1e-9)
    assert only(encoding).parts == ("year", "season", "clock")
    np.testing.assert_array_equal(encoding.encode(table).X, X)


def test_dates_of_a_few_weeks_have_no_season_and_no_time_of_day():
    encoding, X = quietly(pd.DataFrame({"when": [datetime.date(2020, 1, day) for day in range(1, 29)]}))
    assert only(encoding).parts == ("year",)
    np.testing.assert_allclose(np.diff(X[:, 0]), 1 / 365.2425, rtol=1e-9)


WRITTEN = {
    "2021-03-04": ("ymd", False),
    "2021/03/04": ("ymd", False),
    "2021-03-04 17:05": ("ymd", False),
    "2021-03-04T17:05:06.25Z": ("ymd", False),
    "2021-03-04 17:05:06+05:30": ("ymd", False),
    "04.03.2021": ("dmy", False),
    "4.3.21": ("dmy", False),
    "03/04/2021": ("mdy", True),
    "3/4/2021 5:05 PM": ("mdy", True),
    "13/04/2021": ("dmy", False),
    "04/13/2021 12:05 am": ("mdy", False),
    "11/11/2007": ("mdy", False),
}


@pytest.mark.parametrize("text", WRITTEN)
def test_dates_as_people_write_them(text):
    order, guessed = WRITTEN[text]
    assert dates.order_of(pa.array([text])) == (order, guessed)
    expected = pd.to_datetime([text], dayfirst=order == "dmy", utc=True, format="mixed").as_unit("us").asi8 / 1e6
    np.testing.assert_array_equal(dates.parse(pa.array([text]), order), expected)


def test_the_order_of_a_date_is_decided_by_the_whole_column():
    texts = ["01/02/2020", "03/04/2020", "25/12/2020"]
    _, encoded, said = learn(pd.DataFrame({"when": texts, "x": range(3)}))
    np.testing.assert_allclose(encoded.X[:, 0], years(pd.to_datetime(pd.Series(texts), dayfirst=True)), rtol=1e-12)
    assert not said
    _, encoded, said = learn(pd.DataFrame({"when": texts[:2], "x": range(2)}))
    np.testing.assert_allclose(encoded.X[:, 0], years(pd.to_datetime(pd.Series(texts[:2]))), rtol=1e-12)
    assert said == ["text was read so: 'when' ('01/02/2020' is read as 2020-01-02, the month first)"]


@pytest.mark.parametrize(
    "text",
    ["2021-02-29", "2021-13-01", "2021-00-10", "0000-01-01", "2021-01-32", "2021-01-01 25:00", "2021-01-01 10:75"],
)
def test_dates_that_do_not_exist_are_refused(text):
    table = pd.DataFrame({"when": ["2020-02-29", "2020-02-29", text, text]})
    message = rf"column 'when' holds '{text}', a date that does not exist \(row 2, counted from 0\)"
    with pytest.raises(columns.CellError, match=message):
        columns.learn(table)
    encoding, _ = quietly(table.assign(when=["2020-02-29", "2021-01-01"] * 2))
    with pytest.raises(columns.CellError, match=message):
        encoding.encode(table)


def test_dates_before_the_year_one_are_refused():
    with pytest.raises(ValueError, match=r"column 'x0' has a date before the year 1 or after 9999 \(row 1, counted"):
        columns.learn(np.array(["2020-01-01", "-0005-01-01"], "datetime64[s]")[:, None])


@pytest.mark.parametrize("texts", [True, False])
def test_times_of_day(texts):
    clock = [datetime.time(0), datetime.time(6, 30), datetime.time(18), datetime.time(23, 59, 30)]
    encoding, X = quietly(pa.table({"at": [one.isoformat() for one in clock] if texts else clock}))
    hours = np.array([0, 6.5, 18, 23 + 59.5 / 60])
    np.testing.assert_allclose(X, np.stack([hours, *angles(hours / 24)], axis=1), atol=1e-12)
    with pytest.raises(ValueError, match=r"column 'at' holds '24:30', a time that does not exist \(row 1, "):
        encoding.encode(pa.table({"at": ["10:00", "24:30"]}))


def test_gaps_in_dates_and_dates_beyond_those_of_training():
    when = pd.Series(pd.to_datetime(["2020-01-01", "2020-06-01", None, "2021-01-01", "2021-06-30"]))
    encoding, X = quietly(pd.DataFrame({"when": when}))
    assert encoding.width == 4 and X[2, 0] == pytest.approx(np.delete(X[:, 0], 2).mean()) and X[2, 3] == 1
    message = r"1 of 2 rows is far outside the range of training in 'when' \(2020-01-01 to 2021-06-30\)"
    with pytest.warns(UserWarning, match=message):
        later = encoding.encode(pd.DataFrame({"when": pd.to_datetime(["2024-01-01", "2020-06-01"])}))
    assert later.novelty[0] > 1 and later.novelty[1] == 0


def test_a_column_of_dates_must_stay_one():
    encoding, _ = quietly(pd.DataFrame({"when": pd.date_range("2020-01-01", periods=5)}))
    with pytest.raises(ValueError, match="column 'when' held dates in training and holds numbers now"):
        encoding.encode(pd.DataFrame({"when": [1.0, 2.0]}))
    assert encoding.encode(pd.DataFrame({"when": [np.nan]}), quiet=True).novelty.tolist() == [0.1]


# ---- Values far from training


def test_the_range_ends_before_a_mistyped_cell():
    hours = np.append(np.random.default_rng(0).uniform(0, 100, 500), 1e6)
    low, high = ranges.limits(hours)
    assert low == hours.min() and 900 < high < 1100
    encoding, X = quietly(pd.DataFrame({"hours": hours}))
    assert high < X[-1, 0] < high + 0.25 * (high - low) and (X[:-1, 0] == hours[:-1]).all()
    assert encoding.encode(pd.DataFrame({"hours": [1e6]}), quiet=True).novelty[0] == 1e6


def test_limits_are_those_of_the_formula():
    values = np.random.default_rng(1).standard_cauchy(401)
    q05, q95 = np.quantile(values, [0.05, 0.95])  # with 401 values these are values
    expected = max(values.min(), q05 - 10 * (q95 - q05)), min(values.max(), q95 + 10 * (q95 - q05))
    assert ranges.limits(values) == pytest.approx(expected, rel=1e-14)
    mostly_zero = np.concatenate([np.zeros(970), np.arange(100.0, 130.0)])
    assert ranges.limits(mostly_zero) == (0, 129)  # the median is inside
    assert ranges.limits(np.concatenate([np.zeros(970), np.linspace(100, 101, 30)])) == (0, 101)
    assert ranges.limits(np.append(mostly_zero, 1e9)) == (0, 128 + 10 * (128 - 102))
    assert ranges.limits(np.append(np.zeros(99), 7.0)) == (0, 7) and ranges.limits(np.ones(9)) == (1, 1)


def test_values_beyond_the_range_are_drawn_to_it():
    x = np.array([-9.0, 0, 3, 10, 11, 20, 1e30])
    m = 0.25 * 10
    above = [10 + m * (u / (1 + u)) for u in [1 / m, 10 / m]]
    np.testing.assert_allclose(
        ranges.squash(x, 0, 10), [-m * (9 / m) / (1 + 9 / m), 0, 3, 10, *above, 10 + m], rtol=1e-14
    )
    plain = ranges.Range(0, 10, 5)
    np.testing.assert_allclose(ranges.novelty(x, plain), [3.6**4, 0, 0, 0, 0.4**4, 4.0**4, 1e6], rtol=1e-14)
    grid = np.linspace(-50, 50, 1001)
    assert (np.diff(ranges.squash(grid, 0, 10)) > 0).all()


def test_the_third_value_from_an_end_is_known_and_lone_ones_beyond_it_are_not():
    """A column with a heavy tail has such values; one or two cells may be mistyped."""
    random = np.random.default_rng(0)
    heavy = np.concatenate([random.uniform(0, 1, 500), [40.0, 50.0, 60.0, 70.0]])
    encoding, X = quietly(pd.DataFrame({"x": heavy}))
    known = encoding.columns[0].ranges[0]
    assert known.high < 12 and known.high + known.above == 50 and known.below == 0
    assert X[:, 0].max() < known.high + 0.25 * (known.high - known.low)  # drawn in all the same
    assert encoding.encode(pd.DataFrame({"x": [0.5, 20.0, 49.9]}), quiet=True).novelty.tolist() == [0, 0, 0]
    width = 50 - known.low
    far = encoding.encode(pd.DataFrame({"x": [50 + 0.1 * width, 50 + width]}), quiet=True).novelty
    np.testing.assert_allclose(far, [0.4**4, 4.0**4], rtol=1e-12)
    again = columns.Encoding.from_json(json.loads(json.dumps(encoding.to_json())))
    assert again.columns[0].ranges == encoding.columns[0].ranges
    low = quietly(pd.DataFrame({"x": -heavy}))[0].columns[0].ranges[0]
    assert low.low - low.below == -50 and low.above == 0
    lone = quietly(pd.DataFrame({"x": heavy[:-2]}))[0].columns[0].ranges[0]
    assert lone.above == 0


def test_a_range_of_an_earlier_file_has_no_tails():
    encoding, _ = quietly(pd.DataFrame({"x": np.arange(9.0)}))
    stored = encoding.to_json()
    stored["columns"][0]["ranges"] = [stored["columns"][0]["ranges"][0][:3]]
    assert columns.Encoding.from_json(stored).columns[0].ranges == (ranges.Range(0, 8, 4, 0, 0),)


def test_rows_outside_are_flagged_and_reported():
    table = pd.DataFrame({"weight": [1613.0, 3000.0, 5140.0], "year": [70.0, 75.0, 82.0]})
    encoding, _ = quietly(table)
    message = r"^2 of 4 rows are far outside the range of training in 'weight' \(1613 to 5140\)$"
    later = pd.DataFrame({"weight": [16130.0, 0, 2000, 5141], "year": [70.0, 71, 72, 84.3]})
    with pytest.warns(UserWarning, match=message):  # less than a fifth of the width is not worth a word
        encoded = encoding.encode(later)
    assert {name: rows.tolist() for name, rows in encoded.outside.items()} == {"weight": [True, True, False, False]}
    excess = np.array([16130 - 5140, 1613, 0, 1]) / (5140 - 1613)
    year = np.array([0, 0, 0, 2.3]) / 12
    np.testing.assert_allclose(encoded.novelty, (excess / 0.25) ** 4 + (year / 0.25) ** 4, rtol=1e-9)
    assert encoding.encode(later, quiet=True).novelty.tolist() == encoded.novelty.tolist()
    np.testing.assert_array_equal(encoding.encode(later.to_numpy(), quiet=True).X, encoded.X)
    with pytest.warns(UserWarning, match=r"^1 of 1 rows is far outside .* in 'year' \(70 to 82\)$"):
        assert list(encoding.encode([[2000.0, 84.5]]).outside) == ["year"]
    assert not encoding.encode([[2000.0, 82.1]]).outside


def test_a_few_far_values_of_an_array_are_as_those_of_any_table():
    table = np.random.default_rng(0).uniform(size=(50, 4))
    encoding, _ = quietly(table)
    assert encoding.encode(table).X is table  # nothing is copied
    later = table.copy()
    later[3, 1], later[5, 1], later[5, 3], later[7, 0] = 9.0, -9.0, 1.05, np.nan
    before = later.copy()
    array, others = encoding.encode(later, quiet=True), encoding.encode(later.astype(object), quiet=True)
    np.testing.assert_array_equal(array.X, others.X)
    np.testing.assert_array_equal(array.novelty, others.novelty)
    assert list(array.outside) == list(others.outside) == ["x0", "x1"]
    for name, rows in array.outside.items():
        np.testing.assert_array_equal(rows, others.outside[name])
    np.testing.assert_array_equal(later, before)
    later[1, 2] = np.inf
    with pytest.raises(columns.CellError, match=r"^column 'x2' must hold finite .*; got inf \(row 1, "):
        encoding.encode(later)


def test_another_value_of_a_constant_column():
    encoding, _ = quietly(np.ones((3, 1)))
    later = encoding.encode([[2.0], [1.0]], quiet=True)
    assert later.X.tolist() == [[1.0], [1.0]] and later.novelty.tolist() == [1, 0]


# ---- Columns that are left out


def test_what_cannot_be_learnt_from_is_left_out_in_one_warning():
    count = 30
    table = pd.DataFrame(
        {
            "Unnamed: 0": range(count),
            "id": [str(number) for number in range(1, count + 1)],
            "name": [f"row {number}" for number in range(count)],
            "empty": [None] * count,
            "same": [5] * count,
            "word": ["x"] * count,
            "some": [1.0, None] * 15,
            "x": np.arange(count),
        }
    )
    encoding, encoded, said = learn(table)
    assert said == [
        "columns left out: 'Unnamed: 0' (a number of its own in every row), 'id' (a number of its own in every row), "
        "'name' (text that is different in most rows), "
        "'empty' (no value in any row), 'same' (the same in every row), 'word' (the same in every row)"
    ]
    assert encoding.left_out == ("Unnamed: 0", "id", "name", "empty", "same", "word")
    assert [column.name for column in encoding.columns] == ["some", "x"]  # a gap, or its absence, tells something
    np.testing.assert_array_equal(encoding.encode(table[["x", "some"]]).X, encoded.X)


def test_texts_that_hardly_ever_occur_again_are_left_out():
    table = pd.DataFrame({"name": [f"n{number // 2}" for number in range(200)], "x": range(200)})
    assert learn(table)[2] == ["columns left out: 'name' (text that is different in most rows)"]
    assert learn(table, categorical=["name"])[2] == ["columns left out: 'name' (no text occurs 3 times)"]


def test_a_counter_stays_if_it_is_all_there_is():
    assert quietly(pd.DataFrame({"id": range(9)}))[0].width == 1
    assert quietly(pd.DataFrame({"no": [3, 1, 2], "x": [1.0, 2.0, 4.0]}))[0].width == 2  # not in order


@pytest.mark.parametrize("name", ["ID", "customer_id", "GameID", "Unnamed: 0"])
def test_numbers_of_rows_in_any_order_are_left_out(name):
    with pytest.warns(UserWarning, match=f"columns left out: '{name}' .a number of its own in every row"):
        encoding, _ = columns.learn(pd.DataFrame({name: [30, 12, 25, 7], "x": [1.0, 2.0, 4.0, 5.0]}))
    assert encoding.left_out == (name,)
    assert quietly(pd.DataFrame({name: [30, 30, 25, 7], "x": [1.0, 2.0, 4.0, 5.0]}))[0].width == 2


@pytest.mark.parametrize("name", ["paid", "humid", "x1"])
def test_other_integers_stay(name):
    assert quietly(pd.DataFrame({name: [30, 12, 25, 7], "x": [1.0, 2.0, 4.0, 5.0]}))[0].width == 2


def test_a_table_without_anything_to_learn_from():
    message = r"no column to learn from: 'a' \(the same in every row\), 'b' \(no value in any row\)"
    with pytest.raises(ValueError, match=message):
        columns.learn(pd.DataFrame({"a": ["x", "x"], "b": [None, None]}))


# ---- Bad tables


def test_all_complaints_come_at_once():
    table = pa.table({"a": [[1], [2]], "b": [{"x": 1}] * 2, "c": [b"a", b"b"], "d": [1.0, np.inf], "e": [1.0, 2.0]})
    with pytest.raises(TypeError, match="4 columns cannot be used") as error:
        columns.learn(table)
    for part in (
        "'a' holds lists",
        "'b' holds dicts",
        "'c' holds bytes",
        "'d' must hold finite",
        "argument must be a string or a number",
    ):
        assert part in str(error.value)
    assert "'e'" not in str(error.value)


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        ([[1, {"a": 1}], [2, 3]], TypeError, "column 'x1' holds dict .* argument must be a string or a number"),
        ([[1, 1j], [2, 3]], TypeError, "column 'x1' holds complex|Complex data not supported"),
        (np.array([[1j]]), TypeError, "Complex data not supported"),
        (np.array([[b"a"]]), TypeError, "got an array of |S1"),
        (np.ones(3), ValueError, r"must be a 2D array \(N, d\); got shape \(3,\). Reshape your data"),
        ([1, 2], ValueError, "Reshape your data"),
        ([[1, 2], [3]], ValueError, "the same length"),
        ([[1, "a"], [3]], ValueError, "the same length"),
        (np.ones((0, 2)), ValueError, "0 sample"),
        (
            pd.DataFrame(index=range(3)),
            ValueError,
            r"0 feature\(s\) \(shape=\(3, 0\)\) while a minimum of 1 is required",
        ),
        (pd.Series([1, 2]), ValueError, "give series.to_frame()"),
        (pl.LazyFrame({"a": [1]}), TypeError, "give table.collect()"),
        ("a.csv", TypeError, "must be an array, a list of rows or a data frame; got str"),
        (None, TypeError, "got NoneType"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), ValueError, "several columns are named 'a'"),
        (Named(a=[1, 2], b=[1]), ValueError, r"the same length; got \[1, 2\]"),
    ],
)
def test_what_is_not_a_table(table, error, message):
    with pytest.raises(error, match=message):
        columns.learn(table)


def test_sparse_matrices_are_refused():
    from scipy import sparse

    with pytest.raises(TypeError, match=r"Sparse data was passed.*toarray"):
        columns.learn(sparse.eye(3))


# ---- Names and positions


def test_columns_are_found_by_name_if_both_have_names():
    table = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [4.0, 5.0, 7.0]})
    encoding, X = quietly(table)
    np.testing.assert_array_equal(encoding.encode(table[["b", "a"]].assign(c="x")).X, X)
    np.testing.assert_array_equal(encoding.encode(table.to_numpy()).X, X)
    with pytest.raises(
        ValueError, match=r"the table has no column 'b' \(did you mean 'B'\?\); its columns are 'a', 'B'"
    ):
        encoding.encode(table.rename(columns={"b": "B"}))
    with pytest.raises(ValueError, match="X has 1 features, but Encoding is expecting 2 features as input: 'a', 'b'"):
        encoding.encode(table[["a"]].to_numpy())
    with pytest.raises(ValueError, match="several columns are named 'a'"):
        encoding.encode(pd.DataFrame([[1, 2, 3]], columns=["a", "a", "b"]))
    unnamed, _ = quietly(table.to_numpy())
    np.testing.assert_array_equal(unnamed.encode(table).X, X)
    named, _ = quietly(table.to_numpy(), names=["a", "b"])
    assert named == encoding
    with pytest.raises(ValueError, match="names must hold one for each of 2 columns; got 'a'"):
        columns.learn(table.to_numpy(), names=["a"])


# ---- Files


@pytest.fixture(scope="module")
def everything():
    """A table with every kind of column, and its encoding."""
    table = pd.DataFrame(
        {
            "number": ["1,5", "?", "2,5"] * 10,
            "boolean": [True, None, False] * 10,
            "date": pd.date_range("2020-01-01", periods=30, freq="100h"),
            "clock": ["10:00", "11:30", ""] * 10,
            "few": ["a", "b", None] * 10,
            "many": [*"abcdefghijklmno"] * 2,
            "left": [None] * 30,
        }
    )
    return table, learn(table)[0]


def test_an_encoding_survives_json_and_pickle(everything):
    table, encoding = everything
    again = columns.Encoding.from_json(json.loads(json.dumps(encoding.to_json())))
    assert again == encoding == pickle.loads(pickle.dumps(encoding)) == copy.deepcopy(encoding)
    np.testing.assert_array_equal(again.encode(table).X, encoding.encode(table).X)


SPOILT = [
    *[("version", 2), ("version", True), ("names", ["a"]), ("names", [1] * 7), ("table_width", 0), ("left_out", "a")],
    *[("columns", []), ("columns", {}), ("columns", None), ("columns", [[]]), ("table_width", 3)],
]
SPOILT_COLUMN = [
    *[("name", 1), ("name", "other"), ("position", -1), ("position", 99), ("position", 1.0), ("position", 1)],
    *[("kind", "name"), ("kind", []), ("kind", "category"), ("kind", "date"), ("gaps", 1), ("gaps", False)],
    *[("indicator", None), ("ranges", []), ("ranges", [[1, 2]]), ("ranges", [[3, 1, 2]]), ("ranges", [[0, 1, 2]])],
    *[
        ("ranges", [[0, float("inf"), 1]]),
        ("ranges", [["0", 1, 1]]),
        ("ranges", None),
        ("decimal", ";"),
        ("order", "myd"),
    ],
    *[("parts", ["week"]), ("parts", ["year"]), ("parts", "year"), ("levels", ["a"]), ("levels", ["a", "a"])],
    *[("levels", [1]), ("levels", None), ("other", 0), ("ranges", [[0, 10**400, 1]])],
    *[("ranges", [[0, 2, 1, 0]]), ("ranges", [[0, 2, 1, -1, 0]]), ("ranges", [[0, 2, 1, 0, float("inf")]])],
    *[("embedded", True), ("embedded", 0)],
]


def test_spoilt_files_are_refused(everything):
    _, encoding = everything
    for name, value in SPOILT:
        with pytest.raises(ValueError):
            columns.Encoding.from_json(encoding.to_json() | {name: value})
    for name, value in SPOILT_COLUMN:
        document = encoding.to_json()
        document["columns"][0][name] = value
        with pytest.raises(ValueError):
            columns.Encoding.from_json(document)
    for document in (None, [], {}, encoding.to_json() | {"more": 1}):
        with pytest.raises(ValueError, match="an encoding of columns has the fields"):
            columns.Encoding.from_json(document)


# ---- Targets


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (["1.5", "2", "-3e2"], [1.5, 2, -300]),
        (["1,5", "1.234,25", "0"], [1.5, 1234.25, 0]),
        (["17,674.5", "$ 3", "4 %"], [17674.5, 3, 0.04]),
        (["1", "?", "n/a"], [1, np.nan, np.nan]),
        (["7", None, ""], [7, np.nan, np.nan]),
        (["True", "false", "?"], [1, 0, np.nan]),
        ([True, None, False], [1, np.nan, 0]),
        ([1, 2, 5], [1, 2, 5]),
    ],
)
@pytest.mark.parametrize("frame", [pd.DataFrame, pa.table])
def test_targets_are_numbers_however_they_are_written(column, values, frame):
    read = columns.read_targets(frame({"y": column, "z": [1.0, 2.0, 1e30]}))
    np.testing.assert_array_equal(read, np.stack([values, [1.0, 2.0, 1e30]], axis=1))  # a far target stays where it is
    assert read.dtype == np.float64


def test_targets_of_arrays():
    array = np.array([[1.5, np.nan], [2.5, 3.5]])
    np.testing.assert_array_equal(columns.read_targets(array), array)
    np.testing.assert_array_equal(columns.read_targets(array.astype(np.float32).tolist()), array)
    np.testing.assert_array_equal(columns.read_targets(np.full((2, 1), np.nan)), [[np.nan]] * 2)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (["1", "2", "many", "few"], "is a target and must hold numbers; got 'many' (row 2, counted from 0)"),
        ([1.0, np.inf, 2.0, 3.0], "must hold finite numbers below 3.4e38; got inf (row 1, counted from 0)"),
        (["1", "2", "3", "1e39"], "must hold finite numbers below 3.4e38; got 1e+39 (row 3, counted from 0)"),
        (pd.date_range("2020-01-01", periods=4), "is a target and must hold numbers; it holds times"),
    ],
)
def test_targets_that_are_no_numbers(column, message):
    table = pd.DataFrame({"y": column, "z": ["1", "2", "3", "4"]})
    with pytest.raises(columns.CellError) as error:
        columns.read_targets(table)
    assert str(error.value) == f"column 'y' {message}"
    both = table.assign(z=["1", "?", "3", "four"])
    with pytest.raises(columns.CellError, match="2 columns cannot be used") as error:
        columns.read_targets(both)
    assert [(name, row) for name, _, row in error.value.found][1] == ("z", 3)


def test_an_error_about_cells_names_rows_as_a_file_does():
    error = columns.CellError([("a", "holds inf", 0), ("b", "holds lists", None), ("c", "holds x", 7)])
    assert str(error).splitlines() == [
        "3 columns cannot be used:",
        "  column 'a' holds inf (row 0, counted from 0)",
        "  column 'b' holds lists",
        "  column 'c' holds x (row 7, counted from 0)",
    ]
    assert error.located(lambda row: f"t.csv, line {row + 2}").splitlines()[3] == "  column 'c' holds x (t.csv, line 9)"
    again = pickle.loads(pickle.dumps(error))
    assert (again.found, str(again)) == (error.found, str(error))


# ---- Numbers of X, and leaks


def test_numbers_of_encoded_rows_are_those_that_were_read():
    x = np.append(np.linspace(0, 1, 30), [np.nan, 1e9])
    table = pd.DataFrame({"kind": ["a", "b"] * 16, "x": x, "when": pd.date_range("2020", periods=32), "y": x[::-1]})
    encoding, X = quietly(table)
    found = encoding.numbers(X)
    assert list(found) == ["x", "y"]
    expected = np.append(x[:30], [np.nan, np.nan])  # a gap, and a number that was drawn in
    np.testing.assert_array_equal(found["x"], expected)
    np.testing.assert_array_equal(found["y"], expected[::-1])
    with pytest.raises(ValueError, match=rf"X must have shape \(N, {encoding.width}\), as encoded; got \(32, 2\)"):
        encoding.numbers(X[:, :2])
    with pytest.raises(TypeError, match="X must be an array of real numbers"):
        encoding.numbers("x")


def test_copies_and_sums_of_targets_are_found():
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(50, 2)) * 100
    Y[3, 0] = np.nan
    table = pd.DataFrame(
        {"sum": Y.sum(axis=1), "copy": Y[:, 1], "near": Y[:, 1] * (1 + 1e-6), "x": rng.normal(size=50)}
    )
    table.loc[5, "copy"] = None
    encoding, X = quietly(table)
    assert columns.leaks(encoding.numbers(X), Y, ["casual", "registered"]) == [
        "column 'sum' is the sum of the targets 'casual', 'registered'",
        "column 'copy' is a copy of the target 'registered'",
    ]
    assert columns.leaks({"a": Y[:9, 1]}, Y[:9], ["b", "c"]) == []  # too few rows to tell
    assert columns.leaks({"a": np.ones(20)}, np.ones((20, 1)), ["b"]) == []


def test_numbers_that_were_drawn_in_are_no_evidence_against_a_leak():
    y = np.append(np.random.default_rng(0).uniform(size=50), 1e6)
    encoding, X = quietly(pd.DataFrame({"copy": y, "x": y[::-1] ** 2}))
    assert columns.leaks(encoding.numbers(X), y[:, None], ["y"]) == ["column 'copy' is a copy of the target 'y'"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (({"a": [1.0]}, np.ones((2, 1)), ["y"]), ValueError, r"column 'a' must have shape \(2,\)"),
        (({"a": [1.0, 2.0]}, np.ones((2, 1)), ["y", "z"]), ValueError, r"Y must have shape \(N, 2\)"),
        (({"a": ["b", "c"]}, np.ones((2, 1)), ["y"]), TypeError, "column 'a' must be an array of real numbers"),
        (([1.0, 2.0], np.ones((2, 1)), ["y"]), TypeError, "numbers must hold features by name; got list"),
    ],
)
def test_bad_arguments_of_leaks(arguments, error, message):
    with pytest.raises(error, match=message):
        columns.leaks(*arguments)


def test_a_warning_points_at_the_caller_of_the_library():
    encoding, _ = columns.learn(np.arange(9.0)[:, None])
    with pytest.warns(UserWarning, match="far outside") as found:
        encoding.encode([[99.0]])
    assert found[0].filename == __file__


def test_numbers_beside_text_keep_their_value():
    mixed = np.array([[1.234], [2.345], [-0.5], ["1,5"], ["2,25"], ["0,125"], ["3,75"]], object)
    np.testing.assert_array_equal(columns.read_targets(mixed)[:, 0], [1.234, 2.345, -0.5, 1.5, 2.25, 0.125, 3.75])
    with pytest.warns(UserWarning, match="text was read so"):
        encoding, _ = columns.learn([["0,126"], ["1,5"], ["2,25"], ["3,75"], ["4,5"]])
    alone, beside = (encoding.encode(table, quiet=True).X[:1] for table in ([[1.234]], [[1.234], ["n/a"]]))
    np.testing.assert_array_equal(alone, beside)


@pytest.mark.parametrize(
    ("text", "value"), [("0.500", 0.5), ("-0.125", -0.125), ("1.234", 1234.0), ("1.234,5", 1234.5)]
)
def test_a_number_that_starts_with_0_has_no_thousands(text, value):
    found = columns.read_targets([["1,5"], ["2,25"], ["3,1"], [text]])[-1, 0]
    assert found == value


def test_a_constant_in_single_precision_is_the_same():
    encoding, _ = columns.learn(np.full((6, 1), 0.1))
    assert encoding.encode(np.full((2, 1), 0.1, np.float32)).novelty.tolist() == [0, 0]


def test_an_infinite_constant_is_refused():
    with pytest.raises(columns.CellError, match="'b' must hold finite numbers"):
        columns.learn(pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [np.inf] * 3}))


def test_some_rows_are_read_as_the_whole_table_was():
    """What few rows decide stays; levels and ranges are of these rows, and what was left out is not looked at."""
    table = pa.table(
        {
            "mark": ["1,5", "2,25", "3,125", "4,125"],
            "day": ["3/4/2024", "3/5/2024", "3/6/2024", "25/6/2024"],
            "name": [None, None, None, None],
            "size": ["1", "2", "2", "L"],
        }
    )
    some = table.slice(2, 1).set_column(2, "name", pa.array(["x"]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole, _ = columns.learn(table, ["size"])
        encoding, encoded = columns.learn(some, like=whole)
    assert [column.name for column in encoding.columns] == ["mark", "day", "size"]
    assert encoding.left_out == whole.left_out == ("name",)
    assert encoded.X[0, [0, 1, -1]].tolist() == [3.125, pytest.approx(2024 + 153 / 365.2425, abs=0.01), 1.0]
    assert encoding.columns[0].ranges[0] == (3.125, 3.125, 3.125, 0, 0) and encoding.columns[2].levels == ("2",)
    with pytest.raises(ValueError, match="like says which columns are categories; leave out categorical"):
        columns.learn(some, ["size"], like=whole)
    with pytest.raises(ValueError, match="learnt from a table with the columns 'a'; it knows 'mark', 'day', 'name'"):
        columns.learn(pa.table({"a": [1, 2]}), like=whole)


def test_booleans_and_times_that_are_categories_are_known_however_they_are_stored():
    """Categories of words, or of dates as text, in a later table of booleans or times, and the other way round."""
    for words in (["TRUE", "FALSE"], ["True", "False"], ["1", "0"]):
        encoding, learnt = quietly(pd.DataFrame({"c": words * 3, "x": range(6)}), categorical=["c"])
        later = encoding.encode(pd.DataFrame({"c": [True, False] * 3, "x": range(6)}))
        np.testing.assert_array_equal(later.X, learnt)
    days, moments = ["2024-01-31", "2024-02-01"] * 3, ["2024-01-31 09:30:00", "2024-02-01 00:00:01"] * 3
    for texts in (days, moments):
        written, stored = pd.DataFrame({"c": texts}), pd.DataFrame({"c": pd.to_datetime(texts)})
        for first, second in ((written, stored), (stored, written)):
            encoding, learnt = quietly(first, categorical=["c"])
            assert encoding.columns[0].levels == tuple(sorted(set(texts)))
            np.testing.assert_array_equal(encoding.encode(second).X, learnt)


def test_a_counter_of_a_larger_table_is_left_out():
    """Rows of it are missing; the numbers of few rows of a grid, or of years, are no counter."""
    rows = np.delete(np.arange(1, 31), [0, 3, 4, 20, 28])
    with pytest.warns(UserWarning, match="columns left out: 'no' .a number of its own in every row"):
        assert columns.learn(pd.DataFrame({"no": rows, "x": rows**2}))[0].left_out == ("no",)
    for count in (rows * 10, rows + 1990, rows[::-1], rows - 5, rows + 0.5):
        assert quietly(pd.DataFrame({"no": count, "x": rows**2}))[0].left_out == ()
