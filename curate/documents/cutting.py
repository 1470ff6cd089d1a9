"""Text without the spans that a step cuts. A step gives spans or marks on bytes, and this file
makes the new text. No other code writes edited text, so the recorded edits are what was cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.text.buffers import text_array
from curate.text.unicode import space_bytes
from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import load8

if TYPE_CHECKING:
    from curate.documents.documents import Documents
    from curate.documents.edits import Spans


@njit(cache=True, nogil=True)
def _without(data, offsets, rows, start, end, replacement, filling, filling_at):
    """Return (data, offsets): the texts without the given spans, as uint8[] and int64[rows + 1].
    Spans must be in order. Replacement i is filling[filling_at[i] : filling_at[i + 1]]."""
    n_rows = len(offsets) - 1
    extra = 0
    for s in range(len(rows)):
        extra += filling_at[replacement[s] + 1] - filling_at[replacement[s]]
    out = np.empty(offsets[n_rows] - offsets[0] + extra, np.uint8)
    out_offsets = np.empty(n_rows + 1, np.int64)
    at = 0
    s = 0
    for r in range(n_rows):
        out_offsets[r] = at
        base = offsets[r]
        a = base
        while s < len(rows) and rows[s] == r:
            n = base + start[s] - a
            out[at : at + n] = data[a : a + n]
            at += n
            for k in range(filling_at[replacement[s]], filling_at[replacement[s] + 1]):
                out[at] = filling[k]
                at += 1
            a = base + end[s]
            s += 1
        n = offsets[r + 1] - a
        out[at : at + n] = data[a : a + n]
        at += n
    out_offsets[n_rows] = at
    return out[:at], out_offsets


@njit(cache=True, nogil=True)
def _marked_spans(mark, offsets, cut):
    """Find runs of equal marks in the rows where `cut` (bool[rows]) is True. Return (rows, start,
    end, rule), with one entry per run; positions are bytes from the start of the row. A byte's mark
    is the number of its rule plus 1, or 0 if the byte stays."""
    spans = 0
    for write in range(2):  # counts first, so that a batch with few cuts needs little memory
        if write:
            rows = np.empty(spans, np.int64)
            start = np.empty(spans, np.int64)
            end = np.empty(spans, np.int64)
            rule = np.empty(spans, np.uint8)
            spans = 0
        for r in range(len(offsets) - 1):
            if not cut[r]:
                continue
            before = np.uint8(0)
            i, stop = offsets[r], offsets[r + 1]
            while i < stop:
                at = np.uint64(i - offsets[0])
                if before == 0 and i + 8 <= stop and load8(mark, at) == 0:
                    i += 8
                    continue
                m = mark[at]
                i += 1
                if m == before:
                    continue
                if write and before:
                    end[spans - 1] = i - 1 - offsets[r]
                if m:
                    if write:
                        rows[spans], start[spans], rule[spans] = r, i - 1 - offsets[r], m - 1
                    spans += 1
                before = m
            if write and before:
                end[spans - 1] = stop - offsets[r]
    return rows, start, end, rule


@njit(nogil=True)
def mark_ends(data, a, z, mark, base, value):
    """Mark white space at both ends of the unmarked bytes of data[a:z] with `value`. mark[i - base]
    belongs to byte i, and 0 means unmarked. Return the number of bytes still unmarked."""
    i = a
    while i < z:
        if mark[i - base]:
            i += 1
            continue
        n = space_bytes(data, i, z)
        if n == 0:
            break
        for k in range(i, i + n):
            mark[k - base] = value
        i += n
    first = i
    i = z
    while i > first:
        if mark[i - 1 - base]:
            i -= 1
            continue
        k = i - 1
        while k > first and (data[k] & 0xC0) == 0x80:
            k -= 1
        if space_bytes(data, k, i) == 0:
            break
        for m in range(k, i):
            mark[m - base] = value
        i = k
    unmarked = 0
    for m in mark[first - base : i - base]:
        unmarked += m == 0
    return unmarked


def cut(docs: Documents, spans: Spans) -> Documents:
    """Return the batch with the spans cut or replaced, and record them as edits."""
    if len(spans.rows) == 0:
        return docs
    data, offsets = docs.buffers()
    fillings = [text.encode() for text in spans.replacements]
    filling = np.frombuffer(bytearray().join(fillings), np.uint8)
    at = np.cumsum([0, *map(len, fillings)]).astype(np.int64)
    # Always int64: the kernel is compiled again for every other type.
    columns = (spans.rows, spans.start, spans.end, spans.replacement)
    rows, start, end, replacement = (np.ascontiguousarray(column, np.int64) for column in columns)
    text: pa.Array = text_array(
        *_without(data, offsets, rows, start, end, replacement, filling, at)
    )
    if docs.text.null_count:  # rows that are still payloads have no text
        text = pc.if_else(docs.text.is_valid(), text, pa.scalar(None, pa.large_string()))
    return docs.edit(text, spans)


def cut_marked(
    docs: Documents, mark: np.ndarray, rows: np.ndarray, rules: tuple[str, ...]
) -> Documents:
    """Return the batch without the marked bytes. mark: uint8[bytes of the batch], 0 for a byte to
    keep, or i + 1 for a byte that `rules[i]` cuts. rows: bool[rows], True for the rows to edit."""
    from curate.documents.edits import Spans

    at, start, end, rule = _marked_spans(mark, docs.buffers()[1], rows)
    return cut(docs, Spans(at, start, end, rule, rules, np.zeros(len(at), np.uint8)))
