"""A run served by `llmcurate browse`, and requests to it."""

from __future__ import annotations

import http.client
from typing import Any

from curate.inspect.browse.server import Server

HOSTILE = (
    "</style></pre></details><script>window.hacked=1;alert(1)</script>"
    "<img src=http://evil.test/x onerror=window.hacked=1> \u202egnp.exe\u202c \x01"
)

LINE = "The river runs past the old mill and nobody works there any more."

STEPS = [
    {"document_length": {"min": 20}},
    "cut",
    {"c4": {"min_sentences": 2}},
    {"dedup_exact": {"key": "url"}},
    {"pii": {}},
]


def rows() -> list[dict[str, Any]]:
    """Documents 0 to 69, number 7 hostile, two of one URL, one with an address, short ones."""
    pages: list[dict[str, Any]] = []
    for i in range(70):
        text = f"{LINE}\nIt is page {i} of a book that is long.\nmenu {i}\n{LINE} Here it ends."
        if i == 7:
            text = f"{LINE}\n{HOSTILE} is what somebody wrote here.\n{LINE}\n{LINE}"
        if i == 8:
            text = f"{LINE}\n{LINE}\nWrite to someone@example.org if you want to know more of it."
        if i % 10 == 9:
            text = f"Short {i}."
        url = "http://a.test/same" if i in (20, 21) else f"http://a.test/{i}"
        lang, title = "en" if i % 2 else "de", f"The page of {i}"
        pages.append({"id": f"d{i}", "text": text, "url": url, "lang": lang, "title": title})
    pages[7] |= {
        "title": f"{'z' * 300}{HOSTILE}",
        "id": f"d7{HOSTILE}",
        "url": f"javascript:alert(1)//{HOSTILE}",
    }
    return pages


def get(server: Server, path: str, method: str = "GET", host: str | None = None) -> Any:
    """(status, page, headers)."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{server.server_port}")
    connection.endheaders()
    answer = connection.getresponse()
    page = answer.read().decode()
    connection.close()
    return answer.status, page, dict(answer.getheaders())
