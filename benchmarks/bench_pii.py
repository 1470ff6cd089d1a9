"""Personal data in English documents of 3.4 kB: ours against DataTrove's PIIFormatter.

    python benchmarks/bench_pii.py

Both get the same documents in memory, in one process each, after a warm-up, and replace e-mail and
public IP addresses; a second figure of ours looks for phone and card numbers too. CPU time, since
other work may be on the machine. Exit status 1 under 20,000 documents a second.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import ROOT, in_batches, last_json, peer_python, pieces, reached, sized

TARGET = 20_000
BATCH = 1000
PASSES = sized(7, 1)


def ours(path: str, numbers: bool) -> None:
    """Prints the figures of our step over the documents in a file."""
    import pyarrow as pa

    from curate.documents.documents import documents
    from curate.filters.pii import Pii

    pa.set_cpu_count(1)
    batches = in_batches(path, BATCH)
    step = Pii(phones=numbers, credit_cards=numbers)
    step.apply(documents({"text": ["a@b.com 8.8.8.8 +1 212 555 0123"]}).within("pii")).split()
    times = []
    for _ in range(PASSES):
        begin = time.process_time()
        changed = 0
        for batch in batches:
            docs = step.apply(batch.within("pii"))
            docs.split()
            changed += len({int(r) for _, spans in docs.edits for r in spans.rows})
        times.append(time.process_time() - begin)
    print(json.dumps({"seconds": times, "changed": changed}))


def main() -> None:
    if sys.argv[1:2] == ["--ours"]:
        ours(sys.argv[2], sys.argv[3] == "numbers")
        return
    texts = pieces()
    size = sum(len(t.encode()) for t in texts)
    print(f"{len(texts)} English documents of {size / len(texts):.0f} bytes, CPU seconds")
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for i, text in enumerate(texts):
            file.write(json.dumps({"id": str(i), "text": text}) + "\n")
        file.flush()
        command = [sys.executable, __file__, "--ours", file.name]
        peer = ROOT / "benchmarks" / "peers" / "datatrove_pii.py"
        results = {
            "llmcurate": last_json([*command, "addresses"]),
            "llmcurate, numbers too": last_json([*command, "numbers"]),
            "DataTrove 0.10.1": last_json([peer_python(), str(peer), file.name]),
        }
    rates = {}
    for name, result in results.items():
        rates[name] = len(texts) / statistics.median(result["seconds"])
        print(
            f"  {name:<24}{rates[name]:9.0f} documents/s,"
            f" {rates[name] * size / len(texts) / 1e6:7.1f} MB/s, {result['changed']} changed"
        )
    own, _, peers = rates.values()
    print(f"  ratio {own / peers:.1f}; target {TARGET} documents/s")
    sys.exit(0 if reached(own >= TARGET) else 1)


if __name__ == "__main__":
    main()
