"""Embeddings from models in local folders: a tiny ONNX model that the test writes byte by byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from curate.lab.semantic import model as embeddings_model
from curate.text import onnx
from llmcurate.base.errors import UsageError
from tests.curate.onnx_models import onnx_model, write_model

WORDS = ["[UNK]", "cat", "dog", "sits", "runs", "bank", "rates", "rise", "the"]
TABLE = np.random.default_rng(0).standard_normal((len(WORDS), 6)).astype(np.float32)


@pytest.fixture
def model(tmp_path) -> Path:
    pytest.importorskip("onnxruntime", reason="no onnxruntime: pip install 'llmcurate[onnx]'")
    folder = tmp_path / "model"
    write_model(folder, onnx_model(TABLE), WORDS)
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


def test_a_file_that_is_no_model_is_a_one_line_error(bench, tmp_path, monkeypatch):
    def refused(folder: Path) -> str:
        with pytest.raises(UsageError) as caught:
            embeddings_model.load(folder, 512, "dedup_semantic")
        assert "\n" not in str(caught.value)
        return str(caught.value)

    folder = tmp_path / "m"
    assert "no such folder" in refused(folder)
    folder.mkdir()
    assert "neither model.onnx nor modules.json nor config.json" in refused(folder)
    (folder / "model.onnx").write_bytes(b"\x00 no model")
    assert "tokenizer.json is missing" in refused(folder)
    (folder / "tokenizer.json").write_text("{}")
    with monkeypatch.context() as patch:
        patch.setattr(onnx, "find_spec", lambda name: None)
        assert "pip install 'llmcurate[onnx]'" in refused(folder)
    pytest.importorskip("onnxruntime")
    assert "cannot be loaded" in refused(folder)
    source = bench.jsonl("in.jsonl", ROWS)
    with pytest.raises(UsageError, match="no such folder"):
        bench.run([{"dedup_semantic": {"embedding": str(tmp_path / "none")}}], source)


def transformers_model(folder: Path, kind: str) -> Any:
    """The base of a small model whose files it writes into the folder, with a tokenizer."""
    transformers = pytest.importorskip("transformers", reason="no transformers")
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    small = {
        "vocab_size": len(WORDS),
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "max_position_embeddings": 14,
    }
    transformers.set_seed(0)
    heads = {"bert": "ForPreTraining", "llama": "ForCausalLM", "roberta": "ForMaskedLM"}
    config = transformers.AutoConfig.for_model(kind, **small)
    name = type(config).__name__.removesuffix("Config") + heads[kind]
    getattr(transformers, name)(config).eval().save_pretrained(folder)
    tokenizer = Tokenizer(WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    return transformers.AutoModel.from_pretrained(folder).eval()


@pytest.mark.parametrize("kind", ["bert", "llama", "roberta"])
def test_a_folder_of_transformers_gives_its_last_layers_vectors(tmp_path, kind):
    """Of an encoder their mean, of a decoder the last token's; a text is cut at its positions."""
    torch = pytest.importorskip("torch", reason="no torch")
    model = transformers_model(tmp_path, kind)
    with torch.no_grad():
        out = model(input_ids=torch.tensor([[8, 1, 3]])).last_hidden_state[0]
    expected = (out[-1] if kind == "llama" else out.mean(dim=0)).numpy()
    embedded = vectors(tmp_path, ["the cat sits", "", "cat dog " * 40, "cat dog " * 41])
    np.testing.assert_allclose(embedded[0].as_py(), expected, rtol=1e-5, atol=1e-6)
    assert embedded[1].as_py() is None
    assert embedded[2] == embedded[3]
    alone = vectors(tmp_path, ["the cat sits"])
    assert alone[0] == embedded[0]


def test_transformers_runs_a_folder_of_sentence_transformers_without_other_modules(tmp_path):
    torch = pytest.importorskip("torch", reason="no torch")
    model = transformers_model(tmp_path, "bert")

    def write(name: str, settings: Any) -> None:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(settings))

    def refused() -> str:
        with pytest.raises(UsageError) as caught:
            vectors(tmp_path, ["the"])
        return str(caught.value)

    types = ["models.Transformer", "sentence_transformer.modules.pooling.Pooling", "models.Dense"]
    modules = [{"type": f"sentence_transformers.{name}"} for name in types]
    write("modules.json", modules)
    assert "names Transformer, Pooling, Dense; only a Transformer" in refused()
    write("modules.json", [1])
    assert "modules.json cannot be read" in refused()
    write("modules.json", modules[:2])
    write("sentence_bert_config.json", {"max_seq_length": 3})
    with torch.no_grad():
        out = model(input_ids=torch.tensor([[8, 1, 3]])).last_hidden_state[0]
    for pooling, expected in (
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, out.mean(dim=0)),
        ({"pooling_mode": "cls", "include_prompt": True}, out[0]),
        ({"pooling_mode": ["lasttoken"]}, out[2]),
    ):
        write("1_Pooling/config.json", pooling)
        embedded = vectors(tmp_path, ["the cat sits runs"])[0].as_py()
        np.testing.assert_allclose(embedded, expected.numpy(), rtol=1e-5, atol=1e-6)
    write("1_Pooling/config.json", {"pooling_mode": ["mean", "max"]})
    assert "asks for mean and max" in refused()


def test_a_folder_of_transformers_needs_its_tokenizer_and_safetensors(tmp_path):
    pytest.importorskip("transformers", reason="no transformers")

    def refused() -> str:
        with pytest.raises(UsageError) as caught:
            embeddings_model.load(tmp_path, 512, "step")
        assert "\n" not in str(caught.value)
        return str(caught.value)

    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    assert "tokenizer.json is missing" in refused()
    (tmp_path / "tokenizer.json").write_text("{}")
    assert "no weights in safetensors format" in refused()
    (tmp_path / "model.safetensors").write_bytes(b"none")
    assert "cannot be loaded" in refused()
