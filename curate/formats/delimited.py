"""CSV and TSV: a header that names the columns, then a document a row.

Rows are read as RFC 4180 has them: a quoted field may hold newlines, and a quote in it is doubled.
What separates fields is told by the header. A row that breaks the rules, or has another number of
fields than the header, is reported with its offset and passed over; a line longer than the limit is
never held. A file is read by one worker, since only its beginning says which newlines are quoted.
"""

from __future__ import annotations

import csv
from collections import Counter, deque
from collections.abc import Iterator
from typing import BinaryIO

from curate.formats.columns import Columns
from curate.formats.compression import decompressed_chunks, open_input, sniff
from curate.formats.events import Corrupt, Event, Portion, Row, note
from curate.formats.jsonl import BOM, lines, to_row
from curate.formats.kinds import reader
from llmcurate.base.errors import UsageError

SEPARATORS = "\t,;|"
MOST_HEADER = 1 << 20  # bytes of the longest header


Line = tuple[int, bytes | None, int]  # offset, bytes or None where it is too long, size


class _Lines:
    """Lines of text for csv's reader, which asks for as many as a row has. row: those of this row.

    A quote that nothing closes would take all lines behind it into one row: `give_back` lets these
    be read as rows of their own.
    """

    def __init__(self, numbered: Iterator[Line], limit: int) -> None:
        self.numbered, self.limit = numbered, limit
        self.row: list[Line] = []
        self.again: deque[Line] = deque()
        self.size = 0
        self.cut_off = False  # the row has more bytes than the limit, or the file ends in it

    def begin(self) -> None:
        """A new row begins."""
        self.row, self.size, self.cut_off = [], 0, False

    def give_back(self) -> None:
        """All lines of the row but the first."""
        self.again.extendleft(reversed(self.row[1:]))

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        entry = self.again.popleft() if self.again else next(self.numbered, None)
        if entry is None:
            self.cut_off = True
            raise StopIteration
        offset, line, size = entry
        self.row.append(entry)
        self.size += size + 1
        if line is None or self.size > self.limit:
            self.cut_off = True
            raise csv.Error("it is too long")
        if offset == 0:
            line = line.removeprefix(BOM)
        return line.decode("utf-8", "replace").replace("\0", "\ufffd") + "\n"


def _header(line: bytes) -> tuple[list[str], str]:
    """(names of the columns, what separates them). ValueError where the line is no header."""
    if line[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ValueError("it is UTF-16: make it UTF-8 (iconv -f UTF-16 -t UTF-8)")
    text = line.removeprefix(BOM).decode("utf-8", "replace").replace("\0", "\ufffd")
    separator = max(SEPARATORS, key=text.count) if any(s in text for s in SEPARATORS) else ","
    try:
        names = next(csv.reader([text + "\n"], delimiter=separator, strict=True), [])
    except csv.Error as error:
        raise ValueError(f"its first line is no header ({error})") from None
    if twice := next((name for name, times in Counter(names).items() if times > 1), None):
        raise ValueError(f"its header has the column {twice!r} twice")
    return names, separator


def names_in(head: bytes) -> list[str]:
    """The columns that the first line of a file would name; none where it is no header."""
    try:
        return _header(head.partition(b"\n")[0])[0]
    except ValueError:
        return []


def read_header(path: str, codec: str, columns: Columns) -> list[str]:
    """The columns of a file, as `columns` names them. UsageError without a column `text`."""
    with open_input(path) as file:
        chunks = decompressed_chunks(file, codec, lambda offset, what: None)
        line = next(lines(chunks, 0, None, MOST_HEADER), (0, b"", 0))[1]
    try:
        names = [columns.name(name) for name in _header(line or b"")[0]]
    except ValueError as error:
        raise UsageError(f"input {path}: {error}") from None
    if "text" not in names:
        raise UsageError(f"input {path}: {columns.missing(dict.fromkeys(names, 'string'))}")
    return names


def why_no_documents(path: str, columns: Columns) -> str | None:
    """Tables without a text are no documents."""
    try:
        with open_input(path) as file:
            codec = sniff(file)
        read_header(path, codec, columns)
    except UsageError as error:
        return str(error).removeprefix(f"input {path}: ")
    return None


@reader("csv", endings=(".csv", ".tsv", ".tab"))
def read(portion: Portion) -> Iterator[Event]:
    """Events of all rows of a file."""
    with open_input(portion.path) as file:
        yield from read_rows(
            file, portion.codec, portion.max_record, portion.kinds, portion.columns
        )


def read_rows(
    file: BinaryIO, codec: str, limit: int, kinds: dict[str, str], columns: Columns
) -> Iterator[Event]:
    """Events of all rows; limit: bytes of the longest row read."""
    damage: list[Corrupt] = []

    def damaged(offset: int, what: str) -> None:
        note(damage, offset, what)

    numbered = lines(decompressed_chunks(file, codec, damaged), 0, None, limit)
    _, first, _ = next(numbered, (0, None, 0))
    if first is None:
        yield from damage
        return
    header, separator = _header(first)
    names = [columns.name(name) for name in header]
    csv.field_size_limit(max(limit, csv.field_size_limit()))
    for offset, row, event in _rows(_Lines(numbered, limit), separator):
        yield from damage
        damage.clear()
        if row is None:
            yield event
        elif len(row) != len(names):
            yield Corrupt(offset, f"{len(row)} fields in a row, {len(names)} in the header")
        else:
            cells = zip(names, row, strict=True)
            record = {name: cell for name, cell in cells if cell or name == "text"}
            yield to_row(record, offset, kinds)
    yield from damage


def _rows(source: _Lines, separator: str) -> Iterator[tuple[int, list[str] | None, Event]]:
    """(offset, fields, nothing), or (offset, None, the event that stands for the row)."""
    reader = csv.reader(source, delimiter=separator, strict=True)
    none = Corrupt(0, "")
    while True:
        source.begin()
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            offset, line, size = source.row[0]
            event: Event = Corrupt(offset, f"not a row: {error}")
            if line is None:
                detail = "passed over, not read whole"
                reject = ("line_too_long", float(size), float(source.limit), detail)
                event = Row(offset=offset, reject=reject)
            elif source.cut_off:
                event = Corrupt(offset, "not a row: a quote in it is not closed")
                source.give_back()
            yield offset, None, event
            continue
        if row:
            yield source.row[0][0], row, none
