"""The line table and the white space word table of a batch: segmented once, reduced many times.

Both come from one pass over the text buffers and are cached on the batch while its text is
unchanged (`Documents.table_of`). Byte positions are absolute positions in the text buffer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from curate.text.unicode import ASCII_LINE_END, ASCII_SPACE, line_end_bytes, space_bytes

if TYPE_CHECKING:
    from curate.documents import Documents

_OTHER, _SPACE, _LINE_END, _LOOK, _CONTINUED = 0, 1, 2, 3, 4
_CLASS = np.zeros(256, np.uint8)
_CLASS[0x80:0xC0] = _CONTINUED
_CLASS[ASCII_SPACE] = _SPACE
_CLASS[ASCII_LINE_END] = _LINE_END
_CLASS[[0xC2, 0xE1, 0xE2, 0xE3]] = _LOOK  # lead bytes of white space outside ASCII


@dataclass(frozen=True)
class LineTable:
    """Lines as `str.splitlines()` cuts them, each with its stripped extent.

    rows: int64[rows + 1], the first line of each row; raw: int64[lines + 1] where each line
    starts (a row's last line ends where the row ends); start, end: int64[lines], the line without
    white space at its ends.
    """

    rows: np.ndarray
    raw: np.ndarray
    start: np.ndarray
    end: np.ndarray


@dataclass(frozen=True)
class WordTable:
    """Words as `str.split()` cuts them (runs without white space).

    lines: int64[lines + 1], the first word of each line of the line table; start, end:
    int64[words]; chars: int32[words], code points.
    """

    lines: np.ndarray
    start: np.ndarray
    end: np.ndarray
    chars: np.ndarray


@dataclass(frozen=True)
class Segments:
    """Lines, white space words, and code points of each row (chars: int64[rows])."""

    lines: LineTable
    words: WordTable
    chars: np.ndarray


@njit(cache=True, nogil=True)
def _segment(data, offsets):
    rows = len(offsets) - 1
    size = offsets[rows] - offsets[0]
    row_lines = np.empty(rows + 1, np.int64)
    row_chars = np.empty(rows, np.int64)
    # Upper bounds; memory that is never touched is never used.
    raw = np.empty(size + rows + 1, np.int64)
    line_words = np.empty(size + rows + 1, np.int64)
    start = np.empty(size // 2 + rows + 1, np.int64)
    end = np.empty(size // 2 + rows + 1, np.int64)
    chars = np.empty(size // 2 + rows + 1, np.int32)
    lines = 0
    words = 0
    for r in range(rows):
        i, stop = offsets[r], offsets[r + 1]
        row_lines[r] = lines
        n_chars = 0
        if i < stop:
            raw[lines] = i
            line_words[lines] = words
        inside = False
        in_word = 0
        pending = False
        while i < stop:
            kind = _CLASS[data[i]]
            n = 0
            if kind == _OTHER or kind == _CONTINUED:
                if not inside:
                    start[words] = i
                    inside = True
                    in_word = 0
                while i < stop:
                    kind = _CLASS[data[i]]
                    if kind == _OTHER:
                        in_word += 1
                    elif kind != _CONTINUED:
                        break
                    i += 1
                pending = True
                continue
            if kind == _LOOK:
                n = space_bytes(data, i, stop)
                if n == 0:
                    if not inside:
                        start[words] = i
                        inside = True
                        in_word = 0
                    in_word += 1
                    i += 1
                    pending = True
                    continue
                breaks = line_end_bytes(data, i, stop)
            elif kind == _LINE_END:
                breaks = line_end_bytes(data, i, stop)
                n = breaks
            else:
                breaks = 0
                n = 1
            if inside:
                end[words] = i
                chars[words] = in_word
                n_chars += in_word
                words += 1
                inside = False
            n_chars += n if kind != _LOOK else 1
            i += n
            pending = True
            if breaks:
                lines += 1
                pending = False
                if i < stop:
                    raw[lines] = i
                    line_words[lines] = words
        if inside:
            end[words] = stop
            chars[words] = in_word
            n_chars += in_word
            words += 1
        if pending:
            lines += 1
        row_chars[r] = n_chars
    row_lines[rows] = lines
    raw[lines] = offsets[rows]
    line_words[lines] = words
    line_start = np.empty(lines, np.int64)
    line_end = np.empty(lines, np.int64)
    for k in range(lines):
        first, last = line_words[k], line_words[k + 1]
        if first == last:
            line_start[k] = raw[k]
            line_end[k] = raw[k]
        else:
            line_start[k] = start[first]
            line_end[k] = end[last - 1]
    return (
        row_lines,
        raw[: lines + 1].copy(),
        line_start,
        line_end,
        line_words[: lines + 1].copy(),
        start[:words].copy(),
        end[:words].copy(),
        chars[:words].copy(),
        row_chars,
    )


def segment(data: np.ndarray, offsets: np.ndarray) -> Segments:
    """The tables of `(data: uint8[], offsets: int64[rows + 1])`."""
    t = _segment(data, offsets)
    return Segments(LineTable(*t[:4]), WordTable(*t[4:8]), t[8])


def segments(docs: Documents) -> Segments:
    """The tables of a batch, computed once while its text is unchanged."""
    return docs.table_of("segments", lambda: segment(*docs.buffers()))
