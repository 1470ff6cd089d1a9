"""LongRoPE's search for divisors of the rotary frequencies that suit a longer context (Ding et al.
2024, arXiv 2402.13753).

The search changes and combines positional interpolation, NTK and YaRN to lower the loss on long
texts. Divisors never fall from one pair of dimensions to the next. The paper's n-hat, a number of
first tokens with unchanged rotation, is left out, because config.json cannot express it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from llmcurate.base.settings import to_dict
from train.device import autocast
from train.evaluate.judge import Judged, shards_of
from train.loop.evaluate import Text
from train.model.config import ModelConfig
from train.model.decoder import Decoder
from train.model.position_settings import Rope, RopeScaling
from train.model.positions import Rotary, rope_frequencies
from train.objectives.example import Example, causal_row
from train.objectives.losses import token_losses

# Ding et al. 2024: algorithm 1, table 4 and appendix A; the first four are confirmed by Microsoft's
# code (evolution/default_hyper_params/dim_mono.json), which does not have the other two
POPULATION, TOP, MUTATIONS, CROSSOVERS = 64, 32, 16, 16
REDRAWN = 0.3  # share of the divisors that a mutation redraws
BEYOND = 1.25  # largest divisor, relative to the factor of the context
SEARCHED = ("kind", "factor", "original_context", "short", "long", "attention_factor")


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The result of a LongRoPE search: the best ``scaling`` for the longer ``context``, as in model
    settings. ``scores`` are nats per token with this scaling, without scaling, and with each
    scaling that the search started from, on the ``search`` texts and on the ``held_out`` texts.
    ``evaluations`` is the number of scalings tried."""

    context: int
    texts: dict[str, int]
    evaluations: int
    seed: int
    scores: dict[str, dict[str, float]]
    scaling: dict[str, str | float | list[float]]


def rope_search(
    judged: Judged,
    texts: Path,
    *,
    context: int,
    evaluations: int,
    rows: int,
    batch_rows: int = 8,
    precision: str = "auto",
    seed: int = 0,
    on_scored: Callable[[float], object] = bool,
) -> SearchResult:
    """Search for the best scaling, trying at most ``evaluations`` scalings. ``texts`` is a folder
    of shards that the model's tokenizer encoded. ``rows`` long texts are used for the search, and
    as many others are held out. ``on_scored`` gets the least loss so far after each try. Raises
    ``LlmcurateError``."""
    model, config = judged.model, judged.model.config
    start = older_scalings(config, context)
    text = Text(shards_of(judged, texts), context, judged.begin)
    chosen = dict(zip(("search", "held_out"), _long_windows(text, rows, seed), strict=True))
    examples = {name: _examples(text, numbers, model) for name, numbers in chosen.items()}

    def loss(scaling: RopeScaling | None, of: str) -> float:
        return _loss(model, with_context(config, scaling, context), examples[of], batch_rows)

    with autocast(model.embedding.weight.device, precision):
        scores = evolve(
            start.values(),
            lambda scaling: loss(scaling, "search"),
            evaluations=evaluations,
            seed=seed,
            on_scored=on_scored,
        )
        best = min(scores, key=scores.__getitem__)
        named = {"none": None, **start, "longrope": best}
        compared = {
            name: {of: loss(scaling, of) for of in chosen} for name, scaling in named.items()
        }
    return SearchResult(
        context=context,
        texts={of: len(numbers) for of, numbers in chosen.items()},
        evaluations=len(scores),
        seed=seed,
        scores=compared,
        scaling={name: to_dict(best)[name] for name in SEARCHED},
    )


def older_scalings(config: ModelConfig, context: int) -> dict[str, RopeScaling]:
    """Return positional interpolation, NTK and YaRN as LongRoPE scalings, by their names."""
    if not isinstance(config.position, Rope) or config.position.scaling is not None:
        raise UsageError(
            "the model's position is not rope, or is already scaled: give a model trained with"
            " plain rotary positions"
        )
    original = config.context
    if context <= original:
        raise UsageError(f"context is {context}, the model's is {original}: give a longer one")
    plain, _ = rope_frequencies(config)
    scalings = {}
    for kind in ("linear", "ntk", "yarn"):
        scaling = RopeScaling(kind=kind, factor=context / original, original_context=original)
        frequencies, factor = rope_frequencies(with_context(config, scaling, context))
        divisors = (plain.double() / frequencies.double()).numpy().round(6)
        scalings[kind] = RopeScaling(
            kind="longrope",
            factor=context / original,
            original_context=original,
            short=(1.0,) * len(divisors),
            long=tuple(np.maximum.accumulate(divisors).tolist()),
            attention_factor=factor,
        )
    return scalings


def with_context(config: ModelConfig, scaling: RopeScaling | None, context: int) -> ModelConfig:
    assert isinstance(config.position, Rope)
    return replace(config, context=context, position=replace(config.position, scaling=scaling))


def evolve(
    start: Iterable[RopeScaling],
    score: Callable[[RopeScaling], float],
    *,
    evaluations: int,
    seed: int,
    on_scored: Callable[[float], object] = bool,
) -> dict[RopeScaling, float]:
    """Evolve scalings from ``start`` by mutation and crossover of the best. Return all scalings
    tried, at most ``evaluations``, with their ``score`` (lower is better). ``on_scored`` gets the
    least score so far after each try."""
    draw = np.random.default_rng(seed)
    scores: dict[RopeScaling, float] = {}

    def evaluate_new(scalings: Iterable[RopeScaling]) -> bool:
        before = len(scores)
        for scaling in scalings:
            if scaling not in scores and len(scores) < evaluations:
                value = score(scaling)
                scores[scaling] = value if math.isfinite(value) else math.inf
                on_scored(min(scores.values()))
        return len(scores) > before

    first = list(start)
    evaluate_new(first)
    evaluate_new(mutation(first[n % len(first)], draw) for n in range(POPULATION - len(first)))
    while len(scores) < evaluations:
        top = sorted(scores, key=scores.__getitem__)[:TOP]
        drawn = draw.integers(len(top), size=MUTATIONS + 2 * CROSSOVERS)
        parents = [top[number] for number in drawn]
        first, second = parents[MUTATIONS::2], parents[MUTATIONS + 1 :: 2]
        children = [mutation(parent, draw) for parent in parents[:MUTATIONS]]
        children += [crossover(*pair, draw) for pair in zip(first, second, strict=True)]
        if not evaluate_new(children):
            break
    return scores


def mutation(scaling: RopeScaling, draw: np.random.Generator) -> RopeScaling:
    """Return a copy with some divisors drawn anew, as multiples of 0.01, and all sorted."""
    largest = BEYOND * scaling.factor
    drawn = [
        min(largest, round(draw.uniform(1, largest), 2)) if draw.random() < REDRAWN else divisor
        for divisor in scaling.long
    ]
    return replace(scaling, long=tuple(sorted(drawn)))


def crossover(first: RopeScaling, second: RopeScaling, draw: np.random.Generator) -> RopeScaling:
    """Return a scaling with the first divisors of one scaling and the last divisors of the other,
    cut at a random index. If divisors would decrease at the cut, the two scalings are swapped."""
    cut = int(draw.integers(1, max(2, len(first.long))))
    if first.long[cut - 1 : cut] > second.long[cut : cut + 1]:
        first, second = second, first
    return replace(first, long=first.long[:cut] + second.long[cut:])


def _long_windows(text: Text, rows: int, seed: int) -> tuple[list[int], list[int]]:
    whole = np.flatnonzero((text.first == 0) & (text.length == text.context))
    if len(whole) < 2:
        raise UsageError(
            f"{counted(len(whole), 'text')} of at least {counted(text.context, 'token')}: the"
            " search needs two or more: give more texts or a shorter context"
        )
    drawn = np.random.default_rng(seed).permutation(whole)[: 2 * rows].tolist()
    half = len(drawn) // 2
    return drawn[:half], drawn[half : 2 * half]


def _examples(text: Text, numbers: list[int], model: Decoder) -> Example:
    rows = [causal_row([text.rows.piece(number)], text.context)[0] for number in numbers]
    device = model.embedding.weight.device
    return Example(
        inputs=torch.cat([row.inputs for row in rows]).to(device),
        targets=torch.cat([row.targets for row in rows]).to(device),
        documents=None,
    )


def _loss(model: Decoder, config: ModelConfig, example: Example, batch_rows: int) -> float:
    positions = model.stack.positions
    assert isinstance(positions, Rotary)
    positions.tune(config)
    nats = 0.0
    for inputs, targets in zip(
        example.inputs.split(batch_rows), example.targets.split(batch_rows), strict=True
    ):
        batch = Example(inputs=inputs, targets=targets, documents=None)
        nats += float(token_losses(model, batch).double().sum())
    return nats / example.targets.numel()
