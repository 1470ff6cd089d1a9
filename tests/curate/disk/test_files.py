"""Digests of files and texts, files that are replaced, the folder for caches."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
import xxhash

from curate.disk.files import (
    cache_folder,
    clear_temporary,
    file_digest,
    part_files,
    replacing,
    reserve,
    stream_digest,
    temporary_name,
    text_digest,
)
from curate.errors import disk_error

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
    with replacing(path, if_other=True) as aside:
        aside.write_text(text)
    assert path.read_text() == text and (path.stat().st_mtime == 1) == stays
    assert list(tmp_path.iterdir()) == [path]


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


def test_a_file_to_be_mapped_has_all_its_blocks(tmp_path):
    path = tmp_path / "array"
    np.memmap(path, np.int64, "w+", shape=1 << 17)
    assert path.stat().st_blocks * 512 < 1 << 20
    reserve(path)
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
        reserve(path)
    assert not path.exists() and "disk full while writing" in str(disk_error(error.value))


def test_parts_come_in_order_of_their_numbers_whatever_their_digits(tmp_path: Path) -> None:
    numbers = (7, 99_999, 100_000, 100_010, 1_000_000)
    for number in reversed(numbers):
        for kind in ("", ".kept"):
            (tmp_path / f"part-{number:05d}{kind}.parquet").touch()
    assert part_files(tmp_path, ".kept") == [
        tmp_path / f"part-{number:05d}.kept.parquet" for number in numbers
    ]
