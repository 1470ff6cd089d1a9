"""Normal forms, shingles, MinHash signatures and band keys of a batch of texts.

A text becomes units (words, characters or bytes), each a 64-bit hash; a shingle is the hash of a
run of units; a signature holds, for each permutation, the least image of the shingles' low 32 bits.
The permutations are datasketch 2's `affine32`: MurmurHash3's 32-bit finaliser as a pre-mix, then
`a * h + b mod 2^32` with odd a. For given shingle hashes signatures equal datasketch's bit for bit.

Signatures of b bits a permutation (Li and König 2010) keep b bits of a hash of every value. Two
documents of Jaccard similarity s agree in a value with probability 2^-b + (1 - 2^-b) s: they agree
where the minima are the same, and by chance elsewhere. (That is the paper's theorem 1 for sets that
are small beside the 2^32 hashes, C1 = C2 = 2^-b.) With a share p of k values equal the estimate is
(p - 2^-b) / (1 - 2^-b), whose standard error is sqrt(P (1 - P) / k) / (1 - 2^-b) with P the
probability above. The bits are those of a hash of the value and of its position in the signature.
The low bits of the value itself would not do: of an affine permutation they depend on the low bits
of the shingle alone, so that two shingles that agree in them would do so in all permutations.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.text.buffers import as_large_string, text_buffers
from curate.text.hashing import mix
from curate.text.unicode import char_bytes, code_point
from curate.text.words import PRIME, ascii_fold, character_tables, word_hashes
from llmcurate.base.kernels import njit

# DataTrove's simplify_text (utils/text.py), step by step: lower case, numbers to 0, punctuation to
# a blank, runs of white space to one, then NFD without its nonspacing marks. RE2's classes stand
# in for its list of punctuation.
_DATATROVE = (
    (r"\p{Nd}+([.,…]\p{Nd}+)?", "0"),
    (r"\p{P}|[$+<=>^`|~]", " "),
    (r"[\s\p{Z}]+", " "),
)
_SPACE = r"[\s\p{Z}]+"


def normal_form(text: pa.LargeStringArray, form: str, shingle: str) -> pa.LargeStringArray:
    """The texts whose shingles are taken.

    `lower`: words are folded by the word table itself; characters and bytes are those of the
    lower-cased text with runs of white space as one blank. `datatrove`: lower case, numbers as 0,
    no punctuation, no accents.
    """
    if form == "datatrove":
        text = pc.utf8_lower(text)
        for pattern, replacement in _DATATROVE:
            text = pc.replace_substring_regex(text, pattern, replacement)
        text = pc.utf8_normalize(text, "NFD")
        text = pc.replace_substring_regex(text, r"\p{Mn}+", "")
        return as_large_string(pc.utf8_trim_whitespace(text))
    if shingle == "word":
        return text
    return as_large_string(pc.replace_substring_regex(pc.utf8_lower(text), _SPACE, " "))


def shingle_sets(
    text: pa.LargeStringArray, normalize: str, unit: str, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """(offsets: int64[rows + 1], uint64 values) of the sets of shingles of texts, sorted."""
    data, offsets = text_buffers(normal_form(text, normalize, unit))
    return text_shingles(KINDS[unit], data, offsets, size)


_PLACE = np.uint32(0x9E3779B1)


@njit(nogil=True, inline="always")
def fmix32(h):
    """MurmurHash3's 32-bit finaliser."""
    h ^= h >> np.uint32(16)
    h = np.uint32(h * np.uint32(0x85EBCA6B))
    h ^= h >> np.uint32(13)
    h = np.uint32(h * np.uint32(0xC2B2AE35))
    return np.uint32(h ^ (h >> np.uint32(16)))


def packed_bytes(values: int, bits: int) -> int:
    """Bytes of a signature of so many values."""
    return -(-values * bits // 8)


@njit(cache=True, nogil=True)
def pack(signature, bits):
    """uint8[rows, packed_bytes(values, bits)] of a signature: uint32[rows, values]; value p has the
    bits from p * bits on, the lowest first."""
    rows, values = signature.shape
    out = np.zeros((rows, (values * bits + 7) // 8), np.uint8)
    for r in range(rows):
        buffer, count, at = np.uint64(0), 0, 0
        for p in range(values):
            kept = fmix32(np.uint32(signature[r, p] + np.uint32(p) * _PLACE))
            buffer |= np.uint64(kept >> np.uint32(32 - bits)) << np.uint64(count)
            count += bits
            while count >= 8:
                out[r, at] = buffer & np.uint64(255)
                buffer >>= np.uint64(8)
                at += 1
                count -= 8
        if count:
            out[r, at] = buffer & np.uint64(255)
    return out


@njit(nogil=True)
def equal_values(x, y, values, bits):
    """In how many of `values` two packed signatures agree."""
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    buffer, count, at, equal = np.uint64(0), 0, 0, 0
    for _ in range(values):
        while count < bits:
            buffer |= np.uint64(x[at] ^ y[at]) << np.uint64(count)
            at += 1
            count += 8
        if buffer & mask == 0:
            equal += 1
        buffer >>= np.uint64(bits)
        count -= bits
    return equal


@njit(nogil=True)
def estimated(equal, values, bits):
    """The Jaccard similarity that so many equal values of b bits stand for, within 0 and 1."""
    chance = 2.0**-bits
    return min(1.0, max(0.0, (equal / values - chance) / (1.0 - chance)))


def standard_error(similarity: float, values: int, bits: int) -> float:
    """Of the estimate, for documents of that Jaccard similarity."""
    chance = 2.0**-bits
    equal = chance + (1.0 - chance) * similarity
    return float((equal * (1.0 - equal) / values) ** 0.5 / (1.0 - chance))


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
    capacity = _longest(offsets) + 1
    units = np.empty(capacity, np.uint64)
    shingles = np.empty(capacity, np.uint64)
    mixed = np.empty(capacity, np.uint32)
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
    capacity = _longest(offsets) + 1
    units = np.empty(capacity, np.uint64)
    shingles = np.empty(capacity, np.uint64)
    out = np.empty(max(np.int64(16), (offsets[rows] - offsets[0]) // 4), np.uint64)
    total = 0
    for r in range(rows):
        n = _units(kind, data, offsets[r], offsets[r + 1], fold, kinds, lower, units)
        n = _shingles(units, n, size, shingles)
        if total + n > len(out):
            more = np.empty(max(2 * len(out), total + n), np.uint64)
            more[:total] = out[:total]
            out = more
        ordered = np.sort(shingles[:n])
        for k in range(n):
            if k == 0 or ordered[k] != ordered[k - 1]:
                out[total] = ordered[k]
                total += 1
        starts[r + 1] = total
    return starts, out[:total].copy()


@njit(nogil=True, allocates=True)
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
    result: tuple[np.ndarray, np.ndarray] = _text_signatures(
        kind, data, offsets, *tables, size, a, b
    )
    return result


def text_shingles(
    kind: int, data: np.ndarray, offsets: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """(offsets: int64[rows + 1], hashes: uint64[shingles]) of the sets of shingles of the texts,
    each sorted."""
    tables = (ascii_fold(), *character_tables())
    result: tuple[np.ndarray, np.ndarray] = _text_shingles(kind, data, offsets, *tables, size)
    return result


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
