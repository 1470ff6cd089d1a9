"""Sketches for MinHash's resolve: sketches in files, decisions from them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus.sizes import Sizes
from curate.corpus.sketches import Run, Sketches, SketchFile, run_here, view
from curate.dedup.minhash.near_duplicates import DedupMinhash, binary_rows
from curate.documents.documents import documents
from llmcurate.base.disk.database import scratch_database
from llmcurate.base.disk.files import replacing

BANDS, ROWS = 4, 3
WORDS = [f"w{i}" for i in range(300)]


def with_keys(keys: list[list[int] | None], seed: int = 0) -> pa.Table:
    """Sketches of documents with those band keys; None: a text without shingles."""
    draw = random.Random(seed)
    matrix = np.array([k or [0] * BANDS for k in keys], np.uint64).reshape(-1, BANDS)
    count = len(keys)
    return pa.table(
        {
            "bands": binary_rows(matrix, np.array([k is not None for k in keys], np.bool_)),
            "url_md5": pa.nulls(count, pa.string()),
            "size": pa.array([draw.randrange(5) for _ in keys], pa.int64()),
            "date": pa.nulls(count, pa.string()),
            "source": pa.nulls(count, pa.string()),
            "score": pa.nulls(count, pa.float64()),
            "n": np.arange(count),
            "id": [f"é{draw.randrange(10**9):09d}-{i}" for i in range(count)],
        }
    )


def texts(count: int, seed: int = 0) -> list[str]:
    """Near copies, chains of them, and texts alone; some without words."""
    draw = random.Random(seed)
    drawn: list[str] = []
    for i in range(count):
        words = draw.choices(WORDS, k=40)
        if i % 3 and drawn:
            words = draw.choice(drawn[-9:]).split() or words
            for _ in range(draw.randrange(4)):
                words[draw.randrange(len(words))] = draw.choice(WORDS)
        drawn.append("..." if i % 20 == 19 else " ".join(words))
    return drawn


def write(folder: Path, table: pa.Table, parts: int = 3) -> tuple[SketchFile, ...]:
    cuts = [len(table) * p // parts for p in range(parts + 1)]
    files = []
    for part in range(parts):
        path = folder / f"part-{part}.parquet"
        rows = table.slice(cuts[part], cuts[part + 1] - cuts[part])
        number = pa.array(np.full(len(rows), part), pa.int32())
        pq.write_table(rows.append_column("part", number), path, row_group_size=7)
        files.append(SketchFile(part, path, part))
    return tuple(files)


def decide(
    folder: Path,
    files: tuple[SketchFile, ...],
    step: DedupMinhash,
    run: Run = run_here,
    sizes: Sizes = Sizes(),
) -> dict[str, Any]:
    own = folder / "own"
    own.mkdir(exist_ok=True)
    with scratch_database(folder / "spill") as db, replacing(folder / "decisions.parquet") as aside:
        view(db, files)
        return step.resolve(Sketches(db, aside, own, files, run=run, sizes=sizes)).record()


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return pq.ParquetFile(folder / "decisions.parquet").read().to_pylist()


def random_keys(count: int, values: int, seed: int) -> list[list[int] | None]:
    """Keys of few values a band, spread over 64 bits, so that many documents share some."""
    draw = random.Random(seed)
    keys: list[list[int] | None] = []
    for _ in range(count):
        band_keys = [
            (draw.randrange(values) * BANDS + b) * 0x9E3779B97F4A7C15 for b in range(BANDS)
        ]
        keys.append(None if draw.random() < 0.1 else [k % 2**64 for k in band_keys])
    return keys


SETTINGS: list[dict[str, Any]] = [
    {},
    {"survivor": "first"},
    {"verify": 0.6},
    {"verify": 0.6, "survivor": "first"},
]


def sketched(step: DedupMinhash, contents: list[str]) -> pa.Table:
    docs = documents({"id": [str(i) for i in range(len(contents))], "text": contents})
    names = pa.array([f"d{i * 7919 % 10**4:04d}" for i in range(len(contents))])
    return (
        step.sketch(docs)
        .append_column("n", pa.array(np.arange(len(contents))))
        .append_column("id", names)
    )
