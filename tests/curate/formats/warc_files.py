"""WARC and ARC files written by hand."""

from __future__ import annotations

import io

from curate.formats.events import Event
from curate.formats.warc import ReadLimits, read_archive

PAGE = b"<!doctype html><html><body><p>page</p></body></html>"


def http(
    body: bytes = PAGE, kind: str = "text/html; charset=UTF-8", status: str = "200 OK"
) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n\r\n".encode() + body


def warc(
    content: bytes,
    kind: str = "response",
    number: int = 0,
    length: object = None,
    newline: bytes = b"\r\n",
    **fields: str,
) -> bytes:
    head = {
        "WARC-Type": kind,
        "WARC-Record-ID": f"<urn:uuid:{number:08d}>",
        "WARC-Target-URI": f"http://example.org/{number}",
        "WARC-Date": "2024-05-06T07:08:09Z",
        "Content-Type": "application/http; msgtype=response",
        "Content-Length": str(len(content) if length is None else length),
    }
    head.update({name.replace("_", "-"): value for name, value in fields.items()})
    lines = [b"WARC/1.0", *(f"{k}: {v}".encode() for k, v in head.items() if v != "-"), b"", b""]
    return newline.join(lines) + content + newline * 2


def arc(
    content: bytes, number: int = 0, date: str = "20240506070809", length: object = None
) -> bytes:
    size = len(content) if length is None else length
    return (
        f"http://example.org/{number} 10.0.0.1 {date} text/html {size}\n".encode() + content + b"\n"
    )


def read(data: bytes, **limits: int) -> list[Event]:
    return list(read_archive(io.BytesIO(data), limits=ReadLimits(**limits)))
