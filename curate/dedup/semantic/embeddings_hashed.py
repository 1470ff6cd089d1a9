"""Words and pairs of words of documents, hashed into buckets and counted.

Weinberger et al. 2009 ("the hashing trick"), without their signs: a bucket's inverse document
frequency needs counts. What of it becomes a vector is in embeddings_basis.py.
"""

from __future__ import annotations

import numpy as np

from curate.text.hashing import mix
from kernel_cache import njit

_PAIR = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
MOST = 65535  # occurrences in a document that are counted


@njit(nogil=True)
def bucket(value, features):
    """A hash as a number under `features` (< 2^32)."""
    return np.int64(((value >> _HALF) * np.uint64(features)) >> _HALF)


@njit(cache=True, nogil=True)
def hashed_counts(rows, hashes, features):
    """(offsets: int64[documents + 1], buckets: uint32[], counts: uint16[]) of the words and pairs
    of neighbouring words of each document, buckets in order of first occurrence.

    rows: int64[documents + 1] into hashes: uint64[words], those of the word table.
    """
    documents = len(rows) - 1
    words = rows[documents] - rows[0]
    offsets = np.zeros(documents + 1, np.int64)
    buckets = np.empty(2 * words, np.uint32)  # memory that is never touched is never used
    counts = np.empty(2 * words, np.uint16)
    seen = np.zeros(features, np.int64)
    used = 0
    for d in range(documents):
        begin = used
        for w in range(rows[d], rows[d + 1]):
            for pair in range(2 if w + 1 < rows[d + 1] else 1):
                value = hashes[w]
                if pair:
                    value = mix(value * _PAIR + hashes[w + 1])
                b = bucket(value, features)
                if seen[b] == 0:
                    buckets[used] = b
                    used += 1
                seen[b] += 1
        for k in range(begin, used):
            counts[k] = min(seen[buckets[k]], MOST)
            seen[buckets[k]] = 0
        offsets[d + 1] = used
    return offsets, buckets[:used].copy(), counts[:used].copy()
