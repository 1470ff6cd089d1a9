"""C4's line rules for other languages than English: end marks, words and sentences.

C4's rules are made for English: a line ends in . ? ! or a double quote, words are separated by
spaces, and Punkt's rules find the ends of sentences. For a language with a profile, the profile's
end marks count too. If the profile has no end marks, no line is cut for its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from curate.filters.c4_kernel import ENDS, OPEN
from curate.filters.repeats import last_code_points
from curate.text.tables import Segments, segments
from curate.text.unspaced import more_words, row_sums

if TYPE_CHECKING:
    from curate.documents.documents import Documents
    from curate.text.languages import Profile

ENGLISH_MARKS = '.?!"'
# Estimated words per sentence. English sentences of NTREX-128 have 21.8 on average.
SENTENCE_WORDS = 20


@dataclass(frozen=True)
class LineFacts:
    """Corrections of C4's English line rules for lines in other languages. `marks` (uint8[lines])
    is ENDS for a line that the rule for end marks keeps, OPEN for a line that it drops, and 0 for a
    line without a language profile, for which the English rule decides. A profile without end marks
    keeps all its lines. `more_words` (int64[lines]) is the estimated number of words to add because
    no spaces separate them. `more_sentences` (int64[lines]) is the estimated number of sentences in
    a language without end marks."""

    marks: np.ndarray
    more_words: np.ndarray
    more_sentences: np.ndarray

    def sentences(self, rows: np.ndarray, kept: np.ndarray) -> np.ndarray:
        return row_sums(rows, self.more_sentences * kept)


def line_facts(
    docs: Documents, parts: list[tuple[Profile | None, object, np.ndarray]]
) -> LineFacts:
    """Return the `LineFacts` of a batch. Each of `parts` is (language profile, step, bool[rows]:
    True for the rows to which this profile applies)."""
    tables = segments(docs)
    n = len(tables.lines.start)
    facts = LineFacts(np.zeros(n, np.uint8), np.zeros(n, np.int64), np.zeros(n, np.int64))
    for profile, _, mask in parts:
        if profile is not None:
            row = np.repeat(np.arange(len(docs)), np.diff(tables.lines.rows))
            _add(facts, docs, tables, profile, np.flatnonzero(mask[row]))
    return facts


def _add(
    facts: LineFacts, docs: Documents, tables: Segments, profile: Profile, at: np.ndarray
) -> None:
    data, _ = docs.buffers()
    start, end = tables.lines.start[at], tables.lines.end[at]
    if profile.end_marks:
        marks = np.array([*map(ord, profile.end_marks + ENGLISH_MARKS)], np.int32)
        ends = np.isin(last_code_points(data, start, end), marks)
        facts.marks[at] = np.where(ends, ENDS, OPEN)
    else:
        facts.marks[at] = ENDS
    spaced = np.diff(tables.words.lines)[at]
    more = np.zeros(len(at), np.int64)
    if profile.clusters:
        facts.more_words[at] = more = more_words(docs, profile, start, end)
    if not profile.end_marks:
        facts.more_sentences[at] = (spaced + more) // SENTENCE_WORDS
