"""Small models with weights spread, and runs that hold them."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from train.config import TrainConfig
from train.model.config import ModelConfig
from train.model.decoder import Decoder
from train.runs.checkpoint import Keep, Snapshot, State, write
from train.runs.plan import Plan


def build(config: ModelConfig) -> Decoder:
    """Weights, biases and norms spread, so that a swapped or forgotten one shows."""
    model = Decoder(config)
    model.initialise(0)
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            noise = torch.empty(weight.shape).normal_(0, 0.3, generator=draw)
            weight.add_(noise) if weight.dim() == 1 else weight.mul_(2.0)
    return model.eval()


def without_sums(checkpoint: Path) -> Path:
    """As version 2 wrote it, or somebody who wants it read: with nothing to compare it with."""
    path = checkpoint / "state.json"
    values = json.loads(path.read_bytes())
    del values["checksum"], values["sums"]
    path.write_text(json.dumps(values | {"version": 2}))
    return checkpoint


def trained(folder: Path, model: Decoder, tokenizer: Path) -> Path:
    """A run's folder with one checkpoint."""
    plan = Plan(model=model.config, train=TrainConfig(context=8), shards="0" * 64)
    weights = {name: value.contiguous() for name, value in model.state_dict().items()}
    snapshot = Snapshot(plan=plan, state=State(step=7, tokens=99), tensors={"model": weights})
    write(folder / "checkpoints", snapshot, Keep(newest=1))
    (folder / "tokenizer.json").write_bytes(tokenizer.read_bytes())
    return folder
