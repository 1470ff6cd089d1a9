"""A family of transformers' models: models it supports, its config.json, names of its weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from llmcurate.base.errors import LlmcurateError, UsageError
from train.hf.keys import Pairs, Reading, Row, Settings
from train.model.config import SPAN, ModelConfig, TaskKind
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
    """Return the layout [outputs, inputs], as in torch.nn.Linear."""
    return UNCHANGED


def conv1d(config: ModelConfig) -> Layout:
    """Return the layout of GPT-2's Conv1D: [inputs, outputs]."""
    return concatenated(1, transposed=True)


def conv1d_qkv(config: ModelConfig) -> Layout:
    """Return the layout of GPT-2's query, key and value side by side: [inputs, 3 x outputs]."""
    return concatenated(3, transposed=True)


def concatenated(pieces: int, transposed: bool = False) -> Layout:
    """Return the layout of matrices [outputs, inputs] that are joined by rows. If ``transposed``,
    they are [inputs, outputs] and joined by columns."""

    def transpose(tensor: Tensor) -> Tensor:
        return tensor.T if transposed and tensor.dim() == 2 else tensor

    return Layout(
        pack=lambda ours: transpose(torch.cat(list(ours))),
        unpack=lambda theirs: transpose(theirs).chunk(pieces),
    )


def by_head(config: ModelConfig) -> Layout:
    """Return the layout of GPT-NeoX and BLOOM: query, key and value of each head, head by head."""

    heads, size = config.attention.heads, config.attention.head_dim

    def pack(ours: Sequence[Tensor]) -> Tensor:
        by_head = [tensor.unflatten(0, (heads, size)) for tensor in ours]
        return torch.stack(by_head, dim=1).flatten(0, 2)

    def unpack(theirs: Tensor) -> Sequence[Tensor]:
        by_head = theirs.unflatten(0, (heads, 3, size))
        return [by_head[:, index].flatten(0, 1) for index in range(3)]

    return Layout(pack=pack, unpack=unpack)


def interleaved(config: ModelConfig) -> Layout:
    """Return the layout of GPT-J, which rotates dimensions 2 i and 2 i + 1 of each head together.
    We rotate dimensions i and i + rotated / 2, so the rows of each head are reordered."""
    order = torch.arange(config.attention.head_dim)
    order[: config.rotated] = rows_in_pairs(config.rotated)
    return reordered(config.attention.heads, order)


def reordered(groups: int, order: Tensor) -> Layout:
    """Return a layout with each group's rows reordered: row i in transformers is our row
    order[i]."""

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
    """A transformers module, ``theirs``, and our modules whose weights it holds, ``ours``. In these
    names ``{}`` is the number of the layer and ``[]`` that of the expert: transformers has a tensor
    for each expert, we have one for all. ``when`` selects the models that have the module."""

    ours: tuple[str, ...]
    theirs: str
    layout: Callable[[ModelConfig], Layout] = plain
    when: Callable[[ModelConfig], bool] = lambda config: True


Theirs = str | tuple[str, Callable[[ModelConfig], Layout]]


def parts_from(names: Mapping[Any, Theirs]) -> tuple[Part, ...]:
    """Return the parts for a table from our names of modules to those of transformers. One of our
    names that begins with ``{}`` is a module in a block."""
    parts = []
    for ours, row in names.items():
        theirs, layout = (row, plain) if isinstance(row, str) else row
        keys = (ours,) if isinstance(ours, str) else ours
        keys = tuple(f"stack.blocks.{own}" if own.startswith("{}") else own for own in keys)
        parts.append(Part(ours=keys, theirs=theirs, layout=layout))
    return tuple(parts)


QKV = ("{}.attention.query", "{}.attention.key", "{}.attention.value")


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
class TaskClass:
    """A transformers class with a head for a task, and the names of the head's weights."""

    architecture: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, kw_only=True)
class Family:
    """A family of transformers' classes.

    ``allows`` has the supported values of each trait (families.py). ``keys`` are the rows of its
    config.json, without the keys common to all families. The tensors' names begin with ``prefix``,
    except in files saved from the class without a head. ``of_pairs`` is the class with a head for
    pairs of segments, ``of_replaced`` the class of a discriminator, ``tasks`` the classes with a
    head for a task. ``beyond`` is a prefix with ``{}`` for the number of layers: files may have
    tensors whose names begin with this prefix; the class ignores these. ``copies`` are tensors that
    files may have and that equal the embedding.
    """

    name: str
    architecture: str
    allows: Mapping[str, tuple[Any, ...]]
    keys: tuple[Row, ...]
    parts: tuple[Part, ...]
    prefix: str
    aliases: Mapping[str, str] = field(default_factory=dict)
    # transformers' defaults for missing keys whose null means something else.
    defaults: Mapping[str, int | float | str] = field(default_factory=dict)
    of_pairs: str = ""
    of_replaced: str = ""
    tasks: Mapping[TaskKind, TaskClass] = field(default_factory=dict)
    beyond: str = ""
    copies: tuple[str, ...] = ()

    def allowed(self, trait: str) -> tuple[Any, ...]:
        return ("none", *self.tasks) if trait == "head.task" else self.allows.get(trait, ())

    @property
    def _rows(self) -> Iterable[Row]:
        return {row.name: row for row in self.keys}.values()

    def write(self, config: ModelConfig) -> Pairs:
        """Return the keys of a model's config.json that are specific to the family."""
        return (pair for row in self._rows for pair in row.write(config))

    def read(self, file: Settings, context: int | None) -> Reading:
        """Read the settings of a ModelConfig from config.json, with ``context`` if it is given."""
        reading = Reading(file, context)
        for row in self._rows:
            reading.ours.update(row.read(reading))
        return reading

    def class_of(self, config: ModelConfig) -> str:
        """Return the name of transformers' class for a model."""
        if config.head.task is not None:
            return self.tasks[config.head.task.kind].architecture
        if config.head.replaced:
            return self.of_replaced
        return self.architecture if config.head.pair == "none" else self.of_pairs

    def leaves_out(self, name: str, config: ModelConfig) -> bool:
        return bool(self.beyond) and name.startswith(self.beyond.format(config.layers))

    def settings(self, values: Mapping[str, Any], where: str) -> Settings:
        """Return config.json's content as this family reads it. Errors name the file ``where``."""
        return Settings({**self.defaults, **values}, where, self.aliases)

    def parts_of(self, config: ModelConfig) -> list[Part]:
        """Return the parts of a model. If it has a task, the head is that of the task's class."""
        parts, task = [part for part in self.parts if part.when(config)], config.head.task
        if task is None:
            return parts
        trunk = [part for part in parts if not part.ours[0].startswith("head")]
        return [*trunk, *self.tasks[task.kind].parts]

    def weights(self, config: ModelConfig) -> Iterator[Weight]:
        """Yield every transformers tensor of a model, in the order of the exported files."""
        shapes = our_shapes(config)
        remaining = set(shapes)
        split = {
            part.ours[0].format(layer)
            for part in self.parts
            if "[]" in part.theirs
            for layer in config.sparse
        }
        layers = max(config.layers, 0 if config.encoder is None else config.encoder.layers)
        for part in self.parts_of(config):
            layout = part.layout(config)
            if "[]" in part.theirs:
                yield from _by_expert(part, config, shapes, remaining)
                continue
            for layer in range(layers) if "{}" in part.theirs else (0,):
                for end in (".weight", ".bias", ""):
                    ours = tuple(name.format(layer) + end for name in part.ours)
                    if ours[0] not in shapes or ours[0] in split:
                        continue
                    remaining.difference_update(ours)
                    empty = [torch.empty(shapes[name], device="meta") for name in ours]
                    yield Weight(
                        theirs=part.theirs.format(layer) + end,
                        ours=ours,
                        layout=layout,
                        shape=tuple(layout.pack(empty).shape),
                    )
        if remaining:
            raise ValueError(f"{self.name} has no tensors for {sorted(remaining)}")


def _by_expert(
    part: Part, config: ModelConfig, shapes: Mapping[str, tuple[int, ...]], remaining: set[str]
) -> Iterator[Weight]:
    (name,) = part.ours
    for layer in config.sparse:
        ours = name.format(layer)
        if ours not in shapes:
            continue
        remaining.discard(ours)
        count, *shape = shapes[ours]
        for expert in range(count):
            yield Weight(
                theirs=part.theirs.format(layer).replace("[]", str(expert)) + ".weight",
                ours=(ours,),
                layout=_single_expert(expert),
                shape=tuple(shape),
                expert=expert,
                of=count,
            )


def _single_expert(expert: int) -> Layout:
    return Layout(pack=lambda ours: ours[0][expert], unpack=lambda theirs: [theirs])


def our_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of each of our weights, by name, without allocating memory for them."""
    with torch.device("meta"):
        return {name: tuple(tensor.shape) for name, tensor in Decoder(config).state_dict().items()}


# What every family allows unless it says otherwise.
COMMON: dict[str, tuple[Any, ...]] = {
    "norm.place": ("pre",),
    "norm.eps": ("1e-5", "other"),
    "embedding.norm": (False,),
    "attention.kind": ("grouped",),
    "attention.qk_norm": (False,),
    "head.bias": (False,),
    "feed_forward.width": ("4 x hidden", "other"),
    "feed_forward.kind": ("dense",),
    "feed_forward.routing": ("top_k",),
    "feed_forward.scores": ("softmax",),
    "feed_forward.normalise": (True,),
    "feed_forward.scale": ("1",),
    "feed_forward.groups": ("none",),
    "feed_forward.shared_width": ("none",),
    "feed_forward.shared_gate": (False,),
    "feed_forward.first_dense": (0,),
    "feed_forward.every": (1,),
    "feed_forward.bias_rate": ("none",),
    "feed_forward.noisy": (False,),
    "residual.kind": ("serial",),
    "residual.norms": (1,),
    "residual.sandwich": (0,),
    "attention.kv_heads": ("heads",),
    "attention.head_dim": ("hidden / heads",),
    "attention.window": ("none",),
    "attention.sinks": (0,),
    "attention.globals": (0,),
    "attention.random": (0,),
    "attention.block": (1,),
    "attention.dilations": ("none",),
    "attention.segment": ("none",),
    "position.dim": ("head_dim",),
    "position.scaling": (False,),
    "position.theta": ("10000",),
    "position.offset": (0,),
    "position.buckets": ("none",),
    "position.norm": (False,),
    "position.shared": (False,),
    "mup_base": (None,),
    "causal": (True,),
    "encoder": ("none",),
    "share": ("none",),
    "norm.first": (True,),
    "embedding.size": ("hidden",),
    "embedding.segments": (0,),
    "head.tied": (True, False),
    "head.transform": (False,),
    "head.pair": ("none",),
    "head.replaced": (False,),
    "position.window_theta": ("theta",),
}


_NAMES: dict[TaskKind, str] = {
    "classify": "ForSequenceClassification",
    "token": "ForTokenClassification",
    "span": "ForQuestionAnswering",
}
USES = {  # the Hub's name of the task, and transformers' class that loads its model
    "classify": ("text-classification", "AutoModelForSequenceClassification"),
    "token": ("token-classification", "AutoModelForTokenClassification"),
    "span": ("question-answering", "AutoModelForQuestionAnswering"),
}


def _class(name: str, kind: TaskKind, parts: Mapping[str, Theirs]) -> TaskClass:
    return TaskClass(architecture=name + _NAMES[kind], parts=parts_from(parts))


def of_encoder(name: str, pool: str, classifier: str = "classifier") -> dict[TaskKind, TaskClass]:
    """Return transformers' classes for the tasks of an encoder like BERT. Their names begin with
    ``name``. In the class that classifies whole texts, the output matrix is called ``classifier``
    and the layer before it ``pool``."""
    text = {"head.transform.linear": pool, "head": classifier}
    return {
        "classify": _class(name, "classify", text),
        "token": _class(name, "token", {"head": "classifier"}),
        "span": _class(name, "span", {"head": "qa_outputs"}),
    }


def of_modernbert() -> dict[TaskKind, TaskClass]:
    """Return transformers' classes for ModernBERT's tasks. Each class has a layer before the output
    matrix."""
    parts = {"head.transform.linear": "head.dense", "head.transform.norm": "head.norm"}
    parts["head"] = "classifier"
    return {kind: _class("ModernBert", kind, parts) for kind in _NAMES}


def of_decoder(name: str, token_head: str = "score") -> dict[TaskKind, TaskClass]:
    """Return transformers' classes for the tasks of a decoder. There is none for questions, because
    in transformers' class for questions the rest of the model has another name."""
    return {
        "classify": _class(name, "classify", {"head": "score"}),
        "token": _class(name, "token", {"head": token_head}),
    }


def task_keys(config: ModelConfig) -> Pairs:
    """Yield the keys of config.json that describe a task."""
    task = config.head.task
    if task is None or task.kind == "span":
        return
    yield "id2label", {str(number): label for number, label in enumerate(task.labels)}
    yield "label2id", {label: number for number, label in enumerate(task.labels)}
    if task.kind == "classify":
        yield "problem_type", "single_label_classification"


def with_saved_head(family: Family, config: ModelConfig, settings: Settings) -> ModelConfig:
    """Return the model's configuration, with the head for a task if config.json names a class with
    such a head. Raises ``LlmcurateError`` for wrong labels."""
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
    named = settings.sub("id2label")
    if named is None:
        return tuple(f"LABEL_{number}" for number in range(settings.whole("num_labels", 2)))
    count = len(named.names)
    return tuple(named.word(str(number)) for number in range(count))
