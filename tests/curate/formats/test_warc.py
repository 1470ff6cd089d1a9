"""Web archives: every record is read, skipped by type or reported, in any file."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
import random
import resource
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

import pytest
import zstandard

from curate.formats.compression import verified_boundaries
from curate.formats.dates import parse_date
from curate.formats.events import Corrupt, Event, Row, Skipped
from curate.formats.mime import is_document
from curate.formats.records import Record, records
from curate.formats.warc import read_archive
from tests.curate.doubling import grows_linearly
from tests.curate.formats.warc_files import PAGE, arc, http, read, warc

SHARED = Path(os.environ.get("LLMCURATE_SHARED", Path(__file__).resolve().parents[4] / "shared"))
REAL = SHARED / "corpora" / "real_warc"
real = pytest.mark.skipif(not REAL.is_dir(), reason=f"real archives are not at {REAL}")


def rows(events: list[Event]) -> list[Row]:
    return [e for e in events if isinstance(e, Row)]


def corrupt(events: list[Event]) -> list[Corrupt]:
    return [e for e in events if isinstance(e, Corrupt)]


def ids(events: list[Event]) -> list[int]:
    return [int(str(r.id).rsplit(":", 1)[-1]) for r in rows(events)]


def test_a_response_becomes_a_row_with_everything_the_record_says() -> None:
    [row] = rows(read(warc(http(), number=7)))
    assert row.id == "urn:uuid:00000007"
    assert row.url == "http://example.org/7"
    assert row.date == datetime(2024, 5, 6, 7, 8, 9, tzinfo=timezone.utc)
    assert (row.payload, row.text) == (PAGE, None)
    assert (row.mime, row.charset, row.reject, row.offset) == ("text/html", "utf-8", None, 0)


def test_a_wet_conversion_is_text_and_bad_bytes_become_replacement_characters() -> None:
    record = warc(
        b"Stra\xc3\x9fe \xff",
        "conversion",
        Content_Type="text/plain",
        WARC_Identified_Content_Language="deu",
    )
    [row] = rows(read(record))
    assert (row.text, row.payload, row.lang) == ("Stra\u00dfe \ufffd", None, "deu")


@pytest.mark.parametrize(("cut", "whole"), [(0, True), (1, False), (60, False)])
def test_a_record_cut_short_counts_where_http_says_that_its_body_is_whole(
    cut: int, whole: bool
) -> None:
    """The record declares ten bytes too many; the body lacks `cut` of the bytes that HTTP
    declares."""
    body = PAGE * 3
    kind = f"text/html\r\nContent-Length: {len(body)}"
    content = http(body, kind)[: -cut or None]
    [row] = rows(read(warc(content, length=len(content) + 10).rstrip(b"\r\n")))
    assert row.payload == body[: -cut or None]
    assert (row.reject is None) == whole and (whole or row.reject[0] == "truncated_record")


HOLE = bytes(4096)
MARK = b"\xef\xbb\xbf"


@pytest.mark.parametrize("record", [warc, arc])
@pytest.mark.parametrize(
    ("gap", "what"),
    [
        (HOLE, "4096 NUL bytes"),
        (MARK, "bytes that are no record: 3 bytes"),
        (HOLE + MARK, "bytes that are no record: 4099 bytes"),
        (bytes(3 << 20), "3145728 NUL bytes"),
    ],
    ids=["hole", "mark", "both", "long"],
)
def test_a_record_after_a_hole_or_a_byte_order_mark_is_read(
    record: Callable[..., bytes], gap: bytes, what: str
) -> None:
    """At the beginning, where files were joined, and at the end."""
    body = http() if record is warc else PAGE
    first, second = (record(body, number=n) for n in range(2))
    events = read(gap + first + gap + second + gap)
    assert ids(events) == [0, 1] if record is warc else len(rows(events)) == 2
    assert not any(row.reject for row in rows(events))
    places = [0, len(gap + first), len(gap + first + gap + second)]
    if gap is HOLE:
        assert corrupt(events) == [Corrupt(at, what) for at in places]
    assert [e.what for e in corrupt(events)][:2] == [what, what]


def test_a_record_that_a_hole_cuts_is_rejected_and_the_next_one_read() -> None:
    cut = warc(http(PAGE * 9))[:-200]
    events = read(cut + HOLE + warc(http(), number=1))
    assert ids(events) == [0, 1]
    assert [row.reject and row.reject[0] for row in rows(events)] == ["truncated_record", None]


def test_members_after_a_hole_are_read() -> None:
    first, second = (gzip.compress(warc(http(), number=n)) for n in range(2))
    events = read(HOLE + first + HOLE + second)
    assert ids(events) == [0, 1]
    assert corrupt(events) == [Corrupt(n, "4096 NUL bytes") for n in (0, 4096 + len(first))]


def test_records_that_are_no_documents_are_skipped_by_name() -> None:
    data = b"".join(
        [
            warc(b"software: x\r\n", "warcinfo", Content_Type="application/warc-fields"),
            warc(b"GET / HTTP/1.1\r\n\r\n", "request"),
            warc(http(kind="image/png")),
            warc(http(kind="text/css")),
            warc(http(kind="application/json")),
            warc(http(status="404 Not Found")),
            warc(http(status="301")),
            warc(b"", "revisit"),
            warc(b"fetchTimeMs: 1\r\n", "metadata"),
            warc(b"x", "continuation"),
            warc(b"x", "monkeys"),
            warc(b"1 A 10.0.0.1", Content_Type="text/dns"),
            warc(b"\x89PNG\0\0", "resource", Content_Type="image/png"),
        ]
    )
    assert [e.kind for e in read(data) if isinstance(e, Skipped)] == [
        "warcinfo", "request", "response:image/png", "response:text/css",
        "response:application/json", "response:status-404", "response:status-301", "revisit",
        "metadata", "continuation", "monkeys", "response:text/dns", "resource:image/png",
    ]  # fmt: skip
    assert not corrupt(read(data)) and not rows(read(data))


@pytest.mark.parametrize(
    "kind",
    [
        "text/html",
        "application/xhtml+xml",
        "text/plain",
        "application/rss+xml",
        "text/xml",
        "",
        "html",
    ],
)
def test_html_xml_and_text_are_documents_and_a_missing_type_is_sniffed(kind: str) -> None:
    [row] = rows(read(warc(http(kind=kind))))
    assert row.payload == PAGE
    assert row.mime == (kind if "/" in kind else "text/html")


def test_mime_types_are_compared_whole_not_by_prefix() -> None:
    for mime in ("text/x-c", "text/vnd.wap.wml", "text/j", "application/rss+xml"):
        assert is_document(mime)
    for mime in ("text/x-component", "text/vnd.wap.wmlscript", "text/json", "application/json"):
        assert not is_document(mime)


def test_header_values_are_read_in_any_case_and_the_first_of_two_counts() -> None:
    upper = warc(http(kind="TEXT/HTML; Charset=UTF-8"), Content_Type="Application/HTTP; x=y")
    [row] = rows(read(upper))
    assert (row.mime, row.charset, row.payload) == ("text/html", "utf-8", PAGE)
    resource = warc(http(), "Resource", Content_Type="APPLICATION/http")
    assert rows(read(resource))[0].payload == PAGE
    twice = warc(http(), number=1).replace(b"WARC-Date", b"warc-target-uri: http://b\r\nWARC-Date")
    assert rows(read(twice))[0].url == "http://example.org/1"
    names = warc(b"x", "resource", Content_Type="text/html", WARC_Target_URI="DNS:example.org")
    assert [e.kind for e in read(names) if isinstance(e, Skipped)] == ["resource:dns-uri"]


@pytest.mark.parametrize("kind", ["response", "resource"])
def test_a_payload_as_long_as_the_limit_is_read(kind: str) -> None:
    data = warc(http() if kind == "response" else PAGE, kind, **(
        {} if kind == "response" else {"Content_Type": "text/html"}
    ))  # fmt: skip
    assert rows(read(data, payload_bytes=len(PAGE)))[0].payload == PAGE
    [row] = rows(read(data, payload_bytes=len(PAGE) - 1))
    assert row.payload is None and row.reject == (
        "payload_too_large", float(len(PAGE)), float(len(PAGE) - 1), None,
    )  # fmt: skip


def test_types_and_fields_are_read_in_any_case_folded_and_with_lf_only() -> None:
    shouting = warc(http(), "RESPONSE", 1).replace(b"WARC-Record-ID", b"warc-record-id")
    folded = warc(http(), number=2).replace(b"WARC-Type: ", b"WARC-Type:\r\n\t")
    lower = warc(http(), number=3).replace(b"WARC/1.0", b"warc/0.18")
    data = shouting + folded + lower + warc(http(), number=4, newline=b"\n")
    assert ids(read(data)) == [1, 2, 3, 4]
    assert not corrupt(read(data))


def test_arc_files_of_both_versions_are_read() -> None:
    first = b"filedesc://x.arc 0.0.0.0 20240506070809 text/plain 20\n1 0 InternetArchive\n\n"
    second = b"http://example.org/a b 10.0.0.1 20240506070809 text/html 200 - - 0 x.arc %d\n"
    data = first + arc(http(), 1) + second % len(http()) + http() + b"\n" + arc(http(), 3, "null")
    for stored in (data, gzip.compress(data)):
        events = read(stored)
        assert [e.kind for e in events if isinstance(e, Skipped)] == ["filedesc"]
        assert [r.url for r in rows(events)] == [
            "http://example.org/1", "http://example.org/a b", "http://example.org/3",
        ]  # fmt: skip
        assert [r.payload for r in rows(events)] == [PAGE] * 3
        assert rows(events)[0].date == datetime(2024, 5, 6, 7, 8, 9, tzinfo=timezone.utc)
        assert rows(events)[2].date is None
        assert not corrupt(events)


def test_garbage_between_records_is_reported_with_its_offset_and_costs_no_record() -> None:
    first, second = warc(http(), number=1), warc(http(), number=2)
    events = read(first + b"The monkeys are coming!\r\n\r\n" + second)
    assert ids(events) == [1, 2]
    assert [c.offset for c in corrupt(events)] == [len(first)]


@pytest.mark.parametrize("wrong", [-20, 20, 150, 99999, 10**12, 10**17, "none", "", "-"])
@pytest.mark.parametrize("one_member", [False, True])
def test_a_wrong_or_missing_length_costs_no_other_record(wrong: object, one_member: bool) -> None:
    content = http()
    length = len(content) + wrong if isinstance(wrong, int) else wrong
    data = warc(http(), number=1) + warc(content, number=2, length=length)
    data += warc(http(), number=3) + warc(http(), number=4)
    if one_member and (not isinstance(wrong, int) or wrong < 10**11):
        data = gzip.compress(data)
    events = read(data)
    assert ids(events) == [1, 2, 3, 4]
    assert corrupt(events)
    if wrong != -20:
        assert rows(events)[1].payload == PAGE


def test_a_length_too_large_never_reaches_beyond_its_own_gzip_member() -> None:
    members = [warc(http(), number=i, length=10**12 if i == 1 else None) for i in range(4)]
    events = read(b"".join(gzip.compress(m) for m in members))
    assert ids(events) == [0, 1, 2, 3]
    assert len(corrupt(events)) == 1


def test_a_corrupt_gzip_member_costs_only_its_own_record() -> None:
    members = [
        gzip.compress(warc(http(os.urandom(2000).hex().encode()), number=i)) for i in range(5)
    ]
    offset = sum(map(len, members[:2]))
    for place in (12, 400, -6, 0, 3):
        broken = bytearray(members[2])
        broken[place] ^= 0xFF
        events = read(b"".join(members[:2]) + bytes(broken) + b"".join(members[3:]))
        whole = [i for i, row in zip(ids(events), rows(events), strict=True) if not row.reject]
        assert whole == [0, 1, 3, 4]
        assert offset in [c.offset for c in corrupt(events)]


def test_a_record_whose_checksum_fails_is_rejected_by_name_not_kept() -> None:
    broken = bytearray(gzip.compress(warc(http())))
    broken[-6] ^= 1
    [row] = rows(read(bytes(broken)))
    assert row.payload == PAGE
    assert row.reject is not None and row.reject[0] == "truncated_record"
    assert "data check" in str(row.reject[3])


def test_a_file_cut_inside_a_record_gives_the_records_before_and_names_the_cut_one() -> None:
    parts = [warc(http(os.urandom(500).hex().encode()), number=i) for i in range(3)]
    for data in (b"".join(parts), b"".join(map(gzip.compress, parts))):
        events = read(data[:-300])
        assert ids(events) == [0, 1, 2]
        assert [bool(r.reject) for r in rows(events)] == [False, False, True]
        assert len(corrupt(events)) == 1


def test_a_record_may_span_members_and_a_member_may_hold_many_records() -> None:
    data = b"".join(warc(http(os.urandom(300).hex().encode()), number=i) for i in range(20))
    for size in (100, 777, 5000, 10**6):
        cut = b"".join(gzip.compress(data[i : i + size]) for i in range(0, len(data), size))
        assert ids(read(cut)) == list(range(20))
        assert not corrupt(read(cut))


def test_a_nested_archive_is_one_document_and_not_many() -> None:
    nested = b"".join(warc(http(), number=i) for i in range(50))
    data = warc(http(nested, "text/plain"), number=1) + warc(http(), number=2)
    for stored in (data, gzip.compress(data), gzip.compress(data, 0)):
        assert ids(read(stored)) == [1, 2]
        assert rows(read(stored))[0].payload == nested


def test_a_record_over_the_limit_is_rejected_unread_and_the_next_one_is_found() -> None:
    big = warc(http(b"x" * 300_000), number=1)
    data = big + warc(http(b"y" * 300_000, "video/mp4"), number=2) + warc(http(), number=3)
    for stored in (data, gzip.compress(data)):
        events = read(stored, record_bytes=100_000)
        assert ids(events) == [1, 3]
        reject = rows(events)[0].reject
        assert reject is not None and reject[0] == "record_too_large" and reject[2] == 100_000
        assert rows(events)[0].payload is None
        assert [e.kind for e in events if isinstance(e, Skipped)] == ["response:video/mp4"]
        assert not corrupt(events)


def test_a_head_without_end_is_no_record() -> None:
    data = b"WARC/1.0\r\n" + b"X-Field: y\r\n" * 100_000 + b"\r\n" + warc(http(), number=1)
    events = read(data)
    assert ids(events) == [1] and corrupt(events)


def test_a_zip_file_is_no_archive() -> None:
    assert len(corrupt(read(b"PK\x03\x04" + bytes(100)))) == 1


@pytest.mark.parametrize(
    "data",
    [
        gzip.compress(b"W") * 20_000,
        b"WARC/1.0\nWARC-Type: response\nContent-Length: 900000\n\n" * 20_000,
        b"WARC/1.0\nWARC-Type: response\nContent-Length: 90000000\n\n" * 20_000,
        b"filedesc:x\n" + (b"ab:" + b" 1.1.1.1 12345678" * 400 + b" a\t\n") * 120,
        b"WARC/1.0\r\nX: " + b"\r" * 250_000 + b"\n\n",
    ],
)
def test_hostile_framing_costs_seconds_at_most(data: bytes) -> None:
    begin = time.process_time()
    assert corrupt(read(data)) or data.startswith(b"WARC/1.0\r\nX")
    assert time.process_time() - begin < 10


def test_an_empty_file_has_no_events() -> None:
    assert read(b"") == []
    assert read(gzip.compress(b"")) == []


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_slices_read_together_what_the_whole_file_holds(codec: str) -> None:
    pack = gzip.compress if codec == "gzip" else zstandard.compress
    noise = random.Random(3)
    members = [
        bytearray(pack(warc(http(noise.randbytes(3000).hex().encode()), number=i)))
        for i in range(300)
    ]
    members[100][200:220] = bytes(20)
    data = b"".join(members)
    whole = read(data)
    for target in (200_000, 500_000):
        cuts = verified_boundaries(io.BytesIO(data), len(data), target)
        assert len(cuts) > 2
        ends = [*cuts[1:], None]
        parts = [
            e for a, b in zip(cuts, ends, strict=True) for e in read_archive(io.BytesIO(data), a, b)
        ]
        assert parts == whole


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2024-05-06T07:08:09Z", datetime(2024, 5, 6, 7, 8, 9)),
        ("2024-05-06T07:08:09.123456789Z", datetime(2024, 5, 6, 7, 8, 9, 123456)),
        ("2024-05-06t07:08:09z", datetime(2024, 5, 6, 7, 8, 9)),
        ("2024-05-06T07:08:09+02:00", datetime(2024, 5, 6, 5, 8, 9)),
        ("2024-05-06", datetime(2024, 5, 6)),
        ("20240506070809", datetime(2024, 5, 6, 7, 8, 9)),
        ("blue monday", None),
        ("0000-00-00T00:00:00Z", None),
        ("0001-01-01T00:00:00+23:00", None),
        ("", None),
        (None, None),
    ],
)
def test_warc_dates_are_read(value: str | None, expected: datetime | None) -> None:
    assert parse_date(value) == (expected.replace(tzinfo=timezone.utc) if expected else None)


def test_ten_gigabytes_of_zeros_in_a_small_file_cost_neither_memory_nor_minutes() -> None:
    bomb = gzip.compress(bytes(64 << 20)) * 160  # gzip members follow one another
    body = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\n\r\n" + bomb
    data = gzip.compress(warc(body, number=1)) + gzip.compress(warc(http(), number=2))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.process_time()
    events = read(data)
    assert time.process_time() - begin < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10  # KiB
    assert [r.reject and r.reject[0] for r in rows(events)] == ["payload_too_large", None]


def test_a_whole_record_stays_whole_where_the_next_member_gives_nothing() -> None:
    whole, following = warc(http(), number=1), warc(http(), number=3)
    for pack in (gzip.compress, zstandard.ZstdCompressor(write_checksum=True).compress):
        damaged = bytearray(pack(warc(http(), number=2)))
        damaged[10:] = b"\xff" * (len(damaged) - 10)
        events = read(pack(whole) + bytes(damaged) + pack(following))
        assert [(r.id, r.reject) for r in rows(events)] == [
            ("urn:uuid:00000001", None),
            ("urn:uuid:00000003", None),
        ]
        assert len(corrupt(events)) == 1


def test_a_damaged_zstd_dictionary_is_damage_of_its_file() -> None:
    pages = [warc(http(PAGE + b"%d" % i), number=i) for i in range(40)]
    dictionary = zstandard.train_dictionary(2048, pages)
    pack = zstandard.ZstdCompressor(dict_data=dictionary).compress
    frames = b"".join(map(pack, pages)) + zstandard.compress(warc(http(), number=99))
    stored = dictionary.as_bytes()
    damaged = stored[:8] + b"\xff" * 100 + stored[108:]
    for content, read_ids in ((stored, [*range(40), 99]), (damaged, [99])):
        events = read(b"\x5d\x2a\x4d\x18" + len(content).to_bytes(4, "little") + content + frames)
        assert ids(events) == read_ids
        assert ["dictionary is damaged" in c.what for c in corrupt(events)[:1]] == [True] * (
            content is damaged
        )


def test_heads_without_end_take_linear_time() -> None:
    assert grows_linearly(read, lambda n: b"\nWARC/1.0\nA:" * (n // 12), 10_000)


# Digests

BODY = hashlib.sha1(PAGE).digest()


@pytest.mark.parametrize(
    ("field", "value", "differs"),
    [
        ("WARC_Payload_Digest", "sha1:" + base64.b32encode(BODY).decode(), False),
        ("WARC_Payload_Digest", "SHA-1:" + BODY.hex().upper(), False),
        ("WARC_Payload_Digest", "SHA256:" + hashlib.sha256(PAGE).hexdigest().upper(), False),
        ("WARC_Payload_Digest", "sha1: " + base64.b32encode(BODY).decode().lower(), False),
        ("WARC_Payload_Digest", "sha256:" + hashlib.sha256(PAGE).hexdigest(), False),
        ("WARC_Payload_Digest", "md5:" + hashlib.md5(PAGE).hexdigest(), False),
        ("WARC_Block_Digest", "sha1:" + hashlib.sha1(http()).hexdigest(), False),
        ("WARC_Payload_Digest", "sha1:" + "2" * 32, True),
        ("WARC_Block_Digest", "sha1:" + BODY.hex(), True),  # of another content
        ("WARC_Block_Digest", "crc:" + BODY.hex(), None),
        ("WARC_Block_Digest", "sha1:nothing", None),
        ("WARC_Block_Digest", "no digest", None),
    ],
)
def test_contents_are_compared_with_the_digests_of_their_records(
    field: str, value: str, differs: bool | None
) -> None:
    data = warc(http(), **{field: value})
    [row] = rows(read(data, digests=True))
    stated = field.replace("_", "-") + " does not match the content"
    assert row.digest == {None: None, False: "", True: stated}[differs]
    assert (row.payload, row.reject) == (PAGE, None)  # it stays
    assert rows(read(data))[0].digest is None  # where nobody asks, nothing is compared


def test_a_payload_digest_may_be_of_the_body_with_or_without_its_chunks() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(PAGE), PAGE)
    for content, differs in ((PAGE, ""), (chunked, ""), (b"else", "WARC-Payload-Digest")):
        value = "sha1:" + hashlib.sha1(content).hexdigest()
        [row] = rows(read(warc(head + chunked, WARC_Payload_Digest=value), digests=True))
        assert str(row.digest).startswith(differs) and bool(row.digest) == bool(differs)


@real
def test_digests_differ_where_warcio_says_so() -> None:
    from warcio.archiveiterator import ArchiveIterator

    verdicts = []
    for path in sorted([*REAL.glob("warcio/*.warc*"), *REAL.glob("pywb/*.warc.gz")]):
        with path.open("rb") as file:
            ours = {r.id: r.digest for r in rows(read(file.read(), digests=True))}
        with path.open("rb") as file, suppress(Exception):  # warcio ends at damage
            for record in ArchiveIterator(file, check_digests=True):
                while record.raw_stream.read(1 << 16):
                    pass
                own = (record.rec_headers.get_header("WARC-Record-ID") or "").strip("<>")
                theirs = record.digest_checker.passed  # None: it did not come to the end
                if None not in (theirs, ours.get(own)):
                    verdicts.append((path.name, own, not theirs, bool(ours[own])))
    assert [v for v in verdicts if v[2] != v[3]] == []
    assert {v[2] for v in verdicts} == {True, False}


# Real archives


@real
def test_every_http_encoding_of_a_real_page_decodes() -> None:
    expected = json.loads((REAL / "derived" / "http-encodings.expected.json").read_text())
    with (REAL / "derived" / "http-encodings.warc.gz").open("rb") as file:
        pages = rows(list(read_archive(file)))
    assert [r.url for r in pages] == [e["url"] for e in expected]
    damaged = {"gzip cut at half", "chunk sizes wrong"}
    for row, want in zip(pages, expected, strict=True):
        assert row.payload and row.reject is None
        if want["variant"] not in damaged:
            assert hashlib.sha1(row.payload).hexdigest() == want["page_sha1"], want["variant"]


@real
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("cc-50rec.lf-only-headers.warc", 50),
        ("cc-50rec.onemember.warc.gz", 50),
        ("cc-50rec.truncated-in-record-31.warc.gz", 31),
        ("cc-50rec.warc.zst", 50),
    ],
)
def test_every_record_of_a_mistreated_crawl_is_there(name: str, count: int) -> None:
    with (REAL / "derived" / name).open("rb") as file:
        assert sum(isinstance(r, Record) for r in records(file)) == count


@real
def test_one_crawl_reads_the_same_in_every_container() -> None:
    crawls = []
    for name in ("warcfile.warc", "warcfile.warc.gz", "warcfile.warc.lz4"):
        with (REAL / "resiliparse" / name).open("rb") as file:
            all_records = [r for r in records(file) if isinstance(r, Record)]
        crawls.append([(r.type, r.fields, r.content) for r in all_records])
    assert crawls[0] == crawls[1] == crawls[2]
    assert Counter(kind for kind, _, _ in crawls[0])["response"] == 16


SMALL = [
    "warcio/example.warc.gz",
    "warcio/example.warc",
    "warcio/example.arc.gz",
    "warcio/example.arc",
    "warcio/bad.arc",
    "warcio/example-wrong-chunks.warc.gz",
    "aut/badexample.arc.gz",
    "resiliparse/block-sized-records.warc.lz4",
    "commoncrawl-whirlwind/whirlwind.warc.wet.gz",
    "pywb/dupes.warc.gz",
    "ukwa/IAH-20080430204825-00000-blackbook-truncated.warc.gz",
    "ukwa/IAH-20080430204825-00000-blackbook-truncated.arc.gz",
]


def damage(data: bytes, dice: random.Random) -> bytes:
    """Flip bits, insert, delete, repeat or cut."""
    out = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 5, 30))):
        at, kind = dice.randrange(len(out)), dice.random()
        if kind < 0.5:
            out[at] ^= 1 << dice.randrange(8)
        elif kind < 0.6:
            out[at] = dice.randrange(256)
        elif kind < 0.7:
            out[at:at] = dice.randbytes(dice.randrange(1, 50))
        elif kind < 0.8:
            del out[at : at + dice.randrange(1, 200)]
        elif kind < 0.9:
            del out[at + 1 :]
        else:
            start = dice.randrange(len(out))
            out[at:at] = out[start : start + dice.randrange(5000)]
        out = out or bytearray(b"x")
    return bytes(out)


@real
def test_no_damage_makes_the_reader_raise_hang_or_eat_memory() -> None:
    """LLMCURATE_FUZZ=N damages N files instead of 300."""
    dice = random.Random(int(os.environ.get("LLMCURATE_FUZZ_SEED", "20240506")))
    originals = [(REAL / name).read_bytes() for name in SMALL]
    text = (REAL / "warcio/example.warc").read_bytes()
    originals.append(zstandard.ZstdCompressor(write_checksum=True).compress(text) * 3)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(int(os.environ.get("LLMCURATE_FUZZ", "300"))):
        data = damage(dice.choice(originals), dice)
        start = time.process_time()
        for event in read_archive(io.BytesIO(data)):
            assert 0 <= event.offset <= len(data)
        assert time.process_time() - start < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10  # KiB


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_records_after_a_damaged_start_are_read(pack: Callable[[bytes], bytes]) -> None:
    members = [pack(warc(http(), number=n)) for n in range(3)]
    events = read(b"\xff" * 8 + members[0][8:] + members[1] + members[2])
    assert ids(events) == [1, 2] and corrupt(events)
