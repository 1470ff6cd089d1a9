"""Clusters and pairs as tasks: nearest centroids of ranges of rows, pairs of ranges of clusters.

A task reads its rows from the mapped matrix. The result for a document does not depend on others
of the range, and of what several clusters say of one the order is total: the highest similarity,
of equal ones the partner preferred most. It holds some 100 MB. What is one task is done here,
without files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from curate.corpus import journal
from curate.corpus.shuffle.tasks import run_tasks
from curate.corpus.sizes import Sizes
from curate.corpus.sketches import Run, Task
from curate.dedup.semantic import clusters
from llmcurate.base.disk.files import TEMPORARY, replacing


@dataclass(frozen=True)
class Matrix:
    """The embeddings, mapped: rows: int16[documents, size]; path: their file; run: who does tasks,
    which leave files beside it until they are read; sizes: of these."""

    rows: np.ndarray
    path: Path
    run: Run
    sizes: Sizes

    @contextmanager
    def task_inputs(self, **arrays: np.ndarray) -> Iterator[dict[str, Any]]:
        """The arguments of tasks: the matrix and a folder with these arrays."""
        with TemporaryDirectory(prefix=f"{TEMPORARY}tasks-", dir=self.path.parent) as folder:
            for name, array in arrays.items():
                np.save(Path(folder, f"{name}.npy"), array)
                journal.note(Path(folder, f"{name}.npy"))
            yield {"matrix": str(self.path), "folder": folder}
            journal.release(Path(folder))


def _array(task: Task, name: str) -> np.ndarray:
    array: np.ndarray = np.load(Path(task["folder"], f"{name}.npy"), mmap_mode="r")
    return array


def result_file(task: Task) -> Path:
    """The file of a task's result: arrays by name."""
    return Path(task["folder"], f"found-{task['part']:05d}.npz")


def _save_result(task: Task, **arrays: np.ndarray) -> dict[str, Any]:
    with replacing(result_file(task)) as aside, aside.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    return {}


def _load_result(task: Task) -> dict[str, np.ndarray]:
    with np.load(result_file(task), allow_pickle=False) as arrays:
        return dict(arrays)


def nearest_centroids(
    matrix: Matrix, centroids: np.ndarray, rows: np.ndarray, nearest: int
) -> tuple[np.ndarray, np.ndarray]:
    """As `clusters.nearest_centroids`, by tasks."""
    step = max(1, matrix.sizes.task_cosines // max(1, len(centroids)))
    if len(rows) <= step:
        return clusters.nearest_centroids(matrix.rows, centroids, rows, nearest)
    with matrix.task_inputs(centroids=centroids, rows=rows) as inputs:
        tasks = [
            {"part": part, "begin": begin, "end": min(begin + step, len(rows)), **inputs}
            | {"nearest": nearest}
            for part, begin in enumerate(range(0, len(rows), step))
        ]
        run_tasks(matrix.run, f"{__name__}:label_rows", tasks)
        results = [_load_result(task) for task in tasks]
    labels, cosines = (np.concatenate([e[name] for e in results]) for name in ("labels", "cosines"))
    return labels, cosines


def label_rows(task: Task) -> dict[str, Any]:
    """A task: the nearest centroids of a range of rows."""
    matrix = np.load(task["matrix"], mmap_mode="r")
    rows = np.array(_array(task, "rows")[task["begin"] : task["end"]])
    centroids = np.array(_array(task, "centroids"))
    labels, cosines = clusters.nearest_centroids(matrix, centroids, rows, task["nearest"])
    return _save_result(task, labels=labels, cosines=cosines)


def highest(
    matrix: Matrix, rows: np.ndarray, labels: np.ndarray, rank: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """As `clusters.highest`, by tasks."""
    members, bounds = clusters.members_of(rows, labels, rank)
    sizes = np.diff(bounds)
    cuts = cut_evenly(sizes * (sizes + 1) // 2, matrix.sizes.task_products)
    if len(cuts) <= 2:
        return clusters.highest(matrix.rows, rows, labels, rank)
    best, partner = np.zeros(len(matrix.rows)), np.full(len(matrix.rows), -1)
    with matrix.task_inputs(members=members, bounds=bounds, rank=rank) as inputs:
        tasks = [
            {"part": part, "begin": begin, "end": end, **inputs}
            for part, (begin, end) in enumerate(pairwise(cuts))
        ]
        run_tasks(matrix.run, f"{__name__}:compare_clusters", tasks)
        for arrays in map(_load_result, tasks):
            row, similar, other = arrays["rows"], arrays["similarity"], arrays["partner"]
            same = (similar == best[row]) & (rank[other] < rank[partner[row]])
            better = (similar > best[row]) | same
            row = row[better]
            best[row], partner[row] = similar[better], other[better]
    return best, partner


def cut_evenly(costs: np.ndarray, most: int) -> list[int]:
    """Bounds of ranges of things of these costs: int64[], each range as long as it costs no more
    than `most`, or a single thing."""
    cuts, spent = [0], 0
    for number, cost in enumerate(costs.tolist()):
        if spent and spent + cost > most:
            cuts.append(number)
            spent = 0
        spent += cost
    return [*cuts, len(costs)] if len(costs) else cuts


def compare_clusters(task: Task) -> dict[str, Any]:
    """A task: of the members of a range of clusters the highest similarities within them."""
    matrix = np.load(task["matrix"], mmap_mode="r")
    bounds = np.array(_array(task, "bounds")[task["begin"] : task["end"] + 1])
    members = np.array(_array(task, "members")[bounds[0] : bounds[-1]])
    rows, numbers = np.unique(members, return_inverse=True)
    rank = _array(task, "rank")[rows]
    # As a corpus of these rows alone.
    best, partner = clusters.highest_within(matrix, rows, numbers, bounds - bounds[0], rank)
    partnered = np.flatnonzero(partner >= 0)
    return _save_result(
        task, rows=rows[partnered], similarity=best[partnered], partner=rows[partner[partnered]]
    )
