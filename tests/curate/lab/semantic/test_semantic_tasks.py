"""Tasks of a semantic dedup: any engine, any sizes, the same bytes; files as they are named."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.corpus.sizes import Sizes
from curate.corpus.sketches import Run, Sketches, SketchFile, lone_here, run_here, view
from curate.documents.documents import documents
from curate.lab.semantic import neighbours
from curate.lab.semantic import neighbours as semantic_clusters
from curate.lab.semantic.semantic_duplicates import DedupSemantic
from curate.run.worker.stage import sketch_rows
from llmcurate.base.disk.database import scratch_database
from llmcurate.base.messages import Task
from tests.curate.corpus.mapped_tasks import through
from tests.curate.dedup.minhash_sketches import texts
from tests.curate.dying_process import Dying, Killed
from tests.curate.isolated_tasks import Alone

NAMES = ["count_group", "embed_group", "label_rows", "compare_clusters"]
STEPS = {
    "longest": DedupSemantic(features=512, dimensions=8, residual=4, epsilon=0.1),
    "hard, prototypes": DedupSemantic(
        features=512, dimensions=8, residual=4, survivor="hard", prototypicality=0.7
    ),
}


def write(folder: Path, step: DedupSemantic, parts: int = 5) -> tuple[SketchFile, ...]:
    """Sketches in that many files."""
    files = []
    every = texts(200)
    for part in range(parts):
        part_texts = every[part::parts]
        docs = documents(
            {"id": [f"{part}-{i}" for i in range(len(part_texts))], "text": part_texts}
        )
        path = folder / f"part-{part}.parquet"
        pq.write_table(sketch_rows(step, docs.table, part), path)
        files.append(SketchFile(part, path, part))
    return tuple(files)


def decide(
    folder: Path,
    files: tuple[SketchFile, ...],
    step: Any,
    own: str,
    run: Run = run_here,
    sizes: Sizes = Sizes(),
) -> dict[str, bytes]:
    """The decisions' file, and what stays in the step's folder."""
    home, path = folder / own, folder / "decisions.parquet"
    home.mkdir(exist_ok=True)
    with scratch_database(folder / "spill") as db:
        view(db, files)
        step.resolve(Sketches(db, path, home, files, run=lone_here(run), sizes=sizes))
    names = ["basis.npz", "centroids.npy", "embeddings.npy", "similarity.parquet"]
    assert sorted(p.name for p in home.iterdir()) == names
    # An archive of arrays says when they were packed.
    written = {name: (home / name).read_bytes() for name in names[1:]}
    return {"decisions": path.read_bytes(), **written}


def small(embeddings: int, cosines: int, products: int) -> Sizes:
    """Tasks of so few documents, cosines to centroids and products."""
    return Sizes(task_embeddings=embeddings, task_cosines=cosines, task_products=products)


@pytest.mark.parametrize("name", STEPS)
def test_workers_and_sizes_decide_as_one_process_does(tmp_path, engine, name):
    step = STEPS[name]
    files = write(tmp_path, step)
    want = decide(tmp_path, files, step, "one")
    assert pq.read_metadata(tmp_path / "decisions.parquet").num_rows > 50
    for number, limits in enumerate([(1, 100, 1), (90, 900, 300), (90, 10**9, 10**9)]):
        own = f"own-{number}"
        assert decide(tmp_path, files, step, own, through(engine), small(*limits)) == want


def test_tasks_of_one_phase_are_independent(tmp_path):
    step, folder = STEPS["longest"], tmp_path / "here"
    folder.mkdir()
    files = write(folder, step)
    want = decide(folder, files, step, "one")
    alone = Alone(folder, tmp_path / "aside")
    assert decide(folder, files, step, "own", alone, small(90, 900, 300)) == want
    assert [*alone.seen] == NAMES and min(alone.seen.values()) > 1


def test_a_small_corpus_waits_for_no_worker(tmp_path):
    def nobody(function: str, tasks: list[Task], result: Any) -> Iterator[tuple[Task, Any]]:
        assert not tasks, function
        return iter(())

    files = write(tmp_path, STEPS["longest"])
    want = decide(tmp_path, files, STEPS["longest"], "one")
    assert decide(tmp_path, files, STEPS["longest"], "own", nobody) == want


def test_a_resolve_that_died_in_any_task_decides_the_same(tmp_path):
    """And makes no group's embeddings again."""
    step = STEPS["longest"]
    files = write(tmp_path, step)
    want = decide(tmp_path, files, step, "one")
    dying = Dying()
    for _ in NAMES:
        with pytest.raises(Killed):
            decide(tmp_path, files, step, "own", dying, small(90, 900, 300))
    assert decide(tmp_path, files, step, "own", dying, small(90, 900, 300)) == want
    # What is left of a group's tasks is one alone, which no worker is asked for.
    assert [a for a in dying.asked if "group" in a[0]] == [("count_group", 3), ("embed_group", 3)]
    assert [*dict(dying.asked)] == NAMES


def test_a_similarity_at_the_limit_is_no_duplicate(tmp_path, monkeypatch):
    step = STEPS["longest"]
    files = write(tmp_path, step, 1)
    similarity = np.zeros(len(texts(200)))
    similarity[:2] = step.least, np.nextafter(step.least, 1)
    partner = np.where(similarity > 0, 5, -1)
    nearest = neighbours.Nearest(similarity, partner, np.ones(len(similarity), np.bool_))
    monkeypatch.setattr(neighbours, "find", lambda step, sketches: nearest)
    path = tmp_path / "decisions.parquet"
    with scratch_database(tmp_path / "spill") as db:
        view(db, files)
        sketches = Sketches(db, path, tmp_path, files, run=lone_here(run_here), sizes=Sizes())
        assert step.resolve(sketches).counts["dropped"] == 1
    dropped = pq.read_table(path, filters=[("drop", "=", True)])
    assert dropped["similarity"].to_pylist() == [similarity[1]]


@given(st.integers(0, 99), st.integers(1, 3), st.integers(1, 60), st.integers(1, 400))
@settings(max_examples=25, deadline=None)
def test_comparing_in_ranges_finds_the_pairs_of_comparing_all_clusters_at_once(
    seed, nearest, cosines, products
):
    """Few values in few dimensions, so that many pairs are equally similar."""
    draw = np.random.default_rng(seed)
    rows = draw.integers(-1, 2, (40, 3)).astype(np.int16) * 1000
    used = np.flatnonzero(rows.any(axis=1))
    rank = draw.permutation(40)
    centroids = rows[used[:6]]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "rows.npy", rows)
        matrix = neighbours.Matrix(
            rows, folder / "rows.npy", backwards, small(1, cosines, products)
        )
        labels, cosine = neighbours.nearest_by_tasks(matrix, centroids, used, nearest)
        want = semantic_clusters.nearest_centroids(rows, centroids, used, nearest)
        assert np.array_equal(labels, want[0]) and np.array_equal(cosine, want[1])
        best, partner = neighbours.highest_by_tasks(matrix, used, labels, rank)
        all_best, all_partners = semantic_clusters.highest(rows, used, labels, rank)
        assert np.array_equal(best, all_best) and np.array_equal(partner, all_partners)
        assert [p.name for p in folder.iterdir()] == ["rows.npy"]


def backwards(function: str, tasks: list[Task], result: Any) -> Iterator[tuple[Task, Any]]:
    order = tasks[::-1]
    random.Random(len(tasks)).shuffle(order)
    return run_here(function, order, result)


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 20))
def test_ranges_cost_no_more_than_they_may(costs, most):
    cuts = neighbours.cut_evenly(np.array(costs, np.int64), most)
    assert cuts == sorted(set(cuts)) and cuts[0] == 0 and cuts[-1] == len(costs)
    for begin, end in pairwise(cuts):
        spent = costs[begin:end]
        assert sum(spent) <= most or len([c for c in spent if c]) == 1
