"""The figures of a mix, and the table printed on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from llmcurate.base.disk.units import counted, format_percent
from llmcurate.base.messages import OPTIONAL, Message
from llmcurate.base.pages.html import plain
from llmcurate.base.terminal import table

MOST = 40  # rows printed; run.json has all
WIDE = 28  # terminal columns of a name
HEAD = (
    *("source", "documents", "available", "in the mix"),
    *("share", "epochs", "unique", "never taken"),
)


@dataclass(frozen=True)
class Amounts:
    """The amount of some documents that is available, and the amount that is in the mix."""

    documents: int  # available
    bytes: int  # available bytes of text
    size: int  # available units
    quota: int  # planned units
    amount: int  # units in the mix, repetitions included
    copies: int  # documents in the mix, repetitions included
    share: float  # of the mix
    epochs: float
    unique: int  # units in the mix, without repetitions
    unique_documents: int  # documents that are in the mix at least once
    last_epoch: int  # documents taken in the last, partial epoch
    never: int  # documents that are not in the mix


@dataclass(frozen=True)
class _Named:
    name: str


@dataclass(frozen=True)
class Bucket(Amounts, _Named):
    """The documents of a source whose scores are in one bucket."""


@dataclass(frozen=True)
class _Asked(_Named):
    asked: int


@dataclass(frozen=True)
class Row(Amounts, _Asked):
    """The amounts of one source, or of one value of the column `by`."""

    buckets: list[Bucket]


@dataclass(frozen=True)
class Overlap:
    """Texts that several sources have. In tables, the entry [a][b] is for the documents of source a
    with a text that is also in source b, and [a][a] for those that repeat an earlier text of a."""

    groups: list[str]
    documents: list[list[int]]  # [a][b]: of a, with a text that is also in b
    size: list[list[int]]  # the same, in units
    unique_documents: int  # in the mix if every text counts once
    unique: int  # the same, in units


@dataclass(frozen=True)
class Inputs:
    """The inputs of a source as the user gave them, and their number of files."""

    inputs: Sequence[str]
    files: int


@dataclass(frozen=True)
class MixRecord(Message):
    """A mix as recorded in run.json. `refused` is the reason if the mix is not the requested
    one."""

    unit: str
    estimated: bool  # True if tokens are bytes / 4
    seed: int
    weights: str | dict[str, float]
    by: str | None
    rows: list[Row]
    total: Amounts
    outside: dict[str, dict[str, int]]  # source -> {reason: documents left out}
    sources: dict[str, Inputs]
    overlap: Overlap | None = field(default=None, metadata=OPTIONAL)
    refused: str | None = field(default=None, metadata=OPTIONAL)

    @property
    def largest_first(self) -> list[Row]:
        return sorted(self.rows, key=lambda row: (-row.amount, row.name))


def unit_text(mix: MixRecord) -> str:
    return "tokens (estimated: bytes / 4)" if mix.estimated else mix.unit


def text(mix: MixRecord) -> list[str]:
    """Return the lines of the report: the table of sources, documents left out, and overlaps."""
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
        "  texts of one source that are also in another (exact text):"
        if pairs
        else "  no text of one source is in another (exact text)"
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
