"""Evaluation of dedup methods: the share of planted copies that they find.

OUT/base holds a sample of the input, OUT/planted the same sample with planted copies. Every method
runs over both, in OUT/runs/METHOD, and only the difference counts: duplicates that were in the
corpus before planting count neither for nor against a method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.dedup.minhash.near_duplicates import DedupMinhash, predicted
from curate.dedup.removal import DedupStep
from curate.documents.attributes import DocumentsFile
from curate.documents.edits import EDITS, Edit, byte_length, edits_of, remaining
from curate.documents.rejected import rejected_files
from curate.inspect.results import Findings, check_folder
from curate.lab.evaluate import planting
from curate.lab.evaluate.comparison import folder_of, recipes_of
from curate.lab.evaluate.planting import KINDS, Plant, Planted, Region, draw
from curate.run.driver import run_planned
from curate.run.plan import make_plan
from curate.run.records import Options, Outcome
from curate.steps.recipe import Recipe
from llmcurate.base.disk.files import part_files
from llmcurate.base.disk.units import counted, format_bytes, format_percent
from llmcurate.base.terminal import say, table

FOUND = 0.9  # a plant is found if this share of the original or of the copy is removed
WHOLE = ("exact", "near")


@dataclass
class Removed:
    """The text that a run removed."""

    documents: set[str] = field(default_factory=set)  # ids of dropped documents
    bytes: int = 0  # of all text removed
    edits: dict[str, list[Edit]] = field(default_factory=dict)  # kept id -> what was cut

    def of(self, region: Region) -> int:
        size = region.end - region.start
        if region.id in self.documents:
            return size
        return size - byte_length(
            remaining([(region.start, region.end)], self.edits.get(region.id, ()))
        )


def removed_by(out: Path, labels: Sequence[str], asked: Iterable[str]) -> Removed:
    """Return the text that a finished run removed. The edits of all steps count, but a dropped
    document counts only if one of the steps `labels` dropped it. `asked` are the ids of documents
    whose edits are to be returned."""
    removed = Removed()
    asked_ids, steps = set(asked), set(labels)
    for path in rejected_files(out):
        for name, edits, step, text in _rows(path, "step", "text"):
            if step in steps:
                removed.documents.add(name)
                # Passages that were cut before the document was dropped count too.
                removed.bytes += len((text or "").encode("utf-8", "replace"))
                removed.bytes -= sum(edit.growth for edit in edits)
    for path in part_files(out / "corpus"):
        for name, edits in _rows(path):
            removed.bytes -= sum(edit.growth for edit in edits)
            if name in asked_ids and edits:
                removed.edits[name] = edits
    return removed


def _rows(path: Path, *columns: str) -> Iterator[tuple[Any, ...]]:
    with DocumentsFile(path) as file:
        have = [c for c in ("id", *columns, EDITS) if c in file.schema_arrow.names]
        for batch in file.iter_batches(500, columns=have, use_threads=False):
            for row in batch.to_pylist():
                yield row["id"], edits_of(row), *map(row.get, columns)


@dataclass(frozen=True)
class KindScore:
    """The score of a dedup method on one kind of planted copies: copies that were added to a sample
    for this test. Each copy and its original form a pair."""

    JSON = ("kind", "planted", "already", "found", "bytes", "similarity", "expected", "recall")
    kind: str
    planted: int  # pairs that count: the method keeps the original without the copy
    already: int  # other pairs, whose original is removed even without the copy
    found: int  # pairs whose original or copy lost the share FOUND
    bytes: float  # mean share of text that the original or the copy lost, the larger of the two
    similarity: float | None  # mean measured similarity
    expected: float | None  # recall that theory predicts

    @property
    def title(self) -> str:
        if not self.kind.startswith("near") or self.similarity is None:
            return self.kind
        return f"{self.kind} ({self.similarity:.3f})"

    @property
    def recall(self) -> float | None:
        return self.found / self.planted if self.planted else None


@dataclass(frozen=True)
class MethodScore:
    """The score of a dedup method on all planted copies. Figures named `right_` count planted
    copies that were removed; figures named `false_` count other text that the planting caused to be
    removed."""

    JSON = (
        "method", "kinds", "right_documents", "false_documents", "precision_documents=precision",
        "right_bytes", "false_bytes", "precision_bytes=byte_precision",
    )  # fmt: skip
    method: str
    kinds: list[KindScore]
    right_documents: int
    false_documents: int
    right_bytes: int
    false_bytes: int

    @property
    def precision(self) -> float | None:
        """The share of planted copies among the removed documents."""
        return _ratio(self.right_documents, self.false_documents)

    @property
    def byte_precision(self) -> float | None:
        """The share of planted copies among the removed bytes."""
        return _ratio(self.right_bytes, self.false_bytes)


def _ratio(right: int, wrong: int) -> float | None:
    return right / (right + wrong) if right + wrong else None


def score(
    method: str,
    plants: Sequence[Plant],
    before: Removed,
    after: Removed,
    expected: Mapping[Plant, float] | None,
) -> MethodScore:
    """Return the score of a method. `plants` are copies added to a sample. `before` is what the
    method removed from the sample without plants, `after` what it removed from the sample with
    plants. `expected` has the theoretical probability that each plant is found; None: no theory."""
    kinds = []
    for kind in KINDS:
        of_kind = [p for p in plants if p.kind == kind]
        if of_kind:
            kinds.append(_score_kind(kind, of_kind, before, after, expected))
    right_bytes = right_documents = 0
    for plant in plants:
        new = after.of(plant.original) + after.of(plant.copy) - before.of(plant.original)
        # One of the two should be removed, no matter which.
        size = max(p.end - p.start for p in (plant.original, plant.copy))
        right_bytes += max(0, min(new, size))
        if plant.kind.split()[0] in WHOLE:
            pair = {plant.original.id, plant.copy.id}
            right_documents += min(1, len((pair & after.documents) - before.documents))
    # If a plant only changes which of the old duplicates is kept, the numbers cancel out.
    new_documents = len(after.documents) - len(before.documents)
    return MethodScore(
        method,
        kinds,
        right_documents,
        max(0, new_documents - right_documents),
        right_bytes,
        max(0, after.bytes - before.bytes - right_bytes),
    )


def _score_kind(
    kind: str,
    plants: Sequence[Plant],
    before: Removed,
    after: Removed,
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


def _share(removed: Removed, region: Region) -> float:
    return removed.of(region) / max(1, region.end - region.start)


DOCUMENTS = 10_000
CURVE = [0.4 + n / 100 for n in range(61)]  # similarities at which the S-curve is drawn


@dataclass(frozen=True)
class Evaluation(Findings):
    """The evaluation of dedup methods on planted copies."""

    TEMPLATE = "evaluate/dedups.html"
    SHOWN: ClassVar[dict[str, Any]] = {"threshold": FOUND}
    JSON = (
        "inputs", "settings=sets", "seed", "documents", "sampled", "methods=scores",
        "planted.plants",
    )  # fmt: skip
    inputs: list[str]
    sets: list[str]
    seed: int
    documents: int  # number of input documents
    sampled: int  # number of documents in the sample
    planted: Planted
    scores: list[MethodScore]
    curves: dict[str, tuple[int, int]]  # MinHash method -> (bands, rows)

    def found(self) -> list[tuple[str, list[Any], str]]:
        """Return (method, curves, caption) for each method. A curve has points (similarity of a
        copy to its original, share of such copies that the method found)."""
        curves = []
        for scored in self.scores:
            points = sorted(
                (kind.similarity, kind.recall)
                for kind in scored.kinds
                if kind.similarity is not None and kind.recall is not None
            )
            if len(points) < 2:
                continue
            lines, caption = [points], "found"
            if scored.method in self.curves:
                bands, rows = self.curves[scored.method]
                lines = [[(s, predicted(bands, rows, s)) for s in CURVE], points]
                caption = (
                    f"line: the S-curve of {bands} bands of {counted(rows, 'row')}; dots: found"
                )
            curves.append((scored.method, lines, caption))
        return curves

    def text(self) -> str:
        scores = self.scores
        head = ["planted", "n"]
        for scored in scores:
            head += [scored.method, *(["theory"] if scored.method in self.curves else [])]
        rows = []
        for nth, kind in enumerate(scores[0].kinds):
            row = [kind.title, str(kind.planted + kind.already)]
            for scored in scores:
                figures = scored.kinds[nth]
                row.append(format_percent(figures.recall) + ("*" if figures.already else ""))
                if scored.method in self.curves:
                    row.append("" if figures.expected is None else format_percent(figures.expected))
            rows.append(row)
        for name, cells in (
            ("precision, documents", [format_percent(s.precision) for s in scores]),
            ("precision, bytes", [format_percent(s.byte_precision) for s in scores]),
            ("falsely removed documents", [f"{s.false_documents:,}" for s in scores]),
            ("falsely removed text", [format_bytes(s.false_bytes) for s in scores]),
        ):
            row = [name, ""]
            for scored, value in zip(scores, cells, strict=True):
                row += [value, *([""] if scored.method in self.curves else [])]
            rows.append(row)
        lines = [
            self.about(),
            *table(head, rows),
            f"found: at least {FOUND:.0%} of the original or the copy is removed. theory: the"
            " S-curve of",
            "MinHash at the measured similarities. Earlier duplicates do not count.",
        ]
        if any(kind.already for scored in scores for kind in scored.kinds):
            lines.append("*: without plants whose original the method removes anyway")
        return "\n".join(lines)

    def about(self) -> str:
        sampled, plants = self.sampled, len(self.planted.plants)
        of = f" of {self.documents:,}" if self.documents > sampled else ""
        return f"{sampled:,}{of} documents with {plants:,} plants, seed {self.seed}"


def evaluate(
    inputs: list[str],
    methods: list[str],
    sets: tuple[str, ...],
    out: Path,
    each: int = 20,
    seed: int = 0,
    documents: int = DOCUMENTS,
    workers: int = 0,
    quiet: bool = False,
) -> Evaluation:
    """Plant up to `each` copies of every kind in a sample of at most `documents` documents, run the
    methods, and score them. The result depends only on these arguments and the input. Raises
    UsageError for wrong arguments, or if nothing can be planted."""
    steps = (step for recipe in recipes_of(methods, ()).values() for step in recipe.steps)
    guarded = {step.label for step in steps if isinstance(step, DedupStep)}
    unguarded = [f"{label}.max_removal=1.0" for label in sorted(guarded)]
    recipes = recipes_of(methods, (*unguarded, *sets))
    make_plan(next(iter(recipes.values())), inputs)
    check_folder(out)
    base, with_plants = (out / n / "documents.parquet" for n in ("base", "planted"))
    read = next(iter(recipes.values())).read
    count = draw(inputs, read, documents, seed, base)
    options = Options(workers, quiet)
    runs = {}
    for method, recipe in recipes.items():
        say(f"{method}: without plants", quiet)
        runs[method] = _run(recipe, base, out, method, "before", options)
    planted = planting.plan(base, _without_duplicates(runs.values()), each, seed, _similarity())
    planting.write(base, planted, with_plants)
    asked = {r.id for p in planted.plants for r in (p.original, p.copy)}
    scores, curves = [], {}
    for method, recipe in recipes.items():
        say(f"{method}: with {len(planted.plants)} plants", quiet)
        after = _run(recipe, with_plants, out, method, "after", options)
        labels = [s.label for s in recipe.steps]
        old, new = (removed_by(run.out, labels, asked) for run in (runs[method], after))
        theory = _theory(recipe)
        if theory is not None:
            curves[method] = theory.banding
        expected = None if theory is None else _expected(theory, planted.plants)
        scores.append(score(method, planted.plants, old, new, expected))
    sampled = pq.ParquetFile(base).metadata.num_rows
    evaluation = Evaluation(list(inputs), list(sets), seed, count, sampled, planted, scores, curves)
    evaluation.write(out)
    return evaluation


def _run(
    recipe: Recipe, source: Path, out: Path, method: str, when: str, options: Options
) -> Outcome:
    target = folder_of(out / "runs", method) / when
    return run_planned(make_plan(recipe, [str(source)]), target, options)


def _without_duplicates(runs: Iterable[Outcome]) -> Callable[[Iterable[str]], set[str]]:
    duplicated: set[str] = set()
    for run in runs:
        table = pq.read_table(run.out / "decisions.parquet", columns=["id", "span_start"])
        duplicated |= set(table.filter(table["span_start"].is_null())["id"].to_pylist())
        for path in rejected_files(run.out):
            duplicated |= set(pq.read_table(path, columns=["id"])["id"].to_pylist())
    return lambda ids: set(ids) - duplicated


def _similarity() -> Callable[[str, str], float]:
    step = DedupMinhash()

    def shingles(text: str) -> np.ndarray:
        return step.shingles(pa.array([text], pa.large_string()))[1]

    last: dict[str, np.ndarray] = {}  # the shingles of the latest original

    def similarity(original: str, copy: str) -> float:
        if original not in last:
            last.clear()
            last[original] = shingles(original)
        a, b = last[original], shingles(copy)
        both = len(np.intersect1d(a, b, assume_unique=True))
        return both / max(1, len(a) + len(b) - both)

    return similarity


def _theory(recipe: Recipe) -> DedupMinhash | None:
    for step in recipe.steps:
        if isinstance(step, DedupMinhash):
            same = (step.shingle or "word") == "word" and (step.ngram or 5) == 5
            return step if same and step.normalize == "lower" else None
    return None


def _expected(step: DedupMinhash, plants: Iterable[Plant]) -> dict[Plant, float]:
    expected = {}
    for plant in plants:
        if plant.similarity is not None:
            passes = step.verify is None or plant.similarity >= step.verify
            expected[plant] = predicted(*step.banding, plant.similarity) if passes else 0.0
    return expected
