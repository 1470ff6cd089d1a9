"""Regions of a corpus: its anchors are counted, then windows that may stand twice are marked.

Marking is a task a group of sketch files, over one table of counts. The regions of groups are put
one behind the other, as of one group.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus import journal
from curate.corpus.shuffle.tasks import Group, groups, run_tasks
from curate.corpus.sketches import Sketches, Task, sketch_batches
from curate.dedup.suffix_array.sort import REGIONS, TEXT, Mapped
from curate.dedup.suffix_array.windows import Regions, RegionsWriter, preferred
from curate.text.buffers import as_large_string, text_buffers
from curate.text.hashing import mix
from llmcurate.base.disk.files import clear_temporary, replacing, write_text
from llmcurate.base.kernels import njit

if TYPE_CHECKING:
    from curate.dedup.suffix_array.exact_substrings import DedupSuffixArray


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


def dtype_of(work: Path) -> np.dtype:
    """The type of a symbol."""
    return np.dtype((work / DTYPE).read_text(encoding="utf-8"))


def regions_of(step: DedupSuffixArray, sketches: Sketches, work: Path) -> Regions:
    """The regions of windows that may stand twice, in order of preference; their text is beside
    them in `work`."""
    done = work / REGIONS
    if done.exists():
        return Regions.load(done)
    clear_temporary(work)
    sketch_groups = groups(sketches, sketches.sizes.task_sketch_bytes, _bytes)
    regions = _regions_in_process if len(sketch_groups) < 2 else _regions_by_tasks
    arrived = regions(step, sketches, work, sketch_groups)
    path = work / ARRIVED
    if step.survivor == "first":
        path.replace(work / TEXT)
    else:
        rank, text = ranks(sketches.connection), Mapped(path, dtype_of(work)).values
        arrived = preferred(arrived, rank, text, work / TEXT)
        path.unlink()
    journal.note(work / TEXT)
    arrived.save(done)
    for path in (
        work / SIEVE,
        *(p for task in sketch_groups for p in region_files(work, task.part)),
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


def _column(step: DedupSuffixArray) -> str:
    return "tokens" if step.of == "tokens" else "text"


def _counted(step: DedupSuffixArray, sketches: Sketches, work: Path) -> Sieve:
    """The sieve, with all anchors counted."""
    total = "SELECT coalesce(sum(size), 0)::BIGINT FROM sketches"
    sieve = Sieve(step.window, sketches.connection.execute(total).fetchone()[0])
    dtype = np.dtype(np.uint8)
    column = _column(step)
    for batch in documents_of(sketches.batches([column], ROWS), column == "tokens"):
        dtype = batch.symbols.dtype
        sieve.count(batch.symbols, batch.offsets)
    write_text(work / DTYPE, dtype.str)
    return sieve


def _regions_in_process(
    step: DedupSuffixArray, sketches: Sketches, work: Path, sketch_groups: list[Group]
) -> Regions:
    """The regions in order of arrival; their text is ARRIVED."""
    sieve, column = _counted(step, sketches, work), _column(step)
    batches = documents_of(sketches.batches([column], ROWS), column == "tokens")
    return _passed(sieve, batches, work / ARRIVED, step.of == "characters")


def _passed(sieve: Sieve, documents: Iterator[DocumentBatch], path: Path, chars: bool) -> Regions:
    writer = RegionsWriter(path, sieve.window, chars)
    for batch in documents:
        marks = sieve.passing(batch.symbols, batch.offsets)
        writer.add(batch.first, batch.symbols, batch.offsets, marks)
    return writer.close()


def _regions_by_tasks(
    step: DedupSuffixArray, sketches: Sketches, work: Path, sketch_groups: list[Group]
) -> Regions:
    """As `_regions_in_process`, the same bytes. What a killed run left is kept."""
    if not (work / SIEVE).exists():
        _counted(step, sketches, work).save(work / SIEVE)
    settings = {"work": str(work), "window": step.window, "unit": step.of}
    tasks = [{**group.dump(), **settings} for group in sketch_groups]
    missing = [t for t in tasks if not all(p.exists() for p in region_files(work, t["part"]))]
    run_tasks(sketches.run, f"{__name__}:pass_group", missing)
    parts = []
    with (work / ARRIVED).open("wb") as file:
        for task in tasks:
            text, regions = region_files(work, task["part"])
            with text.open("rb") as source:
                shutil.copyfileobj(source, file, 1 << 24)
            parts.append(Regions.load(regions))
    columns = [(p.document, p.start, p.length) for p in parts]
    document, start, length = (np.concatenate(column) for column in zip(*columns, strict=True))
    return Regions(document, start, np.cumsum(length) - length, length)


def region_files(work: Path, part: int) -> tuple[Path, Path]:
    """The text of a group's regions, and these, in order of arrival."""
    return work / f"found-{part:05d}.text", work / f"found-{part:05d}.npy"


def pass_group(task: Task) -> dict[str, Any]:
    """A task: the regions of a group. It holds the table of counts, at most 1 GiB, as a map."""
    group, work = Group.load(task), Path(task["work"])
    sieve = Sieve.load(work / SIEVE, task["window"])
    tokens = task["unit"] == "tokens"
    sketches = sketch_batches(group.files, ["tokens" if tokens else "text"], ROWS)
    text, regions = region_files(work, task["part"])
    with replacing(text) as aside:
        documents = documents_of(sketches, tokens, group.first)
        marked = _passed(sieve, documents, aside, task["unit"] == "characters")
    marked.save(regions)
    return {}
