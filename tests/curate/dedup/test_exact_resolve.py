"""The tasks of exact dedup write the same bytes as one query over all sketches."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.corpus.sizes import Sizes
from curate.corpus.sketches import Run, SketchFile, run_here
from curate.dedup.exact import DedupExact
from tests.curate.corpus import resolving
from tests.curate.dedup import reference_exact
from tests.curate.dedup.sketch_files import POLICIES, write
from tests.curate.dying_process import Dying, Killed


def sketches(keys: list[int | None], seed: int = 0, width: int = 16) -> pa.Table:
    """Sketches of documents with those keys, of so many bytes; None: without."""
    draw, count = random.Random(seed), len(keys)

    def some(*values: Any) -> list[Any]:
        return [draw.choice([*values, None]) for _ in keys]

    stored = [None if k is None else k.to_bytes(width, "big") for k in keys]
    return pa.table(
        {
            "key": pa.array(stored, pa.binary(width)),
            "url_md5": pa.array(some("0a", "ff", "7"), pa.string()),
            "size": pa.array([draw.randrange(4) for _ in keys], pa.int64()),
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
    survivor: str,
    sizes: Sizes | None,
    run: Run = run_here,
) -> tuple[bytes, dict[str, Any]]:
    """(the decisions' file, counts); sizes None: as the reference decides."""
    step = DedupExact(survivor=survivor)
    if sizes is not None:
        return resolving.decide(folder, files, step, run, sizes)
    with resolving.opened(folder, files) as shown:
        counts = reference_exact.decide(shown.connection, shown.decisions, survivor, step.method)
    return shown.decisions.read_bytes(), counts


def small(documents: int) -> Sizes:
    """Tasks of so few documents, and few in partitions too."""
    return Sizes(task_documents=documents, partition_pairs=4, query_documents=0)


# Some share 64 bits and differ in the others.
KEY = st.one_of(
    st.none(),
    st.sampled_from([0, 1, 1 << 64, 3 << 64, 5 << 125, 2**128 - 1, 2**128 - 2]),
    st.integers(0, 2**128 - 1),
)


@given(
    st.lists(st.lists(KEY, max_size=8), min_size=1, max_size=4),
    st.sampled_from(POLICIES),
    st.integers(0, 2),
    st.integers(0, 99),
)
@settings(max_examples=12, deadline=None)
def test_tasks_write_the_bytes_of_one_query_over_all(parts, survivor, earlier, seed):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tables = [sketches(keys, seed + i) for i, keys in enumerate(parts)]
        files = write(folder, tables, min(earlier, len(parts)))
        want = decide(folder, files, survivor, None)
        for sizes in (small(1), small(9), Sizes()):
            assert decide(folder, files, survivor, sizes) == want


@pytest.mark.parametrize("width", [8, 32])
def test_keys_of_any_length_are_compared_whole(tmp_path, width):
    draw = random.Random(width)
    keys = [draw.randrange(30) << (8 * width - 8) | draw.randrange(2) for _ in range(120)]
    files = write(tmp_path, [sketches(keys[i::3], i, width) for i in range(3)])
    want = decide(tmp_path, files, "longest", None)
    assert want[1]["dropped"] > 20
    assert decide(tmp_path, files, "longest", small(1)) == want


def test_a_resolve_that_died_in_any_phase_continues_after_it(tmp_path):
    draw = random.Random(3)
    keys = [draw.randrange(40) << 120 for _ in range(100)]
    files = write(tmp_path, [sketches(keys[i::4], i) for i in range(4)])
    want = decide(tmp_path, files, "newest", None)
    dying = Dying()
    for _ in range(3):
        with pytest.raises(Killed):
            decide(tmp_path, files, "newest", small(30), dying)
        assert [*tmp_path.glob("own/*")], "nothing is left to go on from"
    assert decide(tmp_path, files, "newest", small(30), dying) == want
    names = ["write_keys", "write_buckets", "write_rows"]
    assert dying.names == [name for name in names for _ in range(2)]
