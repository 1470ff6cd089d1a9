"""Byte-level BPE that makes the common characters first, so that no other token splits one.

Their bytes are merged from left to right before all else; then pairs of characters and of the bytes
of all others are learned. Where a character has three bytes, merges of bytes alone make tokens that
end within one (Land and Arnett 2025, arXiv:2505.24689, forbid such merges, too).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from tokenize_kit.formats.tokenizer_json import ORDER
from tokenize_kit.learn.backends import Words, learn_with_backend, token_names
from tokenize_kit.learn.bpe import add_space_runs, build_tokenizer, count_words
from tokenize_kit.learn.char_bpe import CharacterWords, choose_characters, split_characters
from tokenize_kit.learn.options import TrainingOptions
from tokenize_kit.segment.dictionary import Dictionary

# Characters that are made first are this part of the vocabulary at most. Tried on prose in ten
# languages and code.
PART = 10


def beginnings(characters: Iterable[str]) -> list[bytes]:
    """What merging the bytes of characters makes, from left to right, they included."""
    tokens: dict[bytes, None] = {}
    for character in characters:
        raw = character.encode()
        tokens.update(dict.fromkeys(raw[:end] for end in range(2, len(raw) + 1)))
    return list(tokens)


def number_characters(words: CharacterWords, bases: Sequence[bytes]) -> Words:
    """The words as positions in `bases`: a character, or its longest beginning and bytes."""
    number = {name: k for k, name in enumerate(bases)}
    codes, positions = np.unique(words.codes, return_inverse=True)
    spellings = []
    for code in codes.tolist():
        raw = chr(code).encode()
        end = next(end for end in range(len(raw), 0, -1) if raw[:end] in number)
        spellings.append([number[raw[:end]], *(number[bytes([byte])] for byte in raw[end:])])
    table = np.zeros((len(codes), 4), np.int32)
    for row, spelling in zip(table, spellings, strict=True):
        row[: len(spelling)] = spelling
    sizes = np.array([len(spelling) for spelling in spellings], np.int64)[positions]
    ends = np.append(0, np.cumsum(sizes))
    symbols = table[positions][np.arange(4) < sizes[:, None]]
    return Words(symbols, np.diff(ends[words.ends]), words.counts, len(bases))


def train_whole_characters(
    documents: Iterable[tuple[str, int]],
    options: TrainingOptions,
    scale: int = 1,
    dictionary: Dictionary | None = None,
) -> list[tuple[Tokenizer, dict[str, Any]]]:
    """A tokenizer of each of the sizes, as bpe.train_sizes gives, and what its card says of it.
    Each is learned by itself, for larger ones have more characters."""
    first, parts = options.first_tokens, options.cutting.parts
    runs = max(0, options.space_runs - 1)
    words = split_characters(*count_words(documents, options.counted_parts, dictionary).words())
    frequencies = words.frequencies()
    trained = []
    for size in options.sizes:
        most = size - len(first) - runs
        kept, share = choose_characters(frequencies, most - 256, options.coverage, PART)
        prefixes = beginnings(sorted(kept))
        bases = [bytes([byte]) for byte in ORDER] + prefixes
        number = {name: k for k, name in enumerate(bases)}
        banned = [[number[bytes([byte])] for byte in token.encode()] for token in options.banned]
        learned = learn_with_backend(number_characters(words, bases), options, most, scale, banned)
        names = token_names(bases, learned)
        merges = [(number[name[:-1]], number[name[-1:]]) for name in prefixes]
        merges += [(left, right) for left, right, _ in learned]
        tokens = add_space_runs(names, merges, 256, b" ", options.space_runs)
        last = options.padding[: -(len(first) + len(tokens[0])) % options.pad_to]
        tokenizer = build_tokenizer(*tokens, first, last, parts, options.space_token)
        details = {"characters": len(kept), "character_coverage": share}
        trained.append((tokenizer, details))
    return trained
