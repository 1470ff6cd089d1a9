"""Numba kernel that counts lines, characters and tokens of source files."""

from __future__ import annotations

import numpy as np

from curate.text.unicode import ALNUM, char_bytes, code_point, line_end_bytes, space_bytes
from curate.text.words import CLUSTER, LETTER
from llmcurate.base.kernels import njit

COUNTS = 6  # columns of `measure`
_NONE, _WORD, _SIGN = range(3)  # the kind of token that the previous character belongs to


@njit(cache=True, nogil=True)
def measure(data, offsets, flags, kinds):
    r"""Return (counts: int64[rows, COUNTS], tokens: int64[rows]). Columns of counts: characters,
    lines (`str.splitlines`), characters of the longest line, characters of all lines without
    their ends, alphanumeric characters (`str.isalnum`), letters (`str.isalpha`). A token is a
    match of `\w+|[^\w\s]+`. flags, kinds: the tables `character_flags` and `character_tables`."""
    rows = len(offsets) - 1
    out = np.zeros((rows, COUNTS), np.int64)
    tokens = np.zeros(rows, np.int64)
    for r in range(rows):
        i, end = offsets[r], offsets[r + 1]
        line, token = np.int64(0), _NONE
        open_line = False
        while i < end:
            b = data[i]
            code = np.int64(b) if b < 0x80 else max(code_point(data, i, end), np.int64(0))
            out[r, 0] += 1
            if flags[code] & ALNUM:
                out[r, 4] += 1
                out[r, 5] += (kinds[code] == LETTER) | (kinds[code] == CLUSTER)
                tokens[r] += token != _WORD
                token = _WORD
            elif b == 95:
                tokens[r] += token != _WORD
                token = _WORD
            elif space_bytes(data, i, end):
                token = _NONE
            else:
                tokens[r] += token != _SIGN
                token = _SIGN
            ends = line_end_bytes(data, i, end)
            if ends:
                out[r, 0] += ends == 2 and b == 13  # CR LF is two characters
                out[r, 1] += 1
                out[r, 2] = max(out[r, 2], line)
                out[r, 3] += line
                line, open_line = np.int64(0), False
                i += ends
            else:
                line += 1
                open_line = True
                i += char_bytes(b)
        if open_line:
            out[r, 1] += 1
            out[r, 2] = max(out[r, 2], line)
            out[r, 3] += line
    return out, tokens
