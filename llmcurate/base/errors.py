"""Errors that end a command with one line and an exit code (docs/design/contracts.md)."""

from __future__ import annotations

import errno
import re


class LlmcurateError(Exception):
    """An error that the user can act on. Its message is one line and says what to do."""

    exit_code = 1
    trace = ""  # the traceback of the worker that raised the error, for --debug

    # IPython shows this line instead of a traceback.
    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


class UsageError(LlmcurateError):
    """A command, recipe or input is wrong."""

    exit_code = 2


class RunFailed(LlmcurateError):
    """The run cannot continue. Finished work is kept, and the same command resumes the run."""

    exit_code = 1


class UnexpectedError(RunFailed):
    """An exception that no other error class describes. The message says where it was raised."""


class Damaged(RunFailed):
    """A file differs from what was written. The message names the file and the difference."""


class TooMuchRemoved(RunFailed):
    """A deduplication would remove more documents or bytes than `max_removal` allows."""

    share: float = 0.0  # of documents or bytes that would be removed


class LockHeld(LlmcurateError):
    """Another live process is working in the same output folder OUT."""

    exit_code = 75


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or its class if it has no message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def set_error_file(error: OSError, path: object) -> None:
    """Set the file name of an OSError that has an error number but no file name. An error without a
    number, such as pyarrow's, is not changed: it would lose its message."""
    if error.errno is not None and error.filename is None:
        error.filename = str(path)


def may_not_write(error: OSError) -> bool:
    """Return True if a write failed because of permissions or a read-only medium."""
    return error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)


def disk_error(error: BaseException) -> LlmcurateError | None:
    """Return a one-line error for a full disk, an exceeded quota or a too large file, else None."""
    full = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}
    number = getattr(error, "errno", None)
    message = str(error)
    if isinstance(error, LlmcurateError) and message.startswith("disk full"):
        return error
    texts = (
        "No space left on device",
        "File too large",
        "Disk quota exceeded",
        "disk is full",
        "Not enough free space",  # numpy's tofile
        "Could not write all bytes",  # DuckDB
    )
    short = re.match(r"\d+ requested and \d+ written$", message)  # numpy's tofile
    if number in full or short or any(t in message for t in texts):
        where = getattr(error, "filename", None)
        place = f" while writing {where}" if where else ""
        reason = getattr(error, "strerror", None) or message or repr(error)
        return RunFailed(
            f"disk full{place}: free some space and run the same command again"
            f" ({reason.splitlines()[0]})"
        )
    return None
