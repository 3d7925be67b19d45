"""Series of numbers: many ways to write one table, what is wrong by file and line, times, and windows as views."""

import calendar
import gzip
import re
from datetime import date, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.core.errors import ConfigError, DataError
from seqloom.data.series import (
    continue_times,
    cut_windows,
    find_frequency,
    fit_scaling,
    format_times,
    read_series,
    split_by_counts,
    split_by_shares,
)

VALUES = [(1.5, 20.0), (-2.25, 21.0), (0.5, 19.0), (3.0, 2e4), (1.75, -20.5)]
DATES = ["2016-02-27", "2016-02-28", "2016-02-29", "2016-03-01", "2016-03-02"]


def write(path: Path, *lines: str, end: str = "\n") -> Path:
    path.write_bytes("".join(line + end for line in lines).encode())
    return path


def rows(separator: str, *, decimal: str = ".", times: list[str] | None = None) -> list[str]:
    cells = [[str(number).replace(".", decimal) for number in row] for row in VALUES]
    times = DATES if times is None else times
    return [separator.join([*time, *row]) for time, row in zip([[time] for time in times], cells, strict=True)]


def without_times(separator: str) -> list[str]:
    return [separator.join(map(str, row)) for row in VALUES]


FORMS = {
    "headed.csv": ["date,a,b", *rows(",")],
    "bare.csv": rows(","),
    "headed.tsv": ["date\ta\tb", *rows("\t")],
    "comma.csv": ["date;a;b", *rows(";", decimal=",")],
    "quoted.csv": ['"date","a","b"', *(re.sub(r"[^,]+", r'"\g<0>"', row) for row in rows(","))],
    "quoted-comma.csv": ["date,a,b", *(f'{d},"{str(a).replace(".", ",")}",{b:g}'.replace("-20.5", '"-20,5"')
                                       for d, (a, b) in zip(DATES, VALUES, strict=True))],
    "slashes.csv": ["date,a,b", *rows(",", times=["2016/2/27", "2016/2/28", "2016/2/29", "2016/3/1", "2016/3/2"])],
    "compact.csv": rows(",", times=[day.replace("-", "") for day in DATES]),
    "last.csv": ["a,b,date", *(f"{a},{b},{day}" for day, (a, b) in zip(DATES, VALUES, strict=True))],
    "untimed.csv": ["a,b", *without_times(",")],
    "numbers.txt": without_times(";"),
}  # fmt: skip


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_the_same_series(tmp_path: Path, name: str, end: str) -> None:
    path = write(tmp_path / name, *FORMS[name], end=end)
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for reading in (read_series(path), read_series(packed)):
        series = reading.series
        assert series.values.tolist() == [list(row) for row in VALUES]
        is_headed = FORMS[name][0].replace('"', "")[0] in "ad"
        assert reading.form.has_heading == is_headed
        assert series.names == (("a", "b") if is_headed else series.names)
        if name in ("untimed.csv", "numbers.txt"):
            assert series.times is None
            assert reading.frequency is None
            assert reading.form.time_column is None
        else:
            assert series.times is not None
            assert format_times(series.times) == DATES
            assert str(reading.frequency) == "daily"
            assert any(
                f"column {3 if name == 'last.csv' else 1} has the times: dates" in r for r in reading.form.reasons
            )
        assert not series.values.flags.writeable


DAYS = [f"2016-03-{day:02}" for day in range(1, 11)]


def table(*times: str) -> list[str]:
    return ["date,v", *(f"{time},{number}.5" for number, time in enumerate(times))]


BAD = {
    "empty file": ([], 1, "empty"),
    "heading only": (["a,b"], 1, "no numbers"),
    "one row": (["v", "1"], 1, "1 row of numbers; a series needs at least 2"),
    "text": (["v", "1", "2", "x7", "3"], 4, "'x7' is not a number"),
    "underscore": (["v", "1", "1_0", "3"], 3, "'1_0' is not a number"),
    "infinite": (["v", "1", "2", "-inf", "3"], 4, "'-inf' is not a finite number"),
    "overflow": (["v", "1", "2", "1e999", "3"], 4, "too large"),
    "NaN": (["v", "1", "nan", "2", "3"], 3, "'v' has no value; fill=linear"),
    "empty cell": (["a,b", "1,2", "9,", "4,5", "2,2"], 3, "'b' has no value; fill=linear"),
    "blank line": (["v", "1", "", "2"], 3, "'v' has no value"),
    "short column": (["a,b", "1,2", "9,1", "4,", "2,"], 4, "'b' is too short: its last value is in line 3"),
    "columns": (["a,b", "1,2", "3,4,5", "6,8"], 3, "3 columns, expected 2"),
    "quote": (["a,b", "1,2", '"3,4', "6,8"], 3, "quote"),
    "two decimal signs": (["1,5;2", "2.5;3", "1;1"], 2, "'2.5' is not a number: the decimal sign of this table is ','"),
    "column of text": (["d,city,v", *(f"{day},Rome,1" for day in DAYS)], 2, "column 2 (city) has text, such as 'Rome'"),
    "ambiguous date": (["d,v", "01/02/2016,1", "01/03/2016,2"], 2, "write it as 2016-07-01"),
    "two names": (["a,a", "1,2", "9,3"], 1, "several columns are named 'a'"),
    "gap": (table(*DAYS[:2], *DAYS[4:]), 4, "2 rows missing between 2016-03-02 and 2016-03-05 (daily); fill=linear"),
    "doubled": (table(*DAYS[:4], *DAYS[3:]), 6, "2016-03-04 is doubled"),
    "falling": (table(*DAYS[:4], DAYS[2], *DAYS[4:]), 6, "the times fall: 2016-03-03 comes after 2016-03-04"),
    "reversed": (table(*DAYS[::-1]), 3, "the times fall from row to row; sort the rows"),
    "invalid date": (table(*DAYS[:3], "2016-02-30", *DAYS[4:]), 5, "'2016-02-30' is not a time"),
    "damaged first date": (table("2016-03-0x", *DAYS)[1:], 1, "'2016-03-0x' is not a time"),
    "other kind": (table(*DAYS[:3], "2016-04", *DAYS[4:]), 5, "'2016-04' is a month; the other rows have a date"),
    "no step": (table(*(DAYS[at] for at in (0, 4, 5, 7))), 3, "no common step"),
    "off the step": (
        table("2016-01-01 00:00", "2016-01-01 01:00", "2016-01-01 02:10", "2016-01-01 03:10", "2016-01-01 04:10"),
        *(4, "does not fit the step (hourly)"),
    ),
    "doubled year": (["year,v", "1949,1.5", "1950,2", "1950,3", "1951,5", "1952,3"], 4, "1950 is doubled"),
    "counting down": (["5,1.5", "4,2", "3,7", "2,5"], 2, "the times fall from row to row; sort the rows"),
    "holiday": (
        table(*(f"2016-02-{day:02}" for day in (1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 16, 17))),
        *(12, "1 row missing between 2016-02-12 and 2016-02-16 (business days)"),
    ),
    "times only": (DAYS, 1, "no column of numbers"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_has_file_line_and_one_sentence(tmp_path: Path, name: str) -> None:
    lines, line, message = BAD[name]
    path = write(tmp_path / "series.csv", *lines)
    with pytest.raises(DataError) as caught:
        read_series(path)
    first = caught.value.problems[0]
    assert (first.file, first.line) == (str(path), line)
    assert message in first.message
    assert "\n" not in first.message


def test_gaps_are_filled_on_request_and_counted(tmp_path: Path) -> None:
    lines = ["t,a,b", "10,1,5", "11,2,", "12,3,8", "15,9,2", "16,1,", "17,0,4"]
    path = write(tmp_path / "gaps.csv", *lines)
    linear, previous = read_series(path, fill="linear"), read_series(path, fill="previous")
    for reading in (linear, previous):
        assert (reading.filled_rows, reading.filled_cells) == (2, 2)
        assert reading.series.times is not None
        assert reading.series.times.tolist() == list(range(10, 18))
    assert linear.series.values.T.tolist() == [[1, 2, 3, 5, 7, 9, 1, 0], [5, 6.5, 8, 6, 4, 2, 3, 4]]
    assert previous.series.values.T.tolist() == [[1, 2, 3, 3, 3, 9, 1, 0], [5, 5, 8, 8, 8, 2, 2, 4]]
    assert linear.notices == (f"{path}: 2 missing rows and 2 missing cells were filled (linear)",)
    with pytest.raises(DataError, match=r"gaps.csv:5: 2 rows missing between 12 and 15"):
        read_series(path)
    with pytest.raises(DataError, match="3: series 'a' begins in line 4: its first values cannot be filled"):
        read_series(write(tmp_path / "start.csv", "", "a,b", ",5", "1,7", "3,3"), fill="linear")
    with pytest.raises(DataError, match=r"2,556,6.. values would be filled and 4 are given"):
        read_series(write(tmp_path / "year.csv", *table(*DAYS[:3], "9016-03-04")), fill="linear")


def test_a_column_of_counted_integers_is_the_time_unless_it_repeats_or_that_is_overruled(tmp_path: Path) -> None:
    counted = read_series(write(tmp_path / "counted.csv", ",0,1", *(f"{3 * n},{n * n}.5,{n}" for n in range(9))))
    assert counted.series.names == ("0", "1")  # as pandas writes names that are integers
    assert counted.series.times is not None
    assert (counted.series.times.tolist(), str(counted.frequency)) == (list(range(0, 27, 3)), "integers with step 3")
    last = read_series(write(tmp_path / "last.csv", "a,b", *(f"{n * n % 7},{n}" for n in range(9))), time_column=2)
    assert (last.series.names, last.form.time_column) == (("a",), 1)
    hours = read_series(write(tmp_path / "hours.csv", "hour,load", *(f"{n % 24},{n * n % 17}" for n in range(72))))
    assert hours.series.names == ("hour", "load")
    untimed = read_series(write(tmp_path / "ramp.csv", *(f"{n},{n * n}" for n in range(9))), time_column=0)
    assert (untimed.series.times, untimed.series.names) == (None, ("column 1", "column 2"))
    with pytest.raises(ConfigError, match=r"time_column=4, but .* has 3 columns"):
        read_series(tmp_path / "counted.csv", time_column=4)


def test_offsets_from_utc_are_removed_across_a_change_of_clocks(tmp_path: Path) -> None:
    local = ["2016-03-27T00:00+01:00", "2016-03-27T01:00+01:00", "2016-03-27T03:00+02:00", "2016-03-27T04:00+02:00"]
    reading = read_series(write(tmp_path / "zones.csv", *table(*local)))
    assert str(reading.frequency) == "hourly"
    assert reading.series.times is not None
    assert format_times(reading.series.times)[0] == "2016-03-26 23:00:00"
    with pytest.raises(DataError, match="1 row missing"):
        read_series(write(tmp_path / "local.csv", *table(*(time[:16] for time in local), "2016-03-27T05:00")))


# --- times ------------------------------------------------------------------------------------------------------------


def months_later(day: date, months: int) -> date:
    month = day.month - 1 + months
    year, month = day.year + month // 12, month % 12 + 1
    return date(year, month, min(day.day, calendar.monthrange(year, month)[1]))


def month_end(day: date) -> date:
    return day.replace(day=calendar.monthrange(day.year, day.month)[1])


def business_days(start: date, count: int) -> list[date]:
    days = (start + timedelta(days=n) for n in range(2 * count + 9))
    return [day for day in days if day.weekday() < 5][:count]


STARTS = st.dates(date(1900, 1, 1), date(2100, 12, 31))


@given(STARTS, st.integers(1, 14), st.sampled_from(["day", "month", "month end", "business", "clock"]), st.data())
def test_times_continue_as_the_calendar_does(start: date, step: int, unit: str, data: st.DataObject) -> None:
    """Each calendar is written with Python's dates; a prefix of it, continued, must give the rest."""
    count = 24
    times: list[date] | list[datetime]
    match unit:
        case "day":
            times = [start + timedelta(days=step * n) for n in range(count)]
        case "month":
            times = [months_later(start.replace(day=min(start.day, 28)), step * n) for n in range(count)]
        case "month end":
            times = [month_end(months_later(start.replace(day=1), n)) for n in range(count)]
        case "business":
            times = business_days(start, count)
        case _:
            begin = datetime(start.year, start.month, start.day, 23, 7)
            times = [begin + timedelta(minutes=5 * step * n) for n in range(count)]
    everything = np.array(times, "M8[s]" if unit == "clock" else "M8[D]")
    known = data.draw(st.integers(12, count - 1))
    frequency = find_frequency(everything[:known])
    assert frequency.unit == {"day": "microseconds", "business": "business days", "clock": "microseconds"}.get(
        unit, "months"
    )
    followed = continue_times(everything[:known], frequency, steps=count - known)
    assert followed.dtype == everything.dtype
    assert followed.tolist() == everything[known:].tolist()


@pytest.mark.parametrize(
    ("times", "name", "following"),
    [
        (["1949-10", "1949-11", "1949-12"], "monthly", "1950-01"),
        (["1-10", "1-11", "1-12"], "monthly", "0002-01"),
        (["2015-03-31", "2015-06-30", "2015-09-30"], "quarterly", "2015-12-31"),
        (["2014-01-01", "2015-01-01", "2016-01-01"], "yearly", "2017-01-01"),
        (["2016-07-01 23:15", "2016-07-01 23:30", "2016-07-01 23:45"], "every 15 minutes", "2016-07-02 00:00:00"),
        (["1990/1/1 0:00", "1990/1/2 0:00", "1990/1/3 0:00"], "daily", "1990-01-04 00:00:00"),
        (["2016-01-04", "2016-01-11", "2016-01-18"], "weekly", "2016-01-25"),
        (["2016-01-01 00:00:00", "2016-01-01 00:01:37"], "every 97 seconds", "2016-01-01 00:03:14"),
        (["2016-01-01 00:00:00.0", "2016-01-01 00:00:00.5"], "every 0.5 seconds", "2016-01-01 00:00:01.000000"),
        (["2016-07-14", "2016-07-15", "2016-07-18", "2016-07-19"], "business days", "2016-07-20"),
    ],
)  # fmt: skip
def test_frequencies_have_names(tmp_path: Path, times: list[str], name: str, following: str) -> None:
    reading = read_series(write(tmp_path / "times.csv", *table(*times)))
    assert reading.series.times is not None
    assert reading.frequency is not None
    assert str(reading.frequency) == name
    assert format_times(continue_times(reading.series.times, reading.frequency, steps=1)) == [following]


# --- windows ----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 30), st.integers(1, 30), st.integers(1, 3))
def test_windows_are_views_whose_futures_are_all_of_a_part(
    history: int, horizon: int, begin: int, length: int, stride: int
) -> None:
    values = np.arange(120.0).reshape(60, 2)
    part = range(begin, begin + length)
    last = [t for t in range(60) if t + 1 >= max(begin, history) and t + horizon < part.stop][::stride]
    if not last:
        with pytest.raises(DataError, match=f"horizon {horizon} is beyond the series"):
            cut_windows(values, part, history=history, horizon=horizon, stride=stride)
        return
    windows = cut_windows(values, part, history=history, horizon=horizon, stride=stride)
    assert windows.history.tolist() == [values[t + 1 - history : t + 1].tolist() for t in last]
    assert windows.future.tolist() == [values[t + 1 : t + 1 + horizon].tolist() for t in last]
    assert np.shares_memory(windows.history, values)
    assert np.shares_memory(windows.future, values)


def test_splits_scaling_and_horizon(tmp_path: Path) -> None:
    split = split_by_counts(17_420, train=8_640, dev=2_880, test=2_880)
    assert (split.train, split.dev, split.test) == (range(8_640), range(8_640, 11_520), range(11_520, 14_400))
    assert split.unused == 3_020
    shares = split_by_shares(144, dev=0.2, test=0.2)
    assert (len(shares.train), len(shares.dev), len(shares.test), shares.unused) == (88, 28, 28, 0)
    with pytest.raises(DataError, match=r"9 \+ 1 \+ 1 rows were requested, and the series has 10"):
        split_by_counts(10, train=9, dev=1, test=1)
    with pytest.raises(ConfigError, match="less than 1 in sum"):
        split_by_shares(10, dev=0.5, test=0.5)

    values = np.stack([np.arange(10.0) ** 2, np.full(10, 0.1)], axis=1)
    scaling = fit_scaling(values[:6])
    scaled = scaling.apply(values)
    np.testing.assert_allclose(scaled[:6].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(scaled[:6].std(axis=0), [1, 0], atol=1e-12)  # a constant column is only shifted
    np.testing.assert_allclose(scaling.invert(scaled), values)
    assert abs(scaled.mean()) > 1  # the rows after the training part have no influence

    reading = read_series(write(tmp_path / "short.csv", *table(*DAYS)))
    reading.require_horizon(4, horizon=6)
    with pytest.raises(DataError, match=r"short.csv:11: horizon 7 is beyond the series: .* 11 rows, and there are 10"):
        reading.require_horizon(4, horizon=7)


def test_the_shared_series_are_read_as_published(real_data: Path) -> None:
    etth1 = read_series(real_data / "ett" / "ETTh1.csv.gz")
    assert etth1.series.names == ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")
    assert (etth1.series.values.shape, str(etth1.frequency), etth1.lines) == ((17_420, 7), "hourly", 17_421)
    airline = read_series(real_data / "time-series" / "airline-passengers.csv")
    assert airline.series.times is not None
    assert airline.frequency is not None
    assert (airline.series.names, str(airline.frequency), len(airline.series)) == (("Passengers",), "monthly", 144)
    assert format_times(continue_times(airline.series.times, airline.frequency, steps=2)) == ["1961-01", "1961-02"]
    assert airline.series.values[[0, -1], 0].tolist() == [112, 432]
