"""Tensors on disk, whole and in parts, are read as they were written or named in one line."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from llmcurate.base.disk.sealed_json import checksum
from train.runs.parts import read_parts
from train.runs.tensors import Damaged, Stored, tensor_checksum, write_tensors

WHOLE = {
    "a": torch.arange(12.0).view(4, 3),
    "b": torch.arange(5, dtype=torch.float64),
    "step": torch.tensor(7.0),
    "half": torch.arange(6).bfloat16().view(3, 2).t(),
}


def parts(folder, rows=((0, 3), (3, 4)), shape=(4, 3)):
    """``a`` in two files, as two processes would write it: the files and their checksums."""
    files = {}
    for number, (first, last) in enumerate(rows, 1):
        path = folder / f"model-{number:05d}-of-00002.safetensors"
        part = WHOLE["a"][first:last]
        place = {"offsets": [first, 0], "shape": shape, "sum": tensor_checksum(part)}
        files[path] = checksum(
            write_tensors(path, {"a": part}, {"parts": json.dumps({"a": place})})
        )
    return files


def test_what_is_written_is_what_safetensors_reads(tmp_path):
    write_tensors(tmp_path / "model.safetensors", WHOLE)
    read = load_file(tmp_path / "model.safetensors")
    assert read.keys() == WHOLE.keys()
    assert all(torch.equal(read[name], value) for name, value in WHOLE.items())


def test_parts_are_one_tensor(tmp_path):
    stored = Stored(parts(tmp_path))
    assert stored.shapes == {"a": (4, 3)} and stored.bytes == 48
    assert torch.equal(stored["a"], WHOLE["a"])


def test_what_is_needed_is_read_of_each_part(tmp_path):
    stored, there = Stored(parts(tmp_path)), {"a": torch.zeros(4, 3)}
    read_parts(stored, there)
    assert torch.equal(there["a"], WHOLE["a"])


def test_a_part_that_changed_is_named(tmp_path):
    files = parts(tmp_path)
    path = list(files)[1]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    stored = Stored(files)
    with pytest.raises(Damaged, match=r"00002-of-00002\.safetensors: damaged \(the checksum of a"):
        stored["a"]
    with pytest.raises(Damaged, match="00002-of-00002"):
        read_parts(stored, {"a": torch.zeros(4, 3)})


def test_a_header_that_changed_is_named(tmp_path):
    files = parts(tmp_path)
    path = next(iter(files))
    path.write_bytes(path.read_bytes().replace(b"[4, 3]", b"[3, 4]"))
    with pytest.raises(
        Damaged, match=r"00001-of-00002\.safetensors: damaged \(the checksum of its header"
    ):
        Stored(files)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": ((0, 3),)}, "parts of a are missing"),
        ({"rows": ((0, 2), (3, 4))}, "parts of a are missing"),
        ({"shape": (3, 3)}, "a is not a part of a tensor"),
        ({"shape": (10**12, 3)}, "parts of a are missing"),
    ],
)
def test_parts_that_make_no_tensor_allocate_nothing(tmp_path, change, message):
    with pytest.raises(Damaged, match=message):
        Stored(parts(tmp_path, **change))
