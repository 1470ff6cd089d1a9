"""Tasks of suffix-array dedup write the same bytes for any engine and sizes."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from curate.corpus import journal
from curate.corpus.sizes import Sizes
from curate.corpus.sketches import Run, Sketches, SketchFile, lone_here, run_here, view
from curate.dedup.suffix_array import merge as sorting
from curate.dedup.suffix_array import repeats as resolving
from curate.dedup.suffix_array import search_index
from curate.dedup.suffix_array.exact_substrings import DedupSuffixArray
from curate.documents.documents import documents
from curate.run.worker.stage import sketch_rows
from llmcurate.base.disk.database import scratch_database
from llmcurate.base.disk.seals import fault
from llmcurate.base.errors import Damaged
from llmcurate.base.messages import Task
from tests.curate.corpus.mapped_tasks import through
from tests.curate.dedup.reference_substrings import pages_of
from tests.curate.dying_process import Dying, Killed
from tests.curate.isolated_tasks import Alone

NAMES = ["pass_group", "sort_chunk", "merge_windows", "join_windows"]
# Several chunks, and several tasks of each kind.
SMALL = Sizes(sort_bytes=6 * 6000, task_windows=3000, task_sketch_bytes=1)
CHOICES: dict[str, dict[str, Any]] = {
    "first": {},
    "none, in bytes": {"keep": "none", "unit": "bytes"},
    "longest, whole words": {"survivor": "longest", "boundary": "word"},
}


def write(folder: Path, step: DedupSuffixArray, parts: int = 5) -> tuple[SketchFile, ...]:
    """Sketches in that many files."""
    files = []
    rows = pages_of(random.Random(3), 150)
    for part in range(parts):
        part_rows = rows[part::parts]
        docs = documents(
            {"id": [r["id"] for r in part_rows], "text": [r["text"] for r in part_rows]}
        )
        path = folder / f"part-{part}.parquet"
        pq.write_table(sketch_rows(step, docs.table, part), path)
        files.append(SketchFile(part, path, part))
    return tuple(files)


def decide(
    folder: Path,
    files: tuple[SketchFile, ...],
    step: Any,
    run: Run = run_here,
    sizes: Sizes = Sizes(),
) -> bytes:
    """The decisions' file."""
    own, path = folder / "own", folder / "decisions.parquet"
    own.mkdir(exist_ok=True)
    with scratch_database(folder / "spill") as db:
        view(db, files)
        step.resolve(Sketches(db, path, own, files, run=run, sizes=sizes))
    assert not list(own.glob("work*"))
    return path.read_bytes()


@pytest.mark.parametrize("name", CHOICES)
def test_workers_and_sizes_decide_as_one_process_does(tmp_path, engine, name):
    step = DedupSuffixArray(threshold=60, keep_index=False, **CHOICES[name])
    files = write(tmp_path, step)
    want = decide(tmp_path, files, step)
    assert pq.read_metadata(tmp_path / "decisions.parquet").num_rows > 50
    assert decide(tmp_path, files, step, through(engine), Sizes(sort_bytes=6 * 6000)) == want
    assert decide(tmp_path, files, step, sizes=Sizes(task_windows=20_000)) == want
    assert decide(tmp_path, files, step, through(engine), SMALL) == want


def test_tasks_of_one_phase_are_independent(tmp_path):
    step, folder = DedupSuffixArray(threshold=60, keep_index=False), tmp_path / "here"
    folder.mkdir()
    files = write(folder, step)
    want = decide(folder, files, step)
    alone = Alone(folder, tmp_path / "aside")
    assert decide(folder, files, step, alone, SMALL) == want
    assert [*alone.seen] == NAMES
    assert min(alone.seen.values()) > 1


def test_a_small_corpus_waits_for_no_worker(tmp_path):
    def nobody(function: str, tasks: list[Task], result: Any) -> Iterator[tuple[Task, Any]]:
        assert not tasks, function
        return iter(())

    step = DedupSuffixArray(threshold=60)
    files = write(tmp_path, step)
    assert decide(tmp_path, files, step, lone_here(nobody)) == decide(tmp_path, files, step)


def test_chunks_of_the_index_are_tasks_too(tmp_path, engine):
    step, folder = DedupSuffixArray(threshold=60), tmp_path / "here"
    folder.mkdir()
    files = write(folder, step)
    alone = Alone(folder, tmp_path / "aside")
    outcomes = []
    for run in (run_here, through(engine), alone):
        decisions = decide(folder, files, step, run, Sizes(sort_bytes=2 * 5 * 20_000))
        contents = {path.name: path.read_bytes() for path in sorted((folder / "own").iterdir())}
        outcomes.append((decisions, contents))
        shutil.rmtree(folder / "own")
    assert outcomes[0] == outcomes[1] == outcomes[2]
    assert (
        alone.seen["sort_suffixes"] > 1
        and len(outcomes[0][1]) == 3 + 2 * alone.seen["sort_suffixes"]
    )
    decisions = decide(folder, files, step)
    assert decisions == outcomes[0][0]


def after(event: threading.Event, function: Any) -> Any:
    """The function, begun once the event is set; a minute without it is a fault of the test."""

    @wraps(function)
    def waiting(*args: Any) -> Any:
        assert event.wait(60)
        return function(*args)

    return waiting


def before(event: threading.Event, function: Any) -> Any:
    """The function, which sets the event at its end."""

    @wraps(function)
    def setting(*args: Any) -> Any:
        try:
            return function(*args)
        finally:
            event.set()

    return setting


@pytest.mark.parametrize("slower", ["index", "decision"])
def test_the_journal_has_what_each_thread_wrote_whichever_is_slower(tmp_path, monkeypatch, slower):
    step = DedupSuffixArray(threshold=60)
    files = write(tmp_path, step)
    want = decide(tmp_path, files, step)
    shutil.rmtree(own := tmp_path / "own")
    own.mkdir()
    done = threading.Event()
    if slower == "decision":  # its task ends after the whole index is there
        monkeypatch.setattr(resolving, "_keep_index", before(done, resolving._keep_index))
        monkeypatch.setattr(sorting, "sort_chunk", after(done, sorting.sort_chunk))
    else:  # its task ends after the decision has removed its own files
        monkeypatch.setattr(search_index, "sort_suffixes", after(done, search_index.sort_suffixes))
        monkeypatch.setattr(resolving, "_decide", before(done, resolving._decide))
    with journal.resolving(own):
        assert decide(tmp_path, files, step) == want
    seals = journal.finish(own)
    assert sorted(seals) == sorted(path.name for path in own.iterdir())
    assert len(seals) == 5 and not any(fault(own / name, seals[name]) for name in seals)


def test_a_resolve_that_died_in_any_task_keeps_what_is_done(tmp_path):
    step = DedupSuffixArray(threshold=60, keep_index=False)
    files = write(tmp_path, step)
    want = decide(tmp_path, files, step)
    dying = Dying()
    for _ in NAMES:
        with pytest.raises(Killed):
            decide(tmp_path, files, step, dying, SMALL)
    assert decide(tmp_path, files, step, dying, SMALL) == want
    first, again = dict(reversed(dying.asked)), dict(a for a in dying.asked if a[1])
    assert [*again] == NAMES
    assert all(again[name] == first[name] - 2 > 0 for name in again)


@pytest.mark.parametrize("flipped", [False, True])
def test_files_of_a_killed_resolve_are_verified_before_reuse(tmp_path, flipped):
    step = DedupSuffixArray(threshold=60, keep_index=False)
    files, own = write(tmp_path, step), tmp_path / "own"
    want = decide(tmp_path, files, step)
    chunks: list[int] = []

    def run(function: str, tasks: list[Task], result: Any) -> Iterator[tuple[Task, Any]]:
        for task, answer in run_here(function, tasks, result):
            sorted_chunk = getattr(task, "function", "").endswith(":sort_chunk")
            chunks.extend([task.part] * sorted_chunk)
            yield task, answer
            if sorted_chunk and chunks == [0, 1]:
                raise Killed

    with pytest.raises(Killed), journal.resolving(own):
        decide(tmp_path, files, step, run, SMALL)
    (order,) = own.rglob("order-00000.u32")
    if flipped:
        order.write_bytes(bytes(4) + order.read_bytes()[4:])
        with pytest.raises(Damaged, match="order-00000"), journal.resolving(own):
            pass
        assert not own.exists()
        own.mkdir()
    with journal.resolving(own):
        assert decide(tmp_path, files, step, run, SMALL) == want
    assert chunks[2] == (0 if flipped else 2)
