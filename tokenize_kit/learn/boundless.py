"""BoundlessBPE: words that are one token each merge with one another (Schmidt et al. 2025).

The paper has one list of merges, within words and over them, each the most frequent of all. Merges
within words do not depend on the others, which join whole words alone. And two words stand beside
each other no more often than each of them stands anywhere, so whatever comes up as often as they do
has been merged before: both are whole by then. So the list is two, of words and of lines whose
symbols are whole words, put together by their counts until the vocabulary is full.

tokenizer.json has the merges within words first, which changes no id by the paper's rule. It has no
borders of words, though: where a word is not one token, the part of it beside another one may be
joined with that (` of the|ory`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from kernel_cache import read_only
from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.learn.bpe import add_space_runs
from tokenize_kit.learn.bpe_merges import LONGEST, learn
from tokenize_kit.learn.byte_words import (
    build_tokenizer,
    count_cuttings,
    lay_out_words,
    merged_names,
    spelled,
)
from tokenize_kit.learn.options import TrainingOptions
from tokenize_kit.learn.superwords import whole
from tokenize_kit.learn.words import Text, WordCounts, lay_out
from tokenize_kit.pattern.automaton import compile_pattern
from tokenize_kit.pattern.scan import cut_rows


def train_boundless(
    documents: Iterable[tuple[str, int]], options: TrainingOptions, scale: int = 1
) -> list[tuple[Tokenizer, dict[str, Any]]]:
    """A tokenizer of each of the sizes, as bpe.train_sizes gives, and what its card says of it.
    Each is learned by itself: a larger one has more tokens within words and over them."""
    first, parts = options.first_tokens, options.cutting.parts
    words, lines = count_cuttings(documents, [options.counted_parts, parts])
    banned = [token.encode() for token in options.banned]
    least, longest = options.min_frequency * scale, options.max_token_length or LONGEST
    trained = []
    for size in options.sizes:
        most = size - options.unlearned
        names, merges, over = learn_boundless(
            words, lines, options.counted_parts[len(parts) :], most, banned, least, longest
        )
        tokens = add_space_runs(names, merges, 256, b" ", options.space_runs)
        last = options.padding[: -(len(first) + len(tokens[0])) % options.pad_to]
        trained.append((build_tokenizer(*tokens, first, last, parts), {"superwords": over}))
    return trained


def learn_boundless(
    of_words: WordCounts,
    of_lines: WordCounts,
    cut: Sequence[str],
    tokens: int,
    banned: Sequence[bytes],
    least: int,
    longest: int,
) -> tuple[list[bytes], list[tuple[int, int]], int]:
    """(tokens, merges as bpe.learn_merges gives them, how many of both, the last ones, are over
    words).

    cut: patterns that cut lines into words; the rest as there. Of two merges of equal counts the
    one within words goes first, then the smaller pair of ids. No merge over words spells a token
    that words alone would give.
    """
    text = lay_out_words(*of_words.words())
    within = learn(text, 256, tokens, least, longest, *spelled(banned))
    del text
    names, merges = merged_names(within)
    full = len(names) == tokens
    text = _lay_out_lines(of_lines, cut, names, merges)
    across = learn(
        text, len(names), len(names) + tokens - 256,
        int(within[:, 3].min()) if full else least,  # those below have no place
        longest, *spelled(banned), begun=whole(names),
    )  # fmt: skip
    first, more = _most_frequent(within, across[:, 3], tokens)
    kept, merges = merged_names(within[:first])
    ids = {k: k for k in range(len(kept))}
    for left, right, merged in across[:more, :3].tolist():
        merges.append((ids[left], ids[right]))
        ids[merged] = len(kept)
        kept.append(kept[ids[left]] + kept[ids[right]])
    return kept, merges, more


def _lay_out_lines(
    of_lines: WordCounts,
    cut: Sequence[str],
    names: Sequence[bytes],
    merges: Sequence[tuple[int, int]],
) -> Text:
    """Lines in words that are one token each; what lies between two that are not is one row."""
    letters, line_ends, counts = of_lines.words()
    tables = tuple(compile_pattern(part).kernel for part in cut)
    ends, words = cut_rows(read_only(letters), line_ends, tables)
    tokenizer = build_tokenizer(names, merges, (), (), cut)
    ids, _ = Encoder(tokenizer).encode(letters, line_ends)
    sizes = np.array([len(name) for name in names])
    last = np.searchsorted(np.cumsum(sizes[ids]), ends)  # token of every word
    single = np.flatnonzero(np.diff(last, prepend=-1) == 1)
    line = np.repeat(np.arange(len(words)), words)[single]
    begins = np.flatnonzero((np.diff(single, prepend=-2) > 1) | (np.diff(line, prepend=-1) > 0))
    symbols = ids[last[single]].astype(np.int32)
    return lay_out(symbols, np.append(begins, len(single)), counts[line[begins]])


def _most_frequent(within: np.ndarray, across: np.ndarray, tokens: int) -> tuple[int, int]:
    """How many merges of each list make so many tokens, always the more frequent one taken next.

    within: int64[n, 4], as bpe_merges.learn gives it; across: counts: int64[m].
    """
    first = more = 0
    size = 256
    while size < tokens and (first < len(within) or more < len(across)):
        if more == len(across) or (first < len(within) and within[first, 3] >= across[more]):
            size += int(within[first, 2] == size - more)
            first += 1
        else:
            size += 1
            more += 1
    return first, more
