"""Files that are one document each: HTML pages and plain text."""

from __future__ import annotations

from collections.abc import Iterator

from curate.formats.columns import Columns
from curate.formats.compression import decompressed_chunks, open_input
from curate.formats.events import Corrupt, Event, NewDamage, Portion, Row, Skipped, too_large
from curate.formats.kinds import reader
from curate.formats.mime import is_document, sniff_mime
from curate.text.decoding import decode, utf_16_in, utf_32_in

OUR_PAGE = b'<meta name=generator content="llmcurate">'  # in base/pages/templates/page.html


def content(portion: Portion) -> tuple[bytes | None, list[Event]]:
    """Return the unpacked content of a file and events for its damage. For a file of more than
    `max_payload` bytes, return None and events that include a rejected row."""
    damage = NewDamage()
    parts: list[bytes] = []
    size = 0
    with open_input(portion.path) as file:
        for chunk in decompressed_chunks(file, portion.codec, damage):
            size += len(chunk)
            if size > portion.max_payload:
                return None, [*damage, too_large("record_too_large", size, portion.max_payload)]
            parts.append(bytes(chunk))
    return b"".join(parts), [*damage]


@reader(
    "html",
    endings=(".html", ".htm", ".xhtml"),
    begins=r"(?i)\s*<(?:!doctype html|html)",
    pages=True,
)
@reader("text", endings=(".txt", ".text", ".md", ".rst"))
def read(portion: Portion) -> Iterator[Event]:
    """Yield the HTML or text file as one row."""
    body, events = content(portion)
    yield from events
    if body is None:
        return
    wide = utf_32_in(body) or utf_16_in(body)
    if not wide and (nuls := len(body) - len(bare := body.strip(b"\0"))):
        yield Corrupt(0, f"{nuls} NUL bytes around the text")
        if not bare:
            return
        body = bare
    mime = None if wide else sniff_mime(body)
    if mime is not None and not is_document(mime):
        yield Skipped(f"{portion.format}:{mime}", 0)
        return
    if portion.format == "html":
        xml = ".xhtml" in portion.rel.lower()
        yield Row(payload=body, mime="application/xhtml+xml" if xml else "text/html")
        return
    decoded = decode(body, html=False)
    yield Row(text=decoded.text, replaced=decoded.losses)


def why_no_documents(path: str, columns: Columns) -> str | None:
    """Return the reason to skip an HTML page of llmcurate's reports; None for other files."""
    with open_input(path) as file:
        return "a page of a report" if OUR_PAGE in file.read(200) else None
