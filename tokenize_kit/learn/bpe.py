"""Byte-level BPE, with the merges that `tokenizers` learns and counts in 64 bits.

The text is not normalised. It is cut by a pattern, each piece is spelled in 256 byte symbols,
and the most frequent adjacent pair is merged until the vocabulary is full. All 256 bytes are in
the vocabulary, so every string of Unicode scalars round-trips exactly.

The vocabulary is special tokens, the 256 byte pieces `<0x00>` to `<0xFF>`, characters by code
point, and what merges make. A character beyond the coverage is spelled in bytes and merges with
nothing. No merge spells a byte piece, so that a literal <0x41> in a text stays text.

Learners of merges: our own, SentencePiece's, and that of `tokenizers`.

Words are numbered symbols (bytes, characters, or WordPiece's two kinds of characters), so that a
learner takes all of them. SentencePiece is shown each symbol as a private-use character."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, AnyStr

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from llmcurate.base.errors import RunFailed
from tokenize_kit.formats.tokenizer_json import LETTERS, add_tokens, from_letters
from tokenize_kit.learn.bpe_merges import LONGEST, learn
from tokenize_kit.learn.byte_words import (
    build_tokenizer,
    byte_ids,
    count_words,
    lay_out_words,
    learn_merges,
    learn_superwords,
    merged_names,
)
from tokenize_kit.learn.cutting import run_merges
from tokenize_kit.learn.options import COVERAGE, TrainingOptions
from tokenize_kit.learn.words import lay_out
from tokenize_kit.segment.dictionary import Dictionary

if TYPE_CHECKING:
    from tokenize_kit.segment.dictionary import Dictionary


_PLANES = ((0xF0000, 0xFFFE), (0x100000, 0xFFFE))  # private use: first code point, how many
MOST_SYMBOLS = sum(size for _, size in _PLANES)
_LONGEST = 512  # symbols of a piece at most in SentencePiece
_WORD = 60_000  # symbols of a word: SentencePiece counts positions in 16 bits


@dataclass(frozen=True)
class Words:
    """symbols: int32[], 0 to bases - 1, of all words one after the other; sizes, counts:
    int64[words]; bases: how many symbols there are."""

    symbols: np.ndarray
    sizes: np.ndarray
    counts: np.ndarray
    bases: int


Merge = tuple[int, int, int]  # the left and the right token, and the one that they make


def learn_own(
    words: Words, most: int, least: int, longest: int, banned: Sequence[Sequence[int]]
) -> list[Merge]:
    """Merges by `bpe_merges.learn`; most: tokens, symbols included; longest: symbols of a token;
    banned: tokens, as symbols, that no merge makes."""
    joined = np.array([symbol for token in banned for symbol in token], np.int32)
    bounds = np.cumsum([0, *map(len, banned)])
    text = lay_out(words.symbols, np.append(0, np.cumsum(words.sizes)), words.counts)
    merges = learn(text, words.bases, most, least, longest, joined, bounds)
    return [(left, right, merged) for left, right, merged in merges.tolist()]


def learn_sentencepiece(
    words: Words, most: int, longest: int, banned: Sequence[Sequence[int]]
) -> list[Merge]:
    """Merges by SentencePiece's BPE trainer.

    Its pieces come in the order of its merges. Their merges are all ways to make a piece of two
    others, which is how SentencePiece itself encodes: by the piece, not by its parts.
    """
    import sentencepiece

    if words.bases > MOST_SYMBOLS:
        raise RunFailed(f"backend sentencepiece: more than {MOST_SYMBOLS} characters; use own")
    if not len(words.symbols) or most <= words.bases:
        return []
    occurring = len(np.unique(words.symbols))
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_lines(words),
            input_format="tsv",
            model_writer=model,
            model_type="bpe",
            # Merges, symbols, the unknown token, and as many more as may turn out to be banned.
            vocab_size=most - words.bases + occurring + 1 + len(banned),
            hard_vocab_limit=False,
            normalization_rule_name="identity",
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            split_by_unicode_script=False,
            split_by_number=False,
            character_coverage=1.0,
            max_sentencepiece_length=min(longest, _LONGEST),
            max_sentence_length=2**30,
            input_sentence_size=0,
            shuffle_input_sentence=False,
            num_threads=1,
            unk_id=0,
            bos_id=-1,
            eos_id=-1,
            pad_id=-1,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        reason = str(error).strip().splitlines()[-1] if str(error).strip() else "no reason given"
        raise RunFailed(f"SentencePiece could not train: {reason}; use backend own") from error
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    spelled = (_symbols(pieces.id_to_piece(k)) for k in range(1, pieces.get_piece_size()))
    refused = set(map(tuple, banned))
    return _merges_of((s for s in spelled if len(s) > 1 and s not in refused), words.bases, most)


def _letter(symbol: int) -> str:
    (first, size), (second, _) = _PLANES
    return chr(first + symbol if symbol < size else second + symbol - size)


def _symbols(piece: str) -> tuple[int, ...]:
    (first, size), (second, _) = _PLANES
    return tuple(ord(c) - first if ord(c) < second else ord(c) - second + size for c in piece)


def _lines(words: Words) -> Iterator[str]:
    """Words with their counts, sorted: the order in which they were met decides nothing."""
    letters = np.array([_letter(k) for k in range(words.bases)])
    ends = np.append(0, np.cumsum(words.sizes))
    texts = (words.symbols[a:z] for a, z in pairwise(ends.tolist()))
    counted = zip(texts, words.counts.tolist(), strict=True)
    spelled = sorted(("".join(letters[symbols]), count) for symbols, count in counted)
    for word, count in spelled:
        for k in range(0, len(word), _WORD):
            yield f"{word[k : k + _WORD]}\t{count}"


def _merges_of(pieces: Iterator[tuple[int, ...]], bases: int, most: int) -> list[Merge]:
    numbers: dict[tuple[int, ...], int] = {(k,): k for k in range(bases)}
    merges = []
    for piece in pieces:
        if len(numbers) >= most:
            break
        splits = ((piece[:k], piece[k:]) for k in range(1, len(piece)))
        pairs = [(numbers[a], numbers[b]) for a, b in splits if a in numbers and b in numbers]
        if pairs:  # a piece whose parts were banned cannot be made
            merges += [(left, right, len(numbers)) for left, right in sorted(pairs)]
            numbers[piece] = len(numbers)
    return merges


def token_names(bases: Sequence[AnyStr], merges: Sequence[Merge]) -> list[AnyStr]:
    """The tokens: bases, then what merges make."""
    names = list(bases)
    for left, right, merged in merges:
        if merged == len(names):
            names.append(names[left] + names[right])
    return names


def learn_with_backend(
    words: Words, options: TrainingOptions, most: int, scale: int, banned: Sequence[Sequence[int]]
) -> list[Merge]:
    """Merges by the learner that the options name."""
    longest = options.max_token_length or LONGEST
    if options.learner == "sentencepiece":
        return learn_sentencepiece(words, most, longest, banned)
    return learn_own(words, most, options.min_frequency * scale, longest, banned)


def learn_tokenizers(
    documents: Iterable[tuple[str, int]],
    parts: Sequence[str],
    most: int,
    least: int,
    longest: int,
    banned: Sequence[bytes],
) -> tuple[list[bytes], list[tuple[int, int]]]:
    """(tokens, merges) as bpe.learn_merges gives them, learned by `tokenizers`.

    It counts in 32 bits, without the documents' weights. It makes the spellings of special tokens,
    which are taken out here.
    """
    tokenizer = Tokenizer(models.BPE())
    splits = [pre_tokenizers.Split(Regex(part), behavior="isolated") for part in parts]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=most,
        min_frequency=least,
        initial_alphabet=sorted(LETTERS),
        max_token_length=min(longest, 1 << 32),
        show_progress=False,
    )
    tokenizer.train_from_iterator((text for text, _ in documents), trainer=trainer)
    model = json.loads(tokenizer.to_str())["model"]
    refused = set(banned)
    spelled = [
        from_letters(token) for token in sorted(model["vocab"], key=model["vocab"].__getitem__)
    ]
    merges = [(from_letters(left), from_letters(right)) for left, right in model["merges"]]
    while True:  # a token that is taken out takes those along that can only be made of it
        kept = [(a, b) for a, b in merges if not {a, b, a + b} & refused]
        merged = {a + b for a, b in kept}
        lost = {name for name in spelled if len(name) > 1 and name not in merged} - refused
        if not lost:
            break
        refused |= lost
    names = [name for name in spelled if name not in refused]
    numbers = {name: k for k, name in enumerate(names)}
    return names, [(numbers[a], numbers[b]) for a, b in kept]


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


BYTE_PIECES = tuple(f"<0x{byte:02X}>" for byte in range(256))


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


def character_numbers(tokens: Iterable[str], kept: Sequence[str]) -> list[list[int]]:
    """Tokens as numbers of characters; those with a character that is not kept are left out."""
    numbers = {character: k for k, character in enumerate(kept)}
    return [[numbers[c] for c in token] for token in tokens if set(token) <= numbers.keys()]


def train_char_bpe(
    documents: Iterable[tuple[str, int]],
    options: TrainingOptions,
    scale: int = 1,
    dictionary: Dictionary | None = None,
) -> list[tuple[Tokenizer, dict[str, Any]]]:
    """A tokenizer of each of the sizes, from one count, and what its card says of it.

    documents, scale: as in bpe.train_sizes. Sizes with the same characters are learned together.
    """
    first, parts = options.first_tokens, options.cutting.parts
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
            banned = character_numbers([*options.banned, *BYTE_PIECES], bases)
            merges = learn_with_backend(number_words(words, bases), options, most, scale, banned)
            learned[len(kept)] = token_names(bases, merges), merges
        names, merges = learned[len(kept)]
        fewer = first_merges(names, [(a, b) for a, b, _ in merges], available_of[size])
        fewer = add_space_runs(*fewer, len(kept), " ", options.space_runs)
        last = options.padding[: -(len(first) + len(BYTE_PIECES) + len(fewer[0])) % options.pad_to]
        details = {"byte_fallback": True, "characters": len(kept), "character_coverage": share}
        trained.append((build_char_bpe(*fewer, first, last, parts, options.space_token), details))
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
