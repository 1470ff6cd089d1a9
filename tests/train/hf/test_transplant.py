"""`llmcurate model transplant`: a trained model with another tokenizer."""

from __future__ import annotations

import json

import pytest
import torch

from curate.cli.app import invoke
from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change
from llmcurate.base.tokenizer_file import load_tokenizer
from tests.train.loop.small_runs import build, trained
from tokenize_kit.learn.training import train_tokenizer
from train.generate import load
from train.hf.load import load as weights_in
from train.hf.load import transplant
from train.model.presets import preset

TEXTS = ["the cat sat on the mat", "a dog slept on the sofa, then it ran"] * 30


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def run(request, tmp_path_factory, small_tokenizer):
    vocab = load_tokenizer(small_tokenizer).get_vocab_size()
    config = preset("tiny", vocab=vocab, context=64)
    config = change(config, {"layers": 1, "head.tied": request.param}, "model")
    return trained(tmp_path_factory.mktemp("run") / "run", build(config), small_tokenizer)


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    folder = tmp_path_factory.mktemp("other")
    train_tokenizer(iter(TEXTS), folder, vocab=320)
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in TEXTS))
    return folder


def moved(run, tokenizer, out, capsys, *more):
    arguments = ["model", "transplant", str(run), str(tokenizer), "-o", str(out), *more, "--json"]
    assert invoke(arguments) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.lab
def test_to_its_own_tokenizer_it_stays_what_it_was(run, other, tmp_path, capsys):
    on = ("--on", str(other / "texts.jsonl"))
    figures = moved(run, run / "tokenizer.json", tmp_path / "same", capsys, *on)
    assert figures["bits_per_byte_before"] == pytest.approx(
        figures["bits_per_byte_after"], abs=1e-3
    )
    model, _ = load(run)
    same, _ = load(tmp_path / "same")
    ids = torch.arange(8)[None]
    size = figures["vocab"]
    assert torch.equal(model(ids)[..., :size], same(ids))


@pytest.mark.lab
@pytest.mark.parametrize("init", ["mean", "focus"])
def test_another_tokenizer_has_its_tables_and_all_else_is_kept(run, other, tmp_path, capsys, init):
    on = ("--on", str(other / "texts.jsonl"), "--init", init)
    figures = moved(run, other, tmp_path / "new", capsys, *on)
    assert 0 < figures["common_tokens"] < figures["vocab"] == figures["new_tokens"]
    assert 0 < figures["bits_per_byte_before"] < figures["bits_per_byte_after"] * 3
    (_, before), (config, after) = weights_in(run), weights_in(tmp_path / "new")
    assert config.vocab == figures["vocab"]
    assert set(figures["tables"]) == {"embedding.weight"} | {"head.weight"} & before.keys()
    for name, weight in after.items():
        assert name in figures["tables"] or torch.equal(weight, before[name])
        assert weight.isfinite().all()


@pytest.mark.lab
def test_the_bias_of_the_output_gets_a_number_for_each_new_token(
    other, tmp_path, capsys, small_tokenizer
):
    vocab = load_tokenizer(small_tokenizer).get_vocab_size()
    config = preset("tiny", vocab=vocab, context=64)
    config = change(config, {"layers": 1, "head.bias": True}, "model")
    run = trained(tmp_path / "run", build(config), small_tokenizer)
    figures = moved(run, other, tmp_path / "new", capsys)
    (_, before), (config, after) = weights_in(run), weights_in(tmp_path / "new")
    assert "head.bias" in figures["tables"] and after["head.bias"].shape == (figures["vocab"],)
    old, new = (load_tokenizer(f / "tokenizer.json").get_vocab() for f in (run, other))
    shared = [(old[word], new[word]) for word in old.keys() & new.keys()]
    assert len(shared) > 256 and all(
        before["head.bias"][a] == after["head.bias"][b] for a, b in shared
    )


@pytest.mark.lab
def test_training_continues_from_it(run, other, tmp_path, capsys):
    moved(run, other, tmp_path / "new", capsys)
    encode = ["tokenizer", "encode", str(other / "texts.jsonl"), "--tokenizer", str(other)]
    assert invoke([*encode, "-o", str(tmp_path / "shards"), "--val-fraction", "0.1", "-q"]) == 0
    train = ["pretrain", str(tmp_path / "shards"), "-o", str(tmp_path / "on"), "-q"]
    settings = ["--model", str(tmp_path / "new"), "--steps", "1", "--rows", "2", "--context", "32"]
    assert invoke([*train, *settings]) == 0
    assert (tmp_path / "on" / "checkpoints").is_dir()


@pytest.mark.lab
def test_models_that_cannot_be_transplanted_are_refused(run, other, tmp_path, capsys):
    arguments = ["model", "transplant", str(run), str(other), "-o", str(tmp_path / "x")]
    assert invoke([*arguments, "--init", "focus"]) == 2
    assert "give --on CORPUS" in capsys.readouterr().err
    moved(run, other, tmp_path / "x", capsys)
    assert invoke(arguments) == 2
    assert "holds a model already" in capsys.readouterr().err
    with pytest.raises(LlmcurateError, match=r"embedding\.weight: 3 rows for"):
        transplant(run, tmp_path / "y", other / "tokenizer.json", lambda table: table[:3])
