"""A fake network that serves one published file."""

from __future__ import annotations

import pytest

from curate.fetch import download
from curate.fetch.sources import Answer, Refused


class OneFileWeb:
    """A stand-in for the network: every URL gives one content, or none; asked: those that were."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, content: bytes | None) -> None:
        self.content: bytes | None = content
        self.asked: list[str] = []
        monkeypatch.delenv("LLMCURATE_OFFLINE", raising=False)
        monkeypatch.setattr(download, "Http", lambda *_: self)

    def open(self, url: str, offset: int, validator: str | None) -> Answer:
        self.asked.append(url)
        if self.content is None:
            raise Refused("no route")
        unread = [self.content]
        return Answer(
            0, len(self.content), None, lambda size: unread.pop() if unread else b"", lambda: None
        )
