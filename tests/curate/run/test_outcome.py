"""The record of a stage: those of its partitions, merged one by one."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import fields

import pytest

from curate.formats.events import MOST_NAMED
from curate.formats.inputs import InputPlan, Slice
from curate.formats.listing import InputFile
from curate.run.messages import CutExample, StageResult
from curate.run.plan import MapStage
from curate.run.records import sum_up
from llmcurate.base.errors import RunFailed

STAGE = MapStage(0, "key", None, [])


def inputs(parts: int) -> InputPlan:
    """A plan of files that are a partition each."""
    files = [InputFile(f"/in/{n}", str(n), "jsonl", "plain", 9, "", "") for n in range(parts)]
    return InputPlan(files, [(Slice(n, 0, None),) for n in range(parts)])


def result(part: int) -> StageResult:
    """The record of a partition that read four documents."""
    none = {f.name: {} for f in fields(StageResult) if f.type.startswith("dict")}
    values = {
        **{"read": 4, "kept": 3, "rejected": 1, "bytes_in": 9, "bytes_out": part, "corrupt": 60},
        **{"passed_over": 0, "bad_dates": 0, "digests_compared": 0, "peak_bytes": 100 - part},
        "primary": {f"c4.{part % 2}": 1},
        "seconds": {"c4": 0.25},
        "cpu": {"start": 1.0 + part % 3},
        "written": {"kept": 10},
        "compiled": 0.5,
        "cut_examples": {"c4.line": [CutExample(1 + part * 7 % 10, "", str(part), 1, "", "")]},
        "corrupt_examples": [{"offset": 60 * part + n} for n in range(60)],
        "documents": [4],
    }
    return StageResult(**none | values)


def test_partition_results_are_merged_and_freed_one_by_one() -> None:
    held: list[weakref.ref[StageResult]] = []

    def results() -> Iterator[StageResult]:
        for part in range(10):
            assert not any(one() for one in held[:-1]), "nothing of them is needed any more"
            one = result(part)
            held.append(weakref.ref(one))
            yield one

    record = sum_up(STAGE, inputs(10), results())
    assert (record.read, record.kept, record.bytes_out) == (40, 30, 45)
    assert record.primary == {"c4.0": 5, "c4.1": 5} and record.seconds == {"c4": 2.5}
    assert (record.start, record.compiled, record.peak_bytes) == ([1.0, 3.0], 5.0, 100)
    assert [e.key for e in record.cut_examples["c4.line"]] == [1, 2, 3]
    offsets = [e["offset"] for e in record.corrupt_examples]
    assert offsets == [*range(MOST_NAMED)]


def test_a_partition_without_a_record_is_an_error() -> None:
    with pytest.raises(RunFailed, match="of 2 partitions 1"):
        sum_up(STAGE, inputs(2), [result(0)])
