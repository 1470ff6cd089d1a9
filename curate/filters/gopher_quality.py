"""Gopher's quality rules (Rae et al. 2021, appendix A1.1) in four published readings.

The thresholds are the paper's and shared by all; what is counted differs (docs/filters.md has the
table). Sources: DataTrove 0.10 `gopher_quality_filter.py`, Dolma `taggers/gopher.py`, DCLM
`content_filters.py`; "paper" is our reading where the paper leaves a choice.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from curate.documents.documents import Documents
from curate.documents.limits import Limit, decide
from curate.steps.contracts import Step

Variant = Literal["paper", "datatrove", "dolma", "dclm"]


def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """float64[rows]: part / whole; 0 where there is no whole."""
    return np.divide(part, whole, out=np.zeros(len(part), np.float64), where=whole > 0)


class GopherQuality(Step):
    """Drops documents whose words, symbols and lines do not look like prose."""

    name: ClassVar[str] = "gopher_quality"
    only_measures: ClassVar[bool] = True

    variant: Variant = Field("datatrove", description="whose reading of the rules")
    # Rae et al. 2021, appendix A1.1.
    min_words: int = Field(50, ge=0)
    max_words: int = Field(100_000, ge=0)
    min_word_length: float = Field(3, ge=0, description="mean characters a word; dolma: median")
    max_word_length: float = Field(10, ge=0)
    max_symbol_ratio: float = Field(0.1, ge=0, description="# or ellipses a word")
    max_bullet_lines: float = Field(0.9, ge=0, description="share of lines")
    max_ellipsis_lines: float = Field(0.3, ge=0, description="share of lines")
    min_alpha_words: float = Field(0.8, ge=0, description="share of words with a letter")
    min_stop_words: int = Field(2, ge=0)

    def apply(self, docs: Documents) -> Documents:
        from curate.filters.gopher_quality_measures import measured

        return decide(measured(docs, self.variant), self.limits())

    def limits(self) -> list[Limit]:
        one = self.variant in ("dolma", "dclm")
        symbols = ["symbol_ratio"] if one else ["hash_ratio", "ellipsis_ratio"]

        def limit(rule: str, column: str, setting: str, above: bool) -> Limit:
            return Limit(rule, column, setting, getattr(self, setting), above)

        return [
            limit("few_words", "words", "min_words", False),
            limit("many_words", "words", "max_words", True),
            limit("short_words", "word_length", "min_word_length", False),
            limit("long_words", "word_length", "max_word_length", True),
            *(limit(rule, rule, "max_symbol_ratio", True) for rule in symbols),
            limit("bullet_lines", "bullet_lines", "max_bullet_lines", True),
            limit("ellipsis_lines", "ellipsis_lines", "max_ellipsis_lines", True),
            limit("alpha_words", "alpha_words", "min_alpha_words", False),
            limit("stop_words", "stop_words", "min_stop_words", False),
        ]
