"""Input files: nothing is skipped silently, and runs within an input are skipped."""

from __future__ import annotations

import json
import os
import re
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from curate.formats.inputs import plan_inputs
from curate.formats.listing import find_files, one_spelling
from curate.formats.read_settings import ReadSettings
from curate.formats.reading import PartitionReader
from llmcurate.base.errors import RunFailed, UsageError
from tests.curate.capabilities import permissions_count

MEMORY = "memory://listing"


@pytest.fixture
def folder(bench):
    for name in "ab":
        bench.jsonl(f"in/{name}/x.jsonl", [{"id": name, "text": f"Text {name}."}])
    return bench.folder / "in"


def rels(folder: Path | str, **options: Any) -> list[str]:
    return [file.rel for file in find_files([str(folder)], **options).files]


@pytest.mark.parametrize("name", ["b", "b/x.jsonl", ""])
def test_an_unreadable_input_is_an_error_that_names_it(folder, name):
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
def test_skip_unreadable_skips_and_counts_unreadable_inputs(folder, name):
    (folder / name).chmod(0)
    try:
        with permissions_count():
            listed = find_files([str(folder)], skip_unreadable=True)
            with pytest.raises(UsageError, match=r"format \(skipped .*in/b.*: Permission denied"):
                find_files([str(folder / "b")], skip_unreadable=True)
    finally:
        (folder / name).chmod(0o755)
    assert [file.rel for file in listed.files] == ["a/x.jsonl"] and len(listed.unreadable) == 1
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
    assert notice.startswith(f"skipped {folder / 'b/out'}: a run;")


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
    for name in ("out/corpus", "home/corpus/2026-01-01T00-00", "mine/corpus"):
        bench.jsonl(f"{name}/x.jsonl", [{"text": "x"}])
    for name in ("out/ledger.db", "home/refresh.db"):
        (bench.folder / name).touch()
    for name in ("out/corpus.json", "mine/corpus.json"):
        (bench.folder / name).write_text(json.dumps({"text": "a manifest, or somebody's own"}))
    (bench.folder / "home/current").symlink_to("corpus/2026-01-01T00-00")
    for name in ("out", "home"):
        assert rels(bench.folder / name) == ["x.jsonl"]
    assert rels(bench.folder / "mine") == ["corpus.json", "corpus/x.jsonl"]


@pytest.mark.parametrize("pattern", ["*/x.jsonl", "**/*.jsonl", "b/*"])
def test_a_folder_that_a_pattern_leads_into_and_that_may_not_be_read_is_not_passed_over(
    folder, pattern
):
    (folder / "b").chmod(0)
    try:
        with permissions_count():
            with pytest.raises(RunFailed, match="in/b cannot be read"):
                find_files([f"{folder}/{pattern}"], skip_unreadable=False)
            assert rels(f"{folder}/a*/*.jsonl") == ["x.jsonl"]
            if not pattern.startswith("b"):
                listed = find_files([f"{folder}/{pattern}"], skip_unreadable=True)
                assert listed.unreadable == {str(folder / "b"): "Permission denied"}
    finally:
        (folder / "b").chmod(0o755)


def test_a_pipe_named_as_input_is_refused_at_once(folder):
    os.mkfifo(folder / "pipe.jsonl")
    with pytest.raises(UsageError, match=r"pipe\.jsonl is a pipe, socket or device"):
        find_files([str(folder / "pipe.jsonl")])
    assert find_files([str(folder)]).notices == [f"skipped {folder}/pipe.jsonl: not a regular file"]


def test_a_file_has_one_path_however_it_is_spelled_and_is_read_once(folder):
    path = str(folder / "a" / "x.jsonl")
    spelled = [path, f"{folder}/b/../a//./x.jsonl", f"file://{folder}/a/x.jsonl", f"{folder}/a"]
    for name in spelled:
        assert [file.path for file in find_files([name]).files] == [path]
    listed = find_files(spelled)
    assert [file.path for file in listed.files] == [path]
    assert listed.notices == ["3 files given again, read once"]
    assert one_spelling(spelled[1]) == one_spelling(spelled[2]) == path


def test_two_dots_after_a_link_lead_where_the_link_leads(folder):
    (folder / "deep").mkdir()
    (folder / "deep" / "link").symlink_to(folder / "b")
    for pattern in ("x", "*"):
        (file,) = find_files([f"{folder}/deep/link/../a/{pattern}.jsonl"]).files
        assert Path(file.path).samefile(folder / "a" / "x.jsonl")


@pytest.mark.parametrize("name", ["a.zip", "a.rar", "a.tar", "a.tar.gz"])
def test_an_archive_that_is_not_read_is_to_be_unpacked_first(folder, name):
    with tarfile.open(folder / name, "w:gz" if name.endswith(".gz") else "w") as archive:
        archive.add(folder / "a" / "x.jsonl", "x.jsonl")
    with pytest.raises(UsageError, match=r"input .*: unpack it first$"):
        find_files([str(folder / name)])
    (notice,) = find_files([str(folder)]).notices
    assert notice.startswith(f"skipped {folder}/{name}: ") and notice.endswith(": unpack it first")


def test_colons_in_a_path_of_this_machine_are_no_chain_of_urls(bench):
    bench.jsonl("a::b/c::d.jsonl", [{"text": "Text."}])
    (file,) = find_files([str(bench.folder / "a::b")]).files
    assert file.rel == "c::d.jsonl"
    assert rels(bench.folder / "a::b" / "c::d.jsonl") == ["c::d.jsonl"]


def test_bytes_of_names_that_are_no_utf_8_are_written_as_an_escape_and_read(folder):
    odd = os.fsdecode(b"caf\xe9.jsonl")
    (folder / "b" / "x.jsonl").rename(folder / "b" / odd)
    listed = find_files([str(folder)])
    file = listed.files[1]
    assert (file.rel, file.path) == (r"b/caf\xe9.jsonl", rf"{folder}/b/caf\xe9.jsonl")
    assert listed.notices == [r"1 file with non-UTF-8 bytes in the name, written as \xNN"]
    for name in (file.path, f"{folder}/b/{odd}"):
        assert find_files([name]).files[0].stamp == file.stamp
    plan = plan_inputs([str(folder)])
    batches = [
        b for n in range(len(plan.partitions)) for b in PartitionReader(plan, n, ReadSettings())
    ]
    assert batches[0].docs.table["source"].to_pylist() == ["a/x.jsonl", r"b/caf\xe9.jsonl"]
    (folder / "b" / r"caf\xe9.jsonl").touch()
    with pytest.raises(UsageError, match="rename one of them"):
        find_files([str(folder)])


@pytest.mark.parametrize("change", ["append", "shorten", "replace", "touch", "remove", None])
def test_an_input_that_changes_before_it_is_read_ends_the_run(bench, change):
    path = bench.jsonl("in.jsonl", [{"text": f"Text {i}."} for i in range(50)])
    plan = plan_inputs([str(path)])
    data, stat = path.read_bytes(), path.stat()
    if change == "append":
        path.write_bytes(data + data)
    elif change == "shorten":
        path.write_bytes(data[:200])
    elif change == "replace":
        path.write_bytes(data.replace(b"Text", b"text"))
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    elif change == "touch":
        os.utime(path, (1, 1))
    elif change == "remove":
        path.unlink()
    reader = PartitionReader(plan, 0, ReadSettings())
    if change is None:
        assert sum(len(batch.docs) for batch in reader) == 50
        return
    with pytest.raises(
        RunFailed, match=r"in\.jsonl has changed since the run was planned"
    ) as error:
        list(reader)
    assert "\n" not in str(error.value)


def test_a_fetched_file_is_compared_by_size_and_content_alone(bench):
    path = bench.jsonl("in.jsonl", [{"text": "Text."}])
    (file,) = find_files([str(path)]).files
    content = file.stamp.rpartition("@")[0]  # as a refresh has it on record
    fetched = replace(file, url="https://a.test/in.jsonl", state=f"{file.size}@tag", stamp=content)
    os.utime(path, (1, 1))
    assert fetched.now() == (fetched.state, fetched.stamp)
    path.write_bytes(path.read_bytes().replace(b"Text", b"text"))
    assert fetched.now()[1] != fetched.stamp
    path.write_bytes(b"")
    assert fetched.now()[0] != fetched.state


def test_a_link_that_leads_to_itself_is_passed_over_with_a_notice(folder):
    (folder / "round.jsonl").symlink_to("round.jsonl")
    listed = find_files([str(folder)])
    assert [file.rel for file in listed.files] == ["a/x.jsonl", "b/x.jsonl"]
    assert listed.notices == [f"skipped {folder}/round.jsonl: not a regular file"]


@pytest.mark.parametrize(
    "path, package",
    [
        ("s3://b/x.jsonl", "llmcurate[s3]"),
        (f"hf://datasets/a/b@{'0' * 40}/x.jsonl", "llmcurate[hf]"),
    ],
)
def test_a_store_whose_package_is_missing_says_how_to_install_it(path, package, monkeypatch):
    def missing(*_: Any, **__: Any) -> Any:
        raise ImportError("no such package")

    monkeypatch.setattr("fsspec.core.url_to_fs", missing)
    with pytest.raises(UsageError, match=re.escape(f"input {path}: pip install '{package}'")):
        find_files([path])


def test_a_linked_folder_is_read_once_by_the_name_of_its_link(bench, folder):
    for name in ("c/deep", "c"):
        bench.jsonl(f"elsewhere/{name}/y.jsonl", [{"id": name, "text": "Text."}])
    elsewhere = bench.folder / "elsewhere"
    (folder / "m").symlink_to(elsewhere)
    (folder / "z").symlink_to(elsewhere / "c")  # within what `m` leads to
    assert rels(folder) == ["a/x.jsonl", "b/x.jsonl", "m/c/deep/y.jsonl", "m/c/y.jsonl"]
    (folder / "a/first").symlink_to(elsewhere / "c")
    assert rels(folder)[:2] == ["a/first/deep/y.jsonl", "a/first/y.jsonl"]
    assert len(rels(folder)) == 4


@pytest.mark.parametrize("target", [".", "a", "..", "/", "a/loop"])
def test_a_link_to_what_is_read_anyway_or_lies_above_it_adds_nothing(folder, target):
    (folder / "link").symlink_to(target)
    (folder / "a/loop").symlink_to("../b/loop")
    (folder / "b/loop").symlink_to("../a")
    assert rels(folder) == ["a/x.jsonl", "b/x.jsonl"]


def test_a_link_to_a_hidden_folder_is_read_and_a_link_in_one_is_not(bench, folder):
    bench.jsonl("in/.hidden/y.jsonl", [{"text": "Text."}])
    bench.jsonl("elsewhere/z.jsonl", [{"text": "Text."}])
    (folder / ".hidden/elsewhere").symlink_to(bench.folder / "elsewhere")
    (folder / "seen").symlink_to(".hidden")
    assert rels(folder) == [
        "a/x.jsonl", "b/x.jsonl", "seen/elsewhere/z.jsonl", "seen/y.jsonl",
    ]  # fmt: skip


def test_a_linked_run_is_passed_over_with_one_line(bench, folder):
    bench.jsonl("out/corpus/y.jsonl", [{"text": "Text."}])
    (bench.folder / "out/ledger.db").touch()
    (folder / "run").symlink_to(bench.folder / "out")
    listed = find_files([str(folder)])
    assert [file.rel for file in listed.files] == ["a/x.jsonl", "b/x.jsonl"]
    assert listed.notices == [f"skipped {folder}/run: a run; pass it as input to read its corpus"]
