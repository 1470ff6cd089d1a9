"""Start a model from another trained one. Weights that do not fit are converted, or initialised
anew. Each kind of conversion is a function of the old and the new configuration. It returns a
``Conversion``, or None if it does not apply. To add one, write it here and add it to
``CONVERSIONS``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from llmcurate.base.settings import refuse_any, refuse_if
from train.model.attention_settings import Grouped
from train.model.config import ModelConfig
from train.model.feed_forward_settings import Dense, Experts
from train.model.heads import name_with_task
from train.model.plugin_settings import Plugin

Named = Iterator[tuple[str, Tensor]]

_KEY_OR_VALUE = re.compile(r".*\.(attention|cross)\.(key|value|position_key)\.(weight|bias)")
OF_TOKENS = re.compile(r"(embedding|head)\.weight|(generator\.)?head\.bias")
_OF_BLOCK = r"(?:stack\.blocks\.(?P<block>\d+)|mtp\.(?P<ahead>\d+)\.block)\.feed_forward\."
_MATRIX = re.compile(rf"(?P<matrix>{_OF_BLOCK}(?:gate|up|down))\.weight")


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """A step from one configuration towards another. ``name`` is a text for messages. ``weights``
    takes the name and value of an old weight and yields names and values of new weights made from
    it; if it yields nothing, the old weight is dropped. ``anew`` is a pattern: new weights whose
    names match are initialised as in an untrained model."""

    name: str
    weights: Callable[[str, Tensor], Named]
    anew: str = ""


def fewer_keys(old: ModelConfig, new: ModelConfig) -> Conversion | None:
    """Merge groups of key and value heads into their average (Ainslie et al. 2023, section 2.1)."""
    before, after = old.attention, new.attention
    if not (isinstance(before, Grouped) and isinstance(after, Grouped)):
        return None
    heads, fewer = before.kv_heads, after.kv_heads
    if heads <= fewer or isinstance(before, Plugin) != isinstance(after, Plugin):
        return None
    refuse_if(
        heads % fewer != 0,
        f"attention.kv_heads is {fewer}: to average heads, it must divide {heads}",
    )

    def weights(name: str, weight: Tensor) -> Named:
        if _KEY_OR_VALUE.fullmatch(name):
            grouped = weight.unflatten(0, (-1, heads // fewer, before.head_dim))
            weight = grouped.mean(1).flatten(0, 1)
        yield name, weight

    return Conversion(name=f"{heads} key and value heads to {fewer}", weights=weights)


def more_tokens(old: ModelConfig, new: ModelConfig) -> Conversion | None:
    """Set the rows of tokens after the old vocabulary, such as an objective's mask, to the mean of
    the old rows. This changes the probabilities of the old tokens least (Hewitt 2021).
    """
    if new.vocab <= old.vocab:
        return None

    def weights(name: str, weight: Tensor) -> Named:
        if OF_TOKENS.fullmatch(name) and len(weight) == old.vocab:
            mean = weight.mean(0, keepdim=True)
            further = mean.expand(new.vocab - old.vocab, *weight.shape[1:])
            weight = torch.cat((weight, further))
        yield name, weight

    return Conversion(name=f"vocabulary of {old.vocab} to {new.vocab}", weights=weights)


def experts(old: ModelConfig, new: ModelConfig) -> Conversion | None:
    """Start experts as copies of the dense feed-forward. If the router's weights for a token sum to
    one, the model at first computes the same as before (Komatsuzaki et al. 2023, section 2.2).
    Routers start anew.
    """
    before, own = old.feed_forward, new.feed_forward
    if not isinstance(own, Experts) or isinstance(before, Experts):
        return None
    refuse_any(_not_copied(before, own))

    def weights(name: str, weight: Tensor) -> Named:
        matrix = _MATRIX.fullmatch(name)
        if matrix is None:
            yield name, weight
            return
        ahead = matrix["ahead"] is not None
        layer = new.layers + int(matrix["ahead"]) if ahead else int(matrix["block"]) * new.share
        if own.at(layer):
            yield matrix["matrix"], weight.expand(own.count, -1, -1).contiguous()
        else:
            yield name, weight

    anew = rf"{_OF_BLOCK}router\..*"
    return Conversion(name=f"{own.count} experts of each feed-forward", weights=weights, anew=anew)


def _not_copied(old: Dense, own: Experts) -> Iterator[str]:
    kind = "feed_forward=experts"
    if isinstance(old, Plugin):
        yield f"{kind}: {old.kind} comes from a file and cannot be copied into experts"
    same = {
        "width": (own.width, old.width),
        "dense_width": (own.dense_width or own.width, old.width),
        "activation": (own.activation, old.activation),
        "shared_width": (own.shared_width, 0),
        "scale": (own.scale, 1.0),
    }
    if own.routing != "hash":  # there each weight is 1
        same["routing"], same["normalise"] = (own.routing, "top_k"), (own.normalise, True)
    for name, (value, wanted) in same.items():
        if value != wanted:
            yield (
                f"feed_forward.{name} is {value}: experts that start as copies of the dense "
                f"feed-forward need {wanted}"
            )
    if old.bias:
        yield f"{kind}: the dense feed-forward has biases, which experts cannot have"


def other_mask(old: ModelConfig, new: ModelConfig) -> Conversion | None:
    """Keep all weights and change only the mask, from a decoder to an encoder or the reverse."""
    if old.causal == new.causal or old.encoder is not None or new.encoder is not None:
        return None
    return Conversion(
        name="an encoder to a decoder" if new.causal else "a decoder to an encoder",
        weights=lambda name, weight: iter([(name, weight)]),
    )


def fewer_heads(old: ModelConfig, new: ModelConfig) -> Conversion | None:
    """Drop the head for pairs of segments, or the head for hidden spans, or both."""
    less = {
        "pair": old.head.pair != "none" and new.head.pair == "none",
        "boundary": old.head.boundary and not new.head.boundary,
    }
    names = [name for name, gone in less.items() if gone]
    if not names or new.head.task is not None:
        return None

    def weights(name: str, weight: Tensor) -> Named:
        if not name.startswith(tuple(f"head.{head}." for head in names)):
            yield name, weight

    return Conversion(name=f"without head.{' and head.'.join(names)}", weights=weights)


def both_stacks(old: ModelConfig, new: ModelConfig) -> Conversion | None:
    """Start encoder and decoder from the weights of one stack. A decoder with fewer layers starts
    from the stack's first layers. Cross-attention starts anew (Rothe et al. 2020).
    """
    if old.encoder is not None or new.encoder is None:
        return None
    shared, blocks = new.encoder.shared, new.layers // new.share

    def weights(name: str, weight: Tensor) -> Named:
        block = re.match(r"stack\.blocks\.(\d+)\.", name)
        if block is None or int(block[1]) < blocks:
            yield name, weight
        if name.startswith("stack.") and not (block and shared):
            yield f"encoder.{name}", weight
        elif name.startswith("embedding.norm."):
            yield name.replace("embedding.", "encoder."), weight

    return Conversion(
        name="one stack to an encoder and a decoder",
        weights=weights,
        anew=r"stack\.blocks\.\d+\.cross(_\w+)?\..*",
    )


def task(old: ModelConfig, new: ModelConfig) -> Conversion | None:
    """Return the conversion to a head for a new task, or None if there is no new task. The new
    head's matrix is untrained; the layer before it may be the old head's (see
    ``name_with_task``)."""
    own = new.head.task
    if own is None or own == old.head.task:
        return None

    def weights(name: str, weight: Tensor) -> Named:
        if new_name := name_with_task(name, own):
            yield new_name, weight

    return Conversion(name=f"a head to {own.kind}", weights=weights, anew=r"head\..*")


CONVERSIONS = (fewer_keys, more_tokens, experts, other_mask, fewer_heads, both_stacks, task)


def conversions(old: ModelConfig, new: ModelConfig) -> list[Conversion]:
    """Return the conversions that lead from ``old`` to ``new``, in the order in which they apply.
    Raises ``LlmcurateError`` if one is impossible.
    """
    candidates = (kind(old, new) for kind in CONVERSIONS)
    return [conversion for conversion in candidates if conversion is not None]


def converted(
    weights: Iterable[tuple[str, Tensor]], steps: Iterable[Conversion]
) -> Iterator[tuple[str, Tensor]]:
    """Yield the new model's weights that come from the old model, one at a time."""
    for name, weight in weights:
        named = [(name, weight)]
        for step in steps:
            named = [pair for each in named for pair in step.weights(*each)]
        yield from named


def anew(name: str, steps: Iterable[Conversion]) -> bool:
    """Return True if weight ``name`` of the new model does not come from the old one."""
    return any(re.fullmatch(step.anew, name) is not None for step in steps if step.anew)


def fits(
    old: Mapping[str, tuple[int, ...]],
    new: Mapping[str, tuple[int, ...]],
    steps: list[Conversion],
) -> bool:
    """Return True if the conversions ``steps`` turn weights of shapes ``old`` into ``new``."""
    empty = ((name, torch.empty(shape, device="meta")) for name, shape in old.items())
    reached = {name: tuple(weight.shape) for name, weight in converted(empty, steps)}
    return reached == {
        name: shape for name, shape in new.items() if name in reached or not anew(name, steps)
    }
