"""The regions of a corpus: its anchors are counted, then windows that may stand twice are passed.

Passing is a task a group of sketch files, over one table of counts. The regions of groups are put
one behind the other, as of one group.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.atomic import clear_temporary, replacing
from curate.dedup.shuffle.groups import Group, groups, run_tasks
from curate.dedup.suffix_array import decide
from curate.dedup.suffix_array.anchors import Sieve
from curate.dedup.suffix_array.regions import Regions, RegionsWriter, preferred
from curate.dedup.suffix_array.sort import REGIONS, TEXT, Mapped
from curate.sketches import Sketches, Task, sketch_batches
from curate.text.buffers import as_large_string, text_buffers

if TYPE_CHECKING:
    from curate.dedup.suffix_array.step import DedupSuffixArray

ROWS = 200  # documents read at a time; they may be long
GROUP = 1 << 28  # bytes of sketches that a task is given, before they were packed: some 4 s
SIEVE, DTYPE, ARRIVED = "sieve.npy", "dtype", "arrived.text"


@dataclass(frozen=True)
class Some:
    """Documents of a sketch file. first: the number of the first one; symbols: uint8[], uint16[] or
    uint32[]; offsets: int64[rows + 1], in symbols."""

    first: int
    symbols: np.ndarray
    offsets: np.ndarray
    batch: pa.RecordBatch


def list_values(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """(values, offsets: int64[rows + 1]) of a large_list column without nulls."""
    return column.values.to_numpy(), column.offsets.to_numpy()


def documents_of(batches: Iterator[pa.RecordBatch], tokens: bool, first: int = 0) -> Iterator[Some]:
    """The documents of sketches, whose first column is the text or the tokens; first: the number of
    the first one."""
    for batch in batches:
        column = batch.column(0)
        if tokens:
            symbols, offsets = list_values(column)
        else:
            symbols, offsets = text_buffers(as_large_string(column))
        yield Some(first, symbols, offsets, batch)
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
    found = groups(sketches.files, GROUP, _bytes)
    regions = _found_here if len(found) < 2 else _found_by_tasks
    arrived = regions(step, sketches, work, found)
    path = work / ARRIVED
    if step.survivor == "first":
        path.replace(work / TEXT)
    else:
        rank, text = decide.ranks(sketches.connection), Mapped(path, dtype_of(work)).values
        arrived = preferred(arrived, rank, text, work / TEXT)
        path.unlink()
    arrived.save(done)
    (work / SIEVE).unlink(missing_ok=True)
    for task in found:
        for path in found_files(work, task.part):
            path.unlink(missing_ok=True)
    return arrived


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
    for some in documents_of(sketches.batches([column], ROWS), column == "tokens"):
        dtype = some.symbols.dtype
        sieve.count(some.symbols, some.offsets)
    (work / DTYPE).write_text(dtype.str, encoding="utf-8")
    return sieve


def _found_here(
    step: DedupSuffixArray, sketches: Sketches, work: Path, found: list[Group]
) -> Regions:
    """The regions in order of arrival; their text is ARRIVED."""
    sieve, column = _counted(step, sketches, work), _column(step)
    every = documents_of(sketches.batches([column], ROWS), column == "tokens")
    return _passed(sieve, every, work / ARRIVED, step.of == "characters")


def _passed(sieve: Sieve, documents: Iterator[Some], path: Path, chars: bool) -> Regions:
    writer = RegionsWriter(path, sieve.window, chars)
    for some in documents:
        marks = sieve.passing(some.symbols, some.offsets)
        writer.add(some.first, some.symbols, some.offsets, marks)
    return writer.close()


def _found_by_tasks(
    step: DedupSuffixArray, sketches: Sketches, work: Path, found: list[Group]
) -> Regions:
    """As `_found_here`, the same bytes. What a killed try has counted and passed is kept."""
    if not (work / SIEVE).exists():
        _counted(step, sketches, work).save(work / SIEVE)
    told = {"work": str(work), "window": step.window, "unit": step.of}
    tasks = [{**group.dump(), **told} for group in found]
    missing = [t for t in tasks if not all(p.exists() for p in found_files(work, t["part"]))]
    run_tasks(sketches.run, f"{__name__}:pass_group", missing)
    parts = []
    with (work / ARRIVED).open("wb") as file:
        for task in tasks:
            text, regions = found_files(work, task["part"])
            with text.open("rb") as source:
                shutil.copyfileobj(source, file, 1 << 24)
            parts.append(Regions.load(regions))
    columns = [(p.document, p.start, p.length) for p in parts]
    document, start, length = (np.concatenate(column) for column in zip(*columns, strict=True))
    return Regions(document, start, np.cumsum(length) - length, length)


def found_files(work: Path, part: int) -> tuple[Path, Path]:
    """The text of a group's regions, and these, in order of arrival."""
    return work / f"found-{part:05d}.text", work / f"found-{part:05d}.npy"


def pass_group_files(task: Task) -> dict[str, list[str]]:
    """What `pass_group` reads and writes."""
    reads = [*Group.load(task).reads(), str(Path(task["work"], SIEVE))]
    writes = [str(path) for path in found_files(Path(task["work"]), task["part"])]
    return {"reads": reads, "writes": writes}


def pass_group(task: Task) -> dict[str, Any]:
    """A task: the regions of a group. It holds the table of counts, at most 1 GiB, as a map."""
    group, work = Group.load(task), Path(task["work"])
    sieve = Sieve.load(work / SIEVE, task["window"])
    tokens = task["unit"] == "tokens"
    batches = sketch_batches(group.files, ["tokens" if tokens else "text"], ROWS)
    text, regions = found_files(work, task["part"])
    with replacing(text) as aside:
        every = documents_of(batches, tokens, group.first)
        found = _passed(sieve, every, aside, task["unit"] == "characters")
    found.save(regions)
    return {}
