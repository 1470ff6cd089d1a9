"""Fine-tuning: a head learns its task on JSON lines, resumes bit for bit, and keeps what it can."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change
from tests.train.conftest import sentences
from tests.train.lab.tasks.animals import animals, settings, write
from tests.train.loop.small_encoders import small
from train.config import TrainConfig
from train.generate import generate
from train.hf.family import our_shapes
from train.lab.tasks.labelled import read_samples, split
from train.loop.pretrain import pretrain
from train.loop.start import make_plan
from train.measure.accounting import parameters
from train.measure.step_documents import documents_of_step
from train.model.presets import preset
from train.objective_settings import Causal, Task
from train.runs.checkpoint import load_plan, newest, weights_of


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    return animals(tmp_path_factory.mktemp("labelled"), 300)


def decoder():
    sizes = {"hidden": 32, "layers": 2, "context": 33, "feed_forward.width": 64, "vocab": 302}
    heads = {"attention": {"heads": 4, "kv_heads": 4, "head_dim": 8}}
    return change(preset("tiny"), sizes | heads, "model")


CASES = [("bert-tiny", "classify"), ("modernbert-tiny", "token"), ("tiny", "classify")]


@pytest.mark.parametrize(
    ("name", "kind"), [pytest.param(*CASES[0], marks=pytest.mark.slow), *CASES[1:]]
)
def test_fine_tuning_learns_the_task_and_resumes_bit_for_bit(
    name, kind, files, shard_folder, tmp_path
):
    model = decoder() if name == "tiny" else small(name)
    train = settings(kind, shard_folder, ema=0.5)
    whole = pretrain(files[kind], tmp_path / "whole", model=model, train=train)
    figures = whole["held_out_terms"]
    assert figures["accuracy"] > 0.85 and figures["macro_f1"] > 0.7, figures
    assert set(figures) == {"accuracy", "macro_f1", "f1" if kind == "classify" else "entity_f1"}
    assert whole["bits_per_byte"] is None and whole["sample"] is None
    log = [json.loads(x) for x in (tmp_path / "whole/metrics.jsonl").read_text().splitlines()]
    assert log[-1]["held_out"]["terms"] == figures

    class Stop(Exception):
        pass

    def stop(line: dict) -> None:
        if line["step"] == 30:
            raise Stop

    with pytest.raises(Stop):
        pretrain(files[kind], tmp_path / "parts", model=model, train=train, on_progress=stop)
    again = pretrain(files[kind], tmp_path / "parts", model=model, train=train)
    first, second = (
        dict(weights_of(newest(tmp_path / run / "checkpoints")))  # type: ignore[arg-type]
        for run in ("whole", "parts")
    )
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert again["held_out_terms"] == figures
    step = documents_of_step(tmp_path / "whole", 3)
    assert step.documents[0].id.startswith(f"{kind}.jsonl:")


def test_an_answer_is_learned_too(files, shard_folder, tmp_path):
    train = settings("span", shard_folder, steps=120, context=48)
    model = change(small("bert-tiny"), {"context": 48}, "model")
    summary = pretrain(files["span"], tmp_path / "run", model=model, train=train)
    assert summary["last_loss"] < 0.5 * summary["first_loss"]
    figures = summary["held_out_terms"]
    assert 0.3 < figures["exact_match"] <= figures["f1"] <= 1


def test_a_trained_model_keeps_all_but_its_head(files, shard_folder, tmp_path):
    short = TrainConfig(steps=2, rows=4, context=33, device="cpu")
    for name, stays in (
        ("bert-tiny", {"head.pair.pool.weight": "head.transform.linear.weight"}),
        ("modernbert-tiny", {"head.transform.linear.weight": "head.transform.linear.weight"}),
    ):
        first = tmp_path / name
        pretrain(shard_folder, first, model=small(name), train=short)
        before = dict(weights_of(newest(first / "checkpoints")))
        train = dataclasses.replace(settings("classify", shard_folder, steps=1), tokenizer=None)
        train = dataclasses.replace(train, lr=1e-30, weight_decay=0.0)  # as it began
        out = tmp_path / f"{name}-classify"
        pretrain(files["classify"], out, model=str(first), train=train)
        after = dict(weights_of(newest(out / "checkpoints")))
        for ours, theirs in stays.items():
            torch.testing.assert_close(before[ours], after[theirs])
        for key, weight in before.items():
            if not key.startswith("head."):
                torch.testing.assert_close(weight, after[key])
        assert after["head.weight"].abs().sum() > 0 and len(after["head.weight"]) == 2
        config = load_plan(newest(out / "checkpoints")).model
        assert parameters(config) == sum(weight.numel() for weight in after.values())
        assert {key: tuple(w.shape) for key, w in after.items()} == our_shapes(config)
        # What has the head goes on with it, and knows its labels alone.
        pretrain(files["classify"], tmp_path / f"{name}-more", model=str(out), train=train)
        other = write(tmp_path / "other.jsonl", [{"text": "a", "label": c} for c in "xy"])
        with pytest.raises(LlmcurateError, match=r"other\.jsonl:1: the model has no label 'x'"):
            make_plan(other, str(out), train)
        with pytest.raises(LlmcurateError, match="a head for a task: set objective to classify"):
            make_plan(shard_folder, str(out), short)
    with pytest.raises(LlmcurateError, match="a model with a head for a task does not"):
        generate(out, "the")


def test_equal_texts_are_on_one_side_whatever_else_the_file_holds(files):
    samples = read_samples(files["classify"], "classify")
    chosen = split(samples, held_out=0.2, seed=0)
    assert 0.1 < chosen.mean() < 0.3
    sides: dict[str, set[bool]] = {}
    for sample, aside in zip(samples, chosen, strict=True):
        sides.setdefault(sample.key, set()).add(bool(aside))
    assert all(len(side) == 1 for side in sides.values())
    fewer = split(samples[:100], held_out=0.2, seed=0)
    assert (fewer == chosen[:100]).mean() > 0.98  # the bound is a share of all draws there can be
    assert (split(samples, held_out=0.2, seed=1) != chosen).any()


def test_incompatible_settings_are_a_one_line_error(files, shard_folder, tmp_path):
    plain = settings("classify", shard_folder)
    for changes, message in (
        ({"tokenizer": None}, "no tokenizer: give the folder of a model as --model"),
        ({"context_parallel": 3, "context": 36}, "context_parallel 3 with objective classify"),
        ({"teacher": "x"}, "teacher with objective classify"),
        ({"eval": {"own": "x"}}, "eval with objective classify"),
        ({"unique_tokens": 9}, "unique_tokens with objective classify"),
        (
            {"objective": Task(kind="span")},
            "classify.jsonl:1: no key question",
        ),
    ):
        with pytest.raises(LlmcurateError, match=message):
            train = dataclasses.replace(plain, **changes)
            make_plan(files["classify"], change(small("bert-tiny"), {"context": 36}, "m"), train)
    with pytest.raises(LlmcurateError, match="objective classify needs a JSONL file"):
        make_plan(shard_folder, small("bert-tiny"), plain)
    with pytest.raises(LlmcurateError, match="no manifest"):
        make_plan(files["classify"], decoder(), dataclasses.replace(plain, objective=Causal()))
    with pytest.raises(LlmcurateError, match="reads is 'middle'"):
        Task(kind="classify", reads="middle")


def test_a_decoder_with_a_head_writes_no_text(files, shard_folder, tmp_path):
    train = settings("classify", shard_folder, steps=1)
    pretrain(files["classify"], tmp_path / "run", model=decoder(), train=train)
    with pytest.raises(LlmcurateError, match="with a head for a task does not continue text"):
        generate(tmp_path / "run", sentences(0, 1))
