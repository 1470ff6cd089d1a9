"""Arrange documents in the rows on which a step trains.

A packing (packing.py) decides the tokens of each row. A row consists of pieces of documents. Each
piece comes with the token before it. At the start of a document this is the end-of-text token, as
in generation; elsewhere it is the last token of the previous piece. An objective turns pieces into
inputs and targets. If an objective adds or removes tokens, a function of type ``Takes`` says how
many positions of a row a piece then fills. Tokens that the shards mask are read but not scored in
training; held-out text is scored whole."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed, UsageError
from train.config import Source
from train.data.packing import Packed, Spans, figures, key_of, pack, packing_for
from train.data.readers import Flags, Ints
from train.data.shards import Shards

_PREFIX = 512  # tokens of a document that decide its side of the split

# From (numbers of tokens of pieces, context) to the positions they need, which grow with tokens.
Takes = Callable[[Ints, int], Ints]


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Tokens of one document within a row. ``document``: the number of the document in the run.
    ``first``: the index in the document of the piece's first token. ``before``: the token that
    precedes the piece. ``counted``: True for tokens that are scored; None means all."""

    document: int
    first: int
    before: int
    tokens: Ints
    counted: Flags | None = None


def cut_single(shards: Shards, held_out: float) -> Shards:
    """Return the shards, cut in two if they are a single document. The second part, a share
    ``held_out`` of the tokens, is the held-out text, as in nanoGPT's
    data/shakespeare_char/prepare.py. Bytes are estimated in proportion to tokens."""
    total = int(shards.length.sum())
    if shards.documents != 1 or total < 2:
        return shards
    size = min(max(1, round(held_out * total)), total - 1)
    length = np.array([total - size, size])
    bytes_each = None
    if shards.bytes is not None:
        first = int(shards.bytes[0]) * int(length[0]) // total
        bytes_each = np.array([first, int(shards.bytes[0]) - first])
    number, name = int(shards.shard[0]), shards.ids([0])[0]
    ids = pa.array([f"{name}[:{length[0]}]", f"{name}[{length[0]}:]"])
    parts = list(shards.parts)
    parts[number] = replace(parts[number], table=None, ids=ids)
    note = (
        f"{name}: the only document, so it is cut: {counted(total - size, 'token')} to train on, "
        f"then {counted(size, 'token')} held out"
    )
    return replace(
        shards,
        shard=np.repeat(shards.shard, 2),
        start=int(shards.start[0]) + np.array([0, total - size]),
        length=length,
        bytes=bytes_each,
        held_out=np.array([1]),
        parts=tuple(parts),
        notes=(*shards.notes, note),
    )


def split(
    shards: Shards, *, held_out: float, seed: int, unique_tokens: int | None = None
) -> tuple[Ints, Ints]:
    """Return the numbers of the training documents and of the held-out ones, both in shard order.

    If the shards do not name their held-out text, the choice depends only on the seed, the
    document's length and its first 512 tokens, so exact duplicates are never separated.
    ``unique_tokens`` limits training to whole documents, taken in a random order until they have
    this many tokens. A smaller limit selects a subset of what a larger limit selects. Raises
    ``LlmcurateError`` if all documents are the same, or if fewer than ``unique_tokens`` tokens are
    left for training."""
    from train.data.kernels import prefix_hashes

    draws = np.empty(shards.documents, dtype=np.uint64)
    edges = np.searchsorted(shards.shard, np.arange(len(shards.tokens) + 1))
    key = key_of("split", seed)
    for number, tokens in enumerate(shards.tokens):
        part = slice(int(edges[number]), int(edges[number + 1]))
        draws[part] = prefix_hashes(
            np.asarray(tokens), shards.start[part], shards.length[part], _PREFIX, np.uint64(key)
        )
    if len(shards.held_out):
        chosen = np.isin(np.arange(shards.documents), shards.held_out)
    elif len(draws) and draws.min() < draws.max():
        chosen = sides(draws, held_out)
    else:
        raise RunFailed(
            f"{shards.folder}: {counted(shards.documents, 'document')}, {min(1, len(draws))}"
            " different; "
            "training and held-out text need at least two different documents"
        )
    training = np.flatnonzero(~chosen)
    if unique_tokens is not None:
        drawn = training[np.argsort(draws[training], kind="stable")]
        ends = np.cumsum(shards.length[drawn])
        if ends[-1] < unique_tokens:
            raise UsageError(
                f"{shards.folder}: unique_tokens is {unique_tokens}, it has"
                f" {counted(int(ends[-1]), 'token')} to train on: give fewer"
            )
        training = np.sort(drawn[: np.searchsorted(ends, unique_tokens) + 1])
    return training, np.flatnonzero(chosen)


def sides(draws: npt.NDArray[np.uint64], held_out: float) -> Flags:
    """Return True for each held-out document. ``draws`` has a random number for each document. A
    document is held out if its number is at most ``held_out`` x 2^64, always if its number is the
    smallest, and never if it is the largest."""
    least, most = draws.min(), draws[draws < draws.max()].max()
    bound = np.uint64(min(int(held_out * 2.0**64), 2**64 - 1))
    return draws <= np.uint64(min(max(bound, least), most))


def longest(takes: Takes, context: int) -> int:
    """Return the number of tokens in the longest piece that fits into a row of ``context``
    positions. ``takes`` returns how many positions pieces need. Raises ``LlmcurateError`` if not
    even one token fits."""
    lengths = np.arange(context + 1)
    while takes(lengths[-1:], context)[0] <= context:
        lengths = np.arange(2 * len(lengths))
    fits = int(np.count_nonzero(takes(lengths, context) <= context))
    if fits < 2:  # only a piece without tokens fits
        raise UsageError(f"context is {context}: too short for the objective; raise context")
    return fits - 1


class Rows:
    """Documents of a folder of shards, packed into rows of ``context`` targets. With ``masked``,
    tokens that the shards exclude are not scored. The number of a document in the run is ``first``
    plus its number in the shards. Only the first ``most`` tokens of each document are read."""

    def __init__(
        self,
        shards: Shards,
        documents: Ints,
        context: int,
        *,
        masked: bool = False,
        packing: str = "auto",
        seed: int = 0,
        first: int = 0,
        takes: Takes | None = None,
        most: int | None = None,
    ) -> None:
        self.shards, self.documents, self.context, self.first = shards, documents, context, first
        self.masked = shards.answers or (masked and shards.masks is not None)
        self.packing = packing_for(packing, takes is None)
        self.length = shards.length[documents]
        if most is not None:
            self.length = np.minimum(self.length, most)
        self.longest, packed = context, self.length  # most tokens of a piece; sizes in positions
        if takes is not None:
            self.longest = longest(takes, context)
            whole, left = np.divmod(self.length, self.longest)
            packed = whole * context + np.where(left > 0, takes(left, context), 0)
        self.positions = packed
        self.packed = pack(self.packing, packed, context, seed)
        self.count = self.packed.count
        self.tokens = int(self.length.sum())

    @property
    def sources(self) -> list[Rows]:
        """A list of only these rows, so that they can be used like a ``Mixture``."""
        return [self]

    def width(self, row: int) -> int:
        return self.context

    def figures(self) -> Packed:
        return figures(self.packing, self.packed, self.positions, self.context)

    def spans(self, row: int) -> list[tuple[int, int, int]]:
        """Return (document, first token, number of tokens) of each piece in a row."""
        return [
            (self.first + int(self.documents[index]), first, taken)
            for index, first, taken in self._spans(row)
        ]

    def _spans(self, row: int) -> Spans:
        spans = self.packed.spans(row)
        if self.positions is self.length:
            return spans
        first = [place // self.context * self.longest for _, place, _ in spans]
        return [
            (index, start, min(self.longest, int(self.length[index]) - start))
            for (index, _, _), start in zip(spans, first, strict=True)
        ]

    def ids(self, documents: list[int]) -> list[str]:
        """Return the ids of documents, given by their numbers in the run."""
        return self.shards.ids([document - self.first for document in documents])

    def _before(self, index: int, first: int) -> int:
        """Return the token before a piece. At the start of a document (``first`` is 0), this is
        ``Shards.before`` or, if that is None, the last token of the previous document."""
        document = int(self.documents[index])
        if first or self.shards.answers:
            place = int(self.shards.start[document]) + first - 1
            return int(self.shards.tokens[int(self.shards.shard[document])][place])
        if self.shards.before is not None:
            return self.shards.before
        for back in range(1, len(self.documents) + 1):
            tokens = self.shards.document(int(self.documents[index - back]))
            if len(tokens):
                return int(tokens[-1])
        return 0

    def pieces(self, row: int) -> list[Piece]:
        """Return the pieces of a row, in order. Raises ``LlmcurateError`` for unknown token ids."""
        pieces = []
        for index, first, taken in self._spans(row):
            document = int(self.documents[index])
            part = slice(first, first + taken)
            pieces.append(
                Piece(
                    document=self.first + document,
                    first=first,
                    before=self._before(index, first),
                    tokens=tokens_of(self.shards, document, part),
                    counted=self.shards.counted(document)[part] if self.masked else None,
                )
            )
        return pieces


def tokens_of(shards: Shards, document: int, part: slice) -> Ints:
    """Return tokens of a document. Raises ``LlmcurateError`` if the vocabulary lacks a token."""
    tokens = shards.document(document)[part].astype(np.int64)
    if int(tokens.min()) < 0 or int(tokens.max()) >= shards.vocab_size:
        index = int(np.flatnonzero((tokens < 0) | (tokens >= shards.vocab_size))[0])
        position = int(shards.start[document]) + (part.start or 0) + index
        raise RunFailed(
            f"{shards.folder}: document {shards.ids([document])[0]} has token {tokens[index]}, "
            f"outside the vocabulary of {shards.vocab_size}, at position {position:,} of "
            f"{shards.parts[int(shards.shard[document])].name}"
        )
    return tokens


def counts(shares: Sequence[int], rows: int) -> list[int]:
    """Divide ``rows`` rows among sources in proportion to ``shares``; return the rows per source.
    To do so, the list of sources is halved repeatedly, and each half gets its share, rounded to
    whole rows. So no source gets fewer rows if ``rows`` is larger."""
    if len(shares) == 1:
        return [rows]
    middle = len(shares) // 2
    before, total = sum(shares[:middle]), sum(shares)
    due = (2 * rows * before + total) // (2 * total) if total else 0
    return counts(shares[:middle], due) + counts(shares[middle:], rows - due)


def shares_of(
    sources: Sequence[Source], rows: Sequence[Rows], *, steps: int, batch: int
) -> list[int]:
    """Return a whole number for each source: the sources share the rows in the proportion of these
    numbers. If all sources have weights, the numbers are in proportion to these. If each source has
    tokens or epochs, its number is the rows that these take. If none has a weight, tokens or
    epochs, the numbers are the sources' own numbers of rows. Raises ``LlmcurateError`` for other
    mixtures, for a source without rows, and if the rows for tokens or epochs, divided by ``batch``
    and rounded up, are not ``steps``."""
    for source, part in zip(sources, rows, strict=True):
        if not part.count:
            raise RunFailed(f"source {source.label}: no tokens to train on")
    if all(s.weight is None and s.tokens is None and s.epochs is None for s in sources):
        return [part.count for part in rows]
    if all(source.weight is not None for source in sources):
        exact = [Fraction(str(source.weight)) for source in sources]
        common = math.lcm(*(weight.denominator for weight in exact))
        return [int(weight * common) for weight in exact]
    amounts = []
    for source, part in zip(sources, rows, strict=True):
        if source.tokens is not None:
            amounts.append(-(-source.tokens * part.count // part.tokens))
        elif source.epochs is not None:
            amounts.append(max(1, round(Fraction(str(source.epochs)) * part.count)))
        else:
            raise UsageError(
                f"source {source.label}: give every source a weight, or every one tokens or "
                "epochs, or leave all of these out"
            )
    needed = -(-sum(amounts) // batch)
    if needed != steps:
        asked = ", ".join(f"{s.label} {n}" for s, n in zip(sources, amounts, strict=True))
        raise UsageError(
            f"the sources ask for {counted(sum(amounts), 'row')} ({asked}),"
            f" {counted(steps, 'step')} of {counted(batch, 'row')} "
            f"take {steps * batch}: set steps to {needed}, or give weights"
        )
    return amounts


class Mixture:
    """The rows of several sources under one numbering, one source after another."""

    def __init__(self, sources: list[Rows]) -> None:
        self.sources, self.context = sources, sources[0].context
        self.ends = list(itertools.accumulate(source.count for source in sources))
        self.count = self.ends[-1]
        self.tokens = sum(source.tokens for source in sources)

    def locate(self, row: int) -> tuple[int, int]:
        """Return the number of a row's source, and the row's number in that source."""
        number = next(k for k, end in enumerate(self.ends) if row < end)
        return number, row - (self.ends[number - 1] if number else 0)

    def spans(self, row: int) -> list[tuple[int, int, int]]:
        number, own_row = self.locate(row)
        return self.sources[number].spans(own_row)

    def ids(self, documents: list[int]) -> list[str]:
        return self.column(documents, Shards.ids)

    def column(
        self, documents: list[int], ask: Callable[[Shards, list[int]], list[str]]
    ) -> list[str]:
        """Return what ``ask`` returns for each document, from its source's shards."""
        answers: dict[int, str] = {}
        for source in self.sources:
            first, last = source.first, source.first + source.shards.documents
            of_source = [d for d in documents if first <= d < last and d not in answers]
            values = ask(source.shards, [document - first for document in of_source])
            answers |= dict(zip(of_source, values, strict=True))
        return [answers[document] for document in documents]

    def width(self, row: int) -> int:
        return self.sources[self.locate(row)[0]].context

    def pieces(self, row: int) -> list[Piece]:
        number, own_row = self.locate(row)
        return self.sources[number].pieces(own_row)
