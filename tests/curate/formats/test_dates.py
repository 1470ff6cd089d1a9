"""Dates of columns: common forms are read, others are counted and kept."""

from __future__ import annotations

import json
from datetime import datetime, timezone

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.formats.dates import column_date
from tests.parameters import mostly_slow

DAY = "2024-05-06T00:00:00+00:00"
TIME = "2024-05-06T07:08:09+00:00"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2024-05-06", DAY),
        ("2024/5/6", DAY),
        ("2024.05.06", DAY),
        ("20240506", DAY),
        (20240506, DAY),
        ("2024-05", "2024-05-01T00:00:00+00:00"),
        ("2024", "2024-01-01T00:00:00+00:00"),
        (2024, "2024-01-01T00:00:00+00:00"),
        ("2024-05-06 07:08:09", TIME),
        ("2024-05-06T09:08:09+02:00", TIME),
        ("20240506070809", TIME),
        ("Mon, 06 May 2024 07:08:09 GMT", TIME),
        ("Mon, 6 May 2024 09:08:09 +0200", TIME),
        (1714979289, TIME),
        ("1714979289", TIME),
        (1714979289.0, TIME),
        ("2024-05-06t09:08:09.5+0200", "2024-05-06T07:08:09.500000+00:00"),
        ("2024-05-06T04:38:09-02:30", TIME),
        ("2016-12-31T23:59:60Z", "2016-12-31T23:59:59+00:00"),  # a leap second
        ("2024-05-06T23:30:00-01:00", "2024-05-07T00:30:00+00:00"),
        (1000, "1000-01-01T00:00:00+00:00"),
        (999, "1970-01-01T00:16:39+00:00"),
        (2999, "2999-01-01T00:00:00+00:00"),
        (3000, "1970-01-01T00:50:00+00:00"),
        (10_000_101, "1000-01-01T00:00:00+00:00"),
        (29_991_231, "2999-12-31T00:00:00+00:00"),
        (29_991_232, "1970-12-14T02:53:52+00:00"),
        (10**11 - 1, "5138-11-16T09:46:39+00:00"),
        (10**11, "1973-03-03T09:46:40+00:00"),  # milliseconds
        (10**14, "1973-03-03T09:46:40+00:00"),  # microseconds
        (10**17, "1973-03-03T09:46:40+00:00"),  # nanoseconds
        (1714979289000, TIME),
        (1714979289000000, TIME),
        ("1714979289000000000", TIME),
        ("2024-05-06 07:08:09 UTC", TIME),  # BigQuery's export to CSV
        ("2024-05-06 07:08:09.5 UTC", "2024-05-06T07:08:09.500000+00:00"),
        ("2024-05-06T07:08:09.000000+00:00", TIME),
        ("2024-05-06 07:08:09+00", TIME),  # PostgreSQL
        ("2024-05-06 12:38:09.000+0530", TIME),
        ("2024-05-06 04:38:09-02:30", TIME),
        ("2024-05-06 05:08:09-02", TIME),
        ("2024-05-06 09:08:09 +0200 UTC", TIME),  # Go
        ("20240506T070809Z", TIME),  # ISO 8601, basic
        ("20240506T070809.000+0000", TIME),
        ("20240506T0708", "2024-05-06T07:08:00+00:00"),
        ("20240506 090809+02", TIME),
        ("infinity", None),
        ("-infinity", None),
        ("2024-0506", None),
        ("20240506T07:0809Z", None),
        ("05/06/2024", None),
        ("2024-13-01", None),
        ("yesterday", None),
        ("", None),
        (True, None),
        (float("nan"), None),
        (["2024"], None),
    ],
)
def test_a_value_is_the_date_that_it_states(value: object, expected: str | None) -> None:
    when = column_date(value)
    assert (when.isoformat() if when else None) == expected


@given(st.datetimes(datetime(1970, 1, 2), datetime(2999, 1, 1), timezones=st.just(timezone.utc)))
def test_iso_and_milliseconds_of_a_time_are_read_as_that_time(when: datetime) -> None:
    assert column_date(when.isoformat()) == when
    if when.year > 1973:  # before, milliseconds are taken for seconds
        read = column_date(int(when.timestamp() * 1000))
        assert read is not None and abs((read - when).total_seconds()) < 0.01


@given(st.one_of(st.text(), st.integers(), st.floats(), st.none()))
def test_any_date_value_gives_a_zoned_time_or_none(value: object) -> None:
    when = column_date(value)
    assert when is None or when.tzinfo is not None


ROWS = [
    {"text": "The first text.", "published": "2024-05-06"},
    {"text": "The second text.", "published": "05/06/2024"},
    {"text": "The third text.", "published": None},
    {"text": "The fourth text.", "published": "1714979289"},
]


@pytest.mark.parametrize("form", mostly_slow(["jsonl", "parquet", "csv"], 2))
def test_a_column_gives_the_dates_and_bad_ones_are_counted(bench, form: str) -> None:
    path = bench.folder / f"in.{form}"
    if form == "jsonl":
        bench.jsonl("in.jsonl", ROWS)
    elif form == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    else:
        lines = [f"{row['text']},{row['published'] or ''}\n" for row in ROWS]
        path.write_text("text,published\n" + "".join(lines))
    line = ["filter", "document_length", path, "--min", "1", "--date-column", "published"]
    done = bench.command(*line, "-o", "out")
    assert done.returncode == 0, done.stderr
    assert "1 date that cannot be read" in done.stdout
    dates = [row["date"].isoformat() if row["date"] else None for row in bench.rows()]
    assert dates == [DAY, None, None, TIME]
    totals = json.loads((bench.folder / "out/run.json").read_text())["totals"]
    assert totals["bad_dates"] == 1
    stats = bench.command("stats", path, "--date-column", "published", "--json")
    figures = json.loads(stats.stdout.splitlines()[-1])
    assert figures["bad_dates"] == 1 and figures["freshness"][0]["dated"] == 2


def test_bad_dates_are_of_the_documents_that_are_read(bench) -> None:
    rows = [{"id": f"d{n}", "text": f"Text {n}.", "date": "never"} for n in range(200)]
    pq.write_table(pa.Table.from_pylist(rows), bench.folder / "in.parquet")
    for read in ({"share": 0.2}, {"limit": 7}):
        for path in (bench.jsonl("in.jsonl", rows), bench.folder / "in.parquet"):
            step = {"document_length": {"unit": "chars", "min": 1}}
            totals = bench.run([step], path, read=read, out=f"{path.suffix}{read}").totals()
            assert totals.bad_dates == totals.read < 60
