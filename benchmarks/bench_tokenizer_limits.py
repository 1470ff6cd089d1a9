"""Tokenizers at limits: a vocabulary of 1,000,000, a text of one line and a word of 60 MB.

    python benchmarks/bench_tokenizer_limits.py [--giant]

With --giant instead one document of 1 GB: `tokenizer encode` of it, and `encode_parts` and
`decode_parts`, whose memory is to be that of some megabytes (ten minutes).

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
GIANT_LIMITS = {
    "encode_parts, 1 GB": (400, 600),
    "decode_parts, 1 GB": (400, 3600),
    "encode, one document of 1 GB": (4500, 900),
}
# argv: tokenizer, text, ids. The ids lie in a file, so that the texts are compared in parts.
PARTS = """
import sys
import numpy as np
from tokenize_kit.tokenizer import Tokenizer
tokenizer = Tokenizer(sys.argv[1])
with open(sys.argv[2], "rb") as text, open(sys.argv[3], "wb") as file:
    for ids in tokenizer.encode_parts(iter(lambda: text.read(65536), b"")):
        file.write(ids.astype("<u4").data)
"""
WHOLE = """
import sys
import numpy as np
from tokenize_kit.tokenizer import Tokenizer
def ids(path):
    with open(path, "rb") as file:
        while block := file.read(1 << 16):
            yield from np.frombuffer(block, "<u4").tolist()
with open(sys.argv[2], "rb") as text:
    for part in Tokenizer(sys.argv[1]).decode_parts(ids(sys.argv[3])):
        part = part.encode()
        assert text.read(len(part)) == part
    assert not text.read(1)
"""


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
    """One document of 1 GB: in parts and as a whole, the same ids; whether anything failed."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    model, text, ids = str(folder / "small"), folder / "giant.txt", folder / "ids"
    with text.open("w", encoding="utf-8") as file:
        for n in range(GIANT * 1_000_000 // len(prose)):
            file.write(f"{n} {prose}\n")
    raw = pa.py_buffer(text.read_bytes())
    column = pa.LargeStringArray.from_buffers(1, pa.py_buffer(np.array([0, raw.size])), raw)
    pq.write_table(pa.table({"id": ["giant"], "text": column}), folder / "giant.parquet")
    del raw, column
    shards, files = folder / "shards", [model, str(text), str(ids)]
    encode = ["-m", "curate.cli.app", "tokenizer", "encode", str(folder / "giant.parquet")]
    encode += ["--tokenizer", model, "--workers", "1", "-q", "-o", str(shards), "--no-eos"]
    commands = [
        ["-c", PARTS, *files],
        ["-c", WHOLE, *files],
        [*encode, "--set", "read.max_record_bytes=2000000000"],
    ]
    failed = False
    for (what, limits), command in zip(GIANT_LIMITS.items(), commands, strict=True):
        failed |= report(what, command, *limits)
    same = np.array_equal(np.fromfile(ids, "<u4"), np.fromfile(shards / "tokens-00000.bin", "<u2"))
    print(f"the ids of both are {'the same' if same else 'DIFFERENT'}")
    return failed or not same


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
