"""The figures of a mix, their lines on a terminal, and their unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from llmcurate.base.disk.units import counted, format_percent
from llmcurate.base.messages import OPTIONAL, Message
from llmcurate.base.pages.html import plain
from llmcurate.base.terminal import table

MOST = 40  # rows printed; run.json has all
WIDE = 28  # columns of a name
HEAD = (
    *("source", "documents", "there", "in the mix"),
    *("share", "epochs", "unique", "never taken"),
)


@dataclass(frozen=True)
class Amounts:
    """What is there of some documents, and what the mix takes of it. size: in units; unique: the
    size of what is in the mix at least once; last_epoch: documents of the one that is not whole."""

    documents: int
    bytes: int
    size: int
    quota: int
    amount: int
    copies: int
    share: float
    epochs: float
    unique: int
    unique_documents: int
    last_epoch: int
    never: int


@dataclass(frozen=True)
class _Named:
    name: str


@dataclass(frozen=True)
class Bucket(Amounts, _Named):
    """Documents of a source whose score is in a bucket."""


@dataclass(frozen=True)
class _Asked(_Named):
    asked: int


@dataclass(frozen=True)
class Row(Amounts, _Asked):
    """A source."""

    buckets: list[Bucket]


@dataclass(frozen=True)
class Overlap:
    """Of texts of the sources. documents[a][b], size[a][b]: of a, what stands in b too; on the
    diagonal, what stands in a more than once, but for one copy of each. unique_documents, unique:
    of the mix, every text once. Of near copies: sources whose keys an index had, and documents that
    it did not know."""

    JSON = (
        *("by", "groups", "documents", "size", "unique_documents", "unique"),
        *("from_index?near", "not_in_index?near"),
    )
    by: str
    groups: list[str]
    documents: list[list[int]]
    size: list[list[int]]
    unique_documents: int
    unique: int
    from_index: Sequence[str] = ()
    not_in_index: dict[str, int] = field(default_factory=dict)

    @property
    def near(self) -> bool:
        """Whether near copies were compared."""
        return self.by == NEAR


EXACT, NEAR = "exact text", "near copies by MinHash"


@dataclass(frozen=True)
class Inputs:
    """Of a source: what was named, and how many files that were."""

    inputs: Sequence[str]
    files: int


@dataclass(frozen=True)
class MixRecord(Message):
    """A mix in run.json. outside: documents that stay out, by source and reason; refused: why it is
    another than was asked for."""

    unit: str
    estimated: bool
    seed: int
    weights: str | dict[str, float]
    by: str | None
    rows: list[Row]
    total: Amounts
    outside: dict[str, dict[str, int]]
    sources: dict[str, Inputs]
    overlap: Overlap | None = field(default=None, metadata=OPTIONAL)
    refused: str | None = field(default=None, metadata=OPTIONAL)

    @property
    def largest_first(self) -> list[Row]:
        """The rows."""
        return sorted(self.rows, key=lambda row: (-row.amount, row.name))


def unit_text(mix: MixRecord) -> str:
    """`tokens`, `tokens (estimated: bytes / 4)`, `bytes` or `documents`."""
    return "tokens (estimated: bytes / 4)" if mix.estimated else mix.unit


def text(mix: MixRecord) -> list[str]:
    """Sources with their share, epochs and unique text; what is left out; overlaps."""
    rows = []
    for row in mix.largest_first[:MOST]:
        rows.append(_cells(row, plain(row.name, WIDE)))
        rows += [_cells(bucket, f"  {bucket.name}") for bucket in row.buckets]
    if len(mix.rows) > MOST:
        rows.append([f"and {len(mix.rows) - MOST} more"])
    rows.append(_cells(mix.total, "all"))
    lines = [f"in {unit_text(mix)}; seed {mix.seed}", *table(HEAD, rows, indent=2)]
    for source, reasons in sorted(mix.outside.items()):
        counts = ", ".join(f"{n:,} {reason}" for reason, n in sorted(reasons.items()) if n)
        if counts:
            lines.append(f"  left out of {plain(source, WIDE)}: {counts}")
    return lines if mix.overlap is None else lines + _overlap_lines(mix, mix.overlap)


def _cells(row: Amounts, name: str) -> list[str]:
    return [
        name,
        f"{row.documents:,}",
        f"{row.size:,}",
        f"{row.amount:,}",
        format_percent(row.share, 2),
        f"{row.epochs:.2f}",
        f"{row.unique:,}",
        f"{row.never:,}",
    ]


def _overlap_lines(mix: MixRecord, overlap: Overlap) -> list[str]:
    documents = {row.name: row.documents for row in mix.rows}
    pairs = [
        (size, a, b)
        for a, sizes in zip(overlap.groups, overlap.documents, strict=True)
        for b, size in zip(overlap.groups, sizes, strict=True)
        if a != b and size
    ]
    lines = [
        f"  texts of one source that stand in another too ({overlap.by}):"
        if pairs
        else f"  no text of one source stands in another ({overlap.by})"
    ]
    for n, a, b in sorted(pairs, key=lambda p: (-p[0], p[1], p[2]))[:10]:
        part = format_percent(n / max(1, documents[a]))
        lines.append(f"    {plain(a, WIDE)} in {plain(b, WIDE)}: {counted(n, 'document')} ({part})")
    whole = mix.total.amount
    lines.append(
        f"  every text once: {overlap.unique:,} of {whole:,} {mix.unit} in the mix"
        f" ({format_percent(overlap.unique / max(1, whole))})"
    )
    return lines
