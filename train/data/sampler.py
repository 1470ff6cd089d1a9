"""Which rows a step takes: a pure function of (seed, step), whoever asks and however often.

Each source goes through its rows epoch after epoch, each epoch in an order of its own. Nothing has
to be saved for a resume, and ranks share a step's rows out as they like: the rows are the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from train.data.mixing import Mixture, counts
from train.data.part import Ints
from train.data.permutation import key_of, permuted
from train.data.rows import Batch, Rows
from train.errors import TrainError


class Sampler:
    """Batches by step.

    ``sources``: which of the rows' sources take part, by default all; their ``shares``
    (mixing.py); ``skip``: rows of each that were taken before step 0, as by an earlier stage.
    """

    def __init__(
        self,
        rows: Rows | Mixture,
        *,
        batch_rows: int,
        seed: int,
        sources: Sequence[int] | None = None,
        shares: Sequence[int] = (1,),
        skip: Sequence[int] | None = None,
    ) -> None:
        self.rows, self.batch_rows, self.seed = rows, batch_rows, seed
        self.sources = list(range(len(rows.sources)) if sources is None else sources)
        self.shares, self.skip = list(shares), list(skip or [0] * len(self.sources))
        for number in self.sources:
            if not rows.sources[number].count:
                raise TrainError(f"{rows.sources[number].shards.folder}: no tokens to train on")
        counted = [0, *itertools.accumulate(source.count for source in rows.sources)]
        self.bases = [counted[number] for number in self.sources]

    def taken(self, steps: int) -> list[int]:
        """Rows of each source in the first ``steps`` steps."""
        return counts(self.shares, steps * self.batch_rows)

    def order(self, source: int, places: Ints) -> Ints:
        """The rows of one source that stand at these places of its epochs, one after the other."""
        rows = self.rows.sources[source]
        epochs, inside = np.divmod(places, rows.count)
        found = np.empty(len(places), np.int64)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            what = (rows.shards.fingerprint, rows.context, rows.packing)
            key = key_of("order", self.seed, int(epoch), *what)
            found[here] = permuted(inside[here], rows.count, key)
        return found

    def row_numbers(self, step: int) -> list[int]:
        """The rows of step 0, 1, ..., source by source; a batch may reach over the end of an
        epoch."""
        before, after = self.taken(step), self.taken(step + 1)
        found: list[int] = []
        for number, (base, skip) in enumerate(zip(self.bases, self.skip, strict=True)):
            places = np.arange(before[number] + skip, after[number] + skip)
            found += [base + int(row) for row in self.order(self.sources[number], places)]
        return found

    def batch(self, step: int) -> Batch:
        return self.rows.batch(self.row_numbers(step))

    def documents(self, step: int) -> dict[int, int]:
        """The documents that step trains on, by number, and how many tokens of each; in the
        batch's order."""
        found: dict[int, int] = {}
        for row in self.row_numbers(step):
            for document, _, taken in self.rows.spans(row):
                found[document] = found.get(document, 0) + taken
        return found

    def document_ids(self, step: int) -> list[str]:
        """The ids of the documents that step trains on, each once, in the batch's order."""
        return self.rows.ids(list(self.documents(step)))
