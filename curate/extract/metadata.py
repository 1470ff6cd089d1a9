"""Title, date, author, site and language that a page states: where they stand in its bytes.

The scanner notes places as it passes: `meta` elements (Open Graph, Dublin Core, names in use),
`title`, `h1`, JSON-LD, `time`, elements that call themselves author or date. metadata_choice.py
makes text of them behind the kernel, page by page, and chooses.
"""

from __future__ import annotations

import re
from datetime import datetime

import numpy as np

from curate.extract.attributes import BIT, packed, same
from curate.extract.days import day_in
from curate.extract.tags import ATTR, NAMES, TAG
from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import stands_at

# Rows of a page's `meta`: int64[FIELDS, 3], each a rank (0: empty), start and end in the bytes. The
# first ones hold the best place of their kind, those behind HEADINGS the first few of theirs.
TITLE, PUBLISHED, AUTHOR, LANG, SITE, DOCUMENT = range(6)
HEADINGS, SCRIPTS, BYLINES, DATES, FIELDS = 6, 10, 14, 22, 30
MAX_SCRIPT = 256 << 10
MAX_VALUE = 1000  # bytes; a longer one is no title and no name
MAX_BEFORE = 600  # bytes in front of a heading, whose number is its rank
MAX_BELOW = 6000  # bytes of a heading and what stands below it
TAG_AT = 8  # bits of the rank of an element's place above which its tag stands
BY_CLASS, BY_REL, BY_ITEMPROP = 1, 2, 4  # why an element is in BYLINES
STATED = 8  # a place in DATES that is an attribute's value

_META, _TIME, _HTML, _H1 = (TAG[n] for n in ("meta", "time", "html", "h1"))
_NAME, _PROPERTY, _ITEMPROP = ATTR["name"], ATTR["property"], ATTR["itemprop"]
_EQUIV, _CONTENT, _DATETIME = ATTR["http-equiv"], ATTR["content"], ATTR["datetime"]
_LANG, _XML_LANG, _TYPE = ATTR["lang"], ATTR["xml:lang"], ATTR["type"]
_CLASS, _REL = ATTR["class"], ATTR["rel"]

# (name, field, rank): the highest rank counts, of equal ones the first.
_NAMED = (
    ("og:title", TITLE, 9),
    ("twitter:title", TITLE, 6),
    ("dc.title", TITLE, 5),
    ("citation_title", TITLE, 5),
    ("dcterms.title", TITLE, 5),
    ("headline", TITLE, 4),
    ("article:published_time", PUBLISHED, 9),
    ("datepublished", PUBLISHED, 8),
    ("og:article:published_time", PUBLISHED, 7),
    ("datecreated", PUBLISHED, 7),
    ("citation_publication_date", PUBLISHED, 6),
    ("citation_date", PUBLISHED, 6),
    ("date", PUBLISHED, 6),
    ("dc.date", PUBLISHED, 6),
    ("dc.date.issued", PUBLISHED, 6),
    ("dc.date.created", PUBLISHED, 6),
    ("dcterms.created", PUBLISHED, 6),
    ("dcterms.issued", PUBLISHED, 6),
    ("dcterms.date", PUBLISHED, 6),
    ("pubdate", PUBLISHED, 6),
    ("publishdate", PUBLISHED, 6),
    ("publish-date", PUBLISHED, 6),
    ("publish_date", PUBLISHED, 6),
    ("sailthru.date", PUBLISHED, 6),
    ("ms.date", PUBLISHED, 6),
    ("parsely-pub-date", PUBLISHED, 6),
    ("author", AUTHOR, 9),
    ("article:author", AUTHOR, 5),
    ("citation_author", AUTHOR, 7),
    ("dc.creator", AUTHOR, 7),
    ("dcterms.creator", AUTHOR, 7),
    ("sailthru.author", AUTHOR, 7),
    ("parsely-author", AUTHOR, 7),
    ("og:site_name", SITE, 9),
    ("application-name", SITE, 5),
    ("og:locale", LANG, 4),
    ("content-language", LANG, 3),
    ("language", LANG, 2),
)
_BYTES = np.frombuffer("".join(n for n, _, _ in _NAMED).encode(), np.uint8)
_ENDS = np.cumsum([0, *(len(n) for n, _, _ in _NAMED)])
_FIELD = np.array([f for _, f, _ in _NAMED])
_RANK = np.array([r for _, _, r in _NAMED])

_LD_JSON = np.frombuffer(b"application/ld+json", np.uint8)
_KEY_HEADLINE = np.frombuffer(b'"headline"', np.uint8)
_KEY_DATE = np.frombuffer(b'"datePublished"', np.uint8)
_KEY_BODY = np.frombuffer(b'"articleBody"', np.uint8)
_KEY_AUTHOR = np.frombuffer(b'"author"', np.uint8)
_AUTHOR, _BYLINE, _PUBLISH = (
    np.frombuffer(word, np.uint8) for word in (b"author", b"byline", b"publish")
)
_WHEN, _WHEN_ENDS = packed("date datum time publish posted")
_SAYS = BIT["meta"]
_ELSEWHERE = BIT["comment"] | BIT["related"]


@njit(nogil=True)
def _note(meta, field, rank, a, z):
    if z > a and z - a <= MAX_VALUE and rank > meta[field, 0]:
        meta[field, 0], meta[field, 1], meta[field, 2] = rank, a, z


@njit(nogil=True)
def _note_named(data, name, content, spans, meta):
    """Notes the value of `content` by each word of `name`; of half the rank without its prefix
    (dc:date, schema:datePublished)."""
    e, end = spans[2 * name], spans[2 * name + 1]
    while e < end:
        a, e, prefix = e, e, 0
        while e < end and data[e] > 32:
            if data[e] == 58 and not prefix:
                prefix = e + 1 - a
            e += 1
        for k in range(len(_FIELD)):
            size = _ENDS[k + 1] - _ENDS[k]
            fits = size == e - a or size == e - a - prefix
            if fits and same(data, e - size, e, _BYTES[_ENDS[k] : _ENDS[k + 1]]):
                rank = _RANK[k] if size == e - a else _RANK[k] // 2
                _note(meta, _FIELD[k], rank, spans[2 * content], spans[2 * content + 1])
                break
        e += 1


@njit(nogil=True)
def _append(meta, first, behind, rank, a, z):
    """Keeps a place in the first free one of the rows first..behind."""
    for k in range(first, behind):
        if meta[k, 0] == 0:
            meta[k, 0], meta[k, 1], meta[k, 2] = rank, a, z
            return


@njit(nogil=True)
def _has(data, a, z, word):
    """Whether the word, in any case, is a part of data[a:z]."""
    for i in range(a, z - len(word) + 1):
        if data[i] | 32 == word[0] and same(data, i, i + len(word), word):
            return True
    return False


@njit(nogil=True)
def _says_when(data, a, z):
    for k in range(len(_WHEN_ENDS) - 1):
        if _has(data, a, z, _WHEN[_WHEN_ENDS[k] : _WHEN_ENDS[k + 1]]):
            return True
    return False


@njit(nogil=True)
def _note_element(data, tag, seen, hints, elsewhere, spans, i, z, meta):
    """Where an element says who wrote, or when; its inside starts at i."""
    says = hints & _SAYS != 0
    a, p = spans[2 * _CLASS], spans[2 * _ITEMPROP]
    e = spans[2 * _CLASS + 1] if seen >> _CLASS & 1 else a
    q = spans[2 * _ITEMPROP + 1] if seen >> _ITEMPROP & 1 else p
    why = 0
    if seen >> _REL & 1 and same(data, spans[2 * _REL], spans[2 * _REL + 1], _AUTHOR):
        why = BY_REL
    elif says and same(data, p, q, _AUTHOR):
        why = BY_ITEMPROP
    elif says and not elsewhere and (_has(data, a, e, _AUTHOR) or _has(data, a, e, _BYLINE)):
        why = BY_CLASS
    if why:
        _append(meta, BYLINES, DATES, why | tag << TAG_AT, i, min(z, i + MAX_VALUE))
    if tag == _TIME and seen >> _DATETIME & 1:
        _append(meta, DATES, FIELDS, STATED, spans[2 * _DATETIME], spans[2 * _DATETIME + 1])
    elif tag == _TIME or (
        says and not elsewhere and (_says_when(data, a, e) or _has(data, p, q, _PUBLISH))
    ):
        _append(meta, DATES, FIELDS, BY_CLASS | tag << TAG_AT, i, min(z, i + MAX_VALUE))


_ALWAYS = np.zeros(len(NAMES), np.bool_)  # tags that note_tag wants whatever their hints
_ALWAYS[[_META, _TIME, _HTML, _H1]] = True


@njit(nogil=True)
def may_state(tag, seen, hints):
    """Whether `note_tag` would look at a start tag at all."""
    return _ALWAYS[tag] or hints & _SAYS != 0 or seen & (1 << _REL | 1 << _PROPERTY) != 0


@njit(nogil=True)
def note_tag(data, tag, seen, hints, around, spans, first, i, z, meta):
    """What a start tag says; seen, hints, spans: its attributes (attributes.py); around: hints of
    the elements around it; i: the place behind it; first, z: the page's ends."""
    if tag == _META:
        if seen >> _CONTENT & 1:
            for name in (_NAME, _PROPERTY, _ITEMPROP, _EQUIV):
                if seen >> name & 1:
                    _note_named(data, name, _CONTENT, spans, meta)
        return
    if tag == _HTML:
        if seen >> _LANG & 1:
            _note(meta, LANG, 9, spans[2 * _LANG], spans[2 * _LANG + 1])
        if seen >> _XML_LANG & 1:
            _note(meta, LANG, 8, spans[2 * _XML_LANG], spans[2 * _XML_LANG + 1])
        return
    if tag == _H1:
        before = min(i - first, MAX_BEFORE)
        _append(meta, HEADINGS, SCRIPTS, before, i, min(z, i + MAX_BELOW))
        return
    elsewhere = around & _ELSEWHERE != 0
    for name in (_ITEMPROP, _PROPERTY):
        for value in (_CONTENT, _DATETIME):
            if seen >> name & seen >> value & 1 and not elsewhere:
                _note_named(data, name, value, spans, meta)
    _note_element(data, tag, seen, hints, elsewhere, spans, i, z, meta)


@njit(nogil=True)
def note_title(a, z, meta):
    """The inside of a `title` element; the first one counts (later ones are drawings')."""
    _note(meta, DOCUMENT, 2, a, min(z, a + MAX_VALUE))


@njit(nogil=True)
def note_script(data, a, z, seen, spans, meta):
    """The inside data[a:z] of a script: looked at where it is JSON-LD."""
    if not seen >> _TYPE & 1:
        return
    if not same(data, spans[2 * _TYPE], spans[2 * _TYPE + 1], _LD_JSON):
        return
    if z - a > MAX_SCRIPT:
        return
    for i in range(a, z):
        if data[i] == 34 and (
            stands_at(data, i, z, _KEY_HEADLINE)
            or stands_at(data, i, z, _KEY_DATE)
            or stands_at(data, i, z, _KEY_AUTHOR)
            or stands_at(data, i, z, _KEY_BODY)
        ):
            _append(meta, SCRIPTS, BYLINES, 1, a, z)
            return


_LANGUAGE = re.compile(r"([A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*)(?:\Z|\s*[,;.])")


def language_tag(value: str | None) -> str | None:
    """`de` or `de-AT` as BCP 47 writes it, of several the first; None for what is no tag."""
    match = _LANGUAGE.match(value or "")
    if match is None:
        return None
    first, *rest = match[1].replace("_", "-").split("-")
    return "-".join([first.lower(), *(p.upper() if len(p) == 2 else p for p in rest)])


def published(value: str | None) -> datetime | None:
    """A stated date as a time, UTC where it names no zone; None for what is no date."""
    from curate.formats.dates import parse_date

    return parse_date(value) or parse_date(day_in(value or ""))


def author(value: str | None) -> str | None:
    """A name; None for an address in its place."""
    return None if value is None or "://" in value else value
