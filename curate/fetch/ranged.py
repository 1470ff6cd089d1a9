"""Fetch records of WARC archives by byte range, verify them, and join them into WARC files.

The rows of a URL index (from a CDX server or local files) say where each record lies. Records are
fetched into a hidden folder next to the WARC file, and joined in the order of archive and offset
when all are there. So a stopped fetch can be resumed, and it gives the same files. Records that a
server refuses, or that differ from the index, are listed in `NAME-00000.missing.cdxj`.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from curate.fetch.download import Outcome
from curate.fetch.file_lists import COMMON_CRAWL
from curate.fetch.transfer import FileToFetch
from llmcurate.base.disk.files import is_below, remove, replacing, text_digest, write_text
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed, UsageError
from llmcurate.version import __version__

SERVER = "https://index.commoncrawl.org"
MOST_PAGES = 100_000
_ROWS = re.compile(r"(?:.*\.(?:cdxj?|parquet|pq)|cdx-\d+)(?:\.gz)?", re.I)
# The column names of each value in CDXJ, in the columnar index, and in WAT.
_NAMES = {
    "url": ("url", "warc_target_uri"),
    "file": ("filename", "warc_filename", "wat.file"),
    "offset": ("offset", "warc_record_offset", "wat.offset"),
    "length": ("length", "warc_record_length", "wat.length"),
    "digest": ("digest", "content_digest"),
}


@dataclass(frozen=True, order=True)
class Capture:
    """One record of a web archive."""

    file: str  # path of the archive below the base URL
    offset: int  # of the record in the archive, in bytes
    length: int  # in bytes
    url: str | None = None
    digest: str | None = None  # SHA-1 of the payload in base32, None if unknown


@dataclass(frozen=True)
class Query:
    """A query to a CDX server."""

    patterns: tuple[str, ...]
    match: str = "domain"  # the parameter matchType
    crawls: tuple[str, ...] = ()  # names; none: the newest crawl
    filters: tuple[str, ...] = ("=status:200",)  # FIELD:REGEX, in the server's syntax
    server: str = SERVER

    @property
    def key(self) -> str:
        stated = [self.patterns, self.match, self.crawls, self.filters, self.server]
        return text_digest(json.dumps(stated))[:12]


def is_rows(argument: str) -> bool:
    """Return True if an argument is, by its name, a local file of URL index rows."""
    return "://" not in argument and _ROWS.fullmatch(Path(argument).name) is not None


def local_captures(path: str) -> Iterator[Capture]:
    """Yield the captures in a local file of URL index rows. Raises UsageError for a bad row."""
    if path.lower().endswith((".parquet", ".pq")):
        yield from _parquet(path)
        return
    try:
        data = Path(path).read_bytes()
        text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    yield from parsed(text.decode("utf-8", "replace").splitlines(), path)


def _parquet(path: str) -> Iterator[Capture]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            have = set(file.schema_arrow.names)
            names = [name for others in _NAMES.values() for name in others if name in have]
            for batch in file.iter_batches(columns=names):
                for row in batch.to_pylist():
                    yield _capture(row, path)
    except (pa.ArrowInvalid, OSError) as error:
        raise UsageError(f"{path}: {str(error).splitlines()[0]}") from None


def parsed(lines: Iterable[str], source: str) -> Iterator[Capture]:
    """Yield the captures from lines of CDXJ (`KEY TIME JSON`) or JSONL."""
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        try:
            row = json.loads(line[line.index("{") :])
        except ValueError:
            raise UsageError(f"{source}:{number} is not a row of CDXJ or JSON") from None
        yield _capture(row, f"{source}:{number}")


def _capture(row: dict[str, Any], where: str) -> Capture:
    values = {
        ours: next((row[name] for name in names if row.get(name) is not None), "")
        for ours, names in _NAMES.items()
    }
    try:
        file, offset, length = values["file"], int(values["offset"]), int(values["length"])
    except (TypeError, ValueError):
        file, offset, length = None, -1, 0
    if not isinstance(file, str) or not file or offset < 0 or length <= 0:
        raise UsageError(f"{where}: a row needs the archive's name, an offset and a length")
    url, digest = (str(values[name]) if values[name] else None for name in ("url", "digest"))
    return Capture(file, offset, length, url, digest)


Download = Callable[[Sequence[FileToFetch]], dict[str, str]]  # returns URL -> reason of failure


def captures_of(query: Query, folder: Path, download: Download) -> list[Capture]:
    """Return the captures that a CDX server lists. The server's answers are stored in the folder,
    so the same query asks only for missing pages. Raises RunFailed if a page cannot be fetched."""
    captures: list[Capture] = []
    for crawl in _crawls(query, folder, download):
        for pattern in query.patterns:
            asks = [("url", pattern), ("matchType", query.match), ("output", "json")]
            asks += [("filter", text) for text in query.filters]
            base = f"{query.server.rstrip('/')}/{crawl}-index?{urlencode(asks)}"
            stem = text_digest(base)[:16]
            count = _answer(f"{base}&showNumPages=true", folder / f"{stem}.pages", download)
            for page in range(_pages(count, pattern)):
                name = folder / f"{stem}-{page:05d}.cdxj"
                text = _answer(f"{base}&page={page}", name, download)
                captures += parsed(text.splitlines(), str(name))
    return captures


def _crawls(query: Query, folder: Path, download: Download) -> Sequence[str]:
    if query.crawls:
        return query.crawls
    settled = folder / f"{query.key}.crawl"
    if settled.is_file():
        return [settled.read_text(encoding="utf-8")]
    listing = folder / "collinfo.json"
    listing.unlink(missing_ok=True)
    text = _answer(f"{query.server.rstrip('/')}/collinfo.json", listing, download)
    try:
        newest = str(json.loads(text)[0]["id"])
    except (ValueError, LookupError, TypeError):
        raise RunFailed(
            f"{query.server}/collinfo.json lists no crawl: name one with --crawl"
        ) from None
    write_text(settled, newest)
    return [newest]


def _answer(url: str, target: Path, download: Download) -> str:
    reason = download([FileToFetch(url, target)]).get(url)
    if reason is None:
        return target.read_text(encoding="utf-8", errors="replace")
    if "answers 404" in reason and "-index?" in url:
        write_text(target, "")
        return ""
    raise RunFailed(f"{url}: {reason}")


def _pages(text: str, pattern: str) -> int:
    try:
        stated = json.loads(text or "0")
        pages = int(stated["pages"] if isinstance(stated, dict) else stated)
    except (ValueError, KeyError, TypeError):
        raise RunFailed(f"the index does not report the number of pages for {pattern!r}") from None
    if not 0 <= pages <= MOST_PAGES:
        raise RunFailed(f"the index reports {counted(pages, 'page')} for {pattern!r}")
    return pages


RECORDS = 1000  # per WARC file
MOST_RECORD = 1 << 30  # bytes that a record may unpack to
_HEAD = 1 << 16  # bytes in which a record's headers must end
_MEMBER = "{:05d}.warc.gz"


@dataclass
class Fetched:
    """The result of `fetch_captures`. Records that another try may fetch are in `failed`; records
    that are left out for good are in `missing`."""

    files: list[Path] = field(default_factory=list)
    captures: int = 0
    there: int = 0  # WARC files that existed before
    missing: dict[str, str] = field(default_factory=dict)  # {URL with range: reason}
    failed: dict[str, str] = field(default_factory=dict)  # the same
    bytes: int = 0  # number of bytes received


def member_url(capture: Capture, base: str | None) -> str:
    """Return the URL of a record: the URL of its archive and `#bytes=OFFSET+LENGTH`. Raises
    UsageError if there is no base URL or the archive's name is no path below it."""
    if not is_below(capture.file):
        raise UsageError(f"{capture.file[:100]!r} is not the path of an archive below --base")
    if base is None and not capture.file.startswith("crawl-data/"):
        raise UsageError(f"{capture.file[:100]} is not a URL: give its base URL with --base")
    home = COMMON_CRAWL if base is None else base if base.endswith("/") else f"{base}/"
    return f"{home}{quote(capture.file)}#bytes={capture.offset}+{capture.length}"


def fetch_captures(
    captures: Sequence[Capture],
    folder: Path,
    name: str,
    base: str | None,
    download: Callable[[Sequence[FileToFetch]], Outcome],
    say: Callable[[str], None],
    records: int = RECORDS,
) -> Fetched:
    """Fetch captures into WARC files of `records` records each. download: a function that fetches
    files, as `download.download` does. say(line): called for each record that differs from the
    index."""
    chosen = sorted({(c.file, c.offset): c for c in sorted(captures)}.values())
    result = Fetched(captures=len(chosen))
    urls = [
        member_url(capture, base) for capture in chosen
    ]  # all are checked before the first request
    key = text_digest(json.dumps([[c.file, c.offset, c.length] for c in chosen]))[:8]
    stem = f"{re.sub(r'[^A-Za-z0-9._-]+', '-', name).strip('.-')[:60] or 'captures'}-{key}"
    for number, first in enumerate(range(0, len(chosen), records)):
        target = folder / f"{stem}-{number:05d}.warc.gz"
        part = chosen[first : first + records]
        if target.is_file():
            result.there += 1
            result.files.append(target)
            if _missing(target).is_file():
                for capture in local_captures(str(_missing(target))):
                    result.missing[member_url(capture, base)] = "it was left out before"
            continue
        _part(part, urls[first : first + records], target, download, say, result)
    return result


def _part(
    part: Sequence[Capture],
    urls: Sequence[str],
    target: Path,
    download: Callable[[Sequence[FileToFetch]], Outcome],
    say: Callable[[str], None],
    result: Fetched,
) -> None:
    members = target.with_name(f".{target.name}.records")
    paths = [members / _MEMBER.format(n) for n in range(len(part))]
    files = [FileToFetch(u, p, most=c.length) for u, p, c in zip(urls, paths, part, strict=True)]
    outcome = download(files)
    result.bytes += outcome.bytes
    failed = {u: why for u, why in outcome.failed.items() if u not in outcome.refused}
    if failed:
        result.failed |= failed
        return
    left_out = {u: why for u, why in outcome.failed.items() if u in outcome.refused}
    good: list[Path] = []
    for url, path, capture in zip(urls, paths, part, strict=True):
        if url not in left_out and (reason := wrong_record(path, capture)):
            left_out[url] = reason
            say(f"{url}: {reason}")
        if url not in left_out:
            good.append(path)
    result.missing |= left_out
    if left_out:
        rows = [asdict(c) for c, u in zip(part, urls, strict=True) if u in left_out]
        lines = [json.dumps({"filename": row.pop("file"), **row}) + "\n" for row in rows]
        write_text(_missing(target), "".join(lines))
    if good:
        with replacing(target) as aside, open(aside, "wb") as whole:
            whole.write(_warcinfo(target.name, len(good)))
            for path in good:
                with open(path, "rb") as member:
                    if member.read(5) == b"WARC/":  # the archive was not compressed
                        whole.write(gzip.compress(path.read_bytes(), mtime=0))
                        continue
                    member.seek(0)
                    shutil.copyfileobj(member, whole)
        result.files.append(target)
    remove(members, inside=target.parent)


def _missing(target: Path) -> Path:
    return target.with_name(target.name.replace(".warc.gz", ".missing.cdxj"))


def wrong_record(path: Path, capture: Capture) -> str | None:
    """Return the reason why a file is not the record that the index describes, or None if it is.
    The file must be one whole gzip member, or a plain record. Its URL and payload digest are
    compared if both the record and the index state them."""
    data = path.read_bytes()
    if len(data) != capture.length:
        return f"it has {len(data)} bytes, not {capture.length}"
    head = data[:_HEAD]
    if data[:2] == b"\x1f\x8b":
        inflate = zlib.decompressobj(31)
        try:
            head = inflate.decompress(data, _HEAD)
            size, rest = len(head), inflate.unconsumed_tail
            while rest and not inflate.eof and size <= MOST_RECORD:
                size += len(inflate.decompress(rest, 1 << 20))
                rest = inflate.unconsumed_tail
            if not inflate.eof:
                inflate.flush()
        except zlib.error as error:
            return f"it does not unpack: {str(error).rsplit(': ', 1)[-1]}"
        if not inflate.eof or inflate.unused_data:
            return "it is not one whole gzip member"
    if head[:5] != b"WARC/":
        return "it is not a WARC record"
    fields = {
        name.strip().lower(): value.strip()
        for name, _, value in (
            line.partition(b":") for line in head.partition(b"\r\n\r\n")[0].splitlines()[1:]
        )
    }
    url = fields.get(b"warc-target-uri", b"").strip(b"<>").decode("utf-8", "replace")
    if capture.url and url and url != capture.url:
        return f"it is the record of {url[:100]}, not {capture.url[:100]}"
    digest = fields.get(b"warc-payload-digest", b"").decode("ascii", "replace")
    if capture.digest and digest:
        stated = capture.digest.rpartition(":")[2].upper()
        if digest.rpartition(":")[2].upper() != stated:
            return f"its payload has the digest {digest[:60]}, not {stated[:60]}"
    return None


def _warcinfo(name: str, records: int) -> bytes:
    body = f"software: llmcurate/{__version__}\r\nformat: WARC File Format 1.1\r\n"
    body += f"description: {counted(records, 'record')} fetched by range from a URL index\r\n"
    lines = [
        "WARC/1.1",
        "WARC-Type: warcinfo",
        f"WARC-Record-ID: <urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, name)}>",
        "WARC-Date: 1970-01-01T00:00:00Z",  # fixed, so that the file does not change
        f"WARC-Filename: {name}",
        "Content-Type: application/warc-fields",
        f"Content-Length: {len(body)}",
    ]
    return gzip.compress(("\r\n".join(lines) + f"\r\n\r\n{body}\r\n\r\n").encode(), mtime=0)
