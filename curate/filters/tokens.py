"""Words as the published filters count them: case kept, punctuation kept or left out.

Three segmentations, each built once a batch over the same tables:

- `split`: the words of `str.split()`, from the white space word table.
- `symbols`: runs of letters, digits, `_` and marks, and every other character but white space as a
  symbol word of its own; runs of periods or hyphens are one (`...`, `--`). Of the marks inside of
  words: an apostrophe between letters begins a word (`don`, `'t`), a comma between digits and a
  period between letters or digits are part of it (`1,000`, `3.14`, `self.x`), unless a capital
  follows on a small letter (`end.Start`); so is the period behind a single capital (`J.`, `U.S.`)
  and behind an abbreviation (`Mr.`). It stands for spaCy's English tokenizer, and differs from it:
  that cuts contractions elsewhere (`do`, `n't`), keeps URLs, paths, emoticons, `o'clock` and some
  marks inside of words whole (`):`, `name="src`), and cuts `_` from the ends of a word.
- `joined`: the word table (`curate.text.words`), in which one mark between two letters or two
  digits joins them as Unicode's word boundaries do (UAX 29, WB6, WB7, WB11, WB12): `don't`, `3.14`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from curate.filters.punctuation import PUNCTUATION
from curate.text.hashing import hash_bytes, load8, load_few, stir
from curate.text.tables import segments
from curate.text.unicode import ASCII_SPACE, char_bytes, code_point, space_bytes
from curate.text.words import CLUSTER, DIGIT, LETTER, OTHER, character_tables, words

if TYPE_CHECKING:
    from curate.documents import Documents

# Flags of a token. PLAIN: has a character that is not punctuation (of `PUNCTUATION`).
ALPHA, PLAIN, FIRST_ALNUM, HASH_OR_ELLIPSIS = 1, 2, 4, 8
STOP_SHIFT = 4  # the flag's upper four bits: 1 + index of the stop word
# Rae et al. 2021, appendix A1.1.
STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")

# What a byte may be in the `symbols` segmentation: white space, part of a word, what one has to
# look at (marks that may be part of a word, the first byte of a character outside ASCII), a symbol
# that is a word alone, and those of which a run is one.
_SPACE, _WORD, _LOOK, _ALONE, _HYPHENS, _PERIODS = range(6)
_CLASS = np.full(256, _ALONE, np.uint8)
_CLASS[[b for b in range(128) if chr(b).isalnum() or chr(b) == "_"]] = _WORD
_CLASS[ASCII_SPACE] = _SPACE
_CLASS[45] = _HYPHENS
_CLASS[[39, 44, 46]] = _LOOK
_CLASS[128:] = _LOOK
_FLAGS = np.zeros(128, np.uint8)
_FLAGS[[b for b in range(128) if chr(b).isalpha()]] = ALPHA | PLAIN
_FLAGS[48:58] = PLAIN
_FLAGS[35] = HASH_OR_ELLIPSIS
# The low bytes of a 64-bit load that a token of 0 to 8 bytes fills.
_MASK = np.array([(1 << (8 * n)) - 1 for n in range(9)], np.uint64)
# Each stop word's slot is the upper three bits of its bytes times this number.
_STOP_HASH = np.uint64(0xC42DDDC22F41F7CD)
_STOPS = np.zeros(8, np.uint64)
_STOP_FLAGS = np.zeros(8, np.uint8)
_STOP_SIZE = np.zeros(8, np.int64)  # `the` and `the` with a NUL behind it fill a load alike
for _i, _w in enumerate(STOP_WORDS):
    _packed = int.from_bytes(_w.encode(), "little")
    _slot = (_packed * int(_STOP_HASH) % 2**64) >> 61
    _STOPS[_slot] = _packed
    _STOP_FLAGS[_slot] = (_i + 1) << STOP_SHIFT
    _STOP_SIZE[_slot] = len(_w)
# Those of spaCy's English abbreviations (lang/en/tokenizer_exceptions.py) that prose has often.
_ABBREVIATIONS = np.array(
    sorted(
        int.from_bytes(w.encode(), "little")
        for w in (
            *(
                "Mr",
                "Mrs",
                "Ms",
                "Dr",
                "St",
                "Jr",
                "Prof",
                "Rev",
                "Gen",
                "Gov",
                "Sen",
                "Rep",
                "Messrs",
            ),
            *("Co", "Corp", "Inc", "Ltd", "Bros", "vs", "e.g", "i.e", "a.m", "p.m"),
            *("Jan", "Feb", "Mar", "Apr", "Jun", "Jul", "Aug", "Sep", "Sept", "Oct", "Nov", "Dec"),
        )
    ),
    np.uint64,
)
_FOLD = np.uint64(0x20202020)
_ONE = np.uint64(1)


@dataclass(frozen=True)
class Tokens:
    """rows: int64[rows + 1], the first token of each row; start: int64[tokens], absolute byte
    position; chars: int32[tokens], code points; hash: uint64[tokens], case kept; flags:
    uint8[tokens], ALPHA | PLAIN | FIRST_ALNUM | HASH_OR_ELLIPSIS and the stop word's number."""

    rows: np.ndarray
    start: np.ndarray
    chars: np.ndarray
    hash: np.ndarray
    flags: np.ndarray


@njit(cache=True, nogil=True)
def _flags_of(data, start, end, kinds, punctuation):
    """The flags of a token, character by character; stop words aside."""
    flags = 0
    i = start
    while i < end:
        b = data[i]
        code = np.int64(b) if b < 0x80 else np.int64(max(code_point(data, i, end), 0))
        kind = kinds[code]
        if kind == LETTER or kind == CLUSTER:
            flags |= ALPHA
        if i == start and (kind == LETTER or kind == CLUSTER or kind == DIGIT):
            flags |= FIRST_ALNUM
        if not punctuation[code]:
            flags |= PLAIN
        if code == 35 or code == 0x2026:
            flags |= HASH_OR_ELLIPSIS
        i += char_bytes(b)
    return flags


@njit(cache=True, nogil=True)
def _describe(data, start, end, kinds, punctuation, fold, whole):
    """(hash: uint64[tokens], flags: uint8[tokens]) of tokens data[start:end]; fold: stop words in
    any case; whole: a token that begins with a letter has no hash and no ellipsis inside."""
    n = len(start)
    hashes = np.empty(n, np.uint64)
    flags = np.empty(n, np.uint8)
    size = len(data)
    for t in range(n):
        a, z = start[t], end[t]
        length = z - a
        if length <= 8:
            if a + 8 <= size:
                packed = load8(data, np.uint64(a)) & _MASK[length]
            else:
                packed = load_few(data, np.uint64(a), length)
            hashes[t] = stir(packed ^ (np.uint64(length) << np.uint64(60)))
        else:
            packed = np.uint64(0)
            hashes[t] = hash_bytes(data, a, z)
        b = data[a]
        if whole and b < 0x80 and _FLAGS[b] & ALPHA:
            flag = ALPHA | PLAIN | FIRST_ALNUM
        else:
            flag = _flags_of(data, a, z, kinds, punctuation)
        if 2 <= length <= 4:
            if fold:
                packed |= _FOLD & _MASK[length]
            slot = (packed * _STOP_HASH) >> np.uint64(61)
            if packed == _STOPS[slot] and length == _STOP_SIZE[slot]:
                flag |= _STOP_FLAGS[slot]
        flags[t] = flag
    return hashes, flags


@njit(cache=True, nogil=True)
def _last_start(data, start, end):
    """Where the last character of data[start:end] begins; -1 for none."""
    last = end - 1
    while last > start and (data[last] & 0xC0) == 0x80:
        last -= 1
    return last if end > start else -1


@njit(cache=True, nogil=True)
def _is_letter_or_digit(kind):
    return kind == LETTER or kind == CLUSTER or kind == DIGIT


@njit(cache=True, nogil=True)
def _is_abbreviation(data, start, end):
    """Whether the letters and periods before end, in the row that begins at start, are one."""
    packed = np.uint64(0)
    i = end
    while i > start and end - i < 7:
        b = data[i - 1]
        if b >= 0x80 or _CLASS[b] == _SPACE:
            break
        if b != 46 and not _FLAGS[b] & ALPHA:
            return i < end and _CLASS[b] != _WORD and b != 39 and _is_one_of(packed)
        packed = (packed << np.uint64(8)) | np.uint64(b)
        i -= 1
    return (i == start or _CLASS[data[i - 1]] == _SPACE) and _is_one_of(packed)


@njit(cache=True, nogil=True)
def _is_one_of(packed):
    k = np.searchsorted(_ABBREVIATIONS, packed)
    return k < len(_ABBREVIATIONS) and _ABBREVIATIONS[k] == packed


@njit(cache=True, nogil=True)
def _look(data, start, i, stop, kinds, lower):
    """(class, whether a word begins) of the character at i of the row data[start:stop]."""
    code = max(code_point(data, i, stop), 0)
    if kinds[code] != OTHER:
        return _WORD, False
    if space_bytes(data, i, stop):
        return _SPACE, False
    other = _PERIODS if code == 46 else _ALONE
    if code != 39 and code != 44 and code != 46 and code != 0x2019:
        return other, False
    at = _last_start(data, start, i)
    if at < 0:
        return other, False
    before = max(code_point(data, at, i), 0)
    left = kinds[before]
    after = i + char_bytes(data[i])
    following = max(code_point(data, after, stop), 0) if after < stop else 0
    right = kinds[following]
    if code == 44:
        return (_WORD if left == DIGIT and right == DIGIT else other), False
    if code != 46:
        letters = left == LETTER and right == LETTER
        return (_WORD if letters else other), letters
    capital = lower[before] != before
    if _is_letter_or_digit(left) and _is_letter_or_digit(right):
        cut = left == LETTER and not capital and lower[following] != following
        return (other if cut else _WORD), False
    if capital:
        one = _last_start(data, start, at)
        if one < 0 or kinds[max(code_point(data, one, at), 0)] == OTHER:
            return _WORD, False
    return (_WORD if _is_abbreviation(data, start, i) else other), False


@njit(cache=True, nogil=True)
def _cut(data, offsets, kinds, lower):
    """(rows, start, end, chars) of the `symbols` segmentation. Each position is written as a start
    and as an end, and the counts move on only where it was one (see text/tables.py)."""
    rows = len(offsets) - 1
    limit = offsets[rows] - offsets[0] + 1
    row_tokens = np.empty(rows + 1, np.int64)
    start = np.empty(limit, np.int64)
    end = np.empty(limit, np.int64)
    chars = np.empty(limit, np.int32)
    begun = ended = np.uint64(0)
    for r in range(rows):
        row_tokens[r] = np.int64(ended)
        row, row_end = offsets[r], offsets[r + 1]
        i, stop = np.uint64(row), np.uint64(row_end)
        inner = np.uint64(0)  # bytes of the row so far that are not the first of a character
        first = np.uint64(0)  # where the token began, in characters
        before = np.uint64(_SPACE)
        while i < stop:
            width = _ONE
            now = np.uint64(_CLASS[data[i]])
            changed = np.uint64((now != before) | (now == _ALONE))
            if now == _LOOK:
                width = np.uint64(char_bytes(data[i]))
                found, begins = _look(data, row, np.int64(i), row_end, kinds, lower)
                now = np.uint64(found)
                changed = np.uint64(begins or now != before or now == _ALONE)
            at = i - inner
            end[ended] = i
            chars[ended] = at - first
            ended += changed & np.uint64(before != 0)
            start[begun] = i
            opened = changed & np.uint64(now != 0)
            begun += opened
            first = at if opened else first
            before = now
            inner += width - _ONE
            i += width
        end[ended] = stop
        chars[ended] = stop - inner - first
        ended += np.uint64(before != 0)
    count = np.int64(ended)
    row_tokens[rows] = count
    return row_tokens, start[:count], end[:count], chars[:count]


@njit(cache=True, nogil=True)
def _joins(mark, left, right):
    """Whether a mark joins characters of these kinds: Unicode's MidLetter, MidNum, MidNumLet and
    the single quote (WordBreakProperty.txt), without the rare ones."""
    both = mark == 39 or mark == 46 or mark == 0x2018 or mark == 0x2019
    if left == LETTER and right == LETTER:
        return both or mark == 58 or mark == 0xB7
    return left == DIGIT and right == DIGIT and (both or mark == 44 or mark == 59)


@njit(cache=True, nogil=True)
def _join(data, rows, start, end, chars, kinds):
    """(rows, start, end, chars): words, joined by single marks; those that begin with a letter or
    digit."""
    out_rows = np.empty_like(rows)
    out_start, out_end = np.empty_like(start), np.empty_like(end)
    out_chars = np.empty_like(chars)
    n = 0
    for r in range(len(rows) - 1):
        out_rows[r] = n
        w = rows[r]
        while w < rows[r + 1]:
            a, z, count = start[w], end[w], chars[w]
            w += 1
            while w < rows[r + 1] and start[w] - z <= 3 and start[w] > z:
                if start[w] - z != char_bytes(data[z]):
                    break
                left = kinds[max(code_point(data, _last_start(data, a, z), z), 0)]
                right = kinds[max(code_point(data, start[w], end[w]), 0)]
                if not _joins(code_point(data, z, start[w]), left, right):
                    break
                z = end[w]
                count += 1 + chars[w]
                w += 1
            kind = kinds[max(code_point(data, a, z), 0)]
            if _is_letter_or_digit(kind):
                out_start[n], out_end[n], out_chars[n] = a, z, count
                n += 1
    out_rows[len(rows) - 1] = n
    return out_rows, out_start[:n], out_end[:n], out_chars[:n]


def split_tokens(docs: Documents) -> Tokens:
    """The words of `str.split()`; stop words in any case."""
    return docs.table_of("tokens.split", lambda: _split_tokens(docs, True))


def split_tokens_exact(docs: Documents) -> Tokens:
    """The words of `str.split()`; stop words in lower case only."""
    return docs.table_of("tokens.split_exact", lambda: _split_tokens(docs, False))


def _split_tokens(docs: Documents, fold: bool) -> Tokens:
    data, _ = docs.buffers()
    tables = segments(docs)
    found = tables.words
    kinds = character_tables()[0]
    described = _describe(data, found.start, found.end, kinds, PUNCTUATION, fold, False)
    return Tokens(found.lines[tables.lines.rows], found.start, found.chars, *described)


def symbol_tokens(docs: Documents) -> Tokens:
    """Words and symbol words; stop words in lower case only."""

    def build() -> Tokens:
        data, offsets = docs.buffers()
        kinds, lower = character_tables()
        rows, start, end, chars = _cut(data, offsets, kinds, lower)
        described = _describe(data, start, end, kinds, PUNCTUATION, False, True)
        return Tokens(rows, start, chars, *described)

    return docs.table_of("tokens.symbols", build)


def joined_tokens(docs: Documents) -> Tokens:
    """Words without punctuation, `don't` and `3.14` whole."""

    def build() -> Tokens:
        data, _ = docs.buffers()
        kinds = character_tables()[0]
        t = words(docs)
        rows, start, end, chars = _join(data, t.rows, t.start, t.end, t.chars, kinds)
        described = _describe(data, start, end, kinds, PUNCTUATION, False, True)
        return Tokens(rows, start, chars, *described)

    return docs.table_of("tokens.joined", build)
