"""Two texts beside each other, word by word, with what differs marked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher

from curate.pages.html import shown

WORDS = 160  # of each text, compared in a time that grows with the square
BEFORE = 15  # equal words shown before the first difference
_PIECES = re.compile(r"\S+\s*")


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


def compare(one: str, two: str) -> Diff:
    """The difference of two texts; at most WORDS words of each are looked at."""
    a, b = (_PIECES.findall(t) for t in (one, two))
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


def word_diff(one: str, two: str) -> tuple[str, str, bool]:
    """(HTML of the first text, HTML of the second, whether they are the same).

    Words that only the first has are <del>, those that only the second has <ins>.
    """
    found = compare(one, two)
    left, right = [], []
    for a, b, same in found.runs:
        gone, new = _text(a), _text(b)
        if same:
            left.append(gone)
            right.append(new)
        else:
            left.append(f"<del>{gone}</del>" if gone else "")
            right.append(f"<ins>{new}</ins>" if new else "")
    before = "\u2026 " if found.begun else ""
    return (
        before + "".join(left) + ("\u2026" if found.more[0] else ""),
        before + "".join(right) + ("\u2026" if found.more[1] else ""),
        found.equal,
    )


def _text(words: list[str]) -> str:
    # A "word" may be a megabyte without white space.
    return "".join(shown(w.rstrip(), 100) + ("\n" if "\n" in w[-4:] else " ") for w in words)
