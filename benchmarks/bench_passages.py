"""Dedup of passages on 100,000 English documents of 3.4 kB: the whole command, and its memory.

    python benchmarks/bench_passages.py [--documents N]

The documents are pieces of novels and documentation, then the same with their words in another
order, so that most lines stand once; every third one has two of 200 lines put in, as a site's
boilerplate is. Two workers, parquet to parquet. Exit status 1 where a process holds over 2 GiB.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.bench_minhash import distinct
from benchmarks.shared_texts import watched

LIMIT_MIB = 2048


def with_boilerplate(texts: list[str]) -> list[str]:
    """Every third text with two lines that others have too."""
    draw = random.Random(2)
    notices = [f"This is notice {i} that stands on many pages of a site." for i in range(200)]
    return [
        "\n".join([draw.choice(notices), text, draw.choice(notices)]) if i % 3 == 0 else text
        for i, text in enumerate(texts)
    ]


def main() -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--documents", type=int, default=100_000)
    options = parser.parse_args()
    texts = with_boilerplate(distinct(options.documents))
    size = sum(len(t.encode()) for t in texts)
    lines = sum(t.count("\n") + 1 for t in texts)
    print(f"{len(texts)} documents, {size / 1e6:.0f} MB, {lines} lines")
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "in.parquet"))
        ids = [f"d{i}" for i in range(len(texts))]
        rows = {"id": ids, "text": texts, "url": [f"https://{i}.test/" for i in ids]}
        pq.write_table(pa.table(rows), path, row_group_size=2000)
        del rows, texts
        for method in ("lines", "sentences"):
            out = Path(folder, method)
            command = [sys.executable, "-m", "curate.cli.app", "dedup", path, "--method", method]
            done = watched([*command, "-o", str(out), "--workers", "2", "--quiet"])
            if done.status:
                sys.exit(done.output)
            record = json.loads((out / "run.json").read_text())
            decided = next(s["decided"] for s in record["stages"] if s.get("decided"))
            worst = max(worst, done.peak_mib)
            print(
                f"  {method:<10}{options.documents / done.seconds:8.0f} documents/s,"
                f" {size / done.seconds / 1e6:6.1f} MB/s, {done.seconds:.1f} s;"
                f" {decided['members']} passages in {decided['clusters']} clusters,"
                f" kept {record['totals']['kept']};"
                f" peak of a process {done.peak_mib:.0f} MiB, of all {done.total_mib:.0f} MiB"
            )
    sys.exit(0 if worst <= LIMIT_MIB else 1)


if __name__ == "__main__":
    main()
