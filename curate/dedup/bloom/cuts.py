"""The text without paragraphs that were seen before, and documents of which nothing is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from curate.documents import Spans
from curate.text.cutting import cut
from curate.text.pieces import strip_space
from kernel_cache import njit

if TYPE_CHECKING:
    from curate.documents import Documents


@njit(cache=True, nogil=True)
def blank_without(data, offsets, rows, start, end):
    """bool[rows of the batch]: those with spans of which nothing but white space is left.

    rows, start, end: int64[spans], ordered, bytes within the row.
    """
    blank = np.zeros(len(offsets) - 1, np.bool_)
    s = 0
    while s < len(rows):
        r = rows[s]
        a = offsets[r]
        empty = True
        while s < len(rows) and rows[s] == r:
            if empty:
                left, right = strip_space(data, a, offsets[r] + start[s])
                empty = left >= right
            a = offsets[r] + end[s]
            s += 1
        if empty:
            left, right = strip_space(data, a, offsets[r + 1])
            empty = left >= right
        blank[r] = empty
    return blank


def without_seen(
    docs: Documents, at: np.ndarray, decisions: pa.Table, limit: float, rule: str
) -> Documents:
    """The batch after the decisions. at: int64[decisions], rows of the batch; limit: the threshold
    that reasons name; rule: the name of the cuts.

    `overlap` is annotated for every document of which something was seen.
    """
    overlap = np.full(len(docs), np.nan)
    overlap[at] = decisions["overlap"].to_numpy()
    docs = docs.annotate("overlap", pa.array(overlap, mask=np.isnan(overlap)))
    drop = decisions["drop"].to_numpy(zero_copy_only=False)
    passage = decisions["span_start"].is_valid().to_numpy(zero_copy_only=False)
    gone = np.zeros(len(docs), np.bool_)
    gone[at[drop & ~passage]] = True
    docs = docs.drop(gone, "seen_before", overlap, limit)
    spans = pa.array(passage)
    rows = at[passage]
    start = decisions["span_start"].filter(spans).to_numpy()
    end = decisions["span_end"].filter(spans).to_numpy()
    blank = blank_without(*docs.buffers(), rows, start, end)
    docs = docs.drop(blank, "nothing_left", overlap, limit)
    stays = ~blank[rows]
    rows, start, end = rows[stays], start[stays], end[stays]
    none = np.zeros(len(rows), np.uint8)
    return cut(docs, Spans(rows, start, end, none, (rule,), none))
