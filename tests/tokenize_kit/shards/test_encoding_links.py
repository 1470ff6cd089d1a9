"""Encoding into a folder with links, or with a foreign record, touches no other files."""

from __future__ import annotations

import json

import pytest

from llmcurate.base.disk.sealed_json import seal
from tokenize_kit.shards.progress import NAME, Progress
from tokenize_kit.shards.writer import _commit


@pytest.fixture
def victim(tmp_path):
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim/tokens-00000.bin").write_text("mine")
    (tmp_path / "victim/manifest.json").write_text("mine")
    return tmp_path / "victim"


def untouched(victim):
    texts = {p.name: p.read_text() for p in victim.iterdir()}
    return texts == {"tokens-00000.bin": "mine", "manifest.json": "mine"}


def test_a_folder_under_way_that_is_a_link_goes_and_is_made_anew(victim, tmp_path):
    (tmp_path / "partial").symlink_to(victim)
    progress = Progress(tmp_path / "partial", {})
    assert not (tmp_path / "partial").is_symlink() and untouched(victim)
    progress.remove()
    assert untouched(victim) and not (tmp_path / "partial").exists()


@pytest.mark.parametrize("kind", ["files", "state", "link"])
def test_a_record_that_leads_elsewhere_means_anew(victim, tmp_path, kind):
    folder = tmp_path / "partial"
    folder.mkdir()
    name = "../victim/tokens-00000.bin"
    record = {"identity": {}, "documents": 1, "digest": "", "read": 1, "files": {}, "state": {}}
    if kind == "link":
        (folder / "tokens-00000.bin").symlink_to(victim / "tokens-00000.bin")
    else:
        record[kind] = {name: [1, ""]} if kind == "files" else {"train": {"files": [name]}}
    (folder / NAME).write_text(json.dumps(seal(record)))
    messages: list[str] = []
    progress = Progress(folder, {}, messages.append)
    assert not progress.position.documents and untouched(victim) and not any(folder.iterdir())
    assert messages == ["starting over: files of the stopped run link outside its folder"]


def test_a_link_in_the_position_of_val_goes_and_what_it_leads_to_stays(victim, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "val").symlink_to(victim)
    _commit(Progress(out / ".partial", {}), out, [], b"{}")
    assert not (out / "val").exists() and untouched(victim)
