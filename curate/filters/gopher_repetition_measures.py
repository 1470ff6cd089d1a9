"""What Gopher's repetition rules count of a batch, as each of their readings counts it."""

from __future__ import annotations

import numpy as np

from curate.documents.documents import Documents
from curate.filters.gopher_quality import Variant, ratio
from curate.filters.gopher_repetition import MAX_TOP
from curate.filters.repeats import (
    EVERY,
    GREEDY,
    N_GRAMS,
    UNION,
    all_n_gram_chars,
    duplicates,
    n_gram_chars,
    piece_chars,
)
from curate.filters.tokens import (
    Tokens,
    joined_tokens,
    split_tokens,
    split_tokens_exact,
    symbol_tokens,
)
from curate.text.lines import Extents, filled_lines, newline_lines, paragraphs, written_lines
from curate.text.unicode import row_chars


def empty(docs: Documents, variant: Variant) -> np.ndarray:
    """bool[rows]: documents without text, for dclm without a written line."""
    if variant == "dclm":
        return np.diff(written_lines(docs, strip=True).rows) == 0
    found: np.ndarray = np.diff(docs.buffers()[1]) == 0
    return found


def measured(docs: Documents, variant: Variant) -> Documents:
    """The batch with the columns that the rules look at."""
    return _repeated_n_grams(_repeated_pieces(docs, variant), variant)


def _repeated_pieces(docs: Documents, variant: Variant) -> Documents:
    every = variant in ("dolma", "dclm")
    data, offsets = docs.buffers()
    chars = row_chars(data, offsets)
    if variant != "dolma":
        found = paragraphs(docs, strip=variant != "datatrove")
        n, n_chars = duplicates(docs, found, every)
        number = np.diff(found.rows)
        docs = docs.annotate("duplicate_paragraphs", ratio(n, number))
        whole = chars if variant == "datatrove" else _chars(docs, found)
        docs = docs.annotate("duplicate_paragraph_chars", ratio(n_chars, whole))
    if variant == "datatrove":
        found = filled_lines(docs)
        n, n_chars = duplicates(docs, found, every)
        # `re.split(r"\n+", text)` has an empty line at either end that is a newline.
        lines = newline_lines(docs)
        filled = lines.end > lines.start
        opens = ~_at(filled, lines.rows[:-1]) & (np.diff(offsets) > 0)
        closes = ~_at(filled, lines.rows[1:] - 1) & (np.diff(offsets) > 0)
        number = np.diff(found.rows) + opens + closes
        n = n + (opens & closes)
        whole = chars
    else:
        found = newline_lines(docs) if variant == "dolma" else written_lines(docs, strip=True)
        n, n_chars = duplicates(docs, found, every)
        number = np.diff(found.rows)
        if variant == "dolma":
            whole = np.maximum(_word_chars(_tokens(docs, variant)), 1)
        else:
            whole = _chars(docs, found)
    docs = docs.annotate("duplicate_lines", ratio(n, number))
    return docs.annotate("duplicate_line_chars", ratio(n_chars, whole))


def _repeated_n_grams(docs: Documents, variant: Variant) -> Documents:
    tokens = _tokens(docs, variant)
    way = {"datatrove": GREEDY, "dolma": EVERY}.get(variant, UNION)
    counts = variant in ("datatrove", "dolma")  # an n-gram that stands there once
    found = n_gram_chars(tokens, way, not counts, variant == "datatrove", counts)
    if variant == "datatrove":
        whole = row_chars(*docs.buffers())
    else:
        whole = _word_chars(tokens)
    every = all_n_gram_chars(tokens.rows, tokens.chars) if variant == "dolma" else None
    for n in N_GRAMS:
        k = n - N_GRAMS[0]
        top = n in MAX_TOP
        share = ratio(found[:, k], whole if top or every is None else every[:, k])
        rule = f"{'top' if top else 'duplicate'}_{n}_gram_chars"
        docs = docs.annotate(rule, share)
    return docs


def _tokens(docs: Documents, variant: Variant) -> Tokens:
    if variant == "datatrove":
        return symbol_tokens(docs)
    if variant == "dclm":
        return joined_tokens(docs)
    return split_tokens_exact(docs) if variant == "dolma" else split_tokens(docs)


def _chars(docs: Documents, pieces: Extents) -> np.ndarray:
    data, _ = docs.buffers()
    found: np.ndarray = piece_chars(data, pieces.rows, pieces.start, pieces.end)
    return found


def _word_chars(tokens: Tokens) -> np.ndarray:
    """int64[rows]: code points of a row's tokens."""
    before = np.concatenate(([0], np.cumsum(tokens.chars, dtype=np.int64)))
    counts: np.ndarray = np.diff(before[tokens.rows])
    return counts


def _at(flags: np.ndarray, positions: np.ndarray) -> np.ndarray:
    return flags[positions] if len(flags) else np.zeros(len(positions), np.bool_)
