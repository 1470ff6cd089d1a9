"""What a page states of itself, chosen among the places that the scanner noted (metadata.py)."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson


from curate.extract.days import day_in
from curate.extract.inner import WHOLE, inner
from curate.extract.metadata import (
    AUTHOR,
    BY_CLASS,
    BY_ITEMPROP,
    BY_REL,
    BYLINES,
    DATES,
    DOCUMENT,
    FIELDS,
    HEADINGS,
    LANG,
    MAX_VALUE,
    PUBLISHED,
    SCRIPTS,
    SITE,
    STATED,
    TAG_AT,
    TITLE,
)
from curate.extract.tags import TAG

WHYS = (BY_ITEMPROP, BY_REL, BY_CLASS)
NEAR = 10  # texts below the heading that may name an author or a day
_ISO = re.compile(r"\d{4}-\d\d-\d\d")
Place = list[int]  # rank, start, end


def resolved(value: bytes) -> str:
    """The page's bytes with character references resolved."""
    text = value.decode("utf-8", "replace")
    return html.unescape(text).replace("\0", " ") if "&" in text else text


def clean(value: bytes) -> str:
    """As resolved, white space in single spaces."""
    return " ".join(resolved(value).split())


# --- titles

ALIKE = 0.4  # headings less alike to the title are not it
_H1 = TAG["h1"]
_KEY = re.compile(r"[\W_]+")
_PARTS = re.compile(r"\s+(?:[|\-–—·•»«:/]|::)\s+|\s*\|\s*")


def key(text: str) -> str:
    """Letters and digits in lower case."""
    return _KEY.sub(" ", text.casefold()).strip()


def without_site(title: str, site: str | None, sure: bool = False) -> str:
    """A title without the name of its site, and without its last part where that is not known to
    be the site's name; sure: only what is known."""
    cuts = list(_PARTS.finditer(title))
    if not cuts:
        return title
    before, last = title[: cuts[-1].start()], key(title[cuts[-1].end() :])
    name = key(site or "")
    if name and (last in name or name in last):
        return before if sure else without_site(before, None)
    if name and key(title[: cuts[0].start()]) == name:
        return title[cuts[0].end() :]
    return before if not sure and len(before.split()) > 1 else title


def title_of(titles: list[str], site: str | None, headings: list[str]) -> str | None:
    """The heading whose words are most alike (Dice's coefficient) to what the page says its title
    is; where none is, the first such title without the site's name. titles: of meta elements, then
    of `title`."""
    if not titles:
        return headings[0] if headings else None
    if len(headings) == 1 and titles[0].startswith(headings[0]):
        if 2 * len(headings[0]) >= len(titles[0]):  # what is left over names the site
            return headings[0]
    first = without_site(titles[0], site)
    if not headings or first in headings:
        return first
    bare = [first, *(without_site(title, site) for title in titles[1:])]
    names = {key(site or ""), *(key(_PARTS.split(title)[-1]) for title in titles)}
    keys = [key(title) for title in (*bare, *titles)]
    names -= set(keys[: len(bare)])
    words = [set(k.split()) for k in dict.fromkeys(keys)]
    best, score = first, ALIKE
    for heading in headings:
        name = key(heading)
        if name and name not in names:
            own = set(name.split())
            likeness = max(2 * len(own & w) / (len(own) + len(w) or 1) for w in words)
            if likeness > score:
                best, score = heading, likeness
    return best


# --- JSON-LD

# Keys of a thing that lead to other things than the page.
_OTHERS = frozenset(
    "comment suggestedAnswer acceptedAnswer review reviews itemListElement hasPart isPartOf "
    "publisher mentions citation video image author creator offers relatedLink about".split()
)


def _load(script: bytes) -> Any:
    try:
        return orjson.loads(script)
    except ValueError:
        try:
            return json.loads(script.decode("utf-8", "replace"), strict=False)
        except (ValueError, RecursionError):
            return None


def _things(data: Any) -> Iterator[dict[str, Any]]:
    """The objects of a JSON-LD script that may stand for the page, in order."""
    stack = [data]
    while stack:
        thing = stack.pop()
        if isinstance(thing, list):
            stack += thing[::-1]
        elif isinstance(thing, dict):
            yield thing
            stack += [
                v for k, v in thing.items() if k not in _OTHERS and isinstance(v, (dict, list))
            ][::-1]


def _rank(thing: dict[str, Any]) -> int:
    """How well a thing stands for the page by its type: 0 for not at all."""
    kind = thing.get("@type")
    kinds = kind if isinstance(kind, list) else [kind]
    best = 0
    for name in kinds:
        if not isinstance(name, str):
            continue
        if name.endswith(("Article", "Posting", "Report", "Recipe", "Question", "Review")):
            best = 3
        elif name.endswith("Page"):
            best = max(best, 2)
        elif name in ("CreativeWork", "Book", "Dataset", "Course", "HowTo"):
            best = max(best, 1)
    return best


def _names(value: Any, known: dict[str, Any], depth: int = 0) -> tuple[list[str], bool]:
    """Names of an author, and whether a person is among them."""
    if isinstance(value, str):
        return [value], True
    if isinstance(value, list) and depth < 3:
        found = [_names(v, known, depth + 1) for v in value[:20]]
        persons = any(person for _, person in found)
        return [n for names, person in found if person == persons for n in names], persons
    if isinstance(value, dict) and depth < 3:
        name = value.get("name")
        if not name and isinstance(value.get("@id"), str):
            value = known.get(value["@id"], {})
            name = value.get("name")
        names, _ = _names(name, known, depth + 1) if name else ([], False)
        return names, bool(names) and value.get("@type") != "Organization"
    return [], False


class Linked:
    """What the JSON-LD of a page says: published, modified, authors, and whether these are persons."""

    def __init__(self, scripts: list[bytes]) -> None:
        self.published: str | None = None
        self.modified: str | None = None
        self.authors: list[str] = []
        self.person = False
        self.rank = 0
        things = [t for script in scripts for t in _things(_load(script))]
        known = {t["@id"]: t for t in things if isinstance(t.get("@id"), str) and t.get("name")}
        for thing in sorted(things, key=_rank, reverse=True):
            rank = _rank(thing)
            if rank == 0:
                break
            self.rank = max(rank, self.rank)
            if rank == 3:
                self.published = self.published or _text(
                    thing.get("datePublished") or thing.get("dateCreated")
                )
            if rank == 3:
                self.modified = self.modified or _text(thing.get("dateModified"))
            if not self.authors:
                names, self.person = _names(thing.get("author") or thing.get("creator"), known)
                self.authors = [n for n in map(name_of, names) if n]


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and len(value) < 100 else None


# --- authors

_BY = re.compile(
    r"^(?:this )?(?:(?:written|posted|words|text|story|article|published|post(?: author)?|authored"
    r"|created|started|asked|submitted)?\s*(?:was )?\b(?:by|via)\b|authors?|written|von|par|por)\b"
    r"\s*[:\-–]?\s*",
    re.I,
)
_REST = re.compile(
    r"\s*(?:[|•·»—–/(]|\bon\b|\bin\b|\bat\b|,?\s*\b(?:updated|published|posted|last|reviewed)\b"
    r"|\d{1,2}[ ./]|\s-\s).*$",
    re.I,
)
_NO_NAME = re.compile(
    r"https?:|www\.|@|\b(?:19|20)\d\d\b|[{}<>\[\]?!$%]|^[\W\d]*.?[\W\d]*$|\b(?:about|by|min|read|more|follow|"
    r"share|posts?|comments?|profile|bio|authors?|written|reviewed|edited|sign|log|login|skip|from|"
    r"menu|ago)\b",
    re.I,
)


_SIGNED = re.compile(r"(?:written |posted |words )?by\b", re.I)


def name_of(value: str) -> str | None:
    """An author's name: references resolved, "by" off; None for what is none."""
    text = " ".join(html.unescape(value).encode("utf-8", "replace").decode().split())
    text = _BY.sub("", text).split(" | ")[0].split(" - ")[0].strip("\"' ,;:|-–—")
    return text if 1 < len(text) <= 100 and "://" not in text else None


def byline(texts: list[str]) -> str | None:
    """The first name among the texts of an element that calls itself author."""
    for text in texts:
        name = _REST.sub("", _BY.sub("", text)).strip(" ,;:|-–—")
        if 1 < len(name) <= 60 and len(name.split()) <= 6 and not _NO_NAME.search(name):
            return name if day_in(text) is None or not _starts_with_day(text) else None
    return None


def _starts_with_day(text: str) -> bool:
    return day_in(text[:24]) is not None


def signed(texts: list[str]) -> str | None:
    """A name behind "By" among the first texts below a heading."""
    for text, following in zip(texts, [*texts[1:], ""], strict=False):
        if len(text) < 80 and _SIGNED.match(text):
            rest = _BY.sub("", text)
            return byline([rest if len(rest) > 1 else following])
    return None


def stated(data: np.ndarray, rows: list[Place]) -> list[str | None]:
    """Title, date, author and language; data: the bytes that the places are in."""

    view = memoryview(data)

    def raw(place: Place) -> bytes:
        return bytes(view[place[1] : place[2]])

    def value(field: int) -> str | None:
        return (clean(raw(rows[field])) or None) if rows[field][0] else None

    def filled(first: int, behind: int) -> Iterator[Place]:
        return (row for row in rows[first:behind] if row[0])

    def texts(a: int, z: int, tag: int, lines: bool = False, most: int = 6) -> list[str]:
        found = resolved(inner(data, a, z, tag, lines, most).tobytes())
        return [text for line in found.split("\n") if (text := line.strip())]

    def inside(row: Place) -> list[str]:
        return texts(row[1], row[2], row[0] >> TAG_AT)

    linked = Linked([raw(row) for row in filled(SCRIPTS, BYLINES)])
    headings = {
        " ".join(" ".join(texts(row[1], min(row[2], row[1] + MAX_VALUE), _H1, True)).split()): row
        for row in filled(HEADINGS, SCRIPTS)
    }
    lang = value(LANG)
    titles = [title for title in (value(TITLE), value(DOCUMENT)) if title]
    title = title_of(titles, value(SITE), [heading for heading in headings if heading])
    month_first = lang is None or lang.lower() in ("en", "en-us", "en_us")
    below: list[str] = []

    def near() -> list[str]:
        if not below and headings:
            row = headings.get(title or "") or next(iter(headings.values()))
            below.extend(texts(row[1], row[2], WHOLE, most=NEAR)[1:])
            below.extend(texts(row[1] - row[0], row[1], WHOLE, most=99)[1:][:-4:-1])
        return below

    def day(text: str | None) -> str | None:
        if text is None or len(text) > 200:
            return None
        return text if _ISO.match(text) else day_in(text, month_first)

    def dates() -> Iterator[str | None]:
        yield linked.published
        yield value(PUBLISHED)
        for row in filled(DATES, FIELDS):
            if row[0] == STATED:
                yield clean(raw(row))
            else:
                yield from (text for text in inside(row) if len(text) < 80)
        for row in filled(BYLINES, DATES):
            yield from (text for text in inside(row) if len(text) < 80)
        yield from (text for text in near() if len(text) < 80)
        yield linked.modified

    def authors() -> Iterator[str | None]:
        if linked.person:
            yield ", ".join(linked.authors)
        yield name_of(value(AUTHOR) or "")
        places = list(filled(BYLINES, DATES))
        for why in WHYS:
            for row in places:
                if row[0] & (1 << TAG_AT) - 1 == why:
                    yield byline(inside(row))
        yield signed(near())
        yield ", ".join(linked.authors)

    date = next((d for d in map(day, dates()) if d), None)
    author = next((a for a in authors() if a), None)
    return [title, date, author, lang]
