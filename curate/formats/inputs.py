"""Input files, and the partitions that they are cut into.

The plan depends on the input alone: same files, same plan, for any number of workers. A partition
is one slice of a large file (gzip members or zstd frames of an archive, where verified; line
ranges of plain JSON lines; row groups of parquet) or a run of small files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from curate.disk.files import text_digest
from curate.disk.process import AT_ONCE, in_order
from curate.errors import UsageError
from curate.formats.compression import open_input, sniff, verified_boundaries

FORMATS = {
    "archive": (".warc", ".wet", ".wat", ".arc"),
    "jsonl": (".jsonl", ".ndjson", ".json"),
    "parquet": (".parquet", ".pq"),
    "html": (".html", ".htm", ".xhtml"),
    "text": (".txt", ".text", ".md", ".rst"),
}
PACKING = (".gz", ".zst", ".zstd", ".lz4")
MANY_SLICES = 1000  # small files in one partition at most


@dataclass(frozen=True)
class InputFile:
    """path: as fsspec opens it; rel: below the input as given; stamp: what reuse depends on;
    state: size and time or tag, which a listing shows without opening the file; url: where it was
    fetched from."""

    path: str
    rel: str
    format: str
    codec: str
    size: int
    stamp: str
    state: str = ""
    url: str = ""


@dataclass(frozen=True)
class Slice:
    """A part of a file: bytes [start, end) of an archive or of lines, row groups of parquet."""

    file: int
    start: int
    end: int | None


@dataclass(frozen=True)
class InputPlan:
    """Files, partitions, the columns carried along (name -> kind), and what was passed over."""

    files: tuple[InputFile, ...]
    partitions: tuple[tuple[Slice, ...], ...]
    columns: dict[str, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()

    def dump(self) -> dict[str, Any]:
        """The plan as JSON values."""
        return asdict(self)

    @staticmethod
    def load(data: dict[str, Any]) -> InputPlan:
        """The inverse of `dump`."""
        return InputPlan(
            tuple(InputFile(**f) for f in data["files"]),
            tuple(tuple(Slice(**s) for s in p) for p in data["partitions"]),
            dict(data["columns"]),
            tuple(data["notices"]),
        )

    def fingerprint(self) -> str:
        """Changes when a file is added, removed, or touched, or the partitioning changes."""
        parts = [[f.rel, f.format, f.size, f.stamp] for f in self.files]
        cuts = [[(s.file, s.start, s.end) for s in p] for p in self.partitions]
        data = json.dumps([parts, cuts, sorted(self.columns.items())])
        return text_digest(data)


def format_by_name(name: str) -> str | None:
    """A file's format as its name tells it."""
    lower = name.lower()
    for ending in PACKING:
        lower = lower.removesuffix(ending)
    for kind, endings in FORMATS.items():
        if lower.endswith(endings):
            return kind
    return None


def _format_by_content(path: str) -> str | None:
    from curate.formats.compression import decompressed_chunks

    with open_input(path) as f:
        if f.read(4) == b"PAR1":
            return "parquet"
        f.seek(0)
        head = next(iter(decompressed_chunks(f, None, lambda offset, what: None)), b"")
    head = bytes(head[:512]).lstrip()
    if head.startswith((b"WARC/", b"filedesc://")):
        return "archive"
    if head.startswith(b"{"):
        return "jsonl"
    if head[:15].lower().startswith((b"<!doctype html", b"<html")):
        return "html"
    return None


def _not_documents(path: str, kind: str) -> str | None:
    """Why a file of a known format in a folder holds no documents: its records have no text."""
    if kind == "jsonl":
        from curate.formats.jsonl import sample

        with open_input(path) as f:
            codec = sniff(f)
        records = sample(path, codec, 100)
        if not any("text" in r or "payload" in r for r in records):
            return "no JSON line with a `text` among its first hundred"
    if kind == "parquet":
        from curate.formats.parquet import read_schema

        try:
            read_schema(path)
        except UsageError:
            return "it has no column `text`"
    return None


_TAGS = ("ETag", "etag", "md5Hash", "content_md5", "sha256")


def _when(info: dict[str, Any]) -> Any:
    keys = ("mtime", "LastModified", "Last-Modified", "created")
    return next((info[key] for key in keys if info.get(key)), "")


def _state(info: dict[str, Any]) -> str:
    """Size and tag or time of change, as a listing has them."""
    tag = next((info[key] for key in _TAGS if info.get(key)), None)
    return f"{info.get('size')}@{tag or _when(info)}"


def _stamp(fs: Any, info: dict[str, Any]) -> str:
    """Time of change and the first and last 64 KiB; remote stores give an etag or a checksum."""
    for key in _TAGS:
        if info.get(key):
            return str(info[key])
    import xxhash

    digest = xxhash.xxh3_128()
    with fs.open(info["name"], "rb") as f:
        digest.update(f.read(1 << 16))
        if info["size"] > 1 << 17:
            f.seek(-(1 << 16), 2)
            digest.update(f.read(1 << 16))
    return f"{digest.hexdigest()}@{_when(info)}"


def _expanded(inputs: Iterable[str]) -> Iterable[str]:
    """The inputs, patterns (crawl/*.warc.gz) replaced by what they match, in order of name."""
    import fsspec

    for path in map(str, inputs):
        if not any(c in path for c in "*?["):
            yield path
            continue
        try:
            fs, root = fsspec.core.url_to_fs(path)
            if fs.exists(root):
                yield path
                continue
            matches = sorted(fs.glob(root))
        except (ValueError, ImportError) as error:
            raise _no_way(path, error) from None
        if not matches:
            raise UsageError(f"input {path} matches no file")
        yield from (fs.unstrip_protocol(m) if "://" in path else m for m in matches)


def _no_way(path: str, error: Exception) -> UsageError:
    """What to do where no package is there that opens such a URL."""
    if isinstance(error, ImportError) and path.lower().startswith(("http://", "https://")):
        return UsageError(
            f"input {path}: fetch it first (llmcurate fetch URL -o DIR), or in a run with --set"
            " read.fetch=DIR; with aiohttp and requests installed it is read where it is"
        )
    if isinstance(error, ImportError) and path.lower().startswith("s3://"):
        return UsageError(f"input {path}: pip install 'llmcurate[s3]'")
    return UsageError(f"input {path}: {error}")


def find_files(
    inputs: Iterable[str],
    is_known: Callable[[str, str], bool] = lambda path, state: False,
    at_once: int = AT_ONCE,
) -> tuple[list[InputFile], list[str]]:
    """The files that the inputs mean, in the order given and by name within a folder.

    A folder that llmcurate wrote (it holds corpus/manifest.json) means its corpus. UsageError for
    a missing input or a named file of no known format; unknown files in folders are noticed.
    is_known(path, state): whether a file in that state (`InputFile.state`) is passed over,
    unopened.
    """
    with _readable():
        return _files(inputs, is_known, at_once)


@contextmanager
def _readable() -> Iterator[None]:
    """Names the file that the system does not let us read."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is None:
            raise
        raise UsageError(f"input {error.filename}: {error.strerror}") from None


@dataclass(frozen=True)
class _Listed:
    """A file as its folder lists it. location: the input that means it; folder: whether that is
    one; notice: why it is passed over, unopened; skip: whether it need not be looked at."""

    location: str
    folder: bool
    fs: Any
    path: str
    rel: str
    info: dict[str, Any] = field(default_factory=dict)
    notice: str = ""
    skip: bool = False


def _files(
    inputs: Iterable[str], is_known: Callable[[str, str], bool], at_once: int
) -> tuple[list[InputFile], list[str]]:
    listed = [file for path in _expanded(inputs) for file in _listed(path, is_known)]
    files: list[InputFile] = []
    notices: list[str] = []
    holds = {file.location: False for file in listed}
    for file, file_or_notice in zip(listed, in_order(_looked_at, listed, at_once), strict=True):
        if isinstance(file_or_notice, str):
            notices.append(file_or_notice)
            continue
        holds[file.location] = True
        if file_or_notice is not None:
            files.append(file_or_notice)
    for path, has_files in holds.items():
        if not has_files:
            raise _holds_none(path)
    return files, notices


def _holds_none(path: str) -> UsageError:
    return UsageError(f"input {path} holds no file of a known format")


def _listed(location: str, is_known: Callable[[str, str], bool]) -> Iterator[_Listed]:
    """The files that one input means."""
    import fsspec

    try:
        fs, root = fsspec.core.url_to_fs(location)
        exists = fs.exists(root)
    except (ValueError, ImportError) as error:
        raise _no_way(location, error) from None
    if not exists:
        raise UsageError(f"input {location} does not exist")
    folder = fs.isdir(root)
    if folder and fs.exists(f"{root}/corpus/manifest.json"):
        root = f"{root}/corpus"
    some = False
    for name in sorted(fs.find(root)) if folder else [root]:
        rel = name[len(root) :].lstrip("/") if folder else PurePosixPath(name).name
        hidden = any(p.startswith((".", "_")) for p in PurePosixPath(rel).parts)
        if folder and (hidden or PurePosixPath(rel).name in ("manifest.json", "SUCCESS")):
            continue
        some = True
        path = fs.unstrip_protocol(name) if "://" in location else name
        try:
            info = fs.info(name)
        except FileNotFoundError:
            info = {"type": "broken link"}
        if folder and info["type"] != "file":  # a pipe, a socket
            notice = f"skipped {path}: no regular file"
            yield _Listed(location, folder, fs, path, rel, info, notice)
        else:
            seen = is_known(path, _state(info))
            yield _Listed(location, folder, fs, path, rel, info, skip=seen)
    if not some:
        raise _holds_none(location)


def _looked_at(file: _Listed) -> InputFile | str | None:
    """What it is; why it is passed over; None where it need not be looked at."""
    if file.notice or file.skip:
        return file.notice or None
    path, rel, info = file.path, file.rel, file.info
    kind = format_by_name(rel) or _format_by_content(path)
    if kind is None:
        if not file.folder:
            raise UsageError(
                f"input {file.location}: not a format this tool reads (WARC, ARC, WET, JSON lines,"
                " parquet, HTML or plain text)"
            )
        return f"skipped {path}: unknown format"
    if file.folder and (reason := _not_documents(path, kind)):
        return f"skipped {path}: {reason}"
    codec = "plain"
    if kind != "parquet":
        with open_input(path) as f:
            codec = sniff(f)
    return InputFile(path, rel, kind, codec, info["size"], _stamp(file.fs, info), _state(info))


def _slices(numbered: tuple[int, InputFile], target: int) -> list[Slice]:
    number, file = numbered
    if file.format == "parquet":
        from curate.formats.parquet import row_group_slices

        return [Slice(number, a, b) for a, b in row_group_slices(file.path, target)]
    starts = [0]
    if file.size > target + target // 2:
        if file.format == "archive" and file.codec != "plain":
            with open_input(file.path) as f:
                starts = verified_boundaries(f, file.size, target)
        elif file.format == "jsonl" and file.codec == "plain":
            starts = list(range(0, file.size, target))
            if len(starts) > 1 and file.size - starts[-1] < target // 2:
                starts.pop()
    ends = [*starts[1:], None]
    return [Slice(number, a, b) for a, b in zip(starts, ends, strict=True)]


def plan_inputs(
    inputs: Iterable[str],
    partition_bytes: int = 16 << 20,
    sample_lines: int = 1000,
    at_once: int = AT_ONCE,
) -> InputPlan:
    """Files cut into partitions of about partition_bytes (stored size); at_once: files that are
    looked at together, which changes nothing else."""
    files, notices = find_files(inputs, at_once=at_once)
    return plan_files(files, notices, partition_bytes, sample_lines, at_once)


def plan_files(
    files: list[InputFile],
    notices: list[str],
    partition_bytes: int,
    sample_lines: int = 1000,
    at_once: int = AT_ONCE,
) -> InputPlan:
    """The same of files that are found already."""
    with _readable():
        return _planned(files, notices, partition_bytes, sample_lines, at_once)


def _planned(
    files: list[InputFile],
    notices: list[str],
    partition_bytes: int,
    sample_lines: int,
    at_once: int,
) -> InputPlan:
    from curate.formats.column_plan import carried_columns

    partitions: list[tuple[Slice, ...]] = []
    group: list[Slice] = []
    weight = 0
    cut = partial(_slices, target=partition_bytes)
    for file, slices in zip(files, in_order(cut, list(enumerate(files)), at_once), strict=True):
        small = len(slices) == 1 and file.size < partition_bytes // 4
        if group and (not small or weight + file.size > partition_bytes // 2):
            partitions.append(tuple(group))
            group, weight = [], 0
        if not small:
            partitions.extend((s,) for s in slices)
            continue
        group.append(slices[0])
        weight += file.size
        if len(group) >= MANY_SLICES:
            partitions.append(tuple(group))
            group, weight = [], 0
    if group:
        partitions.append(tuple(group))
    columns = carried_columns(files, sample_lines, at_once)
    return InputPlan(tuple(files), tuple(partitions), columns, tuple(notices))
