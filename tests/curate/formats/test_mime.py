"""Types by the first bytes, as in the MIME Sniffing Standard, and which statement is believed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from curate.formats.mime import BINARY, looks_like_text, sniff_mime, type_of
from tests.curate.formats.portions import events, rows, skipped
from tests.curate.formats.warc_files import http, read, warc

PAGE = b"<!doctype html><html><body><p>Gr\xc3\xbc\xc3\x9fe</p></body></html>"
NOISE = bytes(range(256)) * 16
# https://mimesniff.spec.whatwg.org/, sections 6.1, 6.2, 6.3, 7.1: pattern -> type.
STANDARD = {
    b"\0\0\1\0": "image/x-icon",
    b"\0\0\2\0": "image/x-icon",
    b"BM": "image/bmp",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"RIFF\x10\0\0\0WEBPVP": "image/webp",
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"FORM\0\0\1\0AIFF": "audio/aiff",
    b"ID3": "audio/mpeg",
    b"OggS\0": "audio/ogg",
    b"MThd\0\0\0\6": "audio/midi",
    b"RIFF\x10\0\0\0AVI ": "video/avi",
    b"RIFF\x10\0\0\0WAVE": "audio/wave",
    b"\0\0\0\x18ftypmp42\0\0\0\0": "video/mp4",
    b"\0\0\0\x18ftypisom\0\0\2\0mp41": "video/mp4",
    b"\x1aE\xdf\xa3\x9fB\x86\x81\1B\xf7\x81\1B\x82\x84webm": "video/webm",
    bytes(34) + b"LP": "application/vnd.ms-fontobject",
    b"\0\1\0\0": "font/ttf",
    b"OTTO": "font/otf",
    b"ttcf": "font/collection",
    b"wOFF": "font/woff",
    b"wOF2": "font/woff2",
    b"\x1f\x8b\x08": "application/gzip",
    b"PK\3\4": "application/zip",
    b"Rar!\x1a\7\0": "application/x-rar-compressed",
    b"%PDF-": "application/pdf",
    b"%!PS-Adobe-": "application/postscript",
}


@pytest.mark.parametrize(("begin", "mime"), STANDARD.items())
@pytest.mark.parametrize("stated", ["text/html", "text/plain", "application/xhtml+xml", ""])
def test_content_of_the_standards_tables_is_another_record_of_its_kind(
    begin: bytes, mime: str, stated: str
) -> None:
    found = read(warc(http(begin + NOISE, stated)))
    assert skipped(found) == [f"response:{mime}"] and not rows(found)


@pytest.mark.parametrize("begin", [p for p in STANDARD if p.isalnum()])
def test_words_that_begin_a_pattern_are_words(begin: bytes) -> None:
    text = begin + b" is how this text begins, and it is one."
    assert sniff_mime(text) == "text/plain"
    assert rows(read(warc(http(text, "text/plain")))) and rows(read(warc(http(text))))


@pytest.mark.parametrize(
    "begin", [b"7z\xbc\xaf'\x1c", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"MZ\x90"]
)
def test_binary_content_of_no_pattern_is_another_record(begin: bytes) -> None:
    assert skipped(read(warc(http(begin + NOISE)))) == [f"response:{BINARY}"]


@pytest.mark.parametrize(
    "page",
    [
        PAGE,
        PAGE.decode().encode("utf-16"),
        PAGE.decode().encode("utf-16-le"),
        PAGE.decode().encode("utf-16-be"),
        ("Plain words. " * 9).encode("utf-16-le"),
        "<p>\u6f22\u5b57\u306e\u6587\u7ae0\u3067\u3059".encode("iso-2022-jp"),
        "\u6f22\u5b57\u306e\u6587\u7ae0\u3067\u3059".encode("iso-2022-jp"),
        "\u041f\u0440\u0438\u0432\u0435\u0442".encode("koi8-r"),
        b"<p>A page \0\0\0\1 with controls.",
        b"  \r\n<!-- x --><p>\x01\x02\x03",
    ],
)  # fmt: skip
def test_a_page_of_any_encoding_is_no_binary(page: bytes) -> None:
    for stated in ("text/html", "text/plain", ""):
        assert [row.payload for row in rows(read(warc(http(page, stated))))] == [page]


@pytest.mark.parametrize(
    ("identified", "body", "kind"),
    [
        ("application/pdf", b"no bytes of one", "application/pdf"),
        ("application/json", b'{"p": "<p>x</p>"}', "application/json"),
        ("image/svg+xml", b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml"),
        ("application/msword", NOISE, "application/msword"),
        ("image/png", b"\xff\xd8\xff" + NOISE, "image/jpeg"),
        ("text/html", b"\xff\xd8\xff" + NOISE, "image/jpeg"),
        ("application/octet-stream", b"Some text.", None),
        ("message/rfc822", b"Subject: a letter", None),
        ("application/x-dosexec", PAGE, None),
        ("text/x-php", PAGE, None),
        ("application/xhtml+xml", PAGE, None),
        ("application/xml", b"<?xml version='1.0'?><html/>", None),
        ("text/plain", b"Some text.", None),
        ("-", b"Some text.", None),
    ],
)
def test_payloads_the_crawler_identified_as_other_types_are_skipped_unless_they_begin_as_html(
    identified: str, body: bytes, kind: str | None
) -> None:
    found = read(warc(http(body, "text/html"), WARC_Identified_Payload_Type=identified))
    assert skipped(found) == ([f"response:{kind}"] if kind else [])
    assert [row.mime for row in rows(found)] == ([] if kind else ["text/html"])


def test_where_a_server_states_no_type_that_of_the_crawler_is_taken() -> None:
    assert type_of(None, "application/xhtml+xml", PAGE) == "application/xhtml+xml"
    assert type_of(None, "video/mp4", PAGE) == "text/html"
    assert type_of(None, None, b"") is None


@pytest.mark.parametrize("name", ["page.html", "note.txt"])
def test_a_file_with_an_image_signature_is_skipped_as_an_image(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x89PNG\r\n\x1a\n" + NOISE)
    found = events(tmp_path / name)
    assert not rows(found) and len(skipped(found)) == 1 and skipped(found)[0].endswith("image/png")


def test_one_control_character_in_a_hundred_is_still_text() -> None:
    assert looks_like_text(b"a" * 99 + b"\0") and not looks_like_text(b"a" * 98 + b"\0")


def test_types_are_sniffed_from_the_first_bytes() -> None:
    assert sniff_mime(PAGE) == "text/html"
    assert sniff_mime(b"\xef\xbb\xbf  <HTML>") == "text/html"
    assert sniff_mime(b"<?xml version='1.0'?><rss/>") == "application/xml"
    assert sniff_mime(b"just words") == "text/plain"
    assert sniff_mime("<html>".encode("utf-16")) == "text/html"
    assert sniff_mime(b"") is None
    assert not looks_like_text(os.urandom(4096))
