"""Byte-level BPE, with the merges that `tokenizers` learns and counts in 64 bits.

The text is not normalised. It is cut by a pattern, each piece is spelled in 256 byte symbols,
and the most frequent adjacent pair is merged until the vocabulary is full. All 256 bytes are in
the vocabulary, so every string of Unicode scalars round-trips exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, AnyStr

import numpy as np
from tokenizers import Tokenizer

from tokenize_kit.learn.backends import Words, learn_sentencepiece, learn_tokenizers
from tokenize_kit.learn.bpe_merges import LONGEST
from tokenize_kit.learn.byte_words import (
    build_tokenizer,
    byte_ids,
    count_words,
    lay_out_words,
    learn_merges,
    merged_names,
)
from tokenize_kit.learn.cutting import run_merges
from tokenize_kit.learn.options import TrainingOptions
from tokenize_kit.learn.superwords import learn_superwords

if TYPE_CHECKING:
    from tokenize_kit.segment.dictionary import Dictionary


def first_merges(
    names: Sequence[AnyStr], merges: Sequence[tuple[int, int]], tokens: int
) -> tuple[list[AnyStr], list[tuple[int, int]]]:
    """The first `tokens` tokens, which learning no more than these would give.

    Training looks at the number of tokens only to stop, so a smaller vocabulary is the beginning of
    a larger one.
    """
    if len(names) <= tokens:
        return list(names), list(merges)
    last = names[tokens - 1]
    for number, (left, right) in enumerate(merges):
        if names[left] + names[right] == last:
            return list(names[:tokens]), list(merges[: number + 1])
    return list(names[:tokens]), []  # no merge


def add_space_runs(
    names: Sequence[AnyStr], merges: Sequence[tuple[int, int]], bases: int, space: AnyStr, most: int
) -> tuple[list[AnyStr], list[tuple[int, int]]]:
    """The tokens and merges with those of runs of 2 to `most` spaces behind the `bases` first."""
    if not most:
        return list(names), list(merges)
    moved = [n if n < bases else n + most - 1 for n in range(len(names))]
    number = {1: names.index(space)} | {k: bases + k - 2 for k in range(2, most + 1)}
    tokens: list[AnyStr] = list(names[:bases])
    tokens += [space * k for k in range(2, most + 1)]
    tokens += names[bases:]
    pairs = [(number[a], number[b]) for a, b in run_merges(most)]
    pairs += [(moved[a], moved[b]) for a, b in merges]
    return tokens, pairs


def train_sizes(
    documents: Iterable[tuple[str, int]],
    options: TrainingOptions,
    scale: int = 1,
    dictionary: Dictionary | None = None,
) -> list[Tokenizer]:
    """A tokenizer of each of the sizes, from one count and one learning.

    documents: texts, each with the number of times that it counts; scale: what that number is of a
    text that counts once. Special tokens take ids 0, 1, ...; then come the 256 bytes, then what
    merges make, then tokens that pad. A small corpus gives fewer tokens than asked. Equal counts
    are broken by the pair's ids, so the result depends on the texts alone.
    """
    first, parts, padding = options.first_tokens, options.cutting.parts, options.padding
    most = max(options.sizes) - options.unlearned
    banned = [token.encode() for token in options.banned]
    longest = options.max_token_length or LONGEST
    least, cut = options.min_frequency * scale, options.counted_parts
    if options.learner == "tokenizers":
        names, merges = learn_tokenizers(documents, cut, most, least, longest, banned)
    elif options.superwords is not None:
        subwords = options.superwords - options.unlearned
        names, merges = learn_superwords(
            documents, cut, parts, subwords, most, banned, least, longest
        )
    else:
        counted = count_words(documents, cut, dictionary)
        if options.learner == "own":
            text = lay_out_words(*counted.words())
            del counted  # as much memory again
            names, merges = learn_merges(text, most, banned, least, longest)
        else:
            names, merges = _by_sentencepiece(counted.words(), most, longest, banned)
    tokenizers = []
    for size in options.sizes:
        fewer = first_merges(names, merges, size - options.unlearned)
        fewer = add_space_runs(*fewer, 256, b" ", options.space_runs)
        last = padding[: -(len(first) + len(fewer[0])) % options.pad_to]
        tokenizers.append(build_tokenizer(*fewer, first, last, parts, options.space_token))
    return tokenizers


def _by_sentencepiece(
    counted: tuple[np.ndarray, np.ndarray, np.ndarray],
    most: int,
    longest: int,
    banned: Sequence[bytes],
) -> tuple[list[bytes], list[tuple[int, int]]]:
    """SentencePiece has no least frequency."""
    letters, ends, counts = counted
    numbers = byte_ids()
    words = Words(numbers[letters], np.diff(ends), counts, 256)
    tokens = [numbers[list(token)].tolist() for token in banned]
    merges = learn_sentencepiece(words, most, longest, tokens)
    return merged_names(np.array(merges, np.int64).reshape(-1, 3))
