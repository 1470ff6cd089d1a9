"""The first half of the shuffle: (key, document) of the sketches of a group, by partition.

Documents are numbered in order of (part, n). A task holds one segment twice, 24 bytes for each of
its pairs: 48 MB at most.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus.shuffle import partitions
from curate.corpus.shuffle.groups import MOST, Group, run_tasks
from curate.corpus.shuffle.partitions import PairFiles, PartitionWriter, partition_bits
from curate.corpus.sketches import Run, Task
from curate.disk.atomic import replacing
from curate.errors import RunFailed

READ = 1_000_000  # keys of sketches that are read at once


def fixed_rows(column: pa.FixedSizeBinaryArray, dtype: Any) -> np.ndarray:
    """The rows of a fixed_size_binary column as a matrix of numbers; nulls are any numbers."""
    width = column.type.byte_width
    begin = column.offset * width
    data = np.frombuffer(column.buffers()[1], np.uint8)[begin : begin + len(column) * width]
    return data.view(dtype).reshape(len(column), width // np.dtype(dtype).itemsize)


def documents_in(found: list[Group], label: str) -> int:
    """How many sketches there are; RunFailed above what their numbers can tell apart."""
    count = sum(group.rows for group in found)
    if count >= MOST:
        raise RunFailed(
            f"{label} compares up to {MOST - 1:,} documents at once, these are {count:,};"
            " run it on parts, each with --against the ones before"
        )
    return count


def part_keys(
    run: Run, folder: Path, found: list[Group], label: str, column: str, width: int
) -> dict[str, Any]:
    """The phase: every group's pairs into `folder`. column: of the sketches, fixed_size_binary,
    whose first `width` numbers of 64 bits are keys, each by itself; null: a document without."""
    count = documents_in(found, label)
    bits = partition_bits(count * width)
    told = {"column": column, "width": width, "bits": bits, "folder": str(folder)}
    tasks = [{**group.dump(), **told} for group in found]
    run_tasks(run, "curate.corpus.shuffle.keys:write_keys", tasks)
    return {"documents": count, "groups": len(found), "partition_bits": bits}


def write_keys_files(task: Task) -> dict[str, list[str]]:
    """What `write_keys` reads and writes."""
    reads = [str(file.path) for file in Group.load(task).files]
    written = PairFiles.within(Path(task["folder"]), task["part"])
    return {"reads": reads, "writes": [str(path) for path in written]}


def write_keys(task: Task) -> dict[str, Any]:
    """A task: the pairs of a group."""
    group, width = Group.load(task), task["width"]
    first = group.first
    segment = min(partitions.SEGMENT, max(1, group.rows * width))
    with ExitStack() as stack:
        files = PairFiles.within(Path(task["folder"]), group.part)
        aside = PairFiles(*(stack.enter_context(replacing(path)) for path in files))
        writer = PartitionWriter(aside, task["bits"], segment=segment)
        for file in group.files:
            with pq.ParquetFile(file.path, pre_buffer=False) as source:
                rows = max(1, READ // width)
                for batch in source.iter_batches(rows, columns=[task["column"]], use_threads=False):
                    keys = fixed_rows(batch.column(0), np.uint64)[:, :width]
                    numbers = np.arange(first, first + len(keys), dtype=np.uint32)
                    valid = batch.column(0).is_valid().to_numpy(zero_copy_only=False)
                    if not valid.all():
                        keys, numbers = keys[valid], numbers[valid]
                    writer.add(keys.reshape(-1), np.repeat(numbers, width))
                    first += len(batch)
        writer.close()
    return {}
