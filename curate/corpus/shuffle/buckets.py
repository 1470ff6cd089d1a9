"""The second half of the shuffle: buckets, the documents that share a key, as lists on disk.

Those in a bucket are candidates. A task takes BUNDLE partitions that lie side by side, some four
million pairs: 12 bytes a pair, and 20 more for each of the partition that it sorts; of very large
ones in mapped files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from curate.corpus.shuffle.candidates import BITS, ones_before
from curate.corpus.shuffle.partitions import (
    PairFiles,
    keep_repeated,
    read_partitions,
    sort_pairs,
)
from curate.corpus.shuffle.tasks import run_tasks
from curate.corpus.sizes import Sizes
from curate.corpus.sketches import Sketches, Task
from llmcurate.base.disk.files import replacing, temporary_name
from llmcurate.base.disk.safe_paths import remove
from llmcurate.base.kernels import njit

BUNDLE = 4  # partitions of a task


@njit(cache=True, nogil=True)
def buckets_of(keys, values, members, sizes):
    """(members, buckets): how many there are in the buckets of two or more pairs with the same
    key; keys ascend. Their values are put into `members`, the sizes into `sizes`."""
    filled = buckets = 0
    begin = 0
    for i in range(1, len(keys) + 1):
        if i < len(keys) and keys[i] == keys[begin]:
            continue
        if i - begin > 1:
            for j in range(begin, i):
                members[filled] = values[j]
                filled += 1
            sizes[buckets] = i - begin
            buckets += 1
        begin = i
    return filled, buckets


@njit(cache=True, nogil=True)
def mark(bits, members):
    """Sets the bits of these numbers. bits: uint64, a bit a number."""
    for v in members:
        bits[v >> np.uint32(6)] |= np.uint64(1) << np.uint64(v & np.uint32(63))


def bucket_files(folder: Path, count: int) -> list[tuple[Path, Path]]:
    """(members, sizes), uint32 both, of each of so many pieces, in order."""
    return [
        (folder / f"members-{piece:05d}.u32", folder / f"sizes-{piece:05d}.u32")
        for piece in range(count)
    ]


def find_buckets(
    sketches: Sketches, folder: Path, keys: Path, facts: dict[str, Any]
) -> dict[str, Any]:
    """The phase: buckets in order of their keys, in pieces, and a bit for every candidate.

    facts: what `partition_keys` returned, whose files are in `keys`. A bit a document is in memory.
    """
    count = 1 << facts["partition_bits"]
    settings = {"keys": str(keys), "folder": str(folder), "sizes": sketches.sizes.dump()}
    settings |= {name: facts[name] for name in ("groups", "partition_bits")}
    begins = range(0, count, BUNDLE)
    tasks = [
        {"part": p, "partitions": [begin, min(begin + BUNDLE, count)], **settings}
        for p, begin in enumerate(begins)
    ]
    done = run_tasks(sketches.run, "curate.corpus.shuffle.buckets:write_buckets", tasks)
    bits = np.zeros(facts["documents"] // 64 + 1, np.uint64)
    for members, _ in bucket_files(folder, len(tasks)):
        with members.open("rb") as file:
            while len(chunk := np.fromfile(file, np.uint32, sketches.sizes.bucket_members)):
                mark(bits, chunk)
    bits.tofile(folder / BITS)
    return {
        "pieces": len(tasks),
        "members": sum(d["members"] for d in done),
        "buckets": sum(d["buckets"] for d in done),
        "candidates": int(ones_before(bits)[-1]),
    }


def write_buckets(task: Task) -> dict[str, Any]:
    """A task: the buckets of a few partitions."""
    high, (begin, stop) = task["partition_bits"], task["partitions"]
    members = buckets = 0
    folder = Path(task["folder"])
    scratch = folder / temporary_name("scratch")
    scratch.mkdir(exist_ok=True)
    read = [PairFiles.within(Path(task["keys"]), group) for group in range(task["groups"])]
    with ExitStack() as stack:
        stack.callback(remove, scratch, inside=folder)
        (names,) = bucket_files(folder, task["part"] + 1)[task["part"] :]
        asides = [stack.enter_context(replacing(path)) for path in names]
        files = [stack.enter_context(path.open("wb")) for path in asides]
        waiting = read_partitions(read, begin, stop, scratch, Sizes.load(task).mapped_bytes)
        while waiting:
            (key, value), make_array = waiting.pop(0)
            # Four times as many counters as keys, so that few of those that stand once stay.
            counters = 1 << min(26, max(10, (4 * len(key)).bit_length()))
            count = keep_repeated(key, value, np.zeros(counters, np.uint8))
            key, value = sort_pairs(key[:count], value[:count], high, make_array)
            arrays = make_array(np.uint32), make_array(np.uint32)
            counts = buckets_of(key, value, *arrays)
            for file, array, size in zip(files, arrays, counts, strict=True):
                file.write(array[:size].data)
            members += int(counts[0])
            buckets += int(counts[1])
    return {"members": members, "buckets": buckets}


def chunks(
    files: Sequence[tuple[Path, Path]], most: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(members, sizes) of whole buckets, about `most` members at a time, from pieces in order;
    copies, to be changed."""
    for piece in files:
        with piece[0].open("rb") as members, piece[1].open("rb") as sizes:
            waiting = np.empty(0, np.uint32)
            while True:
                if len(waiting) == 0:
                    waiting = np.fromfile(sizes, np.uint32, most // 2)
                    if len(waiting) == 0:
                        break
                ends = np.cumsum(waiting, dtype=np.int64)
                take = max(1, int(np.searchsorted(ends, most, "right")))
                part, waiting = waiting[:take], waiting[take:]
                yield np.fromfile(members, np.uint32, int(ends[take - 1])), part
