"""Split text written without spaces into the words of a list: Thai, Lao, Khmer, Burmese or Chinese.

A run of letters and marks of these scripts is split so that the fewest grapheme clusters lie
outside words, then into the fewest words (maximal matching, Sornlertlamvanich 1993); in a tie, the
longer word comes first. Text between words of the list stays in one piece. When a tokenizer is
trained (on Thai, Lao, Khmer, Burmese), no token is learned across the end of a word; the trained
tokenizer does not need the list. Curation uses the list to count words.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from llmcurate.base.errors import UsageError
from llmcurate.base.kernels import njit
from tokenize_kit.encode.trie import build_trie, prefix_ends
from tokenize_kit.pattern.categories import members

SCRIPTS = ("Thai", "Lao", "Khmer", "Myanmar")
_LETTER, _MARK, _LINKER = 1, 2, 3
_ATTACHED = (0x0E33, 0x0EB3)  # SARA AM: letters that belong to the character before them
_LINKERS = (0x17D2, 0x1039)  # of Khmer and Burmese: the next letter belongs to the same cluster


@lru_cache(maxsize=4)
def _kinds(scripts: tuple[str, ...]) -> np.ndarray:
    """Return uint8[0x10000], the kind of each code point: 1 begins a grapheme cluster, 2 continues
    the cluster, 3 continues it and adds the next letter to it, 0 is no letter or mark of the
    scripts. Code points of kinds 1 to 3 take three bytes in UTF-8; rare Han letters of four bytes
    are left out."""
    inside = np.logical_or.reduce([members(name) for name in scripts])
    kinds = np.zeros(0x10000, np.uint8)
    kinds[(inside & members("L"))[:0x10000]] = _LETTER
    kinds[(inside & members("M"))[:0x10000]] = _MARK
    kinds[list(_ATTACHED)] = _MARK
    kinds[list(_LINKERS)] = _LINKER
    return kinds


@dataclass(frozen=True)
class DictionaryCard:
    """The entry in a tokenizer's card about the dictionary, the list of words by which text without
    spaces was split in training. words, ignored, sha256: as in Dictionary."""

    used: str
    words: int
    ignored: int
    sha256: str


@dataclass(frozen=True)
class Dictionary:
    """A list of words. words: the number of words in the chosen scripts; ignored: the number of
    other lines; sha256: the hash of the file."""

    words: int
    ignored: int
    sha256: str
    slots: np.ndarray
    scripts: tuple[str, ...] = SCRIPTS

    def cut(self, data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Return int64[]: the bounds of the texts and of the words found in them, in order. data:
        uint8[], valid UTF-8; offsets: int64[rows + 1]."""
        return _cut(data, offsets, _kinds(self.scripts), self.slots)

    def card(self) -> DictionaryCard:
        return DictionaryCard("in training alone", self.words, self.ignored, self.sha256)


def read_dictionary(path: Path, scripts: tuple[str, ...] | None = SCRIPTS) -> Dictionary:
    """Read a list of words from a UTF-8 file with one word per line. scripts: the words' scripts;
    None for all scripts in the list, even Han. Raises LlmcurateError naming the file."""
    try:
        raw = path.read_bytes()
        lines = {line.strip() for line in raw.decode("utf-8-sig").splitlines()} - {""}
    except OSError as error:
        raise UsageError(f"dictionary {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"dictionary {path}: not UTF-8 text") from None
    if scripts is None:
        code_points = [ord(c) for c in set().union(*lines)]
        scripts = tuple(n for n in (*SCRIPTS, "Han") if members(n)[code_points].any()) or SCRIPTS
    return dictionary_of(lines, hashlib.sha256(raw).hexdigest(), path, scripts)


def dictionary_of(
    lines: set[str], sha256: str, path: Path, scripts: tuple[str, ...] = SCRIPTS
) -> Dictionary:
    """Build a dictionary from the lines of a file. Raises LlmcurateError naming the file."""
    kinds = _kinds(scripts)
    words = sorted(line for line in lines if all(ord(c) < 0x10000 and kinds[ord(c)] for c in line))
    if not words:
        raise UsageError(
            f"dictionary {path}: has no word of {', '.join(scripts)}; write one word per line"
        )
    try:
        slots, _ = build_trie([word.encode() for word in words], np.arange(len(words)))
    except ValueError:
        raise UsageError(
            f"dictionary {path}: {len(words)} words are too many; remove rare ones"
        ) from None
    return Dictionary(len(words), len(lines) - len(words), sha256, slots, scripts)


@njit(nogil=True)
def _kind_at(data, at, kinds):
    if data[at] & 0xF0 != 0xE0:
        return np.uint8(0)
    code = (data[at] & 0x0F) << 12 | (data[at + 1] & 0x3F) << 6 | data[at + 2] & 0x3F
    return kinds[code]


@njit(nogil=True, allocates=True)
def _stretch(data, start, end, kinds, slots, cuts, count):
    size = (end - start) // 3
    begins = np.ones(size + 1, np.bool_)
    for k in range(1, size):
        kind = _kind_at(data, start + 3 * k, kinds)
        begins[k] = kind == 1 and _kind_at(data, start + 3 * k - 3, kinds) != 3
    # From the end: the least cost of splitting the remaining text, where its first piece ends, and
    # whether that piece is a word. A cluster outside words costs more than all words of the run.
    outside = size + 1
    cost = np.zeros(size + 1, np.int64)
    following = np.full(size + 1, size, np.int64)
    is_word = np.zeros(size + 1, np.bool_)
    ends = np.empty(size + 1, np.int64)
    last = size
    for k in range(size - 1, -1, -1):
        if not begins[k]:
            continue
        cost[k], following[k] = cost[last] + outside, last
        for w in range(prefix_ends(slots, data, start + 3 * k, end, ends)):
            stop = (ends[w] - start) // 3
            if begins[stop] and cost[stop] + 1 <= cost[k]:
                cost[k], following[k], is_word[k] = cost[stop] + 1, stop, True
        last = k
    k = 0
    while following[k] < size:
        stop = following[k]
        if is_word[k] or is_word[stop]:
            cuts[count] = start + 3 * stop
            count += 1
        k = stop
    return count


@njit(cache=True, nogil=True)
def _cut(data, offsets, kinds, slots):
    cuts = np.empty(len(offsets) + (offsets[-1] - offsets[0]) // 3 + 1, np.int64)
    cuts[0] = offsets[0]
    count = np.int64(1)
    for row in range(len(offsets) - 1):
        at, end = offsets[row], offsets[row + 1]
        while at < end:
            if data[at] & 0xF0 != 0xE0:  # such a byte begins no character of the scripts
                at += 1
                continue
            stop = at
            while stop < end and _kind_at(data, stop, kinds):
                stop += 3
            if stop - at > 3:
                count = _stretch(data, at, stop, kinds, slots, cuts, count)
            at = max(stop, at + 3)
        cuts[count] = end
        count += 1
    return cuts[:count]
