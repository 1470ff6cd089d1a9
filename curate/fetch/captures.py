"""Captures: rows of a URL index, each of which says where a page's record lies in an archive.

They come from a CDX server (Common Crawl's by default), page by page and one request at a time,
or from local rows: CDXJ as in an index's files, JSON lines, parquet as in Common Crawl's columnar
index, or a corpus of WAT records.
https://github.com/webrecorder/pywb/wiki/CDX-Server-API
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from curate.fetch.transfer import Wanted
from llmcurate.base.disk.files import text_digest, write_text
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed, UsageError

SERVER = "https://index.commoncrawl.org"
MOST_PAGES = 100_000
_ROWS = re.compile(r"(?:.*\.(?:cdxj?|parquet|pq)|cdx-\d+)(?:\.gz)?", re.I)
# The names of a value: CDXJ's, the columnar index's, WAT's.
_NAMES = {
    "url": ("url", "warc_target_uri"),
    "file": ("filename", "warc_filename", "wat.file"),
    "offset": ("offset", "warc_record_offset", "wat.offset"),
    "length": ("length", "warc_record_length", "wat.length"),
    "digest": ("digest", "content_digest"),
}


@dataclass(frozen=True, order=True)
class Capture:
    """A record in an archive: `length` bytes from `offset` of `file`, a path below the archives'
    base. digest: of the payload, base32 of SHA-1, where the index states it."""

    file: str
    offset: int
    length: int
    url: str | None = None
    digest: str | None = None


@dataclass(frozen=True)
class Query:
    """What is asked of a CDX server. filters: FIELD:REGEX, as the server has them; crawls: none
    for the newest."""

    patterns: tuple[str, ...]
    match: str = "domain"
    crawls: tuple[str, ...] = ()
    filters: tuple[str, ...] = ("=status:200",)
    server: str = SERVER

    @property
    def key(self) -> str:
        """Names the query."""
        stated = [self.patterns, self.match, self.crawls, self.filters, self.server]
        return text_digest(json.dumps(stated))[:12]


def is_rows(argument: str) -> bool:
    """Whether an argument of `fetch` is a local file of rows, by its name."""
    return "://" not in argument and _ROWS.fullmatch(Path(argument).name) is not None


def local_captures(path: str) -> Iterator[Capture]:
    """The captures of a file of rows. UsageError names the first row that is none."""
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
    """The captures of lines of CDXJ (`KEY TIME JSON`) or JSON."""
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        try:
            row = json.loads(line[line.index("{") :])
        except ValueError:
            raise UsageError(f"{source}:{number} is no row of CDXJ or JSON") from None
        yield _capture(row, f"{source}:{number}")


def _capture(row: dict[str, Any], where: str) -> Capture:
    values: dict[str, Any] = {
        ours: next((row[name] for name in names if row.get(name) is not None), None)
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


Download = Callable[[Sequence[Wanted]], dict[str, str]]  # fetches files; URL -> why it did not come


def captures_of(query: Query, folder: Path, download: Download) -> list[Capture]:
    """The captures that a CDX server lists. Its answers stay in the folder, so that the same query
    is asked once, and goes on where it stopped. RunFailed where a page does not come."""
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
    """The crawls that are asked; the newest is settled once a query, since it changes monthly."""
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
            f"{query.server}/collinfo.json lists no crawl: name one by --crawl"
        ) from None
    write_text(settled, newest)
    return [newest]


def _answer(url: str, target: Path, download: Download) -> str:
    """The text behind a URL; empty where the server has no captures, which it calls 404."""
    reason = download([Wanted(url, target)]).get(url)
    if reason is None:
        return target.read_text(encoding="utf-8", errors="replace")
    if "answers 404" in reason and "-index?" in url:
        write_text(target, "")
        return ""
    raise RunFailed(f"{url}: {reason}")


def _pages(text: str, pattern: str) -> int:
    """The number of pages of an answer: a number, or JSON that has it."""
    try:
        stated = json.loads(text or "0")
        pages = int(stated["pages"] if isinstance(stated, dict) else stated)
    except (ValueError, KeyError, TypeError):
        raise RunFailed(f"the index does not say how much it has of {pattern!r}") from None
    if not 0 <= pages <= MOST_PAGES:
        raise RunFailed(f"the index says it has {counted(pages, 'page')} of {pattern!r}")
    return pages
