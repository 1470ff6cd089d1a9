"""HTTP heads and bodies as servers really send them."""

from __future__ import annotations

import gzip
import os
import time
import tracemalloc
import zlib

import brotli
import pytest
import zstandard

from curate.formats.http import (
    OPT_OUT_HEADERS,
    content_type,
    decode_body,
    parse_head,
)
from tests.parameters import mostly_slow

PAGE = b"<!doctype html><html><body><p>Gr\xc3\xbc\xc3\x9fe</p></body></html>" * 50
LIMIT = 1 << 20


def body(headers: str, data: bytes, limit: int = LIMIT):
    head = parse_head(f"HTTP/1.1 200 OK\r\n{headers}\r\n\r\n".encode())
    assert head is not None
    return decode_body(head, data, limit)


def chunked(data: bytes, size: int = 700) -> bytes:
    parts = [data[i : i + size] for i in range(0, len(data), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("head", "status", "kind", "length"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\nbody", 200, "text/html", 44),
        (b"HTTP/1.1 200 OK\nContent-Type: text/html\n\nbody", 200, "text/html", 41),
        (b"HTTP/1.0 302\r\nCONTENT-TYPE:text/html\r\n\r\n", 302, "text/html", 40),
        (b"HTTP/1.1 200 \r\nContent-Type:\r\n text/html\r\n\r\n", 200, "text/html", None),
        (b"http/1.1 404 Not Found\r\nno field\r\nContent-Type: a/b\r\n\r\n", 404, "a/b", None),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n", 200, "text/html", None),
        (b"HTTP/1.1 200 OK\r\n\r\nContent-Type: text/html", 200, None, 19),
        (b"ICY 200 OK\r\nContent-Type: text/plain\r\n\r\n", 200, "text/plain", None),
    ],
)
def test_broken_heads_are_read(head: bytes, status: int, kind: str | None, length: int) -> None:
    parsed = parse_head(head)
    assert parsed is not None
    assert (parsed.status, parsed.first("content-type")) == (status, kind)
    if length is not None:
        assert parsed.length == length


def test_a_head_that_no_blank_line_ends_stops_before_the_page() -> None:
    data = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n<html>\r\n<body>a: b</body></html>"
    head = parse_head(data)
    assert head is not None and data[head.length :].startswith(b"<html>")


def test_what_does_not_begin_with_a_status_line_is_no_head() -> None:
    assert parse_head(b"<html>") is None
    assert parse_head(b"") is None
    assert parse_head(b"HTTP/1.1 OK\r\n\r\n") is None


def test_header_bytes_that_are_no_utf8_are_replaced() -> None:
    head = parse_head(b"HTTP/1.1 200 \xff\r\nX: \xe9t\xe9\r\n\r\n")
    assert head is not None and head.get("x") == "\ufffdt\ufffd"


def packed(data: bytes) -> bytes:
    """Compress with gzip, without the time, so that test names stay the same."""
    return gzip.compress(data, mtime=0)


@pytest.mark.parametrize(
    ("headers", "data"),
    [
        ("X: y", PAGE),
        ("Content-Encoding: gzip", packed(PAGE)),
        ("Content-Encoding: x-gzip", packed(PAGE)),
        ("Content-Encoding: gzip", packed(PAGE[:100]) + packed(PAGE[100:])),
        ("Content-Encoding: gzip", packed(PAGE) + b"trailing bytes"),
        ("Content-Encoding: deflate", zlib.compress(PAGE)),
        ("Content-Encoding: deflate", raw_deflate(PAGE)),
        ("Content-Encoding: br", brotli.compress(PAGE)),
        ("Content-Encoding: zstd", zstandard.compress(PAGE)),
        ("Transfer-Encoding: chunked", chunked(PAGE)),
        ("Transfer-Encoding: chunked\r\nContent-Encoding: gzip", chunked(packed(PAGE))),
        ("Transfer-Encoding: gzip, chunked", chunked(packed(PAGE))),
        ("Content-Encoding: gzip, br", brotli.compress(packed(PAGE))),
        ("CONTENT-encoding : GZip", packed(PAGE)),
        ("content-encoding: 'X-GZIP'", packed(PAGE)),
        ("TRANSFER-ENCODING: Chunked", chunked(PAGE)),
        ("Content-Encoding: identity", PAGE),
        ("Content-Encoding: UTF-8", PAGE),
        ("Content-Encoding: gzip", PAGE),
        ("Content-Encoding: br", PAGE),
        ("Content-Encoding: zstd", PAGE),
        ("Content-Encoding: deflate", PAGE),
        ("Content-Encoding: compress", PAGE),
        ("Transfer-Encoding: chunked", PAGE),
        ("X: y", packed(PAGE)),
        ("Content-Encoding: gzip", packed(packed(PAGE))),
        ("Content-Encoding: identity", packed(packed(packed(PAGE)))),
        ("Content-Encoding: br", packed(PAGE)),
        ("Content-Encoding: br", brotli.compress(packed(PAGE))),
        ("Content-Length: 10", PAGE),
        ("Content-Length: 99999", PAGE),
    ],
)
def test_a_body_is_the_page_whatever_the_server_declares(headers: str, data: bytes) -> None:
    result = body(headers, data)
    assert (result.status, result.data) == ("ok", PAGE)


@pytest.mark.parametrize(
    ("headers", "data"),
    [("X: y", PAGE), ("Content-Encoding: gzip", packed(PAGE)), ("Content-Encoding: br",
     brotli.compress(PAGE)), ("Content-Encoding: zstd", zstandard.compress(PAGE)),
     ("Transfer-Encoding: chunked", chunked(PAGE))],
)  # fmt: skip
def test_a_body_as_long_as_the_limit_is_whole(headers: str, data: bytes) -> None:
    assert body(headers, data, limit=len(PAGE)).data == PAGE
    assert body(headers, data, limit=len(PAGE) - 1).status == "too_large"


@pytest.mark.parametrize(
    ("stored", "data", "detail"),
    [
        (b"5\r\nhello", b"hello", None),
        (b"5\r\nhello\r\n", b"hello", None),
        (b"6\r\nhello", b"hello", "chunked: ends early"),
        (b"5;name=value\nhello\n0\n\nrest", b"hello", None),
        (b"A\r\n0123456789\r\n0\r\n", b"0123456789", None),
    ],
)
def test_a_last_chunk_may_end_where_the_body_does(
    stored: bytes, data: bytes, detail: str | None
) -> None:
    result = body("Transfer-Encoding: chunked", stored)
    assert (result.data, result.detail) == (data, detail)


def test_headers_for_robots_are_found_in_any_case_and_keep_their_values() -> None:
    head = parse_head(
        b"HTTP/1.1 200 OK\r\nX-ROBOTS-TAG:GPTBot: None\r\nX-Robots-tag : noAI\r\n"
        b"TDM-Reservation: 1\r\nX-Robots: no\r\n\r\n"
    )
    assert head is not None and head.lines(OPT_OUT_HEADERS) == (
        "x-robots-tag: GPTBot: None\nx-robots-tag: noAI\ntdm-reservation: 1"
    )


@pytest.mark.parametrize(
    ("name", "pack"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("zstd", zstandard.compress)],
)
def test_a_body_that_was_cut_gives_its_beginning(name: str, pack) -> None:
    page = b"".join(b"<p>%d</p>" % i for i in range(400_000))
    stored = pack(page)
    result = body(f"Content-Encoding: {name}", stored[: len(stored) // 2], limit=1 << 24)
    assert result.status == "ok" and len(result.data) > 100_000
    assert page.startswith(result.data)


def test_gzip_that_no_header_says_is_unpacked_three_times_within_the_limit_and_noted() -> None:
    assert body("X: y", packed(PAGE), limit=len(PAGE) - 1).status == "too_large"
    assert body("X: y", packed(PAGE)).notes == ["gzip, which no header says"]
    four = packed(packed(packed(packed(PAGE))))
    assert body("X: y", four).data == packed(PAGE)
    assert body("X: y", b"\x1f\x8b\x08 broken").data == b"\x1f\x8b\x08 broken"


def test_damage_inside_a_gzip_body_keeps_what_came_before_it() -> None:
    page = os.urandom(200_000).hex().encode()
    stored = bytearray(gzip.compress(page))
    stored[len(stored) // 2 :] = b"\xff" * (len(stored) - len(stored) // 2)
    result = body("Content-Encoding: gzip", bytes(stored))
    assert result.status == "ok" and result.detail is not None
    assert len(result.data) > 100_000 and page[:100_000] == result.data[:100_000]


def test_a_body_that_is_neither_decodable_nor_text_says_so() -> None:
    noise = bytes(range(256)) * 8
    for name in ("gzip", "br", "zstd", "deflate", "compress", "dcb"):
        result = body(f"Content-Encoding: {name}", noise)
        assert result.status == "undecodable" and result.data == noise
        assert result.detail


def test_wrong_chunk_sizes_damage_the_body_but_keep_its_bytes() -> None:
    result = body("Transfer-Encoding: chunked", b"5\r\nhello\r\n3\r\nworld\r\n0\r\n\r\n")
    assert result.status == "ok" and result.data.startswith(b"hellowor")
    assert result.detail


@pytest.mark.parametrize("name", mostly_slow(["br", "zstd", "gzip, gzip", "gzip", "deflate"], 3))
def test_no_bomb_inflates_beyond_the_limit(name: str) -> None:
    zeros = bytes(64 << 20)
    stored = {
        "gzip": gzip.compress(zeros),
        "deflate": zlib.compress(zeros),
        "br": brotli.compress(zeros, quality=1),
        "zstd": zstandard.compress(zeros),
        "gzip, gzip": gzip.compress(gzip.compress(zeros)),
    }[name]
    del zeros
    tracemalloc.start()
    begin = time.process_time()
    result = body(f"Content-Encoding: {name}", stored)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (result.status, result.data) == ("too_large", b"")
    assert LIMIT < result.size <= LIMIT + (2 << 20)
    assert peak < 8 << 20 and time.process_time() - begin < 5


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("text/html; charset=UTF-8", ("text/html", "utf-8")),
        ('Text/HTML;charset="iso-8859-1"', ("text/html", "iso-8859-1")),
        ("text/html;charset=Big5_Solaris", ("text/html", "big5_solaris")),
        ("TEXT/html; CHARSET = 'Windows-1252'", ("text/html", "windows-1252")),
        ("html", (None, None)),
        ("; charset=utf-8", (None, "utf-8")),
        ("text/html, text/html", ("text/html", None)),
        (None, (None, None)),
    ],
)
def test_content_types(value: str | None, expected: tuple[str | None, str | None]) -> None:
    assert content_type(value) == expected
