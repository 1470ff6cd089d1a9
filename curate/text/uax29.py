"""Words as Unicode's default word boundaries cut them (UAX #29, section 4.1), and their hashes.

This is a word table of its own beside `text/words.py`: what bff, Dolma and other tools in Rust call
`split_word_bounds`. Punctuation marks are words too, nothing is folded; only pieces of nothing but
white space (property White_Space) are left out. Han, kana other than katakana, Thai and the like
are one word a character with its marks.

The classes are Unicode's of the version UNICODE, from a table that is part of the package, so that
hashes do not depend on the Python that runs. Rules WB5 to WB13 become a table of states; the class
of the last character that counts (WB4 passes over marks) is the state.
"""

from __future__ import annotations

import sys
import zlib
from base64 import b85decode
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from curate.text.hashing import mix
from curate.text.uax29_data import RUNS, UNICODE
from curate.text.unicode import char_bytes, code_point
from kernel_cache import njit

__all__ = ["CLASSES", "PICTOGRAPH", "UNICODE", "UaxWords", "class_table", "uax_words"]

CLASSES = (
    *("Other", "CR", "LF", "Newline", "Extend", "Format", "ZWJ", "WSegSpace", "ALetter"),
    *("Hebrew_Letter", "MidLetter", "MidNum", "MidNumLet", "Single_Quote", "Double_Quote"),
    *("Numeric", "Katakana", "ExtendNumLet", "Regional_Indicator"),
)
OTHER, CR, LF, NEWLINE, EXTEND, FORMAT, ZWJ, SPACE, LETTER = range(9)
HEBREW, MID_LETTER, MID_NUM, MID_BOTH, SINGLE, DOUBLE = range(9, 15)
NUMERIC, KATAKANA, JOINER, REGION = range(15, 19)
# Added to a class: Extended_Pictographic (WB3c), and White_Space.
PICTOGRAPH, WHITE = 32, 64
_KIND = 31
# States beside the classes: an odd number of regional indicators is REGION, an even one is
# REGIONS; behind a mark in a word, which only a letter or a number follows; the text's start.
REGIONS, IN_LETTERS, IN_NUMBER, START = range(len(CLASSES), len(CLASSES) + 4)
_WIDTH = 32
_JOIN, _LOOK = 32, 64  # beside the next state: no boundary; the rule looks ahead
_WHITE_SPACE = (
    *((9, 13), (0x20, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A)),
    *((0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)),
)
_PRIME = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xD1B54A32D192ED03)


@dataclass(frozen=True)
class UaxWords:
    """rows: int64[rows + 1], the first word of each row; start, end: int64[words], byte positions
    in the buffer; hash: uint64[words], of the word's bytes."""

    rows: np.ndarray
    start: np.ndarray
    end: np.ndarray
    hash: np.ndarray


@lru_cache(maxsize=1)
def class_table() -> np.ndarray:
    """uint8[0x110000]: the word break class of every code point, with PICTOGRAPH and WHITE.

    RUNS has a LEB128 number (how far from the last run's start) and a class for each run.
    """
    table = np.zeros(sys.maxunicode + 1, np.uint8)
    packed = zlib.decompress(b85decode(RUNS))
    at = i = 0
    while i < len(packed):
        shift = 0
        while packed[i] > 127:
            at += (packed[i] & 127) << shift
            shift += 7
            i += 1
        at += packed[i] << shift
        table[at:] = packed[i + 1]
        i += 2
    for first, last in _WHITE_SPACE:
        table[first : last + 1] |= WHITE
    return table


@lru_cache(maxsize=1)
def state_table() -> np.ndarray:
    """uint8[states * 32]: for a state and a class the next state, with _JOIN where there is no
    boundary before the character and _LOOK where that depends on what comes behind it."""
    table = np.zeros((START + 1, _WIDTH), np.uint8)
    letters, words = (LETTER, HEBREW), (LETTER, HEBREW, NUMERIC, KATAKANA, JOINER)
    for kind in range(len(CLASSES)):
        table[:, kind] = kind  # WB999, WB3a, WB3b
    for state in range(START + 1):
        if state in (CR, LF, NEWLINE, START):
            table[state, [EXTEND, FORMAT, ZWJ]] = OTHER
        else:  # WB4; behind a mark a space no longer joins one
            table[state, [EXTEND, FORMAT, ZWJ]] = (OTHER if state == SPACE else state) | _JOIN
    table[CR, LF] = LF | _JOIN  # WB3
    table[SPACE, SPACE] = SPACE | _JOIN  # WB3d
    for state in (*letters, NUMERIC, IN_LETTERS):
        for kind in letters:  # WB5, WB10, WB7, WB7c
            table[state, kind] = kind | _JOIN
    for state in (*letters, NUMERIC, IN_NUMBER):
        table[state, NUMERIC] = NUMERIC | _JOIN  # WB8, WB9, WB11
    for state in letters:  # WB6, WB7a, WB7b
        table[state, [MID_LETTER, MID_BOTH, SINGLE]] |= _LOOK
    table[HEBREW, DOUBLE] |= _LOOK
    table[NUMERIC, [MID_NUM, MID_BOTH, SINGLE]] |= _LOOK  # WB12
    table[KATAKANA, KATAKANA] = KATAKANA | _JOIN  # WB13
    for kind in words:
        table[kind, JOINER] = JOINER | _JOIN  # WB13a
        table[JOINER, kind] = kind | _JOIN  # WB13b
    table[REGION, REGION] = REGIONS | _JOIN  # WB15, WB16
    table[REGIONS, REGION] = REGION
    return table.reshape(-1)


@njit(nogil=True)
def _class_at(data, i, stop, kinds):
    """(class with its bits, bytes) of the character at i; of what is not UTF-8: Other, 1."""
    b = data[i]
    if b < 0x80:
        return np.int64(kinds[b]), np.int64(1)
    code = np.int64(code_point(data, i, stop))
    if code < 0 or code > 0x10FFFF:
        return np.int64(OTHER), np.int64(1)
    return np.int64(kinds[code]), np.int64(char_bytes(b))


@njit(nogil=True)
def _ahead(data, i, stop, kinds, state, kind):
    """The entry of the state table for a mark in a word, whose next character that counts is at i
    or behind it."""
    following = np.int64(OTHER)
    while i < stop:
        found, n = _class_at(data, i, stop, kinds)
        following = found & _KIND
        if following != EXTEND and following != FORMAT and following != ZWJ:
            break
        i += n
    if state == NUMERIC:
        return IN_NUMBER | _JOIN if following == NUMERIC else kind
    if kind == DOUBLE:
        return IN_LETTERS | _JOIN if following == HEBREW else kind
    if following == LETTER or following == HEBREW:
        return IN_LETTERS | _JOIN
    return kind | _JOIN if state == HEBREW and kind == SINGLE else kind


@njit(nogil=True)
def uax_hashes(data, start, stop, kinds, states, starts, ends, out):
    """Words of data[start:stop]: their positions and hashes are put into starts, ends: int64[] and
    out: uint64[], each of stop - start + 1 or more. Returns their number.

    Both tables come from `class_table` and `state_table`. No branch depends on where
    words end, which cannot be predicted.
    """
    words = np.int64(0)
    state = np.int64(START)
    joined = False  # the last character was a ZWJ
    solid = np.int64(0)  # the piece holds more than white space
    value = _FIRST
    first = i = start
    while i < stop:
        b = data[i]
        n = np.int64(1)
        if b < 0x80:
            kind = np.int64(kinds[b])
            entry = np.int64(states[(state << 5) | (kind & _KIND)])
            joined = False
        else:
            kind, n = _class_at(data, i, stop, kinds)
            entry = np.int64(states[(state << 5) | (kind & _KIND)])
            if joined and kind & PICTOGRAPH:
                entry |= _JOIN  # WB3c
            joined = kind & _KIND == ZWJ
        if entry & _LOOK:
            entry = np.int64(_ahead(data, i + n, stop, kinds, state, kind & _KIND))
        join = (entry >> 5) & 1
        state = entry & _KIND
        starts[words] = first
        ends[words] = i
        out[words] = value
        words += solid & (1 - join)
        first = first if join else i
        value = value if join else _FIRST
        solid = (solid & join) | (1 - ((kind >> 6) & 1))
        for k in range(n):
            value = (value ^ np.uint64(data[i + k])) * _PRIME
        i += n
    starts[words] = first
    ends[words] = stop
    out[words] = value
    words += solid
    for k in range(words):
        out[k] = mix(out[k])
    return words


@njit(cache=True, nogil=True)
def _table(data, offsets, kinds, states):
    rows = len(offsets) - 1
    size = offsets[rows] - offsets[0]
    row_words = np.empty(rows + 1, np.int64)
    # Upper bounds; memory that is never touched is never used.
    start = np.empty(size + 1, np.int64)
    end = np.empty(size + 1, np.int64)
    value = np.empty(size + 1, np.uint64)
    words = 0
    for r in range(rows):
        row_words[r] = words
        words += uax_hashes(
            data,
            offsets[r],
            offsets[r + 1],
            kinds,
            states,
            start[words:],
            end[words:],
            value[words:],
        )
    row_words[rows] = words
    return row_words, start[:words], end[:words], value[:words]


def uax_words(data: np.ndarray, offsets: np.ndarray) -> UaxWords:
    """The words of `(data: uint8[], offsets: int64[rows + 1])`."""
    return UaxWords(*_table(data, offsets, class_table(), state_table()))
