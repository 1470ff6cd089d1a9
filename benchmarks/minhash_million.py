"""MinHash over a million documents of 3.4 kB: does it stay within 4 GiB, and how fast is it?

    python benchmarks/minhash_million.py [--documents N] [--folder DIR]

The documents are English pieces whose words stand in another order each time, so that they have no
shingle in common; one in ten is a near copy of one before it. From parquet to parquet with
fineweb's 14 x 8 and two workers, memory of all processes together sampled. Takes some 9 GB of disk.
Exit status 1 above 4 GiB.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import pieces, watched

LIMIT_MIB = 4096
GROUP = 5000


def documents(count: int) -> Iterator[str]:
    """That many documents; every tenth is a near copy of the ninth before it."""
    passages = pieces()
    draw = random.Random(1)
    text = ""
    for number in range(count):
        if number % 10 == 9:
            yield text + " The end."
            continue
        words = passages[number % len(passages)].split(" ")
        draw.shuffle(words)
        text = " ".join(words)
        yield text


def write(count: int, path: Path) -> None:
    """The documents as one parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("id", pa.string()), ("text", pa.string())])
    source = documents(count)
    with pq.ParquetWriter(path, schema, compression="zstd", compression_level=1) as writer:
        for first in range(0, count, GROUP):
            size = min(GROUP, count - first)
            rows = {
                "id": [f"d{i}" for i in range(first, first + size)],
                "text": [next(source) for _ in range(size)],
            }
            writer.write_table(pa.table(rows, schema=schema), row_group_size=GROUP)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--folder", help="where files are written; default: a temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        write(options.documents, folder / "in.parquet")
        command = [sys.executable, "-m", "curate.cli.app", "dedup", str(folder / "in.parquet")]
        command += ["--method", "minhash", "-o", str(folder / "out"), "--workers", "2", "--quiet"]
        done = watched(command, interval=0.1)
        if done.status:
            sys.exit(done.output)
        totals = json.loads((folder / "out" / "run.json").read_text())["totals"]
    print(
        f"{options.documents} documents in {done.seconds:.0f} s"
        f" ({options.documents / done.seconds:.0f} documents/s), kept {totals['kept']};"
        f" peak of a process {done.peak_mib:.0f} MiB, of all {done.total_mib:.0f} MiB"
        f" (limit {LIMIT_MIB})"
    )
    sys.exit(0 if done.total_mib <= LIMIT_MIB else 1)


if __name__ == "__main__":
    main()
