"""Packings: ways to arrange documents in rows of ``context`` targets (tokens that the model
predicts). No packing drops a token.

concat    documents in shard order form one stream, which is cut into rows
best-fit  a document longer than a row fills whole rows; its remainder and all shorter documents
          are put, largest first, into the row with the least room in which they fit, so no document
          that fits a row is split (best-fit decreasing; Ding et al. 2024)
padding   a row holds one document, or a part of a longer one

A packing depends only on the documents' lengths and the seed. It needs 16 to 24 bytes per document.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from llmcurate.base.errors import UsageError
from llmcurate.base.messages import OPTIONAL
from train.data.readers import Ints

_U64 = npt.NDArray[np.uint64]
# (index of the document, index of the first token, number of tokens) of each piece
Spans = list[tuple[int, int, int]]


def key_of(*parts: int | str) -> int:
    """Return a 64-bit hash of these parts."""
    text = " ".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def mix64(x: _U64) -> _U64:
    """Return a hash of each number, a bijection: SplitMix64's finaliser (Steele et al. 2014)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@dataclass(frozen=True, kw_only=True)
class Packed:
    """The result of a packing. ``split`` is the number of documents in more than one row.
    ``padded`` is the number of positions without a target in all rows, and ``used`` is the share of
    positions that have a target. ``cropped`` is always 0: no packing drops tokens."""

    packing: str
    documents: int
    tokens: int
    rows: int
    split: int
    padded: int
    used: float
    cropped: int = 0
    taken_rows: int | None = field(default=None, metadata=OPTIONAL)


class Packing(Protocol):
    """Documents of given lengths, arranged in rows."""

    count: int

    def spans(self, row: int) -> Spans: ...

    def split(self) -> int:
        """Return the number of documents in more than one row."""
        ...


class Concat:
    """A packing that joins documents to one stream, which is cut into rows."""

    def __init__(self, length: Ints, context: int, seed: int) -> None:
        self.length, self.context = length, context
        self.ends = np.cumsum(length)
        self.tokens = int(self.ends[-1]) if len(length) else 0
        self.count = -(-self.tokens // context)

    def spans(self, row: int) -> Spans:
        position, end = row * self.context, min((row + 1) * self.context, self.tokens)
        spans = []
        index = int(np.searchsorted(self.ends, position, side="right"))
        while position < end:
            stop = int(self.ends[index])
            taken = min(end, stop) - position
            if taken:
                spans.append((index, position - (stop - int(self.length[index])), taken))
            position += taken
            index += 1
        return spans

    def split(self) -> int:
        starts = self.ends - self.length
        crosses = starts // self.context != (self.ends - 1) // self.context
        return int((crosses & (self.length > 0)).sum())


class Padding:
    """A packing with one document per row."""

    def __init__(self, length: Ints, context: int, seed: int) -> None:
        self.length, self.context = length, context
        self.ends = np.cumsum(-(-length // context))
        self.count = int(self.ends[-1]) if len(length) else 0

    def spans(self, row: int) -> Spans:
        index = int(np.searchsorted(self.ends, row, side="right"))
        length = int(self.length[index])
        first = (row - int(self.ends[index]) - (-length // self.context)) * self.context
        return [(index, first, min(self.context, length - first))]

    def split(self) -> int:
        return int((self.length > self.context).sum())


class BestFit:
    """A packing in which long documents fill whole rows. The rows after these have the remainders
    and the short documents."""

    def __init__(self, length: Ints, context: int, seed: int) -> None:
        from train.data.kernels import best_fit, counting_sort

        self.length, self.context = length, context
        self.full = np.cumsum(length // context)
        self.fulls = int(self.full[-1]) if len(length) else 0
        # Equal sizes are shuffled, so that neighbours in the shards are not neighbours in rows.
        items = np.flatnonzero(length % context)
        key = np.uint64(key_of("pack", seed))
        items = items[np.argsort(mix64(items.astype(np.uint64) ^ key), kind="stable")]
        _, order = counting_sort(context - length[items] % context, context)
        items = items[order]
        rows, packed = best_fit(length[items] % context, context)
        self.row_ends, order = counting_sort(rows, packed)
        self.items = items[order]
        self.count = self.fulls + packed

    def spans(self, row: int) -> Spans:
        if row < self.fulls:
            index = int(np.searchsorted(self.full, row, side="right"))
            before = int(self.full[index]) - int(self.length[index]) // self.context
            return [(index, (row - before) * self.context, self.context)]
        packed = row - self.fulls
        start = int(self.row_ends[packed - 1]) if packed else 0
        spans = []
        for index in self.items[start : int(self.row_ends[packed])]:
            length = int(self.length[index])
            remainder = length % self.context
            spans.append((int(index), length - remainder, remainder))
        return spans

    def split(self) -> int:
        return int((self.length > self.context).sum())


PACKINGS: dict[str, type[Concat] | type[Padding] | type[BestFit]] = {
    "concat": Concat,
    "best-fit": BestFit,
    "padding": Padding,
}


def packing_for(asked: str, cuts: bool) -> str:
    """Return the name of the packing for the setting ``asked``. For ``auto`` this is concat if
    documents may be cut anywhere (``cuts``), otherwise best-fit. Raises ``LlmcurateError`` if the
    packing is unknown, or is concat although ``cuts`` is False."""
    if asked == "auto":
        return "concat" if cuts else "best-fit"
    if asked not in PACKINGS:
        raise UsageError(f"packing {asked!r}: choose one of auto, {', '.join(PACKINGS)}")
    if asked == "concat" and not cuts:
        raise UsageError(
            "packing concat cuts documents anywhere, which this objective does not allow:"
            " choose best-fit or padding"
        )
    return asked


def pack(name: str, length: Ints, context: int, seed: int) -> Packing:
    return PACKINGS[name](length, context, seed)


def figures(name: str, packing: Packing, length: Ints, context: int) -> Packed:
    """Return the figures of a packing of documents with these lengths."""
    tokens, positions = int(length.sum()), packing.count * context
    return Packed(
        packing=name,
        documents=len(length),
        tokens=tokens,
        rows=packing.count,
        split=packing.split(),
        padded=positions - tokens,
        used=tokens / max(1, positions),
    )
