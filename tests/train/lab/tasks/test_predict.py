"""A fine-tuned model labels texts as it does in training, ours and through transformers' folder."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from curate.cli.app import invoke
from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change
from tests.train.conftest import WORDS
from tests.train.lab.tasks.animals import animals, settings, write
from tests.train.loop.small_encoders import small
from train.evaluate.judge import open_model
from train.hf.export import export
from train.hf.load import import_model
from train.lab.tasks import labelled
from train.lab.tasks.predict import predict
from train.loop.pretrain import pretrain
from train.objective_settings import Auto


@pytest.fixture(scope="module")
def trained(shard_folder, tmp_path_factory):
    """A folder of a model for each task, and the file that it was trained on."""
    base = tmp_path_factory.mktemp("trained")
    files, runs = animals(base, 200), {}
    for kind, path in files.items():
        train = settings(kind, shard_folder, context=48, steps=60)
        model = change(small("bert-tiny"), {"context": 48}, "model")
        runs[kind] = base / f"run-{kind}", path
        pretrain(path, runs[kind][0], model=model, train=train)
    return runs


def test_predictions_agree_as_the_run_says(trained, tmp_path):
    for kind, (run, path) in trained.items():
        done = predict(run, path, batch_rows=3)
        assert len(done.lines) == done.figures["samples"] == 200
        held = json.loads((run / "train.json").read_bytes())["held_out_terms"]
        assert set(held) < set(done.figures)
        if kind != "span":
            assert done.figures["accuracy"] > 0.85
        export(run, tmp_path / kind)
        again = predict(tmp_path / kind, path, context=48)
        same = [a["prediction"] == b["prediction"] for a, b in zip(done.lines, again.lines)]  # noqa: B905
        assert sum(same) > 150, kind  # probabilities differ by their rounding
        assert again.figures == pytest.approx(done.figures, abs=0.02)


def test_each_task_says_its_own(trained, tmp_path):
    run, path = trained["token"]
    first = predict(run, path).lines[0]
    assert len(first["prediction"]["labels"]) == len(first["tokens"])
    assert all(0 < share <= 1 for share in first["prediction"]["probabilities"])
    run, path = trained["span"]
    for line in predict(run, path).lines:
        answer, start = line["prediction"]["answer"], line["prediction"]["start"]
        assert line["text"][start : start + len(answer)] == answer
    run, path = trained["choice"]
    lines = predict(run, path).lines
    assert sum(line["prediction"]["choice"] == line["label"] for line in lines) > 170
    assert all(1 / 3 < line["prediction"]["probability"] <= 1 for line in lines)
    run, _ = trained["classify"]
    plain = write(tmp_path / "plain.jsonl", [{"text": "the cat sat", "id": 7}, {"text": "a mat"}])
    done = predict(run, plain)
    assert [line["prediction"]["label"] for line in done.lines] == ["some", "none"]
    assert done.lines[0]["id"] == 7 and set(done.figures) == {"samples", "context"}


@torch.no_grad()
def test_transformers_reads_an_exported_models_texts_as_predict_does(trained, tmp_path):
    transformers = pytest.importorskip("transformers")
    for kind in ("classify", "span"):
        run, path = trained[kind]
        export(run, tmp_path / kind)
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / kind)
        encoder = labelled.Encoder(run / "tokenizer.json", 48, read_last=False)
        for sample in labelled.read_samples(path, kind)[:9]:
            window = encoder.windows(kind, [sample], ("none", "some"))[0]
            ids = tokenizer(*sample.texts)
            assert ids.input_ids == window.tokens.tolist()
            own = Tokenizer.from_file(str(tmp_path / kind / "tokenizer.json"))
            assert own.encode(*sample.texts).type_ids == window.segments.tolist()
    run, path = trained["classify"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "classify")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "classify")
    for line in predict(run, path).lines[:9]:
        ids = tokenizer(line["text"], return_tensors="pt")
        said, found = line["prediction"], model.eval()(**ids).logits[0].softmax(-1)
        assert said["label"] == model.config.id2label[int(found.argmax())]
        assert said["probability"] == pytest.approx(float(found.max()), abs=1e-5)


@torch.no_grad()
def test_a_transformers_model_reads_what_its_tokenizer_puts_around_a_text(tmp_path):
    transformers = pytest.importorskip("transformers")
    names = ["<|endoftext|>", *WORDS]
    tokenizer = Tokenizer(WordLevel({name: n for n, name in enumerate(names)}, names[0]))
    tokenizer.pre_tokenizer = Whitespace()
    tokens = dict.fromkeys(("bos_token", "eos_token", "pad_token"), names[0])
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **tokens)
    ids = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), 0)
    shape = {"vocab_size": len(names), "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32}
    torch.manual_seed(1)
    config = transformers.GPT2Config(**shape, **ids, num_labels=3)
    model = transformers.GPT2ForSequenceClassification(config).eval()
    for folder in (theirs, model):
        folder.save_pretrained(tmp_path / "hf")
    import_model(tmp_path / "hf", tmp_path / "run")
    lines = [{"text": "the cat sat"}, {"text": "the dog"}, {"text": "the", "pair": "red cat"}]
    path = write(tmp_path / "lines.jsonl", lines)
    for folder in (tmp_path / "hf", tmp_path / "run"):
        for line in predict(folder, path).lines:
            texts = [line[name] for name in ("text", "pair") if name in line]
            found = model(theirs(*texts, return_tensors="pt").input_ids).logits[0].softmax(-1)
            assert line["prediction"]["probability"] == pytest.approx(float(found.max()), abs=1e-5)


def test_the_command_writes_the_lines(trained, tmp_path, capsys):
    run, path = trained["classify"]
    out = tmp_path / "out.jsonl"
    assert invoke(["predict", str(run), str(path), "-o", str(out)]) == 0
    assert re.search(r"out\.jsonl: samples 200, accuracy [01]\.\d+, macro", capsys.readouterr().out)
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert len(lines) == 200 and "prediction" in lines[0]


def test_predict_writes_over_no_file(trained, capsys):
    run, path = trained["classify"]
    before = path.read_bytes()
    assert invoke(["predict", str(run), str(path), "-o", str(path)]) == 2
    assert f"{path.name} exists already: give a new file" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_inputs_that_cannot_be_predicted_are_a_one_line_error(trained, shard_folder, tmp_path):
    run, path = trained["classify"]
    with pytest.raises(LlmcurateError, match="context is 99, the model's is 48"):
        predict(run, path, context=99)
    with pytest.raises(LlmcurateError, match=r"a\.jsonl:1: no key text; the line has tokens"):
        predict(run, write(tmp_path / "a.jsonl", [{"tokens": []}]))
    with pytest.raises(
        LlmcurateError, match="with a head for a task assigns no likelihood to a text"
    ):
        open_model(run)
    train = settings("classify", shard_folder, steps=1)
    plain = tmp_path / "plain"
    train = dataclasses.replace(train, objective=Auto(), tokenizer=None)
    pretrain(shard_folder, plain, model=small("modernbert-tiny"), train=train)
    with pytest.raises(LlmcurateError, match="has no head for a task"):
        predict(plain, path)
