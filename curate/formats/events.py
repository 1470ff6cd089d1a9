"""Events of readers: documents, records that hold none, and bytes that cannot be read.

A reader never drops anything in silence. Whatever it meets becomes one of three events, so that
`read + skipped + corrupt` accounts for the whole file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from curate.formats.columns import Columns

Reject = tuple[str, float | None, float | None, str | None]


@dataclass(slots=True)
class Row:
    """One document as a reader found it, before extraction.

    Either `text` (already text) or `payload` (undecoded body, after HTTP transfer and content
    decoding) is set; both are None only for a row that is rejected because of its size.
    """

    id: str | None = None
    """The document's own id (WARC-Record-ID without angle brackets), or None."""
    url: str | None = None
    date: datetime | None = None
    """Timezone-aware, UTC."""
    text: str | None = None
    payload: bytes | None = None
    mime: str | None = None
    """Lower case, without parameters."""
    charset: str | None = None
    """The declared charset, lower case, or None."""
    opt_out_headers: str | None = None
    """HTTP headers that speak to robots, `name: value` a line; None where there is none."""
    lang: str | None = None
    """The language that the input itself declares, or None."""
    extra: dict[str, Any] | None = None
    """Input columns that no field above takes (jsonl); None for archives."""
    bad_date: bool = False
    """Whether a date is stated that cannot be read."""
    offset: int = 0
    """Where the record starts in the file, in bytes; for compressed archives the start of the
    member that the record begins in."""
    reject: Reject | None = None
    """(rule, value, threshold, detail) when the row was read but must be rejected."""


@dataclass(slots=True)
class Skipped:
    """A record that holds no document: `request`, `revisit`, `response:image/png`, ..."""

    kind: str
    offset: int


@dataclass(slots=True)
class Corrupt:
    """Bytes at `offset` (in the file as stored) that cannot be read as what they should be."""

    offset: int
    what: str


Event = Row | Skipped | Corrupt


@dataclass(frozen=True)
class Portion:
    """What a reader is to read: a file, or a slice of it."""

    path: str
    """As `open_input` opens it."""
    rel: str
    """The file's name below the input."""
    format: str = ""
    codec: str = "plain"
    start: int = 0
    end: int | None = None
    """[start, end) is a slice that the reader's `slices` cut; None: up to the end of the file."""
    kinds: dict[str, str] = field(default_factory=dict)
    """The columns of the run beside those that every document has: name -> kind."""
    columns: Columns = field(default_factory=Columns)
    """The names that columns of the input have."""
    max_record: int = 64 << 20
    """A record of more bytes is rejected without being held."""
    max_payload: int = 64 << 20
    """A document of more bytes after decompression is rejected."""
    rows: int = 1000
    """Rows of a table, where the reader gives tables."""
