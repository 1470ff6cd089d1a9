"""WAT files written by hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

LINKS = [{"path": "A@/href", "url": "/more", "text": "More"}]


def envelope(kind: str = "response", status: str = "200", mime: str = "text/html") -> dict:
    """An envelope as Common Crawl writes it, shortened."""
    metas = [
        {"property": "og:description", "content": "Of the other kind"},
        {"name": "Description", "content": "What the\n mill is."},
    ]
    page = {"Head": {"Title": " The  mill ", "Metas": metas}, "Links": LINKS}
    response = {
        "Response-Message": {"Status": status, "Version": "HTTP/1.1"},
        "Headers": {"Content-Type": f"{mime}; charset=utf-8", "Server": "nginx"},
        "HTML-Metadata": page,
    }
    head = {
        "WARC-Type": kind,
        "WARC-Date": "2024-05-18T01:58:10Z",
        "WARC-Record-ID": "<urn:uuid:1>",
        "WARC-Target-URI": "https://mill.test/",
    }
    container = {"Filename": "crawl.warc.gz", "Offset": "80610308"}
    return {
        "Container": {**container, "Gzip-Metadata": {"Deflate-Length": "423"}},
        "Envelope": {
            "Payload-Metadata": {"HTTP-Response-Metadata": response},
            "WARC-Header-Metadata": head,
        },
    }


def wat(path: Path, *contents: Any) -> Path:
    """A WAT file, one gzip member a record; str stands for what is no JSON."""
    members = []
    for content in contents:
        body = (content if isinstance(content, str) else json.dumps(content)).encode()
        head = "WARC/1.0\r\nWARC-Type: metadata\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        members.append(gzip.compress(head.encode() + body + b"\r\n\r\n"))
    path.write_bytes(b"".join(members))
    return path
