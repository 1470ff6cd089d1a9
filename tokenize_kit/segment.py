"""Text without spaces cut into the words of a list: Thai, Lao, Khmer, Burmese, or Chinese.

A stretch of letters and marks of these scripts is cut so that the fewest grapheme clusters lie
outside words, then into the fewest words (maximal matching, Sornlertlamvanich 1993); of equals, the
longer word comes first. What the list lacks stays in one piece. In the training of tokenizers
(Thai, Lao, Khmer, Burmese) no token is then learned over the end of a word; the tokenizer itself
needs no list. Curation counts words with it.
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
_ATTACHED = (0x0E33, 0x0EB3)  # SARA AM: letters, but with the character before them
_LINKERS = (0x17D2, 0x1039)  # of Khmer and Burmese: the letter behind belongs to the cluster


@lru_cache(maxsize=4)
def _kinds(scripts: tuple[str, ...]) -> np.ndarray:
    """uint8[0x10000]: 0 outside the stretches, 1 begins a cluster, 2 goes on with it, 3 links the
    next letter to it. Letters and marks of the scripts are all three bytes in UTF-8; rare Han
    letters of four are outside."""
    inside = np.logical_or.reduce([members(name) for name in scripts])
    kinds = np.zeros(0x10000, np.uint8)
    kinds[(inside & members("L"))[:0x10000]] = _LETTER
    kinds[(inside & members("M"))[:0x10000]] = _MARK
    kinds[list(_ATTACHED)] = _MARK
    kinds[list(_LINKERS)] = _LINKER
    return kinds


@dataclass(frozen=True)
class DictionaryCard:
    """What a tokenizer's card says of the list of words."""

    used: str
    words: int
    ignored: int
    sha256: str


@dataclass(frozen=True)
class Dictionary:
    """words: how many are of the scripts; ignored: lines that are not; sha256: of the file."""

    words: int
    ignored: int
    sha256: str
    slots: np.ndarray
    scripts: tuple[str, ...] = SCRIPTS

    def cut(self, data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """int64[]: the offsets with those of words put in between.

        data: uint8[], valid UTF-8; offsets: int64[rows + 1].
        """
        return _cut(data, offsets, _kinds(self.scripts), self.slots)

    def card(self) -> DictionaryCard:
        return DictionaryCard("in training alone", self.words, self.ignored, self.sha256)


def read_dictionary(path: Path, scripts: tuple[str, ...] | None = SCRIPTS) -> Dictionary:
    """A list of words, one a line, UTF-8; raises LlmcurateError naming the file. scripts: None for
    those that the list has words of, Han among them."""
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
    """The words of some lines of a file; raises LlmcurateError naming the file."""
    kinds = _kinds(scripts)
    words = sorted(line for line in lines if all(ord(c) < 0x10000 and kinds[ord(c)] for c in line))
    if not words:
        raise UsageError(
            f"dictionary {path}: no word of {', '.join(scripts)} in it; write one a line"
        )
    try:
        slots, _ = build_trie([word.encode() for word in words], np.arange(len(words)))
    except ValueError:
        raise UsageError(
            f"dictionary {path}: {len(words)} words are too many; leave out rare ones"
        ) from None
    return Dictionary(len(words), len(lines) - len(words), sha256, slots, scripts)


@njit(nogil=True)
def _kind_at(data, at, kinds):
    """The kind of the character at a position of valid UTF-8; only those of three bytes are
    inside."""
    if data[at] & 0xF0 != 0xE0:
        return np.uint8(0)
    code = (data[at] & 0x0F) << 12 | (data[at + 1] & 0x3F) << 6 | data[at + 2] & 0x3F
    return kinds[code]


@njit(nogil=True, allocates=True)
def _stretch(data, start, end, kinds, slots, cuts, count):
    """Appends the ends of words within a stretch to cuts: int64[]; their new count."""
    size = (end - start) // 3
    begins = np.ones(size + 1, np.bool_)
    for k in range(1, size):
        kind = _kind_at(data, start + 3 * k, kinds)
        begins[k] = kind == 1 and _kind_at(data, start + 3 * k - 3, kinds) != 3
    # From the end: the least cost of cutting the rest, where its first piece ends, and whether that
    # is a word. A cluster outside words costs more than all words of the stretch.
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
            if data[at] & 0xF0 != 0xE0:  # one byte further, within a character or not
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
