"""Shards of other trainers are the same documents behind the same view, or a line says why not."""

from __future__ import annotations

import gzip
import json
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from llmcurate.base.errors import LlmcurateError
from tests.train.conftest import sentences
from tokenize_kit.shards.shard_files import megatron_index
from tokenize_kit.shards.writer import Layout, encode_shards
from train.data.readers import Foreign
from train.data.rows import cut_single, split, tokens_of
from train.data.shards import read_shards

DOCUMENTS = [[5, 6, 7, 0], [8, 0], [9, 10, 11, 12, 13, 0], [0], [3, 4, 0]]
KNOWN = Foreign(vocab_size=300, end_of_text=0)


def stream(dtype: str) -> bytes:
    return np.array([token for document in DOCUMENTS for token in document], dtype).tobytes()


def lengths() -> np.ndarray:
    return np.array([len(document) for document in DOCUMENTS])


def nanogpt(folder: Path) -> Path:
    (folder / "train.bin").write_bytes(stream("<u2"))
    return folder


def packed(folder: Path) -> Path:
    """lit-gpt's PackedDataset: two chunks of 10 tokens, the last filled up with the separator."""
    head = b"LITPKDS" + struct.pack("<QBQ", 1, 8, 10)
    (folder / "train_0.bin").write_bytes(head + stream("<u2") + b"\0\0" * 4)
    return folder


def llmc(folder: Path, magic: int = 20240520, dtype: str = "<u2") -> Path:
    header = np.zeros(256, "<i4")
    header[:3] = magic, 1, lengths().sum()
    (folder / "fineweb_train_000001.bin").write_bytes(header.tobytes() + stream(dtype))
    return folder


def megatron(folder: Path) -> Path:
    (folder / "corpus.bin").write_bytes(stream("<u2"))
    (folder / "corpus.idx").write_bytes(megatron_index(lengths(), np.dtype("<u2")))
    return folder


def olmo(folder: Path, bounds: bool = True) -> Path:
    (folder / "part-0.npy").write_bytes(stream("<u2"))
    ends = np.cumsum(lengths())
    rows = zip(ends - lengths(), ends, "abcde", strict=True)
    if bounds:
        lines = "".join(f"{start},{end},{name},file,1\n" for start, end, name in rows)
        (folder / "part-0.csv.gz").write_bytes(gzip.compress(lines.encode()))
    return folder


def datatrove(folder: Path, dtype: str = "<u2") -> Path:
    (folder / "00000.ds").write_bytes(stream(dtype))
    (folder / "00000.ds.index").write_bytes(np.cumsum(lengths()).astype("<u8").tobytes())
    return folder


LAYOUTS = {
    "nanogpt": nanogpt,
    "packed": packed,
    "llmc-uint16": llmc,
    "llmc-uint32": lambda folder: llmc(folder, 20240801, "<u4"),
    "megatron": megatron,
    "olmo": olmo,
    "olmo-scanned": lambda folder: olmo(folder, bounds=False),
    "datatrove-uint16": datatrove,
    "datatrove-uint32": lambda folder: datatrove(folder, "<u4"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_layout_gives_the_documents_that_were_written(tmp_path, layout):
    shards = read_shards(LAYOUTS[layout](tmp_path), foreign=KNOWN)
    assert [shards.document(k).tolist() for k in range(shards.documents)] == DOCUMENTS
    assert shards.vocab_size == 300 and shards.end == 0 and shards.bytes is None
    name = next(part.name for part in shards.parts)
    expected = ["c", "a"] if layout == "olmo" else [f"{name}:2", f"{name}:0"]
    assert shards.ids([2, 0]) == expected


@pytest.mark.parametrize("name", ["val.bin", "fineweb_val_000000.bin", "val/part.bin"])
def test_a_file_of_validation_is_the_held_out_text(tmp_path, name):
    nanogpt(tmp_path)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(stream("<u2")[:16])
    shards = read_shards(tmp_path, foreign=KNOWN)
    assert f"{name}: held-out text" in shards.notes
    training, held_out = split(shards, held_out=0.5, seed=1)
    assert [shards.document(k).tolist() for k in training] == DOCUMENTS
    assert [shards.document(k).tolist() for k in held_out] == [*DOCUMENTS[:2], [9, 10]]
    alone = read_shards(tmp_path / name, foreign=KNOWN)
    assert alone.documents == 3 and not len(alone.held_out)


def test_a_tokenizer_beside_the_files_gives_their_vocabulary(tmp_path, small_tokenizer):
    (nanogpt(tmp_path) / "tokenizer.json").write_bytes(small_tokenizer.read_bytes())
    shards = read_shards(tmp_path)
    assert shards.tokenizer == tmp_path / "tokenizer.json" and shards.vocab_size <= 270


def test_a_pickle_beside_the_files_is_not_read_and_said_so(tmp_path):
    (nanogpt(tmp_path) / "meta.pkl").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    with pytest.raises(LlmcurateError, match=r"give --tokenizer FILE, or .*meta\.pkl is not"):
        read_shards(tmp_path)


def test_without_an_end_of_text_a_file_without_index_is_one_document_and_said_so(tmp_path):
    shards = read_shards(nanogpt(tmp_path), foreign=Foreign(vocab_size=300))
    assert shards.documents == 1 and shards.length[0] == lengths().sum()
    assert any("give end_of_text" in note for note in shards.notes)


def test_megatron_documents_of_several_sequences_are_whole(tmp_path):
    """Three documents of 2, 1 and 2 sequences; Megatron's own tools write them sentence-wise."""
    megatron(tmp_path)
    sizes = lengths().astype("<i4")
    pointers = ((np.cumsum(sizes) - sizes) * 2).astype("<i8")
    edges = np.array([0, 2, 3, 5], "<i8")
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, 5, 4)
    index = head + sizes.tobytes() + pointers.tobytes() + edges.tobytes()
    (tmp_path / "corpus.idx").write_bytes(index)
    shards = read_shards(tmp_path, foreign=KNOWN)
    joined = [DOCUMENTS[0] + DOCUMENTS[1], DOCUMENTS[2], DOCUMENTS[3] + DOCUMENTS[4]]
    assert [shards.document(k).tolist() for k in range(3)] == joined


def test_datatrove_tokens_that_do_not_count_are_known(tmp_path):
    datatrove(tmp_path)
    mask = np.arange(lengths().sum()) % 2 == 0
    (tmp_path / "00000.ds.loss").write_bytes(mask.astype(np.uint8).tobytes())
    shards = read_shards(tmp_path, foreign=KNOWN)
    counted = np.concatenate([shards.counted(k) for k in range(shards.documents)])
    assert (counted == mask).all()


@pytest.mark.parametrize("form", ["llmcurate", "megatron", "nanogpt", "olmo"])
def test_what_we_write_for_others_reads_as_our_own(shard_folder, tmp_path, form):
    texts = [sentences(seed, 1 + seed % 12) for seed in range(40)]
    batch = pa.RecordBatch.from_pylist(
        [{"id": f"doc-{k}", "text": text, "source": f"s{k % 3}"} for k, text in enumerate(texts)]
    )
    layout = Layout(shard_tokens=1500, form=form, val_fraction=0.2 if form == "nanogpt" else 0.0)
    encode_shards([batch], shard_folder / "tokenizer.json", tmp_path, layout)
    ours, read = read_shards(shard_folder), read_shards(tmp_path, verify=True)
    names = read.ids(list(range(read.documents)))
    assert len(names) == 40 and (0 < len(read.held_out) < 20) == (form == "nanogpt")
    for index, name in enumerate(names):
        number = int(name.removeprefix("doc-"))
        assert read.document(index).tolist() == ours.document(number).tolist()
        assert read.bytes[index] == ours.bytes[number]
        assert read.sources([index]) == [f"s{number % 3}"]
    assert read.end == ours.end and read.tokenizer_sha256 == ours.tokenizer_sha256


@pytest.mark.parametrize("form", ["llmcurate", "megatron"])
def test_documents_in_our_val_folder_are_the_held_out_text(shard_folder, tmp_path, form):
    batch = pa.RecordBatch.from_pylist(
        [{"id": f"doc-{k}", "text": sentences(k, 3), "source": "s"} for k in range(40)]
    )
    layout = Layout(form=form, val_fraction=0.2)
    encode_shards([batch], shard_folder / "tokenizer.json", tmp_path, layout)
    train, val = read_shards(tmp_path), read_shards(tmp_path / "val")
    both = read_shards(tmp_path, val=True, verify=True)
    assert both.documents == train.documents + val.documents == 40
    chosen = both.held_out.tolist()
    assert both.ids(chosen) == val.ids(list(range(val.documents)))
    training, held_out = split(both, held_out=0.5, seed=1)
    assert held_out.tolist() == chosen and len(training) == train.documents
    assert both.fingerprint == train.fingerprint and len(both.sums) > len(train.sums)
    damaged = tmp_path / "val" / "manifest.json"
    damaged.write_bytes(damaged.read_bytes() + b"\n")
    with pytest.raises(LlmcurateError, match=r"val/manifest\.json: damaged"):
        read_shards(tmp_path, val=True)


@pytest.mark.parametrize("form", ["megatron", "nanogpt", "olmo"])
def test_what_we_write_for_others_reads_without_its_manifest_too(shard_folder, tmp_path, form):
    texts = [sentences(seed, 2) for seed in range(9)]
    batch = pa.RecordBatch.from_pylist([{"id": str(k), "text": t} for k, t in enumerate(texts)])
    encode_shards([batch], shard_folder / "tokenizer.json", tmp_path, Layout(form=form))
    whole = read_shards(tmp_path)
    (tmp_path / "manifest.json").unlink()
    bare = read_shards(tmp_path, foreign=Foreign(tokenizer=str(tmp_path)))
    documents = [whole.document(k).tolist() for k in range(9)]
    assert [bare.document(k).tolist() for k in range(bare.documents)] == documents
    assert (bare.form, bare.vocab_size, bare.end) == (form, whole.vocab_size, whole.end)
    assert bare.tokenizer_sha256 == whole.tokenizer_sha256


def test_the_fingerprint_of_files_without_manifest_follows_their_content(tmp_path):
    before = read_shards(nanogpt(tmp_path), foreign=KNOWN).fingerprint
    assert read_shards(tmp_path, foreign=KNOWN).fingerprint == before
    data = bytearray((tmp_path / "train.bin").read_bytes())
    data[2] ^= 1
    (tmp_path / "train.bin").write_bytes(bytes(data))
    assert read_shards(tmp_path, foreign=KNOWN).fingerprint != before


@pytest.mark.parametrize(("share", "held_out"), [(0.1, 2), (0.001, 1), (0.999, 15)])
def test_a_single_document_is_cut_and_its_end_is_held_out(tmp_path, share, held_out):
    shards = read_shards(nanogpt(tmp_path), foreign=Foreign(vocab_size=300))
    divided = cut_single(shards, share)
    first, last = (divided.document(k).tolist() for k in range(2))
    assert np.array(first + last, "<u2").tobytes() == stream("<u2")
    assert len(last) == held_out
    assert [side.tolist() for side in split(divided, held_out=share, seed=1)] == [[0], [1]]
    middle = 16 - held_out
    assert divided.ids([0, 1]) == [f"train.bin:0[:{middle}]", f"train.bin:0[{middle}:]"]
    assert any(f"{middle} token" in note and "held out" in note for note in divided.notes)


def test_bytes_of_a_single_document_are_shared_by_tokens(shard_folder):
    own = read_shards(shard_folder)
    one = replace(own, shard=own.shard[7:8], start=own.start[7:8], length=own.length[7:8])
    divided = cut_single(replace(one, bytes=own.bytes[7:8]), 0.25)
    assert divided.bytes.sum() == own.bytes[7]
    assert divided.bytes[1] / own.bytes[7] == pytest.approx(0.25, abs=0.05)


def test_several_documents_are_not_cut(tmp_path):
    shards = read_shards(nanogpt(tmp_path), foreign=KNOWN)
    assert cut_single(shards, 0.1) is shards


def test_an_id_out_of_the_vocabulary_is_named_with_file_and_position(tmp_path):
    shards = read_shards(nanogpt(tmp_path), foreign=Foreign(vocab_size=12, end_of_text=0))
    with pytest.raises(LlmcurateError, match=r"token 12, .* at position 9 of train\.bin$"):
        tokens_of(shards, 2, slice(0, 6))


def cut(data: bytes) -> bytes:
    return data[:-3]


def bomb(data: bytes) -> bytes:
    return gzip.compress(b"0,0\n" * 100_000)


DAMAGES = {
    "nanogpt-odd": (nanogpt, "train.bin", cut, "cut short"),
    "packed-short": (packed, "train_0.bin", lambda d: d[:-2], "says 10 tokens, it holds 19"),
    "packed-header": (packed, "train_0.bin", lambda d: d[:20], "cut short within its header"),
    "packed-floats": (packed, "train_0.bin", lambda d: d[:15] + b"\x06" + d[16:], "type 6"),
    "packed-huge": (packed, "train_0.bin", lambda d: d[:16] + b"\xff" * 8 + d[24:], "it holds 20"),
    "llmc-short": (llmc, "fineweb_train_000001.bin", lambda d: d[:-2], "header says 16 tokens"),
    "llmc-header": (llmc, "fineweb_train_000001.bin", lambda d: d[:600], "within its header"),
    "megatron-older": (
        megatron,
        "corpus.idx",
        lambda d: b"TNTIDX\0\0" + d[8:],
        "begins with MMIDIDX",
    ),
    "megatron-cut": (megatron, "corpus.idx", cut, "its size does not fit"),
    "megatron-huge": (
        megatron,
        "corpus.idx",
        lambda d: d[:18] + struct.pack("<Q", 1 << 60) + d[26:],
        "its size does not fit",
    ),
    "megatron-behind": (megatron, "corpus.bin", lambda d: d[:-4], "lies beyond the 14 tokens"),
    "megatron-floats": (megatron, "corpus.idx", lambda d: d[:17] + b"\x06" + d[18:], "type 6"),
    "megatron-negative": (
        megatron,
        "corpus.idx",
        lambda d: d[:34] + struct.pack("<i", -1) + d[38:],
        "offset of a sequence is impossible",
    ),
    "megatron-loop": (megatron, "corpus.idx", lambda d: d[:-8] + b"\x00" * 8, "not ranges"),
    "olmo-numpy": (olmo, "part-0.npy", lambda d: b"\x93NUMPY" + d, "has a NumPy header"),
    "olmo-gzip": (olmo, "part-0.csv.gz", cut, "cannot be read"),
    "olmo-text": (olmo, "part-0.csv.gz", lambda d: gzip.compress(b"a,b\n"), "cannot be read"),
    "olmo-one-column": (olmo, "part-0.csv.gz", lambda d: gzip.compress(b"1\n"), "start,end"),
    "olmo-empty": (olmo, "part-0.csv.gz", lambda d: b"", "cannot be read"),
    "olmo-behind": (olmo, "part-0.csv.gz", lambda d: gzip.compress(b"0,99\n"), "lie beyond"),
    "olmo-bomb": (olmo, "part-0.csv.gz", bomb, "more documents than tokens"),
    "datatrove-cut": (datatrove, "00000.ds", cut, "are not the 16 tokens"),
    "datatrove-index": (datatrove, "00000.ds.index", cut, "cut short"),
    "datatrove-back": (
        datatrove,
        "00000.ds.index",
        lambda d: struct.pack("<Q", 1 << 63) + d[8:],
        "do not fit",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_or_hostile_file_is_one_line_that_names_it(tmp_path, name):
    write, file, change, message = DAMAGES[name]
    write(tmp_path)
    (tmp_path / file).write_bytes(change((tmp_path / file).read_bytes()))
    with pytest.raises(LlmcurateError, match=message) as caught:
        read_shards(tmp_path, foreign=KNOWN)
    assert "\n" not in str(caught.value) and str(tmp_path) in str(caught.value)


def test_a_manifest_cannot_name_files_elsewhere(shard_folder, tmp_path):
    import shutil

    copy = shutil.copytree(shard_folder, tmp_path / "copy")
    manifest = json.loads((copy / "manifest.json").read_bytes())
    (copy / "manifest.json").write_text(json.dumps({**manifest, "documents": 1}))
    with pytest.raises(LlmcurateError, match=r"damaged \(its checksum differs"):
        read_shards(copy)
    del manifest["checksum"]  # of an older version
    manifest["files"]["../copy/tokens-00000.bin"] = "0"
    (copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(LlmcurateError, match="missing; encode again"):
        read_shards(copy)


def test_a_documents_table_that_is_no_parquet_is_named(shard_folder, tmp_path):
    import shutil

    copy = shutil.copytree(shard_folder, tmp_path / "copy")
    (copy / "documents-00001.parquet").write_bytes(b"PAR1 not at all")
    with pytest.raises(LlmcurateError, match=r"documents-00001\.parquet: cannot be read"):
        read_shards(copy)


@pytest.mark.parametrize(
    ("foreign", "message"),
    [
        (Foreign(), "give --tokenizer FILE, or --vocab SIZE and --end-of-text ID"),
        (Foreign(vocab_size=10, end_of_text=10), "within the vocabulary"),
        (Foreign(vocab_size=10, dtype="float32"), "dtype 'float32'"),
        (Foreign(tokenizer="nowhere.json"), "nowhere.json"),
    ],
)
def test_what_files_do_not_say_must_be_given_and_make_sense(tmp_path, foreign, message):
    with pytest.raises(LlmcurateError, match=message):
        read_shards(nanogpt(tmp_path), foreign=foreign)


def test_our_own_shards_without_their_manifest_are_not_taken_for_another_layout(
    shard_folder, tmp_path
):
    import shutil

    copy = shutil.copytree(shard_folder, tmp_path / "copy")
    (copy / "manifest.json").unlink()
    with pytest.raises(LlmcurateError, match="no manifest"):
        read_shards(copy, foreign=KNOWN)


def test_a_folder_of_other_things_is_no_shards(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(LlmcurateError, match="no manifest") as caught:
        read_shards(tmp_path, foreign=KNOWN)
    assert caught.value.exit_code == 2
