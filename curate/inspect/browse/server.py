"""The read-only server: this computer alone, GET alone, one run.

It binds to 127.0.0.1 and answers only to its own names in the Host header, so that a page of
another site cannot read the run through a name that it points here (DNS rebinding).
"""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from curate.inspect.browse import pages
from curate.inspect.browse.library import Library, Query
from curate.inspect.browse.originals import Originals
from curate.inspect.browse.pages import load
from curate.run.records import stages_of
from llmcurate.base.errors import UsageError

HOST = "127.0.0.1"
MOST_PATH = 8_000
MOST_PAGE = 100_000
HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": pages.POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Server(ThreadingHTTPServer):
    """Answers for one library; port 0 takes any that is free. UsageError where it is taken."""

    daemon_threads = True

    def __init__(self, library: Library, port: int) -> None:
        self.library = library
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"--port {port}: {reason}; give another, or 0 for any") from None

    @property
    def address(self) -> str:
        """Where a browser finds it."""
        return f"http://{HOST}:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version = "llmcurate"
    sys_version = ""
    timeout = 60

    def do_GET(self) -> None:
        port = self.server.server_port
        if self.headers.get("Host") not in (f"{HOST}:{port}", f"localhost:{port}"):
            self._answer(403, pages.message_page("this server answers to 127.0.0.1 only"))
            return
        try:
            self._answer(*self._page())
        except UsageError as error:
            self._answer(400, pages.message_page(str(error)))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        except Exception as error:
            message = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            self._answer(500, pages.message_page(message))

    do_HEAD = do_GET

    def _refuse(self) -> None:
        self.close_connection = True
        self._answer(405, pages.message_page("this server is read only"))

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _refuse

    def _page(self) -> tuple[int, str]:
        library = self.server.library
        if len(self.path) > MOST_PATH:
            return 414, pages.message_page("the address is too long")
        parts = urlsplit(self.path)
        try:
            fields = {k: v[-1] for k, v in parse_qs(parts.query, max_num_fields=40).items()}
        except ValueError:
            return 400, pages.message_page("the address has too many fields")
        if parts.path == "/":
            query = query_of(fields)
            return 200, pages.list_page(library, query, *library.find(query))
        if parts.path == "/report" and (report := pages.report_page(library)) is not None:
            return 200, report
        position = library.position(fields.get("id", "")) if parts.path == "/document" else None
        if position is None:
            return 404, pages.message_page("there is no such page or document")
        (document,) = load(library, [position], Originals(library.out, stages_of(library.record)))
        return 200, pages.document_page(library, document)

    def _answer(self, status: int, page: str) -> None:
        data = page.encode()
        self.send_response(status)
        for key, value in HEADERS.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Quiet: what is looked at is nobody's concern."""


def query_of(fields: dict[str, str]) -> Query:
    """The query of a form's fields. UsageError where one is no number."""

    def number(name: str) -> float | None:
        text = fields.get(name, "").strip()
        try:
            return float(text) if text else None
        except ValueError:
            raise UsageError(f"{text[:40]!r} is no number") from None

    page = fields.get("page", "0")
    if not (page.isascii() and page.isdigit() and len(page) < 7 and int(page) <= MOST_PAGE):
        raise UsageError(f"no page {page[:20]!r}")
    names = ("words", "status", "rule", "lang", "column", "cluster")
    return Query(
        **{n: fields.get(n, "").strip() for n in names},
        least=number("least"),
        most=number("most"),
        page=int(page),
    )
