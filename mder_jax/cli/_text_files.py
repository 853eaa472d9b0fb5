"""Text files with tables: how one is written (encoding, delimiter, decimal mark), and its records."""

import codecs
import contextlib
import csv
import gzip
import io
import itertools
import pathlib
import re
import warnings
import zlib
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from mder_jax._messages import quoted

LONGEST_LINE = 1 << 20  # bytes; no line may be longer, and what a file is like is determined from as many
DELIMITERS = ",;\t|"  # in the order of preference
LOOKED_AT = 1000  # records of the start, for the delimiter and the decimal mark
SIGNATURES = {
    b"PAR1": "this is a Parquet file; let its name end in .parquet",
    b"ARROW1": "this is a Feather file; let its name end in .feather",
    b"\x1f\x8b": "this is a gzip file; let its name end in .csv.gz",
    b"PK\x03\x04": "this is a spreadsheet or a zip file; save the table as CSV",
    b"\xd0\xcf\x11\xe0": "this is a spreadsheet; save the table as CSV",
}
EXCEL = re.compile(r'"?sep=([^"\w\r\n])"?\1*[ \t]*(\r\n|\r|\n)', re.IGNORECASE)  # the first line of some files
NUMERIC = re.compile(r"[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?")
WITH_COMMA = re.compile(r"[+-]?(\d*|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?")
WITH_POINT = re.compile(r"[+-]?(\d*|\d{1,3}(,\d{3})+)\.\d+([eE][+-]?\d+)?")
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
UNDECODABLE = re.compile("[\udc80-\udcff]")  # how Python marks such a byte in text
NAMES = {"utf-16": "UTF-16", "cp1252": "Windows-1252", "latin-1": "Latin-1"}


class TableError(ValueError):
    """A table that cannot be used, with the file, the line and the value in the message."""


class Notice(UserWarning):
    """How a table was read, where that is not the usual way: no warning, and not said with --quiet."""


class Reading(NamedTuple):
    """What the user says about the way a table is written; None is determined from the file.

    `bad_rows` says what becomes of rows with a wrong number of fields: "refuse", "skip" or "flag".
    """

    delimiter: str | None = None
    decimal: str | None = None
    missing: tuple[str, ...] = ()
    encoding: str | None = None
    bad_rows: str = "refuse"


class TextFile:
    """A text file, compressed if its name ends in .gz: its `encoding`, `delimiter` and `decimal`, "," or None."""

    def __init__(self, path: pathlib.Path, reading: Reading) -> None:
        self.path = path
        self.compression = "gzip" if path.suffix.lower() == ".gz" else None
        start, whole = self._start()
        self.encoding = reading.encoding or _encoding_of(start, whole)
        text = self._decoded(start, whole)
        self._refuse_what_is_no_text(start, text, whole)
        excel = EXCEL.match(text)
        self.first_line = 2 if excel else 1  # of the table
        text = text[excel.end() :] if excel else text
        sample = text if whole else text[: max(text.rfind("\n"), text.rfind("\r")) + 1]
        self.delimiter = reading.delimiter or (excel[1] if excel else _delimiter_of(sample))
        usual = "." if self.delimiter == "," else _decimal_mark_of(sample, self.delimiter)
        self.decimal = "," if (reading.decimal or usual) == "," else None
        self._say_what_is_unusual(reading)

    @property
    def is_utf8(self) -> bool:
        """Whether the encoding is UTF-8."""
        return self._codec == "utf-8-sig"

    @property
    def _codec(self) -> str:
        name = codecs.lookup(self.encoding).name
        return "utf-8-sig" if name == "utf-8" else name

    def records(self) -> Iterator[tuple[int, list[str]]]:
        """First line and fields of every record; the first record holds the names of the columns.

        An empty line is no record, unless there is only one column.
        """
        with self._text("replace") as file:
            before = len(list(itertools.islice(file, self.first_line - 1)))
            reader, end, columns = csv.reader(file, delimiter=self.delimiter), before, 0
            try:
                for fields in reader:
                    if fields or columns == 1:
                        yield end + 1, fields or [""]
                    columns = columns or len(fields)
                    end = before + reader.line_num
            except csv.Error as error:
                raise TableError(f"{self.path}, line {end + 1}: {error}") from error

    def first_undecodable_line(self) -> int:
        """The first line that is not text in the encoding."""
        number = 0
        with self._text("surrogateescape") as file, contextlib.suppress(UnicodeDecodeError):
            for number, line in enumerate(file, 1):
                if UNDECODABLE.search(line):
                    return number
        return number + 1

    @contextlib.contextmanager
    def _text(self, errors: str) -> Iterator[IO[str]]:
        with self._bytes() as file, io.TextIOWrapper(file, self._codec, errors, newline="") as text:
            yield text

    @contextlib.contextmanager
    def _bytes(self) -> Iterator[Any]:
        with contextlib.ExitStack() as stack:
            if not self.compression:
                yield stack.enter_context(open(self.path, "rb"))
                return
            try:
                yield stack.enter_context(gzip.open(self.path, "rb"))
            except (gzip.BadGzipFile, EOFError, zlib.error) as error:
                raise damaged(self.path, error) from error

    def _start(self) -> tuple[bytes, bool]:
        """The first bytes, and whether these are all."""
        with self._bytes() as file:
            start = file.read(LONGEST_LINE)
            return start, not file.read(1)

    def _decoded(self, start: bytes, whole: bool) -> str:
        try:
            return codecs.getincrementaldecoder(self._codec)("replace").decode(start, whole)
        except (LookupError, UnicodeError) as error:
            raise TableError(f"{self.path}: not text in {self.encoding} ({error})") from error

    def _refuse_what_is_no_text(self, start: bytes, text: str, whole: bool) -> None:
        if not start:
            raise TableError(f"{self.path}: the file is empty")
        for signature, advice in SIGNATURES.items():
            if start.startswith(signature):
                raise TableError(f"{self.path}: {advice}")
        if "\0" in text:
            raise TableError(f"{self.path}: not a table; a CSV file is text, and this holds binary data")
        if not whole and "\n" not in text and "\r" not in text:
            raise TableError(f"{self.path}, line 1: longer than {LONGEST_LINE} bytes; not a table")

    def _say_what_is_unusual(self, reading: Reading) -> None:
        if not (reading.encoding or self.is_utf8):
            how = f"not UTF-8, and read as {NAMES[self.encoding]}; --encoding names another"
            warnings.warn(f"{self.path}: {how}", Notice, stacklevel=2)
        expected = reading.delimiter or ("\t" if ".tsv" in self.path.name.lower() else ",")
        unusual = [f"{self.delimiter!r} between the cells"] if self.delimiter != expected else []
        unusual += ["',' as the decimal mark"] if self.decimal and not reading.decimal else []
        if unusual:
            warnings.warn(f"{self.path}: read with {' and '.join(unusual)}", Notice, stacklevel=2)


def damaged(path: pathlib.Path, error: Exception) -> TableError:
    """The error of a compressed file that cannot be read."""
    return TableError(f"{path}: not a gzip file, or a damaged one ({quoted(error)})")


def _encoding_of(start: bytes, whole: bool) -> str:
    """UTF-8 if the bytes are, UTF-16 if they begin with its mark, or else a code page of western Europe."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    for encoding in ("utf-8", "cp1252"):
        with contextlib.suppress(UnicodeDecodeError):
            codecs.getincrementaldecoder(encoding)().decode(start, whole)
            return encoding
    return "latin-1"


def _records_of(sample: str, delimiter: str) -> list[list[str]]:
    """The first records of a text; fewer if Python cannot read one."""
    records: list[list[str]] = []
    with contextlib.suppress(csv.Error):
        for fields in itertools.islice(csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter), LOOKED_AT):
            records += [fields] if fields else []
    return records


def _delimiter_of(sample: str) -> str:
    """The delimiter with which most records have as many fields as the first one, which has two or more.

    If several fit equally well: the one that leaves most numbers, then the one that makes most fields.
    """
    fits: dict[str, tuple[float, float, int]] = {}
    for delimiter in DELIMITERS:
        header, *records = _records_of(sample, delimiter) or [[]]
        if len(header) > 1:
            same = [fields for fields in records if len(fields) == len(header)]
            cells = [cell.strip() for fields in same for cell in fields]
            numbers = sum(NUMERIC.fullmatch(cell) is not None for cell in cells)
            fits[delimiter] = len(same) / max(len(records), 1), numbers / max(len(cells), 1), len(header)
    return max(fits, key=fits.__getitem__) if fits else ","


def _decimal_mark_of(sample: str, delimiter: str) -> str:
    """A comma if half of the numbers with a mark have a comma, of which one at least cannot stand for thousands."""
    cells = [cell.strip() for fields in _records_of(sample, delimiter)[1:] for cell in fields]
    commas = [cell for cell in cells if WITH_COMMA.fullmatch(cell)]
    points = [cell for cell in cells if WITH_POINT.fullmatch(cell)]
    certain = any(not THOUSANDS.fullmatch(cell) for cell in commas)
    return "," if certain and len(commas) >= len(points) else "."
