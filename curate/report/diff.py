"""Two texts side by side, word by word, with what differs marked."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from curate.report.html import shown

WORDS = 160  # of each text, compared in a time that grows with the square
BEFORE = 15  # equal words shown before the first difference
_PIECES = re.compile(r"\S+\s*")


def word_diff(one: str, two: str) -> tuple[str, str, bool]:
    """(HTML of the first text, HTML of the second, whether they are the same).

    Both begin a few words before their first difference and hold at most WORDS words. Words that
    only the first has are <del>, those that only the second has <ins>.
    """
    a, b = (_PIECES.findall(t) for t in (one, two))
    same = 0
    for x, y in zip(a, b, strict=False):
        if x.split() != y.split():
            break
        same += 1
    equal = same == len(a) == len(b)
    start = 0 if equal else max(0, same - BEFORE)
    ends = [len(words) > start + WORDS for words in (a, b)]
    a, b = a[start : start + WORDS], b[start : start + WORDS]
    bare = [[w.strip() for w in words] for words in (a, b)]
    left, right = [], []
    matcher = SequenceMatcher(None, bare[0], bare[1], autojunk=False)
    for tag, i, j, k, m in matcher.get_opcodes():
        gone, new = _text(a[i:j]), _text(b[k:m])
        if tag == "equal":
            left.append(gone)
            right.append(new)
        else:
            left.append(f"<del>{gone}</del>" if gone else "")
            right.append(f"<ins>{new}</ins>" if new else "")
    before = "\u2026 " if start else ""
    return (
        before + "".join(left) + ("\u2026" if ends[0] else ""),
        before + "".join(right) + ("\u2026" if ends[1] else ""),
        equal,
    )


def _text(words: list[str]) -> str:
    # A "word" may be a megabyte without white space.
    return "".join(shown(w.rstrip(), 100) + ("\n" if "\n" in w[-4:] else " ") for w in words)
