"""SuperBPE against plain BPE at one size of the vocabulary, on held-out text.

    python benchmarks/bench_tokenizer_algorithms.py [--mb N] [--vocab N]

Tokens span words from a share of the vocabulary on: bytes a token by kind of text, CPU seconds and
memory of training (each in a process of its own). Exit status 1 where SuperBPE gives fewer bytes a
token than plain BPE.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.bench_tokenizer_compression import split_texts, tokens
from benchmarks.shared_texts import peak_mib, reached

Documents = list[tuple[str, int]]  # text and weight


def train(documents: Documents, vocab: int, settings: dict[str, Any]) -> tuple[str, float, float]:
    """(tokenizer.json, CPU seconds, MiB that the process grew by); runs in a new process."""
    from tokenize_kit.learn.bpe import train_byte_bpe
    from tokenize_kit.learn.options import TrainingOptions

    def learn(some: Documents, size: int, **more: Any) -> Any:
        options = TrainingOptions(sizes=(size,), **{**settings, **more})
        return train_byte_bpe(iter(some), options)[0].tokenizer

    small = {"superwords": 300} if settings else {}
    learn([(documents[0][0][:999], 1)], 320, **small)  # what compiles or loads
    before, begin = peak_mib(), time.process_time()
    tokenizer = learn(documents, vocab)
    return str(tokenizer.to_str()), time.process_time() - begin, peak_mib() - before


def trained(documents: Documents, vocab: int, settings: dict[str, Any]) -> tuple[Any, float, float]:
    from tokenizers import Tokenizer

    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        written, *costs = pool.submit(train, documents, vocab, settings).result()
    return Tokenizer.from_str(written), *costs


def rows(head: str, names: list[str], values: dict[str, list[float]], form: str) -> None:
    print(f"{head:16}" + "".join(f"{name:>18}" for name in names))
    for label, row in values.items():
        print(f"{label:16}" + "".join(f"{value:18{form}}" for value in row), flush=True)


def compare_superwords(mb: float, vocab: int) -> bool:
    """Whether SuperBPE gives more bytes a token than plain BPE."""
    learned, kept = split_texts(mb)
    every = [text for texts in kept.values() for text in texts]
    settings: dict[str, dict[str, Any]] = {"plain": {}} | {
        f"SuperBPE {share:.0%}": {"superwords": int(vocab * share)} for share in (0.9, 0.6)
    }
    results = {
        name: trained([(text, 1) for text in learned], vocab, chosen)
        for name, chosen in settings.items()
    }
    table = {
        kind: [sum(len(t.encode()) for t in texts) / tokens(r[0], texts) for r in results.values()]
        for kind, texts in [*kept.items(), ("all", every)]
    }
    print(f"learned from {sum(len(t.encode()) for t in learned) / 1e6:.1f} MB; {vocab} tokens")
    rows("bytes a token", list(results), table, ".3f")
    costs = {"CPU seconds": [r[1] for r in results.values()]}
    rows("training", list(results), costs | {"MiB": [r[2] for r in results.values()]}, ".1f")
    return min(table["all"][1:]) > table["all"][0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, default=24, help="megabytes of text, all kinds")
    parser.add_argument("--vocab", type=int, default=32_000)
    options = parser.parse_args()
    sys.exit(not reached(compare_superwords(options.mb, options.vocab)))


if __name__ == "__main__":
    main()
