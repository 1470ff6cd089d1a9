"""SuperBPE: tokens that span words, learned behind those that do not (Liu et al. 2025).

The first merges are those of the pieces that the pattern cuts. From a given size of the vocabulary
on, pieces are whole lines: the merges so far are applied to them, as the tokenizer will, and
learning goes on with what that leaves. A token holds four words at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from kernel_cache import read_only
from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.learn.bpe_merges import Begun, learn
from tokenize_kit.learn.byte_words import (
    build_tokenizer,
    byte_ids,
    count_cuttings,
    lay_out_words,
    learn_merges,
    merged_names,
    spelled,
)
from tokenize_kit.learn.words import Text, WordCounts, lay_out
from tokenize_kit.pattern.automaton import compile_pattern
from tokenize_kit.pattern.scan import cut_rows

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


def learn_boundless(
    documents: Iterable[tuple[str, int]],
    words: Sequence[str],
    lines: Sequence[str],
    sizes: Sequence[int],
    banned: Sequence[bytes],
    least: int,
    longest: int,
) -> list[tuple[list[bytes], list[tuple[int, int]], int]]:
    """As learn_superwords, of each of the sizes, by BoundlessBPE."""
    of_words, of_lines = count_cuttings(documents, [words, lines])
    learned = []
    for tokens in sizes:
        text = lay_out_words(*of_words.words())
        merges = learn(text, 256, tokens, least, longest, *spelled(banned))
        del text
        names, _ = merged_names(merges)
        floor = max(least, int(merges[:, 3].min())) if len(names) == tokens else least
        text = _whole_words(of_lines, words, names, merges)
        over = learn(
            text, len(names), len(names) + tokens, floor, longest, *spelled(banned),
            begun=_begun(names),
        )  # fmt: skip
        learned.append(_by_counts(merges, over, len(names), tokens))
    return learned


def _whole_words(
    of_lines: WordCounts, words: Sequence[str], names: Sequence[bytes], merges: np.ndarray
) -> Text:
    """The lines as words that are one token each; others separate what stands beside them."""
    letters, line_ends, counts = of_lines.words()
    tables = tuple(compile_pattern(part).kernel for part in words)
    ends, pieces = cut_rows(read_only(letters), line_ends, tables)
    pairs = [(left, right) for left, right in merges[:, :2].tolist()]
    ids, _ = Encoder(build_tokenizer(names, pairs, (), (), words)).encode(letters, line_ends)
    last = np.searchsorted(np.cumsum(np.array([*map(len, names)])[ids]), ends)
    whole = np.flatnonzero(np.diff(last, prepend=-1) == 1)
    row = np.repeat(np.arange(len(pieces)), pieces)[whole]
    begins = np.flatnonzero((np.diff(whole, prepend=-2) > 1) | (np.diff(row, prepend=-1) > 0))
    symbols = ids[last[whole]].astype(np.int32)
    return lay_out(symbols, np.append(begins, len(whole)), counts[row[begins]])


def _by_counts(
    merges: np.ndarray, over: np.ndarray, bases: int, tokens: int
) -> tuple[list[bytes], list[tuple[int, int]]]:
    """The most frequent merges of both, until there are so many tokens; those within words first,
    of equally frequent ones, and in the list."""
    within = across = 0
    size = 256
    made = np.maximum.accumulate(np.append(255, merges[:, 2]))
    while size < tokens and (within < len(merges) or across < len(over)):
        if across == len(over) or (
            within < len(merges) and merges[within, 3] >= over[across, 3]
        ):
            size += int(merges[within, 2] > made[within])
            within += 1
        else:
            size += 1
            across += 1
    names, pairs = merged_names(merges[:within])
    shift = bases - len(names)
    for pair in over[:across, :2]:
        left, right = (pair - shift * (pair >= bases)).tolist()
        pairs.append((left, right))
        names.append(names[left] + names[right])
    return names, pairs, across


def _begun(names: Sequence[bytes]) -> Begun:
    gaps = np.zeros(256, np.bool_)
    gaps[byte_ids()[list(_WHITE_SPACE)]] = True
    return Begun(*spelled(names), gaps, WORDS)
