"""Scores of a dedup method: planted copies that it found, and text that it removed besides.

Everything is the difference of two runs: over the corpus as it is, and over the corpus with plants.
So copies that were in it before count neither for nor against a method.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from curate.documents.edits import EDITS, Edit, byte_length, edits_of, remaining
from curate.documents.rejected import rejected_files
from curate.inspect.evaluate.planting import KINDS, Plant, Region
from llmcurate.base.disk.files import part_files

FOUND = 0.9  # of the bytes of one of the two copies gone
WHOLE = ("exact", "near")


@dataclass
class Gone:
    """What a run removed. documents: ids of those that its steps dropped; bytes: of text, in all;
    edits: of the documents that were asked for, as far as they stay."""

    documents: set[str] = field(default_factory=set)
    bytes: int = 0
    edits: dict[str, list[Edit]] = field(default_factory=dict)

    def of(self, region: Region) -> int:
        """Bytes of the region that are gone."""
        size = region.end - region.start
        if region.id in self.documents:
            return size
        return size - byte_length(
            remaining([(region.start, region.end)], self.edits.get(region.id, ()))
        )


def gone(out: Path, labels: Sequence[str], asked: Iterable[str]) -> Gone:
    """Reads what a finished run removed by the steps with these labels."""
    removed = Gone()
    asked_ids, steps = set(asked), set(labels)
    for path in rejected_files(out):
        for row in _rows(path, ["id", "step", "text", EDITS]):
            if row["step"] in steps:
                removed.documents.add(row["id"])
                # What was cut before the document went is gone too.
                removed.bytes += len((row["text"] or "").encode("utf-8", "replace"))
                removed.bytes -= sum(edit.growth for edit in edits_of(row))
    for path in part_files(out / "corpus"):
        for row in _rows(path, ["id", EDITS]):
            edits = edits_of(row)
            removed.bytes -= sum(edit.growth for edit in edits)
            if row["id"] in asked_ids and edits:
                removed.edits[row["id"]] = edits
    return removed


def _rows(path: Path, columns: list[str]) -> Iterator[dict[str, Any]]:
    with pq.ParquetFile(path) as file:
        have = [c for c in columns if c in file.schema_arrow.names]
        for batch in file.iter_batches(500, columns=have, use_threads=False):
            yield from batch.to_pylist()


@dataclass(frozen=True)
class KindScore:
    """One kind of plants under one method.

    planted: without those whose original the method removes anyway (already); found: of which at
    least FOUND of one copy is gone; bytes: mean share of the more removed copy; similarity: mean of
    the plants, as measured; expected: the recall that theory gives, None without theory.
    """

    kind: str
    planted: int
    already: int
    found: int
    bytes: float
    similarity: float | None
    expected: float | None

    @property
    def title(self) -> str:
        """The kind, with the similarity that its plants have."""
        if not self.kind.startswith("near") or self.similarity is None:
            return self.kind
        return f"{self.kind} ({self.similarity:.3f})"

    @property
    def recall(self) -> float | None:
        """Found of planted."""
        return self.found / self.planted if self.planted else None


@dataclass(frozen=True)
class MethodScore:
    """One method. right: planted copies that went, false: what else went only because something was
    planted, in documents and in bytes."""

    method: str
    kinds: list[KindScore]
    right_documents: int
    false_documents: int
    right_bytes: int
    false_bytes: int

    @property
    def precision(self) -> float | None:
        """Of the documents that went, the share of planted copies."""
        return _ratio(self.right_documents, self.false_documents)

    @property
    def byte_precision(self) -> float | None:
        """Of the bytes that went, the share of planted copies."""
        return _ratio(self.right_bytes, self.false_bytes)

    def dump(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "method": self.method,
            "kinds": [asdict(k) | {"recall": k.recall} for k in self.kinds],
            "right_documents": self.right_documents,
            "false_documents": self.false_documents,
            "precision_documents": self.precision,
            "right_bytes": self.right_bytes,
            "false_bytes": self.false_bytes,
            "precision_bytes": self.byte_precision,
        }


def _ratio(right: int, wrong: int) -> float | None:
    return right / (right + wrong) if right + wrong else None


def score(
    method: str,
    plants: Sequence[Plant],
    before: Gone,
    after: Gone,
    expected: Mapping[Plant, float] | None,
) -> MethodScore:
    """Scores a method by what it removed before and after planting.

    expected: by plant, the probability that the method finds it; None without theory.
    """
    kinds = []
    for kind in KINDS:
        of_kind = [p for p in plants if p.kind == kind]
        if of_kind:
            kinds.append(_kind(kind, of_kind, before, after, expected))
    right_bytes = right_documents = 0
    for plant in plants:
        new = after.of(plant.original) + after.of(plant.copy) - before.of(plant.original)
        # Of two copies one should go, whichever.
        size = max(p.end - p.start for p in (plant.original, plant.copy))
        right_bytes += max(0, min(new, size))
        if plant.kind.split()[0] in WHOLE:
            pair = {plant.original.id, plant.copy.id}
            right_documents += min(1, len((pair & after.documents) - before.documents))
    # Where a plant makes another copy of old ones stay, one goes and one comes: nothing is lost.
    new_documents = len(after.documents) - len(before.documents)
    return MethodScore(
        method,
        kinds,
        right_documents,
        max(0, new_documents - right_documents),
        right_bytes,
        max(0, after.bytes - before.bytes - right_bytes),
    )


def _kind(
    kind: str,
    plants: Sequence[Plant],
    before: Gone,
    after: Gone,
    expected: Mapping[Plant, float] | None,
) -> KindScore:
    fresh = [p for p in plants if _share(before, p.original) < FOUND]
    shares = [max(_share(after, p.original), _share(after, p.copy)) for p in fresh]
    measured = [p.similarity for p in fresh if p.similarity is not None]
    theory = [expected[p] for p in fresh if p in expected] if expected is not None else []
    return KindScore(
        kind,
        len(fresh),
        len(plants) - len(fresh),
        sum(s >= FOUND for s in shares),
        round(sum(shares) / len(shares), 6) if shares else 0.0,
        round(sum(measured) / len(measured), 6) if measured else None,
        round(sum(theory) / len(theory), 6) if theory else None,
    )


def _share(removed: Gone, region: Region) -> float:
    return removed.of(region) / max(1, region.end - region.start)
