"""Which tokens a step trains on: a pure function of (shards, seed, step).

The training documents, in shard order, are one stream of tokens, cut into rows of ``context``
targets. Nothing is cropped or padded except the end of the last row, and in an epoch every token is
a target exactly once: the input of a row is the row shifted by one, beginning with the last token
of the row before (of the stream, for the first row).

An input position belongs to the document of its target. So the end-of-text token of one document
is the first input of the next, which starts from it and from nothing else, as in generation.

Where the shards say which tokens count, the others are read and not scored, in training alone:
held-out text is scored whole.

Each epoch visits the rows in an order of its own, drawn from (seed, epoch).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from train.data.shards import Shards
from train.errors import TrainError

IGNORED = -100  # a target that is not scored (torch's cross_entropy default)
_PREFIX = 512  # tokens of a document that decide its side of the split


@dataclass(frozen=True, kw_only=True)
class Batch:
    """``inputs, targets, documents``: int64 [rows, context].

    ``documents`` numbers the documents of the shards; the padding of the last row is -1 there and
    ``IGNORED`` in ``targets``.
    """

    inputs: Tensor
    targets: Tensor
    documents: Tensor

    @property
    def tokens(self) -> int:
        """Targets that are scored."""
        return int((self.targets != IGNORED).sum())


def split(shards: Shards, *, held_out: float, seed: int) -> tuple[npt.NDArray[np.int64], ...]:
    """Document numbers for training and held out, both in shard order.

    A document's side depends on the seed, its length and its first 512 tokens alone, so exact
    copies are never on both sides. At least one document is on each side. Raises ``TrainError``
    where all documents are the same one.
    """
    key = seed.to_bytes(8, "little")
    draws = np.empty(shards.documents, dtype=np.uint64)
    for index in range(shards.documents):
        head = shards.document(index)[:_PREFIX].astype("<u4").tobytes()
        length = int(shards.length[index]).to_bytes(8, "little")
        digest = hashlib.blake2b(length + head, digest_size=8, key=key).digest()
        draws[index] = int.from_bytes(digest, "little")
    distinct = np.unique(draws)
    if len(distinct) < 2:
        raise TrainError(
            f"{shards.folder}: {shards.documents} documents, {len(distinct)} different; training "
            "and held-out text need two different ones at least"
        )
    bound = np.uint64(min(int(held_out * 2.0**64), 2**64 - 1))
    bound = np.uint64(min(max(bound, distinct[0]), distinct[-2]))
    chosen = draws <= bound
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)


class Rows:
    """A list of documents as rows of ``context`` targets, without loss (see the module).

    ``masked``: targets that do not count by the shards' masks are ``IGNORED``.
    """

    def __init__(
        self,
        shards: Shards,
        documents: npt.NDArray[np.int64],
        context: int,
        *,
        masked: bool = False,
    ) -> None:
        self.shards, self.documents, self.context = shards, documents, context
        self.masked = masked and shards.masks is not None
        self.ends = np.cumsum(shards.length[documents])
        self.tokens = int(self.ends[-1]) if len(documents) else 0
        self.count = -(-self.tokens // context)

    def spans(self, row: int) -> list[tuple[int, int, int]]:
        """(document, first token, tokens) of the targets of a row."""
        position, end = row * self.context, min((row + 1) * self.context, self.tokens)
        spans = []
        while position < end:
            place = int(np.searchsorted(self.ends, position, side="right"))
            document = int(self.documents[place])
            first = position - (int(self.ends[place]) - int(self.shards.length[document]))
            taken = min(end, int(self.ends[place])) - position
            spans.append((document, first, taken))
            position += taken
        return spans

    def _before(self, row: int) -> int:
        """The token before the row's first target; before the first row, the stream's last."""
        place = int(np.searchsorted(self.ends, (row * self.context - 1) % self.tokens, "right"))
        document = int(self.documents[place])
        passed = (row * self.context - 1) % self.tokens - (
            int(self.ends[place]) - int(self.shards.length[document])
        )
        return int(self.shards.document(document)[passed])

    def batch(self, rows: list[int]) -> Batch:
        """These rows as tensors."""
        shape = (len(rows), self.context)
        inputs = np.zeros(shape, dtype=np.int64)
        targets = np.full(shape, IGNORED, dtype=np.int64)
        documents = np.full(shape, -1, dtype=np.int64)
        for line, row in enumerate(rows):
            filled = 0
            skipped = np.zeros(self.context, dtype=np.bool_)
            for document, first, taken in self.spans(row):
                part: npt.NDArray[Any] = self.shards.document(document)[first : first + taken]
                targets[line, filled : filled + taken] = part
                documents[line, filled : filled + taken] = document
                if self.masked:
                    counted = self.shards.counted(document)[first : first + taken]
                    skipped[filled : filled + taken] = ~counted
                filled += taken
            inputs[line, 1:filled] = targets[line, : filled - 1]
            inputs[line, 0] = self._before(row)
            targets[line, skipped] = IGNORED
        return Batch(
            inputs=torch.from_numpy(inputs),
            targets=torch.from_numpy(targets),
            documents=torch.from_numpy(documents),
        )


class Sampler:
    """Batches by step. Holds no state that a resume would have to restore."""

    def __init__(self, rows: Rows, *, batch_rows: int, seed: int) -> None:
        if not rows.count:
            raise TrainError(f"{rows.shards.folder}: no tokens to train on")
        self.rows, self.batch_rows, self.seed = rows, batch_rows, seed
        self._order: tuple[int, npt.NDArray[np.int64]] | None = None

    def order(self, epoch: int) -> npt.NDArray[np.int64]:
        """The order of rows in an epoch: rows sorted by a hash of (seed, epoch, row)."""
        if self._order is None or self._order[0] != epoch:
            salt = hashlib.blake2b(f"{self.seed} {epoch}".encode(), digest_size=8).digest()
            start = np.uint64(int.from_bytes(salt, "little"))
            draws = scatter(np.arange(self.rows.count, dtype=np.uint64) ^ start)
            self._order = (epoch, np.argsort(draws, kind="stable"))
        return self._order[1]

    def row_numbers(self, step: int) -> list[int]:
        """The rows of step 0, 1, ...; a batch may reach over the end of an epoch."""
        first = step * self.batch_rows
        places = [divmod(first + row, self.rows.count) for row in range(self.batch_rows)]
        return [int(self.order(epoch)[place]) for epoch, place in places]

    def batch(self, step: int) -> Batch:
        return self.rows.batch(self.row_numbers(step))

    def document_ids(self, step: int) -> list[str]:
        """The ids of the documents that step trains on, each once, in the batch's order."""
        seen = dict.fromkeys(
            document for row in self.row_numbers(step) for document, _, _ in self.rows.spans(row)
        )
        return self.rows.shards.ids(list(seen))


def scatter(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """SplitMix64's finaliser (Steele et al. 2014): a bijection that scatters its argument."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
