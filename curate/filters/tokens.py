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

from curate.filters.punctuation import PUNCTUATION
from curate.filters.symbols import cut_symbols, is_letter_or_digit, last_start
from curate.text.hashing import hash_bytes, load8, load_few, stir
from curate.text.tables import segments
from curate.text.unicode import char_bytes, code_point
from curate.text.words import CLUSTER, DIGIT, LETTER, character_tables, words
from kernel_cache import njit

if TYPE_CHECKING:
    from curate.documents import Documents

# Flags of a token. PLAIN: has a character that is not punctuation (of `PUNCTUATION`).
ALPHA, PLAIN, FIRST_ALNUM, HASH_OR_ELLIPSIS = 1, 2, 4, 8
STOP_SHIFT = 4  # the flag's upper four bits: 1 + index of the stop word
# Rae et al. 2021, appendix A1.1.
STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")

_FLAGS = np.zeros(128, np.uint8)
_FLAGS[[b for b in range(128) if chr(b).isalpha()]] = ALPHA | PLAIN
_FLAGS[35] = HASH_OR_ELLIPSIS
_FIRST = _FLAGS.copy()  # of a token of this one character, or of one that begins with this letter
_FIRST[[b for b in range(128) if chr(b).isalnum()]] |= FIRST_ALNUM
_FIRST[[b for b in range(128) if not PUNCTUATION[b]]] |= PLAIN
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


@njit(nogil=True)
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
def describe(data, start, end, kinds, punctuation, fold, whole):
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
        if whole and b < 0x80 and (length == 1 or _FIRST[b] & ALPHA):
            flag = _FIRST[b]
        else:
            flag = np.uint8(_flags_of(data, a, z, kinds, punctuation))
        # Without a branch, since which words are stop words cannot be predicted. A longer word has
        # `packed` 0 and no stop word's size.
        if fold:
            packed |= _FOLD & _MASK[min(length, 8)]
        slot = (packed * _STOP_HASH) >> np.uint64(61)
        stop = np.uint8(packed == _STOPS[slot]) & np.uint8(length == _STOP_SIZE[slot])
        flags[t] = flag | (_STOP_FLAGS[slot] * stop)
    return hashes, flags


@njit(nogil=True)
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
                left = kinds[max(code_point(data, last_start(data, a, z), z), 0)]
                right = kinds[max(code_point(data, start[w], end[w]), 0)]
                if not _joins(code_point(data, z, start[w]), left, right):
                    break
                z = end[w]
                count += 1 + chars[w]
                w += 1
            kind = kinds[max(code_point(data, a, z), 0)]
            if is_letter_or_digit(kind):
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
    described = describe(data, found.start, found.end, kinds, PUNCTUATION, fold, False)
    return Tokens(found.lines[tables.lines.rows], found.start, found.chars, *described)


def symbol_tokens(docs: Documents) -> Tokens:
    """Words and symbol words; stop words in lower case only."""

    def build() -> Tokens:
        data, offsets = docs.buffers()
        kinds, lower = character_tables()
        rows, start, end, chars = cut_symbols(data, offsets, kinds, lower)
        described = describe(data, start, end, kinds, PUNCTUATION, False, True)
        return Tokens(rows, start, chars, *described)

    return docs.table_of("tokens.symbols", build)


def joined_tokens(docs: Documents) -> Tokens:
    """Words without punctuation, `don't` and `3.14` whole."""

    def build() -> Tokens:
        data, _ = docs.buffers()
        kinds = character_tables()[0]
        t = words(docs)
        rows, start, end, chars = _join(data, t.rows, t.start, t.end, t.chars, kinds)
        described = describe(data, start, end, kinds, PUNCTUATION, False, True)
        return Tokens(rows, start, chars, *described)

    return docs.table_of("tokens.joined", build)
