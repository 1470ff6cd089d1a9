"""Drop documents by the share of their words that are on a list, such as stop words."""

from __future__ import annotations

import re
from typing import ClassVar

import numpy as np
from pydantic import Field

from curate.documents.documents import Documents
from curate.documents.limits import Limit, decide
from curate.filters.word_lists import WordList, WordLists
from curate.lab.filters.roots import share_of, stripped
from curate.steps.contracts import Step, step


@step("listed_words")
class ListedWords(Step, WordLists):
    """Drops documents by the share of their words that are on a list.

    Words are separated by blanks, tabs and newlines, and compared in lower case without special
    characters at their ends, as in ROOTS and Data-Juicer (stopwords_filter, flagged_words_filter).
    """

    only_measures: ClassVar[bool] = True
    word_lists: ClassVar[tuple[str, ...]] = ("words",)

    words: WordList
    """The words: a list, or the path of a file with one word per line."""
    min: float | None = Field(None, ge=0, le=1)
    """Documents with a smaller share are dropped. None: no limit."""
    max: float | None = Field(None, ge=0, le=1)
    """Documents with a larger share are dropped. None: no limit."""

    def apply(self, docs: Documents) -> Documents:
        listed = frozenset(map(str.lower, self.entries("words")))
        shares = [share_of(_words(text or ""), listed, None) for text in docs.text.to_pylist()]
        return decide(docs.annotate("share", np.array(shares, np.float64)), self.limits())

    def limits(self) -> list[Limit]:
        return [
            Limit("few", "share", "min", self.min, above=False),
            Limit("many", "share", "max", self.max, above=True),
        ]


def _words(text: str) -> list[str]:
    return [word for word in map(stripped, re.split("[ \n\t]", text.lower())) if word]
