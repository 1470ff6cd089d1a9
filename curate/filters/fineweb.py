"""FineWeb's quality rules (Penedo et al. 2024, section 3.6) against lists, menus and duplicate
lines. Variant "datatrove" is DataTrove 0.10's `fineweb_quality_filter.py`. Variant "paper" has the
paper's limits and comparisons, and no rule on newlines."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from curate.documents.documents import Documents
from curate.documents.limits import Limit
from curate.steps.contracts import step
from curate.steps.profiled import WordCounting
from curate.text.languages import Profile

# Section 3.6 of the paper says 0.1; its table 2 (appendix E.4) has 0.01, like DataTrove's code.
MAX_DUPLICATE_CHARS = {"datatrove": 0.01, "paper": 0.1}


@step("fineweb_quality")
class FineWebQuality(WordCounting):
    """Drops documents whose lines lack end marks, are short, are duplicates or have few words."""

    paper: ClassVar[str] = "Penedo et al. 2024, section 3.6; DataTrove's fineweb_quality_filter.py"
    only_measures: ClassVar[bool] = True

    variant: Literal["datatrove", "paper"] = "datatrove"
    """The version of the rules: datatrove follows the code of DataTrove 0.10; paper uses the limits
    and comparisons of Penedo et al. 2024, and no rule on newlines."""
    min_end_marks: float = Field(0.12, ge=0)
    """Documents with a smaller share of lines that end with sentence-final punctuation are dropped
    (Penedo et al. 2024, section 3.6)."""
    max_short_lines: float = Field(0.67, ge=0)
    """Documents with a larger share of short lines are dropped (Penedo et al. 2024, section
    3.6)."""
    short_line_chars: int = Field(30, ge=0)
    """A line of at most this many characters is short; in variant paper, a line of fewer characters
    (Penedo et al. 2024, section 3.6)."""
    max_duplicate_chars: float | None = Field(None, ge=0)
    """Documents with a larger share of characters in duplicate lines are dropped. Without a value
    the limit of the variant applies: 0.01 in DataTrove's code, 0.1 in the paper."""
    max_newlines: float = Field(0.3, ge=0)
    """Documents with more newlines per word are dropped. Only variant datatrove has this rule
    (DataTrove 0.10, fineweb_quality_filter.py)."""

    def measure(self, docs: Documents, profile: Profile | None) -> Documents:
        return measured(docs, self.variant, self.short_line_chars, profile)

    def own_limits(self) -> list[Limit]:
        paper = self.variant == "paper"
        copies = self.max_duplicate_chars
        if copies is None:
            copies = MAX_DUPLICATE_CHARS[self.variant]

        def limit(column: str, setting: str, threshold: float, above: bool) -> Limit:
            return Limit(column, column, setting, threshold, above, closed=paper, only="lines")

        limits = [
            Limit("empty", "lines", "", 1, above=False),
            limit("end_marks", "min_end_marks", self.min_end_marks, False),
            limit("short_lines", "max_short_lines", self.max_short_lines, True),
            limit("duplicate_line_chars", "max_duplicate_chars", copies, True),
        ]
        if not paper:
            limits.append(limit("newlines", "max_newlines", self.max_newlines, True))
        return limits


def measured(
    docs: Documents, variant: str, short_line_chars: int, profile: Profile | None = None
) -> Documents:
    """Return the batch with the columns that the rules compare with their limits. `variant` and
    `short_line_chars` are settings of the step. `profile` is the language profile of all documents
    in the batch, None for English."""
    from curate.filters.language_words import word_number
    from curate.filters.repeats import duplicates, last_code_points, ratio, short_pieces
    from curate.filters.tokens import TERMINAL, symbol_tokens
    from curate.text.lines import newline_lines, written_lines
    from curate.text.unicode import row_chars
    from curate.text.unspaced import row_sums

    data, offsets = docs.buffers()
    lines = written_lines(docs, strip=False)
    number = np.diff(lines.rows)
    newlines = np.diff(newline_lines(docs).rows) - 1
    paper = variant == "paper"
    docs = docs.annotate("lines", number.astype(np.int32))
    ends, marked_lines = TERMINAL, lines
    if profile is not None:
        ends, marked_lines = TERMINAL.copy(), written_lines(docs, strip=True)
        ends[[ord(mark) for mark in profile.end_marks]] = True
    marked = ends[last_code_points(data, marked_lines.start, marked_lines.end)]
    docs = docs.annotate("end_marks", ratio(row_sums(lines.rows, marked), number))
    short = short_pieces(data, lines.start, lines.end, short_line_chars - paper)
    docs = docs.annotate("short_lines", ratio(row_sums(lines.rows, short), number))
    copied = duplicates(docs, lines, firsts=False)[1]
    share = ratio(copied, row_chars(data, offsets) - newlines)
    docs = docs.annotate("duplicate_line_chars", share)
    if not paper:
        share = ratio(newlines, word_number(docs, symbol_tokens(docs), profile))
        docs = docs.annotate("newlines", share)
    return docs
