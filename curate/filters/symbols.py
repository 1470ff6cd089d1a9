"""The `symbols` segmentation: runs of letters, digits, `_` and marks, and each other character a
word of its own (curate/filters/tokens.py says why, and how it differs from spaCy's).

Classes of bytes and changes between them are vector loops; only marks that may be part of a word,
and characters outside ASCII, are looked at one by one.
"""

from __future__ import annotations

import numpy as np

from curate.text.scan import PADDING, count_flags, flag_positions
from curate.text.unicode import ASCII_SPACE, char_bytes, code_point, space_bytes
from curate.text.words import CLUSTER, DIGIT, LETTER, OTHER
from kernel_cache import njit

# What a byte may be: white space, part of a word, what one has to look at (marks that may be part
# of a word, bytes of characters outside ASCII), a symbol that is a word alone, those of which a run
# is one, and a further byte of a symbol. BEGINS is set where a word begins inside of a run.
_SPACE, _WORD, _LOOK, _ALONE, _HYPHENS, _PERIODS, _REST = range(7)
_KIND, BEGINS = 7, 8
_ASCII = np.array([LETTER if chr(b).isalpha() else DIGIT * chr(b).isdigit() for b in range(128)])
# Those of spaCy's English abbreviations (lang/en/tokenizer_exceptions.py) that prose has often.
_ABBREVIATED = (
    "Mr Mrs Ms Dr St Jr Prof Rev Gen Gov Sen Rep Messrs Co Corp Inc Ltd Bros vs e.g i.e a.m p.m"
    " Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec"
).split()
_PACKED = np.array(sorted(int.from_bytes(w.encode(), "little") for w in _ABBREVIATED), np.uint64)
_LAST_TWO = np.zeros((128, 128), np.bool_)  # what an abbreviation may end in
for _w in _ABBREVIATED:
    _LAST_TWO[ord(_w[-2]), ord(_w[-1])] = True


@njit(nogil=True)
def last_start(data, start, end):
    """Where the last character of data[start:end] begins; -1 for none."""
    last = end - 1
    while last > start and (data[last] & 0xC0) == 0x80:
        last -= 1
    return last if end > start else -1


@njit(nogil=True)
def is_letter_or_digit(kind):
    return kind == LETTER or kind == CLUSTER or kind == DIGIT


@njit(nogil=True)
def _is_abbreviation(data, start, end):
    """Whether the letters and periods before end, in the row that begins at start, are one."""
    if end - start < 2 or (data[end - 2] | data[end - 1]) >= 0x80:
        return False
    if not _LAST_TWO[data[end - 2], data[end - 1]]:
        return False
    packed = np.uint64(0)
    i = end
    while i > start and end - i < 7:
        b = data[i - 1]
        if b >= 0x80 or ASCII_SPACE[b]:
            break
        if b != 46 and _ASCII[b] != LETTER:
            inside = 48 <= b <= 57 or b == 95 or b == 39  # of a longer word
            return i < end and not inside and _is_one_of(packed)
        packed = (packed << np.uint64(8)) | np.uint64(b)
        i -= 1
    return (i == start or ASCII_SPACE[data[i - 1]]) and _is_one_of(packed)


@njit(nogil=True)
def _is_one_of(packed):
    k = np.searchsorted(_PACKED, packed)
    return k < len(_PACKED) and _PACKED[k] == packed


@njit(nogil=True)
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
    at = last_start(data, start, i)
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
    if is_letter_or_digit(left) and is_letter_or_digit(right):
        cut = left == LETTER and not capital and lower[following] != following
        return (other if cut else _WORD), False
    if capital:
        one = last_start(data, start, at)
        if one < 0 or kinds[max(code_point(data, one, at), 0)] == OTHER:
            return _WORD, False
    return (_WORD if _is_abbreviation(data, start, i) else other), False


@njit(nogil=True)
def _look_ascii(first, before, mark, after):
    """The class of a mark between ASCII bytes, two before it; _LOOK where more has to be seen."""
    left, right = _ASCII[before], _ASCII[after]
    if mark == 44:
        return _WORD if left == DIGIT and right == DIGIT else _ALONE
    if mark == 39:
        return _WORD | BEGINS if left == LETTER and right == LETTER else _ALONE
    if left == LETTER and not right:  # a small letter, and no abbreviation's end
        return _PERIODS if before >= 97 and not _LAST_TWO[first, before] else _LOOK
    return _LOOK if left or before == 46 else _PERIODS


@njit(nogil=True)
def _classes(data, out):
    """Writes the class of every byte of data into out; written so that it becomes vector code."""
    u = np.uint8
    for i in range(len(data)):
        b = data[i]
        small = u(b | u(32))
        word = ((small >= u(97)) & (small <= u(122))) | ((b >= u(48)) & (b <= u(57))) | (b == u(95))
        space = ((b >= u(9)) & (b <= u(13))) | ((b >= u(28)) & (b <= u(32)))
        look = (b == u(39)) | (b == u(44)) | (b == u(46)) | (b >= u(128))
        out[i] = u(3) - u(3) * u(space) - u(2) * u(word) - u(look) + u(b == u(45))


@njit(nogil=True)
def _starts(kinds, out):
    """Writes 1 where a word begins: another run, or a symbol alone. kinds: uint8[n], n > 0."""
    u = np.uint8
    out[0] = kinds[0] & u(_KIND) != u(_SPACE)
    for i in range(1, len(kinds)):
        now, before = kinds[i] & u(_KIND), kinds[i - 1] & u(_KIND)
        begins = ((now != before) & (now != u(_REST))) | (now == u(_ALONE))
        out[i] = (u(begins) & u(now != u(_SPACE))) | u(kinds[i] >> u(3))


@njit(nogil=True)
def _ends(kinds, out):
    """Writes 1 where a word has ended, at the byte behind it."""
    u = np.uint8
    out[0] = 0
    for i in range(1, len(kinds)):
        now, before = kinds[i] & u(_KIND), kinds[i - 1] & u(_KIND)
        begins = ((now != before) & (now != u(_REST))) | (now == u(_ALONE))
        out[i] = (u(begins) | u(kinds[i] >> u(3))) & u(before != u(_SPACE))


@njit(cache=True, nogil=True)
def cut_symbols(data, offsets, kinds, lower):
    """(rows: int64[rows + 1], start: int64[tokens], end: int64[tokens], chars: int32[tokens])."""
    rows = len(offsets) - 1
    base = offsets[0]
    size = offsets[rows] - base
    row_tokens = np.zeros(rows + 1, np.int64)
    if size == 0:
        nothing = np.empty(0, np.int64)
        return row_tokens, nothing, nothing, np.empty(0, np.int32)
    found = np.empty(size, np.uint8)
    _classes(data[base : base + size], found)
    flags = np.zeros(size + PADDING, np.uint8)
    for i in range(size):
        flags[i] = found[i] == np.uint8(_LOOK)
    looks = np.empty(count_flags(flags) + PADDING, np.int64)
    n_looks = flag_positions(flags, size, base, looks)
    n_wide = 0  # characters outside ASCII; their positions overwrite those looked at
    k = 0
    for r in range(rows):
        row, stop = offsets[r], offsets[r + 1]
        done = row  # what comes before has its class
        while k < n_looks and looks[k] < stop:
            i = looks[k]
            k += 1
            if i < done:
                continue
            b = data[i]
            inner = b < 0x80 and i > row + 1 and i + 1 < stop
            if inner and (data[i - 2] | data[i - 1] | data[i + 1]) < 0x80:
                kind = _look_ascii(data[i - 2], data[i - 1], b, data[i + 1])
                if kind != _LOOK:
                    found[i - base] = kind
                    continue
            kind, begins = _look(data, row, i, stop, kinds, lower)
            found[i - base] = kind | (BEGINS if begins else 0)
            if b >= 0x80:
                looks[n_wide] = i
                n_wide += 1
                done = min(i + char_bytes(b), stop)
                for j in range(i + 1, done):
                    found[j - base] = _REST if kind == _ALONE else kind
    _starts(found, flags)
    for r in range(rows):
        if offsets[r] < offsets[r + 1]:
            flags[offsets[r] - base] = found[offsets[r] - base] & _KIND != _SPACE
    start = np.empty(count_flags(flags) + PADDING, np.int64)
    count = flag_positions(flags, size, base, start)
    _ends(found, flags)
    for r in range(1, rows):
        at = offsets[r] - base
        if at > 0 and at < size:
            flags[at] = found[at - 1] & _KIND != _SPACE
    end = np.empty(count + PADDING + 1, np.int64)
    if flag_positions(flags, size, base, end) < count:
        end[count - 1] = offsets[rows]
    chars = np.empty(count, np.int32)
    for t in range(count):
        chars[t] = end[t] - start[t]
    t = 0
    for k in range(n_wide):
        i = looks[k]
        while t < count and end[t] <= i:
            t += 1
        if t < count and start[t] <= i:
            chars[t] -= min(char_bytes(data[i]), end[t] - i) - 1
    for r in range(rows + 1):
        row_tokens[r] = np.searchsorted(start[:count], offsets[r])
    return row_tokens, start[:count], end[:count], chars[:count]
