"""Words of a text by a plain reference."""

from __future__ import annotations

import unicodedata

from tokenize_kit.judge.words import (
    _RUNS,
)

NONE, LETTER, SPACELESS, MARK = range(4)


def _kind(char):
    category = unicodedata.category(char)[0]
    if category == "M":
        return MARK
    if category != "L":
        return NONE
    return SPACELESS if any(a <= ord(char) < z for a, z in _RUNS) else LETTER


def _runs(text):
    """(first character, end, letters, without spaces?) of each run."""
    runs = []
    at = 0
    while at < len(text):
        first, family, letters = at, None, 0
        while at < len(text) and (kind := _kind(text[at])) != NONE:
            if kind != MARK:
                if family not in (None, kind):
                    break
                family, letters = kind, letters + 1
            at += 1
        if at > first:
            runs.append((first, at, letters, family == SPACELESS))
        else:
            at += 1
    return runs


def _words(text, known, cuts):
    """(first, end) of words, and None for a run whose words are not known."""
    words = []
    for first, end, letters, spaceless in _runs(text):
        if spaceless and not known:
            words.append(None)
        elif letters:
            first += next(k for k, c in enumerate(text[first:end]) if _kind(c) != MARK)
            inner = [k for k in cuts if first < k < end]
            words += zip([first, *inner], [*inner, end], strict=True)
    return words
