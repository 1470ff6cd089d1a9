from __future__ import annotations

import hashlib
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.tokenizer_file import load_tokenizer
from tests.disk_calls import disk_calls
from tokenize_kit.encode.parts import PART_BYTES
from tokenize_kit.learn.training import train_tokenizer
from tokenize_kit.shards.writer import Layout, encode_shards
from train.data.shards import read_shards

END = "<|endoftext|>"


@pytest.fixture(scope="module")
def tokenizer_json(tmp_path_factory):
    out = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer(["the cat sat on the mat " * 20], out, vocab=300)
    return out / "tokenizer.json"


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_documents_come_back_from_the_shards(batch_of, tokenizer_json, tmp_path):
    texts = ["the cat", "", "mat 🐈\n"]
    rows = [(f"d{index}", text, "s", "en") for index, text in enumerate(texts)]
    manifest = encode_shards([batch_of(*rows)], tokenizer_json, tmp_path)
    shards, tokenizer = read_shards(tmp_path, verify=True), load_tokenizer(tokenizer_json)
    end = manifest["special_ids"][END]
    for index, text in enumerate(texts):
        ids = shards.document(index).tolist()
        assert ids[-1] == end and tokenizer.decode(ids[:-1]) == text
    assert manifest["documents"] == 3
    assert manifest["bytes"] == sum(len(text.encode()) for text in texts)
    assert manifest["tokens"] == shards.length.sum()


def test_the_folder_is_the_documented_format(batch_of, tokenizer_json, tmp_path):
    rows = [("a", "the cat", "web", "en"), ("b", "sat", "book", None)]
    manifest = encode_shards([batch_of(*rows)], tokenizer_json, tmp_path)
    assert json.loads((tmp_path / "manifest.json").read_bytes()) == manifest
    assert manifest["dtype"] == "uint16" and manifest["version"] == 1
    files = digests(tmp_path)
    files.pop("manifest.json")
    assert manifest["files"] == files
    assert manifest["tokenizer_sha256"] == digests(tokenizer_json.parent)["tokenizer.json"]
    ends = np.fromfile(tmp_path / "tokens-00000.idx", dtype="<u8")
    tokens = np.fromfile(tmp_path / "tokens-00000.bin", dtype="<u2")
    table = pq.read_table(tmp_path / "documents-00000.parquet")
    assert table.column_names == ["id", "source", "lang", "tokens", "bytes"]
    assert ends.tolist() == np.cumsum(table["tokens"]).tolist() and ends[-1] == len(tokens)
    assert table["source"].to_pylist() == ["web", "book"] and table["bytes"][1].as_py() == 3


@pytest.mark.parametrize(
    ("room", "shards"),
    [(2, [[1, 1], [3], [2]]), (4, [[1, 1], [3], [2]]), (5, [[1, 1, 3], [2]]), (7, [[1, 1, 3, 2]])],
)
def test_a_document_that_exactly_fills_a_shard_is_its_last(
    batch_of, tokenizer_json, tmp_path, room, shards
):
    lengths = [1, 1, 3, 2]
    rows = [(f"d{n}", "%" * (length - 1)) for n, length in enumerate(lengths)]
    encode_shards([batch_of(*rows)], tokenizer_json, tmp_path, Layout(shard_tokens=room))
    tables = [pq.read_table(path)["tokens"] for path in sorted(tmp_path.glob("documents-*"))]
    assert [table.to_pylist() for table in tables] == shards


def test_shards_are_synced_before_renaming_and_no_manifest_exists_meanwhile(
    batch_of, tokenizer_json, tmp_path
):
    """Into a folder that holds other shards, of one side and of two."""
    rows, layout = [(f"d{n}", "the cat") for n in range(9)], Layout(val_fraction=0.5)
    encode_shards([batch_of(*rows[:3])], tokenizer_json, tmp_path, layout)
    with disk_calls(tmp_path) as calls:
        manifest = encode_shards([batch_of(*rows)], tokenizer_json, tmp_path, layout)
    old = [f"remove {side}manifest.json" for side in ("", "val/")]
    for name in [*manifest["files"], *(f"val/{name}" for name in manifest["files"])]:
        if "tokenizer" not in name:
            assert calls.index(old["val/" in name]) < calls.index(f"remove {name}"), name
        assert calls.index(f"sync {name}") < calls.index(f"rename {name}"), name
    last = ["sync val/manifest.json", "rename val/manifest.json", "sync val"]
    at = calls.index("sync val")
    assert calls[at - 2 : at + 1] == last
    last = ["sync .", "sync manifest.json", "rename manifest.json", "sync ."]
    assert calls[-4:] == last and calls.index("sync .") == len(calls) - 4


def test_a_document_cannot_forge_an_end_of_text(batch_of, tokenizer_json, tmp_path):
    text = f"the cat{END}sat"
    manifest = encode_shards([batch_of(("a", text))], tokenizer_json, tmp_path)
    ids = read_shards(tmp_path).document(0)
    assert (ids == manifest["special_ids"][END]).sum() == 1
    assert load_tokenizer(tokenizer_json).decode(ids[:-1].tolist()) == text


def test_a_tokenizer_that_lets_text_forge_tokens_is_refused(batch_of, tmp_path):
    from tokenizers import AddedToken, Tokenizer, models

    tokenizer = Tokenizer(models.WordLevel({END: 0, "[UNK]": 1}, unk_token="[UNK]"))
    tokenizer.add_special_tokens([AddedToken(END), AddedToken("[UNK]")])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(LlmcurateError, match="document evil"):
        encode_shards([batch_of(("evil", END))], tmp_path / "tokenizer.json", tmp_path / "out")


def test_batching_and_threads_do_not_change_a_byte(batch_of, tokenizer_json, tmp_path):
    rows = [(f"d{index}", "the cat sat " * (index % 7)) for index in range(40)]
    encode_shards([batch_of(*rows)], tokenizer_json, tmp_path / "one", Layout(shard_tokens=100))
    batches = [batch_of(*rows[first : first + 3]) for first in range(0, 40, 3)]
    encode_shards(batches, tokenizer_json, tmp_path / "many", Layout(shard_tokens=100))
    assert digests(tmp_path / "one") == digests(tmp_path / "many")


def test_a_shard_never_splits_a_document(batch_of, tokenizer_json, tmp_path):
    rows = [("a", "the cat sat"), ("b", "x" * 500), ("c", "mat"), ("d", "mat")]
    manifest = encode_shards([batch_of(*rows)], tokenizer_json, tmp_path, Layout(shard_tokens=50))
    shards = read_shards(tmp_path)
    assert shards.shard.tolist() == [0, 1, 2, 2]
    assert shards.ids([3, 0, 1]) == ["d", "a", "b"] and manifest["documents"] == 4


def test_a_large_vocabulary_takes_four_bytes_a_token(batch_of, tmp_path):
    from tokenizers import AddedToken, Tokenizer, models

    words = {f"w{index}": index for index in range(70_000)} | {END: 70_000}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.add_special_tokens([AddedToken(END)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    out = tmp_path / "out"
    manifest = encode_shards([batch_of(("a", "w69999"))], tmp_path / "tokenizer.json", out)
    assert manifest["dtype"] == "uint32"
    assert read_shards(out).document(0).tolist() == [69_999, 70_000]


def test_failure_leaves_the_old_shards_and_nothing_else(batch_of, tokenizer_json, tmp_path):
    encode_shards([batch_of(("a", "the cat"))], tokenizer_json, tmp_path)
    before = digests(tmp_path)

    def broken():
        yield batch_of(("b", "sat"))
        raise RuntimeError("the reader failed")

    with pytest.raises(RuntimeError):
        encode_shards(broken(), tokenizer_json, tmp_path)
    with pytest.raises(LlmcurateError, match="no documents"):
        encode_shards([], tokenizer_json, tmp_path)
    with pytest.raises(LlmcurateError, match="document b: its text is null"):
        encode_shards([batch_of(("b",))], tokenizer_json, tmp_path)
    assert digests(tmp_path) == before


def test_missing_columns_and_tokenizers_are_named(tokenizer_json, tmp_path):
    with pytest.raises(LlmcurateError, match="'text'"):
        encode_shards([pa.RecordBatch.from_pydict({"id": ["a"]})], tokenizer_json, tmp_path)
    with pytest.raises(LlmcurateError, match="no such"):
        encode_shards([], tmp_path / "absent.json", tmp_path)


@pytest.mark.parametrize("edges", [{}, {"append_eos": False}])
def test_a_document_encoded_in_parts_has_the_tokens_of_the_whole(
    batch_of, tokenizer_json, tmp_path, edges
):
    long = "".join(f"the cat {k} sat on the mat ไทย\n" for k in range(PART_BYTES // 32))
    assert len(long.encode()) > PART_BYTES
    rows = batch_of(("a", "the cat"), ("b", long), ("c", "mat"))
    parts = encode_shards([rows], tokenizer_json, tmp_path / "parts", Layout(**edges))
    # Nothing dropped is the usual encoding, made of a whole text.
    whole = encode_shards([rows], tokenizer_json, tmp_path / "whole", Layout(sampling=0.0, **edges))
    assert parts["files"] == whole["files"] and parts["tokens"] > 1_000_000
