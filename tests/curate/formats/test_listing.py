"""Input files: nothing is passed over in silence, and runs within an input are passed over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from curate.errors import RunFailed, UsageError
from curate.formats.listing import find_files
from tests.curate.capabilities import permissions_count

MEMORY = "memory://listing"


@pytest.fixture
def folder(bench):
    """A folder of two folders with a file each."""
    for name in "ab":
        bench.jsonl(f"in/{name}/x.jsonl", [{"id": name, "text": f"Text {name}."}])
    return bench.folder / "in"


def rels(folder: Path | str, **options: Any) -> list[str]:
    return [file.rel for file in find_files([str(folder)], **options).files]


@pytest.mark.parametrize("name", ["b", "b/x.jsonl", ""])
def test_what_may_not_be_read_is_an_error_that_names_it(folder, name):
    closed = folder / name
    closed.chmod(0)
    try:
        with permissions_count(), pytest.raises(RunFailed) as refused:
            find_files([str(folder)], skip_unreadable=False)
    finally:
        closed.chmod(0o755)
    said = str(refused.value)
    assert said.startswith(f"input {closed} cannot be read (Permission denied)".replace("/ ", " "))
    assert said.endswith("--skip-unreadable") and "\n" not in said and refused.value.exit_code == 1


def test_a_folder_that_may_be_listed_but_not_entered_is_an_error(folder):
    (folder / "b").chmod(0o444)
    try:
        with permissions_count(), pytest.raises(RunFailed, match=r"in/b/x\.jsonl cannot be read"):
            find_files([str(folder)])
        with permissions_count(), pytest.raises(RunFailed, match="cannot be read"):
            find_files([str(folder / "b" / "x.jsonl")])
    finally:
        (folder / "b").chmod(0o755)


def test_an_input_below_a_folder_that_may_not_be_entered_is_no_missing_one(folder):
    folder.chmod(0)
    try:
        with permissions_count(), pytest.raises(RunFailed, match="Permission denied"):
            find_files([str(folder / "a")])
    finally:
        folder.chmod(0o755)
    with pytest.raises(UsageError, match="does not exist"):
        find_files([str(folder / "c")])


@pytest.mark.parametrize("name", ["b", "b/x.jsonl"])
def test_what_may_not_be_read_is_passed_over_and_counted_where_that_is_asked_for(folder, name):
    (folder / name).chmod(0)
    try:
        with permissions_count():
            listed = find_files([str(folder)], skip_unreadable=True)
            with pytest.raises(UsageError, match=r"format \(skipped .*in/b.*: Permission denied"):
                find_files([str(folder / "b")], skip_unreadable=True)
    finally:
        (folder / name).chmod(0o755)
    assert [file.rel for file in listed.files] == ["a/x.jsonl"] and listed.unreadable == 1
    assert listed.notices == [f"skipped {folder / name}: Permission denied"]


def test_hidden_folders_need_not_be_read(folder):
    (folder / ".cache").mkdir(mode=0)
    with permissions_count():
        assert rels(folder) == ["a/x.jsonl", "b/x.jsonl"]


def mark(out: Path, *names: str) -> None:
    out.mkdir(parents=True)
    for name in (*names, "report.html", "stages/x/part-00000.jsonl"):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text('{"text": "not an input"}\n<html>')


@pytest.mark.parametrize(
    "names",
    [["ledger.db"], ["run.json", "recipe.yaml"], ["refresh.db"], [".run/ledger.db"]],
    ids=str,
)
def test_a_run_within_a_folder_is_passed_over_with_one_line(folder, names):
    mark(folder / "b/out", *names)
    mark(folder / "b/out/method", "ledger.db")  # a run of a comparison
    listed = find_files([str(folder)])
    assert [file.rel for file in listed.files] == ["a/x.jsonl", "b/x.jsonl"]
    (notice,) = listed.notices
    assert notice.startswith(f"skipped {folder / 'b/out'}: a run wrote it")


def test_pages_of_reports_within_a_folder_are_no_documents(bench, folder):
    assert bench.command("stats", folder, "-o", folder / "a").returncode == 0
    (folder / "a/theirs.html").write_text("<!doctype html><title>A page</title>")
    listed = find_files([str(folder)])
    assert [file.rel for file in listed.files] == ["a/theirs.html", "a/x.jsonl", "b/x.jsonl"]
    assert f"skipped {folder / 'a/stats.html'}: a page of a report" in listed.notices


def test_a_run_within_a_folder_of_a_store_is_passed_over():
    import fsspec

    fs = fsspec.filesystem("memory")
    for name in ("a.jsonl", "out/run.json", "out/recipe.yaml", "out/corpus/b.jsonl"):
        fs.pipe_file(f"/listing/{name}", b'{"text": "x"}\n')
    try:
        assert rels(MEMORY) == ["a.jsonl"]
        assert rels(f"{MEMORY}/out/corpus") == ["b.jsonl"]
    finally:
        fs.rm("/listing", recursive=True)


def test_a_folder_of_runs_alone_says_that_they_were_passed_over(folder):
    mark(folder / "c/out", "ledger.db")
    with pytest.raises(UsageError, match=r"in/c holds no file of a known format \(skipped .*out"):
        find_files([str(folder / "c")])


def test_a_run_means_its_corpus_and_a_home_its_current_snapshot(bench):
    for name in ("out/corpus", "old/corpus", "home/corpus/2026-01-01T00-00", "mine/corpus"):
        bench.jsonl(f"{name}/x.jsonl", [{"text": "x"}])
    for name in ("out/ledger.db", "home/refresh.db"):
        (bench.folder / name).touch()
    for name in ("out/corpus.json", "old/corpus/manifest.json", "mine/corpus.json"):
        (bench.folder / name).write_text(json.dumps({"text": "a manifest, or somebody's own"}))
    (bench.folder / "home/current").symlink_to("corpus/2026-01-01T00-00")
    for name in ("out", "old", "home"):
        assert rels(bench.folder / name) == ["x.jsonl"]
    assert rels(bench.folder / "mine") == ["corpus.json", "corpus/x.jsonl"]
