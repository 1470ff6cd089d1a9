"""A trained model as the start of another: what becomes of its weights, and what begins anew.

Each kind of conversion is a function of both configurations, which says what it does, or nothing
where it has nothing to do. To add one, write it here and put its name below.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from llmcurate.base.settings import refuse
from train.model.attention_settings import Grouped
from train.model.config import ModelConfig
from train.model.feed_forward_settings import Dense, Experts
from train.model.heads import kept
from train.model.plugin_settings import Plugin

Named = Iterator[tuple[str, Tensor]]

_KEY_OR_VALUE = re.compile(r".*\.(attention|cross)\.(key|value|position_key)\.(weight|bias)")
OF_TOKENS = re.compile(r"(embedding|head)\.weight|(generator\.)?head\.bias")
_OF_BLOCK = r"(?:stack\.blocks\.(?P<block>\d+)|mtp\.(?P<ahead>\d+)\.block)\.feed_forward\."
_MATRIX = re.compile(rf"(?P<matrix>{_OF_BLOCK}(?:gate|up|down))\.weight")


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """``name``: in words. ``weights``: what a weight of the old model is in the new one, under
    which names; nothing where it has no place there. ``anew``: a pattern of the names of weights
    that begin as in a model that is not trained.
    """

    name: str
    weights: Callable[[str, Tensor], Named]
    anew: str = ""


def _as_it_is(name: str, weight: Tensor) -> Named:
    yield name, weight


def fewer_keys(old: ModelConfig, new: ModelConfig) -> Conversion | None:
    """Each key and value head is the mean of those whose queries it serves (Ainslie et al. 2023,
    section 2.1).
    """
    before, after = old.attention, new.attention
    if not (isinstance(before, Grouped) and isinstance(after, Grouped)):
        return None
    heads, fewer = before.kv_heads, after.kv_heads
    if heads <= fewer or isinstance(before, Plugin) != isinstance(after, Plugin):
        return None
    refuse(
        heads % fewer != 0,
        f"attention.kv_heads is {fewer}: the mean of as many of {heads} for each needs a divisor",
    )

    def weights(name: str, weight: Tensor) -> Named:
        if _KEY_OR_VALUE.fullmatch(name):
            grouped = weight.unflatten(0, (-1, heads // fewer, before.head_dim))
            weight = grouped.mean(1).flatten(0, 1)
        yield name, weight

    return Conversion(name=f"{heads} key and value heads to {fewer}", weights=weights)


def more_tokens(old: ModelConfig, new: ModelConfig) -> Conversion | None:
    """Tokens behind the vocabulary, such as an objective's mask, begin as the mean of the others
    (Hewitt 2021), which changes least of what the others are given.
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
    """Experts that are copies of the dense feed-forward. With the weights of a token's experts
    summing to one they compute what it did, until training tells them apart (Komatsuzaki et al.
    2023, section 2.2). Routers begin anew.
    """
    before, own = old.feed_forward, new.feed_forward
    if not isinstance(own, Experts) or isinstance(before, Experts):
        return None
    _check_copies(before, own)

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


def _check_copies(old: Dense, own: Experts) -> None:
    """Raise ``LlmcurateError`` where such experts would not compute what ``old`` did."""
    refuse(
        isinstance(old, Plugin),
        f"feed_forward=experts: no copies are known of {old.kind}, which is of a file",
    )
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
        refuse(
            value != wanted,
            f"feed_forward.{name} is {value}: experts that are copies of the dense "
            f"feed-forward, and together compute what it did, need {wanted}",
        )
    refuse(old.bias, "feed_forward=experts: the dense feed-forward has biases, experts have none")


def other_sight(old: ModelConfig, new: ModelConfig) -> Conversion | None:
    """The same weights with another mask: a decoder that reads both ways, or the reverse."""
    if old.causal == new.causal or old.encoder is not None or new.encoder is not None:
        return None
    return Conversion(
        name="an encoder to a decoder" if new.causal else "a decoder to an encoder",
        weights=_as_it_is,
    )


def fewer_heads(old: ModelConfig, new: ModelConfig) -> Conversion | None:
    """Without the head that tells whether two segments belong together, or that for spans."""
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
    """An encoder and a decoder that both begin with the weights of one stack, the decoder with the
    first layers where it has fewer; cross-attention begins anew (Rothe et al. 2020).
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
    """A head for a task in place of the model's own; it begins anew."""
    own = new.head.task
    if own is None or own == old.head.task:
        return None

    def weights(name: str, weight: Tensor) -> Named:
        if stays := kept(name, own):
            yield stays, weight

    return Conversion(name=f"a head to {own.kind}", weights=weights, anew=r"head\..*")


CONVERSIONS = (fewer_keys, more_tokens, experts, other_sight, fewer_heads, both_stacks, task)


def conversions(old: ModelConfig, new: ModelConfig) -> list[Conversion]:
    """What leads from one to the other, in this order. Raises ``LlmcurateError``."""
    candidates = (kind(old, new) for kind in CONVERSIONS)
    return [conversion for conversion in candidates if conversion is not None]


def converted(
    weights: Iterable[tuple[str, Tensor]], steps: Iterable[Conversion]
) -> Iterator[tuple[str, Tensor]]:
    """The weights of a model as those of what it is converted to, one at a time."""
    for name, weight in weights:
        named = [(name, weight)]
        for step in steps:
            named = [pair for each in named for pair in step.weights(*each)]
        yield from named


def anew(name: str, steps: Iterable[Conversion]) -> bool:
    """Whether a weight of the new model comes from none of the old one."""
    return any(re.fullmatch(step.anew, name) is not None for step in steps if step.anew)


def fits(
    old: Mapping[str, tuple[int, ...]],
    new: Mapping[str, tuple[int, ...]],
    steps: list[Conversion],
) -> bool:
    """Whether weights of the ``old`` shapes are those of the ``new`` once converted."""
    empty = ((name, torch.empty(shape, device="meta")) for name, shape in old.items())
    reached = {name: tuple(weight.shape) for name, weight in converted(empty, steps)}
    return reached == {
        name: shape for name, shape in new.items() if name in reached or not anew(name, steps)
    }
