"""Byte-level BPE, with the merges that `tokenizers` learns and counts in 64 bits.

The text is not normalised. It is cut by a pattern, each piece is spelled in 256 byte symbols,
and the most frequent adjacent pair is merged until the vocabulary is full. All 256 bytes are in
the vocabulary, so every string of Unicode scalars round-trips exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from tokenize_kit.byte_level import ORDER, spelled
from tokenize_kit.pattern.named import o200k

if TYPE_CHECKING:
    from tokenize_kit.word_counts import WordCounts

_DIGITS = {"single": r"\p{N}", "triples": r"\p{N}{1,3}"}
_BATCH = 4 << 20  # characters counted at once
LEAST = 2  # occurrences of a pair that is merged


def split_pattern(digits: str) -> str:
    """The pre-tokenisation pattern; ``digits`` is "single" (each alone) or "triples" (o200k).

    That of GPT-4o (tiktoken, o200k_base): of the published patterns only this one counts combining
    marks (\\p{M}) as letters; without them Thai and Indic vowel signs leave their consonants.
    """
    return o200k(_DIGITS[digits])


def _batches(texts: Iterator[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """UTF-8 and offsets of some texts at a time."""
    batch: list[bytes] = []
    size = 0
    for text in texts:
        batch.append(text.encode("utf-8"))
        size += len(batch[-1])
        if size >= _BATCH:
            yield _joined(batch)
            batch, size = [], 0
    if batch:
        yield _joined(batch)


def _joined(batch: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    return np.frombuffer(b"".join(batch), np.uint8), np.cumsum([0, *map(len, batch)])


def learn_merges(
    letters: np.ndarray, ends: np.ndarray, counts: np.ndarray, tokens: int, banned: Sequence[bytes]
) -> tuple[list[bytes], list[tuple[int, int]]]:
    """(tokens: the 256 bytes in `tokenizers`' order, then what merges make; merges by place).

    letters, ends, counts: WordCounts.words(); tokens: how many at most; banned: never made.
    """
    from tokenize_kit.bpe_merges import learn

    numbers = np.empty(256, np.int32)
    numbers[ORDER] = np.arange(256)
    joined, bounds = _joined(list(banned))
    found = learn(
        numbers[letters], ends[:-1], np.diff(ends), counts, 256, tokens, LEAST, 1 << 40,
        numbers[joined], bounds,
    )  # fmt: skip
    names = [bytes([byte]) for byte in ORDER]
    for left, right, made in found.tolist():
        if made == len(names):
            names.append(names[left] + names[right])
    return names, [(left, right) for left, right, _ in found.tolist()]


def count_words(texts: Iterator[str], digits: str) -> WordCounts:
    """The pieces of all texts."""
    from tokenize_kit.pattern.automaton import compile_pattern
    from tokenize_kit.word_counts import WordCounts

    counted = WordCounts([compile_pattern(split_pattern(digits))])
    for data, offsets in _batches(texts):
        counted.add(data, offsets)
    return counted


def make_bpe(
    names: Sequence[bytes],
    merges: Sequence[tuple[int, int]],
    digits: str,
    special_tokens: Sequence[str],
) -> Tokenizer:
    """The tokenizer of what `learn_merges` gave."""
    words = [spelled(name) for name in names]
    ids = {token: number for number, token in enumerate([*special_tokens, *words])}
    pairs = [(words[left], words[right]) for left, right in merges]
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split_pattern(digits)), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in special_tokens]
    )
    return tokenizer


def train_bpe(
    texts: Iterator[str], *, vocab: int, digits: str, special_tokens: Sequence[str]
) -> Tokenizer:
    """Train on ``texts``; special tokens take ids 0, 1, ...; then the 256 bytes, then the merges.

    A pair must occur twice to be merged, so a small corpus gives fewer tokens than asked. Equal
    counts are broken by the pair's ids, so the result depends on the texts alone.
    """
    counted = count_words(texts, digits)
    banned = [token.encode() for token in special_tokens]
    names, merges = learn_merges(*counted.words(), vocab - len(special_tokens), banned)
    return make_bpe(names, merges, digits, special_tokens)
