"""The text that Unigram learns from: distinct segments, which no piece crosses, and their counts.

A sentence ends where SentencePiece's trainer ends or skips a sentence. No piece may contain a tab,
a line end, NUL or U+2581. SentencePiece skips a sentence with U+2585; here it is only cut at this
character, so no text is lost. Sentences are cut into words, each with the spaces before it. Words
are cut into segments at digits, between two scripts and at characters that are not pieces
(trainer_interface.cc of SentencePiece 0.2.3, IsValidSentencePiece).

To find seeds, learning must know which bytes follow a substring (unigram_seeds.py). So each segment
is stored with what follows it in the text: one byte or, at the end of a sentence, a zero and the
first byte of the document's next sentence.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from llmcurate.base.kernels import njit
from tokenize_kit.encode.trie import make_alphabet, number_characters
from tokenize_kit.learn.bpe import split_characters
from tokenize_kit.learn.words import WordCounts, weighted_batches
from tokenize_kit.pattern.categories import SCRIPTS, scripts
from tokenize_kit.segment import Dictionary

_SPACE = np.uint8(0x20)
SPACE_LEAD = np.uint8(0xE2)  # the first byte of U+2581, SentencePiece's space
# Kinds of characters, which decide where pieces end. All others: an index in SCRIPTS plus 3.
SPACES, DIGIT, INHERITED = 0, 1, 2
_FIRST_SCRIPT = 3


@dataclass(frozen=True)
class Words:
    """Distinct words. letters: uint8[], the words concatenated; ends: int64[words + 1]; counts:
    int64[words]; following: uint8[words], 0 if a space follows, else (at the end of a sentence) the
    first byte of the next sentence. Words with different `following` are counted separately."""

    letters: np.ndarray
    ends: np.ndarray
    counts: np.ndarray
    following: np.ndarray

    def frequencies(self) -> Counter[str]:
        return split_characters(self.letters, self.ends, self.counts).frequencies()


@dataclass(frozen=True)
class Segments:
    """Distinct segments of words. letters: uint8[], the segments, each with the one or two bytes
    that follow it in the text; ends: int64[segments + 1], bounds in `letters`; sizes:
    int64[segments], lengths without the following bytes; counts: int64[segments]."""

    letters: np.ndarray
    ends: np.ndarray
    sizes: np.ndarray
    counts: np.ndarray


def count_sentences(
    documents: Iterable[tuple[str, int]],
    space_cuts: bool = False,
    dictionary: Dictionary | None = None,
) -> Words:
    """Cut weighted texts into sentences, and count the distinct words of these. space_cuts: True if
    sentences also end at spaces; dictionary: words that become sentences of their own."""
    counted = WordCounts()
    for data, rows, weight in weighted_batches(documents):
        breaks = np.zeros(len(data) + 1, np.bool_)
        if dictionary:
            breaks[dictionary.cut(data, rows)] = True
        out, ends = _cut_sentences(data, rows, breaks, space_cuts)
        counted.add_pieces(out, 0, ends, np.full(len(ends), weight))
    letters, ends, counts = counted.words()
    starts, stops = ends[:-1], ends[1:]
    last = (stops - starts > 2) & (letters[np.maximum(stops - 2, 0)] == 0)
    following = np.where(last, letters[stops - 1], 0).astype(np.uint8)
    kept = np.ones(len(letters), np.bool_)
    kept[stops[last] - 1] = kept[stops[last] - 2] = False
    sizes = stops - starts - 2 * last
    return Words(letters[kept], np.cumsum(np.append(0, sizes)), counts, following)


@njit(nogil=True)
def _sentence_end(data, at, z, breaks, space_cuts):
    byte = data[at]
    if byte <= 0x0D:
        return 1 if byte == 0 or byte == 0x09 or byte == 0x0A or byte == 0x0D else 0
    if byte == _SPACE:
        return 1 if space_cuts else 0
    if byte == SPACE_LEAD and at + 3 <= z and data[at + 1] == 0x96:
        return 3 if data[at + 2] == 0x81 or data[at + 2] == 0x85 else 0
    return 0


@njit(cache=True, nogil=True)
def _cut_sentences(data, rows, breaks, space_cuts):
    """Cut texts into words; return (words: uint8[], ends: int64[]). After the last word of a
    sentence come a zero and the first byte of the text's next sentence; after the text's last
    sentence, that of its first sentence. Sentences end at line ends, tabs, NUL, U+2581, U+2585 and
    where `breaks` says. rows: bounds of the texts; breaks: bool[len(data) + 1], True if a sentence
    ends before the byte; space_cuts: True if spaces end sentences too."""
    out = np.empty(3 * len(data) + 2 * len(rows), np.uint8)
    ends = np.empty(len(data), np.int64)
    w = count = 0
    for row in range(len(rows) - 1):
        at, z = rows[row], rows[row + 1]
        first, waiting, spaces, inside = np.uint8(0), -1, False, False
        while at <= z:
            size = 1 if at == z else _sentence_end(data, at, z, breaks, space_cuts)
            if inside and (size > 0 or breaks[at]):
                out[w] = 0
                waiting = w + 1
                w += 2
                ends[count] = w
                count += 1
                inside = False
            if size > 0:
                at += size
                continue
            byte = data[at]
            if not inside:
                if waiting >= 0:
                    out[waiting] = byte if byte != _SPACE else SPACE_LEAD
                else:
                    first = byte if byte != _SPACE else SPACE_LEAD
                inside = True
            elif byte == _SPACE and not spaces:
                ends[count] = w
                count += 1
            spaces = byte == _SPACE
            out[w] = byte
            w += 1
            at += 1
        if waiting >= 0:
            out[waiting] = first
    return out[:w], ends[:count]


def character_kinds(kept: Sequence[str]) -> np.ndarray:
    """Return uint8[kept + 1]: element k is the kind (script, digit or space) of kept[k - 1];
    element 0 is unused. kept: sorted by code point. Hiragana and Katakana count as Han."""
    of_script = np.arange(len(SCRIPTS)) + _FIRST_SCRIPT
    for name, same in (("Hiragana", "Han"), ("Katakana", "Han"), ("Unknown", "Common")):
        of_script[SCRIPTS.index(name)] = of_script[SCRIPTS.index(same)]
    of_script[SCRIPTS.index("Inherited")] = INHERITED
    codes = np.array([ord(c) for c in kept], np.int64)
    kinds = of_script[scripts()[codes]]
    kinds[codes == 0x30FC] = of_script[SCRIPTS.index("Han")]  # the long vowel's sign
    kinds[(codes >= 0x30) & (codes <= 0x39) | (codes >= 0xFF10) & (codes <= 0xFF19)] = DIGIT
    kinds[codes == 0x20] = SPACES
    return np.append(0, kinds).astype(np.uint8)


def cut_segments(words: Words, kept: Sequence[str], symbols: Sequence[str] = ()) -> Segments:
    """Cut words into segments. kept: the characters that may be in pieces, sorted by code point;
    symbols: spellings that are cut out of the words."""
    alphabet, _ = make_alphabet([*kept])
    letters = words.letters
    if symbols:
        pattern = b"|".join(re.escape(s.encode()) for s in sorted(symbols, key=len, reverse=True))
        spans = [match.span() for match in re.finditer(pattern, letters.tobytes())]
        letters = letters.copy()
        for a, z in spans:
            letters[a:z] = 0
    out, ends, weights = _cut_words(
        letters, words.ends, words.counts, words.following, alphabet, character_kinds(kept)
    )
    counted = WordCounts()
    counted.add_pieces(out, 0, ends, weights)
    letters, ends, counts = counted.words()
    extra = np.where(letters[np.maximum(ends[1:] - 2, 0)] == 0, 2, 1)
    return Segments(letters, ends, np.diff(ends) - extra, counts)


@njit(nogil=True)
def _must_split(left, right):
    if left == DIGIT or right == DIGIT:
        return True
    return left >= _FIRST_SCRIPT and right >= _FIRST_SCRIPT and left != right


@njit(cache=True, nogil=True)
def _cut_words(letters, ends, counts, following, alphabet, kinds):
    out = np.empty(3 * len(letters) + 2, np.uint8)
    out_ends, out_counts = np.empty(len(letters), np.int64), np.empty(len(letters), np.int64)
    longest = 1
    for word in range(len(counts)):
        longest = max(longest, ends[word + 1] - ends[word])
    numbers, positions = np.empty(longest, np.int32), np.empty(longest + 1, np.int32)
    w = count = 0
    for word in range(len(counts)):
        a, z = ends[word], ends[word + 1]
        n = number_characters(alphabet, letters, a, z, numbers, positions)
        positions[n] = z - a
        i = 0
        while i < n:
            if numbers[i] == 0:
                i += 1
                continue
            j = i + 1
            while (
                j < n
                and numbers[j] != 0
                and not _must_split(kinds[numbers[j - 1]], kinds[numbers[j]])
            ):
                j += 1
            for k in range(a + positions[i], a + positions[j]):
                out[w] = letters[k]
                w += 1
            if j < n and numbers[j] != 0:
                out[w] = letters[a + positions[j]]
                w += 1
            elif j == n and following[word] == 0:
                out[w] = SPACE_LEAD
                w += 1
            else:  # the sentence ends here, or at a character that is not kept
                next_part = j
                while next_part < n and numbers[next_part] == 0:
                    next_part += 1
                out[w] = 0
                if next_part < n:
                    out[w + 1] = letters[a + positions[next_part]]
                else:
                    out[w + 1] = following[word] if following[word] != 0 else SPACE_LEAD
                w += 2
            out_ends[count] = w
            out_counts[count] = counts[word]
            count += 1
            i = j
    return out[:w], out_ends[:count], out_counts[:count]


def without_following(segments: Segments) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the distinct segments, sorted: (letters: uint8[], the segments concatenated; ends:
    int64[segments + 1], bounds in `letters`; counts: int64[segments], occurrences). The bytes that
    follow each segment in the text, which `segments` also stores, are left out."""
    starts = segments.ends[:-1]
    kept = np.ones(len(segments.letters), np.bool_)
    kept[segments.ends[1:] - 1] = False
    two = segments.ends[1:] - starts - segments.sizes == 2
    kept[segments.ends[1:][two] - 2] = False
    counted = WordCounts()
    letters = segments.letters[kept]
    counted.add_pieces(letters, 0, np.cumsum(segments.sizes), segments.counts)
    letters, ends, counts = counted.words()
    raw = letters.tobytes()
    spelled = [raw[a:z] for a, z in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]
    order = sorted(range(len(spelled)), key=spelled.__getitem__)
    joined = np.frombuffer(bytearray().join(spelled[k] for k in order), np.uint8)
    sizes = np.diff(ends)[order]
    return joined, np.cumsum(np.append(0, sizes)), counts[order]
