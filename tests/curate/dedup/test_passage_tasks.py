"""Tasks of dedup_passages decide the same as one query, however sketches are grouped."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.corpus.shuffle.tasks import read_slice
from curate.corpus.sizes import Sizes
from curate.corpus.sketches import Run, SketchFile, run_here
from curate.dedup import survivors
from curate.dedup.passages.copies import ROWS_FILE, Runs, sorted_rows
from curate.dedup.passages.kernels import NONE, drop_repeats, packed, unpacked
from curate.dedup.passages.repeated_passages import DedupPassages
from curate.run.decisions import _removal
from tests.curate.corpus.resolving import opened
from tests.curate.dedup import reference_owners
from tests.curate.dedup.sketch_files import POLICIES, write
from tests.curate.dying_process import Dying, Killed


def sketches(documents: list[list[int]], seed: int = 0) -> pa.Table:
    """Sketches of documents that have passages with those keys."""
    draw, count = random.Random(seed), len(documents)
    rows = np.cumsum([0, *map(len, documents)]).astype(np.int64)
    halves = [divmod(key, 1 << 64) for keys in documents for key in keys]
    starts = [20 * k for keys in documents for k in range(len(keys))]

    def some(*values: Any) -> list[Any]:
        return [draw.choice([*values, None]) for _ in documents]

    return pa.table(
        {
            "passages": np.diff(rows),
            "keys": packed(np.array(halves, np.uint64).reshape(-1, 2), rows),
            "spans": packed(
                np.array([(a, a + 45) for a in starts], np.uint32).reshape(-1, 2), rows
            ),
            "url_md5": pa.array(some("0a", "ff", "7"), pa.string()),
            "size": pa.array([draw.randrange(4) for _ in documents], pa.int64()),
            "date": pa.array(some(0, 10**15, 7), pa.timestamp("us", "UTC")),
            "source": pa.array(some("a'b", "b", "c"), pa.string()),
            "score": pa.array(some(1.0, float("nan"), -2.0), pa.float64()),
            "n": np.arange(100, 100 + count),
            "id": pa.array(
                [f"é{draw.randrange(10**6):06d}-{i}" for i in range(count)], pa.string()
            ),
        }
    )


def decide(
    folder: Path,
    files: tuple[SketchFile, ...],
    step: DedupPassages,
    run: Run | None = run_here,
    sizes: Sizes = Sizes(),
) -> tuple[bytes, dict[str, Any]]:
    """(the decisions' file, counts); run None: as the reference decides."""
    with opened(folder, files, run or run_here, sizes) as sketch_files:
        path = sketch_files.decisions
        if run is None:
            order = survivors.preference(step.survivor)
            counts = reference_owners.decide(sketch_files, order, step.method, step.keep)
        else:
            counts = step.resolve(sketch_files).record()
            own_rows = path
            if any(file.part < 0 for file in files):
                own_rows = folder / "mine.parquet"
                pq.write_table(pq.read_table(path, filters=[("part", ">=", 0)]), own_rows)
            asked = _removal(sketch_files.connection, own_rows, (0, 0), None)["bytes"][0]
            assert counts.pop("cut") == asked
    return path.read_bytes(), counts


def rows_of(data: bytes) -> list[dict[str, Any]]:
    """Decisions with clusters numbered by their first row: numbers themselves mean nothing."""
    rows = pq.read_table(pa.BufferReader(data)).to_pylist()
    seen: dict[int, int] = {}
    return [{**row, "cluster": seen.setdefault(row["cluster"], len(seen))} for row in rows]


def small(passages: int) -> Sizes:
    """Tasks of so few passages, and few in slices and partitions too."""
    return Sizes(task_passages=passages, slice_rows=5, partition_pairs=4)


# Some share one half and differ in the other.
KEY = st.one_of(
    st.sampled_from([0, 1, 1 << 64, 3 << 64, 5 << 60, 7 << 61, 2**128 - 1, 2**127 - 1]),
    st.integers(0, 2**128 - 1),
)


@given(
    st.lists(st.lists(st.lists(KEY, max_size=5), max_size=6), min_size=1, max_size=4),
    st.sampled_from(POLICIES),
    st.sampled_from(["one", "none"]),
    st.integers(0, 2),
    st.integers(0, 99),
)
@settings(max_examples=12, deadline=None)
def test_tasks_decide_what_one_query_decides(parts, survivor, keep, earlier, seed):
    step = DedupPassages(survivor=survivor, keep=keep, unit="paragraph")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tables = [sketches(documents, seed + i) for i, documents in enumerate(parts)]
        files = write(folder, tables, min(earlier, len(parts)))
        want, counts = decide(folder, files, step, None)
        first = None
        for sizes in (small(1), small(12), Sizes()):
            decided = decide(folder, files, step, sizes=sizes)
            assert rows_of(decided[0]) == rows_of(want) and decided[1] == counts
            assert first in (None, decided[0]), "the bytes depend on groups"
            first = decided[0]


def test_a_line_shared_by_all_documents_is_one_row_per_group(tmp_path):
    parts = [[[7, 7, 100 * p + d + 10] for d in range(40)] for p in range(3)]
    files = write(tmp_path, [sketches(documents, p) for p, documents in enumerate(parts)])
    step = DedupPassages(unit="paragraph", keep="none")
    sent: dict[str, list[int]] = {"shared": [], "rows": []}

    def watched(function: str, tasks: list[Any], kind: Any) -> Any:
        for task, result in run_here(function, tasks, kind):
            if function.endswith(":write_shared"):
                sent["shared"].append(result)
            if function.endswith(":write_rows"):
                slices = (read_slice([task.file(ROWS_FILE)], n) for n in range(task.slices))
                sent["rows"].append(sum(len(batch) for part in slices for batch in part))
            yield task, result

    decided, counts = decide(tmp_path, files, step, watched, small(1))
    assert counts["members"] == counts["dropped"] == 240
    # Shuffled: one key of each group; to be decided: the first and the last document of each.
    assert sum(sent["shared"]) == 3 and sent["rows"] == [2, 2, 2]
    assert rows_of(decided) == rows_of(decide(tmp_path, files, step, None)[0])


def test_a_resolve_that_died_in_any_phase_continues_after_it(tmp_path):
    draw = random.Random(3)
    parts = [[[draw.randrange(90) << 58 for _ in range(9)] for _ in range(9)] for _ in range(4)]
    files = write(tmp_path, [sketches(documents, p) for p, documents in enumerate(parts)])
    want = decide(tmp_path, files, DedupPassages())
    dying = Dying()
    for _ in range(5):
        with pytest.raises(Killed):
            decide(tmp_path, files, DedupPassages(), dying, small(80))
        assert [*tmp_path.glob("own/*")], "nothing is left to go on from"
    assert decide(tmp_path, files, DedupPassages(), dying, small(80)) == want
    names = ["write_keys", "write_shared", "write_rows", "write_owners", "write_pieces"]
    assert dying.names == [name for name in names for _ in range(2)]


@given(st.lists(st.integers(0, 40) | st.integers(0, 2**64 - 1), max_size=60), st.integers(0, 9))
@settings(max_examples=50, deadline=None)
def test_keys_that_come_again_are_marked_with_the_one_before(keys, first):
    array = np.array(keys, np.uint64)
    last_keys, last_numbers = np.zeros(8, np.uint64), np.full(8, NONE, np.uint32)
    repeated = np.zeros(first + len(keys), np.uint8)
    out = np.empty_like(array), np.empty(len(keys), np.uint32)
    count = drop_repeats(array, first, last_keys, last_numbers, repeated, *out)
    held: dict[int, tuple[int, int]] = {}
    want, marked = [], set()
    for i, key in enumerate(keys):
        before = held.get(key % 8)
        if before is not None and before[0] == key:
            marked |= {before[1], i}
        else:
            held[key % 8] = key, i
            want.append((key, first + i))
    assert [*zip(out[0][:count].tolist(), out[1][:count].tolist(), strict=True)] == want
    assert np.flatnonzero(repeated).tolist() == sorted(first + i for i in marked)


PAIRS = st.tuples(st.sampled_from([0, 1, 2**63, 2**64 - 1]), st.sampled_from([0, 1, 2**64 - 1]))


@given(st.lists(PAIRS, max_size=30), st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_the_least_and_greatest_preference_of_each_key_are_found(keys, seed):
    draw = random.Random(seed)
    preference = draw.sample(range(1000), len(keys))
    copies = [draw.randrange(3) for _ in keys]
    low, high = (np.array([key[h] for key in keys], np.uint64) for h in range(2))
    runs = Runs(low, high, np.array(preference, np.uint64), np.array(copies, np.int64))
    order = sorted(range(len(keys)), key=lambda r: keys[r])
    assert sorted_rows(low, high).tolist() == order
    distinct = sorted(set(keys))
    rows = {key: [r for r in range(len(keys)) if keys[r] == key] for key in distinct}
    assert runs.run_of.tolist() == [distinct.index(key) for key in keys]
    assert runs.first.tolist() == [min(rows[key], key=preference.__getitem__) for key in distinct]
    assert runs.last.tolist() == [max(rows[key], key=preference.__getitem__) for key in distinct]
    assert runs.total.tolist() == [sum(copies[r] for r in rows[key]) for key in distinct]
    assert Counter(runs.run_of.tolist()) == Counter(distinct.index(key) for key in keys)


@given(st.lists(st.integers(0, 5), max_size=8), st.integers(0, 3), st.integers(0, 3))
def test_packed_rows_unpack_from_any_slice(counts, begin, behind):
    rows = np.cumsum([0, *counts]).astype(np.int64)
    for dtype in (np.uint64, np.uint32):
        values = np.arange(2 * rows[-1], dtype=dtype).reshape(-1, 2) * 7
        column = packed(values, rows)
        stop = max(len(counts) - behind, begin)
        part = column.slice(begin, stop - begin)
        numbers, bounds = unpacked(part, dtype)
        assert len(bounds) == len(part) + 1
        for i in range(len(part)):
            want = values[rows[begin + i] : rows[begin + i + 1]]
            assert np.array_equal(numbers[bounds[i] : bounds[i + 1]], want)
