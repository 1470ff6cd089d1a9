"""C4's page rules (Raffel et al. 2020, section 2.2), as TensorFlow Datasets' code applies them.

All constants come from tensorflow_datasets/text/c4_utils.py. One difference: sentences are counted
by an approximation of Punkt (curate/text/sentences.py). This file also has mC4's rule on
paragraphs. The bad-word rule is in bad_words.py.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from curate.documents.documents import Documents
from curate.documents.edits import Spans
from curate.documents.limits import Limit, decide
from curate.filters.bad_words import BadWordRule
from curate.filters.word_lists import WordList
from curate.steps.contracts import Step, step
from curate.steps.profiled import CountsWords

# The limits of the paper on arXiv: "we discarded any page with fewer than 5 sentences and only
# retained lines that contained at least 3 words". That version limits neither the length of a page
# nor of a word. The paper in JMLR says 3 sentences and 5 words, as TensorFlow Datasets' code does.
PAPER = {
    "min_words_per_line": 3,
    "min_sentences": 5,
    "max_page_chars": 1_000_000_000,
    "max_word_chars": 1_000_000_000,
}


# The settings that list phrases, in the order in which c4_kernel.phrase_table takes them.
PHRASES = ("lorem_ipsum_phrases", "javascript_phrases", "policy_phrases")


@step("c4")
class C4(CountsWords, BadWordRule):
    """Cuts lines that are not sentences; drops pages with code, filler text or too little text."""

    paper: ClassVar[str] = "Raffel et al. 2020, section 2.2; tensorflow_datasets/text/c4_utils.py"
    word_lists: ClassVar[tuple[str, ...]] = (*PHRASES, "badwords")

    variant: Literal["tfds", "paper"] = "tfds"
    """The version of the rules: tfds follows the code of TensorFlow Datasets; paper follows Raffel
    et al. on arXiv, with other default limits."""
    max_page_chars: int = Field(190_000, ge=0)
    """Pages with more characters are dropped (c4_utils.py). The default of variant paper is
    1,000,000,000."""
    max_word_chars: int = Field(1000, ge=1)
    """Lines with a word of more characters are cut (c4_utils.py). The default of variant paper is
    1,000,000,000."""
    min_words_per_line: int = Field(5, ge=0)
    """Lines with fewer words are cut (c4_utils.py). The default of variant paper is 3."""
    min_sentences: int = Field(3, ge=0)
    """Pages with fewer sentences in the remaining lines are dropped (c4_utils.py). The default of
    variant paper is 5."""
    require_end_mark: bool = True
    """Lines that do not end in . ? ! or ", or that end in ..., are cut (Raffel et al. 2020, section
    2.2)."""
    lorem_ipsum_phrases: WordList = ("lorem ipsum",)
    """Pages with a line that has one of these phrases, in any case, are dropped (c4_utils.py). A
    list, or a file with a phrase per line; [] for none."""
    javascript_phrases: WordList = ("javascript",)
    """Lines with one of these phrases, in any case, are cut (c4_utils.py). A list, or a file with a
    phrase per line; [] for none."""
    policy_phrases: WordList = (
        "terms of use",
        "privacy policy",
        "cookie policy",
        "uses cookies",
        "use of cookies",
        "use cookies",
    )
    """Lines with one of these phrases, in any case, are cut (c4_utils.py). A list, or a file with a
    phrase per line; [] for none."""

    @model_validator(mode="before")
    @classmethod
    def _of_variant(cls, settings: Any) -> Any:
        by_paper = isinstance(settings, dict) and settings.get("variant") == "paper"
        return {**PAPER, **settings} if by_paper else settings

    def apply(self, docs: Documents) -> Documents:
        from curate.documents.cutting import cut
        from curate.filters.c4_kernel import (
            KEPT,
            SPAN_RULES,
            judge_lines,
            line_facts,
            phrase_table,
            spans_of_lines,
        )
        from curate.text.tables import segments

        data, offsets = docs.buffers()
        tables = segments(docs)
        lines, words, chars = tables.lines, tables.words, tables.chars
        facts = line_facts(docs, list(self.parts(docs)))
        verdict, cited, hits, sentences, citations = judge_lines(
            data,
            lines.rows,
            lines.start,
            lines.end,
            words.lines,
            words.start,
            words.end,
            words.chars,
            self.max_word_chars,
            self.min_words_per_line,
            self.require_end_mark,
            facts.marks,
            facts.more_words,
            phrase_table(*(self.entries(name) for name in PHRASES)),
        )
        sentences = sentences + facts.sentences(lines.rows, verdict == KEPT)
        docs = docs.annotate("lines", np.diff(lines.rows).astype(np.int32))
        docs = docs.annotate("lines_kept", hits[:, 2].astype(np.int32))
        docs = docs.annotate("sentences", sentences.astype(np.int32))
        docs = docs.drop(chars > self.max_page_chars, "page_length", chars, self.max_page_chars)
        docs = docs.drop(hits[:, 0] > 0, "lorem_ipsum", hits[:, 0], 0)
        docs = docs.drop(hits[:, 1] > 0, "curly_bracket", hits[:, 1], 0)
        docs = decide(docs, self.limits())
        clean = ~docs.marked()
        rows, starts, ends, rules, swaps = spans_of_lines(
            data,
            offsets,
            lines.rows,
            lines.raw,
            lines.start,
            lines.end,
            verdict,
            cited,
            clean,
            citations,
        )
        spans = Spans(rows, starts, ends, rules, SPAN_RULES, swaps, ("", "\n"))
        docs = cut(docs, spans)
        return self.drop_bad_words(docs, clean) if self.badwords else docs

    def own_limits(self) -> list[Limit]:
        low = Limit("few_sentences", "sentences", "min_sentences", self.min_sentences, above=False)
        # A page without any kept line is dropped even if min_sentences is 0.
        none = Limit("no_line_left", "lines_kept", "", 1, above=False, unless="few_sentences")
        return [low, none]


@step("c4_paragraphs")
class C4Paragraphs(Step):
    """Drops pages with too few long lines (mC4, Xue et al. 2021, section 3.1). A "paragraph" is a
    line of `text.split("\\n")`, with the white space at its ends. Source of the constants:
    tensorflow_datasets/text/c4_utils.py, paragraph_filter."""

    paper: ClassVar[str] = "Xue et al. 2021, section 3.1; tensorflow_datasets/text/c4_utils.py"

    min_paragraphs: int = Field(3, ge=0)
    """Pages with fewer long lines are dropped (Xue et al. 2021, section 3.1)."""
    min_chars: int = Field(200, ge=0)
    """A line with at least this many characters is long (Xue et al. 2021, section 3.1)."""

    def apply(self, docs: Documents) -> Documents:
        from curate.filters.repeats import short_pieces
        from curate.text.lines import newline_lines
        from curate.text.unspaced import row_sums

        data, _ = docs.buffers()
        lines = newline_lines(docs)
        long = ~short_pieces(data, lines.start, lines.end, self.min_chars - 1)
        count = row_sums(lines.rows, long)
        docs = docs.annotate("paragraphs", count.astype(np.int32))
        short = count < self.min_paragraphs
        return docs.drop(short, "few_paragraphs", count, self.min_paragraphs)
