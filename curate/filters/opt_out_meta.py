"""Read a page's directives for robots: the `meta` elements of its head, and X-Robots-Tag headers.
The kernel scans the bytes up to </head> or <body> and returns the positions of directives, whose
text is then read."""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterable

import numpy as np

from llmcurate.base.kernels import njit

MOST_HEAD = 1 << 20  # the most bytes of a page that are scanned
# Directives that count for a named agent too: pages that it must not index are not for it to use.
TO_NAMED = ("none", "noindex", "noai")
_VALUED = ("unavailable_after", "max-snippet", "max-image-preview", "max-video-preview")
_AGENT = re.compile(r"[a-z0-9_.*-]+", re.ASCII)  # not a date, which has colons too
_BREAK = re.compile(r"[\s,;]+")

# The words that the kernel looks for, in lower case: openings of elements; the ends of the first
# four, whose content is not markup; attributes. The names that are searched for follow.
_WORDS = (
    "<!--", "<script", "<style", "<title", "<meta", "</head", "<body",
    "-->", "</script", "</style", "</title",
    "name", "http-equiv", "content",
)  # fmt: skip
_META, _CLOSES, _ATTRIBUTES, _NAMES = np.int64(4), np.int64(7), np.int64(11), np.int64(14)
_ZERO, _ONE = np.int64(0), np.int64(1)  # typed: a literal would have another type in numba


@njit(nogil=True)
def _first(data, i, z, words, ends, low, high, whole):
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
    for k in range(len(spans)):
        spans[k] = -1
    while i < z and data[i] != 62:
        if _is_space(data[i]) or data[i] == 47:
            i += 1
            continue
        first = i
        # A "=" at the start of a name is part of the name.
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
    """Find `meta` elements with one of the given names in the first `most` bytes of each page's
    head. Return their number, and write as many as fit to `out` (int64[n, 4]): row, number of the
    name, start and end of the content. `words` and `ends` come from the function names_table.
    `spans` (int64[6]) is scratch memory."""
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
    """Return (words: uint8[], ends: int64[number + 1]). `words` joins the words that `scan_heads`
    needs and then `names`. Word k is words[ends[k]:ends[k + 1]]."""
    encoded = [w.encode("utf-8") for w in (*_WORDS, *(n.lower() for n in names))]
    data = np.frombuffer(bytearray(b"".join(encoded)), np.uint8)
    return data, np.cumsum([0, *map(len, encoded)], dtype=np.int64)


def find_metas(
    data: np.ndarray, offsets: np.ndarray, words: np.ndarray, ends: np.ndarray
) -> np.ndarray:
    """Find `meta` elements in pages' heads, with the names from which `names_table` made `words`
    and `ends`. Return int64[found, 4]: row, number of the name, start and end of the content. The
    first name is compared with the attribute `http-equiv`, the others with `name`."""
    out, spans = np.empty((4 * len(offsets), 4), np.int64), np.empty(6, np.int64)
    count = scan_heads(data, offsets, MOST_HEAD, words, ends, spans, out)
    if count > len(out):
        out = np.empty((count, 4), np.int64)
        scan_heads(data, offsets, MOST_HEAD, words, ends, spans, out)
    return out[:count]


def content_text(data: np.ndarray, start: int, end: int) -> str:
    """Return data[start:end], the content of a `meta`, as text with entities resolved."""
    return html.unescape(data[start : min(end, start + 1000)].tobytes().decode("utf-8", "replace"))


def first_forbidden(directives: str, forbid: Collection[str]) -> str | None:
    """Return the first directive of a list such as `noai, noindex` that is in `forbid`, or None."""
    for word in _BREAK.split(directives.lower()):
        if word in forbid:
            return word
    return None


def tag_forbids(value: str, forbid: Collection[str], agents: Collection[str]) -> str | None:
    """Return the directive of an X-Robots-Tag that forbids use, or None. Examples are `noai` and,
    for a named agent, `gptbot: noindex`. A name applies to everything after it in the header.
    Directives for agents that are not among `agents` (lower case) are ignored."""
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
