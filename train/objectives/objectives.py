"""The objective for each kind of settings. To add an objective, write its settings in
train/objective_settings.py and its class, decorated by ``learns``, in a file of this folder.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from llmcurate.base.errors import UsageError
from llmcurate.base.index import modules_of
from llmcurate.base.settings import refuse_if
from train import objective_settings as settings
from train.config import TrainConfig
from train.data.feed import Feed
from train.data.vocabulary import Vocabulary
from train.model.config import ModelConfig, Task
from train.objectives.example import FORMS, OBJECTIVES, Objective

modules_of("train.objectives")
modules_of("train.lab.objectives")

_FORMS: dict[str, tuple[settings.Form, ...]] = {
    "decoder": ("prefix", "causal"),
    "encoder-decoder": ("encoder-decoder",),
}
_OF_ENCODER = {"spans": settings.Spans, "bart": settings.Bart}
_OF_PAIRS = {"next": settings.NextSentence, "order": settings.SentenceOrder}


def objective_for(model: ModelConfig, asked: settings.Objective) -> settings.Objective:
    """Return the objective for a model. Raises ``LlmcurateError`` if ``asked`` does not fit it."""
    if isinstance(asked, settings.Task):
        last: settings.Reads = "last" if model.causal else "first"
        return replace(asked, reads=last) if asked.reads == "auto" else asked
    task = model.head.task
    refuse_if(
        task is not None,
        f"the model has a head for a task: set objective to {task and task.kind}, or give a model"
        " without a task head",
    )
    refuse_if(
        model.head.replaced and model.generator is None,
        "head.replaced needs a generator that replaces tokens: set generator.smaller",
    )
    own: Any = settings.Replaced if model.head.replaced else _OF_PAIRS.get(model.head.pair)
    if model.encoder is not None:
        own = _OF_ENCODER[model.encoder.learns]
    # In the order of the union: the first that fits the model's form is the default.
    known: tuple[Any, ...] = get_args(get_args(settings.Objective)[0])
    suited = [kind for kind in known if model.form in FORMS.get(kind, ())]
    suited = [] if model.head.replaced else suited
    suited += [own] if own and own not in suited else []
    if isinstance(asked, settings.Auto):
        asked = (own or suited[0])()
    if type(asked) not in suited:
        names = ", ".join(kind.kind for kind in suited)
        form = "" if FORMS.get(type(asked)) != ("decoder",) else " (it needs a decoder)"
        raise UsageError(
            f"objective {asked.kind!r} for this model: choose one of auto, {names}{form}"
        )
    if isinstance(asked, settings.Pairs):
        if model.encoder is None:
            return replace(asked, form="decoder")
        return replace(asked, form="encoder-decoder", start=model.encoder.start)
    if isinstance(asked, settings.Denoiser):
        forms = _FORMS[model.form]
        refuse_if(
            asked.form not in ("auto", *forms),
            f"objective.form {asked.form!r} for this model: choose one of auto, {', '.join(forms)}",
        )
        asked = replace(asked, form=forms[0]) if asked.form == "auto" else asked
    refuse_if(
        model.patterns[0].segment is not None and OBJECTIVES[type(asked)].both_ways(asked),
        f"attention.segment with objective {asked.kind}: all tokens must see its prefix, even from "
        "other segments; leave one of them out",
    )
    return asked


def kind_of(config: TrainConfig) -> type[Objective]:
    return OBJECTIVES[type(config.objective)]


def objective(config: TrainConfig, tokens: Vocabulary) -> Objective:
    return kind_of(config)(config.objective, tokens)


def feed_of(
    shards: Path | None,
    config: TrainConfig,
    *,
    task: Task | None = None,
    tokenizer: Path | None = None,
) -> Feed:
    return kind_of(config).feed(shards, config, task=task, tokenizer=tokenizer)


def both_ways(config: TrainConfig) -> bool:
    """Return True if a model trained with these settings reads a prompt in both directions when it
    generates. False if the objective is unknown, as for an imported model.
    """
    known = not isinstance(config.objective, settings.Auto)
    return known and kind_of(config).both_ways(config.objective)
