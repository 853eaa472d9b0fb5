"""Dates and times: how they are written, and the numbers that a network reads."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mder_jax.columns.complaints import WrongCellError

DAY = 86_400.0
YEAR = 365.2425 * DAY
SEASONAL = 60 * DAY  # a column that spans more has a season

_CLOCK = r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}(?:[.,]\d+)?))?\s*(?P<half>[AaPp][Mm])?"
_ZONE = r"\s*(?P<zone>Z|UTC|[+-]\d{2}:?\d{2})?"
_YEAR_FIRST = r"(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})"
_YEAR_LAST = r"(?P<a>\d{1,2})(?P<mark>[-/.])(?P<b>\d{1,2})[-/.](?P<c>\d{4}|\d{2})"
DATE = rf"^(?:{_YEAR_FIRST}|{_YEAR_LAST})(?:[T ]\s*{_CLOCK}{_ZONE})?$"
CLOCK = rf"^{_CLOCK}$"


def order_of(text: pa.Array) -> tuple[str, bool]:
    """The order of year, month and day in dates, and whether it is a guess.

    A number above 12 is a day. Without one it is the day first with points, and the month first, a guess, without.
    """
    fields = _Fields(text, DATE)
    day_or_month = ~np.isnan(fields.number("a"))
    a, b = fields.number("a")[day_or_month], fields.number("b")[day_or_month]
    if not day_or_month.any():
        return "ymd", False
    if (a > 12).any() or (b > 12).any():
        return ("dmy" if (a > 12).any() else "mdy"), False
    if "." in fields.words("mark"):
        return "dmy", False
    return "mdy", bool((a != b).any())


class _Fields:
    """The named groups of a pattern in each text; NaN where a text does not match or has no such group."""

    def __init__(self, text: pa.Array, pattern: str) -> None:
        self._groups = pc.extract_regex(text, pattern)

    def words(self, name: str) -> np.ndarray:
        return pc.struct_field(self._groups, name).fill_null("").to_numpy(zero_copy_only=False)

    def number(self, name: str) -> np.ndarray:
        found = pc.replace_substring(pc.struct_field(self._groups, name), ",", ".")
        return pc.cast(pc.if_else(pc.equal(found, ""), None, found), pa.float64()).to_numpy(zero_copy_only=False)


def parse(text: pa.Array, order: str) -> np.ndarray:
    """Dates as seconds since 1970 in UTC, (k,) float64; NaN where a text is not one; four digits in front are a year.

    Two digits are a year from 1969 to 2068. Raise for a date that does not exist.
    """
    fields = _Fields(text, DATE)
    a, b, c = (fields.number(name) for name in "abc")
    iso, short = ~np.isnan(fields.number("y")), c < 100
    year = np.where(iso, fields.number("y"), np.where(short, c + np.where(c < 69, 2000, 1900), c))
    month = np.where(iso, fields.number("m"), a if order == "mdy" else b)
    day = np.where(iso, fields.number("d"), b if order == "mdy" else a)
    days, exists = _days(year, month, day)
    clock = np.nan_to_num(_clock(fields))
    wrong = ~np.isnan(year) & ~(exists & (clock < DAY + 1))
    if wrong.any():
        first = int(wrong.argmax())
        raise WrongCellError(f"holds {text[first].as_py()!r}, a date that does not exist", first)
    return days * DAY + clock - _offset(fields)


def parse_clock(text: pa.Array) -> np.ndarray:
    """Times of day as seconds since midnight, (k,) float64; NaN where a text is not one. Raise for 25:00."""
    seconds = _clock(_Fields(text, CLOCK))
    wrong = seconds > DAY
    if wrong.any():
        first = int(wrong.argmax())
        raise WrongCellError(f"holds {text[first].as_py()!r}, a time that does not exist", first)
    return seconds


def _days(year: np.ndarray, month: np.ndarray, day: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Days since 1970 of the Gregorian calendar, and whether there is such a date."""
    known = (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1)
    months = (np.where(known, 12 * (year - 1970) + month - 1, 0)).astype("datetime64[M]")
    start, stop = (moment.astype("datetime64[D]").astype(np.float64) for moment in (months, months + 1))
    exists = known & (day <= stop - start)
    return np.where(exists, start + np.nan_to_num(day) - 1, np.nan), exists


def _clock(fields: _Fields) -> np.ndarray:
    """Seconds since midnight; NaN where there is no time, infinite where there cannot be such a time."""
    hour, minute, second = (fields.number(name) for name in ("hour", "minute", "second"))
    half = np.char.lower(fields.words("half").astype(str))
    impossible = (minute > 59) | (second >= 61) | ((half != "") & ~((hour >= 1) & (hour <= 12)))
    hour = np.where(half == "", hour, hour % 12 + 12 * (half == "pm"))
    seconds = 3600 * hour + 60 * minute + np.nan_to_num(second)
    return np.where(impossible & ~np.isnan(hour), np.inf, seconds)


def _offset(fields: _Fields) -> np.ndarray:
    """Seconds by which the clock of a time zone is ahead of UTC; 0 without one."""
    zones, codes = np.unique(fields.words("zone").astype(str), return_inverse=True)
    digits = [(zone[0], int(zone[1:3]), int(zone[-2:])) if zone[:1] in ("+", "-") else ("+", 0, 0) for zone in zones]
    return np.array([(-1 if sign == "-" else 1) * (3600.0 * h + 60 * m) for sign, h, m in digits])[codes]


def parts_of(seconds: np.ndarray, clock: bool) -> tuple[str, ...]:
    """Which parts times in training have, given those that are there: of times of day the hour and the clock.

    Of dates the year, the season if they span more than 60 days, and the clock if their times of day differ.
    """
    if clock:
        return ("hour", "clock")
    season = ("season",) if np.ptp(seconds) > SEASONAL else ()
    times = seconds % DAY
    return ("year", *season, *(("clock",) if np.ptp(times) > 0 else ()))


def features(seconds: np.ndarray, parts: Sequence[str]) -> np.ndarray:
    """The numbers of each part, (N,) -> (N, k), NaN where a time is missing.

    "year" is 1970 + t/(365.2425 days) and "hour" t/(1 hour). "season" and "clock" are sin 2πs and cos 2πs, of the
    fraction s of the calendar year or of the day that has passed.
    """
    columns = []
    for part in parts:
        if part == "year":
            columns.append(1970 + seconds / YEAR)
        elif part == "hour":
            columns.append(seconds / 3600)
        else:
            angle = 2 * np.pi * (_fraction_of_year(seconds) if part == "season" else seconds % DAY / DAY)
            columns += [np.sin(angle), np.cos(angle)]
    return np.stack(columns, axis=1)


def _fraction_of_year(seconds: np.ndarray) -> np.ndarray:
    known = np.where(np.isnan(seconds), 0, seconds)
    year = np.floor(known / DAY).astype("datetime64[D]").astype("datetime64[Y]")
    start, stop = (moment.astype("datetime64[D]").astype(np.float64) * DAY for moment in (year, year + 1))
    return (seconds - start) / (stop - start)


def check_calendar(seconds: np.ndarray) -> None:
    """Raise for a time before the year 1 or after 9999."""
    first, last = (float(np.datetime64(day, "s").astype(np.int64)) for day in ("0001-01-01", "9999-12-31"))
    wrong = (seconds < first) | (seconds > last + DAY)
    if wrong.any():
        row = int(wrong.argmax())
        raise WrongCellError("has a date before the year 1 or after 9999", row)


def described(value: float, part: str) -> str:
    """A limit of the year or the hour as a date or a time."""
    if part == "hour":
        return f"{int(value):02d}:{int(value * 60 % 60):02d}"
    return str(np.datetime64(round((value - 1970) * YEAR), "s").astype("datetime64[D]"))
