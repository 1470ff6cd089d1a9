"""Encoding with a byte-level BPE of 32,000 tokens: ours, gigatoken and `tokenizers`, one core.

    python benchmarks/bench_tokenizer_encode.py [--mb N] [--passes N]

The tokenizer is trained on a part of all kinds of texts; every kind is encoded apart, in CPU
seconds, best of the passes. Each pass has new caches of words, as a corpus has new texts: on texts
that it has seen, gigatoken is up to ten times as fast. `with gigatoken` is the encoder of shards,
which gives it the texts in Latin letters; `gigatoken alone` gets all texts, a call each.
`tokenizers` gets strings and gives lists, as its users do; the others get UTF-8 and give arrays.
Exit status 1 where ids differ, or where ours is less than 8 times as fast as `tokenizers`.
"""

from __future__ import annotations

import os

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["NUMBA_NUM_THREADS"] = "1"

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import peak_mib, reached, sized
from benchmarks.tokenizer_texts import documents

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from tokenize_kit.encode.encoder import Encoder

TARGET = 8.0
VOCAB = sized(32_000, 1000)
KINDS = ("English", "Thai", "Chinese", "code")


def first_of(encode: Callable[..., Any], *texts: np.ndarray) -> np.ndarray:
    return np.asarray(encode(*texts)[0])


def joined(encode: Callable[[bytes], Any], raw: list[bytes]) -> np.ndarray:
    return np.concatenate([*map(encode, raw)])


def measured(
    texts: list[str], tokenizer: Tokenizer, ours: Encoder, alone: str, passes: int
) -> tuple[dict[str, float], int]:
    """Return the best CPU seconds of each encoder by name, and the number of tokens."""
    from gigatoken.gigatoken_rs import load_hf_json

    from tokenize_kit.encode.gigatoken_encoder import GigatokenEncoder
    from tokenize_kit.encode.parts import pack
    from tokenize_kit.encode.words import CachePool
    from tokenize_kit.pattern.scan import cut_rows

    raw = [text.encode() for text in texts]
    data, offsets = pack(raw)
    seconds: dict[str, list[float]] = {}
    expected = np.empty(0)
    for _ in range(passes):
        both, gigatoken = GigatokenEncoder(ours), load_hf_json(alone)
        calls: dict[str, Callable[[], Any]] = {
            "tokenizers": lambda: [
                e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)
            ],
            "ours": lambda: ours.encode(data, offsets)[0],
            "with gigatoken": partial(first_of, both.encode, data, offsets),
            "gigatoken alone": partial(joined, gigatoken.encode, raw),
            "cutting": lambda: cut_rows(data, offsets, ours._kernels._tables),
        }
        for name, call in calls.items():
            ours._kernels._caches = CachePool()
            begin = time.process_time()
            ids = call()
            seconds.setdefault(name, []).append(time.process_time() - begin)
            if name == "tokenizers":
                expected = np.concatenate([np.array(row, np.uint32) for row in ids])
            elif name != "cutting" and not np.array_equal(ids, expected):
                sys.exit(f"{name} gives other ids than `tokenizers`")
    return {name: min(took) for name, took in seconds.items()}, len(expected)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, default=6, help="megabytes of each kind")
    parser.add_argument("--passes", type=int, default=3)
    options = parser.parse_args()
    from tests.tokenize_kit.byte_bpe import train_bpe
    from tokenize_kit.encode.encoder import Encoder
    from tokenize_kit.encode.gigatoken_encoder import GigatokenEncoder, specification
    from tokenize_kit.encode.parts import pack

    texts = {kind: documents(kind, options.mb * 1e6) for kind in KINDS}
    learned = (text for kind in KINDS for text in texts[kind][::2])
    tokenizer = train_bpe(learned, vocab=VOCAB, digits="single", special_tokens=["<|endoftext|>"])
    tokenizer.encode_special_tokens = True
    ours = Encoder(tokenizer)
    if ours.plan is None:
        sys.exit(f"left to the library: {ours.reason}")
    GigatokenEncoder(ours).encode(*pack([b"warm up", "\u0e01".encode()]))
    alone = specification(ours, VOCAB + 1)
    slowest = float("inf")
    for kind in KINDS:
        seconds, tokens = measured(texts[kind], tokenizer, ours, alone, options.passes)
        mb = sum(len(text.encode()) for text in texts[kind]) / 1e6
        rates = {name: mb / took for name, took in seconds.items()}
        slowest = min(slowest, rates["ours"] / rates["tokenizers"])
        print(
            f"{kind:8} {mb:5.1f} MB, {1e6 * mb / tokens:5.2f} bytes a token, MB/s: "
            + ", ".join(f"{name} {rate:.1f}" for name, rate in rates.items())
            + f"; with gigatoken {rates['with gigatoken'] / rates['ours']:.2f} times ours,"
            f" ours {rates['ours'] / rates['tokenizers']:.1f} times tokenizers"
        )
    print(f"peak memory of this process {peak_mib():.0f} MiB; target {TARGET:g} times")
    sys.exit(not reached(slowest >= TARGET))


if __name__ == "__main__":
    main()
