"""Filter documents in which a short sequence of tokens is repeated many times in a row, as Dolma
does (Soldaini et al. 2024; allenai/dolma, taggers/repetitions, tokenizer_repetitions_v2r2, and
configs/dolma-v1_6/mixing). Dolma counts tokens of GPT-NeoX. This filter counts words and symbols,
so it needs no tokenizer: a repeated sequence of words is also a repeated sequence of tokens."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from curate.documents.documents import Documents
from curate.documents.limits import Limit, decide
from curate.steps.contracts import Step, step


@step("periodic_repetition")
class PeriodicRepetition(Step):
    """Drops documents that repeat a short sequence of words and symbols many times in a row."""

    paper: ClassVar[str] = "Soldaini et al. 2024 (Dolma); taggers/repetitions"
    only_measures: ClassVar[bool] = True

    max_period: int = Field(13, ge=1, le=100)
    """The longest repeated sequence that is looked for, in words and symbols (Dolma: 13)."""
    min_times: int = Field(100, ge=2)
    """Documents are dropped if a sequence occurs at least this many times in a row
    (configs/dolma-v1_6: 100)."""

    def apply(self, docs: Documents) -> Documents:
        from curate.filters.repeats import longest_repeats
        from curate.filters.tokens import symbol_tokens

        tokens = symbol_tokens(docs)
        times = longest_repeats(tokens.hash, tokens.rows, self.max_period)
        return decide(docs.annotate("times", times), self.limits())

    def limits(self) -> list[Limit]:
        return [Limit("repeated", "times", "min_times", self.min_times, above=True, closed=True)]
