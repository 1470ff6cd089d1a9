"""Byte-level BPE from the words of texts: counted, merged, and made a tokenizer.

SuperBPE: tokens that span words, learned behind those that do not (Liu et al. 2025).

The first merges are those of the pieces that the pattern cuts. From a given size of the vocabulary
on, pieces are whole lines: the merges so far are applied to them, as the tokenizer will, and
learning goes on with what that leaves. A token holds four words at most."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.encode.parts import pack
from tokenize_kit.formats.tokenizer_json import ORDER, add_tokens, to_letters
from tokenize_kit.learn.bpe_merges import LEAST, LONGEST, SHARE, STEP, Begun, learn
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


WORDS = 4  # of a token at most: Liu et al. 2025
_WHITE_SPACE = b" \t\n\r\v\f"


def learn_superwords(
    documents: Iterable[tuple[str, int]],
    words: Sequence[str],
    lines: Sequence[str],
    subwords: int,
    tokens: int,
    banned: Sequence[bytes],
    least: int,
    longest: int,
) -> tuple[list[bytes], list[tuple[int, int]]]:
    """(tokens, merges) as bpe.learn_merges gives them.

    documents: texts with their weights; words, lines: patterns that cut texts at first, and from
    `subwords` tokens on; the rest as there.
    """
    of_words, of_lines = count_cuttings(documents, [words, lines])
    text = lay_out_words(*of_words.words())
    del of_words
    names, merges = learn_merges(text, subwords, banned, least, longest)
    del text
    letters, ends, counts = of_lines.words()
    del of_lines
    ids, sizes = Encoder(build_tokenizer(names, merges, (), (), lines)).encode(letters, ends)
    del letters
    text = lay_out(ids.astype(np.int32), np.append(0, np.cumsum(sizes)), counts)
    learned = learn(text, len(names), tokens, least, longest, *spelled(banned), begun=_begun(names))
    for left, right in learned[:, :2].tolist():
        merges.append((left, right))
        names.append(names[left] + names[right])
    return names, merges


def _begun(names: Sequence[bytes]) -> Begun:
    """The tokens that there are, as learning goes on with them over words."""
    gaps = np.zeros(256, np.bool_)
    gaps[byte_ids()[list(_WHITE_SPACE)]] = True
    return Begun(*spelled(names), gaps, WORDS)
