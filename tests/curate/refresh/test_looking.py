"""`whatif` and `browse` take a refresh's HOME: the current snapshot, and what its runs rejected."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from curate.inspect.browse.library import Library, Query, library
from curate.inspect.check import check, repair
from curate.inspect.whatif.apply import apply
from curate.inspect.whatif.figures import answer
from curate.run.records import Options
from llmcurate.base.errors import RunFailed, UsageError
from tests.curate.refresh.growing import Home, inputs

STEPS: list[Any] = [
    {"document_length": {"min": 60}},
    {"dedup_exact": {"survivor": "first"}},
    {"document_length": {"unit": "chars", "max": 520}},
]


@pytest.fixture(scope="module")
def home(shared_bench: Any) -> Home:
    grown = Home(shared_bench, STEPS)
    for name, rows in zip("abc", inputs(30), strict=True):
        for row in rows[::6]:
            row["text"] = row["text"][:200]
        grown.refresh(shared_bench.jsonl(f"{name}.jsonl", rows))
    shared_bench.run(STEPS, *(shared_bench.folder / f"{n}.jsonl" for n in "abc"), out="whole")
    return grown


@pytest.mark.parametrize("setting", ["document_length.min=70", "document_length.min=20"])
def test_a_home_answers_as_a_run_over_all_its_inputs(home: Home, setting: str) -> None:
    whole = answer(home.bench.folder / "whole", (setting,))
    answered = answer(home.path, (setting,))
    for name in ("documents", "before", "lost"):
        assert getattr(answered, name) == getattr(whole, name), name
    low, high = answered.after.low.documents, answered.after.high.documents
    assert low <= whole.after.estimate.documents <= high  # its dedups do not decide again
    assert (low == high) == (setting == "document_length.min=70")
    assert answered.rules.keys() == whole.rules.keys()
    for name, figures in answered.rules.items():
        assert figures.rule == whole.rules[name].rule
    assert answer(home.path, (setting,)) == answered  # lengths of texts come from the file now


def test_a_home_has_the_documents_of_all_its_runs_with_their_clusters(home: Home) -> None:
    def found(books: Library, **fields: Any) -> dict[str, tuple[str, int]]:
        return dict(books.places(Query(**fields), 0, 100))

    with library(home.path) as books, library(home.bench.folder / "whole") as whole:
        for fields in (
            {"status": "rejected", "rule": "dedup_exact.same_text"},
            {"status": "kept"},
            {"rule": "document_length.too_short"},
        ):
            assert found(books, **fields).keys() == found(whole, **fields).keys() != set()
        clusters = set()
        for id in found(books, rule="dedup_exact.same_text"):
            (decision,) = books.decisions(id)
            assert decision.partner_corpus is None and books.position(decision.partner_id or "")
            # A cluster of one run is not one of another.
            members = found(books, cluster=f"{decision.method}:{decision.cluster}")
            texts = {_text(home, position) for position in members.values()}
            assert len(texts) == 1
            clusters.add(decision.cluster)
        assert len(clusters) > 1


def _text(home: Home, place: tuple[str, int]) -> str:
    import pyarrow.parquet as pq

    return str(pq.read_table(place[0], columns=["text"])["text"][place[1]].as_py())


def test_a_home_is_not_sent_to_what_refuses_homes(home: Home) -> None:
    done = home.bench.command("whatif", home.path, "--set", "document_length.min=70")
    assert done.returncode == 0 and "--apply" not in done.stdout + done.stderr
    done = home.bench.command("dedup", "clusters", home.path)
    assert done.returncode == 2 and "holds several runs (refresh)" in done.stderr


def test_after_a_rollback_only_the_runs_of_the_snapshot_count(home: Home) -> None:
    from curate.refresh import run
    from curate.refresh.outcome import RefreshOptions

    names = home.snapshots()
    documents = answer(home.path).documents
    run.roll_back(home.path, names[0], RefreshOptions(quiet=True))
    first = answer(home.path)
    assert first.before.documents == len(home.ids(names[0])) and first.documents < documents
    run.roll_back(home.path, names[-1], RefreshOptions(quiet=True))
    assert answer(home.path).documents == documents


def test_one_run_of_a_home_and_settings_for_it_are_refused_in_one_line(home: Home) -> None:
    (run, *_) = (home.path / "runs").iterdir()
    with pytest.raises(UsageError, match="shares its corpus"):
        answer(run)
    with pytest.raises(UsageError, match="--rebuild"):
        apply(home.path, ("document_length.min=70",), None, Options(1, quiet=True))
    empty = home.bench.folder / "empty"
    empty.mkdir()
    (empty / "refresh.db").touch()
    done = home.bench.command("whatif", empty)
    assert done.returncode == 2 and "refresh it first" in done.stderr


def test_a_notice_says_that_forgotten_documents_are_not_counted(home: Home, tmp_path: Path) -> None:
    from curate.refresh import run
    from curate.refresh.outcome import RefreshOptions

    before = answer(home.path)
    name = home.ids()[0]
    run.forget(home.path, [("id", name)], RefreshOptions(quiet=True))
    answered = answer(home.path)
    assert answered.documents == before.documents - 2  # of a rejected copy the text is gone, too
    assert any("1 document to be forgotten" in n for n in answered.notes)
    done = home.bench.command("whatif", home.path, "--json")
    assert json.loads(done.stdout)["documents"] == answered.documents


def test_forgotten_documents_that_were_rejected_are_not_counted(bench: Any) -> None:
    from curate.refresh import run
    from curate.refresh.outcome import RefreshOptions

    rows = [{"id": f"d{i}", "text": "word " * (10 + i), "lang": "en"} for i in range(10)]
    home = Home(bench, [{"document_length": {"min": 15}}])
    home.refresh(bench.jsonl("a.jsonl", rows))
    assert answer(home.path, ("document_length.min=12",)).gained.documents == 3  # d2, d3, d4
    run.forget(home.path, [("id", "d3"), ("id", "d9")], RefreshOptions(quiet=True))
    answered = answer(home.path, ("document_length.min=12",))
    assert answered.gained.documents == 2 and answered.lost.documents == 0
    assert answered.before.documents == 4 and answered.documents == 8
    assert "not counted: 1 rejected document forgotten since the run" in answered.notes
    assert answer(home.path).gained.documents == 0


def test_check_compares_snapshots_and_what_later_refreshes_compare_with(
    home: Home, tmp_path: Path
) -> None:
    whole = check(home.path, Options(1, quiet=True))
    assert whole.passed and whole.files > 6, whole.faults
    copy = shutil.copytree(home.path, tmp_path / "home", symlinks=True)
    part = sorted(copy.glob("corpus/*/part-*.parquet"))[-1]
    sketch = sorted(copy.glob("runs/*/index/*/sketch-*.parquet"))[0]
    for path in (part, sketch):
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data[:-1])
    assert sorted(check(copy, Options(1, quiet=True)).faults) == [str(part), str(sketch)]
    with pytest.raises(RunFailed, match="--rebuild"):
        repair(copy, Options(1, quiet=True))
