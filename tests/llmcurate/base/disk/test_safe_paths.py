"""Paths stay inside their folder, and removal follows no link."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmcurate.base.disk.files import is_below, path_inside, paths_inside, remove, remove_files
from llmcurate.base.errors import RunFailed


@pytest.fixture
def out(tmp_path) -> Path:
    """OUT beside a folder that is somebody else's, and a link to that."""
    (tmp_path / "victim/deep").mkdir(parents=True)
    (tmp_path / "victim/deep/file").write_text("mine")
    (tmp_path / "out/stages").mkdir(parents=True)
    (tmp_path / "out/link").symlink_to("../victim")
    return tmp_path / "out"


def untouched(out: Path) -> bool:
    return (out.parent / "victim/deep/file").read_text() == "mine"


@pytest.mark.parametrize("name", ["a", "a/b.json", "...", ".a", "a..b", "stages/x y"])
def test_a_name_below_is_a_path_below(out, name):
    assert is_below(name) and path_inside(out, name) == out / name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../victim", "a/../../victim", "/etc", "a//b", "a/", "a\0b", 7, None]
)
def test_a_name_that_is_not_below_is_refused_in_one_line_that_names_its_file(out, name):
    with pytest.raises(RunFailed, match=r"files\.json names .* is not inside ") as error:
        path_inside(out, name, out / "files.json")
    assert "\n" not in str(error.value) and error.value.exit_code == 1


def test_a_link_that_leads_out_is_refused_and_one_that_stays_is_not(out):
    for name in ("link", "link/deep/file"):
        with pytest.raises(RunFailed, match=r"leads out of .* through a link"):
            path_inside(out, name)
    (out / "here").symlink_to("stages")
    assert path_inside(out, "here/x") == out / "here/x"
    assert path_inside(out, "link", follow=False) == out / "link"  # itself, to replace or remove


def test_a_link_to_the_folder_itself_is_nothing_inside_it(out):
    (out / "self").symlink_to(out)
    with pytest.raises(RunFailed, match="leads out of"):
        path_inside(out, "self")
    assert path_inside(out, "self", follow=False) == out / "self"


def test_an_out_that_is_a_link_itself_is_one_as_any(out, monkeypatch):
    (out.parent / "short").symlink_to(out)
    assert path_inside(out.parent / "short", "stages").name == "stages"
    monkeypatch.chdir(out.parent)
    remove(Path("short/stages"), inside=Path("short"))
    assert not (out / "stages").exists()


def test_of_a_list_all_names_are_checked_before_any_is_used(out):
    assert paths_inside(out, ["a", "b"], "list") == [out / "a", out / "b"]
    for wrong in (["a", "../b"], {"a": 1}, "ab", None, [1]):
        with pytest.raises(RunFailed, match=r"^list "):
            paths_inside(out, wrong, "list")


def test_a_link_is_removed_and_what_it_leads_to_stays(out):
    remove(out / "link", inside=out)
    assert not (out / "link").is_symlink() and untouched(out)
    (out / "tree/in").mkdir(parents=True)
    (out / "tree/in/link").symlink_to(out.parent / "victim")
    remove(out / "tree", inside=out)
    assert not (out / "tree").exists() and untouched(out)
    remove(out / "tree", inside=out)  # nothing there is no error


@pytest.mark.parametrize("name", ["../victim", "link/deep", "..", "../out/../victim", "link/.."])
def test_nothing_outside_is_ever_removed(out, name):
    with pytest.raises(RunFailed, match="was not removed"):
        remove(out / name, inside=out)
    with pytest.raises(RunFailed, match="was not removed"):
        remove(out, inside=out)
    assert untouched(out) and out.is_dir()


def test_remove_files_removes_no_folders(out):
    (out / "file").touch()
    remove_files([out / "file", out / "stages", out / "link"], inside=out)
    assert [p.name for p in out.iterdir()] == ["stages"] and untouched(out)
