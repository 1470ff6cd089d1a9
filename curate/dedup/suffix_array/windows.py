"""Windows of L symbols, and the regions that they form.

A text is a run of symbols of `width` bytes each: bytes (width 1) or tokens (2 or 4). A window is
the L symbols that follow a position in a document. With the unit `characters`, symbols are bytes,
and a window is L UTF-8 characters, L bytes or more. All windows have L characters, so none is a
prefix of a different one, and equal windows are adjacent in byte order. All positions are in
symbols.

A region is a run of overlapping windows in one document; each of them is a possible repeat. Only
the text of regions is sorted. Documents are in order of preference, so of two positions the lower
one is preferred. No window crosses the end of a region.

A block is a run of symbols, two thirds as long as a window. A window's anchor is its block with the
least hash; equal windows have equal anchors. Regions are found in two passes: anchors are counted,
then windows whose anchor occurs twice are marked. In the second pass, one task per group of input
files marks windows; all tasks share one table of counts. The regions are then concatenated."""

from __future__ import annotations

import math
import mmap
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus import journal
from curate.corpus.shuffle.tasks import Group, GroupTask, groups, part_file, run_tasks
from curate.corpus.sketches import Sketches, sketch_batches
from curate.documents.documents import NUMBER, Documents
from curate.text.buffers import as_large_string, text_buffers
from curate.text.hashing import mix
from curate.text.unicode import space_bytes
from llmcurate.base.disk.files import clear_temporary, replacing, write_text
from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import load8

_ONES = np.uint64(0x0101010101010101)
_HIGH = np.uint64(0x8080808080808080)


@njit(nogil=True, inline="always")
def continues(byte):
    """Return True if a byte continues a UTF-8 character, False if it begins one."""
    return (byte & 0xC0) == 0x80


@njit(nogil=True)
def starts_within(data, i, size):
    inside = np.uint64(0)
    k = np.int64(0)
    while k + 8 <= size:
        x = load8(data, np.uint64(i + k))
        bits = (x >> np.uint64(7)) & (~x >> np.uint64(6)) & _ONES
        inside += (bits * _ONES) >> np.uint64(56)
        k += 8
    continuing = np.int64(inside)
    while k < size:
        continuing += continues(data[i + k])
        k += 1
    return size - continuing


@njit(nogil=True)
def window_end(data, i, window, chars, stop):
    """Return the end of the window that starts at i, or -1 if the end is beyond `stop`."""
    if i + window > stop:
        return np.int64(-1)
    if not chars:
        return np.int64(i + window)
    missing = window - starts_within(data, i, window)
    k = i + window
    while k < stop:
        if not continues(data[k]):
            if missing == 0:
                return np.int64(k)
            missing -= 1
        k += 1
    return np.int64(k) if missing == 0 else np.int64(-1)


@njit(nogil=True)
def same_window(data, i, j, window, width, chars):
    """Return True if the windows at i and j are equal; both must lie within the text (uint8[]). A
    window has `window` symbols of `width` bytes, or `window` characters if `chars`."""
    size = window * width
    a, b = i * width, j * width
    k = np.int64(0)
    if size >= 8:
        # Neighbours in sorted order share their beginnings, so their last bytes differ most often.
        x = load8(data, np.uint64(a + size - 8))
        if x != load8(data, np.uint64(b + size - 8)):
            return False
        while k + 32 <= size:
            first = load8(data, np.uint64(a + k))
            second = load8(data, np.uint64(a + k + 8))
            third = load8(data, np.uint64(a + k + 16))
            fourth = load8(data, np.uint64(a + k + 24))
            other = (first ^ load8(data, np.uint64(b + k))) | (
                second ^ load8(data, np.uint64(b + k + 8))
            )
            other |= (third ^ load8(data, np.uint64(b + k + 16))) | (
                fourth ^ load8(data, np.uint64(b + k + 24))
            )
            if other != 0:
                return False
            x |= first | second | third | fourth
            k += 32
        while k + 8 < size:
            first = load8(data, np.uint64(a + k))
            if first != load8(data, np.uint64(b + k)):
                return False
            x |= first
            k += 8
        if x & _HIGH == 0:  # every byte is a character
            return True
    else:
        while k < size:
            if data[a + k] != data[b + k]:
                return False
            k += 1
    if not chars:
        return True
    missing = window - starts_within(data, a, size)
    k = size
    while a + k < len(data) and b + k < len(data):
        if not continues(data[a + k]):
            if missing == 0:
                return True
            missing -= 1
        if data[a + k] != data[b + k]:
            return False
        k += 1
    return missing == 0


@njit(nogil=True)
def order_of(data, i, j, window, width, chars):
    """Compare the bytes of the windows that start at i and j. Return -1, 0 or 1."""
    size = window * width
    a, b = i * width, j * width
    k = np.int64(0)
    while k + 8 <= size:
        if load8(data, np.uint64(a + k)) != load8(data, np.uint64(b + k)):
            break
        k += 8
    missing = np.int64(-1)
    while a + k < len(data) and b + k < len(data):
        if k >= size:
            if not chars:
                return 0
            if missing < 0:
                missing = window - starts_within(data, a, k)
            if not continues(data[a + k]):
                if missing == 0:
                    return 0
                missing -= 1
        if data[a + k] != data[b + k]:
            return -1 if data[a + k] < data[b + k] else 1
        k += 1
    return 0


_COPY = 32 << 20  # symbols copied at a time


TEXT, REGIONS = "regions.text", "regions.npy"


class Mapped:
    """The values of a file as a mapped, read-only array. An empty file is an empty array."""

    def __init__(self, path: Path, dtype: np.dtype) -> None:
        self.path = path
        self._map = None
        self.values = np.empty(0, dtype)
        self.values.flags.writeable = False  # as in a mapped array
        if path.stat().st_size:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self.values = np.frombuffer(self._map, dtype)

    def part(self, start: int, stop: int) -> np.ndarray:
        """Return a copy of values[start:stop], read from the file and not through the map."""
        dtype = self.values.dtype
        count = max(0, min(stop, len(self.values)) - start)
        return np.fromfile(self.path, dtype, count, offset=start * dtype.itemsize)


@dataclass(frozen=True)
class Regions:
    """Stretches of documents that may repeat, ordered by `at`. Each field is int64[regions]."""

    document: np.ndarray  # the document's number in order of arrival
    start: np.ndarray  # the region's first symbol in the document
    at: np.ndarray  # the region's first symbol in the text of all regions
    length: np.ndarray  # in symbols

    @property
    def symbols(self) -> int:
        return int(self.at[-1] + self.length[-1]) if len(self.at) else 0

    def save(self, path: Path) -> None:
        """Write the regions to a file as one array. The file is replaced atomically."""
        with replacing(path) as aside, aside.open("wb") as file:
            np.save(file, np.stack([self.document, self.start, self.at, self.length]))

    @classmethod
    def load(cls, path: Path, mapped: bool = False) -> Regions:
        """Load regions that were saved. `mapped` is True to read pages only when they are used."""
        # "c": kernels are compiled for writable arrays.
        columns = np.load(path, mmap_mode="c" if mapped else None, allow_pickle=False)
        return cls(*np.asarray(columns))


@njit(cache=True, nogil=True)
def find_regions(data, offsets, marks, window, chars):
    """Find regions, runs of overlapping marked windows. Returns (rows, start, end), int64[regions],
    in symbols: the row of the document, and the region's start and end.

    `offsets` (int64[rows + 1]) are the documents' bounds in symbols. `marks` (bool[symbols]) is
    True where a marked window starts. If `chars`, `window` is a number of characters, and the text
    `data` (uint8) is read to find where windows end."""
    base = offsets[0]
    rows = np.empty(16, np.int64)
    start = np.empty(16, np.int64)
    end = np.empty(16, np.int64)
    n = 0
    for r in range(len(offsets) - 1):
        open_ = False
        before = stop = -1  # the last position with a known window end, and that end
        for i in range(offsets[r], offsets[r + 1]):
            if not marks[i - base] or (chars and continues(data[i])):
                continue
            if chars and before >= 0 and i < stop:
                for k in range(before, i):  # one character leaves, the next one enters
                    if not continues(data[k]) and stop >= 0:
                        stop = _next_character(data, stop, offsets[r + 1])
            else:
                stop = window_end(data, i, window, chars, offsets[r + 1])
            if stop < 0:
                break  # no later window is complete either
            before = i
            if open_ and i <= end[n - 1]:
                end[n - 1] = stop
                continue
            if n == len(rows):
                rows, start, end = _longer(rows), _longer(start), _longer(end)
            rows[n], start[n], end[n] = r, i, stop
            open_ = True
            n += 1
    return rows[:n].copy(), start[:n].copy(), end[:n].copy()


@njit(nogil=True)
def _next_character(data, i, stop):
    if i >= stop:
        return np.int64(-1)
    i += 1
    while i < stop and continues(data[i]):
        i += 1
    return np.int64(i)


@njit(nogil=True, allocates=True)
def _longer(values):
    out = np.empty(2 * len(values), values.dtype)
    out[: len(values)] = values
    return out


@njit(cache=True, nogil=True)
def _gather(symbols, start, length, out):
    n = 0
    for i in range(len(start)):
        for k in range(start[i], start[i] + length[i]):
            out[n] = symbols[k]
            n += 1


class RegionsWriter:
    """Collects regions (text that may repeat) in order of the documents, and writes their text."""

    def __init__(self, path: Path, window: int, chars: bool) -> None:
        self._file = path.open("wb")
        self._window, self._chars = window, chars
        self._found: list[tuple[np.ndarray, ...]] = []

    def add(self, first: int, symbols: np.ndarray, offsets: np.ndarray, marks: np.ndarray) -> None:
        """Write the windows that start where `marks` is True. `first`: number of first document."""
        data = symbols if self._chars else np.empty(0, np.uint8)
        rows, start, end = find_regions(data, offsets, marks, self._window, self._chars)
        out = np.empty(int((end - start).sum()), symbols.dtype)
        _gather(symbols, start, end - start, out)
        out.tofile(self._file)
        self._found.append((first + rows, start - offsets[rows], end - start))

    def close(self) -> Regions:
        """Close the file and return the regions (text that may repeat), in the order added."""
        self._file.close()
        empty = (np.empty(0, np.int64),) * 3
        columns = zip(*(self._found or [empty]), strict=True)
        document, start, length = (np.concatenate(column) for column in columns)
        return Regions(document, start, np.cumsum(length) - length, length)


def preferred(regions: Regions, rank: np.ndarray, text: np.ndarray, path: Path) -> Regions:
    """Return the regions, ordered by the ranks of their documents, and write the text of the
    regions to `path`. `rank` is int64[documents], each document's place in order of preference."""
    order = np.lexsort((regions.start, rank[regions.document]))
    length = regions.length[order]
    ends = np.cumsum(length)
    with path.open("wb") as file:
        a = 0
        while a < len(order):
            limit = (ends[a - 1] if a else 0) + _COPY
            z = max(a + 1, int(np.searchsorted(ends, limit, side="right")))
            out = np.empty(int(length[a:z].sum()), text.dtype)
            _gather(text, regions.at[order[a:z]], length[a:z], out)
            out.tofile(file)
            a = z
    return Regions(regions.document[order], regions.start[order], ends - length, length)


# Cuts of a batch: marks on the bytes to remove, and the text that then remains.

# Marks: one more than their positions in exact_substrings.RULES.
GLOBAL, LOCAL = 1, 2


@njit(cache=True, nogil=True)
def _mark(offsets, rows, start, end, local, mark):
    base = offsets[0]
    for s in range(len(rows)):
        at = offsets[rows[s]] - base
        size = offsets[rows[s] + 1] - offsets[rows[s]]
        a, z = max(start[s], 0), min(end[s], size)
        for i in range(at + a, at + z):
            mark[i] = LOCAL if local[s] and mark[i] != GLOBAL else GLOBAL


@njit(cache=True, nogil=True)
def _remaining(data, offsets, rows, mark, cut, chars, written):
    base = offsets[0]
    for r in rows:
        i, stop = offsets[r], offsets[r + 1]
        while i < stop:
            if mark[i - base]:
                cut[r] += 1
                i += 1
                continue
            n = space_bytes(data, i, stop)
            if n == 0:
                written[r] = True
                n = 1
            for k in range(i, i + n):
                chars[r] += not continues(data[k])
            i += n


def marks_of(docs: Documents, decisions: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return (mark, rows). `mark` (uint8[bytes of the batch]) is 0 for kept bytes, GLOBAL for cut
    bytes that repeat another document, and LOCAL for those that repeat only their own document.
    `rows` (int64) are the documents with a cut."""
    _, offsets = docs.buffers()
    mark = np.zeros(int(offsets[-1] - offsets[0]), np.uint8)
    dropped = decisions.filter(decisions["drop"])
    rows = np.searchsorted(docs.table[NUMBER].to_numpy(), dropped["n"].to_numpy())
    start, end = dropped["span_start"].to_numpy(), dropped["span_end"].to_numpy()
    local = (
        dropped["local"].to_numpy(zero_copy_only=False) if len(dropped) else np.empty(0, np.bool_)
    )
    _mark(offsets, rows, start, end, local, mark)
    return mark, np.unique(rows)


def remaining_text(
    docs: Documents, mark: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (cut, chars, written): each document's cut bytes and remaining characters
    (int64[documents]), and True if a remaining character is not white space. Documents not in
    `rows` have 0 and False."""
    data, offsets = docs.buffers()
    cut, chars = np.zeros(len(docs), np.int64), np.zeros(len(docs), np.int64)
    written = np.zeros(len(docs), np.bool_)
    _remaining(data, offsets, rows, mark, cut, chars, written)
    return cut, chars, written


# The sieve finds windows that can occur more than once before any suffix is sorted. A window of L
# symbols is represented by its anchor: its block of b symbols with the least hash (winnowing:
# Schleimer, Wilkerson and Aiken 2003). Equal windows have equal anchors, so a window occurs once if
# its anchor's hash was seen at only one position. Each hash is counted in two slots of a table (a
# counting Bloom filter). A window that passes may still occur once; one that does not pass occurs
# once for certain.

_BASE = np.uint64(0x9E3779B97F4A7C15)
_SMALLEST, _LARGEST = 16, 32  # log2 of the slots: 16 KiB to 1 GiB
_SLOTS = 64  # slots per anchor: one in 1000 single anchors passes by chance, (2 / 64)^2


def block_of(window: int) -> int:
    """Return the size of a block, a piece of a window: two thirds of the window, in symbols."""
    return max(1, 2 * window // 3)


class Sieve:
    """Finds windows that may recur, by counting an anchor (a run of symbols) of each window."""

    def __init__(self, window: int, symbols: int) -> None:
        self.window, self.block = window, block_of(window)
        anchors = 1 + 2 * symbols // (window - self.block + 2)
        bits = min(_LARGEST, max(_SMALLEST, math.ceil(math.log2(anchors * _SLOTS))))
        self._shift = 64 - bits
        self._table = np.zeros(1 << (bits - 2), np.uint8)

    def save(self, path: Path) -> None:
        with replacing(path) as aside, aside.open("wb") as file:
            np.save(file, self._table)

    @classmethod
    def load(cls, path: Path, window: int) -> Sieve:
        """Return a sieve with the counts of anchors in a file, which is memory-mapped."""
        sieve = cls(window, 0)
        # "c": kernels are compiled for writable arrays.
        sieve._table = np.asarray(np.load(path, mmap_mode="c", allow_pickle=False))
        sieve._shift = 62 - int(math.log2(len(sieve._table)))
        return sieve

    def count(self, symbols: np.ndarray, offsets: np.ndarray) -> None:
        """Count the anchors of all windows of a batch of documents. `offsets` (int64[rows + 1]) are
        the documents' bounds in `symbols`."""
        _count(symbols, offsets, self.window, self.block, self._table, self._shift)

    def passing(self, symbols: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Return bool[symbols]: True where a window starts that may occur more than once."""
        marks = np.zeros(int(offsets[-1] - offsets[0]), np.bool_)
        _mark_repeated(symbols, offsets, self.window, self.block, self._table, self._shift, marks)
        return marks


@njit(nogil=True, inline="always")
def _count_hash(table, slot):
    cell, low = slot >> np.uint64(2), (slot & np.uint64(3)) << np.uint64(1)  # two bits per slot
    count = (np.uint64(table[cell]) >> low) & np.uint64(3)
    if count < np.uint64(2):
        table[cell] += np.uint8(np.uint64(1) << low)


@njit(nogil=True, inline="always")
def _is_repeated(table, slot):
    cell, low = slot >> np.uint64(2), (slot & np.uint64(3)) << np.uint64(1)
    return (np.uint64(table[cell]) >> low) & np.uint64(2) != np.uint64(0)


@njit(nogil=True)
def _scan_anchors(symbols, start, stop, window, block, ring, table, shift, marks, base, counting):
    """Count the anchors of symbols[start:stop] in `table` if `counting`. If not, set `marks` for
    each window: True if its anchor was counted at least twice, else False. Of the runs of `block`
    symbols in a window, the last one with the least hash is its anchor."""
    wide = window - block + 1
    drop = np.uint64(1)
    for _ in range(block):
        drop *= _BASE
    value = np.uint64(0)
    for i in range(start, start + block - 1):
        value = value * _BASE + np.uint64(symbols[i]) + np.uint64(1)
    best = np.uint64(0)
    position = counted = -1
    passes = False
    at = 0  # position of the block in the ring
    for p in range(start, stop - block + 1):
        value = value * _BASE + np.uint64(symbols[p + block - 1]) + np.uint64(1)
        if p > start:
            value -= (np.uint64(symbols[p - 1]) + np.uint64(1)) * drop
        hashed = mix(value)
        ring[at] = hashed
        if position < 0 or hashed <= best:
            best, position = hashed, p
        elif position <= p - wide:
            best, position = hashed, p
            k = at
            for back in range(1, wide):
                k = k - 1 if k else wide - 1
                if ring[k] < best:
                    best, position = ring[k], p - back
        at = at + 1 if at + 1 < wide else 0
        first = p - wide + 1
        if first < start:
            continue
        if position != counted:
            counted = position
            slot_a = (best * _BASE) >> np.uint64(shift)  # mixed, as least hashes begin alike
            slot_b = mix(best) >> np.uint64(shift)
            if counting:
                _count_hash(table, slot_a)
                _count_hash(table, slot_b)
            else:
                passes = _is_repeated(table, slot_a) and _is_repeated(table, slot_b)
        if not counting:
            marks[first - base] = passes


@njit(cache=True, nogil=True)
def _count(symbols, offsets, window, block, table, shift):
    ring = np.empty(window - block + 1, np.uint64)
    none = np.empty(0, np.bool_)
    for r in range(len(offsets) - 1):
        if offsets[r + 1] - offsets[r] >= window:
            a, z = offsets[r], offsets[r + 1]
            _scan_anchors(symbols, a, z, window, block, ring, table, shift, none, offsets[0], True)


@njit(cache=True, nogil=True)
def _mark_repeated(symbols, offsets, window, block, table, shift, marks):
    ring = np.empty(window - block + 1, np.uint64)
    for r in range(len(offsets) - 1):
        if offsets[r + 1] - offsets[r] >= window:
            a, z = offsets[r], offsets[r + 1]
            _scan_anchors(
                symbols, a, z, window, block, ring, table, shift, marks, offsets[0], False
            )


ROWS = 200  # documents per batch; they may be long
SIEVE, DTYPE, ARRIVED = "sieve.npy", "dtype", "arrived.text"


@dataclass(frozen=True)
class DocumentBatch:
    """Documents of a sketch file."""

    first: int  # the number of the first document
    symbols: np.ndarray  # uint8, uint16 or uint32, the text or tokens
    offsets: np.ndarray  # int64[rows + 1], in symbols
    batch: pa.RecordBatch


def list_values(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return (values, offsets: int64[rows + 1]) of a large_list column without nulls."""
    return column.values.to_numpy(), column.offsets.to_numpy()


def documents_of(
    batches: Iterator[pa.RecordBatch], tokens: bool, first: int = 0
) -> Iterator[DocumentBatch]:
    """Yield the documents of batches, numbered from `first`. Column 0 has their text or tokens."""
    for batch in batches:
        column = batch.column(0)
        if tokens:
            symbols, offsets = list_values(column)
        else:
            symbols, offsets = text_buffers(as_large_string(column))
        yield DocumentBatch(first, symbols, offsets, batch)
        first += len(batch)


@dataclass(frozen=True)
class Request:
    """The settings of one substring deduplication."""

    window: int  # units per window
    unit: str  # bytes, characters or tokens
    survivor: str  # the survivor policy
    keep: str  # which occurrences to keep
    boundary: str  # where a cut may begin

    @property
    def tokens(self) -> bool:
        return self.unit == "tokens"

    @property
    def column(self) -> str:
        """The column of sketches with the symbols."""
        return "tokens" if self.tokens else "text"


def dtype_of(work: Path) -> np.dtype:
    return np.dtype((work / DTYPE).read_text(encoding="utf-8"))


def regions_of(request: Request, sketches: Sketches, work: Path) -> Regions:
    """Return the regions in order of preference: documents to keep come first. Write the text of
    the regions to the folder `work`."""
    done = work / REGIONS
    if done.exists():
        return Regions.load(done)
    clear_temporary(work)
    sketch_groups = groups(sketches, sketches.sizes.task_sketch_bytes, _bytes)
    if len(sketch_groups) < 2:
        sieve = _count_anchors(request, sketches, work)
        batches = documents_of(sketches.batches([request.column], ROWS), request.tokens)
        arrived = _write_regions(sieve, batches, work / ARRIVED, request.unit == "characters")
    else:
        arrived = _regions_by_tasks(request, sketches, work, sketch_groups)
    path = work / ARRIVED
    if request.survivor == "first":
        path.replace(work / TEXT)
    else:
        rank = sketches.connection.execute("SELECT rank FROM documents ORDER BY k").fetchnumpy()
        text = Mapped(path, dtype_of(work)).values
        arrived = preferred(arrived, rank["rank"], text, work / TEXT)
        path.unlink()
    journal.note(work / TEXT)
    arrived.save(done)
    for path in (
        work / SIEVE,
        *(part_file(work, name, group.part) for group in sketch_groups for name in FOUND),
    ):
        journal.release(path)
        path.unlink(missing_ok=True)
    return arrived


def _bytes(metadata: pq.FileMetaData) -> int:
    return sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))


def _count_anchors(request: Request, sketches: Sketches, work: Path) -> Sieve:
    total = "SELECT coalesce(sum(size), 0)::BIGINT FROM sketches"
    sieve = Sieve(request.window, sketches.connection.execute(total).fetchone()[0])
    dtype = np.dtype(np.uint8)
    for batch in documents_of(sketches.batches([request.column], ROWS), request.tokens):
        dtype = batch.symbols.dtype
        sieve.count(batch.symbols, batch.offsets)
    write_text(work / DTYPE, dtype.str)
    return sieve


def _write_regions(
    sieve: Sieve, documents: Iterator[DocumentBatch], path: Path, chars: bool
) -> Regions:
    writer = RegionsWriter(path, sieve.window, chars)
    for batch in documents:
        marks = sieve.passing(batch.symbols, batch.offsets)
        writer.add(batch.first, batch.symbols, batch.offsets, marks)
    return writer.close()


def _regions_by_tasks(
    request: Request, sketches: Sketches, work: Path, sketch_groups: list[Group]
) -> Regions:
    if not (work / SIEVE).exists():
        _count_anchors(request, sketches, work).save(work / SIEVE)
    tasks = [PassTask(g.part, work, g, request.window, request.unit) for g in sketch_groups]
    missing = [task for task in tasks if not all(task.file(name).exists() for name in FOUND)]
    run_tasks(sketches.run, f"{__name__}:pass_group", missing)
    parts = []
    with (work / ARRIVED).open("wb") as file:
        for task in tasks:
            text, regions = map(task.file, FOUND)
            with text.open("rb") as source:
                shutil.copyfileobj(source, file, 1 << 24)
            parts.append(Regions.load(regions))
    columns = [(p.document, p.start, p.length) for p in parts]
    document, start, length = (np.concatenate(column) for column in zip(*columns, strict=True))
    return Regions(document, start, np.cumsum(length) - length, length)


FOUND = "found.text", "found.npy"  # the text of a group's regions, and the regions


@dataclass(frozen=True)
class PassTask(GroupTask):
    """A task that finds the regions of a group; fields as in `Request`."""

    window: int
    unit: str


def pass_group(task: PassTask) -> None:
    """Run a task: write the regions of the documents in a group of sketch files. The task maps a
    table of counts into memory, up to 1 GiB."""
    group, tokens = task.group, task.unit == "tokens"
    sieve = Sieve.load(task.folder / SIEVE, task.window)
    sketches = sketch_batches(group.files, ["tokens" if tokens else "text"], ROWS)
    text, regions = map(task.file, FOUND)
    with replacing(text) as aside:
        documents = documents_of(sketches, tokens, group.first)
        marked = _write_regions(sieve, documents, aside, task.unit == "characters")
    marked.save(regions)
