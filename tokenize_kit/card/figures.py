"""Figures of a tokenizer, measured on a sample of text, as `llmcurate tokenizer eval` gives them.

The sample has bounded size and no order of documents changes it. Texts are cut into pieces, a piece
is known by a hash of its bytes and the seed, and those with the smallest hashes are kept: a long
document is no more likely to be in the sample than short ones of the same size, and copies count as
often as they come.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from heapq import heappop, heappush
from itertools import pairwise
from pathlib import Path

import numpy as np
import xxhash

from tokenize_kit.encode.parts import pack
from tokenize_kit.judge.candidate import open_candidate
from tokenize_kit.judge.tally import NumberCut, Tally, Texts
from tokenize_kit.judge.words import Segmentation
from tokenize_kit.segment.dictionary import Dictionary

PIECE_BYTES = 8192  # of a piece at most, so that a long document is not half of the sample
MOST_BYTES = 2 << 20
_A_PIECE = 64  # counted for each, so that tiny ones are not millions


class Sample:
    """`add` texts, then read `pieces`. Holds `most` bytes of pieces at most."""

    def __init__(self, seed: int = 0, most: int = MOST_BYTES) -> None:
        self.seed = seed
        self._room = most
        self._heap: list[tuple[int, bytes]] = []  # the largest hash first
        self._limit = 1 << 64  # hashes from here on did not fit

    def add(self, raw: bytes) -> None:
        """A text, as valid UTF-8."""
        for first, last in pairwise(_cuts(raw)):
            piece = raw if last - first == len(raw) else raw[first:last]
            position = xxhash.xxh3_64_intdigest(piece, self.seed)
            if position >= self._limit:
                continue
            heappush(self._heap, (-position, piece))
            self._room -= len(piece) + _A_PIECE
            while self._room < 0:
                largest, gone = heappop(self._heap)
                self._limit = -largest
                self._room += len(gone) + _A_PIECE

    def add_rows(self, data: np.ndarray, offsets: np.ndarray) -> None:
        """Texts as buffers: uint8[], int64[rows + 1]."""
        for a, z in pairwise(offsets.tolist()):
            self.add(data[a:z].tobytes())

    def pieces(self) -> list[bytes]:
        """The kept pieces, in order of their hashes."""
        return [piece for _, piece in sorted(self._heap, reverse=True)]

    def texts(self) -> list[str]:
        return [piece.decode("utf-8") for piece in self.pieces()]

    def buffers(self) -> tuple[np.ndarray, np.ndarray]:
        """(data: uint8[], offsets: int64[pieces + 1])."""
        return pack(self.pieces())


def _cuts(raw: bytes) -> Iterator[int]:
    """The bounds of pieces: as long as possible, and between characters."""
    at = 0
    while at < len(raw):
        yield at
        at += PIECE_BYTES
        while at < len(raw) and raw[at] & 0xC0 == 0x80:
            at -= 1
    if raw:
        yield len(raw)


@dataclass(frozen=True)
class Measured:
    """Figures of a tokenizer on texts: those of `Tally.result` without speeds, for a card has the
    same bytes wherever it is made.

    on: what the texts are; seed: of their sample; byte_share: the share of tokens of a single byte
    that a missing character is spelled in, None where the model has none; first_lost: the beginning
    of the first text that does not come back.
    """

    on: str
    seed: int
    texts: int
    bytes: int
    characters: int
    tokens: int
    bytes_a_token: float | None
    characters_a_token: float | None
    fertility: float | None
    whole_share: float | None
    tokens_a_letter: float | None
    unknown_share: float | None
    parts_share: float | None
    cluster_cut_share: float | None
    only_marks_share: float | None
    boundary_precision: float | None
    boundary_recall: float | None
    boundary_f1: float | None
    scripts: list[dict[str, int | str]]
    numbers: list[NumberCut]
    digit_groups: str
    indentation: list[dict[str, int]]
    used: int
    used_share: float
    unreachable: int
    lost: int
    byte_share: float | None
    first_lost: str | None


def measure(file: Path, sample: Sample, on: str, dictionary: Dictionary | None = None) -> Measured:
    """The figures of a tokenizer's file; ratios have six digits. dictionary: of words of scripts
    without spaces."""
    tally = Tally(open_candidate(file))
    tally.add(Texts.of(*sample.buffers(), Segmentation(dictionary)))
    figures = tally.result()
    spelled, lost = sorted(tally.candidate.byte_ids), figures["first_lost"]
    figures["byte_share"] = (
        tally.counts[spelled].sum() / max(figures["tokens"], 1) if spelled else None
    )
    figures["first_lost"] = lost["was"][:40] if lost else None
    values = {field.name: figures[field.name] for field in fields(Measured)[2:]}
    values["numbers"] = [NumberCut(**row) for row in values["numbers"]]
    ratios = {k: round(float(v), 6) for k, v in values.items() if isinstance(v, float)}
    return Measured(on, sample.seed, **(values | ratios))
