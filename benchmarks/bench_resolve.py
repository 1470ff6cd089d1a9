"""Deciding by tasks: dedup_minhash, dedup_exact and dedup_passages over sketches, in one process
and by workers.

    python benchmarks/bench_resolve.py [--documents N] [--exact N] [--passages N] [--only PART]

MinHash decides on documents of 60 words drawn from 5,000, every fourth a near copy, by bands and
with `--verify 0.8`; exact dedup on synthetic keys, one in five of which another document has;
passages are lines of generated documents (generated_corpus.py), ten of each, a third of which stand
more than once. Each is decided by the calling process alone (exact: by one query over all
sketches), by one worker and by two; printed are seconds, CPU time of all processes and the peak of
the largest. Exit status 1 where the bytes of the decisions differ, or where one worker takes more
than 1.05 times the CPU time of the process alone, without the start of a worker. Takes some 4 GB of
disk.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import last_json

LIMIT = 1.05
ROWS, WORDS, VOCABULARY = 25_000, 60, 5_000  # documents of a file, words of a document
MINHASH: dict[str, dict[str, Any]] = {"bands": {}, "verify": {"verify": 0.8}}


def write_minhash(count: int, folder: Path, settings: dict[str, Any]) -> None:
    """Sketches of that many documents: every fourth a near copy of the one before it."""
    import random

    import pyarrow as pa
    import pyarrow.parquet as pq

    from curate.dedup.minhash.step import DedupMinhash
    from curate.documents import documents

    draw, step = random.Random(1), DedupMinhash(**settings)
    known = [f"{'bcdfgklmnp'[i % 10]}{i:o}" for i in range(VOCABULARY)]
    text = ""
    for part in range(-(-count // ROWS)):
        texts = []
        for number in range(min(ROWS, count - part * ROWS)):
            if number % 4 == 3:
                texts.append(f"{text} The end.")
                continue
            text = " ".join(draw.choices(known, k=WORDS))
            texts.append(text)
        names = [f"crawl-2024-{part * ROWS + i}" for i in range(len(texts))]
        table = step.sketch(documents({"id": names, "text": texts}))
        store(folder, part, table.append_column("id", pa.array(names)), pq)


def write_exact(count: int, folder: Path) -> None:
    """Sketches of that many documents with keys of 128 bits."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    draw = np.random.default_rng(1)
    for part in range(-(-count // ROWS)):
        rows = min(ROWS, count - part * ROWS)
        number = np.arange(part * ROWS, part * ROWS + rows)
        of = np.where(draw.random(rows) < 0.2, draw.integers(0, count, rows), number)
        # Numbers times odd ones: distinct, and as even as a hash's for a shuffle.
        pair = (of.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        flat = np.stack([pair, pair * np.uint64(0xC2B2AE3D27D4EB4F)], axis=1)
        keys = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(16), rows, [None, pa.py_buffer(np.ascontiguousarray(flat))]
        )
        columns = {
            "key": keys,
            "url_md5": pa.nulls(rows, pa.string()),
            "size": draw.integers(100, 100_000, rows),
            "date": pa.nulls(rows, pa.timestamp("us", "UTC")),
            "source": pa.nulls(rows, pa.string()),
            "score": pa.nulls(rows, pa.float64()),
            "id": pa.array(np.char.add("crawl-2024-", number.astype(str)).tolist(), pa.string()),
        }
        store(folder, part, pa.table(columns), pq)


def write_passages(count: int, folder: Path) -> None:
    """Sketches of that many generated documents, of ten lines each."""
    from itertools import islice

    import pyarrow as pa
    import pyarrow.parquet as pq

    from benchmarks.generated_corpus import documents as generated
    from curate.dedup.passages.step import DedupPassages
    from curate.documents import documents

    step, rows = DedupPassages(), generated(count)
    for part in range(-(-count // ROWS)):
        some = list(islice(rows, ROWS))
        columns = {name: [row[name] for row in some] for name in ("id", "text", "url", "source")}
        table = step.sketch(documents(columns))
        store(folder, part, table.append_column("id", pa.array(columns["id"])), pq)


def store(folder: Path, part: int, table: Any, pq: Any) -> None:
    """A file of a stage's sketches."""
    import numpy as np
    import pyarrow as pa

    table = table.append_column("part", pa.array(np.full(len(table), part), pa.int32()))
    table = table.append_column("n", pa.array(np.arange(len(table))))
    pq.write_table(table, folder / f"part-{part:05d}.parquet", compression="zstd")


def cpu() -> float:
    """Seconds of CPU time of this process and of those that ended before it."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def decide(folder: Path, settings: str, workers: int) -> None:
    """Prints the figures of `resolve` over the sketches in a folder; workers 0: this process."""
    from curate.database import database
    from curate.dedup import exact_resolve
    from curate.dedup.exact import DedupExact
    from curate.dedup.minhash.step import DedupMinhash
    from curate.dedup.passages.step import DedupPassages
    from curate.engines.local import LocalEngine
    from curate.sketches import Run, Sketches, SketchFile, run_here, view

    paths = sorted(folder.glob("part-*"))
    files = tuple(SketchFile(part, path, part) for part, path in enumerate(paths))
    name, given = json.loads(settings)
    kinds = {"exact": DedupExact, "passages": DedupPassages}
    step: Any = kinds.get(name, DedupMinhash)(**given)
    exact_resolve.AT_ONCE = 0 if workers else 10**12
    own, path = folder / "own", folder / f"decisions-{workers}.parquet"
    own.mkdir(exist_ok=True)
    begin, start, before = 0.0, 0.0, cpu()
    with database(folder / "spill", max(1, workers)) as db, LocalEngine(max(1, workers)) as engine:
        view(db, files)
        run: Run = engine.map if workers else run_here
        begin = time.perf_counter()
        found = step.resolve(Sketches(db, path, own, files, run=run))
        seconds = time.perf_counter() - begin
    used = cpu() - before
    if workers:  # what it costs that there are workers at all
        start = cpu()
        with LocalEngine(workers) as engine:
            list(engine.map("benchmarks.bench_resolve:nothing", [{}] * workers))
        start = cpu() - start
    peaks = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    figures = {
        "seconds": seconds,
        "cpu": used,
        "start": start,
        "peak_mib": max(one.ru_maxrss for one in peaks) / 1024,
        "dropped": found["dropped"],
        "digest": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
    print(json.dumps(figures))


def nothing(task: dict[str, Any]) -> dict[str, Any]:
    """A task that loads what tasks load."""
    import curate.dedup.minhash.verify
    import curate.dedup.passages.decided  # noqa: F401

    return {}


def compare(name: str, count: int, folder: Path, settings: str, passes: int) -> bool:
    """Prints the figures of one kind of resolve; whether they are as they should be."""
    rates, digests = {}, set()
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])
    for workers in (0, 1, 2):
        command = [sys.executable, __file__, "--decide", str(folder), settings, str(workers)]
        runs = [last_json(command) for _ in range(passes)]
        digests |= {run["digest"] for run in runs}
        middle = {k: statistics.median(r[k] for r in runs) for k in runs[0] if k != "digest"}
        rates[workers] = middle
        who = "the process" if not workers else f"{workers} worker{'s' * (workers > 1)}"
        print(
            f"  {name:<9}{who:<12}{middle['seconds']:7.1f} s, {middle['cpu']:6.1f} s of CPU,"
            f" {middle['start']:.1f} s of it start; peak of a process"
            f" {middle['peak_mib']:5.0f} MiB; {middle['dropped']:.0f} of {count} dropped",
            flush=True,
        )
    ratio = (rates[1]["cpu"] - rates[1]["start"]) / rates[0]["cpu"]
    gain = rates[1]["seconds"] / rates[2]["seconds"]
    print(f"  {name}: CPU of one worker / alone {ratio:.2f} (limit {LIMIT}); 2 workers {gain:.2f}x")
    if len(digests) > 1:
        print(f"  {name}: the decisions differ")
    return ratio <= LIMIT and len(digests) == 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--documents", type=int, default=2_000_000, help="for MinHash")
    parser.add_argument("--exact", type=int, default=16_000_000, help="documents for exact dedup")
    parser.add_argument("--passages", type=int, default=400_000, help="documents with passages")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--only", choices=[*MINHASH, "exact", "passages"])
    parser.add_argument("--folder", help="where files are written; default: a temporary folder")
    parser.add_argument("--decide", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.decide:
        return decide(Path(options.decide[0]), options.decide[1], int(options.decide[2]))
    passed = True
    counts = {"exact": options.exact, "passages": options.passages}
    for name in (*MINHASH, *counts):
        if options.only not in (None, name):
            continue
        count = counts.get(name, options.documents)
        with tempfile.TemporaryDirectory(dir=options.folder) as place:
            if name == "exact":
                write_exact(count, Path(place))
            elif name == "passages":
                write_passages(count, Path(place))
            else:
                write_minhash(count, Path(place), MINHASH[name])
            settings = json.dumps([name, MINHASH.get(name, {})])
            passed &= compare(name, count, Path(place), settings, options.passes)
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
