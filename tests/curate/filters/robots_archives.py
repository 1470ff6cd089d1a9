"""Archives of robots.txt made for tests, and what is read of them."""

from __future__ import annotations

from pathlib import Path

from curate.filters.opt_out import Sites


def record(url: str, body: bytes, head: str = "HTTP/1.1 200 OK", date: str = "2026-01-01") -> bytes:
    """A response as a WARC record; head: status line and HTTP fields."""
    content = head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body
    fields = (
        f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: {url}\r\n"
        f"WARC-Date: {date}T00:00:00Z\r\nContent-Type: application/http\r\n"
        f"WARC-Record-ID: <{url}>\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return fields.encode() + content + b"\r\n\r\n"


def sites(tmp_path: Path, *records: bytes, agents: tuple[str, ...] = ("GPTBot",), **more) -> Sites:
    (tmp_path / "robots.warc").write_bytes(b"".join(records))
    return Sites(agents, **more).read([str(tmp_path / "robots.warc")])
