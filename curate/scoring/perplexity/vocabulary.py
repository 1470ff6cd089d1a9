"""Words and their numbers: a hash table from bytes to ids, exact, since it compares the bytes.

0 is <unk>, 1 <s>, 2 </s>; a text that holds these as words holds unknown words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import load8, load_few, prefetch, stir

SPECIAL = (b"<unk>", b"<s>", b"</s>")
UNK, EOS = 0, 2
BUCKET = 4  # slots of 16 bytes: what one load from memory brings
BLOCK = 512  # words that are looked up together
_ONE, _2, _4, _6 = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(6)
_8, _32 = np.uint64(8), np.uint64(32)
_WIDE = np.uint64(2 * BUCKET)  # numbers of a bucket
_LOW = np.uint64(0xFFFFFFFF)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@njit(nogil=True, inline="always")
def _bytes(data, i, n):
    """The first n <= 8 bytes from i as `load8` places them."""
    if i + _8 <= np.uint64(len(data)):  # loads what is behind them too, and takes it off
        short = n < _8
        mask = ~(_ALL << ((n if short else np.uint64(0)) * _8))
        return load8(data, i) & (mask if short else _ALL)
    return load_few(data, i, n)


@njit(nogil=True)
def word_key(data, start, size):
    """What a word is known by, beside its size: up to 8 bytes themselves, else a hash of them."""
    i, n = np.uint64(start), np.uint64(size)
    value = _bytes(data, i, n if n < _8 else _8)
    if n > _8:
        value = stir(value)
        stop = i + n
        i += _8
        while i < stop:
            value = stir(value ^ _bytes(data, i, stop - i if stop - i < _8 else _8))
            i += _8
    return value


@njit(nogil=True, inline="always")
def home(key, size, slots):
    """Where the bucket begins that is looked at first."""
    spread = stir(key ^ np.uint64(size)) >> _32
    return ((spread * (np.uint64(len(slots)) // _WIDE)) >> _32) * _WIDE


@njit(nogil=True)
def _same(data, start, size, blob, a):
    """Whether blob[a:] begins with data[start : start + size]."""
    for k in range(size):
        if blob[a + k] != data[start + k]:
            return False
    return True


@njit(nogil=True)
def _place(data, start, size, key, blob, offsets, slots, at):
    """(where it stands in slots, id) of a word, looked for from `at` on; id -1 where it is not in
    the table, and then len(slots) where the table is full."""
    meant = np.uint64(size) << _32
    for _ in range(len(slots) // 2):
        have = slots[at + _ONE]
        if have == 0:
            return at, np.int64(-1)
        if slots[at] == key and have & ~_LOW == meant:
            word = np.int64(have & _LOW) - 1
            if size <= 8:
                return at, word
            if word < len(offsets) - 1:
                a = offsets[word]
                if offsets[word + 1] - a == size and _same(data, start, size, blob, a):
                    return at, word
        at += _2
        if at == np.uint64(len(slots)):
            at = np.uint64(0)
    return np.uint64(len(slots)), np.int64(-1)


@njit(nogil=True)
def resolve(data, start, size, keys, places, count, blob, offsets, slots, out, first):
    """out[first:]: uint32, the ids of `count` words whose keys and first buckets are known."""
    most = np.uint64(len(offsets) - 1)
    for i in range(count):
        key, at = keys[i], places[i]
        meant = np.uint64(size[i]) << _32
        # Without branches: which slot of the bucket it is cannot be foretold.
        h0, h1 = slots[at + _ONE], slots[at + _2 + _ONE]
        h2, h3 = slots[at + _4 + _ONE], slots[at + _6 + _ONE]
        w0 = np.uint64((slots[at] == key) & (h0 & ~_LOW == meant))
        w1 = np.uint64((slots[at + _2] == key) & (h1 & ~_LOW == meant))
        w2 = np.uint64((slots[at + _4] == key) & (h2 & ~_LOW == meant))
        w3 = np.uint64((slots[at + _6] == key) & (h3 & ~_LOW == meant))
        number = (h0 * w0 | h1 * w1 | h2 * w2 | h3 * w3) & _LOW
        sure = size[i] <= 8 or number == 0
        if not sure and number <= most and size[i] <= 16:
            # The key is a hash: compares the first eight bytes and the last ones.
            a, back = np.uint64(offsets[number - _ONE]), np.uint64(size[i]) - _8
            position = np.uint64(start[i])
            sure = (
                np.uint64(offsets[number]) - a == np.uint64(size[i])
                and load8(blob, a) == load8(data, position)
                and load8(blob, a + back) == load8(data, position + back)
            )
        if not sure or (number == 0 and h3 != 0):
            _, place = _place(data, start[i], size[i], key, blob, offsets, slots, at)
            number = np.uint64(place + 1)
        out[first + i] = number - _ONE if _4 <= number <= most else np.uint64(0)


@njit(cache=True, nogil=True)
def word_ids(data, start, end, blob, offsets, slots):
    """uint32[words]: the ids of data[start:end]; 0 where a word is not known."""
    out = np.zeros(len(start), np.uint32)
    keys, places = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64)
    sizes = end - start
    for begin in range(0, len(start), BLOCK):
        stop = min(begin + BLOCK, len(start))
        for i in range(begin, stop):
            keys[i - begin] = word_key(data, start[i], sizes[i])
            places[i - begin] = home(keys[i - begin], sizes[i], slots)
            prefetch(slots, places[i - begin])
        resolve(
            data, start[begin:], sizes[begin:], keys, places, stop - begin, blob, offsets, slots,
            out, begin,
        )  # fmt: skip
    return out


@njit(cache=True, nogil=True)
def _grow(data, start, end, blob, offsets, slots, words, out):
    """Ids of all words, new ones added; returns the number of words. There must be room."""
    for i in range(len(start)):
        size = end[i] - start[i]
        key = word_key(data, start[i], size)
        at = home(key, size, slots)
        at, word = _place(data, start[i], size, key, blob, offsets[: words + 1], slots, at)
        if word < 0:
            a = offsets[words]
            for k in range(size):
                blob[a + k] = data[start[i] + k]
            offsets[words + 1] = a + size
            word = np.int64(words)
            slots[at] = key
            slots[at + _ONE] = (np.uint64(size) << _32) | np.uint64(word + 1)
            words += 1
        out[i] = word if word > 2 else 0
    return words


@njit(cache=True, nogil=True)
def _fill(blob, offsets, slots):
    """Puts all words into an empty table; returns an id that is there twice, or -1."""
    for i in range(len(offsets) - 1):
        size = offsets[i + 1] - offsets[i]
        key = word_key(blob, offsets[i], size)
        at = home(key, size, slots)
        at, word = _place(blob, offsets[i], size, key, blob, offsets[: i + 1], slots, at)
        if word >= 0:
            return i
        slots[at] = key
        slots[at + _ONE] = (np.uint64(size) << _32) | np.uint64(i + 1)
    return -1


@dataclass(frozen=True)
class Vocabulary:
    """blob: uint8[], the words; offsets: int64[words + 1]; slots: uint64[], two a slot: the word's
    key, then its size (32 bits) and its id + 1; 0 is free. Slots are looked through from the
    beginning of a bucket on. Another key needs another version of the model's file."""

    blob: np.ndarray
    offsets: np.ndarray
    slots: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def ids(self, data: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """uint32[words] of data[start:end]; data: uint8[]; start, end: int64[words]."""
        return word_ids(data, start, end, self.blob, self.offsets, self.slots)

    def words(self) -> list[bytes]:
        """All words, by id."""
        blob, ends = self.blob.tobytes(), self.offsets.tolist()
        return [blob[a:z] for a, z in pairwise(ends)]


def _slots(words: int) -> np.ndarray:
    """A table with room for so many words, and one slot at least that stays free."""
    return np.zeros(2 * BUCKET * (words // 2 + 1), np.uint64)


def vocabulary(words: Sequence[bytes]) -> Vocabulary:
    """The vocabulary of words by id; ValueError where one is there twice."""
    blob = np.frombuffer(bytearray().join(words), np.uint8)
    offsets = np.zeros(len(words) + 1, np.int64)
    np.cumsum([len(w) for w in words], out=offsets[1:])
    slots = _slots(len(words))
    twice = _fill(blob, offsets, slots)
    if twice >= 0:
        raise ValueError(f"the word {words[twice].decode('utf-8', 'replace')!r} is there twice")
    return Vocabulary(blob, offsets, slots)


class Growing:
    """A vocabulary that takes in new words, numbered as they come, and counts them."""

    def __init__(self) -> None:
        start = vocabulary(SPECIAL)
        self.words = len(SPECIAL)
        self._blob, self._offsets = np.empty(1 << 16, np.uint8), np.zeros(1 << 12, np.int64)
        self._blob[: len(start.blob)] = start.blob
        self._offsets[: len(start.offsets)] = start.offsets
        self._slots = _slots(0)
        self.counts = np.zeros(len(SPECIAL), np.int64)

    def add(self, data: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """uint32[words]: ids of data[start:end]."""
        out = np.empty(len(start), np.uint32)
        step = 1 << 16  # words that get room at once
        for a in range(0, len(start), step):
            part, stop = start[a : a + step], end[a : a + step]
            self._room(len(part), int((stop - part).sum()))
            self.words = _grow(
                data,
                part,
                stop,
                self._blob,
                self._offsets,
                self._slots,
                self.words,
                out[a : a + step],
            )
        if len(self.counts) < self.words:
            self.counts = np.concatenate(
                [self.counts, np.zeros(2 * self.words - len(self.counts), np.int64)]
            )
        counts = np.bincount(out)
        self.counts[: len(counts)] += counts
        return out

    def _room(self, words: int, size: int) -> None:
        if self.words + words + 1 > len(self._offsets):
            more = np.zeros(2 * (self.words + words + 1), np.int64)
            more[: self.words + 1] = self._offsets[: self.words + 1]
            self._offsets = more
        used = int(self._offsets[self.words])
        if used + size > len(self._blob):
            blob = np.empty(2 * (used + size), np.uint8)
            blob[:used] = self._blob[:used]
            self._blob = blob
        if 3 * (self.words + words) > len(self._slots):
            self._slots = _slots(self.words + words)
            _fill(self._blob, self._offsets[: self.words + 1], self._slots)

    def settled(self, least: int, first: int = 0) -> tuple[Vocabulary, np.ndarray]:
        """The first words as they came, then those that came `least` times and more, the most
        frequent first, equal ones by their bytes; and uint32[words so far]: the new ids, 0 of the
        others."""
        ends = self._offsets[: self.words + 1].tolist()
        blob = self._blob.tobytes()
        words = [blob[a:z] for a, z in pairwise(ends)]
        counts = self.counts[: self.words].tolist()
        stay = len(SPECIAL) + first
        kept = [i for i in range(stay, self.words) if counts[i] >= least]
        kept.sort(key=lambda i: (-counts[i], words[i]))
        kept = [*range(len(SPECIAL), stay), *kept]
        new = np.zeros(self.words, np.uint32)
        new[kept] = np.arange(3, len(kept) + 3, dtype=np.uint32)
        return vocabulary([*SPECIAL, *(words[i] for i in kept)]), new
