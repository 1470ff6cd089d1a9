"""Documents line by line: how much of each is in its language, and what else is in it.

The score of a document by its lines is OSCAR's (Abadji et al. 2022, "Towards a Cleaner
Document-Oriented Multilingual Crawled Corpus", 3.2): bytes times score of the lines in its
language, over the bytes of all lines.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from curate.documents.documents import Documents
from curate.scoring.language.lines import fasttext_lines
from curate.scoring.language.native import Model
from curate.text.lines import newline_lines
from curate.text.unicode import row_chars
from kernel_cache import njit

MOST = 5  # languages of a document that are named
SHARES = pa.list_(pa.struct([("lang", pa.string()), ("share", pa.float64())]))


@dataclass(frozen=True)
class ByLine:
    """One value a document. score: float64, OSCAR's; switched: float64, the share of bytes in lines
    of another language than the document's; both NaN where no line counts. codes: int32[rows, MOST]
    and shares: float64[rows, MOST]: the languages with the most bytes, -1 for none."""

    score: np.ndarray
    switched: np.ndarray
    codes: np.ndarray
    shares: np.ndarray

    def listed(self, labels: tuple[str, ...]) -> pa.Array:
        """The languages and shares as a list column."""
        there = self.codes >= 0
        offsets = np.concatenate(([0], np.cumsum(there.sum(axis=1)))).astype(np.int32)
        names = pa.array(labels, pa.string()).take(pa.array(self.codes[there]))
        fields = list(SHARES.value_type)
        pairs = pa.StructArray.from_arrays([names, pa.array(self.shares[there])], fields=fields)
        return pa.ListArray.from_arrays(pa.array(offsets), pairs).cast(SHARES)


def by_line(docs: Documents, model: Model, language: np.ndarray, least: int) -> ByLine:
    """Labels every line of at least so many characters and with a word; others do not count.

    language: int32[rows], the label of each document, an index into the model's.
    """
    data, offsets = docs.buffers()
    lines = newline_lines(docs)
    tiles = np.append(lines.start, offsets[-1])  # each line with its newline, which is a space
    codes, scores = model.best(*fasttext_lines(data, tiles, 0))
    chars = row_chars(data, tiles) - (tiles[1:] > lines.end)
    counts = (codes >= 0) & (chars >= least)
    size = lines.end - lines.start
    return ByLine(*shares_of(lines.rows, codes, scores, size, counts, language, len(model.labels)))


@njit(cache=True, nogil=True)
def shares_of(
    rows: np.ndarray,
    codes: np.ndarray,
    scores: np.ndarray,
    size: np.ndarray,
    counts: np.ndarray,
    language: np.ndarray,
    labels: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The fields of ByLine.

    rows: int64[documents + 1], the first line of each; codes: int32[lines]; scores: float32[lines];
    size: int64[lines], bytes; counts: bool[lines]; language: int32[documents].
    """
    documents = len(rows) - 1
    score = np.full(documents, np.nan)
    switched = np.full(documents, np.nan)
    best = np.full((documents, MOST), -1, np.int32)
    shares = np.zeros((documents, MOST))
    held = np.zeros(labels, np.int64)
    seen = np.empty(labels, np.int64)
    for row in range(documents):
        total, many, weighed = 0, 0, 0.0
        for line in range(rows[row], rows[row + 1]):
            if not counts[line]:
                continue
            code = codes[line]
            if held[code] == 0:
                seen[many] = code
                many += 1
            held[code] += size[line]
            total += size[line]
            if code == language[row]:
                weighed += size[line] * np.float64(scores[line])
        if total == 0:
            continue
        score[row] = weighed / total
        mine = held[language[row]] if language[row] >= 0 else 0
        switched[row] = 1.0 - mine / total
        for place in range(min(MOST, many)):
            top = -1
            for k in range(many):
                code = seen[k]
                more = top < 0 or held[code] > held[top]
                if held[code] > 0 and (more or (held[code] == held[top] and code < top)):
                    top = code
            best[row, place] = top
            shares[row, place] = held[top] / total
            held[top] = 0
        for k in range(many):
            held[seen[k]] = 0
    return score, switched, best, shares
