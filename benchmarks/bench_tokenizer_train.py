"""Training a byte-level BPE of 32,000 tokens: ours against `tokenizers`, the same merges.

    python benchmarks/bench_tokenizer_train.py [--mb N] [--of English|all]

Each in a process of its own that makes the same documents first; seconds are of the training, peak
memory is what the process grew by. `tokenizers` may use all cores, ours uses one. Exit status 1
where the tokenizers differ, or where ours takes more than a quarter of the time or half the memory.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import last_json, peak_mib, reached, sized
from benchmarks.tokenizer_texts import documents

TIME, MEMORY = 0.25, 0.5
VOCAB = sized(32_000, 1000)


def by_library(texts: list[str], vocab: int = VOCAB) -> str:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    from tests.tokenize_kit.byte_bpe import split_pattern

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split_pattern("single")), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        min_frequency=2,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer=trainer)
    return str(tokenizer.to_str())


def by_us(texts: list[str]) -> str:
    from tests.tokenize_kit.byte_bpe import train_bpe

    return train_bpe(
        iter(texts), vocab=VOCAB, digits="single", special_tokens=["<|endoftext|>"]
    ).to_str()


def one(who: str, kind: str, mb: float) -> None:
    """Trains and prints seconds, MiB and a hash of the tokenizer."""
    train = by_us if who == "ours" else by_library
    train(["warm up, warm up"])
    texts = documents(kind, mb * 1e6)
    before = peak_mib()
    begin = time.perf_counter()
    trained = train(texts)
    seconds = time.perf_counter() - begin
    size = sum(len(text.encode()) for text in texts)
    digest = hashlib.sha256(trained.encode()).hexdigest()
    print(json.dumps([seconds, peak_mib() - before, peak_mib(), size / 1e6, digest]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, default=50)
    parser.add_argument("--of", choices=("English", "all"))
    parser.add_argument("--one", choices=("ours", "tokenizers"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return one(options.one, options.of, options.mb)
    good = True
    for kind in [options.of] if options.of else ["English", "all"]:
        result = {}
        for who in ("ours", "tokenizers"):
            command = [
                sys.executable,
                __file__,
                "--one",
                who,
                "--of",
                kind,
                "--mb",
                str(options.mb),
            ]
            result[who] = last_json(command)
            seconds, grown, peak, mb, _ = result[who]
            print(
                f"{kind}, {mb:.1f} MB, {who}: {seconds:.2f} s, {mb / seconds:.1f} MB/s, "
                f"{grown:.0f} MiB more than before, {peak:.0f} MiB in all"
            )
        ours, theirs = result["ours"], result["tokenizers"]
        print(f"  time {ours[0] / theirs[0]:.2f}, memory {ours[1] / theirs[1]:.2f} of theirs")
        same = ours[4] == theirs[4]
        print("  the same tokenizer" if same else "  ANOTHER TOKENIZER")
        good = good and same and ours[0] <= TIME * theirs[0] and ours[1] <= MEMORY * theirs[1]
    sys.exit(not reached(good))


if __name__ == "__main__":
    main()
