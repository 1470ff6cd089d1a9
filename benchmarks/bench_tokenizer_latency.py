"""One text of 100 bytes, and 10,000 of them in a call: ours against tiktoken and `tokenizers`.

    python benchmarks/bench_tokenizer_latency.py [--passes N]

A tokenizer of 32,000 tokens is learned from a part of all kinds of texts; tiktoken gets its ranks
and its pattern, so that all give the same ids. Each text is encoded by a call of its own, as in a
notebook, str to a list of numbers: `new` with an empty memory of words and texts that were never
asked for, `again` the same texts once more. Then all in one call, beside a call for as much text in
pieces of 20,000 characters. CPU time of one core, best of the passes, which are interleaved. Exit
status 1 where ids differ, where a call takes more than 2 times tiktoken's, or where a call for many
texts has less than half of the throughput of one for long ones.
"""

from __future__ import annotations

import os

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["NUMBA_NUM_THREADS"] = "1"

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import reached, sized
from benchmarks.tokenizer_texts import PIECE, documents

KINDS = ("English", "Thai", "Chinese", "code")
VOCAB = sized(32_000, 1000)
BYTES, TEXTS = 100, sized(10_000, 200)
MOST, LEAST = 2.0, 0.5


def short(texts: list[str]) -> list[str]:
    """Texts of BYTES, less a character that is cut, from all over the longer ones."""
    raw = [text.encode() for text in texts]
    step = max(BYTES, sum(map(len, raw)) // (TEXTS + len(raw)))
    cut = [r[k : k + BYTES] for r in raw for k in range(0, len(r) - BYTES, step)]
    return [part.decode("utf-8", "ignore") for part in cut][:TEXTS]


def by_tiktoken(path: Path) -> Any:
    import tiktoken

    from tokenize_kit.formats.tokenizer_json import from_letters

    parts = json.loads(path.read_text(encoding="utf-8"))
    special = {token["content"]: token["id"] for token in parts["added_tokens"]}
    vocab = parts["model"]["vocab"].items()
    ranks = {from_letters(t): number for t, number in vocab if t not in special}
    pattern = parts["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
    return tiktoken.Encoding("own", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)


def compare(path: Path, some: list[str], long: list[str], passes: int) -> dict[str, float]:
    """CPU seconds of each way to encode, best of the passes; ends the script where ids differ."""
    from tokenizers import Tokenizer as Library

    from tokenize_kit.tokenizer import Tokenizer

    theirs, library = by_tiktoken(path), Library.from_file(str(path))
    library.encode_special_tokens = True
    best: dict[str, float] = {}
    for _ in range(passes):
        ours = Tokenizer(path)
        ours.encode("what loads")
        work: dict[str, Callable[[], list[Any]]] = {
            "new": lambda o=ours: [o.encode(text) for text in some],
            "again": lambda o=ours: [o.encode(text) for text in some],
            "tiktoken": lambda: [theirs.encode_ordinary(text) for text in some],
            "tokenizers": lambda: [library.encode(t, add_special_tokens=False).ids for t in some],
            "many": lambda o=ours: list(o.encode_texts(some)),
            "tiktoken, many": lambda: theirs.encode_ordinary_batch(some, num_threads=1),
            "tokenizers, many": lambda: library.encode_batch_fast(some, add_special_tokens=False),
            "long": lambda o=ours: list(o.encode_texts(long)),
        }
        ids = {}
        for name, call in work.items():
            begin = time.process_time()
            ids[name] = call()
            best[name] = min(best.get(name, 1e9), time.process_time() - begin)
        ids["many"] = [row.tolist() for row in ids["many"]]
        ids["tokenizers, many"] = [encoding.ids for encoding in ids["tokenizers, many"]]
        if any(ids[name] != ids["new"] for name in ids if name != "long"):
            sys.exit("other ids")
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passes", type=int, default=3)
    options = parser.parse_args()
    from tokenize_kit.learn.training import train_tokenizer

    texts = {kind: documents(kind, 3e6) for kind in KINDS}
    failed = False
    with tempfile.TemporaryDirectory() as name:
        learned = (text for kind in KINDS for text in texts[kind][::2])
        train_tokenizer(learned, Path(name), vocab=VOCAB)
        for kind in KINDS:
            some = short(texts[kind])
            long = texts[kind][: len(some) * BYTES // PIECE + 1]
            best = compare(Path(name) / "tokenizer.json", some, long, options.passes)
            calls = {name: best[name] / len(some) * 1e6 for name in best}
            ratio = max(calls["new"], calls["again"]) / calls["tiktoken"]
            size = sum(len(text.encode()) for text in some)
            rates = {name: size / 1e6 / best[name] for name in best}
            share = rates["many"] / (sum(len(t.encode()) for t in long) / 1e6 / best["long"])
            failed |= ratio > MOST or share < LEAST
            print(
                f"{kind}: a call: new {calls['new']:.1f} us, again {calls['again']:.1f}, tiktoken"
                f" {calls['tiktoken']:.1f}, tokenizers {calls['tokenizers']:.1f}; {ratio:.2f} of"
                f" tiktoken's\n  {len(some):,} texts in a call: {rates['many']:.1f} MB/s,"
                f" {share:.2f} of long texts'; tiktoken {rates['tiktoken, many']:.1f}, tokenizers"
                f" {rates['tokenizers, many']:.1f}",
                flush=True,
            )
    sys.exit(not reached(not failed))


if __name__ == "__main__":
    main()
