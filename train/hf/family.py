"""A family of transformers' models: models it supports, its config.json, names of its weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import torch
from torch import Tensor

from llmcurate.base.errors import LlmcurateError, UsageError
from llmcurate.base.settings import from_dict, unflatten
from train.device import on_meta
from train.hf.keys import Pairs, Reading, Row, Settings
from train.model.config import FIXED, Answers, Before, ModelConfig, TaskKind
from train.model.decoder import Decoder
from train.model.heads import with_task


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The way in which a transformers tensor holds our tensors. ``pack`` makes the transformers
    tensor from ours; ``unpack`` makes ours from it."""

    pack: Callable[[Sequence[Tensor]], Tensor]
    unpack: Callable[[Tensor], Sequence[Tensor]]


UNCHANGED = Layout(pack=lambda ours: ours[0], unpack=lambda theirs: [theirs])


def plain(config: ModelConfig) -> Layout:
    """Return the layout of tensors that transformers holds as we do: matrices [outputs, inputs]."""
    return UNCHANGED


def qkv(config: ModelConfig) -> Layout:
    """Return the layout of Phi-3, MPT and ModernBERT: all queries, then all keys, then values."""
    own = config.attention
    sizes = [heads * own.head_dim for heads in (own.heads, own.kv_heads, own.kv_heads)]
    return Layout(
        pack=lambda ours: torch.cat(list(ours)), unpack=lambda theirs: theirs.split(sizes)
    )


def scaled(factor: float, offset: float = 0.0) -> Layout:
    """Return a layout of tensors that are ``factor`` times ours, minus ``offset``."""
    return Layout(
        pack=lambda ours: ours[0] * factor - offset,
        unpack=lambda theirs: [(theirs + offset) / factor],
    )


def concatenated(pieces: int, transposed: bool = False) -> Callable[[ModelConfig], Layout]:
    """Return the layout of ``pieces`` matrices [outputs, inputs], joined into one by their rows. If
    ``transposed``, transformers stores the transpose of the joined matrix."""

    def transpose(tensor: Tensor) -> Tensor:
        return tensor.T if transposed and tensor.dim() == 2 else tensor

    return lambda config: Layout(
        pack=lambda ours: transpose(torch.cat(list(ours))),
        unpack=lambda theirs: transpose(theirs).chunk(pieces),
    )


GATE_AND_UP = concatenated(2)  # the two first matrices of a gated feed-forward
CONV1D = concatenated(1, transposed=True)  # GPT-2's
CONV1D_QKV = concatenated(3, transposed=True)


def by_head(config: ModelConfig) -> Layout:
    """Return the layout of GPT-NeoX, BLOOM and Falcon: for each key head, its queries, then its
    key, then its value."""
    own = config.attention
    groups, each = own.kv_heads, [own.heads // own.kv_heads, 1, 1]

    def pack(ours: Sequence[Tensor]) -> Tensor:
        by_head = [tensor.unflatten(0, (groups, -1, own.head_dim)) for tensor in ours]
        return torch.cat(by_head, dim=1).flatten(0, 2)

    def unpack(theirs: Tensor) -> Sequence[Tensor]:
        by_head = theirs.unflatten(0, (groups, -1, own.head_dim)).split(each, dim=1)
        return [part.flatten(0, 2) for part in by_head]

    return Layout(pack=pack, unpack=unpack)


def interleaved(config: ModelConfig) -> Layout:
    """Return the layout of GPT-J, which rotates dimensions 2 i and 2 i + 1 of each head together.
    We rotate dimensions i and i + rotated / 2, so the rows of each head are reordered."""
    order = torch.arange(config.attention.head_dim)
    order[: config.rotated] = rows_in_pairs(config.rotated)
    return reordered(config.attention.heads, order)


def reordered(groups: int, order: Tensor) -> Layout:
    """Return a layout (order of rows in transformers). The rows are divided into ``groups`` equal
    groups. In each group, row i in transformers is our row order[i]."""

    def move(tensor: Tensor, order: Tensor) -> Tensor:
        grouped = tensor.unflatten(0, (groups, len(order)))
        return grouped.index_select(1, order.to(tensor.device)).flatten(0, 1)

    return Layout(
        pack=lambda ours: move(ours[0], order),
        unpack=lambda theirs: [move(theirs, order.argsort())],
    )


def rows_in_pairs(rotated: int) -> Tensor:
    """Return an order of ``rotated`` rows in which rows i and i + rotated / 2 are neighbours."""
    return torch.arange(rotated).unflatten(0, (2, -1)).T.flatten()


@dataclass(frozen=True, kw_only=True)
class Part:
    """A module of transformers, and our modules whose weights it holds. ``theirs`` is the name of
    transformers' module, ``ours`` are the names of our modules. In a name, ``{}`` stands for the
    layer number and ``[]`` for the expert number: transformers has one tensor per expert, we have
    one for all. ``when`` tells if a model has the module."""

    ours: tuple[str, ...]
    theirs: str
    layout: Callable[[ModelConfig], Layout] = plain
    when: Callable[[ModelConfig], bool] = lambda config: True


Theirs = str | tuple[str, Callable[[ModelConfig], Layout]]


def parts_from(names: Mapping[Any, Theirs]) -> tuple[Part, ...]:
    """Return the parts (module pairs) for ``names``, a table {our module: transformers' module}. If
    our name begins with ``{}``, the module is inside a block. {"a: b c": "x: y z"} in the table
    means {"a.b": "x.y", "a.c": "x.z"}."""
    parts: list[Part] = []
    for ours, row in names.items():
        theirs, layout = (row, plain) if isinstance(row, str) else row
        if ": " in ours:
            (own, ends), (other, names_in_other) = (side.split(": ") for side in (ours, theirs))
            pairs = zip(ends.split(), names_in_other.split(), strict=True)
            parts += parts_from({f"{own}.{a}": (f"{other}.{b}", layout) for a, b in pairs})
            continue
        keys = (ours,) if isinstance(ours, str) else ours
        keys = tuple(f"stack.blocks.{own}" if own.startswith("{}") else own for own in keys)
        parts.append(Part(ours=keys, theirs=theirs, layout=layout))
    return tuple(parts)


def exchanged(parts: tuple[Part, ...], names: Mapping[Any, Theirs]) -> tuple[Part, ...]:
    """Return ``parts`` (module pairs); for each of our modules in ``names``, a table {our module:
    transformers' module}, a part from this table replaces the old one."""
    new = parts_from(names)
    gone = {own for part in new for own in part.ours}
    return (*(part for part in parts if gone.isdisjoint(part.ours)), *new)


QKV = ("{}.attention.query", "{}.attention.key", "{}.attention.value")
GATE_UP = ("{}.feed_forward.gate", "{}.feed_forward.up")


@dataclass(frozen=True, kw_only=True)
class Weight:
    """A transformers tensor, its shape, and our tensors that it holds. For a tensor of one expert,
    ``expert`` is the expert's number and ``of`` the number of experts."""

    theirs: str
    ours: tuple[str, ...]
    layout: Layout
    shape: tuple[int, ...]
    expert: int = 0
    of: int = 0


@dataclass(frozen=True, kw_only=True)
class Family:
    """A family of transformers' classes: how its config.json and its weights are written and read.

    ``keys`` is the family's table of config.json keys, ``aliases`` are other names of keys.
    ``parts`` are the modules of the model. ``tasks`` has the modules of a task's head, for each
    task for which the family has a class."""

    name: str
    architecture: str
    keys: tuple[Row, ...]
    parts: tuple[Part, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)
    # transformers' defaults for missing keys whose null means something else.
    defaults: Mapping[str, int | float | str] = field(default_factory=dict)
    tasks: Mapping[TaskKind, tuple[Part, ...]] = field(default_factory=dict)
    # The layer before the matrix of the class that classifies texts, unless it has none.
    pool: Before = "pool"

    @property
    def prefix(self) -> str:
        """The first part of names of tensors, such as ``model.``. Files of transformers' base
        class, which has no output head, omit this part."""
        first = self.parts[0].theirs
        return first[: first.find(".") + 1]

    @property
    def _rows(self) -> Iterable[Row]:
        return {row.name: row for row in self.keys}.values()

    def write(self, config: ModelConfig) -> Pairs:
        """Return the keys of a model's config.json that are specific to the family."""
        for row in self._rows:
            # The model may have another kind of positions, attention or feed-forward than the row.
            with suppress(AttributeError, AssertionError):
                yield from row.write(config)

    def read(self, file: Settings, context: int | None) -> Reading:
        """Read the settings of a ModelConfig from config.json, with ``context`` if it is given."""
        reading = Reading(file, context)
        for row in self._rows:
            reading.ours.update(row.read(reading))
        return reading

    def values(self, config: ModelConfig) -> dict[str, Any]:
        """Return the keys of config.json that decide what transformers' class computes."""
        values: dict[str, Any] = {"architectures": [self.class_of(config)], "pad_token_id": None}
        values |= {"vocab_size": config.vocab, "tie_word_embeddings": config.head.tied}
        return values | dict(self.write(config)) | dict(task_keys(config))

    def config(self, file: Settings, context: int | None) -> ModelConfig:
        """Read the model that a config.json describes."""
        return self._model(self.read(file, context))

    def _model(self, reading: Reading) -> ModelConfig:
        file = reading.file
        fields = reading.ours | {"vocab": file.whole("vocab_size")}
        try:
            config = from_dict(ModelConfig, unflatten(fields), file.where)
        except LlmcurateError as error:
            raise UsageError(f"{file.where}: {error}") from error
        return with_saved_head(self, config, file)

    def read_back(self, config: ModelConfig) -> ModelConfig | None:
        """Return the model configuration that this family reads from its own config.json for
        ``config``, or None if reading fails. A key that the family cannot write or read for this
        model is skipped: the key's setting then has the default value."""
        values = self.values(config)
        reading = Reading(self.settings(values, "config.json"), None)
        for row in self._rows:
            with suppress(LlmcurateError, KeyError):
                reading.ours.update(row.read(reading))
        try:
            return self._model(reading)
        except LlmcurateError:
            return None

    def class_of(self, config: ModelConfig) -> str:
        """Return the name of transformers' class for a model."""
        if config.head.task is not None:
            return self.class_for(CLASSES[config.head.task.kind])
        two = config.head.replaced or config.head.pair != "none"
        return self.class_for("ForPreTraining") if two else self.architecture

    def class_for(self, end: str) -> str:
        return self.architecture.partition("For")[0].removesuffix("LMHeadModel") + end

    def settings(self, values: Mapping[str, Any], where: str) -> Settings:
        """Return config.json's content as this family reads it. Errors name the file ``where``."""
        return Settings({**self.defaults, **values}, where, self.aliases)

    def parts_of(self, config: ModelConfig) -> list[Part]:
        """Return the parts of a model, pairs (our modules, transformers' module). With a task such
        as ``classify``, the parts of the head are those of transformers' class for the task."""
        parts, task = [part for part in self.parts if part.when(config)], config.head.task
        if task is None:
            return parts
        trunk = [part for part in parts if not part.ours[0].startswith("head")]
        return [*trunk, *self.tasks[task.kind]]

    def weights(self, config: ModelConfig) -> Iterator[Weight]:
        """Yield every transformers tensor of a model, in the order of the exported files."""
        shapes = our_shapes(config)
        remaining = set(shapes)
        layers = max(config.layers, 0 if config.encoder is None else config.encoder.layers)
        for part in self.parts_of(config):
            each = "[]" in part.theirs
            ends = ("",) if each else (".weight", ".bias", "")
            for layer, end in product(range(layers) if "{}" in part.theirs else (0,), ends):
                ours = tuple(name.format(layer) + end for name in part.ours)
                # Our tensors of experts have a dimension for the expert.
                if ours[0] not in shapes or (len(shapes[ours[0]]) == 3) != each:
                    continue
                remaining.difference_update(ours)
                count = shapes[ours[0]][0] if each else 0
                empty = [torch.empty(shapes[name], device="meta") for name in ours]
                for expert in range(max(1, count)):
                    layout = _single_expert(expert) if each else part.layout(config)
                    theirs = part.theirs.format(layer).replace("[]", str(expert))
                    yield Weight(
                        theirs=theirs + (".weight" if each else end),
                        ours=ours,
                        layout=layout,
                        shape=tuple(layout.pack(empty).shape),
                        expert=expert,
                        of=count,
                    )
        if remaining:
            raise ValueError(f"{self.name} has no tensors for {sorted(remaining)}")


def _single_expert(expert: int) -> Layout:
    return Layout(pack=lambda ours: ours[0][expert], unpack=lambda theirs: [theirs])


def our_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of each of our weights, by name, without allocating memory for them."""
    with on_meta():
        return {name: tuple(tensor.shape) for name, tensor in Decoder(config).state_dict().items()}


# The ends of the names of transformers' classes for tasks.
CLASSES: dict[TaskKind, str] = {
    "classify": "ForSequenceClassification",
    "token": "ForTokenClassification",
    "span": "ForQuestionAnswering",
    "choice": "ForMultipleChoice",
}
_PROBLEMS: dict[str, Answers] = {
    "single_label_classification": "label",
    "multi_label_classification": "labels",
    "regression": "number",
}
_POOLING: dict[str, Before] = {"cls": "transform", "mean": "mean"}  # ModernBERT's
USES = {  # the Hub's name of the task, and transformers' class that loads its model
    "classify": ("text-classification", "AutoModelForSequenceClassification"),
    "token": ("token-classification", "AutoModelForTokenClassification"),
    "span": ("question-answering", "AutoModelForQuestionAnswering"),
    "choice": ("multiple-choice", "AutoModelForMultipleChoice"),
}


def of_choice(pool: str) -> dict[TaskKind, tuple[Part, ...]]:
    """Return the head for multiple choice. ``pool`` is the name of the head's first layer."""
    return {"choice": parts_from({"head.transform.linear": pool, "head": "classifier"})}


def of_encoder(pool: str, classifier: str = "classifier") -> dict[TaskKind, tuple[Part, ...]]:
    """Return the heads for the tasks of an encoder like BERT. In the class that classifies whole
    texts, the output matrix is called ``classifier`` and the layer before it ``pool``."""
    return {
        "classify": parts_from({"head.transform.linear": pool, "head": classifier}),
        "token": parts_from({"head": "classifier"}),
        "span": parts_from({"head": "qa_outputs"}),
    }


# The heads for the tasks of a decoder, except for questions, because in transformers' class for
# questions the rest of the model has another name.
SCORE: dict[TaskKind, tuple[Part, ...]] = {"classify": parts_from({"head": "score"})}
OF_DECODER = SCORE | {"token": parts_from({"head": "score"})}
OF_GPT = SCORE | {"token": parts_from({"head": "classifier"})}


def task_keys(config: ModelConfig) -> Pairs:
    """Yield the keys of config.json that describe a task."""
    task = config.head.task
    if task is None or task.kind in FIXED:
        return
    yield "id2label", {str(number): label for number, label in enumerate(task.labels)}
    yield "label2id", {label: number for number, label in enumerate(task.labels)}
    if task.kind == "classify":
        problems = {answers: problem for problem, answers in _PROBLEMS.items()}
        yield "problem_type", problems[task.answers]


def with_saved_head(family: Family, config: ModelConfig, settings: Settings) -> ModelConfig:
    """Return the model's configuration, with the head for a task if config.json names a class with
    such a head. Raises ``LlmcurateError`` if the labels in config.json do not fit the task."""
    saved = settings.words("architectures") or []
    for kind in family.tasks:
        if family.class_for(CLASSES[kind]) in saved:
            labels = FIXED.get(kind) or _labels(settings)
            # As transformers' classes, which then compute the loss of a regression.
            usual = "regression" if len(labels) == 1 else "single_label_classification"
            answers: Answers = "label"
            if kind == "classify":
                answers = settings.one_of("problem_type", _PROBLEMS, usual)
            pool = family.pool
            if pool == "transform" and kind in ("classify", "choice"):
                pool = settings.one_of("classifier_pooling", _POOLING, "cls")
            try:
                return with_task(config, kind, labels, answers, pool)
            except LlmcurateError as error:
                raise UsageError(f"{settings.where}: {error}") from error
    return config


def _labels(settings: Settings) -> tuple[str, ...]:
    named = settings.sub("id2label")
    if named is None:
        return tuple(f"LABEL_{number}" for number in range(settings.whole("num_labels", 2)))
    count = len(named.names)
    return tuple(named.word(str(number)) for number in range(count))
