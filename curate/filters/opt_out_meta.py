"""A page's own words to robots: the `meta` elements of its head, and the headers of its response.

The kernel looks at the bytes up to </head> or <body>, and gives back places; directives are few, so
they are read as text.
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterable

import numpy as np

from llmcurate.base.kernels import njit

MOST_HEAD = 1 << 20  # bytes of a page that are looked at
# To an agent that is named these count too: a page that it must not index is not for it.
TO_NAMED = ("none", "noindex", "noai")
_VALUED = ("unavailable_after", "max-snippet", "max-image-preview", "max-video-preview")
_AGENT = re.compile(r"[a-z0-9_.*-]+", re.ASCII)  # a date has colons too
_BREAK = re.compile(r"[\s,;]+")


# One table of words, lower case, for all that the kernel looks for: what begins at a `<` and is
# more than a tag to pass over; what ends the first four, which hold no markup; attributes; names.
_WORDS = (
    "<!--", "<script", "<style", "<title", "<meta", "</head", "<body",
    "-->", "</script", "</style", "</title",
    "name", "http-equiv", "content",
)  # fmt: skip
_META, _CLOSES, _ATTRIBUTES, _NAMES = np.int64(4), np.int64(7), np.int64(11), np.int64(14)
_ZERO, _ONE = np.int64(0), np.int64(1)  # a plain number would be a type of its own


@njit(nogil=True)
def _first(data, i, z, words, ends, low, high, whole):
    """The first of the words low to high with which data[i:z], in lower case, begins (whole: 1:
    which it is); -1 for none."""
    for k in range(low, high):
        size = ends[k + 1] - ends[k]
        if size > z - i or (whole == 1 and size < z - i):
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
def _attributes(data, i, z, words, ends, spans):
    """Reads a tag's attributes from i on, up to behind its `>`. spans: int64[6], start and end of
    the values of name, http-equiv and content, the first of equal ones; -1 where there is none."""
    for k in range(len(spans)):
        spans[k] = -1
    while i < z and data[i] != 62:
        if _is_space(data[i]) or data[i] == 47:
            i += 1
            continue
        first = i
        # A "=" that starts a name belongs to it.
        while i < z and data[i] != 62 and data[i] != 47 and not _is_space(data[i]):
            if data[i] == 61 and i > first:
                break
            i += 1
        last = i
        while i < z and _is_space(data[i]):
            i += 1
        start = end = i
        if i < z and data[i] == 61:
            i += 1
            while i < z and _is_space(data[i]):
                i += 1
            quote = data[i] if i < z else np.uint8(0)
            if quote == 34 or quote == 39:
                i += 1
                start = i
                while i < z and data[i] != quote:
                    i += 1
                end = i
                i += 1
            else:
                start = i
                while i < z and data[i] != 62 and not _is_space(data[i]):
                    i += 1
                end = i
        k = _first(data, first, last, words, ends, _ATTRIBUTES, _NAMES, _ONE)
        if k >= 0 and spans[2 * (k - _ATTRIBUTES)] < 0:
            spans[2 * (k - _ATTRIBUTES)] = start
            spans[2 * (k - _ATTRIBUTES) + 1] = end
    return i + 1


@njit(nogil=True)
def _named(data, words, ends, spans):
    """The number of the name that a `meta` has, if it has content too; -1 for none."""
    if spans[4] < 0:
        return -1
    for attribute in range(2):
        a, z = spans[2 * attribute], spans[2 * attribute + 1]
        if a < 0:
            continue
        while a < z and _is_space(data[a]):
            a += 1
        while z > a and _is_space(data[z - 1]):
            z -= 1
        name = _first(data, a, z, words, ends, _NAMES, len(ends) - 1, _ONE) - _NAMES
        if name >= 0 and (name == 0) == (attribute == 1):
            return name
    return -1


@njit(cache=True, nogil=True)
def scan_heads(data, offsets, most, words, ends, spans, out):
    """How many `meta` elements with a name of the table stand in the first `most` bytes of each
    page's head; what they are goes to out: int64[places, 4], as far as it reaches: row, number of
    the name, start and end of the content. spans: int64[6], for its own use."""
    n = 0
    for row in range(len(offsets) - 1):
        i = offsets[row]
        z = min(offsets[row + 1], i + most)
        while i < z:
            if data[i] != 60:
                i += 1
                continue
            tag = _first(data, i, z, words, ends, _ZERO, _CLOSES, _ZERO)
            if tag < 0:
                i += 1
            elif tag < _META:
                i += ends[tag + 1] - ends[tag]
                k = _CLOSES + tag
                begins = words[ends[k]]
                while i < z and (
                    data[i] != begins or _first(data, i, z, words, ends, k, k + _ONE, _ZERO) < 0
                ):
                    i += 1
            elif tag > _META:
                i = z
            elif i + 5 >= z or not (_is_space(data[i + 5]) or data[i + 5] == 47):
                i += 5
            else:
                i = _attributes(data, i + 5, z, words, ends, spans)
                name = _named(data, words, ends, spans)
                if name >= 0 and i <= z:
                    if n < len(out):
                        out[n, 0] = row
                        out[n, 1] = name
                        out[n, 2] = spans[4]
                        out[n, 3] = spans[5]
                    n += 1
    return n


def names_table(names: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """(words: uint8[], ends: int64[words + 1]): what the kernel looks for, these names last."""
    encoded = [w.encode("utf-8") for w in (*_WORDS, *(n.lower() for n in names))]
    data = np.frombuffer(bytearray(b"".join(encoded)), np.uint8)
    return data, np.cumsum([0, *map(len, encoded)], dtype=np.int64)


def find_metas(
    data: np.ndarray, offsets: np.ndarray, words: np.ndarray, ends: np.ndarray
) -> np.ndarray:
    """int64[found, 4]: row, number of the name, and start and end of the content of every `meta` in
    the heads of pages that has one of the names. The first name is looked for in http-equiv, the
    others in name. words, ends: of `names_table`."""
    out, spans = np.empty((4 * len(offsets), 4), np.int64), np.empty(6, np.int64)
    count = scan_heads(data, offsets, MOST_HEAD, words, ends, spans, out)
    if count > len(out):
        out = np.empty((count, 4), np.int64)
        scan_heads(data, offsets, MOST_HEAD, words, ends, spans, out)
    return out[:count]


def content_text(data: np.ndarray, start: int, end: int) -> str:
    """The text of a place that the kernel found, entities resolved."""
    return html.unescape(data[start : min(end, start + 1000)].tobytes().decode("utf-8", "replace"))


def first_forbidden(directives: str, forbid: Collection[str]) -> str | None:
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
            word = first_forbidden(part, forbid)
        elif agent in agents:
            word = first_forbidden(part, {*forbid, *TO_NAMED})
        else:
            continue
        if word:
            return f"{agent}: {word}" if agent else word
    return None
