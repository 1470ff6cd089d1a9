"""Time of `llmcurate --help`, and what importing the command line loads.

    python benchmarks/bench_help.py

Exit status 1 over 0.4 s (median of ten), or when curate.cli.app imports a heavy library.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import reached

TARGET = 0.4
HEAVY = ("torch", "numba", "pyarrow", "pydantic", "numpy", "duckdb")


def main() -> None:
    times = []
    command = [sys.executable, "-c", "from curate.cli.app import main; main()", "--help"]
    for _ in range(10):
        begin = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - begin)
    code = f"import sys, curate.cli.app; print(*(m for m in {HEAVY!r} if m in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    heavy = loaded.stdout.decode().split()
    median = statistics.median(times)
    print(
        f"llmcurate --help: median {median:.3f} s of {len(times)}, {min(times):.3f} to"
        f" {max(times):.3f}; target {TARGET} s"
    )
    print(
        f"  heavy modules after importing curate.cli.app: {', '.join(heavy) or 'none'} of {HEAVY}"
    )
    sys.exit(0 if reached(median <= TARGET) and not heavy else 1)


if __name__ == "__main__":
    main()
