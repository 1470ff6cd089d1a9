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
from curate.extract.metadata import (
    ADDRESS,
    AUTHOR,
    BY_CLASS,
    BY_ITEMPROP,
    BY_REL,
    BY_USER,
    BYLINES,
    DATES,
    DOCUMENT,
    FIELDS,
    HEADINGS,
    LANG,
    MODIFIED,
    PUBLISHED,
    SCRIPTS,
    SITE,
    TAG_AT,
    TITLE,
)
from curate.extract.tags import NAMES

Place = list[int]  # rank, start, end

_MARKUP = re.compile(rb"<!--.*?-->|<(script|style|svg)\b.*?</\1\s*>|<(/?)([a-z][^\s/>]*)[^>]*>", re.I | re.S)
_WITHIN = frozenset(b"a abbr b bdi code em font i mark s small span strong sub sup u wbr".split())


def clean(value: bytes) -> str:
    """Text of the page's bytes: references resolved, white space in single spaces."""
    text = value.decode("utf-8", "replace")
    if "&" in text:
        text = html.unescape(text).replace("\0", " ")
    return " ".join(text.split())


def pieces(raw: bytes, tag: int, words: bool = False) -> list[str]:
    """The text inside an element of this tag that starts with `raw`, cut at tags; words: not at
    those that stand within a line."""
    own, depth, at, last = NAMES[tag].encode(), 1, 0, b""
    out: list[bytes] = []
    for match in _MARKUP.finditer(raw):
        last += raw[at : match.start()]
        at = match.end()
        name = (match[3] or b"").lower()
        if not (words and name in _WITHIN):
            out.append(last)
            last = b""
        if name and name == own:
            depth += -1 if match[2] else 1
        elif match[2] and not own:
            depth = 0
        if depth == 0:
            break
    else:
        end = raw.find(b"<", at)  # a tag that is cut off is no text
        out.append(last + (raw[at:end] if end >= 0 else raw[at:]))
    out.append(last)
    return [text for text in map(clean, out) if text]


# --- titles

_KEY = re.compile(r"[\W_]+")
_PARTS = re.compile(r"\s+(?:[|\-–—·•»«:/]|::)\s+|\s*\|\s*")


def key(text: str) -> str:
    """Letters and digits in lower case."""
    return _KEY.sub(" ", text.casefold()).strip()


def without_site(text: str, site: str | None) -> str:
    """A title without the name of its site before or behind a separator."""
    cuts = list(_PARTS.finditer(text))
    if not cuts:
        return text
    name = key(site or "")
    before, behind = text[: cuts[-1].start()], text[cuts[-1].end() :]
    if name and (key(behind) == name or key(behind) in name):
        return before
    if name and key(text[: cuts[0].start()]) == name:
        return text[cuts[0].end() :]
    return before if len(before.split()) > 1 and not name else text


def title_of(named: str | None, document: str | None, site: str | None, headings: list[str]) -> str | None:
    """The heading that the page's titles agree with, else the title without the site's name."""
    titles = [t for t in (named, document) if t]
    if not titles:
        return headings[0] if headings else None
    stated = [set(key(t).split()) for t in titles]
    name = key(site or "")
    best, score = None, 0.5
    for heading in headings:
        words = set(key(heading).split())
        if not words or (key(heading) == name and len(headings) > 1):
            continue
        share = max(len(words & s) / len(words) for s in stated)
        cover = max(len(words & s) / max(1, len(s)) for s in stated)
        if share + cover / 4 > score:
            best, score = heading, share + cover / 4
    return best or without_site(titles[0], site)


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
            stack += [v for k, v in thing.items() if k not in _OTHERS and isinstance(v, (dict, list))][
                ::-1
            ]


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
        return [n for names, _ in found for n in names], any(p for _, p in found)
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
            self.published = self.published or _text(thing.get("datePublished") or thing.get("dateCreated"))
            self.modified = self.modified or _text(thing.get("dateModified"))
            if not self.authors:
                names, self.person = _names(thing.get("author") or thing.get("creator"), known)
                self.authors = [n for n in map(name_of, names) if n]


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and len(value) < 100 else None


# --- authors

_BY = re.compile(
    r"^(?:(?:written|posted|words|text|story|article|published|post|authored)?\s*\bby\b|author|authors|written|von|par|por)\b\s*[:\-–]?\s*",
    re.I,
)
_REST = re.compile(r"\s*(?:[|•·»—–]|\bon\b|\bin\b|\bat\b|,?\s*\b(?:updated|published|posted|last)\b|\d{1,2}[ ./]|\s-\s).*$", re.I)
_NO_NAME = re.compile(r"https?:|www\.|@|\d{4}|[{}<>\[\]]|\b(?:about|by|min read|read more|follow|share|posts?|comments?|profile|bio|authors?|written|reviewed|edited)\b", re.I)


def name_of(value: str) -> str | None:
    """An author's name: references resolved, "by" off; None for what is none."""
    text = " ".join(html.unescape(value).encode("utf-8", "replace").decode().split()).strip("\"' ")
    text = _BY.sub("", text).strip(" ,;:|-–—")
    return text if 1 < len(text) <= 100 and "://" not in text else None


def byline(texts: list[str]) -> str | None:
    """The first name among the texts of an element that calls itself author."""
    for text in texts[:6]:
        name = _REST.sub("", _BY.sub("", text)).strip(" ,;:|-–—")
        if 1 < len(name) <= 60 and not _NO_NAME.search(name) and len(name.split()) <= 6 and day_in(text[:60]) is None:
            return name
    return None


def stated(data: np.ndarray, rows: list[Place]) -> list[str | None]:
    """Title, date, author and language; data: the bytes that the places are in."""

    def raw(place: Place) -> bytes:
        return data[place[1] : place[2]].tobytes()

    def value(field: int) -> str | None:
        return (clean(raw(rows[field])) or None) if rows[field][0] else None

    def filled(first: int, behind: int) -> Iterator[Place]:
        return (row for row in rows[first:behind] if row[0])

    linked = Linked([raw(row) for row in filled(SCRIPTS, BYLINES)])
    headings = []
    for row in filled(HEADINGS, SCRIPTS):
        heading = " ".join(pieces(raw(row), row[0] >> TAG_AT, words=True))
        if heading:
            headings.append(heading)
    lang = value(LANG)
    title = title_of(value(TITLE), value(DOCUMENT), value(SITE), headings)
    month_first = lang is None or lang.lower() in ("en", "en-us", "en_us")

    def day(text: str | None) -> str | None:
        if text is None:
            return None
        if re.match(r"\d{4}-\d\d-\d\d", text):
            return text
        return day_in(text, month_first)

    def dates() -> Iterator[str | None]:
        yield linked.published
        yield value(PUBLISHED)
        for row in filled(DATES, FIELDS):
            if row[0] == 2:
                yield clean(raw(row))
            else:
                for text in pieces(raw(row), row[0] >> TAG_AT)[:4]:
                    if len(text) < 80:
                        yield text

    date = next((d for d in map(day, dates()) if d), None)

    def authors() -> Iterator[str | None]:
        if linked.person:
            yield ", ".join(linked.authors)
        meta = value(AUTHOR)
        if meta:
            yield name_of(meta)
        places = list(filled(BYLINES, DATES))
        for why in (BY_ITEMPROP, BY_REL, BY_CLASS, BY_USER):
            for row in places:
                if row[0] & (1 << TAG_AT) - 1 == why:
                    yield byline(pieces(raw(row), row[0] >> TAG_AT))
        yield ", ".join(linked.authors)

    author = next((a for a in authors() if a), None)
    return [title, date, author, lang]
