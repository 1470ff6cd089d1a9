"""Cases of the Bloom dedup: small documents, and the step without a run."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.corpus.sketches import Sketches, SketchFile
from curate.dedup.bloom.filter import BloomFilter, check_in_order, read_header
from curate.dedup.bloom.seen_before import DedupBloom
from curate.documents.documents import documents
from curate.run.worker.stage import sketch_rows

WORDS = "river mill house stone water light field horse wagon road bridge winter".split()
SURE = {"false_positives": 1e-9}


def opened(path: Path) -> BloomFilter:
    """A finished filter; an error if the file is not a whole filter."""
    return BloomFilter(path, read_header(path), "r")


def inserted(words: np.ndarray, slices: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Insert keys one by one. True for those that were there already."""
    count = len(keys)
    whole, hits, seen = np.array([0, count]), np.zeros(count, np.uint8), np.zeros(count, np.int64)
    check_in_order(words, slices, whole, keys, whole, np.ones(count, np.int64), 1.0, hits, seen)
    return hits.view(np.bool_)


def add(bloom: BloomFilter, keys: np.ndarray) -> np.ndarray:
    bloom.reserve(len(keys))
    return inserted(bloom.words, bloom.slices, keys)


def line(draw: random.Random, words: int = 20) -> str:
    return " ".join(draw.choice(WORDS) + str(draw.randrange(100)) for _ in range(words)) + "."


def pages(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Documents of new, repeated, short and blank lines."""
    draw = random.Random(seed)
    old = [line(draw) for _ in range(12)]
    rows = []
    for i in range(count):
        kinds = draw.choices(["new", "old", "short", "blank", "part"], [4, 4, 1, 1, 1], k=6)
        lines = []
        for kind in kinds:
            old_line = draw.choice(old)
            lines.append(
                {
                    "new": line(draw),
                    "old": old_line,
                    "short": "Read more.",
                    "blank": " ",
                    "part": f"{old_line} {line(draw, draw.randrange(1, 14))}",
                }[kind]
            )
        rows.append({"id": f"d{i:03d}", "text": "\n".join(lines)})
    return rows


def run_step(
    step: DedupBloom, parts: list[list[str | None]], folder: Path
) -> tuple[list[dict[str, Any]], pa.Table, dict[str, Any]]:
    """Rows that stay, decisions and counts, without a run around the step."""
    batches, files = [], []
    for part, texts in enumerate(parts):
        docs = documents({"id": [f"{part}-{i}" for i in range(len(texts))], "text": texts})
        batches.append(docs)
        path = folder / f"{part}.parquet"
        pq.write_table(sketch_rows(step, docs.table, part), path)
        files.append(SketchFile(part, path, part))
    own = folder / "own"
    own.mkdir(exist_ok=True)
    sketches = Sketches(None, folder / "decisions.parquet", own, tuple(files))
    counts = step.resolve(sketches).record()
    decisions = pq.read_table(sketches.decisions)
    kept = []
    for part, docs in enumerate(batches):
        part_decisions = decisions.filter(pc.equal(decisions["part"], part))
        kept += step.apply(docs.within(step.label), part_decisions).split()[0].to_pylist()
    return kept, decisions, counts
