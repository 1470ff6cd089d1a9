"""Hash tables of a model's n-grams, one table (level) per order; sorting n-grams; scoring texts.

Level 1 is the words themselves; the other levels are in one array. An entry of level n is two
64-bit numbers: the key + 1 (0 if empty), and log10 probability and back-off as two float32. The key
identifies an n-gram exactly. It is s * 2^32 + the first word's id, where s is the slot in level n -
1 of the n-gram's last n - 1 words.

For sorting, an n-gram has a sort key of 128 bits (hi, lo: uint64), with the last word in the
highest bits. So n-grams with the same end are adjacent, the suffix order of Heafield et al. 2013.
With B bits per word, the sort key of an N-gram's last n words is the N-gram's sort key >> (N - n)B.
If the sort keys exceed memory, runs of them are sorted in memory, written to disk and merged in one
pass. The files are memory-mapped columns of numbers, read in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from curate.text.hashing import mix
from llmcurate.base.disk.files import allocate
from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import prefetch

BITS = 128
BOS = 1  # the id of <s>
_64 = np.uint64(64)
_ONE = np.uint64(1)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_DIGIT = 11  # bits per pass of the radix sort


@njit(nogil=True, inline="always")
def shift_right(hi, lo, k):
    if k == 0:
        return hi, lo
    if k >= _64:
        return np.uint64(0), hi >> (k - _64) if k < np.uint64(128) else np.uint64(0)
    return hi >> k, (lo >> k) | (hi << (_64 - k))


@njit(nogil=True, inline="always")
def shift_left(hi, lo, k):
    if k == 0:
        return hi, lo
    if k >= _64:
        return lo << (k - _64) if k < np.uint64(128) else np.uint64(0), np.uint64(0)
    return (hi << k) | (lo >> (_64 - k)), lo << k


@njit(nogil=True, inline="always")
def low_bits(hi, lo, k):
    if k >= _64:
        if k == _64:
            return np.uint64(0), lo
        return hi & (_ALL >> (np.uint64(128) - k)), lo
    return np.uint64(0), lo & ((_ONE << k) - _ONE)


@njit(nogil=True, inline="always")
def less(ahi, alo, bhi, blo):
    return ahi < bhi or (ahi == bhi and alo < blo)


@njit(cache=True, nogil=True)
def ngram_keys(ids, ends, order, bits):
    """Return the keys (hi, lo) of the n-grams that end at each word and at the </s> (id 2) of each
    sentence. `ids` is uint32[words]. `ends` is int64[sentences], the end of each sentence in `ids`.
    At the beginning of a sentence, <s> stands for missing words."""
    n = len(ids) + len(ends)
    hi, lo = np.empty(n, np.uint64), np.empty(n, np.uint64)
    width, top = np.uint64(bits), np.uint64((order - 1) * bits)
    bhi, blo = np.uint64(0), np.uint64(0)
    for _ in range(order):
        bhi, blo = shift_left(bhi, blo, width)
        blo |= np.uint64(BOS)
    k = begin = 0
    for s in range(len(ends)):
        ahi, alo = bhi, blo
        for i in range(begin, ends[s] + 1):
            word = np.uint64(ids[i]) if i < ends[s] else np.uint64(2)
            whi, wlo = shift_left(np.uint64(0), word, top)
            ahi, alo = shift_right(ahi, alo, width)
            ahi |= whi
            alo |= wlo
            hi[k], lo[k] = ahi, alo
            k += 1
        begin = ends[s]
    return hi, lo


@njit(cache=True, nogil=True)
def context_keys(hi, lo, order, bits):
    """Return keys that sort n-grams by context (all words but the last), then by last word. The
    last word moves to the lowest bits; the bits above are the key of the context, an (n-1)-gram."""
    outh, outl = np.empty_like(hi), np.empty_like(lo)
    width, context_bits = np.uint64(bits), np.uint64((order - 1) * bits)
    for i in range(len(hi)):
        _, word = shift_right(hi[i], lo[i], context_bits)
        chi, clo = low_bits(hi[i], lo[i], context_bits)
        chi, clo = shift_left(chi, clo, width)
        outh[i], outl[i] = chi, clo | word
    return outh, outl


@njit(cache=True, nogil=True)
def words_of(hi, lo, order, bits):
    """Return uint32[n, order]: the ids of the words of each n-gram, first word first."""
    out = np.empty((len(hi), order), np.uint32)
    width = np.uint64(bits)
    mask = (_ONE << width) - _ONE
    for i in range(len(hi)):
        ahi, alo = hi[i], lo[i]
        for k in range(order):
            out[i, k] = alo & mask
            ahi, alo = shift_right(ahi, alo, width)
    return out


@njit(cache=True, nogil=True)
def sort_order(hi, lo, bits):
    """Return int64[n]: the stable order of keys of `bits` bits, found by a radix sort."""
    n = len(hi)
    order, next_order = np.arange(n), np.empty(n, np.int64)
    shi, slo = hi.copy(), lo.copy()
    thi, tlo = np.empty_like(hi), np.empty_like(lo)
    counts = np.empty((1 << _DIGIT) + 1, np.int64)
    mask = np.uint64((1 << _DIGIT) - 1)
    for first in range(0, bits, _DIGIT):
        counts[:] = 0
        shift = np.uint64(first)
        for i in range(n):
            _, low = shift_right(shi[i], slo[i], shift)
            counts[np.int64(low & mask) + 1] += 1
        for k in range(1 << _DIGIT):
            counts[k + 1] += counts[k]
        for i in range(n):
            _, low = shift_right(shi[i], slo[i], shift)
            d = np.int64(low & mask)
            at = counts[d]
            counts[d] = at + 1
            thi[at], tlo[at], next_order[at] = shi[i], slo[i], order[i]
        shi, thi = thi, shi
        slo, tlo = tlo, slo
        order, next_order = next_order, order
    return order


CHUNK = 1 << 18  # rows per chunk of a merge


class Column:
    """A file of numbers, to which numbers are appended and which is read through a memory map."""

    def __init__(self, path: Path, dtype: str) -> None:
        self.path, self.dtype, self.rows = path, np.dtype(dtype), 0
        self._file = open(path, "wb")  # noqa: SIM115

    def append(self, values: np.ndarray) -> None:
        self._file.write(np.ascontiguousarray(values, self.dtype).data)
        self.rows += len(values)

    def array(self) -> np.ndarray:
        self._file.flush()
        if self.rows == 0:
            return np.empty(0, self.dtype)
        return np.asarray(np.memmap(self.path, self.dtype, "r+", shape=(self.rows,)))

    def close(self) -> None:
        self._file.close()

    def remove(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)


def mapped(path: Path, rows: int, dtype: str) -> np.ndarray:
    if rows == 0:
        return np.empty(0, dtype)
    array = np.asarray(np.memmap(path, dtype, "w+", shape=(rows,)))
    allocate(path)
    return array


@njit(nogil=True)
def _sift(heap, size, at, hi, lo, heads):
    run = heap[at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size:
            a, b = heads[heap[child + 1]], heads[heap[child]]
            if less(hi[a], lo[a], hi[b], lo[b]) or (
                hi[a] == hi[b] and lo[a] == lo[b] and heap[child + 1] < heap[child]
            ):
                child += 1
        a, b = heads[heap[child]], heads[run]
        first = less(hi[a], lo[a], hi[b], lo[b])
        if not first and not (hi[a] == hi[b] and lo[a] == lo[b] and heap[child] < run):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = run


@njit(cache=True, nogil=True)
def _start(hi, lo, heads, ends, heap):
    size = np.int64(0)
    for r in range(len(heads)):
        if heads[r] < ends[r]:
            heap[size] = r
            size += 1
    for at in range(size // 2, -1, -1):
        if at < size:
            _sift(heap, size, at, hi, lo, heads)
    return size


@njit(cache=True, nogil=True)
def _merge(hi, lo, heads, ends, heap, size, out):
    n = 0
    while n < len(out) and size > 0:
        run = heap[0]
        out[n] = heads[run]
        n += 1
        heads[run] += 1
        if heads[run] == ends[run]:
            size -= 1
            heap[0] = heap[size]
        if size > 0:
            _sift(heap, size, np.int64(0), hi, lo, heads)
    return n, size


class Sorter:
    """Sorts rows with a 128-bit key and further columns. Rows with equal keys keep their order.
    `rows` is the number of rows to sort in memory at once. `columns` are the dtypes by name."""

    def __init__(self, folder: Path, name: str, bits: int, rows: int, columns: dict[str, str]):
        self.bits, self.most = bits, max(1, rows)
        kinds = {"hi": "u8", "lo": "u8", **columns}
        self._files = {c: Column(folder / f"{name}.{c}.run", d) for c, d in kinds.items()}
        self._ends: list[int] = [0]

    def add(self, *columns: np.ndarray) -> None:
        """Add rows, given as columns: hi and lo of the key, then the further columns."""
        for begin in range(0, len(columns[0]), self.most):
            part = [c[begin : begin + self.most] for c in columns]
            order = sort_order(part[0], part[1], self.bits)
            for file, values in zip(self._files.values(), part, strict=True):
                file.append(values[order])
            self._ends.append(self._ends[-1] + len(order))

    @property
    def runs(self) -> int:
        return len(self._ends) - 1

    def sorted(self) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield all rows in order of the keys, in chunks. The columns are in the order of `add`."""
        arrays = [f.array() for f in self._files.values()]
        hi, lo = arrays[:2]
        heads, ends = np.array(self._ends[:-1], np.int64), np.array(self._ends[1:], np.int64)
        heap, out = np.empty(len(heads) + 1, np.int64), np.empty(CHUNK, np.int64)
        size = _start(hi, lo, heads, ends, heap)
        while size:
            n, size = _merge(hi, lo, heads, ends, heap, size, out)
            yield tuple(a[out[:n]] for a in arrays)

    def remove(self) -> None:
        for file in self._files.values():
            file.remove()


LOAD = 1.5  # slots per n-gram
BUCKET = 4  # slots of 16 bytes: one cache line
MOST_SLOTS = (1 << 32) - 2 * BUCKET
NOT_THERE = np.int64(-1)
_BLOCK = 512  # words scored together: their data stays in the fastest caches
_32 = np.uint64(32)
_2, _4, _6 = np.uint64(2), np.uint64(4), np.uint64(6)
_WIDE = np.uint64(2 * BUCKET)  # uint64 numbers per bucket


@njit(nogil=True, inline="always")
def _home(key, buckets):
    return np.int64(((mix(key) >> _32) * np.uint64(buckets)) >> _32)


@njit(nogil=True)
def find_entry(entries, first, slots, key):
    """Return the slot of a key in the level that begins at `first`, or NOT_THERE. A bucket is
    filled from its first slot; when it is full, keys go to a later bucket."""
    at = _home(key, slots // BUCKET) * BUCKET
    for _ in range(slots):
        stored = entries[2 * (first + at)]
        if stored == key + _ONE:
            return at
        if stored == 0:
            return NOT_THERE
        at += 1
        if at == slots:
            at = 0
    return NOT_THERE


@njit(nogil=True)
def _slot_of(entries, firsts, words, i, skip):
    n = words.shape[1]
    slot = np.int64(words[i, n - 1])
    for k in range(n - 2, skip - 1, -1):
        level = n - k
        key = (np.uint64(slot) << _32) | np.uint64(words[i, k])
        first, slots = firsts[level], firsts[level + 1] - firsts[level]
        slot = find_entry(entries, first, slots, key)
        if slot < 0:
            return NOT_THERE
    return slot


@njit(cache=True, nogil=True)
def insert(entries, values, firsts, words, prob, backoff):
    """Add n-grams of n words to their level (hash table). Return -1 if all were added. Else, for
    the first bad row i, return i if its last n - 1 words are missing in the level below, and -2 - i
    if its n-gram is there already.

    `values` is `entries` viewed as float32. `firsts` is int64[order + 2], the first entry of each
    level. `words` is uint32[rows, n]. `prob` and `backoff` are float32[rows], log10."""
    n = words.shape[1]
    first, slots = firsts[n], firsts[n + 1] - firsts[n]
    for i in range(len(words)):
        below = _slot_of(entries, firsts, words, i, 1)
        if below < 0:
            return i
        key = (np.uint64(below) << _32) | np.uint64(words[i, 0])
        at = _home(key, slots // BUCKET) * BUCKET
        while entries[2 * (first + at)] != 0:
            if entries[2 * (first + at)] == key + _ONE:
                return -2 - i
            at += 1
            if at == slots:
                at = 0
        entries[2 * (first + at)] = key + _ONE
        values[4 * (first + at) + 2] = prob[i]
        values[4 * (first + at) + 3] = backoff[i]
    return -1


@njit(cache=True, nogil=True)
def missing(entries, firsts, words):
    """Return the index of the first n-gram that the hash tables lack, or -1 if they lack none.
    `words` (uint32[rows, n]) has one n-gram per row."""
    for i in range(len(words)):
        if _slot_of(entries, firsts, words, i, 0) < 0:
            return i
    return -1


@njit(cache=True, nogil=True)
def level_words(entries, firsts, n, vocab, out, prob, backoff, values):
    """Copy the n-grams of n words from their hash table to `out` (uint32[rows, n]), and their
    values to `prob` and `backoff` (float32[rows]). The copies are in the order of the table, not
    sorted. Return the number of n-grams, or -1 if the table is damaged. entries, firsts: made by
    `tables`; values: `entries` as float32; vocab: the number of words."""
    rows = 0
    for at in range(firsts[n + 1] - firsts[n]):
        stored = entries[2 * (firsts[n] + at)]
        if stored == 0:
            continue
        if rows == len(out):
            return -1
        level, slot = n, np.int64(at)
        for k in range(n - 1):
            if level > 1 and slot >= firsts[level + 1] - firsts[level]:
                return -1
            key = entries[2 * (firsts[level] + slot)] - _ONE
            word = key & np.uint64(0xFFFFFFFF)
            if entries[2 * (firsts[level] + slot)] == 0 or word >= np.uint64(vocab):
                return -1
            out[rows, k] = np.uint32(word)
            slot = np.int64(key >> _32)
            level -= 1
        if slot >= vocab:
            return -1
        out[rows, n - 1] = np.uint32(slot)
        prob[rows] = values[4 * (firsts[n] + at) + 2]
        backoff[rows] = values[4 * (firsts[n] + at) + 3]
        rows += 1
    return rows


@njit(nogil=True)
def _level(entries, values, firsts, n, ids, count, level, slot, prob, backs, homes, todo):
    # Positions are unsigned, because numba checks signed indexes for negative values.
    start, end = np.uint64(2 * firsts[n]), np.uint64(2 * firsts[n + 1])
    buckets = (firsts[n + 1] - firsts[n]) // BUCKET
    this_level, before = np.uint8(n), np.uint8(n - 1)
    back_row = backs[n]
    waiting = np.uint64(0)
    for k in range(n - 1, count):
        i = np.uint64(k)
        todo[waiting] = i
        waiting += np.uint64((level[i] == before) & (level[i - _ONE] >= before) & (ids[i] != BOS))
    reach = np.uint64(n - 1)
    for k in range(waiting):
        j = np.uint64(k)
        i = todo[j]
        key = (slot[i] << _32) | np.uint64(ids[i - reach])
        at = start + np.uint64(_home(key, buckets)) * _WIDE
        homes[j] = at
        prefetch(entries, at)
    for _ in range(buckets):
        if waiting == 0:
            break
        again = np.uint64(0)
        for k in range(waiting):
            j = np.uint64(k)
            i = todo[j]
            want = ((slot[i] << _32) | np.uint64(ids[i - reach])) + _ONE
            # Without branches, because the slot cannot be predicted.
            at = homes[j]
            last = entries[at + _6]
            at_first, at_second = (
                np.uint64(entries[at + _2] == want),
                np.uint64(entries[at + _4] == want),
            )
            at_third = np.uint64(last == want)
            hit = (np.uint64(entries[at] == want) | at_first | at_second | at_third) != 0
            on = at + _WIDE
            on = start if on == end else on
            at += _2 * at_first + _4 * at_second + _6 * at_third
            log10, back = values[_2 * at + _2], values[_2 * at + _2 + _ONE]
            was, old_slot, less = level[i], slot[i], prob[i]
            level[i] = this_level if hit else was
            slot[i] = (at - start) >> _ONE if hit else old_slot
            prob[i] = log10 if hit else less
            back_row[i] = back if hit else np.float32(0)
            full = (not hit) & (last != 0)
            todo[again], homes[again] = i, on
            prefetch(entries, on if full else at)
            again += np.uint64(full)
        waiting = again


@njit(cache=True, nogil=True)
def score(entries, values, firsts, word_prob, word_backoff, ids, ends, sums, floats):
    """Compute the log10 probabilities of sentences, each between <s> and </s>. `ids` is
    uint32[words], below the vocabulary's size. `ends` is int64[sentences], each sentence's end in
    `ids`. Fills `sums` (float64[sentences]) and `floats` (float32[sentences], summed as in KenLM).
    """
    order = len(firsts) - 2
    room, begin = np.int64(_BLOCK), np.int64(0)
    for s in range(len(ends)):
        room = max(room, ends[s] - begin + 2)
        begin = ends[s]
    line = np.empty(room, np.uint32)
    level, slot = np.empty(room, np.uint8), np.empty(room, np.uint64)
    prob, backs = np.empty(room, np.float32), np.zeros((order + 1, room), np.float32)
    homes, todo = np.empty(room + 1, np.uint64), np.empty(room + 1, np.uint64)
    s, begin = 0, np.int64(0)
    while s < len(ends):
        first_sentence, count = s, 0
        while s < len(ends) and (count == 0 or count + ends[s] - begin + 2 <= _BLOCK):
            line[count] = BOS
            for i in range(begin, ends[s]):
                line[count + 1 + i - begin] = ids[i]
            count += ends[s] - begin + 2
            line[count - 1] = 2
            begin = ends[s]
            s += 1
        for i in range(count):
            word = line[i]
            level[i] = 1
            slot[i] = word
            prob[i] = word_prob[word]
            backs[1, i] = word_backoff[word]
        for n in range(2, order + 1):
            backs[n, :count] = 0
            _level(entries, values, firsts, n, line, count, level, slot, prob, backs, homes, todo)
        # Add the back-offs of contexts in the model that are at least as long as the n-gram found.
        for n in range(1, order):
            for i in range(1, count):
                prob[i] += backs[n, i - 1] if level[i] <= n else np.float32(0)
        at = np.int64(1)
        for sentence in range(first_sentence, s):
            total, single = 0.0, np.float32(0)
            while line[at] != BOS:
                total += prob[at]
                single += prob[at]
                at += 1
                if at == count:
                    break
            sums[sentence], floats[sentence] = total, single
            at += 1


# (words: uint32[rows, n], prob: float32[rows], backoff: float32[rows]), log10
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]
Allocate = Callable[[int], np.ndarray]


class NotClosed(Exception):
    """An n-gram, `words` (uint32[n]), cannot be added: its first or last n - 1 words are not in the
    model as an (n-1)-gram, or the n-gram appears twice."""

    def __init__(self, words: np.ndarray, why: str) -> None:
        super().__init__(why)
        self.words, self.why = words, why


def starts(counts: Sequence[int]) -> np.ndarray:
    """Return int64[order + 2], from the number of n-grams of each order. Index n holds the position
    of level n in the array of entries (level 1 has none). The last index holds its length."""
    slots = (int(n * LOAD) + 1 for n in counts[1:])  # one is always free
    sizes = [0, 0, *(-(-n // BUCKET) * BUCKET for n in slots)]
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def tables(
    counts: Sequence[int], levels: Iterable[Iterable[Rows]], allocate: Allocate
) -> tuple[np.ndarray, np.ndarray]:
    """Build hash tables of n-grams, one table (level) for each n from 2 to the model's order.

    Return (firsts: int64[order + 2], the first entry of each level; entries: uint64[], all tables).
    counts: the number of n-grams of each level from 1 on. levels: for each level from 2 on, its
    n-grams in batches. allocate: makes an array of zeros. Raises NotClosed if an n-gram appears
    twice, or if its first or last n - 1 words are not an n-gram of the level below."""
    firsts = starts(counts)
    entries = allocate(2 * int(firsts[-1]))
    values = entries.view(np.float32)
    for level in levels:
        for words, prob, backoff in level:
            beginnings = np.ascontiguousarray(words[:, :-1])
            lacks = missing(entries, firsts, beginnings) if words.shape[1] > 2 else -1
            if lacks >= 0:
                raise NotClosed(words[lacks], "its beginning is not an n-gram of the model")
            at = insert(entries, values, firsts, words, prob, backoff)
            if at < -1:
                raise NotClosed(words[-2 - at], "it appears twice")
            if at >= 0:
                raise NotClosed(words[at], "its end is not an n-gram of the model")
    return firsts, entries


def level(entries: np.ndarray, firsts: np.ndarray, counts: Sequence[int], n: int) -> Rows:
    """Return the n-grams of n words, sorted, for n > 1. Raises ValueError if the hash tables
    (`entries`) are damaged."""
    rows = counts[n - 1]
    words = np.empty((rows, n), np.uint32)
    prob, backoff = np.empty(rows, np.float32), np.empty(rows, np.float32)
    values = entries.view(np.float32)
    count = level_words(entries, firsts, n, counts[0], words, prob, backoff, values)
    if count != rows:
        raise ValueError(f"the {n}-grams are damaged")
    order = np.lexsort(tuple(words[:, k] for k in range(n - 1, -1, -1)))
    return words[order], prob[order], backoff[order]


def batches(rows: Rows, size: int) -> Iterator[Rows]:
    for a in range(0, len(rows[0]), size):
        yield rows[0][a : a + size], rows[1][a : a + size], rows[2][a : a + size]
