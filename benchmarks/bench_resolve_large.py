"""Deciding by tasks: dedup_suffix_array and dedup_semantic over sketches, alone and by workers.

    python benchmarks/bench_resolve_large.py [--documents N] [--only PART] [--folder DIR]

Documents are those of generated_corpus.py, 3.3 kB each, two in five with something of another one.
Each corpus is decided by the calling process alone, in as few tasks as memory allows, then by one
worker and by two; printed are seconds, CPU time of all processes, how much of it tasks took in
workers, and the peak of the largest process. One thread of OpenMP and of BLAS each. `--memory-mib`
is that of the suffix arrays: by default so little that there are several chunks. Exit status 1
where the bytes of the decisions differ, or where one worker takes more than 1.05 times the CPU time
of the process alone, without the start of a worker.
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
from benchmarks.bench_resolve import cpu
from benchmarks.shared_texts import last_json, reached

LIMIT = 1.05
ROWS = 5_000  # documents of a file
PARTS = ("passages", "index", "vectors")


def step_of(part: str, memory_mib: int) -> Any:
    """The step that is measured."""
    from curate.dedup.suffix_array.exact_substrings import DedupSuffixArray
    from curate.lab.semantic.semantic_duplicates import DedupSemantic

    if part == "vectors":
        return DedupSemantic()
    return DedupSuffixArray(keep_index=part == "index", memory_mib=memory_mib)


def write(step: Any, count: int, folder: Path) -> None:
    """Sketches of that many documents."""
    import itertools

    import pyarrow.parquet as pq

    from benchmarks.generated_corpus import documents as generated
    from curate.documents.documents import documents
    from curate.run.worker.stage import sketch_rows

    every = generated(count)
    for part in range(-(-count // ROWS)):
        rows = list(itertools.islice(every, ROWS))
        columns = {name: [row[name] for row in rows] for name in ("id", "text")}
        table = sketch_rows(step, documents(columns).table, part)
        pq.write_table(table, folder / f"part-{part:05d}.parquet", compression="zstd")


def decide(folder: Path, part: str, memory_mib: int, workers: int) -> None:
    """Prints the figures of `resolve` over the sketches in a folder; workers 0: this process."""
    from curate.corpus.sizes import Sizes
    from curate.corpus.sketches import Run, Sketches, SketchFile, run_here, view
    from curate.engines.local import LocalEngine
    from llmcurate.base.disk.database import scratch_database

    paths = sorted(folder.glob("part-*"))
    files = tuple(SketchFile(number, path, number) for number, path in enumerate(paths))
    # Without workers, all that need not be divided is one task.
    whole = ("task_windows", "task_sketch_bytes", "task_embeddings", "task_cosines")
    sizes = Sizes() if workers else Sizes(**dict.fromkeys((*whole, "task_products"), 1 << 60))
    begin, start, before = 0.0, 0.0, cpu()
    with (
        tempfile.TemporaryDirectory(dir=folder) as place,
        scratch_database(folder / "spill", max(1, workers)) as db,
        LocalEngine(max(1, workers)) as engine,
    ):
        own, path = Path(place, "own"), Path(place, "decisions.parquet")
        own.mkdir()
        view(db, files)
        run: Run = engine.map if workers else run_here
        begin = time.perf_counter()
        step = step_of(part, memory_mib)
        summary = step.resolve(Sketches(db, path, own, files, run=run, sizes=sizes))
        seconds = time.perf_counter() - begin
        engine.close()
        used, tasks = cpu() - before, engine.cpu
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if workers:  # what it costs that there are workers at all
        start = cpu()
        with LocalEngine(workers) as engine:
            list(engine.map("benchmarks.bench_resolve_large:nothing", [{}] * workers, dict))
        start = cpu() - start
    peaks = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    figures = {
        "seconds": seconds,
        "cpu": used,
        "start": start,
        "tasks": tasks,
        "peak_mib": max(usage.ru_maxrss for usage in peaks) / 1024,
        "worker_mib": peaks[1].ru_maxrss / 1024,
        "dropped": summary.counts["dropped"],
        "digest": digest,
    }
    print(json.dumps(figures))


def nothing(task: dict[str, Any]) -> dict[str, Any]:
    """A task that loads what tasks load."""

    return {}


def compare(part: str, count: int, memory_mib: int, folder: Path, passes: int) -> bool:
    """Prints the figures of one kind of resolve; whether they are as they should be."""
    rates: dict[int, dict[str, float]] = {}
    digests = set()
    root = str(Path(__file__).resolve().parents[1])
    os.environ |= {"PYTHONPATH": root, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    for workers in (0, 1, 2):
        arguments = [str(folder), part, str(memory_mib), str(workers)]
        runs = [
            last_json([sys.executable, __file__, "--decide", *arguments]) for _ in range(passes)
        ]
        digests |= {run.pop("digest") for run in runs}
        rates[workers] = {k: statistics.median(r[k] for r in runs) for k in runs[0]}
        middle = rates[workers]
        who = "the process" if not workers else f"{workers} worker{'s' * (workers > 1)}"
        print(
            f"  {part:<9}{who:<12}{middle['seconds']:7.1f} s, {middle['cpu']:6.1f} s of CPU,"
            f" {middle['tasks']:.1f} s of it tasks, {middle['start']:.1f} s start; peak of a"
            f" process {middle['peak_mib']:5.0f} MiB, of a worker {middle['worker_mib']:5.0f};"
            f" {middle['dropped']:.0f} dropped",
            flush=True,
        )
    ratio = (rates[1]["cpu"] - rates[1]["start"]) / rates[0]["cpu"]
    gain = rates[1]["seconds"] / rates[2]["seconds"]
    print(f"  {part}: CPU of one worker / alone {ratio:.2f} (limit {LIMIT}); 2 workers {gain:.2f}x")
    if len(digests) > 1:
        print(f"  {part}: the decisions differ")
    return reached(ratio <= LIMIT) and len(digests) == 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--memory-mib", type=int, default=256)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--folder", help="where files are written; default: a temporary folder")
    parser.add_argument("--decide", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.decide:
        folder, part, memory_mib, workers = options.decide
        return decide(Path(folder), part, int(memory_mib), int(workers))
    passed = True
    for part in [options.only] if options.only else PARTS:
        with tempfile.TemporaryDirectory(dir=options.folder) as place:
            write(step_of(part, options.memory_mib), options.documents, Path(place))
            arguments = (part, options.documents, options.memory_mib, Path(place), options.passes)
            passed &= compare(*arguments)
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
