"""Embeddings from models in local folders: a tiny ONNX model that the test writes byte by byte."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from curate.dedup.semantic import model as embeddings_model
from curate.errors import UsageError

WORDS = ["[UNK]", "cat", "dog", "sits", "runs", "bank", "rates", "rise", "the"]
TABLE = np.random.default_rng(0).standard_normal((len(WORDS), 6)).astype(np.float32)
INT64, FLOAT = 7, 1


def number(value: int) -> bytes:
    """A protobuf varint."""
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(key: int, value: int | bytes | str) -> bytes:
    """A protobuf field: a number, or bytes with their length."""
    if isinstance(value, int):
        return number(key << 3) + number(value)
    data = value.encode() if isinstance(value, str) else value
    return number(key << 3 | 2) + number(len(data)) + data


def value_info(name: str, kind: int, shape: list[str | int]) -> bytes:
    dims = b"".join(field(1, field(1, d) if isinstance(d, int) else field(2, d)) for d in shape)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, dims)))


def onnx_model(table: np.ndarray) -> bytes:
    """A model whose output for each token is its row of the table (onnx.proto3: ModelProto)."""
    rows, size = table.shape
    data = struct.pack(f"<{rows * size}f", *table.ravel())
    tensor = field(1, rows) + field(1, size) + field(2, FLOAT) + field(8, "table") + field(9, data)
    node = field(1, "table") + field(1, "input_ids") + field(2, "tokens") + field(4, "Gather")
    graph = field(1, node) + field(2, "g") + field(5, tensor)
    for name in ("input_ids", "attention_mask"):
        graph += field(11, value_info(name, INT64, ["batch", "length"]))
    graph += field(12, value_info("tokens", FLOAT, ["batch", "length", size]))
    return field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, 13))


@pytest.fixture
def model(tmp_path) -> Path:
    pytest.importorskip("onnxruntime", reason="no onnxruntime: pip install 'llmcurate[embed]'")
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(onnx_model(TABLE))
    vocab = {word: i for i, word in enumerate(WORDS)}
    tokenizer = Tokenizer(WordLevel(vocab, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def vectors(folder: Path, texts: list[str | None], max_tokens: int = 512) -> Any:
    loaded = embeddings_model.load(folder, max_tokens, "step")
    return loaded.column(pa.array(texts, pa.large_string()))


def test_a_vector_is_the_mean_over_the_tokens(model):
    texts = ["the cat sits", "the the dog", "zebra", None, "", " \n"]
    embedded = vectors(model, texts)
    assert embedded.type == pa.list_(pa.float32(), 6)
    expected = [TABLE[[8, 1, 3]].mean(0), TABLE[[8, 8, 2]].mean(0), TABLE[0]]
    np.testing.assert_allclose(np.array(embedded.to_pylist()[:3]), expected, rtol=1e-5)
    assert embedded.to_pylist()[3:] == [None] * 3
    assert len(vectors(model, [])) == 0


def test_only_the_first_tokens_count(model):
    assert vectors(model, ["cat dog " * 9], 8)[0] == vectors(model, ["cat dog " * 4], 8)[0]


def test_the_folder_may_ask_for_the_first_token(model):
    (model / "1_Pooling").mkdir()
    settings = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (model / "1_Pooling/config.json").write_text(json.dumps(settings))
    np.testing.assert_allclose(vectors(model, ["dog cat"])[0].as_py(), TABLE[2])


ROWS = [
    {"id": "a", "text": "the cat sits"},
    {"id": "b", "text": "sits the cat ."},
    {"id": "c", "text": "rates rise"},
    {"id": "d", "text": "the bank rates rise"},
    {"id": "e", "text": ""},
    {"id": "f", "text": ""},
]


@pytest.mark.parametrize("workers", [1, 2])
def test_documents_are_compared_by_the_model(bench, model, workers):
    inputs = [bench.jsonl(f"{i}.jsonl", ROWS[i::2]) for i in range(2)]
    settings = {"embedding": str(model), "epsilon": 0.4, "clusters": 1}
    bench.run([{"dedup_semantic": settings}], *inputs, workers=workers)
    wide = TABLE.astype(float)
    means = [wide[[8, 1, 3]].mean(0), wide[[3, 8, 1, 0]].mean(0)]
    cosine = means[0] @ means[1] / np.linalg.norm(means[0]) / np.linalg.norm(means[1])
    (row,) = [r for r in bench.decisions() if r["id"] in "ab" and r["partner_id"]]
    assert row["id"] == "a" and abs(row["similarity"] - cosine) < 1e-3
    assert {"e", "f"} <= set(bench.ids())


def test_another_model_in_the_same_place_is_another_setting(bench, model):
    source = bench.jsonl("in.jsonl", ROWS)
    steps = [{"dedup_semantic": {"embedding": str(model), "epsilon": 0.4}}]
    bench.run(steps, source)
    assert bench.run(steps, source).nothing_new
    (model / "model.onnx").write_bytes(onnx_model(TABLE[::-1].copy()))
    assert not bench.run(steps, source).nothing_new
    with pytest.raises(UsageError, match="embedding"):
        against = {"embedding": "hashed", "against": [str(bench.folder / "out")]}
        bench.run([{"dedup_semantic": against}], source, out="new")


def test_what_is_no_model_is_said_in_one_line(bench, tmp_path, monkeypatch):
    def refused(folder: Path) -> str:
        with pytest.raises(UsageError) as caught:
            embeddings_model.load(folder, 512, "dedup_semantic")
        assert "\n" not in str(caught.value)
        return str(caught.value)

    folder = tmp_path / "m"
    assert "no such folder" in refused(folder)
    folder.mkdir()
    assert "neither model.onnx nor modules.json" in refused(folder)
    (folder / "model.onnx").write_bytes(b"\x00 no model")
    assert "tokenizer.json is missing" in refused(folder)
    (folder / "tokenizer.json").write_text("{}")
    with monkeypatch.context() as patch:
        patch.setattr(embeddings_model, "find_spec", lambda name: None)
        assert "pip install 'llmcurate[embed]'" in refused(folder)
    pytest.importorskip("onnxruntime")
    assert "cannot be loaded" in refused(folder)
    source = bench.jsonl("in.jsonl", ROWS)
    with pytest.raises(UsageError, match="no such folder"):
        bench.run([{"dedup_semantic": {"embedding": str(tmp_path / "none")}}], source)


def test_a_folder_of_sentence_transformers_may_not_bring_code(tmp_path, monkeypatch):
    monkeypatch.setattr(embeddings_model, "find_spec", lambda name: object())
    modules = tmp_path / "modules.json"

    def check(content: str) -> None:
        modules.write_text(content)
        embeddings_model.model_files(tmp_path, "step")

    with pytest.raises(UsageError, match="foreign code, my_code"):
        check(json.dumps([{"type": "my_code.Evil"}]))
    with pytest.raises(UsageError, match="cannot be read"):
        check("[1]")
    good = json.dumps([{"type": "sentence_transformers.models.Transformer"}])
    with pytest.raises(UsageError, match="no weights as safetensors"):
        check(good)
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    check(good)


def test_sentence_transformers_gives_its_own_vectors(tmp_path):
    library = pytest.importorskip("sentence_transformers", reason="no sentence-transformers")
    try:
        from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    except ImportError:  # before version 6
        from sentence_transformers.models import StaticEmbedding
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    tokenizer = Tokenizer(WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    static = StaticEmbedding(tokenizer, embedding_weights=TABLE)
    transformer = library.SentenceTransformer(modules=[static])
    transformer.save(str(tmp_path / "model"))
    embedded = vectors(tmp_path / "model", ["cat", "", "dog"])
    assert embedded.to_pylist()[1] is None
    np.testing.assert_allclose(embedded.to_pylist()[0], transformer.encode(["cat"])[0], rtol=1e-5)
