"""Cuts of passages: the bytes that go with them, and the text that the documents then hold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from curate.documents.cutting import mark_ends
from curate.documents.documents import NUMBER, Documents
from curate.text.lines import Extents
from curate.text.sentences import count_words_sentences
from curate.text.unicode import space_bytes
from llmcurate.base.kernels import njit

# Marks: one more than their positions in step.RULES.
GLOBAL, LOCAL, SPACE = 1, 2, 3


@dataclass(frozen=True)
class Rest:
    """int64[rows] each: pieces that are cut; in documents that lose some, the pieces with more than
    white space that stay and, where they are counted, the words (`str.split`) and sentences."""

    cut: np.ndarray
    pieces: np.ndarray
    words: np.ndarray
    sentences: np.ndarray


def removed_pieces(docs: Documents, pieces: Extents, decisions: pa.Table) -> np.ndarray:
    """uint8[pieces]: GLOBAL or LOCAL for those in a passage that is cut, else 0. A piece in two
    such passages is GLOBAL if one of them is."""
    removed = np.zeros(len(pieces.start), np.uint8)
    cut = decisions.filter(decisions["drop"])
    if cut.num_rows == 0:
        return removed
    _, offsets = docs.buffers()
    row = np.searchsorted(docs.table[NUMBER].to_numpy(), cut["n"].to_numpy())
    base = offsets[row]
    first, last = base + cut["span_start"].to_numpy(), base + cut["span_end"].to_numpy()
    local = cut["local"].to_numpy(zero_copy_only=False)
    _fill(removed, pieces.rows, pieces.start, pieces.end, row, first, last, local)
    return removed


@njit(cache=True, nogil=True)
def _fill(removed, rows, start, end, row, first, last, local):
    """Marks the pieces from byte first[p] to last[p] in row[p]; passages are ordered."""
    for p in range(len(row)):
        # Within the row: an empty line at a document's end stands where the next one begins.
        low, high = rows[row[p]], rows[row[p] + 1]
        k = low + np.searchsorted(start[low:high], first[p])
        while k < high and end[k] <= last[p]:
            if not local[p] or removed[k] == 0:
                removed[k] = LOCAL if local[p] else GLOBAL
            k += 1


@njit(nogil=True)
def _is_blank(data, a, z):
    while a < z:
        n = space_bytes(data, a, z)
        if n == 0:
            return False
        a += n
    return True


@njit(nogil=True)
def _mark_lines(first, stop, start, end, removed, mark, base):
    """The other lines stay, joined by newlines: a line goes with the newline before it,
    and where no line before it stays, with the one behind it."""
    kept = False
    for k in range(first, stop):
        if removed[k] == 0:
            kept = True
            continue
        a, z = start[k], end[k]
        if kept:
            a -= 1
        elif k + 1 < stop:
            z += 1
        mark[a - base : z - base] = removed[k]


@njit(nogil=True)
def _has_newline(data, a, z):
    for i in range(a, z):
        if data[i] == 10:
            return True
    return False


@njit(nogil=True)
def _mark_sentences(data, first, stop, start, end, removed, mark, base):
    """A run of sentences goes with the white space behind it, or with that before it where this
    keeps a line end: `A. [B.]\\nC.` keeps its newline."""
    k = first
    while k < stop:
        if removed[k] == 0:
            k += 1
            continue
        j = k
        while j + 1 < stop and removed[j + 1]:
            j += 1
        for i in range(k, j + 1):
            z = start[i + 1] if i < j else end[i]
            mark[start[i] - base : z - base] = removed[i]
        if j + 1 < stop:
            a, z = end[j], start[j + 1]
            if (
                k > first
                and _has_newline(data, a, z)
                and not _has_newline(data, end[k - 1], start[k])
            ):
                a, z = end[k - 1], start[k]
            mark[a - base : z - base] = removed[k] if z == start[k] else removed[j]
        k = j + 1


@njit(cache=True, nogil=True)
def _mark(data, offsets, rows, start, end, removed, mark, lines, blank, count):
    n_rows = len(offsets) - 1
    base = offsets[0]
    cut = np.zeros(n_rows, np.int64)
    pieces = np.zeros(n_rows, np.int64)
    words = np.zeros(n_rows, np.int64)
    sentences = np.zeros(n_rows, np.int64)
    for r in range(n_rows):
        first, stop = rows[r], rows[r + 1]
        for k in range(first, stop):
            cut[r] += removed[k] > 0
        if cut[r] == 0:
            continue
        for k in range(first, stop):
            if removed[k]:
                continue
            if not count:
                pieces[r] += blank or not _is_blank(data, start[k], end[k])
                continue
            count_of_words, ended = count_words_sentences(data, start[k], end[k])
            pieces[r] += blank or count_of_words > 0
            words[r] += count_of_words
            sentences[r] += ended if lines else count_of_words > 0
        if lines:
            _mark_lines(first, stop, start, end, removed, mark, base)
        else:
            _mark_sentences(data, first, stop, start, end, removed, mark, base)
            mark_ends(data, offsets[r], offsets[r + 1], mark, base, SPACE)
    return cut, pieces, words, sentences


def mark_pieces(
    data: np.ndarray,
    offsets: np.ndarray,
    pieces: Extents,
    removed: np.ndarray,
    mark: np.ndarray,
    *,
    lines: bool,
    blank: bool = False,
    count: bool = True,
) -> Rest:
    """Marks what goes with the gone pieces in mark: uint8[bytes of the batch], and returns what is
    left. lines: the pieces are lines; else sentences, and white space at the ends of a document
    that loses some goes too. blank: a blank piece that stays is one that is left. count: whether
    words and sentences are counted."""
    bounds = (pieces.rows, pieces.start, pieces.end)
    return Rest(*_mark(data, offsets, *bounds, removed, mark, lines, blank, count))
