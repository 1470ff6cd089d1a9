"""Passages of documents and the keys under which they are compared.

A passage is a run of pieces (lines, or sentences). A unit names the pieces, how many of them make a
passage, and the folding of a piece before it is hashed; another unit is another entry of UNITS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from curate.text.folding import LOOK, fold, lower_table
from curate.text.hash128 import hash128
from curate.text.pieces import Pieces, newline_lines, strip_space
from curate.text.sentence_table import sentences

if TYPE_CHECKING:
    from curate.documents import Documents


@dataclass(frozen=True)
class Unit:
    """pieces: the pieces of a batch, in order; table: a folding table for them; span: pieces a
    passage, where the settings do not say; lines: whether a piece is a line with its newline."""

    pieces: Callable[[Documents], Pieces]
    table: Callable[[], np.ndarray]
    span: int
    lines: bool


# Both compare `piece.strip().lower()`: lines as C4's code does it (c4_utils.py), and sentences,
# for which the C4 paper names no normal form, the same way.
UNITS = {
    "line": Unit(newline_lines, lower_table, 1, True),
    "sentences": Unit(sentences, lower_table, 3, False),
}


@dataclass(frozen=True)
class Passages:
    """rows: int64[rows + 1], the first passage of each row; first, last: int64[passages], indices
    of its pieces; high, low: uint64[passages], the halves of its key."""

    rows: np.ndarray
    first: np.ndarray
    last: np.ndarray
    high: np.ndarray
    low: np.ndarray


@njit(cache=True, nogil=True)
def _piece_keys(data, start, end, table, high, low, state):
    """Fills the keys; state: uint8[pieces], 0 for a blank piece, 1 for one with a key, 2 for one
    whose lower case depends on the text around a letter."""
    longest = np.int64(0)
    for k in range(len(start)):
        longest = max(longest, end[k] - start[k])
    out = np.empty(2 * longest, np.uint8)
    for k in range(len(start)):
        a, z = strip_space(data, start[k], end[k])
        state[k] = a < z
        if a < z:
            n = fold(data, a, z, table, out)
            if n == LOOK:
                state[k] = 2
            else:
                high[k], low[k] = hash128(out, 0, n)


def piece_keys(
    data: np.ndarray, start: np.ndarray, end: np.ndarray, table: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(high, low: uint64[pieces], written: bool[pieces]): the hash of each piece without white
    space at its ends, folded; a piece of white space has none."""
    high = np.zeros(len(start), np.uint64)
    low = np.zeros(len(start), np.uint64)
    state = np.zeros(len(start), np.uint8)
    _piece_keys(data, start, end, table, high, low, state)
    for k in np.flatnonzero(state == 2).tolist():
        piece = data[start[k] : end[k]].tobytes().decode("utf-8", "surrogateescape")
        folded = piece.strip().lower().encode("utf-8", "surrogateescape")
        high[k], low[k] = hash128(np.frombuffer(folded, np.uint8), 0, len(folded))
    return high, low, state > 0


@njit(cache=True, nogil=True)
def _spans(rows, high, low, written, span):
    """Passages of `span` written pieces that follow each other; blank ones lie between."""
    n_rows = len(rows) - 1
    out = np.empty(n_rows + 1, np.int64)
    first = np.empty(len(high), np.int64)
    last = np.empty(len(high), np.int64)
    ones = np.empty(len(high), np.uint64)
    twos = np.empty(len(high), np.uint64)
    held = np.empty(span, np.int64)  # the last `span` written pieces
    joined = np.empty(2 * span, np.uint64)
    keys = joined.view(np.uint8)
    n = 0
    for r in range(n_rows):
        out[r] = n
        seen = 0
        for k in range(rows[r], rows[r + 1]):
            if not written[k]:
                continue
            held[seen % span] = k
            seen += 1
            if seen < span:
                continue
            first[n], last[n] = held[seen % span], k
            if span == 1:
                ones[n], twos[n] = high[k], low[k]
            else:
                for i in range(span):
                    piece = held[(seen + i) % span]
                    joined[2 * i], joined[2 * i + 1] = high[piece], low[piece]
                ones[n], twos[n] = hash128(keys, 0, 16 * span)
            n += 1
    out[n_rows] = n
    return out, first[:n].copy(), last[:n].copy(), ones[:n].copy(), twos[:n].copy()


def passages(docs: Documents, unit: str, span: int) -> Passages:
    """All passages of a batch; a document with fewer written pieces than a passage has none."""
    kind = UNITS[unit]
    pieces = kind.pieces(docs)
    data, _ = docs.buffers()
    high, low, written = piece_keys(data, pieces.start, pieces.end, kind.table())
    return Passages(*_spans(pieces.rows, high, low, written, span))
