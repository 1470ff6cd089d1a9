"""The step `normalize` against ftfy on all documents: mojibake alone, one thread.

    python benchmarks/bench_normalize.py

Both run over the same clean documents in memory, in turn in one process: the short texts of
langid-dev in some hundred languages, and pages, stories and chapters of longtext by language. Ours
counts the kernel, ftfy's repair of the lines that it finds, the new texts and the split; ftfy's is
`ftfy.fix_text` of every text with the repair of mojibake alone. Medians of CPU seconds count.
Before that all texts of both must be the same.

Exit status 1 where a text differs, or below twenty times ftfy's rate on any of the corpora.
"""

from __future__ import annotations

import gzip
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import pyarrow as pa

from benchmarks.shared_texts import longtext, need, reached, sized
from curate.documents.documents import documents
from curate.filters.normalize import Normalize, repaired

TARGET = 20.0
BATCH = 1000
PASSES = sized(3, 1)
DOCUMENTS = sized(100_000, 100)
LONG = ("en-peps", "de-novels", "ru-novels", "indic-stories", "th-thaigov", "ja-aozora")


def short_texts() -> list[str]:
    """The texts of langid-dev."""
    (path,) = need("langid/langid-dev.jsonl.gz")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of a call."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def ratio(texts: list[str]) -> float:
    """ftfy's CPU seconds by ours; 0 where a text differs."""
    step = Normalize()
    batches = [documents({"text": texts[i : i + BATCH]}) for i in range(0, len(texts), BATCH)]

    def ours() -> list[pa.Table]:
        return [step.apply(batch.within("normalize")).split()[0] for batch in batches]

    def theirs() -> list[str]:
        return [repaired(text) for text in texts]

    if pa.concat_tables(table.select(["text"]) for table in ours())["text"].to_pylist() != theirs():
        return 0.0
    own, peer = (statistics.median(seconds(f) for _ in range(PASSES)) for f in (ours, theirs))
    return peer / own


def main() -> None:
    least = TARGET
    corpora = {"langid-dev": short_texts(), **{name: list(longtext(name)) for name in LONG}}
    for name, texts in corpora.items():
        times = ratio(texts[:DOCUMENTS])
        least = min(least, times)
        size = sum(len(text.encode()) for text in texts) / 1e6
        print(f"  {name:<15}{size:7.1f} MB, ftfy / ours {times:6.0f}", flush=True)
    sys.exit(0 if reached(least >= TARGET) else 1)


if __name__ == "__main__":
    main()
