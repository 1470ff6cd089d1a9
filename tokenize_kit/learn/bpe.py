"""BPE over bytes and over characters: the merges that `tokenizers` learns, with 64-bit counts.

Over bytes, text is not normalised. A pattern cuts it into pieces, each piece is spelled in 256 byte
symbols, and the most frequent adjacent pair is merged until the vocabulary is full. All 256 bytes
are tokens, so every text of Unicode scalars round-trips exactly.

SuperBPE (Liu et al. 2025): once a given number of tokens is learned, further tokens may span words.
The first merges are learned from the pieces of the pattern. Then whole lines are encoded with these
merges, as the tokenizer will encode them, and learning continues on the result. A token spans four
words at most.

Over characters, the vocabulary consists of special tokens, the 256 byte pieces `<0x00>` to
`<0xFF>`, characters by code point, and merged tokens. A character beyond the coverage is spelled in
bytes and never merged. No merge spells a byte piece, so a literal <0x41> in a text stays text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import AnyStr

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from tokenize_kit.encode.encoder import Encoder
from tokenize_kit.encode.parts import pack
from tokenize_kit.formats.forms import BYTE_PIECES
from tokenize_kit.formats.tokenizer_json import ORDER, add_tokens, cut_to_bytes, to_letters
from tokenize_kit.learn.bpe_merges import LEAST, LONGEST, SHARE, STEP, InitialTokens, learn
from tokenize_kit.learn.cutting import run_merges
from tokenize_kit.learn.options import COVERAGE, TrainingOptions
from tokenize_kit.learn.words import Text, WordCounts, lay_out, weighted_batches
from tokenize_kit.pattern.automaton import compile_pattern
from tokenize_kit.segment import Dictionary


@dataclass(frozen=True)
class Trained:
    """A trained tokenizer and figures for its card. character_coverage: the share of the text's
    characters that are tokens; spm: a Unigram tokenizer's SentencePiece model."""

    tokenizer: Tokenizer
    byte_fallback: bool = False
    characters: int | None = None
    character_coverage: float | None = None
    merges: int | None = None
    longest_word: int | None = None
    spm: bytes | None = None


def count_words(
    documents: Iterable[tuple[str, int]],
    parts: Sequence[str],
    dictionary: Dictionary | None = None,
) -> WordCounts:
    """Count the pieces into which patterns cut weighted texts. parts: the patterns, applied one
    after the other; dictionary: cuts texts into words before the patterns are applied."""
    return count_cuttings(documents, [parts], dictionary)[0]


def count_cuttings(
    documents: Iterable[tuple[str, int]],
    cuttings: Sequence[Sequence[str]],
    dictionary: Dictionary | None = None,
) -> list[WordCounts]:
    """Count pieces as count_words does, for several lists of patterns. The texts are read once."""
    counts = [WordCounts([compile_pattern(part) for part in parts]) for parts in cuttings]
    for data, offsets, weight in weighted_batches(documents):
        bounds = dictionary.cut(data, offsets) if dictionary else offsets
        for counted in counts:
            counted.add(data, bounds, weight)
    return counts


def lay_out_words(letters: np.ndarray, ends: np.ndarray, counts: np.ndarray) -> Text:
    return lay_out(letters, ends, counts, byte_ids())


def byte_ids() -> np.ndarray:
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
    """Learn merges over bytes. Return the list of tokens, which begins with the 256 bytes in the
    order of `tokenizers`, and for each merge the positions of its two tokens in this list.

    text: the result of lay_out_words, which is changed in place; tokens: the largest number of
    tokens; banned: spellings that no merge may make; least: the smallest count of a merged pair;
    longest: the most bytes of a token; share, step: set the threshold below which pairs are
    forgotten (bpe_merges.py) and change only the speed."""
    merges = learn(text, 256, tokens, least, longest, *spelled(banned), share, step).tolist()
    names = token_names([bytes([byte]) for byte in ORDER], merges)
    return names, [(left, right) for left, right, _ in merges]


def spelled(tokens: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Return all tokens' byte ids, int32[], and the tokens' bounds, int64[tokens + 1]."""
    joined, bounds = pack(tokens)
    return byte_ids()[joined], bounds


def build_tokenizer(
    names: Sequence[bytes],
    merges: Sequence[tuple[int, int]],
    first: Sequence[str],
    last: Sequence[str],
    parts: Sequence[str],
    space: str | None = None,
) -> Tokenizer:
    """Build a tokenizer from learned tokens. first, last: the special tokens with ids before and
    after the learned tokens; parts: patterns, applied one after the other; space: the token in
    `first` that stands for a space."""
    words = [to_letters(name) for name in names]
    ids = {token: number for number, token in enumerate([*first, *words, *last])}
    pairs = [(words[left], words[right]) for left, right in merges]
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=pairs))
    cut_to_bytes(tokenizer, parts)
    add_tokens(tokenizer, [token for token in [*first, *last] if token != space], space)
    return tokenizer


WORDS = 4  # the most words in a token: Liu et al. 2025
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
    """Learn tokens within words, then tokens that may span words. Return what learn_merges returns.
    documents: texts with their weights; words: patterns used up to `subwords` tokens; lines:
    patterns used for further tokens. The other parameters are those of learn_merges."""
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
    gaps = np.zeros(256, np.bool_)
    gaps[byte_ids()[list(_WHITE_SPACE)]] = True
    initial = InitialTokens(*spelled(names), gaps, WORDS)
    learned = learn(text, len(names), tokens, least, longest, *spelled(banned), initial=initial)
    for left, right in learned[:, :2].tolist():
        merges.append((left, right))
        names.append(names[left] + names[right])
    return names, merges


@dataclass(frozen=True)
class Words:
    """Words over any symbols. symbols: int32[], the symbols (0 to bases - 1) of all words,
    concatenated; sizes, counts: int64[words], the number of symbols and the count of each word;
    bases: the number of different symbols."""

    symbols: np.ndarray
    sizes: np.ndarray
    counts: np.ndarray
    bases: int


Merge = tuple[int, int, int]  # left token, right token, merged token


def learn_word_merges(
    words: Words, most: int, least: int, longest: int, banned: Sequence[Sequence[int]]
) -> list[Merge]:
    """Learn which tokens to merge within words. A word is a sequence of symbols of any kind. most:
    the largest number of tokens, symbols included; least: the smallest count of a merged pair;
    longest: the largest number of symbols of a token; banned: tokens, spelled in symbols, that no
    merge may make."""
    joined = np.array([symbol for token in banned for symbol in token], np.int32)
    bounds = np.cumsum([0, *map(len, banned)])
    text = lay_out(words.symbols, np.append(0, np.cumsum(words.sizes)), words.counts)
    merges = learn(text, words.bases, most, least, longest, joined, bounds)
    return [(left, right, merged) for left, right, merged in merges.tolist()]


def token_names(bases: Sequence[AnyStr], merges: Sequence[Merge]) -> list[AnyStr]:
    names = list(bases)
    for left, right, merged in merges:
        if merged == len(names):
            names.append(names[left] + names[right])
    return names


def first_merges(
    names: Sequence[AnyStr], merges: Sequence[tuple[int, int]], tokens: int
) -> tuple[list[AnyStr], list[tuple[int, int]]]:
    """Return the first `tokens` tokens and their merges. Learning anew with this limit would give
    the same result, because the limit only decides when learning stops."""
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
    """Insert tokens for runs of 2 to `most` spaces after the first `bases` tokens, and put the
    merges that make these runs before all other merges."""
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


def train_byte_bpe(
    documents: Iterable[tuple[str, int]],
    options: TrainingOptions,
    scale: int = 1,
    dictionary: Dictionary | None = None,
) -> list[Trained]:
    """Train byte-level BPE tokenizers of all sizes in options; texts are counted and merges learned
    only once. documents: texts, each with an integer weight; scale: the integer that stands for a
    weight of 1. Special tokens take ids 0, 1, ...; then come the 256 bytes, merged tokens and
    padding tokens. A small corpus may give fewer tokens than the options ask for. Pairs with equal
    counts are ordered by their ids, so the result depends only on the texts."""
    first, parts, padding = options.first_tokens, options.cutting.parts, options.padding
    most = max(options.sizes) - options.unlearned
    banned = [token.encode() for token in options.banned]
    longest = options.max_token_length or LONGEST
    least, cut = options.min_frequency * scale, options.counted_parts
    if options.superwords is not None:
        subwords = options.superwords - options.unlearned
        names, merges = learn_superwords(
            documents, cut, parts, subwords, most, banned, least, longest
        )
    else:
        counted = count_words(documents, cut, dictionary)
        text = lay_out_words(*counted.words())
        del counted  # as large as the text
        names, merges = learn_merges(text, most, banned, least, longest)
    trained = []
    for size in options.sizes:
        fewer = first_merges(names, merges, size - options.unlearned)
        fewer = add_space_runs(*fewer, 256, b" ", options.space_runs)
        last = padding[: -(len(first) + len(fewer[0])) % options.pad_to]
        tokenizer = build_tokenizer(*fewer, first, last, parts, options.space_token)
        trained.append(Trained(tokenizer))
    return trained


@dataclass(frozen=True)
class CharacterWords:
    """Words as code points. codes: uint32[], the code points of all words, concatenated; ends:
    int64[words + 1], the words' bounds; counts: int64[words]."""

    codes: np.ndarray
    ends: np.ndarray
    counts: np.ndarray

    def frequencies(self) -> Counter[str]:
        codes, numbers = np.unique(self.codes, return_inverse=True)
        sums = np.zeros(len(codes), np.int64)
        np.add.at(sums, numbers, np.repeat(self.counts, np.diff(self.ends)))
        return Counter(dict(zip(map(chr, codes.tolist()), sums.tolist(), strict=True)))


def split_characters(letters: np.ndarray, ends: np.ndarray, counts: np.ndarray) -> CharacterWords:
    """Convert words of bytes, as WordCounts.words() returns them, to words of characters. letters:
    uint8[], UTF-8; ends: int64[words + 1]."""
    codes = np.frombuffer(letters.tobytes().decode("utf-8").encode("utf-32-le"), np.uint32)
    begins = np.append(0, np.cumsum(letters & 0xC0 != 0x80))
    return CharacterWords(codes, begins[ends], counts)


def choose_characters(
    characters: Counter[str], available: int, coverage: float = COVERAGE
) -> tuple[list[str], float]:
    """Choose the characters that become tokens. Return these characters, the most common first, and
    the share of the text that they cover. The most common characters are chosen until `coverage` is
    reached, but at most half of the `available` tokens, so that tokens are left for merges.
    Characters with equal counts are ordered by code point."""
    total, covered = characters.total(), 0
    kept: list[str] = []
    for character, count in sorted(characters.items(), key=lambda item: (-item[1], item[0])):
        if covered >= coverage * total or len(kept) >= max(1, available // 2):
            break
        kept.append(character)
        covered += count
    return kept, covered / max(1, total)


def number_words(words: CharacterWords, kept: Sequence[int]) -> Words:
    """Replace the kept characters of words by their numbers, and cut words at all other characters.
    kept: code points, ascending; a character's number is its position in the list."""
    codes = np.array(kept, np.uint32)
    positions = np.searchsorted(codes, words.codes)
    inside = positions < len(codes)
    inside[inside] = codes[positions[inside]] == words.codes[inside]
    begins = np.zeros(len(words.codes), np.bool_)
    begins[words.ends[:-1][words.ends[:-1] < len(words.codes)]] = True
    begins[1:] |= ~inside[:-1]  # a new word begins after a rare character
    starts = np.flatnonzero(begins[inside])
    word_of = np.repeat(np.arange(len(words.counts)), np.diff(words.ends))[inside]
    sizes = np.diff(np.append(starts, np.count_nonzero(inside)))
    return Words(
        positions[inside].astype(np.int32), sizes, words.counts[word_of[starts]], len(codes)
    )


def train_char_bpe(
    documents: Iterable[tuple[str, int]],
    options: TrainingOptions,
    scale: int = 1,
    dictionary: Dictionary | None = None,
) -> list[Trained]:
    """Train character BPE tokenizers of all sizes in options; texts are counted only once.
    documents: texts, each with an integer weight; scale: the integer that stands for a weight of 1.
    Tokenizers with the same characters share their merges."""
    first, parts = options.first_tokens, options.cutting.parts
    least, longest = options.min_frequency * scale, options.max_token_length or LONGEST
    words = split_characters(*count_words(documents, options.counted_parts, dictionary).words())
    frequencies = words.frequencies()
    runs = max(0, options.space_runs - 1)
    if options.space_token:
        del frequencies[" "]
    if runs:
        frequencies[" "] += 1  # the space must be a token: runs are merged from it
    available_of = {size: size - len(first) - len(BYTE_PIECES) - runs for size in options.sizes}
    chosen = {
        size: choose_characters(frequencies, available, options.coverage)
        for size, available in available_of.items()
    }
    learned: dict[int, tuple[list[str], list[Merge]]] = {}
    trained = []
    for size in options.sizes:
        kept, share = chosen[size]
        if len(kept) not in learned:
            most = max(available_of[s] for s in options.sizes if len(chosen[s][0]) == len(kept))
            bases = sorted(kept)
            numbers = {character: k for k, character in enumerate(bases)}
            spelled = [t for t in (*options.banned, *BYTE_PIECES) if set(t) <= numbers.keys()]
            banned = [[numbers[character] for character in token] for token in spelled]
            merges = learn_word_merges(
                number_words(words, [*map(ord, bases)]), most, least, longest, banned
            )
            learned[len(kept)] = token_names(bases, merges), merges
        names, merges = learned[len(kept)]
        fewer = first_merges(names, [(a, b) for a, b, _ in merges], available_of[size])
        fewer = add_space_runs(*fewer, len(kept), " ", options.space_runs)
        last = options.padding[: -(len(first) + len(BYTE_PIECES) + len(fewer[0])) % options.pad_to]
        tokenizer = build_char_bpe(*fewer, first, last, parts, options.space_token)
        trained.append(Trained(tokenizer, True, len(kept), share))
    return trained


def build_char_bpe(
    names: Sequence[str],
    merges: Sequence[tuple[int, int]],
    first: Sequence[str],
    last: Sequence[str],
    parts: Sequence[str],
    space: str | None = None,
) -> Tokenizer:
    """Build a character BPE from learned tokens. names: the learned tokens, in which spaces are
    spaces, not U+2581; merges: (left, right) as indices in `names`; first, last: the special tokens
    with ids before and after the byte and learned tokens; parts: patterns that cut text, applied in
    this order; space: the token in `first` that stands for a space."""
    ids = {token: number for number, token in enumerate([*first, *BYTE_PIECES, *names, *last])}
    pairs = [(names[left], names[right]) for left, right in merges]
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=pairs, byte_fallback=True))
    splits = [pre_tokenizers.Split(Regex(part), behavior="isolated") for part in parts]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    add_tokens(tokenizer, [token for token in [*first, *last] if token != space], space)
    return tokenizer
