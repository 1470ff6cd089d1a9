"""Workers that die: retries, quarantine of the document at fault, no effect on others."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from curate.engines.base import WorkerBug
from llmcurate.base.errors import LlmcurateError, RunFailed
from tests.parameters import mostly_slow

PLUGINS = Path(__file__).parent / "plugins"
SMALL = {"partition_bytes": 1024, "batch_rows": 5}


@pytest.fixture(scope="module", autouse=True)
def _started() -> None:
    """Workers of these tests are forked: they die as others do."""


@pytest.fixture(autouse=True)
def plugins(monkeypatch):
    paths = [str(PLUGINS), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.syspath_prepend(str(PLUGINS))


def rows(*marks: tuple[int, str], count: int = 30) -> list[dict[str, str]]:
    """Documents d00, d01, ...; those named in marks carry their mark, d04 and d21 are copies."""
    texts = [
        f"document {i} of some length, so that there are several partitions" for i in range(count)
    ]
    texts[21] = texts[4]
    for i, mark in marks:
        texts[i] = f"{texts[i]} {mark}"
    return [{"id": f"d{i:02d}", "text": t} for i, t in enumerate(texts)]


STEPS = ["crash", "dedup_exact"]


@pytest.mark.parametrize("mark", mostly_slow(["KILL-WITH:11", "KILL-WITH:6", "EXIT"]))
def test_a_document_that_kills_its_worker_twice_is_quarantined_by_name(bench, mark):
    source = bench.jsonl("in.jsonl", rows((7, mark)))
    outcome = bench.run(STEPS, source, workers=2, read=SMALL)
    assert outcome.totals().read == 30
    (held,) = [r for r in bench.rows("out", "rejected") if r["step"] == "engine"]
    assert (held["id"], held["rule"]) == ("d07", "quarantine")
    assert "died twice" in held["detail"] and held["text"].endswith(mark)
    clean = bench.jsonl("clean.jsonl", [r for r in rows() if r["id"] != "d07"])
    bench.run(STEPS, clean, out="without", read=SMALL)
    assert bench.ids() == bench.ids("without")
    assert outcome.totals().by_rule == {"engine.quarantine": 1, "dedup_exact.same_text": 1}


@pytest.mark.slow  # one of a batch is found in the test before
def test_several_killing_documents_of_one_batch_are_found_one_by_one(bench):
    source = bench.jsonl("in.jsonl", rows((6, "KILL-WITH:11"), (8, "EXIT"), (29, "KILL-WITH:6")))
    bench.run(STEPS, source, workers=2, read=SMALL)
    held = [r["id"] for r in bench.rows("out", "rejected") if r["step"] == "engine"]
    assert held == ["d06", "d08", "d29"]
    assert len(bench.ids()) == 26


def test_quarantine_in_a_later_stage_leaves_the_decisions_of_the_others_in_place(bench):
    data = rows((20, "KILL-WITH:11"), (22, "KILL-WITH:11"))
    data[22]["text"] = data[20]["text"]
    data[22]["id"] = "d19-copy"
    source = bench.jsonl("in.jsonl", data)
    bench.run(["dedup_exact", "crash"], source, read={"batch_rows": 30})
    rejected = {r["id"]: r["step"] for r in bench.rows("out", "rejected")}
    # d20 and its copy die: the copy that dedup drops is measured by every step of its stage too.
    assert rejected == {"d19-copy": "engine", "d20": "engine", "d21": "dedup_exact"}


def test_a_document_that_kills_while_it_is_sketched_is_found_too(bench):
    source = bench.jsonl("in.jsonl", rows((7, "KILL-WITH:11")))
    bench.run(["crash_sketch"], source, read=SMALL)
    held = [r["id"] for r in bench.rows("out", "rejected") if r["step"] == "engine"]
    assert held == ["d07"]


@pytest.mark.parametrize("number", mostly_slow([signal.SIGKILL, signal.SIGSEGV]))
def test_a_worker_that_dies_once_leaves_no_trace(bench, number):
    source = bench.jsonl("in.jsonl", rows((7, f"ONCE:{int(number)}:{bench.folder / 'mark'}")))
    bench.run(STEPS, source, workers=2, read=SMALL)
    assert (bench.folder / "mark").exists()
    bench.run(STEPS, source, out="calm", read=SMALL)
    assert bench.bytes_of() == bench.bytes_of("calm")
    assert not list((bench.folder / "out").rglob(".part-*"))


LIMITED = SMALL | {"batch_seconds": 0.5}


@pytest.mark.parametrize("mark", ["SPIN", pytest.param("SLEEP:600", marks=pytest.mark.slow)])
def test_a_document_that_takes_too_long_alone_is_quarantined_by_name(bench, mark):
    """In C, where no thread of Python runs, as well as asleep; of one partition, where documents
    before and behind it are kept."""
    source = bench.jsonl("in.jsonl", rows((7, mark), count=22))
    outcome = bench.run(STEPS, source, read=LIMITED)
    (held,) = [r for r in bench.rows("out", "rejected") if r["step"] == "engine"]
    assert (held["id"], held["rule"]) == ("d07", "quarantine")
    assert held["detail"] == "took longer than 0.5 s alone, twice"
    assert outcome.totals().by_rule == {"engine.quarantine": 1, "dedup_exact.same_text": 1}
    assert len(bench.ids()) == 20


def test_a_batch_that_is_slow_without_any_slow_document_loses_none(bench):
    """Neither do those behind it, which are as slow."""
    slow = rows(*((n, "SLEEP:0.05") for n in range(24)))[:24]
    read = {"batch_rows": 12, "batch_seconds": 0.5}
    bench.run(["crash"], bench.jsonl("in.jsonl", slow), read=read)
    assert [row["text"] for row in bench.rows()] == [row["text"] for row in slow]


def test_a_worker_killed_twice_from_outside_fails_the_run_with_advice(bench):
    source = bench.jsonl("in.jsonl", rows((7, "KILL-WITH:9")))
    with pytest.raises(RunFailed, match=r"killed twice.*fewer --workers.*resumes") as failure:
        bench.run(STEPS, source, workers=2, read=SMALL)
    assert "\n" not in str(failure.value) and failure.value.exit_code == 1
    assert not (bench.folder / "out/corpus").exists()


def test_memory_exhaustion_is_one_line_with_advice(bench):
    source = bench.jsonl("in.jsonl", rows((7, "MEMORY")))
    with pytest.raises(RunFailed, match=r"ran out of memory.*fewer --workers.*resumes"):
        bench.run(STEPS, source, read=SMALL)


@pytest.mark.parametrize("workers", mostly_slow([2, 1]))
def test_a_defect_of_a_step_names_step_source_and_document_and_keeps_the_trace(bench, workers):
    source = bench.jsonl("in.jsonl", rows((7, "ERROR")))
    line = r"step crash failed on document d07 of in\.jsonl: ValueError: a defect .* at .*\.py:\d+$"
    with pytest.raises(WorkerBug, match=line) as failure:
        bench.run(STEPS, source, workers=workers, read=SMALL)
    assert isinstance(failure.value, LlmcurateError)
    assert "in apply" in failure.value.trace
