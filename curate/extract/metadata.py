"""Find where a page states its title, date, author, site and language, as offsets in its bytes.

The scanner (scan.py) notes `meta` elements (Open Graph, Dublin Core, common names), `title`, `h1`,
JSON-LD, `time`, and elements marked as author or date. metadata_choice.py chooses among them.
"""

from __future__ import annotations

import re
from datetime import datetime

import numpy as np

from curate.extract.attributes import BIT, packed, read_name, same
from curate.extract.days import day_in
from curate.extract.tags import (
    ATTR,
    IS_BLOCK,
    IS_RAW,
    IS_VOID,
    KINDS,
    NAMES,
    TAG,
    hash_table,
    look_up,
)
from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import matches_at

# Rows of a page's `meta`: int64[FIELDS, 3], each a rank (0: empty), start and end in the bytes. The
# rows before HEADINGS have a field's best place, those from HEADINGS on the first places of a kind.
TITLE, PUBLISHED, AUTHOR, LANG, SITE, DOCUMENT = range(6)
HEADINGS, SCRIPTS, BYLINES, DATES, FIELDS = 6, 10, 14, 22, 30
MAX_SCRIPT = 256 << 10
MAX_VALUE = 1000  # bytes; a longer value is neither a title nor a name
MAX_BEFORE = 600  # bytes noted before a heading; their number is its rank
MAX_BELOW = 6000  # bytes of a heading and the text below it
TAG_AT = 8  # an element's rank has its tag from this bit on
BY_CLASS, BY_REL, BY_ITEMPROP = 1, 2, 4  # why an element is in BYLINES
STATED = 8  # rank of a place in DATES that is an attribute's value

_META, _TIME, _HTML, _H1 = (TAG[n] for n in ("meta", "time", "html", "h1"))
_NAME, _PROPERTY, _ITEMPROP = ATTR["name"], ATTR["property"], ATTR["itemprop"]
_EQUIV, _CONTENT, _DATETIME = ATTR["http-equiv"], ATTR["content"], ATTR["datetime"]
_LANG, _XML_LANG, _TYPE = ATTR["lang"], ATTR["xml:lang"], ATTR["type"]
_CLASS, _REL = ATTR["class"], ATTR["rel"]

# (name, field, rank): the highest rank wins, and the first of equal ranks.
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
    """Note the value of a tag's attribute `content` for each known word in its attribute `name`
    (numbers in tags.ATTR). Known words have ranks, and the value with the highest rank is kept. A
    word that is known only without its prefix (dc:date, schema:datePublished) has half the rank."""
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
    for k in range(first, behind):
        if meta[k, 0] == 0:
            meta[k, 0], meta[k, 1], meta[k, 2] = rank, a, z
            return


@njit(nogil=True)
def _has(data, a, z, word):
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


_ALWAYS = np.zeros(len(NAMES), np.bool_)  # tags that note_tag needs regardless of hints
_ALWAYS[[_META, _TIME, _HTML, _H1]] = True


@njit(nogil=True)
def may_state(tag, seen, hints):
    """Return True if `note_tag` needs to look at a start tag."""
    return _ALWAYS[tag] or hints & _SAYS != 0 or seen & (1 << _REL | 1 << _PROPERTY) != 0


@njit(nogil=True)
def note_tag(data, tag, seen, hints, around, spans, first, i, z, meta):
    """Record in `meta` what a start tag states, such as an author. `seen`, `hints` (kinds of
    content, as bits) and `spans` come from `attributes.read_attributes`. `around` has the hints of
    the tag and of the elements around it. The tag ends before i, and the page is data[first:z]."""
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
    """Note the content of the first `title` element; later ones belong to SVG drawings."""
    _note(meta, DOCUMENT, 2, a, min(z, a + MAX_VALUE))


@njit(nogil=True)
def note_script(data, a, z, seen, spans, meta):
    """Note the script data[a:z] if it is JSON-LD with a headline, date, author or body."""
    if not seen >> _TYPE & 1:
        return
    if not same(data, spans[2 * _TYPE], spans[2 * _TYPE + 1], _LD_JSON):
        return
    if z - a > MAX_SCRIPT:
        return
    for i in range(a, z):
        if data[i] == 34 and (
            matches_at(data, i, z, _KEY_HEADLINE)
            or matches_at(data, i, z, _KEY_DATE)
            or matches_at(data, i, z, _KEY_AUTHOR)
            or matches_at(data, i, z, _KEY_BODY)
        ):
            _append(meta, SCRIPTS, BYLINES, 1, a, z)
            return


_LANGUAGE = re.compile(r"([A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*)(?:\Z|\s*[,;.])")


def language_tag(value: str | None) -> str | None:
    """Return the first language of a value, such as `de` or `de-AT`, in BCP 47 form, or None."""
    match = _LANGUAGE.match(value or "")
    if match is None:
        return None
    first, *rest = match[1].replace("_", "-").split("-")
    return "-".join([first.lower(), *(p.upper() if len(p) == 2 else p for p in rest)])


def published(value: str | None) -> datetime | None:
    """Return a stated date as a time (UTC if it names no zone), or None if it is no date."""
    from curate.formats.dates import parse_date

    return parse_date(value) or parse_date(day_in(value or ""))


def author(value: str | None) -> str | None:
    """Return the author's name, or None if the value is a URL."""
    return None if value is None or "://" in value else value


WHOLE = -1  # as `tag`: read on after the element's end
_KEYS, _VALUES = hash_table({name: number for name, number in TAG.items() if name})
_BR = TAG["br"]


@njit(nogil=True)
def _after_tag(data, i, z):
    quote = 0
    while i < z:
        b = data[i]
        if quote:
            if b == quote:
                quote = 0
        elif b == 62:
            return i + 1
        elif (b == 34 or b == 39) and data[i - 1] == 61:
            quote = b
        i += 1
    return z


@njit(cache=True, nogil=True)
def inner(data, i, z, tag, lines, most):
    """Return the text from data[i] to the end of the element `tag` that contains it, as UTF-8 in
    uint8[], with character references undecoded. Line feeds separate pieces: between all tags, or
    only at `br` and block elements if `lines`. The text ends after `most` pieces."""
    out = np.empty(z - i + 1, np.uint8)
    n = pieces = 0
    depth = 1
    while i < z:
        b = data[i]
        if b != 60:
            if b > 32:
                out[n] = b
                n += 1
            elif n and out[n - 1] > 32:
                out[n] = 32
                n += 1
            i += 1
            continue
        if i + 3 < z and data[i + 1] == 33 and data[i + 2] == 45 and data[i + 3] == 45:
            i += 4
            while i < z and not (data[i] == 62 and data[i - 1] == 45 and data[i - 2] == 45):
                i += 1
            i += 1
            continue
        end = i + 1 < z and data[i + 1] == 47
        i, key = read_name(data, i + 2 if end else i + 1, z)
        i = _after_tag(data, i, z)
        name = look_up(_KEYS, _VALUES, key)
        kind = KINDS[name]
        if kind & IS_RAW and not end:
            closed = False
            while i + 1 < z and not closed:
                if data[i] == 60 and data[i + 1] == 47:
                    i, other = read_name(data, i + 2, z)
                    closed = other == key
                i += 1
            continue
        if not lines or kind & IS_BLOCK or name == _BR:
            if n and out[n - 1] == 32:
                n -= 1
            if n and out[n - 1] != 10:
                out[n] = 10
                n += 1
                pieces += 1
                if pieces == most:
                    break
        if name == tag and not kind & IS_VOID:
            depth += -1 if end else 1
            if depth == 0:
                break
    return out[:n]
