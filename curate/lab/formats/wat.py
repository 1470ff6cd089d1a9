"""WAT files: the metadata that Common Crawl extracts from each page of an archive.

A record's JSON becomes a document. Its text is the page's title and description; id, URL and date
are those of the page's own record; the columns below hold the rest. So pages can be chosen by
title, links or headers and then fetched one at a time (`llmcurate fetch`) without reading the whole
archive. Only responses with status 200 and a text type become documents.
https://commoncrawl.org/blog/web-archiving-file-formats-explained
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from curate.formats.compression import open_input
from curate.formats.dates import parse_date
from curate.formats.events import Corrupt, Event, Portion, Row, Skipped
from curate.formats.heads import Record
from curate.formats.http import content_type
from curate.formats.json_objects import parse
from curate.formats.kinds import reader
from curate.formats.mime import is_document
from curate.formats.records import ReadLimits, records
from curate.formats.warc import slices

__all__ = ["COLUMNS", "read", "slices"]

COLUMNS = {
    "wat.title": "string",
    "wat.description": "string",
    "wat.mime": "string",
    "wat.links": "string",  # JSON as in the file: [{"url", "path", "text", ...}]
    "wat.metas": "string",
    "wat.headers": "string",
    # The page's record in its archive, for a ranged fetch.
    "wat.file": "string",
    "wat.offset": "int64",
    "wat.length": "int64",
}
_DESCRIPTIONS = ("description", "og:description", "twitter:description", "dc.description")


@reader("wat", endings=(".wat",), begins=r"(?s)\s*WARC/.{0,480}\.warc\.wat")
def read(portion: Portion) -> Iterator[Event]:
    limits = ReadLimits(record_bytes=portion.max_record, payload_bytes=portion.max_payload)
    with open_input(portion.path) as file:
        for record in records(file, portion.start, portion.end, limits):
            yield record if isinstance(record, Corrupt) else _event(record, portion.max_record)


def _event(record: Record, limit: int) -> Event:
    mime = content_type(record.get(b"content-type"))[0]
    if record.type != "metadata" or mime != "application/json":
        return Skipped(record.type or "unknown", record.offset)
    if record.content is None:
        reject = ("record_too_large", float(record.size), float(limit), None)
        return Row(offset=record.offset, reject=reject)
    replaced: list[int] = []
    stated = parse(record.content, replaced.append)
    if isinstance(stated, str):
        return Corrupt(record.offset, f"WAT envelope: {stated}")
    document = _document(stated, record.offset)
    if replaced and isinstance(document, Row):
        document.replaced = {"utf-8": sum(replaced)}
    return document


def _document(stated: dict[str, Any], offset: int) -> Event:
    envelope = _object_at(stated, "Envelope")
    head = _object_at(envelope, "WARC-Header-Metadata")
    kind = str(head.get("WARC-Type") or "unknown").lower()[:40]
    response = _object_at(envelope, "Payload-Metadata", "HTTP-Response-Metadata")
    if kind != "response":
        return Skipped(f"wat:{kind}", offset)
    status = str(_object_at(response, "Response-Message").get("Status") or "none")[:10]
    if status != "200":
        return Skipped(f"wat:response:status-{status}", offset)
    headers = _object_at(response, "Headers")
    by_name = {name.lower(): value for name, value in headers.items()}
    mime = content_type(_string(by_name.get("content-type")))[0]
    if mime is not None and not is_document(mime):
        return Skipped(f"wat:response:{mime}", offset)
    page = _object_at(response, "HTML-Metadata")
    container = _object_at(stated, "Container")
    metas = _object_at(page, "Head").get("Metas")
    title = _line(_object_at(page, "Head").get("Title"))
    description = _description(metas)
    name = _string(head.get("WARC-Record-ID")) or ""
    columns = {
        "wat.title": title,
        "wat.description": description,
        "wat.mime": mime,
        "wat.links": _json(page.get("Links")),
        "wat.metas": _json(metas),
        "wat.headers": _json(headers or None),
        "wat.file": _string(container.get("Filename")),
        "wat.offset": _number(container.get("Offset")),
        "wat.length": _number(_object_at(container, "Gzip-Metadata").get("Deflate-Length")),
    }
    return Row(
        id=name.strip().removeprefix("<").removesuffix(">") or None,
        url=_string(head.get("WARC-Target-URI")),
        date=parse_date(_string(head.get("WARC-Date"))),
        text="\n\n".join(filter(None, (title, description))),
        lang=_string(head.get("WARC-Identified-Content-Language")),
        extra={name: value for name, value in columns.items() if value is not None},
        offset=offset,
    )


def _object_at(value: dict[str, Any], *names: str) -> dict[str, Any]:
    for name in names:
        inner = value.get(name)
        value = inner if isinstance(inner, dict) else {}
    return value


def _description(metas: Any) -> str | None:
    stated: dict[str, str] = {}
    for meta in metas if isinstance(metas, list) else ():
        if isinstance(meta, dict):
            name = str(meta.get("name") or meta.get("property") or "").lower()
            if name in _DESCRIPTIONS and (content := _line(meta.get("content"))):
                stated.setdefault(name, content)
    return next((stated[name] for name in _DESCRIPTIONS if name in stated), None)


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _line(value: Any) -> str | None:
    return re.sub(r"\s+", " ", value).strip() or None if isinstance(value, str) else None


def _number(value: Any) -> int | None:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _json(value: Any) -> str | None:
    import orjson

    return None if value is None else orjson.dumps(value).decode()
