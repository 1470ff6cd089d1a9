"""The server of `browse`, which shows one run to this computer only and writes nothing but labels.

The server binds to 127.0.0.1 and answers only requests with its own name in the Host header, so a
page of another site cannot read the run by DNS rebinding. A label sent by POST is accepted only
with the Origin header and the secret token of a page of this server.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from curate.inspect.browse import pages
from curate.inspect.browse.library import Library, Query
from curate.inspect.browse.originals import Originals
from curate.inspect.browse.pages import Document, load
from curate.run.records import stages_of
from llmcurate.base.errors import UsageError

HOST = "127.0.0.1"
MOST_PATH = 8_000
MOST_DIGITS = 4  # of Content-Length
HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": pages.POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # otherwise a form's Origin header is null
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Server(ThreadingHTTPServer):
    """The HTTP server for one run. Port 0 means any free port. Raises UsageError if the port is in
    use."""

    daemon_threads = True

    def __init__(self, library: Library, port: int) -> None:
        self.library = library
        self.token = secrets.token_urlsafe()
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(
                f"--port {port}: {reason}; give another port, or 0 for any free one"
            ) from None

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version = "llmcurate"
    sys_version = ""
    timeout = 60

    def do_GET(self) -> None:
        self._try(self._page)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self.close_connection = True  # the body of a refused request is not read
        self._try(self._label)

    def _try(self, work: Callable[[], tuple[int, str]]) -> None:
        port = self.server.server_port
        if self.headers.get("Host") not in (f"{HOST}:{port}", f"localhost:{port}"):
            self._answer(403, pages.message_page("this server answers to 127.0.0.1 only"))
            return
        try:
            self._answer(*work())
        except UsageError as error:
            self._answer(400, pages.message_page(str(error)))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        except Exception as error:
            message = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            self._answer(500, pages.message_page(message))

    def _page(self) -> tuple[int, str]:
        library = self.server.library
        path, fields = self._asked()
        if path == "/":
            return 200, pages.list_page(library, Query.of(fields))
        if path == "/report" and (report := pages.report_page(library)):
            return 200, report
        document = self._document(path, fields)
        if document is None:
            return 404, pages.message_page("page or document not found")
        return 200, pages.document_page(library, document, Query.of(fields), self.server.token)

    def _label(self) -> tuple[int, str]:
        length = self.headers.get("Content-Length", "")
        is_short = length.isascii() and length.isdigit() and len(length) <= MOST_DIGITS
        body = self.rfile.read(int(length)) if is_short else b""
        form = fields_of(body.decode("utf-8", "replace"))
        is_own = self.headers.get("Origin") == f"http://{self.headers['Host']}"
        token = form.get("token", "").encode()
        if not is_own or not secrets.compare_digest(token, self.server.token.encode()):
            return 403, pages.message_page(
                "labels are accepted only from a page of this server: reload the page"
            )
        document = self._document(*self._asked())
        if document is None:
            return 404, pages.message_page("document not found")
        self.server.library.labels.put(document.id, form.get("label", ""), document.text)
        return 303, pages.message_page("labelled")

    def _asked(self) -> tuple[str, dict[str, str]]:
        if len(self.path) > MOST_PATH:
            raise UsageError("the address is too long")
        parts = urlsplit(self.path)
        return parts.path, fields_of(parts.query)

    def _document(self, path: str, fields: dict[str, str]) -> Document | None:
        library = self.server.library
        position = library.position(fields.get("id", "")) if path == "/document" else None
        if position is None:
            return None
        (document,) = load(library, [position], Originals(library.out, stages_of(library.record)))
        return document

    def _answer(self, status: int, page: str) -> None:
        data = page.encode()
        self.send_response(status)
        for key, value in HEADERS.items():
            self.send_header(key, value)
        if status == 303:
            self.send_header("Location", self.path)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing: requests are not logged."""


def fields_of(text: str) -> dict[str, str]:
    """Parse the fields of a form or an address. Raises UsageError if there are over 40."""
    try:
        return {k: v[-1] for k, v in parse_qs(text, max_num_fields=40).items()}
    except ValueError:
        raise UsageError("the address has too many fields") from None
