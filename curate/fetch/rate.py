"""How fast bytes may come, all connections together."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable

from curate.errors import UsageError

_RATE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kKMGT]?)(i?)B?(?:/s)?\s*", re.ASCII)
_POWER = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_rate(text: str) -> float:
    """Bytes a second of `5MB/s`, `800kB`, `1.5MiB/s`. UsageError for anything else, and for 0."""
    found = _RATE.fullmatch(text)
    value = 0.0
    if found:
        number, unit, binary = found.groups()
        value = float(number) * (1024 if binary else 1000) ** _POWER[unit]
    if value <= 0:
        raise UsageError(f"--rate {text}: give bytes a second, such as 5MB/s or 500kB/s")
    return value


class Rate:
    """A limit that threads share: `take(n)` returns when n more bytes may have come.

    rate: bytes a second, None: no limit. `wait(seconds)` sleeps; tests have a clock of their own.
    """

    def __init__(
        self,
        rate: float | None,
        wait: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rate = rate
        self._wait, self._clock = wait, clock
        self._lock = threading.Lock()
        self._paid = clock()  # up to then the limit is used up

    @property
    def block(self) -> int:
        """Bytes to read at once: a quarter of a second's, so that a slow limit flows evenly."""
        return 1 << 20 if self.rate is None else max(1, min(1 << 20, int(self.rate / 4)))

    def take(self, size: int) -> None:
        """Waits until size more bytes are within the limit."""
        if self.rate is None:
            return
        with self._lock:
            now = self._clock()
            self._paid = max(self._paid, now) + size / self.rate
            ahead = self._paid - now
        if ahead > 0:
            self._wait(ahead)
