"""Errors that end a command with one line and an exit code (docs/design/contracts.md)."""

from __future__ import annotations

import errno
import re


class LlmcurateError(Exception):
    """Something the user can act on; the message is one line and says what to do."""

    exit_code = 1
    trace = ""  # of the worker that raised it, for --debug

    def _render_traceback_(self) -> list[str]:
        """What a notebook (IPython) shows of it, in place of a traceback: the line alone."""
        return [f"{type(self).__name__}: {self}"]


class UsageError(LlmcurateError):
    """The command, recipe or input was used wrongly."""

    exit_code = 2


class RunFailed(LlmcurateError):
    """The run cannot go on; what is committed stays, and running again resumes."""

    exit_code = 1


class Unforeseen(RunFailed):
    """An exception that no rule foresaw; the message says where it was raised."""


class Damaged(RunFailed):
    """A file is not what was written; the message says which and how. A run makes it anew."""


class TooMuchGone(RunFailed):
    """A dedup would remove more than its `max_removal`; share: of documents, or of bytes."""

    share: float = 0.0


class LockHeld(LlmcurateError):
    """Another live process works in the same OUT."""

    exit_code = 75


def name_file(error: OSError, path: object) -> None:
    """Says which file an error is about, where nothing else does and the error can say it.

    One with a message alone (pyarrow's, numpy's) would lose the message.
    """
    if error.errno is not None and error.filename is None:
        error.filename = str(path)


def may_not_write(error: OSError) -> bool:
    """Return whether the system refuses because a file or medium is for reading only."""
    return error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)


def disk_error(error: BaseException) -> LlmcurateError | None:
    """Turns 'no space', 'file too large' and 'quota' errors into one line; None for others."""
    full = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}
    number = getattr(error, "errno", None)
    message = str(error)
    texts = (
        "No space left on device",
        "File too large",
        "Disk quota exceeded",
        "disk is full",
        "Not enough free space",  # numpy's tofile
        "Could not write all bytes",  # DuckDB
    )
    short = re.match(r"\d+ requested and \d+ written$", message)  # of numpy's tofile
    if number in full or short or any(t in message for t in texts):
        where = getattr(error, "filename", None)
        place = f" while writing {where}" if where else ""
        reason = getattr(error, "strerror", None) or message or repr(error)
        return RunFailed(
            f"disk full{place}: free some space and run the same command again, it resumes"
            f" ({reason.splitlines()[0]})"
        )
    return None
