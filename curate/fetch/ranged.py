"""Captures fetched by range, checked, and joined to WARC files of a fixed number of records.

A part's records lie in a hidden folder beside it until all are there, each a file that is fetched
as any other is: gone on with, tried again. Then they become `NAME-00000.warc.gz`, in the order of
archive and offset, behind a `warcinfo` record that says of what. So the same command goes on where
it stopped, and its files do not depend on how often that was. Records that a server refuses, or
that are not what the index says, are left out and listed in `NAME-00000.missing.cdxj`, which
`fetch` takes as well.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import uuid
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import quote

from curate.fetch.captures import Capture, local_captures
from curate.fetch.download import Outcome
from curate.fetch.file_lists import COMMON_CRAWL
from curate.fetch.transfer import Wanted
from llmcurate.base.disk.files import replacing, text_digest, write_text
from llmcurate.base.disk.safe_paths import is_below, remove
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from llmcurate.version import __version__

RECORDS = 1000  # of a part
MOST_RECORD = 1 << 30  # bytes that a record may unpack to
_HEAD = 1 << 16  # bytes in which a record's head ends
_MEMBER = "{:05d}.warc.gz"


@dataclass
class Fetched:
    """What became of captures. missing: URL with range -> why it is left out for good; failed: the
    same of those that another try may bring."""

    files: list[Path] = field(default_factory=list)
    captures: int = 0
    there: int = 0
    missing: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    bytes: int = 0


def member_url(capture: Capture, base: str | None) -> str:
    """The URL of a record: `#bytes=OFFSET+LENGTH` behind that of its archive. UsageError where the
    archive's name is no path below the base, or there is no base."""
    if not is_below(capture.file):
        raise UsageError(f"{capture.file[:100]!r} is no path of an archive below --base")
    if base is None and not capture.file.startswith("crawl-data/"):
        raise UsageError(f"{capture.file[:100]} has no URL: give what stands before it by --base")
    home = COMMON_CRAWL if base is None else base if base.endswith("/") else f"{base}/"
    return f"{home}{quote(capture.file)}#bytes={capture.offset}+{capture.length}"


def fetch_captures(
    captures: Sequence[Capture],
    folder: Path,
    name: str,
    base: str | None,
    download: Callable[[Sequence[Wanted]], Outcome],
    say: Callable[[str], None],
    records: int = RECORDS,
) -> Fetched:
    """Fetches captures into WARC files of so many records.

    download: fetches files as `download.download` does; say: is told of each record left out.
    """
    chosen = sorted({(c.file, c.offset): c for c in sorted(captures)}.values())
    result = Fetched(captures=len(chosen))
    urls = [member_url(capture, base) for capture in chosen]  # all are checked before any is asked
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
    download: Callable[[Sequence[Wanted]], Outcome],
    say: Callable[[str], None],
    result: Fetched,
) -> None:
    """One file of records, unless some of them did not come."""
    members = target.with_name(f".{target.name}.records")
    paths = [members / _MEMBER.format(n) for n in range(len(part))]
    files = [Wanted(u, p, most=c.length) for u, p, c in zip(urls, paths, part, strict=True)]
    outcome = download(files)
    result.bytes += outcome.bytes
    failed = {u: why for u, why in outcome.failed.items() if u not in outcome.refused}
    if failed:
        result.failed |= failed
        return
    gone = {u: why for u, why in outcome.failed.items() if u in outcome.refused}
    good: list[Path] = []
    for url, path, capture in zip(urls, paths, part, strict=True):
        if url not in gone and (reason := wrong_record(path, capture)):
            gone[url] = reason
            say(f"{url}: {reason}")
        if url not in gone:
            good.append(path)
    result.missing |= gone
    if gone:
        rows = [asdict(c) for c, u in zip(part, urls, strict=True) if u in gone]
        lines = [json.dumps({"filename": row.pop("file"), **row}) + "\n" for row in rows]
        write_text(_missing(target), "".join(lines))
    if good:
        with replacing(target) as aside, open(aside, "wb") as whole:
            whole.write(_warcinfo(target.name, len(good)))
            for path in good:
                with open(path, "rb") as member:
                    if member.read(5) == b"WARC/":  # of an archive that is not compressed
                        whole.write(gzip.compress(path.read_bytes(), mtime=0))
                        continue
                    member.seek(0)
                    shutil.copyfileobj(member, whole)
        result.files.append(target)
    remove(members, inside=target.parent)


def _missing(target: Path) -> Path:
    """Where the records are listed that are left out of a file."""
    return target.with_name(target.name.replace(".warc.gz", ".missing.cdxj"))


def wrong_record(path: Path, capture: Capture) -> str | None:
    """Why a file is not the record that the index says: one whole gzip member (or a plain record)
    with the URL and the payload digest of the index, where both state them."""
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
            return "it is no whole gzip member"
    if head[:5] != b"WARC/":
        return "it is no WARC record"
    fields = {
        name.strip().lower(): value.strip()
        for name, _, value in (
            line.partition(b":") for line in head.partition(b"\r\n\r\n")[0].splitlines()[1:]
        )
    }
    url = fields.get(b"warc-target-uri", b"").strip(b"<>").decode("utf-8", "replace")
    if capture.url and url and url != capture.url:
        return f"it is of {url[:100]}, not {capture.url[:100]}"
    digest = fields.get(b"warc-payload-digest", b"").decode("ascii", "replace")
    if capture.digest and digest:
        stated = capture.digest.rpartition(":")[2].upper()
        if digest.rpartition(":")[2].upper() != stated:
            return f"its payload has the digest {digest[:60]}, not {stated[:60]}"
    return None


def _warcinfo(name: str, records: int) -> bytes:
    """The first record of a file; it depends on the file's name and content alone."""
    body = f"software: llmcurate/{__version__}\r\nformat: WARC File Format 1.1\r\n"
    body += f"description: {counted(records, 'record')} fetched by range from a URL index\r\n"
    lines = [
        "WARC/1.1",
        "WARC-Type: warcinfo",
        f"WARC-Record-ID: <urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, name)}>",
        "WARC-Date: 1970-01-01T00:00:00Z",  # the records have their own
        f"WARC-Filename: {name}",
        "Content-Type: application/warc-fields",
        f"Content-Length: {len(body)}",
    ]
    return gzip.compress(("\r\n".join(lines) + f"\r\n\r\n{body}\r\n\r\n").encode(), mtime=0)
