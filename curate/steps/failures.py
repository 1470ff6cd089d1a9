"""Errors inside a step: a line that names the step, the source and the document."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmcurate.base import start
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import LlmcurateError, Unforeseen, disk_error
from llmcurate.base.pages.html import plain

if TYPE_CHECKING:
    from curate.documents.documents import Documents

MOST_SHOWN = 200  # characters of an exception, which may quote a document


def named(error: BaseException) -> str:
    """An exception in a line: its type and its message."""
    reason = " ".join(plain(str(error), MOST_SHOWN).split())
    return f"{type(error).__name__}: {reason}" if reason else type(error).__name__


def described(error: BaseException) -> str:
    """An exception in a line, with the last line of this package or of a plug-in."""
    place, trace = "", error.__traceback__ and error.__traceback__.tb_next  # behind who caught it
    while trace is not None:
        package = str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0]
        if package in start.OURS | start.plug_ins:
            place = f" at {shown(Path(trace.tb_frame.f_code.co_filename))}:{trace.tb_lineno}"
        trace = trace.tb_next
    return named(error) + place


def shown(path: Path) -> str:
    """A path as from here where it lies below."""
    folder = Path.cwd()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _foreseen(error: Exception) -> bool:
    """True if the message of an error is for the user as it is."""
    busy = getattr(
        sys.modules.get("llmcurate.base.kernels.locks"), "Busy", ()
    )  # it would load numba
    known = isinstance(error, (LlmcurateError, MemoryError, busy))
    return (known and not isinstance(error, Unforeseen)) or disk_error(error) is not None


@contextmanager
def failing(label: str, where: Callable[[], str] = str) -> Iterator[None]:
    """Turns whatever a step raises into Unforeseen. where: what the step worked on."""
    try:
        yield
    except Exception as error:
        if _foreseen(error):
            raise
        message = str(error) if isinstance(error, LlmcurateError) else described(error)
        place = where()
        failed = Unforeseen(f"step {label} failed{place and f' on {place}'}: {message}")
        failed.trace = getattr(error, "trace", "")
        raise failed from error


def on_batch(label: str, call: Callable[[Documents], Any], docs: Documents) -> Any:
    """The answer of a step to a batch, with a row for each document. Unforeseen names the first
    document on which the step fails alone."""

    def answer(docs: Documents) -> Any:
        answered = call(docs)
        rows = getattr(getattr(answered, "table", answered), "num_rows", None)
        if rows != len(docs):
            what = type(answered).__name__ if rows is None else counted(rows, "row")
            raise Unforeseen(
                f"step {label} returned {what} for {counted(len(docs), 'document')}: it has to"
                " return a row for each, and to mark by `drop` those that go"
            )
        return answered

    with failing(label, lambda: _culprit(answer, docs)):
        return answer(docs)


def _culprit(call: Callable[[Documents], Any], docs: Documents) -> str:
    """The document, or the smallest batch by halves, on which a call fails."""

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
    if not len(docs):
        return "a batch without documents"
    ids, sources = (docs.table[name][first].as_py() or "" for name in ("id", "source"))
    of = f" of {plain(sources)}" if Path(sources).name not in ids else ""
    return f"{'document' if end - first == 1 else 'the batch that begins with'} {plain(ids)}{of}"
