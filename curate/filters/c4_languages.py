"""C4's lines in other languages than English: the marks they end in, their words and sentences.

The rules are made for English: a line ends in . ? ! or a double quote, words have spaces between
them, and sentences are counted by Punkt's rules. Of a document with a profile the profile's end
marks count, too; where it has none, no line is cut for its end.
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
# Words of a sentence: NTREX-128 has 21.8 in English.
SENTENCE_WORDS = 20


@dataclass(frozen=True)
class LineFacts:
    """Of each line: marks: uint8[lines], ENDS or OPEN by a profile's end marks, else 0; more_words:
    int64[lines], estimated words beside those between spaces; more_sentences: int64[lines]."""

    marks: np.ndarray
    more_words: np.ndarray
    more_sentences: np.ndarray

    def sentences(self, rows: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """int64[rows]: sentences of kept lines beside those that the counter knows."""
        return row_sums(rows, self.more_sentences * kept)


def line_facts(
    docs: Documents, parts: list[tuple[Profile | None, object, np.ndarray]]
) -> LineFacts:
    """What profiles say of the lines of a batch. parts: (profile, step, bool[rows])."""
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
    """Fills in the lines at: int64[], which are of one profile."""
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
