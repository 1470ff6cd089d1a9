"""Digests of files and texts, files that are replaced, the folder for caches."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

from llmcurate.base.disk.files import (
    allocate,
    cache_folder,
    clear_temporary,
    drawn_number,
    file_digest,
    part_files,
    rename_aside,
    replacing,
    stream_digest,
    temporary_name,
    text_digest,
    write_atomic,
    write_text,
)
from llmcurate.base.disk.parquet_writer import writing
from llmcurate.base.errors import UsageError, disk_error
from tests.curate.durability import deeds
from tests.disk_calls import disk_calls

CONTENT = "naïve".encode() * 100_000


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("sha256", hashlib.sha256(CONTENT).hexdigest()),
        ("md5", hashlib.md5(CONTENT).hexdigest()),
        ("xxh3-128", xxhash.xxh3_128_hexdigest(CONTENT)),
    ],
)
def test_a_file_and_its_text_have_one_digest(tmp_path: Path, kind: str, expected: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    assert file_digest(path, kind) == text_digest(CONTENT.decode(), kind) == expected
    with open(path, "rb") as file:
        assert stream_digest(file, kind) == expected and file.tell() == len(CONTENT)


def test_the_cache_is_where_the_platform_keeps_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMCURATE_CACHE", "/c")
    assert cache_folder() == Path("/c")
    monkeypatch.delenv("LLMCURATE_CACHE")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_folder() == Path("/x/llmcurate")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "llmcurate"
    monkeypatch.setattr("sys.platform", "darwin")
    assert cache_folder() == Path.home() / "Library" / "Caches" / "llmcurate"


@pytest.mark.parametrize(("text", "stays"), [("one", True), ("two", False)])
def test_a_file_of_the_same_bytes_keeps_its_time(tmp_path: Path, text: str, stays: bool) -> None:
    path = tmp_path / "file"
    path.write_text("one")
    os.utime(path, (1, 1))
    with replacing(path, only_if_changed=True) as aside:
        aside.write_text(text)
    assert path.read_text() == text and (path.stat().st_mtime == 1) == stays
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_synced_when_it_is_whole_then_renamed_then_its_folder_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = deeds(monkeypatch)
    write_text(tmp_path / "text", "whole")
    with writing(tmp_path / "table") as writer:
        writer.write(pa.table({"a": [1]}))
    assert pq.read_table(tmp_path / "table")["a"].to_pylist() == [1]
    size = (tmp_path / "table").stat().st_size
    assert done == [
        ("sync", "aside text", 5), ("rename", "text", 5), ("sync", tmp_path.name, 0),
        ("sync", "aside table", size), ("rename", "table", size), ("sync", tmp_path.name, 0),
    ]  # fmt: skip


def test_what_a_phase_makes_durable_is_not_synced_file_by_file(tmp_path, monkeypatch) -> None:
    done = deeds(monkeypatch)
    with replacing(tmp_path / "file", sync=False) as aside:
        aside.touch()
    assert done == [("rename", "file", 0)]


def test_a_file_that_fails_replaces_nothing(tmp_path, monkeypatch) -> None:
    (tmp_path / "file").write_text("old")
    done = deeds(monkeypatch)
    with pytest.raises(ValueError, match="half"), replacing(tmp_path / "file") as aside:
        aside.write_text("new")
        raise ValueError("half")
    assert done == [("remove", "aside file", 0)] and (tmp_path / "file").read_text() == "old"


def test_files_set_aside_get_the_next_free_number_and_their_folder_is_synced(
    tmp_path, monkeypatch
) -> None:
    for name in ("out", "out.1", "out.2"):
        (tmp_path / name).mkdir()
    done = deeds(monkeypatch)
    assert rename_aside(tmp_path / "out") == tmp_path / "out.3"
    assert done == [("rename", "out.3", 0), ("sync", tmp_path.name, 0)]
    monkeypatch.chdir(tmp_path / "out.1")
    with pytest.raises(UsageError, match="contains your current folder"):
        rename_aside(tmp_path / "out.1")


def test_two_machines_that_write_one_path_do_not_meet(tmp_path: Path) -> None:
    """Processes of the same id, as in containers that share a folder: each file is whole."""
    path = tmp_path / "file"
    with replacing(path) as first:
        first.write_text("the first")
        with replacing(path) as second:
            assert second != first
            second.write_text("the second")
        assert path.read_text() == "the second"
    assert path.read_text() == "the first" and list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_of_any_machine_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / temporary_name("file")).write_text("half")
    (tmp_path / temporary_name("folder")).mkdir()
    (tmp_path / ".part-4711-file").write_text("of an older version")
    (tmp_path / "file").write_text("whole")
    clear_temporary(tmp_path)
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_what_a_killed_process_left_goes_and_that_of_a_live_one_stays(tmp_path: Path) -> None:
    live = tmp_path / ".part-1-0123abcd-a.json"
    for path in (live, tmp_path / f".part-{2**22 + 1}-0123abcd-a.json"):
        path.write_bytes(b"half")
    write_atomic(tmp_path / "a.json", b"{", b"}")
    assert (tmp_path / "a.json").read_bytes() == b"{}"
    assert {path.name for path in tmp_path.iterdir()} == {"a.json", live.name}


def test_a_file_and_its_name_are_on_disk_before_it_counts_as_written(tmp_path: Path) -> None:
    with disk_calls(tmp_path) as calls:
        write_atomic(tmp_path / "a.json", b"{}")
    assert calls == ["sync a.json", "rename a.json", "sync ."]


def test_a_file_to_be_mapped_has_all_its_blocks(tmp_path):
    path = tmp_path / "array"
    np.memmap(path, np.int64, "w+", shape=1 << 17)
    assert path.stat().st_blocks * 512 < 1 << 20
    allocate(path)
    assert path.stat().st_blocks * 512 >= 1 << 20


def test_a_disk_too_full_to_map_is_an_error_that_names_the_file_and_leaves_none(
    tmp_path, monkeypatch
):
    path = tmp_path / "array"
    path.write_bytes(bytes(100))

    def full(*about: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="array") as error:
        allocate(path)
    assert not path.exists() and "disk full while writing" in str(disk_error(error.value))


def test_parts_come_in_order_of_their_numbers_whatever_their_digits(tmp_path: Path) -> None:
    numbers = (7, 99_999, 100_000, 100_010, 1_000_000)
    for number in reversed(numbers):
        for kind in ("", ".kept"):
            (tmp_path / f"part-{number:05d}{kind}.parquet").touch()
    assert part_files(tmp_path, ".kept") == [
        tmp_path / f"part-{number:05d}.kept.parquet" for number in numbers
    ]


def test_drawn_numbers_are_of_64_bits_and_depend_on_every_part_of_their_key() -> None:
    numbers = [drawn_number("a", 1), drawn_number("a", 2), drawn_number("b", 1), drawn_number("a1")]
    assert len(set(numbers)) == 4 and all(0 <= n < 1 << 64 for n in numbers)
    assert drawn_number("a", 1) == numbers[0]


def test_a_full_disk_names_the_file_to_write_and_not_the_temporary_one(tmp_path):
    with pytest.raises(OSError, match="No space") as caught, replacing(tmp_path / "out") as aside:
        raise OSError(errno.ENOSPC, "No space left on device", str(aside / "part"))
    assert caught.value.filename == str(tmp_path / "out")
    with pytest.raises(OSError, match="9 requested") as caught, replacing(tmp_path / "out"):
        raise OSError("9 requested and 0 written")
    assert caught.value.filename == str(tmp_path / "out")
