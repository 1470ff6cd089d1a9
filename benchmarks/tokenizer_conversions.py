"""Tokenizers before and after `llmcurate tokenizer convert`, each run by the library of its format.

    python benchmarks/tokenizer_conversions.py [--mb N]

Tokenizers are trained on a part of real texts in many languages and code, converted, and both files
encode all of it: tokenizer.json by `tokenizers`, .model by `sentencepiece`, ranks by `tiktoken`,
GGUF by llama.cpp (benchmarks/peer_env.sh llama_cpp; without it GGUF is skipped, and said). A text
disagrees where its ids differ; where both ways through it are equally good by Unigram's scores but
for rounding it is counted as a tie. Exit status 1 where a text disagrees otherwise.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.shared_texts import ROOT, need, sized
from benchmarks.tokenizer_texts import kind_texts

LLAMA_CPP = ROOT / ".bench" / "llama_cpp" / "bin" / "python"
PIECE = 8_000  # characters of a text at most
VOCAB = sized(8_000, 6_000)
Ids = list[list[int]]
# name, how it is trained (of TrainingOptions, or of SentencePiece's trainer), what it becomes
BYTE_LEVEL: tuple[tuple[str, dict[str, Any], tuple[str, ...]], ...] = (
    ("gpt2", {"pattern": "gpt2"}, ("tiktoken", "gguf")),
    ("llama3", {"pattern": "llama3"}, ("tiktoken", "gguf")),
    ("qwen2", {"pattern": "qwen2"}, ("tiktoken", "gguf")),
    ("o200k", {"pattern": "o200k"}, ("tiktoken",)),
    ("deepseek", {"pattern": "deepseek"}, ("gguf",)),
)
_EXACT = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
SENTENCEPIECE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("bpe, bytes", {"model_type": "bpe", "byte_fallback": True, **_EXACT}),
    ("unigram, nmt_nfkc", {"model_type": "unigram"}),
    ("unigram, bytes", {"model_type": "unigram", "byte_fallback": True, **_EXACT}),
)


def read_texts(megabytes: float) -> list[str]:
    """So much of every corpus together, as much of each, in pieces."""
    files = [*need("longtext/*.jsonl.zst"), *need("code/*.jsonl.gz")]
    passages = []
    for file in files:
        room = megabytes * 1e6 / len(files)
        for text in kind_texts(f"{file.parent.name}/{file.name}"):
            for first in range(0, len(text), PIECE):
                if room > 0:
                    passages.append(text[first : first + PIECE])
                    room -= len(passages[-1].encode())
    return passages


def by_tokenizers(file: Path, texts: list[str]) -> Ids:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.encode_special_tokens = True
    return [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


def by_sentencepiece(file: Path, texts: list[str]) -> Ids:
    import sentencepiece

    ids: Ids = sentencepiece.SentencePieceProcessor(model_file=str(file)).encode(texts)
    return ids


def by_tiktoken(file: Path, texts: list[str]) -> Ids:
    import tiktoken

    lines = (line.split() for line in file.read_bytes().splitlines())
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    card = json.loads((file.parent / "tokenizer_card.json").read_text())
    encoding = tiktoken.Encoding(
        "own", pat_str=card["pat_str"], mergeable_ranks=ranks, special_tokens=card["special_tokens"]
    )
    return [encoding.encode_ordinary(text) for text in texts]


def by_llama_cpp(file: Path, texts: list[str]) -> Ids:
    script = ROOT / "benchmarks" / "peers" / "llama_cpp_ids.py"
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    command = [str(LLAMA_CPP), str(script), str(file)]
    done = subprocess.run(command, input=lines, text=True, capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"llama.cpp: {done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


LIBRARIES: dict[str, tuple[str, str, Callable[[Path, list[str]], Ids]]] = {
    "tokenizer.json": ("tokenizer.json", "tokenizers", by_tokenizers),
    "sentencepiece": ("tokenizer.model", "sentencepiece", by_sentencepiece),
    "tiktoken": ("tokenizer.tiktoken", "tiktoken", by_tiktoken),
    "gguf": ("tokenizer.gguf", "llama.cpp", by_llama_cpp),
}


def trained_model(texts: list[str], options: dict[str, Any]) -> bytes:
    """A model file that SentencePiece trains on the lines of texts."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(line for text in texts for line in text.splitlines() if line.strip()),
        model_writer=model, vocab_size=VOCAB, hard_vocab_limit=False, character_coverage=0.9995,
        num_threads=1, minloglevel=2, **options,
    )  # fmt: skip
    return model.getvalue()


class Conversions:
    """Converts, encodes with both files, prints a line; good: whether nothing disagreed."""

    def __init__(self, texts: list[str], folder: Path) -> None:
        self.texts, self.folder, self.good = texts, folder, True

    def run(self, name: str, file: Path, to: str, before: str) -> Path | None:
        """file: of the format `before`; the converted file, None where it is skipped."""
        from tokenize_kit.change.convert import convert
        from tokenize_kit.change.original import open_source
        from tokenize_kit.change.verify import unigram_scores

        head = f"{name}: {before} to {to}"
        out = self.folder / f"converted-{len(list(self.folder.iterdir()))}"
        if to == "gguf" and not LLAMA_CPP.exists():
            print(f"{head}: skipped, no llama.cpp: sh benchmarks/peer_env.sh llama_cpp")
            return None
        convert(file, out, to, pattern=name if before == "tiktoken" else None)
        target, library, encode = LIBRARIES[to]
        expected = LIBRARIES[before][2](file, self.texts)
        other = encode(out / target, self.texts)
        scores = unigram_scores(open_source(file, name if before == "tiktoken" else None).form)
        differing = [(a, b) for a, b in zip(expected, other, strict=True) if a != b]
        ties = sum(scores is not None and is_tie(scores, a, b) for a, b in differing)
        print(
            f"{head} ({LIBRARIES[before][1]}, {library}): {len(self.texts):,} texts,"
            f" {sum(map(len, expected)):,} ids, {len(differing) - ties} disagree, {ties} ties",
            flush=True,
        )
        self.good &= len(differing) == ties
        return out / target


def is_tie(scores: np.ndarray, first: list[int], second: list[int]) -> bool:
    """Whether the sums differ by no more than sums in float32 of so many pieces may."""
    a, b = float(scores[first].sum()), float(scores[second].sum())
    return abs(a - b) <= 2.0**-20 * max(abs(a), 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, default=12)
    options = parser.parse_args()
    from tokenize_kit.learn.training import train_tokenizer

    texts = read_texts(options.mb)
    learned = texts[::4]
    print(f"{len(texts):,} texts, {sum(len(t.encode()) for t in texts) / 1e6:.1f} MB")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        done = Conversions(texts, folder)
        for pattern, settings, formats in BYTE_LEVEL:
            train_tokenizer(iter(learned), folder / pattern, vocab=VOCAB, **settings)
            for to in formats:
                file = done.run(pattern, folder / pattern / "tokenizer.json", to, "tokenizer.json")
                if to == "tiktoken" and file is not None:
                    done.run(pattern, file, "tokenizer.json", "tiktoken")
        for title, model_options in SENTENCEPIECE:
            model = folder / f"{title}.model"
            model.write_bytes(trained_model(learned, model_options))
            file = done.run(title, model, "tokenizer.json", "sentencepiece")
            assert file is not None
            done.run(title, file, "sentencepiece", "tokenizer.json")
            if title != SENTENCEPIECE[2][0]:  # llama.cpp's Unigram does not fall back to bytes
                done.run(title, model, "gguf", "sentencepiece")
    sys.exit(not done.good)


if __name__ == "__main__":
    main()
