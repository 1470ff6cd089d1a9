"""Documents as a quality classifier reads them: `" ".join(text.strip().splitlines())`.

Source: DCLM, baselines/mappers/enrichers/quality_prediction_enrichers_calc_fasttext.py. Every line
end of `str.splitlines` becomes one blank, not only the newline that fastText knows.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from curate.language.lines import fasttext_lines
from curate.text.unicode import ASCII_SPACE, line_end_bytes, space_bytes

# Bytes that white space may begin with.
_LOOK = ASCII_SPACE.copy()
_LOOK[[0xC2, 0xE1, 0xE2, 0xE3]] = True


@njit(cache=True, nogil=True)
def joined_lines(data: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(data: uint8[bytes], offsets: int64[rows + 1]): each text stripped, line ends as blanks."""
    rows = len(offsets) - 1
    out = np.empty(offsets[rows] - offsets[0], np.uint8)
    ends = np.zeros(rows + 1, np.int64)
    to = 0
    for row in range(rows):
        at, end = offsets[row], offsets[row + 1]
        while at < end:
            n = space_bytes(data, at, end)
            if n == 0:
                break
            at += n
        last = to  # where the text written so far ends, white space at its end left out
        while at < end:
            if not _LOOK[data[at]]:
                out[to] = data[at]
                at += 1
                to += 1
                last = to
                continue
            n = line_end_bytes(data, at, end)
            if n > 0:
                out[to] = 32
                at += n
                to += 1
                continue
            n = space_bytes(data, at, end)
            blank = n > 0
            for _ in range(max(n, 1)):
                out[to] = data[at]
                at += 1
                to += 1
            if not blank:
                last = to
        to = last
        ends[row + 1] = to
    return out[:to], ends


def quality_lines(
    data: np.ndarray, offsets: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(lines: uint8[bytes], ends: int64[rows + 1], words: bool[rows]) of texts, for a model."""
    return fasttext_lines(*joined_lines(data, offsets), 0)
