"""Data sets of the hub in a folder: a card is not a document, and splits are not mixed silently."""

from __future__ import annotations

from pathlib import Path

import pytest

from curate.formats.data_sets import Choice
from curate.formats.listing import find_files
from llmcurate.base.errors import UsageError

LICENSE = "---\nlicense: cc-by-4.0\n---\n# A card\n"
CONFIGS = """---
configs:
- config_name: en
  data_files:
  - split: train
    path: en/train-*
  - split: test
    path: ["en/test-*", "en/more/*"]
- config_name: de
  data_files: de/*.jsonl
---
"""
ROW = '{"id": "a", "text": "A text."}\n'


def folder(path: Path, *names: str, card: str | None = None) -> str:
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(ROW, encoding="utf-8")
    if card is not None:
        (path / "README.md").write_text(card, encoding="utf-8")
    return str(path)


def read(place: str, split: str | None = None, config: str | None = None) -> tuple[list[str], str]:
    """Return the files that are read, and the notices."""
    listed = find_files([place], choice=Choice(split, config))
    return [file.rel for file in listed.files], "\n".join(listed.notices)


def shard(split: str, of: str = "data") -> str:
    return f"{of}/{split}-00000-of-00001.jsonl"


@pytest.mark.parametrize("card", [LICENSE, "# No metadata\n", None])
def test_only_the_train_split_of_a_cloned_data_set_is_read_and_a_notice_names_the_others(
    tmp_path, card
):
    place = folder(tmp_path, shard("train"), shard("test"), shard("validation"), card=card)
    files, notice = read(place)
    assert files == [shard("train")]
    assert "test (1 file), validation (1 file)" in notice and "--split" in notice
    assert ("README.md" in notice) is (card is not None)


def test_split_takes_names_and_patterns_and_refuses_what_is_not_there(tmp_path):
    place = folder(tmp_path, shard("train"), shard("test"), shard("test.2"), card=LICENSE)
    assert read(place, "test")[0] == [shard("test")]
    assert read(place, "t*st*,train")[0] == [shard("test"), shard("test.2"), shard("train")]
    with pytest.raises(UsageError, match=r"no split dev; it has .*test.*train"):
        read(place, "dev")


def test_splits_without_train_are_a_question_and_a_single_one_is_read(tmp_path):
    place = folder(tmp_path, shard("test"), card=LICENSE)
    assert read(place)[0] == [shard("test")]
    folder(tmp_path, shard("validation"))
    with pytest.raises(UsageError, match="has the splits test, validation: choose with --split"):
        read(place)


def test_a_configuration_of_a_card_can_be_chosen(tmp_path):
    names = [shard("train", "en"), shard("test", "en"), "en/more/a.jsonl", "de/b.jsonl", "x.jsonl"]
    place = folder(tmp_path, *names, card=CONFIGS)
    with pytest.raises(UsageError, match="has the configs en, de: choose with --config"):
        read(place)
    files, notice = read(place, config="en")
    assert files == [shard("train", "en")]
    assert "en/test (2 files), de/train (1 file), README.md, x.jsonl" in notice
    assert read(place, "test", "en")[0] == ["en/more/a.jsonl", shard("test", "en")]
    assert read(place, config="*")[0] == ["de/b.jsonl", shard("train", "en")]


@pytest.mark.parametrize("mark", ["config_name: default\n", "config_name: en\n  default: true\n"])
def test_the_default_configuration_needs_no_choice(tmp_path, mark):
    card = f"---\nconfigs:\n- config_name: all\n  data_dir: all\n- {mark}  data_dir: en\n---\n"
    files, notice = read(folder(tmp_path, shard("train", "all"), "en/b.jsonl", card=card))
    assert files == ["en/b.jsonl"] and "all/train (1 file)" in notice


def test_folders_of_shards_without_a_card_are_read_together_and_config_chooses(tmp_path):
    place = folder(tmp_path, shard("train", "en"), shard("train", "de"), shard("test", "de"))
    files, notice = read(place)
    assert files == [shard("train", "de"), shard("train", "en")] and "de, en" in notice
    assert read(place, config="de")[0] == [shard("train", "de")]


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (["train.jsonl", "test.jsonl"], ["train.jsonl"]),
        (["train/a.jsonl", "dev/test.jsonl"], ["train/a.jsonl"]),
        (["a.jsonl", "b/c.jsonl", "LICENSE.md"], ["a.jsonl", "b/c.jsonl"]),
    ],
)
def test_beside_a_card_words_of_names_are_splits(tmp_path, names, kept):
    assert read(folder(tmp_path, *names, card=LICENSE))[0] == kept


@pytest.mark.parametrize("beside", ["dataset_infos.json", ".gitattributes"])
def test_a_clone_is_one_without_metadata_in_its_card(tmp_path, beside):
    (tmp_path / beside).write_text("*.parquet filter=lfs diff=lfs merge=lfs -text\n")
    place = folder(tmp_path, "train.jsonl", "test.jsonl", card="# A card\n")
    assert read(place)[0] == ["train.jsonl"]


def test_data_sets_in_subfolders_are_read_by_split_and_other_files_whole(tmp_path):
    folder(tmp_path / "a", "train.jsonl", "test.jsonl", card=LICENSE)
    folder(tmp_path / "b", shard("train"), shard("test"), card="# A card\n")
    place = folder(tmp_path, "c/test.jsonl", "c/README.md", "notes.txt")
    files, notice = read(place)
    assert files == [
        "a/train.jsonl",
        f"b/{shard('train')}",
        "c/README.md",
        "c/test.jsonl",
        "notes.txt",
    ]
    assert len(notice.splitlines()) == 2


@pytest.mark.parametrize("card", ["# Notes\n", "---\ntitle: Notes\nlayout: page\n---\n# Notes\n"])
def test_a_plain_folder_loses_nothing(tmp_path, card):
    names = ["train.txt", "test.txt", "sub/README.md", "sub/validation.md"]
    files, notice = read(folder(tmp_path, *names, card=card))
    assert files == sorted([*names, "README.md"]) and not notice
    shards = folder(tmp_path / "parts", "part-00000-of-00002.jsonl", "wiki-00000-of-00001.jsonl")
    assert len(read(shards)[0]) == 2


def test_a_file_that_is_named_is_read(tmp_path):
    place = folder(tmp_path, shard("train"), shard("test"), card=LICENSE)
    assert read(f"{place}/{shard('test')}")[0] == ["test-00000-of-00001.jsonl"]
