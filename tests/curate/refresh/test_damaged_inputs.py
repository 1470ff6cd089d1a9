"""Inputs that are cut short: named, left out, and taken in once they are whole."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import json
import lzma

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from llmcurate.base.messages import json_values
from tests.curate.refresh.growing import Home, Row, inputs

zstandard = pytest.importorskip("zstandard")
FIRST, SECOND, _ = inputs(12)
EXACT = [{"dedup_exact": {}}]
EXIT = 65


def lines(rows: list[Row]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def table(rows: list[Row]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), file, row_group_size=4)
    return file.getvalue()


def wet(rows: list[Row], member=gzip.compress) -> bytes:
    records = []
    for row in rows:
        text = row["text"].encode()
        head = f"WARC/1.0\r\nWARC-Type: conversion\r\nWARC-Target-URI: {row['url']}\r\n"
        head += f"WARC-Record-ID: <{row['id']}>\r\nContent-Type: text/plain\r\n"
        head += f"WARC-Date: 2026-11-20T06:00:00Z\r\nContent-Length: {len(text)}\r\n\r\n"
        records.append(member(head.encode() + text + b"\r\n\r\n"))
    return b"".join(records)


def table_of_text(rows: list[Row]) -> bytes:
    cells = [f'{row["id"]},"{row["text"]}"\n' for row in rows]
    return f"id,text\n{''.join(cells)}".encode()


FORMS = {
    "b.jsonl": lines,
    "b.jsonl.gz": lambda rows: gzip.compress(lines(rows)),
    "b.jsonl.zst": lambda rows: zstandard.compress(lines(rows)),
    "b.jsonl.bz2": lambda rows: bz2.compress(lines(rows)),
    "b.jsonl.xz": lambda rows: lzma.compress(lines(rows)),
    "b.parquet": table,
    "b.warc.wet.gz": wet,
    "b.warc.wet": lambda rows: wet(rows, bytes),
    "b.csv": table_of_text,
}


def texts(home: Home) -> list[str]:
    return sorted(row["text"] for row in home.rows())


SIZES = ("half", "three bytes less", "one in twenty", "none")
# Nobody can see that their last three bytes are missing: all documents end before.
WHOLE = (("b.csv", SIZES[1]), ("b.warc.wet", SIZES[1]))
FAST = (("b.jsonl.gz", SIZES[0]), ("b.parquet", SIZES[3]))
CASES = [case for case in itertools.product(FORMS, SIZES) if case not in WHOLE]


@pytest.mark.parametrize(
    ("name", "size"), [pytest.param(*c, marks=() if c in FAST else pytest.mark.slow) for c in CASES]
)
def test_a_file_that_is_cut_short_is_left_out_until_the_whole_one_comes(bench, name, size):
    whole = FORMS[name](SECOND)
    sizes = {"half": len(whole) // 2, "three bytes less": len(whole) - 3, "none": 0}
    cut = whole[: sizes.get(size, len(whole) // 20)]
    bench.jsonl("in/a.jsonl", FIRST)
    path = bench.folder / "in" / name
    path.write_bytes(cut)
    home = Home(bench, EXACT)
    for inputs_read in (1, 0):  # also of the next call, which has nothing new
        done = home.refresh(bench.folder / "in")
        assert (done.inputs, list(done.damaged)) == (inputs_read, [str(path)]), done.line()
        assert name in done.line() and json_values(done)["damaged"] == done.damaged
        assert texts(home) == sorted({row["text"] for row in FIRST})
    path.write_bytes(whole)
    done = home.refresh(bench.folder / "in")
    assert (done.inputs, done.damaged) == (1, {})
    both = Home(bench, EXACT, "both")
    both.refresh(bench.folder / "in")
    assert [(r["id"], r["text"]) for r in home.rows()] == [
        (r["id"], r["text"]) for r in both.rows()
    ]
    assert len(texts(home)) == len({row["text"] for row in [*FIRST, *SECOND]})


def test_a_file_that_is_cut_short_may_have_any_name(bench):
    bench.jsonl("in/a.jsonl", FIRST)
    path = bench.folder / "in" / "b\u2028\x85.jsonl.gz"
    path.write_bytes(FORMS["b.jsonl.gz"](SECOND)[:-30])
    assert list(Home(bench, EXACT).refresh(bench.folder / "in").damaged) == [str(path)]


def test_a_damaged_file_is_reported_by_exit_code_hooks_metrics_report_and_message(bench):
    bench.jsonl("in/a.jsonl", FIRST)
    path = bench.folder / "in" / "b.jsonl.gz"
    whole = FORMS[path.name](SECOND)
    path.write_bytes(whole[: len(whole) // 2])
    (bench.folder / "r.yaml").write_text("steps:\n  - dedup_exact\n")
    prom, heard = bench.folder / "x.prom", bench.folder / "heard"
    command = ["refresh", "r.yaml", "in", "-o", "home", "--metrics", prom, "-q"]
    command += ["--on-failure", 'echo "$LLMCURATE_EXIT_CODE $LLMCURATE_ERROR" > heard']
    for told in ("stdout", "stderr"):
        done = bench.command(*command)
        assert done.returncode == EXIT and "damaged input" in getattr(done, told), done.stderr
        assert str(path) in getattr(done, told)
        words = heard.read_text()
        assert words.startswith(f"{EXIT} 1 damaged input") and path.name in words
        heard.unlink()
        values = dict(s.rsplit(" ", 1) for s in prom.read_text().splitlines() if s[0] != "#")
        gauges = {name.partition("{")[0].partition("refresh_")[2]: v for name, v in values.items()}
        assert (gauges["exit_code"], gauges["damaged_inputs"]) == (f"{EXIT}.0", "1.0")
    done = bench.command(*command, "--json")
    assert list(json.loads(done.stdout)["damaged"]) == [str(path)]
    heard.unlink()
    path.write_bytes(whole)
    done = bench.command(*command)
    assert done.returncode == 0 and not heard.exists() and "damaged" not in done.stdout
    assert 'damaged_inputs{home="home"} 0.0' in prom.read_text()
    assert bench.command(*command).returncode == 3


def test_the_next_report_names_a_damaged_input(bench):
    bench.jsonl("in/a.jsonl", FIRST)
    (bench.folder / "in" / "b.parquet").write_bytes(table(SECOND)[:-9])
    home = Home(bench, EXACT)
    done = home.refresh(bench.folder / "in")
    run = home.path / "runs" / done.name
    notices = json.loads((run / "run.json").read_text())["notices"]
    assert any(n.startswith("damaged input") and "b.parquet" in n for n in notices)
    assert "b.parquet" in (run / "report.html").read_text()


def test_by_option_a_damaged_file_is_taken_as_far_as_it_goes(bench):
    path = bench.folder / "in" / "b.warc.wet.gz"
    path.parent.mkdir()
    path.write_bytes(wet(SECOND)[:-3])
    home = Home(bench, EXACT)
    assert not home.refresh(path.parent).new
    done = home.refresh(path.parent, damaged="take")
    assert done.totals.read == len(SECOND) and done.damaged == {}
    assert not home.refresh(path.parent).new


def test_a_removed_damaged_file_is_no_longer_listed(bench):
    bench.jsonl("in/a.jsonl", FIRST)
    path = bench.folder / "in" / "b.parquet"
    path.write_bytes(table(SECOND)[:-9])
    home = Home(bench, EXACT)
    assert home.refresh(bench.folder / "in").damaged
    bench.jsonl("more/c.jsonl", SECOND[:3])
    assert home.refresh(bench.folder / "more").damaged  # another call does not make it whole
    path.unlink()
    assert not home.refresh(bench.folder / "in").damaged


def test_a_bad_line_before_others_is_counted_and_damages_no_file(bench):
    path = bench.folder / "a.jsonl"
    path.write_bytes(b'{"text": "One."}\n{"text": \n{"text": "Two."}\n')
    done = Home(bench, EXACT).refresh(path)
    assert done.damaged == {} and (done.totals.read, done.totals.corrupt) == (2, 1)


def test_settings_beside_documents_are_no_damaged_input(bench):
    bench.jsonl("in/a.jsonl", FIRST)
    folder = bench.folder / "in"
    (folder / "settings.json").write_text('{\n "a": 1\n}\n')
    (folder / "one.json").write_text('{"a": 1}')
    (folder / "DONE").touch()
    (folder / "notes.json.gz").write_bytes(gzip.compress(b'{"b": 2}\n'))
    assert Home(bench, EXACT).refresh(folder).damaged == {}


def test_a_rebuild_leaves_out_what_is_damaged(bench):
    bench.jsonl("in/a.jsonl", FIRST)
    (bench.folder / "in" / "b.parquet").write_bytes(table(SECOND)[:-9])
    home = Home(bench, EXACT)
    home.refresh(bench.folder / "in")
    done = home.refresh(bench.folder / "in", rebuild=True)
    assert done.kind == "rebuild" and done.inputs == 1 and len(done.damaged) == 1
