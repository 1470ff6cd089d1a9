"""`llmcurate tokenizer encode` against a loop over `tokenizers` that writes the same tokens.

    python benchmarks/bench_tokenizer_shards.py [--mb N] [--passes N]

The input is one parquet file of real texts of all kinds, cut to 4,000 characters; the tokenizer has
32,000 tokens. Both are processes on one core, start and reading included; the loop reads with
pyarrow, encodes batches of 1,000 and writes tokens and ends, and no more: no table of documents, no
checksums, no report, no fsync. Medians of CPU seconds, passes in turn, after one that is not
counted. Exit status 1 where tokens or ends differ, or where ours is less than TARGET times as fast.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import ROOT, Watched, reached, sized, watched
from benchmarks.tokenizer_texts import KINDS, documents

TARGET = 4.0
VOCAB = sized(32_000, 1000)
PIECE = 4_000
LOOP = """
import sys, numpy as np, pyarrow.parquet as pq
from pathlib import Path
from tokenizers import Tokenizer
source, tokenizer, out = sys.argv[1], Tokenizer.from_file(sys.argv[2]), Path(sys.argv[3])
tokenizer.encode_special_tokens = True
end = tokenizer.token_to_id("<|endoftext|>")
out.mkdir()
ends, total = [], 0
with open(out / "tokens-00000.bin", "wb") as file:
    for batch in pq.ParquetFile(source).iter_batches(1000, columns=["text"]):
        texts = batch.column("text").to_pylist()
        for found in tokenizer.encode_batch_fast(texts, add_special_tokens=False):
            ids = found.ids
            ids.append(end)
            file.write(np.array(ids, "<u2").tobytes())
            total += len(ids)
            ends.append(total)
(out / "tokens-00000.idx").write_bytes(np.array(ends, "<u8").tobytes())
"""


def make_input(folder: Path, size: float) -> float:
    """Writes in.parquet and tok/tokenizer.json; returns the megabytes of text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tokenize_kit.learn.training import train_tokenizer

    kinds = [kind for kind in KINDS if kind != "all"]
    whole = [text for kind in kinds for text in documents(kind, size * 1e6 / len(kinds))]
    texts: list[str] = []
    for shift in (0, PIECE // 2, PIECE // 4, 3 * PIECE // 4):  # cut elsewhere until there is enough
        if sum(len(text.encode()) for text in texts) < 0.95e6 * size:
            texts += [t[k : k + PIECE] for t in whole for k in range(shift, len(t), PIECE)]
    texts.sort(key=hash_of)  # kinds mixed
    train_tokenizer(iter(texts[::8]), folder / "tok", vocab=VOCAB)
    table = pa.table({"id": [f"d{k}" for k in range(len(texts))], "text": texts})
    pq.write_table(table, folder / "in.parquet", row_group_size=5000)
    return sum(len(text.encode()) for text in texts) / 1e6


def hash_of(text: str) -> int:
    import xxhash

    return xxhash.xxh3_64_intdigest(text.encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, default=50)
    parser.add_argument("--passes", type=int, default=3)
    options = parser.parse_args()
    os.environ |= {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    os.environ |= {"NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        mb = make_input(folder, options.mb)
        source, tokenizer = str(folder / "in.parquet"), str(folder / "tok/tokenizer.json")
        runs: dict[str, list[Watched]] = {"ours": [], "loop": []}
        cpu: dict[str, list[float]] = {"ours": [], "loop": []}
        for number in range(options.passes + 1):  # the first one warms caches and compiles
            ours, loop = str(folder / f"ours{number}"), str(folder / f"loop{number}")
            command = [sys.executable, "-m", "curate.cli.app", "tokenizer", "encode", source]
            command += ["--tokenizer", tokenizer, "-o", ours, "-q", "--workers", "1"]
            peer = [sys.executable, "-c", LOOP, source, tokenizer, loop]
            for kind, line in (("ours", command), ("loop", peer)):
                before = cpu_seconds()
                run = watched(pinned(line))
                if run.status:
                    sys.exit(f"{kind} failed:\n{run.output[-2000:]}")
                if number:
                    runs[kind].append(run)
                    cpu[kind].append(cpu_seconds() - before)
            for file in ("tokens-00000.bin", "tokens-00000.idx"):
                if Path(ours, file).read_bytes() != Path(loop, file).read_bytes():
                    sys.exit(f"{file}: not what the loop writes")
    medians = {kind: statistics.median(seconds) for kind, seconds in cpu.items()}
    for kind, passes in runs.items():
        wall = statistics.median(run.seconds for run in passes)
        print(
            f"{kind}: {medians[kind]:6.2f} s of CPU for {mb:.0f} MB, {mb / medians[kind]:5.1f} MB/s"
            f" ({wall:.2f} s of wall), peak {max(run.total_mib for run in passes):.0f} MiB"
        )
    ratio = medians["loop"] / medians["ours"]
    print(f"ratio {ratio:.1f}; target {TARGET:g}")
    sys.exit(not reached(ratio >= TARGET))


def cpu_seconds() -> float:
    """User and system seconds of all processes started here that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def pinned(command: list[str]) -> list[str]:
    """On one core, where the system lets us."""
    if not hasattr(os, "sched_getaffinity"):
        return command
    return ["taskset", "-c", str(max(os.sched_getaffinity(0))), *command]


if __name__ == "__main__":
    main()
