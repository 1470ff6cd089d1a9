"""Check of the archives with warcio: the same records, URLs, dates and payloads."""

from __future__ import annotations

import hashlib
import io
import json
import re
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

import pyarrow.parquet as pq

from curate.formats.compression import open_input
from curate.formats.inputs import Slice
from curate.formats.listing import InputFile
from curate.lab.verify.finished_run import Document, FinishedRun, Source, first
from curate.lab.verify.tally import NotInRun, Tally, need

MOST_BYTES = 64 << 20  # stored bytes that warcio reads of each partition
# Codings that warcio 1.8 decodes. It fails on br with brotli 1.2, and leaves others as they are.
DECODED = ("", "identity", "gzip", "deflate")
Places = dict[str, list[tuple[int, bool]]]
NEAR = 1 << 20  # bytes around reported damage in which the libraries may recover other records
_REPEATED = re.compile(r"~\d+$")  # the suffix that a run adds to a repeated id
DOCUMENTS = ("response", "resource", "conversion")


@dataclass(frozen=True)
class Peer:
    """A record of an archive, as warcio reads it."""

    file: str
    offset: int  # byte position in the stored file
    id: str | None
    url: str | None
    date: str | None
    payload: str | None  # sha1, or None if there is an `error`
    coding: str
    page: bool  # True if it is HTML with status 200
    odd: bool  # True if its HTTP message is malformed
    error: str


def check(run: FinishedRun) -> list[Tally]:
    need("warcio", "warcio")
    plan, settings = run.plan
    damage = _damage(run)
    documents, records = Tally("warcio", "documents of archives"), Tally("warcio", "records")
    for part in run.parts:
        slices = [s for s in plan.partitions[part] if plan.files[s.file].format == "archive"]
        slices = [s for s in slices if plan.files[s.file].codec in ("plain", "gzip")]
        if not slices:
            continue
        run.unchanged(part)
        peers: list[Peer] = []
        stopped: dict[str, str] = {}  # why warcio ended early, by file
        with redirect_stderr(io.StringIO()):  # where warcio writes its warnings
            for piece in slices:
                file = plan.files[piece.file]
                stopped[file.rel] = _read(file, piece, peers)
        for document in run.sample:
            if document.part == part and document.row["source"] in stopped:
                source = run.sources.get(document.id)
                id_ = source.own if source else None
                candidates = [
                    peer
                    for peer in peers
                    if peer.file == document.row["source"]
                    and (peer.id == id_ if id_ else peer.url and peer.url == document.row["url"])
                ]
                damaged = _near_damage(damage, document.row["source"], candidates)
                # If warcio stopped early, the last record that it returned may lack its body.
                last = next((p for p in reversed(peers) if p.file == document.row["source"]), None)
                missing = not candidates or last in candidates
                ended = missing and bool(stopped[document.row["source"]])
                _document(documents, document, source, candidates, ended, damaged)
        if settings.share is None and settings.limit is None:
            _records(records, run, part, peers, damage)
    if not documents.checked and not records.checked:
        raise NotInRun("the run read no WARC or ARC files that warcio reads")
    return [documents, records]


def _damage(run: FinishedRun) -> Places:
    """Return {file: [(offset, True if more damage follows that is not listed)]}."""
    path = run.out / "corrupt.jsonl"
    names = {file.path: file.rel for file in run.plan[0].files}
    damage: Places = {}
    if path.is_file():
        with open(path, encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                place = row["offset"], row.get("count", 1) > 1
                damage.setdefault(names.get(row["file"], row["file"]), []).append(place)
    return damage


def _near_damage(damage: Places, file: str, peers: list[Peer]) -> bool:
    offsets = damage.get(file, [])
    return any(
        abs(peer.offset - at) <= NEAR or (more and peer.offset >= at)
        for peer in peers
        for at, more in offsets
    ) or (bool(offsets) and not peers)


def _read(file_info: InputFile, piece: Slice, peers: list[Peer]) -> str:
    from warcio.archiveiterator import ArchiveIterator

    end = piece.end if piece.end is not None else 1 << 62
    end = min(end, piece.start + MOST_BYTES)
    with open_input(file_info.path) as file:
        file.seek(0, 2)
        size = file.tell()
        file.seek(piece.start)
        records: Any = ArchiveIterator(file, arc2warc=False)
        try:
            for record in records:
                # Read the record first: warcio knows its offset only at its end.
                peer = _peer(record, file_info.rel)
                offset = records.get_record_offset()
                if offset >= end:
                    return "" if end == piece.end else "the limit of bytes was reached"
                peers.append(replace(peer, offset=offset))
        except Exception as error:  # warcio raises what its parsers and codecs do
            return f"{type(error).__name__}: {error}"
        # At a corrupt member warcio ends silently and never reads what follows.
        return "" if file.tell() >= size else "it ended before the end of the file"


def _peer(record: Any, file: str) -> Peer:
    head, http = record.rec_headers, record.http_headers
    arc = record.format == "arc"
    url = head.get_header("uri" if arc else "WARC-Target-URI")
    name = head.get_header("WARC-Record-ID")
    coding = (http.get_header("Content-Encoding") or "").strip().lower() if http else ""
    page = False
    if record.rec_type in DOCUMENTS:
        kind = http.get_header("Content-Type") if http else head.get_header("Content-Type")
        page = (kind or "").strip().lower().startswith("text/html")
        page = page and (http is None or http.get_statuscode() == "200")
    odd = http is not None and not (http.protocol or "").upper().startswith("HTTP/")
    payload, error = None, ""
    try:
        stream = record.content_stream()
        payload = hashlib.sha1(stream.read()).hexdigest()
        chunked = http is not None and "chunked" in (http.get_header("Transfer-Encoding") or "")
        odd = odd or (chunked and getattr(stream, "not_chunked", False))
    except Exception as caught:
        error = f"{type(caught).__name__}: {caught}"
    return Peer(
        file,
        0,
        name.strip().strip("<>").strip() if name else None,
        url.strip().removeprefix("<").removesuffix(">").strip() if url else None,
        None if arc else head.get_header("WARC-Date"),
        payload,
        coding,
        page,
        odd,
        error,
    )


def _document(
    tally: Tally,
    document: Document,
    source: Source | None,
    peers: list[Peer],
    stopped: bool,
    damaged: bool,
) -> None:
    if source is None:
        tally.differs(document.id, "the document is not in the archive")
        return
    if source.refused is not None:
        tally.explain("reader_limit")
        return
    how = _difference(document, source, peers)
    if not how:
        tally.agrees()
    elif damaged:
        tally.explain("damaged_archive")
    elif stopped:
        tally.explain("warcio_stops")
    elif any(peer.coding not in DECODED for peer in peers):
        tally.explain("warcio_coding")
    elif any(peer.odd for peer in peers):
        tally.explain("odd_http")
    else:
        tally.differs(document.id, how)


def _difference(document: Document, source: Source, peers: list[Peer]) -> str:
    if not peers:
        return "warcio reads no such record"
    body = source.payload if source.payload is not None else (source.ready or "").encode()
    digest = hashlib.sha1(body).hexdigest()
    url, date = document.row["url"], document.row["date"]
    same = [peer for peer in peers if peer.payload == digest]
    if not same:
        theirs = peers[0].error or f"sha1 {peers[0].payload}"
        return f"payload of sha1 {digest}, warcio reads {theirs}"
    # warcio writes spaces in an address as %20.
    spaced = {url, url and url.replace(" ", "%20")}
    if not any(peer.url in spaced for peer in same):
        return f"the run has the URL {url!r}, warcio {same[0].url!r}"
    if not any(_same_date(date, peer.date) for peer in same):
        return f"the run has the date {date}, warcio {same[0].date}"
    return ""


def _same_date(stored: datetime | None, theirs: str | None) -> bool:
    try:
        parsed = datetime.strptime((theirs or "")[:19], "%Y-%m-%dT%H:%M:%S")
    except ValueError:
        return True
    if not (theirs or "").endswith("Z"):
        return True
    return stored is not None and stored.replace(microsecond=0) == parsed.replace(
        tzinfo=timezone.utc
    )


def _records(tally: Tally, run: FinishedRun, part: int, peers: list[Peer], damage: Places) -> None:
    files = [of[part] for of in (run.kept, run.gone) if part in of]
    stored = (
        name for file in files for name in pq.read_table(file, columns=["id"])["id"].to_pylist()
    )
    names = {_REPEATED.sub("", name) for name in stored}
    pages = {peer.id: peer for peer in peers if peer.page and peer.id}
    for name in first(run.seed, pages, max(1, run.documents // len(run.parts))):
        peer = pages[name]
        if name in names:
            tally.agrees()
        elif _near_damage(damage, peer.file, [peer]):
            tally.explain("damaged_archive")
        else:
            how = f"this page of {peer.file} is neither in corpus/ nor in rejected/"
            tally.differs(name, how)
