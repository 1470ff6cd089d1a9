"""Checkpoints of version 3, in which settings stood side by side and weights had other names, as
that version wrote them: the third step after two of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from train.model.decoder import Decoder
from train.optim.optimizers import optimizers
from train.runs.checkpoint import load_model, load_optimizer, load_plan, newest, verify

FOLDER = Path(__file__).parent / "version3"


@pytest.mark.parametrize("name", ["gpt", "parallel", "t5"])
def test_a_run_of_version_3_goes_on_as_it_would_have(name):
    checkpoint = newest(FOLDER / name / "checkpoints")
    verify(checkpoint)
    plan = load_plan(checkpoint)
    assert plan.version == 3
    model = Decoder(plan.model)
    optimizer = optimizers(model, plan.train)
    load_model(checkpoint, model)
    load_optimizer(checkpoint, model, optimizer)
    tokens = torch.arange(16).view(2, 8)
    model(tokens).square().mean().backward()
    optimizer.rate(1e-2)
    optimizer.step()
    after = load_file(FOLDER / name / "after.safetensors")["logits"]
    torch.testing.assert_close(model(tokens), after)
