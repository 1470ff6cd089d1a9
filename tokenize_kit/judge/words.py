"""How many tokens words are made of.

A word is a run of letters and marks (\\p{L}, \\p{M}): white space, digits and signs end it, so
`don't` is two. Han, kana, Thai, Lao, Khmer and Burmese are written without spaces, and a run of
theirs may be a whole sentence: of those, tokens are counted a letter, marks not counted as such.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from kernel_cache import njit
from tokenize_kit.pattern.categories import CODE_POINTS, members

WORDS, WORD_TOKENS, WHOLE, LETTERS, LETTER_TOKENS = range(5)  # columns of `count_words`
_LETTER, _SPACELESS, _MARK = 1, 2, 3
_RUNS = (
    (0x0E00, 0x0F00),  # Thai, Lao
    (0x1000, 0x10A0), (0xA9E0, 0xAA00), (0xAA60, 0xAA80),  # Burmese
    (0x1780, 0x1800),  # Khmer
    (0x3005, 0x3008), (0x3021, 0x302A), (0x3038, 0x303C), (0x3400, 0x4DC0), (0x4E00, 0xA000),
    (0xF900, 0xFB00), (0x20000, 0x33480),  # Han
    (0x3040, 0x3130), (0x31A0, 0x31C0), (0x31F0, 0x3200), (0xFF66, 0xFFA0),  # kana, bopomofo
    (0x1AFF0, 0x1B170),  # further kana
)  # fmt: skip


@lru_cache(maxsize=1)
def letter_kinds() -> np.ndarray:
    """uint8[0x110000]: 0 in no word, 1 letter, 2 letter of a script without spaces, 3 mark."""
    kinds = np.zeros(CODE_POINTS, np.uint8)
    letters = members("L")
    kinds[letters] = _LETTER
    for first, end in _RUNS:
        kinds[first:end][letters[first:end]] = _SPACELESS
    kinds[members("M")] = _MARK
    return kinds


@njit(nogil=True, inline="always")
def _code_point(data, i):
    """(code point, bytes) at a place of valid UTF-8."""
    b = np.int64(data[i])
    if b < 0x80:
        return b, 1
    if b < 0xE0:
        return (b & 0x1F) << 6 | (data[i + 1] & 0x3F), 2
    if b < 0xF0:
        return (b & 0x0F) << 12 | np.int64(data[i + 1] & 0x3F) << 6 | (data[i + 2] & 0x3F), 3
    high = (b & 0x07) << 18 | np.int64(data[i + 1] & 0x3F) << 12
    return high | np.int64(data[i + 2] & 0x3F) << 6 | (data[i + 3] & 0x3F), 4


@njit(cache=True, nogil=True)
def count_words(data, offsets, kinds, starts, ends, sizes):
    """int64[rows, 5]: words, tokens that have a part of one (once for each word), words of one
    token; letters of scripts without spaces, tokens that have a part of their runs.

    kinds: letter_kinds(); starts, ends: int64[tokens] in `data`, in order; sizes: tokens of each
    row. A token without bytes (part of a character that the next one holds) counts where it stands.
    """
    out = np.zeros((len(offsets) - 1, 5), np.int64)
    stop = 0
    for row in range(len(offsets) - 1):
        token = stop
        stop += sizes[row]
        i, end = offsets[row], offsets[row + 1]
        while i < end:
            a = i
            family = 0
            letters = 0
            while i < end:
                code, size = _code_point(data, i)
                kind = int(kinds[code])
                if kind == 0:
                    break
                if kind != 3:
                    if family == 0:
                        family = kind
                    elif kind != family:
                        break
                    letters += 1
                i += size
            if i == a:
                i += size
                continue
            while token < stop and ends[token] <= a and starts[token] < a:
                token += 1
            n = 0
            k = token
            while k < stop and starts[k] < i:
                if ends[k] > a or starts[k] >= a:
                    n += 1
                k += 1
            if family == 2:
                out[row, 3] += letters
                out[row, 4] += n
            else:
                out[row, 0] += 1
                out[row, 1] += n
                out[row, 2] += n == 1
    return out
