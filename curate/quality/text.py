"""Documents as a quality classifier reads them: `" ".join(text.strip().splitlines())`.

Source: DCLM, baselines/mappers/enrichers/quality_prediction_enrichers_calc_fasttext.py. Every line
end of `str.splitlines` becomes one blank, not only the newline that fastText knows.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from curate.language.lines import fasttext_lines
from curate.text.unicode import char_bytes, line_end_bytes, space_bytes


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
            n = line_end_bytes(data, at, end)
            if n > 0:
                out[to] = 32
                at += n
                to += 1
                continue
            n = space_bytes(data, at, end)
            blank = n > 0
            n = max(n, min(char_bytes(data[at]), end - at))
            for k in range(n):
                out[to + k] = data[at + k]
            at += n
            to += n
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
