"""Files that are one document: HTML pages, and plain text."""

from __future__ import annotations

from collections.abc import Iterator

from curate.formats.columns import Columns
from curate.formats.compression import decompressed_chunks, open_input
from curate.formats.events import Corrupt, Event, Portion, Row
from curate.formats.kinds import reader

OUR_PAGE = b'<meta name=generator content="llmcurate">'  # in base/pages/templates/page.html


def content(portion: Portion) -> tuple[bytes | None, list[Event]]:
    """(the unpacked file, its damage); without the first where it has more than `max_payload`
    bytes: then the second ends with a row that is rejected."""
    events: list[Event] = []
    parts: list[bytes] = []
    size = 0
    with open_input(portion.path) as file:
        for chunk in decompressed_chunks(
            file, portion.codec, lambda offset, what: events.append(Corrupt(offset, what))
        ):
            size += len(chunk)
            if size > portion.max_payload:
                detail = "passed over, not read whole"
                limit = float(portion.max_payload)
                events.append(Row(reject=("record_too_large", float(size), limit, detail)))
                return None, events
            parts.append(bytes(chunk))
    return b"".join(parts), events


@reader(
    "html",
    endings=(".html", ".htm", ".xhtml"),
    begins=r"(?i)\s*<(?:!doctype html|html)",
    pages=True,
)
@reader("text", endings=(".txt", ".text", ".md", ".rst"))
def read(portion: Portion) -> Iterator[Event]:
    """The file as one row."""
    body, events = content(portion)
    yield from events
    if body is None:
        return
    if portion.format == "html":
        yield Row(payload=body, mime="text/html")
        return
    from curate.text.buffers import decode

    yield Row(text=decode(body, html=False)[0])


def why_no_documents(path: str, columns: Columns) -> str | None:
    """Reports are no documents."""
    with open_input(path) as file:
        return "a page of a report" if OUR_PAGE in file.read(200) else None
