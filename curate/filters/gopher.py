"""Gopher's quality and repetition rules (Rae et al. 2021, appendix A1.1) in four variants.

All variants share the paper's thresholds. They differ in what they count (tables in
docs/filters.md). Sources: DataTrove 0.10 `gopher_quality_filter.py` and
`gopher_repetition_filter.py`, Dolma `taggers/gopher.py` and `configs/dolma-v1_6`, DCLM
`content_filters.py`. Where the paper leaves a choice, the variant "paper" is our interpretation.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from curate.documents.documents import Documents
from curate.documents.limits import Limit
from curate.filters.word_lists import WordList, WordLists
from curate.steps.contracts import step
from curate.steps.profiled import WordCounting
from curate.text.languages import Profile

Variant = Literal["paper", "datatrove", "dolma", "dclm"]
VARIANT = (
    "The version of the rules: datatrove, dolma and dclm count as those projects' code does, paper"
    " as Rae et al. 2021 write."
)


@step("gopher_quality")
class GopherQuality(WordCounting, WordLists):
    """Drops documents whose words, symbols and lines do not look like prose."""

    paper: ClassVar[str] = "Rae et al. 2021, appendix A1.1"
    only_measures: ClassVar[bool] = True
    word_lists: ClassVar[tuple[str, ...]] = ("stop_words",)

    variant: Variant = Field("datatrove", description=VARIANT)
    min_words: int = Field(50, ge=0)
    """Documents with fewer words are dropped (Rae et al. 2021, A1.1)."""
    max_words: int = Field(100_000, ge=0)
    """Documents with more words are dropped (Rae et al. 2021, A1.1)."""
    min_word_length: float = Field(3, ge=0)
    """Documents with a smaller mean word length in characters are dropped; variant dolma uses the
    median (Rae et al. 2021, A1.1)."""
    max_word_length: float = Field(10, ge=0)
    """Documents with a larger mean word length in characters are dropped; variant dolma uses the
    median (Rae et al. 2021, A1.1)."""
    max_symbol_ratio: float = Field(0.1, ge=0)
    """Documents with more hash signs per word, or more ellipses per word, are dropped; variants
    dolma and dclm add the two counts (Rae et al. 2021, A1.1)."""
    max_bullet_lines: float = Field(0.9, ge=0)
    """Documents with a larger share of lines that begin with a bullet are dropped (Rae et al. 2021,
    A1.1)."""
    max_ellipsis_lines: float = Field(0.3, ge=0)
    """Documents with a larger share of lines that end in an ellipsis are dropped (Rae et al. 2021,
    A1.1)."""
    min_alpha_words: float = Field(0.8, ge=0)
    """Documents with a smaller share of words that contain a letter are dropped (Rae et al. 2021,
    A1.1)."""
    min_stop_words: int = Field(2, ge=0)
    """Documents with fewer of the stop words the, be, to, of, and, that, have, with are dropped.
    Variants paper and datatrove count distinct stop words, the others all occurrences (Rae et al.
    2021, A1.1)."""
    stop_words: WordList | None = None
    """Stop words for all languages, instead of those of `min_stop_words` and of the profiles. A
    list, or a file with one word per line."""

    @classmethod
    def flaw(cls, entry: str) -> str | None:
        return super().flaw(entry) or ("is more than one word" if len(entry.split()) > 1 else None)

    def measure(self, docs: Documents, profile: Profile | None) -> Documents:
        from curate.filters.gopher_measures import quality_measures

        own = None if self.stop_words is None else self.entries("stop_words")
        return quality_measures(docs, self.variant, profile, own)

    def own_limits(self) -> list[Limit]:
        together = self.variant in ("dolma", "dclm")
        symbols = ["symbol_ratio"] if together else ["hash_ratio", "ellipsis_ratio"]

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


# Rae et al. 2021, table A1.
MAX_TOP = {2: 0.20, 3: 0.18, 4: 0.16}
MAX_DUPLICATE = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10}
N_GRAMS = (*MAX_TOP, *MAX_DUPLICATE)
MAX_LINE_CHARS = 0.20
DOLMA_MAX_LINE_CHARS = 0.30  # dolma configs/dolma-v1_6/mixing/cc-head.yaml


@step("gopher_repetition")
class GopherRepetition(WordCounting):
    """Drops documents that repeat lines, paragraphs or runs of words."""

    paper: ClassVar[str] = "Rae et al. 2021, appendix A1.1, table A1"
    only_measures: ClassVar[bool] = True

    variant: Variant = Field("datatrove", description=VARIANT)
    max_duplicate_lines: float = Field(0.30, ge=0)
    """Documents with a larger share of duplicate lines are dropped (Rae et al. 2021, table A1)."""
    max_duplicate_paragraphs: float = Field(0.30, ge=0)
    """Documents with a larger share of duplicate paragraphs are dropped (Rae et al. 2021, table
    A1)."""
    max_duplicate_line_chars: float | None = Field(None, ge=0)
    """Documents with a larger share of characters in duplicate lines are dropped. Without a value
    the limit is 0.2 (Rae et al. 2021, table A1), in variant dolma 0.3 (configs/dolma-v1_6)."""
    max_duplicate_paragraph_chars: float = Field(0.20, ge=0)
    """Documents with a larger share of characters in duplicate paragraphs are dropped (Rae et al.
    2021, table A1)."""
    max_top_n_gram_chars: dict[Annotated[int, Field(ge=2, le=4)], float] = MAX_TOP
    """Documents with a larger share of characters in their most frequent n-gram are dropped. One
    limit per n, for n from 2 to 4 words (Rae et al. 2021, table A1)."""
    max_duplicate_n_gram_chars: dict[Annotated[int, Field(ge=5, le=10)], float] = MAX_DUPLICATE
    """Documents with a larger share of characters in duplicate n-grams are dropped. One limit per
    n, for n from 5 to 10 words (Rae et al. 2021, table A1)."""

    def apply(self, docs: Documents) -> Documents:
        from curate.filters.gopher_measures import without_text

        if self.variant in ("datatrove", "dclm"):
            docs = docs.drop(without_text(docs, self.variant), "empty")
        return super().apply(docs)

    def measure(self, docs: Documents, profile: Profile | None) -> Documents:
        from curate.filters.gopher_measures import repetition_measures

        return repetition_measures(docs, self.variant, profile)

    def own_limits(self) -> list[Limit]:
        lines = self.max_duplicate_line_chars
        if lines is None:
            lines = DOLMA_MAX_LINE_CHARS if self.variant == "dolma" else MAX_LINE_CHARS
        paragraphs = {
            "duplicate_paragraphs": self.max_duplicate_paragraphs,
            "duplicate_paragraph_chars": self.max_duplicate_paragraph_chars,
        }
        shares = {} if self.variant == "dolma" else paragraphs
        shares |= {"duplicate_lines": self.max_duplicate_lines, "duplicate_line_chars": lines}
        limits = [Limit(rule, rule, f"max_{rule}", most, True) for rule, most in shares.items()]
        for n in N_GRAMS:
            kind = "top" if n in MAX_TOP else "duplicate"
            setting = f"max_{kind}_n_gram_chars"
            rule = f"{kind}_{n}_gram_chars"
            most = getattr(self, setting).get(n)
            limits.append(Limit(rule, rule, f"{setting}.{n}", most, True))
        return limits
