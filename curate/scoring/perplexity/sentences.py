"""Texts as sentences of word ids: normal form, ends of sentences, words and pieces.

Variant `plain`: each line (as `str.splitlines()` cuts) that holds a word is a sentence. `ccnet`:
the whole document in CCNet's normal form is one (`ccnet_text`). Units: `whitespace`
(`str.split()`), `words` (the word table of text/words.py, as written) or `pieces` of a
SentencePiece model, which is trained with CCNet's settings (the Makefile of cc_net, Wenzek et al.
2020: unigram, coverage 0.9995, texts normalised before). It draws at most a million sentences, by a
fixed seed.
"""

from __future__ import annotations

import io
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from curate.scoring.perplexity.vocabulary import SPECIAL
from curate.text.buffers import text_buffers
from curate.text.folding import CCNET_CONTROLS, CCNET_PUNCTUATION
from curate.text.tables import segment
from llmcurate.base.errors import LlmcurateError, RunFailed, UsageError

# What stands for each of CCNET_PUNCTUATION; that of `１` is a quotation mark there, but digits are
# 0 before it is looked at.
_REPLACED = (
    ",", ".", ",", '"', '"', '"', '"', '"', '"', '"', '"', '"', '"', "'", ":", ":", "?", "!",
    "(", ")", ";", "-", " - ", ". ", "~", "'", "...", "-", "<", ">", "[", "]", "%", "-",
)  # fmt: skip
_DIGIT = re.compile(r"\d")


@lru_cache(maxsize=1)
def _characters() -> dict[int, str]:
    table = {ord(c): r for c, r in zip(CCNET_PUNCTUATION, _REPLACED, strict=True)}
    return table | dict.fromkeys(CCNET_CONTROLS, "")


def ccnet_text(text: str) -> str:
    """Stripped, in lower case, without accents (NFD without Mn), each digit 0, 34 punctuation
    characters as ASCII, without control characters."""
    text = text.strip().lower()
    if not text.isascii():
        split = unicodedata.normalize("NFD", text)
        text = "".join(c for c in split if unicodedata.category(c) != "Mn")
    return _DIGIT.sub("0", text).translate(_characters())


Variant = Literal["plain", "ccnet"]
Unit = Literal["whitespace", "words", "pieces"]
Numbers = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Sentences:
    """ids: uint32[words]; ends: int64[sentences], where each ends; rows: int64[rows + 1], the first
    sentence of each row."""

    ids: np.ndarray
    ends: np.ndarray
    rows: np.ndarray


def of_words(
    texts: pa.LargeStringArray, variant: Variant, unit: Unit, number: Numbers
) -> Sentences:
    """Sentences of words; number: (data, start, end) -> ids of words."""
    if variant == "ccnet":
        texts = pa.array([ccnet_text(t or "") for t in texts.to_pylist()], pa.large_string())
    data, offsets = text_buffers(texts)
    tables = segment(data, offsets)
    if unit == "words":
        from curate.text.words import word_table

        words = word_table(data, tables.lines.raw)
        start, end, lines = words.start, words.end, words.rows
    else:
        start, end, lines = tables.words.start, tables.words.end, tables.words.lines
    ids = number(data, start, end)
    filled = np.diff(lines) > 0
    before = np.concatenate([[0], np.cumsum(filled)])
    return Sentences(ids, lines[1:][filled], before[tables.lines.rows])


def of_pieces(
    texts: pa.LargeStringArray, variant: Variant, processor: Any, ids: np.ndarray, number: Numbers
) -> Sentences:
    """Sentences of pieces; ids: uint32[pieces], the word id of each piece of the model.

    What SentencePiece has no piece for is a word by its letters (number), as where its output goes
    to a language model as text: else another script would be a row of one and the same word.
    """
    rows = np.zeros(len(texts) + 1, np.int64)
    lines: list[str] = []
    for r, text in enumerate(texts.to_pylist()):
        lines += [ccnet_text(text or "")] if variant == "ccnet" else (text or "").splitlines()
        rows[r + 1] = len(lines)
    pieces = processor.encode(lines, out_type=int, num_threads=1) if lines else []
    sizes = np.array([len(p) for p in pieces], np.int64)
    filled = sizes > 0
    flat = np.fromiter((i for p in pieces for i in p), np.int64, int(sizes.sum()))
    before, ends = np.concatenate([[0], np.cumsum(filled)]), np.cumsum(sizes)
    word_ids = ids[flat]
    at = np.flatnonzero(flat == processor.unk_id())
    if len(at):
        odd = np.unique(np.searchsorted(ends, at, "right")).tolist()
        written = processor.encode([lines[k] for k in odd], out_type=str, num_threads=1)
        unknown = processor.unk_id()
        letters = [
            word.encode("utf-8")
            for k, words in zip(odd, written, strict=True)
            for word, piece in zip(words, pieces[k], strict=True)
            if piece == unknown
        ]
        word_ids[at] = number(*_joined(letters))
    return Sentences(word_ids, ends[filled], before[rows])


def _joined(words: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(data, start, end) of words one behind the other."""
    ends = np.cumsum([len(w) for w in words], dtype=np.int64)
    start = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    return np.frombuffer(bytearray().join(words), np.uint8), start[: len(words)], ends


def load_pieces(model: bytes, source: str) -> Any:
    """A SentencePiece model from its file's bytes; UsageError where it is none."""
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
        size = processor.GetPieceSize()
        processor.IdToPiece(list(range(size)))
    except (RuntimeError, OSError, ValueError):  # the last of a piece that is not UTF-8
        size = 0
    if not size:
        raise UsageError(f"{source} is no SentencePiece model")
    return processor


def piece_words(processor: Any) -> tuple[list[bytes], np.ndarray]:
    """The pieces as words, by piece id; and bool[pieces], which of them texts are cut into."""
    names = processor.IdToPiece(list(range(processor.GetPieceSize())))
    real = [
        not (processor.IsControl(i) or processor.IsUnknown(i) or n.encode() in SPECIAL)
        for i, n in enumerate(names)
    ]
    return [n.encode("utf-8") for n in names], np.array(real, np.bool_)


def piece_ids(number: Numbers, processor: Any) -> np.ndarray:
    """uint32[pieces]: the word id of each piece by number, 0 of those that are no words."""
    names, real = piece_words(processor)
    ids = np.zeros(len(names), np.uint32)
    ids[real] = number(*_joined([n for n, r in zip(names, real.tolist(), strict=True) if r]))
    return ids


_COVERAGE = 0.9995
_SENTENCES = 1_000_000
_LONGEST = 16_384  # bytes of a sentence; what is longer is passed over, so it is cut before
_THREADS = 4  # fixed, since sums of their floats depend on their number


def _no_pieces(vocab: int, why: str) -> LlmcurateError:
    """What SentencePiece says of a vocabulary that does not fit the text, for a user."""
    if most := re.search(r"size too high.* value <= (\d+)", why):
        return UsageError(
            f"vocab {vocab}: the text gives {most[1]} pieces at most; ask for fewer, or give more"
            " text"
        )
    if least := re.search(r"smaller than required_chars\. \d+ vs (\d+)", why):
        return UsageError(
            f"vocab {vocab}: the characters of the text need {least[1]} pieces or more"
        )
    return RunFailed(f"no {vocab} pieces can be trained on this text: {why[-160:]}")


def train_pieces(
    texts: Callable[[], Iterable[pa.LargeStringArray]], variant: Variant, vocab: int
) -> bytes:
    """A SentencePiece model's file. RunFailed where the text is too little for so many pieces."""
    import sentencepiece

    def lines() -> Iterator[str]:
        for batch in texts():
            for value in batch.to_pylist():
                text = value or ""
                parts = [ccnet_text(text)] if variant == "ccnet" else text.splitlines()
                for line in parts:
                    for a in range(0, len(line), _LONGEST // 4):
                        if part := line[a : a + _LONGEST // 4].strip().replace("\0", " "):
                            yield part

    out = io.BytesIO()
    sentencepiece.set_random_generator_seed(0)
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=lines(),
            model_writer=out,
            vocab_size=vocab,
            model_type="unigram",
            character_coverage=_COVERAGE,
            input_sentence_size=_SENTENCES,
            shuffle_input_sentence=True,
            max_sentence_length=_LONGEST,
            num_threads=_THREADS,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        raise _no_pieces(vocab, " ".join(str(error).split())) from None
    return out.getvalue()
