"""The file that rows wait in: what was appended is read, past the page cache or not."""

from __future__ import annotations

import errno
import os
import random

import pytest

from curate.errors import RunFailed
from curate.mix import scratch
from curate.mix.scratch import Scratch


def pieces(seed):
    draw = random.Random(seed)
    sizes = [0, 1, 4095, 4096, 4097, 70_000, *(draw.randrange(9000) for _ in range(30))]
    return [draw.randbytes(size) for size in sizes]


@pytest.mark.parametrize("way", ["direct", "cached", "refused"])
def test_pieces_are_read_as_they_were_appended_in_any_order(tmp_path, monkeypatch, way):
    monkeypatch.setattr(scratch, "ROOM", 3 * scratch.BLOCK)
    if way == "cached":
        monkeypatch.setattr(scratch, "_DIRECT", 0)
    if way == "refused":  # a file system that opens with O_DIRECT and refuses the access
        refused = {"write": os.write, "preadv": os.preadv}

        def once(name):
            def call(handle, *arguments):
                if name not in done:
                    done.add(name)
                    raise OSError(errno.EINVAL, "Invalid argument")
                return refused[name](handle, *arguments)

            return call

        done: set[str] = set()
        monkeypatch.setattr(os, "write", once("write"))
        monkeypatch.setattr(os, "preadv", once("preadv"))
    file = Scratch(tmp_path / "rows")
    given = pieces(3)
    places = [(file.append(memoryview(data)), len(data)) for data in given]
    file.close()
    order = random.Random(4).sample(range(len(given)), len(given))
    found = file.read([places[i] for i in order])
    assert [bytes(view) for view in found] == [given[i] for i in order]
    file.remove()
    assert not (tmp_path / "rows").exists()


def test_a_file_that_was_cut_is_one_line(tmp_path):
    file = Scratch(tmp_path / "rows")
    at = file.append(memoryview(bytes(50_000)))
    file.close()
    os.truncate(tmp_path / "rows", 8192)
    with pytest.raises(RunFailed, match="is cut short"):
        file.read([(at, 50_000)])


def test_a_full_disk_names_the_file(tmp_path, monkeypatch):
    def full(handle, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    file = Scratch(tmp_path / "rows")
    file.append(memoryview(b"x"))
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError) as error:
        file.close()
    assert error.value.filename == str(tmp_path / "rows")
    file.remove()
