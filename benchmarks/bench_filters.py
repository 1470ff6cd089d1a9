"""The four text filters in one pass on 30,000 English pieces of 3.4 kB: ours against DataTrove's.

    python benchmarks/bench_filters.py [--documents N]

C4, Gopher quality, Gopher repetition and FineWeb quality, with the split into kept and rejected,
one process and one core each, in three orders: C4 first (the others judge what it leaves), C4 last,
and FineWeb's own (repetition, quality, C4 without its rule on end marks, FineWeb). DataTrove's
filters get 300 of the documents, evenly drawn, each through all of them one after the other, as in
its pipelines. Exit status 1 under 15,000 documents a second with C4 first.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import (
    ROOT,
    in_batches,
    last_json,
    peak_mib,
    peer_python,
    reached,
    shifted,
    sized,
)

TARGET = 15_000
BATCH, PASSES, PEER_DOCUMENTS = 1000, sized(5, 1), sized(300, 30)
ORDERS = {
    "C4 first": ("c4", "gopher_quality", "gopher_repetition", "fineweb_quality"),
    "C4 last": ("gopher_repetition", "gopher_quality", "fineweb_quality", "c4"),
    "FineWeb's": ("gopher_repetition", "gopher_quality", "c4", "fineweb_quality"),
}


def ours(path: str) -> None:
    """Prints seconds by pass and kept documents of each order over a file of JSON lines."""
    import pyarrow as pa

    from curate.engines.worker import keep_memory
    from curate.steps.recipe import make_step

    pa.set_cpu_count(1)
    keep_memory()  # as every worker does
    batches = in_batches(path, BATCH)
    orders = {}
    for name, order in ORDERS.items():
        settings = {"require_end_mark": False} if name == "FineWeb's" else {}
        steps = [make_step(s, settings if s == "c4" else {}) for s in order]
        times, kept = [], 0
        for number in range(PASSES + 1):
            begin = time.perf_counter()
            kept = 0
            for batch in batches[: 1 if number == 0 else None]:  # the first pass compiles
                docs = replace(batch, _cache=None)
                for step in steps:
                    docs = step.apply(docs.within(step.label))
                kept += docs.split()[0].num_rows
            times.append(time.perf_counter() - begin)
        orders[name] = {"seconds": times[1:], "kept": kept}
    print(json.dumps({"orders": orders, "peak_mib": peak_mib()}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--documents", type=int, default=30_000)
    parser.add_argument("--ours", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ours:
        return ours(options.ours)
    texts = shifted(options.documents)
    size = sum(len(t.encode()) for t in texts) / len(texts)
    print(f"{len(texts)} English documents of {size:.0f} bytes")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "in.jsonl")
        path.write_text("".join(json.dumps({"id": "", "text": t}) + "\n" for t in texts))
        own = last_json([sys.executable, __file__, "--ours", str(path)])
        few = Path(folder, "few.jsonl")
        drawn = texts[:: max(1, len(texts) // PEER_DOCUMENTS)][:PEER_DOCUMENTS]
        few.write_text("".join(json.dumps({"text": t}) + "\n" for t in drawn))
        peer = ROOT / "benchmarks" / "peers" / "datatrove_quality.py"
        theirs = last_json([peer_python(), str(peer), "time", str(few)])
    rates = {}
    for name, order in own["orders"].items():
        rates[name] = len(texts) / statistics.median(order["seconds"])
        best = len(texts) / min(order["seconds"])
        print(
            f"  llmcurate, {name:<10}{rates[name]:8.0f} documents/s (best pass {best:.0f}),"
            f" {rates[name] * size / 1e6:6.1f} MB/s, {order['kept']} kept"
        )
    print(f"  llmcurate: peak {own['peak_mib']:.0f} MiB")
    peer_rate = len(drawn) / sum(theirs["seconds"].values())
    for name, seconds in theirs["seconds"].items():
        print(f"  DataTrove 0.10.1, {name:<24}{len(drawn) / seconds:8.0f} documents/s")
    print(f"  DataTrove 0.10.1, all four{peer_rate:16.0f} documents/s")
    print(f"  DataTrove 0.10.1: peak {theirs['peak_mib']:.0f} MiB")
    first = rates["C4 first"]
    print(f"  ratio {first / peer_rate:.0f}; target {TARGET} documents/s with C4 first")
    sys.exit(0 if reached(first >= TARGET) else 1)


if __name__ == "__main__":
    main()
