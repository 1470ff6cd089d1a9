"""The hashes that exact deduplication can use.

Two different texts with the same key are taken for duplicates. Among n texts with keys of b bits
the odds that this happens at all are 1 - exp(-n (n - 1) / 2^(b + 1)), the birthday bound. If n^2 is
much less than 2^b, that is about n^2 / 2^(b + 1)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import xxhash

from curate.text.hashing import hash128
from llmcurate.base.kernels import njit

Digest = Callable[[memoryview], bytes]


class Hash(NamedTuple):
    """A hash function for texts. `digest` is None if a kernel hashes all texts at once."""

    bits: int  # the size of a hash
    digest: Digest | None


def _by_hashlib(make: Callable[..., Any]) -> Digest:
    return lambda text: make(text).digest()


def _sha1_64(text: memoryview) -> bytes:
    return hashlib.sha1(text, usedforsecurity=False).digest()[:8]


HASHES: dict[str, Hash] = {
    "xxh3-128": Hash(128, xxhash.xxh3_128_digest),
    # The kernel text/hashing.py computes MurmurHash3_x64_128. mmh3 has the same function, but needs
    # a Python call for each text, so it would add a dependency without adding speed.
    "murmur3-128": Hash(128, None),
    "blake2b-128": Hash(128, _by_hashlib(partial(hashlib.blake2b, digest_size=16))),
    "blake2b-256": Hash(256, _by_hashlib(partial(hashlib.blake2b, digest_size=32))),
    "sha256": Hash(256, _by_hashlib(hashlib.sha256)),
    "sha3-256": Hash(256, _by_hashlib(hashlib.sha3_256)),
    "sha1-64": Hash(64, _sha1_64),
}


@njit(cache=True, nogil=True)
def _murmur3(data, offsets):
    out = np.empty((len(offsets) - 1, 2), np.uint64)
    for r in range(len(offsets) - 1):
        out[r, 0], out[r, 1] = hash128(data, offsets[r], offsets[r + 1])
    return out


def digests(data: np.ndarray, offsets: np.ndarray, name: str) -> np.ndarray:
    """Return uint8[rows, bits / 8]: hash `name` of each text data[offsets[r] : offsets[r + 1]]."""
    bits, digest = HASHES[name]
    if digest is None:
        return _murmur3(data, offsets).view(np.uint8)
    view = memoryview(data)  # type: ignore[arg-type]
    joined = bytearray().join([digest(view[a:b]) for a, b in pairwise(offsets.tolist())])
    return np.frombuffer(joined, np.uint8).reshape(-1, bits // 8)
