"""The windows of evaluation items to search documents for, and the search table.

There are four ways to cut an item into windows, each with its source:

- `13-gram` (GPT-3, Brown et al. 2020): all runs of N words. N is the 5th percentile of the lengths
  of a set's items in words, at least 8, at most 13 (appendix C). An item shorter than N words is
  one window as a whole (section 4: "or that overlap with the whole example when it is shorter").
- `50-char` (GPT-4 technical report, appendix C): runs of 50 letters and digits, "or the entire
  example if it's less than 50 characters". All runs, or `samples` random ones; the report takes 3.
- `overlap` (PaLM, Chowdhery et al. 2022, section 8): all runs of 8 words.
- `jaccard` (RETRO, Borgeaud et al. 2022, section 2.1): all runs of 13 words, compared with all of
  the document's.

Items shorter than `shortest` have no windows. Windows that more than `max_items` items share are
left out: they come from instructions and templates of a set.

Documents are searched in one pass over their units. A unit is a word, or a letter or digit, as a
64-bit hash; a window is a run of units. At each place a rolling hash of L units is looked up in a
small bit filter, where L is the length of the shortest window. If it is there, a sorted list tells
the lengths of the windows that begin with these L units, and the hash of each whole window is
compared. Among k windows and n units, hashes of 64 bits give about k * n / 2^64 false matches: for
a million windows, 5e-8 in 10^6 units and 0.05 in 10^12."""

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
from llmcurate.base.kernels.intrinsics import sorted_index

if TYPE_CHECKING:
    from curate.documents.documents import Documents


BASE = np.uint64(0x9E3779B97F4A7C15)
BLOCK = 1 << 15  # characters per block of a document
_ONE, _SIX, _63 = np.uint64(1), np.uint64(6), np.uint64(63)


@lru_cache(maxsize=1)
def character_values() -> np.ndarray:
    """Return a hash for each Unicode character (uint64[0x110000]), equal for upper and lower case.
    It is 0 for characters to skip: only letters, digits and marks on them count."""
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
def _append_characters(data, i, stop, table, values, start, end, filled):
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
    """Split short texts into letters and digits. Returns (rows, values, start, end): the index of
    each text's first unit (int64[texts + 1]), then for each unit its hash (uint64) and its first
    and last byte (exclusive, int64)."""
    size = offsets[-1] - offsets[0]
    rows = np.zeros(len(offsets), np.int64)
    values = np.empty(size, np.uint64)
    start, end = np.empty(size, np.int64), np.empty(size, np.int64)
    filled = np.int64(0)
    for r in range(len(offsets) - 1):
        _, filled = _append_characters(
            data, offsets[r], offsets[r + 1], table, values, start, end, filled
        )
        rows[r + 1] = filled
    return rows, values[:filled], start[:filled], end[:filled]


@njit(nogil=True)
def _finished(value, length):
    return mix(value ^ (np.uint64(length) * BASE))


@njit(cache=True, nogil=True)
def window_hashes(values, at, length, least):
    """Return two hashes (uint64[windows]) of each window values[at[k] : at[k] + length[k]]: the
    running hash of its first `least` units, and the hash of the whole window."""
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
    """Return (distinct, number). `distinct` begins with the distinct values, ascending; the rest of
    this array, which is as long as `values`, is unused. `number` (int64[n]) has the index of each
    value in `distinct`. `order` is argsort(values)."""
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
    """Return uint64[count]: for each prefix, the lengths of the windows that begin with it, as
    bits. Bit 0 stands for the shortest window, bit 1 for one unit (such as a word) more, and so on.
    Window k begins with prefix number[k] and has bit longer[k]."""
    bits = np.zeros(count, np.uint64)
    for k in range(len(number)):
        bits[number[k]] |= _ONE << np.uint64(longer[k])
    return bits


@njit(cache=True, nogil=True)
def first_in_item(rows, gram, grams):
    """Return bool[windows]: True where a window occurs for the first time in its item. Item i has
    the windows rows[i]:rows[i + 1]. Equal windows have equal numbers gram[k] (0 to `grams` - 1)."""
    last_item = np.full(grams, -1, np.int32)
    first = np.zeros(len(gram), np.bool_)
    for item in range(len(rows) - 1):
        for k in range(rows[item], rows[item + 1]):
            first[k] = last_item[gram[k]] != item
            last_item[gram[k]] = item
    return first


@njit(cache=True, nogil=True)
def filter_bits(begins, shift):
    """Return a filter, uint64[]. For each hash, the bit with number `hash >> shift` is set."""
    bits = np.zeros(max(1, (1 << (64 - shift)) >> 6), np.uint64)
    for value in begins:
        bit = value >> np.uint64(shift)
        bits[bit >> _SIX] |= _ONE << (bit & _63)
    return bits


@njit(nogil=True)
def _probe(values, start, end, count, last, row, base, index, hits, n):
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
            at = sorted_index(begins, value)
            if at >= 0:
                more = lengths[at]
                whole = value
                size = least
                while more != 0 and i + size <= count:
                    if more & _ONE:
                        key = sorted_index(keys, _finished(whole, size))
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
    """Find windows of words in documents, in order of position, and write them to `hits`. Returns
    the number found; if the number exceeds the capacity of `hits`, the rest is not written.

    `rows`, `values`, `start` and `end` are the documents' words: the index of each document's first
    word, then the hash, first byte and last byte of each word. `index` is the table of windows, the
    field `table` of the class `Search`. `hits` holds four int64 arrays of one length: the number of
    the found window, the document's row, and the window's first and last byte (exclusive) in it."""
    n = np.int64(0)
    for r in range(len(offsets) - 1):
        a, z = rows[r], rows[r + 1]
        n = _probe(values[a:z], start[a:z], end[a:z], z - a, z - a, r, offsets[r], index, hits, n)
    return n


@njit(cache=True, nogil=True)
def find_characters(data, offsets, table, most, index, hits):
    """Find windows of letters and digits, like `find_words`. `most` is the longest window's
    size."""
    n = np.int64(0)
    capacity = BLOCK + most
    values = np.empty(capacity, np.uint64)
    start, end = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    for r in range(len(offsets) - 1):
        i, stop = offsets[r], offsets[r + 1]
        filled = np.int64(0)
        while True:
            i, filled = _append_characters(data, i, stop, table, values, start, end, filled)
            # Windows that begin among the last units may extend beyond this block.
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
    """Extend matched byte ranges by up to `chars` characters on each side, within their documents.
    Range k is first[k]:last[k] in document row[k]. Returns the new (first, last), int64[hits]."""
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
MOST_LONGER = 63  # most units above the length of the shortest window, one bit each
FIRST_HITS = 4096  # initial capacity for hits
BLOCK_BYTES = 4 << 20


@dataclass(frozen=True)
class Cutting:
    """Settings for cutting items into windows. Units are words, or characters in mode `50-char`."""

    mode: str  # 13-gram, 50-char, overlap or jaccard
    ngram: int  # words per window in modes overlap and jaccard
    shortest: int  # items with fewer units are not checked
    samples: int | None  # windows to draw per item, or None for all
    seed: int
    max_items: int | None  # windows that more items share are left out
    characters: int = CHARACTERS  # units per window in mode 50-char

    @property
    def by_character(self) -> bool:
        """True if units are letters and digits, False if they are words."""
        return self.mode == "50-char"


@dataclass(frozen=True)
class Search:
    """A table to find windows in documents. The tuple `table` is (bits, begins, lengths, keys,
    shift, least). `least` and `most` are the lengths of the shortest and longest window, in units.
    `begins` are sorted hashes of the first `least` units of windows, and `lengths` are the window
    lengths for each of them (see `length_bits`). `keys` are sorted hashes of whole windows. `bits`
    and `shift` are a filter over `begins` (see `filter_bits`)."""

    table: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.uint64, int]
    most: int
    by_character: bool


@dataclass(frozen=True)
class Windows:
    """All windows (short pieces) of all test items, and a table to find them in documents."""

    items: list[Item]
    cutting: Cutting
    units: np.ndarray  # int64[items], length in words, or in letters and digits
    lengths: dict[str, int]  # the number of units per window, by evaluation set
    rows: np.ndarray  # int64[items + 1], the index of each item's first window
    gram: np.ndarray  # int64[windows], the window's index among the keys of the search table
    start: np.ndarray  # int32[windows], the window's first byte in its item's text
    end: np.ndarray  # int32[windows], the end of its bytes (exclusive)
    shared: np.ndarray  # bool[items], True if `max_items` removed windows of the item
    dropped: int  # distinct windows that more than max_items items share
    search: Search

    @cached_property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """The distinct windows of each test item, as arrays (item, gram: int64[pairs] each)."""
        grams = len(self.search.table[3])
        first = first_in_item(self.rows, self.gram, grams)
        item = np.repeat(np.arange(len(self.items)), np.diff(self.rows))
        return item[first], self.gram[first]

    @cached_property
    def distinct(self) -> np.ndarray:
        """The number of distinct windows of each item, int64[items]."""
        return np.bincount(self.pairs[0], minlength=len(self.items)).astype(np.int64)


def cut_windows(items: list[Item], cutting: Cutting, block_bytes: int = BLOCK_BYTES) -> Windows:
    """Cut all items into windows. Items are processed in blocks of about `block_bytes` bytes, to
    limit memory to some 60 bytes per window."""
    data, offsets = text_buffers(as_large_string(pa.array([i.text for i in items], pa.string())))
    blocks = item_blocks(offsets, block_bytes)
    sizes = [_sizes(data, offsets[a : z + 1], cutting) for a, z in blocks]
    units, words = np.concatenate([np.empty((2, 0), np.int64), *sizes], axis=1)
    names = [item.set for item in items]
    lengths = {name: _window_length(name, names, words, cutting) for name in dict.fromkeys(names)}
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
        at = unit_rows[item - a] + _first_units(items, units, length, window_counts, a, z, cutting)
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
    cuts = np.searchsorted(offsets, np.arange(offsets[0], offsets[-1], block_bytes))
    edges = np.unique([0, *cuts.tolist(), len(offsets) - 1]).tolist()
    return list(itertools.pairwise(edges))


def _units(
    data: np.ndarray, offsets: np.ndarray, cutting: Cutting
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    if cutting.by_character:
        units: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] = characters(
            data, offsets, character_values()
        )
        return units
    table = word_table(data, offsets)
    return table.rows, table.hash, table.start, table.end


def _sizes(data: np.ndarray, offsets: np.ndarray, cutting: Cutting) -> np.ndarray:
    """Return int64[2, texts]: each text's length in units (entries of `word_table`) and in words.
    In scripts without spaces, a word is several units. In modes `50-char` and `jaccard` both rows
    are units."""
    if cutting.by_character or cutting.mode == "jaccard":
        units = np.diff(_units(data, offsets, cutting)[0])
        return np.stack([units, units])
    table = word_table(data, offsets)
    words = np.rint(words_by_script(data, table)).astype(np.int64)
    return np.stack([np.diff(table.rows), words])


def _window_length(name: str, names: list[str], units: np.ndarray, cutting: Cutting) -> int:
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
    length = np.array([lengths[i.set] for i in items], np.int64)
    whole = np.where(words >= cutting.shortest, units, 0)
    length = np.where(words < length, whole, np.rint(length * units / np.maximum(words, 1)))
    least = length[length > 0].min(initial=MOST_LONGER)
    length = np.minimum(length, least + MOST_LONGER).astype(np.int64)
    count = np.where(length > 0, units - length + 1, 0)
    if cutting.samples is not None:
        count = np.minimum(count, cutting.samples)
    return length, count


def _first_units(
    items: list[Item],
    units: np.ndarray,
    length: np.ndarray,
    window_counts: np.ndarray,
    a: int,
    z: int,
    cutting: Cutting,
) -> np.ndarray:
    count = window_counts[a:z]
    firsts: np.ndarray = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    if cutting.samples is not None:
        at = 0
        for k in range(a, z):
            choices = int(units[k] - length[k] + 1)
            if 0 < window_counts[k] < choices:
                firsts[at : at + window_counts[k]] = _draw_windows(items[k], choices, cutting)
            at += int(window_counts[k])
    return firsts


def _draw_windows(item: Item, count: int, cutting: Cutting) -> np.ndarray:
    """Draw the windows of one item at random. The draw depends only on the seed and the item."""
    assert cutting.samples is not None
    name = f"{cutting.seed}\0{item.set}\0{item.id}".encode()
    draw = np.random.Generator(np.random.PCG64(xxhash.xxh3_64_intdigest(name)))
    return np.sort(draw.choice(count, cutting.samples, replace=False))


def _numbered(key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(key)
    keys, gram = number_sorted(key, order)
    return keys[: int(gram[order[-1]]) + 1 if len(order) else 0].copy(), gram


def _table(
    begin: np.ndarray, length: np.ndarray, keys: np.ndarray, least: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.uint64, int]:
    begins, where = _numbered(begin)
    lengths = length_bits(where, length - least, len(begins))
    slots = max(64, _BITS_A_WINDOW * len(begins))
    shift = 64 - min(30, int(slots - 1).bit_length())
    return filter_bits(begins, shift), begins, lengths, keys, np.uint64(shift), least


def different_ngrams(docs: Documents, rows: np.ndarray, size: int) -> np.ndarray:
    """Return int64[documents]: the number of distinct runs of `size` words of each document in
    `rows`, and 0 for other documents."""
    table = words(docs)
    counts = np.zeros(len(docs), np.int64)
    for row in rows.tolist():
        values = table.hash[table.rows[row] : table.rows[row + 1]]
        at = np.arange(max(0, len(values) - size + 1))
        _, key = window_hashes(values, at, np.full(len(at), size), size)
        counts[row] = len(np.unique(key))
    return counts


def find(docs: Documents, search: Search) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Find all windows in a batch of documents, ordered by document and position. Returns (row,
    gram, first, last), each int64[hits]: the document's row, the window's number, and its first and
    last byte (exclusive) in the document."""
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
