"""Several sources in one run: how many rows of each, exactly, after any number of rows.

A row more of the run is a row more of one source, and after n rows a source with the share s has
n x s of them, rounded: for two sources by half a row at most, for many by half a row for each
halving of their list. There is no state: the counts after n rows are computed from n alone, in
whole numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed, UsageError
from train.config import Source
from train.data.rows import Piece, Rows
from train.data.shards import Shards


def counts(shares: Sequence[int], rows: int) -> list[int]:
    """How many of the first ``rows`` rows are of each source, by whole shares: they add up to
    ``rows``, never fall when ``rows`` grows, and are the shares themselves after as many rows as
    these add up to.

    The list is halved again and again, and each half gets what it is due of its rows, rounded.
    """
    if len(shares) == 1:
        return [rows]
    middle = len(shares) // 2
    before, total = sum(shares[:middle]), sum(shares)
    due = (2 * rows * before + total) // (2 * total) if total else 0
    return counts(shares[:middle], due) + counts(shares[middle:], rows - due)


def shares_of(
    sources: Sequence[Source], rows: Sequence[Rows], *, steps: int, batch: int
) -> list[int]:
    """The sources' shares of a run of ``steps`` steps of ``batch`` rows, as whole numbers.

    By weights they do not depend on ``steps``. By tokens or epochs they are the numbers of rows
    asked for. Raises ``LlmcurateError`` where the requests cannot be met, or not together.
    """
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
                "epochs, or none of them anything"
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
    """The rows of several sources under one numbering, one source behind the other."""

    def __init__(self, sources: list[Rows]) -> None:
        self.sources, self.context = sources, sources[0].context
        self.ends = list(itertools.accumulate(source.count for source in sources))
        self.count = self.ends[-1]
        self.tokens = sum(source.tokens for source in sources)

    def locate(self, row: int) -> tuple[int, int]:
        """(source, row of that source)."""
        number = next(k for k, end in enumerate(self.ends) if row < end)
        return number, row - (self.ends[number - 1] if number else 0)

    def spans(self, row: int) -> list[tuple[int, int, int]]:
        """As ``Rows.spans``."""
        number, own_row = self.locate(row)
        return self.sources[number].spans(own_row)

    def ids(self, documents: list[int]) -> list[str]:
        """As ``Rows.ids``."""
        return self._each(documents, lambda shards, numbers: shards.ids(numbers))

    def sources_of(self, documents: list[int]) -> list[str]:
        """What the tables of documents call their source."""
        return self._each(documents, lambda shards, numbers: shards.sources(numbers))

    def _each(
        self, documents: list[int], ask: Callable[[Shards, list[int]], list[str]]
    ) -> list[str]:
        """Of each document what its shards say; they are asked once."""
        answers: dict[int, str] = {}
        for source in self.sources:
            first, last = source.first, source.first + source.shards.documents
            of_source = [d for d in documents if first <= d < last and d not in answers]
            values = ask(source.shards, [document - first for document in of_source])
            answers |= dict(zip(of_source, values, strict=True))
        return [answers[document] for document in documents]

    def width(self, row: int) -> int:
        """As ``Rows.width``; stages may have rows of different ones."""
        return self.sources[self.locate(row)[0]].context

    def pieces(self, row: int) -> list[Piece]:
        """As ``Rows.pieces``."""
        number, own_row = self.locate(row)
        return self.sources[number].pieces(own_row)
