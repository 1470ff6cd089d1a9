"""Sweep for a scaling law: the sizes of a model, the budgets of its runs, and their results.
The learning rate of each run reaches its floor at the run's end, as Hoffmann et al. 2022 advise.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llmcurate.base.disk.sealed_json import read_json
from llmcurate.base.errors import UsageError
from llmcurate.base.settings import change
from train.lab.scaling.fit import REPEATED, Run, SizeCurve
from train.measure.accounting import non_embedding
from train.model.presets import preset
from train.runs.checkpoint import load_plan, newest
from train.runs.curves import loss_curve

_SIZE = re.compile(r"([1-9]\d*)x([1-9]\d*)")


def ladder(
    sizes: str, model: str = "tiny", changes: dict[str, Any] | None = None
) -> dict[str, dict[str, Any]]:
    """Return the changes to a preset for each size in a list such as `32x2,64x2` (hidden size x
    layers). Heads, key-value heads and the feed-forward are in proportion to the hidden size.
    Raises ``LlmcurateError`` for a wrong size."""
    base = change(preset(model), changes or {}, "model")
    size, found = base.attention.head_dim, dict[str, dict[str, Any]]()
    for name in sizes.split(","):
        match = _SIZE.fullmatch(name.strip())
        if match is None:
            raise UsageError(f"size {name!r}: write the hidden size and the layers, such as 64x2")
        if match[0] in found:
            raise UsageError(f"size {match[0]} is given twice: leave one out")
        hidden, layers = map(int, match.groups())
        heads, rest = divmod(hidden, size)
        if rest:
            raise UsageError(
                f"size {name}: the hidden size must be a multiple of {size}, the head size"
            )
        shared = base.attention.heads // base.attention.kv_heads
        own = {
            "hidden": hidden,
            "layers": layers,
            "attention.heads": heads,
            "attention.kv_heads": heads // shared if heads % shared == 0 else 1,
            "feed_forward.width": max(1, base.feed_forward.width * hidden // base.hidden),
        }
        found[match[0]] = (changes or {}) | own
    return found


def parts_of(
    kind: str, amounts: Sequence[float], unique_tokens: Sequence[int]
) -> list[tuple[float, int | None]]:
    """Pair each budget, smallest first, with the whole corpus (None) and with each of
    ``unique_tokens``. A budget in tokens is paired only with numbers below it."""
    return [
        (amount, unique)
        for amount in sorted(amounts)
        for unique in (None, *sorted(set(unique_tokens)))
        if unique is None or kind == "flops" or unique < amount
    ]


def found_by(name: str, folders: Sequence[Path]) -> tuple[list[Run], list[SizeCurve]]:
    """Return a point (parameters, tokens, loss) for each finished run in ``folders``, and a list of
    one curve, the mean loss curve of the runs. The runs have the same budget and the same size,
    called ``name``. If the runs read text more than once, the list is empty."""
    summaries = [read_json(folder / "train.json") for folder in folders]
    checkpoint = newest(folders[0] / "checkpoints")
    assert checkpoint is not None
    plan, first = load_plan(checkpoint), summaries[0]
    step = plan.train.rows * plan.train.context
    tokens, per_token = first["steps"] * step, first["flops_per_token"]
    points = [
        Run(
            name=name,
            parameters=summary["parameters"],
            non_embedding=non_embedding(plan.model),
            tokens=tokens,
            flops=tokens * per_token,
            loss=summary["held_out_loss"],
            seed=summary["plan"]["train"]["seed"],
            seconds=summary["timing"]["seconds"],
            epochs=summary["epochs"],
            unique_tokens=round(tokens / max(1.0, summary["epochs"])),
        )
        for summary in summaries
    ]
    losses = [(read * per_token, loss) for read, loss in loss_curve(list(folders), step)]
    curve = SizeCurve(name, first["parameters"], losses)
    return points, [curve] if first["epochs"] <= REPEATED else []
