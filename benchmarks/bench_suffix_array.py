"""The whole suffix-array dedup against libdivsufsort alone, on the same bytes.

    python benchmarks/bench_suffix_array.py [--runs N] [--of longtext|code]

Ours is the command from parquet to parquet, start-up of Python included: read, sketch, sieve, sort,
merge, cut, write, and, unless keep_index is false, the search index of the whole corpus. The peer
is one call of pydivsufsort.divsufsort on the corpus's bytes in memory, nothing else. The code is
put in eight times, with other words renamed each time: 7 MB are sorted before Python has started.
OMP_NUM_THREADS=1, one worker. Exit status 1 below 0.35 of the peer's speed.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import re
import statistics
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import last_json, need, reached, sized, watched

LEAST = 0.35
COPIES = sized(8, 1)
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


def renamed(text: str, copy: int) -> str:
    """The text with a third of its words marked; as it is for copy 0."""
    if copy == 0:
        return text
    mark = str(copy)

    def other(match: re.Match[str]) -> str:
        word = match.group()
        return word + mark if zlib.crc32((word + mark).encode()) % 3 == 0 else word

    return re.sub(r"[A-Za-z_]\w{3,}", other, text)


def corpus(of: str) -> list[str]:
    """The documents that are measured."""
    copies = COPIES if of == "code" else 1
    return [renamed(text, copy) for copy in range(copies) for text in texts(of)]


def measure(of: str, runs: int, settings: dict[str, object], folder: Path) -> float:
    """Prints the figures of one corpus; speed of ours / the peer."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    all_texts = corpus(of)
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
        command = [sys.executable, "-m", "curate.cli.app", "run", str(recipe), str(source), "-o"]
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
    return b / a


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--of", choices=("longtext", "code"))
    options = parser.parse_args()
    ok = True
    for of in [options.of] if options.of else ["longtext", "code"]:
        for settings in ({}, {"keep_index": False}):
            with tempfile.TemporaryDirectory() as folder:
                ok = measure(of, options.runs, dict(settings), Path(folder)) >= LEAST and ok
    sys.exit(0 if reached(ok) else 1)


if __name__ == "__main__":
    main()
