"""Dedup of passages in plain Python, read from top to bottom.

`c4_lines` is what TensorFlow Datasets' c4_utils.py does with pages of different URLs: of the URLs
that hold a line, the one whose md5 is least keeps it, once; then pages with too few sentences go.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict


def md5(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()


def key_of(piece: str) -> str:
    return md5(piece.strip().lower())


def c4_lines(pages: dict[str, str]) -> dict[str, str]:
    """URL -> text of the lines that stay; pages: URL -> text. Blank lines are no copies of each
    other (in C4 there are none: its cleaner took them)."""
    holders: dict[str, set[str]] = defaultdict(set)
    for url, text in pages.items():
        for line in text.split("\n"):
            holders[key_of(line)].add(url)
    keeper = {key: min(urls, key=md5) for key, urls in holders.items()}
    out = {}
    for url, text in pages.items():
        kept, seen = [], set()
        for line in text.split("\n"):
            key = key_of(line)
            if line.strip():
                if keeper[key] != url or key in seen:
                    continue
                seen.add(key)
            kept.append(line)
        out[url] = "\n".join(kept)
    return out


# The 34 keys of UNICODE_PUNCT in CCNet's text_normalizer.py, by code point.
CCNET_LIST = (
    "ff0c 3002 3001 201e 201d 201c ab bb ff11 300d 300c 300a 300b b4 2236 ff1a ff1f ff01 ff08 ff09"
    " ff1b 2013 2014 ff0e ff5e 2019 2026 2501 3008 3009 3010 3011 ff05 25ba"
)
CCNET_GONE = {int(c, 16) for c in CCNET_LIST.split()} | {*range(32), *range(127, 160)}


def ccnet_key(line: str) -> int:
    """CCNet's hash of a line: strip, lower, digits to 0, its characters out; 8 bytes of SHA-1."""
    text = re.sub(r"\d", "0", line.strip().lower())
    text = "".join(c for c in text if ord(c) not in CCNET_GONE)
    return int.from_bytes(hashlib.sha1(text.encode()).digest()[:8], "little")


def ccnet(pages: dict[str, str]) -> dict[str, str]:
    """id -> text of the lines that stay; a page without any is absent. A line in two pages goes
    from both; of one that repeats in a page alone the first stays. Blank lines are lines. An empty
    page, which CCNet drops before, is left out."""
    pages = {name: text for name, text in pages.items() if text}
    hashes = {name: [ccnet_key(line) for line in text.split("\n")] for name, text in pages.items()}
    pages_of = Counter(key for keys in hashes.values() for key in set(keys))
    out = {}
    for name, text in pages.items():
        kept, seen = [], set()
        for line, key in zip(text.split("\n"), hashes[name], strict=True):
            if pages_of[key] == 1 and key not in seen:
                kept.append(line)
            seen.add(key)
        if kept:
            out[name] = "\n".join(kept)
    return out


def cut_sentences(pages: dict[str, list[str]], span: int) -> dict[str, list[str]]:
    """id -> sentences that stay; pages: id -> sentences, in the order in which they are preferred.
    Every sentence of a span that stood before, in this page or one before it, goes."""
    seen: set[tuple[str, ...]] = set()
    out = {}
    for name, sentences in pages.items():
        folded = [s.strip().lower() for s in sentences]
        gone: set[int] = set()
        for i in range(len(folded) - span + 1):
            passage = tuple(folded[i : i + span])
            if passage in seen:
                gone.update(range(i, i + span))
            seen.add(passage)
        out[name] = [s for i, s in enumerate(sentences) if i not in gone]
    return out


def murmur3(data: bytes) -> tuple[int, int]:
    """MurmurHash3_x64_128 of bytes, seed 0."""
    mask = (1 << 64) - 1
    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F

    def rotate(value: int, bits: int) -> int:
        return ((value << bits) | (value >> (64 - bits))) & mask

    def final(value: int) -> int:
        value = ((value ^ (value >> 33)) * 0xFF51AFD7ED558CCD) & mask
        value = ((value ^ (value >> 33)) * 0xC4CEB9FE1A85EC53) & mask
        return value ^ (value >> 33)

    h1 = h2 = 0
    whole = len(data) // 16 * 16
    for i in range(0, whole, 16):
        k1 = int.from_bytes(data[i : i + 8], "little")
        k2 = int.from_bytes(data[i + 8 : i + 16], "little")
        h1 ^= (rotate((k1 * c1) & mask, 31) * c2) & mask
        h1 = ((rotate(h1, 27) + h2) * 5 + 0x52DCE729) & mask
        h2 ^= (rotate((k2 * c2) & mask, 33) * c1) & mask
        h2 = ((rotate(h2, 31) + h1) * 5 + 0x38495AB5) & mask
    tail = data[whole:]
    k1, k2 = int.from_bytes(tail[:8], "little"), int.from_bytes(tail[8:], "little")
    h2 ^= (rotate((k2 * c2) & mask, 33) * c1) & mask
    h1 ^= (rotate((k1 * c1) & mask, 31) * c2) & mask
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = (h1 + h2) & mask
    h2 = (h2 + h1) & mask
    h1, h2 = final(h1), final(h2)
    h1 = (h1 + h2) & mask
    return h1, (h2 + h1) & mask
