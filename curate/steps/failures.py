"""Errors in a step, as one line that names the step, the file and the document."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmcurate.base import start
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import LlmcurateError, UnexpectedError, disk_error
from llmcurate.base.pages.html import plain

if TYPE_CHECKING:
    from curate.documents.documents import Documents

MOST_SHOWN = 200  # characters of an exception, because it may quote a document


def named(error: BaseException) -> str:
    """Return the type and message of an exception in one line."""
    reason = " ".join(plain(str(error), MOST_SHOWN).split())
    return f"{type(error).__name__}: {reason}" if reason else type(error).__name__


def error_with_place(error: BaseException) -> str:
    """Return an exception in one line, with the last file and line in its traceback that belong to
    this package or a plug-in."""
    # Skip the first frame, which caught the exception.
    place, trace = "", error.__traceback__ and error.__traceback__.tb_next
    while trace is not None:
        package = str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0]
        if package in start.OURS | start.plug_ins:
            place = (
                f" at {relative_path(Path(trace.tb_frame.f_code.co_filename))}:{trace.tb_lineno}"
            )
        trace = trace.tb_next
    return named(error) + place


def relative_path(path: Path) -> str:
    """Return a path for messages: relative if it lies in the current folder, else unchanged."""
    folder = Path.cwd()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _foreseen(error: Exception) -> bool:
    # Looked up without an import, which would load numba.
    busy = getattr(sys.modules.get("llmcurate.base.kernels.locks"), "Busy", ())
    known = isinstance(error, (LlmcurateError, MemoryError, busy))
    return (known and not isinstance(error, UnexpectedError)) or disk_error(error) is not None


@contextmanager
def failing(label: str, where: Callable[[], str] = str) -> Iterator[None]:
    """Turn unexpected exceptions into UnexpectedError. where(): returns what the step worked on."""
    try:
        yield
    except Exception as error:
        if _foreseen(error):
            raise
        message = str(error) if isinstance(error, LlmcurateError) else error_with_place(error)
        place = where()
        failed = UnexpectedError(f"step {label} failed{place and f' on {place}'}: {message}")
        failed.trace = getattr(error, "trace", "")
        raise failed from error


def on_batch(label: str, call: Callable[[Documents], Any], docs: Documents) -> Any:
    """Return the result of `call` for a batch. Raise UnexpectedError if the call fails or does not
    return one row per document. The message names a document on which the call
    fails even if no other document is passed, if there is one."""

    def answer(docs: Documents) -> Any:
        answered = call(docs)
        rows = getattr(getattr(answered, "table", answered), "num_rows", None)
        if rows != len(docs):
            found = type(answered).__name__ if rows is None else counted(rows, "row")
            raise UnexpectedError(
                f"step {label} returned {found} for {counted(len(docs), 'document')}: return one"
                " row per document, and use `drop` to reject documents"
            )
        return answered

    with failing(label, lambda: _culprit(answer, docs)):
        return answer(docs)


def _culprit(call: Callable[[Documents], Any], docs: Documents) -> str:
    def fails(first: int, end: int) -> bool:
        try:
            part = docs.table.slice(first, end - first).combine_chunks()
            call(type(docs)(part).within(docs.step))
        except Exception:
            return True
        return False

    first, end = 0, len(docs)
    while end - first > 1:
        middle = (first + end) // 2
        if fails(first, middle):
            end = middle
        elif fails(middle, end):
            first = middle
        else:
            break
    # Found by halving: the first document on which the call fails, or the smallest such batch.
    if not len(docs):
        return "a batch without documents"
    ids, sources = (docs.table[name][first].as_py() or "" for name in ("id", "source"))
    of = f" of {plain(sources)}" if Path(sources).name not in ids else ""
    return f"{'document' if end - first == 1 else 'the batch that begins with'} {plain(ids)}{of}"
