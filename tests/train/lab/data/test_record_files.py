"""LitData's chunks and MosaicML's MDS shards are the documents that were written, or one line."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from llmcurate.base.errors import LlmcurateError
from tests.train.data.token_files import litdata, mds, mds_of, records
from train.data.readers import Foreign
from train.data.rows import split
from train.data.shards import Shards, read_shards

DOCUMENTS = [[5, 6, 7, 0], [8, 0], [9, 10, 11, 12, 13, 0], [3, 4, 0]]
KNOWN = Foreign(vocab_size=300, end_of_text=0)
CHUNK, SHARD = "chunk-0-0.bin", "shard.00000.mds"

pytestmark = pytest.mark.lab


def read(folder: Path, foreign: Foreign = KNOWN) -> Shards:
    return read_shards(folder, foreign=foreign)


def documents(shards: Shards) -> list[list[int]]:
    return [shards.document(number).tolist() for number in range(shards.documents)]


def pack(path: Path, name: str) -> None:
    """Compress a file with zstd under another name."""
    with pa.output_stream(str(path.with_name(name)), compression="zstd") as stream:
        stream.write(path.read_bytes())
    path.unlink()


def test_the_bytes_of_a_chunk_are_those_that_litdata_publishes(tmp_path):
    """Three records of 10, 20 and 15 bytes: the example in litdata's writer.py."""
    data = records([b"a" * 10, b"b" * 20, b"c" * 15])
    assert struct.unpack_from("<5I", data) == (3, 20, 30, 50, 65) and len(data) == 65


@pytest.mark.parametrize("dtype", ["<u2", "<i4", "<i8"])
def test_records_of_litdata_are_documents(tmp_path, dtype):
    shards = read(litdata(tmp_path, DOCUMENTS, dtype))
    assert (shards.form, documents(shards)) == ("litdata", DOCUMENTS)
    assert isinstance(shards.tokens[0], np.memmap)
    training, held_out = split(shards, held_out=0.3, seed=1)  # also where 8 bytes are not aligned
    assert len(training) + len(held_out) == 4


def test_chunks_of_litdata_are_read_in_the_order_in_which_they_were_written(tmp_path):
    for number, document in ((10, [3, 0]), (2, [2, 0]), (0, [1, 0])):
        litdata(tmp_path, [document]).joinpath(CHUNK).rename(tmp_path / f"chunk-0-{number}.bin")
    index = json.loads((tmp_path / "index.json").read_text())
    index["chunks"] *= 3
    (tmp_path / "index.json").write_text(json.dumps(index))
    assert documents(read(tmp_path)) == [[1, 0], [2, 0], [3, 0]]


def test_chunks_of_litdata_that_zstd_packed_are_unpacked(tmp_path):
    litdata(tmp_path, DOCUMENTS, compression="zstd:4")
    pack(tmp_path / CHUNK, "chunk-0-0.zstd.bin")
    assert documents(read(tmp_path)) == DOCUMENTS


@pytest.mark.parametrize("encoding", ["bytes", "ndarray:int32", "ndarray:uint16", "ndarray:int64"])
def test_records_of_mds_are_documents(tmp_path, encoding):
    values = [[token + 1000 for token in document] for document in DOCUMENTS]
    shards = read(mds_of(tmp_path, values, encoding), Foreign(vocab_size=2000))
    assert (shards.form, documents(shards)) == ("mds", values)
    assert shards.ids([2]) == [f"{SHARD}:2"]


def test_tokens_of_mds_lie_between_other_columns(tmp_path):
    """The columns id (text), n (int64) and tokens (int16), in the order of their names."""
    parts = []
    for number, document in enumerate(DOCUMENTS):
        name, tokens = b"x" * number, np.array(document, "<i2").tobytes()
        array = bytes([1 << 2 | 1]) + struct.pack("<H", len(document)) + tokens
        parts.append(
            struct.pack("<II", len(name), len(array)) + name + struct.pack("<q", number) + array
        )
    columns = {"id": ("str", None), "n": ("int", 8), "tokens": ("ndarray:int16", None)}
    assert documents(read(mds(tmp_path, parts, columns))) == DOCUMENTS


def test_bytes_of_mds_have_the_type_that_is_given(tmp_path):
    parts = [struct.pack("<I", 2 * len(d)) + np.array(d, "<u2").tobytes() for d in DOCUMENTS]
    mds(tmp_path, parts, {"tokens": ("bytes", None)})
    assert documents(read(tmp_path, Foreign(vocab_size=300, dtype="uint16"))) == DOCUMENTS
    with pytest.raises(LlmcurateError, match="record 1 does not hold whole int64 tokens"):
        read(tmp_path)


def test_shards_of_mds_that_zstd_packed_are_unpacked_once(tmp_path):
    mds_of(tmp_path, DOCUMENTS, "ndarray:int32")
    whole = (tmp_path / SHARD).read_bytes()
    pack(tmp_path / SHARD, f"{SHARD}.zstd")
    assert documents(read(tmp_path)) == DOCUMENTS
    (tmp_path / SHARD).write_bytes(whole)  # Streaming keeps both if asked to
    assert documents(read(tmp_path)) == DOCUMENTS


@pytest.mark.parametrize("form", ["litdata", "mds"])
def test_records_of_equal_length_are_blocks_of_a_text(tmp_path, form):
    blocks = np.concatenate(DOCUMENTS).reshape(-1, 5).tolist()
    write = litdata if form == "litdata" else lambda *at: mds_of(*at, "ndarray:int32:5")
    assert documents(read(write(tmp_path, blocks))) == DOCUMENTS
    assert documents(read(tmp_path, Foreign(vocab_size=300))) == blocks


@pytest.mark.parametrize("write", [litdata, lambda *at: mds_of(*at, "bytes")])
def test_a_folder_val_beside_train_is_the_held_out_text(tmp_path, write):
    write(tmp_path / "train", DOCUMENTS[:3])
    write(tmp_path / "val", DOCUMENTS[3:])
    shards = read(tmp_path)
    sides = split(shards, held_out=0.5, seed=1)
    assert [[shards.document(k).tolist() for k in side] for side in sides] == [
        DOCUMENTS[:3],
        DOCUMENTS[3:],
    ]
    assert any(note.endswith(": held-out text") for note in shards.notes)
    assert documents(read(tmp_path / "val")) == DOCUMENTS[3:]


def changed(at: int, data: bytes):
    return lambda whole: whole[:at] + data + whole[at + len(data) :]


HUGE = b"\xff\xff\xff\xff"
DAMAGES = {
    "chunk-cut": (litdata, CHUNK, lambda d: d[:-3], "cut short"),
    "chunk-empty": (litdata, CHUNK, lambda d: b"", "cut short"),
    "chunk-huge-count": (litdata, CHUNK, changed(0, HUGE), "cut short"),
    "chunk-beyond": (litdata, CHUNK, changed(8, HUGE), "record 1 ends before it begins"),
    "chunk-odd": (litdata, CHUNK, changed(8, b"\x2a"), "record 0 does not hold whole int32"),
    "index-missing": (litdata, "index.json", None, "index.json: config of"),
    "index-damaged": (litdata, "index.json", lambda d: d[:40], "index.json: list of chunks"),
    "index-list": (litdata, "index.json", lambda d: b"[]", "index.json: list of chunks"),
    "index-deep": (
        litdata,
        "index.json",
        lambda d: b"[" * 100_000,
        "index.json: list of chunks",
    ),
    "mds-cut": (mds_of, SHARD, lambda d: d[:-3], "cut short"),
    "mds-empty": (mds_of, SHARD, lambda d: b"", "cut short"),
    "mds-huge-count": (mds_of, SHARD, changed(0, HUGE), "cut short"),
    "mds-columns": (mds_of, SHARD, changed(24, b"x"), "its columns cannot be read"),
    "mds-size": (
        mds_of,
        SHARD,
        lambda d: changed(struct.unpack_from("<I", d, 8)[0], HUGE)(d),
        "record 1: its columns do not fill it",
    ),
    "mds-array": (
        mds_of,
        SHARD,
        lambda d: changed(struct.unpack_from("<I", d, 8)[0] + 4, b"\xff")(d),
        "record 1 does not hold whole int32 tokens",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_file_is_one_line_that_names_it_and_the_record(tmp_path, name):
    write, file, change, message = DAMAGES[name]
    write(tmp_path, DOCUMENTS, *(["ndarray:int32"] if write is mds_of else []))
    if change is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_bytes(change((tmp_path / file).read_bytes()))
    with pytest.raises(LlmcurateError, match=message) as caught:
        read(tmp_path)
    assert "\n" not in str(caught.value) and str(tmp_path / file) in str(caught.value)


def test_a_list_of_columns_larger_than_the_records_fails_before_it_takes_memory(tmp_path):
    columns = {f"c{number}": ("int", 8) for number in range(20_000)}
    mds(tmp_path, [b""] * 20_000, {"tokens": ("bytes", None), **columns})
    with pytest.raises(LlmcurateError, match="record 0 is too short for its columns"):
        read(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"data_format": ["no_header_tensor:1"]},
        {"data_format": ["no_header_tensor:16", "int"]},
        {"data_format": None},
        {"item_loader": "PyTreeLoader"},
        {"encryption": {"algorithm": "fernet"}},
        {"compression": "lz4"},
    ],
)
def test_chunks_of_litdata_that_are_no_plain_tokens_are_refused(tmp_path, change):
    litdata(tmp_path, DOCUMENTS, **change)
    with pytest.raises(LlmcurateError, match=r"index\.json: config"):
        read(tmp_path)


@pytest.mark.parametrize(
    "column",
    [
        ("text", "str"),
        ("tokens", "pkl"),
        ("tokens", "ndarray"),
        ("tokens", "ndarray:float32"),
        ("x", "bytes"),
    ],
)
def test_columns_of_mds_that_are_no_tokens_are_refused_and_named(tmp_path, column):
    name, encoding = column
    mds(tmp_path, [struct.pack("<I", 2) + b"ab"], {name: (encoding, None)})
    with pytest.raises(LlmcurateError, match=rf"its columns are {name} \({encoding}\): none is"):
        read(tmp_path)


def test_a_packed_file_that_is_damaged_is_named(tmp_path):
    mds_of(tmp_path, DOCUMENTS, "bytes")
    pack(tmp_path / SHARD, f"{SHARD}.zstd")
    whole = (tmp_path / f"{SHARD}.zstd").read_bytes()
    for data in (whole[:-5], b"not zstd", b""):
        (tmp_path / f"{SHARD}.zstd").write_bytes(data)
        with pytest.raises(LlmcurateError, match=rf"{SHARD}\.zstd: (cannot|cut)") as caught:
            read(tmp_path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("write", "key"), [(litdata, "chunks"), (lambda *at: mds_of(*at, "bytes"), "shards")]
)
def test_files_that_the_index_lists_and_are_missing_are_noticed(tmp_path, write, key):
    """Paths in the index are only counted, so one that leads elsewhere opens nothing."""
    index = write(tmp_path / "data", DOCUMENTS) / "index.json"
    known = json.loads(index.read_bytes())
    index.write_text(json.dumps({**known, key: [{}, {"filename": "../secret.bin"}]}))
    (tmp_path / "secret.bin").write_bytes(b"\1\0")
    with pytest.raises(LlmcurateError, match=rf"index\.json: lists 2 {key}, 1 of them are there"):
        read(tmp_path / "data")


def test_chunks_that_litdata_itself_wrote_have_its_tokens(tmp_path):
    writer = pytest.importorskip("litdata.streaming.writer")
    loader = pytest.importorskip("litdata.streaming.item_loader")
    torch = pytest.importorskip("torch")
    out = writer.BinaryWriter(str(tmp_path), chunk_bytes=64, item_loader=loader.TokensLoader())
    for number, document in enumerate(DOCUMENTS):
        out[number] = torch.tensor(document, dtype=torch.int32)
    out.done()
    out.merge()
    assert documents(read(tmp_path)) == DOCUMENTS


@pytest.mark.parametrize("compression", [None, "zstd:7"])
def test_shards_that_streaming_itself_wrote_have_its_tokens(tmp_path, compression):
    streaming = pytest.importorskip("streaming")
    columns = {"tokens": "ndarray:int32", "id": "str"}
    with streaming.MDSWriter(out=str(tmp_path), columns=columns, compression=compression) as out:
        for document in DOCUMENTS:
            out.write({"tokens": np.array(document, "i4"), "id": "a"})
    assert documents(read(tmp_path)) == DOCUMENTS
