"""The tables of lines and of words (between white space) of a batch: built once, used many times.

Both come from one pass over the text buffers and are cached on the batch while its text is
unchanged (`Documents.table_of`). Byte positions are absolute positions in the text buffer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from curate.text.unicode import ASCII_LINE_END, ASCII_SPACE, line_end_bytes, space_bytes
from llmcurate.base.kernels import njit

if TYPE_CHECKING:
    from curate.documents.documents import Documents

# Kinds of bytes: part of a word, a space, a line end, or perhaps the first byte of white space
# outside ASCII, which depends on the next bytes.
_WORD, _SPACE, _LINE_END, _LOOK = 0, 1, 2, 3
_KIND = np.full(256, _WORD, np.uint8)
_KIND[ASCII_SPACE] = _SPACE
_KIND[ASCII_LINE_END] = _LINE_END
_KIND[[0xC2, 0xE1, 0xE2, 0xE3]] = _LOOK
# Positions are unsigned in the inner loops: numba checks a signed index for being negative, which
# doubles the time. Unsigned and signed mixed give signed, hence the constant.
_ONE = np.uint64(1)


@dataclass(frozen=True)
class LineTable:
    """Lines as `str.splitlines()` cuts them. `rows` (int64[rows + 1]) is the index of each row's
    first line. `raw` (int64[lines + 1]) is where each line starts; a row's last line ends where the
    row ends. `start` and `end` (int64[lines]) enclose the line without white space at its ends."""

    rows: np.ndarray
    raw: np.ndarray
    start: np.ndarray
    end: np.ndarray


@dataclass(frozen=True)
class WordTable:
    """Words as `str.split()` cuts them. `lines` (int64[lines + 1]): the index of each line's first
    word. `start`, `end` (int64[words]): byte positions. `chars` (int32[words]): code points."""

    lines: np.ndarray
    start: np.ndarray
    end: np.ndarray
    chars: np.ndarray


@dataclass(frozen=True)
class Segments:
    """The line table, the word table, and each row's number of code points (chars: int64[rows])."""

    lines: LineTable
    words: WordTable
    chars: np.ndarray


@njit(nogil=True)
def _most_ends(data, first, stop):
    n = 0  # an upper bound of white space characters; one vector loop
    for b in data[first:stop]:
        n += (b <= 32) | ((b >= 0xC2) & (b <= 0xE3))
    return n


@njit(cache=True, nogil=True)
def _segment(data, offsets):
    """Return the arrays of the line and word tables, and the number of code points in each row. The
    loop over a line has no branch that depends on word boundaries. It writes each position into the
    arrays of starts and ends, but a count advances only if a word starts or ends there."""
    rows = len(offsets) - 1
    limit = _most_ends(data, offsets[0], offsets[rows]) + rows + 1
    row_lines = np.empty(rows + 1, np.int64)
    row_chars = np.empty(rows, np.int64)
    # Upper bounds, cut to size as views; untouched memory costs nothing.
    raw = np.empty(limit, np.int64)
    line_words = np.empty(limit, np.int64)
    start = np.empty(limit, np.int64)
    end = np.empty(limit, np.int64)
    chars = np.empty(limit, np.int32)
    lines = 0
    begun = ended = np.uint64(0)  # words
    for r in range(rows):
        i, stop = np.uint64(offsets[r]), np.uint64(offsets[r + 1])
        row_lines[r] = lines
        inner = np.uint64(0)  # bytes of the row so far that are not the first of a character
        first = np.uint64(0)  # where the word began, in characters
        outside = _ONE  # 1 if the byte before is outside of words
        line_end = _ONE  # bytes of the line end before, 0 for a space inside a line
        while i < stop:
            if line_end:
                raw[lines] = i
                line_words[lines] = ended
                lines += 1
            width = np.uint64(0)
            while i < stop:
                b = data[i]
                kind = _KIND[b]
                if kind > _SPACE:
                    width = np.uint64(space_bytes(data, i, stop))
                    if width:
                        break
                    kind = _WORD
                now = np.uint64(kind)  # 1 outside of words
                at = i - inner
                inner += np.uint64((b & 0xC0) == 0x80)
                start[begun] = i
                first = at if outside > now else first
                begun += outside & (now ^ _ONE)
                end[ended] = i
                chars[ended] = at - first
                ended += now & (outside ^ _ONE)
                outside = now
                i += _ONE
            end[ended] = i
            chars[ended] = i - inner - first
            ended += outside ^ _ONE
            outside = _ONE
            if i < stop:  # a line end, or a space outside ASCII
                if data[i] >= 0x80:
                    inner += width - _ONE
                line_end = np.uint64(line_end_bytes(data, i, stop))
                i += max(width, line_end)
        row_chars[r] = stop - np.uint64(offsets[r]) - inner
    words = np.int64(ended)
    row_lines[rows] = lines
    raw[lines] = offsets[rows]
    line_words[lines] = words
    line_start = np.empty(lines, np.int64)
    line_stop = np.empty(lines, np.int64)
    for k in range(lines):
        first_word, stop_word = line_words[k], line_words[k + 1]
        if first_word == stop_word:
            line_start[k] = raw[k]
            line_stop[k] = raw[k]
        else:
            line_start[k] = start[first_word]
            line_stop[k] = end[stop_word - 1]
    return (
        row_lines,
        raw[: lines + 1],
        line_start,
        line_stop,
        line_words[: lines + 1],
        start[:words],
        end[:words],
        chars[:words],
        row_chars,
    )


def segment(data: np.ndarray, offsets: np.ndarray) -> Segments:
    """Return the line and word tables of `(data: uint8[], offsets: int64[rows + 1])`."""
    t = _segment(data, offsets)
    return Segments(LineTable(*t[:4]), WordTable(*t[4:8]), t[8])


def segments(docs: Documents) -> Segments:
    """Return the line and word tables of a batch, computed once while its text is unchanged."""
    return docs.table_of("segments", lambda: segment(*docs.buffers()))
