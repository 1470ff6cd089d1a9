"""The classes of transformers with a head for a task, and reading one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmcurate.base.errors import LlmcurateError, UsageError
from train.hf.family import Family, Part, TaskClass
from train.hf.settings import Settings
from train.model.config import ModelConfig
from train.model.task_settings import SPAN
from train.model.tasks import with_task

_NAMES = {
    "classify": "ForSequenceClassification",
    "token": "ForTokenClassification",
    "span": "ForQuestionAnswering",
}
USES = {  # what the Hub calls them, and transformers' class that finds theirs
    "classify": ("text-classification", "AutoModelForSequenceClassification"),
    "token": ("token-classification", "AutoModelForTokenClassification"),
    "span": ("question-answering", "AutoModelForQuestionAnswering"),
}


def _class(name: str, kind: str, parts: Mapping[str, str]) -> TaskClass:
    listed = tuple(Part(ours=(ours,), theirs=theirs) for ours, theirs in parts.items())
    return TaskClass(architecture=name + _NAMES[kind], parts=listed)


def of_encoder(name: str, pool: str, classifier: str = "classifier") -> dict[str, TaskClass]:
    """The classes of BERT and those like it; ``pool``: what stands before its ``classifier``."""
    text = {"head.transform.linear": pool, "head": classifier}
    return {
        "classify": _class(name, "classify", text),
        "token": _class(name, "token", {"head": "classifier"}),
        "span": _class(name, "span", {"head": "qa_outputs"}),
    }


def of_modernbert() -> dict[str, TaskClass]:
    """ModernBERT has the transform in all of them."""
    parts = {"head.transform.linear": "head.dense", "head.transform.norm": "head.norm"}
    parts["head"] = "classifier"
    return {kind: _class("ModernBert", kind, parts) for kind in _NAMES}


def of_decoder(name: str, of_words: str = "score") -> dict[str, TaskClass]:
    """The classes of decoders. Theirs for questions name the trunk otherwise."""
    return {
        "classify": _class(name, "classify", {"head": "score"}),
        "token": _class(name, "token", {"head": of_words}),
    }


def written(config: ModelConfig) -> dict[str, Any]:
    """What config.json says of a task."""
    task = config.head.task
    if task is None or task.kind == "span":
        return {}
    named = {str(number): label for number, label in enumerate(task.labels)}
    values: dict[str, Any] = {"id2label": named}
    values["label2id"] = {label: number for number, label in enumerate(task.labels)}
    if task.kind == "classify":
        values["problem_type"] = "single_label_classification"
    return values


def as_saved(family: Family, config: ModelConfig, settings: Settings) -> ModelConfig:
    """The model with the head of the class that it was saved from; raises ``LlmcurateError``."""
    saved = settings.words("architectures") or []
    for kind, own in family.tasks.items():
        if own.architecture in saved:
            labels = SPAN if kind == "span" else _labels(settings)
            try:
                return with_task(config, kind, labels)
            except LlmcurateError as error:
                raise UsageError(f"{settings.where}: {error}") from error
    return config


def _labels(settings: Settings) -> tuple[str, ...]:
    """By number; two without names where the file has none, as transformers takes it."""
    named = settings.sub("id2label")
    if named is None:
        return tuple(f"LABEL_{number}" for number in range(settings.whole("num_labels", 2)))
    count = len(named.names)
    return tuple(named.word(str(number)) for number in range(count))
