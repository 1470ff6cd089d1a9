"""`llmcurate export --format hf` and `llmcurate import`."""

from __future__ import annotations

import json

import pytest
import torch

from curate.cli.app import invoke
from tests.train.loop.small_runs import build, trained
from train.generate import load
from train.model.presets import preset


@pytest.fixture(scope="module")
def run(tmp_path_factory, small_tokenizer):
    config = preset("tiny", vocab=270, context=64)
    return trained(tmp_path_factory.mktemp("run") / "run", build(config), small_tokenizer)


def test_an_export_opens_with_its_tokenizer_and_comes_back(run, tmp_path, capsys):
    transformers = pytest.importorskip("transformers")
    hf, back = tmp_path / "hf", tmp_path / "back"
    assert invoke(["export", str(run), "-o", str(hf), "--format", "hf", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["family"], answer["dtype"]) == ("llama", "float32")
    assert sorted(path.name for path in hf.iterdir()) == [
        "README.md", "config.json", "generation_config.json", "model.safetensors",
        "tokenizer.json", "tokenizer_config.json",
    ]  # fmt: skip
    tokenizer = transformers.AutoTokenizer.from_pretrained(hf)
    model = transformers.AutoModelForCausalLM.from_pretrained(hf)
    assert tokenizer.bos_token == tokenizer.eos_token == "<|endoftext|>"
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    ids = tokenizer("the cat sat", return_tensors="pt")
    out = model.generate(**ids, max_new_tokens=12, do_sample=False)[0]
    ours, _ = load(run)
    tokens = ids["input_ids"][0].tolist()
    for token in out[len(tokens) :].tolist():
        assert token == int(ours(torch.tensor([tokens]))[0, -1].argmax())
        tokens.append(token)
    assert invoke(["import", str(hf), "-o", str(back)]) == 0
    assert "of a llama model, 270 tokens, context 64" in capsys.readouterr().out
    texts = []
    for folder in (run, back):
        assert invoke(["generate", "the cat", "--model", str(folder), "--seed", "3"]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]


def test_a_dry_run_names_the_class_and_writes_nothing(run, tmp_path, capsys):
    out = tmp_path / "out"
    assert invoke(["export", str(run), "-o", str(out), "--format", "hf", "--dry-run"]) == 0
    assert "step-0000007 as LlamaForCausalLM" in capsys.readouterr().out
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["export", "RUN", "-o", "OUT", "--format", "coreml"],
            "choose one of jsonl, warc, minhash, bloom, hf, gguf, onnx",
        ),
        (["export", "RUN", "RUN", "-o", "OUT", "--format", "hf"], "give one folder"),
        (["export", "RUN", "--format", "hf"], "give -o OUT"),
        (["export", "OUT", "-o", "NEW", "--format", "hf"], "no finished checkpoint"),
        (
            ["export", "RUN", "-o", "OUT", "--format", "hf", "--dtype", "int4"],
            "choose one of float32, float16, bfloat16, q8_0",
        ),
        (
            ["export", "RUN", "-o", "OUT", "--format", "hf", "--dtype", "q8_0"],
            "choose one of float32, float16, bfloat16",
        ),
        (
            ["export", "RUN", "-o", "OUT", "--format", "onnx", "--dtype", "bfloat16"],
            "--format onnx writes float32",
        ),
        (
            ["export", "RUN", "-o", "OUT", "--format", "onnx"],
            "--format onnx takes encoders; the model is of the form decoder",
        ),
        (["import", "RUN", "-o", "OUT"], "is a trained model, not a model of transformers"),
    ],
    ids=[
        "format",
        "two models",
        "no folder",
        "no model",
        "dtype",
        "only gguf",
        "only float32",
        "only encoders",
        "not a model",
    ],
)
def test_wrong_use_is_a_one_line_error_with_exit_code_2(arguments, message, run, tmp_path, capsys):
    paths = {"RUN": str(run), "OUT": str(tmp_path / "out"), "NEW": str(tmp_path / "new")}
    assert invoke([paths.get(word, word) for word in arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
