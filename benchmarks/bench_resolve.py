"""Deciding by tasks: MinHash, exact dedup, passages and percentiles, in one process and by workers.

    python benchmarks/bench_resolve.py [--documents N] [--exact N] [--passages N] [--scores N]
        [--only PART] [--folder DIR]

MinHash decides on documents of 60 words drawn from 5,000, every fourth a near copy, by bands and
with `--verify 0.8`; exact dedup on synthetic keys, one in five of which another document has;
passages are lines of generated documents (generated_corpus.py), ten of each, a third of which stand
more than once; perplexities are drawn, in four languages. Each is decided by the calling process
alone (exact: by one query over all sketches), by one worker and by two; printed are seconds, CPU
time of all processes and the peak of the largest. Exit status 1 where the bytes of the decisions
differ, or where one worker takes more than 1.05 times the CPU time of the process alone, without
what it takes more for TINY documents cut as finely: a process that starts, and libraries and
compiled code that are loaded in two. Takes some 4 GB of disk.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import last_json, reached

LIMIT = 1.05
TINY = 60
ROWS, WORDS, VOCABULARY = 25_000, 60, 5_000  # documents of a file, words of a document
MINHASH: dict[str, dict[str, Any]] = {"bands": {}, "verify": {"verify": 0.8}}


def write_minhash(count: int, folder: Path, settings: dict[str, Any], rows: int) -> None:
    """Sketches of that many documents, so many a file: every fourth a near copy of the one before
    it."""
    import random

    import pyarrow as pa
    import pyarrow.parquet as pq

    from curate.dedup.minhash.near_duplicates import DedupMinhash
    from curate.documents.documents import documents

    draw, step = random.Random(1), DedupMinhash(**settings)
    vocabulary = [f"{'bcdfgklmnp'[i % 10]}{i:o}" for i in range(VOCABULARY)]
    text = ""
    for part in range(-(-count // rows)):
        texts = []
        for number in range(min(rows, count - part * rows)):
            if number % 4 == 3:
                texts.append(f"{text} The end.")
                continue
            text = " ".join(draw.choices(vocabulary, k=WORDS))
            texts.append(text)
        names = [f"crawl-2024-{part * rows + i}" for i in range(len(texts))]
        table = step.sketch(documents({"id": names, "text": texts}))
        store(folder, part, table.append_column("id", pa.array(names)), pq)


def write_exact(count: int, folder: Path, most: int) -> None:
    """Sketches of that many documents with keys of 128 bits, so many a file."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    draw = np.random.default_rng(1)
    for part in range(-(-count // most)):
        rows = min(most, count - part * most)
        number = np.arange(part * most, part * most + rows)
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


def write_passages(count: int, folder: Path, most: int) -> None:
    """Sketches of that many generated documents, of ten lines each, so many a file."""
    from itertools import islice

    import pyarrow as pa
    import pyarrow.parquet as pq

    from benchmarks.generated_corpus import documents as generated
    from curate.dedup.passages.repeated_passages import DedupPassages
    from curate.documents.documents import documents

    step, rows = DedupPassages(), generated(count)
    for part in range(-(-count // most)):
        some = list(islice(rows, most))
        columns = {name: [row[name] for row in some] for name in ("id", "text", "url", "source")}
        table = step.sketch(documents(columns))
        store(folder, part, table.append_column("id", pa.array(columns["id"])), pq)


def write_scores(count: int, folder: Path, most: int) -> None:
    """Sketches of that many documents with perplexities in four languages, one in 50 without."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    draw = np.random.default_rng(1)
    for part in range(-(-count // most)):
        rows = min(most, count - part * most)
        number = np.arange(part * most, part * most + rows)
        score = np.exp(draw.normal(6, 1, rows))
        columns = {
            "lang": pa.array(draw.choice(["en", "de", "fr", "es"], rows, p=[0.7, 0.1, 0.1, 0.1])),
            "score": pa.array(score, mask=draw.random(rows) < 0.02),
            "id": pa.array(np.char.add("crawl-2024-", number.astype(str)).tolist(), pa.string()),
        }
        store(folder, part, pa.table(columns), pq)


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
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def decide(folder: Path, settings: str, workers: int, tiny: bool) -> None:
    """Prints the figures of `resolve` over the sketches in a folder; workers 0: this process. tiny:
    so few documents that tasks must be small for there to be several."""
    from curate.corpus.sizes import Sizes
    from curate.corpus.sketches import Run, Sketches, SketchFile, run_here, view
    from curate.dedup.exact import DedupExact
    from curate.dedup.minhash.near_duplicates import DedupMinhash
    from curate.dedup.passages.repeated_passages import DedupPassages
    from curate.engines.local import LocalEngine
    from curate.scoring.perplexity.perplexity import Perplexity
    from llmcurate.base.disk.database import scratch_database

    paths = sorted(folder.glob("part-*"))
    files = tuple(SketchFile(part, path, part) for part, path in enumerate(paths))
    name, arguments = json.loads(settings)
    kinds = {"exact": DedupExact, "passages": DedupPassages, "perplexity": Perplexity}
    step: Any = kinds.get(name, DedupMinhash)(**arguments)
    sizes = Sizes(query_documents=0 if workers else 10**12)
    if tiny:
        names = ("task_documents", "part_candidates", "task_passages")
        sizes = replace(sizes, **dict.fromkeys((*names, "slice_rows"), TINY // 3))
    own, path = folder / "own", folder / f"decisions-{workers}.parquet"
    own.mkdir(exist_ok=True)
    begin, before = 0.0, cpu()
    with (
        scratch_database(folder / "spill", max(1, workers)) as db,
        LocalEngine(max(1, workers)) as engine,
    ):
        view(db, files)
        run: Run = engine.map if workers else run_here
        begin = time.perf_counter()
        summary = step.resolve(Sketches(db, path, own, files, run=run, sizes=sizes))
        seconds = time.perf_counter() - begin
    used = cpu() - before
    peaks = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    figures = {
        "seconds": seconds,
        "cpu": used,
        "peak_mib": max(usage.ru_maxrss for usage in peaks) / 1024,
        "dropped": summary.counts.get("dropped", 0),
        "digest": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
    print(json.dumps(figures))


def compare(name: str, count: int, folder: Path, settings: str, passes: int) -> bool:
    """Prints the figures of one kind of resolve over the folders `tiny` and `whole`; whether they
    are as they should be. Passes alternate, since the speed of a machine does."""
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])
    runs: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for _ in range(passes):
        for kind, workers in itertools.product(("tiny", "whole"), (0, 1, 2)):
            arguments = [str(folder / kind), settings, str(workers), kind]
            result = last_json([sys.executable, __file__, "--decide", *arguments])
            runs.setdefault((kind, workers), []).append(result)
    middles = {
        which: {k: statistics.median(r[k] for r in some) for k in some[0] if k != "digest"}
        for which, some in runs.items()
    }
    digests = [{r["digest"] for w in (0, 1, 2) for r in runs[k, w]} for k in ("tiny", "whole")]
    rates = {workers: middles["whole", workers] for workers in (0, 1, 2)}
    for workers, middle in rates.items():
        start = middles["tiny", workers]["cpu"] - middles["tiny", 0]["cpu"]
        middle["start"] = start
        who = "the process" if not workers else f"{workers} worker{'s' * (workers > 1)}"
        print(
            f"  {name:<11}{who:<12}{middle['seconds']:7.1f} s, {middle['cpu']:6.1f} s of CPU,"
            f" {middle['start']:.1f} s of it start; peak of a process"
            f" {middle['peak_mib']:5.0f} MiB; {middle['dropped']:.0f} of {count} dropped",
            flush=True,
        )
    ratio = (rates[1]["cpu"] - rates[1]["start"]) / rates[0]["cpu"]
    gain = rates[1]["seconds"] / rates[2]["seconds"]
    print(f"  {name}: CPU of one worker / alone {ratio:.2f} (limit {LIMIT}); 2 workers {gain:.2f}x")
    same = all(len(each) == 1 for each in digests)
    if not same:
        print(f"  {name}: the decisions differ")
    return ratio <= LIMIT and same


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--documents", type=int, default=2_000_000, help="for MinHash")
    parser.add_argument("--exact", type=int, default=16_000_000, help="documents for exact dedup")
    parser.add_argument("--passages", type=int, default=400_000, help="documents with passages")
    parser.add_argument("--scores", type=int, default=4_000_000, help="documents with perplexities")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--only", choices=[*MINHASH, "exact", "passages", "perplexity"])
    parser.add_argument("--folder", help="where files are written; default: a temporary folder")
    parser.add_argument("--decide", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.decide:
        place, settings, workers, kind = options.decide
        return decide(Path(place), settings, int(workers), kind == "tiny")
    if not reached(min(options.documents, options.exact) >= 500_000):
        parser.error("fewer than 500,000 documents are one task, which the process does itself")
    passed = True
    counts = {"exact": options.exact, "passages": options.passages, "perplexity": options.scores}
    for name in (*MINHASH, *counts):
        if options.only not in (None, name):
            continue
        count = counts.get(name, options.documents)
        with tempfile.TemporaryDirectory(dir=options.folder) as place:
            for kind, documents, rows in (("tiny", TINY, TINY // 3), ("whole", count, ROWS)):
                folder = Path(place) / kind
                folder.mkdir()
                if name == "exact":
                    write_exact(documents, folder, rows)
                elif name == "passages":
                    write_passages(documents, folder, rows)
                elif name == "perplexity":
                    write_scores(documents, folder, rows)
                else:
                    write_minhash(documents, folder, MINHASH[name], rows)
            arguments = {"model": "any"} if name == "perplexity" else MINHASH.get(name, {})
            settings = json.dumps([name, arguments])
            passed &= compare(name, count, Path(place), settings, options.passes)
    sys.exit(0 if reached(passed) else 1)


if __name__ == "__main__":
    main()
