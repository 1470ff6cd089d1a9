"""bff's and Dolma's rules in plain Python, and our blocked filter bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from curate.text.uax29 import uax_words

PRIME, MASK = 0x9E3779B97F4A7C15, 2**64 - 1
Gram = tuple[bytes, ...]


def mix(v: int) -> int:
    v ^= v >> 33
    v = v * 0xFF51AFD7ED558CCD & MASK
    v ^= v >> 33
    v = v * 0xC4CEB9FE1A85EC53 & MASK
    return v ^ (v >> 33)


def word_hash(word: bytes) -> int:
    value = 0xD1B54A32D192ED03
    for b in word:
        value = (value ^ b) * PRIME & MASK
    return mix(value)


def gram_key(gram: Gram, hashes: dict[bytes, int]) -> int:
    """The 64-bit key of an n-gram, seed 0."""
    value = 0
    for word in gram:
        if word not in hashes:
            hashes[word] = word_hash(word)
        value = (value * PRIME + hashes[word]) & MASK
    return mix(value ^ len(gram))


@dataclass
class Blocked:
    """A slice of a blocked filter over 64-bit keys: Python numbers of 512 bits."""

    blocks: int
    probes: int
    bits: dict[int, int] = field(default_factory=dict)

    def _mask(self, key: int) -> tuple[int, int]:
        mask, x = 0, key
        for _ in range(self.probes):
            x = x * PRIME & MASK
            mask |= 1 << (x >> 55)
        return ((key >> 32) * self.blocks) >> 32, mask

    def __contains__(self, key: int) -> bool:
        at, mask = self._mask(key)
        return self.bits.get(at, 0) & mask == mask

    def add(self, key: int) -> None:
        at, mask = self._mask(key)
        self.bits[at] = self.bits.get(at, 0) | mask

    def words(self) -> np.ndarray:
        """uint64[blocks * 8], as the file has them."""
        whole = b"".join(self.bits.get(i, 0).to_bytes(64, "little") for i in range(self.blocks))
        return np.frombuffer(whole, "<u8")


@dataclass
class GramFilter:
    """The same over n-grams."""

    filter: Blocked
    hashes: dict[bytes, int] = field(default_factory=dict)

    def __contains__(self, gram: Gram) -> bool:
        return gram_key(gram, self.hashes) in self.filter

    def add(self, gram: Gram) -> None:
        self.filter.add(gram_key(gram, self.hashes))


def tokens(data: bytes) -> list[tuple[int, bytes]]:
    """(position, word) as `split_word_bounds` without white space; tests of text/uax29.py compare
    that with a peer."""
    cuts = uax_words(np.frombuffer(bytearray(data), np.uint8), np.array([0, len(data)], np.int64))
    return [(a, data[a:z]) for a, z in zip(cuts.start.tolist(), cuts.end.tolist(), strict=True)]


def windows(data: bytes) -> list[tuple[int, int]]:
    """Between newlines; from the second on, each begins with its newline."""
    ends = [0, *(i for i, b in enumerate(data) if b == 10), len(data)]
    return list(pairwise(ends))


def grams(words: list[bytes], size: int, least: int) -> list[Gram]:
    runs = [tuple(words[i : i + size]) for i in range(len(words) - size + 1)]
    return runs or ([tuple(words)] if words and len(words) >= least else [])


def share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


@dataclass
class Done:
    """What the rules say of a document. spans: bytes that go; gone: the document goes."""

    spans: list[tuple[int, int]]
    gone: bool
    overlap: float
    text: bytes


def without(data: bytes, spans: list[tuple[int, int]]) -> bytes:
    at, out = 0, b""
    for a, z in spans:
        out += data[at:a]
        at = z
    return out + data[at:]


def bff(
    text: str, seen: Any, size: int, least: int, threshold: float, mode: str = "old-both"
) -> Done:
    """process_line (`paragraph`, `document`) and process_line_oldboth of bff's main.rs."""
    data = text.encode()
    spans, total, contained = [], 0, 0
    for a, z in [(0, len(data))] if mode == "document" else windows(data):
        ngrams = grams([w for _, w in tokens(data[a:z])], size, least)
        hits = sum(g in seen for g in ngrams)
        total += len(ngrams)
        contained += hits
        if share(hits, len(ngrams)) > threshold:
            spans.append((a, z))
        else:
            for g in ngrams:
                seen.add(g)
    overlap = share(contained, total)
    remaining = without(data, spans)
    if mode == "document":
        return Done([], bool(spans), overlap, remaining)
    if mode == "old-both" and overlap > threshold:
        return Done(spans, True, overlap, b"")
    return Done(spans, False, overlap, remaining)


def dolma_paragraphs(text: str, seen: set[str]) -> Done:
    """Whole paragraphs as keys, blank ones skipped; a span has the newline behind it."""
    spans, at, lines = [], 0, text.split("\n")
    keys = 0
    for k, line in enumerate(lines):
        end = at + len(line.encode()) + (k + 1 < len(lines))
        if line.strip():
            keys += 1
            if line in seen:
                spans.append((at, end))
            seen.add(line)
        at = end
    return Done(spans, False, share(len(spans), keys), without(text.encode(), spans))


def run(texts: list[str], rule: Callable[[str], Done]) -> tuple[list[str], list[Done]]:
    """(the texts that stay, in order; everything). A document that lost something and has nothing
    but white space left goes too."""
    done = [rule(t) for t in texts]
    stay = [
        d.text.decode()
        for d in done
        if not d.gone and not (d.spans and not d.text.decode().strip())
    ]
    return stay, done
