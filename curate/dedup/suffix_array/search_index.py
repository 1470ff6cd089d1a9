"""The search index of a corpus: its documents' text and the order of all its suffixes, in chunks.

A folder holds, for chunk 3, `search-00003.text` (the documents, each with the byte 0xFF behind it,
which no UTF-8 text holds: so no match of a text reaches from one document into the next) and
`search-00003.order` (int32, the positions of its suffixes in their order); `search-starts.u64`
(where each document starts in the whole), `search-ids.arrow`, and last `search.json`, which says
what all of these are, with their sizes and checksums. Files are mapped; they are read whole where
their checksums are compared, when an index is opened for the first time. What is looked up in an
order is shown to be a position all the same: checksums do not help against who writes them.
"""

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
    inside,
    replacing,
    text_digest,
    write_text,
)
from llmcurate.base.errors import RunFailed, UsageError

RECORD, STARTS, IDS = "search.json", "search-starts.u64", "search-ids.arrow"
FORMAT, VERSION = "llmcurate-search", 1
END = 0xFF
_PEAK = 5  # bytes that a byte takes while its chunk is sorted
_MOST = 2**31 - 1  # bytes of a chunk, whose positions are 32 bits wide
_NOTED = 64 << 20  # bytes from which on it is noted that checksums were compared; 20 ms at most
AGAIN = "make it anew: `llmcurate search build IN -o OUT`, or the run that left it"


def _name(kind: str, chunk: int) -> str:
    return f"search-{chunk:05d}.{kind}"


def _digest(record: dict[str, Any]) -> str:
    text = json.dumps({k: v for k, v in record.items() if k != "digest"}, sort_keys=True)
    return text_digest(text, "xxh3-128")


def _holds(path: Path, text: np.ndarray) -> bool:
    """Return whether the file is that text."""
    if not path.is_file() or path.stat().st_size != len(text):
        return False
    return bool(np.array_equal(np.memmap(path, np.uint8, "r"), text))


def chunk_bytes(sort_bytes: int, most: int = _MOST) -> int:
    """Bytes of a chunk, a byte behind each document included. sort_bytes: what sorting it takes."""
    return min(max(sort_bytes // _PEAK, 1), most)


def is_complete(folder: Path) -> bool:
    """Return whether a whole index lies in the folder."""
    return (folder / RECORD).is_file()


class IndexWriter:
    """Builds an index: `add` documents in their order, then `close`, which sorts.

    Files are written aside; a chunk that was sorted before the process was killed is kept, since
    the same folder always gets the same documents.
    """

    def __init__(self, folder: Path, sort_bytes: int, most: int = _MOST) -> None:
        """sort_bytes: of memory that sorting a chunk may take; most: bytes of a chunk."""
        folder.mkdir(parents=True, exist_ok=True)
        clear_temporary(folder)
        self._folder = folder
        self._size, self._most = chunk_bytes(sort_bytes, most), most
        self._chunks: list[dict[str, int]] = []
        self._tasks: list[FolderTask] = []  # chunks that are not sorted yet
        self._text = np.empty(0, np.uint8)  # of the chunk at hand; memory comes as it is filled
        self._held = self._documents = self._bytes = self._of_chunk = 0
        self._starts = (folder / ".part-starts").open("wb")
        self._schema = pa.schema([("id", pa.large_string())])
        self._ids = pa.OSFile(str(folder / ".part-ids"), "wb")
        self._id_writer = pa.ipc.new_file(self._ids, self._schema)

    def add(self, ids: pa.Array, texts: pa.LargeStringArray) -> None:
        """The next documents. RunFailed where one is larger than a chunk can be."""
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
                    f"document {ids[first].as_py()} has {size:,} bytes, more than a search index"
                    " can hold: set keep_index to false, or drop such documents first"
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
        if not (order.exists() and _holds(path, text)):
            order.unlink(missing_ok=True)
            with replacing(path) as aside:
                text.tofile(aside)
            self._tasks.append(FolderTask(number, self._folder))
        self._chunks.append(
            {"base": self._bytes - self._held, "bytes": self._held, "documents": self._of_chunk}
        )
        self._held = self._of_chunk = 0

    def close(self, run: Run = run_here) -> dict[str, int]:
        """Writes what is left, the orders, and the record; returns how many documents, bytes and
        chunks there are. run: who sorts the chunks, each with the memory that was said."""
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
    """A task: the order of a chunk's suffixes; five bytes a byte of text."""
    from curate.dedup.suffix_array.merge import suffix_array

    text, order = (task.file(f"search.{kind}") for kind in ("text", "order"))
    with replacing(order) as aside:
        suffix_array(np.fromfile(text, np.uint8)).astype("<i4", copy=False).tofile(aside)


@dataclass(frozen=True)
class Chunk:
    """text: uint8[bytes]; order: int32[bytes]; base: where it starts in the whole."""

    text: np.ndarray
    order: np.ndarray
    base: int


class SearchIndex:
    """An index, opened: nothing is read before it is needed."""

    def __init__(self, folder: Path) -> None:
        """UsageError where the folder holds no index, a damaged one, or one of another version."""
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
        """The error for an index of which something is not as `IndexWriter` leaves it."""
        return UsageError(f"{self.folder}: the search index is damaged ({what}); {AGAIN}")

    @cached_property
    def starts(self) -> np.ndarray:
        """uint64[documents]: where each document starts."""
        if not self.documents:
            return np.empty(0, np.uint64)
        try:
            return np.asarray(np.memmap(self.folder / STARTS, "<u8", "r"))
        except ValueError:  # empty, or no whole numbers
            raise self.damaged(STARTS) from None

    @cached_property
    def _ids(self) -> pa.ChunkedArray:
        return pa.ipc.open_file(pa.memory_map(str(self.folder / IDS))).read_all().column("id")

    def document_of(self, position: int) -> tuple[int, int]:
        """(number of the document, byte in it) at a position of the whole."""
        number = int(np.searchsorted(self.starts, np.uint64(position), side="right")) - 1
        if number < 0:
            raise self.damaged(STARTS)
        return number, position - int(self.starts[number])

    def id_of(self, number: int) -> str:
        """The id of a document by number."""
        try:
            name: str = self._ids[number].as_py()
        except (IndexError, KeyError, ValueError, OSError):  # of Arrow's, too
            raise self.damaged(IDS) from None
        return name

    def around(self, chunk: Chunk, position: int, size: int, context: int) -> tuple[str, str, str]:
        """(before, match, after) of chunk.text[position : position + size], with up to `context`
        bytes of the same document on each side, on whole characters."""
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
    """The folder of the index that a user names: it, a run's OUT, its index, or one of a label.

    UsageError where there is none, or several.
    """
    if not location.exists():
        raise UsageError(f"{location}: no such folder")
    candidates = [location, location / "own"]
    candidates += sorted(p.parent for p in location.glob(f"*/own/{RECORD}"))
    candidates += sorted(p.parent for p in location.glob(f"index/*/own/{RECORD}"))
    folders = [path for path in candidates if is_complete(path)]
    if not folders:
        raise UsageError(
            f"{location}: no search index there; `llmcurate search build IN -o OUT` makes one, and"
            " so does a dedup_suffix_array run with keep_index"
        )
    if len(folders) > 1:
        names = ", ".join(str(p) for p in folders)
        raise UsageError(f"{location} holds {len(folders)} search indexes, name one: {names}")
    return folders[0]


def _checked(folder: Path) -> tuple[int, int, int]:
    """(documents, bytes, chunks) of an index of which nothing is damaged."""
    path = folder / RECORD
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise UsageError(f"{path} is no index record; {AGAIN}") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise UsageError(f"{path} is no search index; {AGAIN}")
    if record.get("version") != VERSION:
        raise UsageError(
            f"{path}: version {record.get('version')}, this llmcurate reads {VERSION}; {AGAIN}"
        )
    if record.get("digest") != _digest(record):
        raise UsageError(f"{path} was changed or damaged (its checksum differs); {AGAIN}")
    for name, size in record["files"].items():
        file = inside(folder, name, path)
        have = file.stat().st_size if file.is_file() else -1
        if have != size:
            state = "is missing" if have < 0 else f"has {have} bytes instead of {size}"
            raise UsageError(f"{file} {state}; {AGAIN}")
    _compare(folder, record["xxh3"])
    return int(record["documents"]), int(record["bytes"]), len(record["chunks"])


def _compare(folder: Path, digests: dict[str, str]) -> None:
    """UsageError where a file is not what was written. Of a large index it is noted in the cache
    that all are, for as long as sizes and times of change stay: reading it takes a second a GB."""
    states = [(folder / name).stat() for name in sorted(digests)]
    note = None
    if sum(state.st_size for state in states) >= _NOTED:
        with suppress(RuntimeError):  # no home, no cache
            name = text_digest(str(folder.resolve()), "xxh3-128")
            note = cache_folder() / "verified" / f"{name}.json"
    seen = json.dumps([sorted(digests.items()), [(s.st_size, s.st_mtime_ns) for s in states]])
    if note is not None and note.is_file() and note.read_text(encoding="utf-8") == seen:
        return
    for name, digest in digests.items():
        if file_digest(inside(folder, name, folder / RECORD), "xxh3-128") != digest:
            raise UsageError(f"{folder / name} was changed or damaged; {AGAIN}")
    if note is not None:
        with suppress(OSError):
            note.parent.mkdir(parents=True, exist_ok=True)
            write_text(note, seen)
