"""RefinedWeb's line rules in plain Python, read from top to bottom.

`dclm` runs DCLM's modifiers one after the other: each splits the page at newlines, changes lines,
joins them and (all but the one on words) strips the page.
"""

from __future__ import annotations

import re

COUNTED = "likes|shares|comments|retweets|reposts|quotes|bookmarks|upvotes|downvotes|downloads"
COUNTED += "|views|followers"
COUNTER = re.compile(rf"^\W*\d(?:,|\.|\d)*(?:k|m|b)?\s+(?:{COUNTED})\W*$")
BREAK = re.compile(r"[\x00\t\n\x0b\x0c\r ]+")


def dclm_words(text: str) -> int:
    return sum(word[0].isalnum() for word in BREAK.split(text) if word)


def share(line: str, test) -> float:
    return sum(map(test, line)) / len(line) if line else 0.0


def edit_short(lines: list[str], pattern: re.Pattern[str], most: int) -> list[str]:
    out = []
    for line in lines:
        if len(line.split()) <= most:
            changed = pattern.sub("", line)
            if line and not changed.strip():
                continue
            line = changed
        out.append(line)
    return out


def dclm(text: str, most: int = 10) -> tuple[str, int, int]:
    """(what is left, words before, words gone)."""
    words = dclm_words(text)

    def stage(change, strip=True):
        nonlocal text
        text = "\n".join(change(text.split("\n")))
        text = text.strip() if strip else text

    stage(lambda lines: [x for x in lines if share(x, str.isupper) <= 0.5])
    stage(lambda lines: [x for x in lines if share(x, str.isdigit) <= 0.999999])
    stage(lambda lines: [x for x in lines if not COUNTER.search(x.lower())])
    stage(lambda lines: [x for x in lines if not x or len(x.split()) >= 2], strip=False)
    for pattern in (r"\s?(?:items in cart)", r"\s?(?:read more...)$", r"^(?:sign-in)\s?"):
        stage(lambda lines, p=re.compile(pattern, re.I): edit_short(lines, p, most))
    return text, words, words - dclm_words(text)
