"""Facts about a model that several processes share: each process calls these functions."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch

from train.config import TrainConfig
from train.data.shards import read_shards
from train.loop.distributed import Ranks, place_model, ranks
from train.loop.evaluate import Scoring, Text
from train.loop.start import load_start_weights, start_of
from train.model.config import ModelConfig
from train.model.decoder import Decoder
from train.runs.checkpoint import load_model, newest
from train.split import local

HALF = TrainConfig(parallel="fsdp", precision="bf16", rows=2, device="cpu")


def facts(config: ModelConfig, run: Path, shards: Path) -> dict[str, Any]:
    """All of a decoder, and of a run of it."""
    return {
        "differ": differences(config, run),
        "dtypes": dtypes(config),
        "sums": sums(config),
        "scores": scores(config, shards),
    }


def differences(config: ModelConfig, run: Path) -> list[str]:
    """Weights that are not, bit for bit, what one process begins with, or finds in parts."""
    plan = TrainConfig(parallel="fsdp", rows=2, device="cpu")
    start = start_of(run)
    alone = Decoder(config)
    with ranks(plan) as group:
        model = place_model(partial(Decoder, config), plan, group)
    differ = []
    last = newest(start.folder / "checkpoints")
    fills = (
        lambda m: m.initialise(3),
        lambda m: load_start_weights(start, m),
        lambda m: load_model(last, m),
    )
    for fill in fills:
        for each in (alone, model):
            fill(each)
        for (name, own), whole in zip(model.named_parameters(), alone.parameters(), strict=True):
            same = own.to_local().numel() < whole.numel() and torch.equal(own.full_tensor(), whole)
            differ += [] if same else [name]
        for (name, own), whole in zip(model.named_buffers(), alone.buffers(), strict=True):
            differ += [] if torch.equal(own, whole) else [name]
    return differ


def dtypes(config: ModelConfig) -> list[str]:
    """Of the first block's weights, gathered, and of the embedding."""
    with ranks(HALF) as group:
        model = place_model(partial(Decoder, config), HALF, group)
    model.initialise(0)
    block, seen = model.stack.blocks[0], []
    block.register_forward_pre_hook(
        lambda *_: seen.extend(str(w.dtype) for w in (*block.parameters(), model.embedding.weight))
    )
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        model.features(torch.zeros(1, 4, dtype=torch.long))
    return seen


def sums(config: ModelConfig) -> list[int]:
    """How often two processes that share blocks add up, forward and backward; their weights."""
    from torch.distributed.tensor.debug import CommDebugMode

    plan = TrainConfig(tensor=2, rows=2, device="cpu")
    with ranks(plan) as group:
        model = place_model(partial(Decoder, config), plan, group)
    model.initialise(0)
    with CommDebugMode() as forward:
        out = model.features(torch.zeros(1, 4, dtype=torch.long), draws=torch.ones(1).long())
    with CommDebugMode() as backward:
        out.sum().backward()
    own = sum(local(weight).numel() for weight in model.stack.blocks.parameters())
    return [forward.get_total_counts(), backward.get_total_counts(), own]


def scores(config: ModelConfig, shards: Path) -> list[list[float]]:
    """Of texts, by one process, and by two that hold the model whole or in parts."""
    plan = TrainConfig(parallel="fsdp", rows=2, device="cpu")
    whole = Decoder(config)
    with ranks(plan) as group:
        split = place_model(partial(Decoder, config), plan, group)
    text, alone = Text(read_shards(shards), 32), Ranks(device=torch.device("cpu"))
    per_text = []
    for model, by in ((whole, alone), (whole, group), (split, group)):
        model.initialise(0)
        how = Scoring(by, 3, "fp32")
        per_text.append(text.nats(model, how).tolist())
    return per_text


def experts(config: ModelConfig, shared: bool) -> dict[str, Any]:
    """Of the first block: the dtypes that a router and experts compute in, how many are here."""
    plan = TrainConfig(
        parallel="fsdp", precision="bf16", rows=2, device="cpu", expert_parallel=shared
    )
    with ranks(plan) as group:
        placed = place_model(partial(Decoder, config), plan, group)
    placed.initialise(0)
    layer, seen = placed.stack.blocks[0].feed_forward, {}
    layer.router.register_forward_hook(
        lambda *_: seen.update(
            router=str(layer.router.weight.dtype),
            up=str(layer.up.dtype),
            here=len(getattr(layer.up, "_local_tensor", layer.up)),
        )
    )
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        placed.features(torch.zeros(1, 4, dtype=torch.long))
    return seen
