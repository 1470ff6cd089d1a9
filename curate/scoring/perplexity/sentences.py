"""Texts as sentences of word ids: what is normalised, where lines end, what a word is.

Variant `plain`: each line (as `str.splitlines()` cuts) that holds a word is a sentence. `ccnet`:
the whole document in CCNet's normal form is one (normal.py). Units: `whitespace` (`str.split()`),
`words` (the word table of text/words.py, as written) or `pieces` of a SentencePiece model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from curate.errors import UsageError
from curate.scoring.perplexity.normal import ccnet_text
from curate.scoring.perplexity.vocabulary import SPECIAL
from curate.text.buffers import text_buffers
from curate.text.tables import segment

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
    found = segment(data, offsets)
    if unit == "words":
        from curate.text.words import word_table

        words = word_table(data, found.lines.raw)
        start, end, lines = words.start, words.end, words.rows
    else:
        start, end, lines = found.words.start, found.words.end, found.words.lines
    ids = number(data, start, end)
    filled = np.diff(lines) > 0
    before = np.concatenate([[0], np.cumsum(filled)])
    return Sentences(ids, lines[1:][filled], before[found.lines.rows])


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
    found = ids[flat]
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
        found[at] = number(*_joined(letters))
    return Sentences(found, ends[filled], before[rows])


def _joined(words: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(data, start, end) of words one behind the other."""
    ends = np.cumsum([len(w) for w in words], dtype=np.int64)
    start = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    return np.frombuffer(bytearray().join(words), np.uint8), start[: len(words)], ends


def load_pieces(model: bytes, what: str) -> Any:
    """A SentencePiece model from its file's bytes; UsageError where it is none."""
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
        size = processor.GetPieceSize()
    except (RuntimeError, OSError, ValueError):
        size = 0
    if not size:
        raise UsageError(f"{what} is no SentencePiece model")
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
