"""The score of a file: errors of models that are fine-tuned on half of its lines."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from llmcurate.base.errors import UsageError
from tests.train.lab.tasks.animals import animals, write
from train.config import TrainConfig
from train.evaluate.scores import score_of
from train.lab.tasks.predict import predict
from train.loop.pretrain import pretrain
from train.loop.start import model_for
from train.objective_settings import Task

pytestmark = pytest.mark.lab
SMALL = {"layers": 1, "hidden": 32, "feed_forward.width": 32}
TRAIN = {"rows": 2, "context": 48, "device": "cpu", "seed": 0}


@pytest.fixture(scope="module")
def run(shard_folder, tmp_path_factory):
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("tuned") / "run"
    pretrain(shard_folder, out, model="tiny", changes=SMALL, train=TrainConfig(steps=2, **TRAIN))
    return out


@pytest.mark.parametrize("kind", ["classify", "token", "span"])
def test_values_are_the_wrong_labels_of_the_half_that_was_not_learned(kind, run, tmp_path):
    file = animals(tmp_path, 60)[kind]
    score = score_of(str(file), 4)
    learned, asked = score.halves
    sizes, values = score.items(file).sizes, score.values(run, {kind: file}, TRAIN)[kind]
    assert {s.key for s in learned}.isdisjoint(s.key for s in asked)
    assert len(learned) + len(asked) == 60 and 15 < len(asked) < 45
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    halves = [[lines[sample.line - 1] for sample in half] for half in (learned, asked)]
    parts = [write(tmp_path / f"{n}.jsonl", half) for n, half in enumerate(halves)]
    settings = TrainConfig(
        objective=Task(kind=kind), steps=4, lr=0.0005, warmup=0, held_out=0.001, eval_every=4,
        **TRAIN | {"rows": 8},
    )  # fmt: skip
    pretrain(parts[0], tmp_path / "model", model=str(run), train=settings)
    wrong = []
    for line in predict(tmp_path / "model", parts[1], which="last", device="cpu").lines:
        found = line["prediction"]
        if kind == "token":
            wrong.append(sum(a != b for a, b in zip(line["labels"], found["labels"], strict=True)))
        else:
            answer = {"classify": "label", "span": "answer"}[kind]
            wrong.append(int(line[answer] != found[answer]))
    assert values.tolist() == wrong and (values <= sizes).all()
    assert sizes.tolist() == [len(line.get("labels", [0])) for line in halves[1]]
    assert not (run / "tuned").exists()


def test_a_task_that_one_word_decides_is_learned_and_its_values_are_kept(
    run, tmp_path, monkeypatch
):
    file = animals(tmp_path, 200)["token"]
    score = score_of(str(file), 80)
    values, sizes = score.values(run, {"t": file}, TRAIN)["t"], score.items(file).sizes
    named = [label != "O" for sample in score.halves[1] for label in sample.labels]
    assert score.factor * values.sum() / sizes.sum() < 100 * np.mean(named) / 2
    monkeypatch.setattr("train.lab.scores.tuned.pretrain", None)  # nothing is trained again
    assert np.array_equal(score_of(str(file), 80).values(run, {"t": file}, TRAIN)["t"], values)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([{"text": "a"}], "its first line has none of label, labels, answer"),
        ([{"text": "a", "label": 1}, {"text": "b"}], "f.jsonl:2: a label must be"),
        (
            [{"text": f"text {n}", "label": f"label {n}"} for n in range(8)],
            "is only in the half to be predicted",
        ),
    ],
)
def test_a_file_that_cannot_be_halved_is_refused(lines, message, tmp_path):
    file = write(tmp_path / "f.jsonl", lines)
    model, train, _ = model_for("tiny", TrainConfig())
    with pytest.raises(UsageError, match=message):
        score_of(str(file)).check("m", model, train)


def test_an_encoder_decoder_is_refused(tmp_path):
    file = animals(tmp_path, 20)["classify"]
    model, train, _ = model_for("t5-tiny", TrainConfig())
    with pytest.raises(UsageError, match=r"m: an encoder-decoder has no head.*give --score spans"):
        score_of(str(file)).check("m", model, train)
