"""Events of readers: documents, records that hold none, and bytes that cannot be read.

A reader never drops anything in silence. Whatever it meets becomes one of three events, so that
`read + skipped + corrupt` accounts for the whole file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from curate.formats.columns import Columns
from llmcurate.base.disk.units import counted

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
    replaced: dict[str, int] | None = None
    """How many U+FFFD decoding put in for bytes that are invalid, by encoding; None: none."""
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
    file, with the place of the first of them, so that no input fills memory or records; and by file
    and encoding how many bytes became U+FFFD."""

    def __init__(self) -> None:
        self.count = 0  # of places that are not read
        self._named: list[Place] = []
        self._others: dict[str, Place] = {}
        self._replaced: dict[tuple[str, str], Place] = {}

    @property
    def total(self) -> int:
        """How many places there are, each file with U+FFFD among them."""
        return self.count + len(self._replaced)

    def add(self, file: str, offset: int, what: str, count: int = 1) -> None:
        """Takes up places of a file, `count` of them from an offset on."""
        self.count += count
        if len(self._named) < MOST_NAMED:
            self._named.append(Place(file, offset, what, count))
        elif file in self._others:
            self._others[file].count += count
        else:
            self._others[file] = Place(file, offset, what, count)

    def add_replaced(self, file: str, offset: int, encoding: str, characters: int) -> None:
        """Takes up characters of a file that stand for bytes, from an offset on."""
        place = self._replaced.setdefault((file, encoding), Place(file, offset, "", 0))
        place.count += characters

    def add_all(self, other: Damage) -> None:
        """Takes up the damage of another part of the input."""
        for place in (*other._named, *other._others.values()):
            self.add(place.file, place.offset, place.what, place.count)
        for (file, encoding), place in other._replaced.items():
            self.add_replaced(file, place.offset, encoding, place.count)

    def places(self) -> list[Place]:
        """What was replaced, of each file; the places by name; then of each file those that have no
        entry."""
        replaced = [
            Place(
                file,
                at.offset,
                f"{counted(at.count, 'replacement character')} (U+FFFD) for"
                f" bytes that are invalid in {encoding}",
            )
            for (file, encoding), at in self._replaced.items()
        ]
        return [*replaced, *self._named, *self._others.values()]


class Noted(list[Corrupt]):
    """Damage, noted by a call with offset and reason, and given between documents; the last entry
    counts what would be too many."""

    def __call__(self, offset: int, what: str) -> None:
        if len(self) < MOST_NAMED:
            self.append(Corrupt(offset, what))
        else:
            self[-1].count += 1

    def given(self) -> Iterator[Corrupt]:
        """What was noted since the last call."""
        yield from self
        self.clear()


def too_large(rule: str, size: int, limit: int, offset: int = 0) -> Row:
    """The rejected document that stands for more bytes than are held."""
    reject = (rule, float(size), float(limit), "passed over, not read whole")
    return Row(offset=offset, reject=reject)


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
