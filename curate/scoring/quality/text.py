"""Documents as a quality classifier reads them: `" ".join(text.strip().splitlines())`.

Source: DCLM, baselines/mappers/enrichers/quality_prediction_enrichers_calc_fasttext.py. Every line
end of `str.splitlines` becomes one blank, not only the newline that fastText knows.
"""

from __future__ import annotations

import numpy as np

from curate.scoring.fasttext.features import END_WORD, LABEL_PREFIX, SPACE
from curate.scoring.language.lines import fasttext_lines
from curate.text.unicode import ASCII_LINE_END, line_end_bytes, space_bytes
from kernel_cache import njit

# Bytes that a line end may begin with.
_LOOK = ASCII_LINE_END.copy()
_LOOK[[0xC2, 0xE2]] = True


@njit(nogil=True)
def _stripped(data: np.ndarray, start: int, end: int) -> int:
    """Where the text from start to end ends without the white space behind it."""
    n = 1
    while n <= 3:
        if end - n >= start and space_bytes(data, end - n, end) == n:
            end -= n
            n = 0
        n += 1
    return end


def joined_lines(data: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(data: uint8[bytes], offsets: int64[rows + 1]): each text stripped, line ends as blanks."""
    return _joined(data, offsets, False)


@njit(cache=True, nogil=True)
def _joined(data: np.ndarray, offsets: np.ndarray, ended: bool) -> tuple[np.ndarray, np.ndarray]:
    """The same; ended: with a newline behind each text."""
    rows = len(offsets) - 1
    out = np.empty(offsets[rows] - offsets[0] + rows, np.uint8)
    ends = np.zeros(rows + 1, np.int64)
    to = 0
    for row in range(rows):
        at, end = offsets[row], offsets[row + 1]
        while at < end:
            n = space_bytes(data, at, end)
            if n == 0:
                break
            at += n
        end = _stripped(data, at, end)
        while at < end:
            start = at
            while at < end and not _LOOK[data[at]]:
                at += 1
            n = line_end_bytes(data, at, end) if at < end else 0
            at += 1 if at < end and n == 0 else 0  # another character that begins so
            out[to : to + at - start] = data[start:at]
            to += at - start
            if n > 0:
                out[to] = 32
                to += 1
                at += n
        if ended:
            out[to] = 10
            to += 1
        ends[row + 1] = to
    return out[:to], ends


@njit(cache=True, nogil=True)
def _has_words(lines: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """bool[rows]: whether a line has more than what fastText takes for space."""
    found = np.zeros(len(ends) - 1, np.bool_)
    for row in range(len(found)):
        at = ends[row]
        while at < ends[row + 1] and not found[row]:
            found[row] = not SPACE[lines[at]]
            at += 1
    return found


def quality_lines(
    data: np.ndarray, offsets: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(lines: uint8[bytes], ends: int64[rows + 1], words: bool[rows]) of texts, for a model: what
    `fasttext_lines` makes of the joined lines, which it is asked only where commands may be."""
    lines, ends = _joined(data, offsets, True)
    raw = lines.tobytes()
    if any(command.tobytes() in raw for command in (END_WORD, LABEL_PREFIX)):
        return fasttext_lines(*joined_lines(data, offsets), 0)
    return lines, ends, _has_words(lines, ends)
