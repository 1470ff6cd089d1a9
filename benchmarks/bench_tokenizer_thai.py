"""Thai by several tokenizers of 32,000 tokens: bytes a token, and whether tokens end with words.

    python benchmarks/bench_tokenizer_thai.py [--mb N]

All learn from the same documents of all kinds; a tenth of the documents, by a hash of their text,
is held out, and Thai news of another source (NTREX-128) is all unseen. Words are those of
PyThaiNLP's newmm, whose list is the dictionary, too. Positions between two Thai letters or marks
count: precision is the share of token borders that are borders of words, recall the share of
borders of words that are borders of tokens. `words` cuts by the dictionary before encoding as well,
which no tokenizer.json says. Needs `pip install pythainlp` (the extra `segment`). Exit status 1
where Unigram with character seeds gives fewer bytes a token than SentencePiece's on Thai held out.

Then Lao, Burmese and Khmer, 4,000 tokens from some 65 KB of news each, a fifth held out: bytes a
token.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.bench_tokenizer_compression import KINDS, VOCAB, by_sentencepiece, held_out
from benchmarks.shared_texts import SHARED, need, reached
from benchmarks.tokenizer_texts import kind_texts

RUN = re.compile(r"[\u0e00-\u0e7f]+")


def split(mb: float) -> tuple[list[str], dict[str, list[str]]]:
    """(documents to learn from, documents held out by kind)."""
    train: list[str] = []
    kept: dict[str, list[str]] = {}
    for kind, pattern in KINDS.items():
        size, files = 0.0, need(pattern)
        kept[kind] = []
        for number, file in enumerate(files, 1):
            for text in kind_texts(str(file.relative_to(SHARED / "corpora"))):
                (kept[kind] if held_out(text) else train).append(text)
                size += len(text.encode())
                if size > mb * 1e6 / len(KINDS) * number / len(files):
                    break
    return train, kept


def news(lang: str) -> list[str]:
    """Sentences of the news, professionally translated."""
    with gzip.open(need("langid/langid-dev.jsonl.gz")[0]) as file:
        rows = map(json.loads, file)
        return [r["text"] for r in rows if r["lang"] == lang and r["source"] == "NTREX-128"]


def borders(text: str) -> tuple[set[int], set[int]]:
    """(positions between two Thai characters, those of them between words)."""
    from pythainlp.tokenize import word_tokenize

    inside, ends = set(), set()
    for run in RUN.finditer(text):
        inside.update(range(run.start() + 1, run.end()))
        at = run.start()
        for word in word_tokenize(run.group(), engine="newmm"):
            at += len(word)
            ends.add(at)
    return inside, ends & inside


def measured(tokenizer: Any, texts: list[str], dictionary: Any = None) -> tuple[float, ...]:
    """Bytes a token; precision, recall and F1 of token borders."""
    size = tokens = both = cut = words = 0
    for text in texts:
        data = np.frombuffer(bytearray(text.encode()), np.uint8)
        offsets = np.array([0, len(data)])
        offsets = dictionary.cut(data, offsets) if dictionary else offsets
        ids, sizes = tokenizer.encode(data, offsets)
        _, stops = tokenizer.spans(data, offsets, ids, sizes)
        heads = np.append(data & 0xC0 != 0x80, True)
        whole = stops[heads[stops]]  # the others end within a character
        inside, ends = borders(text)
        token_ends = set((np.cumsum(heads)[whole] - 1).tolist()) & inside
        size, tokens = size + len(data), tokens + len(ids)
        both, cut, words = both + len(token_ends & ends), cut + len(token_ends), words + len(ends)
    precision, recall = both / cut, both / words
    return size / tokens, precision, recall, 2 * precision * recall / (precision + recall)


def bytes_a_token(tokenizer: Any, texts: list[str]) -> float:
    raw = [text.encode() for text in texts]
    data = np.frombuffer(b"".join(raw), np.uint8)
    return len(data) / len(tokenizer.encode(data, np.cumsum([0, *map(len, raw)]))[0])


def small_languages(folder: Path) -> None:
    """Prints what little text of a language gives."""
    from tokenize_kit.judge.candidate import open_candidate
    from tokenize_kit.learn.training import train_tokenizer

    settings: dict[str, dict[str, Any]] = {
        "bytes": {},
        "unigram": {"model": "unigram"},
        "unigram, character seeds": {"model": "unigram", "character_seeds": True},
    }
    for lang in ("lo", "my", "km"):
        sentences = [text.replace("\u200b", "") for text in news(lang)]  # marks of words in Khmer
        learned = [text for k, text in enumerate(sentences) if k % 5]
        for who, chosen in settings.items():
            train_tokenizer(iter(learned), folder / lang / who, vocab=4000, **chosen)
            rate = bytes_a_token(open_candidate(folder / lang / who), sentences[::5])
            print(f"{lang} {who:33} news      {rate:5.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, default=24, help="megabytes of text, all kinds")
    options = parser.parse_args()
    from pythainlp.corpus.common import thai_words

    from tokenize_kit.judge.candidate import open_candidate
    from tokenize_kit.learn.training import train_tokenizer
    from tokenize_kit.segment import read_dictionary

    train, kept = split(options.mb)
    every = [text for texts in kept.values() for text in texts]
    thai = {"held out": kept["Thai"], "news": news("th")}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = folder / "words.txt"
        words.write_text("\n".join(sorted(thai_words())), encoding="utf-8")
        dictionary = read_dictionary(words)
        listed = {"dictionary": str(words)}
        settings: dict[str, dict[str, Any]] = {
            "bytes": {},
            "bytes, dictionary": listed,
            "unigram, dictionary": {"model": "unigram"} | listed,
            "unigram, character seeds": {"model": "unigram", "character_seeds": True},
        }
        for who, chosen in settings.items():
            train_tokenizer(iter(train), folder / who, vocab=VOCAB, **chosen)
        by_sentencepiece(train, folder)
        (folder / "SentencePiece bpe").mkdir()
        (folder / "spm.model").rename(folder / "SentencePiece bpe" / "tokenizer.model")
        rates = {}
        for who in (*settings, "SentencePiece bpe"):
            tokenizer = open_candidate(folder / who)
            rates[who, "all"] = bytes_a_token(tokenizer, every)
            for where, texts in thai.items():
                for cut in (None, dictionary) if "dictionary" in who else (None,):
                    rate, *borders_of = measured(tokenizer, texts, cut)
                    if cut is None:
                        rates[who, where] = rate
                    shown = "{:.3f} {:.3f} {:.3f}".format(*borders_of)
                    print(f"{who + (', words' if cut else ''):36} {where:9} {rate:5.2f}  {shown}")
            print(f"{who:36} all kinds {rates[who, 'all']:5.2f}", flush=True)
        small_languages(folder)
    seeded = rates["unigram, character seeds", "held out"]
    sys.exit(not reached(seeded >= rates["SentencePiece bpe", "held out"]))


if __name__ == "__main__":
    main()
