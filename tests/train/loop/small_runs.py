"""Small models with weights spread, and runs that hold them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from llmcurate.base.disk.sealed_json import checksum, encode_json, seal, unseal
from train.config import TrainConfig
from train.model.config import ModelConfig
from train.model.decoder import Decoder
from train.runs.checkpoint import Keep, State, write
from train.runs.plan import Plan
from train.runs.tensors import tensor_checksum


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


def seal_again(checkpoint: Path) -> None:
    """Make the checksums fit the files as they are now, as somebody does who wants them read."""
    path = checkpoint / "state.json"
    values = unseal(json.loads(path.read_bytes()))
    sums = {"config.json": checksum((checkpoint / "config.json").read_bytes())}
    for file in checkpoint.glob("*.safetensors"):
        sums[file.name] = {k: tensor_checksum(v) for k, v in load_file(file).items()}
    tokenizer = checkpoint.parent.parent / "tokenizer.json"
    sums["tokenizer.json"] = checksum(tokenizer.read_bytes())
    path.write_bytes(encode_json(seal(values | {"sums": sums})))


def trained(folder: Path, model: Decoder, tokenizer: Path, **settings: Any) -> Path:
    """A run's folder with one checkpoint."""
    train = TrainConfig(context=8, **settings)
    plan = Plan(model=model.config, train=train, shards="0" * 64)
    weights = {name: value.contiguous() for name, value in model.state_dict().items()}
    state = State(step=7, tokens=99)
    write(folder / "checkpoints", plan, state, {"model": weights}, Keep(newest=1))
    (folder / "tokenizer.json").write_bytes(tokenizer.read_bytes())
    return folder
