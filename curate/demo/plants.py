"""Plants: rewritten copies at a stated distance, shared passages, and text that is no text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from curate.demo.texts import Article

_WORD = re.compile(r"\w+")
_SENTENCE_END = re.compile(r"(?<=[.?!]) (?=[A-Z])")


def number(*key: object) -> int:
    """A number that depends on `key` alone: the demonstration's only source of chance."""
    digest = blake2b("\x1f".join(map(str, key)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def word_5grams(text: str) -> set[tuple[str, ...]]:
    r"""The set of 5-grams of the lower-cased runs of ``\w``."""
    words = _WORD.findall(text.lower())
    return {tuple(words[i : i + 5]) for i in range(len(words) - 4)}


def jaccard(left: str, right: str) -> float:
    """Intersection over union of the word 5-grams of two texts; 1.0 for two texts without any."""
    a, b = word_5grams(left), word_5grams(right)
    return len(a & b) / len(a | b) if a or b else 1.0


@dataclass(frozen=True)
class Shared:
    """A passage that two articles have in common."""

    passage: str
    chars: int
    bytes: int
    words: int


def near_duplicate(
    article: Article, target: float, synonyms: Mapping[str, str], addenda: Sequence[str]
) -> Article:
    """A copy whose word 5-grams have about the Jaccard similarity `target` with the article's.

    Far copies lose a sentence and gain one, as reprints do; then words are exchanged one by one,
    in an order drawn from the article's id, and the state nearest to the target is returned.
    """
    current = article.paragraphs
    best, best_gap = current, 2.0
    for candidate in _edits(article, current, target, synonyms, addenda):
        similarity = jaccard(article.text, "\n".join(candidate))
        gap = abs(similarity - target)
        if gap < best_gap:
            best, best_gap = candidate, gap
        if similarity < target:
            break
    return replace(article, paragraphs=best)


def _edits(
    article: Article,
    current: tuple[str, ...],
    target: float,
    synonyms: Mapping[str, str],
    addenda: Sequence[str],
) -> Iterator[tuple[str, ...]]:
    if target <= 0.8:
        addendum = addenda[number(article.id, "addendum") % len(addenda)]
        current = (*current[:-1], f"{current[-1]} {addendum}")
        yield current
    if target <= 0.6:
        which = number(article.id, "cut") % (len(current) - 1)
        sentences = _SENTENCE_END.split(current[which])
        if len(sentences) > 2:
            kept = " ".join([sentences[0], *sentences[2:]])
            current = (*current[:which], kept, *current[which + 1 :])
            yield current
    tokens = [p.split(" ") for p in current]
    places = [
        (p, w)
        for p, line in enumerate(tokens)
        for w, token in enumerate(line)
        if _core(token).lower() in synonyms
    ]
    for p, w in _spread(places, article.id):
        tokens[p][w] = _exchange(tokens[p][w], synonyms)
        yield tuple(" ".join(line) for line in tokens)


def _core(token: str) -> str:
    return token.strip('.,;:?!"()')


def _exchange(token: str, synonyms: Mapping[str, str]) -> str:
    core = _core(token)
    other = synonyms[core.lower()]
    if core[0].isupper():
        other = other[0].upper() + other[1:]
    return token.replace(core, other, 1)


def _spread(places: list[tuple[int, int]], key: str) -> list[tuple[int, int]]:
    return sorted(places, key=lambda place: number(key, *place))


def share_passage(host: Article, donor: Article, count: int) -> tuple[Article, Shared]:
    """`host` with the longest `count` neighbouring paragraphs of `donor` after its first one."""
    runs = [donor.paragraphs[n : n + count] for n in range(len(donor.paragraphs) - count + 1)]
    taken = max(runs, key=lambda run: len("".join(run)))
    passage = "\n".join(taken)
    mixed = (*host.paragraphs[:1], *taken, *host.paragraphs[1:])
    shared = Shared(passage, len(passage), len(passage.encode()), len(_WORD.findall(passage)))
    return replace(host, paragraphs=mixed), shared


def letter_soup(seed: str, lines: int, end_marks: bool) -> tuple[str, ...]:
    """Lines of random letters in word-like lengths."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    out = []
    for n in range(lines):
        words = []
        for w in range(9 + number(seed, n) % 9):
            length = 2 + number(seed, n, w, "length") % 9
            words.append("".join(letters[number(seed, n, w, c) % 26] for c in range(length)))
        out.append(_finish(words, end_marks))
    return tuple(out)


def word_salad(
    seed: str, articles: Sequence[Article], lines: int, end_marks: bool
) -> tuple[str, ...]:
    """Lines of real words in no order."""
    pool = sorted({w for a in articles for w in _WORD.findall(a.text.lower()) if w.isalpha()})
    return tuple(
        _finish(
            [pool[number(seed, n, w) % len(pool)] for w in range(10 + number(seed, n) % 12)],
            end_marks,
        )
        for n in range(lines)
    )


def _finish(words: list[str], end_mark: bool) -> str:
    line = " ".join(words)
    return line[0].upper() + line[1:] + ("." if end_mark else "")
