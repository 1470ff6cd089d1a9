"""Split text into words as the published filters do.

There are three segmentations, each built once per batch from the same tables. All keep case:

- `split`: the words of `str.split()`.
- `symbols`: an approximation of spaCy's English tokenizer (docs/filters.md, Words). Words are runs
  of letters, digits, `_` and marks, runs of periods or hyphens, and any other character but white
  space. Punctuation marks can belong to a word: `1,000`, `3.14`, `self.x`, `U.S.`, `Mr.`. An
  apostrophe between letters begins a word: `don`, `'t`.
- `joined`: the word table (`curate.text.words`), where one mark between two letters or two digits
  joins them by Unicode's word boundaries (UAX 29, WB6, WB7, WB11, WB12): `don't`, `3.14`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from curate.text.lines import PADDING, count_flags, flag_positions
from curate.text.tables import segments
from curate.text.unicode import ASCII_SPACE, char_bytes, code_point, space_bytes
from curate.text.words import CLUSTER, DIGIT, LETTER, OTHER, character_tables, words
from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import hash_bytes, load8, load_few, mix_bits, sorted_index

if TYPE_CHECKING:
    from curate.documents.documents import Documents

# Ends of sentences: Unicode's Sentence_Terminal and three Khmer marks, as DataTrove 0.10 lists
# them (utils/text.py, TERMINAL_PUNCTUATION), in ranges of code points.
_TERMINAL = (
    "21 2E 3F 589 61D-61F 6D4 700-702 7F9 837 839 83D-83E 964-965 104A-104B 1362 1367-1368 "
    "166E 1735-1736 17D4-17D6 17D9-17DA 1803 1809 1944-1945 1AA8-1AAB 1B5A-1B5B 1B5E-1B5F "
    "1B7D-1B7E 1C3B-1C3C 1C7E-1C7F 203C-203D 2047-2049 2E2E 2E3C 2E53-2E54 3002 A4FF "
    "A60E-A60F A6F3 A6F7 A876-A877 A8CE-A8CF A92F A9C8-A9C9 AA5D-AA5F AAF0-AAF1 ABEB FE52 "
    "FE56-FE57 FF01 FF0E FF1F FF61 10A56-10A57 10F55-10F59 10F86-10F89 11047-11048 "
    "110BE-110C1 11141-11143 111C5-111C6 111CD 111DE-111DF 11238-11239 1123B-1123C 112A9 "
    "1144B-1144C 115C2-115C3 115C9-115D7 11641-11642 1173C-1173E 11944 11946 11A42-11A43 "
    "11A9B-11A9C 11C41-11C42 11EF7-11EF8 11F43-11F44 16A6E-16A6F 16AF5 16B37-16B38 16B44 "
    "16E98 1BC9F 1DA88"
)
TERMINAL = np.zeros(0x110000, np.bool_)
for _range in _TERMINAL.split():
    TERMINAL[int(_range.split("-")[0], 16) : int(_range.split("-")[-1], 16) + 1] = True
# DataTrove's punctuation: ends of sentences, ASCII punctuation, control characters, and these.
PUNCTUATION = TERMINAL.copy()
PUNCTUATION[[b for b in range(160) if (b < 128 and not chr(b).isalnum()) or b > 126]] = True
PUNCTUATION[[ord(c) for c in "«´»–—’“”„…∶━►、〈〉《》「」【】％（），１：；～"]] = True


# The segmentation `symbols` classifies bytes and finds changes of class in vector loops. Only marks
# that may be part of a word, and characters outside ASCII, are examined one by one (_LOOK).
# Classes of a byte: white space, part of a word, to be examined, a symbol that is a word alone,
# hyphens and periods (a run is one word), and a further byte of a symbol. BEGINS is added where a
# word begins within a run.
_SPACE, _WORD, _LOOK, _ALONE, _HYPHENS, _PERIODS, _REST = range(7)
_KIND, BEGINS = 7, 8
_ASCII = np.array([LETTER if chr(b).isalpha() else DIGIT * chr(b).isdigit() for b in range(128)])
# The most frequent of spaCy's English abbreviations (lang/en/tokenizer_exceptions.py).
_ABBREVIATED = (
    "Mr Mrs Ms Dr St Jr Prof Rev Gen Gov Sen Rep Messrs Co Corp Inc Ltd Bros vs e.g i.e a.m p.m"
    " Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec"
).split()
_PACKED = np.array(sorted(int.from_bytes(w.encode(), "little") for w in _ABBREVIATED), np.uint64)
_LAST_TWO = np.zeros((128, 128), np.bool_)  # the last two letters of abbreviations
for _w in _ABBREVIATED:
    _LAST_TWO[ord(_w[-2]), ord(_w[-1])] = True


@njit(nogil=True)
def last_start(data, start, end):
    """Return the start of the last character of data[start:end], or -1 without characters."""
    last = end - 1
    while last > start and (data[last] & 0xC0) == 0x80:
        last -= 1
    return last if end > start else -1


@njit(nogil=True)
def is_letter_or_digit(kind):
    return kind == LETTER or kind == CLUSTER or kind == DIGIT


@njit(nogil=True)
def _is_abbreviation(data, start, end):
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
            inside = 48 <= b <= 57 or b == 95 or b == 39  # within a longer word
            return i < end and not inside and sorted_index(_PACKED, packed) >= 0
        packed = (packed << np.uint64(8)) | np.uint64(b)
        i -= 1
    return (i == start or ASCII_SPACE[data[i - 1]]) and sorted_index(_PACKED, packed) >= 0


@njit(nogil=True)
def _look(data, start, i, stop, kinds, lower):
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
    left_kind = kinds[before]
    after = i + char_bytes(data[i])
    following = max(code_point(data, after, stop), 0) if after < stop else 0
    right_kind = kinds[following]
    if code == 44:
        return (_WORD if left_kind == DIGIT and right_kind == DIGIT else other), False
    if code != 46:
        letters = left_kind == LETTER and right_kind == LETTER
        return (_WORD if letters else other), letters
    capital = lower[before] != before
    if is_letter_or_digit(left_kind) and is_letter_or_digit(right_kind):
        cut = left_kind == LETTER and not capital and lower[following] != following
        return (other if cut else _WORD), False
    if capital:
        second_last = last_start(data, start, at)
        if second_last < 0 or kinds[max(code_point(data, second_last, at), 0)] == OTHER:
            return _WORD, False
    return (_WORD if _is_abbreviation(data, start, i) else other), False


@njit(nogil=True)
def _look_ascii(first, before, mark, after):
    left_kind, right_kind = _ASCII[before], _ASCII[after]
    if mark == 44:
        return _WORD if left_kind == DIGIT and right_kind == DIGIT else _ALONE
    if mark == 39:
        return _WORD | BEGINS if left_kind == LETTER and right_kind == LETTER else _ALONE
    if (
        left_kind == LETTER and not right_kind
    ):  # a lower-case letter, not the end of an abbreviation
        return _PERIODS if before >= 97 and not _LAST_TWO[first, before] else _LOOK
    return _LOOK if left_kind or before == 46 else _PERIODS


@njit(nogil=True)
def _classes(data, out):
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
    u = np.uint8
    out[0] = kinds[0] & u(_KIND) != u(_SPACE)
    for i in range(1, len(kinds)):
        now, before = kinds[i] & u(_KIND), kinds[i - 1] & u(_KIND)
        begins = ((now != before) & (now != u(_REST))) | (now == u(_ALONE))
        out[i] = (u(begins) & u(now != u(_SPACE))) | u(kinds[i] >> u(3))


@njit(nogil=True)
def _ends(kinds, out):
    u = np.uint8
    out[0] = 0
    for i in range(1, len(kinds)):
        now, before = kinds[i] & u(_KIND), kinds[i - 1] & u(_KIND)
        begins = ((now != before) & (now != u(_REST))) | (now == u(_ALONE))
        out[i] = (u(begins) | u(kinds[i] >> u(3))) & u(before != u(_SPACE))


@njit(cache=True, nogil=True)
def cut_symbols(data, offsets, kinds, lower):
    """Cut a batch into words and symbols (tokens). Return each row's first token (int64[rows + 1])
    and each token's start, end (int64[tokens]) and number of code points (int32[tokens])."""
    rows = len(offsets) - 1
    base = offsets[0]
    size = offsets[rows] - base
    row_tokens = np.zeros(rows + 1, np.int64)
    if size == 0:
        nothing = np.empty(0, np.int64)
        return row_tokens, nothing, nothing, np.empty(0, np.int32)
    classes = np.empty(size, np.uint8)
    _classes(data[base : base + size], classes)
    flags = np.zeros(size + PADDING, np.uint8)
    for i in range(size):
        flags[i] = classes[i] == np.uint8(_LOOK)
    looks = np.empty(count_flags(flags) + PADDING, np.int64)
    n_looks = flag_positions(flags, size, base, looks)
    n_wide = 0  # characters outside ASCII; their positions overwrite `looks`
    k = 0
    for r in range(rows):
        row, stop = offsets[r], offsets[r + 1]
        done = row  # all bytes before it are classified
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
                    classes[i - base] = kind
                    continue
            kind, begins = _look(data, row, i, stop, kinds, lower)
            classes[i - base] = kind | (BEGINS if begins else 0)
            if b >= 0x80:
                looks[n_wide] = i
                n_wide += 1
                done = min(i + char_bytes(b), stop)
                for j in range(i + 1, done):
                    classes[j - base] = _REST if kind == _ALONE else kind
    _starts(classes, flags)
    for r in range(rows):
        if offsets[r] < offsets[r + 1]:
            flags[offsets[r] - base] = classes[offsets[r] - base] & _KIND != _SPACE
    start = np.empty(count_flags(flags) + PADDING, np.int64)
    count = flag_positions(flags, size, base, start)
    _ends(classes, flags)
    for r in range(1, rows):
        at = offsets[r] - base
        if at > 0 and at < size:
            flags[at] = classes[at - 1] & _KIND != _SPACE
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
    t = 0
    for r in range(rows + 1):
        while t < count and start[t] < offsets[r]:
            t += 1
        row_tokens[r] = t
    return row_tokens, start[:count], end[:count], chars[:count]


# Flags of a token. PLAIN: it has a character that is not in `PUNCTUATION`.
ALPHA, PLAIN, FIRST_ALNUM, HASH_OR_ELLIPSIS = 1, 2, 4, 8
STOP_SHIFT = 4  # the flag's upper four bits: 1 + index of the stop word
# Rae et al. 2021, appendix A1.1.
STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")

_FLAGS = np.zeros(128, np.uint8)
_FLAGS[[b for b in range(128) if chr(b).isalpha()]] = ALPHA | PLAIN
_FLAGS[35] = HASH_OR_ELLIPSIS
_FIRST = _FLAGS.copy()  # for tokens of one character, or that begin with this letter
_FIRST[[b for b in range(128) if chr(b).isalnum()]] |= FIRST_ALNUM
_FIRST[[b for b in range(128) if not PUNCTUATION[b]]] |= PLAIN
# The low bytes of a 64-bit load that a token of 0 to 8 bytes fills.
_MASK = np.array([(1 << (8 * n)) - 1 for n in range(9)], np.uint64)
# A stop word's slot: the upper three bits of the product of its bytes and this number.
_STOP_HASH = np.uint64(0xC42DDDC22F41F7CD)
_STOPS = np.zeros(8, np.uint64)
_STOP_FLAGS = np.zeros(8, np.uint8)
_STOP_SIZE = np.zeros(8, np.int64)  # tells `the` from `the` followed by NUL
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
    """The words of a batch, called tokens."""

    rows: np.ndarray  # int64[rows + 1]: the index of each row's first token
    start: np.ndarray  # int64[tokens]: the position of the token's first byte in the data
    chars: np.ndarray  # int32[tokens]: the number of code points
    hash: np.ndarray  # uint64[tokens]: a case-sensitive hash
    # uint8[tokens]: ALPHA (has a letter) | PLAIN (has a non-punctuation character) | FIRST_ALNUM
    # (begins with a letter or digit) | HASH_OR_ELLIPSIS (has `#` or an ellipsis). The upper four
    # bits are 1 + the index in STOP_WORDS, or 0.
    flags: np.ndarray


@njit(nogil=True)
def _flags_of(data, start, end, kinds, punctuation):
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
    """Return (hash: uint64[tokens], flags: uint8[tokens]) of the tokens data[start:end]; the flags
    are those of `Tokens`. If `fold` is True, stop words in upper case count as stop words too. Set
    `whole`, which saves time, if no token that begins with a letter contains `#` or an ellipsis."""
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
            hashes[t] = mix_bits(packed ^ (np.uint64(length) << np.uint64(60)))
        else:
            packed = np.uint64(0)
            hashes[t] = hash_bytes(data, a, z)
        b = data[a]
        if whole and b < 0x80 and (length == 1 or _FIRST[b] & ALPHA):
            flag = _FIRST[b]
        else:
            flag = np.uint8(_flags_of(data, a, z, kinds, punctuation))
        # No branch, as it could not be predicted. Longer words have `packed` 0 and another size.
        if fold:
            packed |= _FOLD & _MASK[min(length, 8)]
        slot = (packed * _STOP_HASH) >> np.uint64(61)
        stop = np.uint8(packed == _STOPS[slot]) & np.uint8(length == _STOP_SIZE[slot])
        flags[t] = flag | (_STOP_FLAGS[slot] * stop)
    return hashes, flags


@njit(nogil=True)
def _joins(mark, left_kind, right_kind):
    """Return True if a mark between characters of these kinds joins them by Unicode's MidLetter,
    MidNum, MidNumLet and single quote (WordBreakProperty.txt). Rare marks are not included."""
    both = mark == 39 or mark == 46 or mark == 0x2018 or mark == 0x2019
    if left_kind == LETTER and right_kind == LETTER:
        return both or mark == 58 or mark == 0xB7
    return left_kind == DIGIT and right_kind == DIGIT and (both or mark == 44 or mark == 59)


@njit(cache=True, nogil=True)
def _join(data, rows, start, end, chars, kinds):
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
                left_kind = kinds[max(code_point(data, last_start(data, a, z), z), 0)]
                right_kind = kinds[max(code_point(data, start[w], end[w]), 0)]
                if not _joins(code_point(data, z, start[w]), left_kind, right_kind):
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


def split_tokens(docs: Documents, fold: bool = True) -> Tokens:
    """Return the words of a batch, as split by `str.split()`. Stop words such as `the` are flagged
    in upper and lower case if `fold` is True, else only in lower case."""

    def build() -> Tokens:
        tables, data = segments(docs), docs.buffers()[0]
        kinds, t = character_tables()[0], tables.words
        described = describe(data, t.start, t.end, kinds, PUNCTUATION, fold, False)
        return Tokens(t.lines[tables.lines.rows], t.start, t.chars, *described)

    return docs.table_of("tokens.split" if fold else "tokens.split_exact", build)


def symbol_tokens(docs: Documents) -> Tokens:
    """Return words and symbols, much as spaCy cuts them. Stop words count only in lower case."""

    def build() -> Tokens:
        data, offsets = docs.buffers()
        kinds, lower = character_tables()
        rows, start, end, chars = cut_symbols(data, offsets, kinds, lower)
        described = describe(data, start, end, kinds, PUNCTUATION, False, True)
        return Tokens(rows, start, chars, *described)

    return docs.table_of("tokens.symbols", build)


def joined_tokens(docs: Documents) -> Tokens:
    """Return the words of a batch without punctuation; `don't` and `3.14` are one word each."""

    def build() -> Tokens:
        data, _ = docs.buffers()
        kinds = character_tables()[0]
        t = words(docs)
        rows, start, end, chars = _join(data, t.rows, t.start, t.end, t.chars, kinds)
        described = describe(data, start, end, kinds, PUNCTUATION, False, True)
        return Tokens(rows, start, chars, *described)

    return docs.table_of("tokens.joined", build)
