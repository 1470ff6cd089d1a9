"""A family of transformers' models: the configurations that it can say, how it writes them, and
where it keeps each weight.
"""

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
    """``pack``: ours to theirs; ``unpack``: theirs to ours."""

    pack: Callable[[Sequence[Tensor]], Tensor]
    unpack: Callable[[Tensor], Sequence[Tensor]]


AS_IT_IS = Layout(pack=lambda ours: ours[0], unpack=lambda theirs: [theirs])


def plain(config: ModelConfig) -> Layout:
    """[outputs, inputs], as torch.nn.Linear keeps it."""
    return AS_IT_IS


def conv1d(config: ModelConfig) -> Layout:
    """GPT-2's Conv1D keeps a matrix as [inputs, outputs]."""
    return joined(1, turned=True)


def conv1d_qkv(config: ModelConfig) -> Layout:
    """GPT-2's query, key and value side by side: [inputs, 3 x outputs]."""
    return joined(3, turned=True)


def joined(pieces: int, turned: bool = False) -> Layout:
    """Matrices above each other; ``turned``: beside each other, as [inputs, outputs]."""

    def turn(tensor: Tensor) -> Tensor:
        return tensor.T if turned and tensor.dim() == 2 else tensor

    return Layout(
        pack=lambda ours: turn(torch.cat(list(ours))),
        unpack=lambda theirs: turn(theirs).chunk(pieces),
    )


def by_head(config: ModelConfig) -> Layout:
    """GPT-NeoX and BLOOM: the rows of head 0's query, key and value, then those of head 1, ..."""

    heads, size = config.attention.heads, config.attention.head_dim

    def pack(ours: Sequence[Tensor]) -> Tensor:
        by_head = [tensor.unflatten(0, (heads, size)) for tensor in ours]
        return torch.stack(by_head, dim=1).flatten(0, 2)

    def unpack(theirs: Tensor) -> Sequence[Tensor]:
        by_head = theirs.unflatten(0, (heads, 3, size))
        return [by_head[:, index].flatten(0, 1) for index in range(3)]

    return Layout(pack=pack, unpack=unpack)


def interleaved(config: ModelConfig) -> Layout:
    """GPT-J rotates dimension 2 i with 2 i + 1, ours i with i + rotated / 2: the rows of queries
    and keys change positions within each head.
    """
    order = torch.arange(config.attention.head_dim)
    order[: config.rotated] = rows_in_pairs(config.rotated)
    return reordered(config.attention.heads, order)


def reordered(groups: int, order: Tensor) -> Layout:
    """The rows of each of ``groups`` in this order: theirs, by the number that ours has."""

    def move(tensor: Tensor, order: Tensor) -> Tensor:
        grouped = tensor.unflatten(0, (groups, len(order)))
        return grouped.index_select(1, order.to(tensor.device)).flatten(0, 1)

    return Layout(
        pack=lambda ours: move(ours[0], order),
        unpack=lambda theirs: [move(theirs, order.argsort())],
    )


def rows_in_pairs(rotated: int) -> Tensor:
    """Which of our rows is each of theirs, where theirs that are turned together are neighbours."""
    return torch.arange(rotated).unflatten(0, (2, -1)).T.flatten()


@dataclass(frozen=True, kw_only=True)
class Part:
    """A module of theirs and the modules of ours it holds; ``{}`` is the layer, ``[]`` the expert,
    of which ours has all in one tensor. ``when``: of which configurations it is a part.
    """

    ours: tuple[str, ...]
    theirs: str
    layout: Callable[[ModelConfig], Layout] = plain
    when: Callable[[ModelConfig], bool] = lambda config: True


Theirs = str | tuple[str, Callable[[ModelConfig], Layout]]


def listed(names: Mapping[Any, Theirs]) -> tuple[Part, ...]:
    """A part for each of ``names``, of ours and theirs, with its layout where that is another than
    ``plain``. Ours that begin with ``{}`` are of each block of the stack.
    """
    parts = []
    for ours, row in names.items():
        theirs, layout = (row, plain) if isinstance(row, str) else row
        owns = (ours,) if isinstance(ours, str) else ours
        owns = tuple(f"stack.blocks.{own}" if own.startswith("{}") else own for own in owns)
        parts.append(Part(ours=owns, theirs=theirs, layout=layout))
    return tuple(parts)


QKV = ("{}.attention.query", "{}.attention.key", "{}.attention.value")


@dataclass(frozen=True, kw_only=True)
class Weight:
    """A tensor of theirs, its shape, and the tensors of ours in it. ``expert``: theirs is this one
    of the ``of`` in ours, and they come in turn.
    """

    theirs: str
    ours: tuple[str, ...]
    layout: Layout
    shape: tuple[int, ...]
    expert: int = 0
    of: int = 0


@dataclass(frozen=True, kw_only=True)
class TaskClass:
    """A class of theirs with a head for a task, and where it keeps the head's weights."""

    architecture: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, kw_only=True)
class Family:
    """``allows``: the values that each trait (families.py) may have. ``keys``: its config.json
    without what all families share. ``prefix``: what files saved from the class without a
    head leave out. ``of_pairs``: the class with a head for pairs of segments; ``of_replaced``: the
    one of a discriminator; ``tasks``: those with a head for a task, by its kind. ``beyond``: how
    names of tensors behind layer ``{}`` begin that files may hold and the class leaves out.
    ``copies``: tensors that files may hold and that are the embedding.
    """

    name: str
    architecture: str
    allows: Mapping[str, tuple[Any, ...]]
    keys: tuple[Row, ...]
    parts: tuple[Part, ...]
    prefix: str
    aliases: Mapping[str, str] = field(default_factory=dict)
    # What transformers takes for a key that is not there, where a null means something else.
    defaults: Mapping[str, int | float | str] = field(default_factory=dict)
    of_pairs: str = ""
    of_replaced: str = ""
    tasks: Mapping[TaskKind, TaskClass] = field(default_factory=dict)
    beyond: str = ""
    copies: tuple[str, ...] = ()

    def allowed(self, trait: str) -> tuple[Any, ...]:
        """The values that a trait may have."""
        return ("none", *self.tasks) if trait == "head.task" else self.allows.get(trait, ())

    @property
    def _rows(self) -> Iterable[Row]:
        return {row.name: row for row in self.keys}.values()

    def write(self, config: ModelConfig) -> Pairs:
        """The keys of config.json that are not all families'."""
        return (pair for row in self._rows for pair in row.write(config))

    def read(self, file: Settings, context: int | None) -> Reading:
        """The settings of a ModelConfig for a context (None: the file's)."""
        reading = Reading(file, context)
        for row in self._rows:
            reading.ours.update(row.read(reading))
        return reading

    def class_of(self, config: ModelConfig) -> str:
        """The name of transformers' class."""
        if config.head.task is not None:
            return self.tasks[config.head.task.kind].architecture
        if config.head.replaced:
            return self.of_replaced
        return self.architecture if config.head.pair == "none" else self.of_pairs

    def leaves_out(self, name: str, config: ModelConfig) -> bool:
        """Whether a tensor of a file is no part of the class."""
        return bool(self.beyond) and name.startswith(self.beyond.format(config.layers))

    def settings(self, values: Mapping[str, Any], where: str) -> Settings:
        """config.json as this family reads it; ``where`` names it in errors."""
        return Settings({**self.defaults, **values}, where, self.aliases)

    def parts_of(self, config: ModelConfig) -> list[Part]:
        """The parts that a model has, those of its own head or of its task's."""
        parts, task = [part for part in self.parts if part.when(config)], config.head.task
        if task is None:
            return parts
        trunk = [part for part in parts if not part.ours[0].startswith("head")]
        return [*trunk, *self.tasks[task.kind].parts]

    def weights(self, config: ModelConfig) -> Iterator[Weight]:
        """Every tensor of theirs, in their order."""
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
            raise ValueError(f"{self.name} has no place for {sorted(remaining)}")


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
                layout=_one_of(expert),
                shape=tuple(shape),
                expert=expert,
                of=count,
            )


def _one_of(expert: int) -> Layout:
    return Layout(pack=lambda ours: ours[0][expert], unpack=lambda theirs: [theirs])


def our_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """The shape of each weight of ours, by name; allocates nothing."""
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
USES = {  # what the Hub calls them, and transformers' class that finds theirs
    "classify": ("text-classification", "AutoModelForSequenceClassification"),
    "token": ("token-classification", "AutoModelForTokenClassification"),
    "span": ("question-answering", "AutoModelForQuestionAnswering"),
}


def _class(name: str, kind: TaskKind, parts: Mapping[str, Theirs]) -> TaskClass:
    return TaskClass(architecture=name + _NAMES[kind], parts=listed(parts))


def of_encoder(name: str, pool: str, classifier: str = "classifier") -> dict[TaskKind, TaskClass]:
    """The classes of BERT and those like it; ``pool``: what stands before its ``classifier``."""
    text = {"head.transform.linear": pool, "head": classifier}
    return {
        "classify": _class(name, "classify", text),
        "token": _class(name, "token", {"head": "classifier"}),
        "span": _class(name, "span", {"head": "qa_outputs"}),
    }


def of_modernbert() -> dict[TaskKind, TaskClass]:
    """ModernBERT has the transform in all of them."""
    parts = {"head.transform.linear": "head.dense", "head.transform.norm": "head.norm"}
    parts["head"] = "classifier"
    return {kind: _class("ModernBert", kind, parts) for kind in _NAMES}


def of_decoder(name: str, of_words: str = "score") -> dict[TaskKind, TaskClass]:
    """The classes of decoders. Theirs for questions name the trunk otherwise."""
    return {
        "classify": _class(name, "classify", {"head": "score"}),
        "token": _class(name, "token", {"head": of_words}),
    }


def written(config: ModelConfig) -> Pairs:
    """What config.json says of a task."""
    task = config.head.task
    if task is None or task.kind == "span":
        return
    yield "id2label", {str(number): label for number, label in enumerate(task.labels)}
    yield "label2id", {label: number for number, label in enumerate(task.labels)}
    if task.kind == "classify":
        yield "problem_type", "single_label_classification"


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
