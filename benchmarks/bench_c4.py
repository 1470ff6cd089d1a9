"""C4 on English documents of 3.4 kB: ours against DataTrove's C4QualityFilter.

    python benchmarks/bench_c4.py

Both get the same documents in memory, in one process each, after a warm-up; both have C4's own
limits (5 words a line, 3 sentences a page). Ours counts marking, cleaning, edit spans and the split
into kept and rejected; DataTrove's counts `C4QualityFilter.run`. Exit status 1 under 20,000
documents a second.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import (
    ROOT,
    in_batches,
    last_json,
    peak_mib,
    peer_python,
    pieces,
    reached,
    sized,
)

TARGET = 20_000
BATCH = 1000
PASSES = sized(9, 1)


def ours(path: str) -> None:
    """Prints the figures of our filter over the documents in a file."""
    import pyarrow as pa

    from curate.filters.c4 import C4

    pa.set_cpu_count(1)
    batches = in_batches(path, BATCH)
    step = C4()
    step.apply(batches[0].within("c4")).split()
    times = []
    for _ in range(PASSES):
        begin = time.perf_counter()
        kept = 0
        for batch in batches:
            kept += step.apply(batch.within("c4")).split()[0].num_rows
        times.append(time.perf_counter() - begin)
    print(json.dumps({"seconds": times, "kept": kept, "peak_mib": peak_mib()}))


def main() -> None:
    if sys.argv[1:2] == ["--ours"]:
        ours(sys.argv[2])
        return
    texts = pieces()
    size = sum(len(t.encode()) for t in texts)
    print(f"{len(texts)} English documents of {size / len(texts):.0f} bytes")
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for i, text in enumerate(texts):
            file.write(json.dumps({"id": str(i), "text": text}) + "\n")
        file.flush()
        ours_result = last_json([sys.executable, __file__, "--ours", file.name])
        peer = ROOT / "benchmarks" / "peers" / "datatrove_c4.py"
        theirs = last_json([peer_python(), str(peer), "filter", file.name])
    rates = {}
    for name, result in (("llmcurate", ours_result), ("DataTrove 0.10.1", theirs)):
        rates[name] = len(texts) / statistics.median(result["seconds"])
        best = len(texts) / min(result["seconds"])
        print(
            f"  {name:<18}{rates[name]:9.0f} documents/s (best pass {best:.0f}),"
            f" {rates[name] * size / len(texts) / 1e6:7.2f} MB/s, {result['kept']} kept,"
            f" peak {result['peak_mib']:.0f} MiB"
        )
    ours_rate, peer_rate = rates.values()
    print(f"  ratio {ours_rate / peer_rate:.1f}; target {TARGET} documents/s")
    sys.exit(0 if reached(ours_rate >= TARGET) else 1)


if __name__ == "__main__":
    main()
