"""JSON lines, read and written: plain (any byte range), gzip, zstd or lz4.

A line belongs to the range in which its first byte lies. A line longer than the limit is passed
over in pieces and reported; it is never held in memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from itertools import islice
from typing import Any, BinaryIO

import pyarrow as pa

from curate.formats.columns import KNOWN, Columns, kind_of, split_extra
from curate.formats.compression import decompressed_chunks, open_input, sniff
from curate.formats.dates import column_date
from curate.formats.events import Corrupt, Event, Portion, Row, note
from curate.formats.kinds import reader

CHUNK = 1 << 20
BOM = b"\xef\xbb\xbf"


def _chunks(file: BinaryIO, start: int) -> Iterator[bytes]:
    file.seek(start)
    while chunk := file.read(CHUNK):
        yield chunk


def first_line(file: BinaryIO, start: int, end: int | None) -> int | None:
    """Where the first line that begins in [start, end) does; None if one long line covers it all.

    Reads no further than `end`: a line of many ranges is not read again for each of them.
    """
    if start == 0:
        return 0
    at = start - 1  # a line that begins exactly at `start` has its newline there
    for chunk in _chunks(file, at):
        if (stop := chunk.find(b"\n")) >= 0:
            at += stop + 1
            return at if end is None or at < end else None
        at += len(chunk)
        if end is not None and at >= end:
            return None
    return None


def lines(
    chunks: Iterator[bytes], at: int, end: int | None, limit: int
) -> Iterator[tuple[int, bytes | None, int]]:
    """(offset, line without its end or None if longer than limit, bytes) for lines starting in
    [at, end); offsets count from `at` in what the chunks hold. A line is not
    held while it is worked on."""
    parts: list[bytes] = []
    held = 0
    begin = at
    for chunk in chunks:
        position = 0
        while (stop := chunk.find(b"\n", position)) >= 0:
            held += stop - position
            if held <= limit:
                parts.append(chunk[position:stop])
            parts = [b"".join(parts)]
            yield begin, parts.pop() if held <= limit else None, held
            parts, begin, held = [], begin + held + 1, 0
            position = stop + 1
            if end is not None and begin >= end:
                return
        held += len(chunk) - position
        if held <= limit:
            parts.append(chunk[position:])
        else:
            parts = []
    if held:
        yield begin, b"".join(parts) if held <= limit else None, held


def parse(line: bytes) -> dict[str, Any] | str:
    """The object on a line, or what is wrong with it. Lone surrogates become U+FFFD."""
    import orjson

    try:
        value = orjson.loads(line)
        if isinstance(value, dict) and any(
            type(v) is float and abs(v) >= 1 << 63 for v in value.values()
        ):
            value = json.loads(line)  # keeps the digits of a longer integer
    except orjson.JSONDecodeError:
        try:
            value = _mended(json.loads(line.decode("utf-8", "replace").replace("\x00", "\ufffd")))
        except (ValueError, RecursionError) as error:
            return f"not JSON: {str(error)[:100]}"
    return value if isinstance(value, dict) else f"not a JSON object but {type(value).__name__}"


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        # Pairs of escapes join to one character, lone halves become U+FFFD.
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_mended(v) for v in value]
    if isinstance(value, dict):
        return {_mended(k): _mended(v) for k, v in value.items()}
    return value


def to_row(record: dict[str, Any], offset: int, columns: dict[str, str]) -> Row:
    """One document from one JSON object."""
    rest = {k: v for k, v in record.items() if k not in KNOWN}
    row = Row(offset=offset)
    own_id = record.get("id")
    if isinstance(own_id, (str, int)) and not isinstance(own_id, bool):
        row.id = str(own_id) or None
    elif own_id is not None:
        rest["id"] = own_id
    for name in ("url", "lang", "mime", "charset", "opt_out_headers", "text"):
        value = record.get(name)
        if isinstance(value, str):
            setattr(row, name, value)
        elif value is not None:
            rest[name] = value
    for name in ("payload", "source"):
        value = record.get(name)
        if value is not None and not (name == "source" and isinstance(value, str)):
            rest[name] = value
    when = record.get("date")
    row.date = column_date(when)
    if when is not None and row.date is None:
        rest["date"] = when
        row.bad_date = True
    if row.text is None:
        row.reject = ("no_text", None, None, "the record has no `text` string")
    row.extra = split_extra(rest, columns)
    if isinstance(record.get("source"), str):
        row.extra["source"] = record["source"]
    return row


def slices(file: Any, target: int) -> list[tuple[int, int | None]]:
    """A plain file in ranges of bytes; a line belongs to the one in which it begins."""
    starts = [0]
    if file.codec == "plain" and file.size > target + target // 2:
        starts = list(range(0, file.size, target))
        if len(starts) > 1 and file.size - starts[-1] < target // 2:
            starts.pop()
    return list(zip(starts, [*starts[1:], None], strict=True))


def why_no_documents(path: str, columns: Columns) -> str | None:
    """Files of settings and the like are no documents."""
    with open_input(path) as file:
        codec = sniff(file)
    records = [columns.record(record) for record in sample(path, codec, 100)]
    if not {key for record in records for key in record}.isdisjoint(("text", "payload")):
        return None
    return missing_text(records, columns) or "no JSON line among its first hundred"


def missing_text(records: Iterable[dict[str, Any]], columns: Columns) -> str | None:
    """The line on records, by our names, of which none has a text; None where one has it, or where
    there are none."""
    kinds: dict[str, str] = {}
    sizes: dict[str, int] = {}
    for record in records:
        if isinstance(record.get("text"), str):
            return None
        for name, value in record.items():
            nested = (
                "list" if isinstance(value, list) else "object" if isinstance(value, dict) else ""
            )
            kind = nested or kind_of(value) or kinds.get(name, "null")
            kinds[name] = kind if kinds.get(name, "null") in ("null", kind) else "mixed"
            sizes[name] = sizes.get(name, 0) + (len(value) if isinstance(value, str) else 0)
    return columns.missing(kinds, sizes) if kinds else None


@reader("jsonl", endings=(".jsonl", ".ndjson", ".json"), begins=r"\s*\{")
def read(portion: Portion) -> Iterator[Event]:
    """Events of the lines that start in the portion."""
    with open_input(portion.path) as file:
        yield from read_lines(
            file,
            portion.codec,
            portion.start,
            portion.end,
            portion.max_record,
            portion.kinds,
            portion.columns,
        )


def read_lines(
    file: BinaryIO,
    codec: str,
    start: int,
    end: int | None,
    limit: int,
    kinds: dict[str, str],
    columns: Columns = Columns(),
) -> Iterator[Event]:
    """Events of the lines that start in [start, end); limit: bytes of the longest line read."""
    damage: list[Corrupt] = []
    if codec == "plain":
        first = first_line(file, start, end)
        if first is None:
            return
        numbered = lines(_chunks(file, first), first, end, limit)
    else:
        packed = decompressed_chunks(file, codec, lambda offset, what: note(damage, offset, what))
        numbered = lines(packed, 0, None, limit)
    for offset, line, size in numbered:
        if damage:
            yield from damage
            damage.clear()
        if line is None:
            yield Row(
                offset=offset,
                reject=("line_too_long", float(size), float(limit), "passed over, not read whole"),
            )
            continue
        if offset == 0:
            line = line.removeprefix(BOM)
        line = line.rstrip(b"\r")
        if not line.strip():
            continue
        events = [_event(line, offset, kinds, columns)]
        line = b""
        yield events.pop()  # of a long document nothing is held here
    yield from damage


def _event(line: bytes, offset: int, kinds: dict[str, str], columns: Columns) -> Event:
    value = parse(line)
    if isinstance(value, str):
        return Corrupt(offset, value)
    try:
        return to_row(columns.record(value), offset, kinds)
    except RecursionError:
        return Corrupt(offset, "not JSON that can be kept: nested too deeply")


def sample(path: str, codec: str, count: int, limit: int = 1 << 20) -> Iterator[dict[str, Any]]:
    """The first objects of a file, for typing its columns."""
    with open_input(path) as file:
        chunks = (
            _chunks(file, 0)
            if codec == "plain"
            else decompressed_chunks(file, codec, lambda offset, what: None)
        )
        for _, line, _ in islice(lines(iter(chunks), 0, None, limit), count):
            value = parse(line) if line and line.strip() else ""
            if isinstance(value, dict):
                yield value


def json_lines(batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Each row as a line of JSON, without what is null. Read again, they are the same documents:
    times are ISO text in UTC, bytes hexadecimal."""
    import orjson

    options = orjson.OPT_APPEND_NEWLINE | orjson.OPT_PASSTHROUGH_DATETIME
    for batch in batches:
        for row in batch.to_pylist():
            filled = {key: value for key, value in row.items() if value is not None}
            yield orjson.dumps(filled, default=_plain, option=options)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex()
    raise TypeError(f"no JSON for {type(value).__name__}")
