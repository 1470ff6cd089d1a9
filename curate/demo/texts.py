"""The hand-written articles of the demonstration web, and texts planted beside them.

Planted are rewritten copies at a stated distance, shared passages, and text that is no text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from curate.steps.shipped import FOLDER
from curate.text.near_copies import WORD, drawn_number, jaccard, nearest

DEMO = FOLDER / "demo"
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Article:
    """One piece of prose; a paragraph is one line of text without a line end."""

    id: str
    section: str
    lang: str
    title: str
    paragraphs: tuple[str, ...]
    extra: tuple[str, ...] = ()  # ingredients of a recipe, lines of code: not prose
    planted: tuple[dict[str, str], ...] = ()  # personal data in the text: {"type", "value"}

    @property
    def text(self) -> str:
        """The paragraphs, one a line: what extraction followed by C4 should leave."""
        return "\n".join(self.paragraphs)


@dataclass(frozen=True)
class Host:
    """An invented site."""

    host: str
    name: str
    layout: str
    sections: tuple[str, ...]
    tagline: str


def _load(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # a safe loader


def load_articles() -> list[Article]:
    """All articles, by file name and then in the order written.

    Raises:
        ValueError: an article's id is used twice.
    """
    articles: list[Article] = []
    seen: set[str] = set()
    for path in sorted((DEMO / "texts").glob("*.yaml")):
        for section in _sections(_load(path)):
            for entry in section["articles"]:
                if entry["id"] in seen:
                    raise ValueError(f"{path.name}: article id {entry['id']!r} is used twice")
                seen.add(entry["id"])
                articles.append(_article(entry, section))
    return articles


def _sections(loaded: Any) -> list[dict[str, Any]]:
    return loaded if isinstance(loaded, list) else [loaded]


def _article(entry: dict[str, Any], section: dict[str, Any]) -> Article:
    lines = (line.strip() for line in entry["text"].splitlines())
    return Article(
        id=entry["id"],
        section=section["section"],
        lang=section["lang"],
        title=entry["title"],
        paragraphs=tuple(line for line in lines if line),
        extra=tuple(entry.get("extra", "").splitlines()),
        planted=tuple(entry.get("planted", ())),
    )


def load_hosts() -> list[Host]:
    """The invented sites, in the order written."""
    return [
        Host(h["host"], h["name"], h["layout"], tuple(h["sections"]), h["tagline"])
        for h in _load(DEMO / "hosts.yaml")
    ]


def load_words(name: str) -> Any:
    """One table of ``words.yaml``: synonyms, comments, products, place names."""
    return _load(DEMO / "words.yaml")[name]


_SENTENCE_END = re.compile(r"(?<=[.?!]) (?=[A-Z])")


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
    states = list(_edits(article, target, synonyms, addenda)) or [article.paragraphs]
    best, _ = nearest(len(states), lambda n: jaccard(article.text, "\n".join(states[n])), target)
    return replace(article, paragraphs=states[best])


def _edits(
    article: Article, target: float, synonyms: Mapping[str, str], addenda: Sequence[str]
) -> Iterator[tuple[str, ...]]:
    current = article.paragraphs
    if target <= 0.8:
        addendum = addenda[drawn_number(article.id, "addendum") % len(addenda)]
        current = (*current[:-1], f"{current[-1]} {addendum}")
        yield current
    if target <= 0.6:
        which = drawn_number(article.id, "cut") % (len(current) - 1)
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
    return sorted(places, key=lambda place: drawn_number(key, *place))


def share_passage(host: Article, donor: Article, count: int) -> tuple[Article, Shared]:
    """`host` with the longest `count` neighbouring paragraphs of `donor` after its first one."""
    runs = [donor.paragraphs[n : n + count] for n in range(len(donor.paragraphs) - count + 1)]
    taken = max(runs, key=lambda run: len("".join(run)))
    passage = "\n".join(taken)
    mixed = (*host.paragraphs[:1], *taken, *host.paragraphs[1:])
    shared = Shared(passage, len(passage), len(passage.encode()), len(WORD.findall(passage)))
    return replace(host, paragraphs=mixed), shared


def letter_soup(seed: str, lines: int, end_marks: bool) -> tuple[str, ...]:
    """Lines of random letters in word-like lengths."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    out = []
    for n in range(lines):
        words = []
        for w in range(9 + drawn_number(seed, n) % 9):
            length = 2 + drawn_number(seed, n, w, "length") % 9
            words.append("".join(letters[drawn_number(seed, n, w, c) % 26] for c in range(length)))
        out.append(_finish(words, end_marks))
    return tuple(out)


def word_salad(
    seed: str, articles: Sequence[Article], lines: int, end_marks: bool
) -> tuple[str, ...]:
    """Lines of real words in no order."""
    pool = sorted({w for a in articles for w in WORD.findall(a.text.lower()) if w.isalpha()})
    return tuple(
        _finish(
            [
                pool[drawn_number(seed, n, w) % len(pool)]
                for w in range(10 + drawn_number(seed, n) % 12)
            ],
            end_marks,
        )
        for n in range(lines)
    )


def _finish(words: list[str], end_mark: bool) -> str:
    line = " ".join(words)
    return line[0].upper() + line[1:] + ("." if end_mark else "")
