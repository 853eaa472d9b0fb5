"""Tables in files: CSV and Parquet, read and written in blocks of rows."""

import collections
import contextlib
import csv
import difflib
import itertools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from mder_jax._files import behind_links, draft

ROWS = 1 << 14  # of a block at most
LONGEST_LINE = 1 << 20  # bytes; pyarrow reads a CSV in pieces of this size, which no line may exceed
PANDAS_INDEX = "__index_level_"  # how pandas names an index without a name in Parquet; in CSV it has no name either


class TableError(ValueError):
    """A table that cannot be used, with the file, the line and the value in the message."""


def open_table(path: str | pathlib.Path) -> "CsvTable | ParquetTable":
    """The table in a file that ends in .csv or .parquet; only the names of its columns are read yet."""
    path = pathlib.Path(path)
    kinds: dict[str, type[CsvTable] | type[ParquetTable]] = {".csv": CsvTable, ".parquet": ParquetTable}
    kind = kinds.get(path.suffix.lower())
    if not path.exists():
        raise TableError(f"{path}: there is no such file")
    if not path.is_file():
        raise TableError(f"{path}: not a file")
    if kind is None:
        raise TableError(f"{path}: a table is a file that ends in .csv or .parquet; got {path.suffix or 'no ending'!r}")
    if not path.stat().st_size:
        raise TableError(f"{path}: the file is empty")
    return kind(path)


class CsvTable:
    """A CSV file: comma-separated, UTF-8, names in the first line. Its cells are text, which the encoding interprets.

    An empty line is no row, unless there is only one column: then it is a row whose cell is empty.
    """

    missing = ("", "NA", "na", "NaN", "nan", "NAN", "null", "Null", "NULL")  # cells without a value

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self._refuse_what_is_no_text()
        self._first_line, self._header = next(self._records(), (1, []))
        stripped = [name.strip() for name in self._header]
        self.names = _checked_names(path, stripped)
        self._written_as = dict(zip(stripped, self._header, strict=True))

    def blocks(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """These columns as text, at most `ROWS` rows at a time."""
        written = [self._written_as[name] for name in columns]
        as_text = dict.fromkeys(written, pa.string())
        options = pa.csv.ReadOptions(block_size=LONGEST_LINE, skip_rows=self._first_line - 1)
        try:
            reader = pa.csv.open_csv(
                self.path,
                read_options=options,
                parse_options=pa.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=len(self._header) > 1),
                convert_options=pa.csv.ConvertOptions(include_columns=written, column_types=as_text),
            )
            yield from _in_blocks(self.path, (batch.rename_columns(list(columns)) for batch in reader))
        except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
            raise self._explained(error) from error

    def place(self, row: int) -> str:
        """Where a row (the first is 0) is in the file, as an editor counts lines."""
        try:
            for number, (line, _) in enumerate(self._records()):
                if number == row + 1:
                    return f"line {line}"
        except TableError:  # something before it that Python cannot read
            pass
        return f"row {row + 1}"

    def _refuse_what_is_no_text(self) -> None:
        with open(self.path, "rb") as file:
            start = file.read(LONGEST_LINE)
            at_end = not file.read(1)
        if start.startswith(b"PAR1"):
            raise TableError(f"{self.path}: this is a Parquet file; let its name end in .parquet")
        if b"\0" in start:
            raise TableError(f"{self.path}: not a table; a CSV file is text in UTF-8, and this holds binary data")
        if not at_end and b"\n" not in start and b"\r" not in start:
            raise TableError(f"{self.path}, line 1: longer than {LONGEST_LINE} bytes; not a table")
        if not _is_utf8(start.split(b"\n", 1)[0]):
            raise TableError(f"{self.path}, line 1: not text in UTF-8; save the file so")

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """First line and fields of every record; the first record holds the names of the columns."""
        with open(self.path, newline="", encoding="utf-8-sig", errors="replace") as file:
            reader, end, columns = csv.reader(file), 0, 0
            try:
                for fields in reader:
                    if fields or columns == 1:
                        yield end + 1, fields or [""]
                    columns = columns or len(fields)
                    end = reader.line_num
            except csv.Error as error:
                raise TableError(f"{self.path}, line {end + 1}: {error}") from error

    def _explained(self, error: Exception) -> TableError:
        """An error of pyarrow with the line and what is wrong there."""
        if "UTF8" in str(error):
            return TableError(f"{self.path}, line {self._first_line_not_utf8()}: not text in UTF-8; save the file so")
        if "straddling" in str(error):
            return TableError(f"{self.path}: a line is longer than {LONGEST_LINE} bytes, or a quote is never closed")
        for line, fields in self._records():
            if len(fields) != len(self._header):
                count = f"{len(fields)} field{'s' * (len(fields) > 1)} where the first line has {len(self._header)}"
                return TableError(f"{self.path}, line {line}: {count}: {quoted(','.join(fields))}")
        return TableError(f"{self.path}: cannot be read as CSV ({error})")

    def _first_line_not_utf8(self) -> int:
        with open(self.path, "rb") as file:
            return next(number for number, line in enumerate(file, 1) if not _is_utf8(line))


class ParquetTable:
    """A Parquet file."""

    missing = ("",)  # texts without a value, in addition to null

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        with self._explained():
            self._file = pa.parquet.ParquetFile(path)
            self.names = _checked_names(path, self._file.schema_arrow.names)

    def blocks(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """These columns in the types of the file, at most `ROWS` rows at a time."""
        with self._explained():
            batches = self._file.iter_batches(ROWS, columns=list(columns))
            yield from _in_blocks(self.path, (batch.select(list(columns)) for batch in batches))

    def place(self, row: int) -> str:
        """Where a row (the first is 0) is in the file."""
        return f"row {row + 1}"

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except TableError:
            raise
        except (pa.ArrowException, OSError) as error:
            reason = quoted(str(error))
            raise TableError(f"{self.path}: not a Parquet file, or a damaged one (pyarrow says {reason})") from error


Table = CsvTable | ParquetTable


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _in_blocks(path: pathlib.Path, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = 0
    for batch in batches:
        yield from (batch.slice(start, ROWS) for start in range(0, batch.num_rows, ROWS))
        rows += batch.num_rows
    if not rows:
        raise TableError(f"{path}: the table has no rows")


def _checked_names(path: pathlib.Path, names: Sequence[str]) -> list[str]:
    """The names of the columns that have one, all different."""
    named = [name for name in names if name and not name.startswith(PANDAS_INDEX)]
    name, count = collections.Counter(named).most_common(1)[0] if named else ("", 0)
    if count > 1:
        raise TableError(f"{path}: {count} columns are named {quoted(name)}; rename all but one")
    if not named:
        raise TableError(f"{path}: no column has a name; the first line must hold the names")
    return named


def quoted(value: object) -> str:
    """A value for a message: in quotes, without control characters, not longer than a line."""
    text = str(value)
    return repr(text if len(text) <= 60 else text[:60] + "…")


def require_columns(table: Table, names: Iterable[str], where: str) -> None:
    """Raise unless the table has all these columns; similar names are suggested."""
    known = set(table.names)
    missing = [f"{quoted(name)}{_suggestion(name, table.names)}" for name in names if name not in known]
    if missing:
        few = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        raise TableError(f"{table.path} has no column {few}, named in {where}; its columns are {listed(table.names)}")


def _suggestion(name: str, names: Sequence[str]) -> str:
    by_lower_case = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), list(by_lower_case), 1)
    return f" (did you mean {quoted(by_lower_case[near[0]])}?)" if near else ""


def listed(values: Sequence[str]) -> str:
    """The first few of some names, quoted."""
    more = f" and {len(values) - 10} more" if len(values) > 10 else ""
    return ", ".join(quoted(value) for value in values[:10]) + more


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
