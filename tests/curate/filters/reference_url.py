"""The URL filter in plain Python: what the kernels must find."""

from __future__ import annotations

import re
from collections.abc import Iterable

from curate.filters.url_kernel import fold
from curate.text.words import CLUSTER, CONNECTOR, DIGIT, LETTER, MARK, OTHER, character_tables

KINDS = character_tables()[0]


def address(url: str) -> str:
    """The form in which pages are compared."""
    host, path, _ = fold(url)
    path = re.sub(r"\?(utm_|ref|feed).*", "", path, flags=re.S).rstrip("/")
    return (host[4:] if host.startswith("www.") and len(host) > 4 else host) + path


def listed_domain(url: str, domains: Iterable[str]) -> str | None:
    """The longest listed domain of the URL's host."""
    labels = fold(url)[0].split(".")
    suffixes = [".".join(labels[i:]) for i in range(len(labels))]
    return next((s for s in suffixes if s and s in domains), None)


def _parts(url: str) -> list[list[str]]:
    """The runs of letters and digits in every part of a URL."""
    parts: list[list[str]] = [[""]]
    for c in "".join(fold(url)):
        if c in "/?&=#:;@,":
            parts.append([""])
        elif KINDS[ord(c)] in (OTHER, CONNECTOR):
            parts[-1].append("")
        else:
            parts[-1][-1] += c
    return [[run for run in part if run] for part in parts]


def whole_words(url: str, words: Iterable[str]) -> set[str]:
    """Words that stand in the URL as words."""
    text = " ".join(run for part in _parts(url) for run in part)
    matches = set()
    for word in words:
        for at in range(len(text)):
            end = at + len(word)
            if not text.startswith(word, at):
                continue
            before = KINDS[ord(text[at - 1])] if at else OTHER
            behind = KINDS[ord(text[end])] if end < len(text) else OTHER
            first, last = KINDS[ord(word[0])], KINDS[ord(word[-1])]
            if before in (LETTER, MARK) or behind in (LETTER, MARK):
                continue
            if (before == DIGIT == first) or (behind == DIGIT == last):
                continue
            matches.add(word)
    return matches


def subwords(url: str, words: Iterable[str]) -> set[str]:
    """Words that stand anywhere in a part of the URL."""
    parts = ["".join(part) for part in _parts(url)]
    return {w for w in words if any(w in part for part in parts)}


assert CLUSTER not in (LETTER, MARK)
