"""WACZ files written by hand."""

from __future__ import annotations

import zipfile
from pathlib import Path


def record(number: int) -> bytes:
    body = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>Page %d.</p>" % number
    head = "WARC/1.0\r\nWARC-Type: response\r\nContent-Type: application/http\r\n"
    head += f"WARC-Target-URI: https://a.test/{number}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body + b"\r\n\r\n"


def wacz(path: Path, members: dict[str, bytes], packing: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", packing) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return path
