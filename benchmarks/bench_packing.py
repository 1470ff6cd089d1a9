"""Packing documents into rows: ours against best-fit decreasing in plain Python, and at full size.

    python benchmarks/bench_packing.py [--documents N] [--context N]

Lengths are log-normal with a mean of 1,000 tokens. The peer is the algorithm of the paper (Ding et
al. 2024, Fewer Truncations Improve Language Modeling) with a segment tree over the rooms, as
trainers in Python write it, on a twentieth of the documents, which ours packs too: same number of
rows, medians of three passes, ratio. Then all documents by each packing: seconds, what the process
held more at its peak, share of the positions used, documents split. Exit status 1 under five times
the peer, over 30 s or 1 GiB for the whole, or with another number of rows than the peer's.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import reached
from train.data.packing import PACKINGS, figures, pack

TARGET, SECONDS, BYTES = 5, 30, 1 << 30


def lengths(documents: int) -> np.ndarray:
    drawn = np.random.default_rng(7).lognormal(6.4, 1.0, documents)
    return np.clip(drawn, 1, 1_000_000).astype(np.int64)


def plain(sizes: list[int], context: int) -> int:
    """Rows of best-fit decreasing; ``sizes`` may exceed a row."""
    leaves = 1 << context.bit_length()
    some = [0] * (2 * leaves)
    rooms: list[list[int]] = [[] for _ in range(context + 1)]
    full = sum(size // context for size in sizes)
    items = sorted((size % context for size in sizes if size % context), reverse=True)
    rows: list[list[int]] = []
    for number, size in enumerate(items):
        node = leaves + size
        if not some[node]:
            while node > 1 and (node & 1 or not some[node + 1]):
                node >>= 1
            if node > 1:
                node += 1
                while node < leaves:
                    node = 2 * node if some[2 * node] else 2 * node + 1
        if node > 1:
            room = node - leaves
            row = rooms[room].pop()
            if not rooms[room]:
                while node:
                    some[node] = 0 if node >= leaves else some[2 * node] | some[2 * node + 1]
                    node >>= 1
        else:
            room, row = context, len(rows)
            rows.append([])
        rows[row].append(number)
        room -= size
        if room:
            rooms[room].append(row)
            node = leaves + room
            while node and not some[node]:
                some[node] = 1
                node >>= 1
    return full + len(rows)


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=10_000_000)
    parser.add_argument("--context", type=int, default=2048)
    options = parser.parse_args()
    length = lengths(options.documents)
    part = length[: max(1, options.documents // 20)]
    pack("best-fit", part[:10], options.context, 0)  # compiles
    ours, theirs, rows = [], [], set()
    for _ in range(3):
        began = time.perf_counter()
        rows.add(pack("best-fit", part, options.context, 0).count)
        ours.append(time.perf_counter() - began)
        sizes = part.tolist()
        began = time.perf_counter()
        rows.add(plain(sizes, options.context))
        theirs.append(time.perf_counter() - began)
    ratio = statistics.median(theirs) / statistics.median(ours)
    print(
        f"{len(part):,} documents, rows of {options.context}: ours {statistics.median(ours):.2f} s,"
        f" plain Python {statistics.median(theirs):.2f} s, {ratio:.0f} times; rows {rows}"
    )
    worst, held = 0.0, 0
    del sizes
    for name in sorted(PACKINGS):  # the largest first: a peak does not fall
        before = peak()
        began = time.perf_counter()
        packing = pack(name, length, options.context, 0)
        seconds = time.perf_counter() - began
        worst, held = max(worst, seconds), max(held, peak() - before)
        packed = figures(name, packing, length, options.context)
        print(
            f"{name}: {packed.documents:,} documents, {packed.tokens:,} tokens,"
            f" {packed.rows:,} rows in {seconds:.1f} s;"
            f" peak {(peak() - before) / 2**20:.0f} MiB more; used"
            f" {100 * packed.used:.2f} %, split {packed.split:,}, padded {packed.padded:,}"
        )
        del packing
    return int(
        not reached(ratio >= TARGET and worst <= SECONDS and held <= BYTES) or len(rows) != 1
    )


if __name__ == "__main__":
    sys.exit(main())
