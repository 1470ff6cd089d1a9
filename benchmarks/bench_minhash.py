"""MinHash on 30,000 English documents of 3.4 kB: ours against datasketch, and the whole command.

    python benchmarks/bench_minhash.py [--documents N]

Signatures: 112 permutations over word 5-grams, segmentation included, in one process on one core.
datasketch 2 gets 1,000 of the same texts, evenly drawn, cut by `\\w+`, through its fastest door:
`update_batch` with xxh32 in place of SHA-1. The command goes from parquet to parquet with fineweb's
14 x 8 and two workers; its start takes some seconds, so it is also given four times the documents.
Exit status 1 under 50,000 documents a second, or 15,000 for the command on the larger input.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import last_json, peak_mib, pieces, watched

TARGET, COMMAND_TARGET = 50_000, 15_000
BATCH, PASSES, PEER_DOCUMENTS = 1000, 5, 1000
PERMUTATIONS = 112


def distinct(count: int) -> list[str]:
    """Pieces of English; when they run out, their words in another order, which have no shingle in
    common with them, and after every ninth of these a near copy of it."""
    found = pieces()
    draw = random.Random(1)
    for number, text in enumerate(found):
        if len(found) >= count:
            break
        words = text.split(" ")
        draw.shuffle(words)
        found.append(" ".join(words))
        if number % 9 == 8:
            found.append(found[-1] + " The end.")
    return found[:count]


def write(texts: list[str], path: str) -> None:
    """The documents as a parquet file of small row groups."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = {"id": [f"d{i}" for i in range(len(texts))], "text": texts}
    pq.write_table(pa.table(rows), path, row_group_size=2000)


def ours(path: str) -> None:
    """Prints the figures of our signatures and band keys over the documents in a parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from curate.dedup.minhash.kernel import band_keys
    from curate.dedup.minhash.step import DedupMinhash

    pa.set_cpu_count(1)
    table = pq.read_table(path, columns=["text"])
    texts = [b.column(0).cast(pa.large_string()) for b in table.to_batches(max_chunksize=BATCH)]
    step = DedupMinhash()
    band_keys(step.signatures(texts[0])[0], 14, 8)
    times = []
    for _ in range(PASSES):
        begin = time.perf_counter()
        for text in texts:
            band_keys(step.signatures(text)[0], 14, 8)
        times.append(time.perf_counter() - begin)
    print(json.dumps({"seconds": times, "peak_mib": peak_mib()}))


def theirs(path: str) -> None:
    """Prints the figures of datasketch over the first documents of a parquet file."""
    import pyarrow.parquet as pq
    import xxhash
    from datasketch import MinHash

    texts = pq.read_table(path, columns=["text"])["text"].to_pylist()
    texts = texts[:: max(1, len(texts) // PEER_DOCUMENTS)][:PEER_DOCUMENTS]
    find = re.compile(r"\w+").findall
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        permutations = MinHash(PERMUTATIONS).permutations
        for text in texts:
            words = find(text.lower())
            grams = {" ".join(words[i : i + 5]).encode() for i in range(max(1, len(words) - 4))}
            sketch = MinHash(
                PERMUTATIONS,
                hashfunc=xxhash.xxh32_intdigest,
                permutations=permutations,
                scheme="affine32",
            )
            sketch.update_batch(grams)
        times.append(time.perf_counter() - begin)
    print(json.dumps({"seconds": times, "peak_mib": peak_mib()}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--documents", type=int, default=30_000)
    parser.add_argument("--ours", help=argparse.SUPPRESS)
    parser.add_argument("--theirs", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ours or options.theirs:
        return ours(options.ours) if options.ours else theirs(options.theirs)

    texts = distinct(options.documents)
    size = sum(len(t.encode()) for t in texts) / len(texts)
    print(f"{len(texts)} English documents of {size:.0f} bytes")
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "in.parquet"))
        write(texts, path)
        counts = {"ours": len(texts), "theirs": min(PEER_DOCUMENTS, len(texts))}
        rates = {}
        for name, count in counts.items():
            found = last_json([sys.executable, __file__, f"--{name}", path])
            rates[name] = count / statistics.median(found["seconds"])
            best = count / min(found["seconds"])
            print(
                f"  {name:<8}{rates[name]:9.0f} documents/s (best pass {best:.0f}),"
                f" {rates[name] * size / 1e6:7.2f} MB/s, peak {found['peak_mib']:.0f} MiB"
            )
        print(f"  ratio {rates['ours'] / rates['theirs']:.1f}; target {TARGET} documents/s")
        whole = 0.0
        for copies, verify in ((1, []), (1, ["--verify", "0.8"]), (4, [])):
            if copies > 1:
                texts = distinct(copies * options.documents)
                write(texts, path)
            out = Path(folder, f"out-{copies}-{len(verify)}")
            command = [sys.executable, "-m", "curate.cli", "dedup", path, "--method", "minhash"]
            done = watched([*command, *verify, "-o", str(out), "--workers", "2", "--quiet"], 0.1)
            if done.status:
                sys.exit(done.output)
            record = json.loads((out / "run.json").read_text())
            whole = len(texts) / done.seconds
            print(
                f"  command {' '.join(verify):<13}{whole:7.0f} documents/s: {len(texts)} in"
                f" {done.seconds:.1f} s, kept {record['totals']['kept']},"
                f" peak of a process {done.peak_mib:.0f} MiB, of all {done.total_mib:.0f} MiB"
            )
    sys.exit(0 if rates["ours"] >= TARGET and whole >= COMMAND_TARGET else 1)


if __name__ == "__main__":
    main()
