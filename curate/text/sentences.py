"""An approximate sentence counter for C4's rule of at least three sentences.

C4 counts with NLTK's Punkt model for English, which no wheel ships. This counter has the boundary
rules that Punkt learns, not its learned list. A word that ends in `!` or `?` (closing quotes and
brackets aside) ends a sentence. A word that ends in `.` does too, unless the next word starts in
lower case, or the word is an initial (`J.`), has inner periods (`e.g.`, `U.S.`) or is a common
English abbreviation. The last word of a line always ends a sentence. Full stops of CJK, danda and
similar marks do so anywhere. `benchmarks/sentence_counter.py` counts disagreements with Punkt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from curate.text.lines import Extents
from curate.text.tables import segments
from curate.text.unicode import ASCII_SPACE, is_lower_ascii, space_bytes
from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import sorted_index

if TYPE_CHECKING:
    from curate.documents.documents import Documents


ABBREVIATIONS = (
    "mr mrs ms dr prof st mt sr jr vs etc inc ltd co corp no vol fig al cf ed eds gen col sgt capt "
    "lt rev hon gov sen rep pres dept univ approx est jan feb mar apr jun jul aug sep sept oct nov "
    "dec ave blvd rd"
).split()
_LONGEST = max(map(len, ABBREVIATIONS))


def _pack(word: str) -> int:
    value = 0
    for letter in word.encode():
        value = value * 32 + (letter - 96)
    return value


# Five bits per letter: six letters or fewer fit, so equal packed words are equal words.
_PACKED = np.array(sorted(_pack(w) for w in ABBREVIATIONS), np.int64)
# Last bytes of words that may end a sentence: `.!?`, closing quotes and brackets.
_MAY_END = np.zeros(256, np.bool_)
_MAY_END[list(b".!?\"')]}\x99\x9d\xbb")] = True


@njit(nogil=True)
def _closer_bytes(data, i, end):
    """Return the size of a closing quote or bracket whose last byte is at i, else 0."""
    b = data[i]
    if b == 34 or b == 39 or b == 41 or b == 93 or b == 125:
        return 1
    if i - 2 >= end and data[i - 2] == 0xE2 and data[i - 1] == 0x80 and (b == 0x99 or b == 0x9D):
        return 3
    if i - 1 >= end and data[i - 1] == 0xC2 and b == 0xBB:
        return 2
    return 0


@njit(nogil=True)
def _is_abbreviation(data, start, stop):  # stop: before the last period
    while start < stop and (data[start] == 40 or data[start] == 34 or data[start] == 39):
        start += 1
    n = stop - start
    if n <= 0:
        return False
    value = np.int64(0)
    for i in range(start, stop):
        b = data[i]
        if b == 46:
            return True
        if 65 <= b <= 90:
            b += 32
        if not is_lower_ascii(b):
            return False
        if i - start < _LONGEST:
            value = value * 32 + (b - 96)
    if n == 1:
        return data[start] < 97 and data[start] != 73  # an initial; "I." ends a sentence
    if n > _LONGEST:
        return False
    return sorted_index(_PACKED, value) >= 0


# Marks that end a sentence anywhere, in scripts that have them (Unicode's property
# Sentence_Terminal), and closing quotes and brackets that belong to the sentence before (Close).
STOPS = "。！？｡।॥؟۔։።፧။។៕"
CLOSERS = "」』】》〉〕）”’»\"')]}"


def _packed_utf8(characters: str) -> tuple[np.ndarray, np.ndarray]:
    """Return (codes, begins). `codes` (uint32[characters], sorted) has each character's UTF-8 bytes
    as one number. `begins` (bool[256]) is True for a byte that begins one of the characters."""
    encoded = [character.encode() for character in characters]
    begins = np.zeros(256, np.bool_)
    begins[[raw[0] for raw in encoded]] = True
    return np.array(sorted(int.from_bytes(raw, "big") for raw in encoded), np.uint32), begins


_STOPS, _STOP_BEGINS = _packed_utf8(STOPS)
_TRAILING, _TRAILING_BEGINS = _packed_utf8(STOPS + CLOSERS)


@njit(nogil=True)
def _mark_bytes(data, i, end, marks, begins):
    """Return the size of the character at i if it is one of the marks, else 0."""
    b = data[i]
    if not begins[b]:
        return 0
    size = 1 + (b >= 0xC0) + (b >= 0xE0)
    if i + size > end:
        return 0
    value = np.uint32(b)
    for k in range(i + 1, i + size):
        value = np.uint32(value << 8 | data[k])
    return size if sorted_index(marks, value) >= 0 else 0


@njit(nogil=True)
def _stop_end(data, i, end):
    """Return the end of a sentence with a full stop at i: the position after further stops and
    closing marks (UAX #29, SB8a to SB11). Return i if there is no stop at i."""
    n = _mark_bytes(data, i, end, _STOPS, _STOP_BEGINS)
    while n:
        i += n
        n = _mark_bytes(data, i, end, _TRAILING, _TRAILING_BEGINS) if i < end else 0
    return i


@njit(nogil=True)
def _stops(data, start, end):
    """Find sentences in data[start:end] with a full stop that needs no space after it. Return
    (their number, where the last one ends, or `start` if nothing is found)."""
    stops = 0
    after = i = start
    while i < end:
        z = _stop_end(data, i, end)
        if z > i:
            stops += 1
            after = z
        i = max(z, i + 1)
    return stops, after


@njit(nogil=True, inline="always")
def may_end(b):
    """Return True if a word whose last byte is b can be the last word of a sentence."""
    return _MAY_END[b]


@njit(nogil=True)
def ends_sentence(data, word, stop, following, end):
    """Return True if data[word:stop] ends a sentence; the next word starts at `following`."""
    while stop > word:
        n = _closer_bytes(data, stop - 1, word)
        if n == 0:
            break
        stop -= n
    if stop == word:
        return False
    mark = data[stop - 1]
    if mark == 33 or mark == 63:
        return True
    if mark != 46:
        return False
    b = data[following]
    if (b == 34 or b == 39 or b == 40) and following + 1 < end:
        b = data[following + 1]
    return not (is_lower_ascii(b) or _is_abbreviation(data, word, stop - 1))


@njit(nogil=True)
def sentences_of_words(data, start, end, chars, first, stop):
    """Return the number of sentences in a line with the words data[start[w]:end[w]], first <= w <
    stop. `chars` (int32[words]) is the number of code points of each word. If this equals the
    number of the word's bytes, the word is ASCII."""
    sentences = 0
    pending = False
    for w in range(np.uint64(first), np.uint64(stop)):  # unsigned: see text/tables.py
        a, z = start[w], end[w]
        if chars[w] != z - a:
            marks, a = _stops(data, a, z)
            sentences += marks
            if a == z:
                pending = False
                continue
        pending = True
        if (
            _MAY_END[data[np.uint64(z - 1)]]
            and w + 1 < stop
            and ends_sentence(data, a, z, start[w + 1], end[w + 1])
        ):
            sentences += 1
            pending = False
    return sentences + 1 if pending else sentences


# Kinds of bytes: part of a word, ASCII white space, or dependent on the next bytes.
_PLAIN, _SPACE, _MORE = 0, 1, 2
_BYTE = np.zeros(256, np.uint8)
_BYTE[:128] = np.where(ASCII_SPACE[:128], _SPACE, _PLAIN)
_BYTE[128:] = _MORE


@njit(nogil=True)
def count_words_sentences(data: np.ndarray, start: int, end: int) -> tuple[int, int]:
    """Return the number of (words by `str.split`, sentences) in one line, data[start:end]."""
    words = sentences = 0
    pending = False  # the last word is in a sentence that has not ended
    undecided = False  # the next word decides if the last word ends a sentence
    last = last_end = start
    i = start
    while True:
        while i < end:
            kind = _BYTE[data[i]]
            if kind == _PLAIN:
                break
            n = 1 if kind == _SPACE else space_bytes(data, i, end)
            if n == 0:
                break
            i += n
        if i >= end:
            break
        words += 1
        if undecided and ends_sentence(data, last, last_end, i, end):
            sentences += 1
            pending = False
        last = i
        ascii = True
        while i < end:
            kind = _BYTE[data[i]]
            if kind == _SPACE:
                break
            if kind == _MORE:
                if space_bytes(data, i, end):
                    break
                ascii = False
            i += 1
        last_end = i
        undecided = False
        if not ascii:
            marks, last = _stops(data, last, last_end)
            sentences += marks
            if last == last_end:
                pending = False
                continue
        pending = True
        undecided = may_end(data[last_end - 1])
    return words, sentences + 1 if pending else sentences


@njit(nogil=True)
def count_sentences(data: np.ndarray, start: int, end: int) -> int:
    """Return the number of sentences in the line data[start:end]; 0 for an empty line."""
    return count_words_sentences(data, start, end)[1]


@njit(cache=True, nogil=True)
def _sentences(data, row_lines, line_words, word_start, word_end, word_chars):
    """Return the arrays of `Extents`: (rows: int64[rows + 1], start, end: int64[sentences])."""
    n_rows = len(row_lines) - 1
    limit = len(word_start)
    for w in range(len(word_start)):
        if word_chars[w] != word_end[w] - word_start[w]:
            limit += (word_end[w] - word_start[w]) // 3
    rows = np.empty(n_rows + 1, np.int64)
    start = np.empty(limit, np.int64)
    end = np.empty(limit, np.int64)
    n = 0
    for r in range(n_rows):
        rows[r] = n
        for k in range(row_lines[r], row_lines[r + 1]):
            stop = line_words[k + 1]
            begun = np.int64(-1)  # start of the sentence that has not ended yet
            for w in range(line_words[k], stop):
                a, z = word_start[w], word_end[w]
                if begun < 0:
                    begun = a
                if word_chars[w] != z - a:
                    i = a
                    while i < z:
                        after = _stop_end(data, i, z)
                        if after == i:
                            i += 1
                            continue
                        i = after
                        start[n], end[n] = begun, i
                        n += 1
                        begun = i
                        a = i
                    if a == z:
                        begun = np.int64(-1)
                        continue
                if (
                    w + 1 < stop
                    and may_end(data[z - 1])
                    and ends_sentence(data, a, z, word_start[w + 1], word_end[w + 1])
                ):
                    start[n], end[n] = begun, z
                    n += 1
                    begun = np.int64(-1)
            if begun >= 0:
                start[n], end[n] = begun, word_end[stop - 1]
                n += 1
    rows[n_rows] = n
    return rows, start[:n].copy(), end[:n].copy()


def sentences(docs: Documents) -> Extents:
    """Return the stripped sentences of all rows, computed once while the text is unchanged."""

    def build() -> Extents:
        tables = segments(docs)
        lines, words = tables.lines, tables.words
        data, _ = docs.buffers()
        return Extents(
            *_sentences(data, lines.rows, words.lines, words.start, words.end, words.chars)
        )

    return docs.table_of("sentences", build)
