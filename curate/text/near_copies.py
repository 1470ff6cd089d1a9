"""Copies of a text at a chosen Jaccard similarity of their word 5-grams.

Whoever makes copies (the demonstration with synonyms, `dedup evaluate` with foreign words) has a
row of states, each further from the original than the one before; the search for the state nearest
to a similarity is here.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

WORD = re.compile(r"\w+")
NGRAM = 5


def drawn_number(*key: object) -> int:
    """A number of 64 bits that depends on `key` alone: the only source of chance of what is
    planted."""
    digest = blake2b("\x1f".join(map(str, key)).encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def word_5grams(text: str) -> set[tuple[str, ...]]:
    r"""The set of 5-grams of the lower-cased runs of ``\w``."""
    words = WORD.findall(text.lower())
    return {tuple(words[i : i + NGRAM]) for i in range(len(words) - NGRAM + 1)}


def jaccard(first: str, second: str) -> float:
    """Intersection over union of the word 5-grams of two texts; 1.0 for two texts without any."""
    a, b = word_5grams(first), word_5grams(second)
    return len(a & b) / len(a | b) if a or b else 1.0


def nearest(
    count: int, similarity: Callable[[int], float], target: float, above: bool = False
) -> tuple[int, float]:
    """(state, its similarity) of the state whose similarity is nearest to the target.

    similarity: of states 0 to count - 1; it falls from one to the next. above: the nearest among
    those that are not below the target, state 0 where all are.
    """
    similarities: dict[int, float] = {}

    def at(state: int) -> float:
        if state not in similarities:
            similarities[state] = similarity(state)
        return similarities[state]

    states = range(count)
    below = bisect_left(states, True, key=lambda s: at(s) < target)
    beside = [s for s in (below - 1, below) if 0 <= s < count]
    if above:
        beside = beside[:1]
    best = min(beside, key=lambda s: (abs(at(s) - target), s))
    # Of states that are equally far the first, which has the fewest edits.
    return bisect_left(states, True, key=lambda s: at(s) <= at(best)), at(best)


@dataclass(frozen=True)
class NearCopy:
    """A copy and the similarity that it was measured to have."""

    text: str
    similarity: float


def near_copy(
    text: str,
    target: float,
    words: Sequence[str],
    key: object,
    similarity: Callable[[str, str], float] = jaccard,
) -> NearCopy:
    """A copy of about the target similarity: single words are exchanged for `words`.

    Words all over the text come first, in an order drawn from `key`; then the last ones, one after
    the other, which changes one 5-gram each.
    """
    spans = [m.span() for m in WORD.finditer(text)]
    tail = min(4 * NGRAM, len(spans) // 4)
    inner = sorted(range(len(spans) - tail), key=lambda n: drawn_number(key, n))

    def exchanged(chosen: Sequence[int]) -> str:
        pieces, at = [], 0
        for n in sorted(chosen):
            start, end = spans[n]
            pieces += [text[at:start], _other(text[start:end], words, key, n)]
            at = end
        return "".join([*pieces, text[at:]])

    def inside(state: int) -> str:
        return exchanged(inner[:state])

    def at_the_end(state: int) -> str:
        return exchanged([*inner[:spread], *range(len(spans) - state, len(spans))])

    spread, _ = nearest(len(inner) + 1, lambda s: similarity(text, inside(s)), target, above=True)
    last, reached = nearest(tail + 1, lambda s: similarity(text, at_the_end(s)), target)
    return NearCopy(at_the_end(last), reached)


def _other(word: str, words: Sequence[str], key: object, n: int) -> str:
    """Another word, in the same place always the same one; capital where the word was."""
    at = drawn_number(key, n, "word") % len(words)
    other = words[at] if words[at].lower() != word.lower() else words[(at + 1) % len(words)]
    return other.capitalize() if word[0].isupper() else other
