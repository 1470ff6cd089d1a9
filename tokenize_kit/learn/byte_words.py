"""Byte-level BPE from the words of texts: counted, merged, and made a tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from tokenize_kit.encode.parts import pack
from tokenize_kit.formats.tokenizer_json import ORDER, add_tokens, to_letters
from tokenize_kit.learn.bpe_merges import LEAST, LONGEST, SHARE, STEP, learn
from tokenize_kit.learn.words import Text, WordCounts, lay_out
from tokenize_kit.pattern.automaton import compile_pattern

if TYPE_CHECKING:
    from tokenize_kit.segment.dictionary import Dictionary

_BATCH = 4 << 20  # bytes counted at once


def count_words(
    documents: Iterable[tuple[str, int]],
    parts: Sequence[str],
    dictionary: Dictionary | None = None,
) -> WordCounts:
    """Counts of the pieces of texts, each with its weight; parts: patterns, one after the other;
    dictionary: cuts texts into words before that."""
    return count_cuttings(documents, [parts], dictionary)[0]


def count_cuttings(
    documents: Iterable[tuple[str, int]],
    cuttings: Sequence[Sequence[str]],
    dictionary: Dictionary | None = None,
) -> list[WordCounts]:
    """`count_words` of several cuttings, from one reading."""
    counts = [WordCounts([compile_pattern(part) for part in parts]) for parts in cuttings]
    for data, offsets, weight in weighted_batches(documents):
        bounds = dictionary.cut(data, offsets) if dictionary else offsets
        for counted in counts:
            counted.add(data, bounds, weight)
    return counts


def weighted_batches(
    documents: Iterable[tuple[str, int]],
) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """(data: uint8[], offsets: int64[texts + 1], weight) of texts of one weight at a time."""
    waiting: dict[int, list[bytes]] = {}
    size = 0
    for text, weight in documents:
        raw = text.encode("utf-8")
        waiting.setdefault(weight, []).append(raw)
        size += len(raw)
        if size >= _BATCH:
            for of_weight, batch in waiting.items():
                yield *pack(batch), of_weight
            waiting.clear()
            size = 0
    for of_weight, batch in waiting.items():
        yield *pack(batch), of_weight


def lay_out_words(letters: np.ndarray, ends: np.ndarray, counts: np.ndarray) -> Text:
    """The text of `learn_merges`, laid out from WordCounts.words()."""
    return lay_out(letters, ends, counts, byte_ids())


def byte_ids() -> np.ndarray:
    """int32[256]: the ids of bytes."""
    numbers = np.empty(256, np.int32)
    numbers[ORDER] = np.arange(256)
    return numbers


def learn_merges(
    text: Text,
    tokens: int,
    banned: Sequence[bytes],
    least: int = LEAST,
    longest: int = LONGEST,
    share: float = SHARE,
    step: int = STEP,
) -> tuple[list[bytes], list[tuple[int, int]]]:
    """(tokens: the 256 bytes in `tokenizers`' order, then what merges make; merges by position).

    text: of lay_out_words, which is merged in; tokens: how many at most; banned: never made; least:
    the count under which no pair is merged; longest: bytes of a token at most; share, step: of the
    threshold below which pairs are forgotten (bpe_merges.py), on which no merge depends.
    """
    merges = learn(text, 256, tokens, least, longest, *spelled(banned), share, step)
    return merged_names(merges)


def spelled(tokens: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """(ids of the tokens' bytes, one token after the other: int32[], ends: int64[tokens + 1])."""
    joined, bounds = pack(tokens)
    return byte_ids()[joined], bounds


def merged_names(merges: np.ndarray) -> tuple[list[bytes], list[tuple[int, int]]]:
    """Learned merges as `learn_merges` returns them."""
    names = [bytes([byte]) for byte in ORDER]
    for left, right, merged in merges.tolist():
        if merged == len(names):
            names.append(names[left] + names[right])
    return names, [(left, right) for left, right in merges[:, :2].tolist()]


def build_tokenizer(
    names: Sequence[bytes],
    merges: Sequence[tuple[int, int]],
    first: Sequence[str],
    last: Sequence[str],
    parts: Sequence[str],
    space: str | None = None,
) -> Tokenizer:
    """The tokenizer of learned tokens; special ones take the ids before (first) and behind (last)
    them. parts: the patterns, one after the other; space: the one of `first` that spaces
    become."""
    words = [to_letters(name) for name in names]
    ids = {token: number for number, token in enumerate([*first, *words, *last])}
    pairs = [(words[left], words[right]) for left, right in merges]
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=pairs))
    splits = [pre_tokenizers.Split(Regex(part), behavior="isolated") for part in parts]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    add_tokens(tokenizer, [token for token in [*first, *last] if token != space], space)
    return tokenizer
