"""Series of numbers at regular times, read from tables; their splits, scaling and windows.

How a table is written is found in its first lines:

    separator   tab, ; or ,        decimal sign   . or ,        heading   with or without names of the columns
    times       2016-07-01, 2016/7/1 0:15, 2016-07-01T00:00:00Z, 20160701, 1949-01, integers with a common step, or none

Times must have one step: a number of seconds, business days or months, or of integers. Rows and cells that are missing
are errors with file and line, or are filled where that is requested, and counted.

    history   x_(t−L+1) … x_t          what a forecast at t may look at
    future    x_(t+1) … x_(t+H)        what it predicts; H is the horizon
"""

import csv
import math
import re
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64, Shaped
from numpy.lib.stride_tricks import sliding_window_view
from pydantic import Field

from seqloom.core.arrays import ArrayFolder, ArrayFolderWriter, ArrayLayout, damaged, open_folder
from seqloom.core.config import Config
from seqloom.core.errors import ConfigError, DataError, Problem, Problems, check_known
from seqloom.core.files import LineReader
from seqloom.core.text_files import bare_name

Times = Shaped[np.ndarray, " time"]
"""int64, or datetime64 in months, days, seconds or microseconds."""
Fill = Literal["linear", "previous"]
TimeKind = Literal["month", "date", "date-time", "date-time with offset", "integer"]
Unit = Literal["integers", "microseconds", "business days", "months"]

SAMPLED_LINES = 1_000
"""Lines at the beginning of a file in which its form is found."""

MIN_ROWS = 2
"""Rows that a series must have: one has neither a step nor a deviation."""

MIN_COUNTED_ROWS = 3
"""Rows from which integers can be times: any two have a common step."""

MAX_FILLED_SHARE = 0.5
"""The largest share of the values that may be filled: with more, mostly the filling would be learned."""

FILLING = "fill=linear or fill=previous fills gaps"

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "-"})
"""Cells without a value, in lower case."""

_NUMBER = re.compile(r"[+-]?(?:\d+(?:[.,]\d*)?|[.,]\d+)(?:[eE][+-]?\d+)?")
_INTEGER = re.compile(r"[+-]?\d{1,18}")
_INFINITE = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
_TIME = re.compile(
    r"(?P<year>\d{1,4})[-/](?P<month>\d{1,2})"
    r"(?:[-/](?P<day>\d{1,2})"
    r"(?P<clock>[T ](?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,6})\d*)?)?"
    r"\s?(?P<zone>Z|[+-]\d\d:?\d\d)?)?)?"
)
_COMPACT_DATE = re.compile(r"(1[89]|2[01])\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])")


class SeriesConfig(Config):
    """How a table of numbers is read."""

    time_column: int | None = Field(None, ge=0, le=1_000_000)
    """The column of the times, counted from 1; 0 if the table has none. By default found."""
    fill: Fill | None = None
    """How rows and cells that are missing get values: on the line between their neighbours (linear), or as the previous
    value. By default they are errors."""


# --- values -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Series:
    """Series over the same times, a column each."""

    names: tuple[str, ...]
    times: Times | None
    """Rising with one step; None for rows that are counted only."""
    values: Float64[np.ndarray, "time columns"]
    """Finite; read-only."""

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.values)


@dataclass(frozen=True)
class Frequency:
    """The step from each time to the next."""

    unit: Unit
    step: int
    at_month_end: bool = False
    """Whether all times are on the last day of a month."""

    def count(self, times: Times) -> Int64[np.ndarray, " time"]:
        """Times as numbers of units, of which neighbours differ by `step`."""
        match self.unit:
            case "integers":
                return times.astype(np.int64)
            case "months":
                return times.astype("M8[M]").astype(np.int64)
            case "business days":
                days = times.astype("M8[D]")
                return np.asarray(np.busday_count(np.datetime64(0, "D"), days), np.int64)
            case "microseconds":
                return times.astype("M8[us]").astype(np.int64)

    def __str__(self) -> str:
        match self.unit:
            case "integers":
                return f"integers with step {self.step}"
            case "months":
                return {1: "monthly", 3: "quarterly", 12: "yearly"}.get(self.step, f"every {self.step} months")
            case "business days":
                return "business days"
            case "microseconds":
                return _SPANS.get(self.step) or f"every {_span(self.step)}"


_SPANS = {604_800_000_000: "weekly", 86_400_000_000: "daily", 3_600_000_000: "hourly"}
_PARTS = (("week", 604_800), ("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


def _span(microseconds: int) -> str:
    """A length of time in the largest unit of which it is a multiple: 15 minutes."""
    for name, seconds in _PARTS:
        count, rest = divmod(microseconds, seconds * 1_000_000)
        if not rest:
            return f"{count:,} {name}s" if count != 1 else f"1 {name}"
    return f"{microseconds / 1e6:,} seconds"


# --- the form of a table ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SeriesForm:
    """How a table of numbers is written, and what that was found by."""

    separator: str
    decimal: str
    """The decimal sign."""
    has_heading: bool
    columns: int
    """Columns of the table, that of the times included."""
    time_column: int | None
    """Counted from 0."""
    time_kind: TimeKind | None
    reasons: tuple[str, ...]
    """A sentence for each thing that was found."""

    def split(self, line: str) -> list[str]:
        """The cells of a line; a csv.Error says what is wrong with its quotes."""
        if '"' not in line:
            return line.split(self.separator)
        return next(csv.reader([line], delimiter=self.separator, strict=True))

    def number(self, cell: str) -> float:
        """The number in a cell; NaN for a missing one. A ValueError shows a cell that is not a finite number."""
        cell, foreign = cell.strip(), "," if self.decimal == "." else "."
        if _NUMBER.fullmatch(cell) and foreign not in cell:
            number = float(cell.replace(",", "."))
            if not math.isfinite(number):
                raise ValueError(f"{cell[:40]!r} is too large for a number of 64 bits")
            return number
        if cell.lower() in MISSING:
            return math.nan
        if _INFINITE.fullmatch(cell):
            raise ValueError(f"{cell!r} is not a finite number")
        sign = f": the decimal sign of this table is {self.decimal!r}" if _NUMBER.fullmatch(cell) else ""
        raise ValueError(f"{cell[:40]!r} is not a number{sign}")

    def time(self, cell: str) -> "datetime | int":
        """The time in a cell, in UTC if it has an offset; a ValueError shows a cell that has none of this kind."""
        cell = cell.strip()
        if self.time_kind == "integer":
            if not _INTEGER.fullmatch(cell):
                raise ValueError(f"the time {cell[:40]!r} is not an integer, as in the other rows")
            return int(cell)
        kind, time = _read_time(cell)
        if kind != self.time_kind:
            raise ValueError(f"the time {cell!r} is a {kind}; the other rows have a {self.time_kind}")
        return time


def _read_time(cell: str) -> tuple[TimeKind, datetime]:
    """A time and its kind; a ValueError shows what is not one."""
    if _COMPACT_DATE.fullmatch(cell):
        cell = f"{cell[:4]}-{cell[4:6]}-{cell[6:]}"
    found = _TIME.fullmatch(cell)
    if found is None:
        raise ValueError(f"{cell[:40]!r} is not a time; write it as 2016-07-01, 2016-07-01 00:15:00, or 2016-07")
    year, month, day = int(found["year"]), int(found["month"]), int(found["day"] or 1)
    hour, minute, second = (int(found[name] or 0) for name in ("hour", "minute", "second"))
    microsecond = int((found["fraction"] or "0").ljust(6, "0"))
    try:
        time = datetime(year, month, day, hour, minute, second, microsecond)
        if found["zone"]:
            zone = datetime.strptime(found["zone"], "%z").tzinfo
            time = time.replace(tzinfo=zone).astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{cell!r} is not a time: {error}") from error
    if found["clock"]:
        return "date-time with offset" if found["zone"] else "date-time", time
    return "date" if found["day"] else "month", time


def _kind(cell: str) -> Literal["missing", "number", "time", "text"]:
    cell = cell.strip()
    if cell.lower() in MISSING:
        return "missing"
    if _NUMBER.fullmatch(cell):
        return "number"
    return "time" if _TIME.fullmatch(cell) else "text"


def find_series_form(path: Path, lines: Sequence[str], *, time_column: int | None = None) -> SeriesForm:
    """The form of a table of numbers with these first lines; a DataError says why it is none.

    `time_column` is the column of the times, counted from 1, if it was given; 0 if the table has none.
    """
    lines = [line for line in lines if line.strip()]
    if not lines:
        raise DataError(problems=[Problem("empty; expected a table of numbers", str(path), 1)])
    reasons = []
    separator = "," if "," in lines[0] else ""
    if bare_name(path).lower().endswith(".tsv") or "\t" in lines[0]:
        separator = "\t"
    elif any(";" in re.sub(r'"[^"]*"', "", line) for line in lines[:2]):
        separator = ";"
    names = {"\t": "tabs", ";": "semicolons", ",": "commas", "": ""}
    reasons.append(f"columns are separated by {names[separator]}" if separator else "one column: no separator found")
    draft = SeriesForm(separator or ",", ".", False, 1, None, None, ())
    rows = []
    for line in lines:
        try:
            rows.append([cell.strip() for cell in draft.split(line)])
        except csv.Error:  # reported with its line when the table is read
            continue
    if not rows:
        raise DataError(problems=[Problem("a quote is not closed", str(path), 1)])
    body = rows[1:] or rows
    width = Counter(map(len, body)).most_common(1)[0][0]
    body = [row for row in body if len(row) == width]
    kinds = [Counter(_kind(row[at]) for row in body) for at in range(width)]

    time_at, time_kind = None, None
    if time_column is not None:
        if not 0 <= time_column <= width:
            raise ConfigError(f"time_column={time_column}, but {path} has {width} columns")
        time_at = time_column - 1 if time_column else None
    else:
        dated = [at for at in range(width) if 2 * kinds[at]["time"] > len(body) - kinds[at]["missing"]]
        if len(dated) > 1:
            message = (
                f"columns {' and '.join(str(at + 1) for at in dated)} both have times; a table has one such column"
            )
            raise DataError(problems=[Problem(message, str(path), 1)])
        if dated:
            time_at = dated[0]
        elif width > 1 and (_are_compact(body) or _are_counted(body)):
            time_at = 0
    if time_at is not None:
        cells = [row[time_at] for row in body]
        time_kind, why = _time_kind(cells, path=path, column=time_at)
        reasons.append(f"column {time_at + 1} has the times: {why}")
    else:
        reasons.append("no column of times: none has dates, or integers with a common step, in its rows")

    numbers = [at for at in range(width) if at != time_at]
    if not numbers:
        raise DataError(problems=[Problem("a column of times and no column of numbers", str(path), 1)])
    first = [*rows[0], *[""] * width][:width]
    named = [first[at] for at in numbers if first[at]]
    # Names may be integers, as pandas writes them: then the cell above the times tells. A damaged time has digits.
    is_above_times = time_at is not None and not re.search(r"\d", first[time_at])
    has_heading = bool(named) and all(
        _kind(name) == "text" or (is_above_times and _INTEGER.fullmatch(name) is not None) for name in named
    )
    if len(rows) == 1 and has_heading:
        raise DataError(problems=[Problem("one line, which has no numbers; expected rows of numbers", str(path), 1)])
    for at in numbers:
        if 2 * kinds[at]["number"] < len(body) - kinds[at]["missing"]:
            name = f" ({first[at][:40]})" if has_heading and first[at] else ""
            shown = next((row[at] for row in body if _kind(row[at]) in ("text", "time")), "")
            message = f"column {at + 1}{name} has text, such as {shown[:40]!r}, where numbers are expected"
            if re.fullmatch(r"\d{1,2}([/.-])\d{1,2}\1\d{2,4}.*", shown):
                message += "; if it is a date, write it as 2016-07-01"
            raise DataError(problems=[Problem(message, str(path), 1 + has_heading)])
    reasons.append(
        f"the first line names the columns: {', '.join(first[at] for at in numbers)[:80]}"
        if has_heading
        else "no heading: the first line has numbers"
    )
    signs = (
        sign
        for row in (body if has_heading else [first, *body])
        for at in numbers
        if _NUMBER.fullmatch(row[at])
        for sign in row[at]
        if sign in ".,"
    )
    decimal = next(signs, ".")
    if decimal == ",":
        reasons.append("the decimal sign is a comma")
    return SeriesForm(separator or ",", decimal, has_heading, width, time_at, time_kind, tuple(reasons))


def _are_compact(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first column has dates such as 20160701."""
    return all(_COMPACT_DATE.fullmatch(row[0]) for row in rows)


def _are_counted(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first column counts: integers, most of them one step after the one before, and hardly any twice.

    Hours of a day from 0 to 23 and again from 0 are therefore values. Counting down is found too, to be refused.
    """
    cells = [row[0] for row in rows]
    if len(cells) < MIN_COUNTED_ROWS or not all(map(_INTEGER.fullmatch, cells)):
        return False
    numbers = np.array([int(cell) for cell in cells])
    step, times = Counter(np.diff(numbers).tolist()).most_common(1)[0]
    is_distinct = len(set(numbers.tolist())) + max(1, len(cells) // 10) >= len(cells)
    return bool(step != 0 and 2 * times > len(cells) - 1 and is_distinct)


def _time_kind(cells: Sequence[str], *, path: Path, column: int) -> tuple[TimeKind, str]:
    """The kind of most times of a column, and a sentence on them."""
    kinds = Counter[TimeKind]()
    is_compact = all(_COMPACT_DATE.fullmatch(cell) for cell in cells)
    for cell in cells:
        if not is_compact and _INTEGER.fullmatch(cell):
            kinds["integer"] += 1
        else:
            try:
                kinds[_read_time(cell)[0]] += 1
            except ValueError:
                continue  # reported with its line when the table is read
    if not kinds:
        message = f"column {column + 1} has no times; the first is {cells[0][:40]!r}"
        raise DataError(problems=[Problem(message, str(path), 1)])
    kind = kinds.most_common(1)[0][0]
    if kind == "date-time with offset":
        return kind, f"date-times such as {cells[0]!r}, converted to UTC"
    return kind, "integers with a common step" if kind == "integer" else f"{kind}s such as {cells[0]!r}"


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SeriesReading:
    """What was read from a file, and how."""

    path: Path
    series: Series
    form: SeriesForm
    frequency: Frequency | None
    """None without times."""
    lines: int
    """Lines of the file."""
    filled_rows: int
    """Rows that were missing and are filled."""
    filled_cells: int
    """Cells without a value, in other rows, that are filled."""
    notices: tuple[str, ...]
    """What was changed while reading, a sentence each."""

    def require_horizon(self, history: int, *, horizon: int, rows: int | None = None) -> None:
        """Refuse a history and horizon for which the series, or so many rows of it, has no window."""
        rows = len(self.series) if rows is None else rows
        if history + horizon > rows:
            message = (
                f"horizon {horizon} is beyond the series: with history {history} a window has {history + horizon:,} "
                f"rows, and there are {rows:,}; choose a shorter horizon or history"
            )
            raise DataError(problems=[Problem(message, str(self.path), self.lines)])


def read_series(
    path: Path, *, time_column: int | None = None, fill: Fill | None = None, encoding: str = "utf-8"
) -> SeriesReading:
    """The series of a table of numbers, plain or compressed. A DataError names all bad lines.

    `fill` says how rows and cells that are missing get values: on the straight line between their neighbours in time,
    or as the previous value. Without it they are errors. For `time_column` see `find_series_form`.
    """
    if fill is not None:
        check_known("fill", fill, ("linear", "previous"))
    reader = LineReader(path, encoding)
    form = find_series_form(path, list(islice(reader, SAMPLED_LINES)), time_column=time_column)
    numbers = [at for at in range(form.columns) if at != form.time_column]
    names = tuple(f"column {at + 1}" for at in numbers)
    cells_read, times, lines = array("d"), list[datetime | int](), list[int]()
    problems, is_first, blanks = Problems(), True, list[int]()
    for number, line in enumerate(reader, start=1):
        if not line.strip():
            blanks.append(number)
            continue
        try:
            cells = form.split(line)
        except csv.Error:
            problems.add("a quote is not closed, or stands inside a cell", path, number)
            continue
        if len(cells) != form.columns:
            message = f"{_counted(len(cells), 'column')}, expected {form.columns}"
            if form.separator == "," and len(cells) > form.columns:
                message += "; if commas are decimal signs, separate the columns by semicolons"
            problems.add(message, path, number)
        elif is_first and form.has_heading:
            names = tuple(cells[at].strip() or f"column {at + 1}" for at in numbers)
            if len(set(names)) < len(names):
                twice = Counter(names).most_common(1)[0][0]
                problems.add(f"several columns are named {twice[:40]!r}; each needs its own name", path, number)
        else:
            if lines and form.time_column is None:  # blank lines between rows are rows without values
                lines += blanks
                cells_read.extend([math.nan] * len(blanks) * len(numbers))
            at = form.time_column
            try:
                if at is not None:
                    times.append(form.time(cells[at]))
                for at in numbers:
                    cells_read.append(form.number(cells[at]))
                lines.append(number)
            except ValueError as error:
                problems.add(f"column {(at or 0) + 1}: {error}", path, number)
        blanks, is_first = [], False
    problems.require_none()
    values = np.array(cells_read).reshape(-1, len(numbers))  # [time, columns]
    if len(values) < MIN_ROWS:
        rows = f"{len(values)} row{'' if len(values) == 1 else 's'}"
        raise DataError(problems=[Problem(f"{rows} of numbers; a series needs at least {MIN_ROWS}", str(path), 1)])

    frequency, stamps, filled_rows = None, None, 0
    positions = np.arange(len(values))
    if form.time_kind is not None:
        stamps = _as_times(times, form.time_kind)
        frequency = _require_step(path, stamps, lines=lines)
        counts = frequency.count(stamps)
        positions = (counts - counts[0]) // frequency.step
        for at in np.flatnonzero(np.diff(counts) != frequency.step).tolist():
            _add_time_problem(problems, path, stamps[at : at + 2], frequency, line=lines[at + 1])
        problems.require_none()
        for at in np.flatnonzero(np.diff(positions) > 1).tolist() if fill is None else []:
            count, (before, after) = int(positions[at + 1] - positions[at]) - 1, format_times(stamps[at : at + 2])
            what = f"{_counted(count, 'row')} missing between {before} and {after} ({frequency})"
            problems.add(f"{what}; {FILLING}", path, lines[at + 1])
        problems.require_none()
        filled_rows = int(positions[-1]) + 1 - len(values)
    missing = np.isnan(values)
    for column, name in enumerate(names):
        _add_gap_problems(problems, path, missing[:, column], name=name, lines=lines, fill=fill)
    problems.require_none()
    notices = list(reader.notices())
    filled_cells = int(missing.sum())
    if filled_rows or filled_cells:
        made = filled_cells + filled_rows * len(names)
        if made > MAX_FILLED_SHARE * (made + values.size - filled_cells):
            message = f"{made:,} values would be filled and {values.size - filled_cells:,} are given; check the times"
            raise DataError(problems=[Problem(message, str(path), lines[0])])
        values = _filled(values, positions, is_linear=fill == "linear")
        if frequency is not None and stamps is not None and filled_rows:
            stamps = np.concatenate([stamps[:1], continue_times(stamps[:1], frequency, steps=len(values) - 1)])
        parts = (filled_rows, "missing row"), (filled_cells, "missing cell")
        what = " and ".join(_counted(count, noun) for count, noun in parts if count)
        notices.append(f"{path}: {what} {'was' if filled_rows + filled_cells == 1 else 'were'} filled ({fill})")
    values.flags.writeable = False
    series = Series(names, stamps, values)
    return SeriesReading(path, series, form, frequency, reader.lines, filled_rows, filled_cells, tuple(notices))


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _as_times(times: Sequence[datetime | int], kind: TimeKind) -> Times:
    """Times in the coarsest unit that holds them."""
    if kind == "integer":
        return np.array(times, np.int64)
    exact = np.array(times, "M8[us]")
    if kind in ("date-time", "date-time with offset"):
        return (
            exact if any(isinstance(time, datetime) and time.microsecond for time in times) else exact.astype("M8[s]")
        )
    return exact.astype("M8[M]" if kind == "month" else "M8[D]")


def _require_step(path: Path, times: Times, *, lines: Sequence[int]) -> Frequency:
    """The step that most times have; a DataError for times that fall throughout or have none."""
    steps = np.diff(times)
    if not (steps > steps.dtype.type(0)).any():
        is_doubled = not (steps < steps.dtype.type(0)).any()
        what = "all times are the same" if is_doubled else "the times fall from row to row; sort the rows, oldest first"
        raise DataError(problems=[Problem(what, str(path), lines[1])])
    frequency = find_frequency(times)
    fits = np.diff(frequency.count(times)) == frequency.step
    if 2 * int(fits.sum()) < len(steps):
        at = int(np.flatnonzero(~fits)[0]) + 1
        message = (
            f"the times have no common step: the most frequent one ({frequency}) is between {int(fits.sum()):,} of "
            f"{len(steps):,} neighbours; bring the rows to regular times first"
        )
        raise DataError(problems=[Problem(message, str(path), lines[at])])
    return frequency


def _add_time_problem(problems: Problems, path: Path, pair: Times, frequency: Frequency, *, line: int) -> None:
    """What is wrong with a step between two times that is not the usual one, unless rows are missing."""
    before, after = format_times(pair)
    one, other = frequency.count(pair).tolist()
    if pair[0] == pair[1]:
        problems.add(f"the time {after} is doubled: the row before has it too", path, line)
    elif pair[0] > pair[1]:
        problems.add(f"the times fall: {after} comes after {before}", path, line)
    elif one == other or (other - one) % frequency.step:
        problems.add(f"{after} comes after {before}, which does not fit the step ({frequency})", path, line)


def _add_gap_problems(
    problems: Problems,
    path: Path,
    missing: Bool[np.ndarray, " time"],
    *,
    name: str,
    lines: Sequence[int],
    fill: Fill | None,
) -> None:
    """What is wrong with the cells of a column that have no value, unless they will be filled."""
    given = np.flatnonzero(~missing)
    if not len(given):
        problems.add(f"series {name!r} has no values", path, lines[0])
        return
    first, last = int(given[0]), int(given[-1])
    if first > 0 and fill is not None:
        problems.add(
            f"series {name!r} begins in line {lines[first]:,}: its first values cannot be filled", path, lines[0]
        )
    if last < len(missing) - 1 and fill != "previous":
        remedy = (
            "fill=previous repeats its last value"
            if fill
            else "cut the others, or repeat its last value: fill=previous"
        )
        message = f"series {name!r} is too short: its last value is in line {lines[last]:,}; {remedy}"
        problems.add(message, path, lines[last + 1])
    if fill is None:
        for at in np.flatnonzero(missing[:last]).tolist():
            problems.add(f"series {name!r} has no value; {FILLING}", path, lines[at])


def _filled(
    values: Float64[np.ndarray, "time columns"], positions: Int64[np.ndarray, " time"], *, is_linear: bool
) -> Float64[np.ndarray, "all columns"]:
    """Values at all positions from the first to the last."""
    everywhere = np.arange(positions[-1] + 1)
    filled = np.empty((len(everywhere), values.shape[1]))
    for column in range(values.shape[1]):
        given = ~np.isnan(values[:, column])
        known, numbers = positions[given], values[given, column]
        if is_linear:
            filled[:, column] = np.interp(everywhere, known, numbers)
        else:
            filled[:, column] = numbers[np.searchsorted(known, everywhere, side="right") - 1]
    return filled


# --- times ------------------------------------------------------------------------------------------------------------


def find_frequency(times: Times) -> Frequency:
    """The most frequent step of rising times, of the smallest ones if several are.

    Months if all are on one day of the month, or on the last, at one time of day; business days if they leave out
    weekends; else a length of time.
    """
    if times.dtype.kind != "M":
        return Frequency("integers", _most_frequent_step(times.astype(np.int64)))
    exact = times.astype("M8[us]")
    days, months = exact.astype("M8[D]"), exact.astype("M8[M]")
    if len(np.unique(exact - days)) == 1:
        is_one_day = len(np.unique(days - months.astype("M8[D]"))) == 1
        at_month_end = not is_one_day and bool(((days + 1).astype("M8[M]") > months).all())
        if (is_one_day or at_month_end) and len(np.unique(months)) > 1:
            return Frequency("months", _most_frequent_step(months.astype(np.int64)), at_month_end)
        step = _most_frequent_step(days.astype(np.int64))
        is_weekday = bool(np.is_busday(days).all())
        has_weekend = bool((np.diff(days).astype(np.int64) == 3).any())
        if step == 1 and is_weekday and has_weekend:
            return Frequency("business days", 1)
    return Frequency("microseconds", _most_frequent_step(exact.astype(np.int64)))


def _most_frequent_step(counts: Int64[np.ndarray, " time"]) -> int:
    steps = np.diff(counts)
    different, occurrences = np.unique(steps[steps > 0], return_counts=True)
    return int(different[occurrences.argmax()])


def continue_times(times: Times, frequency: Frequency, *, steps: int) -> Shaped[np.ndarray, " steps"]:
    """The times of the next `steps` rows, in the unit of the times: for a forecast.

    Months keep the day of the last time, or end on their own last day where all times do.
    """
    last, ahead = times[-1:], np.arange(1, steps + 1) * frequency.step
    if frequency.unit == "integers":
        return np.asarray(last + ahead, np.int64)
    day = last.astype("M8[D]")
    clock = last.astype("M8[us]") - day
    match frequency.unit:
        case "months":
            months = last.astype("M8[M]") + ahead
            starts, ends = months.astype("M8[D]"), (months + 1).astype("M8[D]") - 1
            same_days = np.minimum(starts + (day - last.astype("M8[M]").astype("M8[D]")), ends)
            found = (ends if frequency.at_month_end else same_days) + clock
        case "business days":
            found = np.busday_offset(day, ahead) + clock
        case "microseconds":
            found = last.astype("M8[us]") + ahead
    return np.asarray(found.astype(times.dtype))


def format_times(times: Times) -> list[str]:
    """Times as text: 1949-01, 2016-07-01, 2016-07-01 00:15:00, or integers."""
    if times.dtype.kind != "M":
        return [str(time) for time in times.tolist()]
    return [text.replace("T", " ") for text in np.datetime_as_string(times).tolist()]


# --- splits, scaling, windows -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SeriesSplit:
    """Rows to fit on, to choose by and to measure on, one after the other."""

    train: range
    dev: range
    test: range
    unused: int
    """Rows after the test part."""


def split_by_counts(rows: int, *, train: int, dev: int, test: int) -> SeriesSplit:
    """Cut off so many first rows for each part."""
    if min(train, dev, test) < 0 or train == 0:
        raise ConfigError(f"train={train}, dev={dev}, test={test}: rows of a part must be positive, 0 for none")
    if train + dev + test > rows:
        raise DataError(f"{train:,} + {dev:,} + {test:,} rows were requested, and the series has {rows:,}")
    ends = train, train + dev, train + dev + test
    return SeriesSplit(range(ends[0]), range(ends[0], ends[1]), range(ends[1], ends[2]), rows - ends[2])


def split_by_shares(rows: int, *, dev: float, test: float) -> SeriesSplit:
    """Cut off the shares for dev and test at the end, rounded down; all rows before them are to fit on."""
    if min(dev, test) < 0 or dev + test >= 1:
        raise ConfigError(f"dev={dev} and test={test} must be shares from 0, and less than 1 in sum")
    cut = int(rows * dev), int(rows * test)
    return split_by_counts(rows, train=rows - sum(cut), dev=cut[0], test=cut[1])


@dataclass(frozen=True, eq=False)
class Scaling:
    """Values in deviations from the mean of their column.

    z = (x − mean) / deviation
    """

    mean: Float64[np.ndarray, " columns"]
    deviation: Float64[np.ndarray, " columns"]
    """1 for a column that is constant."""

    def apply(self, values: Float64[np.ndarray, "... columns"]) -> Float64[np.ndarray, "... columns"]:
        """Scale values."""
        return np.asarray((values - self.mean) / self.deviation)

    def invert(self, scaled: Float64[np.ndarray, "... columns"]) -> Float64[np.ndarray, "... columns"]:
        """The values that were scaled."""
        return np.asarray(scaled * self.deviation + self.mean)


def fit_scaling(values: Float64[np.ndarray, "time columns"]) -> Scaling:
    """Mean and deviation (of the population) of each column of the training part."""
    is_constant = values.max(axis=0) == values.min(axis=0)  # rounding may give it a deviation above zero
    return Scaling(values.mean(axis=0), np.where(is_constant, 1.0, values.std(axis=0)))


class SeriesWindows(NamedTuple):
    """Histories and what followed them: views of the same values, which are not copied."""

    history: Float64[np.ndarray, "windows history columns"]
    future: Float64[np.ndarray, "windows horizon columns"]


def cut_windows(
    values: Float64[np.ndarray, "time columns"], part: range, *, history: int, horizon: int, stride: int = 1
) -> SeriesWindows:
    """All windows whose future is in a part of the rows; their history may reach back before it.

    With t = part.start − 1, part.start − 1 + stride, … as the last row of a history; later if there are fewer rows
    than a history before the part.
    """
    if min(history, horizon, stride) < 1:
        raise ConfigError(f"history={history}, horizon={horizon} and stride={stride} must be at least 1")
    begin = max(0, part.start - history)
    rows, length = part.stop - begin, history + horizon
    if length > rows:
        raise DataError(
            f"horizon {horizon} is beyond the series: with history {history} a window has {length:,} rows, and rows "
            f"{begin:,} to {part.stop:,} are {rows:,}; choose a shorter horizon or history"
        )
    views = sliding_window_view(values[begin : part.stop], length, axis=0)[::stride]  # [windows, columns, length]
    views = views.transpose(0, 2, 1)  # [windows, length, columns]
    return SeriesWindows(views[:, :history], views[:, history:])


# --- stored series ----------------------------------------------------------------------------------------------------
#
# A folder with raw little-endian arrays and a header, as of other stores:
#
#     values      rows one after another, all columns of each
#     first       rows at the beginning that serve as history only

LAYOUT = ArrayLayout("store of series", "series.json", 1, lambda _: {"values": "<f8", "first": "<i8"})


def store_series(values: Float64[np.ndarray, "time columns"], folder: Path, *, first: int = 0) -> None:
    """Store values in a new folder; the first `first` rows serve as history only."""
    writer, is_good = ArrayFolderWriter(folder, LAYOUT, symbols=values.shape[1]), False
    try:
        writer.append({"values": values.ravel(), "first": np.array([first])})
        is_good = True
    finally:
        writer.end(len(values) - first, is_good=is_good, nothing="no rows are left to store")


@dataclass(frozen=True, eq=False)
class SeriesStore:
    """What `store_series` has stored."""

    values: Float64[np.ndarray, "time columns"]
    first: int
    folder: ArrayFolder

    @staticmethod
    def open(folder: Path, *, columns: int) -> "SeriesStore":
        """Map a store into memory, after its hashes were compared with the header."""
        found = open_folder(folder, LAYOUT, verify=True)
        values, first = found.arrays["values"], int(found.arrays["first"][0])
        rows, rest = divmod(len(values), columns)
        if rest or found.symbols != columns or not 0 <= first < rows:
            raise damaged(folder, LAYOUT, f"{len(values):,} values do not fit {columns} columns, {first} rows before")
        return SeriesStore(values.reshape(rows, columns), first, found)

    @property
    def part(self) -> range:
        """The rows that futures are in."""
        return range(self.first, len(self.values))

    def fingerprint(self) -> str:
        """A hash of all that is stored."""
        return self.folder.fingerprint()
