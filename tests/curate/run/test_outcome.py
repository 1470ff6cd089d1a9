"""The record of a stage: those of its partitions, merged one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from curate.formats.events import MOST_NAMED
from curate.formats.input_file import InputFile
from curate.formats.inputs import InputPlan
from curate.formats.partitions import Slice
from curate.run.outcome import sum_up
from curate.run.plan import MapStage
from llmcurate.base.errors import RunFailed

STAGE = MapStage(0, "key", None, [])


def inputs(parts: int) -> InputPlan:
    """A plan of files that are a partition each."""
    files = [InputFile(f"/in/{n}", str(n), "jsonl", "plain", 9, "", "") for n in range(parts)]
    return InputPlan(files, [(Slice(n, 0, None),) for n in range(parts)])


def result(part: int) -> dict[str, Any]:
    """The record of a partition that read four documents."""
    counts = {"read": 4, "kept": 3, "rejected": 1, "bytes_in": 9, "bytes_out": part, "corrupt": 60}
    counts |= {"passed_over": 0, "bad_dates": 0, "digests_compared": 0}
    by_key: dict[str, Any] = {name: {} for name in ("skipped", "reasons", "cut", "cut_bytes")}
    example = {"key": 1 + part * 7 % 10, "cut": str(part)}
    return {
        **counts,
        **by_key,
        "primary": {f"c4.{part % 2}": 1},
        "seconds": {"c4": 0.25},
        "cpu": {"start": 1.0 + part % 3},
        "written": {"kept": 10},
        "compiled": 0.5,
        "cut_examples": {"c4.line": [example]},
        "corrupt_examples": [{"offset": 60 * part + n} for n in range(60)],
        "peak_bytes": 100 - part,
        "documents": [4],
    }


def test_partitions_are_merged_and_let_go() -> None:
    held: list[dict[str, Any]] = []

    def results() -> Iterator[dict[str, Any]]:
        for part in range(10):
            held.append(result(part))
            yield held[-1]
            held.pop().clear()  # nothing of it is needed any more

    record = sum_up(STAGE, inputs(10), results())
    assert (record["read"], record["kept"], record["bytes_out"]) == (40, 30, 45)
    assert record["primary"] == {"c4.0": 5, "c4.1": 5} and record["seconds"] == {"c4": 2.5}
    assert (record["start"], record["compiled"], record["peak_bytes"]) == ([1.0, 3.0], 5.0, 100)
    assert [e["key"] for e in record["cut_examples"]["c4.line"]] == [1, 2, 3]
    offsets = [e["offset"] for e in record["corrupt_examples"]]
    assert offsets == [*range(MOST_NAMED)]


def test_a_partition_without_a_record_is_an_error() -> None:
    with pytest.raises(RunFailed, match="of 2 partitions 1"):
        sum_up(STAGE, inputs(2), [result(0)])
