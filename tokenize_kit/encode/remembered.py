"""Words that were met, asked for: what all encoders do with the memory of words.py."""

from __future__ import annotations

import numpy as np

from tokenize_kit.bare import njit_bare
from tokenize_kit.encode.borders import word_end
from tokenize_kit.encode.words import LONGEST, Cache, look_up, new_cache, recall, word_key

_32 = np.uint64(32)


class Memories:
    """Memories of words for threads that share an encoder: each takes one while it encodes."""

    def __init__(self) -> None:
        self._idle = [new_cache()]

    def take(self) -> Cache:
        """One that no other thread has."""
        try:
            return self._idle.pop()
        except IndexError:
            return new_cache()

    def give(self, memory: Cache) -> None:
        """Takes it back."""
        self._idle.append(memory)


@njit_bare
def known_words(data, a, z, crossed, cache, sums, rounds, total, calm, out, w):
    """Writes to out[w:] the ids of the words of data[a:z] up to the first one that is not known.

    crossed: borders.Crossed; sums, rounds: of a Unigram, where words have sums (then float32 total
    is that of the text before a, and beyond calm no path is safe); out: with room for two ids more
    than there may be. Returns (where that word begins, z for none; where it ends; its slot, free
    where it is new; the new length; the new sum).
    """
    end = np.int64(a)
    slot = np.uint64(0)
    while a < z:
        end = word_end(data, a, z, crossed)
        n = end - a
        if n > LONGEST:
            break
        low, high = word_key(data, a, end)
        slot = look_up(cache, low, high, data, a, n)
        if cache.entries[slot, 1] == 0:
            break
        if rounds:
            size = abs(np.float64(total))
            if size >= calm or size >= np.float64(cache.entries[slot, 3] >> _32):
                break
        before = w
        w = recall(cache, slot, n, out, w)
        if rounds:
            for k in range(before, w):
                total += sums[out[k]]
        a = end
    return a, end, slot, w, total
