"""A server for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.curate.fetch.web import Web, serving


@pytest.fixture(autouse=True)
def _not_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLMCURATE_OFFLINE", raising=False)


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    for name in ("LLMCURATE_OFFLINE", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving() as server:
        yield server
