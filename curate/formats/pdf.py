"""PDF files: the text in them, page by page, in the order in which the file draws the text.

Text in images is not recognised. A file without text is rejected, so that scans are counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

from curate.formats.events import Corrupt, Event, Portion, Row
from curate.formats.kinds import reader
from curate.formats.whole import content

COLUMNS = {"pdf.title": "string", "pdf.pages": "int64"}
MOST_BAD = 20  # after this many unreadable pages, the others are skipped
_DATE = re.compile(
    r"D:(\d{4})(\d\d)?(\d\d)?(\d\d)?(\d\d)?(\d\d)?(?:([+-])(\d\d)'?(\d\d)?'?|Z.*)?", re.ASCII
)
# pdfium puts U+FFFE or U+0002 where a hyphen splits a word at a line's end.
_PARTED = re.compile(r"[\ufffe\x02]\n?")


@reader("pdf", endings=(".pdf",), begins=r"%PDF-", package="pypdfium2", extra="pdf")
def read(portion: Portion) -> Iterator[Event]:
    """Yield the PDF file as one row."""
    body, events = content(portion)
    yield from events
    if body is None:
        return
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(body)
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            detail = "it asks for a password"
            yield Row(reject=("undecodable_body", None, None, detail))
        else:
            yield Corrupt(0, f"PDF: {error}")
        return
    try:
        row = Row(extra={"pdf.pages": len(document)})
        yield from _fill(row, document, portion)
    finally:
        document.close()


def _fill(row: Row, document: Any, portion: Portion) -> Iterator[Event]:
    import pypdfium2

    pages: list[str] = []
    size = bad = 0
    for number in range(len(document)):
        try:
            page = document[number]
            text = page.get_textpage().get_text_bounded()
            page.close()
        except pypdfium2.PdfiumError as error:
            bad += 1
            yield Corrupt(0, f"PDF: page {number + 1}: {error}")
            if bad == MOST_BAD:
                yield Corrupt(0, f"PDF: the pages after page {number + 1} are not read")
                break
            continue
        size += len(text)
        if size > portion.max_payload:
            row.reject = ("payload_too_large", float(size), float(portion.max_payload), None)
            yield row
            return
        pages.append(_PARTED.sub("", text.replace("\r\n", "\n").replace("\r", "\n")).strip())
    stated = document.get_metadata_dict()
    if title := " ".join(stated.get("Title", "").split()):
        assert row.extra is not None
        row.extra["pdf.title"] = title
    row.date = pdf_date(stated.get("ModDate") or stated.get("CreationDate") or "")
    text = "\n\n".join(filter(None, pages))
    if text:
        row.text = text
    else:
        row.reject = ("no_text", None, None, "the PDF has no text, only images")
    yield row


def pdf_date(value: str) -> datetime | None:
    """Return a date in the format of PDF (ISO 32000, 7.9.4), converted to UTC; else None."""
    match = _DATE.match(value)
    if match is None:
        return None
    year, month, day, hour, minute, second, sign, hours, minutes = match.groups()
    try:
        when = datetime(
            int(year), int(month or 1), int(day or 1), int(hour or 0), int(minute or 0),
            min(int(second or 0), 59), tzinfo=timezone.utc,
        )  # fmt: skip
        shift = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
        return when - shift if sign == "+" else when + shift
    except (ValueError, OverflowError):
        return None
