"""What a page's own head says to robots: its `meta` elements, and the HTTP headers of its response.

The kernel looks at the bytes up to </head> or <body>, and gives back places; directives are few, so
they are read as text.
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterable

import numpy as np
from numba import njit

MOST_HEAD = 1 << 20  # bytes of a page that are looked at
# To an agent that is named these count too: a page that it must not index is not for it.
TO_NAMED = ("none", "noindex", "noai")
_VALUED = ("unavailable_after", "max-snippet", "max-image-preview", "max-video-preview")
_AGENT = re.compile(r"[a-z0-9_.*-]+", re.ASCII)  # a date has colons too
_BREAK = re.compile(r"[\s,;]+")


def _table(words: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    encoded = [w.encode("utf-8") for w in words]
    data = np.frombuffer(bytearray(b"".join(encoded)), np.uint8)
    return data, np.cumsum([0, *map(len, encoded)], dtype=np.int64)


# What begins at a `<` of a head and is more than a tag to pass over; of those that hold no markup,
# what ends them.
_META, _END = 4, 5
_TAGS, _TAG_ENDS = _table(("<!--", "<script", "<style", "<title", "<meta", "</head", "<body"))
_CLOSES, _CLOSE_ENDS = _table(("-->", "</script", "</style", "</title"))
_ATTRIBUTES, _ATTRIBUTE_ENDS = _table(("name", "http-equiv", "content"))


@njit(nogil=True)
def _first(data, i, z, words, ends, stop):
    """The first of the words with which data[i:], in lower case, begins, and at `stop` ends
    (stop < 0: wherever); -1 for none."""
    for k in range(len(ends) - 1):
        size = ends[k + 1] - ends[k]
        if i + size > z or (stop >= 0 and i + size != stop):
            continue
        j = 0
        while j < size:
            b = data[i + j]
            if 65 <= b <= 90:
                b += 32
            if b != words[ends[k] + j]:
                break
            j += 1
        if j == size:
            return k
    return -1


@njit(nogil=True)
def _is_space(b):
    return b == 32 or 9 <= b <= 13


@njit(nogil=True)
def _attributes(data, i, z, spans):
    """Reads a tag's attributes from i on, up to behind its `>`. spans: int64[3, 2], places of the
    values of name, http-equiv and content, the first of equal ones; -1 where there is none."""
    spans[:] = -1
    while i < z and data[i] != 62:
        if _is_space(data[i]) or data[i] == 47:
            i += 1
            continue
        first = i
        while i < z and data[i] != 62 and data[i] != 47 and not _is_space(data[i]):
            if data[i] == 61 and i > first:
                break
            i += 1
        last = i
        while i < z and _is_space(data[i]):
            i += 1
        a = e = i
        if i < z and data[i] == 61:
            i += 1
            while i < z and _is_space(data[i]):
                i += 1
            a = i
            if i < z and (data[i] == 34 or data[i] == 39):
                quote = data[i]
                i += 1
                a = i
                while i < z and data[i] != quote:
                    i += 1
                e = i
                i += 1
            else:
                while i < z and data[i] != 62 and not _is_space(data[i]):
                    i += 1
                e = i
        which = _first(data, first, last, _ATTRIBUTES, _ATTRIBUTE_ENDS, last)
        if which >= 0 and spans[which, 0] < 0:
            spans[which, 0], spans[which, 1] = a, min(e, z)
    return i + 1


@njit(nogil=True)
def _which(data, a, z, names, ends):
    """The number of the name that data[a:z] is, white space around it aside; -1 for none."""
    while a < z and _is_space(data[a]):
        a += 1
    while z > a and _is_space(data[z - 1]):
        z -= 1
    return _first(data, a, z, names, ends, z)


@njit(nogil=True)
def _named(data, spans, names, ends):
    """The number of the name that a `meta` has, if it has content too; -1 for none."""
    if spans[2, 0] < 0:
        return np.int64(-1)
    for attribute in range(2):
        if spans[attribute, 0] >= 0:
            found = _which(data, spans[attribute, 0], spans[attribute, 1], names, ends)
            if found >= 0 and (found == 0) == (attribute == 1):
                return found
    return np.int64(-1)


@njit(cache=True, nogil=True)
def find_metas(data, offsets, most, names, ends):
    """int64[found, 4]: row, number of the name, and start and end of the content of every `meta`
    in the first `most` bytes of each page that has one of the names.

    names: uint8[], lower case, one behind the other; ends: int64[names + 1]. The first name is
    looked for in http-equiv, the others in name.
    """
    out = np.empty((64, 4), np.int64)
    n = 0
    spans = np.empty((3, 2), np.int64)
    whole = np.zeros(2, np.int64)
    for row in range(len(offsets) - 1):
        i = offsets[row]
        z = min(offsets[row + 1], i + most)
        while i < z:
            if data[i] != 60:
                i += 1
                continue
            tag = _first(data, i, z, _TAGS, _TAG_ENDS, np.int64(-1))
            if tag < 0:
                i += 1
            elif tag < _META:
                close = _CLOSES[_CLOSE_ENDS[tag] : _CLOSE_ENDS[tag + 1]]
                whole[1] = len(close)
                i += _TAG_ENDS[tag + 1] - _TAG_ENDS[tag]
                while i < z and _first(data, i, z, close, whole, np.int64(-1)) < 0:
                    i += 1
            elif tag >= _END:
                i = z
            elif i + 5 >= z or not (_is_space(data[i + 5]) or data[i + 5] == 47):
                i += 5
            else:
                i = _attributes(data, i + 5, z, spans)
                found = _named(data, spans, names, ends) if i <= z else np.int64(-1)
                if found >= 0:
                    if n == len(out):
                        more = np.empty((2 * n, 4), np.int64)
                        more[:n] = out
                        out = more
                    out[n, 0], out[n, 1] = row, found
                    out[n, 2], out[n, 3] = spans[2, 0], spans[2, 1]
                    n += 1
    return out[:n]


def names_table(names: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """(names, ends) as `find_metas` takes them."""
    return _table(name.lower() for name in names)


def content_text(data: np.ndarray, start: int, end: int) -> str:
    """The text of a place that the kernel found, entities resolved."""
    return html.unescape(data[start : min(end, start + 1000)].tobytes().decode("utf-8", "replace"))


def told(directives: str, forbid: Collection[str]) -> str | None:
    """The first of the words of `forbid` among directives, as `noai, noindex`."""
    for word in _BREAK.split(directives.lower()):
        if word in forbid:
            return word
    return None


def header_says(value: str, forbid: Collection[str], agents: Collection[str]) -> str | None:
    """What of an X-Robots-Tag forbids: `noai`, or `gptbot: noindex` where it names an agent.

    A name holds for all that stands behind it in the header; what is told to agents that are not
    among `agents` (lower case) counts for nothing.
    """
    agent = ""
    for part in value.lower().split(","):
        name, colon, rest = part.partition(":")
        if colon and _AGENT.fullmatch(name.strip()) and name.strip() not in _VALUED:
            agent, part = name.strip(), rest
        if agent in ("", "*"):
            word = told(part, forbid)
        elif agent in agents:
            word = told(part, {*forbid, *TO_NAMED})
        else:
            continue
        if word:
            return f"{agent}: {word}" if agent else word
    return None
