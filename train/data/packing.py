"""Packings: documents in rows of ``context`` targets. No packing drops a token.

concat    documents in shard order are one stream, cut into rows: no padding but in the last row,
          and a document is split wherever a row ends
best-fit  a document longer than a row fills rows of its own; what is left of it, and all shorter
          ones, go largest first into the row with the least room that takes them, so that no
          document is split that fits a row (best-fit decreasing; Ding et al. 2024)
padding   a row holds one document, or a part of one that is longer

A packing is a function of the documents' lengths and the seed. It holds an index of documents, not
of tokens: 16 to 24 bytes a document.
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
# (index among the documents, first token, tokens)
Spans = list[tuple[int, int, int]]


def key_of(*parts: int | str) -> int:
    """64 bits that stand for these parts."""
    text = " ".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def scatter(x: _U64) -> _U64:
    """SplitMix64's finaliser (Steele et al. 2014): a bijection that scatters its argument."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@dataclass(frozen=True, kw_only=True)
class Packed:
    """What a packing did. ``split``: documents that lie in more than one row; ``padded``: positions
    without a target; ``used``: the share of positions with one. Nothing is ever cropped.
    ``taken_rows``: those that a stage takes."""

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
    """Rows over documents of given lengths."""

    count: int

    def spans(self, row: int) -> Spans: ...

    def split(self) -> int:
        """Documents in more than one row."""
        ...


class Concat:
    """One stream, cut."""

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
    """One document a row."""

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
    """Full rows of long documents first, then the packed ones."""

    def __init__(self, length: Ints, context: int, seed: int) -> None:
        from train.data.kernels import best_fit, grouped

        self.length, self.context = length, context
        self.full = np.cumsum(length // context)
        self.fulls = int(self.full[-1]) if len(length) else 0
        # Among equal sizes the seed decides, so that neighbours in the shards are not neighbours
        # in rows.
        items = np.flatnonzero(length % context)
        key = np.uint64(key_of("pack", seed))
        items = items[np.argsort(scatter(items.astype(np.uint64) ^ key), kind="stable")]
        _, order = grouped(context - length[items] % context, context)
        items = items[order]
        rows, packed = best_fit(length[items] % context, context)
        self.row_ends, order = grouped(rows, packed)
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
    """The packing that is meant: of ``auto`` concat, or best-fit where documents may be cut in no
    other place than the end of a row (``cuts`` is false). Raises ``LlmcurateError``.
    """
    if asked == "auto":
        return "concat" if cuts else "best-fit"
    if asked not in PACKINGS:
        raise UsageError(f"packing {asked!r}: choose one of auto, {', '.join(PACKINGS)}")
    if asked == "concat" and not cuts:
        raise UsageError(
            "packing concat cuts documents anywhere, and this objective takes them in pieces:"
            " choose best-fit or padding"
        )
    return asked


def pack(name: str, length: Ints, context: int, seed: int) -> Packing:
    """Documents of these lengths (tokens), packed."""
    return PACKINGS[name](length, context, seed)


def figures(name: str, packing: Packing, length: Ints, context: int) -> Packed:
    """What that packing did with documents of these lengths."""
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
