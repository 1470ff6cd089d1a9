"""Where merges join: bytes before and after a border between two tokens, as bits.

Two tokens may always stand side by side where no merge has such bytes on both sides of its own
border; so most questions are answered by the text alone, before it is asked which tokens they are.
"""

from __future__ import annotations

import numpy as np

from kernel_cache import njit
from tokenize_kit.bare import njit_within
from tokenize_kit.bytes8 import load8, stir

_1, _6, _16 = np.uint64(1), np.uint64(6), np.uint64(16)
_32, _63 = np.uint64(32), np.uint64(63)
# Of eight bytes, the first one lowest, those that count: three before a border and three after;
# three and one; one and three; one and one.
_SIX, _TWO = np.uint64(0xFFFFFFFFFFFF), np.uint64(0xFFFF)
_LONG_LEFT, _LONG_RIGHT = np.uint64(0xFFFFFFFF), np.uint64(0xFFFFFFFF0000)
_SHORT = np.uint64(0xFFFF0000)


def joins_of(data: np.ndarray, ends: np.ndarray, split: np.ndarray) -> np.ndarray:
    """Bits of all merges, uint64[1024 + a power of two]: first a bit for every byte before and
    after, of merges with a part shorter than three bytes; then bits of hashes of all merges.

    data: uint8[], ends: int64[tokens + 1]: the tokens' bytes; split: int32[tokens, 2]: what each
    was merged from, the first 256 from nothing.
    """
    merges = len(split) - 256
    bits = np.zeros(1024 + (1 << max(0, merges.bit_length() - 1)), np.uint64)  # 64 a merge
    _fill(np.concatenate([data, np.zeros(8, np.uint8)]), ends, split, bits)
    return bits


@njit(cache=True, nogil=True)
def _fill(data, ends, split, bits):
    for token in range(256, len(split)):
        left = ends[split[token, 0] + 1] - ends[split[token, 0]]
        right = ends[split[token, 1] + 1] - ends[split[token, 1]]
        six = load8(data, np.uint64(ends[token] + left - 3)) & _SIX
        if left < 3 or right < 3:
            two = (six >> _16) & _TWO
            bits[two >> _6] |= _1 << (two & _63)
            if left >= 3:
                six &= _LONG_LEFT
            elif right >= 3:
                six &= _LONG_RIGHT
            else:
                six &= _SHORT
        bit = stir(six) >> _32
        place = np.uint64(1024) + ((bit >> _6) & np.uint64(len(bits) - 1025))
        bits[place] |= _1 << (bit & _63)


@njit_within
def _has(bits, six):
    bit = stir(six) >> _32
    place = np.uint64(1024) + ((bit >> _6) & np.uint64(len(bits) - 1025))
    return bits[place] >> (bit & _63) & _1 != 0


@njit_within
def may_join(bits, data, at):
    """Whether a merge may have these bytes around the place where it joins; False is certain.

    Without a branch: the answer is hard to foresee, and what follows does not wait for it.
    """
    if at < 3 or at + 5 > len(data):
        return True
    six = load8(data, np.uint64(at - 3)) & _SIX
    two = (six >> _16) & _TWO
    short = bits[two >> _6] >> (two & _63) & _1 != 0
    left, right = _has(bits, six & _LONG_LEFT), _has(bits, six & _LONG_RIGHT)
    return _has(bits, six) | (short & (left | right | _has(bits, six & _SHORT)))
