"""Lines and paragraphs of a batch, cut at newlines alone, as byte positions.

`text/tables.py` cuts lines as `str.splitlines()` does; here a line ends at `\\n` only. Each table
is computed once while the text is unchanged. There is no branch at newlines, because processors
cannot predict them. Instead, a vector loop computes a flag (0 or 1) per byte. Eight flags together
are the index of a row in a table, and this row has the positions of the flags that are 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from curate.text.unicode import space_bytes
from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import load8

if TYPE_CHECKING:
    from curate.documents.documents import Documents


PADDING = 8  # zero bytes after the flags, and spare entries of `out`

# Times this number, eight bytes of 0 or 1 give a product with these flags in its upper eight bits.
_GATHER = np.uint64(0x0102040810204080)
_SHIFT = np.uint64(56)
_EIGHT = np.uint64(8)
_POSITIONS = np.zeros((256, 8), np.uint8)
_COUNTS = np.zeros(256, np.uint64)
for _mask in range(256):
    _set = [k for k in range(8) if _mask >> k & 1]
    _POSITIONS[_mask, : len(_set)] = _set
    _COUNTS[_mask] = len(_set)


@njit(nogil=True)
def count_flags(flags):
    """Return the number of flags that are 1. `flags` is uint8[n], each 0 or 1."""
    n = np.int64(0)
    for f in flags:
        n += f
    return n


@njit(nogil=True)
def flag_positions(flags, n, base, out):
    """Write the position of each set flag, plus `base`, to `out`; return the number of set flags.
    flags: uint8[n + PADDING], each 0 or 1, and 0 from n on. out: int64[set flags + PADDING]."""
    count = np.uint64(0)
    i, stop = np.uint64(0), np.uint64(n)
    while i < stop:
        eight = load8(flags, i)
        if eight != 0:
            mask = (eight * _GATHER) >> _SHIFT
            for k in range(np.uint64(8)):
                out[count + k] = base + np.int64(i) + _POSITIONS[mask, k]
            count += _COUNTS[mask]
        i += _EIGHT
    return np.int64(count)


@dataclass(frozen=True)
class Extents:
    """Lines, paragraphs or sentences as extents of bytes. rows: int64[rows + 1], the first extent
    of each row. start, end: int64[extents], absolute byte positions."""

    rows: np.ndarray
    start: np.ndarray
    end: np.ndarray


@njit(cache=True, nogil=True)
def _newlines(data, offsets):
    rows = len(offsets) - 1
    base, size = offsets[0], offsets[rows] - offsets[0]
    flags = np.zeros(size + PADDING, np.uint8)
    text = data[base : base + size]
    for i in range(size):
        flags[i] = text[i] == np.uint8(10)
    count = count_flags(flags)
    newlines = np.empty(count + PADDING, np.int64)
    flag_positions(flags, size, base, newlines)
    out = np.empty(rows + 1, np.int64)
    start = np.empty(count + rows, np.int64)
    end = np.empty(count + rows, np.int64)
    n = k = 0
    for r in range(rows):
        out[r] = n
        start[n] = offsets[r]
        while k < count and newlines[k] < offsets[r + 1]:
            end[n] = newlines[k]
            start[n + 1] = newlines[k] + 1
            n += 1
            k += 1
        end[n] = offsets[r + 1]
        n += 1
    out[rows] = n
    return out, start, end


@njit(nogil=True)
def longest(start, end):
    """Return the length of the longest extent, or 0 without extents. start, end: int64[extents]."""
    most = np.int64(0)
    for k in range(len(start)):
        most = max(most, end[k] - start[k])
    return most


@njit(nogil=True)
def strip_space(data, a, z):
    """Return (start, end) of the bytes data[a:z] without white space at both ends."""
    while a < z:
        n = space_bytes(data, a, z)
        if n == 0:
            break
        a += n
    while z > a:
        last = z - 1
        while last > a and (data[last] & 0xC0) == 0x80:
            last -= 1
        if space_bytes(data, last, z) == 0:
            break
        z = last
    return a, z


@njit(cache=True, nogil=True)
def _without_blanks(data, rows, start, end, strip):
    out_rows = np.empty_like(rows)
    out_start, out_end = np.empty_like(start), np.empty_like(end)
    n = 0
    for r in range(len(rows) - 1):
        out_rows[r] = n
        for k in range(rows[r], rows[r + 1]):
            a, z = strip_space(data, start[k], end[k])
            if a < z:
                out_start[n] = a if strip else start[k]
                out_end[n] = z if strip else end[k]
                n += 1
    out_rows[len(rows) - 1] = n
    return out_rows, out_start[:n], out_end[:n]


@njit(cache=True, nogil=True)
def _not_empty(rows, start, end):
    out_rows = np.empty_like(rows)
    out_start, out_end = np.empty_like(start), np.empty_like(end)
    n = 0
    for r in range(len(rows) - 1):
        out_rows[r] = n
        for k in range(rows[r], rows[r + 1]):
            if start[k] < end[k]:
                out_start[n], out_end[n] = start[k], end[k]
                n += 1
    out_rows[len(rows) - 1] = n
    return out_rows, out_start[:n], out_end[:n]


@njit(cache=True, nogil=True)
def _paragraphs(data, offsets, rows, start, end):
    """Return the fields of `Extents` for paragraphs: runs of lines without an empty line between
    them in the stripped text, as by `re.split(r"\\n{2,}", text.strip())`; none for a blank text."""
    out_rows = np.empty_like(rows)
    out_start, out_end = np.empty_like(start), np.empty_like(end)
    n = 0
    for r in range(len(rows) - 1):
        out_rows[r] = n
        first, last = strip_space(data, offsets[r], offsets[r + 1])
        inside = False
        for k in range(rows[r], rows[r + 1]):
            a, z = max(start[k], first), min(end[k], last)
            if a >= z:  # empty, or outside of the stripped text
                inside = False
            elif inside:
                out_end[n - 1] = z
            else:
                out_start[n], out_end[n] = a, z
                n += 1
                inside = True
    out_rows[len(rows) - 1] = n
    return out_rows, out_start[:n], out_end[:n]


def newline_lines(docs: Documents) -> Extents:
    """Return the lines of every row: `text.split("\\n")`."""
    return docs.table_of("newline_lines", lambda: Extents(*_newlines(*docs.buffers())))


def filled_lines(docs: Documents) -> Extents:
    """Return the lines of at least one character: `re.split(r"\\n+", text)` without ""."""
    lines = newline_lines(docs)
    build = lambda: Extents(*_not_empty(lines.rows, lines.start, lines.end))  # noqa: E731
    return docs.table_of("filled_lines", build)


def written_lines(docs: Documents, strip: bool) -> Extents:
    """Return the lines that are not blank; if `strip`, without white space at their ends."""
    lines = newline_lines(docs)
    data, _ = docs.buffers()

    def build() -> Extents:
        return Extents(*_without_blanks(data, lines.rows, lines.start, lines.end, strip))

    return docs.table_of(f"written_lines.{strip}", build)


def paragraphs(docs: Documents, strip: bool) -> Extents:
    """Return the paragraphs, cut at two or more newlines; if `strip`, stripped and not blank."""
    lines = newline_lines(docs)
    data, offsets = docs.buffers()

    def build() -> Extents:
        rows, start, end = _paragraphs(data, offsets, lines.rows, lines.start, lines.end)
        if strip:
            rows, start, end = _without_blanks(data, rows, start, end, True)
        return Extents(rows, start, end)

    return docs.table_of(f"paragraphs.{strip}", build)
