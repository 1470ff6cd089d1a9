"""Bytes a token on held-out text: our default BPE, that of `tokenizers`, and SentencePiece's.

    python benchmarks/bench_tokenizer_compression.py [--mb N]

All learn the same vocabulary size from the same documents, a share of every kind, with every digit
a token of its own, all bytes in the vocabulary and nothing normalised; otherwise each as it comes:
ours with GPT-4o's pattern, `tokenizers` with ByteLevel's (GPT-2's), SentencePiece (bpe) line by
line with its own cutting, white space kept. A tenth of the documents, by a hash of their text, is
held out. Then ours against rustbpe on the seconds of training alone, with one pattern, each in a
process of its own and on one core. Last what `--space-runs 24` does to code, of 16,000 tokens
learned from novels or from code. Exit status 1 where ours gives fewer bytes a token than another on
all held-out text, or takes longer than rustbpe.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import ROOT, SHARED, need, reached, sized, without
from benchmarks.tokenizer_texts import PIECE, kind_texts

VOCAB = sized(32_000, 6000)
KINDS = {
    "English": "longtext/en-*.jsonl.zst",
    "German, French": "longtext/[df][er]-novels.jsonl.zst",
    "Russian": "longtext/ru-*.jsonl.zst",
    "Thai": "longtext/th-*.jsonl.zst",
    "Indic": "longtext/indic-*.jsonl.zst",
    "Chinese": "longtext/zh-*.jsonl.zst",
    "Japanese": "longtext/ja-*.jsonl.zst",
    "code": "code/*.jsonl.gz",
}
TIMED = """
import json, sys, time
texts = [json.loads(line) for line in open(sys.argv[2], encoding="utf-8")]
pattern = open(sys.argv[3], encoding="utf-8").read()
if sys.argv[1] == "ours":
    from tests.tokenize_kit.byte_bpe import train_bpe
    def train(some):
        train_bpe(iter(some), vocab=32_000, digits="single", special_tokens=["<|endoftext|>"])
else:
    import rustbpe
    def train(some):
        rustbpe.Tokenizer().train_from_iterator(iter(some), 32_000, pattern=pattern)
train(texts[:2])  # what compiles or loads
begin = time.process_time()
train(texts)
print(time.process_time() - begin)
"""


def held_out(text: str) -> bool:
    return hashlib.blake2b(text.encode(), digest_size=2).digest()[0] < 26


def ours(texts: list[str], vocab: int = VOCAB, **more: Any) -> Any:
    from tokenize_kit.learn.bpe import train_byte_bpe
    from tokenize_kit.learn.options import TrainingOptions

    special = ("<|endoftext|>",)
    options = TrainingOptions(sizes=(vocab,), digits="single", special_tokens=special, **more)
    return train_byte_bpe(((text, 1) for text in texts), options)[0].tokenizer


def by_tokenizers(texts: list[str]) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer=trainer)
    return tokenizer


def by_sentencepiece(texts: list[str], folder: Path) -> Any:
    import sentencepiece

    lines = (line for text in texts for line in text.split("\n") if line)
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=lines,
        model_prefix=str(folder / "spm"),
        model_type="bpe",
        vocab_size=VOCAB,
        byte_fallback=True,
        split_digits=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=False,
        allow_whitespace_only_pieces=True,
        max_sentence_length=1 << 20,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / "spm.model"))


def tokens(encoder: Any, texts: list[str]) -> int:
    if hasattr(encoder, "encode_batch_fast"):
        encodings = encoder.encode_batch_fast(texts, add_special_tokens=False)
        return sum(len(encoding.ids) for encoding in encodings)
    return sum(len(ids) for ids in encoder.encode(texts))


def timed(folder: Path, texts: list[str]) -> float:
    """Seconds of training by rustbpe over ours; prints both."""
    from tests.tokenize_kit.byte_bpe import split_pattern

    peer = ROOT / ".bench" / "rustbpe" / "bin" / "python"
    without("rustbpe", peer)
    build = ["sh", str(ROOT / "benchmarks" / "peer_env.sh"), "rustbpe"]
    subprocess.run(build, check=True, stdout=sys.stderr)
    source, pattern = folder / "texts", folder / "pattern"
    source.write_text("".join(json.dumps(text) + "\n" for text in texts), encoding="utf-8")
    pattern.write_text(split_pattern("single"), encoding="utf-8")
    threads = dict.fromkeys(("RAYON_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    environment = {**os.environ, **threads, "PYTHONPATH": str(ROOT)}
    best = {}
    for name, python in (("ours", sys.executable), ("rustbpe", str(peer))):
        command = [python, "-c", TIMED, name, str(source), str(pattern)]
        best[name] = min(
            float(subprocess.check_output(command, env=environment).split()[-1]) for _ in range(3)
        )
    ratio = best["rustbpe"] / best["ours"]
    print(
        f"training alone, CPU seconds: ours {best['ours']:.2f}, rustbpe {best['rustbpe']:.2f},"
        f" ratio {ratio:.2f}"
    )
    return ratio


def space_runs(mb: float) -> None:
    """Prints bytes a token of code that is held out, without and with runs of spaces as tokens."""
    novels, _ = split_texts(mb, {"novels": "longtext/en-novels.jsonl.zst"})
    code, kept = split_texts(mb, {"code": KINDS["code"]})
    size = sum(len(text.encode()) for text in kept["code"])
    for pattern in ("o200k", "gpt2"):
        for name, texts in (("novels", novels), ("code", code)):
            without, among = (
                size / tokens(ours(texts, 16_000, pattern=pattern, space_runs=n), kept["code"])
                for n in (0, 24)
            )
            print(f"code, {pattern}, learned from {name}: {without:.2f}, with runs {among:.2f}")


def split_texts(mb: float, kinds: dict[str, str] = KINDS) -> tuple[list[str], dict[str, list[str]]]:
    """(texts to learn from, those held out by kind), so many megabytes together."""
    train: list[str] = []
    kept: dict[str, list[str]] = {}
    for kind, pattern in kinds.items():
        size = 0.0
        kept[kind] = []
        files = need(pattern)
        for file in files:
            for whole in kind_texts(str(file.relative_to(SHARED / "corpora"))):
                for text in (whole[k : k + PIECE] for k in range(0, len(whole), PIECE)):
                    (kept[kind] if held_out(text) else train).append(text)
                    size += len(text.encode())
                if size > mb * 1e6 / len(kinds) * (files.index(file) + 1) / len(files):
                    break
    return train, kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, default=24, help="megabytes of text, all kinds")
    options = parser.parse_args()
    train, kept = split_texts(options.mb)
    every = [text for texts in kept.values() for text in texts]
    print(
        f"learned from {sum(len(t.encode()) for t in train) / 1e6:.1f} MB, held out"
        f" {sum(len(t.encode()) for t in every) / 1e6:.1f} MB; {VOCAB} tokens"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        encoders = {
            "ours": ours(train),
            "tokenizers": by_tokenizers(train),
            "SentencePiece": by_sentencepiece(train, folder),
        }
        print(f"{'bytes a token':16}" + "".join(f"{who:>15}" for who in encoders))
        for kind, texts in [*kept.items(), ("all", every)]:
            size = sum(len(text.encode()) for text in texts)
            compression = {who: size / tokens(encoder, texts) for who, encoder in encoders.items()}
            print(
                f"{kind:16}" + "".join(f"{value:15.3f}" for value in compression.values()),
                flush=True,
            )
        ratio = timed(folder, train)
    space_runs(options.mb / len(KINDS))
    sys.exit(not reached(compression["ours"] >= max(compression.values()) and ratio >= 1))


if __name__ == "__main__":
    main()
