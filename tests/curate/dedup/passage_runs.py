"""The passages step over rows, in a run and without one."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.corpus.sketches import Sketches, SketchFile, view
from curate.dedup.passages.repeated_passages import DedupPassages
from curate.documents.documents import documents
from curate.run.worker.stage import sketch_rows
from llmcurate.base.disk.database import scratch_database


def decide(bench, rows, out="out", parts=1, workers=1, **choice) -> dict[str, dict[str, Any]]:
    """Rows of the corpus by id, after the step over so many files."""
    files = [bench.jsonl(f"{out}/in-{i}.jsonl", rows[i::parts]) for i in range(parts)]
    bench.run([{"dedup_passages": choice}], *files, out=f"{out}/run", workers=workers)
    return {row["id"]: row for row in bench.rows(f"{out}/run")}


def decide_here(rows: list[dict[str, Any]], **choice: Any) -> dict[str, dict[str, Any]]:
    """The same without a run around it, for many examples: two batches, one after the other."""
    step = DedupPassages(**choice)
    half = len(rows) // 2
    batches = []
    for part, part_rows in enumerate((rows[:half], rows[half:])):
        columns = {c: [r.get(c) for r in part_rows] for c in ("id", "text", "url")}
        batches.append((part, documents(columns)))
    kept = {}
    with tempfile.TemporaryDirectory() as folder, scratch_database(Path(folder, "spill")) as db:
        files = tuple(SketchFile(p, Path(folder, f"{p}.parquet"), p) for p, _ in batches)
        for file, (part, docs) in zip(files, batches, strict=True):
            pq.write_table(sketch_rows(step, docs.table, part), file.path)
        view(db, files)
        path = Path(folder, "decisions.parquet")
        step.resolve(Sketches(db, path, path.parent, files))
        decisions = pq.read_table(path)
    for part, docs in batches:
        part_rows = decisions.filter(pc.equal(decisions["part"], part))
        done = step.apply(docs.within(step.label), part_rows)
        kept.update({row["id"]: row for row in done.split()[0].to_pylist()})
    return kept
