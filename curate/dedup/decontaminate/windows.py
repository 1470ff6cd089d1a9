"""The windows of evaluation items that documents are searched for, and the table to search with.

Four ways of cutting an item into windows, each with its source:

- `13-gram` (GPT-3, Brown et al. 2020): all runs of N words. N is the 5th percentile of the lengths
  of a set's items in words, at least 8, at most 13 (appendix C). An item shorter than N words is
  one window as a whole (section 4: "or that overlap with the whole example when it is shorter").
- `50-char` (GPT-4 technical report, appendix C): runs of 50 letters and digits, "or the entire
  example if it's less than 50 characters". All runs, or `samples` random ones; the report takes 3.
- `overlap` (PaLM, Chowdhery et al. 2022, section 8): all runs of 8 words.
- `jaccard` (RETRO, Borgeaud et al. 2022, section 2.1): all runs of 13 words, compared with all of
  the document's.

Items shorter than `shortest` have no window, and neither has text that more than `max_items` items
share: instructions and templates of a set say nothing of its items.

Documents are searched in one pass over their units. A unit is a word (its hash in the word table)
or a letter or digit; a window is a run of units. One rolling hash over the shortest length asks a
filter of a few bits a window; what passes is looked up in a sorted list, which says how long the
windows are that begin so, and their whole hash decides. Hashes have 64 bits: k windows searched in
a corpus of n units give about k * n / 2^64 false hits, one in 18 million for a million windows and
10^6 units, one in 18 for 10^12.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import xxhash

from curate.dedup.decontaminate.items import Item
from curate.text.buffers import as_large_string, text_buffers
from curate.text.hashing import mix
from curate.text.unicode import char_bytes, code_point
from curate.text.unspaced import words_by_script
from curate.text.words import CONNECTOR, OTHER, character_tables, word_table, words
from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import place_of

if TYPE_CHECKING:
    from curate.documents.documents import Documents


BASE = np.uint64(0x9E3779B97F4A7C15)
BLOCK = 1 << 15  # characters of a document that are looked at together
_ONE, _SIX, _63 = np.uint64(1), np.uint64(6), np.uint64(63)


@lru_cache(maxsize=1)
def character_values() -> np.ndarray:
    """uint64[0x110000]: what a character counts as: 0 for one that is passed over, else a number
    of its lower case. Letters, digits and the marks on them count."""
    kinds, lower = character_tables()
    values = _mixed(lower.astype(np.uint64) + _ONE)
    values[(kinds == OTHER) | (kinds == CONNECTOR)] = 0
    return values


@njit(cache=True, nogil=True)
def _mixed(codes):
    out = np.empty_like(codes)
    for k in range(len(codes)):
        out[k] = mix(codes[k])
    return out


@njit(nogil=True)
def _fill(data, i, stop, table, values, start, end, filled):
    """Puts the characters of data[i:stop] that count behind the first `filled` ones until the
    arrays are full; returns (where to go on, filled)."""
    capacity = len(values)
    while i < stop and filled < capacity:
        b = data[i]
        code, n = np.int64(b), 1
        if b >= 0x80:
            code, n = np.int64(code_point(data, i, stop)), char_bytes(b)
            if code < 0 or code > 0x10FFFF:
                code = np.int64(0)
        value = table[code]
        if value != 0:
            values[filled], start[filled], end[filled] = value, i, min(i + n, stop)
            filled += 1
        i += n
    return i, filled


@njit(cache=True, nogil=True)
def characters(data, offsets, table):
    """(rows: int64[rows + 1], values: uint64[units], start, end: int64[units]): the characters of
    short texts that count, in absolute byte positions."""
    size = offsets[-1] - offsets[0]
    rows = np.zeros(len(offsets), np.int64)
    values = np.empty(size, np.uint64)
    start, end = np.empty(size, np.int64), np.empty(size, np.int64)
    filled = np.int64(0)
    for r in range(len(offsets) - 1):
        _, filled = _fill(data, offsets[r], offsets[r + 1], table, values, start, end, filled)
        rows[r + 1] = filled
    return rows, values[:filled], start[:filled], end[:filled]


@njit(nogil=True)
def _finished(value, length):
    """The key of a window from the running hash of its units and their number."""
    return mix(value ^ (np.uint64(length) * BASE))


@njit(cache=True, nogil=True)
def window_hashes(values, at, length, least):
    """(begin, key: uint64[windows]): the running hash of the first `least` units and the key of
    each window values[at[k] : at[k] + length[k]]."""
    begin = np.empty(len(at), np.uint64)
    key = np.empty(len(at), np.uint64)
    for k in range(len(at)):
        value = np.uint64(0)
        for i in range(length[k]):
            value = value * BASE + values[at[k] + i]
            if i + 1 == least:
                begin[k] = value
        key[k] = _finished(value, length[k])
    return begin, key


@njit(cache=True, nogil=True)
def number_sorted(values, order):
    """(different: the different values in order, as the first entries; number: int64[n], which of
    them each value is), for an order that sorts the values."""
    different = np.empty_like(values)
    number = np.empty(len(values), np.int64)
    n = -1
    for k in order:
        if n < 0 or different[n] != values[k]:
            n += 1
            different[n] = values[k]
        number[k] = n
    return different, number


@njit(cache=True, nogil=True)
def length_bits(number, longer, count):
    """uint64[count]: bit b is set in entry i where a window of number i has b more units than the
    shortest one."""
    bits = np.zeros(count, np.uint64)
    for k in range(len(number)):
        bits[number[k]] |= _ONE << np.uint64(longer[k])
    return bits


@njit(cache=True, nogil=True)
def first_in_item(rows, gram, grams):
    """bool[windows]: windows that are the first of their kind in their item. rows: int64[items +
    1], the first window of each item; grams: how many kinds there are."""
    last_item = np.full(grams, -1, np.int32)
    first = np.zeros(len(gram), np.bool_)
    for item in range(len(rows) - 1):
        for k in range(rows[item], rows[item + 1]):
            first[k] = last_item[gram[k]] != item
            last_item[gram[k]] = item
    return first


@njit(cache=True, nogil=True)
def filter_bits(begins, shift):
    """uint64[]: one bit for the upper 64 - shift bits of each hash."""
    bits = np.zeros(max(1, (1 << (64 - shift)) >> 6), np.uint64)
    for value in begins:
        bit = value >> np.uint64(shift)
        bits[bit >> _SIX] |= _ONE << (bit & _63)
    return bits


@njit(nogil=True)
def _probe(values, start, end, count, last, row, base, index, hits, n):
    """Writes the hits of windows that start at the first `last` of values[:count] behind the n hits
    that are there; returns how many there are, also where `hits` is too short for them."""
    bits, begins, lengths, keys, shift, least = index
    gram, rows, first, stop = hits
    limit = min(last, count - least + 1)
    if limit <= 0:
        return n
    power = np.uint64(1)
    value = np.uint64(0)
    for k in range(least):
        value = value * BASE + values[k]
        power *= BASE
    i = 0
    while True:
        bit = value >> shift
        if (bits[bit >> _SIX] >> (bit & _63)) & _ONE:
            at = place_of(begins, value)
            if at >= 0:
                more = lengths[at]
                whole = value
                size = least
                while more != 0 and i + size <= count:
                    if more & _ONE:
                        key = place_of(keys, _finished(whole, size))
                        if key >= 0:
                            if n < len(gram):
                                gram[n], rows[n] = key, row
                                first[n], stop[n] = start[i] - base, end[i + size - 1] - base
                            n += 1
                    more >>= _ONE
                    if i + size < count:
                        whole = whole * BASE + values[i + size]
                    size += 1
        i += 1
        if i >= limit:
            return n
        value = value * BASE + values[i + least - 1] - values[i - 1] * power


@njit(cache=True, nogil=True)
def find_words(offsets, rows, values, start, end, index, hits):
    """Hits of windows of words in documents, by position; returns their number, which may be more
    than there is space for.

    rows, values, start, end: the word table; index: bits, begins, lengths, keys, shift, least (see
    windows.py); hits: gram (an index of keys), row, first and last byte behind, as
    int64 arrays of one length, in bytes of the document.
    """
    n = np.int64(0)
    for r in range(len(offsets) - 1):
        a, z = rows[r], rows[r + 1]
        n = _probe(values[a:z], start[a:z], end[a:z], z - a, z - a, r, offsets[r], index, hits, n)
    return n


@njit(cache=True, nogil=True)
def find_characters(data, offsets, table, most, index, hits):
    """The same for windows of characters. most: units of the longest window."""
    n = np.int64(0)
    capacity = BLOCK + most
    values = np.empty(capacity, np.uint64)
    start, end = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    for r in range(len(offsets) - 1):
        i, stop = offsets[r], offsets[r + 1]
        filled = np.int64(0)
        while True:
            i, filled = _fill(data, i, stop, table, values, start, end, filled)
            # Windows that begin among the last ones may be longer than what is here.
            last = filled if i >= stop else filled - most + 1
            n = _probe(values, start, end, filled, last, r, offsets[r], index, hits, n)
            if i >= stop:
                break
            kept = filled - last
            for k in range(kept):
                values[k], start[k], end[k] = values[last + k], start[last + k], end[last + k]
            filled = kept
    return n


@njit(cache=True, nogil=True)
def widen(data, offsets, row, first, last, chars):
    """(first, last: int64[hits]) in bytes of the document, moved apart by that many characters."""
    wide_first, wide_last = np.empty_like(first), np.empty_like(last)
    for k in range(len(row)):
        a, z = offsets[row[k]], offsets[row[k] + 1]
        i = a + first[k]
        missing = chars
        while i > a and missing > 0:
            i -= 1
            missing -= (data[i] & 0xC0) != 0x80
        wide_first[k] = i - a
        i = a + last[k]
        missing = chars
        while i < z and missing > 0:
            i += 1
            while i < z and (data[i] & 0xC0) == 0x80:
                i += 1
            missing -= 1
        wide_last[k] = i - a
    return wide_first, wide_last


LEAST_WORDS, MOST_WORDS, PERCENTILE = 8, 13, 5  # Brown et al. 2020, appendix C
CHARACTERS = 50  # GPT-4 technical report, appendix C
SHORTEST = {"13-gram": 8, "50-char": 25, "overlap": 8}
_BITS_A_WINDOW = 16
MOST_LONGER = 63  # units that a window may have more than the shortest: a bit for each
FIRST_HITS = 4096  # that there is space for at first
BLOCK_BYTES = 4 << 20


@dataclass(frozen=True)
class Cutting:
    """The way in which items become windows. mode: as above; ngram: words a window of `overlap`;
    shortest: units of the shortest item; samples: windows an item, null for all; seed: for
    samples; characters: a window of `50-char`."""

    mode: str
    ngram: int
    shortest: int
    samples: int | None
    seed: int
    max_items: int | None
    characters: int = CHARACTERS

    @property
    def by_character(self) -> bool:
        """Whether units are letters and digits, not words."""
        return self.mode == "50-char"


@dataclass(frozen=True)
class Search:
    """The table that finds windows in documents. table: arguments of the kernels (bits, begins,
    lengths, keys, shift, least); most: units of the longest window; by_character: as the cutting
    has it."""

    table: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.uint64, int]
    most: int
    by_character: bool


@dataclass(frozen=True)
class Windows:
    """All windows of all items, and what finds them.

    items: as read; units: int64[items], words, or letters and digits; lengths: of these a window
    has, by set; rows: int64[items + 1],
    the first window of each item; gram: int64[windows], an index of the table's keys; start, end:
    int32[windows], bytes of the item's text; shared: bool[items], items that lost windows to
    `max_items`.
    """

    items: list[Item]
    cutting: Cutting
    units: np.ndarray
    lengths: dict[str, int]
    rows: np.ndarray
    gram: np.ndarray
    start: np.ndarray
    end: np.ndarray
    shared: np.ndarray
    dropped: int  # different windows that more than max_items items share
    search: Search

    @cached_property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """(item, gram: int64[pairs]): the different windows of each item."""
        grams = len(self.search.table[3])
        first = first_in_item(self.rows, self.gram, grams)
        item = np.repeat(np.arange(len(self.items)), np.diff(self.rows))
        return item[first], self.gram[first]

    @cached_property
    def distinct(self) -> np.ndarray:
        """int64[items]: how many different windows each item has."""
        return np.bincount(self.pairs[0], minlength=len(self.items)).astype(np.int64)


def cut_windows(items: list[Item], cutting: Cutting, block_bytes: int = BLOCK_BYTES) -> Windows:
    """The windows of all items under one way of cutting.

    Items are cut in blocks of about `block_bytes`, so that beside some 60 bytes a window little
    memory is needed.
    """
    data, offsets = text_buffers(as_large_string(pa.array([i.text for i in items], pa.string())))
    blocks = item_blocks(offsets, block_bytes)
    sizes = [_sizes(data, offsets[a : z + 1], cutting) for a, z in blocks]
    units, words = np.concatenate([np.empty((2, 0), np.int64), *sizes], axis=1)
    names = [item.set for item in items]
    lengths = {name: _length(name, names, words, cutting) for name in dict.fromkeys(names)}
    length, window_counts = _plan(items, units, words, lengths, cutting)
    cut = length > 0
    least, most = (int(length[cut].min()), int(length[cut].max())) if cut.any() else (1, 1)
    rows = np.concatenate([[0], np.cumsum(window_counts)]).astype(np.int64)
    begin, key = np.empty(rows[-1], np.uint64), np.empty(rows[-1], np.uint64)
    first, last = np.empty(rows[-1], np.int32), np.empty(rows[-1], np.int32)
    for a, z in blocks:
        unit_rows, values, start, end = _units(data, offsets[a : z + 1], cutting)
        inside = slice(rows[a], rows[z])
        item = np.repeat(np.arange(a, z), window_counts[a:z])
        at = unit_rows[item - a] + _firsts(items, units, length, window_counts, a, z, cutting)
        size = length[item]
        begin[inside], key[inside] = window_hashes(values, at, size, least)
        first[inside] = start[at] - offsets[item]
        last[inside] = end[at + size - 1] - offsets[item]
    keys, gram = _numbered(key)
    del key
    shared = np.zeros(len(items), np.bool_)
    common = np.zeros(len(keys), np.bool_)
    if cutting.max_items is not None:
        kinds = first_in_item(rows, gram, len(keys))
        common = np.bincount(gram[kinds], minlength=len(keys)) > cutting.max_items
    if common.any():
        good = ~common[gram]
        item = np.repeat(np.arange(len(items)), window_counts)
        shared[item[~good]] = True
        rows = np.concatenate([[0], np.cumsum(np.bincount(item[good], minlength=len(items)))])
        begin, first, last = begin[good], first[good], last[good]
        keys, gram = keys[~common], (np.cumsum(~common) - 1)[gram[good]]
    size = np.repeat(length, np.diff(rows))
    table = _table(begin, size, keys, least)
    search = Search(table, most, cutting.by_character)
    return Windows(
        items, cutting, words, lengths, rows, gram, first, last, shared, int(common.sum()), search
    )


def item_blocks(offsets: np.ndarray, block_bytes: int) -> list[tuple[int, int]]:
    """Ranges of items of about so many bytes each."""
    cuts = np.searchsorted(offsets, np.arange(offsets[0], offsets[-1], block_bytes))
    edges = np.unique([0, *cuts.tolist(), len(offsets) - 1]).tolist()
    return list(itertools.pairwise(edges))


def _units(
    data: np.ndarray, offsets: np.ndarray, cutting: Cutting
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(rows, values, start, end) of the units of some texts."""
    if cutting.by_character:
        units: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] = characters(
            data, offsets, character_values()
        )
        return units
    table = word_table(data, offsets)
    return table.rows, table.hash, table.start, table.end


def _sizes(data: np.ndarray, offsets: np.ndarray, cutting: Cutting) -> np.ndarray:
    """int64[2, items]: units and words of some texts. Words of scripts without spaces are some of
    their units each; for letters and digits, and as a set to compare (jaccard), every unit is."""
    if cutting.by_character or cutting.mode == "jaccard":
        units = np.diff(_units(data, offsets, cutting)[0])
        return np.stack([units, units])
    table = word_table(data, offsets)
    words = np.rint(words_by_script(data, table)).astype(np.int64)
    return np.stack([np.diff(table.rows), words])


def _length(name: str, names: list[str], units: np.ndarray, cutting: Cutting) -> int:
    """Words, or letters and digits, a window of one set."""
    if cutting.by_character:
        return cutting.characters
    if cutting.mode in ("overlap", "jaccard"):
        return cutting.ngram
    lengths = units[np.array([n == name for n in names])]
    lengths = lengths[lengths > 0]
    if len(lengths) == 0:
        return MOST_WORDS
    fifth = int(np.percentile(lengths, PERCENTILE, method="lower"))
    return min(max(fifth, LEAST_WORDS), MOST_WORDS)


def _plan(
    items: list[Item],
    units: np.ndarray,
    words: np.ndarray,
    lengths: dict[str, int],
    cutting: Cutting,
) -> tuple[np.ndarray, np.ndarray]:
    """(length, windows: int64[items]): units a window of each item, 0 where it has none, and how
    many windows it has."""
    length = np.array([lengths[i.set] for i in items], np.int64)
    whole = np.where(words >= cutting.shortest, units, 0)
    length = np.where(words < length, whole, np.rint(length * units / np.maximum(words, 1)))
    least = length[length > 0].min(initial=MOST_LONGER)
    length = np.minimum(length, least + MOST_LONGER).astype(np.int64)
    count = np.where(length > 0, units - length + 1, 0)
    if cutting.samples is not None:
        count = np.minimum(count, cutting.samples)
    return length, count


def _firsts(
    items: list[Item],
    units: np.ndarray,
    length: np.ndarray,
    window_counts: np.ndarray,
    a: int,
    z: int,
    cutting: Cutting,
) -> np.ndarray:
    """int64[windows]: the first unit, within its item, of each window of items[a:z]."""
    count = window_counts[a:z]
    firsts: np.ndarray = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    if cutting.samples is not None:
        at = 0
        for k in range(a, z):
            choices = int(units[k] - length[k] + 1)
            if 0 < window_counts[k] < choices:
                firsts[at : at + window_counts[k]] = _drawn(items[k], choices, cutting)
            at += int(window_counts[k])
    return firsts


def _drawn(item: Item, count: int, cutting: Cutting) -> np.ndarray:
    """The sampled windows of one item, which depend on the seed and the item alone."""
    assert cutting.samples is not None
    name = f"{cutting.seed}\0{item.set}\0{item.id}".encode()
    draw = np.random.Generator(np.random.PCG64(xxhash.xxh3_64_intdigest(name)))
    return np.sort(draw.choice(count, cutting.samples, replace=False))


def _numbered(key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(keys: the different ones, sorted; gram: int64[windows], the number of each in `keys`)."""
    order = np.argsort(key)
    keys, gram = number_sorted(key, order)
    return keys[: int(gram[order[-1]]) + 1 if len(order) else 0].copy(), gram


def _table(
    begin: np.ndarray, length: np.ndarray, keys: np.ndarray, least: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.uint64, int]:
    """The arguments that the kernels search with."""
    begins, where = _numbered(begin)
    lengths = length_bits(where, length - least, len(begins))
    slots = max(64, _BITS_A_WINDOW * len(begins))
    shift = 64 - min(30, int(slots - 1).bit_length())
    return filter_bits(begins, shift), begins, lengths, keys, np.uint64(shift), least


def different_ngrams(docs: Documents, rows: np.ndarray, size: int) -> np.ndarray:
    """int64[documents]: how many different runs of `size` words the documents of these rows have;
    0 of the others."""
    table = words(docs)
    counts = np.zeros(len(docs), np.int64)
    for row in rows.tolist():
        values = table.hash[table.rows[row] : table.rows[row + 1]]
        at = np.arange(max(0, len(values) - size + 1))
        _, key = window_hashes(values, at, np.full(len(at), size), size)
        counts[row] = len(np.unique(key))
    return counts


def find(docs: Documents, search: Search) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(row, gram, first, last: int64[hits]): every position of a window in a batch, in order of row
    and position; bytes of the document, `last` being the one behind."""
    data, offsets = docs.buffers()
    capacity = FIRST_HITS
    while True:
        hits = tuple(np.empty(capacity, np.int64) for _ in range(4))
        if len(search.table[1]) == 0:
            count = 0
        elif search.by_character:
            values = character_values()
            count = find_characters(data, offsets, values, search.most, search.table, hits)
        else:
            t = words(docs)
            count = find_words(offsets, t.rows, t.hash, t.start, t.end, search.table, hits)
        if count <= capacity:
            gram, row, first, last = (a[:count] for a in hits)
            return row, gram, first, last
        capacity = count
