"""The difference of two texts, word by word."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from curate.pages.html import plain

if TYPE_CHECKING:
    from markupsafe import Markup

WORDS = 160  # of each text, compared in a time that grows with the square
BEFORE = 15  # equal words shown before the first difference
_WORDS = re.compile(r"\S+\s*")


@dataclass(frozen=True)
class Diff:
    """Two texts from a few words before their first difference on.

    runs: (words of the first, words of the second, whether they are equal), in order; words keep
    the white space behind them. begun: words before the first run were left out; more: whether the
    first, the second text goes on; equal: the texts are the same, white space apart.
    """

    runs: list[tuple[list[str], list[str], bool]]
    begun: bool
    more: tuple[bool, bool]
    equal: bool


def compare(first: str, second: str) -> Diff:
    """The difference of two texts; at most WORDS words of each are looked at."""
    a, b = (_WORDS.findall(t) for t in (first, second))
    same = 0
    for x, y in zip(a, b, strict=False):
        if x.split() != y.split():
            break
        same += 1
    equal = same == len(a) == len(b)
    start = 0 if equal else max(0, same - BEFORE)
    more = (len(a) > start + WORDS, len(b) > start + WORDS)
    a, b = a[start : start + WORDS], b[start : start + WORDS]
    bare = [[w.strip() for w in words] for words in (a, b)]
    matcher = SequenceMatcher(None, bare[0], bare[1], autojunk=False)
    runs = [(a[i:j], b[k:m], tag == "equal") for tag, i, j, k, m in matcher.get_opcodes()]
    return Diff(runs, start > 0, more, equal)


def word_diff(first: str, second: str) -> tuple[Markup, Markup, bool]:
    """(the first text, the second text, whether they are the same).

    Words that only the first has are <del>, those that only the second has <ins>.
    """
    from markupsafe import Markup

    diff = compare(first, second)
    sides: list[list[str]] = []
    for nth, tag in enumerate(("<del>{}</del>", "<ins>{}</ins>")):
        side = ["\u2026 "] if diff.begun else []
        for *words, same in diff.runs:
            if text := _text(words[nth]):
                side.append(text if same else Markup(tag).format(text))
        sides.append([*side, "\u2026"] if diff.more[nth] else side)
    before, after = (Markup("").join(side) for side in sides)
    return before, after, diff.equal


def _text(words: list[str]) -> str:
    # A "word" may be a megabyte without white space.
    return "".join(plain(w.rstrip(), 100) + ("\n" if "\n" in w[-4:] else " ") for w in words)
