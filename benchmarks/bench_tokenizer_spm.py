"""SentencePiece models encoded by our kernels against sentencepiece: one core, the same ids.

    python benchmarks/bench_tokenizer_spm.py [--mb N] [--passes N] [--kind bpe|unigram]

Models of 24,000 pieces with byte fallback are trained here on a part of all kinds of texts, with
identity and with nmt_nfkc normalisation; every kind is encoded apart. Ours gets UTF-8 and an empty
memory of words each time, and gives an array; sentencepiece gets Python strings and gives lists, as
its users have it. CPU seconds, both in turn, medians. Exit status 1 where ids differ, or where ours
is less than 4 times (BPE) or 1.5 times (Unigram) as fast.
"""

from __future__ import annotations

import os

os.environ["NUMBA_NUM_THREADS"] = "1"

import argparse
import io
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import peak_mib, reached, sized
from benchmarks.tokenizer_texts import documents

TARGETS = {"bpe": 4.0, "unigram": 1.5}
KINDS = ("English", "Thai", "Chinese", "code")
PIECES = sized(24_000, 6000)
LEARNED = sized(1e6, 5e4)  # bytes of each kind that models are trained on


def sentences(texts: dict[str, list[str]]) -> Iterator[str]:
    """Lines of the first part of every kind, in pieces that the trainer takes."""
    for kind in KINDS:
        size = 0
        for text in texts[kind]:
            for line in text.split("\n"):
                for start in range(0, len(line), 1000):
                    yield line[start : start + 1000]
            size += len(text.encode())
            if size >= LEARNED:
                break


def train(kind: str, rule: str, texts: dict[str, list[str]]) -> bytes:
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=sentences(texts),
        model_writer=model,
        model_type=kind,
        vocab_size=PIECES,
        normalization_rule_name=rule,
        byte_fallback=True,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, default=6, help="megabytes of each kind")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--kind", choices=TARGETS, help="one of the two alone")
    options = parser.parse_args()
    import sentencepiece

    from tokenize_kit.encode.spm import SpmEncoder

    texts = {kind: documents(kind, options.mb * 1e6) for kind in KINDS}
    missed = False
    for kind in [options.kind] if options.kind else TARGETS:
        for rule in ("identity", "nmt_nfkc"):
            raw = train(kind, rule, texts)
            library = sentencepiece.SentencePieceProcessor(model_proto=raw)
            encoder = SpmEncoder(raw, library)
            if encoder.reason:
                sys.exit(f"left to the library: {encoder.reason}")
            encoder.encode(np.frombuffer(b"warm up", np.uint8), np.array([0, 7]))
            for name in KINDS:
                label = f"{kind:7} {rule:8} {name:7}"
                missed |= compare(label, raw, library, texts[name], options) < TARGETS[kind]
    print(f"peak memory of this process {peak_mib():.0f} MiB; targets {TARGETS}")
    sys.exit(not reached(not missed))


def compare(label: str, raw: bytes, library, texts: list[str], options) -> float:
    """The ratio of speeds, ours over theirs; ends the run where ids differ."""
    from tokenize_kit.encode.spm import SpmEncoder

    encoded = [text.encode() for text in texts]
    data, offsets = np.frombuffer(b"".join(encoded), np.uint8), np.cumsum([0, *map(len, encoded)])
    ours, theirs = [], []
    for _ in range(options.passes):
        encoder = SpmEncoder(raw, library)
        begin = time.process_time()
        ids, sizes = encoder.encode(data, offsets)
        ours.append(time.process_time() - begin)
        begin = time.process_time()
        expected = library.Encode(texts, num_threads=1)
        theirs.append(time.process_time() - begin)
    if [len(f) for f in expected] != sizes.tolist() or [
        i for f in expected for i in f
    ] != ids.tolist():
        sys.exit(f"{label}: other ids than the library's")
    mb, ratio = len(data) / 1e6, median(theirs) / median(ours)
    print(
        f"{label} {mb:4.1f} MB, {len(data) / len(ids):5.2f} bytes a token: ours "
        f"{mb / median(ours):6.1f} MB/s, sentencepiece {mb / median(theirs):6.1f} MB/s, "
        f"ratio {ratio:.2f}",
        flush=True,
    )
    return ratio


if __name__ == "__main__":
    main()
