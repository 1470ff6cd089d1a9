"""The kernels of MinHash: signatures and band keys, components, verified pairs.

A text is split into units (words, characters or bytes), each a 64-bit hash. A shingle is the hash
of a run of units. A signature has one value per permutation: the permutation maps the low 32 bits
of each shingle to a number, and the value is the least of these numbers. The permutations are
datasketch 2's `affine32`: MurmurHash3's 32-bit finaliser as a pre-mix, then `a * h + b mod 2^32`
with odd a. For the same shingle hashes, signatures equal datasketch's bit for bit.

Fingerprints (SimHash) of two documents are compared by their bits.

A component is a set of connected documents, stored as a tree of uint32 parents, four bytes per
node. The root of the tree is the least node. The function `union` makes the lesser of two roots the
parent, and `find` halves the paths that it follows. A parent is therefore never greater than its
child, and one ascending pass makes every parent a root."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.corpus.shuffle.buckets import number_of, popcount
from curate.text.buffers import as_large_string, text_buffers
from curate.text.hashing import mix
from curate.text.lines import longest
from curate.text.unicode import char_bytes, code_point
from curate.text.words import PRIME, ascii_fold, character_tables, word_hashes
from llmcurate.base.kernels import njit, read_only

# DataTrove's simplify_text (utils/text.py), step by step: lower case, numbers to 0, punctuation to
# a blank, runs of white space to one, then NFD without its nonspacing marks. RE2's character
# classes replace DataTrove's list of punctuation.
_DATATROVE = (
    (r"\p{Nd}+([.,…]\p{Nd}+)?", "0"),
    (r"\p{P}|[$+<=>^`|~]", " "),
    (r"[\s\p{Z}]+", " "),
)
_SPACE = r"[\s\p{Z}]+"


def normal_form(text: pa.LargeStringArray, form: str, shingle: str) -> pa.LargeStringArray:
    """Return the texts from which shingles are taken, in the normal form named `form`. In form
    `lower`, the text is in lower case with single blanks; it is unchanged if `shingle` is "word",
    because the word table folds the case of words. In form `datatrove`, the text is in lower case,
    with numbers as 0 and without punctuation and accents."""
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
    """Return (offsets: int64[rows + 1], uint64 values): the sorted set of shingles of each text."""
    data, offsets = text_buffers(normal_form(text, normalize, unit))
    return text_shingles(KINDS[unit], data, offsets, size)


@njit(nogil=True, inline="always")
def fmix32(h):
    h ^= h >> np.uint32(16)
    h = np.uint32(h * np.uint32(0x85EBCA6B))
    h ^= h >> np.uint32(13)
    h = np.uint32(h * np.uint32(0xC2B2AE35))
    return np.uint32(h ^ (h >> np.uint32(16)))


@njit(nogil=True)
def similarity_of_bits(x, y):
    """Return 1 if two rows of bytes (uint8[], equally long) are equal, and 0 if half of their bits
    or more differ; in between, the similarity falls evenly."""
    differing = 0
    for i in range(len(x)):
        differing += popcount(np.uint64(x[i] ^ y[i]))
    return max(0.0, 1.0 - differing / (4 * len(x)))


EMPTY = np.uint32(0xFFFFFFFF)
WORD, CHAR, BYTE = range(3)
KINDS = {"word": WORD, "char": CHAR, "byte": BYTE}


@njit(nogil=True)
def _units(kind, data, start, stop, fold, kinds, lower, out):
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
def _least(mixed, count, a, b, out):
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
    capacity = longest(offsets[:-1], offsets[1:]) + 1
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
    capacity = longest(offsets[:-1], offsets[1:]) + 1
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
    """Return uint32[rows, len(a)]: the signature of each row hashes[offsets[r]:offsets[r + 1]].
    Only the low 32 bits of a hash count. A row without hashes is all ones, as in datasketch."""
    out = np.empty((len(offsets) - 1, len(a)), np.uint32)
    mixed = np.empty(longest(offsets[:-1], offsets[1:]), np.uint32)
    for r in range(len(offsets) - 1):
        n = offsets[r + 1] - offsets[r]
        for k in range(n):
            mixed[k] = fmix32(np.uint32(hashes[offsets[r] + k] & np.uint64(0xFFFFFFFF)))
        _least(mixed, n, a, b, out[r])
    return out


@njit(cache=True, nogil=True)
def fingerprints(offsets, shingles):
    """Return the SimHash fingerprint of each text (uint64[texts], Charikar 2002). Bit b of a
    fingerprint is 1 if bit b is 1 in more than half of the text's shingles. `offsets` and
    `shingles` come from `text_shingles`."""
    out = np.zeros(len(offsets) - 1, np.uint64)
    for r in range(len(out)):
        ones = np.zeros(64, np.int64)
        for value in shingles[offsets[r] : offsets[r + 1]]:
            for bit in range(64):
                ones[bit] += np.int64(value >> np.uint64(bit) & np.uint64(1))
        for bit in range(64):
            majority = 2 * ones[bit] > offsets[r + 1] - offsets[r]
            out[r] |= np.uint64(majority) << np.uint64(bit)
    return out


@njit(cache=True, nogil=True)
def band_keys(signature: np.ndarray, bands: int, rows: int) -> np.ndarray:
    """Return uint64[documents, bands]: for each band, a hash of its values and its number."""
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
    """Return (a, b): uint32[count], datasketch's parameters of `affine32` for this seed."""
    draw = np.random.RandomState(seed)
    a = draw.randint(0, 1 << 31, count, dtype=np.uint32) * np.uint32(2) + np.uint32(1)
    b = draw.randint(0, 1 << 32, count, dtype=np.uint32)
    return a, b


def text_signatures(
    kind: int, data: np.ndarray, offsets: np.ndarray, size: int, a: np.ndarray, b: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the signatures of texts (uint32[rows, len(a)]), and the number of shingles of each
    text, repeats included (int64[rows]). A shingle has `size` units of `kind`."""
    tables = (ascii_fold(), *character_tables())
    result: tuple[np.ndarray, np.ndarray] = _text_signatures(
        kind, data, offsets, *tables, size, a, b
    )
    return result


def text_shingles(
    kind: int, data: np.ndarray, offsets: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return (offsets: int64[rows + 1], hashes: uint64[]): the sorted shingles of each text."""
    tables = (ascii_fold(), *character_tables())
    result: tuple[np.ndarray, np.ndarray] = _text_shingles(kind, data, offsets, *tables, size)
    return result


def lean_buffers(signature: np.ndarray, seed: int) -> list[bytes]:
    """Return one buffer per signature, which datasketch 2's `LeanMinHash.deserialize(buffer, "<")`
    reads. Signatures are uint32[rows, permutations]. A buffer holds, in little-endian order, the
    seed (int64), the negated number of values (int32), the byte 1 (hash scheme affine32), and the
    values."""
    head = (
        int(seed).to_bytes(8, "little", signed=True)
        + (-signature.shape[1]).to_bytes(4, "little", signed=True)
        + b"\x01"
    )
    rows = np.ascontiguousarray(signature, "<u4")
    return [head + row.tobytes() for row in rows]


NONE = np.uint32(0xFFFFFFFF)


@njit(nogil=True)
def find(parent, x):
    """Return the root of the tree that contains x, and halve the paths on the way."""
    while parent[x] != x:
        parent[x] = parent[parent[x]]
        x = parent[x]
    return x


@njit(nogil=True)
def union(parent, x, y):
    x, y = find(parent, x), find(parent, y)
    if x < y:
        parent[y] = x
    elif y < x:
        parent[x] = y


@njit(cache=True, nogil=True)
def flatten(parent):
    """Set the parent of every node to the root of its tree, in place."""
    for x in range(len(parent)):
        parent[x] = parent[parent[x]]


@njit(cache=True, nogil=True)
def follow(parent, partner):
    """Set the parent of each node that has a partner to that partner, in place."""
    for x in range(len(parent)):
        if partner[x] != NONE:
            parent[x] = partner[x]


@njit(cache=True, nogil=True)
def clear_roots(root, partner):
    """Set the partner of each root (the kept document of a cluster) to NONE. root[k] is the root of
    node k."""
    for x in range(len(root)):
        if root[x] == x:
            partner[x] = NONE


@njit(cache=True, nogil=True)
def members_of_two(root):
    """Return uint64 bits: 1 for a node whose component has two or more nodes."""
    bits = np.zeros(len(root) // 64 + 1, np.uint64)
    for x in range(len(root)):
        r = root[x]
        if r != x:
            bits[x >> 6] |= np.uint64(1) << np.uint64(x & 63)
            bits[r >> np.uint32(6)] |= np.uint64(1) << np.uint64(r & np.uint32(63))
    return bits


# Knuth's multiplier for 64 bits. It is odd, so the multiplication can be undone. The high bits of
# the product are spread evenly among pairs. The high bits of a pair itself would put all pairs of a
# large bucket into one partition.
SPREAD = 0x9E3779B97F4A7C15
GATHER = pow(SPREAD, -1, 2**64)


@njit(cache=True, nogil=True)
def star_pairs(members, sizes, parent, forward, spread):
    """Return pairs of documents (uint64[pairs]): each bucket's first member with each other member.
    The pair of document numbers (k, j) is returned as (k * 2^32 + j) * `spread`, modulo 2^64, so
    that the high bits are evenly distributed. If `forward`, j is always the first member. If not,
    (j, k) is returned too, and the trees of j and k (connected sets) are joined in `parent`."""
    out = np.empty((1 if forward else 2) * max(len(members) - len(sizes), 0), np.uint64)
    filled = 0
    begin = np.int64(0)
    for size in sizes:
        head = np.uint64(members[begin])
        for i in range(begin + 1, begin + size):
            k = np.uint64(members[i])
            out[filled] = ((k << np.uint64(32)) | head) * spread
            filled += 1
            if not forward:
                out[filled] = ((head << np.uint64(32)) | k) * spread
                filled += 1
                union(parent, members[i], members[begin])
        begin += size
    return out


@njit(cache=True, nogil=True)
def count_partners(keys, gather, partner, weight):
    """Find for each document k the document that it is most often paired with. Sets partner[k] to
    that document (the lowest number on a tie) and weight[k] to the number of pairs. A partner from
    an earlier call is replaced only by a better one. `keys` must be sorted pairs from `star_pairs`,
    and equal pairs must be in the same call. A key times `gather`, modulo 2^64, is the pair."""
    begin = 0
    for i in range(1, len(keys) + 1):
        if i < len(keys) and keys[i] == keys[begin]:
            continue
        pair = keys[begin] * gather
        k, other = np.int64(pair >> np.uint64(32)), np.uint32(pair & np.uint64(0xFFFFFFFF))
        count = i - begin
        if count > weight[k] or (count == weight[k] and other < partner[k]):
            partner[k] = other
            weight[k] = count
        begin = i


@njit(cache=True, nogil=True)
def count_shared(members, sizes, partner, shared):
    """Add to shared[k] the number of buckets that contain both k and partner[k]. The members of
    each bucket must ascend."""
    begin = np.int64(0)
    for size in sizes:
        for i in range(begin, begin + size):
            k = members[i]
            p = partner[k]
            low, high = begin, begin + size
            while low < high:
                middle = (low + high) // 2
                if members[middle] < p:
                    low = middle + 1
                else:
                    high = middle
            if low < begin + size and members[low] == p:
                shared[k] += 1
        begin += size


@njit(cache=True, nogil=True)
def gather_texts(data, ends, numbers):
    """Return the texts with these numbers, as (bytes: uint8, offsets: int64[len(numbers) + 1]).
    Text k is data[ends[k]:ends[k + 1]]. A number out of range gives an empty text."""
    offsets = np.zeros(len(numbers) + 1, np.int64)
    for i in range(len(numbers)):
        k = np.int64(numbers[i])
        size = ends[k + 1] - ends[k] if k < len(ends) - 1 else 0
        offsets[i + 1] = offsets[i] + size
    out = np.empty(offsets[-1], np.uint8)
    for i in range(len(numbers)):
        k = np.int64(numbers[i])
        for j in range(offsets[i + 1] - offsets[i]):
            out[offsets[i] + j] = data[ends[k] + j]
    return out, offsets


SMALL = 24  # buckets of up to this many members are sorted by insertion


@njit(cache=True, nogil=True)
def renumber(members, sizes, bits, before, order):
    """Replace the members of buckets, in place: the number of a document becomes order[c] if the
    document is candidate c, counted from 0. All members are candidates. `bits` has one bit per
    document, set for candidates, and `before` counts the set bits before each 64 documents (from
    `ones_before`). Buckets of at most SMALL members are sorted afterwards."""
    begin = np.int64(0)
    for size in sizes:
        for i in range(begin, begin + size):
            members[i] = order[number_of(members[i], bits, before)]
        if size <= SMALL:
            for i in range(begin + 1, begin + size):
                k, j = members[i], i
                while j > begin and members[j - 1] > k:
                    members[j] = members[j - 1]
                    j -= 1
                members[j] = k
        begin += size


@njit(cache=True, nogil=True)
def join_buckets(members, sizes, bits, before, parent):
    """Join the members (document numbers) of each bucket into one tree in `parent`
    (uint32[candidates]). `bits` has one bit per document, set for candidates. `before` counts the
    set bits before each 64 documents (from `ones_before`)."""
    begin = np.int64(0)
    for size in sizes:
        head = np.uint32(number_of(members[begin], bits, before))
        for i in range(begin + 1, begin + size):
            union(parent, head, np.uint32(number_of(members[i], bits, before)))
        begin += size


@njit(cache=True, nogil=True)
def part_components(root, most, part):
    """Divide the candidates into parts, one per task, and keep each connected component in one
    part. A part holds up to `most` candidates, or a single larger component. Fills `part` (uint32)
    with each candidate's part. Returns each part's first position (int64[parts + 1]) in the
    candidates ordered by part. root[c] is the root of candidate c's component."""
    part[:] = 0
    for c in range(len(root)):
        part[root[c]] += 1
    sizes = [np.int64(0)]  # of the parts
    for c in range(len(root)):
        r = root[c]
        if r != c:
            part[c] = part[r]
            continue
        if sizes[-1] and sizes[-1] + part[c] > most:
            sizes.append(np.int64(0))
        sizes[-1] += part[c]
        part[c] = len(sizes) - 1
    begins = np.zeros(len(sizes) + 1, np.int64)
    for p in range(len(sizes)):
        begins[p + 1] = begins[p] + sizes[p]
    return begins


@njit(cache=True, nogil=True)
def order_by_part(order, part, begins, by_k, position):
    """Sort the candidates by part (a part is compared in one task), and within a part by rank.
    Candidate c has part[c] and rank order[c]. Sets position[c] to its index in the sorted order.
    `begins` is from `part_components`. `by_k` (uint32[candidates]) is scratch space."""
    following = begins.copy()
    for c in range(len(order)):
        by_k[order[c]] = c
    for k in range(len(order)):
        c = by_k[k]
        position[c] = following[part[c]]
        following[part[c]] += 1


# A member of a bucket is compared with at most this many centres and as many other members, the
# most preferred first. Without this limit a bucket of 100,000 unlike pages would take days.
MOST = 1000


@njit(nogil=True)
def jaccard(x: np.ndarray, y: np.ndarray, least: float = 0.0) -> float:
    """Return the Jaccard similarity of two sorted sets of values, or -1 if it is below `least`."""
    if len(x) == 0 or len(y) == 0:
        return 0.0 if least <= 0.0 else -1.0
    # With c common values the similarity is c / (len(x) + len(y) - c).
    needed = least * (len(x) + len(y)) / (1.0 + least) - 1e-6
    spare = min(len(x), len(y)) - needed  # number of values that may lack a counterpart
    i = j = common = 0
    while i < len(x) and j < len(y):
        if x[i] == y[j]:
            common += 1
            i += 1
            j += 1
        elif x[i] < y[j]:
            i += 1
        else:
            j += 1
        if max(i, j) - common > max(len(x), len(y)) - needed or min(i, j) - common > spare:
            return -1.0
    similar = common / (len(x) + len(y) - common)
    return similar if similar >= least else -1.0


class Compared(NamedTuple):
    """The features by which documents are compared: sets of shingles, or rows of bits. For document
    k, (a, n) = extents[k]. Its shingles are shingles[a:a + n], sorted and distinct. If `bits` has
    columns, its bits are bits[a]."""

    shingles: np.ndarray  # uint64
    extents: np.ndarray  # int64[documents, 2]
    bits: np.ndarray  # uint8[documents, bytes]; no columns to compare shingles


@njit(nogil=True)
def _similarity(by, d, e, least):
    x, y = by.extents[d], by.extents[e]
    if by.bits.shape[1]:
        similarity = similarity_of_bits(by.bits[x[0]], by.bits[y[0]])
        return similarity if similarity >= least else -1.0
    shingles, other = by.shingles[x[0] : x[0] + x[1]], by.shingles[y[0] : y[0] + y[1]]
    return jaccard(shingles, other, least)


@njit(cache=True, nogil=True)
def match_buckets(members, sizes, by, least, first, most, parent):
    """Compare the members of each bucket, and return the matching pairs: arrays (k, other,
    similarity) with other < k.

    `members` (uint32) lists all buckets in turn, ascending within each; `sizes` (uint32) are their
    sizes. `by` holds the features to compare. `parent` (uint32[documents]) holds the trees of
    connected documents so far, and is changed in place.

    A member that matches no earlier member of its bucket is a centre. Each member is compared with
    up to `most` earlier centres, then up to `most` other earlier members, but not with members that
    it is already connected to. If `first`, it is compared only until one matches."""
    pair_k, pair_other, similar = [np.uint32(0)], [np.uint32(0)], [0.0]
    earlier = np.empty((2, most), np.uint32)  # centres, others
    filled = np.zeros(2, np.int64)
    begin = np.int64(0)
    for size in sizes:
        filled[:] = 0
        for m in range(begin, begin + size):
            d = members[m]
            matched = first and parent[d] != d
            for side in range(2):
                for c in range(filled[side]):
                    if first and matched:
                        break
                    e = earlier[side, c]
                    if not first and find(parent, d) == find(parent, e):
                        matched = True
                        continue
                    s = _similarity(by, d, e, least)
                    if s < 0.0:
                        continue
                    pair_k.append(d)
                    pair_other.append(e)
                    similar.append(s)
                    matched = True
                    if first:
                        parent[d] = e
                    else:
                        union(parent, d, e)
            side = 1 if matched else 0
            if filled[side] < most:
                earlier[side, filled[side]] = d
                filled[side] += 1
        begin += size
    return np.array(pair_k)[1:], np.array(pair_other)[1:], np.array(similar)[1:]


@njit(cache=True, nogil=True)
def keep_best(pair_k, pair_other, similar, forward, partner, best):
    """Find for each document k the most similar document in the pairs (the lowest number on a tie).
    Sets partner[k] to that document and best[k] to the similarity. If `forward`, pair i counts only
    for document pair_k[i], otherwise for both of its documents."""
    for i in range(len(pair_k)):
        for turn in range(1 if forward else 2):
            k, other = (pair_k[i], pair_other[i]) if turn == 0 else (pair_other[i], pair_k[i])
            better = similar[i] > best[k] or (similar[i] == best[k] and other < partner[k])
            if partner[k] == NONE or better:
                partner[k] = other
                best[k] = similar[i]


def for_kernels(by: Compared) -> Compared:
    """Return `by` with read-only arrays, because the kernels are compiled for these only."""
    return Compared(*map(read_only, by))
