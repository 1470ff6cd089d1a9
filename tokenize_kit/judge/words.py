r"""Words in text, and the tokens that they are made of.

A word is a run of letters and marks (\p{L}, \p{M}). White space, digits and signs end it, so
`don't` is two words. Han, kana, Thai, Lao, Khmer and Burmese are written without spaces, and one
run may be a whole sentence, so their tokens are counted per letter; marks are no letters. If a
`Segmentation` can split a run into words, its words are counted like any other words.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from llmcurate.base.kernels import njit
from tokenize_kit.pattern.categories import CODE_POINTS, members
from tokenize_kit.segment import Dictionary

WORDS, WORD_TOKENS, WHOLE, LETTERS, LETTER_TOKENS = range(5)  # columns of `count_words`
_LETTER, _SPACELESS, _MARK, _SEGMENTED = 1, 2, 3, 4
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
    """Return uint8[0x110000], the kind of each code point: 0 not in a word, 1 letter, 2 letter of a
    script without spaces, 3 mark."""
    kinds = np.zeros(CODE_POINTS, np.uint8)
    letters = members("L")
    kinds[letters] = _LETTER
    for first, end in _RUNS:
        kinds[first:end][letters[first:end]] = _SPACELESS
    kinds[members("M")] = _MARK
    return kinds


@dataclass(frozen=True)
class Segmentation:
    """The way to split runs without spaces into words: by a dictionary, or at a separator in the
    texts, which is removed after the split. By default runs are not split."""

    dictionary: Dictionary | None = None
    separator: bytes = b""

    def kinds(self) -> np.ndarray:
        """Return `letter_kinds`, changed in one way: letters of a script without spaces have the
        kind 4 in place of 2 if the segmentation can split runs of this script into words."""
        kinds = letter_kinds().copy()
        spaceless = kinds == _SPACELESS
        if self.separator:
            kinds[spaceless] = _SEGMENTED
        elif self.dictionary is not None:
            inside = np.logical_or.reduce([members(name) for name in self.dictionary.scripts])
            kinds[spaceless & inside] = _SEGMENTED
        return kinds

    def cut(
        self, data: np.ndarray, offsets: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Find words in scripts without spaces, and remove separators. Return (data, offsets,
        cuts). cuts: bool[bytes + 1], True at k if a word ends before byte offsets[0] + k."""
        if self.separator:
            return self._without_separators(data, offsets)
        cuts = np.zeros(offsets[-1] - offsets[0] + 1, np.bool_)
        if self.dictionary is not None:
            cuts[self.dictionary.cut(data, offsets) - offsets[0]] = True
        return data, offsets, cuts

    def _without_separators(
        self, data: np.ndarray, offsets: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rows = [data[a:z].tobytes().split(self.separator) for a, z in pairwise(offsets.tolist())]
        ends = np.cumsum([0, *(len(word) for row in rows for word in row)])
        cuts = np.zeros(ends[-1] + 1, np.bool_)
        cuts[ends] = True
        words = np.cumsum([0, *map(len, rows)])
        joined = bytearray().join(word for row in rows for word in row)
        return np.frombuffer(joined, np.uint8), ends[words].astype(np.int64), cuts


@njit(nogil=True, inline="always")
def code_point(data, i):
    """Return (code point, its number of bytes) at a position of valid UTF-8."""
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
def count_words(data, offsets, kinds, cuts, starts, ends, sizes):
    """Return int64[rows, 5], five numbers per row: words; tokens of words; words of one token;
    letters in scripts without spaces; tokens that spell these letters.

    A token that overlaps several words counts once for each of them. kinds: the result of
    Segmentation.kinds; cuts: bool[bytes + 1], True at k if a word ends before byte offsets[0] + k;
    starts, ends: int64[tokens], bounds in `data`, in order; sizes: the number of tokens per row. A
    token without bytes counts for the word at its position. If several tokens spell a character,
    one may span all its bytes, and the others none."""
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
                code, size = code_point(data, i)
                kind = int(kinds[code])
                if kind == 0 or (i > a and cuts[i - offsets[0]]):
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


@njit(cache=True, nogil=True)
def count_boundaries(data, offsets, kinds, cuts, boundaries):
    """Return int64[rows, 3], three numbers per row: the boundaries between two words; how many of
    them are also boundaries of tokens; and the boundaries of tokens within words."""
    out = np.zeros((len(offsets) - 1, 3), np.int64)
    first = offsets[0]
    for row in range(len(offsets) - 1):
        i, end = offsets[row], offsets[row + 1]
        family = 0  # the kind of the word's letters
        in_word = unknown = False
        follows = kept = False  # True after a word; True if tokens keep this boundary
        while i < end:
            code, size = code_point(data, i)
            kind = int(kinds[code])
            here = boundaries[i - first]
            within = 0
            for k in range(i + 1, i + size):
                within += boundaries[k - first]
            ends = kind == 0 or (kind != 3 and kind != family) or cuts[i - first]
            if in_word and ends:
                in_word, follows, kept = False, True, False
            if kind != 2 and kind != 3:
                unknown = False
            if in_word:
                out[row, 2] += here + within
            elif kind == 2 or unknown:
                unknown, follows = True, False
            elif kind == 0 or kind == 3:
                kept = kept or here or within > 0
            else:
                out[row, 0] += follows
                out[row, 1] += follows and (kept or here)
                out[row, 2] += within
                in_word, follows, family = True, False, kind
            i += size
    return out
