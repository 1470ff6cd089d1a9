"""RefinedWeb's line-wise corrections (Penedo et al. 2023, section 3.2 and appendix G.2).

Menus, counters and calls to action are cut; a page that loses more than 5 % of its words is
dropped. The rules are those of DCLM's code (baselines/mappers/modifiers.py, in the order and with
the limits of baselines_configs/refinedweb.yaml): the paper states no limit for "mainly composed of
uppercase characters" and gives one example per pattern.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from curate.documents.documents import Documents
from curate.filters.word_lists import WordList, WordLists
from curate.steps.contracts import Step, step
from curate.steps.profiled import CountsWords

if TYPE_CHECKING:
    from curate.text.lines import Extents


# counter_line_modifier in DCLM's baselines/mappers/modifiers.py.
COUNTED = (
    "likes", "shares", "comments", "retweets", "reposts", "quotes", "bookmarks", "upvotes",
    "downvotes", "downloads", "views", "followers",
)  # fmt: skip


@step("refinedweb_lines")
class RefinedWebLines(CountsWords, WordLists, Step):
    """Cuts lines that are not running text, and drops pages that lose too many words."""

    paper: ClassVar[str] = "Penedo et al. 2023, appendix G.2; DCLM's mappers/modifiers.py"
    word_lists: ClassVar[tuple[str, ...]] = ("counted", "anywhere", "line_ends", "line_starts")

    variant: Literal["dclm"] = "dclm"
    """The version of the rules: dclm applies them as DCLM's code does."""
    max_uppercase: float = Field(0.5, ge=0)
    """Lines with a larger share of upper-case characters are cut (DCLM, refinedweb.yaml)."""
    max_numeric: float = Field(0.999999, ge=0)
    """Lines with a larger share of digits are cut (DCLM, refinedweb.yaml)."""
    short_line_words: int = Field(10, ge=0)
    """Patterns are cut only from lines of at most this many words (Penedo et al. 2023, appendix
    G.2)."""
    counted: WordList = COUNTED
    """Nouns of counters. A line of a number and one of these nouns is cut (DCLM, modifiers.py). A
    list, or a file with one noun per line."""
    anywhere: WordList = ("items in cart",)
    """Patterns that are cut anywhere in short lines. A period matches any character (Penedo et al.
    2023, appendix G.2). A list, or a file with one pattern per line."""
    line_ends: WordList = ("read more...",)
    """Patterns that are cut at the ends of short lines (Penedo et al. 2023, appendix G.2). A list,
    or a file with one pattern per line."""
    line_starts: WordList = ("sign-in",)
    """Patterns that are cut at the starts of short lines (Penedo et al. 2023, appendix G.2). A
    list, or a file with one pattern per line."""
    max_removed_words: float = Field(0.05, ge=0)
    """Pages that lose a larger share of their words are dropped (Penedo et al. 2023, appendix
    G.2)."""

    @classmethod
    def flaw(cls, entry: str) -> str | None:
        if entry[:1] == "." or entry[:1].isspace():
            return "is no pattern: begin with a letter or sign, not a period"
        return super().flaw(entry)

    def apply(self, docs: Documents) -> Documents:
        from curate.documents.cutting import cut_marked
        from curate.filters.refinedweb_kernel import RULES, judge_lines
        from curate.filters.repeats import ratio
        from curate.text.lines import newline_lines
        from curate.text.unicode import character_flags

        data, offsets = docs.buffers()
        lines = newline_lines(docs)
        mark = np.zeros(int(offsets[-1] - offsets[0]), np.uint8)
        counts = judge_lines(
            data,
            offsets,
            lines.rows,
            lines.start,
            lines.end,
            self._more_words(docs, lines),
            character_flags(),
            (self.max_uppercase, self.max_numeric),
            self.short_line_words,
            _patterns(self.entries("anywhere")),
            _patterns(self.entries("line_ends")),
            _patterns(self.entries("line_starts")),
            _patterns(self.entries("counted")),
            mark,
        )
        dropped, edited, words, removed, bytes_left = counts.T
        share = ratio(removed, words)
        docs = docs.annotate("words", words.astype(np.int32))
        docs = docs.annotate("lines_cut", dropped.astype(np.int32))
        docs = docs.annotate("lines_edited", edited.astype(np.int32))
        docs = docs.annotate("removed_words", share)
        docs = docs.drop(words == 0, "empty", words, 1)
        much = share > self.max_removed_words
        docs = docs.drop(much, "removed_words", share, self.max_removed_words)
        docs = docs.drop((bytes_left == 0) & (words > 0) & ~much, "nothing_left", bytes_left, 1)
        changed = bytes_left < np.diff(offsets)
        return cut_marked(docs, mark, changed & ~docs.marked(), RULES)

    def _more_words(self, docs: Documents, lines: Extents) -> np.ndarray:
        from curate.text.unspaced import more_words

        more = np.zeros(len(lines.start), np.int64)
        for profile, rows in self.unspaced(docs):
            at = np.isin(np.repeat(np.arange(len(docs)), np.diff(lines.rows)), rows)
            more[at] = more_words(docs, profile, lines.start[at], lines.end[at])
        return more


def _patterns(texts: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (text, at, begins) for lower-cased patterns. `text` (uint8[bytes]) has them joined;
    pattern k is text[at[k]:at[k + 1]]. `begins` (bool[256]) marks bytes that may begin a match."""
    encoded = [text.lower().encode() for text in texts]
    at = np.cumsum([0, *map(len, encoded)]).astype(np.int64)
    begins = np.zeros(256, np.bool_)
    for pattern in encoded:
        begins[[pattern[0], *pattern[:1].upper()]] = True
        # Letters outside ASCII that match i, s and k: both kinds of i, the long s, KELVIN SIGN.
        begins[{b"i": 0xC4, b"s": 0xC5, b"k": 0xE2}.get(pattern[:1], pattern[0])] = True
    return np.frombuffer(b"".join(encoded), np.uint8).copy(), at, begins


@step("newline_runs")
class NewlineRuns(Step):
    """Shortens runs of newlines, as DCLM does before it judges a page. Source: DCLM,
    baselines/mappers/modifiers.py, newline_removal_modifier."""

    paper: ClassVar[str] = "DCLM's mappers/modifiers.py (Li et al. 2024)"

    most: int = Field(2, ge=1)
    """The number of newlines in a row that are kept (DCLM, modifiers.py)."""

    def apply(self, docs: Documents) -> Documents:
        from curate.documents.cutting import cut_marked
        from curate.filters.refinedweb_kernel import long_runs

        mark, rows = long_runs(*docs.buffers(), self.most)
        return cut_marked(docs, mark, rows & ~docs.marked(), ("newline_run",))
