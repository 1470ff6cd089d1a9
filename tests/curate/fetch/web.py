"""A web server that fails on request, as planned for each answer."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Page:
    """A file of the server (under a path, or a path with its query), and what happens to the
    requests for it, the first one first.

    Words of `plan`: `cut N` (the connection ends after N bytes of the body), `STATUS [SECONDS]`
    (an error, with Retry-After), `drop` (no answer), `stall`, `change DATA` (another file from now
    on), `slow`; when they are used up the file is sent as it should be.
    """

    data: bytes
    plan: list[str] = field(default_factory=list)
    etag: str | None = '"v1"'
    modified: str | None = None
    ranges: bool = True
    if_range: bool = True
    length: int | None = None  # what Content-Length says, where that is not true
    chunked: bool = False
    location: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Web:
    """What the server has, and what it was asked: (path, Range or None, If-Range or None)."""

    url: str
    pages: dict[str, Page] = field(default_factory=dict)
    asked: list[tuple[str, str | None, str | None]] = field(default_factory=list)
    agents: set[str] = field(default_factory=set)
    heads: list[str] = field(default_factory=list)
    head_status: int = 200

    def put(self, path: str, data: bytes, *plan: str, **more) -> str:
        """A file at a path; its URL."""
        self.pages[path] = Page(data, list(plan), **more)
        return f"{self.url}{path}"

    def ranges(self, path: str) -> list[str | None]:
        """The ranges that were asked of a file, in order."""
        return [r for p, r, _ in self.asked if p == path]


@contextmanager
def serving() -> Iterator[Web]:
    """A server on a port of its own, in threads of this process."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            answer(self, web)

        def do_HEAD(self) -> None:
            web.heads.append(self.path)
            page = web.pages.get(self.path)
            self.send_response(404 if page is None else web.head_status)
            if page is not None and page.etag:
                self.send_header("ETag", page.etag)
            self.send_header("Content-Length", str(len(page.data) if page else 0))
            self.end_headers()

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            pass  # a client that went away

    server = Server(("127.0.0.1", 0), Handler)
    web = Web(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        server.server_close()


def answer(request: BaseHTTPRequestHandler, web: Web) -> None:
    wanted, condition = request.headers.get("Range"), request.headers.get("If-Range")
    path = request.path.partition("?")[0]
    web.asked.append((path, wanted, condition))
    web.agents.add(request.headers.get("User-Agent", ""))
    page = web.pages.get(request.path, web.pages.get(path))
    if page is None:
        return _send(request, 404, b"nothing here", {})
    word, _, rest = (page.plan.pop(0) if page.plan else "").partition(" ")
    if word == "change":
        page.data, page.etag = rest.encode(), '"v2"'
    elif word == "drop":
        request.close_connection = True
        return request.connection.close()
    elif word == "stall":
        time.sleep(0.6)
    elif word.isdigit():
        return _send(request, int(word), b"no", {"Retry-After": rest} if rest else {})
    headers = dict(page.headers)
    headers |= {"ETag": page.etag} if page.etag else {}
    headers |= {"Last-Modified": page.modified} if page.modified else {}
    if page.location:
        return _send(request, 302, b"", {"Location": page.location})
    status, body, start = 200, page.data, 0
    part = re.fullmatch(r"bytes=(\d+)-(\d*)", wanted or "")
    same = not page.if_range or condition in (None, page.etag, page.modified)
    if part and page.ranges and same:
        start = int(part[1])
        if start >= len(page.data):
            return _send(request, 416, b"", {"Content-Range": f"bytes */{len(page.data)}"})
        last = min(int(part[2]) if part[2] else 1 << 60, len(page.data) - 1)
        status, body = 206, page.data[start : last + 1]
        whole = f"{start}-{last}/{len(page.data)}"
        headers["Content-Range"] = f"bytes {whole}"
    length = page.length - start if page.length is not None else len(body)
    end = min(len(body), max(0, int(rest) - start)) if word == "cut" else len(body)
    request.send_response(status)
    for name, value in headers.items():
        request.send_header(name, value)
    if page.chunked:
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        request.wfile.write(b"%x\r\n" % len(body) + body[:end])
        if end == len(body):
            return void(request.wfile.write(b"\r\n0\r\n\r\n"))
    else:
        request.send_header("Content-Length", str(length))
        request.end_headers()
        for at in range(0, end, 200 if word == "slow" else max(1, end)):
            request.wfile.write(body[at : min(end, at + (200 if word == "slow" else end))])
            if word == "slow":
                time.sleep(0.005)
    if end < length or page.chunked:
        request.wfile.flush()
        request.close_connection = True
        request.connection.close()


def void(_: object) -> None:
    return None


def _send(request: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict) -> None:
    request.send_response(status)
    for name, value in {**headers, "Content-Length": str(len(body))}.items():
        request.send_header(name, value)
    request.end_headers()
    request.wfile.write(body)
