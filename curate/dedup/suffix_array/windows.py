"""Windows, L symbols of a document from a position on, and the regions that they form.

A text is a run of symbols of `width` bytes each: bytes (width 1), or tokens (2 or 4). A window is
L symbols, or, in `characters`, L UTF-8 characters of at least L bytes. Among windows of so many
characters none is the beginning of another, so in an order by bytes equal ones stand together.
All positions are in symbols.

A region is a run of overlapping windows in one document that may stand twice; only the text of
regions is sorted. Documents come in order of preference, so of two positions the preferred one is
the lesser number. No window crosses a region's end.

To find them, anchors are counted, then windows that may stand twice are marked. Marking is a task a
group of sketch files, over one table of counts. The regions of groups are put one behind the other,
as of one group.
"""

from __future__ import annotations

import math
import mmap
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    """Whether a byte is inside of a UTF-8 character."""
    return (byte & 0xC0) == 0x80


@njit(nogil=True)
def starts_within(data, i, size):
    """Characters that start in data[i : i + size]."""
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
    """The end of the window from i, in symbols; -1 where it does not end by `stop`.

    data: uint8[], of a text of bytes where chars, else anything.
    """
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
    """Whether the windows from i and j, both complete, are equal. data: uint8[], all bytes."""
    size = window * width
    a, b = i * width, j * width
    k = np.int64(0)
    if size >= 8:
        # Neighbours in an order share their beginnings, so the last bytes tell them apart.
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
    """-1, 0 or 1 as the window from i stands before, with or after the one from j, by bytes."""
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


_COPY = 32 << 20  # symbols that are moved at a time


TEXT, REGIONS = "regions.text", "regions.npy"


class Mapped:
    """A file's values, mapped: values: dtype[]; an empty file is an empty array."""

    def __init__(self, path: Path, dtype: np.dtype) -> None:
        self.path = path
        self._map = None
        self.values = np.empty(0, dtype)
        self.values.flags.writeable = False  # as a map's are
        if path.stat().st_size:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self.values = np.frombuffer(self._map, dtype)

    def part(self, start: int, stop: int) -> np.ndarray:
        """A copy of values[start:stop], read without leaving pages mapped."""
        dtype = self.values.dtype
        count = max(0, min(stop, len(self.values)) - start)
        return np.fromfile(self.path, dtype, count, offset=start * dtype.itemsize)


@dataclass(frozen=True)
class Regions:
    """int64[regions] each, ordered by at. document: its number in order of arrival; start: the
    region's in the document; at: in the regions' text; length; all in symbols."""

    document: np.ndarray
    start: np.ndarray
    at: np.ndarray
    length: np.ndarray

    @property
    def symbols(self) -> int:
        """Of all regions together."""
        return int(self.at[-1] + self.length[-1]) if len(self.at) else 0

    def save(self, path: Path) -> None:
        """Writes them as one array, whole or not at all."""
        with replacing(path) as aside, aside.open("wb") as file:
            np.save(file, np.stack([self.document, self.start, self.at, self.length]))

    @classmethod
    def load(cls, path: Path, mapped: bool = False) -> Regions:
        """The object that `save` wrote; mapped: what is not looked at takes no memory."""
        # "c", since arrays that may be written to are of the type that kernels are compiled for.
        columns = np.load(path, mmap_mode="c" if mapped else None, allow_pickle=False)
        return cls(*np.asarray(columns))


@njit(cache=True, nogil=True)
def find_regions(data, offsets, marks, window, chars):
    """(rows, start, end: int64[regions]): the runs of overlapping windows that are marked.

    data: uint8[] (looked at only where chars); offsets: int64[rows + 1], in symbols; marks:
    bool[offsets[-1] - offsets[0]]. start, end: as offsets.
    """
    base = offsets[0]
    rows = np.empty(16, np.int64)
    start = np.empty(16, np.int64)
    end = np.empty(16, np.int64)
    n = 0
    for r in range(len(offsets) - 1):
        open_ = False
        before = stop = -1  # the last position whose window's end is known, and that end
        for i in range(offsets[r], offsets[r + 1]):
            if not marks[i - base] or (chars and continues(data[i])):
                continue
            if chars and before >= 0 and i < stop:
                for k in range(before, i):  # a character out, a character in
                    if not continues(data[k]) and stop >= 0:
                        stop = _next(data, stop, offsets[r + 1])
            else:
                stop = window_end(data, i, window, chars, offsets[r + 1])
            if stop < 0:
                break  # nor does any later one
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
def _next(data, i, stop):
    """The start of the character behind the one at i; -1 where none stands at i."""
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
    """Puts symbols[start[i] : start[i] + length[i]] one behind the other into out."""
    n = 0
    for i in range(len(start)):
        for k in range(start[i], start[i] + length[i]):
            out[n] = symbols[k]
            n += 1


class RegionsWriter:
    """Collects the regions of documents as they arrive."""

    def __init__(self, path: Path, window: int, chars: bool) -> None:
        """path: a file for their text; window: L; chars: of characters, not of symbols."""
        self._file = path.open("wb")
        self._window, self._chars = window, chars
        self._found: list[tuple[np.ndarray, ...]] = []

    def add(self, first: int, symbols: np.ndarray, offsets: np.ndarray, marks: np.ndarray) -> None:
        """Documents from number `first` on: symbols, offsets, and marks as `Sieve` gives them."""
        data = symbols if self._chars else np.empty(0, np.uint8)
        rows, start, end = find_regions(data, offsets, marks, self._window, self._chars)
        out = np.empty(int((end - start).sum()), symbols.dtype)
        _gather(symbols, start, end - start, out)
        out.tofile(self._file)
        self._found.append((first + rows, start - offsets[rows], end - start))

    def close(self) -> Regions:
        """The regions in order of arrival; their text is complete."""
        self._file.close()
        empty = (np.empty(0, np.int64),) * 3
        columns = zip(*(self._found or [empty]), strict=True)
        document, start, length = (np.concatenate(column) for column in columns)
        return Regions(document, start, np.cumsum(length) - length, length)


def preferred(regions: Regions, rank: np.ndarray, text: np.ndarray, path: Path) -> Regions:
    """The regions ordered by their documents' ranks, and their text, moved from `text` to path.

    rank: int64[documents], the position of each document in the order of preference.
    """
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


# Cuts of a batch: marks on bytes where passages go, and what the documents then hold. Marks are one
# more than their positions in exact_substrings.RULES.

# Marks: one more than their positions in step.RULES.
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
    """(mark: uint8[bytes of the batch], GLOBAL or LOCAL where a decision cuts, else 0; rows:
    int64[], those with a cut)."""
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
    """(cut: int64[rows], bytes that go; chars: int64[rows], characters that stay; written:
    bool[rows], whether one of them is no white space) of the rows named, 0 and False of others."""
    data, offsets = docs.buffers()
    cut, chars = np.zeros(len(docs), np.int64), np.zeros(len(docs), np.int64)
    written = np.zeros(len(docs), np.bool_)
    _remaining(data, offsets, rows, mark, cut, chars, written)
    return cut, chars, written


# The sieve finds windows that can stand more than once before any suffix is sorted. A window of L
# symbols is represented by its anchor, the block of b symbols in it whose hash is least (winnowing:
# Schleimer, Wilkerson and Aiken 2003). Equal windows have equal anchors, so a window whose anchor's
# hash was seen at one position only stands once. Hashes are counted in two slots each of a table (a
# counting Bloom filter): a window that passes may still stand once, one that does not pass never
# stands twice.

_BASE = np.uint64(0x9E3779B97F4A7C15)
_SMALLEST, _LARGEST = 16, 32  # log2 of the slots: 16 KiB to 1 GiB
_SLOTS = 64  # slots an anchor: of single anchors one in 1000 passes by chance, (2 / 64)^2


def block_of(window: int) -> int:
    """Symbols of an anchor's block: two thirds of the window."""
    return max(1, 2 * window // 3)


class Sieve:
    """Counts anchors, then tells which windows may stand twice. window: L, in symbols."""

    def __init__(self, window: int, symbols: int) -> None:
        """symbols: of the whole corpus, about; decides how much memory the table takes."""
        self.window, self.block = window, block_of(window)
        anchors = 1 + 2 * symbols // (window - self.block + 2)
        bits = min(_LARGEST, max(_SMALLEST, math.ceil(math.log2(anchors * _SLOTS))))
        self._shift = 64 - bits
        self._table = np.zeros(1 << (bits - 2), np.uint8)

    def save(self, path: Path) -> None:
        """Writes the counts, whole or not at all."""
        with replacing(path) as aside, aside.open("wb") as file:
            np.save(file, self._table)

    @classmethod
    def load(cls, path: Path, window: int) -> Sieve:
        """The object that `save` wrote, mapped."""
        sieve = cls(window, 0)
        # "c", since arrays that may be written to are of the type that kernels are compiled for.
        sieve._table = np.asarray(np.load(path, mmap_mode="c", allow_pickle=False))
        sieve._shift = 62 - int(math.log2(len(sieve._table)))
        return sieve

    def count(self, symbols: np.ndarray, offsets: np.ndarray) -> None:
        """Takes the anchors of documents: symbols: uint8[], uint16[] or uint32[]; offsets:
        int64[rows + 1]."""
        _count(symbols, offsets, self.window, self.block, self._table, self._shift)

    def passing(self, symbols: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """bool[offsets[-1] - offsets[0]]: whether the window that starts there may stand twice."""
        marks = np.zeros(int(offsets[-1] - offsets[0]), np.bool_)
        _pass(symbols, offsets, self.window, self.block, self._table, self._shift, marks)
        return marks


@njit(nogil=True, inline="always")
def _add(table, slot):
    """Counts to two, in two bits."""
    cell, low = slot >> np.uint64(2), (slot & np.uint64(3)) << np.uint64(1)
    count = (np.uint64(table[cell]) >> low) & np.uint64(3)
    if count < np.uint64(2):
        table[cell] += np.uint8(np.uint64(1) << low)


@njit(nogil=True, inline="always")
def _twice(table, slot):
    cell, low = slot >> np.uint64(2), (slot & np.uint64(3)) << np.uint64(1)
    return (np.uint64(table[cell]) >> low) & np.uint64(2) != np.uint64(0)


@njit(nogil=True)
def _row(symbols, start, stop, window, block, ring, table, shift, marks, base, counting):
    """The anchors of symbols[start:stop]: of blocks with the same hash the last one in a window is
    its anchor, so that the choice depends on the window alone."""
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
    at = 0  # of the block in the ring
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
            slot_a = (best * _BASE) >> np.uint64(shift)  # the least hashes begin alike
            slot_b = mix(best) >> np.uint64(shift)
            if counting:
                _add(table, slot_a)
                _add(table, slot_b)
            else:
                passes = _twice(table, slot_a) and _twice(table, slot_b)
        if not counting:
            marks[first - base] = passes


@njit(cache=True, nogil=True)
def _count(symbols, offsets, window, block, table, shift):
    ring = np.empty(window - block + 1, np.uint64)
    none = np.empty(0, np.bool_)
    for r in range(len(offsets) - 1):
        if offsets[r + 1] - offsets[r] >= window:
            a, z = offsets[r], offsets[r + 1]
            _row(symbols, a, z, window, block, ring, table, shift, none, offsets[0], True)


@njit(cache=True, nogil=True)
def _pass(symbols, offsets, window, block, table, shift, marks):
    ring = np.empty(window - block + 1, np.uint64)
    for r in range(len(offsets) - 1):
        if offsets[r + 1] - offsets[r] >= window:
            a, z = offsets[r], offsets[r + 1]
            _row(symbols, a, z, window, block, ring, table, shift, marks, offsets[0], False)


ROWS = 200  # documents read at a time; they may be long
SIEVE, DTYPE, ARRIVED = "sieve.npy", "dtype", "arrived.text"


@dataclass(frozen=True)
class DocumentBatch:
    """Documents of a sketch file. first: the number of the first one; symbols: uint8[], uint16[] or
    uint32[]; offsets: int64[rows + 1], in symbols."""

    first: int
    symbols: np.ndarray
    offsets: np.ndarray
    batch: pa.RecordBatch


def list_values(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """(values, offsets: int64[rows + 1]) of a large_list column without nulls."""
    return column.values.to_numpy(), column.offsets.to_numpy()


def documents_of(
    batches: Iterator[pa.RecordBatch], tokens: bool, first: int = 0
) -> Iterator[DocumentBatch]:
    """The documents of sketches, whose first column is the text or the tokens; first: the number of
    the first one."""
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
    """What the step asks for: symbols of a window, of which kind (`of`), who survives, which copies
    stay, and where a cut may begin (`boundary`)."""

    window: int
    of: str
    survivor: str
    keep: str
    boundary: str


def dtype_of(work: Path) -> np.dtype:
    """The type of a symbol."""
    return np.dtype((work / DTYPE).read_text(encoding="utf-8"))


def regions_of(request: Request, sketches: Sketches, work: Path) -> Regions:
    """The regions of windows that may stand twice, in order of preference; their text is beside
    them in `work`."""
    done = work / REGIONS
    if done.exists():
        return Regions.load(done)
    clear_temporary(work)
    sketch_groups = groups(sketches, sketches.sizes.task_sketch_bytes, _bytes)
    regions = _regions_in_process if len(sketch_groups) < 2 else _regions_by_tasks
    arrived = regions(request, sketches, work, sketch_groups)
    path = work / ARRIVED
    if request.survivor == "first":
        path.replace(work / TEXT)
    else:
        rank, text = ranks(sketches.connection), Mapped(path, dtype_of(work)).values
        arrived = preferred(arrived, rank, text, work / TEXT)
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


def ranks(db: Any) -> np.ndarray:
    """int64[documents]: the rank of each document by its number."""
    rank: np.ndarray = db.execute("SELECT rank FROM documents ORDER BY k").fetchnumpy()["rank"]
    return rank


def _bytes(metadata: pq.FileMetaData) -> int:
    return sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))


def _column(request: Request) -> str:
    return "tokens" if request.of == "tokens" else "text"


def _counted(request: Request, sketches: Sketches, work: Path) -> Sieve:
    """The sieve, with all anchors counted."""
    total = "SELECT coalesce(sum(size), 0)::BIGINT FROM sketches"
    sieve = Sieve(request.window, sketches.connection.execute(total).fetchone()[0])
    dtype = np.dtype(np.uint8)
    column = _column(request)
    for batch in documents_of(sketches.batches([column], ROWS), column == "tokens"):
        dtype = batch.symbols.dtype
        sieve.count(batch.symbols, batch.offsets)
    write_text(work / DTYPE, dtype.str)
    return sieve


def _regions_in_process(
    request: Request, sketches: Sketches, work: Path, sketch_groups: list[Group]
) -> Regions:
    """The regions in order of arrival; their text is ARRIVED."""
    sieve, column = _counted(request, sketches, work), _column(request)
    batches = documents_of(sketches.batches([column], ROWS), column == "tokens")
    return _passed(sieve, batches, work / ARRIVED, request.of == "characters")


def _passed(sieve: Sieve, documents: Iterator[DocumentBatch], path: Path, chars: bool) -> Regions:
    writer = RegionsWriter(path, sieve.window, chars)
    for batch in documents:
        marks = sieve.passing(batch.symbols, batch.offsets)
        writer.add(batch.first, batch.symbols, batch.offsets, marks)
    return writer.close()


def _regions_by_tasks(
    request: Request, sketches: Sketches, work: Path, sketch_groups: list[Group]
) -> Regions:
    """As `_regions_in_process`, the same bytes. What a killed run left is kept."""
    if not (work / SIEVE).exists():
        _counted(request, sketches, work).save(work / SIEVE)
    tasks = [PassTask(g.part, work, g, request.window, request.of) for g in sketch_groups]
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


FOUND = "found.text", "found.npy"  # the text of a group's regions, and these, as they arrive


@dataclass(frozen=True)
class PassTask(GroupTask):
    """The regions of a group are to be found. window, unit: of the step."""

    window: int
    unit: str


def pass_group(task: PassTask) -> None:
    """A task: the regions of a group. It holds the table of counts, at most 1 GiB, as a map."""
    group, tokens = task.group, task.unit == "tokens"
    sieve = Sieve.load(task.folder / SIEVE, task.window)
    sketches = sketch_batches(group.files, ["tokens" if tokens else "text"], ROWS)
    text, regions = map(task.file, FOUND)
    with replacing(text) as aside:
        documents = documents_of(sketches, tokens, group.first)
        marked = _passed(sieve, documents, aside, task.unit == "characters")
    marked.save(regions)
