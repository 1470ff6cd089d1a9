"""Gopher's repetition rules (Rae et al. 2021, table A1) in four published readings.

The thresholds are the paper's and shared by all; what counts as a duplicate and what it is divided
by differs (docs/filters.md has the table). Sources: DataTrove 0.10
`gopher_repetition_filter.py`, Dolma `taggers/gopher.py` and `configs/dolma-v1_6`, DCLM
`content_filters.py`; "paper" is our reading where the paper leaves a choice.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from curate.documents import Documents
from curate.filters.gopher_quality import Variant, ratio
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
from curate.limits import Limit, decide
from curate.steps import Step
from curate.text.pieces import Pieces, filled_lines, newline_lines, paragraphs, written_lines
from curate.text.unicode import row_chars

# Rae et al. 2021, table A1.
MAX_TOP = {2: 0.20, 3: 0.18, 4: 0.16}
MAX_DUPLICATE = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10}
MAX_LINE_CHARS = 0.20
DOLMA_MAX_LINE_CHARS = 0.30  # dolma configs/dolma-v1_6/mixer


class GopherRepetition(Step):
    """Drops documents that repeat lines, paragraphs or runs of words."""

    name: ClassVar[str] = "gopher_repetition"
    only_measures: ClassVar[bool] = True

    variant: Variant = Field("datatrove", description="whose reading of the rules")
    # Rae et al. 2021, table A1.
    max_duplicate_lines: float = Field(0.30, ge=0, description="share of lines")
    max_duplicate_paragraphs: float = Field(0.30, ge=0, description="share of paragraphs")
    max_duplicate_line_chars: float | None = Field(
        None, ge=0, description="share of characters; none: the variant's, 0.2, or 0.3 for dolma"
    )
    max_duplicate_paragraph_chars: float = Field(0.20, ge=0, description="share of characters")
    max_top_n_gram_chars: dict[int, float] = Field(MAX_TOP, description="by n, from 2 to 4")
    max_duplicate_n_gram_chars: dict[int, float] = Field(
        MAX_DUPLICATE, description="by n, from 5 to 10"
    )

    def apply(self, docs: Documents) -> Documents:
        _, offsets = docs.buffers()
        if self.variant == "datatrove":
            empty = np.diff(offsets) == 0
            docs = docs.drop(empty, "empty")
        elif self.variant == "dclm":
            empty = np.diff(written_lines(docs, strip=True).rows) == 0
            docs = docs.drop(empty, "empty")
        docs = self._repeated_n_grams(self._repeated_pieces(docs))
        return decide(docs, self.limits())

    def limits(self) -> list[Limit]:
        lines = self.max_duplicate_line_chars
        if lines is None:
            lines = DOLMA_MAX_LINE_CHARS if self.variant == "dolma" else MAX_LINE_CHARS
        paragraph_chars = self.max_duplicate_paragraph_chars
        pieces: list[tuple[str, float]] = [
            ("duplicate_paragraphs", self.max_duplicate_paragraphs),
            ("duplicate_paragraph_chars", paragraph_chars),
        ]
        if self.variant == "dolma":
            pieces = []
        pieces += [("duplicate_lines", self.max_duplicate_lines), ("duplicate_line_chars", lines)]
        found = [Limit(rule, rule, f"max_{rule}", most, True) for rule, most in pieces]
        for n in N_GRAMS:
            kind = "top" if n in MAX_TOP else "duplicate"
            setting = f"max_{kind}_n_gram_chars"
            rule = f"{kind}_{n}_gram_chars"
            most = getattr(self, setting).get(n)
            found.append(Limit(rule, rule, f"{setting}.{n}", most, True))
        return found

    def _repeated_pieces(self, docs: Documents) -> Documents:
        variant = self.variant
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
                whole = np.maximum(_word_chars(self._tokens(docs)), 1)
            else:
                whole = _chars(docs, found)
        docs = docs.annotate("duplicate_lines", ratio(n, number))
        return docs.annotate("duplicate_line_chars", ratio(n_chars, whole))

    def _repeated_n_grams(self, docs: Documents) -> Documents:
        variant = self.variant
        tokens = self._tokens(docs)
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

    def _tokens(self, docs: Documents) -> Tokens:
        if self.variant == "datatrove":
            return symbol_tokens(docs)
        if self.variant == "dclm":
            return joined_tokens(docs)
        return split_tokens_exact(docs) if self.variant == "dolma" else split_tokens(docs)


def _chars(docs: Documents, pieces: Pieces) -> np.ndarray:
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
