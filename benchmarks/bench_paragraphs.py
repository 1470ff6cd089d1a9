"""Paragraph dedup on 30,000 English documents of 3.4 kB: each phase on one core, the whole command,
a plain Python loop as CCNet's, and Dolma's deduper.

    python benchmarks/bench_paragraphs.py [--documents N] [--peer]

Phases, in processor seconds: keys (segmentation, normal form, hash), sketches (written to parquet),
resolve (DuckDB's threads counted), cut (with edits on record). The loop does `paragraph, none,
sha1-64` in memory on every tenth document and must leave the same text as ours. --peer: Dolma 1.2.1
from its wheel, in .bench/dolma; it reads JSON, looks lines up in a Bloom filter, and writes what it
would cut. Exit status 1 under 100 MB/s a core for keys, sketches, resolve and cut together.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.bench_minhash import distinct
from benchmarks.bench_passages import with_boilerplate
from benchmarks.shared_texts import ROOT, last_json, peak_mib, reached, sized, watched

TARGET = 100
BATCH, PASSES, EVERY = 1000, sized(5, 1), 10
DOLMA = ROOT / ".bench" / "dolma"
CCNET = {"unit": "paragraph", "keep": "none", "hash": "sha1-64"}


def phases(texts: list[str], settings: dict[str, Any]) -> tuple[dict[str, float], list[str]]:
    """Processor seconds of each phase of one pass, and the texts that stay."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from curate.corpus.sketches import Sketches, SketchFile, view
    from curate.dedup.passages.repeated_passages import DedupPassages
    from curate.documents.documents import NUMBER, Documents, documents
    from curate.run.worker.stage import sketch_rows
    from llmcurate.base.disk.database import scratch_database
    from llmcurate.base.disk.parquet_writer import writing

    step = DedupPassages(**settings)
    batches = []
    for i in range(0, len(texts), BATCH):
        part = texts[i : i + BATCH]
        ids = [f"d{k}" for k in range(i, i + len(part))]
        table = documents({"id": ids, "text": part, "url": ids}).table
        numbers = pa.array(np.arange(i, i + len(part)), pa.int64())
        if NUMBER in table.column_names:
            table = table.drop_columns([NUMBER])
        batches.append(table.append_column(NUMBER, numbers))
    spent: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        begin = time.process_time()
        result = work()
        spent[name] = time.process_time() - begin
        return result

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = (SketchFile(0, folder / "sketch.parquet", 0),)
        rows = timed("keys", lambda: [sketch_rows(step, b, 0) for b in batches])

        def write() -> None:
            with writing(files[0].path) as writer:
                for table in rows:
                    writer.write(table)

        def resolve() -> None:
            with scratch_database(folder / "spill") as db:
                view(db, files)
                step.resolve(Sketches(db, folder / "decisions.parquet", folder, files))

        timed("sketches", write)
        timed("resolve", resolve)

        def cut() -> list[Documents]:
            decisions = pq.read_table(folder / "decisions.parquet")
            at = decisions["n"].to_numpy()
            done = []
            for i, table in enumerate(batches):
                first, stop = np.searchsorted(at, [i * BATCH, (i + 1) * BATCH])
                docs = Documents(table).within(step.label)
                done.append(step.apply(docs, decisions.slice(first, stop - first)))
            return done

        done = timed("cut", cut)
    return spent, [t for docs in done for t in docs.split()[0]["text"].to_pylist()]


_DIGIT = re.compile(r"\d")


def ccnet_loop(texts: list[str]) -> list[str]:
    """CCNet's two passes with a dict, line by line; what stays of the documents."""
    from curate.text.folding import CCNET_CONTROLS, CCNET_PUNCTUATION

    goes = re.compile(f"[{CCNET_PUNCTUATION}{''.join(map(chr, CCNET_CONTROLS))}]")

    def keys(text: str) -> list[bytes]:
        return [
            hashlib.sha1(
                goes.sub("", _DIGIT.sub("0", line.strip().lower())).encode(), usedforsecurity=False
            ).digest()[:8]
            for line in text.split("\n")
        ]

    twice: dict[bytes, bool] = {}
    for text in texts:
        for key in set(keys(text)):
            twice[key] = key in twice
    kept = []
    for text in texts:
        seen = set()
        lines = []
        for line, key in zip(text.split("\n"), keys(text), strict=True):
            if not twice[key] and key not in seen:
                lines.append(line)
            seen.add(key)
        if lines:
            kept.append("\n".join(lines))
    return kept


def dolma(texts: list[str], lines: int, folder: Path) -> dict[str, float]:
    """Wall and processor seconds of Dolma's deduper over the texts as JSON lines."""
    if not (DOLMA / "bin").is_dir():
        subprocess.run([sys.executable, "-m", "venv", str(DOLMA)], check=True)
        pip = [str(DOLMA / "bin" / "python"), "-m", "pip", "install", "-q", "--no-deps"]
        subprocess.run([*pip, "--only-binary", ":all:", "dolma==1.2.1"], check=True)
    (folder / "documents").mkdir(parents=True)
    with gzip.open(folder / "documents" / "a.json.gz", "wt", compresslevel=1) as file:
        for i, text in enumerate(texts):
            file.write(json.dumps({"id": f"d{i}", "text": text}) + "\n")
    script = str(ROOT / "benchmarks" / "peers" / "dolma_paragraphs.py")
    return last_json([str(DOLMA / "bin" / "python"), script, str(folder), str(lines)])


def main() -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--documents", type=int, default=30_000)
    parser.add_argument("--peer", action="store_true")
    options = parser.parse_args()
    pa.set_cpu_count(1)
    texts = with_boilerplate(distinct(options.documents))
    size = sum(len(t.encode()) for t in texts)
    lines = sum(t.count("\n") + 1 for t in texts)
    print(f"{len(texts)} documents, {size / 1e6:.0f} MB, {lines} lines")
    slowest = 0.0
    choices = {"paragraph": {"unit": "paragraph"}, "ccnet": CCNET, "line": {"unit": "line"}}
    for name, settings in choices.items():
        phases(texts[: 2 * BATCH], settings)
        passes = [phases(texts, settings)[0] for _ in range(PASSES)]
        each = {k: statistics.median(p[k] for p in passes) for k in passes[0]}
        rate = size / statistics.median(sum(p.values()) for p in passes) / 1e6
        slowest = rate if name == "paragraph" else slowest
        breakdown = ", ".join(f"{k} {size / v / 1e6:.0f}" for k, v in each.items())
        print(f"  {name:<10}{rate:7.0f} MB/s a core ({breakdown})")
    print(f"  peak of this process {peak_mib():.0f} MiB")

    some = texts[::EVERY]
    begin = time.process_time()
    theirs = ccnet_loop(some)
    loop = time.process_time() - begin
    spent, ours = phases(some, CCNET)
    if ours != theirs:
        sys.exit("the loop leaves other texts than ours")
    part = sum(len(t.encode()) for t in some) / 1e6
    total = sum(spent.values())
    print(
        f"  plain Python loop {part / loop:.1f} MB/s, ours on the same {part:.0f} MB"
        f" {part / total:.1f} MB/s, {loop / total:.1f} times; the same {len(ours)} texts stay"
    )

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ids = [f"d{i}" for i in range(len(texts))]
        rows = {"id": ids, "text": texts, "url": [f"https://{i}.test/" for i in ids]}
        pq.write_table(pa.table(rows), folder / "in.parquet", row_group_size=2000)
        for workers in (1, 2):
            out = folder / f"out-{workers}"
            command = [sys.executable, "-m", "curate.cli.app", "dedup", str(folder / "in.parquet")]
            command += ["--method", "paragraphs", "-o", str(out), "--workers", str(workers)]
            done = watched([*command, "--quiet"])
            if done.status:
                sys.exit(done.output)
            print(
                f"  the command, {workers} workers: {size / done.seconds / 1e6:.1f} MB/s,"
                f" {done.seconds:.1f} s; peak of a process {done.peak_mib:.0f} MiB,"
                f" of all {done.total_mib:.0f} MiB"
            )
        if options.peer:
            peer = dolma(texts, lines, folder / "dolma")
            print(
                f"  Dolma 1.2.1 tags lines at {size / peer['processor'] / 1e6:.1f} MB/s a core"
                f" ({peer['seconds']:.1f} s of wall time); nothing is cut yet"
            )
    sys.exit(0 if reached(slowest >= TARGET) else 1)


if __name__ == "__main__":
    main()
