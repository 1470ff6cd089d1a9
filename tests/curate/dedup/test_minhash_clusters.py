"""MinHash decisions from band keys equal plain Python, for any memory limit."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pyarrow.parquet as pq
import pytest

from curate.corpus.shuffle.partitions import documents_in
from curate.corpus.shuffle.tasks import groups
from curate.corpus.sizes import Sizes
from curate.corpus.sketches import Sketches, SketchFile
from curate.dedup.minhash.near_duplicates import DedupMinhash
from llmcurate.base.errors import RunFailed
from tests.curate.dedup.minhash_sketches import (
    BANDS,
    ROWS,
    SETTINGS,
    decide,
    random_keys,
    rows_of,
    sketched,
    texts,
    with_keys,
    write,
)


def expected(files: tuple[SketchFile, ...], first: bool) -> list[dict[str, Any]]:
    """The decisions as plain Python makes them from the band keys."""
    rows = [row for file in files for row in pq.ParquetFile(file.path).read().to_pylist()]
    buckets = defaultdict(list)
    for d, row in enumerate(rows):
        if row["bands"] is not None:
            for band in range(BANDS):
                buckets[row["bands"][8 * band : 8 * band + 8]].append(d)
    buckets = {key: members for key, members in buckets.items() if len(members) > 1}
    members_of_buckets = sorted({d for members in buckets.values() for d in members})
    order = (
        members_of_buckets
        if first
        else sorted(members_of_buckets, key=lambda d: (-rows[d]["size"], rows[d]["id"]))
    )
    position = {d: k for k, d in enumerate(order)}
    buckets_by_position = [{position[d] for d in members} for members in buckets.values()]
    weights: dict[int, Counter[int]] = defaultdict(Counter)
    for members in buckets_by_position:
        head = min(members)
        for k in members - {head}:
            weights[k][head] += 1
            if not first:
                weights[head][k] += 1
    partner = {k: min(w, key=lambda o: (-w[o], o)) for k, w in weights.items()}
    parent = list(range(len(order)))

    def root(k: int) -> int:
        while parent[k] != k:
            k = parent[k]
        return k

    for k, w in weights.items():
        for other in [partner[k]] if first else w:
            x, y = sorted((root(k), root(other)))
            parent[y] = x
    members = [k for k in range(len(order)) if k in weights or root(k) != k]
    members += [root(k) for k in members]
    name = [rows[d]["id"] for d in order]
    clusters = sorted({name[root(k)] for k in members})
    decided = []
    for d, k in sorted((order[k], k) for k in set(members)):
        alone = root(k) == k
        shared = 0 if alone else sum({k, partner[k]} <= m for m in buckets_by_position)
        decided.append(
            {
                "part": rows[d]["part"],
                "n": rows[d]["n"],
                "drop": not alone,
                "id": name[k],
                "cluster": clusters.index(name[root(k)]),
                "kept_id": name[root(k)],
                "partner_id": None if alone else name[partner[k]],
                "similarity": None if alone else pytest.approx((shared / BANDS) ** (1 / ROWS)),
                "method": "minhash",
                "span_start": None,
                "span_end": None,
                "cluster_size": sum(root(other) == root(k) for other in set(members)),
            }
        )
    return decided


@pytest.mark.parametrize("survivor", ["longest", "first"])
@pytest.mark.parametrize(("count", "values"), [(60, 200), (60, 40), (200, 3), (1, 5), (0, 5)])
def test_decisions_are_those_of_plain_python(tmp_path, survivor, count, values):
    for seed in range(3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        files = write(folder, with_keys(random_keys(count, values, seed), seed))
        step = DedupMinhash(bands=BANDS, rows=ROWS, survivor=survivor)
        counts = decide(folder, files, step)
        want = expected(files, survivor == "first")
        assert rows_of(folder) == want
        assert counts["members"] == len(want)
        assert counts["dropped"] == sum(row["drop"] for row in want)
        assert counts["clusters"] == len({row["cluster"] for row in want})
        assert list((folder / "own").iterdir()) == []


# Every buffer so small that each is filled many times.
SMALL = Sizes(
    task_documents=120,
    partition_pairs=50,
    segment_pairs=64,
    read_keys=60,
    bucket_members=30,
    batch_candidates=11,
    segment_bytes=1500,
    mapped_bytes=40,
    part_candidates=25,
    parts=7,
    matched_members=8,
    chunk_candidates=8,
    shingled_documents=7,
)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_decisions_do_not_depend_on_how_memory_is_cut(tmp_path, settings):
    step = DedupMinhash(bands=12, rows=3, **settings)
    table = sketched(step, texts(300))
    kept = []
    for name, sizes in (("large", Sizes()), ("small", SMALL)):
        folder = tmp_path / name
        folder.mkdir()
        files = write(folder, table)
        counts = decide(folder, files, step, sizes=sizes)
        assert counts["dropped"] > 50
        kept.append((counts, rows_of(folder)))
    assert kept[0] == kept[1]


def test_more_documents_than_numbers_are_refused(tmp_path):
    files = write(tmp_path, with_keys(random_keys(12, 5, 0)))
    sketches = Sketches(None, tmp_path, tmp_path, tuple(files))
    with pytest.raises(RunFailed, match="dedup compares at most 11 documents, but there are 12"):
        documents_in(groups(sketches, 100), "dedup", most=12)
