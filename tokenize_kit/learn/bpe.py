"""Byte-level BPE, with the merges that `tokenizers` learns and counts in 64 bits.

The text is not normalised. It is cut by a pattern, each piece is spelled in 256 byte symbols,
and the most frequent adjacent pair is merged until the vocabulary is full. All 256 bytes are in
the vocabulary, so every string of Unicode scalars round-trips exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, AnyStr

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from tokenize_kit.formats.tokenizer_json import ORDER, add_tokens, to_letters
from tokenize_kit.learn.backends import Words, learn_sentencepiece, learn_tokenizers
from tokenize_kit.learn.bpe_merges import LEAST, LONGEST, SHARE, STEP, learn
from tokenize_kit.learn.cutting import run_merges
from tokenize_kit.learn.options import DEFAULT_PATTERN, TrainingOptions
from tokenize_kit.learn.words import Text, WordCounts, lay_out
from tokenize_kit.pattern.automaton import compile_pattern
from tokenize_kit.pattern.named import Digits, pattern_with

if TYPE_CHECKING:
    from tokenize_kit.segment.dictionary import Dictionary

_BATCH = 4 << 20  # bytes counted at once


def split_pattern(digits: Digits) -> str:
    """The pattern of a tokenizer for which none is named, where one part is enough for the digits.

    That of GPT-4o (tiktoken, o200k_base): of the published patterns only this one counts combining
    marks (\\p{M}) as letters; without them Thai and Indic vowel signs leave their consonants.
    """
    (pattern,) = pattern_with(DEFAULT_PATTERN, digits).parts
    return pattern


def count_words(
    documents: Iterable[tuple[str, int]],
    parts: Sequence[str],
    dictionary: Dictionary | None = None,
) -> WordCounts:
    """Counts of the pieces of texts, each with its weight; parts: patterns, one after the other;
    dictionary: cuts texts into words before that."""
    counted = WordCounts([compile_pattern(part) for part in parts])
    waiting: dict[int, list[bytes]] = {}
    size = 0
    for text, weight in documents:
        raw = text.encode("utf-8")
        waiting.setdefault(weight, []).append(raw)
        size += len(raw)
        if size >= _BATCH:
            _count(counted, waiting, dictionary)
            size = 0
    _count(counted, waiting, dictionary)
    return counted


def _count(
    counted: WordCounts, waiting: dict[int, list[bytes]], dictionary: Dictionary | None
) -> None:
    for weight, batch in waiting.items():
        data, offsets = _join(batch)
        counted.add(data, dictionary.cut(data, offsets) if dictionary else offsets, weight)
    waiting.clear()


def _join(batch: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    return np.frombuffer(bytearray().join(batch), np.uint8), np.cumsum([0, *map(len, batch)])


def lay_out_words(letters: np.ndarray, ends: np.ndarray, counts: np.ndarray) -> Text:
    """The text of `learn_merges`, laid out from WordCounts.words()."""
    return lay_out(letters, ends, counts, _byte_ids())


def _byte_ids() -> np.ndarray:
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
    joined, bounds = _join(list(banned))
    merges = learn(text, 256, tokens, least, longest, _byte_ids()[joined], bounds, share, step)
    names = [bytes([byte]) for byte in ORDER]
    for left, right, merged in merges.tolist():
        if merged == len(names):
            names.append(names[left] + names[right])
    return names, [(left, right) for left, right, _ in merges.tolist()]


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


def build_tokenizer(
    names: Sequence[bytes],
    merges: Sequence[tuple[int, int]],
    first: Sequence[str],
    last: Sequence[str],
    parts: Sequence[str],
    space: str | None = None,
) -> Tokenizer:
    """The tokenizer of learned tokens; special ones take the ids before (first) and behind (last)
    them. parts: the patterns, one after the other; space: the one of `first` that spaces become."""
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
    most = max(options.sizes) - len(first)
    runs = max(0, options.space_runs - 1)
    banned = [token.encode() for token in options.banned]
    longest = options.max_token_length or LONGEST
    least, cut = options.min_frequency * scale, options.counted_parts
    if options.learner == "tokenizers":
        names, merges = learn_tokenizers(documents, cut, most - runs, least, longest, banned)
    else:
        counted = count_words(documents, cut, dictionary)
        if options.learner == "own":
            text = lay_out_words(*counted.words())
            del counted  # as much memory again
            names, merges = learn_merges(text, most - runs, banned, least, longest)
        else:
            names, merges = _by_sentencepiece(counted.words(), most - runs, longest, banned)
    tokenizers = []
    for size in options.sizes:
        fewer = first_merges(names, merges, size - len(first) - runs)
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
    numbers = _byte_ids()
    words = Words(numbers[letters], np.diff(ends), counts, 256)
    tokens = [numbers[list(token)].tolist() for token in banned]
    names = [bytes([byte]) for byte in ORDER]
    merges = learn_sentencepiece(words, most, longest, tokens)
    for left, right, merged in merges:
        if merged == len(names):
            names.append(names[left] + names[right])
    return names, [(left, right) for left, right, _ in merges]


def train_bpe(
    texts: Iterable[str], *, vocab: int, digits: Digits, special_tokens: Sequence[str]
) -> Tokenizer:
    """A tokenizer of one size with the default pattern; see `train_sizes`."""
    options = TrainingOptions(sizes=(vocab,), digits=digits, special_tokens=tuple(special_tokens))
    return train_sizes(((text, 1) for text in texts), options)[0]
