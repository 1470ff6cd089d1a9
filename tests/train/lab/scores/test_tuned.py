"""The score of a file: errors of models that are fine-tuned on half of its lines."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from llmcurate.base.errors import UsageError
from llmcurate.base.tokenizer_file import load_tokenizer
from tests.train.lab.tasks.animals import animals, write
from train.config import TrainConfig
from train.evaluate.judge import load_judged
from train.evaluate.scores import score_of
from train.lab.tasks.predict import predict
from train.loop.pretrain import pretrain
from train.loop.start import model_for
from train.objective_settings import Pairs, Task

pytestmark = pytest.mark.lab
SMALL = {"layers": 1, "hidden": 32, "feed_forward.width": 32}
TRAIN = {"rows": 2, "context": 48, "device": "cpu", "seed": 0}


@pytest.fixture(scope="module")
def run(shard_folder, tmp_path_factory):
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("tuned") / "run"
    pretrain(shard_folder, out, model="tiny", changes=SMALL, train=TrainConfig(steps=2, **TRAIN))
    return out


@pytest.mark.parametrize("kind", ["classify", "token", "span", "choice"])
def test_values_are_the_wrong_labels_of_the_half_that_was_not_learned(
    kind, run, shard_folder, tmp_path
):
    if kind == "choice":
        run = tmp_path / "encoder"
        pretrain(shard_folder, run, model="bert-tiny", train=TrainConfig(steps=2, **TRAIN))
    file = animals(tmp_path, 60)[kind]
    score = score_of(str(file), 4)
    learned, asked = score.halves
    sizes, values = score.items(file).sizes, score.values(run, {kind: file}, TRAIN)[kind]
    assert {s.key for s in learned}.isdisjoint(s.key for s in asked)
    assert len(learned) + len(asked) == 60 and 15 < len(asked) < 45
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    halves = [[lines[sample.line - 1] for sample in half] for half in (learned, asked)]
    parts = [write(tmp_path / f"{n}.jsonl", half) for n, half in enumerate(halves)]
    parts[0].write_bytes(parts[0].read_bytes().rstrip(b"\n"))  # its digest orders the rows
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
            answer = {"classify": "label", "span": "answer", "choice": "choice"}[kind]
            asked = "label" if kind == "choice" else answer
            wrong.append(int(line[asked] != found[answer]))
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
        (
            [{"text": "a"}],
            "its first line is of no fine-tuning task: give lines with label",
        ),
        (
            [{"source": "a", "target": "b"}, {"source": "a"}],
            "f.jsonl:2: no key target",
        ),
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


@pytest.mark.parametrize("name", ["tiny", "t5-tiny"])
def test_a_target_is_scored_by_its_own_tokens_after_its_source(name, shard_folder, tmp_path):
    torch.set_num_threads(1)
    run, file = tmp_path / "run", tmp_path / "pairs.jsonl"
    changes = SMALL if name == "tiny" else {}
    pretrain(shard_folder, run, model=name, changes=changes, train=TrainConfig(steps=2, **TRAIN))
    texts = [f"{word} {number}" for number, word in enumerate("red blue green black".split() * 3)]
    write(file, [{"source": text, "target": text.upper() + "é"} for text in texts])
    score = score_of(str(file), 4)
    sizes, values = score.items(file).sizes, score.values(run, {"t": file}, TRAIN)["t"]
    learned, asked = ([texts[sample.line - 1] for sample in half] for half in score.halves)
    assert sizes.tolist() == [len(text) + 2 for text in asked] and len(learned) + len(asked) == 12
    assert (score.unit, score.factor) == ("bits per byte", 1 / np.log(2))

    parts = write(
        tmp_path / "learned.jsonl", [{"source": t, "target": t.upper() + "é"} for t in learned]
    )
    parts.write_bytes(parts.read_bytes().rstrip(b"\n"))  # its digest orders the rows
    settings = TrainConfig(
        objective=Pairs(), steps=4, lr=0.0005, warmup=0, held_out=0.001, eval_every=4,
        **TRAIN | {"rows": 8},
    )  # fmt: skip
    pretrain(parts, tmp_path / "model", model=str(run), train=settings)
    judged = load_judged(tmp_path / "model", device="cpu", which="last")
    tokenizer, end = load_tokenizer(judged.tokenizer_file), judged.model.special.end
    for text, value in zip(asked, values, strict=True):
        source, target = (
            tokenizer.encode(text).ids,
            [*tokenizer.encode(text.upper() + "é").ids, end],
        )
        with torch.no_grad():
            if name == "tiny":
                read = torch.tensor([[end, *source, *target[:-1]]])
                logits = judged.model(read)[0, len(source) :]
            else:
                start = torch.tensor([[end, *target[:-1]]])
                logits = judged.model(start, source=torch.tensor([[*source, end]]))[0]
        nats = -logits.log_softmax(-1)[range(len(target)), target].sum()
        assert value == pytest.approx(float(nats), rel=1e-4)


def test_pairs_that_do_not_fit_into_the_context_are_refused(run, tmp_path):
    pair = {"source": "where is the cat? " * 30, "target": "here"}
    file = write(
        tmp_path / "f.jsonl", [{**pair, "source": f"{n} {pair['source']}"} for n in "abcd"]
    )
    with pytest.raises(UsageError, match=r"no record has an answer within|raise --context"):
        score_of(str(file), 1).values(run, {"t": file}, TRAIN)


def test_an_encoder_writes_no_targets(tmp_path):
    file = write(tmp_path / "f.jsonl", [{"source": s, "target": "x"} for s in "abcd"])
    model, train, _ = model_for("bert-tiny", TrainConfig())
    with pytest.raises(UsageError, match="m: an encoder writes no targets: give a FILE with label"):
        score_of(str(file)).check("m", model, train)


def test_a_decoder_chooses_no_text(tmp_path):
    model, train, _ = model_for("tiny", TrainConfig())
    with pytest.raises(UsageError, match="m: only an encoder chooses among texts"):
        score_of(str(animals(tmp_path, 20)["choice"])).check("m", model, train)


def test_an_encoder_decoder_has_no_labels(tmp_path):
    file = animals(tmp_path, 20)["classify"]
    model, train, _ = model_for("t5-tiny", TrainConfig())
    with pytest.raises(UsageError, match=r"m: an encoder-decoder has no head.*give --score spans"):
        score_of(str(file)).check("m", model, train)
