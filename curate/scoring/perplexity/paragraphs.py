"""Perplexity by paragraph: lines are scored one by one, and those of other buckets are cut.

"We [...] compute the perplexity of each paragraph" (Wenzek et al. 2020, section 3.4); their code
scores pages. A paragraph is a line, as in CCNet's dedup. One without a word has no score and stays
with its neighbours; the percentiles are of all paragraphs of a language.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from curate.documents.cutting import cut_marked
from curate.documents.documents import Documents
from curate.scoring.perplexity.buckets import BUCKETS, bucket_of
from curate.text.buffers import text_array
from curate.text.lines import newline_lines


def paragraph_texts(docs: Documents) -> tuple[np.ndarray, pa.LargeStringArray]:
    """(int64[rows + 1], the first line of each row; every line with the newline behind it)."""
    data, offsets = docs.buffers()
    lines = newline_lines(docs)
    tiles = np.append(lines.start, offsets[-1])
    return lines.rows, text_array(data, tiles)


def score_lists(rows: np.ndarray, scores: np.ndarray) -> pa.ListArray:
    """The scores of the lines of each row, float64[lines]; NaN becomes null."""
    values = pa.array(scores, pa.float64(), mask=np.isnan(scores))
    return pa.ListArray.from_arrays(pa.array(rows.astype(np.int32)), values)


def cut_paragraphs(docs: Documents, keep: tuple[str, ...], decisions: pa.Table) -> Documents:
    """The batch without paragraphs of buckets that are not kept. decisions: a row a document, with
    the scores of its lines and the cuts of its language.

    Columns: `paragraphs`, how many have a score, and `cut`, how many of them went. Rules: `bucket`
    (all) for a document none of whose paragraphs has a score, `nothing_left` where all went.
    """
    _, offsets = docs.buffers()
    lines = newline_lines(docs)
    lists = decisions["score"].combine_chunks()
    score = lists.flatten().to_numpy(zero_copy_only=False).astype(np.float64)
    row = np.repeat(np.arange(len(docs)), np.diff(lines.rows))
    cuts = [
        decisions[name].combine_chunks().cast(pa.float64()).to_numpy(zero_copy_only=False)[row]
        for name in ("head", "tail", "low")
    ]
    bucket = bucket_of(score, *cuts)
    kept_codes = [code for code, name in enumerate(BUCKETS) if name in keep or not keep]
    scored = ~np.isnan(score)
    removed = scored & ~np.isin(bucket, kept_codes)
    paragraphs = np.bincount(row[scored], minlength=len(docs))
    cut = np.bincount(row[removed], minlength=len(docs))
    docs = docs.annotate("paragraphs", paragraphs.astype(np.int32))
    docs = docs.annotate("cut", cut.astype(np.int32))
    if keep and "all" not in keep:
        docs = docs.drop(paragraphs == 0, "bucket", detail=["all"] * len(docs))
    docs = docs.drop((cut > 0) & (cut == paragraphs), "nothing_left", paragraphs - cut, 1)
    edited = (cut > 0) & ~docs.marked()
    if not edited.any():
        return docs
    marks = np.where(removed, bucket + 1, 0).astype(np.uint8)
    mark = np.repeat(marks, np.diff(np.append(lines.start, offsets[-1])))
    # Where the last paragraphs went, the line end of the last that stays goes with them.
    stays = np.flatnonzero(scored & ~removed)
    for r in np.flatnonzero(edited):
        last = stays[np.searchsorted(row[stays], r, "right") - 1]
        behind = marks[last + 1 : lines.rows[r + 1]]
        if behind.any():
            end = lines.end[last] - offsets[0]
            mark[end : offsets[r + 1] - offsets[0]] = behind[behind > 0][-1]
    return cut_marked(docs, mark, edited, BUCKETS)
