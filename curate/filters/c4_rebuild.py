"""The spans that turn a page into what C4's rules leave of it."""

from __future__ import annotations

import numpy as np

from curate.filters.c4_kernel import BLANK, CITATION, KEPT, citation_bytes
from curate.text.unicode import char_bytes, space_bytes
from kernel_cache import njit


@njit(nogil=True)
def _citations(data, a, z, rows, starts, ends, rules, swaps, spans, row, base):
    """Records each citation in data[a:z] as a span."""
    i = a
    while i < z:
        c = citation_bytes(data, i, z)
        if c:
            rows[spans], starts[spans], ends[spans] = row, i - base, i + c - base
            rules[spans], swaps[spans] = CITATION, 0
            spans += 1
            i += c
        else:
            i += 1
    return spans


@njit(nogil=True)
def _last_character(data, a, z):
    """The end of the last character of data[a:z] that is neither white space nor citation."""
    end = a
    i = a
    while i < z:
        n = citation_bytes(data, i, z)
        if n == 0:
            n = space_bytes(data, i, z)
        if n == 0:
            n = char_bytes(data[i])
            end = min(i + n, z)
        i += n
    return end


@njit(cache=True, nogil=True)
def spans_of_lines(data, offsets, row_lines, raw, start, end, verdict, cited, clean, citations):
    """(rows, starts, ends: int64[spans], rules, swaps: uint8[spans]): what goes from the rows in
    `clean`, in order; a swap of 1 puts a newline in its place."""
    n_rows = len(offsets) - 1
    limit = 2 * len(start) + citations + n_rows + 1
    rows = np.empty(limit, np.int64)
    starts = np.empty(limit, np.int64)
    ends = np.empty(limit, np.int64)
    rules = np.empty(limit, np.uint8)
    swaps = np.empty(limit, np.uint8)
    spans = 0
    for r in range(n_rows):
        if not clean[r]:
            continue
        base = offsets[r]
        last = -1  # the last kept line that is not empty without its citations
        for k in range(row_lines[r], row_lines[r + 1]):
            if verdict[k] == KEPT and (
                not cited[k] or _last_character(data, start[k], end[k]) > start[k]
            ):
                last = k
        open_piece = False
        for k in range(row_lines[r], row_lines[r + 1]):
            close = raw[k + 1] if k + 1 < row_lines[r + 1] else offsets[r + 1]
            if verdict[k] != KEPT:
                same = (
                    spans > 0
                    and rows[spans - 1] == r
                    and rules[spans - 1] == verdict[k]
                    and ends[spans - 1] == raw[k] - base
                    and swaps[spans - 1] == 0
                )
                if same:
                    ends[spans - 1] = close - base
                elif close > raw[k]:
                    rows[spans], starts[spans], ends[spans] = r, raw[k] - base, close - base
                    rules[spans], swaps[spans] = verdict[k], 0
                    spans += 1
                continue
            # The page is stripped at both ends after its citations are gone.
            a, z = start[k], end[k]
            if not open_piece and cited[k]:
                while a < z:
                    c = citation_bytes(data, a, z)
                    n = space_bytes(data, a, z)
                    if c == 0 and n == 0:
                        break
                    a += c if c else n
            if k > last or a == z:
                rows[spans], starts[spans], ends[spans] = r, raw[k] - base, close - base
                rules[spans], swaps[spans] = CITATION, 0
                spans += 1
                continue
            if k == last and cited[k]:
                z = _last_character(data, a, z)
            if a > raw[k]:
                rows[spans], starts[spans], ends[spans] = r, raw[k] - base, a - base
                rules[spans], swaps[spans] = BLANK if a == start[k] else CITATION, 0
                spans += 1
            if cited[k]:
                spans = _citations(data, a, z, rows, starts, ends, rules, swaps, spans, r, base)
            open_piece = True
            if k != last:
                if close - z != 1 or data[z] != 10:
                    rows[spans], starts[spans], ends[spans] = r, z - base, close - base
                    rules[spans], swaps[spans] = BLANK, 1
                    spans += 1
            elif close > z:
                rows[spans], starts[spans], ends[spans] = r, z - base, close - base
                rules[spans], swaps[spans] = BLANK if z == end[k] else CITATION, 0
                spans += 1
    return (
        rows[:spans].copy(),
        starts[:spans].copy(),
        ends[:spans].copy(),
        rules[:spans].copy(),
        swaps[:spans].copy(),
    )
