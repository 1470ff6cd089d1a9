"""Words that were met, asked for: what all encoders do with the memory of words.py."""

from __future__ import annotations

import numpy as np

from tokenize_kit.encode.borders import word_end
from tokenize_kit.encode.bytes8 import njit_bare
from kernel_cache.prefetch import prefetch
from tokenize_kit.encode.words import (
    INLINE,
    LONGEST,
    Cache,
    first_slot,
    look_up,
    new_cache,
    recall,
    seen_before,
    word_key,
)

BATCH = 64  # words that are looked for at once
END, LOW, HIGH, SLOT = range(4)
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
def cut_words(data, a, z, crossed, cache, words):
    """Cuts data[a:z] into words, BATCH of them at most; returns how many.

    words: uint64[BATCH, 4]: where each ends, its key (second number 0: not to be looked for, nor
    kept) and the slot it would take, which is on its way into the processor's caches: most words
    are rare, and the table is large.
    """
    count = 0
    while a < z and count < BATCH:
        end = word_end(data, a, z, crossed)
        words[count, END] = end
        words[count, HIGH] = 0
        if end - a <= LONGEST:
            low, high = word_key(data, a, end)
            if end - a <= INLINE or seen_before(cache.seen, low):
                slot = first_slot(low, high)
                prefetch(cache.entries, np.int64(slot) * 4)
                words[count, LOW], words[count, HIGH], words[count, SLOT] = low, high, slot
        a = end
        count += 1
    return count


@njit_bare
def known_words(data, a, words, k, count, cache, sums, rounds, total, calm, out, w):
    """Writes to out[w:] the ids of words[k:count] up to the first one that is not known.

    a: where the first of them begins; sums, rounds: of a Unigram, where words have sums (then
    float32 total is that of the text before a, and beyond calm no path is safe); out: with room for
    two ids more than there may be. Returns (that word, `count` for none; where it begins; its slot,
    free where it is new; the new length; the new sum).
    """
    slot = np.uint64(0)
    while k < count:
        if words[k, HIGH] == 0:
            break
        end = np.int64(words[k, END])
        n = end - a
        slot = look_up(cache, words[k, SLOT], words[k, LOW], words[k, HIGH], data, a, n)
        if cache.entries[slot, 1] == 0:
            break
        if rounds:
            size = abs(np.float64(total))
            if size >= calm or size >= np.float64(cache.entries[slot, 3] >> _32):
                break
        before = w
        w = recall(cache, slot, n, out, w)
        if rounds:
            for at in range(before, w):
                total += sums[out[at]]
        a = end
        k += 1
    return k, a, slot, w, total
