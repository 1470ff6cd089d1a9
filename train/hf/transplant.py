"""A trained model with another vocabulary: its tables of tokens exchanged, all else as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from llmcurate.base.disk.atomic import write_atomic
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed, UsageError
from train.config import TrainConfig
from train.data.shards import load_tokenizer
from train.hf.load import load
from train.model.convert import OF_TOKENS
from train.runs.checkpoint import Keep, Snapshot, State, complete, load_plan, newest, write
from train.runs.plan import Plan

# (a table: float32[old tokens, width], its number) to float32[new tokens, width].
Rows = Callable[[npt.NDArray[np.float32], int], npt.NDArray[np.float32]]


def transplant(folder: Path, out: Path, tokenizer: Path, rows: Rows) -> dict[str, Any]:
    """The model of ``folder``, ours or of transformers, as a checkpoint of step 0 in ``out``, with
    ``tokenizer`` (a tokenizer.json) in place of its own; returns what was written. ``rows``: what
    becomes of each table that has a row a token. Raises ``LlmcurateError``.
    """
    if complete(out / "checkpoints"):
        raise UsageError(f"{out} holds a model already: give another folder")
    config, weights = load(folder)
    checkpoint = newest(folder / "checkpoints")
    vocab = max(load_tokenizer(tokenizer).get_vocab(with_added_tokens=True).values()) + 1
    changed: list[str] = []
    for name, weight in weights.items():
        if OF_TOKENS.fullmatch(name) and len(weight) == config.vocab:
            table = weight.float().reshape(config.vocab, -1).numpy()
            exchanged = torch.from_numpy(rows(table, len(changed)))
            if len(exchanged) != vocab:
                raise RunFailed(
                    f"{name}: {counted(len(exchanged), 'row')} for {counted(vocab, 'token')}"
                )
            weights[name] = exchanged.reshape(vocab, *weight.shape[1:])
            changed.append(name)
    settings = TrainConfig(context=min(config.context, TrainConfig.context))
    if checkpoint is not None:
        settings = replace(settings, objective=load_plan(checkpoint).train.objective)
    plan = Plan(model=replace(config, vocab=vocab), train=settings, shards="another tokenizer")
    out.mkdir(parents=True, exist_ok=True)
    write_atomic(out / "tokenizer.json", tokenizer.read_bytes())
    snapshot = Snapshot(plan=plan, state=State(step=0, tokens=0), tensors={"model": weights})
    final = write(out / "checkpoints", snapshot, Keep(newest=1))
    return {"vocab": vocab, "tables": changed, "checkpoint": f"checkpoints/{final.name}"}
