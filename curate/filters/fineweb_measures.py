"""What FineWeb's quality rules count of a batch."""

from __future__ import annotations

import numpy as np

from curate.documents.documents import Documents
from curate.filters.gopher_quality import ratio
from curate.filters.punctuation import TERMINAL
from curate.filters.repeats import duplicates, last_code_points, piece_chars
from curate.filters.tokens import symbol_tokens
from curate.text.lines import newline_lines, written_lines
from curate.text.unicode import row_chars


def measured(docs: Documents, variant: str, short_line_chars: int) -> Documents:
    """The batch with the columns that the rules look at. variant, short_line_chars: as in the
    step's settings."""
    data, offsets = docs.buffers()
    lines = written_lines(docs, strip=False)
    number = np.diff(lines.rows)
    newlines = np.diff(newline_lines(docs).rows) - 1
    paper = variant == "paper"
    docs = docs.annotate("lines", number.astype(np.int32))
    marked = TERMINAL[last_code_points(data, lines.start, lines.end)]
    docs = docs.annotate("end_marks", ratio(_by_row(lines.rows, marked), number))
    short = _short(data, lines.start, lines.end, short_line_chars - paper)
    docs = docs.annotate("short_lines", ratio(_by_row(lines.rows, short), number))
    copied = duplicates(docs, lines, every=False)[1]
    share = ratio(copied, row_chars(data, offsets) - newlines)
    docs = docs.annotate("duplicate_line_chars", share)
    if not paper:
        share = ratio(newlines, np.diff(symbol_tokens(docs).rows))
        docs = docs.annotate("newlines", share)
    return docs


def _by_row(rows: np.ndarray, flags: np.ndarray) -> np.ndarray:
    """int64[rows]: how many of each row's flags are set."""
    before = np.concatenate(([0], np.cumsum(flags)))
    counts: np.ndarray = np.diff(before[rows])
    return counts


def _short(data: np.ndarray, start: np.ndarray, end: np.ndarray, most: int) -> np.ndarray:
    """bool[lines]: lines of at most that many characters."""
    # A character has at most four bytes: only lines in between have to be counted.
    size = end - start
    short: np.ndarray = size <= most
    between = np.flatnonzero(~short & (size <= 4 * most))
    each = np.arange(len(between) + 1)
    short[between] = piece_chars(data, each, start[between], end[between]) <= most
    return short
