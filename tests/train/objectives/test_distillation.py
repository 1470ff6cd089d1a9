"""A teacher's predictions: the divergence and its gradient, and a model that comes nearer."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change
from tests.train.data.feed_settings import MODEL, PLAIN
from tests.train.loop.small_runs import build, trained
from train.loop.pretrain import pretrain
from train.model.heads import HeadWeights
from train.objectives.example import IGNORED
from train.objectives.losses import distance


@pytest.mark.parametrize("softcap", [None, 0.5])
def test_the_divergence_and_its_gradients_are_those_of_the_whole_logits(softcap):
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(50, 8, generator=draw).requires_grad_()
    y = torch.randn(50, 12, generator=draw)
    head, teacher = nn.Linear(8, 97), nn.Linear(12, 97)
    targets = torch.randint(97, (50,), generator=draw)
    targets[::7] = IGNORED
    taught = HeadWeights(teacher.weight, teacher.bias, softcap)
    parts = (HeadWeights(head.weight, head.bias, softcap), y, taught, targets)
    found = distance(x, *parts, chunk=16, temperature=3.0)
    pairs = ((head, x), (teacher, y))
    logits = [m(z) if softcap is None else softcap * torch.tanh(m(z) / softcap) for m, z in pairs]
    own, theirs = ((each / 3.0).log_softmax(-1) for each in logits)
    each = (theirs.exp() * (theirs - own)).sum(-1)[targets != IGNORED]
    expected = 9.0 * each.sum()
    torch.testing.assert_close(found, expected)
    leaves = (x, head.weight, head.bias)
    gradients = torch.autograd.grad(found, leaves)
    torch.testing.assert_close(gradients, torch.autograd.grad(expected, leaves))
    assert F.kl_div(own, theirs, log_target=True) > 0


def last(folder):
    return json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])


def test_a_model_comes_nearer_to_its_teacher_and_a_stopped_run_continues(shard_folder, tmp_path):
    torch.set_num_threads(1)
    model = change(MODEL, {"hidden": 32, "attention.heads": 4}, "model")
    teacher = trained(tmp_path / "teacher", build(model), shard_folder / "tokenizer.json")
    plan = dataclasses.replace(
        PLAIN, steps=12, lr=0.01, teacher=str(teacher), teacher_weight=1.0, log_every=1
    )
    pretrain(shard_folder, tmp_path / "whole", model=MODEL, train=plan)
    lines = (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()
    apart = [json.loads(line)["distillation"] for line in lines]
    assert apart[-1] < 0.9 * apart[0]

    class Stop(Exception):
        pass

    def stop(line):
        if line["step"] == 5:
            raise Stop

    with pytest.raises(Stop):
        pretrain(shard_folder, tmp_path / "out", model=MODEL, train=plan, on_progress=stop)
    moved = dataclasses.replace(plan, teacher=str(teacher.rename(tmp_path / "moved")))
    pretrain(shard_folder, tmp_path / "out", model=MODEL, train=moved)
    assert last(tmp_path / "out")["loss"] == last(tmp_path / "whole")["loss"]
    more = dataclasses.replace(moved, steps=14, schedule="constant")
    other = trained(tmp_path / "other", build(MODEL), shard_folder / "tokenizer.json")
    with pytest.raises(LlmcurateError, match=r"teacher's weights: [0-9a-f]{12}, not [0-9a-f]{12}"):
        again = dataclasses.replace(more, teacher=str(other))
        pretrain(shard_folder, tmp_path / "out", model=MODEL, train=again)


def test_a_teacher_of_another_vocabulary_is_refused(shard_folder, tmp_path):
    model = build(change(MODEL, {"vocab": 320}, "model"))
    teacher = trained(tmp_path / "teacher", model, shard_folder / "tokenizer.json")
    plan = dataclasses.replace(PLAIN, teacher=str(teacher))
    with pytest.raises(LlmcurateError, match=r"teacher .*: has 320 tokens, the model 300"):
        pretrain(shard_folder, tmp_path / "out", model=MODEL, train=plan)
