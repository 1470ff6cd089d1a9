"""Cuts of a batch: marks on bytes where passages go, and what the documents then hold."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from curate.dedup.suffix_array.windows import continues
from curate.documents.documents import NUMBER, Documents
from curate.text.unicode import space_bytes
from llmcurate.base.kernels import njit

# Marks: one more than their positions in step.RULES.
GLOBAL, LOCAL = 1, 2


@njit(cache=True, nogil=True)
def _mark(offsets, rows, start, end, local, mark):
    base = offsets[0]
    for s in range(len(rows)):
        at = offsets[rows[s]] - base
        size = offsets[rows[s] + 1] - offsets[rows[s]]
        a, z = max(start[s], 0), min(end[s], size)
        for i in range(at + a, at + z):
            mark[i] = LOCAL if local[s] and mark[i] != GLOBAL else GLOBAL


@njit(cache=True, nogil=True)
def _remaining(data, offsets, rows, mark, cut, chars, written):
    base = offsets[0]
    for r in rows:
        i, stop = offsets[r], offsets[r + 1]
        while i < stop:
            if mark[i - base]:
                cut[r] += 1
                i += 1
                continue
            n = space_bytes(data, i, stop)
            if n == 0:
                written[r] = True
                n = 1
            for k in range(i, i + n):
                chars[r] += not continues(data[k])
            i += n


def marks_of(docs: Documents, decisions: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """(mark: uint8[bytes of the batch], GLOBAL or LOCAL where a decision cuts, else 0; rows:
    int64[], those with a cut)."""
    _, offsets = docs.buffers()
    mark = np.zeros(int(offsets[-1] - offsets[0]), np.uint8)
    dropped = decisions.filter(decisions["drop"])
    rows = np.searchsorted(docs.table[NUMBER].to_numpy(), dropped["n"].to_numpy())
    start, end = dropped["span_start"].to_numpy(), dropped["span_end"].to_numpy()
    local = (
        dropped["local"].to_numpy(zero_copy_only=False) if len(dropped) else np.empty(0, np.bool_)
    )
    _mark(offsets, rows, start, end, local, mark)
    return mark, np.unique(rows)


def remaining_text(
    docs: Documents, mark: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(cut: int64[rows], bytes that go; chars: int64[rows], characters that stay; written:
    bool[rows], whether one of them is no white space) of the rows named, 0 and False of others."""
    data, offsets = docs.buffers()
    cut, chars = np.zeros(len(docs), np.int64), np.zeros(len(docs), np.int64)
    written = np.zeros(len(docs), np.bool_)
    _remaining(data, offsets, rows, mark, cut, chars, written)
    return cut, chars, written
