"""Lines of white space words to ids: what scoring needs of text/tables.py, and no more.

Lines and words are those of `str.splitlines()` and `str.split()`. A row without white space other
than space, tab and line feed, which one vector loop finds out, is cut without a branch a byte.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curate.perplexity.vocabulary import Vocabulary
from curate.text.unicode import line_end_bytes, space_bytes
from kernel_cache import njit

_ONE = np.uint64(1)
_TAB, _LINE_FEED, _SPACE = np.uint8(9), np.uint8(10), np.uint8(32)


@njit(nogil=True)
def _simple(text):
    """Whether the white space of text: uint8[] is space, tab and line feed alone, and no other byte
    is under 33. May say no where a text ends in the middle of a character."""
    odd = np.uint8(0)
    for i in range(len(text) - 2):
        a, b, c = text[i], text[i + 1], text[i + 2]
        odd |= np.uint8(
            ((a < _SPACE) & (a != _TAB) & (a != _LINE_FEED))
            | ((a == 0xC2) & ((b == 0x85) | (b == 0xA0)))
            | ((a == 0xE1) & (b == 0x9A) & (c == 0x80))
            | ((a == 0xE2) & (b == 0x80) & ((c < 0x8B) | (c == 0xA8) | (c == 0xA9) | (c == 0xAF)))
            | ((a == 0xE2) & (b == 0x81) & (c == 0x9F))
            | ((a == 0xE3) & (b == 0x80) & (c == 0x80))
        )
    for a in text[max(0, len(text) - 2) :]:
        odd |= np.uint8(((a < _SPACE) & (a != _TAB) & (a != _LINE_FEED)) | (a == 0xC2))
    return odd == 0


@njit(cache=True, nogil=True)
def _split(data, offsets):
    """(start, end: int64[words], words so far at the end of each line that holds any, first line of
    each row and the end)."""
    rows = len(offsets) - 1
    # Upper bounds, cut to size as views; memory that is never touched is never used.
    limit = (offsets[rows] - offsets[0]) // 2 + rows + 2
    start, end = np.empty(limit, np.int64), np.empty(limit, np.int64)
    line_ends, row_lines = np.empty(limit, np.int64), np.empty(rows + 1, np.int64)
    begun = ended = lines = np.uint64(0)
    before = np.int64(0)  # words up to the last line
    for r in range(rows):
        row_lines[r] = lines
        if _simple(data[offsets[r] : offsets[r + 1]]):
            outside = _ONE
            for k in range(offsets[r], offsets[r + 1]):
                b = data[k]
                now = np.uint64(b <= _SPACE)
                start[begun] = k
                begun += outside & (now ^ _ONE)
                end[ended] = k
                ended += now & (outside ^ _ONE)
                outside = now
                if b == _LINE_FEED and np.int64(ended) > before:
                    before = np.int64(ended)
                    line_ends[lines] = before
                    lines += _ONE
            end[ended] = offsets[r + 1]
            ended += outside ^ _ONE
        else:
            i: Any = np.uint64(offsets[r])
            stop: Any = np.uint64(offsets[r + 1])
            while i < stop:
                width = space_bytes(data, i, stop)
                if width:
                    line_end = line_end_bytes(data, i, stop)
                    if line_end and np.int64(ended) > before:
                        before = np.int64(ended)
                        line_ends[lines] = before
                        lines += _ONE
                    i += np.uint64(max(width, line_end))
                    continue
                start[begun] = i
                while i < stop and not space_bytes(data, i, stop):
                    i += _ONE
                end[ended] = i
                begun += _ONE
                ended += _ONE
        if np.int64(ended) > before:
            before = np.int64(ended)
            line_ends[lines] = before
            lines += _ONE
    row_lines[rows] = lines
    words, count = np.int64(ended), np.int64(lines)
    return start[:words], end[:words], line_ends[:count], row_lines


def numbered_lines(
    data: np.ndarray, offsets: np.ndarray, words: Vocabulary
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(ids: uint32[words], ends: int64[lines], rows: int64[rows + 1]) of texts (data: uint8[],
    offsets: int64[rows + 1]): lines without a word are left out; rows: the first line of each."""
    start, end, ends, rows = _split(data, offsets)
    return words.ids(data, start, end), ends, rows
