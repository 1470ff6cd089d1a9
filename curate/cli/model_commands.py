"""`llmcurate model show` and `model list`, behind the CLI."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from curate.cli import model_text
from curate.cli.trained_commands import training
from curate.errors import UsageError

if TYPE_CHECKING:
    from train.model.config import ModelConfig


def show(
    model: str,
    *,
    gpu: str,
    rows: int,
    context: int | None,
    batch: int,
    vocab: int | None,
    precision: str,
    optimizer: str,
    recompute: bool,
    as_json: bool,
) -> None:
    """`llmcurate model show`."""
    if precision not in ("bf16", "fp32"):
        raise UsageError(f"--precision is {precision!r}: choose bf16 or fp32")
    with training():
        from train.measure.describe import describe, find_gpu
        from train.measure.estimate import STATES
        from train.model.presets import OWN

        if optimizer not in STATES:
            raise UsageError(f"--optimizer is {optimizer!r}: choose one of {', '.join(STATES)}")
        config = _config(model, vocab)
        facts = describe(
            config,
            device=find_gpu(gpu),
            rows=rows,
            context=context or min(config.context, 4096),
            batch=batch,
            precision=precision,
            optimizer=optimizer,
            recompute=recompute,
            preset=None if Path(model).is_dir() or model in OWN else model,
        )
    print(json.dumps(facts) if as_json else "\n".join(model_text.show(model, facts)))


def _config(model: str, vocab: int | None) -> ModelConfig:
    """A preset, or the configuration of a trained model."""
    import dataclasses

    from train.model.presets import PRESETS, preset
    from train.runs.checkpoint import load_plan, newest

    folder = Path(model)
    if model not in PRESETS and folder.is_dir():
        found = newest(folder / "checkpoints")
        if found is None:
            raise UsageError(f"{model}: no finished checkpoint in this folder")
        config = load_plan(found).model
        return dataclasses.replace(config, vocab=vocab or config.vocab)
    return preset(model, vocab=vocab)


def presets(as_json: bool) -> None:
    """`llmcurate model list`."""
    with training():
        from train.measure.accounting import parameters
        from train.measure.architecture import row
        from train.model.presets import PRESETS

        facts = []
        for name, build in PRESETS.items():
            config = build()
            facts.append((name, parameters(config), row(config)))
    if as_json:
        listed = [{"name": name, "parameters": total, **row} for name, total, row in facts]
        print(json.dumps(listed))
    else:
        print("\n".join(model_text.presets(facts)))
