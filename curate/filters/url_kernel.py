"""Fold URLs, so that different spellings of an address become equal, and find words in them.

A folded URL is host, path with query, and fragment (docs/filters.md, url_filter, has the details).
A kernel folds URLs of plain ASCII; the others go through `fold`, which gives the same result for
any URL. Two automata (Aho and Corasick 1975) search the folded URL:

- *words*, where every run of separators is one blank. A match must not touch a letter of a script
  with spaces, and a digit at the end of a match must not touch another digit: `sex` is in `/sex1`
  and `/免费sex`, but not in `/sussex`.
- *subwords*, which match anywhere. Separators within a part of the URL (`p-o-r-n`) are skipped,
  separators between parts (`/ ? & = # : ; @ ,`) are not, so `porn` is not in `/map/ornaments`.
"""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

import numpy as np

from curate.text.unicode import char_bytes, code_point
from curate.text.words import CONNECTOR, DIGIT, LETTER, MARK, OTHER, character_tables
from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import copy

_ENDS = "".join(map(chr, range(0x21)))
_INSIDE = str.maketrans("", "", "\t\n\r")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?=[/\\]{2})|(?=[/\\]{2})")
_HOST_END = re.compile(r"[/\\?#]")
MOST_LABEL = 63  # characters (RFC 1035); a decoder of punycode takes quadratic time
_PORT = re.compile(r":[0-9]*\Z")


@dataclass(frozen=True)
class Folded:
    """Folded URLs (see `fold`), one per row, in `data` (uint8[]). Row r has its host from start[r]
    to host_end[r], then path and query to path_end[r], then the fragment to end[r]."""

    data: np.ndarray
    start: np.ndarray
    host_end: np.ndarray
    path_end: np.ndarray
    end: np.ndarray

    def host(self, row: int) -> str:
        return self.text(self.start[row], self.host_end[row])

    def text(self, start: int, end: int) -> str:
        return self.data[start:end].tobytes().decode("utf-8", "replace")


def _decoded(text: str) -> str:
    return unquote_to_bytes(text).decode("utf-8", "replace") if "%" in text else text


def _label(label: str) -> str:
    if not label.startswith("xn--") or len(label) > MOST_LABEL:
        return label
    try:
        return label[4:].encode("ascii").decode("punycode")
    except (UnicodeError, ValueError, OverflowError):
        return label


def fold_host(text: str) -> str:
    """Return a host name in lower case and Unicode (NFKC), without punycode and outer dots."""
    text = _decoded(text)
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).replace("。", ".")
    text = text.lower()
    if "xn--" in text:
        text = ".".join(map(_label, text.split(".")))
    return text.strip(".")


def _rest(text: str) -> str:
    text = _decoded(text)
    if text.isascii():
        text = text.lower()
    else:
        text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return text.replace("\\", "/")


def fold(url: str) -> tuple[str, str, str]:
    r"""Fold any text that should be a URL, and return (host, path with query, fragment). White
    space and control characters at the ends, and tabs and line ends anywhere, are removed, and `\`
    becomes `/`, as in browsers (WHATWG URL standard, 4.4). %XX is decoded once, and invalid UTF-8
    becomes U+FFFD. The host is in lower case and Unicode, the rest NFKC and case-folded. The
    fragment includes its `#`. Text without a scheme begins with the host."""
    url = url.strip(_ENDS).translate(_INSIDE)
    scheme = _SCHEME.match(url)
    if scheme:
        url = url[scheme.end() :].lstrip("/\\")
    stop = _HOST_END.search(url)
    cut = stop.start() if stop else len(url)
    host = url[:cut].rpartition("@")[2]
    host = host[: host.find("]") + 1] if host[:1] == "[" and "]" in host else _PORT.sub("", host)
    path, mark, fragment = url[cut:].partition("#")
    return fold_host(host), _rest(path), _rest(mark + fragment)


@njit(nogil=True, inline="always")
def _hex(b):
    if 48 <= b <= 57:
        return b - 48
    b |= 32
    return b - 87 if 97 <= b <= 102 else -1


@njit(nogil=True)
def _copy(data, a, z, out, at):
    plain = True
    i = a
    while i < z:
        b = np.int64(data[i])
        i += 1
        if b == 37 and i + 1 < z:
            high, low = _hex(np.int64(data[i])), _hex(np.int64(data[i + 1]))
            if high >= 0 and low >= 0:
                b = high * 16 + low
                i += 2
        if b >= 128:
            plain = False
        elif 65 <= b <= 90:
            b += 32
        out[at] = b
        at += 1
    return at, plain


@njit(nogil=True)
def _authority(data, a, z):
    i = a
    if i < z and (97 <= (data[i] | 32) <= 122):
        while i < z and (
            97 <= (data[i] | 32) <= 122 or 48 <= data[i] <= 57 or data[i] in (43, 45, 46)
        ):
            i += 1
        i = i + 1 if i < z and data[i] == 58 else a
    if i + 1 < z and data[i] in (47, 92) and data[i + 1] in (47, 92):
        while i < z and data[i] in (47, 92):
            i += 1
    else:
        i = a
    first = stop = i
    while stop < z and data[stop] not in (47, 92, 63, 35):
        if data[stop] == 64:
            first = stop + 1
        stop += 1
    last = stop
    if first < stop and data[first] == 91:
        for k in range(first, stop):
            if data[k] == 93:
                return first, k + 1, stop
    while last > first and 48 <= data[last - 1] <= 57:
        last -= 1
    if last > first and data[last - 1] == 58:
        return first, last - 1, stop
    return first, stop, stop


@njit(cache=True, nogil=True)
def _fold_ascii(data, offsets):
    rows = len(offsets) - 1
    out = np.empty(offsets[rows] - offsets[0], np.uint8)
    cuts = np.empty((4, rows), np.int64)
    plain = np.ones(rows, np.bool_)
    at = 0
    for r in range(rows):
        a, z = offsets[r], offsets[r + 1]
        while a < z and data[a] <= 32:
            a += 1
        while a < z and data[z - 1] <= 32:
            z -= 1
        for k in range(a, z):  # such URLs are rare and left to `fold`
            if data[k] >= 128 or data[k] in (9, 10, 13):
                plain[r] = False
                break
        first, last, stop = _authority(data, a, z)
        begin = at
        at, ascii_host = _copy(data, first, last, out, at)
        for k in range(begin, at - 3):
            if out[k] == 120 and out[k + 1] == 110 and out[k + 2] == 45 and out[k + 3] == 45:
                plain[r] = False
        while begin < at and out[begin] == 46:
            begin += 1
        while begin < at and out[at - 1] == 46:
            at -= 1
        cuts[0, r], cuts[1, r] = begin, at
        mark = stop
        while mark < z and data[mark] != 35:
            mark += 1
        at, ascii_path = _copy(data, stop, mark, out, at)
        cuts[2, r] = at
        at, ascii_fragment = _copy(data, mark, z, out, at)
        cuts[3, r] = at
        for k in range(cuts[1, r], at):
            if out[k] == 92:
                out[k] = 47
        plain[r] = plain[r] and ascii_host and ascii_path and ascii_fragment
    return out[:at].copy(), cuts, plain


def fold_all(data: np.ndarray, offsets: np.ndarray) -> Folded:
    """Return the URLs of a column (data: uint8[], offsets: int64[rows + 1]) in the normal form that
    the function `fold` describes."""
    out, cuts, plain = _fold_ascii(data, offsets)
    parts, at = [out], len(out)
    for row in np.flatnonzero(~plain):
        raw = data[offsets[row] : offsets[row + 1]].tobytes().decode("utf-8", "replace")
        pieces = [p.encode("utf-8", "replace") for p in fold(raw)]
        cuts[0, row] = at
        for k, piece in enumerate(pieces, 1):
            at += len(piece)
            cuts[k, row] = at
        parts.append(np.frombuffer(bytearray().join(pieces), np.uint8))
    joined = np.concatenate(parts) if len(parts) > 1 else out
    return Folded(joined, *cuts)


BLANK, PART = 0x20, 0x2F  # separators in the form that the automata read
_SEPARATOR = np.zeros(128, np.uint8)
_SEPARATOR[:] = BLANK
_SEPARATOR[[ord(c) for c in "/?&=#:;@,"]] = PART
_SEPARATOR[[c for c in range(128) if chr(c).isalnum()]] = 0


class Automaton(NamedTuple):
    """An automaton that finds patterns in bytes. `step` (int32[states, classes]) is the next state;
    `kind` (int32[256]) is a byte's class. `pattern` (int32[states]) is the pattern that ends at a
    state, or -1. `link` (int32[states]) is the state of the longest proper suffix that is a
    pattern, or 0. `size` (int64[patterns]) is a pattern's length in bytes."""

    step: np.ndarray
    kind: np.ndarray
    pattern: np.ndarray
    link: np.ndarray
    size: np.ndarray


def automaton(patterns: Sequence[str]) -> Automaton:
    """Build the automaton that finds these patterns, which must be distinct and not empty."""
    encoded = [p.encode() for p in patterns]
    used = sorted({b for p in encoded for b in p})
    kind = np.zeros(256, np.int32)
    kind[used] = np.arange(1, len(used) + 1)
    tree: list[dict[int, int]] = [{}]
    ends: dict[int, int] = {}
    for number, pattern in enumerate(encoded):
        state = 0
        for b in pattern:
            if b not in tree[state]:
                tree[state][b] = len(tree)
                tree.append({})
            state = tree[state][b]
        ends[state] = number
    step = np.zeros((len(tree), len(used) + 1), np.int32)
    ending = np.full(len(tree), -1, np.int32)
    link = np.zeros(len(tree), np.int32)
    suffix = [0] * len(tree)
    waiting = deque([0])
    while waiting:
        state = waiting.popleft()
        back = suffix[state]
        if state:
            step[state] = step[back]
            link[state] = back if ending[back] >= 0 else link[back]
        ending[state] = ends.get(state, -1)
        for b, child in tree[state].items():
            suffix[child] = int(step[back, kind[b]]) if state else 0
            step[state, kind[b]] = child
            waiting.append(child)
    return Automaton(step, kind, ending, link, np.array([len(p) for p in encoded], np.int64))


def normal_word(entry: str, between: str = " ") -> str:
    """Return a word list's entry in the form that `fold` gives to URLs, so that an automaton finds
    it. `between` joins the entry's words."""
    text = unicodedata.normalize("NFKC", entry).casefold()
    kinds, _ = character_tables()
    kept = "".join(c if kinds[ord(c)] not in (OTHER, CONNECTOR) else " " for c in text)
    return between.join(kept.split())


@njit(nogil=True)
def _spell(data, start, end, kinds, out):
    out[0] = BLANK
    n = 1
    i = start
    while i < end:
        b = data[i]
        size = 1
        separator = np.uint8(0)
        if b < 128:
            separator = _SEPARATOR[b]
        else:
            size = min(char_bytes(b), end - i)
            code = code_point(data, i, end)
            if code < 0 or code > 0x10FFFF or kinds[code] == OTHER or kinds[code] == CONNECTOR:
                separator = np.uint8(BLANK)
        if separator == 0:
            for k in range(size):
                out[n] = data[i + k]
                n += 1
        elif out[n - 1] != BLANK and out[n - 1] != PART:
            out[n] = separator
            n += 1
        elif separator == PART:
            out[n - 1] = separator
        i += size
    if out[n - 1] != BLANK and out[n - 1] != PART:
        out[n] = BLANK
        n += 1
    return n


@njit(nogil=True)
def _kind_at(text, i, n, kinds):
    if text[i] == BLANK or text[i] == PART:
        return OTHER
    while i > 0 and (text[i] & 0xC0) == 0x80:
        i -= 1
    code = code_point(text, i, n)
    return kinds[code] if 0 <= code <= 0x10FFFF else OTHER


@njit(nogil=True)
def _whole(text, a, z, n, kinds):
    before, first = _kind_at(text, a - 1, n, kinds), _kind_at(text, a, n, kinds)
    last, behind = _kind_at(text, z - 1, n, kinds), _kind_at(text, z, n, kinds)
    if before == LETTER or before == MARK or behind == LETTER or behind == MARK:
        return False
    return not ((first == DIGIT and before == DIGIT) or (last == DIGIT and behind == DIGIT))


@njit(nogil=True, allocates=True)
def _room(array, n):
    if n < len(array):
        return array
    larger = np.empty(2 * len(array), array.dtype)
    copy(array, 0, n, larger, 0)
    return larger


@njit(nogil=True)
def _row_words(text, n, r, kinds, step, kind, ending, link, size, whole, seen, hits):
    count = 0
    state = np.int32(0)
    for i in range(n):
        b = text[i]
        if b == PART or b == BLANK:
            if whole:
                b = np.uint8(BLANK)
            else:
                if b == PART:
                    state = np.int32(0)
                continue
        state = step[state, kind[b]]
        at = state
        while at:
            p = ending[at]
            if (
                p >= 0
                and seen[p] != r
                and (not whole or _whole(text, i + 1 - size[p], i + 1, n, kinds))
            ):
                seen[p] = r
                hits[count] = p
                count += 1
            at = link[at]
    return count


@njit(cache=True, nogil=True)
def find_words(data, start, end, kinds, step, kind, ending, link, size, whole):
    """Find the patterns in data[start[r]:end[r]] of each row r. Return (row: int64[hits], pattern:
    int32[hits]), each pattern once per row. If `whole`, match words, otherwise subwords. `kinds` is
    the kind of each code point; `step`, `kind`, `pattern` (here `ending`), `link` and `size` are of
    an Automaton."""
    rows = np.empty(64, np.int64)
    patterns = np.empty(64, np.int32)
    total = np.int64(0)
    longest = np.int64(0)
    for r in range(len(start)):
        longest = max(longest, end[r] - start[r])
    text = np.empty(longest + 3, np.uint8)
    seen = np.full(len(size), -1, np.int64)
    hits = np.empty(len(size), np.int32)
    for r in range(len(start)):
        n = _spell(data, start[r], end[r], kinds, text)
        # A separate function: numba counts references in loops that may replace an array.
        count = _row_words(text, n, r, kinds, step, kind, ending, link, size, whole, seen, hits)
        for k in range(count):
            rows, patterns = _room(rows, total), _room(patterns, total)
            rows[total], patterns[total] = r, hits[k]
            total += 1
    return rows[:total].copy(), patterns[:total].copy()
