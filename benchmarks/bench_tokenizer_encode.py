"""Encoding with a byte-level BPE of 32,000 tokens: ours against `tokenizers`, one core, same ids.

    python benchmarks/bench_tokenizer_encode.py [--mb N] [--passes N]

The tokenizer is trained on a part of all kinds of texts; every kind is encoded apart, in CPU
seconds, best of the passes, ours with an empty memory of words each time. `tokenizers` gets the
texts as Python strings and gives Python lists, as its users do; ours gets UTF-8 and gives an array.
The merging alone is measured without the patterns as well. Exit status 1 where ids differ, or where
ours is less than 8 times as fast.
"""

from __future__ import annotations

import os

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["NUMBA_NUM_THREADS"] = "1"

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import peak_mib, reached, sized
from benchmarks.tokenizer_texts import documents

TARGET = 8.0
VOCAB = sized(32_000, 1000)
KINDS = ("English", "Thai", "Chinese", "code")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, default=6, help="megabytes of each kind")
    parser.add_argument("--passes", type=int, default=3)
    options = parser.parse_args()
    from tests.tokenize_kit.byte_bpe import train_bpe
    from tokenize_kit.encode.byte_bpe import ByteEncoder
    from tokenize_kit.encode.encoder import Encoder
    from tokenize_kit.encode.words import new_cache
    from tokenize_kit.pattern.scan import cut_rows

    texts = {kind: documents(kind, options.mb * 1e6) for kind in KINDS}
    learned = (text for kind in KINDS for text in texts[kind][::2])
    tokenizer = train_bpe(learned, vocab=VOCAB, digits="single", special_tokens=["<|endoftext|>"])
    tokenizer.encode_special_tokens = True
    read = Encoder(tokenizer)
    if read.plan is None:
        sys.exit(f"left to the library: {read.reason}")
    encoder = ByteEncoder(read.plan)
    encoder.encode(np.frombuffer(b"warm up", np.uint8), np.array([0, 7]))
    slowest = float("inf")
    for kind in KINDS:
        raw = [text.encode() for text in texts[kind]]
        data, offsets = np.frombuffer(b"".join(raw), np.uint8), np.cumsum([0, *map(len, raw)])
        ours, theirs, cut = [], [], []
        for _ in range(options.passes):
            encoder._idle = [new_cache()]
            begin = time.process_time()
            ids, sizes = encoder.encode(data, offsets)
            ours.append(time.process_time() - begin)
            begin = time.process_time()
            cut_rows(data, offsets, encoder._tables)
            cut.append(time.process_time() - begin)
        for _ in range(options.passes):
            begin = time.process_time()
            expected = [
                e.ids for e in tokenizer.encode_batch_fast(texts[kind], add_special_tokens=False)
            ]
            theirs.append(time.process_time() - begin)
        if [len(f) for f in expected] != sizes.tolist() or [
            i for f in expected for i in f
        ] != ids.tolist():
            sys.exit(f"{kind}: other ids than the library's")
        mb = len(data) / 1e6
        ratio = min(theirs) / min(ours)
        slowest = min(slowest, ratio)
        print(
            f"{kind:8} {mb:5.1f} MB, {len(data) / len(ids):5.2f} bytes a token: ours "
            f"{mb / min(ours):6.1f} MB/s (cutting alone {mb / min(cut):.0f}), tokenizers "
            f"{mb / min(theirs):5.2f} MB/s, ratio {ratio:.1f}"
        )
    print(f"peak memory of this process {peak_mib():.0f} MiB; target {TARGET:g} times")
    sys.exit(not reached(slowest >= TARGET))


if __name__ == "__main__":
    main()
