"""Documents without the passages that hold evaluation items.

As GPT-3 did (Brown et al. 2020, appendix C): a match goes with 200 characters on either side,
"splitting the original document into pieces", "pieces less than 200 characters long were
discarded", "documents split into more than 10 pieces were considered contaminated and removed
entirely". There the pieces became documents; here they stay one, with an empty line at each cut.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from curate.documents.cutting import cut
from curate.documents.documents import NUMBER, Documents
from curate.documents.edits import Spans
from curate.text.unicode import row_chars

RULES = ("passage", "short_piece")
PASSAGE, SHORT = range(len(RULES))
_JOIN = "\n\n"


def cut_passages(
    docs: Documents, decisions: pa.Table, min_piece: int, max_pieces: int
) -> Documents:
    """The batch without the passages of the decisions, which do not overlap."""
    dropped = decisions.filter(decisions["drop"])
    if dropped.num_rows == 0:
        return docs
    row = np.searchsorted(docs.table[NUMBER].to_numpy(), dropped["n"].to_numpy())
    first, last = dropped["span_start"].to_numpy(), dropped["span_end"].to_numpy()
    data, offsets = docs.buffers()
    pieces = np.zeros(len(docs), np.int64)
    long_pieces = np.zeros(len(docs), np.int64)
    cuts: list[tuple[int, int, int, int]] = []  # row, start, end, rule; all touch or leave text
    for r in np.unique(row).tolist():
        passages = slice(*np.searchsorted(row, [r, r + 1]))
        size = int(offsets[r + 1] - offsets[r])
        edges = np.empty(2 * (passages.stop - passages.start) + 2, np.int64)
        edges[0], edges[-1] = 0, size
        edges[1:-1:2], edges[2:-1:2] = first[passages], last[passages]
        chars = row_chars(data, offsets[r] + edges)[::2]
        pieces[r] = (chars > 0).sum()
        long_pieces[r] = (chars >= max(1, min_piece)).sum()
        for k, n in enumerate(chars.tolist()):
            if 0 < n < min_piece:
                cuts.append((r, int(edges[2 * k]), int(edges[2 * k + 1]), SHORT))
            if 2 * k + 2 < len(edges):
                cuts.append((r, int(edges[2 * k + 1]), int(edges[2 * k + 2]), PASSAGE))
    docs = docs.drop(pieces > max_pieces, "many_pieces", pieces, max_pieces)
    touched = np.zeros(len(docs), np.bool_)
    touched[row] = True
    docs = docs.drop(touched & (long_pieces == 0), "nothing_left", long_pieces, 1)
    return cut(docs, _spans(docs, cuts, offsets))


def _spans(docs: Documents, cuts: list[tuple[int, int, int, int]], offsets: np.ndarray) -> Spans:
    """The spans that are cut of documents that stay. The first of cuts that touch is replaced by an
    empty line where text stays on both sides."""
    marked = docs.marked()
    cuts = [f for f in cuts if not marked[f[0]]]
    rows, start, end, rule = np.array(cuts, np.int64).reshape(-1, 4).T
    joined = np.zeros(len(rows), np.int64)
    k = 0
    while k < len(rows):
        j = k
        while j + 1 < len(rows) and rows[j + 1] == rows[k] and start[j + 1] == end[j]:
            j += 1
        size = offsets[rows[k] + 1] - offsets[rows[k]]
        joined[k] = start[k] > 0 and end[j] < size
        k = j + 1
    return Spans(rows, start, end, rule.astype(np.uint8), RULES, joined, ("", _JOIN))
