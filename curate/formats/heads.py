"""Heads of WARC (ISO 28500, 0.17 to 1.1) and ARC records (Internet Archive, versions 1 and 2)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from curate.formats.events import Corrupt

_WARC = rb"(?i:WARC)/\d{1,2}\.\d{1,3}[ \t]*\r*\n"
_ADDRESS = rb"(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f:]{3,45}|-|0)"
_ARC = (
    rb"(?:filedesc:[^\r\n]{0,8192}|[A-Za-z][A-Za-z0-9+.\-]{1,30}:[^\r\n]{1,8192}? "
    + _ADDRESS
    + rb" (?:\d{8,20}|null|-) \S{1,200}(?: \S{1,2048}){1,6})[ ]*\r*\n"
)
WARC_START = re.compile(_WARC)
ARC_START = re.compile(_ARC)
HEAD_BEGINS = re.compile(_WARC + rb"[A-Za-z][A-Za-z0-9-]*:")
_FIELD = re.compile(rb"\n([^:\r\n]+):([^\r\n]*)")
_FOLD = re.compile(rb"\r{0,3}\n[ \t]+(?=[^ \t\r\n])")
NEXT_RECORD = {
    "warc": re.compile(rb"[\n\0\xbf](?=" + _WARC + rb"[A-Za-z][A-Za-z0-9-]*:)"),
    "arc": re.compile(rb"[\n\0\xbf](?=" + _ARC + rb")"),
}
"""The byte before a record: a line end, a NUL, or the last byte of a byte order mark."""
BLANK_LINE = re.compile(rb"\n\r*\n")
END_OF_RECORD = re.compile(rb"\r?\n(?:\r?\n)?\Z")
LONGEST_START = 16384
"""The most bytes that are searched for a line that begins a record."""


@dataclass(slots=True)
class Record:
    """One record: its head, and its content unless the content is above the limits."""

    format: str
    """`warc` or `arc`."""
    type: str
    """Lower case; `filedesc` or `response` in ARC files."""
    fields: dict[bytes, bytes]
    """Values by lower-case name, the first if repeated. ARC fields have WARC names."""
    offset: int
    content: bytes | None = None
    """None if the content is over the limit; `beginning` then holds its first 64 KiB."""
    beginning: bytes = b""
    size: int = 0
    """Bytes of content found."""
    declared: int | None = None
    """Bytes of content that the record says it has."""
    damage: str | None = None
    """Why content is missing or cannot be trusted."""
    missing: int = 0
    """Bytes of content that are missing because the file or its compressed part ends early."""
    problems: list[Corrupt] = field(default_factory=list)

    def get(self, name: bytes) -> str | None:
        """Return a field of the head as text; None if the field is missing or empty."""
        value = self.fields.get(name)
        return value.decode("utf-8", "replace") if value else None


def begins_record(data: bytes) -> bool:
    """Return True if `data` (the beginning of a member) begins with a WARC or ARC record."""
    if data[:5].upper() == b"WARC/":
        return WARC_START.match(data) is not None
    return ARC_START.match(data[:LONGEST_START]) is not None


def warc_head(block: bytes, offset: int) -> Record:
    """Return the record for a WARC head, which goes from the version line to the blank line."""
    block = _FOLD.sub(b" ", block)
    # Reversed, so that the first of several fields with the same name is kept.
    pairs = reversed(_FIELD.findall(block))
    fields = {name.strip().lower(): value.strip() for name, value in pairs}
    kind = fields.get(b"warc-type", b"").decode("utf-8", "replace").lower()
    length = _length(fields.get(b"content-length", b""))
    return Record("warc", kind, fields, offset, declared=length)


def arc_head(line: bytes, offset: int) -> Record:
    """Return the record for the head line of an ARC record: URL IP date type length (version 1), or
    URL IP date type code checksum location offset file length (version 2). URLs may hold spaces."""
    words = line.strip().split(b" ")
    if line.startswith(b"filedesc:"):
        return Record("arc", "filedesc", {}, offset, declared=_length(words[-1]))
    count = 9 if len(words) >= 10 and _is_version_2(words) else 4
    url = b" ".join(words[:-count])
    date, mime = words[-count + 1], words[-count + 2]
    fields = {
        b"warc-target-uri": url,
        b"warc-date": date,
        b"content-type": b"" if mime in (b"-", b"no-type", b"unk") else mime,
    }
    return Record("arc", "response", fields, offset, declared=_length(words[-1]))


def _is_version_2(words: list[bytes]) -> bool:
    return re.fullmatch(rb"\d{3}|-", words[-6]) is not None and (
        re.fullmatch(rb"\d{8,20}|null|-", words[-8]) is not None
    )


def _length(value: bytes) -> int | None:
    return int(value) if value.isdigit() and len(value) < 19 else None
