"""Choose a page's metadata among the places that the scanner noted (metadata.py).

Title: the heading most like the page's title, since the title often includes the site's name. Date
and author: machine-readable values (JSON-LD, `meta`), then visible ones. Site: a machine-readable
value, else the part of a title that is also in the host name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from itertools import islice
from operator import itemgetter
from typing import Any

import numpy as np
import orjson

from curate.extract.days import day_in
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
    WHOLE,
    inner,
)
from curate.extract.tags import TAG
from curate.text.encodings import unescape

Place = list[int]  # rank, start, end

NEAR = 10  # texts below the heading in which an author or a date is looked for
ABOVE = 3  # texts above the heading, likewise
LINE = 80  # characters; a longer text does not state an author or a date
_H1 = TAG["h1"]
# Kinds of pages (net.KINDS) that show dates of goods, events and other pages.
UNDATED = frozenset("product service collection listing".split())
_HOST = re.compile(r"\w+://([^/:?#]+)")
_DAY_IN_URL = re.compile(r"[^?#]*/((?:19|20)\d\d)([/-]?)(\d\d)\2(\d\d)(?!\d)")


def resolved(value: bytes) -> str:
    """Return the bytes of a value as text with character references decoded."""
    text = value.decode("utf-8", "replace")
    return unescape(text).replace("\0", " ") if "&" in text else text


def clean(value: bytes) -> str:
    """Return a value as text with character references decoded and white space as single spaces."""
    return " ".join(resolved(value).split())


# --- titles

ALIKE = 0.4  # least similarity of a heading to the title
WORDY = 20  # bytes; a longer part of a title is more than one word in any script
SITE_WORDS = 5  # most words of a site's name that is known only by its place in a title
_KEY = re.compile(r"[\W_]+")
_PARTS = re.compile(
    r"\s+(?:[|\-–—·•»«:/]|::)\s+|\s*[|｜]\s*|(?<=[^\x00-\x7f])_+|_+(?=[^\x00-\x7f])"
    r"|(?<=[\u2e80-\u9fff])[-–—－]+(?=[\u2e80-\u9fff])"  # no white space around them in Han text
)


def key(text: str) -> str:
    """Return a title's words for comparing titles: letters and digits in lower case."""
    return _KEY.sub(" ", text.casefold()).strip()


def without_site(title: str, site: str | None) -> str:
    """Return a title without the site's name at its start or end. If the name is at neither, the
    text after the last separator is cut: it may be another name of the site, or a section."""
    cuts = list(_PARTS.finditer(title))
    if not cuts:
        return title
    before, last = title[: cuts[-1].start()], key(title[cuts[-1].end() :])
    name = key(site or "")
    if name and (last in name or name in last):
        return without_site(before, None)
    if name and key(title[: cuts[0].start()]) == name:
        return title[cuts[0].end() :]
    return before if len(before.split()) > 1 or len(before.encode()) > WORDY else title


def site_in(titles: list[str], headings: list[str], url: str) -> str | None:
    """Return the site's name found in a title, or None. Titles are split into parts at separators.
    The name is the last or first part that resembles a label (word between dots) of the host: one
    contains the other and is at most twice as long. If a part is also a whole title or a heading,
    it must equal the label. If no part resembles a label, the name is the short last part of a
    title whose first part is also a whole title or a heading."""
    host = _HOST.match(url.lower())
    labels = host[1].replace("-", "").split(".")[:-1] if host else []
    split = [parts for title in titles if len(parts := _PARTS.split(title)) > 1]
    wholes = {key(whole) for whole in (*titles, *headings)}
    for name in (parts[k] for parts in split for k in (-1, 0)):
        letters, least = key(name).replace(" ", ""), 1.0 if key(name) in wholes else 0.5
        for short, long in (sorted((letters, label), key=len) for label in labels):
            if len(short) > 2 and short in long and len(short) >= least * len(long):
                return name
    for first, *_, last in split:
        if len(last.split()) <= SITE_WORDS and key(first) in wholes and not day_in(last):
            return last
    return None


def title_of(titles: list[str], site: str | None, headings: list[str]) -> str | None:
    """Return the page's title: the heading most similar (Dice's coefficient) to the stated titles.
    If no heading is similar, return the first stated title, with the site's name cut off. `titles`
    are those that `meta`, `title` and JSON-LD state, in this order."""
    if not titles:
        return headings[0] if headings else None
    only = headings[0] if len(headings) == 1 else ""
    if titles[0].startswith(only) and 2 * len(only) >= len(titles[0]):
        return only  # the remainder names the site
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
            parts = set(name.split())
            likeness = max(2 * len(parts & w) / (len(parts) + len(w) or 1) for w in words)
            if likeness > score:
                best, score = heading, likeness
    return best


# --- JSON-LD

MAX_THINGS = 1000  # objects read per script
ARTICLES = ("Article", "Posting", "Recipe", "Question", "Report")  # endings of schema.org types
# Keys under which an object describes something other than the page.
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


def things_of(data: Any, others: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSON-LD script in its order, without those under the keys `others`."""
    stack = [data]
    while stack:
        thing = stack.pop()
        if isinstance(thing, list):
            stack += reversed(thing)
        elif isinstance(thing, dict):
            yield thing
            inside = [v for k, v in thing.items() if type(v) in (dict, list) and k not in others]
            stack += reversed(inside)


def _kind(kind: Any) -> int:  # 0: an article, 1: a page or no type, 2: anything else
    kinds = kind if isinstance(kind, list) else [kind] if kind else []
    best = 2 if kinds else 1
    for name in kinds:
        if isinstance(name, str):
            best = 0 if name.endswith(ARTICLES) else min(best, 1 if name.endswith("Page") else 2)
    return best


def _names(value: Any, by_id: dict[str, Any], depth: int = 0) -> tuple[list[str], bool]:
    """Return (names of authors, True if these are persons). Organizations are returned only if no
    person is named."""
    if isinstance(value, str):
        return [value], True
    if isinstance(value, list) and depth < 3:
        authors = [_names(v, by_id, depth + 1) for v in value[:20]]
        persons = any(person for _, person in authors)
        return [n for names, person in authors if person == persons for n in names], persons
    if isinstance(value, dict) and depth < 3:
        if not value.get("name") and isinstance(value.get("@id"), str):
            value = by_id.get(value["@id"], {})
        names, _ = _names(value.get("name"), by_id, depth + 1)
        return names, bool(names) and value.get("@type") != "Organization"
    return [], False


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_VALUE:
        return ""
    return clean(value.encode("utf-8", "replace"))


class Linked:
    """The metadata in a page's JSON-LD scripts, "" for a field that is not stated. `person` is True
    if the authors are persons."""

    def __init__(self, scripts: list[bytes]) -> None:
        self.headline = self.published = self.modified = self.site = ""
        self.authors: list[str] = []
        self.person = False
        things = [
            t for script in scripts for t in islice(things_of(_load(script), _OTHERS), MAX_THINGS)
        ]
        sites = [_text(t.get("name")) for t in things if t.get("@type") == "WebSite"]
        by_id = {t["@id"]: t for t in things if isinstance(t.get("@id"), str) and t.get("name")}
        ranked = [(kind, thing) for thing in things if (kind := _kind(thing.get("@type"))) < 2]
        for kind, thing in sorted(ranked, key=itemgetter(0)):
            # The date of a page that is not an article is when the page was set up.
            if kind == 0:
                self.published = self.published or _text(thing.get("datePublished"))
                self.published = self.published or _text(thing.get("dateCreated"))
                self.modified = self.modified or _text(thing.get("dateModified"))
                sites += map(_text, _names(thing.get("publisher"), by_id)[0])
            self.headline = self.headline or _text(thing.get("headline"))
            if not self.authors:
                names, self.person = _names(thing.get("author") or thing.get("creator"), by_id)
                self.authors = [n for n in map(name_of, map(_text, names)) if n]
        self.site = next(filter(None, sites), "")


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
    r"https?:|www\.|@|\b(?:19|20)\d\d\b|[{}<>\[\]?!$%]|^[\W\d]*.?[\W\d]*$"
    r"|\b(?:about|by|min|read|more|follow|share|posts?|comments?|profile|bio|authors?|written"
    r"|reviewed|edited|sign|log|login|skip|from|menu|ago)\b",
    re.I,
)
_SIGNED = re.compile(r"(?:written |posted |words )?by\b", re.I)


def name_of(text: str) -> str | None:
    """Return the author's name in `text`, or None if there is no name. Words such as "by" before
    the name, and text from a separator (` | ` or ` - `) on, are removed."""
    text = _BY.sub("", text).split(" | ")[0].split(" - ")[0].strip("\"' ,;:|-–—")
    return text if 1 < len(text) <= 100 and "://" not in text else None


def byline(texts: list[str]) -> str | None:
    """Return the first name in the texts of an element that is marked as author, or None."""
    for text in texts:
        name = _REST.sub("", _BY.sub("", text)).strip(" ,;:|-–—")
        if 1 < len(name) <= 60 and len(name.split()) <= 6 and not _NO_NAME.search(name):
            month = (
                len(name) < 9 and day_in(text[:24]) is not None
            )  # the name is a fragment of a date
            return None if month else name
    return None


def signed(texts: list[str]) -> str | None:
    """Return the author's name after "By" in the first texts below a heading, or None."""
    for text, following in zip(texts, [*texts[1:], ""], strict=False):
        if len(text) < LINE and _SIGNED.match(text):
            rest = _BY.sub("", text)
            return byline([rest if len(rest) > 1 else following])
    return None


def stated(data: np.ndarray, rows: list[Place], url: str = "", kind: str = "") -> list[str | None]:
    """Return [title, date (ISO 8601), author, language, site] of a page, None for each one not
    stated. `data` (uint8[]) has the bytes of the page. `rows` are its places of metadata: (rank,
    start, end) in `data` (metadata.py). `url` is the page's address, `kind` one of net.KINDS."""
    view = data.data

    def raw(place: Place) -> bytes:
        return bytes(view[place[1] : place[2]])

    def value(field: int) -> str | None:
        return (clean(raw(rows[field])) or None) if rows[field][0] else None

    def filled(first: int, behind: int) -> Iterator[Place]:
        return (row for row in rows[first:behind] if row[0])

    def texts(a: int, z: int, tag: int, lines: bool = False, most: int = 6) -> list[str]:
        joined = resolved(inner(data, a, z, tag, lines, most).tobytes())
        return [text for line in joined.split("\n") if (text := line.strip())]

    def inside(row: Place) -> list[str]:
        return texts(row[1], row[2], row[0] >> TAG_AT)

    linked = Linked([raw(row) for row in filled(SCRIPTS, BYLINES)])
    headings: dict[str, Place] = {}
    for row in filled(HEADINGS, SCRIPTS):
        heading = texts(row[1], min(row[2], row[1] + MAX_VALUE), _H1, lines=True)
        if heading:
            headings[" ".join(" ".join(heading).split())] = row
    lang = value(LANG)
    titles = [t for t in (value(TITLE), value(DOCUMENT), linked.headline) if t]
    site = value(SITE) or linked.site or site_in(titles, list(headings), url)
    title = title_of(titles, site, list(headings))
    month_first = lang is None or lang.lower() in ("en", "en-us", "en_us")
    below: list[str] = []

    def near() -> list[str]:
        if not below and headings:
            row = headings.get(title or "") or next(iter(headings.values()))
            below.extend(texts(row[1], row[2], WHOLE, most=NEAR)[1:])
            below.extend(texts(row[1] - row[0], row[1], WHOLE, most=99)[: -ABOVE - 1 : -1])
        return below

    def day(text: str | None) -> str | None:
        iso = day_in(text, month_first) if text and len(text) <= 2 * LINE else None
        return text if iso and text and text.startswith(iso) else iso

    def lines(row: Place) -> Iterator[str]:
        return (text for text in inside(row) if len(text) < LINE)

    def visible() -> Iterator[str | None]:
        for row in filled(DATES, FIELDS):
            yield from (clean(raw(row)),) if row[0] == STATED else lines(row)
        for row in filled(BYLINES, DATES):
            yield from lines(row)

    def dates() -> Iterator[str | None]:
        yield linked.published
        yield value(PUBLISHED)
        if in_url := _DAY_IN_URL.match(url):
            yield "-".join(in_url.group(1, 3, 4))
        shown = [each for text in visible() if (each := day(text))]
        beside = (text for text in near() if len(text) < LINE)
        several = len({each[:10] for each in shown}) > 1
        if several:
            yield from beside
        if not several or kind not in UNDATED:
            yield from shown
        yield from beside
        yield linked.modified

    def authors() -> Iterator[str | None]:
        if linked.person:
            yield ", ".join(linked.authors)
        yield name_of(value(AUTHOR) or "")
        places = list(filled(BYLINES, DATES))
        for why in (BY_ITEMPROP, BY_REL, BY_CLASS):
            for row in places:
                if row[0] & (1 << TAG_AT) - 1 == why:
                    yield byline(inside(row))
        yield signed(near())
        yield ", ".join(linked.authors)

    date = next((d for d in map(day, dates()) if d), None)
    author = next((a for a in authors() if a), None)
    return [title, date, author, lang, site]
