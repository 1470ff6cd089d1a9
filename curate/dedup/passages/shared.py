"""Passages that may stand more than once, by the shuffle on 64 bits of their keys.

A passage is (group of sketch files, its number in the group), so that 32 bits number it whatever
the corpus. Tasks on groups put (key, number) into partitions; tasks on partitions tell each group
which of its passages share the 64 bits with another. A key that a group has again and again, such
as a site's boilerplate, goes into the shuffle a few times: that it is shared is known already. So
no partition is as large as the commonest line is frequent.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from curate.corpus.shuffle.buckets import BUNDLE, buckets_of
from curate.corpus.shuffle.partitions import (
    PairFiles,
    PartitionWriter,
    keep_repeated,
    pair_counts,
    partition_bits,
    read_partitions,
    sort_pairs,
)
from curate.corpus.shuffle.tasks import Group, run_tasks
from curate.corpus.sizes import Sizes
from curate.corpus.sketches import Sketches, Task
from curate.dedup.passages.keys import unpacked
from llmcurate.base.disk.files import replacing, temporary_name
from llmcurate.base.disk.safe_paths import remove
from llmcurate.base.kernels import njit

REMEMBERED = 1 << 16  # keys of a group that are recognised when they come again
NONE = np.uint32(2**32 - 1)
_ROWS = 10_000  # sketches that are read at once


@njit(cache=True, nogil=True)
def drop_repeats(keys, first, last_keys, last_numbers, repeated, keys_out, numbers_out):
    """The number of a group's keys that go on, into keys_out and numbers_out: those that are not
    among the remembered ones. keys: uint64, of the passages from number `first` on; last_keys,
    last_numbers: uint64 and uint32[2^k], the last key and its number by low bits, NONE for none;
    repeated:
    uint8[passages], set for both of equal keys."""
    mask = np.uint64(len(last_keys) - 1)
    count = 0
    for i in range(len(keys)):
        h = np.int64(keys[i] & mask)
        if last_numbers[h] != NONE and last_keys[h] == keys[i]:
            repeated[last_numbers[h]] = 1
            repeated[first + i] = 1
            continue
        last_keys[h] = keys[i]
        last_numbers[h] = np.uint32(first + i)
        keys_out[count] = keys[i]
        numbers_out[count] = np.uint32(first + i)
        count += 1
    return count


def repeated_file(folder: Path, group: int) -> Path:
    """A bit for each passage of a group, set where it is known to be shared."""
    return folder / f"repeated-{group:05d}.bits"


def shared_files(folder: Path, count: int) -> list[tuple[Path, Path]]:
    """Of each of so many tasks: numbers of shared passages (uint32) by group, and where those of
    each group begin (int64[groups + 1])."""
    return [
        (folder / f"shared-{piece:05d}.u32", folder / f"starts-{piece:05d}.npy")
        for piece in range(count)
    ]


def partition_passages(
    sketches: Sketches, folder: Path, groups: list[Group], about: int
) -> dict[str, Any]:
    """The phase `keys`: every group's keys by partition. about: how many passages there are, from
    which the number of partitions follows."""
    bits = partition_bits(about, sketches.sizes.partition_pairs)
    settings = {"bits": bits, "folder": str(folder), "sizes": sketches.sizes.dump()}
    tasks = [{**group.dump(), **settings} for group in groups]
    done = run_tasks(sketches.run, f"{__name__}:write_keys", tasks)
    return {
        "partition_bits": bits,
        "passages": [d["passages"] for d in done],
        "repeated": sum(d["repeated"] for d in done),
    }


def _passages_in(path: Path) -> int:
    with pq.ParquetFile(path, pre_buffer=False) as source:
        counts = source.read(columns=["passages"], use_threads=False)["passages"]
    return int(counts.to_numpy().sum())


def write_keys(task: Task) -> dict[str, Any]:
    """A task: the keys of a group. Held are a segment twice, 48 MB, and a byte a passage."""
    group, folder = Group.load(task), Path(task["folder"])
    passages = sum(_passages_in(file.path) for file in group.files)
    last_keys = np.zeros(REMEMBERED, np.uint64)
    last_numbers = np.full(REMEMBERED, NONE, np.uint32)
    repeated = np.zeros(passages, np.uint8)
    first = 0
    with ExitStack() as stack:
        paths = PairFiles.within(folder, group.part)
        aside = PairFiles(*(stack.enter_context(replacing(path, sync=False)) for path in paths))
        segment = min(Sizes.load(task).segment_pairs, max(1, passages))
        writer = PartitionWriter(aside, task["bits"], segment)
        for file in group.files:
            with pq.ParquetFile(file.path, pre_buffer=False) as source:
                for batch in source.iter_batches(_ROWS, columns=["keys"], use_threads=False):
                    keys = np.ascontiguousarray(unpacked(batch.column(0), np.uint64)[0][:, 1])
                    passing = np.empty_like(keys), np.empty(len(keys), np.uint32)
                    size = drop_repeats(keys, first, last_keys, last_numbers, repeated, *passing)
                    writer.add(passing[0][:size], passing[1][:size])
                    first += len(keys)
        writer.close()
        bits = stack.enter_context(replacing(repeated_file(folder, group.part), sync=False))
        np.packbits(repeated).tofile(bits)
    return {"passages": passages, "repeated": int(np.count_nonzero(repeated))}


def find_shared(
    sketches: Sketches, folder: Path, keys: Path, facts: dict[str, Any]
) -> dict[str, Any]:
    """The phase `shared`: which passages of each group share 64 bits of key with others."""
    count = 1 << facts["partition_bits"]
    settings = {"keys": str(keys), "folder": str(folder), "groups": len(facts["passages"])}
    settings |= {"partition_bits": facts["partition_bits"], "sizes": sketches.sizes.dump()}
    tasks = [
        {"part": p, "partitions": [begin, min(begin + BUNDLE, count)], **settings}
        for p, begin in enumerate(range(0, count, BUNDLE))
    ]
    done = run_tasks(sketches.run, f"{__name__}:write_shared", tasks)
    return {"pieces": len(tasks), "shared": sum(d["shared"] for d in done)}


def write_shared(task: Task) -> dict[str, Any]:
    """A task: the shared passages of a few partitions, by group. Held are 12 bytes a pair, and of
    the partition that is looked at 30 more; of a very large one in mapped files."""
    high, (begin, stop) = task["partition_bits"], task["partitions"]
    folder, groups = Path(task["folder"]), task["groups"]
    scratch = folder / temporary_name("scratch")
    scratch.mkdir(exist_ok=True)
    files = [PairFiles.within(Path(task["keys"]), group) for group in range(groups)]
    numbers: list[np.ndarray] = []
    owners: list[np.ndarray] = []
    with ExitStack() as stack:
        stack.callback(remove, scratch, inside=folder)
        ends = np.cumsum(pair_counts(files, begin, stop), axis=0)
        mapped_bytes = Sizes.load(task).mapped_bytes
        partitions = read_partitions(files, begin, stop, scratch, mapped_bytes)
        for p, ((key, number), make_array) in enumerate(partitions):
            position = make_array(np.uint32)
            position[:] = np.arange(len(key), dtype=np.uint32)
            # Four times as many counters as keys, so that few of those that stand once stay.
            counters = 1 << min(26, max(10, (4 * len(key)).bit_length()))
            candidates = keep_repeated(key, position, np.zeros(counters, np.uint8))
            pairs = key[:candidates], position[:candidates]
            key, position = sort_pairs(*pairs, high, make_array)
            members = make_array(np.uint32)
            count = buckets_of(key, position, members, make_array(np.uint32))[0]
            is_shared = np.zeros(len(number), np.bool_)
            is_shared[members[:count]] = True
            at = np.flatnonzero(is_shared)
            numbers.append(number[at])
            owners.append(np.searchsorted(ends[:, p], at, "right").astype(np.int32))
        owner = np.concatenate(owners)
        order = np.argsort(owner, kind="stable")
        starts = np.searchsorted(owner[order], np.arange(groups + 1)).astype(np.int64)
        values, table = shared_files(folder, task["part"] + 1)[-1]
        np.concatenate(numbers)[order].tofile(stack.enter_context(replacing(values, sync=False)))
        with stack.enter_context(replacing(table, sync=False)).open("wb") as file:
            np.save(file, starts)
    return {"shared": len(owner)}


def shared_of(group: int, passages: int, keys: Path, files: list[tuple[Path, Path]]) -> np.ndarray:
    """bool[passages] of a group: those that may stand more than once."""
    bits = np.fromfile(repeated_file(keys, group), np.uint8)
    is_shared = np.unpackbits(bits, count=passages).view(np.bool_)
    for values, table in files:
        begin, stop = np.load(table, mmap_mode="r")[group : group + 2].tolist()
        is_shared[np.fromfile(values, np.uint32, stop - begin, offset=4 * begin)] = True
    return is_shared
