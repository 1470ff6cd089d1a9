"""Counted words as characters, and the characters that a vocabulary has room for."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

COVERAGE = 0.9995  # SentencePiece's default: rarer characters are spelled in bytes


@dataclass(frozen=True)
class CharacterWords:
    """codes: uint32[characters] of all words; ends: int64[words + 1]; counts: int64[words]."""

    codes: np.ndarray
    ends: np.ndarray
    counts: np.ndarray

    def frequencies(self) -> Counter[str]:
        """How often every character occurs, in whole numbers of 64 bits."""
        found, numbers = np.unique(self.codes, return_inverse=True)
        sums = np.zeros(len(found), np.int64)
        np.add.at(sums, numbers, np.repeat(self.counts, np.diff(self.ends)))
        return Counter(dict(zip(map(chr, found.tolist()), sums.tolist(), strict=True)))


def characters_of(letters: np.ndarray, ends: np.ndarray, counts: np.ndarray) -> CharacterWords:
    """Of WordCounts.words(): letters: uint8[], whole UTF-8 characters; ends: int64[words + 1]."""
    codes = np.frombuffer(letters.tobytes().decode("utf-8").encode("utf-32-le"), np.uint32)
    begins = np.append(0, np.cumsum(letters & 0xC0 != 0x80))
    return CharacterWords(codes, begins[ends], counts)


def alphabet(
    characters: Counter[str], room: int, coverage: float = COVERAGE
) -> tuple[list[str], float]:
    """The characters that become pieces, commonest first, and the share of the text they cover.

    The commonest that cover so much of the text, but at most half of ``room``, so that words find
    a place too. Ties go by code point.
    """
    total, covered = characters.total(), 0
    kept: list[str] = []
    for character, count in sorted(characters.items(), key=lambda item: (-item[1], item[0])):
        if covered >= coverage * total or len(kept) >= max(1, room // 2):
            break
        kept.append(character)
        covered += count
    return kept, covered / max(1, total)
