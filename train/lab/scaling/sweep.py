"""Sweep for a scaling law: train several sizes of a model at several budgets.

For each budget and amount of distinct text, sizes are compared (train/evaluate/compare.py) in a
folder of their own. So finished runs are not repeated. The learning rate of each run reaches its
floor at the run's end, as Hoffmann et al. 2022 advise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmcurate.base.disk.process import cores
from llmcurate.base.errors import UsageError
from llmcurate.base.settings import change
from train.config import TrainConfig
from train.evaluate.compare import Budget, Variant, compare
from train.lab.scaling.fit import REPEATED, Run, SizeCurve, Sweep
from train.loop.training import Progress
from train.model.presets import preset

_SIZE = re.compile(r"([1-9]\d*)x([1-9]\d*)")


def ladder(sizes: str, model: str = "tiny", changes: dict[str, Any] | None = None) -> list[Variant]:
    """Return variants of a preset for a list such as `32x2,64x2` of hidden sizes and layers. Heads,
    key heads and the feed-forward are in proportion to the hidden size. Raises
    ``LlmcurateError``."""
    base = change(preset(model), changes or {}, "model")
    size, variants = base.attention.head_dim, []
    for name in sizes.split(","):
        match = _SIZE.fullmatch(name.strip())
        if match is None:
            raise UsageError(f"size {name!r}: write the hidden size and the layers, such as 64x2")
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
        variants.append(Variant(name=match[0], model=model, changes=(changes or {}) | own))
    return variants


def parts_of(
    budgets: Sequence[Budget], unique_tokens: Sequence[int]
) -> list[tuple[Budget, int | None]]:
    """Pair each budget, smallest first, with the whole corpus (None) and with each amount of
    distinct text. A budget in tokens is paired only with amounts smaller than itself."""
    ordered = sorted(budgets, key=lambda each: each.flops or each.tokens or 0)
    return [
        (budget, unique)
        for budget in ordered
        for unique in (None, *sorted(set(unique_tokens)))
        if unique is None or budget.tokens is None or unique < budget.tokens
    ]


def sweep(
    shards: Path,
    out: Path,
    variants: list[Variant],
    *,
    budgets: list[Budget],
    train: TrainConfig,
    unique_tokens: Sequence[int] = (),
    seeds: int = 1,
    on_run: Callable[[str, int], None] = lambda name, seed: None,
    on_progress: Progress | None = None,
) -> Sweep:
    """Train every variant at every pair (budget, unique tokens) of ``parts_of``, with ``seeds``
    seeds. A restarted sweep resumes. Raises ``LlmcurateError``."""
    points: list[Run] = []
    curves: list[SizeCurve] = []
    for budget, unique in parts_of(budgets, unique_tokens):
        kind = "tokens" if budget.flops is None else "flops"
        amount = f"{getattr(budget, kind):g}"
        part = "" if unique is None else f"-unique-{unique:g}"

        def begun(name: str, seed: int, at: str = f"at {amount} {kind}{part}") -> None:
            on_run(f"{name} {at}", seed)

        figures = compare(
            shards,
            out / f"{kind}-{amount}{part}",
            variants,
            train=train if unique is None else replace(train, unique_tokens=unique),
            budget=budget,
            seeds=seeds,
            on_run=begun,
            on_progress=on_progress,
        )
        for row in figures.variants:
            points += [
                Run(
                    name=row.name,
                    parameters=row.parameters,
                    non_embedding=row.non_embedding,
                    tokens=row.tokens,
                    flops=row.flops,
                    loss=run.held_out_loss,
                    seed=run.seed,
                    seconds=run.seconds,
                    epochs=run.epochs,
                    unique_tokens=round(row.tokens / max(1.0, run.epochs)),
                )
                for run in row.runs
            ]
            if row.epochs <= REPEATED:
                losses = [(tokens * row.flops_per_token, loss) for tokens, loss in row.curve]
                curves.append(SizeCurve(row.name, row.parameters, losses))
    return Sweep(
        shards=str(shards),
        seeds=figures.seeds,
        train=figures.train | {"unique_tokens": train.unique_tokens},
        device=figures.device,
        seconds=sum(point.seconds for point in points),
        points=points,
        curves=curves,
        cores=cores(),
    )
