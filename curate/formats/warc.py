"""Documents of web archives: WARC, WET and ARC files, compressed or not.

Documents are responses with status 200, pages of ARC files, and resource and conversion records.
Their type must be HTML, XML or text; content without a type must look like one of these. A body
whose bytes are of another type is skipped, whatever type the server states (mime.py). Digests
(`algorithm:value`, in hexadecimal or RFC 4648 base32) are checked for sha1, sha256 and md5.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from curate.formats.compression import open_input, verified_boundaries
from curate.formats.dates import parse_date
from curate.formats.events import Corrupt, Event, Portion, Reject, Row, Skipped
from curate.formats.heads import Record
from curate.formats.http import (
    OPT_OUT_HEADERS,
    Head,
    content_type,
    decode_body,
    parse_head,
    payloads,
)
from curate.formats.kinds import reader
from curate.formats.mime import UNKNOWN, is_document, looks_like_text, type_of
from curate.formats.records import ReadLimits, records
from curate.text.decoding import decode

_ALGORITHMS = {"sha1": 20, "sha-1": 20, "sha256": 32, "sha-256": 32, "md5": 16}  # bytes


def parse(stated: str) -> tuple[str, bytes] | None:
    """Return a stated digest as (algorithm as named in hashlib, bytes), or None if the algorithm is
    unknown or the text is malformed."""
    name, _, value = stated.strip().partition(":")
    name, value = name.strip().lower(), value.strip().rstrip("=").upper()
    size = _ALGORITHMS.get(name, 0)
    try:
        if len(value) == 2 * size:
            digest = bytes.fromhex(value)
        else:
            digest = base64.b32decode(value + "=" * (-len(value) % 8))
    except ValueError:
        return None
    return (name.replace("-", ""), digest) if size and len(digest) == size else None


def differs(stated: str | None, contents: Iterable[bytes | memoryview]) -> bool | None:
    """Return True if none of `contents` has the stated digest, False if one has it, and None if no
    digest of a known algorithm is stated."""
    digest_of = parse(stated) if stated else None
    if digest_of is None:
        return None
    name, digest = digest_of
    return all(hashlib.new(name, c, usedforsecurity=False).digest() != digest for c in contents)


__all__ = ["ReadLimits", "read", "read_archive", "slices"]

_DOCUMENTS = ("response", "resource", "conversion")


def slices(file: Any, target: int) -> list[tuple[int, int | None]]:
    """Return the (start, end) file offsets of slices of about `target` bytes. A slice begins where
    a compressed member is proven to begin; the last end is None. A plain file is not cut."""
    starts = [0]
    if file.codec != "plain" and file.size > target + target // 2:
        with open_input(file.path) as archive:
            starts = verified_boundaries(archive, file.size, target)
    return list(zip(starts, [*starts[1:], None], strict=True))


def limits_of(portion: Portion) -> ReadLimits:
    return ReadLimits(portion.max_record, portion.max_payload, digests=portion.digests)


@reader(
    "archive",
    endings=(".warc", ".wet", ".arc"),
    begins=r"(?s)\s*(?:WARC/(?!.{0,480}\.warc\.wat)|filedesc://)",
    pages=True,
)
def read(portion: Portion) -> Iterator[Event]:
    """Yield a document, or what was skipped or damaged, for each record of an archive or slice."""
    with open_input(portion.path) as file:
        limits = limits_of(portion)
        yield from read_archive(file, portion.start, portion.end, limits)


def read_archive(
    file: BinaryIO, start: int = 0, end: int | None = None, limits: ReadLimits = ReadLimits()
) -> Iterator[Event]:
    """Yield the events of an archive, or of a slice [start, end) from `verified_boundaries`."""
    for record in records(file, start, end, limits):
        yield record if isinstance(record, Corrupt) else _event(record, limits)


def _event(record: Record, limits: ReadLimits) -> Event:
    kind = record.type or "unknown"
    if kind not in _DOCUMENTS:
        return Skipped(kind, record.offset)
    content = record.content if record.content is not None else record.beginning
    declared = record.get(b"content-type")
    head = None
    if kind == "response" or (declared or "").lower().startswith("application/http"):
        head = parse_head(content)
    if head is None:
        if (declared or "").lower().startswith("application/http"):
            declared = None
        mime, charset = content_type(declared)
    else:
        if head.status != 200:
            return Skipped(f"{kind}:status-{head.status}", record.offset)
        declared = head.first("content-type")
        mime, charset = content_type(declared)
    identified = content_type(record.get(b"warc-identified-payload-type"))[0]
    if mime is None and record.content is None:
        mime = identified
    if mime is not None and mime not in UNKNOWN and not is_document(mime):
        return Skipped(f"{kind}:{mime}", record.offset)
    url = record.get(b"warc-target-uri")
    if url is not None:
        url = url.strip().removeprefix("<").removesuffix(">").strip() or None
    if url is not None and url.lower().startswith(("metadata:", "dns:")):
        return Skipped(f"{kind}:{url.partition(':')[0].lower()}-uri", record.offset)
    name = record.get(b"warc-record-id")
    row = Row(
        id=(name.strip().removeprefix("<").removesuffix(">").strip() or None) if name else None,
        url=url,
        date=parse_date(record.get(b"warc-date")),
        mime=mime,
        charset=charset,
        opt_out_headers=head.lines(OPT_OUT_HEADERS) if head else None,
        lang=record.get(b"warc-identified-content-language"),
        offset=record.offset,
    )
    if record.content is None:
        row.reject = ("record_too_large", float(record.size), float(limits.record_bytes), None)
        return row
    if limits.digests:
        row.digest = _digest_differences(record, head)
    return _fill(row, record, kind, head, identified, limits)


def _digest_differences(record: Record, head: Head | None) -> str | None:
    content = record.content
    if content is None or record.damage or record.size != record.declared:
        return None  # missing content is reported elsewhere
    block = differs(record.get(b"warc-block-digest"), (content,))
    payload = None
    http = (record.get(b"content-type") or "").lower().startswith("application/http")
    if record.get(b"warc-segment-number") is None and (head is not None or not http):
        body = memoryview(content)[head.length if head else 0 :]
        payload = differs(record.get(b"warc-payload-digest"), payloads(head, body))
    if block is None and payload is None:
        return None
    names = {"WARC-Block-Digest": block, "WARC-Payload-Digest": payload}
    return ", ".join(f"{name} does not match the content" for name, other in names.items() if other)


def _fill(
    row: Row, record: Record, kind: str, head: Head | None, identified: str | None,
    limits: ReadLimits,
) -> Event:  # fmt: skip
    body = record.content or b""
    reject: Reject | None = None
    limit = limits.payload_bytes
    decoded = decode_body(head, body[head.length if head else 0 :], limit)
    body = decoded.data
    if decoded.status == "too_large":
        reject = ("payload_too_large", float(decoded.size), float(limit), decoded.detail)
    elif decoded.status == "undecodable" and not looks_like_text(body):
        reject = ("undecodable_body", None, None, decoded.detail)
    elif kind != "conversion" or row.mime is None or row.mime in UNKNOWN:
        stated = None if row.mime in UNKNOWN else row.mime
        row.mime = type_of(stated, identified, body)
        if row.mime is None:
            return Skipped(f"{kind}:empty", record.offset)
        if not is_document(row.mime):
            return Skipped(f"{kind}:{row.mime}", record.offset)
    if record.damage is not None and not (record.missing and _is_complete(head, record)):
        size, declared = float(record.size), record.declared
        reject = (
            "truncated_record",
            size,
            float(declared) if declared is not None else None,
            record.damage,
        )
    if kind == "conversion" and row.mime == "text/plain" and row.charset in (None, "utf-8"):
        text = decode(body, "utf-8", html=False)
        row.text, row.charset, row.replaced = text.text, "utf-8", text.losses
    elif reject is None or reject[0] != "payload_too_large":
        row.payload = body
    row.reject = reject
    return row


def _is_complete(head: Head | None, record: Record) -> bool:
    length = head.first("content-length") if head else None
    if head is None or length is None or not length.isdigit() or record.content is None:
        return False
    return int(length) <= len(record.content) - head.length
