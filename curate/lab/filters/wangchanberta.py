"""WangchanBERTa's cleaning of Thai text (Lowphansirikul et al. 2021, section 3.2).

Source of the rules: thai2transformers, `thai2transformers/preprocess.py` (fix_html, rm_brackets,
replace_newlines, rm_useless_spaces, replace_rep_after, in that order) and `scripts/clean_data.py`
(documents without a Thai character; no-break spaces, soft hyphens, byte order marks). Three of
WangchanBERTa's rules are left to the tokenizer: lower case, `<_>` in place of a blank, and repeated
words (a rule that needs a word list). docs/filters.md lists differences from the source.
"""

from __future__ import annotations

import re
from typing import ClassVar

import numpy as np
import pyarrow.compute as pc
from pydantic import Field

from curate.documents.documents import Documents
from curate.documents.limits import Limit, decide
from curate.documents.passes import Replace, edited_in_passes
from curate.steps.contracts import Step, step
from curate.text.encodings import unescape
from curate.text.unicode import row_chars

RULES = ("invisible", "html", "brackets", "newlines", "spaces", "repeated")
THAI = "[\u0e01-\u0e59]"  # the class [ก-๙]
_LETTERS = "a-zA-Z0-9\u0e01-\u0e59"  # the class [a-zA-Z0-9ก-๙]
# An entity of html.unescape, an entity without its ampersand, or a line break.
_ENTITY = re.compile(
    r"&(?:#[0-9]+;?|#[xX][0-9a-fA-F]+;?|[^\t\n\f <&#;]{1,32};?)"
    r"|(?<![\w&#])(?:nbsp|amp|quot|#39|#146|#36);|<br\s*/?>"
)
_LOST = {"nbsp;": " ", "amp;": "&", "quot;": '"', "#39;": "'", "#146;": "'", "#36;": "$"}


def _entity(match: re.Match[str]) -> str:
    text = match.group()
    if text[0] == "<":
        return "\n"
    return unescape(text).replace("\xa0", " ") if text[0] == "&" else _LOST[text]


def _brackets() -> list[tuple[str, re.Pattern[str]]]:
    """Return patterns for empty brackets, brackets with only signs, and signs next to a bracket.
    They match at most 200 signs in a row; a search without such a limit would be quadratic."""
    signs = f"[^{_LETTERS}]{{1,200}}"
    pairs = [(r"\(", r"\)"), (r"\{", r"\}"), (r"\[", r"\]")]
    patterns = [f"{a}{z}" for a, z in pairs]
    patterns += [f"{a}{signs}{z}" for a, z in pairs]
    patterns += [f"(?<={a}){signs}(?=[{_LETTERS}])" for a, _ in pairs]
    patterns += [f"(?<=[{_LETTERS}]){signs}(?={z})" for _, z in pairs]
    return [("brackets", re.compile(p)) for p in patterns]


_PASSES: list[tuple[str, re.Pattern[str], Replace]] = [
    ("invisible", re.compile("\xa0"), lambda m: " "),
    ("invisible", re.compile("[\xad\ufeff]"), lambda m: ""),
    ("html", _ENTITY, _entity),
    *((rule, pattern, lambda m: "") for rule, pattern in _brackets()),
    ("newlines", re.compile(r"\A\s+|(?<!\s)\s+\Z"), lambda m: ""),
    ("newlines", re.compile(r"\n"), lambda m: " "),
    ("spaces", re.compile("(?<= ) +"), lambda m: ""),
    # Four or more of a character that is not white space: the first one is kept.
    ("repeated", re.compile(r"(?<=(\S))(?<!\1\1)\1{3,}"), lambda m: ""),
]


@step("wangchanberta")
class WangchanBERTa(Step):
    """Drops documents with too little Thai text and cleans the others."""

    paper: ClassVar[str] = "Lowphansirikul et al. 2021; thai2transformers/preprocess.py"

    min_thai_chars: int = Field(1, ge=0)
    """Documents with fewer Thai characters are dropped (Lowphansirikul et al. 2021, section
    3.2)."""
    min_thai_share: float = Field(0.0, ge=0, le=1)
    """Documents with a smaller share of Thai characters are dropped; the paper has no such
    limit."""
    join_lines: bool = True
    """Newlines become blanks (Lowphansirikul et al. 2021, section 3.2)."""

    def apply(self, docs: Documents) -> Documents:
        thai = pc.fill_null(pc.count_substring_regex(docs.text, THAI), 0).to_numpy()
        share = thai / np.maximum(row_chars(*docs.buffers()), 1)
        docs = docs.annotate("thai_chars", thai).annotate("thai_share", share)
        docs = decide(docs, self.limits())
        return self._clean(docs, ~docs.marked())

    def limits(self) -> list[Limit]:
        return [
            Limit("no_thai", "thai_chars", "min_thai_chars", self.min_thai_chars, above=False),
            Limit("thai_share", "thai_share", "min_thai_share", self.min_thai_share, above=False),
        ]

    def _clean(self, docs: Documents, rows: np.ndarray) -> Documents:
        passes = [
            (RULES.index(of), pattern, replacement)
            for of, pattern, replacement in _PASSES
            if of != "newlines" or self.join_lines
        ]
        return edited_in_passes(docs, np.flatnonzero(rows).tolist(), passes, RULES)
