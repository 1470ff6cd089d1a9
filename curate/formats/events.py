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
    misfits: tuple[str, ...] = ()
    """Columns whose type their value does not fit: it is in `extra`."""
    bad_date: bool = False
    """Whether a date is stated that cannot be read."""
    digest: str | None = None
    """What differs from the digests that the record states; "" where nothing does, None where
    none was compared."""
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
    """Bytes at `offset` (in the file as stored) that cannot be read as what they should be; the
    first of `count` such places."""

    offset: int
    what: str
    count: int = 1


@dataclass(slots=True)
class LeftOut:
    """Values of a carried column that are not read, since they would take too much memory."""

    column: str
    values: int


Event = Row | Skipped | Corrupt
MOST_NAMED = 100


@dataclass
class Place:
    """Damage at an offset of a file, and `count` places in all from there on."""

    file: str
    offset: int
    what: str
    count: int = 1


class Damage:
    """What of an input cannot be read: the first MOST_NAMED places by name, the others counted by
    file, with the place of the first of them, so that no input fills memory or records."""

    def __init__(self) -> None:
        self.count = 0
        self._named: list[Place] = []
        self._others: dict[str, Place] = {}

    def add(self, file: str, offset: int, what: str, count: int = 1) -> None:
        """Takes up places of a file, `count` of them from an offset on."""
        self.count += count
        if len(self._named) < MOST_NAMED:
            self._named.append(Place(file, offset, what, count))
        elif file in self._others:
            self._others[file].count += count
        else:
            self._others[file] = Place(file, offset, what, count)

    def add_all(self, other: Damage) -> None:
        """Takes up the damage of another part of the input."""
        for place in other.places():
            self.add(place.file, place.offset, place.what, place.count)

    def places(self) -> list[Place]:
        """The places by name, then of each file those that have no entry."""
        return [*self._named, *self._others.values()]


def note(damage: list[Corrupt], offset: int, what: str) -> None:
    """Adds to a list that is read now and then; its last entry counts what would be too many."""
    if len(damage) < MOST_NAMED:
        damage.append(Corrupt(offset, what))
    else:
        damage[-1].count += 1


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
    bytes: int = 8 << 20
    """Bytes of a table, above which it gets no further rows."""
    pages: int = 512 << 20
    """Bytes that the pages of a columnar file may take at once when they are unpacked."""
    digests: bool = False
    """Whether contents are compared with the digests that records state."""
    quote: str = "auto"
    """Whether tables of text have quoted fields: as `ReadSettings.quote`."""
