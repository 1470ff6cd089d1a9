"""The word table: runs of `\\w` or marks, lower-cased and hashed once for filters, dedup, models.

A word is a run of letters, digits, underscores (Python's `\\w`) and marks (`\\p{M}`, which belong
to their letters), by the running Python's Unicode data. Scripts written without spaces (Thai, Lao,
Khmer, Burmese, Han, kana) are cut by grapheme cluster: a base character with its marks is a word.
Hashes are those of words in lower case (Unicode's simple mapping), so that shingles ignore case.
"""

from __future__ import annotations

import sys
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from curate.text.hashing import mix
from curate.text.unicode import char_bytes, code_point
from llmcurate.base.kernels import njit

if TYPE_CHECKING:
    from curate.documents.documents import Documents

PRIME = np.uint64(0x9E3779B97F4A7C15)
OTHER, LETTER, DIGIT, CONNECTOR, MARK, CLUSTER = range(6)
_BLOCK = 256  # code points that are classified together
# Word flags.
HAS_LETTER, HAS_DIGIT, IS_CLUSTER = 1, 2, 4

# Scripts without spaces between words: first and last code point of their blocks.
UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x31F0, 0x31FF),  # Katakana extensions
    (0x3400, 0x4DBF),  # Han, extension A
    (0x4E00, 0x9FFF),  # Han
    (0xA9E0, 0xA9FF),  # Burmese extended
    (0xAA60, 0xAA7F),
    (0xF900, 0xFAFF),  # Han compatibility
    (0x20000, 0x3FFFF),  # Han extensions
)


@dataclass(frozen=True)
class Words:
    """The words of a batch. `rows` (int64[rows + 1]): the index of each row's first word. `start`,
    `end` (int64[words]): byte positions. `hash` (uint64[words]): of the lower-case word. `chars`
    (int32[words]): code points. `flags` (uint8[words]): HAS_LETTER | HAS_DIGIT | IS_CLUSTER
    (the word is a grapheme cluster of a script without spaces)."""

    rows: np.ndarray
    start: np.ndarray
    end: np.ndarray
    hash: np.ndarray
    chars: np.ndarray
    flags: np.ndarray


@lru_cache(maxsize=1)
def character_tables() -> tuple[np.ndarray, np.ndarray]:
    """Return the class and the lower case of every code point, uint8 and int32[0x110000]."""
    kinds = np.zeros(sys.maxunicode + 1, np.uint8)
    lower = np.arange(sys.maxunicode + 1, dtype=np.int32)
    for start in (*range(0, 0x40000, _BLOCK), *range(0xE0000, 0xF0000, _BLOCK)):  # no other
        # Letters, marks and numbers are printable; most blocks are all letters or empty.
        letters = "".join(filter(str.isprintable, map(chr, range(start, start + _BLOCK))))
        if len(letters) == _BLOCK and letters.isalpha() and letters.lower() == letters:
            kinds[start : start + _BLOCK] = LETTER
            continue
        for letter in letters:
            code = ord(letter)
            category = unicodedata.category(letter)
            if category[0] == "L":
                kinds[code] = LETTER
            elif category[0] == "M":
                kinds[code] = MARK
            elif category[0] == "N":
                kinds[code] = DIGIT if letter.isalnum() else OTHER
            elif letter == "_":
                kinds[code] = CONNECTOR
            if category == "Lu" or category == "Lt":
                small = letter.lower()
                if len(small) == 1:
                    lower[code] = ord(small)
    for first, last in UNSPACED:
        block = kinds[first : last + 1]
        block[block == LETTER] = CLUSTER
    return kinds, lower


@njit(cache=True, nogil=True)
def _segment(data, offsets, fold, ascii_flags, kinds, lower):
    rows = len(offsets) - 1
    size = offsets[rows] - offsets[0]
    row_words = np.empty(rows + 1, np.int64)
    # Upper bounds; untouched memory costs nothing.
    start = np.empty(size + 1, np.int64)
    end = np.empty(size + 1, np.int64)
    hashes = np.empty(size + 1, np.uint64)
    chars = np.empty(size + 1, np.int32)
    flags = np.empty(size + 1, np.uint8)
    words = 0
    for r in range(rows):
        row_words[r] = words
        i, stop = offsets[r], offsets[r + 1]
        inside = False
        value = np.uint64(0)
        first = i
        n_chars = 0
        flag = 0
        while i < stop:
            b = data[i]
            if b < 0x80 and not flag & IS_CLUSTER:
                # Without branches, since word ends cannot be predicted.
                c = fold[b]
                word = c != 0
                start[words] = first
                end[words] = i
                hashes[words] = value
                chars[words] = n_chars
                flags[words] = flag
                words += int(inside) & int(not word)
                first = first if inside else i
                value = (value ^ np.uint64(c)) * PRIME * np.uint64(word)
                n_chars = (n_chars + 1) * int(word)
                flag = (flag | ascii_flags[b]) * int(word)
                inside = word
                i += 1
                continue
            code, n = np.int64(b), 1
            if b >= 0x80:
                code, n = np.int64(code_point(data, i, stop)), char_bytes(b)
                if code < 0 or code > 0x10FFFF:
                    code = np.int64(0)
            kind = kinds[code]
            if inside and (
                kind == OTHER or kind == CLUSTER or (flag & IS_CLUSTER and kind != MARK)
            ):
                start[words], end[words] = first, i
                hashes[words] = value
                chars[words] = n_chars
                flags[words] = flag
                words += 1
                inside = False
                value = np.uint64(0)
                n_chars = 0
                flag = 0
            if kind != OTHER:
                first = first if inside else i
                inside = True
                value = (value ^ np.uint64(lower[code])) * PRIME
                n_chars += 1
                if kind == LETTER:
                    flag |= HAS_LETTER
                elif kind == DIGIT:
                    flag |= HAS_DIGIT
                elif kind == CLUSTER:
                    flag |= HAS_LETTER | IS_CLUSTER
            i += n
        if inside:
            start[words], end[words] = first, stop
            hashes[words] = value
            chars[words] = n_chars
            flags[words] = flag
            words += 1
    row_words[rows] = words
    for k in range(words):
        hashes[k] = mix(hashes[k])
    return row_words, start[:words], end[:words], hashes[:words], chars[:words], flags[:words]


@lru_cache(maxsize=1)
def ascii_fold() -> np.ndarray:
    """Return uint8[256]: the lower case of ASCII bytes that words may have, 0 for other bytes."""
    kinds, lower = character_tables()
    fold = np.zeros(256, np.uint8)
    fold[:128] = np.where(kinds[:128] == OTHER, 0, lower[:128])
    return fold


@lru_cache(maxsize=1)
def ascii_flags() -> np.ndarray:
    """Return uint8[256]: for ASCII letters HAS_LETTER, for ASCII digits HAS_DIGIT, else 0."""
    kinds, _ = character_tables()
    flags = np.zeros(256, np.uint8)
    flags[:128] = np.choose(kinds[:128], (0, HAS_LETTER, HAS_DIGIT, 0, 0, 0))
    return flags


@njit(nogil=True)
def word_hashes(data, start, stop, fold, kinds, lower, out):
    """Write the hashes (as in Words.hash) of the words in data[start:stop] to `out`: uint64[], at
    least stop - start + 1 long. Return the number of words. kinds, lower: of character_tables."""
    words = 0
    value = np.uint64(0)
    inside = cluster = False
    i = start
    while i < stop:
        b = data[i]
        if b < 0x80 and not cluster:
            c = fold[b]
            word = c != 0
            out[words] = value
            words += int(inside) & int(not word)
            value = (value ^ np.uint64(c)) * PRIME * np.uint64(word)
            inside = word
            i += 1
            continue
        code, n = np.int64(b), 1
        if b >= 0x80:
            code, n = np.int64(code_point(data, i, stop)), char_bytes(b)
            if code < 0 or code > 0x10FFFF:
                code = np.int64(0)
        kind = kinds[code]
        if inside and (kind == OTHER or kind == CLUSTER or (cluster and kind != MARK)):
            out[words] = value
            words += 1
            inside = cluster = False
            value = np.uint64(0)
        if kind != OTHER:
            value = (value ^ np.uint64(lower[code])) * PRIME
            inside = True
            cluster = cluster or kind == CLUSTER
        i += n
    if inside:
        out[words] = value
        words += 1
    for k in range(words):
        out[k] = mix(out[k])
    return words


def word_table(data: np.ndarray, offsets: np.ndarray) -> Words:
    """Return the positions, hash, length and flags of each word. offsets: int64[rows + 1]."""
    return Words(*_segment(data, offsets, ascii_fold(), ascii_flags(), *character_tables()))


def words(docs: Documents) -> Words:
    """Return the positions, hash, length and flags of each word, computed once per text."""
    return docs.table_of("words", lambda: word_table(*docs.buffers()))
