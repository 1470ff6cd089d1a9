"""Retries after a worker's death: documents run alone, quarantine, and the end of the run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from curate.engines.base import Death, OnDeath, retry_once
from curate.run.messages import StageTask
from curate.run.stages import LAST, QUARANTINE_LIMIT, find_culprit
from llmcurate.base.errors import RunFailed

CRASH, KILL, LATE = (-11, 0.0), (-9, 0.0), (-9, 30.0)


def task_of(part: int, careful: tuple[int, int] | None = None) -> StageTask:
    return StageTask(part, Path("stage.json"), careful=careful)


def culprits() -> OnDeath[StageTask]:
    plan, stage = SimpleNamespace(inputs=None), SimpleNamespace(folder_name="00-x")
    return find_culprit(cast(Any, plan), cast(Any, stage), quiet=True)


def after(
    decide: OnDeath, task: StageTask, how: tuple[int, float], first: int, last: int
) -> StageTask:
    return decide(task, Death(how[0], (first, last), how[1]))


@pytest.mark.parametrize(
    ("how", "careful"), [(CRASH, (5, 9)), (LATE, (5, LAST))], ids=["it died", "it took too long"]
)
def test_after_a_death_the_documents_of_the_batch_run_alone_and_after_a_time_out_all_later_ones(
    how, careful
) -> None:
    assert after(culprits(), task_of(3), how, 5, 9) == task_of(3, careful)


@pytest.mark.parametrize("first", [5, 7, 9])
def test_a_document_that_kills_its_worker_alone_is_quarantined_and_the_rest_runs_as_before(
    first,
) -> None:
    decide = culprits()
    task = after(decide, task_of(3), CRASH, 5, 9)
    held = {first: "its worker died twice: signal SIGSEGV"}
    assert after(decide, task, CRASH, first, first) == replace(task_of(3), quarantine=held)


def test_a_document_is_quarantined_only_after_timing_out_alone_twice() -> None:
    decide = culprits()
    task = after(decide, task_of(3), LATE, 5, 9)
    assert after(decide, task, LATE, 7, 7) == task
    assert after(decide, task, LATE, 8, 8) == task, "another one's first time"
    held = after(decide, task, LATE, 7, 7)
    assert held.quarantine == {7: "took longer than 30 s alone, twice"}
    assert held.careful == (5, LAST), "those behind it may be slow too"
    assert not after(decide, replace(task, part=4), LATE, 7, 7).quarantine


def test_a_death_in_another_batch_starts_a_new_search() -> None:
    decide = culprits()
    task = after(decide, task_of(3), CRASH, 5, 9)
    for first, last in ((4, 9), (5, 10), (10, 14)):
        assert after(decide, task, CRASH, first, last).careful == (first, last)
    with pytest.raises(RunFailed, match="documents 5 to 9 of partition 3 kill their worker tog"):
        after(decide, task, CRASH, 5, 9)


@pytest.mark.parametrize("status", [-9, -15])
def test_a_kill_from_outside_is_forgiven_once_a_partition_and_blamed_on_no_document(status) -> None:
    decide = culprits()
    for part in (3, 4):
        assert after(decide, task_of(part), (status, 0.0), 5, 5) == task_of(part)
    with pytest.raises(RunFailed, match="partition 4 of 00-x: a worker was killed twice"):
        after(decide, task_of(4), (status, 0.0), 6, 6)


def test_a_partition_in_which_too_many_documents_kill_is_a_defect_of_a_step() -> None:
    decide, task = culprits(), task_of(3, (0, LAST))
    for n in range(2 * QUARANTINE_LIMIT):
        held = after(decide, task, CRASH, n // 2, n // 2)
    assert len(held.quarantine) == QUARANTINE_LIMIT
    assert after(decide, task, CRASH, 500, 500) == task
    with pytest.raises(RunFailed, match="more than 100 documents of partition 3 killed"):
        after(decide, task, CRASH, 500, 500)


def test_work_without_documents_is_tried_twice_per_partition() -> None:
    decide = retry_once("the assembly")
    for part in (0, 1):
        assert after(decide, task_of(part), CRASH, 0, 0) == task_of(part)
    with pytest.raises(RunFailed, match=r"1 of the assembly: a worker died twice \(signal SIGSEGV"):
        after(decide, task_of(1), CRASH, 0, 0)
    with pytest.raises(RunFailed, match="0 of the assembly: a worker was killed twice"):
        after(decide, task_of(0), KILL, 0, 0)
