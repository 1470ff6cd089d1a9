"""LongRoPE's search of rotary divisors for a longer context.

Ding et al. 2024, arXiv 2402.13753. Each pair of dimensions has a divisor of its own, at least that
of the pair before. An evolutionary search begins from positional interpolation, NTK and YaRN, and
goes by the loss on long texts. The paper's n-hat, first tokens that turn as before, is left out:
what opens such models has no place for it.
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
from train.objectives.example import Example, laid_out
from train.objectives.losses import token_losses

# Ding et al. 2024: algorithm 1, table 4 and appendix A
POPULATION, TOP, MUTATIONS, CROSSOVERS = 64, 32, 16, 16
REDRAWN = 0.3  # share of the divisors that a mutation draws again
BEYOND = 1.25  # the largest divisor, over how many times longer the context becomes
SEARCHED = ("kind", "factor", "original_context", "short", "long", "attention_factor")


@dataclass(frozen=True, kw_only=True)
class Found:
    """``scaling``: LongRoPE's of a longer ``context``, as a model's settings take it, that has the
    least loss on the beginnings of long texts; ``scores``: of it, of no scaling and of those that
    the search begins from, nats a token on these texts (``search``) and on as many others
    (``held_out``). ``evaluations``: how many scalings were tried.
    """

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
) -> Found:
    """Try at most ``evaluations`` scalings on ``rows`` long texts of ``texts``, a folder of shards
    by the model's tokenizer; ``on_scored`` gets the least loss so far, after each. Raises
    ``LlmcurateError``.
    """
    model, config = judged.model, judged.model.config
    start = older_scalings(config, context)
    text = Text(shards_of(judged, texts), context, judged.begin)
    chosen = dict(zip(("search", "held_out"), _long_windows(text, rows, seed), strict=True))
    examples = {name: _examples(text, numbers, model) for name, numbers in chosen.items()}

    def loss(scaling: RopeScaling | None, of: str) -> float:
        return _loss(model, stretched(config, scaling, context), examples[of], batch_rows)

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
    return Found(
        context=context,
        texts={of: len(numbers) for of, numbers in chosen.items()},
        evaluations=len(scores),
        seed=seed,
        scores=compared,
        scaling={name: to_dict(best)[name] for name in SEARCHED},
    )


def older_scalings(config: ModelConfig, context: int) -> dict[str, RopeScaling]:
    """Positional interpolation, NTK and YaRN of a longer context in the form of LongRoPE's."""
    if not isinstance(config.position, Rope) or config.position.scaling is not None:
        raise UsageError(
            "the model's position is not rope, or is scaled already: give one that was trained"
            " with plain rotary positions"
        )
    original = config.context
    if context <= original:
        raise UsageError(f"context is {context}, the model's is {original}: give a longer one")
    plain, _ = rope_frequencies(config)
    scalings = {}
    for kind in ("linear", "ntk", "yarn"):
        scaling = RopeScaling(kind=kind, factor=context / original, original_context=original)
        frequencies, factor = rope_frequencies(stretched(config, scaling, context))
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


def stretched(config: ModelConfig, scaling: RopeScaling | None, context: int) -> ModelConfig:
    """The model with a longer context and this scaling."""
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
    """At most so many scalings with their ``score``, the lower the better: those of the start,
    changes of these, and generations of changes and crossings of the best so far. ``on_scored``
    gets the least score after each.
    """
    draw = np.random.default_rng(seed)
    scores: dict[RopeScaling, float] = {}

    def survey(scalings: Iterable[RopeScaling]) -> bool:
        """Return whether there was a new one."""
        before = len(scores)
        for scaling in scalings:
            if scaling not in scores and len(scores) < evaluations:
                value = score(scaling)
                scores[scaling] = value if math.isfinite(value) else math.inf
                on_scored(min(scores.values()))
        return len(scores) > before

    first = list(start)
    survey(first)
    survey(mutation(first[n % len(first)], draw) for n in range(POPULATION - len(first)))
    while len(scores) < evaluations:
        top = sorted(scores, key=scores.__getitem__)[:TOP]
        drawn = draw.integers(len(top), size=MUTATIONS + 2 * CROSSOVERS)
        parents = [top[number] for number in drawn]
        first, second = parents[MUTATIONS::2], parents[MUTATIONS + 1 :: 2]
        children = [mutation(parent, draw) for parent in parents[:MUTATIONS]]
        children += [crossing(*pair, draw) for pair in zip(first, second, strict=True)]
        if not survey(children):
            break
    return scores


def mutation(scaling: RopeScaling, draw: np.random.Generator) -> RopeScaling:
    """Some divisors drawn again, in steps of 0.01, and all put in order."""
    largest = BEYOND * scaling.factor
    drawn = [
        min(largest, round(draw.uniform(1, largest), 2)) if draw.random() < REDRAWN else divisor
        for divisor in scaling.long
    ]
    return replace(scaling, long=tuple(sorted(drawn)))


def crossing(one: RopeScaling, other: RopeScaling, draw: np.random.Generator) -> RopeScaling:
    """The first divisors of one and the last of the other, which rise at every cut at least one way
    round.
    """
    cut = int(draw.integers(1, max(2, len(one.long))))
    if one.long[cut - 1 : cut] > other.long[cut : cut + 1]:
        one, other = other, one
    return replace(one, long=one.long[:cut] + other.long[cut:])


def _long_windows(text: Text, rows: int, seed: int) -> tuple[list[int], list[int]]:
    """Windows of a text that begin a document and fill the context: to search, and held out."""
    whole = np.flatnonzero((text.first == 0) & (text.length == text.context))
    if len(whole) < 2:
        raise UsageError(
            f"{counted(len(whole), 'text')} of at least {counted(text.context, 'token')}: give two"
            " of them or more, one to search on and one held out, or a shorter context"
        )
    drawn = np.random.default_rng(seed).permutation(whole)[: 2 * rows].tolist()
    half = len(drawn) // 2
    return drawn[:half], drawn[half : 2 * half]


def _examples(text: Text, numbers: list[int], model: Decoder) -> Example:
    rows = [laid_out([text.rows.piece(number)], text.context)[0] for number in numbers]
    device = model.embedding.weight.device
    return Example(
        inputs=torch.cat([row.inputs for row in rows]).to(device),
        targets=torch.cat([row.targets for row in rows]).to(device),
        documents=None,
    )


def _loss(model: Decoder, config: ModelConfig, example: Example, batch_rows: int) -> float:
    """Nats a token where the model turns as the configuration has it."""
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
