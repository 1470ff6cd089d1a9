"""WordPiece as BERT uses it: character BPE in which characters within a word are marked by ##.

Merges are learned, but only the tokens are stored. Encoding takes the longest token that a word
begins with, then the longest that the rest begins with, and so on; a word that cannot be spelled in
this way becomes [UNK]. White space is dropped, so decoding does not return the exact text.

Tokens are learned as in the WordPieceTrainer of `tokenizers`, except that ## characters are
numbered by code point. The library numbers them in the order of a hash table, so the library's
tokens change from run to run.
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
# Replaces ## while learning: texts have no surrogates, so spellings stay unambiguous.
_WITHIN = "\ud800"
# A word of more characters is [UNK]. BERT's limit of 100 loses sentences in scripts without spaces.
LONGEST_WORD = 1000


def _without_space(words: CharacterWords) -> CharacterWords:
    begins = words.ends[:-1]
    space = members("s")[words.codes[begins]]
    kept = np.repeat(~space, np.diff(words.ends))
    sizes = np.diff(words.ends)[~space]
    return CharacterWords(words.codes[kept], np.append(0, np.cumsum(sizes)), words.counts[~space])


def number_words(words: CharacterWords, kept: list[str]) -> tuple[Words, list[str]]:
    """Spell words in symbols; return the words and the names of the symbols. A symbol is a kept
    character at the beginning of a word, or within a word (then its name has a mark). Words with
    other characters, which are encoded as [UNK], are left out. kept: sorted by code point."""
    codes = np.array([ord(c) for c in kept], np.uint32)
    positions = np.searchsorted(codes, words.codes)
    inside = positions < len(codes)
    inside[inside] = codes[positions[inside]] == words.codes[inside]
    sizes = np.diff(words.ends)
    known = np.add.reduceat(~inside, words.ends[:-1]) == 0 if len(sizes) else np.zeros(0, np.bool_)
    symbols = positions[np.repeat(known, sizes)]
    sizes = sizes[known]
    within = np.ones(len(symbols), np.bool_)
    within[(np.cumsum(sizes) - sizes).astype(np.int64)] = False
    inner, numbers = np.unique(symbols[within], return_inverse=True)
    symbols[within] = len(kept) + numbers
    bases = [*kept, *(_WITHIN + kept[position] for position in inner.tolist())]
    return Words(symbols.astype(np.int32), sizes, words.counts[known], len(bases)), bases


def train_wordpiece(
    documents: Iterable[tuple[str, int]],
    options: TrainingOptions,
    scale: int = 1,
    dictionary: Dictionary | None = None,
) -> list[Trained]:
    """Train WordPiece tokenizers of all sizes; texts are counted only once. The parameters are
    those of bpe.train_byte_bpe."""
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
