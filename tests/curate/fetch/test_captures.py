"""Captures of a URL index: asked for once, fetched by range, checked, joined to WARC files."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from warcio.archiveiterator import ArchiveIterator
from warcio.warcwriter import WARCWriter

from curate.fetch.download import download
from curate.fetch.ranged import Capture, fetch_captures, is_rows, member_url, parsed
from llmcurate.base.errors import UsageError
from tests.curate.command_line import run_here
from tests.curate.fetch.web import Web

ARCHIVE = "/crawl-data/CC-MAIN-2024-22/a.warc.gz"


def archive(count: int) -> tuple[bytes, list[dict[str, Any]]]:
    """An archive as warcio writes it, and its rows as a CDX server gives them."""
    data, rows = io.BytesIO(), []
    writer = WARCWriter(data, gzip=True)
    for number in range(count):
        body = f"<p>Page {number} of the mill.</p>".encode()
        message = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + body
        record = writer.create_warc_record(
            f"https://mill.test/{number}", "response", payload=io.BytesIO(message),
            warc_headers_dict={"WARC-Date": "2024-05-18T01:58:10Z"},
        )  # fmt: skip
        start = data.tell()
        writer.write_record(record)
        digest = base64.b32encode(hashlib.sha1(body).digest()).decode()
        rows.append(
            {
                "url": f"https://mill.test/{number}",
                "status": "200",
                "digest": digest,
                "filename": ARCHIVE[1:],
                "offset": str(start),
                "length": str(data.tell() - start),
            }
        )
    return data.getvalue(), rows


def urls(path: str | Path) -> list[str]:
    """The responses of a file as warcio reads them, which checks what it can."""
    with open(path, "rb") as file:
        records = list(ArchiveIterator(file, check_digests="raise", ensure_http_headers=False))
    assert records[0].rec_type == "warcinfo"
    return [r.rec_headers["WARC-Target-URI"] for r in records[1:]]


def ask(web: Web, rows: list[dict[str, Any]], pages: int = 2) -> None:
    """Gives the server an index with some pages."""
    web.put("/collinfo.json", json.dumps([{"id": "CC-MAIN-2024-22"}, {"id": "CC-MAIN-2"}]).encode())
    query = "url=mill.test&matchType=domain&output=json&filter=%3Dstatus%3A200"
    base = f"/CC-MAIN-2024-22-index?{query}"
    web.put(f"{base}&showNumPages=true", json.dumps({"pages": pages}).encode())
    for page in range(pages):
        lines = [json.dumps(row) + "\n" for row in rows[page::pages]]
        if lines:
            web.put(f"{base}&page={page}", "".join(lines).encode())


def cdxj(path: Path, rows: list[dict[str, Any]]) -> Path:
    """A file of rows as an index has them."""
    lines = [f"test,mill)/{n} 20240518015810 {json.dumps(row)}\n" for n, row in enumerate(rows)]
    path.write_text("".join(lines))
    return path


def test_a_domain_is_asked_of_the_index_and_fetched_by_range(web: Web, tmp_path: Path) -> None:
    data, rows = archive(7)
    web.put(ARCHIVE, data)
    ask(web, rows)
    line = ["fetch", "--index", "mill.test", "--server", web.url, "--base", web.url]
    done = run_here(*line, "-o", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["captures"], summary["files"], summary["missing"]) == (7, 1, [])
    assert urls(summary["paths"][0]) == [f"https://mill.test/{n}" for n in range(7)]
    first = f"bytes={rows[0]['offset']}-{int(rows[0]['length']) - 1}"
    assert sorted(filter(None, web.ranges(ARCHIVE)))[0] == first and len(web.ranges(ARCHIVE)) == 7
    asked = len(web.asked)
    again = run_here(*line, "-o", tmp_path, "--json")
    assert json.loads(again.stdout.splitlines()[-1])["there"] == 1
    assert len(web.asked) == asked  # neither the index nor the archive


def test_a_fetched_file_is_an_input_of_a_run(web: Web, bench) -> None:
    data, rows = archive(3)
    web.put(ARCHIVE, data)
    cdxj(bench.folder / "rows.cdxj", rows)
    run_here("fetch", bench.folder / "rows.cdxj", "--base", web.url, "-o", bench.folder / "in")
    bench.run([{"extract": {"output": "text"}}], bench.folder / "in")
    texts = sorted(row["text"] for row in bench.rows() + bench.rows(kind="rejected"))
    assert texts == [f"Page {n} of the mill." for n in range(3)]


@pytest.mark.parametrize("plan", [("cut 40",), ("503",), ("drop", "cut 10", "stall")])
def test_a_cut_response_is_resumed_to_the_same_file(web: Web, tmp_path: Path, plan) -> None:
    data, rows = archive(5)
    cdxj(tmp_path / "rows.cdxj", rows)
    web.put(ARCHIVE, data)
    run_here("fetch", tmp_path / "rows.cdxj", "--base", web.url, "-o", tmp_path / "smooth")
    web.put(ARCHIVE, data, *plan)
    done = run_here("fetch", tmp_path / "rows.cdxj", "--base", web.url, "-o", tmp_path / "rough")
    assert done.returncode == 0, done.stderr
    (smooth,), (rough,) = (list((tmp_path / n).glob("*.warc.gz")) for n in ("smooth", "rough"))
    assert smooth.read_bytes() == rough.read_bytes()


def test_a_command_that_was_ended_keeps_the_records_that_came(web: Web, tmp_path: Path) -> None:
    data, rows = archive(6)
    cdxj(tmp_path / "rows.cdxj", rows)
    web.put(ARCHIVE, data, *["ok"] * 3, *["503"] * 3)
    line = ["fetch", tmp_path / "rows.cdxj", "--base", web.url, "-o", tmp_path / "out"]
    done = run_here(*line, "--tries", "1", "--parallel", "1")
    assert done.returncode == 1 and "3 captures could not be fetched; run the same" in done.stderr
    assert not list((tmp_path / "out").glob("*.warc.gz"))
    asked = len(web.asked)
    done = run_here(*line)
    assert done.returncode == 0 and len(web.asked) == asked + 3
    assert [p.name.endswith(".warc.gz") for p in (tmp_path / "out").iterdir()] == [True]


def test_records_that_cannot_be_had_are_left_out_and_listed(web: Web, tmp_path: Path) -> None:
    data, rows = archive(6)
    web.put(ARCHIVE, data)
    rows[0]["filename"] = "crawl-data/gone.warc.gz"
    rows[1]["url"] = "https://other.test/"
    rows[2]["digest"] = "A" * 32
    rows[3]["offset"] = str(int(rows[3]["offset"]) + 1)
    rows[4]["length"] = str(int(rows[4]["length"]) - 3)
    cdxj(tmp_path / "rows.cdxj", rows)
    line = ["fetch", tmp_path / "rows.cdxj", "--base", web.url, "-o", tmp_path / "out"]
    done = run_here(*line)
    assert done.returncode == 1
    for why in (
        "the server answers 404", "it is the record of https://mill.test/1, not https://",
        "its payload has the digest sha1:", "it is not a WARC record", "it is not one whole gzip",
    ):  # fmt: skip
        assert why in done.stderr
    (file,) = (tmp_path / "out").glob("*.warc.gz")
    assert urls(file) == ["https://mill.test/5"]
    (missing,) = (tmp_path / "out").glob("*.missing.cdxj")
    assert len(missing.read_text().splitlines()) == 5
    again = run_here(*line)
    assert again.returncode == 1 and "5 captures are not available" in again.stderr


def test_files_have_a_fixed_number_of_records(web: Web, tmp_path: Path) -> None:
    data, rows = archive(5)
    web.put(ARCHIVE, data)
    captures = list(parsed([json.dumps(row) for row in rows], "rows"))
    for order in (captures, captures[::-1] + captures[:2]):
        result = fetch_captures(order, tmp_path, "a b/c", web.url, download, print, records=2)
        names = [path.name for path in result.files]
        assert [n[-13:] for n in names] == [f"{n:05d}.warc.gz" for n in range(3)]
        assert names[0].startswith("a-b-c-") and len(urls(result.files[2])) == 1
    assert result.there == 3


def test_a_server_without_ranges_is_refused(web: Web, tmp_path: Path) -> None:
    data, rows = archive(2)
    web.put(ARCHIVE, data, ranges=False)
    cdxj(tmp_path / "rows.cdxj", rows)
    done = run_here("fetch", tmp_path / "rows.cdxj", "--base", web.url, "-o", tmp_path / "out")
    assert done.returncode == 1 and "the server does not support byte ranges" in done.stderr


def test_rows_of_an_archive_that_is_not_compressed_are_compressed(web: Web, tmp_path: Path) -> None:
    data, rows = archive(1)
    plain = gzip.decompress(data)
    web.put(ARCHIVE, plain)
    rows[0]["length"] = str(len(plain))
    cdxj(tmp_path / "rows.cdxj", rows)
    run_here("fetch", tmp_path / "rows.cdxj", "--base", web.url, "-o", tmp_path / "out")
    (file,) = (tmp_path / "out").glob("*.warc.gz")
    assert urls(file) == ["https://mill.test/0"]


def test_rows_may_be_parquet_or_a_corpus_of_wat_records(web: Web, tmp_path: Path) -> None:
    data, rows = archive(2)
    web.put(ARCHIVE, data)
    for names in (
        ("warc_filename", "warc_record_offset", "warc_record_length"),
        ("wat.file", "wat.offset", "wat.length"),
    ):
        table = {"url": [r["url"] for r in rows], names[0]: [r["filename"] for r in rows]}
        table |= {
            ours: [int(r[n]) for r in rows]
            for ours, n in zip(names[1:], ("offset", "length"), strict=True)
        }
        pq.write_table(pa.table(table), tmp_path / "rows.parquet")
        out = tmp_path / names[0]
        done = run_here("fetch", tmp_path / "rows.parquet", "--base", web.url, "-o", out)
        assert done.returncode == 0, done.stderr
        assert len(urls(next(out.glob("*.warc.gz")))) == 2


def test_an_index_without_captures_is_reported(web: Web, tmp_path: Path) -> None:
    ask(web, [], pages=1)  # Common Crawl's answer for none is 404
    line = ["fetch", "--index", "mill.test", "--server", web.url]
    done = run_here(*line, "--crawl", "CC-MAIN-2024-22", "-o", tmp_path)
    assert done.returncode == 1 and "the index lists no capture" in done.stderr


@pytest.mark.parametrize("file", ["../../etc/passwd", "/etc/passwd", "file:///etc/passwd", ""])
def test_names_in_rows_are_paths_below_the_base(file: str) -> None:
    with pytest.raises(UsageError):
        member_url(Capture(file, 0, 10), "https://data.test/")


def test_common_crawls_own_paths_need_no_base() -> None:
    url = member_url(Capture("crawl-data/a b.warc.gz", 5, 10), None)
    assert url == "https://data.commoncrawl.org/crawl-data/a%20b.warc.gz#bytes=5+10"
    with pytest.raises(UsageError, match="give its base URL with --base"):
        member_url(Capture("a.warc.gz", 5, 10), None)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("com,example)/ 2024 nothing", "rows:1 is not a row of CDXJ or JSON"),
        ('{"filename": "a", "offset": "-1", "length": 5}', "rows:1: a row needs"),
        ('{"filename": "a", "offset": 1}', "rows:1: a row needs"),
    ],
)
def test_an_invalid_capture_row_is_named(line: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        list(parsed([line], "rows"))


def test_files_of_capture_rows_are_recognised_by_name() -> None:
    rows = ("a.cdxj", "a.cdxj.gz", "cdx-00193.gz", "x/a.parquet", "a.missing.cdxj")
    assert all(map(is_rows, rows))
    assert not any(map(is_rows, ("warc.paths.gz", "list.txt", "https://a.test/b.parquet")))


def test_wrong_use_is_a_one_line_error(tmp_path: Path) -> None:
    for line in (["fetch"], ["fetch", "--index", "a.test", "https://b.test/c"]):
        done = run_here(*line, "-o", tmp_path)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_records_missing_from_each_file_are_reported(web: Web, tmp_path: Path) -> None:
    data, rows = archive(4)
    web.put(ARCHIVE, data)
    for row in rows[::2]:
        row["digest"] = "A" * 32
    captures = list(parsed([json.dumps(row) for row in rows], "rows"))
    result = fetch_captures(captures, tmp_path, "a", web.url, download, print, records=2)
    assert len(result.files) == 2
    assert set(result.missing) == {member_url(capture, web.url) for capture in captures[::2]}
