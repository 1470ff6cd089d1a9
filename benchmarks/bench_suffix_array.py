"""The whole suffix-array dedup against libdivsufsort alone, on the same bytes.

    python benchmarks/bench_suffix_array.py [--runs N] [--of longtext|code]

Ours is the command from parquet to parquet, start-up of Python included: read, sketch, sieve, sort,
merge, cut, write, and the search index of the whole corpus. The peer is one call of
pydivsufsort.divsufsort on the corpus's bytes in memory, nothing else. Both single-threaded where
they can be (OMP_NUM_THREADS=1, one worker). Exit status 1 below 0.35 of the peer's speed, which is
asked of the corpora of 50 MB or more; smaller ones are over before Python has started.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import last_json, need, watched

LEAST, LARGE = 0.35, 50e6
BARE = """
import json, sys, time
import numpy as np
from pydivsufsort import divsufsort
data = np.fromfile(sys.argv[1], np.uint8)
def peak():
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) * 1024
before = peak()
begin = time.perf_counter()
divsufsort(data)
seconds = time.perf_counter() - begin
print(json.dumps({"seconds": seconds, "peak": (peak() - before + len(data)) / len(data)}))
"""


def texts(of: str) -> Iterator[str]:
    """All documents of a shared corpus."""
    import zstandard

    for path in need(f"{of}/*.jsonl.*"):
        with path.open("rb") as file:
            zipped = path.suffix == ".gz"
            opened = (
                gzip.GzipFile(fileobj=file)
                if zipped
                else zstandard.ZstdDecompressor().stream_reader(file)
            )
            for line in io.TextIOWrapper(opened, "utf-8"):
                yield json.loads(line)["text"]


def measure(of: str, runs: int, settings: dict[str, object], folder: Path) -> tuple[float, int]:
    """Prints the figures of one corpus; (ours / peer, bytes)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    all_texts = list(texts(of))
    data = "".join(all_texts).encode()
    raw, source = folder / "raw", folder / "in.parquet"
    raw.write_bytes(data)
    ids = [f"d{i}" for i in range(len(all_texts))]
    pq.write_table(pa.table({"id": ids, "text": all_texts}), source)
    recipe = folder / "recipe.yaml"
    recipe.write_text(json.dumps({"steps": [{"dedup_suffix_array": settings}]}))
    ours, bare, peaks, peak = [], [], [], 0.0
    os.environ["OMP_NUM_THREADS"] = "1"
    for run in range(runs + 1):  # the first one compiles
        out = folder / f"out-{run}"
        command = [sys.executable, "-m", "curate.cli", "run", str(recipe), str(source), "-o"]
        done = watched([*command, str(out), "--workers", "1", "-q"])
        if done.status:
            sys.exit(done.output)
        peer = last_json([sys.executable, "-c", BARE, str(raw)])
        if run:
            ours.append(done.seconds)
            bare.append(peer["seconds"])
            peaks.append(done.peak_mib)
            peak = peer["peak"]
    decided = json.loads((out / "run.json").read_text())["stages"][0]["decided"]
    a, b = statistics.median(ours), statistics.median(bare)
    size = len(data)
    print(f"{of}: {len(all_texts)} documents, {size / 1e6:.1f} MB, {settings or 'defaults'}")
    print(f"  {decided['notes'][0]} clusters {decided['clusters']}")
    print(f"  command   {size / a / 1e6:6.1f} MB/s, median {a:.2f} s of {sorted(ours)}")
    print(
        f"            peak of a process {max(peaks):.0f} MiB ({max(peaks) * 2**20 / size:.1f} B/B)"
    )
    print(f"  bare sort {size / b / 1e6:6.1f} MB/s, median {b:.2f} s of {sorted(bare)}")
    print(f"            {peak:.1f} bytes a byte")
    print(f"  ratio {b / a:.2f}")
    return b / a, size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--of", choices=("longtext", "code"))
    options = parser.parse_args()
    ok = True
    for of in [options.of] if options.of else ["longtext", "code"]:
        for settings in ({}, {"keep_index": False}):
            with tempfile.TemporaryDirectory() as folder:
                ratio, size = measure(of, options.runs, dict(settings), Path(folder))
                ok = ok and (ratio >= LEAST or size < LARGE)
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
