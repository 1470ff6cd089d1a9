"""Requests to `browse` that nobody's browser makes: a page or a refusal, and the server goes on."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given

from curate.inspect.browse.library import library
from curate.inspect.browse.server import HEADERS, Server
from tests.curate.conftest import Bench
from tests.curate.inspect.browse.served import HOSTILE, STEPS, get, rows
from tests.fuzz.mutations import FUZZ, ODD, SEEDS, contents, damaged, outcome

FIELDS = ["words", "status", "rule", "lang", "column", "cluster", "least", "most", "page", "id"]
FIELDS += ["domain", "source", "label", "order", "seed", "at"]
VALUES = [
    "", "0", "-1", "1e400", "nan", "d7", "d8", "rejected", "kept", "c4", "random", "highest",
    "document_length.words", "' OR 1=1 --", "%", "\\", "../../victim", HOSTILE, "\x00",
    *map(str, ODD), "x" * 3000,
]  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    bench = Bench(tmp_path_factory.mktemp("browse"))
    bench.run(STEPS, bench.jsonl("in.jsonl", rows()))
    with library(bench.folder / "out") as books, Server(books, 0) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def _raw(server: Server, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


@FUZZ
@given(seed=SEEDS)
def test_any_fields_give_a_page_or_a_refusal(server: Server, seed: int) -> None:
    draw = random.Random(seed)
    fields = draw.sample(FIELDS, draw.choice((1, 2, 4)))
    query = "&".join(
        f"{name}={quote(draw.choice(VALUES), errors='surrogatepass')}" for name in fields
    )
    path = draw.choice(("/", "/", "/document", "/report", "/../", "//")) + "?" + query
    status, page, _ = get(server, path, host=f"127.0.0.1:{server.server_port}")
    assert status in (200, 400, 404, 414), (path, page[-400:])
    assert page.count("<script") <= 1 and "http://evil.test" not in page.replace(
        "&lt;img src=http://evil.test", ""
    )


@FUZZ
@given(seed=SEEDS)
def test_any_bytes_get_an_answer_and_the_server_continues(server: Server, seed: int) -> None:
    out = Path(server.library.out)
    before = contents(out) if seed % 8 == 0 else None
    own = f"127.0.0.1:{server.server_port}"
    whole = f"GET /document?id=d8 HTTP/1.1\r\nHost: {own}\r\n\r\n"
    if seed % 2:
        whole = (
            f"POST /document?id=d8 HTTP/1.1\r\nHost: {own}\r\nOrigin: http://{own}\r\n"
            "Content-Length: 24\r\n\r\nlabel=good&token=12345678"
        )
    answer = outcome(lambda: _raw(server, damaged(whole.encode(), seed)))
    assert isinstance(answer, (bytes, OSError))
    if isinstance(answer, bytes) and b" 200 " in answer[:20]:
        assert HEADERS["Content-Security-Policy"].encode() in answer
    assert get(server, "/")[0] == 200
    assert before is None or contents(out) == before
