"""Plans as columns: a written plan is mapped unchanged, with the same fingerprint."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from curate.formats import inputs
from curate.formats.inputs import InputPlan, Partitions, PlanRest, Slice, partition_size
from curate.formats.listing import InputFile
from curate.formats.read_settings import ReadSettings
from llmcurate.base.disk.files import text_digest

SLICES = st.builds(
    Slice, st.integers(0, 9), st.integers(0, 2**40), st.none() | st.integers(0, 2**40)
)
CUTS = st.lists(st.lists(SLICES, min_size=1, max_size=4).map(tuple), max_size=12)
FILES = tuple(
    InputFile(f"/in/{n}\udcff.warc", f"{n}é", "archive", "gzip", n, "s") for n in range(10)
)


def whole(plan: InputPlan) -> str:
    """Return the fingerprint as the first versions computed it."""
    parts = [[f.rel, f.format, f.size, f.stamp] for f in plan.files]
    cuts = [[(s.file, s.start, s.end) for s in p] for p in plan.partitions]
    last = [] if plan.documents_of_last is None else [plan.documents_of_last]
    return text_digest(json.dumps([parts, cuts, sorted(plan.columns.items()), *last]))


@settings(deadline=None, max_examples=30)
@given(CUTS, st.integers(0, 12), st.none() | st.integers(1, 5))
def test_columns_hold_the_same_partitions(tmp_path_factory, cuts, first, last) -> None:
    plan = InputPlan(FILES, tuple(cuts), {"b": "x", "a": "y"}, ("notice",), 2, last)
    folder = tmp_path_factory.mktemp("plan")
    mapped = InputPlan.map(folder, PlanRest.from_json(plan.write(folder).to_json()))
    columns = replace(plan, partitions=Partitions.of(cuts))
    for other in (mapped, columns, InputPlan.load(json.loads(json.dumps(plan.dump())))):
        assert [*other.partitions] == cuts and [*other.files] == [*FILES]
        assert [other.partitions[p] for p in range(len(other.partitions))] == cuts
        assert [*other.partitions[first : first + 3]] == cuts[first : first + 3]
        assert other.fingerprint() == plan.fingerprint() == whole(plan)
        assert other.dump() == plan.dump()
    assert mapped.partitions == columns.partitions
    rows = columns.partitions.table().to_pylist()
    assert rows == [
        {"part": p, "slice": i, "file": s.file, "start": s.start}
        for p, slices in enumerate(cuts)
        for i, s in enumerate(slices)
    ]


def test_a_long_plan_is_read_by_batches(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(inputs, "ROWS", 4)
    cuts = [(Slice(0, n, n + 1),) * (1 + n % 3) for n in range(11)]
    plan = InputPlan(FILES, tuple(cuts))
    mapped = InputPlan.map(tmp_path, plan.write(tmp_path))
    assert [*mapped.partitions] == cuts and mapped.partitions[9] == cuts[9]
    assert mapped.fingerprint() == whole(plan)
    assert len(mapped.partitions.table()) == sum(map(len, cuts))


def test_small_files_go_together_up_to_half_of_a_partition_and_so_many(monkeypatch) -> None:
    """A file of a quarter of a partition is not a small one."""
    monkeypatch.setattr(inputs, "MANY_SLICES", 3)
    for sizes, groups in (
        ([9, 9, 2, 9], [[9, 9, 2], [9]]),
        ([9, 9, 3, 9], [[9, 9], [3, 9]]),
        ([9, 10, 9, 11, 1], [[9], [10], [9], [11], [1]]),
        ([1] * 7, [[1] * 3, [1] * 3, [1]]),
        ([], []),
    ):
        files = [
            InputFile(f"/in/{n}", f"{n}", "text", "plain", s, "s") for n, s in enumerate(sizes)
        ]
        plan = inputs.plan_files(files, 40)
        assert [[files[piece.file].size for piece in p] for p in plan.partitions] == groups


def test_partitions_grow_with_the_input_where_nothing_is_set(monkeypatch) -> None:
    assert partition_size(0) == partition_size(64 << 30) == 16 << 20
    assert partition_size(1 << 40) == 256 << 20 and partition_size(1 << 50) == 1 << 30
    assert ReadSettings().identity() == ReadSettings(partition_bytes=16 << 20).identity()
    monkeypatch.setattr(inputs, "PARTITION_BYTES", 40)
    files = [InputFile(f"/in/{n}.txt", f"{n}", "text", "plain", 2, "s") for n in range(60)]
    for most, total in ((4096, 6), (1, 2)):  # 20 bytes, or half of the input, in a partition
        monkeypatch.setattr(inputs, "MANY_PARTITIONS", most)
        assert len(inputs.plan_files(files, None).partitions) == total
