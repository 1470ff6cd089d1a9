"""A lock that names the process that works in a folder or store. The lock is a file or an object
that all machines see. Its holder writes a new time into it every ten seconds, as a sign of life."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from llmcurate.base.errors import LockHeld
from llmcurate.base.messages import Message

STALE_SECONDS = 300.0  # without sign of life, after which a holder elsewhere counts as dead
LOOK_SECONDS = 5.0  # between two reads of the holder's last sign of life
BEAT_SECONDS = 10.0


@dataclass(frozen=True)
class Holder(Message):
    """The process that holds a lock, or that was the last one to hold it."""

    pid: int
    created: float | None  # start time of the process, in seconds since 1970
    host: str | None  # name of the process's machine; None if nobody holds the lock now
    since: str  # time of acquiring the lock (ISO 8601)
    beat: float  # time of the last sign of life, in seconds since 1970
    number: int = 0  # 1 for the first holder of the lock, 2 for the second

    @classmethod
    def here(cls, number: int = 0) -> Holder:
        since = datetime.now().astimezone().isoformat(timespec="seconds")
        me = os.getpid()
        return cls(me, _created(me), socket.gethostname(), since, time.time(), number)

    @property
    def has_ended(self) -> bool:
        """True if the lock is free to take: the process has released it, has ended, or is this
        process. False if the process is on another machine, where nobody can see if it runs."""
        if self.host is None or self.host != socket.gethostname():
            return self.host is None
        now = _created(self.pid)
        return now is None or abs(now - (self.created or 0)) >= 2 or self.pid == os.getpid()


def acquire(
    what: str,
    read: Callable[[], Holder | None],
    write: Callable[[Holder], bool],
    say: Callable[[str], None],
    stale: float = STALE_SECONDS,
    blind: str = "",
) -> None:
    """Acquire the lock on `what`. `read` returns the last holder. `write` replaces the last holder
    by this process, or returns False if another process was faster.

    If the holder is on another machine, `say` prints a line, and the function waits until the
    holder changes its time in the lock (a sign of life). If `stale` seconds pass without a change,
    the lock is taken. `blind` is advice for storage where a lock that is held on another machine
    cannot be taken: if it is not "", LockHeld with this advice is raised instead of waiting.

    Raises:
        LockHeld: another process holds the lock.
    """
    began, watched = time.monotonic(), None
    while True:
        holder, waited = read(), time.monotonic() - began
        silent = watched is not None and holder == watched and waited >= stale
        if holder is None or holder.has_ended or silent:
            if write(Holder.here(holder.number + 1 if holder else 1)):
                return
            continue
        owner = f"{what} is in use by process {holder.pid} on {holder.host}, started {holder.since}"
        if holder.host == socket.gethostname() or watched not in (None, holder):
            raise LockHeld(f"{owner}; wait for it, or stop it and run again")
        if blind:
            raise LockHeld(f"{owner}; {blind}")
        if watched is None:
            say(f"{owner}; watching it for a sign of life, {stale:g} seconds at most")
        watched = holder
        time.sleep(max(0.0, min(LOOK_SECONDS, stale - waited)))


def _created(pid: int) -> float | None:
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return None
