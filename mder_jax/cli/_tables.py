"""Tables in files: CSV and its relatives, Parquet and Feather, read and written in blocks of rows."""

import collections
import contextlib
import csv
import itertools
import pathlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from mder_jax._files import behind_links, draft
from mder_jax._messages import listed, quoted, unknown
from mder_jax.cli._text_files import LONGEST_LINE, Notice, Reading, TableError as TableError, TextFile, damaged

ROWS = 1 << 14  # of a block at most
PANDAS_INDEX = "__index_level_"  # how pandas names an index without a name in Parquet; in CSV it has no name either
LISTED_LINES = 5  # with a wrong number of fields, in a message
REASON = "reason"  # the column of predictions that says why a row has none
SIGNIFICANT = 9  # digits of a number in CSV: more than the networks compute with
ENDINGS = ".csv, .tsv, .txt (also with .gz), .parquet, .feather or .arrow"
SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".ods", ".numbers")
# A number where the comma is the decimal mark: 1,5  1.234,5  1.234
_MARKED = r"^[+-]?(\d*,\d*|\d{1,3}(\.\d{3})+(,\d*)?)([eE][+-]?\d+)?$"


def open_table(path: str | pathlib.Path, reading: Reading | None = None) -> "Table":
    """The table in a file whose name ends in one of `ENDINGS`; only its start is read yet.

    How a text file is written is determined from its start, except what `reading` says.
    """
    path = pathlib.Path(path)
    if not path.exists():
        raise TableError(f"{path}: there is no such file")
    if not path.is_file():
        raise TableError(f"{path}: not a file")
    ending = path.suffix.lower()
    if ending in SPREADSHEETS:
        raise TableError(f"{path}: spreadsheets are not read; save the sheet as CSV, and use that file")
    kinds: dict[str, type[CsvTable | ParquetTable | FeatherTable]] = {".parquet": ParquetTable}
    kinds |= {".feather": FeatherTable, ".arrow": FeatherTable}
    kinds |= {text + packed: CsvTable for text in (".csv", ".tsv", ".txt") for packed in ("", ".gz")}
    kind = kinds.get(path.with_suffix("").suffix.lower() + ending if ending == ".gz" else ending)
    if kind is None:
        raise TableError(f"{path}: a table is a file that ends in {ENDINGS}; got {ending or 'no ending'!r}")
    if not path.stat().st_size:
        raise TableError(f"{path}: the file is empty")
    return kind(path, reading or Reading())


class BadRow(NamedTuple):
    """A row with a wrong number of fields: its place among all rows (the first is 0), its line, and what is wrong."""

    row: int
    line: int
    reason: str


class _FileOfRows:
    """What tables have in common: texts that mean a `missing` value, and the `decimal` mark, None for the point.

    `bad_rows` are those that `blocks` leaves out, known when it has come to its end.
    """

    names: list[str]
    own_missing: tuple[str, ...] = ("",)
    decimal: str | None = None
    bad_rows: Sequence[BadRow] = ()

    def __init__(self, path: pathlib.Path, reading: Reading) -> None:
        self.path = path
        self.missing = (*self.own_missing, *reading.missing)
        self._state = _state(path)

    def also_missing(self, texts: Sequence[str]) -> None:
        """Further texts that mean a missing value."""
        self.missing = (*self.missing, *texts)

    def places(self, rows: Sequence[int]) -> list[str]:
        """Where rows (the first is 0) are in the file."""
        return [f"row {row + 1}" for row in rows]

    def place(self, row: int) -> str:
        """Where a row is in the file."""
        return self.places([row])[0]

    def _in_blocks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = 0
        for batch in batches:
            yield from (batch.slice(start, ROWS) for start in range(0, batch.num_rows, ROWS))
            rows += batch.num_rows
        self._refuse_changes()
        if not rows:
            raise TableError(f"{self.path}: the table has no rows")

    def _refuse_changes(self) -> None:
        if _state(self.path) != self._state:
            raise TableError(f"{self.path}: the file was changed while it was read; start again")


class CsvTable(_FileOfRows):
    """A text file with the names of its columns in the first line. Its cells are text, which the encoding interprets.

    An empty line is no row, unless there is only one column: then it is a row whose cell is empty. With --bad-rows
    skip or flag, rows with a wrong number of fields are left out: `place` counts the others.
    """

    own_missing = ("", "NA", "na", "NaN", "nan", "NAN", "null", "Null", "NULL")

    def __init__(self, path: pathlib.Path, reading: Reading) -> None:
        super().__init__(path, reading)
        self._file, self._bad_rows_are_to = TextFile(path, reading), reading.bad_rows
        self.decimal = self._file.decimal
        self._first_line, self._header = next(self._file.records(), (1, []))
        stripped = [name.strip() for name in self._header]
        self.names = _checked_names(path, stripped)
        self._written_as = dict(zip(stripped, self._header, strict=True))

    def blocks(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """These columns as text, at most `ROWS` rows at a time."""
        try:
            yield from self._in_blocks(self._batches(columns))
        except (pa.ArrowInvalid, pa.ArrowKeyError, UnicodeDecodeError) as error:
            raise self._explained(error) from error
        except OSError as error:
            if not self._file.compression:
                raise
            raise damaged(self.path, error) from error

    def _batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        bad = 0

        def skip(row: Any) -> str:
            nonlocal bad
            bad += 1
            return "skip"

        written = [self._written_as[name] for name in columns]
        encoding = "utf8" if self._file.is_utf8 else self._file.encoding
        with pa.input_stream(self.path, compression=self._file.compression) as stream:
            reader = pa.csv.open_csv(
                stream,
                read_options=pa.csv.ReadOptions(
                    block_size=LONGEST_LINE, skip_rows=self._first_line - 1, encoding=encoding
                ),
                parse_options=pa.csv.ParseOptions(
                    delimiter=self._file.delimiter,
                    newlines_in_values=True,
                    ignore_empty_lines=len(self._header) > 1,
                    invalid_row_handler=skip,
                ),
                convert_options=pa.csv.ConvertOptions(
                    include_columns=written, column_types=dict.fromkeys(written, pa.string())
                ),
            )
            yield from (batch.rename_columns(list(columns)) for batch in reader)
        self._settle(bad)

    def places(self, rows: Sequence[int]) -> list[str]:
        """Where rows (the first is 0) are in the file, as an editor counts lines."""
        wanted, lines = set(rows), {}
        with contextlib.suppress(TableError):  # something before it that Python cannot read
            good = (line for line, fields in self._file.records() if len(fields) == len(self._header))
            known = enumerate(itertools.islice(good, max(rows, default=-1) + 2), -1)
            lines = {row: f"line {line}" for row, line in known if row in wanted}
        return [lines.get(row, f"row {row + 1}") for row in rows]

    def _settle(self, bad: int) -> None:
        """Refuse the rows with a wrong number of fields, or say that they are left out."""
        if not bad or self.bad_rows:
            return
        self._refuse_changes()
        self.bad_rows = [
            BadRow(row, line, self._wrong(fields))
            for row, (line, fields) in enumerate(self._file.records(), -1)
            if len(fields) != len(self._header)
        ]
        if len(self.bad_rows) != bad:
            raise TableError(f"{self.path}: cannot be read as CSV; are there quotes that are never closed?")
        lines = ", ".join(str(row.line) for row in self.bad_rows[:LISTED_LINES])
        more = f" and {bad - LISTED_LINES:,} more" if bad > LISTED_LINES else ""
        where = f"{self.path}, line{'s' * (bad > 1)} {lines}{more}"
        first = self.bad_rows[0]
        many = f"{bad:,} rows have another number of fields than the first line (line {first.line}: {first.reason})"
        what = first.reason if bad == 1 else many
        if self._bad_rows_are_to == "refuse":
            raise TableError(f"{where}: {what}; --bad-rows skip leaves out such rows")
        warnings.warn(f"{where}: {what}; not used", stacklevel=2)

    def _wrong(self, fields: Sequence[str]) -> str:
        count = f"{len(fields)} field{'s' * (len(fields) > 1)} where the first line has {len(self._header)}"
        return f"{count}: {quoted(self._file.delimiter.join(fields))}"

    def _explained(self, error: Exception) -> TableError:
        """An error of pyarrow with the line and what is wrong there."""
        if isinstance(error, UnicodeDecodeError) or "UTF8" in str(error):
            name = "UTF-8" if self._file.is_utf8 else self._file.encoding
            where = f"{self.path}, line {self._file.first_undecodable_line()}"
            return TableError(f"{where}: not text in {name}; save the file so, or try --encoding latin-1")
        if "Empty CSV" in str(error):  # a first line that does not end
            return TableError(f"{self.path}: the table has no rows")
        if "straddling" in str(error):
            return TableError(f"{self.path}: a line is longer than {LONGEST_LINE} bytes, or a quote is never closed")
        return TableError(f"{self.path}: cannot be read as CSV ({error})")


class ParquetTable(_FileOfRows):
    """A Parquet file. Text without a value is empty, or null."""

    format = "Parquet"

    def __init__(self, path: pathlib.Path, reading: Reading) -> None:
        super().__init__(path, reading)
        self.decimal = "," if reading.decimal == "," else None
        with self._explained():
            self.names = _checked_names(path, self._schema().names)

    def blocks(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """These columns in the types of the file, at most `ROWS` rows at a time."""
        with self._explained():
            yield from self._in_blocks(batch.select(list(columns)) for batch in self._batches(list(columns)))

    def _schema(self) -> pa.Schema:
        self._file = pa.parquet.ParquetFile(self.path)
        return self._file.schema_arrow

    def _batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        return self._file.iter_batches(ROWS, columns=columns)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except TableError:
            raise
        except (pa.ArrowException, OSError) as error:
            reason = f"not a {self.format} file, or a damaged one (pyarrow says {quoted(str(error))})"
            raise TableError(f"{self.path}: {reason}") from error


class FeatherTable(ParquetTable):
    """A Feather file (version 2), which is an Arrow file, or a stream of Arrow in a file."""

    format = "Feather"

    def _schema(self) -> pa.Schema:
        with pa.OSFile(str(self.path)) as file:
            return self._reader(file).schema

    def _batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(str(self.path)) as file:
            reader = self._reader(file)
            if isinstance(reader, pa.RecordBatchFileReader):
                yield from map(reader.get_batch, range(reader.num_record_batches))
            else:
                yield from reader

    @staticmethod
    def _reader(file: pa.NativeFile) -> Any:
        is_file = file.read(6) == b"ARROW1"
        file.seek(0)
        return pa.ipc.open_file(file) if is_file else pa.ipc.open_stream(file)


Table = CsvTable | ParquetTable


def _state(path: pathlib.Path) -> tuple[int, int]:
    """What changes when a file is written to."""
    about = path.stat()
    return about.st_size, about.st_mtime_ns


def decimal_points(table: Table, text: pa.Array) -> pa.Array:
    """Text in which numbers have a point as their decimal mark: 1,5 becomes 1.5, and 1.234,5 becomes 1234.5."""
    if table.decimal is None:
        return text
    plain = pc.replace_substring(pc.replace_substring(text, ".", ""), ",", ".")
    return pc.if_else(pc.match_substring_regex(text, _MARKED), plain, text)


def _checked_names(path: pathlib.Path, names: Sequence[str]) -> list[str]:
    """The names of the columns that have one, all different."""
    named = [name for name in names if name and not name.startswith(PANDAS_INDEX)]
    if not named:
        raise TableError(f"{path}: no column has a name; the first line must hold the names")
    twice = [f"{count} columns are named {quoted(n)}" for n, count in collections.Counter(named).items() if count > 1]
    if twice:
        raise TableError(f"{path}: {', '.join(twice)}; rename all but one")
    without = [str(number) for number, name in enumerate(names, 1) if not name and number > 1]
    if without:
        these = f"column{'s' * (len(without) > 1)} {', '.join(without)}"
        warnings.warn(f"{path}: {these} without a name; not used", Notice, stacklevel=2)
    return named


def require_columns(table: Table, wanted: Mapping[str, Iterable[str]]) -> None:
    """Raise unless the table has all columns, given by who wants them; similar names are suggested."""
    known = set(table.names)
    missing = {where: [name for name in names if name not in known] for where, names in wanted.items()}
    parts = [f"{unknown(names, table.names)}, named in {where}" for where, names in missing.items() if names]
    if parts:
        raise TableError(f"{table.path} has no column {', nor '.join(parts)}; its columns are {listed(table.names)}")


def check_output(path: pathlib.Path, force: bool) -> None:
    """Raise if a file could not be written there later: no such folder, no permission, or a file that exists."""
    if path.is_dir():
        raise TableError(f"{path}: cannot be written, it is a folder")
    if path.exists() and not force:
        raise TableError(f"{path} exists already; give another name, or --force to overwrite it")
    folder = behind_links(path).parent
    if not folder.is_dir():
        raise TableError(f"{path}: cannot be written, there is no folder {folder}")
    try:
        with draft(path) as probe:
            probe.touch()
            probe.unlink()
    except OSError as error:
        raise TableError(f"{path}: cannot be written ({error.strerror})") from error


def write_table(path: pathlib.Path, batches: Iterable[pa.RecordBatch]) -> int:
    """Write one or more batches to a .csv or .parquet file, which appears when it is complete; returns their rows."""
    batches, rows = iter(batches), 0
    first = next(batches)
    writer = _parquet_writer if path.suffix.lower() == ".parquet" else _csv_writer
    with draft(path) as beside, writer(beside, first.schema) as write:
        for batch in itertools.chain([first], batches):
            write(batch)
            rows += batch.num_rows
    return rows


@contextlib.contextmanager
def _parquet_writer(path: pathlib.Path, schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], Any]]:
    with pa.parquet.ParquetWriter(path, schema) as writer:
        yield writer.write_batch


@contextlib.contextmanager
def _csv_writer(path: pathlib.Path, schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], Any]]:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerow(schema.names)
        yield lambda batch: file.write(_csv_lines(batch))


def _csv_lines(batch: pa.RecordBatch) -> str:
    """The rows as CSV: text is in quotes only if some of it needs them, which pyarrow reports as an error."""
    for style in ("none", "needed"):
        lines = pa.BufferOutputStream()
        options = pa.csv.WriteOptions(include_header=False, quoting_style=style)
        with contextlib.suppress(pa.ArrowInvalid):
            pa.csv.write_csv(batch, lines, options)
            return lines.getvalue().to_pybytes().decode()
    raise TableError(f"these types cannot be written as CSV: {', '.join(map(str, batch.schema.types))}")


def significant(values: np.ndarray) -> np.ndarray:
    """The numbers nearest to these that have `SIGNIFICANT` digits or fewer, which CSV shows in full."""
    with np.errstate(divide="ignore", invalid="ignore"):
        digits = SIGNIFICANT - 1 - np.floor(np.log10(np.abs(values)))
    exact = np.abs(digits) <= 22  # a power of ten that float64 holds, so that the quotient is rounded once
    up, down = (10.0 ** np.clip(np.where(exact, sign * digits, 0), 0, 22) for sign in (1, -1))
    rounded = np.where(exact, np.round(values * up / down) / up * down, values)
    rounded[~exact] = [float(f"{value:.{SIGNIFICANT}g}") for value in values[~exact]]
    return rounded


def with_bad_rows(batches: Iterable[pa.RecordBatch], bad_rows: Sequence[BadRow]) -> Iterator[pa.RecordBatch]:
    """The batches with a column `REASON`, and an empty row with its reason at the place of each bad row."""
    reasons = np.array([bad.reason for bad in bad_rows], object)
    before = np.array([bad.row for bad in bad_rows], int) - np.arange(len(bad_rows))  # good rows before each
    rows, batch = 0, None
    for batch in batches:
        here = (rows <= before) & (before < rows + batch.num_rows)
        yield _with_empty_rows(batch, before[here] - rows, reasons[here])
        rows += batch.num_rows
    if batch is not None and (before >= rows).any():
        yield _with_empty_rows(batch.slice(0, 0), np.zeros((before >= rows).sum(), int), reasons[before >= rows])


def _with_empty_rows(batch: pa.RecordBatch, places: np.ndarray, reasons: np.ndarray) -> pa.RecordBatch:
    why = np.full(batch.num_rows, None, object)
    if REASON in batch.schema.names:  # of rows with a wrong cell
        why, batch = np.array(batch[REASON].to_pylist(), object), batch.drop_columns([REASON])
    source = np.insert(np.arange(batch.num_rows), places, -1)
    whole = batch.take(pa.array(source, mask=source < 0))
    return whole.append_column(REASON, pa.array(np.insert(why, places, reasons), pa.string()))
