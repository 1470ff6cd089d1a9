"""Percentiles of several scores, what they combine to, and the buckets of that, by tasks.

A percentile is the share of scored documents below a score, rounded down to a tenth of a percent.
It is exact: the scores at those ranks are (corpus/ranks.py), so neither workers nor the order of
documents change one. Equal scores have one percentile, that of the last of them.

Weights are learned by least squares from sums of whole numbers, which are the same in any order.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus.decisions import COLUMNS, ROWS, join_pieces, piece_files, write_piece
from curate.corpus.phases import Done, Phase, forget, run_phases
from curate.corpus.ranks import FINE, find_ranks, score_totals, write_counts
from curate.corpus.shuffle.tasks import Group, groups, run_tasks
from curate.corpus.sketches import Sketches, SketchFile, Task, sketch_batches
from llmcurate.base.disk.files import replacing
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed

if TYPE_CHECKING:
    from curate.scoring.quality.buckets import QualityBuckets

LEVELS = 1000  # of a percentile: tenths of a percent
UNIT = 1_000_000  # a target is a whole number of these parts
THRESHOLDS = "thresholds.json"
SCHEMA = pa.schema([*COLUMNS, ("percentile", pa.float64()), ("bucket", pa.int32())])
_COMBINED = pa.schema(
    [("score", pa.float64()), ("lang", pa.string()), ("n", pa.int64()), ("id", pa.string())]
)


def bounds_of(scored: int, parts: int) -> list[int]:
    """The ranks, from 0, at which the parts of so many scores begin, without the first. Of few
    scores the last parts are empty, and have none."""
    ranks = (-(-part * scored // parts) for part in range(1, parts))
    return [rank for rank in ranks if rank < scored]


def learned_weights(sums: np.ndarray) -> list[float]:
    """Weights of 0 or more that add up to 1, by least squares with an intercept. sums:
    object[k + 2, k + 2], whole numbers, the products of (1, k percentiles, the target) added up
    over documents.

    Every set of scores is solved on its own; the best one without a negative weight counts.
    RunFailed where no score goes up with the target.
    """
    n = sums[0, 0]
    count = len(sums) - 2
    if n < 2:
        raise RunFailed("quality_buckets: fewer than two documents have a target and all scores")
    # n times the covariances, as whole numbers: nothing is lost before the division.
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
        raise RunFailed("quality_buckets: no score goes up with the target: look at their signs")
    weights = np.zeros(count)
    weights[best[0]] = best[1]
    return [round(w, 6) for w in (weights / weights.sum()).tolist()]


def resolve(step: QualityBuckets, sketches: Sketches) -> dict[str, Any]:
    """Writes the decisions; returns figures for the report."""
    file_groups = groups(sketches, sketches.sizes.task_documents)
    run, db, by_lang = sketches.run, sketches.connection, step.by is not None
    many = len(step.scores)

    def ranked(
        folder: Path, of: list[Group], counted: Path, column: str, parts: int
    ) -> dict[str, list[float]]:
        """By value of `by`, the scores at which parts begin."""
        totals = score_totals(db, counted, len(of))
        ranks = {lang: bounds_of(scored, parts) for lang, (_, scored, *_) in totals.items()}
        ranks_of = {lang: sorted(set(of_lang)) for lang, of_lang in ranks.items() if of_lang}
        if not ranks_of:
            return {}
        scores = find_ranks(run, db, folder, of, counted, ranks_of, by_lang, column, FINE)
        return {lang: [scores[lang][rank] for rank in ranks[lang]] for lang in ranks_of}

    def count(column: str) -> Any:
        def make(folder: Path, done: Done) -> dict[str, Any]:
            write_counts(run, folder, file_groups, by_lang, column, FINE)
            return {}

        return make

    def levels(k: int) -> Any:
        def make(folder: Path, done: Done) -> dict[str, Any]:
            counted = done.folder(f"seen{k}")
            limits = ranked(folder, file_groups, counted, f"score{k}", LEVELS)
            (folder / THRESHOLDS).write_text(json.dumps(limits), encoding="utf-8")
            return {}

        return make

    def shared(done: Done, folder: Path) -> dict[str, Any]:
        files = [str(done.file(f"levels{k}", THRESHOLDS)) for k in range(many)]
        return {"thresholds": files, "by_lang": by_lang, "folder": str(folder)}

    def weights(folder: Path, done: Done) -> dict[str, Any]:
        if step.combine != "learned":
            return {"weights": list(step.weights or [1.0] * many)}
        tasks = [{**group.dump(), **shared(done, folder)} for group in file_groups]
        answers = run_tasks(run, f"{__name__}:add_products", tasks)
        products = np.array([a["products"] for a in answers], object).sum(axis=0)
        return {
            "weights": learned_weights(np.array(products, object)),
            "taught": int(products[0][0]),
        }

    def combined(folder: Path, done: Done) -> dict[str, Any]:
        settings = {**shared(done, folder), "weights": done.facts["weights"]}
        settings["best"] = step.combine == "max"
        tasks = [{**group.dump(), **settings} for group in file_groups]
        answers = run_tasks(run, f"{__name__}:combine", tasks)
        return {"scored": sum(a["scored"] for a in answers)}

    def combined_groups(done: Done) -> list[Group]:
        paths = [combined_file(done.folder("combined"), group.part) for group in file_groups]
        return [
            replace(group, files=(SketchFile(0, path, 0),))
            for group, path in zip(file_groups, paths, strict=True)
        ]

    def seen(folder: Path, done: Done) -> dict[str, Any]:
        write_counts(run, folder, combined_groups(done), by_lang, "score", FINE)
        return {}

    def edges(folder: Path, done: Done) -> dict[str, Any]:
        limits: dict[str, list[float]] = {}
        if step.equal:
            limits = ranked(
                folder, combined_groups(done), done.folder("seen"), "score", step.buckets
            )
        (folder / THRESHOLDS).write_text(json.dumps(limits), encoding="utf-8")
        return {}

    def pieces(folder: Path, done: Done) -> dict[str, Any]:
        settings: dict[str, Any] = {"edges": str(done.file("edges", THRESHOLDS))}
        settings |= {"combined": str(done.folder("combined")), "folder": str(folder)}
        settings |= {"by_lang": by_lang, "buckets": step.buckets, "method": step.name}
        settings["equal"] = step.equal
        tasks = [{**group.dump(), **settings} for group in file_groups]
        answers = run_tasks(run, f"{__name__}:write_pieces", tasks)
        return {"buckets": np.sum([a["buckets"] for a in answers], axis=0, dtype=int).tolist()}

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
    join_pieces(sketches.decisions, SCHEMA, piece_files(done.folder("pieces"), len(file_groups)))
    facts = done.facts
    forget(sketches.folder)
    named = dict(zip(step.scores, facts["weights"], strict=True))
    figures: dict[str, Any] = {"scored": facts["scored"], "buckets": facts["buckets"]}
    if step.combine == "learned":
        figures["notes"] = [
            f"Weights learned from {counted(facts['taught'], 'document')}: "
            + ", ".join(f"{name} {weight:g}" for name, weight in named.items())
            + "."
        ]
    return figures


def combined_file(folder: Path, part: int) -> Path:
    """The combined percentiles of a group's documents."""
    return folder / f"combined-{part:05d}.parquet"


def _limits(path: str) -> dict[str, np.ndarray]:
    stored = json.loads(Path(path).read_text(encoding="utf-8"))
    return {lang: np.array(values, np.float64) for lang, values in stored.items()}


def _placed(values: np.ndarray, langs: list[str], limits: dict[str, np.ndarray]) -> np.ndarray:
    """int64[rows]: how many limits of its language each value reaches; -1: no number."""
    placed = np.full(len(values), -1, np.int64)
    names = np.array(langs, object)
    for lang in set(langs):
        rows = np.flatnonzero((names == lang) & ~np.isnan(values))
        placed[rows] = np.searchsorted(limits.get(lang, np.empty(0)), values[rows], "right")
    return placed


def _levels(task: Task, batch: pa.RecordBatch) -> tuple[np.ndarray, list[str]]:
    """(int64[rows, scores]: percentiles in tenths, -1: none; the value of `by` of each row)."""
    langs = batch["lang"].to_pylist() if task["by_lang"] else [""] * len(batch)
    columns = [
        _placed(batch[f"score{k}"].to_numpy(zero_copy_only=False), langs, _limits(path))
        for k, path in enumerate(task["thresholds"])
    ]
    return np.stack(columns, axis=1), langs


def _columns(task: Task, *more: str) -> list[str]:
    names = [f"score{k}" for k in range(len(task["thresholds"]))]
    return [*names, *(["lang"] if task["by_lang"] else []), *more]


def add_products(task: Task) -> dict[str, Any]:
    """A task: the products of (1, percentiles, target) added up over documents that have all."""
    size = len(task["thresholds"]) + 2
    products = np.zeros((size, size), object)
    for batch in sketch_batches(Group.load(task).files, _columns(task, "target"), ROWS):
        placed, _ = _levels(task, batch)
        target = batch["target"].to_numpy(zero_copy_only=False)
        rows = (placed >= 0).all(axis=1) & np.isfinite(target)
        whole = np.rint(target[rows] * UNIT).astype(np.int64).astype(object)
        matrix = np.column_stack([np.ones(rows.sum(), object), placed[rows].astype(object), whole])
        products = products + (matrix.T @ matrix if len(matrix) else 0)
    return {"products": [[int(value) for value in row] for row in products]}


def combine(task: Task) -> dict[str, Any]:
    """A task: one percentile of each document, of those that it has."""
    path, scored = combined_file(Path(task["folder"]), task["part"]), 0
    schema = pa.schema([*_COMBINED, ("part", pa.int32())])
    weights = np.array(task["weights"], np.float64)
    with replacing(path, sync=False) as aside, pq.ParquetWriter(aside, schema) as writer:
        for batch in sketch_batches(Group.load(task).files, _columns(task), ROWS):
            placed, langs = _levels(task, batch)
            present = placed >= 0
            if task["best"]:
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
    return {"scored": scored}


def write_pieces(task: Task) -> dict[str, Any]:
    """A task: the bucket of each document of a group, and how many each bucket has."""
    counts = np.zeros(task["buckets"], np.int64)
    path = piece_files(Path(task["folder"]), task["part"] + 1)[-1]
    write_piece(path, SCHEMA, _pieces(task, counts))
    return {"buckets": counts.tolist()}


def _pieces(task: Task, counts: np.ndarray) -> Iterator[pa.RecordBatch]:
    limits = _limits(task["edges"])
    with pq.ParquetFile(combined_file(Path(task["combined"]), task["part"])) as source:
        for batch in source.iter_batches(ROWS, use_threads=False):
            score = batch["score"].to_numpy(zero_copy_only=False)
            if task["equal"]:
                langs = batch["lang"].to_pylist() if task["by_lang"] else [""] * len(batch)
                bucket = _placed(score, langs, limits)
            else:
                part = np.floor(np.nan_to_num(score) * task["buckets"] / 100).astype(np.int64)
                bucket = np.where(np.isnan(score), -1, np.minimum(part, task["buckets"] - 1))
            none = bucket < 0
            counts += np.bincount(bucket[~none], minlength=len(counts))
            columns = {"part": batch["part"], "n": batch["n"], "id": batch["id"]}
            columns |= {"drop": pa.repeat(pa.scalar(False), len(batch))}
            columns |= {"method": pa.repeat(pa.scalar(task["method"]), len(batch))}
            columns |= {"percentile": pa.array(score, mask=none)}
            columns |= {"bucket": pa.array(bucket.astype(np.int32), mask=none)}
            arrays = [
                columns[f.name] if f.name in columns else pa.nulls(len(batch), f.type)
                for f in SCHEMA
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
