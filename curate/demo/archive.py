"""Responses as they came over the wire, and the WARC files that hold them."""

from __future__ import annotations

import gzip
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import format_datetime
from io import BytesIO
from pathlib import Path

from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

# Names that HTTP uses and Python does not know.
_CODECS = {"windows-874": "cp874"}
_SOFTWARE = "llmcurate demonstration web"


def codec(charset: str) -> str:
    """Python's name of a charset as HTTP spells it."""
    return _CODECS.get(charset.lower(), charset)


@dataclass(frozen=True)
class Response:
    """One answer of a server, with what is needed to write it as it was sent."""

    url: str
    date: str  # 2025-03-01T10:00:00Z
    body: bytes
    content_type: str = "text/html"
    status: str = "200 OK"
    coding: str = ""  # "gzip", "chunked" or "gzip chunked"
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def record_id(self) -> str:
        """The WARC-Record-ID without angle brackets."""
        return uuid.uuid5(uuid.NAMESPACE_URL, f"{self.url} {self.date}").urn

    def wire(self) -> tuple[list[tuple[str, str]], bytes]:
        """Headers and body as sent, content and transfer codings applied."""
        body = self.body
        headers = [("Date", _http_date(self.date)), ("Server", "nginx"), *self.headers]
        if self.content_type:
            headers.append(("Content-Type", self.content_type))
        if "gzip" in self.coding:
            body = gzip.compress(body, 9, mtime=0)
            headers.append(("Content-Encoding", "gzip"))
        if "chunked" in self.coding:
            body = chunked(body)
            headers.append(("Transfer-Encoding", "chunked"))
        else:
            headers.append(("Content-Length", str(len(body))))
        return headers, body


def chunked(body: bytes, size: int = 1500) -> bytes:
    """HTTP/1.1 chunked transfer coding."""
    parts = [body[i : i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"


def _http_date(date: str) -> str:
    stamp = datetime.fromisoformat(date.replace("Z", "+00:00"))
    return format_datetime(stamp).replace("+0000", "GMT")


def write_warc(path: Path, responses: Sequence[Response]) -> None:
    """A WARC file: warcinfo, then a request and a response for each answer, a gzip member each."""
    with path.open("wb") as stream:
        writer = WARCWriter(stream, gzip=True)
        first = responses[0].date
        info = f"software: {_SOFTWARE}\r\nformat: WARC File Format 1.0\r\n".encode()
        _write(writer, "warcinfo", "", first, f"warcinfo {path.name}", info, None, path.name)
        for response in responses:
            _write_exchange(writer, response)


def _write_exchange(writer: WARCWriter, response: Response) -> None:
    host, _, path = response.url.partition("://")[2].partition("/")
    asked = StatusAndHeaders(
        f"GET /{path} HTTP/1.1",
        [("Host", host), ("User-Agent", "demo-crawler/1.0"), ("Accept-Encoding", "gzip")],
        is_http_request=True,
    )
    name = f"request {response.url} {response.date}"
    _write(writer, "request", response.url, response.date, name, b"", asked)
    headers, body = response.wire()
    answer = StatusAndHeaders(response.status, headers, protocol="HTTP/1.1")
    _write(writer, "response", response.url, response.date, response.record_id, body, answer)


def _write(
    writer: WARCWriter,
    kind: str,
    url: str,
    date: str,
    name: str,
    body: bytes,
    http: StatusAndHeaders | None,
    filename: str = "",
) -> None:
    urn = name if name.startswith("urn:") else uuid.uuid5(uuid.NAMESPACE_URL, name).urn
    headers = {"WARC-Record-ID": f"<{urn}>", "WARC-Date": date}
    if filename:
        headers["WARC-Filename"] = filename
    record = writer.create_warc_record(
        url,
        kind,
        payload=BytesIO(body),
        length=len(body),
        warc_headers_dict=headers,
        http_headers=http,
    )
    writer.write_record(record)
