"""Events of readers: documents, records without a document, and bytes that cannot be read.

A reader reports everything that it drops, so `read + skipped + corrupt` covers the whole file.
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
    """A document before extraction. Either `text` (decoded) or `payload` (bytes of the body without
    HTTP transfer and content encodings) is set; rejected rows may have neither."""

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
    """HTTP headers for robots, one `name: value` per line, or None."""
    lang: str | None = None
    """The language that the input declares, or None."""
    extra: dict[str, Any] | None = None
    """Values of other input columns by name; None for archives."""
    misfits: tuple[str, ...] = ()
    """Columns whose type does not fit their value, which is in `extra`."""
    bad_date: bool = False
    """True if the input has a date that cannot be read."""
    replaced: dict[str, int] | None = None
    """Number of U+FFFD for invalid bytes, by encoding."""
    digest: str | None = None
    """Differences from the digests that the record states; "" if none, None if not compared."""
    offset: int = 0
    """Offset in the file, in bytes; in a compressed archive, of the record's first member."""
    reject: Reject | None = None
    """(rule, value, threshold, detail) if the row must be rejected."""


@dataclass(slots=True)
class Skipped:
    """A record that holds no document, such as `request`, `revisit` or `response:image/png`."""

    kind: str
    offset: int


@dataclass(slots=True)
class Corrupt:
    """Bytes of the file that cannot be read: `count` places, the first of them at `offset`."""

    offset: int
    what: str
    count: int = 1


@dataclass(slots=True)
class OmittedValues:
    """Values of an unknown input column that are not read, as they would take too much memory."""

    column: str
    values: int


Event = Row | Skipped | Corrupt
MOST_NAMED = 100


@dataclass
class Place:
    """One or more damaged places in a file: `count` places, the first of them at `offset`."""

    file: str
    offset: int
    what: str
    count: int = 1


class Damage:
    """The damaged places of an input. The first MOST_NAMED places are listed. Further places are
    counted per file, with the first place in each file, so that no input fills memory or records.
    Replacement characters (U+FFFD) for invalid bytes are counted per file and encoding."""

    def __init__(self) -> None:
        self.count = 0  # of damaged places
        self._named: list[Place] = []
        self._others: dict[str, Place] = {}
        self._replaced: dict[tuple[str, str], Place] = {}

    @property
    def total(self) -> int:
        """The number of damaged places, plus the number of pairs (file, encoding) in which invalid
        bytes became U+FFFD."""
        return self.count + len(self._replaced)

    def add(self, file: str, offset: int, what: str, count: int = 1) -> None:
        """Add `count` damaged places of a file; `offset` is the offset of the first place."""
        self.count += count
        if len(self._named) < MOST_NAMED:
            self._named.append(Place(file, offset, what, count))
        elif file in self._others:
            self._others[file].count += count
        else:
            self._others[file] = Place(file, offset, what, count)

    def add_replaced(self, file: str, offset: int, encoding: str, characters: int) -> None:
        """Count replacement characters (U+FFFD), which stand for invalid bytes of a file.
        `characters` is their number, `offset` the place of the first one."""
        place = self._replaced.setdefault((file, encoding), Place(file, offset, "", 0))
        place.count += characters

    def add_all(self, other: Damage) -> None:
        """Add the damage of another part of the input."""
        for place in (*other._named, *other._others.values()):
            self.add(place.file, place.offset, place.what, place.count)
        for (file, encoding), place in other._replaced.items():
            self.add_replaced(file, place.offset, encoding, place.count)

    def places(self) -> list[Place]:
        """Return the places with U+FFFD (one per file and encoding), the first MOST_NAMED places of
        other damage, then one `Place` per file for all further places."""
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


class NewDamage(list[Corrupt]):
    """Damage since the last call of `drain`. A reader calls `drain` between documents. After
    MOST_NAMED places, damage is only counted."""

    def __call__(self, offset: int, what: str) -> None:
        if len(self) < MOST_NAMED:
            self.append(Corrupt(offset, what))
        else:
            self[-1].count += 1

    def drain(self) -> Iterator[Corrupt]:
        """Yield the damage that was added since the last call."""
        yield from self
        self.clear()


def too_large(rule: str, size: int, limit: int, offset: int = 0) -> Row:
    """Return a rejected row for a record or document whose `size` in bytes is above `limit`."""
    reject = (rule, float(size), float(limit), "passed over, not read whole")
    return Row(offset=offset, reject=reject)


@dataclass(frozen=True)
class Portion:
    """The part of the input that a reader has to read: a file, or a slice of a file."""

    path: str
    """Path or URL for `open_input`."""
    rel: str
    """The file's name below the input."""
    format: str = ""
    codec: str = "plain"
    start: int = 0
    end: int | None = None
    """[start, end) is a slice that the reader's `slices` cut; `end` None is the file's end."""
    kinds: dict[str, str] = field(default_factory=dict)
    """Columns of the run besides those of every document: name -> kind."""
    columns: Columns = field(default_factory=Columns)
    """Names of input columns."""
    max_record: int = 64 << 20
    """Largest record in bytes; a larger one is rejected without being held."""
    max_payload: int = 64 << 20
    """Largest document in bytes after decompression; a larger one is rejected."""
    rows: int = 1000
    """Rows per table, if the reader gives tables."""
    bytes: int = 8 << 20
    """A table that has reached this many bytes gets no further rows."""
    pages: int = 512 << 20
    """The most bytes of a columnar file's pages that are unpacked at the same time."""
    digests: bool = False
    """Compare contents with the digests that records state."""
    quote: str = "auto"
    """Quoting in CSV and TSV, as in `ReadSettings.quote`."""
