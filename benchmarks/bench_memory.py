"""Memory of `llmcurate filter c4` on 2 GB of JSON lines, one of which is 1 GB long.

    python benchmarks/bench_memory.py [--folder DIR]

The file is made on the fly and removed. Exit status 1 unless every worker stays below 1 GiB and the
long line is rejected by its size, as the only one of its kind.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import pieces, watched

LINE = 1_000_000_000
LIMIT_MIB = 1024


def write(path: Path) -> int:
    """Half a gigabyte of documents, the long line, half a gigabyte; returns the lines."""
    records = ({"id": f"d{i}", "text": text} for i, text in enumerate(pieces()))
    lines = [json.dumps(record).encode() + b"\n" for record in records]
    count = 0
    with path.open("wb") as file:
        for half in range(2):
            while file.tell() < (LINE // 2 if half == 0 else 2 * LINE):
                file.writelines(lines)
                count += len(lines)
            if half == 0:
                block = b"These are words of a line that never ends. " * 23_256
                file.write(b'{"id": "long", "text": "')
                for _ in range(LINE // len(block)):
                    file.write(block)
                file.write(b'"}\n')
    return count + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--folder", help="where to put the file (3 GB)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        source, out = Path(name, "large.jsonl"), Path(name, "out")
        count = write(source)
        size = source.stat().st_size
        command = [sys.executable, "-m", "curate.cli.app", "filter", "c4", str(source)]
        done = watched([*command, "-o", str(out), "--workers", "1", "--quiet"])
        if done.status:
            sys.exit(done.output)
        totals = json.loads((out / "run.json").read_text())["totals"]
    long = {k: v for k, v in totals["by_rule"].items() if "line_too_long" in k}
    print(f"{size / 1e9:.2f} GB, {count} lines, one of 1 GB: {done.seconds:.0f} s,")
    print(f"  read {totals['read']}, kept {totals['kept']}, rejected by size {long}")
    print(
        f"  peak of the worker {done.workers_mib:.0f} MiB, of any process {done.peak_mib:.0f} MiB,"
        f" of all together {done.total_mib:.0f} MiB; limit {LIMIT_MIB} MiB a worker"
    )
    good = done.workers_mib < LIMIT_MIB and sum(long.values()) == 1 and totals["read"] == count
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
