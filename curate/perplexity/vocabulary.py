"""Words and their numbers: a hash table from bytes to ids, exact, since it compares the bytes.

0 is <unk>, 1 <s>, 2 </s>; a text that holds these as words holds unknown words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numba import njit

from curate.text.hashing import hash_bytes

SPECIAL = (b"<unk>", b"<s>", b"</s>")
UNK, EOS = 0, 2
_32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


@njit(nogil=True)
def _same(data, start, size, blob, a):
    """Whether blob[a:] begins with data[start : start + size]."""
    for k in range(size):
        if blob[a + k] != data[start + k]:
            return False
    return True


@njit(nogil=True)
def _place(data, start, end, blob, offsets, slots):
    """(slot, id, what goes into the slot besides the id) of the bytes; id -1 where they are not in
    the table, slot -1 where it is full."""
    value = hash_bytes(data, start, end)
    tag = value << _32
    at = np.int64(((value >> _32) * np.uint64(len(slots))) >> _32)
    for _ in range(len(slots)):
        have = slots[at]
        if have == 0:
            return at, np.int64(-1), tag
        if (have ^ tag) >> _32 == 0:
            found = np.int64(have & _LOW) - 1
            if 0 <= found < len(offsets) - 1:
                a, z = offsets[found], offsets[found + 1]
                if z - a == end - start and _same(data, start, z - a, blob, a):
                    return at, found, tag
        at += 1
        if at == len(slots):
            at = np.int64(0)
    return np.int64(-1), np.int64(-1), tag


@njit(cache=True, nogil=True)
def word_ids(data, start, end, blob, offsets, slots):
    """uint32[words]: the ids of data[start:end]; 0 where a word is not known."""
    out = np.zeros(len(start), np.uint32)
    for i in range(len(start)):
        _, found, _ = _place(data, start[i], end[i], blob, offsets, slots)
        if found > 2:
            out[i] = found
    return out


@njit(cache=True, nogil=True)
def _grow(data, start, end, blob, offsets, slots, words, out):
    """Ids of all words, new ones added; returns the number of words. There must be room."""
    for i in range(len(start)):
        at, found, tag = _place(data, start[i], end[i], blob, offsets[: words + 1], slots)
        if found < 0:
            a = offsets[words]
            for k in range(end[i] - start[i]):
                blob[a + k] = data[start[i] + k]
            offsets[words + 1] = a + end[i] - start[i]
            found = np.int64(words)
            slots[at] = tag | np.uint64(found + 1)
            words += 1
        out[i] = found if found > 2 else 0
    return words


@njit(cache=True, nogil=True)
def _fill(blob, offsets, slots):
    """Puts all words into an empty table; returns an id that is there twice, or -1."""
    for i in range(len(offsets) - 1):
        at, found, tag = _place(blob, offsets[i], offsets[i + 1], blob, offsets[: i + 1], slots)
        if found >= 0:
            return i
        slots[at] = tag | np.uint64(i + 1)
    return -1


@dataclass(frozen=True)
class Vocabulary:
    """blob: uint8[], the words; offsets: int64[words + 1]; slots: uint64[], 32 bits
    of the word's hash, then its id + 1; 0 is free."""

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


def vocabulary(words: Sequence[bytes]) -> Vocabulary:
    """The vocabulary of words by id; ValueError where one is there twice."""
    blob = np.frombuffer(b"".join(words), np.uint8)
    offsets = np.zeros(len(words) + 1, np.int64)
    np.cumsum([len(w) for w in words], out=offsets[1:])
    slots = np.zeros(2 * len(words) + 1, np.uint64)
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
        self._slots = np.zeros(0, np.uint64)
        self.counts = np.zeros(len(SPECIAL), np.int64)

    def add(self, data: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """uint32[words]: ids of data[start:end]."""
        out = np.empty(len(start), np.uint32)
        step = 1 << 16  # words that get room at once
        for a in range(0, len(start), step):
            part, stop = start[a : a + step], end[a : a + step]
            self._room(len(part), int((stop - part).sum()))
            self.words = _grow(
                data, part, stop, self._blob, self._offsets, self._slots, self.words,
                out[a : a + step],
            )
        if len(self.counts) < self.words:
            self.counts = np.concatenate(
                [self.counts, np.zeros(2 * self.words - len(self.counts), np.int64)]
            )
        found = np.bincount(out)
        self.counts[: len(found)] += found
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
        if 2 * (self.words + words) > len(self._slots):
            self._slots = np.zeros(4 * (self.words + words), np.uint64)
            _fill(self._blob, self._offsets[: self.words + 1], self._slots)

    def settled(self, least: int) -> tuple[Vocabulary, np.ndarray]:
        """The words that came `least` times and more, the most frequent first, equal ones by their
        bytes; and uint32[words so far]: the new ids, 0 of the others."""
        ends = self._offsets[: self.words + 1].tolist()
        blob = self._blob.tobytes()
        words = [blob[a:z] for a, z in pairwise(ends)]
        counts = self.counts[: self.words].tolist()
        kept = [i for i in range(3, self.words) if counts[i] >= least]
        kept.sort(key=lambda i: (-counts[i], words[i]))
        new = np.zeros(self.words, np.uint32)
        new[kept] = np.arange(3, len(kept) + 3, dtype=np.uint32)
        return vocabulary([*SPECIAL, *(words[i] for i in kept)]), new
