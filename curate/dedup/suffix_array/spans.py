"""Passages as byte spans of documents: on characters, and if wanted on words or lines.

Spans shrink, they never grow: what is cut is always part of what stands twice.
"""

from __future__ import annotations

import numpy as np

from curate.dedup.suffix_array.windows import continues
from kernel_cache import njit

CHARACTER, WORD, LINE = range(3)
BOUNDARIES = {"character": CHARACTER, "word": WORD, "line": LINE}


@njit(cache=True, nogil=True)
def _to_bytes(rows, start, end, ends, first_of, token_start, token_end, linked):
    """Turns spans of tokens into spans of bytes, in place. Tokens that share a character with one
    outside of the span stay; linked spans meet where the later one starts.

    first_of: int64[rows + 1], the first token of each row; ends: int64[rows], lengths in bytes.
    """
    for s in range(len(rows)):
        r = rows[s]
        base, stop = first_of[r], first_of[r + 1]
        a, z = base + start[s], base + end[s]
        start[s] = token_start[a]
        if a > base:
            start[s] = max(start[s], token_end[a - 1])
        end[s] = token_end[z - 1]
        if z < stop:
            end[s] = min(end[s], token_start[z])
        start[s], end[s] = min(start[s], ends[r]), min(end[s], ends[r])
        if linked[s]:
            start[s] = end[s - 1]


@njit(nogil=True)
def _forward(data, a, z):
    """The first start of a character from a on."""
    while a < z and continues(data[a]):
        a += 1
    return a


@njit(nogil=True)
def _back(data, a, z, stop):
    """The last start of a character up to z; stop: the end of the document."""
    while z > a and z < stop and continues(data[z]):
        z -= 1
    return z


@njit(nogil=True)
def _out_of_words(a, z, word_start, word_end):
    """The span without the parts of words at its ends."""
    k = np.searchsorted(word_start, a) - 1  # the last word that starts before a
    if k >= 0 and word_end[k] > a:
        a = word_end[k]
    k = np.searchsorted(word_start, z) - 1
    if k >= 0 and word_end[k] > z:
        z = word_start[k]
    return a, z


@njit(nogil=True)
def _out_of_lines(data, a, z, first, stop):
    """The span without the parts of lines at its ends; newlines at its ends stay in it."""
    while a < z and a > first and data[a - 1] != 10:
        a += 1
    while z > a and z < stop and data[z] != 10 and data[z - 1] != 10:
        z -= 1
    return a, z


@njit(cache=True, nogil=True)
def _fit(data, offsets, rows, start, end, linked, boundary, word_start, word_end):
    """Shrinks chains of linked spans to characters, words or lines, in place."""
    s = 0
    while s < len(rows):
        last = s
        while last + 1 < len(rows) and linked[last + 1]:
            last += 1
        first, stop = offsets[rows[s]], offsets[rows[s] + 1]
        a = _forward(data, first + start[s], first + end[last])
        z = _back(data, a, first + end[last], stop)
        if boundary == WORD:
            a, z = _out_of_words(a, z, word_start, word_end)
        elif boundary == LINE:
            a, z = _out_of_lines(data, a, z, first, stop)
        for k in range(s, last + 1):
            if k < last:
                end[k] = _forward(data, first + end[k], stop) - first
            if k > s:
                start[k] = end[k - 1]
            if k == s:
                start[k] = a - first
            if k == last:
                end[k] = z - first
            start[k] = max(start[k], a - first)
            end[k] = min(end[k], z - first)
        s = last + 1


def fit(
    data: np.ndarray,
    offsets: np.ndarray,
    spans: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    boundary: str,
    tokens: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """(start, end: int64[spans]) in bytes of their documents; a span without end > start is gone.

    data, offsets: the documents' text; spans: (rows, start, end: int64[spans], linked:
    bool[spans]), ordered by row and start, in symbols; linked: whether a span starts where the one
    before it ends, so that both are one cut. tokens: (rows: int64[documents + 1], start, end:
    int64[tokens], in bytes of their document), where symbols are tokens.
    """
    rows, start, end, linked = spans
    start, end = start.copy(), end.copy()
    if tokens is not None:
        sizes = np.diff(offsets)
        _to_bytes(rows, start, end, sizes, *tokens, linked)
    word_start = word_end = np.empty(0, np.int64)
    if boundary == "word":
        from curate.text.words import word_table

        table = word_table(data, offsets)
        word_start, word_end = table.start.astype(np.int64), table.end.astype(np.int64)
    _fit(data, offsets, rows, start, end, linked, BOUNDARIES[boundary], word_start, word_end)
    return start, end
