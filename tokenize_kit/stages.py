"""What training has done and how long it took, for whoever watches; no file depends on it."""

from __future__ import annotations

import time
from collections.abc import Callable

# (what was done, its seconds), or (how far it is, None).
Report = Callable[[str, float | None], None]
_EVERY = 10.0  # seconds between two lines on how far it is


class Stages:
    def __init__(self, report: Report | None = None) -> None:
        self._report = report
        self._began = self._said = time.monotonic()

    def going_on(self, documents: int, size: int) -> None:
        """So much has been read so far."""
        if self._report and (now := time.monotonic()) - self._said >= _EVERY:
            self._said = now
            self._report(f"read {size / 1e6:,.1f} MB in {documents:,} documents so far", None)

    def done(self, what: str) -> None:
        now = time.monotonic()
        if self._report:
            self._report(what, now - self._began)
        self._began = self._said = now
