"""The windows of evaluation items that documents are searched for, and the table to search with.

Three ways of cutting an item into windows, each with its source:

- `13-gram` (GPT-3, Brown et al. 2020): all runs of N words. N is the 5th percentile of the lengths
  of a set's items in words, at least 8, at most 13 (appendix C). An item shorter than N words is
  one window as a whole (section 4: "or that overlap with the whole example when it is shorter").
- `50-char` (GPT-4 technical report, appendix C): runs of 50 letters and digits, "or the entire
  example if it's less than 50 characters". All runs, or `samples` random ones; the report takes 3.
- `overlap` (PaLM, Chowdhery et al. 2022, section 8): all runs of 8 words.

Items shorter than `shortest` have no window, and neither has text that more than `max_items` items
share: instructions and templates of a set say nothing of its items.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import xxhash

from curate.dedup import decontaminate_kernel as kernel
from curate.dedup.decontaminate_items import Item
from curate.text.buffers import as_large_string, text_buffers
from curate.text.words import word_table, words

if TYPE_CHECKING:
    from curate.documents import Documents

LEAST_WORDS, MOST_WORDS, PERCENTILE = 8, 13, 5  # Brown et al. 2020, appendix C
CHARACTERS = 50  # GPT-4 technical report, appendix C
SHORTEST = {"13-gram": 8, "50-char": 25, "overlap": 8}
_BITS_A_WINDOW = 16
_FIRST_ROOM = 4096


@dataclass(frozen=True)
class Cutting:
    """How items become windows. mode: as above; ngram: words a window of `overlap`; shortest:
    units of the shortest item; samples: windows an item, null for all; seed: for samples."""

    mode: str
    ngram: int
    shortest: int
    samples: int | None
    seed: int
    max_items: int | None

    @property
    def by_character(self) -> bool:
        """Whether units are letters and digits, not words."""
        return self.mode == "50-char"


@dataclass(frozen=True)
class Windows:
    """All windows of all items, and the table that finds them.

    items: as read; units: int64[items]; lengths: units a window by set; rows: int64[items + 1],
    the first window of each item; gram: int64[windows], an index of `keys`; start, end:
    int64[windows], bytes of the item's text; shared: bool[items], items that lost windows to
    `max_items`. table: what the kernels take (bits, begins, lengths, keys, shift, least).
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
    table: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.uint64, int]
    most: int  # units of the longest window

    @property
    def distinct(self) -> np.ndarray:
        """int64[items]: different windows of each item."""
        item = np.repeat(np.arange(len(self.items)), np.diff(self.rows))
        pairs = np.unique(np.stack([item, self.gram]), axis=1)
        return np.bincount(pairs[0], minlength=len(self.items)).astype(np.int64)


def cut_windows(items: list[Item], cutting: Cutting) -> Windows:
    """The windows of all items under one way of cutting."""
    data, offsets = text_buffers(as_large_string(pa.array([i.text for i in items], pa.string())))
    if cutting.by_character:
        rows, values, start, end = kernel.characters(data, offsets, kernel.character_values())
    else:
        table = word_table(data, offsets)
        rows, values, start, end = table.rows, table.hash, table.start, table.end
    units = np.diff(rows)
    names = [item.set for item in items]
    lengths = {name: _length(name, names, units, cutting) for name in dict.fromkeys(names)}
    item, at, length = _places(items, rows, units, lengths, cutting)
    least, most = (int(length.min()), int(length.max())) if len(length) else (1, 1)
    begin, key = kernel.window_hashes(values, at, length, least)
    keys, gram = np.unique(key, return_inverse=True)
    shared = np.zeros(len(items), np.bool_)
    dropped = 0
    if cutting.max_items is not None and len(gram):
        pairs = np.unique(np.stack([gram.astype(np.int64), item]), axis=1)
        common = np.bincount(pairs[0], minlength=len(keys)) > cutting.max_items
        dropped = int(common.sum())
        good = ~common[gram]
        shared[item[~good]] = True
        item, at, length, begin, key = (a[good] for a in (item, at, length, begin, key))
        keys, gram = np.unique(key, return_inverse=True)
    base = offsets[item]
    return Windows(
        items,
        cutting,
        units,
        lengths,
        np.searchsorted(item, np.arange(len(items) + 1)),
        gram.astype(np.int64),
        start[at] - base,
        end[at + length - 1] - base,
        shared,
        dropped,
        _table(begin, length, keys, least),
        most,
    )


def _length(name: str, names: list[str], units: np.ndarray, cutting: Cutting) -> int:
    """Units a window of one set."""
    if cutting.by_character:
        return CHARACTERS
    if cutting.mode == "overlap":
        return cutting.ngram
    mine = units[np.array([n == name for n in names])]
    mine = mine[mine > 0]
    if len(mine) == 0:
        return MOST_WORDS
    fifth = int(np.percentile(mine, PERCENTILE, method="lower"))
    return min(max(fifth, LEAST_WORDS), MOST_WORDS)


def _places(
    items: list[Item],
    rows: np.ndarray,
    units: np.ndarray,
    lengths: dict[str, int],
    cutting: Cutting,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(item, first unit, units: int64[windows]) in order."""
    whole = np.array([lengths[i.set] for i in items], np.int64)
    whole = np.where(units < whole, np.where(units >= cutting.shortest, units, 0), whole)
    count = np.where(whole > 0, units - whole + 1, 0)
    if cutting.samples is None or not len(items):
        item = np.repeat(np.arange(len(items)), count)
        at = np.arange(len(item)) - np.repeat(np.cumsum(count) - count, count)
    else:
        drawn = [_drawn(i, int(n), cutting) for i, n in zip(items, count, strict=True)]
        item = np.repeat(np.arange(len(items)), [len(d) for d in drawn])
        at = np.concatenate(drawn) if drawn else np.empty(0, np.int64)
    return item, (rows[item] + at).astype(np.int64), whole[item]


def _drawn(item: Item, count: int, cutting: Cutting) -> np.ndarray:
    """The sampled windows of one item, which depend on the seed and the item alone."""
    assert cutting.samples is not None
    if count <= cutting.samples:
        return np.arange(count)
    name = f"{cutting.seed}\0{item.set}\0{item.id}".encode()
    draw = np.random.Generator(np.random.PCG64(xxhash.xxh3_64_intdigest(name)))
    return np.sort(draw.choice(count, cutting.samples, replace=False))


def _table(
    begin: np.ndarray, length: np.ndarray, keys: np.ndarray, least: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.uint64, int]:
    """What the kernels search with."""
    begins, where = np.unique(begin, return_inverse=True)
    lengths = np.zeros(len(begins), np.uint64)
    np.bitwise_or.at(lengths, where, np.uint64(1) << (length - least).astype(np.uint64))
    wanted = max(64, _BITS_A_WINDOW * len(begins))
    shift = 64 - min(30, int(wanted - 1).bit_length())
    return kernel.filter_bits(begins, shift), begins, lengths, keys, np.uint64(shift), least


def find(
    docs: Documents, windows: Windows
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(row, gram, first, last: int64[hits]): every place of a window in a batch, in order of row
    and place; bytes of the document, `last` being the one behind."""
    data, offsets = docs.buffers()
    room = _FIRST_ROOM
    while True:
        hits = tuple(np.empty(room, np.int64) for _ in range(4))
        if len(windows.table[1]) == 0:
            count = 0
        elif windows.cutting.by_character:
            values = kernel.character_values()
            count = kernel.find_characters(data, offsets, values, windows.most, windows.table, hits)
        else:
            t = words(docs)
            count = kernel.find_words(offsets, t.rows, t.hash, t.start, t.end, windows.table, hits)
        if count <= room:
            gram, row, first, last = (a[:count] for a in hits)
            return row, gram, first, last
        room = count
