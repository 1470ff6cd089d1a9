"""Documents as the lines that fastText reads: one line a document, ended by a newline."""

from __future__ import annotations

import numpy as np

from curate.scoring.fasttext.features import END_WORD, LABEL_PREFIX, SPACE
from kernel_cache import njit

_END, _LABEL = END_WORD, LABEL_PREFIX


@njit(nogil=True, inline="always")
def _begins(data: np.ndarray, at: int, end: int, word: np.ndarray) -> bool:
    if at + len(word) > end:
        return False
    for k in range(len(word)):
        if data[at + k] != word[k]:
            return False
    return True


@njit(nogil=True)
def _cut(data: np.ndarray, at: int, end: int, chars: int) -> int:
    """Where the first `chars` characters from `at` end."""
    seen = 0
    while at < end:
        if data[at] & 0xC0 != 0x80:
            seen += 1
            if seen > chars:
                return at
        at += 1
    return end


@njit(cache=True, nogil=True)
def fasttext_lines(
    data: np.ndarray, offsets: np.ndarray, max_chars: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(lines: uint8[bytes], ends: int64[rows + 1], words: bool[rows]).

    Newlines become spaces, and so do words that are commands to fastText: `</s>`, behind which it
    reads nothing, and whatever begins with `__label__`. max_chars: characters of a document that
    count, 0 for all. words: whether the line has any word.
    """
    rows = len(offsets) - 1
    total = offsets[rows] - offsets[0] + rows
    out = np.empty(total, np.uint8)
    ends = np.zeros(rows + 1, np.int64)
    words = np.zeros(rows, np.bool_)
    to = 0
    for row in range(rows):
        at, end = offsets[row], offsets[row + 1]
        if max_chars > 0 and end - at > max_chars:
            end = _cut(data, at, end, max_chars)
        between = True
        while at < end:
            byte = data[at]
            if SPACE[byte]:
                out[to] = 32 if byte == 10 else byte
                at += 1
                to += 1
                between = True
                continue
            if between:
                between = False
                after = at + len(_END)
                ended = _begins(data, at, end, _END) and (after == end or SPACE[data[after]])
                if ended or _begins(data, at, end, _LABEL):
                    while at < end and not SPACE[data[at]]:
                        out[to] = 32
                        at += 1
                        to += 1
                    continue
                words[row] = True
            out[to] = byte
            at += 1
            to += 1
        out[to] = 10
        to += 1
        ends[row + 1] = to
    return out[:to], ends, words
