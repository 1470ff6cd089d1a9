"""Title, date, author and language that a page states of itself: where they stand in its bytes.

The scanner notes the best place of each field as it passes: `meta` elements (Open Graph, Dublin
Core, names in use), JSON-LD, `time`, `title`, `html lang`. A script is searched for four keys in
its first MAX_SCRIPT bytes, not parsed. What was found becomes text behind the kernel, page by page.
"""

from __future__ import annotations

import html
import json
import re
from datetime import datetime

import numpy as np

from curate.extract.attributes import same
from curate.extract.tags import ATTR, TAG
from kernel_cache import njit

TITLE, PUBLISHED, AUTHOR, LANG, FIELDS = range(5)
MAX_SCRIPT = 64 << 10
MAX_VALUE = 1000  # bytes; a longer one is no title and no name
FROM_JSON = 100  # added to the rank of a value that is a JSON string's inside

_META, _TIME, _HTML = TAG["meta"], TAG["time"], TAG["html"]
_NAME, _PROPERTY, _ITEMPROP = ATTR["name"], ATTR["property"], ATTR["itemprop"]
_EQUIV, _CONTENT, _DATETIME = ATTR["http-equiv"], ATTR["content"], ATTR["datetime"]
_LANG, _XML_LANG, _TYPE = ATTR["lang"], ATTR["xml:lang"], ATTR["type"]

# (name, field, rank): the highest rank counts, of equal ones the first.
_NAMED = (
    ("og:title", TITLE, 9),
    ("twitter:title", TITLE, 6),
    ("dc.title", TITLE, 5),
    ("headline", TITLE, 4),
    ("article:published_time", PUBLISHED, 9),
    ("datepublished", PUBLISHED, 7),
    ("og:article:published_time", PUBLISHED, 7),
    ("date", PUBLISHED, 6),
    ("dc.date", PUBLISHED, 6),
    ("dc.date.issued", PUBLISHED, 6),
    ("dcterms.created", PUBLISHED, 6),
    ("dcterms.date", PUBLISHED, 6),
    ("pubdate", PUBLISHED, 6),
    ("publishdate", PUBLISHED, 6),
    ("publish-date", PUBLISHED, 6),
    ("sailthru.date", PUBLISHED, 6),
    ("parsely-pub-date", PUBLISHED, 6),
    ("author", AUTHOR, 9),
    ("article:author", AUTHOR, 5),
    ("dc.creator", AUTHOR, 7),
    ("dcterms.creator", AUTHOR, 7),
    ("sailthru.author", AUTHOR, 7),
    ("parsely-author", AUTHOR, 7),
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
_KEY_AUTHOR = np.frombuffer(b'"author"', np.uint8)
_KEY_NAME = np.frombuffer(b'"name"', np.uint8)


@njit(nogil=True)
def _note(meta, field, rank, a, z):
    if z > a and z - a <= MAX_VALUE and rank % FROM_JSON > meta[field, 0] % FROM_JSON:
        meta[field, 0], meta[field, 1], meta[field, 2] = rank, a, z


@njit(nogil=True)
def _note_named(data, name, content, spans, meta):
    a, z = spans[2 * name], spans[2 * name + 1]
    for k in range(len(_FIELD)):
        if same(data, a, z, _BYTES[_ENDS[k] : _ENDS[k + 1]]):
            _note(meta, _FIELD[k], _RANK[k], spans[2 * content], spans[2 * content + 1])
            return


@njit(nogil=True)
def note_tag(data, tag, seen, spans, meta):
    """What a start tag says; seen, spans: its attributes (attributes.py)."""
    if tag == _META and seen >> _CONTENT & 1:
        for name in (_NAME, _PROPERTY, _ITEMPROP, _EQUIV):
            if seen >> name & 1:
                _note_named(data, name, _CONTENT, spans, meta)
    elif tag == _TIME and seen >> _DATETIME & 1:
        if seen >> _ITEMPROP & 1:
            _note_named(data, _ITEMPROP, _DATETIME, spans, meta)
        _note(meta, PUBLISHED, 3, spans[2 * _DATETIME], spans[2 * _DATETIME + 1])
    elif tag == _HTML:
        if seen >> _LANG & 1:
            _note(meta, LANG, 9, spans[2 * _LANG], spans[2 * _LANG + 1])
        if seen >> _XML_LANG & 1:
            _note(meta, LANG, 8, spans[2 * _XML_LANG], spans[2 * _XML_LANG + 1])


@njit(nogil=True)
def note_title(a, z, meta):
    """The inside of a `title` element; the first one counts (later ones are drawings')."""
    _note(meta, TITLE, 2, a, min(z, a + MAX_VALUE))


@njit(nogil=True)
def _is_at(data, i, z, word):
    if i + len(word) > z:
        return False
    for k in range(len(word)):
        if data[i + k] != word[k]:
            return False
    return True


@njit(nogil=True)
def _string(data, i, z):
    """(start, end) of the inside of the string that a `:` and white space at i lead to, or of the
    first one in a list or object there that is behind "name"; (0, 0) for none."""
    while i < z and (data[i] <= 32 or data[i] == 58 or data[i] == 91):
        i += 1
    if i < z and data[i] == 123:
        stop = min(z, i + MAX_VALUE)
        while i < stop and data[i] != 125 and not _is_at(data, i, stop, _KEY_NAME):
            i += 1
        if i >= stop or data[i] == 125:
            return 0, 0
        i += len(_KEY_NAME)
        while i < z and (data[i] <= 32 or data[i] == 58):
            i += 1
    if i >= z or data[i] != 34:
        return 0, 0
    k = i + 1
    while k < z and data[k] != 34:
        k += 2 if data[k] == 92 else 1
        if k - i > MAX_VALUE:
            return 0, 0
    return (i + 1, k) if k < z else (0, 0)


@njit(nogil=True)
def note_script(data, a, z, seen, spans, meta):
    """The inside data[a:z] of a script: looked at where it is JSON-LD."""
    if not seen >> _TYPE & 1:
        return
    if not same(data, spans[2 * _TYPE], spans[2 * _TYPE + 1], _LD_JSON):
        return
    z = min(z, a + MAX_SCRIPT)
    for i in range(a, z):
        if data[i] != 34:
            continue
        if _is_at(data, i, z, _KEY_HEADLINE):
            s, e = _string(data, i + len(_KEY_HEADLINE), z)
            _note(meta, TITLE, FROM_JSON + 8, s, e)
        elif _is_at(data, i, z, _KEY_DATE):
            s, e = _string(data, i + len(_KEY_DATE), z)
            _note(meta, PUBLISHED, FROM_JSON + 8, s, e)
        elif _is_at(data, i, z, _KEY_AUTHOR):
            s, e = _string(data, i + len(_KEY_AUTHOR), z)
            _note(meta, AUTHOR, FROM_JSON + 8, s, e)


_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


def value_of(value: bytes, rank: int) -> str | None:
    """The text of a noted place, entities or JSON escapes resolved, white space in single spaces;
    None for an empty one."""
    text = value.decode("utf-8", "replace")
    if rank >= FROM_JSON:
        try:
            text = str(json.loads(f'"{text}"', strict=False))
        except ValueError:
            return None
        text = text.encode("utf-8", "replace").decode("utf-8")  # escapes may be half a pair
    return " ".join(html.unescape(text).replace("\0", " ").split()) or None


def language_tag(value: str | None) -> str | None:
    """`de` or `de-AT` as BCP 47 writes it; None for what is no tag."""
    if value is None or not _LANGUAGE.fullmatch(value):
        return None
    first, *rest = value.replace("_", "-").split("-")
    return "-".join([first.lower(), *(p.upper() if len(p) == 2 else p for p in rest)])


def published(value: str | None) -> datetime | None:
    """A stated date as a time, UTC where it names no zone; None for what is not ISO 8601."""
    from curate.formats.columns import parse_date

    date = parse_date(value)
    if date is None and value is not None and (day := _DAY.match(value)):
        date = parse_date(day.group())
    return date


def author(value: str | None) -> str | None:
    """A name; None for an address in its place."""
    return None if value is None or "://" in value else value
