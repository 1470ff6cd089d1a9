"""Texts of the experiments: JSONL files, pieces of equal length, a shuffled order."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

Row = dict[str, Any]


def read(path: str | Path) -> list[Row]:
    """Return the objects of a JSONL file, compressed or not by its ending."""
    with pa.input_stream(str(path)) as file:
        return [json.loads(line) for line in file.read().splitlines()]


def write(path: str | Path, rows: Iterable[Row]) -> None:
    """Write objects as JSONL."""
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def pieces(rows: Iterable[Row], characters: int) -> list[Row]:
    """Split texts into pieces of exactly that many characters. Shorter rests are left out."""
    return [
        {"id": f"{row['id']}+{start}", "text": row["text"][start : start + characters]}
        for row in rows
        for start in range(0, len(row["text"]) - characters + 1, characters)
    ]


def shuffled(rows: Sequence[Any], seed: int) -> list[Any]:
    """Return the objects in an order drawn from the seed."""
    return random.Random(seed).sample(rows, len(rows))


def novels(corpora: str, characters: int) -> tuple[list[Row], list[Row]]:
    """Return pieces of novels to train on, and pieces by 20 other authors to score, shuffled."""
    chapters = read(f"{corpora}/longtext/en-novels.jsonl.zst")
    authors = set(shuffled(sorted({chapter["author"] for chapter in chapters}), 0)[:20])
    trained = [chapter for chapter in chapters if chapter["author"] not in authors]
    scored = [chapter for chapter in chapters if chapter["author"] in authors]
    return shuffled(pieces(trained, characters), 1), shuffled(pieces(scored, characters), 1)


def web_pages(corpora: str, out: str) -> tuple[list[Row], list[Row]]:
    """Return text of half of the web pages to train on, and main texts of the other half to score.

    The halves are shuffled by ids. Main texts have at least 1,000 characters. OUT/extracted has all
    text of the pages.
    """
    import pyarrow.dataset as ds

    dataset = ds.dataset(f"{out}/extracted/corpus", format="parquet")
    table = dataset.to_table(columns=["id", "url", "text"])
    pages = shuffled(sorted(table.to_pylist(), key=lambda page: page["id"]), 0)
    trained = pages[: len(pages) // 2]
    others = {page["id"] for page in pages[len(pages) // 2 :]}
    main = [
        {"id": row["record_id"], "text": row["text"], "source": row["page_type"]}
        for row in read(f"{corpora}/wcxb/dev-gold.jsonl.gz")
        if row["record_id"] in others and len(row["text"] or "") >= 1000
    ]
    return trained, shuffled(main, 1)
