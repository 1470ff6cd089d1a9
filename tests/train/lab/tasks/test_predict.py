"""A fine-tuned model labels texts as it does in training, ours and through transformers' folder."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from curate.cli.app import invoke
from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change
from tests.train.lab.tasks.animals import animals, settings, write
from tests.train.loop.small_encoders import small
from train.evaluate.judge import open_model
from train.hf.export import export
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


def test_the_command_writes_the_lines(trained, tmp_path, capsys):
    run, path = trained["classify"]
    out = tmp_path / "out.jsonl"
    assert invoke(["predict", str(run), str(path), "-o", str(out)]) == 0
    assert re.search(r"out\.jsonl: samples 200, accuracy [01]\.\d+, macro", capsys.readouterr().out)
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert len(lines) == 200 and "prediction" in lines[0]


def test_inputs_that_cannot_be_predicted_are_a_one_line_error(trained, shard_folder, tmp_path):
    run, path = trained["classify"]
    with pytest.raises(LlmcurateError, match="context is 99, the model's is 48"):
        predict(run, path, context=99)
    with pytest.raises(LlmcurateError, match=r"a\.jsonl:1: text must be a text"):
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
