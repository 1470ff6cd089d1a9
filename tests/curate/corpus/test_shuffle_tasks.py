"""Tasks of a resolve write the same bytes for any engine and grouping."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, get_type_hints

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.corpus.shuffle import tasks as shuffle_tasks
from curate.corpus.shuffle.tasks import FolderTask, GroupTask, groups, run_tasks
from curate.corpus.sizes import Sizes
from curate.corpus.sketches import Run, Sketches, SketchFile, lone_here, run_here
from curate.dedup.exact import DedupExact
from curate.dedup.minhash.near_duplicates import DedupMinhash
from curate.dedup.passages.repeated_passages import DedupPassages
from curate.dedup.simhash import DedupSimhash
from curate.engines.local import LocalEngine
from llmcurate.base.disk.files import TEMPORARY
from llmcurate.base.errors import RunFailed
from llmcurate.base.messages import Task, decode, encode
from tests.curate.corpus import resolving
from tests.curate.corpus.mapped_tasks import through
from tests.curate.dedup.minhash_sketches import sketched, texts, write
from tests.curate.isolated_tasks import Alone
from tests.parameters import mostly_slow

NAMES = {
    "bands": ["write_keys", "write_buckets", "write_rows"],
    "exact": ["write_keys", "write_buckets", "write_rows"],
    "passages": ["write_keys", "write_shared", "write_rows", "write_owners", "write_pieces"],
    "shingles": ["write_keys", "write_buckets", "write_rows", "write_compared", "match_part"],
    "fingerprints": ["write_keys", "write_buckets", "write_rows", "write_compared", "match_part"],
}
STEPS = {
    "bands": DedupMinhash(bands=12, rows=3),
    "shingles": DedupMinhash(bands=12, rows=3, verify=0.6),
    "exact": DedupExact(normalize=True),
    "passages": DedupPassages(keep="none", unit="paragraph"),
    "fingerprints": DedupSimhash(max_distance=4),
}


def decide(
    folder: Path,
    files: tuple[SketchFile, ...],
    step: Any,
    run: Run = run_here,
    sizes: Sizes = Sizes(),
) -> bytes:
    """The decisions' file."""
    return resolving.decide(folder, files, step, lone_here(run), sizes)[0]


# So small that there are several tasks and partitions of each kind.
SMALL = Sizes(
    task_documents=70,
    partition_pairs=30,
    query_documents=0,
    task_passages=70,
    slice_rows=50,
    part_candidates=20,
)


@pytest.mark.parametrize("name", mostly_slow(STEPS))
def test_workers_and_groups_decide_as_one_process_does(tmp_path, engine, name):
    step = STEPS[name]
    files = write(tmp_path, sketched(step, texts(200)), parts=5)
    want = decide(tmp_path, files, step)
    assert pq.read_metadata(tmp_path / "decisions.parquet").num_rows > 50
    for most in (1, 90, 1000):
        sizes = replace(SMALL, task_documents=most, task_passages=most)
        assert decide(tmp_path, files, step, through(engine), sizes) == want


@pytest.mark.parametrize("name", STEPS)
def test_tasks_of_one_phase_are_independent(tmp_path, name):
    step, folder = STEPS[name], tmp_path / "here"
    folder.mkdir()
    files = write(folder, sketched(step, texts(200)), parts=5)
    want = decide(folder, files, step)
    alone = Alone(folder, tmp_path / "aside")
    assert decide(folder, files, step, alone, SMALL) == want
    assert min(alone.seen.values()) > 1
    assert [*alone.seen] == NAMES[name]


VICTIMS = [
    "curate.corpus.shuffle.buckets:write_buckets",
    "curate.dedup.minhash.clusters:write_compared",
    "curate.dedup.minhash.clusters:match_part",
]


@dataclass(frozen=True)
class DyingTask(FolderTask):
    """A task of a function, as JSON."""

    function: str
    task: str


def dying(task: DyingTask) -> Any:
    """The task's own function, in a worker that is killed before it can say so the first time."""
    from curate.engines import worker

    function = resolve_name(task.function)
    result = function(decode(get_type_hints(function)["task"], task.task))
    mark = task.folder.parent.parent / f"died-{task.function}-{task.part}"
    if task.function in VICTIMS and task.part == 1 and not mark.exists():
        mark.touch()
        (task.folder / f"{TEMPORARY}{os.getpid()}-half").touch()
        worker.beat(0, 0)
        os.kill(os.getpid(), signal.SIGKILL)
    return result


@pytest.mark.slow
def test_a_worker_that_is_killed_is_followed_by_one_that_changes_nothing(tmp_path, engine):
    step = STEPS["shingles"]
    files = write(tmp_path, sketched(step, texts(200)), parts=5)
    want = decide(tmp_path, files, step)

    def run(function: str, tasks: list[FolderTask], result: Any) -> Iterator[tuple[Task, Any]]:
        dying_tasks = [DyingTask(t.part, t.folder, function, encode(t).decode()) for t in tasks]
        yield from through(engine)(f"{__name__}:dying", dying_tasks, result)

    assert decide(tmp_path, files, step, run, SMALL) == want
    died = {path.name for path in tmp_path.glob("died-*")}
    assert died == {f"died-{function}-1" for function in VICTIMS}


def fails(task: Task) -> None:
    raise RunFailed(f"task {task.part}")


def test_results_come_in_order_and_failures_as_they_are():
    def backwards(function: str, tasks: list[Task], result: Any) -> Iterator[tuple[Task, Any]]:
        for task in reversed(tasks):
            yield task, -task.part

    tasks = [Task(p) for p in range(5)]
    assert run_tasks(backwards, "no:matter", tasks, int) == [-p for p in range(5)]
    assert run_tasks(backwards, "no:matter", [], int) == []
    with pytest.raises(RunFailed, match="task 0"):
        run_tasks(run_here, f"{__name__}:fails", tasks)


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_groups_hold_every_file_once_in_order_within_their_limit(counts, most):
    with pytest.MonkeyPatch.context() as patch:
        rows = {str(p): count for p, count in enumerate(counts)}
        metadata_type = type("Metadata", (), {})
        patch.setattr(
            shuffle_tasks.pq,
            "read_metadata",
            lambda path: (
                setattr(metadata := metadata_type(), "num_rows", rows[str(path)]) or metadata
            ),
        )
        files = [SketchFile(p, Path(str(p)), p) for p in range(len(counts))]
        grouped = groups(Sketches(None, Path(), Path(), tuple(files)), most)
    assert [file for group in grouped for file in group.files] == files
    assert [group.part for group in grouped] == list(range(len(grouped)))
    for group in grouped:
        own = [rows[str(file.path)] for file in group.files]
        assert group.rows == sum(own) and (group.rows <= most or len(own) == 1)
        assert group.first == sum(counts[: group.files[0].part])
        assert GroupTask.from_json(GroupTask(0, Path(), group).to_json()).group == group


def test_a_run_hands_the_tasks_to_its_workers_and_writes_the_same_bytes(bench, monkeypatch):
    """Against an earlier run, so that there are two files of sketches and settled ids."""
    rows = [{"id": str(i % 150), "text": text} for i, text in enumerate(texts(200))]
    first, second = bench.jsonl("one.jsonl", rows[:80]), bench.jsonl("two.jsonl", rows[60:])
    steps: list[dict[str, Any]] = [{"dedup_exact": {}}, {"dedup_minhash": {"verify": 0.6}}]
    bench.run(steps, first, out="a")
    against = [
        {name: {**settings, "against": [str(bench.folder / "a")]}}
        for step in steps
        for name, settings in step.items()
    ]
    bench.run(against, second, out="b1")
    asked = []
    mapped = LocalEngine.map

    def noted(engine: LocalEngine, function: str, tasks: Any, *rest: Any, **how: Any) -> Any:
        of = tasks[0].function if function.endswith(":seal_written") else function
        asked.append(of.partition(":")[2])
        return mapped(engine, function, tasks, *rest, **how)

    monkeypatch.setattr(LocalEngine, "map", noted)
    bench.run(against, second, out="b2", workers=2, sizes=SMALL)
    decided = [bench.folder / out / "decisions.parquet" for out in ("b1", "b2")]
    assert decided[0].read_bytes() == decided[1].read_bytes()
    assert bench.ids("b1") == bench.ids("b2") and len(bench.ids("b1")) < 140
    assert asked.count("write_keys") == asked.count("write_rows") == 2
    assert {"write_compared", "match_part"} <= {*asked}
