"""One file, one document: plain text and HTML files of a folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from curate.formats.compression import decompressed_chunks
from curate.formats.events import Corrupt, Event, Row
from curate.formats.inputs import InputFile


def read_page(file: BinaryIO, info: InputFile, limit: int) -> Iterator[Event]:
    """The file as one row; larger than limit bytes (decompressed): rejected, not held."""
    damage: list[Corrupt] = []
    parts: list[bytes] = []
    size = 0
    for chunk in decompressed_chunks(
        file, info.codec, lambda offset, what: damage.append(Corrupt(offset, what))
    ):
        size += len(chunk)
        if size > limit:
            parts = []
            break
        parts.append(bytes(chunk))
    yield from damage
    if size > limit:
        detail = "passed over, not read whole"
        yield Row(reject=("record_too_large", float(size), float(limit), detail))
        return
    body = b"".join(parts)
    if info.format == "html":
        yield Row(payload=body, mime="text/html")
        return
    from curate.extract.encoding import decode

    yield Row(text=decode(body, html=False)[0])
