"""Start a run from a trained model (the folder of a run, or one that transformers opens), and score
the model on held-out text before and after the conversion to the new settings.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from llmcurate.base.disk.files import file_digest
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import LlmcurateError, RunFailed, UsageError
from llmcurate.base.settings import change, flatten
from llmcurate.base.tokenizer_file import load_tokenizer, special_ids
from train.config import TrainConfig, model_at, stages_of
from train.data.feed import Feed
from train.data.packing import packing_for
from train.data.vocabulary import Vocabulary
from train.device import pick_device
from train.hf.family import our_shapes as shapes
from train.hf.load import inspect_folder, tensors_of
from train.loop.backends import layer_backends
from train.loop.distributed import Ranks, check_split
from train.loop.evaluate import Scores, Scoring, evaluate, held_out_rows
from train.model.config import ModelConfig
from train.model.convert import anew, conversions, converted, fits
from train.model.decoder import Decoder
from train.model.heads import with_task
from train.model.plugins import plugins
from train.model.presets import PRESETS, preset
from train.objective_settings import RECORDS, Auto, Objective
from train.objectives.objectives import OBJECTIVES, feed_of, objective, objective_for
from train.optim.optimizers import check_optimizer
from train.optim.schedules import schedule
from train.runs.checkpoint import load_plan, model_of, newest, tokenizer_of, weights_of
from train.runs.metrics import check_packages
from train.runs.plan import Plan, Start
from train.split import copy_into


def start_of(folder: Path) -> Start:
    checkpoint = newest(folder / "checkpoints")
    if checkpoint is not None:
        config, files = model_of(checkpoint), weights_of(checkpoint).files
    else:
        source = inspect_folder(folder)
        config, files = source.config, sorted({path for path, _ in source.saved.values()})
    own = folder / "tokenizer.json" if checkpoint is None else tokenizer_of(checkpoint)
    try:
        digests = "".join(file_digest(path) for path in files)
    except OSError as error:
        raise UsageError(f"{folder}: its weights cannot be read ({error})") from error
    digest = hashlib.sha256(digests.encode()).hexdigest()
    learned = Auto() if checkpoint is None else load_plan(checkpoint).train.objective
    return Start(folder=folder, config=config, digest=digest, tokenizer=own, objective=learned)


def teacher_of(start: Start) -> Decoder:
    """Load the model of a folder as it is, in evaluation mode and without gradients."""
    model = Decoder(start.config)
    load_start_weights(start, model)
    return model.eval().requires_grad_(False)


def load_start_weights(start: Start, model: Decoder) -> None:
    """Fill ``model`` with the weights of ``start``, converted to the settings of ``model``. Weights
    of ``model`` that the conversions initialise anew keep their values."""
    state, steps = model.state_dict(), conversions(start.config, model.config)
    try:
        for name, weight in converted(tensors_of(start.folder), steps):
            if name not in state or state[name].shape != weight.shape:
                raise RunFailed(f"{start.folder}: {name} does not fit the model's settings")
            copy_into(state.pop(name), weight)
    except SafetensorError as error:
        raise RunFailed(f"{start.folder}: cannot be read ({error})") from error
    if missing := [name for name in state if not anew(name, steps)]:
        raise RunFailed(f"{start.folder}: {missing[0]} is missing from the weights")


def _check_same_ids(start: Start, vocabulary: Vocabulary) -> None:
    own = start.tokenizer
    if vocabulary.tokenizer is None or not own.is_file():
        return
    loaded = load_tokenizer(own)
    own_ids = loaded.get_vocab(with_added_tokens=True)
    used = load_tokenizer(vocabulary.tokenizer).get_vocab(with_added_tokens=True)
    special = special_ids(loaded).values()
    for token, number in sorted(own_ids.items(), key=lambda pair: pair[1]):
        if number in special and number > max(used.values()):
            continue
        if used.get(token) != number:
            difference = "not in" if token not in used else f"{used[token]} in"
            raise UsageError(
                f"{own}: token {number}, {token!r}, is {difference} the tokenizer of the shards: "
                "encode the text with the model's tokenizer"
            )


def with_changes(model: ModelConfig, changes: dict[str, Any], start: Start | None) -> ModelConfig:
    """Return the model settings with ``changes``. If training begins from the model ``start`` and
    the changes stretch its rotary positions, missing settings are filled in: ``original_context``
    with the old context, ``factor`` with the new context divided by the old one, at least 1."""
    values, stretch = flatten(changes), "position.scaling"
    kind = values.get(stretch, values.get(f"{stretch}.kind"))
    if start is not None and isinstance(kind, str):
        longer = values.get("context", model.context)
        if kind not in ("linear", "ntk"):
            values.setdefault(f"{stretch}.original_context", model.context)
        if kind != "longrope" and isinstance(longer, int):
            values.setdefault(f"{stretch}.factor", max(1.0, longer / model.context))
    config = change(model, values, "model")
    if start is not None and not fits(shapes(model), shapes(config), conversions(model, config)):
        raise UsageError(
            f"{start.folder}: its weights do not fit a model with other"
            f" {', '.join(sorted(values))}; leave these settings out"
        )
    return config


def model_for(
    model: ModelConfig | str, train: TrainConfig, changes: dict[str, Any] | None = None
) -> tuple[ModelConfig, TrainConfig, Start | None]:
    """Return (model settings, training settings, trained model to start from or None). The size of
    the vocabulary is set later. Raises ``LlmcurateError`` if the model is unknown or a setting is
    wrong."""
    context = max(stage.context for stage in stages_of(train))
    start, values = None, dict(changes or {})
    if isinstance(model, str) and model not in PRESETS and Path(model).is_dir():
        start = start_of(Path(model))
        model = start.config
        if not model.position.table:
            values.setdefault("context", max(context, model.context))
    elif isinstance(model, str):
        model = preset(model, context=context)
    model = with_changes(model, values, start)
    return model, with_model_defaults(model, train), start


def make_plan(
    shards: Path | None,
    model: ModelConfig | str,
    train: TrainConfig,
    changes: dict[str, Any] | None = None,
) -> tuple[Plan, Feed]:
    """Return the plan of a run and its feed (the rows of its text). Raises ``LlmcurateError`` if
    the shards, the model and the settings do not fit each other. ``model`` is a configuration, a
    preset, or the folder of a trained model."""
    for stage in stages_of(train):
        schedule(stage.schedule)
    context = max(stage.context for stage in stages_of(train))
    sized = isinstance(model, str) and "vocab" not in (changes or {})  # the shards set vocab
    model, train, start = model_for(model, train, changes)
    known = None if start is None else start.tokenizer
    data = feed_of(shards, train, task=model.head.task, tokenizer=known)
    size = data.vocabulary.size
    if start is not None:
        _check_same_ids(start, data.vocabulary)
        sized = "vocab" not in (changes or {}) and model.vocab < size
    if sized:
        model = replace(model, vocab=size)
    if data.task is not None:
        model = with_task(model, data.task.kind, data.task.labels)
    model_at(model, train, len(train.stages))  # refuse before anything is written
    if model.vocab < size:
        raise UsageError(
            f"vocab is {model.vocab}, the shards and the objective use {counted(size, 'token')}:"
            " raise vocab"
        )
    if model.context < context:
        raise UsageError(
            f"the model's context is {model.context}, training uses rows of {context}: "
            "make one fit the other"
        )
    teacher_start = None
    if train.teacher is not None:
        teacher_start = start_of(Path(train.teacher))
        _check_same_ids(teacher_start, data.vocabulary)
        if teacher_start.config.vocab != model.vocab:
            raise UsageError(
                f"teacher {train.teacher}: has {counted(teacher_start.config.vocab, 'token')}, the"
                f" model {model.vocab}: their predictions are compared, so set model.vocab alike"
            )
    if plugins(model):
        shapes(model)  # refuse before anything is written
    if train.eval and model.form != "decoder":
        raise UsageError(
            f"eval: an {model.form} assigns no likelihood to a text; leave eval out (held-out text "
            "is scored by the objective)"
        )
    check_optimizer(train.optimizer)
    if model.mup_base is not None and train.optimizer not in ("adamw", "lion"):
        raise UsageError(
            f"optimizer {train.optimizer} with model.mup_base: muP's rates are those of adamw and"
            " lion; choose one of them, or leave mup_base out"
        )
    check_split(model, train)
    check_packages(train)
    layer_backends(model, train, pick_device(train.device))  # refuse before anything is written
    weights = "" if start is None else start.digest
    plan = Plan(
        model=model,
        train=train,
        shards=data.fingerprint,
        weights=weights,
        teacher="" if teacher_start is None else teacher_start.digest,
        start=start,
        teacher_start=teacher_start,
    )
    return plan, data


def with_model_defaults(model: ModelConfig, train: TrainConfig) -> TrainConfig:
    """Return the settings with the model's usual objective and packing where these are ``auto``."""
    objective = objective_for(model, train.objective)
    cuts = OBJECTIVES[type(objective)].takes(objective) is None
    stages = tuple(
        stage if stage.packing is None else replace(stage, packing=packing_for(stage.packing, cuts))
        for stage in train.stages
    )
    packing = packing_for(train.packing, cuts)
    return replace(train, objective=objective, packing=packing, stages=stages)


def conversion_steps(plan: Plan) -> list[str]:
    """Return the names of the conversions that are applied to the initial weights."""
    if plan.start is None:
        return []
    names = [step.name for step in conversions(plan.start.config, plan.model)]
    learned, learns = plan.start.objective, plan.train.objective
    if learned.kind not in ("auto", learns.kind):
        names.append(f"objective {learned.kind} to {learns.kind}")
    return names


@dataclass(frozen=True, kw_only=True)
class HeldOutLoss:
    """The held-out loss of a model, and the objective that defines this loss."""

    objective: str
    loss: float
    bits_per_byte: float | None


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """The conversions (``steps``) of a model that training starts from, such as to another
    objective, and the model's held-out losses before them (None if unknown) and after."""

    steps: list[str]
    before: HeldOutLoss | None
    after: HeldOutLoss


def conversion_losses(
    plan: Plan, feed: Feed, device: torch.device, held_out: Callable[[], Scores]
) -> Conversion | None:
    """Return the held-out losses of the model that training starts from, before and after its
    conversion to the run's settings. Return None if nothing is converted, or if the objective reads
    a JSONL file of records (labels, chats or pairs) instead of token shards. Every process must
    call this function, before the first step."""
    names = conversion_steps(plan)
    if plan.start is None or not names or isinstance(plan.train.objective, RECORDS):
        return None
    after = held_out()
    before = _loss_before(plan.train, plan.start, feed, device)
    return Conversion(
        steps=names,
        before=None if before is None else _held_out_loss(*before),
        after=_held_out_loss(plan.train.objective, after),
    )


def _held_out_loss(learned: Objective, scores: Scores) -> HeldOutLoss:
    return HeldOutLoss(objective=learned.kind, loss=scores.loss, bits_per_byte=scores.bits_per_byte)


def _loss_before(
    train: TrainConfig, start: Start, feed: Feed, device: torch.device
) -> tuple[Objective, Scores] | None:
    context = min(train.context, start.config.context)
    try:
        before = replace(train, objective=start.objective, context=context, stages=())
        settings = with_model_defaults(start.config, before)
    except LlmcurateError:
        return None
    own_feed = feed_of(feed.default, settings)
    model = teacher_of(start).to(device)
    rows = held_out_rows(own_feed, settings.eval_tokens, context)
    one_process = Ranks(device=device)
    scoring = Scoring(one_process, settings.rows, settings.precision, settings.loss_chunk)
    return settings.objective, evaluate(
        model, rows, objective(settings, own_feed.vocabulary), scoring
    )


def conversion_line(converted: Conversion) -> str:
    before, after = converted.before, converted.after
    loss_before = "" if before is None else f"{before.loss:.4f} before ({before.objective}), "
    return (
        f"converted ({', '.join(converted.steps)}): held-out loss {loss_before}{after.loss:.4f}"
        f" right after ({after.objective})"
    )
