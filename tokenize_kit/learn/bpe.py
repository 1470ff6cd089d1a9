"""BPE over bytes and over characters: the merges that `tokenizers` learns, with counts in 64 bits.

The text is not normalised. It is cut by a pattern, each piece is spelled in 256 byte symbols,
and the most frequent adjacent pair is merged until the vocabulary is full. All 256 bytes are in
the vocabulary, so every string of Unicode scalars round-trips exactly.

SuperBPE: tokens that span words, learned behind those that do not (Liu et al. 2025). The first
merges are those of the pieces that the pattern cuts. From a given size of the vocabulary on, pieces
are whole lines: the merges so far are applied to them, as the tokenizer will, and learning goes on
with what that leaves. A token holds four words at most.

Over characters the vocabulary is special tokens, the 256 byte pieces `<0x00>` to `<0xFF>`,
characters by code point, and what merges make. A character beyond the coverage is spelled in bytes
and merges with nothing. No merge spells a byte piece, so that a literal <0x41> in a text stays
text."""

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
from tokenize_kit.learn.bpe_merges import LEAST, LONGEST, SHARE, STEP, Begun, learn
from tokenize_kit.learn.cutting import run_merges
from tokenize_kit.learn.options import COVERAGE, TrainingOptions
from tokenize_kit.learn.words import Text, WordCounts, lay_out, weighted_batches
from tokenize_kit.pattern.automaton import compile_pattern
from tokenize_kit.segment import Dictionary


@dataclass(frozen=True)
class Trained:
    """A tokenizer, and what its card says of how it was made. character_coverage: the share of the
    text whose characters are tokens; spm: SentencePiece's form of a Unigram."""

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
    names = token_names([bytes([byte]) for byte in ORDER], merges.tolist())
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
    cut_to_bytes(tokenizer, parts)
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


@dataclass(frozen=True)
class Words:
    """symbols: int32[], 0 to bases - 1, of all words one after the other; sizes, counts:
    int64[words]; bases: how many symbols there are."""

    symbols: np.ndarray
    sizes: np.ndarray
    counts: np.ndarray
    bases: int


Merge = tuple[int, int, int]  # the left and the right token, and the one that they make


def learn_word_merges(
    words: Words, most: int, least: int, longest: int, banned: Sequence[Sequence[int]]
) -> list[Merge]:
    """Merges of words of any symbols; most: tokens, symbols included; longest: symbols of a token;
    banned: tokens, as symbols, that no merge makes."""
    joined = np.array([symbol for token in banned for symbol in token], np.int32)
    bounds = np.cumsum([0, *map(len, banned)])
    text = lay_out(words.symbols, np.append(0, np.cumsum(words.sizes)), words.counts)
    merges = learn(text, words.bases, most, least, longest, joined, bounds)
    return [(left, right, merged) for left, right, merged in merges.tolist()]


def token_names(bases: Sequence[AnyStr], merges: Sequence[Merge]) -> list[AnyStr]:
    """The tokens: bases, then what merges make."""
    names = list(bases)
    for left, right, merged in merges:
        if merged == len(names):
            names.append(names[left] + names[right])
    return names


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


def train_byte_bpe(
    documents: Iterable[tuple[str, int]],
    options: TrainingOptions,
    scale: int = 1,
    dictionary: Dictionary | None = None,
) -> list[Trained]:
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
    if options.superwords is not None:
        subwords = options.superwords - options.unlearned
        names, merges = learn_superwords(
            documents, cut, parts, subwords, most, banned, least, longest
        )
    else:
        counted = count_words(documents, cut, dictionary)
        text = lay_out_words(*counted.words())
        del counted  # as much memory again
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
    """codes: uint32[characters] of all words; ends: int64[words + 1]; counts: int64[words]."""

    codes: np.ndarray
    ends: np.ndarray
    counts: np.ndarray

    def frequencies(self) -> Counter[str]:
        """Occurrences of every character, in 64 bits."""
        codes, numbers = np.unique(self.codes, return_inverse=True)
        sums = np.zeros(len(codes), np.int64)
        np.add.at(sums, numbers, np.repeat(self.counts, np.diff(self.ends)))
        return Counter(dict(zip(map(chr, codes.tolist()), sums.tolist(), strict=True)))


def split_characters(letters: np.ndarray, ends: np.ndarray, counts: np.ndarray) -> CharacterWords:
    """The characters of WordCounts.words(). letters: uint8[], whole UTF-8 characters; ends:
    int64[words + 1]."""
    codes = np.frombuffer(letters.tobytes().decode("utf-8").encode("utf-32-le"), np.uint32)
    begins = np.append(0, np.cumsum(letters & 0xC0 != 0x80))
    return CharacterWords(codes, begins[ends], counts)


def choose_characters(
    characters: Counter[str], available: int, coverage: float = COVERAGE
) -> tuple[list[str], float]:
    """The characters that become pieces, commonest first, and the share of the text they cover.

    The commonest that cover so much of the text, but at most half of the ``available`` tokens, so
    that words find a place too. Ties go by code point.
    """
    total, covered = characters.total(), 0
    kept: list[str] = []
    for character, count in sorted(characters.items(), key=lambda item: (-item[1], item[0])):
        if covered >= coverage * total or len(kept) >= max(1, available // 2):
            break
        kept.append(character)
        covered += count
    return kept, covered / max(1, total)


def number_words(words: CharacterWords, kept: Sequence[str]) -> Words:
    """The words as numbers of the kept characters, cut where a character is not one of them.

    kept: sorted by code point; a character's number is its position there.
    """
    codes = np.array([ord(c) for c in kept], np.uint32)
    positions = np.searchsorted(codes, words.codes)
    inside = positions < len(codes)
    inside[inside] = codes[positions[inside]] == words.codes[inside]
    begins = np.zeros(len(words.codes), np.bool_)
    begins[words.ends[:-1][words.ends[:-1] < len(words.codes)]] = True
    begins[1:] |= ~inside[:-1]  # behind a rare character a word begins anew
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
    """A tokenizer of each of the sizes, from one count.

    documents, scale: as of train_byte_bpe. Sizes with the same characters are learned together.
    """
    first, parts = options.first_tokens, options.cutting.parts
    least, longest = options.min_frequency * scale, options.max_token_length or LONGEST
    words = split_characters(*count_words(documents, options.counted_parts, dictionary).words())
    frequencies = words.frequencies()
    runs = max(0, options.space_runs - 1)
    if options.space_token:
        del frequencies[" "]
    if runs:
        frequencies[" "] += 1  # whose runs are tokens
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
            merges = learn_word_merges(number_words(words, bases), most, least, longest, banned)
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
    """The tokenizer of learned tokens, cut by patterns; a space is a space, not U+2581."""
    ids = {token: number for number, token in enumerate([*first, *BYTE_PIECES, *names, *last])}
    pairs = [(names[left], names[right]) for left, right in merges]
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=pairs, byte_fallback=True))
    splits = [pre_tokenizers.Split(Regex(part), behavior="isolated") for part in parts]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    add_tokens(tokenizer, [token for token in [*first, *last] if token != space], space)
    return tokenizer
