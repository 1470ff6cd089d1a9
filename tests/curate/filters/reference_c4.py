"""C4's page cleaner in plain Python: what the kernels must decide, read from top to bottom.

The rules and their order are those of the `clean_page` of TensorFlow Datasets (Raffel et al. 2020,
section 2.2), except that a page collects every reason, and that sentences are counted by the rules
of curate/text/sentences.py, written here a second time on strings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from curate.filters.c4 import C4
from curate.text import sentences as sentence_marks
from curate.text.sentences import ABBREVIATIONS

CITATION = re.compile(r"\[\d*\]|\[edit\]|\[citation needed\]")
POLICY = (
    "terms of use",
    "privacy policy",
    "cookie policy",
    "uses cookies",
    "use of cookies",
    "use cookies",
)
CLOSERS = "\"')]}’”»"
STOPS = re.compile(
    f"[{sentence_marks.STOPS}][{sentence_marks.STOPS}{re.escape(sentence_marks.CLOSERS)}]*"
)


@dataclass(frozen=True)
class Page:
    """What becomes of one page."""

    reasons: frozenset[str]
    text: str  # meaningful without reasons only
    lines: int
    lines_kept: int
    sentences: int


def abbreviation(word: str) -> bool:
    """Whether a word, its last period taken off, is an initial, has inner periods or is known."""
    word = word.lstrip("(\"'")
    letters = re.match("[A-Za-z]*", word)
    assert letters is not None
    if letters.end() < len(word):
        return word[letters.end()] == "."
    if len(word) == 1:
        return word.isupper() and word != "I"
    return word.lower() in ABBREVIATIONS


def ends_sentence(word: str, following: str) -> bool:
    word = word.rstrip(CLOSERS)
    if word.endswith(("!", "?")):
        return True
    if not word.endswith("."):
        return False
    first = following[1] if len(following) > 1 and following[0] in "\"'(" else following[0]
    return not ("a" <= first <= "z" or abbreviation(word[:-1]))


def sentences(line: str) -> int:
    """Sentences in one line."""
    count = 0
    pending = False
    words = line.split()
    for word, following in zip(words, [*words, ""][1:], strict=True):
        *before, rest = STOPS.split(word)
        count += len(before)
        pending = bool(rest)
        if rest and following and ends_sentence(rest, following):
            count += 1
            pending = False
    return count + pending


def clean_page(text: str, step: C4) -> Page:
    """The page under the step's settings."""
    reasons = set()
    if len(text) > step.max_page_chars:
        reasons.add("page_length")
    kept = []
    count = 0
    lines = text.splitlines()
    for line in lines:
        line = line.strip()
        if not line or any(len(word) > step.max_word_chars for word in line.split()):
            continue
        line = CITATION.sub("", line)
        if step.require_end_mark and (
            not line.endswith((".", "?", "!", '"')) or line.endswith("...")
        ):
            continue
        if len(line.split()) < step.min_words_per_line:
            continue
        lowered = line.lower()
        if "lorem ipsum" in lowered:
            reasons.add("lorem_ipsum")
            continue
        if "javascript" in lowered:
            continue
        if "{" in line:
            reasons.add("curly_bracket")
            continue
        if any(phrase in lowered for phrase in POLICY):
            continue
        count += sentences(line)
        kept.append(line)
    if count < step.min_sentences:
        reasons.add("few_sentences")
    elif not kept:
        reasons.add("no_line_left")
    return Page(frozenset(reasons), "\n".join(kept).strip(), len(lines), len(kept), count)
