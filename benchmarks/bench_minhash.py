"""MinHash on 30,000 English documents of 3.4 kB: ours beside datasketch, rensa and DataTrove.

    python benchmarks/bench_minhash.py [--documents N] [--peer-documents N] [--only PART]

Signatures: 112 permutations over word 5-grams, one core. From texts, segmentation included:
datasketch 2 gets some of the same texts, evenly drawn, cut by `\\w+`, through its fastest door,
`update_batch` with xxh32 in place of SHA-1; rensa the same 5-grams at once. From hashes that were
made before: the same kernels without segmentation, ours and rensa's, whose RMinHash is a sketch of
another kind (some rounds over the shingles, not a minimum for each permutation).

The command goes from parquet to parquet with fineweb's 14 x 8 and two workers; its start takes
some seconds, so it is also given sixteen times the documents. DataTrove's four stages get fewer,
with the same bands; both are counted by seconds of CPU time, processes and their start included.
Exit status 1 under 50,000 documents a second for signatures, 15,000 for the command on the larger
input, or 80 times DataTrove a core.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import (
    PEER,
    ROOT,
    last_json,
    peak_mib,
    peer_python,
    pieces,
    reached,
    sized,
    watched,
    without,
)

TARGET, COMMAND_TARGET, RATIO = 50_000, 15_000, 80
BATCH, PASSES = 1000, sized(5, 1)
PERMUTATIONS = 112


def distinct(count: int) -> list[str]:
    """Pieces of English; when they run out, their words in another order, which have no shingle in
    common with them, and after every ninth of these a near copy of it."""
    passages = pieces()
    draw = random.Random(1)
    for number, text in enumerate(passages):
        if len(passages) >= count:
            break
        words = text.split(" ")
        draw.shuffle(words)
        passages.append(" ".join(words))
        if number % 9 == 8:
            passages.append(passages[-1] + " The end.")
    return passages[:count]


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

    from curate.dedup.minhash.kernels import band_keys
    from curate.dedup.minhash.near_duplicates import DedupMinhash

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


def hashed(path: str, folder: str) -> None:
    """Prints the figures of our signatures of hashes made before, which are left in a folder."""
    import numba
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from curate.dedup.minhash import kernels as kernel
    from curate.dedup.minhash.near_duplicates import DedupMinhash

    step = DedupMinhash()
    text = pq.read_table(path, columns=["text"])["text"].cast(pa.large_string()).combine_chunks()
    offsets, values = step.shingles(text)
    np.save(Path(folder, "offsets.npy"), offsets.astype(np.uint64))
    np.save(Path(folder, "hashes.npy"), values)
    a, b = kernel.permutations(PERMUTATIONS, 1)
    sign = numba.njit(lambda *arguments: kernel.signatures(*arguments))
    sign(offsets[:2], values, a, b)
    times = []
    for _ in range(PASSES):
        begin = time.perf_counter()
        sign(offsets, values, a, b)
        times.append(time.perf_counter() - begin)
    print(json.dumps({"seconds": times, "peak_mib": peak_mib()}))


def theirs(path: str, every: int) -> None:
    """Prints the figures of datasketch over every so many documents of a parquet file."""
    import pyarrow.parquet as pq
    import xxhash
    from datasketch import MinHash

    texts = pq.read_table(path, columns=["text"])["text"].to_pylist()[::every]
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


def rensa_python() -> str:
    """The interpreter of rensa's environment, which is built when absent."""
    script = str(ROOT / "benchmarks" / "peer_env.sh")
    without("rensa", PEER.parents[2] / "rensa" / "bin" / "python")
    subprocess.run(["sh", script, "rensa"], check=True, stdout=sys.stderr)
    return str(PEER.parents[2] / "rensa" / "bin" / "python")


def signatures(texts: list[str], folder: str, peer_documents: int) -> float:
    """Prints the rates of signatures; returns ours from texts, in documents a second."""
    path = str(Path(folder, "in.parquet"))
    size = sum(len(t.encode()) for t in texts) / len(texts)
    every = max(1, len(texts) // peer_documents)
    some = len(texts[::every])
    rensa = [rensa_python(), str(ROOT / "benchmarks" / "peers" / "rensa_minhash.py")]
    script = [sys.executable, __file__]
    runs = {
        "ours": (len(texts), [*script, "--ours", path]),
        "datasketch": (some, [*script, "--theirs", path, str(every)]),
        "rensa": (some, [*rensa, "texts", path, str(PERMUTATIONS), str(every)]),
        "ours, hashes": (len(texts), [*script, "--hashed", path, folder]),
        "rensa, hashes": (len(texts), [*rensa, "hashes", folder, str(PERMUTATIONS)]),
    }
    rates = {}
    for name, (count, command) in runs.items():
        result = last_json(command)
        rates[name] = count / statistics.median(result["seconds"])
        best = count / min(result["seconds"])
        print(
            f"  {name:<14}{rates[name]:9.0f} documents/s (best pass {best:.0f}),"
            f" {rates[name] * size / 1e6:7.2f} MB/s, peak {result['peak_mib']:.0f} MiB",
            flush=True,
        )
    for peer in ("datasketch", "rensa"):
        print(f"  ours / {peer}: {rates['ours'] / rates[peer]:.1f}")
    print(f"  hashes, ours / rensa: {rates['ours, hashes'] / rates['rensa, hashes']:.2f}")
    return rates["ours"]


def command(path: str, out: Path, count: int, *options: str) -> tuple[float, float]:
    """Runs the command and prints its figures; documents a second of wall and of CPU time."""
    run = [sys.executable, "-m", "curate.cli.app", "dedup", path, "--method", "minhash", *options]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = watched([*run, "-o", str(out), "--workers", "2", "--quiet"], 0.1)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.status:
        sys.exit(done.output)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    record = json.loads((out / "run.json").read_text())
    print(
        f"  command {' '.join(options):<13}{count / done.seconds:7.0f} documents/s: {count} in"
        f" {done.seconds:.1f} s, {cpu:.1f} s of CPU ({count / cpu:.0f} documents/s a core), kept"
        f" {record['totals']['kept']}, peak of a process {done.peak_mib:.0f} MiB,"
        f" of all {done.total_mib:.0f} MiB",
        flush=True,
    )
    return count / done.seconds, count / cpu


def datatrove(path: str, folder: Path, count: int) -> float:
    """Runs DataTrove's four stages and prints their figures; documents a second of CPU time."""
    script = str(ROOT / "benchmarks" / "peers" / "datatrove_minhash.py")
    result = last_json([peer_python(), script, path, str(folder)])
    stages = ", ".join(f"{name} {s:.1f} s" for name, s in result["seconds"].items())
    print(
        f"  DataTrove    {count / result['cpu']:7.1f} documents/s a core: {count} with"
        f" {result['cpu']:.1f} s of CPU ({stages}), kept {result['kept']}"
    )
    return float(count / result["cpu"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--documents", type=int, default=30_000)
    parser.add_argument("--peer-documents", type=int, default=1000, help="for datasketch, rensa")
    parser.add_argument("--datatrove-documents", type=int, default=3000)
    parser.add_argument("--only", choices=("signatures", "command", "datatrove"))
    for hidden, values in (("--ours", 1), ("--theirs", 2), ("--hashed", 2)):
        parser.add_argument(hidden, nargs=values, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ours:
        return ours(*options.ours)
    if options.theirs:
        return theirs(options.theirs[0], int(options.theirs[1]))
    if options.hashed:
        return hashed(*options.hashed)

    texts = distinct(options.documents)
    size = sum(len(t.encode()) for t in texts) / len(texts)
    print(f"{len(texts)} English documents of {size:.0f} bytes")
    passed = True
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "in.parquet"))
        write(texts, path)
        if options.only in (None, "command"):
            command(path, Path(folder, "out-1"), len(texts))
            command(path, Path(folder, "out-2"), len(texts), "--verify", "0.8")
        if options.only in (None, "command", "datatrove"):
            more = distinct(sized(16, 2) * options.documents)
            write(more, path)
            whole, core = command(path, Path(folder, "out-16"), len(more))
            passed &= whole >= COMMAND_TARGET
            print(f"  target {COMMAND_TARGET} documents/s")
        if options.only in (None, "signatures"):
            write(texts, path)
            passed &= signatures(texts, folder, options.peer_documents) >= TARGET
            print(f"  target {TARGET} documents/s")
        if options.only in (None, "datatrove"):
            few = texts[:: max(1, len(texts) // options.datatrove_documents)]
            few = few[: options.datatrove_documents]
            write(few, str(Path(folder, "few.parquet")))
            peer = datatrove(str(Path(folder, "few.parquet")), Path(folder, "peer"), len(few))
            print(f"  command / DataTrove, a core: {core / peer:.0f}; target {RATIO}")
            passed &= core / peer >= RATIO
    sys.exit(0 if reached(passed) else 1)


if __name__ == "__main__":
    main()
