"""mC4's page rule (Xue et al. 2021, section 3.1): a page has three lines of 200 characters.

Source of the constants: tensorflow_datasets/text/c4_utils.py, paragraph_filter. Its "paragraphs"
are the lines of `text.split("\\n")`, white space at their ends included.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from curate.documents.documents import Documents
from curate.filters.repeats import piece_chars
from curate.steps.contracts import Step
from curate.text.lines import newline_lines


class C4Paragraphs(Step):
    """Drops pages with too few long lines."""

    name: ClassVar[str] = "c4_paragraphs"

    min_paragraphs: int = Field(3, ge=0, description="long lines that a page needs")
    min_chars: int = Field(200, ge=0, description="characters that make a line a paragraph")

    def apply(self, docs: Documents) -> Documents:
        data, _ = docs.buffers()
        lines = newline_lines(docs)
        size = lines.end - lines.start
        # A character has at most four bytes: only lines in between have to be counted.
        long = size >= 4 * self.min_chars
        between = np.flatnonzero(~long & (size >= self.min_chars))
        each = np.arange(len(between) + 1)
        chars = piece_chars(data, each, lines.start[between], lines.end[between])
        long[between] = chars >= self.min_chars
        before = np.concatenate(([0], np.cumsum(long)))
        count = np.diff(before[lines.rows])
        docs = docs.annotate("paragraphs", count.astype(np.int32))
        few = count < self.min_paragraphs
        return docs.drop(few, "few_paragraphs", count, self.min_paragraphs)
