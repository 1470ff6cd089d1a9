"""The held-out loss of a trained model before it is converted, by what it learned, and right after,
by what it is to learn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from llmcurate.base.errors import LlmcurateError
from train.config import TrainConfig
from train.data.feed import Feed
from train.loop.distributed import Ranks
from train.loop.evaluate import Scores, Scoring, evaluate, scored
from train.loop.start import settled, teacher_of
from train.model.convert import conversions
from train.objective_settings import Objective
from train.objectives.objectives import feed_of, objective
from train.runs.plan import Plan, Start


def steps_of(plan: Plan) -> list[str]:
    """What is done to the first weights of a run, in words; nothing where they are as they were."""
    if plan.start is None:
        return []
    names = [step.name for step in conversions(plan.start.config, plan.model)]
    learned, learns = plan.start.objective, plan.train.objective
    if learned.kind not in ("auto", learns.kind):
        names.append(f"objective {learned.kind} to {learns.kind}")
    return names


@dataclass(frozen=True, kw_only=True)
class Was:
    """The held-out loss of a model by an objective."""

    objective: str
    loss: float
    bits_per_byte: float | None


@dataclass(frozen=True, kw_only=True)
class Converted:
    """The steps of a conversion in words, and the losses before, where there is one, and after."""

    steps: list[str]
    before: Was | None
    after: Was


def measured(
    plan: Plan, feed: Feed, device: torch.device, held_out: Callable[[], Scores]
) -> Converted | None:
    """The line of a run's first step on its conversion, or None. Call before that step, with what
    scores the new model; every process computes the same.
    """
    names = steps_of(plan)
    if plan.start is None or not names or feed.task is not None:
        return None
    after = held_out()
    before = _before(plan.train, plan.start, feed, device)
    return Converted(
        steps=names,
        before=None if before is None else _was(*before),
        after=_was(plan.train.objective, after),
    )


def _was(learned: Objective, scores: Scores) -> Was:
    return Was(objective=learned.kind, loss=scores.loss, bits_per_byte=scores.bits_per_byte)


def _before(
    asked: TrainConfig, start: Start, feed: Feed, device: torch.device
) -> tuple[Objective, Scores] | None:
    """The loss of the model as it was; None where it cannot learn any more what it did, as a
    discriminator without its generator.
    """
    context = min(asked.context, start.config.context)
    try:
        before = replace(asked, objective=start.objective, context=context, stages=())
        settings = settled(start.config, before)
    except LlmcurateError:
        return None
    own_feed = feed_of(feed.default, settings)
    model = teacher_of(start).to(device)
    rows = scored(own_feed, settings.eval_tokens, context)
    alone = Ranks(device=device)
    how = Scoring(alone, settings.rows, settings.precision, settings.loss_chunk)
    return settings.objective, evaluate(model, rows, objective(settings, own_feed.vocabulary), how)


def notice(converted: Converted) -> str:
    """The line that says it."""
    before, after = converted.before, converted.after
    was = "" if before is None else f"{before.loss:.4f} before ({before.objective}), "
    return (
        f"converted ({', '.join(converted.steps)}): held-out loss {was}{after.loss:.4f}"
        f" right after ({after.objective})"
    )
