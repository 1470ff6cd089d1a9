"""Memory that a candidate costs when MinHash decides: two corpora of synthetic band keys.

    python benchmarks/minhash_memory.py [--documents SMALL LARGE] [--survivor P]
        [--large MIB] [--folder DIR] [--copies SHARE]

Sketches are written as they come from the step (14 bands), `resolve` is called on them in a process
of its own. Of two documents in three SHARE copy half of the bands of another: with 0.8, the
default, 85 % share a band with another and are candidates, with 0.15 19 %. CPU of what would be
tasks of workers is counted apart. Printed are seconds and the peaks of memory: of what no file
backs, which the system cannot take back, and of all that is resident, parts of mapped files
included. The difference of the former between the two corpora is what a candidate costs. Exit
status 1 above 4 bytes: one array of numbers of candidates that is not a mapped file. Takes some
350 bytes of disk a document.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import last_json, peak_mib, reached
from curate.corpus.sizes import Sizes

BANDS, GROUP, PARTS = 14, 100_000, 4
LIMIT = 4


def write(count: int, folder: Path, share: float) -> None:
    """Sketches of that many documents as files of a stage. share: of those that may be copies."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from curate.dedup.minhash.near_duplicates import binary_rows

    draw = np.random.default_rng(count)
    part_rows = -(-count // PARTS)
    for part in range(PARTS):
        rows = min(part_rows, count - part * part_rows)
        writer = None
        for first in range(0, rows, GROUP):
            size = min(GROUP, rows - first)
            keys = draw.integers(0, 2**64, (size, BANDS), np.uint64)
            # Every third document begins a cluster; some of the rest copy half of its bands.
            base = np.arange(size) - np.arange(size) % 3
            copied = (draw.random((size, BANDS)) < 0.5) & (draw.random((size, 1)) < share)
            keys = np.where(copied, keys[base], keys)
            numbers = np.arange(first, first + size)
            ids = np.char.add("crawl-2024-", (numbers + part * part_rows).astype(str))
            every = np.ones(size, np.bool_)
            table = pa.table(
                {
                    "bands": binary_rows(keys, every),
                    "url_md5": pa.nulls(size, pa.string()),
                    "size": draw.integers(100, 100_000, size),
                    "date": pa.nulls(size, pa.string()),
                    "source": pa.nulls(size, pa.string()),
                    "score": pa.nulls(size, pa.float64()),
                    "part": pa.array(np.full(size, part, np.int32)),
                    "n": numbers,
                    "id": pa.array(ids.tolist(), pa.string()),
                }
            )
            if writer is None:
                path = folder / f"part-{part:05d}.sketch.parquet"
                writer = pq.ParquetWriter(path, table.schema, compression="zstd")
            writer.write_table(table)
        if writer is not None:
            writer.close()


def anonymous_mib() -> float:
    """Memory of this process that no file backs, now."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) / 1024


def decide(folder: Path, settings: str, large: int) -> None:
    """Prints the figures of `resolve` over the sketches in a folder; arrays of so many bytes and
    more are mapped files."""
    import pyarrow.parquet as pq

    from curate.corpus.sketches import Sketches, SketchFile, run_here, view
    from curate.dedup.minhash.near_duplicates import DedupMinhash
    from llmcurate.base.disk.database import scratch_database

    sizes = Sizes(mapped_bytes=large)
    files = tuple(
        SketchFile(part, path, part) for part, path in enumerate(sorted(folder.glob("part-*")))
    )
    most, over = 0.0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not over.wait(0.02):
            most = max(most, anonymous_mib())

    own = folder / "own"
    own.mkdir(exist_ok=True)
    watcher = threading.Thread(target=watch)
    with scratch_database(folder / "spill", 2) as db:
        view(db, files)
        watcher.start()
        begin = time.perf_counter()
        decisions = folder / "decisions.parquet"
        tasks = [0.0]

        def run(function: str, each: list[Any], result: type) -> Iterator[tuple[Any, Any]]:
            before = time.process_time()
            yield from run_here(function, each, result)
            tasks[0] += time.process_time() - before

        sketches = Sketches(db, decisions, own, files, run=run, sizes=sizes)
        summary = DedupMinhash(**json.loads(settings)).resolve(sketches)
        seconds = time.perf_counter() - begin
    over.set()
    watcher.join()
    times = os.times()
    figures = {
        "seconds": seconds,
        "cpu": times.user + times.system,
        "tasks": tasks[0],
        "peak_mib": peak_mib(),
        "anonymous_mib": most,
    }
    counts = {k: summary.counts[k] for k in ("clusters", "members", "dropped")}
    rows = pq.read_metadata(decisions).num_rows
    print(json.dumps({**figures, **counts, "rows": rows}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--documents", type=int, nargs=2, default=[5_000_000, 20_000_000])
    parser.add_argument("--survivor", default="longest")
    parser.add_argument("--large", type=float, help="MiB from which on arrays are mapped files")
    parser.add_argument("--copies", type=float, default=0.8)
    parser.add_argument("--folder", help="where files are written; default: a temporary folder")
    parser.add_argument("--decide", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.decide:
        place, step_settings, large = options.decide
        return decide(Path(place), step_settings, int(large))
    settings = json.dumps({"survivor": options.survivor})
    large = str(int((options.large or Sizes.mapped_bytes / 2**20) * 2**20))
    peaks, candidates = [], []
    for count in options.documents:
        with tempfile.TemporaryDirectory(dir=options.folder) as name:
            write(count, Path(name), options.copies)
            result = last_json([sys.executable, __file__, "--decide", name, settings, large])
        print(
            f"{count:>11} documents, {result['members']} in clusters: {result['seconds']:.1f} s"
            f" ({count / result['seconds']:.0f} documents/s, {result['cpu']:.1f} s of CPU, of which"
            f" {result['tasks']:.1f} of tasks),"
            f" peak {result['anonymous_mib']:.0f} MiB, with files {result['peak_mib']:.0f} MiB",
            flush=True,
        )
        peaks.append(result["anonymous_mib"])
        candidates.append(result["members"])
    cost = (peaks[1] - peaks[0]) * 2**20 / (candidates[1] - candidates[0])
    print(f"{cost:.1f} bytes a candidate; target {LIMIT}")
    sys.exit(0 if reached(cost <= LIMIT) else 1)


if __name__ == "__main__":
    main()
