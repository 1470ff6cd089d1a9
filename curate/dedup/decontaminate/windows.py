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
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import xxhash

from curate.dedup.decontaminate import kernel
from curate.dedup.decontaminate.items import Item
from curate.text.buffers import as_large_string, text_buffers
from curate.text.words import word_table, words

if TYPE_CHECKING:
    from curate.documents.documents import Documents

LEAST_WORDS, MOST_WORDS, PERCENTILE = 8, 13, 5  # Brown et al. 2020, appendix C
CHARACTERS = 50  # GPT-4 technical report, appendix C
SHORTEST = {"13-gram": 8, "50-char": 25, "overlap": 8}
_BITS_A_WINDOW = 16
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

    items: as read; units: int64[items]; lengths: units a window by set; rows: int64[items + 1],
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
        first = kernel.first_in_item(self.rows, self.gram, grams)
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
    counts = [np.diff(_units(data, offsets[a : z + 1], cutting)[0]) for a, z in blocks]
    units = np.concatenate([np.empty(0, np.int64), *counts])
    names = [item.set for item in items]
    lengths = {name: _length(name, names, units, cutting) for name in dict.fromkeys(names)}
    length, window_counts = _plan(items, units, lengths, cutting)
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
        begin[inside], key[inside] = kernel.window_hashes(values, at, size, least)
        first[inside] = start[at] - offsets[item]
        last[inside] = end[at + size - 1] - offsets[item]
    keys, gram = _numbered(key)
    del key
    shared = np.zeros(len(items), np.bool_)
    common = np.zeros(len(keys), np.bool_)
    if cutting.max_items is not None:
        kinds = kernel.first_in_item(rows, gram, len(keys))
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
        items, cutting, units, lengths, rows, gram, first, last, shared, int(common.sum()), search
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
        units: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] = kernel.characters(
            data, offsets, kernel.character_values()
        )
        return units
    table = word_table(data, offsets)
    return table.rows, table.hash, table.start, table.end


def _length(name: str, names: list[str], units: np.ndarray, cutting: Cutting) -> int:
    """Units a window of one set."""
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
    items: list[Item], units: np.ndarray, lengths: dict[str, int], cutting: Cutting
) -> tuple[np.ndarray, np.ndarray]:
    """(length, windows: int64[items]): units a window of each item, 0 where it has none, and how
    many windows it has."""
    length = np.array([lengths[i.set] for i in items], np.int64)
    length = np.where(units < length, np.where(units >= cutting.shortest, units, 0), length)
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
    keys, gram = kernel.number_sorted(key, order)
    return keys[: int(gram[order[-1]]) + 1 if len(order) else 0].copy(), gram


def _table(
    begin: np.ndarray, length: np.ndarray, keys: np.ndarray, least: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.uint64, int]:
    """The arguments that the kernels search with."""
    begins, where = _numbered(begin)
    lengths = kernel.length_bits(where, length - least, len(begins))
    slots = max(64, _BITS_A_WINDOW * len(begins))
    shift = 64 - min(30, int(slots - 1).bit_length())
    return kernel.filter_bits(begins, shift), begins, lengths, keys, np.uint64(shift), least


def different_ngrams(docs: Documents, rows: np.ndarray, size: int) -> np.ndarray:
    """int64[documents]: how many different runs of `size` words the documents of these rows have;
    0 of the others."""
    table = words(docs)
    counts = np.zeros(len(docs), np.int64)
    for row in rows.tolist():
        values = table.hash[table.rows[row] : table.rows[row + 1]]
        at = np.arange(max(0, len(values) - size + 1))
        _, key = kernel.window_hashes(values, at, np.full(len(at), size), size)
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
            values = kernel.character_values()
            count = kernel.find_characters(data, offsets, values, search.most, search.table, hits)
        else:
            t = words(docs)
            count = kernel.find_words(offsets, t.rows, t.hash, t.start, t.end, search.table, hits)
        if count <= capacity:
            gram, row, first, last = (a[:count] for a in hits)
            return row, gram, first, last
        capacity = count
