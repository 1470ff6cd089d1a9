"""Bloom filters: test-and-insert of n-gram keys against pybloom-live and rbloom; the whole command.

    python benchmarks/bench_bloom.py [--keys N] [--documents N]

All three get the same 64-bit keys, two thirds of them new, one after the other, at 1 % false
positives, each in a process of its own; pybloom-live and rbloom as Python integers, made before the
clock starts. Ours is also given many more keys, for a filter that is larger than the caches. The
command is `dedup_bloom` as it stands (DCLM's old-both) from parquet to parquet with two workers, on
the documents of bench_passages.py. Exit status 1 under 30 times pybloom-live.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.bench_minhash import distinct
from benchmarks.bench_passages import with_boilerplate
from benchmarks.shared_texts import last_json, reached, sized, watched

TARGET = 30
RATE = 0.01
PASSES = sized(3, 1)
MANY = sized(40, 2)  # times as many keys for ours alone


def keys_of(count: int) -> np.ndarray:
    """uint64[count], of which a third was there before, evenly strewn."""
    draw = np.random.default_rng(5)
    keys = draw.integers(0, 2**64, count, np.uint64)
    again = np.flatnonzero(draw.random(count) < 1 / 3)
    again = again[again > 0]
    keys[again] = keys[(draw.random(len(again)) * again).astype(np.int64)]
    return keys


def held_mib() -> float:
    """The memory that this process holds now, pages of mapped files included."""
    import psutil

    return psutil.Process().memory_info().rss / 2**20


def ours(count: int) -> dict[str, object]:
    from curate.dedup.bloom.filter import BloomFilter
    from tests.curate.dedup.bloom_cases import add

    keys = keys_of(count)
    with tempfile.TemporaryDirectory() as folder:
        add(BloomFilter.create(Path(folder, "warm"), "bench", RATE), keys[:10])
        before = held_mib()
        times = []
        for i in range(PASSES):
            bloom = BloomFilter.create(Path(folder, str(i)), "bench", RATE)
            bloom.reserve(count)
            begin = time.perf_counter()
            hits = 0
            for at in range(0, count, 1_000_000):
                hits += int(add(bloom, keys[at : at + 1_000_000]).sum())
            times.append(time.perf_counter() - begin)
    return {"seconds": times, "hits": hits, "mib": held_mib() - before, "bits": bloom.bytes * 8}


def pybloom(count: int) -> dict[str, object]:
    from pybloom_live import BloomFilter

    keys = keys_of(count).tolist()
    before = held_mib()
    times = []
    for _ in range(PASSES):
        bloom = BloomFilter(count, RATE)
        begin = time.perf_counter()
        hits = 0
        for key in keys:
            hits += bloom.add(key)
        times.append(time.perf_counter() - begin)
    return {"seconds": times, "hits": hits, "mib": held_mib() - before, "bits": bloom.num_bits}


def rbloom(count: int) -> dict[str, object]:
    from rbloom import Bloom

    keys = keys_of(count).tolist()
    before = held_mib()
    times = []
    for _ in range(PASSES):
        bloom = Bloom(count, RATE)
        begin = time.perf_counter()
        hits = 0
        for key in keys:
            if key in bloom:
                hits += 1
            else:
                bloom.add(key)
        times.append(time.perf_counter() - begin)
    size = bloom.size_in_bits
    return {"seconds": times, "hits": hits, "mib": held_mib() - before, "bits": size}


FILTERS = {"ours": ours, "pybloom-live": pybloom, "rbloom": rbloom}


def compared(count: int) -> float:
    """Prints a line for each filter; returns how many times ours is as fast as pybloom-live."""
    rates: dict[str, float] = {}
    many = [("ours", count), ("rbloom", count), ("pybloom-live", count), ("ours", MANY * count)]
    for name, keys in many:
        result = last_json([sys.executable, __file__, "--filter", name, "--keys", str(keys)])
        rate = keys / statistics.median(result["seconds"])
        spread = [keys / max(result["seconds"]) / 1e6, keys / min(result["seconds"]) / 1e6]
        times = f", {rate / rates['ours']:.4f} of ours" if rates and name != "ours" else ""
        print(
            f"  {name:<13}{keys:>11,} keys: {rate / 1e6:8.3f} M keys/s"
            f" ({spread[0]:.3f} to {spread[1]:.3f}){times}; {result['hits']:,} seen;"
            f" {result['bits'] / keys:.1f} bits a key, {result['mib']:.0f} MiB more in memory"
        )
        rates.setdefault(name, rate)
    ratio = rates["ours"] / rates["pybloom-live"]
    print(f"  ours is {ratio:.0f} times pybloom-live, {rates['ours'] / rates['rbloom']:.1f} rbloom")
    return ratio


def command(documents: int) -> None:
    """Prints the figures of the whole command."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = with_boilerplate(distinct(documents))
    size = sum(len(t.encode()) for t in texts)
    with tempfile.TemporaryDirectory() as folder:
        path, recipe, out = (Path(folder, n) for n in ("in.parquet", "bloom.yaml", "out"))
        rows = {"id": [f"d{i}" for i in range(len(texts))], "text": texts}
        pq.write_table(pa.table(rows), path, row_group_size=2000)
        del rows, texts
        recipe.write_text("steps:\n  - dedup_bloom\n")
        line = [
            sys.executable,
            "-m",
            "curate.cli.app",
            "run",
            str(recipe),
            str(path),
            "-o",
            str(out),
        ]
        done = watched([*line, "--workers", "2", "--quiet"])
        if done.status:
            sys.exit(done.output)
        record = json.loads((out / "run.json").read_text())
        decided = next(s["decided"] for s in record["stages"] if s.get("decided"))
    print(
        f"  command: {documents:,} documents, {size / 1e6:.0f} MB, {decided['keys']:,} n-grams in"
        f" {done.seconds:.1f} s: {size / done.seconds / 1e6:.1f} MB/s,"
        f" {decided['keys'] / done.seconds / 1e6:.2f} M n-grams/s; {decided['documents']:,}"
        f" documents and {decided['passages']:,} paragraphs went; filter"
        f" {decided['filter_bytes'] / 2**20:.0f} MiB; peak of a process {done.peak_mib:.0f} MiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--filter", choices=FILTERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.filter:
        print(json.dumps(FILTERS[options.filter](options.keys)))
        return
    ratio = compared(options.keys)
    command(options.documents)
    sys.exit(0 if reached(ratio >= TARGET) else 1)


if __name__ == "__main__":
    main()
