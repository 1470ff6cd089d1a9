"""Read and write JSONL: compressed files, and plain files in any byte range.

A line belongs to the range with its first byte. A line above the limit is never kept in memory.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from itertools import islice
from typing import Any, BinaryIO

import pyarrow as pa

from curate.documents.attributes import ATTRIBUTES
from curate.formats.columns import KNOWN, Columns, id_text, kind_of, split_extra
from curate.formats.compression import decompressed_chunks, open_input, sniff
from curate.formats.dates import column_date
from curate.formats.events import Corrupt, Event, NewDamage, Portion, Row, too_large
from curate.formats.json_objects import in_lines, objects, parse
from curate.formats.kinds import reader
from curate.formats.lines import (
    HEAD,
    Line,
    beginning,
    first_line,
    ignore_damage,
    lines,
    name_encoding,
    ranges,
    without_bom,
)
from curate.text.decoding import encoding_of_file


def to_row(record: dict[str, Any], offset: int, columns: dict[str, str]) -> Row:
    """Return the document in a JSON object at `offset` of a file; `columns` are {name: type}."""
    rest = {k: v for k, v in record.items() if k not in KNOWN}
    row = Row(offset=offset)
    own_id = record.get("id")
    if isinstance(own_id, (str, int, float)) and not isinstance(own_id, bool):
        row.id = id_text(own_id)
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
    row.extra, row.misfits = split_extra(rest, columns)
    if isinstance(record.get("source"), str):
        row.extra["source"] = record["source"]
    return row


def slices(file: Any, target: int) -> list[tuple[int, int | None]]:
    """Cut a plain file of lines into byte ranges of about `target` bytes."""
    cut = ranges(file, target)
    if len(cut) > 1:
        with open_input(file.path) as opened:
            head = opened.read(HEAD)
        if encoding_of_file(head) != "utf-8" or not in_lines(head):
            return [(0, None)]
    return cut


def why_no_documents(path: str, columns: Columns) -> str | None:
    """Return why a file (such as a file of settings) has no documents, or None if it has some."""
    with open_input(path) as file:
        codec = sniff(file)
    records = [columns.record(record) for record in sample(path, codec, 100)]
    if not {key for record in records for key in record}.isdisjoint(("text", "payload")):
        return None
    line = one_object(path, codec) or missing_text(records, columns)
    return line or "no JSON object in its first 100 lines"


def one_object(path: str, codec: str, limit: int = Portion.max_record) -> str | None:
    """Return advice for a file that is one object with a list of records, or a table that pandas
    wrote by columns; else None."""
    found = [*sample(path, codec, 2, limit)]
    values = found[0].items() if len(found) == 1 else ()
    if {"columns", "data"} <= dict(values).keys() or (
        values and all(isinstance(value, dict) and "0" in value for _, value in values)
    ):
        return (
            "a table by columns: to_json(FILE, orient='records', lines=True) of pandas writes rows"
        )
    for key, value in values:
        if isinstance(value, list) and value and isinstance(value[0], dict):
            jq = shlex.quote(f".{key}[]" if key.isidentifier() else f'."{key}"[]')
            return f"one object, whose {key} holds the records: jq -c {jq} writes one per line"
    return None


def missing_text(records: Iterable[dict[str, Any]], columns: Columns) -> str | None:
    """Return an error message if there are records and all of them lack a text, else None."""
    kinds: dict[str, str] = {}
    sizes: dict[str, int] = {}
    for record in records:
        if isinstance(record.get("text"), str):
            return None
        inner = ((k, v.items()) for k, v in record.items() if isinstance(v, dict))
        within = {f"{k}.{name}": value for k, items in inner for name, value in items}
        for name, value in (record | within).items():
            nested = (
                "list" if isinstance(value, list) else "object" if isinstance(value, dict) else ""
            )
            kind = nested or kind_of(value) or kinds.get(name, "null")
            kinds[name] = kind if kinds.get(name, "null") in ("null", kind) else "mixed"
            words = isinstance(value, str) and (" " in value or not value.isascii())
            sizes[name] = sizes.get(name, 0) + (len(value) if words else 0)
    return columns.missing(kinds, sizes) if kinds else None


@reader("jsonl", endings=(".jsonl", ".ndjson", ".json"), begins=r"\s*(?:\[\s*)?\{")
def read(portion: Portion) -> Iterator[Event]:
    """Yield a document or other event for each line (each object, if the file is not JSONL)."""
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
    """Yield the events (documents, damage) of lines that start in [start, end). A line of over
    `limit` bytes yields a rejected row."""
    damage = NewDamage()
    numbered, encoding = _numbered(file, codec, start, end, limit, damage)
    for offset, line, size in numbered:
        yield from damage.drain()
        if line is None:
            yield too_large("line_too_long", size, limit, offset)
            continue
        events = _events(without_bom(line), offset, kinds, columns)
        line = b""
        while events:
            event = name_encoding(events.pop(0), encoding)
            yield event
            del event  # frees a long document
    yield from damage


def _numbered(
    file: BinaryIO,
    codec: str,
    start: int,
    end: int | None,
    limit: int,
    on_corrupt: Callable[[int, str], object],
    text: bool = False,
) -> tuple[Iterator[Line], str]:
    """Return the lines that start in [start, end), or all objects if the file is not JSONL; also
    return the name of the file's encoding."""
    if start or end is not None:
        first = first_line(file, start, end)
        if first is None:
            return iter(()), "utf-8"
        chunks = decompressed_chunks(file, codec, start=first)
        return lines(chunks, first, end, limit, on_corrupt), "utf-8"
    head, chunks, encoding = beginning(file, codec, on_corrupt)
    if text or in_lines(head):
        return lines(chunks, 0, None, limit, on_corrupt), encoding
    return objects(chunks, limit, on_corrupt), encoding


def _events(line: bytes, offset: int, kinds: dict[str, str], columns: Columns) -> list[Event]:
    if not line.strip():
        return []
    replaced: list[int] = []
    value = parse(line, replaced.append)
    if isinstance(value, dict):
        try:
            row = to_row(columns.record(value), offset, kinds)
            row.replaced = {"utf-8": sum(replaced)} if replaced else None
            return [row]
        except RecursionError:
            return [Corrupt(offset, "not JSON that can be kept: nested too deeply")]
    parts = [(at, without_bom(part or b"")) for at, part, _ in objects([line], len(line))]
    if len(parts) > 1 and any(isinstance(parse(part), dict) for _, part in parts):
        return [e for at, part in parts for e in _events(part, offset + at, kinds, columns)]
    return [Corrupt(offset, value)]


def records(
    path: str,
    codec: str,
    limit: int,
    on_corrupt: Callable[[int, str], object] = ignore_damage,
    text: bool = False,
) -> Iterator[dict[str, Any] | str]:
    """Yield every record of a file as an object, or as a str that says why it cannot be read, such
    as more than `limit` bytes. If `text` is True, each line is yielded as {"text": line}."""
    with open_input(path) as file:
        for offset, line, size in _numbered(file, codec, 0, None, limit, on_corrupt, text)[0]:
            if line is None:
                yield f"{size:,} bytes at byte {offset}, more than the limit"
            elif (line := without_bom(line)).strip():
                yield {"text": line.decode("utf-8", "replace")} if text else parse(line)


def sample(path: str, codec: str, count: int, limit: int = 1 << 20) -> Iterator[dict[str, Any]]:
    """Yield the objects among the first `count` records of a file, to decide its columns' types."""
    for value in islice(records(path, codec, limit), count):
        if isinstance(value, dict):
            yield value


def json_lines(batches: Iterable[pa.RecordBatch], attributes: bool = False) -> Iterator[bytes]:
    """Yield each row as a line of JSON, without nulls. Reading the lines gives the same documents,
    with times as ISO text in UTC and bytes as hexadecimal digits."""
    import orjson

    options = orjson.OPT_APPEND_NEWLINE | orjson.OPT_PASSTHROUGH_DATETIME
    for batch in batches:
        names = [n for n in batch.schema.names if attributes or n != ATTRIBUTES]
        for row in batch.select(names).to_pylist():
            filled = {key: value for key, value in row.items() if value is not None}
            yield orjson.dumps(filled, default=_plain, option=options)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex()
    raise TypeError(f"no JSON for {type(value).__name__}")
