"""The search index of a corpus: the text of its documents and their suffix arrays, in chunks.

An index is a folder with these files, here for chunk 3:

- `search-00003.text`: documents, each followed by the byte 0xFF, which never occurs in UTF-8, so no
  match spans two documents
- `search-00003.order` (int32): the sorted positions of the chunk's suffixes
- `search-starts.u64`: where each document starts in the text of all chunks
- `search-ids.arrow`: the ids of the documents
- `search.json`: the sizes and checksums of all other files; written last

Files are mapped into memory. They are read whole when an index is first opened, to compare
checksums. Positions in an order are checked at every search, because checksums do not protect
against malicious files."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curate.corpus import journal
from curate.corpus.shuffle.tasks import FolderTask, run_tasks
from curate.corpus.sketches import Run, run_here
from llmcurate.base.disk.files import (
    cache_folder,
    clear_temporary,
    file_digest,
    path_inside,
    replacing,
    text_digest,
    write_text,
)
from llmcurate.base.errors import RunFailed, UsageError

RECORD, STARTS, IDS = "search.json", "search-starts.u64", "search-ids.arrow"
FORMAT, VERSION = "llmcurate-search", 1
END = 0xFF
_PEAK = 5  # bytes of memory per byte of a chunk while it is sorted
_MOST = 2**31 - 1  # bytes per chunk, because positions are 32 bits
_NOTED = 64 << 20  # bytes; comparisons of larger indexes are cached, as reading takes 20 ms
AGAIN = "make it again with `llmcurate search build IN -o OUT` or the run that made it"


def _name(kind: str, chunk: int) -> str:
    return f"search-{chunk:05d}.{kind}"


def _digest(record: dict[str, Any]) -> str:
    text = json.dumps({k: v for k, v in record.items() if k != "digest"}, sort_keys=True)
    return text_digest(text, "xxh3-128")


def chunk_bytes(sort_bytes: int, most: int = _MOST) -> int:
    """Return the size of a chunk that can be sorted in `sort_bytes` bytes of memory."""
    return min(max(sort_bytes // _PEAK, 1), most)


def is_complete(folder: Path) -> bool:
    return (folder / RECORD).is_file()


class IndexWriter:
    """Builds a search index: `add` documents in order, then `close`. A folder must always get the
    same documents: chunks sorted by a killed process are used again."""

    def __init__(self, folder: Path, sort_bytes: int, most: int = _MOST) -> None:
        """Begin an index. `sort_bytes` is the memory for sorting, `most` the size of a chunk."""
        folder.mkdir(parents=True, exist_ok=True)
        clear_temporary(folder)
        self._folder = folder
        self._size, self._most = chunk_bytes(sort_bytes, most), most
        self._chunks: list[dict[str, int]] = []
        self._tasks: list[FolderTask] = []  # chunks that are not sorted yet
        self._text = np.empty(0, np.uint8)  # of the current chunk
        self._held = self._documents = self._bytes = self._of_chunk = 0
        self._starts = (folder / ".part-starts").open("wb")
        self._schema = pa.schema([("id", pa.large_string())])
        self._ids = pa.OSFile(str(folder / ".part-ids"), "wb")
        self._id_writer = pa.ipc.new_file(self._ids, self._schema)

    def add(self, ids: pa.Array, texts: pa.LargeStringArray) -> None:
        """Add the next documents. Raises RunFailed if a document is larger than a chunk can be."""
        from curate.text.buffers import text_buffers

        data, offsets = text_buffers(texts)
        self._id_writer.write_batch(
            pa.record_batch([ids.cast(pa.large_string())], schema=self._schema)
        )
        sizes = np.diff(offsets) + 1
        (self._bytes + np.cumsum(sizes) - sizes).astype("<u8").tofile(self._starts)
        first = 0
        while first < len(sizes):
            fits = np.searchsorted(np.cumsum(sizes[first:]), self._size - self._held, side="right")
            if fits == 0 and self._held:
                self._close_chunk()
                continue
            stop = first + max(int(fits), 1)
            size = int(sizes[first:stop].sum())
            if size > self._most:
                raise RunFailed(
                    f"document {ids[first].as_py()} has {size:,} bytes, too many for a search"
                    " index; set keep_index to false, or drop such documents first"
                )
            if self._held + size > len(self._text):
                self._text = np.empty(max(self._size, size), np.uint8)
            out = self._text[self._held : self._held + size]
            ends = np.cumsum(sizes[first:stop]) - 1
            keep = np.ones(size, np.bool_)
            keep[ends] = False
            out[ends] = END
            out[keep] = data[offsets[first] : offsets[stop]]
            self._held += size
            self._of_chunk += stop - first
            self._documents += stop - first
            self._bytes += size
            first = stop

    def _close_chunk(self) -> None:
        number = len(self._chunks)
        text = self._text[: self._held]
        path, order = (self._folder / _name(kind, number) for kind in ("text", "order"))
        same_size = path.is_file() and path.stat().st_size == len(text)
        same = same_size and np.array_equal(np.memmap(path, np.uint8, "r"), text)
        if not (order.exists() and same):
            order.unlink(missing_ok=True)
            with replacing(path) as aside:
                text.tofile(aside)
            self._tasks.append(FolderTask(number, self._folder))
        self._chunks.append(
            {"base": self._bytes - self._held, "bytes": self._held, "documents": self._of_chunk}
        )
        self._held = self._of_chunk = 0

    def close(self, run: Run = run_here) -> dict[str, int]:
        """Write the last chunk, the sorted suffixes and `search.json`. Return the numbers of
        documents, bytes and chunks. `run` runs the tasks that sort the chunks."""
        if self._held:
            self._close_chunk()
        self._text = np.empty(0, np.uint8)
        run_tasks(run, f"{__name__}:sort_suffixes", self._tasks)
        self._id_writer.close()
        self._ids.close()
        self._starts.close()
        (self._folder / ".part-starts").replace(self._folder / STARTS)
        (self._folder / ".part-ids").replace(self._folder / IDS)
        for name in (STARTS, IDS):
            journal.note(self._folder / name)
        names = [_name(k, i) for i in range(len(self._chunks)) for k in ("text", "order")]
        record = {
            "format": FORMAT,
            "version": VERSION,
            "documents": self._documents,
            "bytes": self._bytes,
            "chunks": self._chunks,
            "files": {n: (self._folder / n).stat().st_size for n in [*names, STARTS, IDS]},
            "xxh3": {n: file_digest(self._folder / n, "xxh3-128") for n in [*names, STARTS, IDS]},
        }
        record["digest"] = _digest(record)
        write_text(self._folder / RECORD, json.dumps(record, indent=1) + "\n")
        return {"documents": self._documents, "bytes": self._bytes, "chunks": len(self._chunks)}


def sort_suffixes(task: FolderTask) -> None:
    """Run a task: sort the suffixes of a chunk. The task takes five bytes per byte of text."""
    from curate.dedup.suffix_array.merge import suffix_array

    text, order = (task.file(f"search.{kind}") for kind in ("text", "order"))
    with replacing(order) as aside:
        suffix_array(np.fromfile(text, np.uint8)).astype("<i4", copy=False).tofile(aside)


@dataclass(frozen=True)
class Chunk:
    """A chunk of the corpus. `text` is uint8[bytes]. `order` is int32[bytes], the sorted suffixes.
    `base` is the position of the chunk in the text of all chunks."""

    text: np.ndarray
    order: np.ndarray
    base: int


class SearchIndex:
    """An open search index. Its files are mapped, and read only where needed."""

    def __init__(self, folder: Path) -> None:
        """Open the index in `folder`. Raises UsageError if the folder has no usable index."""
        self.folder = folder
        try:
            self.documents, self.bytes, chunks = _checked(folder)
            self.chunks: list[Chunk] = []
            base = 0
            for i in range(chunks):
                text = np.asarray(np.memmap(folder / _name("text", i), np.uint8, "r"))
                order = np.asarray(np.memmap(folder / _name("order", i), "<i4", "r"))
                self.chunks.append(Chunk(text, order, base))
                base += len(text)
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError):
            raise self.damaged("its record") from None

    def damaged(self, what: str) -> UsageError:
        """Return the error for a damaged index. `what` is the part that is damaged."""
        return UsageError(f"{self.folder}: the search index is damaged ({what}); {AGAIN}")

    @cached_property
    def starts(self) -> np.ndarray:
        """The start of each document in the text of all chunks, uint64[documents]."""
        if not self.documents:
            return np.empty(0, np.uint64)
        try:
            return np.asarray(np.memmap(self.folder / STARTS, "<u8", "r"))
        except ValueError:  # its size is 0 or no multiple of 8
            raise self.damaged(STARTS) from None

    @cached_property
    def _ids(self) -> pa.ChunkedArray:
        return pa.ipc.open_file(pa.memory_map(str(self.folder / IDS))).read_all().column("id")

    def document_of(self, position: int) -> tuple[int, int]:
        """Return (number of the document, byte in it) at a position in the text of all chunks."""
        number = int(np.searchsorted(self.starts, np.uint64(position), side="right")) - 1
        if number < 0:
            raise self.damaged(STARTS)
        return number, position - int(self.starts[number])

    def id_of(self, number: int) -> str:
        try:
            name: str = self._ids[number].as_py()
        except (IndexError, KeyError, ValueError, OSError):  # Arrow's errors are among these
            raise self.damaged(IDS) from None
        return name

    def around(self, chunk: Chunk, position: int, size: int, context: int) -> tuple[str, str, str]:
        """Return (before, match, after). The match is chunk.text[position : position + size]; on
        each side are up to `context` bytes of the same document, in whole characters."""
        text = chunk.text
        a = max(0, position - context)
        before = bytes(text[a:position]).rpartition(b"\xff")[2]
        after = bytes(text[position + size : position + size + context]).partition(b"\xff")[0]
        match = bytes(text[position : position + size])
        return (
            before.decode("utf-8", "ignore"),
            match.decode("utf-8", "replace"),
            after.decode("utf-8", "ignore"),
        )


def find_folder(location: Path) -> Path:
    """Return the folder of the search index at `location`: this folder itself, or the index in an
    OUT or in the folder of a step. Raises UsageError if there is no index or more than one."""
    if not location.exists():
        raise UsageError(f"{location}: no such folder")
    candidates = [location, location / "own"]
    candidates += sorted(p.parent for p in location.glob(f"*/own/{RECORD}"))
    candidates += sorted(p.parent for p in location.glob(f"index/*/own/{RECORD}"))
    folders = [path for path in candidates if is_complete(path)]
    if not folders:
        raise UsageError(
            f"{location} has no search index; make one with `llmcurate search build IN -o OUT`, or"
            " with a dedup_suffix_array run with keep_index"
        )
    if len(folders) > 1:
        names = ", ".join(str(p) for p in folders)
        raise UsageError(f"{location} has {len(folders)} search indexes; name one of: {names}")
    return folders[0]


def _checked(folder: Path) -> tuple[int, int, int]:
    path = folder / RECORD
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise UsageError(f"{path} is not an index record; {AGAIN}") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise UsageError(f"{path} is not a search index; {AGAIN}")
    if record.get("version") != VERSION:
        raise UsageError(f"{path} has version {record.get('version')}, expected {VERSION}; {AGAIN}")
    if record.get("digest") != _digest(record):
        raise UsageError(f"{path} was changed or damaged (its checksum differs); {AGAIN}")
    for name, size in record["files"].items():
        file = path_inside(folder, name, path)
        have = file.stat().st_size if file.is_file() else -1
        if have != size:
            state = "is missing" if have < 0 else f"has {have} bytes instead of {size}"
            raise UsageError(f"{file} {state}; {AGAIN}")
    _compare(folder, record["xxh3"])
    return int(record["documents"]), int(record["bytes"]), len(record["chunks"])


def _compare(folder: Path, digests: dict[str, str]) -> None:
    """Raises UsageError if a file differs from its checksum. Reading takes a second per GB, so for
    a large index a note in the cache says that all files matched. It is valid while sizes and
    modification times do not change."""
    states = [(folder / name).stat() for name in sorted(digests)]
    note = None
    if sum(state.st_size for state in states) >= _NOTED:
        with suppress(RuntimeError):  # without a home folder there is no cache
            name = text_digest(str(folder.resolve()), "xxh3-128")
            note = cache_folder() / "verified" / f"{name}.json"
    verified = json.dumps([sorted(digests.items()), [(s.st_size, s.st_mtime_ns) for s in states]])
    if note is not None and note.is_file() and note.read_text(encoding="utf-8") == verified:
        return
    for name, digest in digests.items():
        if file_digest(path_inside(folder, name, folder / RECORD), "xxh3-128") != digest:
            raise UsageError(f"{folder / name} was changed or damaged; {AGAIN}")
    if note is not None:
        with suppress(OSError):
            note.parent.mkdir(parents=True, exist_ok=True)
            write_text(note, verified)
