"""CSV and TSV: a header that names the columns, then one document per row.

The header also shows the separator. CSV follows RFC 4180. TSV has no quotes according to IANA
(text/tab-separated-values), but files with quotes exist, so the beginning of the file decides if
quotes are read. A malformed row is reported with its offset and skipped. One worker reads the whole
file, because a newline inside quotes can only be recognised by reading from the beginning.
"""

from __future__ import annotations

import csv
import re
from collections import Counter, deque
from collections.abc import Iterator
from typing import BinaryIO

from curate.formats.columns import Columns, SameName
from curate.formats.compression import open_input, sniff
from curate.formats.events import Corrupt, Event, NewDamage, Portion, Skipped, too_large
from curate.formats.jsonl import to_row
from curate.formats.kinds import reader
from curate.formats.lines import HEAD, Line, beginning, lines, name_encoding, without_bom
from curate.text.decoding import replaced_in
from llmcurate.base.errors import UsageError

SEPARATORS = "\t,;|"
MOST_HEADER = 1 << 20  # bytes of the longest header
_QUOTED_HEADER = re.compile(rb'(?:\xef\xbb\xbf|[^\n]*\t)?"')
_DOUBLED = re.compile(rb'[\t\n]"[^\t\n]*""[^\t\n]*"(?:[\t\r\n]|\Z)')


class _Lines:
    """An iterator over lines of text for the csv module, which takes as many lines as a row needs.
    `row` holds the lines of the current row. An unclosed quote takes all following lines;
    `push_back` returns all but the first to the iterator, to be read as rows."""

    def __init__(self, numbered: Iterator[Line], limit: int) -> None:
        self.numbered, self.limit = numbered, limit
        self.row: list[Line] = []
        self.again: deque[Line] = deque()
        self.size = self.replaced = 0
        self.cut_off = False  # the row has more bytes than the limit, or the file ends in it

    def begin(self) -> None:
        self.row, self.cut_off = [], False
        self.size = self.replaced = 0

    def push_back(self) -> None:
        self.again.extendleft(reversed(self.row[1:]))

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        entry = self.again.popleft() if self.again else next(self.numbered, None)
        if entry is None:
            self.cut_off = True
            raise StopIteration
        _, line, size = entry
        self.row.append(entry)
        self.size += size + 1
        if line is None or self.size > self.limit:
            self.cut_off = True
            raise csv.Error("it is too long")
        text = _text(line if self.row[1:] else without_bom(line))
        self.replaced += replaced_in(text, line)
        return text + "\n"


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").replace("\0", "\ufffd")


def _header(line: bytes) -> tuple[list[str], str]:
    text = _text(without_bom(line))
    separator = max(SEPARATORS, key=text.count) if any(s in text for s in SEPARATORS) else ","
    try:
        names = next(csv.reader([text + "\n"], delimiter=separator, strict=True), [])
    except csv.Error as error:
        if "\r" in text.rstrip("\r"):
            problem = "its lines end with \\r alone: tr '\\r' '\\n' makes lines that can be read"
            raise ValueError(problem) from None
        if separator != "\t":
            raise ValueError(f"its first line is not a header ({error})") from None
        names = text.rstrip("\r").split(separator)
    return names, separator


def names_in(head: bytes) -> list[str]:
    """Return the column names in a file's first line; an empty list if the line is not a header."""
    try:
        names = _header(head.partition(b"\n")[0])[0]
    except ValueError:
        return []
    return [] if _repeated(names) else names


def _repeated(names: list[str]) -> str | None:
    return next((name for name, times in Counter(names).items() if times > 1), None)


def read_header(path: str, codec: str, columns: Columns) -> list[str]:
    """Return the columns with llmcurate's names. Raises UsageError if no column holds the text,
    SameName if two columns have the same name."""
    with open_input(path) as file:
        _, chunks, _ = beginning(file, codec)
        line = next(lines(chunks, 0, None, MOST_HEADER), (0, b"", 0))[1]
    try:
        header = _header(line or b"")[0]
    except ValueError as error:
        raise UsageError(f"input {path}: {error}") from None
    names = [columns.name(name) for name in header]
    if "text" not in names:
        raise UsageError(f"input {path}: {columns.missing(dict.fromkeys(names, 'string'), {})}")
    if twice := _repeated(header):
        raise SameName(f"input {path}: its header has the column {twice!r} twice")
    return names


def why_no_documents(path: str, columns: Columns) -> str | None:
    """Return why a table has no documents (no column of text), or None if it has documents."""
    try:
        with open_input(path) as file:
            codec = sniff(file)
        read_header(path, codec, columns)
    except SameName:
        return None  # planning reports it
    except UsageError as error:
        return str(error).removeprefix(f"input {path}: ")
    return None


@reader("csv", endings=(".csv", ".tsv", ".tab"))
def read(portion: Portion) -> Iterator[Event]:
    """Yield each row of a portion's CSV or TSV file as a document, as skipped, or as damage."""
    with open_input(portion.path) as file:
        yield from read_rows(
            file, portion.codec, portion.max_record, portion.kinds, portion.columns, portion.quote
        )


def read_rows(
    file: BinaryIO,
    codec: str,
    limit: int,
    kinds: dict[str, str],
    columns: Columns,
    quote: str = "auto",
) -> Iterator[Event]:
    """Yield a document, damage or skipped header per row. A row of over `limit` bytes is damage."""
    damage = NewDamage()
    head, chunks, encoding = beginning(file, codec, damage)
    numbered = lines(chunks, 0, None, limit, damage)
    _, first, _ = next(numbered, (0, None, 0))
    if first is None:
        yield from damage
        return
    header, separator = _header(first)
    names = [columns.name(name) for name in header]
    csv.field_size_limit(max(limit, csv.field_size_limit()))
    quoted = quote != "none"
    if quote == "auto" and separator == "\t":
        quoted = _looks_quoted(head, len(names))
    source = _Lines(numbered, limit)
    for offset, row, event in _rows(source, separator, len(names), quoted):
        yield from damage.drain()
        if row is None:
            yield name_encoding(event, encoding)
        elif row == header:  # repeated by joined files
            yield Skipped("header", offset)
        else:
            cells = zip(names, row, strict=True)
            record = {name: cell for name, cell in cells if cell or name == "text"}
            document = to_row(record, offset, kinds)
            document.replaced = {encoding: source.replaced} if source.replaced else None
            yield document
    yield from damage


def _looks_quoted(head: bytes, fields: int) -> bool:
    """Return True if quotation marks enclose fields in a TSV file that begins with `head`. The file
    is parsed with and without quoting, and the way with fewer malformed rows is chosen. If both
    have equally many, a quoted header or a quoted field with doubled quotes decides for quoting."""
    numbered = [*lines([head], 0, None, HEAD)]
    if len(head) == HEAD:
        del numbered[-1]  # it may be cut
    quoted, plain = (
        sum(row is None for _, row, _ in _rows(_Lines(iter(numbered), HEAD), "\t", fields, quotes))
        for quotes in (True, False)
    )
    if quoted != plain:
        return quoted < plain
    return bool(_QUOTED_HEADER.match(head) or _DOUBLED.search(head))


def _rows(
    source: _Lines, separator: str, fields: int, quoted: bool
) -> Iterator[tuple[int, list[str] | None, Event]]:
    """Yield (offset, fields, event) for each row. For a malformed row, `fields` is None and `event`
    says why. If the quotes of such a row are wrong, or if each of its lines has the right number of
    fields, only its first line is lost: its other lines are read as new rows."""
    reader = csv.reader(
        source,
        delimiter=separator,
        strict=True,
        quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
    )
    none = Corrupt(0, "")
    while True:
        source.begin()
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            offset, line, size = source.row[0]
            what = "a quote in it is not closed" if source.cut_off else error
            event: Event = Corrupt(offset, f"not a row: {what}")
            if line is None:
                event = too_large("line_too_long", size, source.limit, offset)
            source.push_back()
            yield offset, None, event
            continue
        offset, *_ = source.row[0]
        if len(row) == fields:
            yield offset, row, none
        elif row:
            if all(_text(line or b"").count(separator) == fields - 1 for _, line, _ in source.row):
                source.push_back()
            what = f"{len(row)} fields in a row, {fields} in the header"
            yield offset, None, Corrupt(offset, what)
