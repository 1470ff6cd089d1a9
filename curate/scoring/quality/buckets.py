"""The step `quality_buckets`: combine percentiles of several scores and put documents into buckets,
as Nemotron-CC (Su et al. 2024) and Dolma 3 (Olmo 3, 2025) do.

A percentile is the rank of a score (from 0) divided by the number of scored documents, rounded down
to a tenth of a percent. Equal scores all have the highest of their ranks. Percentiles are exact
(corpus/ranks.py), so workers and document order do not change them. Weights of a mean may be
learned: a least-squares fit of the percentiles to the column `target`, from exact integer sums."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import Field, field_validator, model_validator

from curate.corpus.decisions import (
    COLUMNS,
    PIECE,
    ROWS,
    Decided,
    completed,
    join_pieces,
    write_piece,
)
from curate.corpus.phases import Done, Facts, Make, Phase, forget, run_phases
from curate.corpus.ranks import FINE, find_ranks, score_totals, write_counts
from curate.corpus.shuffle.tasks import Group, GroupTask, groups, part_files, run_tasks
from curate.corpus.sketches import Sketches, SketchFile, sketch_batches
from curate.documents.documents import NUMBER, Documents
from curate.steps.contracts import CorpusStep, step
from llmcurate.base.disk.files import replacing
from llmcurate.base.disk.parquet_writer import one_array
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed, UsageError

MOST_SCORES = 8  # learning tries every subset of the scores
NONE = "none"  # group of documents without a value in the column `by`


@step("quality_buckets")
class QualityBuckets(CorpusStep):
    """Puts documents into buckets by percentiles of their scores, and drops no documents.

    Columns: `bucket`, 0 for the worst, and `percentile`, the combined percentile from 0 to 99.9.
    Both are null for a document without any score."""

    paper: ClassVar[str] = "Su et al. 2024 (Nemotron-CC); Olmo 3 (2025), Dolma 3"
    after_sketches: ClassVar[frozenset[str]] = frozenset({"combine", "weights", "buckets", "equal"})
    in_tasks: ClassVar[bool] = True

    scores: tuple[str, ...] = Field(min_length=1, max_length=MOST_SCORES)
    """Columns that hold the scores, such as quality.score. A minus before the name means that lower
    is better, as in -perplexity.perplexity."""
    combine: Literal["mean", "max", "learned"] = "mean"
    """Combination of a document's percentiles: their `mean`, the `max` (Nemotron-CC), or a mean
    with weights `learned` from the column `target`."""
    weights: tuple[float, ...] = ()
    """Weights of the scores in the mean, in their order. Default: all are equal."""
    target: str | None = None
    """Column of numbers to learn weights from; documents without one are ignored."""
    by: str | None = None
    """Rank documents separately for each value of this column, such as label.label (Dolma 3:
    topics). Without it, the whole corpus is ranked together."""
    buckets: int = Field(20, ge=2, le=1000)
    """Number of buckets."""
    equal: bool = True
    """Put the same number of documents into each bucket. If false, buckets are equal ranges of the
    combined percentile, as in Nemotron-CC."""

    @field_validator("scores", mode="before")
    @classmethod
    def _one_is_a_list_too(cls, value: Any) -> Any:
        return tuple(value.split(",")) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _fitting(self) -> QualityBuckets:
        if len(set(self.scores)) < len(self.scores):
            raise ValueError("scores: a column appears twice")
        if (self.combine == "learned") != (self.target is not None):
            raise ValueError("combine: learned and target must be given together")
        if self.weights and self.combine != "mean":
            raise ValueError("weights need combine: mean")
        if self.weights and len(self.weights) != len(self.scores):
            raise ValueError(f"weights: give {len(self.scores)}, one per score")
        if any(not 0 <= w < float("inf") for w in self.weights) or (
            self.weights and not any(self.weights)
        ):
            raise ValueError("weights must be 0 or more, and not all 0")
        return self

    def sketch(self, docs: Documents) -> pa.Table:
        columns = {f"score{k}": _numbers(docs, self.label, c) for k, c in enumerate(self.scores)}
        if self.target is not None:
            columns["target"] = _numbers(docs, self.label, self.target)
        if self.by is not None:
            names = _column(docs, self.label, self.by).cast(pa.string())
            columns["lang"] = pc.fill_null(names, NONE)
        return pa.table(columns)

    def resolve(self, sketches: Sketches) -> Decided:
        return resolve(self, sketches)

    def apply(self, docs: Documents, decisions: pa.Table) -> Documents:
        rows = np.searchsorted(decisions["n"].to_numpy(), docs.table[NUMBER].to_numpy())
        for name in ("percentile", "bucket"):
            docs = docs.annotate(name, one_array(decisions[name]).take(pa.array(rows)))
        return docs


def _column(docs: Documents, label: str, name: str) -> pa.Array:
    if name not in docs.table.column_names:
        names = ", ".join(n for n in docs.table.column_names if not n.startswith("_"))
        raise UsageError(f"{label}: no column {name!r} (have: {names})")
    return one_array(docs.table[name])


def _numbers(docs: Documents, label: str, name: str) -> pa.Array:
    negated = name.startswith("-") and name not in docs.table.column_names
    column = _column(docs, label, name[1:] if negated else name)
    try:
        values = pc.fill_null(column.cast(pa.float64()), np.nan)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise UsageError(f"{label}: the column {name!r} holds {column.type}, not numbers") from None
    return pc.negate(values) if negated else values


LEVELS = 1000  # percentiles are in tenths of a percent
UNIT = 1_000_000  # targets are rounded to millionths
THRESHOLDS = "thresholds.json"
SCHEMA = pa.schema([*COLUMNS, ("percentile", pa.float64()), ("bucket", pa.int32())])
_COMBINED = pa.schema(
    [("score", pa.float64()), ("lang", pa.string()), ("n", pa.int64()), ("id", pa.string())]
)


def bounds_of(scored: int, parts: int) -> list[int]:
    """Divide `scored` sorted scores into `parts` equal parts. Return the rank (from 0) at which
    each part begins, except the first. Empty parts at the end have no rank."""
    ranks = (-(-part * scored // parts) for part in range(1, parts))
    return [rank for rank in ranks if rank < scored]


def learned_weights(sums: np.ndarray) -> list[float]:
    """Fit weights of k scores to a target by least squares, with an intercept. Return numbers >= 0
    that add up to 1. Over all subsets of the scores, the best fit without a negative weight is
    used. `sums` (object[k + 2, k + 2]) comes from the values (1, the scores' k percentiles, target)
    of each document: entry [i, j] is the sum of value i times value j, an integer. Raises RunFailed
    if no score increases with the target."""
    n = sums[0, 0]
    count = len(sums) - 2
    if n < 2:
        raise RunFailed("quality_buckets: fewer than two documents have a target and all scores")
    # n times the covariances, as exact integers.
    spread = [[n * sums[i, j] - sums[0, i] * sums[0, j] for j in range(1, count + 2)]
              for i in range(1, count + 2)]  # fmt: skip
    matrix = np.array([[float(value) for value in row] for row in spread])
    inner, toward = matrix[:count, :count], matrix[:count, count]
    best, explained = None, 0.0
    for size in range(1, count + 1):
        for chosen in itertools.combinations(range(count), size):
            at = list(chosen)
            solved = np.linalg.lstsq(inner[np.ix_(at, at)], toward[at], rcond=None)[0]
            gain = float(solved @ toward[at])
            if (solved >= 0).all() and gain > explained * (1 + 1e-9):
                best, explained = (at, solved), gain
    if best is None:
        raise RunFailed("quality_buckets: no score increases with the target: check their signs")
    weights = np.zeros(count)
    weights[best[0]] = best[1]
    return [round(w, 6) for w in (weights / weights.sum()).tolist()]


def resolve(step: QualityBuckets, sketches: Sketches) -> Decided:
    file_groups = groups(sketches, sketches.sizes.task_documents)
    run, db, by_lang = sketches.run, sketches.connection, step.by is not None
    many = len(step.scores)

    def ranked(
        folder: Path, of: list[Group], counted: Path, column: str, parts: int
    ) -> dict[str, list[float]]:
        """Return {value of the column `step.by`: the scores at which the parts begin}. The
        documents with this value, ranked by score, are divided into `parts` equal parts."""
        totals = score_totals(db, counted, len(of))
        ranks = {lang: bounds_of(scored, parts) for lang, (_, scored, *_) in totals.items()}
        ranks_of = {lang: sorted(set(of_lang)) for lang, of_lang in ranks.items() if of_lang}
        if not ranks_of:
            return {}
        scores = find_ranks(run, db, folder, of, counted, ranks_of, by_lang, column, FINE)
        return {lang: [scores[lang][rank] for rank in ranks[lang]] for lang in ranks_of}

    def count(column: str) -> Make:
        def make(folder: Path, done: Done) -> Facts:
            write_counts(run, folder, file_groups, by_lang, column, FINE)
            return {}

        return make

    def levels(k: int) -> Make:
        def make(folder: Path, done: Done) -> Facts:
            counted = done.folder(f"seen{k}")
            limits = ranked(folder, file_groups, counted, f"score{k}", LEVELS)
            (folder / THRESHOLDS).write_text(json.dumps(limits), encoding="utf-8")
            return {}

        return make

    def level_tasks(folder: Path, done: Done, weights: list[float]) -> list[LevelsTask]:
        files = [done.file(f"levels{k}", THRESHOLDS) for k in range(many)]
        best = step.combine == "max"
        return [LevelsTask(g.part, folder, g, files, by_lang, weights, best) for g in file_groups]

    def weights(folder: Path, done: Done) -> Facts:
        chosen, taught = list(step.weights or [1.0] * many), 0
        if step.combine == "learned":
            tasks = level_tasks(folder, done, [])
            answers = run_tasks(run, f"{__name__}:add_products", tasks, list)
            products = np.array(answers, object).sum(axis=0)
            chosen, taught = learned_weights(np.array(products, object)), int(products[0][0])
        np.array(chosen, np.float64).tofile(folder / WEIGHTS)
        return {"taught": taught}

    def weights_of(done: Done) -> list[float]:
        chosen: list[float] = np.fromfile(done.file("weights", WEIGHTS)).tolist()
        return chosen

    def combined(folder: Path, done: Done) -> Facts:
        tasks = level_tasks(folder, done, weights_of(done))
        return {"scored": sum(run_tasks(run, f"{__name__}:combine", tasks, int))}

    def combined_groups(done: Done) -> list[Group]:
        paths = part_files(done.folder("combined"), COMBINED, len(file_groups))
        return [
            replace(group, files=(SketchFile(0, path, 0),))
            for group, path in zip(file_groups, paths, strict=True)
        ]

    def seen(folder: Path, done: Done) -> Facts:
        write_counts(run, folder, combined_groups(done), by_lang, "score", FINE)
        return {}

    def edges(folder: Path, done: Done) -> Facts:
        limits: dict[str, list[float]] = {}
        if step.equal:
            limits = ranked(
                folder, combined_groups(done), done.folder("seen"), "score", step.buckets
            )
        (folder / THRESHOLDS).write_text(json.dumps(limits), encoding="utf-8")
        return {}

    def pieces(folder: Path, done: Done) -> Facts:
        more = done.file("edges", THRESHOLDS), by_lang, step.buckets, step.equal, step.name
        tasks = [PiecesTask(g.part, folder, g, *more) for g in combined_groups(done)]
        answers = run_tasks(run, f"{__name__}:write_pieces", tasks, list)
        np.sum(answers, axis=0, dtype=np.int64).tofile(folder / BUCKETS)
        return {}

    per_score = [
        (Phase(f"seen{k}", count(f"score{k}")), Phase(f"levels{k}", levels(k), (f"seen{k}",)))
        for k in range(many)
    ]
    phases = [
        *itertools.chain(*per_score),
        Phase("weights", weights),
        Phase("combined", combined),
        Phase("seen", seen),
        Phase("edges", edges, frees=("seen",)),
        Phase("pieces", pieces),
    ]
    done = run_phases(sketches.folder, phases)
    pieces_files = part_files(done.folder("pieces"), PIECE, len(file_groups))
    join_pieces(sketches.decisions, SCHEMA, pieces_files)
    named = dict(zip(step.scores, weights_of(done), strict=True))
    buckets = np.fromfile(done.file("pieces", BUCKETS), np.int64).tolist()
    forget(sketches.folder)
    notes = []
    if step.combine == "learned":
        weighed = ", ".join(f"{name} {weight:g}" for name, weight in named.items())
        taught = counted(done.facts["taught"], "document")
        notes = [f"Weights learned from {taught}: {weighed}."]
    return Decided({"scored": done.facts["scored"]}, notes, tables={"buckets": buckets})


# Per group: the combined percentiles of its documents. For all: weights, documents per bucket.
COMBINED, WEIGHTS, BUCKETS = "combined.parquet", "weights.f64", "buckets.i64"


@dataclass(frozen=True)
class LevelsTask(GroupTask):
    """A task to look up the percentiles of documents' scores, for a group of sketch files."""

    thresholds: list[Path]  # one file per score
    by_lang: bool
    weights: list[float]  # one weight per score
    best: bool  # True: best percentile of a document; False: weighted mean

    def columns(self, *more: str) -> list[str]:
        names = [f"score{k}" for k in range(len(self.thresholds))]
        return [*names, *(["lang"] if self.by_lang else []), *more]

    def levels(self, batch: pa.RecordBatch) -> tuple[np.ndarray, list[str]]:
        """Return (levels, groups). `levels` is int64[rows, scores]: ten times the percentile of
        each score, -1 without a score. `groups` has each row's value of the column that the setting
        `by` names, or ""."""
        langs = batch["lang"].to_pylist() if self.by_lang else [""] * len(batch)
        columns = [
            _placed(batch[f"score{k}"].to_numpy(zero_copy_only=False), langs, _limits(path))
            for k, path in enumerate(self.thresholds)
        ]
        return np.stack(columns, axis=1), langs


@dataclass(frozen=True)
class PiecesTask(GroupTask):
    """A task to put a group of files' documents into buckets by combined percentile: the best or
    the weighted mean of a document's percentiles."""

    edges: Path  # file with the percentiles at which buckets begin
    by_lang: bool
    buckets: int
    equal: bool  # True if buckets are equally large
    method: str  # name of the step


def _limits(path: Path) -> dict[str, np.ndarray]:
    stored = json.loads(path.read_text(encoding="utf-8"))
    return {lang: np.array(values, np.float64) for lang, values in stored.items()}


def _placed(values: np.ndarray, langs: list[str], limits: dict[str, np.ndarray]) -> np.ndarray:
    placed = np.full(len(values), -1, np.int64)
    names = np.array(langs, object)
    for lang in set(langs):
        rows = np.flatnonzero((names == lang) & ~np.isnan(values))
        placed[rows] = np.searchsorted(limits.get(lang, np.empty(0)), values[rows], "right")
    return placed


def add_products(task: LevelsTask) -> list[list[int]]:
    """Return a matrix [k + 2][k + 2] of sums, from which `learned_weights` fits k weights. Each
    document with k scores and a target has the values (1, k percentiles, target). Entry [i][j] is
    the sum of value i times value j over documents."""
    size = len(task.thresholds) + 2
    products = np.zeros((size, size), object)
    for batch in sketch_batches(task.group.files, task.columns("target"), ROWS):
        placed, _ = task.levels(batch)
        target = batch["target"].to_numpy(zero_copy_only=False)
        rows = (placed >= 0).all(axis=1) & np.isfinite(target)
        whole = np.rint(target[rows] * UNIT).astype(np.int64).astype(object)
        matrix = np.column_stack([np.ones(rows.sum(), object), placed[rows].astype(object), whole])
        products = products + (matrix.T @ matrix if len(matrix) else 0)
    return [[int(value) for value in row] for row in products]


def combine(task: LevelsTask) -> int:
    """Write a combined percentile of each document to a file: the best of its scores' percentiles,
    or their weighted mean. Return the number of documents with a combined percentile."""
    scored, schema = 0, pa.schema([*_COMBINED, ("part", pa.int32())])
    weights = np.array(task.weights, np.float64)
    path = task.file(COMBINED)
    with replacing(path, sync=False) as aside, pq.ParquetWriter(aside, schema) as writer:
        for batch in sketch_batches(task.group.files, task.columns(), ROWS):
            placed, langs = task.levels(batch)
            present = placed >= 0
            if task.best:
                values = np.where(present.any(axis=1), placed.max(axis=1), np.nan)
            else:
                share = np.where(present, weights, 0.0)
                total = share.sum(axis=1)
                with np.errstate(invalid="ignore", divide="ignore"):
                    values = np.where(total > 0, (share * placed).sum(axis=1) / total, np.nan)
            scored += int(np.count_nonzero(~np.isnan(values)))
            columns = [pa.array(np.round(values * 100 / LEVELS, 6)), pa.array(langs, pa.string())]
            columns += [batch["n"], batch["id"], batch["part"]]
            writer.write_table(pa.table(columns, schema=schema))
    return scored


def write_pieces(task: PiecesTask) -> list[int]:
    """Run a task: write the bucket of each document. Return the number of documents per bucket."""
    counts = np.zeros(task.buckets, np.int64)
    write_piece(task.file(PIECE), SCHEMA, _pieces(task, counts))
    filled: list[int] = counts.tolist()
    return filled


def _pieces(task: PiecesTask, counts: np.ndarray) -> Iterator[pa.RecordBatch]:
    limits = _limits(task.edges)
    with pq.ParquetFile(task.group.files[0].path) as source:
        for batch in source.iter_batches(ROWS, use_threads=False):
            score = batch["score"].to_numpy(zero_copy_only=False)
            if task.equal:
                langs = batch["lang"].to_pylist() if task.by_lang else [""] * len(batch)
                bucket = _placed(score, langs, limits)
            else:
                part = np.floor(np.nan_to_num(score) * task.buckets / 100).astype(np.int64)
                bucket = np.where(np.isnan(score), -1, np.minimum(part, task.buckets - 1))
            none = bucket < 0
            counts += np.bincount(bucket[~none], minlength=len(counts))
            columns = {"part": batch["part"], "n": batch["n"], "id": batch["id"]}
            columns |= {"drop": pa.repeat(pa.scalar(False), len(batch))}
            columns |= {"method": pa.repeat(pa.scalar(task.method), len(batch))}
            columns |= {"percentile": pa.array(score, mask=none)}
            columns |= {"bucket": pa.array(bucket.astype(np.int32), mask=none)}
            yield completed(SCHEMA, len(batch), columns)
