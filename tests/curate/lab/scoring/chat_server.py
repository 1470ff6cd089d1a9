"""A server of chat completions that answers, fails and lies as planned."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


def completion(answer: str | None, finish: str | None = "stop") -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": answer}}
    usage = {"prompt_tokens": 100, "completion_tokens": 7}
    return json.dumps(
        {"choices": [choice | {"finish_reason": finish}], "usage": usage}, ensure_ascii=False
    ).encode()


@dataclass
class Chat:
    """What the server does. plan: what happens to the first requests: a status, (status, seconds of
    Retry-After), (status, body), a body, or one of `drop`, `stall`, `cut`, `chunked`. Later ones
    get `answer(message)`. asked: (Authorization or None, message, body) of each request."""

    url: str
    answer: Callable[[str], str] = lambda message: "Score: 3"
    plan: list[Any] = field(default_factory=list)
    asked: list[tuple[str | None, str, dict[str, Any]]] = field(default_factory=list)
    seconds: float = 0.0
    location: str = ""
    connections: int = 0


@contextmanager
def serving(certificate: tuple[Path, Path] | None = None) -> Iterator[Chat]:
    """A server on a port of its own, in threads of this process. certificate: its files with
    certificate and key, for https."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            chat.connections += 1
            super().setup()

        def log_message(self, *_: object) -> None:
            pass

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            message = body["messages"][0]["content"]
            with lock:
                chat.asked.append((self.headers.get("Authorization"), message, body))
                step = chat.plan.pop(0) if chat.plan else completion(chat.answer(message))
            time.sleep(chat.seconds)
            good = completion(chat.answer(message))
            if step == "drop":
                self.close_connection = True
                self.connection.close()
            elif step == "stall":
                time.sleep(0.5)
                self.send(200, good)
            elif step == "cut":
                self.send(200, good[:-20], {"Content-Length": str(len(good))})
                self.close_connection = True
            elif step == "chunked":
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(good), good))
            elif isinstance(step, bytes):
                self.send(200, step)
            elif isinstance(step, int):
                self.send(step, b"{}", {"Location": chat.location} if chat.location else {})
            elif isinstance(step[1], bytes):
                self.send(*step)
            else:
                self.send(step[0], b"{}", {"Retry-After": str(step[1])})

        def send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | (headers or {})).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            pass  # a client that went away

    server = Server(("127.0.0.1", 0), Handler)
    chat = Chat(f"http://127.0.0.1:{server.server_port}/v1")
    if certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        chat.url = chat.url.replace("http:", "https:")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield chat
    finally:
        server.shutdown()
        server.server_close()
