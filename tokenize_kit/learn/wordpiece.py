"""WordPiece as BERT's: BPE over characters, those within a word marked by ##, then only the words.

Encoding takes the longest token that a word begins with, again and again; a word that no tokens
spell is [UNK]. White space is left out. So texts do not come back as they were.

Learned as `tokenizers`' WordPieceTrainer does, whose tokens change from run to run (it numbers ##
characters in the order of a hash table); here they are numbered by code point.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from tokenize_kit.formats.tokenizer_json import add_tokens
from tokenize_kit.learn.bpe import (
    CharacterWords,
    Trained,
    Words,
    choose_characters,
    count_words,
    learn_word_merges,
    split_characters,
    token_names,
)
from tokenize_kit.learn.bpe_merges import LONGEST
from tokenize_kit.learn.options import UNKNOWN, TrainingOptions
from tokenize_kit.pattern.categories import members
from tokenize_kit.segment import Dictionary

PREFIX = "##"
# In place of ## while learning: no text has a surrogate, so no spelling is taken for another.
_WITHIN = "\ud800"
# Characters of a word beyond which it is [UNK]; BERT's 100 loses sentences of scripts without
# spaces.
LONGEST_WORD = 1000


def _without_space(words: CharacterWords) -> CharacterWords:
    """The words that are no white space, which is left out. Pieces are all space or none."""
    begins = words.ends[:-1]
    space = members("s")[words.codes[begins]]
    kept = np.repeat(~space, np.diff(words.ends))
    sizes = np.diff(words.ends)[~space]
    return CharacterWords(words.codes[kept], np.append(0, np.cumsum(sizes)), words.counts[~space])


def number_words(words: CharacterWords, kept: list[str]) -> tuple[Words, list[str]]:
    """(words of kept characters alone, their symbols: characters, and those that stand within a
    word, marked); words with another character are [UNK] and teach nothing.

    kept: sorted by code point.
    """
    codes = np.array([ord(c) for c in kept], np.uint32)
    positions = np.searchsorted(codes, words.codes)
    inside = positions < len(codes)
    inside[inside] = codes[positions[inside]] == words.codes[inside]
    sizes = np.diff(words.ends)
    whole = np.add.reduceat(~inside, words.ends[:-1]) == 0 if len(sizes) else np.zeros(0, np.bool_)
    symbols = positions[np.repeat(whole, sizes)]
    sizes = sizes[whole]
    within = np.ones(len(symbols), np.bool_)
    within[(np.cumsum(sizes) - sizes).astype(np.int64)] = False
    behind, numbers = np.unique(symbols[within], return_inverse=True)
    symbols[within] = len(kept) + numbers
    bases = [*kept, *(_WITHIN + kept[position] for position in behind.tolist())]
    return Words(symbols.astype(np.int32), sizes, words.counts[whole], len(bases)), bases


def train_wordpiece(
    documents: Iterable[tuple[str, int]],
    options: TrainingOptions,
    scale: int = 1,
    dictionary: Dictionary | None = None,
) -> list[Trained]:
    """A tokenizer of each of the sizes, from one count."""
    first, parts = options.first_tokens, options.cutting.parts
    least, longest = options.min_frequency * scale, options.max_token_length or LONGEST
    counted = _without_space(
        split_characters(*count_words(documents, options.counted_parts, dictionary).words())
    )
    frequencies = counted.frequencies()
    trained = []
    for size in options.sizes:
        available = size - len(first)
        # A character may take two tokens, one of them within words.
        kept, covered = choose_characters(frequencies, available // 2, options.coverage)
        words, bases = number_words(counted, sorted(kept))
        numbers = {name: k for k, name in enumerate(bases)}
        banned = [
            [numbers[c] for c in spelled]
            for token in options.banned
            if set(spelled := [token[0], *(_WITHIN + c for c in token[1:])]) <= numbers.keys()
        ]
        merges = learn_word_merges(words, available, least, longest, banned)
        names = [
            (PREFIX if name.startswith(_WITHIN) else "") + name.replace(_WITHIN, "")
            for name in token_names(bases, merges)
        ]
        last = options.padding[: -(len(first) + len(names)) % options.pad_to]
        tokenizer = _build([*first, *names, *last], first, last, parts)
        trained.append(Trained(tokenizer, False, len(kept), covered, len(merges), LONGEST_WORD))
    return trained


def _build(
    tokens: list[str], first: tuple[str, ...], last: tuple[str, ...], parts: tuple[str, ...]
) -> Tokenizer:
    ids = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(
        models.WordPiece(
            ids,
            unk_token=UNKNOWN,
            max_input_chars_per_word=LONGEST_WORD,
            continuing_subword_prefix=PREFIX,
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\s+"), behavior="removed"),
            *(pre_tokenizers.Split(Regex(part), behavior="isolated") for part in parts),
        ]
    )
    tokenizer.decoder = decoders.WordPiece(prefix=PREFIX, cleanup=False)
    add_tokens(tokenizer, [*first, *last])
    return tokenizer
