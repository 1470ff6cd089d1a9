"""Shingles, MinHash signatures and band keys of a batch, as numba kernels.

A text becomes units (words, characters or bytes), each a 64-bit hash; a shingle is the hash of a
run of units; a signature holds, a permutation, the least image of the shingles' low 32 bits. The
permutations are datasketch 2's `affine32`: MurmurHash3's 32-bit finaliser as a pre-mix, then
`a * h + b mod 2^32` with odd a. For given shingle hashes signatures equal datasketch's bit for bit.
"""

from __future__ import annotations

import numpy as np

from curate.dedup.minhash.bits import fmix32
from curate.text.hashing import mix
from curate.text.unicode import char_bytes, code_point
from curate.text.words import PRIME, ascii_fold, character_tables, word_hashes
from kernel_cache import njit

EMPTY = np.uint32(0xFFFFFFFF)
WORD, CHAR, BYTE = range(3)
KINDS = {"word": WORD, "char": CHAR, "byte": BYTE}


@njit(nogil=True)
def _units(kind, data, start, stop, fold, kinds, lower, out):
    """Units of data[start:stop], whose hashes are put into out."""
    if kind == WORD:
        return word_hashes(data, start, stop, fold, kinds, lower, out)
    units = 0
    i = start
    while i < stop:
        if kind == BYTE:
            out[units] = mix(np.uint64(data[i]) + np.uint64(1))
            i += 1
        else:
            out[units] = mix(np.uint64(code_point(data, i, stop) + 2))
            i += char_bytes(data[i])
        units += 1
    return units


@njit(nogil=True)
def _shingles(units, count, size, out):
    """Shingles of the first `count` units, whose hashes are put into out: all runs of `size`; of
    fewer units there is one shingle, of all of them; of none there is none."""
    if count == 0:
        return 0
    length = min(size, count)
    shingles = count - length + 1
    for k in range(shingles):
        out[k] = np.uint64(length)
    power = PRIME
    for j in range(length):
        for k in range(shingles):
            out[k] += units[k + j] * power
        power *= PRIME
    for k in range(shingles):
        out[k] = mix(out[k])
    return shingles


@njit(nogil=True)
def _longest(offsets):
    longest = np.int64(0)
    for r in range(len(offsets) - 1):
        longest = max(longest, offsets[r + 1] - offsets[r])
    return longest


@njit(nogil=True)
def _least(mixed, count, a, b, out):
    """out[p] = the least a[p] * h + b[p] mod 2^32 over the first `count` of mixed."""
    for p in range(len(a)):
        x, y = a[p], b[p]
        least = EMPTY
        for k in range(count):
            least = min(least, np.uint32(np.uint32(x * mixed[k]) + y))
        out[p] = least


@njit(cache=True, nogil=True)
def _text_signatures(kind, data, offsets, fold, kinds, lower, size, a, b):
    rows = len(offsets) - 1
    out = np.empty((rows, len(a)), np.uint32)
    counts = np.empty(rows, np.int64)
    room = _longest(offsets) + 1
    units = np.empty(room, np.uint64)
    shingles = np.empty(room, np.uint64)
    mixed = np.empty(room, np.uint32)
    for r in range(rows):
        n = _units(kind, data, offsets[r], offsets[r + 1], fold, kinds, lower, units)
        n = _shingles(units, n, size, shingles)
        for k in range(n):
            mixed[k] = fmix32(np.uint32(shingles[k] & np.uint64(0xFFFFFFFF)))
        _least(mixed, n, a, b, out[r])
        counts[r] = n
    return out, counts


@njit(cache=True, nogil=True)
def _text_shingles(kind, data, offsets, fold, kinds, lower, size):
    rows = len(offsets) - 1
    starts = np.zeros(rows + 1, np.int64)
    room = _longest(offsets) + 1
    units = np.empty(room, np.uint64)
    shingles = np.empty(room, np.uint64)
    out = np.empty(max(np.int64(16), (offsets[rows] - offsets[0]) // 4), np.uint64)
    total = 0
    for r in range(rows):
        n = _units(kind, data, offsets[r], offsets[r + 1], fold, kinds, lower, units)
        n = _shingles(units, n, size, shingles)
        if total + n > len(out):
            more = np.empty(max(2 * len(out), total + n), np.uint64)
            more[:total] = out[:total]
            out = more
        mine = np.sort(shingles[:n])
        for k in range(n):
            if k == 0 or mine[k] != mine[k - 1]:
                out[total] = mine[k]
                total += 1
        starts[r + 1] = total
    return starts, out[:total].copy()


@njit(nogil=True)
def signatures(offsets: np.ndarray, hashes: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """uint32[rows, len(a)] of shingle hashes: row r has hashes[offsets[r]:offsets[r + 1]], of which
    the low 32 bits count; a row without hashes is all ones, as in datasketch."""
    out = np.empty((len(offsets) - 1, len(a)), np.uint32)
    mixed = np.empty(_longest(offsets), np.uint32)
    for r in range(len(offsets) - 1):
        n = offsets[r + 1] - offsets[r]
        for k in range(n):
            mixed[k] = fmix32(np.uint32(hashes[offsets[r] + k] & np.uint64(0xFFFFFFFF)))
        _least(mixed, n, a, b, out[r])
    return out


@njit(cache=True, nogil=True)
def band_keys(signature: np.ndarray, bands: int, rows: int) -> np.ndarray:
    """uint64[documents, bands]: one hash a band; equal rows of different bands differ."""
    out = np.empty((len(signature), bands), np.uint64)
    for d in range(len(signature)):
        for k in range(bands):
            value = np.uint64(k + 1) * PRIME
            for r in range(rows):
                value = (value ^ np.uint64(signature[d, k * rows + r])) * PRIME
                value ^= value >> np.uint64(31)
            out[d, k] = mix(value)
    return out


def permutations(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(a, b): uint32[count], datasketch's `affine32` parameters of that seed; a is odd."""
    draw = np.random.RandomState(seed)
    a = draw.randint(0, 1 << 31, count, dtype=np.uint32) * np.uint32(2) + np.uint32(1)
    b = draw.randint(0, 1 << 32, count, dtype=np.uint32)
    return a, b


def text_signatures(
    kind: int, data: np.ndarray, offsets: np.ndarray, size: int, a: np.ndarray, b: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(signatures: uint32[rows, len(a)], shingles: int64[rows], repeated ones counted) of the texts
    `data: uint8[bytes]`, `offsets: int64[rows + 1]`, by shingles of `size` units of a kind."""
    tables = (ascii_fold(), *character_tables())
    found: tuple[np.ndarray, np.ndarray] = _text_signatures(
        kind, data, offsets, *tables, size, a, b
    )
    return found


def text_shingles(
    kind: int, data: np.ndarray, offsets: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """(offsets: int64[rows + 1], hashes: uint64[shingles]) of the sets of shingles of the texts,
    each sorted."""
    tables = (ascii_fold(), *character_tables())
    found: tuple[np.ndarray, np.ndarray] = _text_shingles(kind, data, offsets, *tables, size)
    return found


def lean_buffers(signature: np.ndarray, seed: int) -> list[bytes]:
    """A buffer a row of `signature: uint32[rows, permutations]` that datasketch 2 reads with
    `LeanMinHash.deserialize(buffer, "<")`: int64 seed, int32 minus the number of values, uint8 1
    (affine32), the values; all little-endian."""
    head = (
        int(seed).to_bytes(8, "little", signed=True)
        + (-signature.shape[1]).to_bytes(4, "little", signed=True)
        + b"\x01"
    )
    rows = np.ascontiguousarray(signature, "<u4")
    return [head + row.tobytes() for row in rows]
