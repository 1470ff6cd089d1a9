"""Scratch files of rows: data read back as appended, with and without the page cache."""

from __future__ import annotations

import errno
import hashlib
import os
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.mix.spill import BLOCK, Copy, Hashed, RowFile, Scratch
from llmcurate.base.errors import RunFailed


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("rows")


def pieces(seed):
    draw = random.Random(seed)
    sizes = [0, 1, 4095, 4096, 4097, 70_000, *(draw.randrange(9000) for _ in range(30))]
    return [draw.randbytes(size) for size in sizes]


@pytest.mark.parametrize("way", ["direct", "cached", "refused"])
def test_pieces_are_read_as_they_were_appended_in_any_order(tmp_path, monkeypatch, way):
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
    file = Scratch(tmp_path / "rows", 3 * BLOCK, **({"direct": 0} if way == "cached" else {}))
    written = pieces(3)
    spans = [(file.append(memoryview(data)), len(data)) for data in written]
    file.close()
    order = random.Random(4).sample(range(len(written)), len(written))
    memory, begins = file.read([spans[i] for i in order])
    read = [bytes(memory[at : at + spans[i][1]]) for at, i in zip(begins, order, strict=True)]
    assert read == [written[i] for i in order]
    file.remove()
    assert not (tmp_path / "rows").exists()


def test_adjacent_pieces_of_the_file_are_adjacent_in_memory(tmp_path):
    file = Scratch(tmp_path / "rows")
    spans = [(file.append(memoryview(data)), len(data)) for data in pieces(5)]
    file.close()
    _, begins = file.read(spans)
    assert [at - begins[0] for at in begins] == [at for at, _ in spans]
    file.remove()


@pytest.mark.parametrize("size", [0, 1, BLOCK, 3 * BLOCK + 17])
def test_a_part_ends_where_its_bytes_do_and_is_hashed(tmp_path, size):
    data = random.Random(size).randbytes(size)
    file = Hashed(tmp_path / "part", 2 * BLOCK)
    for at in range(0, size, 1000):
        assert file.write(data[at : at + 1000]) == len(data[at : at + 1000])
    assert file.tell() == size
    file.close()
    assert (tmp_path / "part").read_bytes() == data
    assert file.sha256.hexdigest() == hashlib.sha256(data).hexdigest()
    (tmp_path / "plain").write_bytes(b"")
    assert (tmp_path / "part").stat().st_mode == (tmp_path / "plain").stat().st_mode


def documents(texts):
    ids = [f"d{i}" for i in range(len(texts))]
    tags = [None if i % 3 else [i] for i in range(len(texts))]
    return pa.table({"id": ids, "text": pa.array(texts, pa.large_string()), "tags": tags})


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.text(max_size=9), min_size=1, max_size=5), min_size=1, max_size=6),
    st.data(),
)
def test_rows_of_any_stretches_in_any_order_are_those_that_were_added(folder, parts, data):
    file = RowFile(folder / "rows")
    tables = [documents(texts) for texts in parts]
    stretches = [file.add(table) for table in tables]
    file.close()
    numbers = data.draw(st.lists(st.sampled_from(range(len(tables))), min_size=1, max_size=6))
    whole = pa.concat_tables([tables[i] for i in numbers])
    order = data.draw(st.permutations(range(whole.num_rows)))
    held = file.read([stretches[i] for i in numbers])
    assert held.take(np.array(order)).to_pylist() == whole.take(order).to_pylist()
    assert file.empty().schema == whole.schema
    file.remove()
    assert not list(folder.iterdir())


def test_a_copy_gives_all_rows_in_order_some_bytes_at_a_time(tmp_path):
    copy = Copy(tmp_path / "rows")
    tables = [documents(["x" * i, "é", ""]) for i in range(10)]
    # A slice whose texts do not begin where the column's do, and a null.
    tables.append(documents(["away", "here", None, "away"]).slice(1, 2))
    for table in tables:
        copy.add(table)
    copy.close()
    runs = [held.take(np.arange(len(held.position))) for held in copy.runs(12)]
    copied = pa.concat_tables(runs)
    assert len(runs) > 3
    texts = [t for table in tables for t in table["text"].to_pylist()]
    assert copied["text"].to_pylist() == [t or "" for t in texts]
    assert copied["id"].to_pylist() == [i for table in tables for i in table["id"].to_pylist()]
    copy.remove()


def test_a_file_that_was_cut_is_a_one_line_error(tmp_path):
    file = Scratch(tmp_path / "rows")
    at = file.append(memoryview(bytes(50_000)))
    file.close()
    os.truncate(tmp_path / "rows", 8192)
    with pytest.raises(RunFailed, match="is truncated"):
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
