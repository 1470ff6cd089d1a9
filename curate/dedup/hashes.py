"""The hashes that exact deduplication can use, their speed, and the odds of a collision.

Two different texts with the same key are taken for duplicates. Among n texts with keys of b bits
the odds that this happens at all are 1 - exp(-n (n - 1) / 2^(b + 1)), the birthday bound. If n^2 is
much less than 2^b, that is about n^2 / 2^(b + 1)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from curate.text.hashing import hash128
from llmcurate.base.kernels import njit
from llmcurate.base.terminal import table

Digest = Callable[[memoryview], bytes]
PARAGRAPH = 100  # bytes of a short text in the comparison


@dataclass(frozen=True)
class Hash:
    """A hash function for texts. `digest` makes the function that hashes one text, or is None if a
    kernel hashes all texts at once."""

    bits: int  # the size of a hash
    digest: Callable[[], Digest] | None
    about: str  # the remark in the table of hashes


def _xxh3() -> Digest:
    import xxhash

    return xxhash.xxh3_128_digest


def _sha1_64() -> Digest:
    sha1 = hashlib.sha1
    return lambda text: sha1(text, usedforsecurity=False).digest()[:8]


def _digest_by(make: Callable[..., Any]) -> Digest:
    return lambda text: make(text).digest()


def _blake2b(size: int) -> Digest:
    blake2b = hashlib.blake2b
    return lambda text: blake2b(text, digest_size=size).digest()


HASHES: dict[str, Hash] = {
    "xxh3-128": Hash(128, _xxh3, "fast; documents by default"),
    # The kernel text/hashing.py computes MurmurHash3_x64_128. mmh3 has the same function, but needs
    # a Python call for each text, so it would add a dependency without adding speed.
    "murmur3-128": Hash(128, None, "fast on short texts; passages by default"),
    "blake2b-128": Hash(128, lambda: _blake2b(16), "resists texts made to collide (2^64 trials)"),
    "blake2b-256": Hash(256, lambda: _blake2b(32), "resists texts made to collide"),
    "sha256": Hash(
        256,
        partial(_digest_by, hashlib.sha256),
        "resists texts made to collide; known to every tool",
    ),
    "sha3-256": Hash(
        256, partial(_digest_by, hashlib.sha3_256), "resists texts made to collide; FIPS 202, slow"
    ),
    "sha1-64": Hash(64, _sha1_64, "CCNet's; collides by chance from 10^9 passages on"),
}


@njit(cache=True, nogil=True)
def _murmur3(data, offsets):
    out = np.empty((len(offsets) - 1, 2), np.uint64)
    for r in range(len(offsets) - 1):
        out[r, 0], out[r, 1] = hash128(data, offsets[r], offsets[r + 1])
    return out


def digests(data: np.ndarray, offsets: np.ndarray, name: str) -> np.ndarray:
    """Return uint8[rows, bits / 8]: hash `name` of each text data[offsets[r] : offsets[r + 1]]."""
    kind = HASHES[name]
    if kind.digest is None:
        return _murmur3(data, offsets).view(np.uint8)
    digest = kind.digest()
    view = memoryview(data)  # type: ignore[arg-type]
    at = offsets.tolist()
    joined = bytearray().join([digest(view[a:b]) for a, b in pairwise(at)])
    return np.frombuffer(joined, np.uint8).reshape(-1, kind.bits // 8)


def collision_odds(bits: int, texts: float) -> float:
    """Return the odds that any two of `texts` different texts share a key of `bits` bits."""
    return -math.expm1(-texts * (texts - 1) / 2 ** (bits + 1))


@dataclass(frozen=True)
class HashSpeed:
    """One hash function in the comparison: its size in bits, its speed in texts/s and MB/s on
    documents and on paragraphs, and the odds of a collision among 10^9 and 10^12 texts."""

    hash: str
    bits: int
    documents_per_second: int
    documents_mb_per_second: float
    paragraphs_per_second: int
    paragraphs_mb_per_second: float
    odds_1e9: float
    odds_1e12: float
    about: str


def hash_speeds(documents: int = 20_000, size: int = 2000) -> list[HashSpeed]:
    """Measure each hash on one core, on generated documents of `size` bytes and pieces of 100
    bytes. The times are processor time, the best of three passes."""
    import time

    data = np.random.default_rng(0).integers(32, 127, documents * size, dtype=np.uint8)

    def speed(name: str, length: int) -> tuple[int, float]:
        offsets = np.arange(0, len(data) + 1, length, dtype=np.int64)
        digests(data, offsets[:2], name)
        times = []
        for _ in range(3):
            begin = time.process_time()
            digests(data, offsets, name)
            times.append(time.process_time() - begin)
        seconds = max(min(times), 1e-9)
        texts = round((len(offsets) - 1) / seconds)
        return texts, round(float(offsets[-1]) / seconds / 1e6, 1)

    rows = []
    for name, kind in HASHES.items():
        speeds = *speed(name, size), *speed(name, min(PARAGRAPH, size))
        odds = collision_odds(kind.bits, 1e9), collision_odds(kind.bits, 1e12)
        rows.append(HashSpeed(name, kind.bits, *speeds, *odds, kind.about))
    return rows


def _odds(value: float) -> str:
    return "certain" if value > 0.9995 else f"{value:.1e}" if value < 0.01 else f"{value:.0%}"


def hash_table(rows: list[HashSpeed], size: int = 2000) -> str:
    head = ["hash", "bits"]
    for text in (f"{size} bytes", f"{min(PARAGRAPH, size)} bytes"):
        head += [f"texts of {text}: MB/s", "texts/s"]
    head += ["odds of a collision at 10^9 texts", "at 10^12 texts", ""]
    cells = [
        [
            *(row.hash, str(row.bits)),
            *(f"{row.documents_mb_per_second:.0f}", f"{row.documents_per_second:,}"),
            *(f"{row.paragraphs_mb_per_second:.0f}", f"{row.paragraphs_per_second:,}"),
            *(_odds(row.odds_1e9), _odds(row.odds_1e12), row.about),
        ]
        for row in rows
    ]
    return "\n".join(table(head, cells, left=(0, 8)))
