"""Check of `dedup_bloom` with pybloom-live, which gets the run's keys in the same order.

A Bloom filter's answer depends on all earlier documents, so a random sample cannot be checked.
Instead, the first documents of the run are checked, with at most MOST_KEYS keys.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

import pyarrow.parquet as pq

from curate.corpus.sketches import Sketches, SketchFile, sketch_batches
from curate.dedup.bloom.seen_before import DedupBloom
from curate.lab.verify.finished_run import Decision, FinishedRun, index_of, own_files
from curate.lab.verify.tally import NotChecked, Tally, need
from llmcurate.base.disk.units import counted

MOST_KEYS = 300_000  # pybloom-live checks about 400,000 keys/s
RATE = 1e-6  # false-positive rate of pybloom-live's filter
COLUMNS = ["keys", "count", "start", "end"]
# Standard deviations by which the run's false positives may exceed the expected number.
DEVIATIONS = 6.0


@dataclass(frozen=True)
class Document:
    """A document as the run stored it: the hashes (keys) of its n-grams, and its units of text,
    such as paragraphs, with the numbers of n-grams in each."""

    id: str
    part: int
    keys: list[int]  # of its n-grams
    count: list[int]  # per unit: number of n-grams
    units: list[tuple[int, int]]  # (start, end) in bytes


@dataclass(frozen=True)
class Verdict:
    """The decision on a document."""

    dropped: bool
    spans: tuple[tuple[int, int], ...]  # (start, end) in bytes of the units to cut


class Reference:
    """The rules of dedup/bloom/seen_before.py, applied with a Bloom filter of pybloom-live."""

    def __init__(self, step: DedupBloom, keys: int) -> None:
        from pybloom_live import BloomFilter

        self.step = step
        self.filter = BloomFilter(max(1, keys), RATE)
        self.inserted: set[int] = set()
        self.false_positives = 0

    def _seen(self, key: int) -> bool:
        if key not in self.filter:
            return False
        if key in self.inserted:
            return True
        self.false_positives += 1
        return True

    def _insert(self, keys: list[int], seen: list[bool]) -> None:
        for key, is_seen in zip(keys, seen, strict=True):
            if not is_seen:
                self.filter.add(key, skip_check=True)
                self.inserted.add(key)

    def _is_duplicate(self, seen: int, keys: int) -> bool:
        threshold = 0.0 if self.step.mode.startswith("dolma-") else self.step.threshold
        if not keys:
            return False
        return seen / keys > threshold

    def document(self, row: Document) -> Verdict:
        """Return the verdict on the next document, and insert the keys of units (such as
        paragraphs) that are not duplicates into the filter."""
        ends = list(accumulate(row.count, initial=0))
        total, cut = 0, []
        for unit, (a, z) in enumerate(pairwise(ends)):
            keys = row.keys[a:z]
            seen = [self._seen(key) for key in keys]
            total += sum(seen)
            if self._is_duplicate(sum(seen), len(keys)):
                cut.append(row.units[unit])
            else:
                self._insert(keys, seen)
        whole = self.step.mode in ("old-both", "document", "dolma-document")
        if whole and self._is_duplicate(total, len(row.keys)):
            return Verdict(True, ())
        return Verdict(False, tuple(cut))


def check(run: FinishedRun) -> list[Tally]:
    steps = run.need(DedupBloom)
    need("pybloom_live", "'llmcurate[verify]'")
    return [_check(run, step) for step in steps]


def _check(run: FinishedRun, step: DedupBloom) -> Tally:
    if step.against:
        raise NotChecked(
            f"{step.label}: with `against`, the keys of earlier runs exist only in its filter"
        )
    tally = Tally("pybloom-live", f"{step.label}: membership")
    files = own_files(index_of(run, step))
    rows = list(_first_rows(files))
    stored = _verdicts(run.decisions_on(step.method, [row.id for row in rows]))
    reference = Reference(step, sum(len(row.keys) for row in rows))
    again: dict[str, Verdict] | None = None
    excess = 0
    for row in rows:
        before = reference.false_positives
        theirs = reference.document(row)
        ours = stored.get(row.id, Verdict(False, ()))
        if ours == theirs:
            tally.agrees()
            continue
        if reference.false_positives > before and not ours.dropped:
            tally.explain("peer_false_positive")
            continue
        if again is None:
            again = _inserted_again(step, files, rows)
        if ours == again.get(row.id, Verdict(False, ())):
            tally.explain("false_positive")
            excess += 1
        else:
            tally.differs(
                row.id, f"the run: {_described(ours)}; pybloom-live: {_described(theirs)}"
            )
    expected = step.false_positives * sum(len(row.count) for row in rows)
    most = expected + DEVIATIONS * max(1.0, expected) ** 0.5
    if excess > most:
        tally.differs(
            step.label,
            f"{counted(excess, 'document')} by false positives, expected at most {most:.0f}",
        )
    return tally


def _first_rows(files: list[SketchFile]) -> Iterator[Document]:
    keys = 0
    for batch in sketch_batches(files, COLUMNS, 100):
        for row in batch.to_pylist():
            keys += len(row["keys"])
            if keys > MOST_KEYS:
                return
            units = list(zip(row["start"], row["end"], strict=True))
            yield Document(row["id"], row["part"], row["keys"], row["count"], units)


def _verdicts(decisions: list[Decision]) -> dict[str, Verdict]:
    dropped: set[str] = set()
    spans: dict[str, list[tuple[int, int]]] = {}
    for row in decisions:
        if row.span_start is None:
            dropped.add(row.id)
        else:
            spans.setdefault(row.id, []).append((row.span_start, row.span_end or 0))
    return {
        name: Verdict(name in dropped, tuple(sorted(spans.get(name, ()))))
        for name in dropped | spans.keys()
    }


def _inserted_again(
    step: DedupBloom, files: list[SketchFile], rows: list[Document]
) -> dict[str, Verdict]:
    from curate.dedup.bloom.filter import count_keys

    last = rows[-1].part
    with tempfile.TemporaryDirectory() as folder:
        sketches = Sketches(None, Path(folder) / "decisions.parquet", Path(folder), tuple(files))
        total = step.expected or count_keys(sketches)
        again = step.model_copy(update={"expected": total})
        subset = Sketches(
            None,
            Path(folder) / "decisions.parquet",
            Path(folder),
            tuple(file for file in files if file.part <= last),
        )
        try:
            again.resolve(subset)
        except OSError as error:
            raise NotChecked(f"the filter cannot be rebuilt: {error}") from None
        table = pq.read_table(subset.decisions)
    dropping = table.filter(table["drop"])
    return _verdicts(Decision.rows(dropping))


def _described(verdict: Verdict) -> str:
    if verdict.dropped:
        return "drop it"
    cuts = ", ".join(f"{a} to {z}" for a, z in verdict.spans)
    return f"cut bytes {cuts}" if cuts else "keep it"
