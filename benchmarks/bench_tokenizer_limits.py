"""Tokenizers at limits: a vocabulary of 1,000,000, a text of one line and a word of 60 MB.

    python benchmarks/bench_tokenizer_limits.py [--giant]

With --giant instead `tokenizer encode` of one document of 1 GB.

Each a command of its own on one core: `tokenizer encode` and `tokenizer eval` with the vocabulary
on a thousand generated documents, and of the texts with a small one. Prints seconds
and the most memory. Exit status 1 where one fails, or takes more than its limit: memory that is a
part of the design (a constant, and a number of bytes a byte of text), and minutes.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import ROOT, reached, sized, watched

LETTERS = "abcdefghijklmnopqrstuvwxyz"
VOCAB = sized(1_000_000, 20_000)
MB = sized(60, 1)
# MiB, seconds
LIMITS = {
    "encode, vocabulary of a million": (2000, 120),
    "eval, vocabulary of a million": (2200, 600),
    "encode, a line of prose": (1200, 120),
    "eval, a line of prose": (3500, 300),
    "encode, one word": (1800, 120),
}
GIANT = 1000  # MB
GIANT_LIMITS = (4500, 900)


def words() -> list[str]:
    """A generated word a number, without a pattern to it."""
    return [
        "".join(LETTERS[(n * 7919 + k * 104_729 + n * n * k) % 26] for k in range(2 + n % 9))
        for n in range(5000)
    ]


def large_vocabulary(small: Path, out: Path) -> None:
    """A byte-level BPE of all words of two letters, of four, and many of five."""
    parts = json.loads(small.read_text(encoding="utf-8"))
    vocab = {
        token: number
        for token, number in parts["model"]["vocab"].items()
        if len(token) == 1 or token.startswith("<|")
    }
    vocab = {token: number for number, token in enumerate(sorted(vocab, key=vocab.__getitem__))}
    merges = []
    twos = list(map("".join, itertools.product(LETTERS, repeat=2)))
    fours = map("".join, itertools.product(twos, repeat=2))
    fives = itertools.product(map("".join, itertools.product(twos, repeat=2)), LETTERS)
    pairs = itertools.chain(
        ((w[0], w[1]) for w in twos), ((w[:2], w[2:]) for w in fours), ((a, b) for a, b in fives)
    )
    for first, second in pairs:
        if len(vocab) == VOCAB:
            break
        vocab[first + second] = len(vocab)
        merges.append([first, second])
    parts["model"] |= {"vocab": vocab, "merges": merges}
    out.mkdir()
    (out / "tokenizer.json").write_text(json.dumps(parts), encoding="utf-8")


def report(what: str, command: list[str], most: float, limit: float) -> bool:
    """Runs a command; whether it failed, or took more than MiB or seconds."""
    done = watched([sys.executable, *command])
    bad = done.status != 0 or done.peak_mib > most or done.seconds > limit
    print(
        f"{what}: {done.seconds:.0f} s (limit {limit}), {done.peak_mib:.0f} MiB (limit"
        f" {most}){'  FAILED' if bad else ''}",
        flush=True,
    )
    if done.status:
        print(done.output[-1000:])
    return bad


def giant(folder: Path, prose: str) -> bool:
    """One document of 1 GB; whether anything failed."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    lines = (f"{n} {prose}\n".encode() for n in range(GIANT * 1_000_000 // len(prose)))
    raw = pa.py_buffer(b"".join(lines))
    column = pa.LargeStringArray.from_buffers(1, pa.py_buffer(np.array([0, raw.size])), raw)
    pq.write_table(pa.table({"id": ["giant"], "text": column}), folder / "giant.parquet")
    del raw, column
    encode = ["-m", "curate.cli.app", "tokenizer", "encode", str(folder / "giant.parquet")]
    encode += ["--tokenizer", str(folder / "small"), "--workers", "1", "-q"]
    encode += ["-o", str(folder / "shards"), "--set", "read.max_record_bytes=2000000000"]
    return report("encode, one document of 1 GB", encode, *GIANT_LIMITS)


def main() -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tokenize_kit.learn.training import train_tokenizer

    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        some = words()
        prose = " ".join(some)
        train_tokenizer([prose], folder / "small", vocab=2000)
        if "--giant" in sys.argv[1:]:
            sys.exit(giant(folder, prose))
        large_vocabulary(folder / "small" / "tokenizer.json", folder / "large")
        documents = [" ".join(some[k : k + 50]) for k in range(1000)]
        inputs = {
            "documents": documents,
            "line": [(prose + " ") * (MB * 1_000_000 // len(prose))],
            "word": ["th" * (MB * 500_000)],
        }
        for kind, texts in inputs.items():
            table = pa.table({"id": [str(k) for k in range(len(texts))], "text": texts})
            pq.write_table(table, folder / f"{kind}.parquet")
        tokenizer, encode = "tokenizer", ("--workers", "1", "-q")
        commands = [
            ["encode", "documents", "large"],
            ["eval", "documents", "large"],
            ["encode", "line", "small"],
            ["eval", "line", "small"],
            ["encode", "word", "small"],
        ]
        for (what, (most, limit)), (verb, kind, own) in zip(LIMITS.items(), commands, strict=True):
            source, model = str(folder / f"{kind}.parquet"), str(folder / own)
            line = [source, "--tokenizer", model, *encode, "-o", str(folder / f"out-{kind}")]
            if verb == "eval":
                line = [model, "--on", source]
            failed |= report(what, ["-m", "curate.cli.app", tokenizer, verb, *line], most, limit)
    sys.exit(not reached(not failed))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
