"""Find the passages of a text that match a search or a rule, to mark them on a page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import islice

from curate.documents.rejected import Reason

Span = tuple[int, int]  # characters of a text
Hit = tuple[str, bool]  # a piece of a text, True if it is a hit
PHRASES = {"curly_bracket": "{", "lorem_ipsum": "lorem ipsum"}  # rule of C4 -> its phrase
MOST_CHARS = 200_000  # of a text that is searched for repetitions
MOST_HITS = 500
NEAR = 80  # characters shown before the first hit
_REPEATED = re.compile(r"(top|duplicate)_(\d+)_gram_chars")


def hits(text: str, words: str, reasons: Iterable[Reason]) -> list[Span]:
    """Return the spans (start, end) to mark in a text, in order and without overlaps. These are the
    matches of the search `words`. Without a search, they are the matches of the first rule in
    `reasons` that has any: of its phrase, or its repeated n-grams."""
    for reason in () if words else reasons:
        phrase = reason.detail if reason.rule == "bad_word" else PHRASES.get(reason.rule)
        repeated = _REPEATED.fullmatch(reason.rule)
        if phrase and (spans := hits(text, phrase, ())):
            return spans
        if repeated and (spans := _repetitions(text[:MOST_CHARS], int(repeated[2]), repeated[1])):
            return spans
    found = re.finditer(re.escape(words), text, re.IGNORECASE) if words else iter(())
    return [match.span() for match in islice(found, MOST_HITS)]


def _repetitions(text: str, size: int, which: str) -> list[Span]:
    """Return the spans of n-grams that occur more than once. If `which` is `top`, return only the
    spans of the most frequent n-gram. `size` is n, in words."""
    words = [match.span() for match in re.finditer(r"\S+", text)]
    grams = [tuple(text[a:b] for a, b in words[i : i + size]) for i in range(len(words) - size + 1)]
    chosen = Counter(grams).most_common(1 if which == "top" else None)
    repeated = {gram for gram, number in chosen if number > 1}
    spans: list[Span] = []
    for at in (at for at, gram in enumerate(grams) if gram in repeated):
        start, end = words[at][0], words[at + size - 1][1]
        if spans and start <= spans[-1][1]:
            start = spans.pop()[0]
        spans.append((start, end))
    return spans[:MOST_HITS]


def divided(text: str, start: int, end: int, spans: Iterable[Span]) -> list[Hit]:
    """Split text[start:end] into pieces (text, True if it lies in one of the spans)."""
    pieces: list[Hit] = []
    for a, b in ((max(a, start), min(b, end)) for a, b in spans):
        if a < b:
            pieces += [(text[start:a], False), (text[a:b], True)]
            start = b
    return [piece for piece in (*pieces, (text[start:end], False)) if piece[0]]


def passage(text: str, spans: list[Span], most: int) -> list[Hit]:
    """Return a passage of about `most` characters, cut at blanks, as pieces (text, True if it is a
    hit). It starts shortly before the first hit. Without hits, it is the text's beginning."""
    first, last = spans[0] if spans else (0, 0)
    start = max(0, first - NEAR)
    if start and (blank := re.compile(r"\s").search(text, start, first)):
        start = blank.end()
    end = start + most
    if end < len(text):
        blank = re.search(r"\s\S*\Z", text[max(start, last) : end])
        end = max(start, last) + blank.start() if blank else end
    pieces = [(re.sub(r"\s+", " ", t), hit) for t, hit in divided(text, start, end, spans)]
    before, after = [("\u2026 ", False)] * (start > 0), [(" \u2026", False)] * (end < len(text))
    return [*before, *pieces, *after]
