"""Gopher's repetition rules (Rae et al. 2021, table A1) in four published readings.

The thresholds are the paper's and shared by all; what counts as a duplicate and what it is divided
by differs (docs/filters.md has the table). Sources: DataTrove 0.10
`gopher_repetition_filter.py`, Dolma `taggers/gopher.py` and `configs/dolma-v1_6`, DCLM
`content_filters.py`; "paper" is our reading where the paper leaves a choice.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from curate.documents.documents import Documents
from curate.documents.limits import Limit, decide
from curate.filters.gopher_quality import Variant
from curate.steps.contracts import Step

# Rae et al. 2021, table A1.
MAX_TOP = {2: 0.20, 3: 0.18, 4: 0.16}
MAX_DUPLICATE = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10}
N_GRAMS = (*MAX_TOP, *MAX_DUPLICATE)
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
        from curate.filters.gopher_repetition_measures import empty, measured

        if self.variant in ("datatrove", "dclm"):
            docs = docs.drop(empty(docs, self.variant), "empty")
        return decide(measured(docs, self.variant), self.limits())

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
