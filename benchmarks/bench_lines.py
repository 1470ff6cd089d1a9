"""RefinedWeb's line rules and mC4's paragraph rule on English documents of 3.4 kB, on one core.

    python benchmarks/bench_lines.py

Batches of 1,000 documents in memory, nothing segmented beforehand; marking, cutting, edit spans and
the split into kept and rejected count. Processor seconds of the best of nine passes. Exit status 1
under 20,000 documents a second.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import pieces, reached, sized

TARGET = 20_000
BATCH, PASSES = 1000, sized(9, 1)


def main() -> None:
    import pyarrow as pa

    from curate.documents.documents import documents
    from curate.filters.c4 import C4Paragraphs
    from curate.filters.refinedweb import RefinedWebLines

    pa.set_cpu_count(1)
    texts = pieces()
    batches = [
        documents({"id": [str(k) for k in range(i, i + len(part))], "text": part})
        for i in range(0, len(texts), BATCH)
        for part in [texts[i : i + BATCH]]
    ]
    slowest = float("inf")
    for step in (RefinedWebLines(), C4Paragraphs()):
        step.apply(batches[0].within(step.name)).split()
        times = []
        kept = 0
        for _ in range(PASSES):
            fresh = [replace(b, _cache=None) for b in batches]
            begin = time.process_time()
            kept = sum(step.apply(b.within(step.name)).split()[0].num_rows for b in fresh)
            times.append(time.process_time() - begin)
        rate = len(texts) / min(times)
        slowest = min(slowest, rate)
        name = f"{step.name} {getattr(step, 'variant', '')}"
        print(f"  {name:<24}{rate:9.0f} documents/s, {kept} of {len(texts)} kept")
    sys.exit(0 if reached(slowest >= TARGET) else 1)


if __name__ == "__main__":
    main()
