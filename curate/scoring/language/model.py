"""Apply a language model to documents, either to whole documents or line by line.

A document's score by lines is the score of OSCAR (Abadji et al. 2022, "Towards a Cleaner
Document-Oriented Multilingual Crawled Corpus", 3.2). It is the sum of (bytes * score) over the
lines in the document's language, divided by the bytes of all lines."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curate.documents.documents import Documents
from curate.scoring.fasttext.classifier import Classifier
from curate.scoring.fasttext.features import END_WORD, LABEL_PREFIX, SPACE
from curate.scoring.fasttext.model_file import Header
from curate.text.lines import newline_lines
from curate.text.unicode import row_chars
from llmcurate.base.errors import RunFailed
from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import matches_at

_END, _LABEL = END_WORD, LABEL_PREFIX


@njit(nogil=True)
def _cut(data: np.ndarray, at: int, end: int, chars: int) -> int:
    seen = 0
    while at < end:
        if data[at] & 0xC0 != 0x80:
            seen += 1
            if seen > chars:
                return at
        at += 1
    return end


@njit(cache=True, nogil=True)
def fasttext_lines(
    data: np.ndarray, offsets: np.ndarray, max_chars: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Convert texts to lines for fastText. Return (lines: uint8[bytes], ends: int64[rows + 1],
    words: bool[rows], True if the line has a word). Spaces replace newlines and the words that
    fastText would not read as words: `</s>` and words that begin with `__label__`. `max_chars` is
    the number of characters to read per document, or 0 for all."""
    rows = len(offsets) - 1
    total = offsets[rows] - offsets[0] + rows
    out = np.empty(total, np.uint8)
    ends = np.zeros(rows + 1, np.int64)
    words = np.zeros(rows, np.bool_)
    to = 0
    for row in range(rows):
        at, end = offsets[row], offsets[row + 1]
        if max_chars > 0 and end - at > max_chars:
            end = _cut(data, at, end, max_chars)
        between = True
        while at < end:
            byte = data[at]
            if SPACE[byte]:
                out[to] = 32 if byte == 10 else byte
                at += 1
                to += 1
                between = True
                continue
            if between:
                between = False
                after = at + len(_END)
                ended = matches_at(data, at, end, _END) and (after == end or SPACE[data[after]])
                if ended or matches_at(data, at, end, _LABEL):
                    while at < end and not SPACE[data[at]]:
                        out[to] = 32
                        at += 1
                        to += 1
                    continue
                words[row] = True
            out[to] = byte
            at += 1
            to += 1
        out[to] = 10
        to += 1
        ends[row + 1] = to
    return out[:to], ends, words


# The C++ binding: the Python package around it prints a warning at every load.
_MODULE = "fasttext_pybind"


def need_library() -> None:
    """Raise RunFailed with instructions if fastText is not installed."""
    if find_spec(_MODULE) is not None:
        return
    if sys.version_info >= (3, 13):
        raise RunFailed(
            "training language models needs fastText, which has no wheel for Python"
            f" {sys.version_info[0]}.{sys.version_info[1]}: use Python 3.10 to 3.12"
        )
    raise RunFailed("training language models needs fastText: pip install fasttext-numpy2-wheel")


def library() -> Any:
    """Return the module of fastText's Python binding. Raises RunFailed if it is not installed."""
    need_library()
    import fasttext_pybind

    return fasttext_pybind


class Model:
    """A loaded supervised model. `labels` are the labels without prefix, in the header's order."""

    def __init__(self, path: str | Path) -> None:
        self.classifier = Classifier(path)
        self.header: Header = self.classifier.header
        self.labels = self.header.labels

    def best(
        self, lines: np.ndarray, ends: np.ndarray, words: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return (code, score): int32[rows], the index in `labels` of each line's best label, or
        -1; and float32[rows], this label's score, 0 to 1. The arguments are those that the function
        fasttext_lines returns."""
        codes, scores = self.classifier.best(lines, ends)
        # fastText's probabilities can exceed 1, up to 1.00003.
        scores = np.minimum(scores, np.float32(1.0)) * words
        return np.where(words, codes, np.int32(-1)), scores.astype(np.float32)


MOST = 5  # languages listed per document
SHARES = pa.list_(pa.struct([("lang", pa.string()), ("share", pa.float64())]))


@dataclass(frozen=True)
class ByLine:
    """Scores of documents by the languages of their lines. Lines that are too short or have no word
    do not count."""

    score: np.ndarray  # float64[rows], OSCAR's score; NaN if no line counts
    switched: np.ndarray  # float64[rows]: share of bytes in other languages, or NaN
    codes: np.ndarray  # int32[rows, MOST]: languages with the most bytes, -1: none
    shares: np.ndarray  # float64[rows, MOST]: their shares of the bytes

    def listed(self, labels: tuple[str, ...]) -> pa.Array:
        filled = self.codes >= 0
        offsets = np.concatenate(([0], np.cumsum(filled.sum(axis=1)))).astype(np.int32)
        names = pa.array(labels, pa.string()).take(pa.array(self.codes[filled]))
        fields = list(SHARES.value_type)
        pairs = pa.StructArray.from_arrays([names, pa.array(self.shares[filled])], fields=fields)
        return pa.ListArray.from_arrays(pa.array(offsets), pairs).cast(SHARES)


def by_line(docs: Documents, model: Model, language: np.ndarray, least: int) -> ByLine:
    """Label each line of the documents, and return the scores by line. A line counts if it has a
    word and at least `least` characters. `language` is int32[rows], the label of each document."""
    data, offsets = docs.buffers()
    lines = newline_lines(docs)
    tiles = np.append(lines.start, offsets[-1])  # each line with its newline, which is a space
    codes, scores = model.best(*fasttext_lines(data, tiles, 0))
    chars = row_chars(data, tiles) - (tiles[1:] > lines.end)
    counts = (codes >= 0) & (chars >= least)
    size = lines.end - lines.start
    return ByLine(*shares_of(lines.rows, codes, scores, size, counts, language, len(model.labels)))


@njit(cache=True, nogil=True)
def shares_of(rows, codes, scores, size, counts, language, labels):
    """Return the four fields of the class ByLine, in its order, with one row per document.

    Arguments per document: `rows` is int64[documents + 1], the first line, and `language` is int32,
    the label. Arguments per line: `codes` is int32, the label; `scores` is float32; `size` is
    int64, the bytes; `counts` is bool, True if the line counts. `labels` is the number of labels.
    """
    documents = len(rows) - 1
    score = np.full(documents, np.nan)
    switched = np.full(documents, np.nan)
    best = np.full((documents, MOST), -1, np.int32)
    shares = np.zeros((documents, MOST))
    bytes_of = np.zeros(labels, np.int64)
    seen = np.empty(labels, np.int64)
    for row in range(documents):
        total, many, weighed = 0, 0, 0.0
        for line in range(rows[row], rows[row + 1]):
            if not counts[line]:
                continue
            code = codes[line]
            if bytes_of[code] == 0:
                seen[many] = code
                many += 1
            bytes_of[code] += size[line]
            total += size[line]
            if code == language[row]:
                weighed += size[line] * np.float64(scores[line])
        if total == 0:
            continue
        score[row] = weighed / total
        own_bytes = bytes_of[language[row]] if language[row] >= 0 else 0
        switched[row] = 1.0 - own_bytes / total
        for place in range(min(MOST, many)):
            top = -1
            for k in range(many):
                code = seen[k]
                more = top < 0 or bytes_of[code] > bytes_of[top]
                if bytes_of[code] > 0 and (
                    more or (bytes_of[code] == bytes_of[top] and code < top)
                ):
                    top = code
            best[row, place] = top
            shares[row, place] = bytes_of[top] / total
            bytes_of[top] = 0
        for k in range(many):
            bytes_of[seen[k]] = 0
    return score, switched, best, shares
