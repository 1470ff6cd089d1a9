"""What a family of transformers' models is to us: which configurations it can say, how it writes
them, and where it keeps each weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from train.hf.layouts import Layout, plain
from train.hf.settings import Settings
from train.model.config import MLPS, ModelConfig
from train.model.decoder import Decoder

# Our words for feed-forwards, by their names of activations.
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "silu": "swish",
    "swish": "swish",
    "relu2": "relu2",
}
GATED = {
    "silu": "swiglu",
    "swish": "swiglu",
    "gelu": "geglu",
    "gelu_new": "geglu_tanh",
    "gelu_pytorch_tanh": "geglu_tanh",
    "relu": "reglu",
    "sigmoid": "glu",
}
PLAIN_MLPS = tuple(name for name, (_, gated) in MLPS.items() if not gated)
GATED_MLPS = tuple(name for name, (_, gated) in MLPS.items() if gated)


def activation(config: ModelConfig) -> str:
    """Their name of the activation."""
    name = MLPS[config.mlp][0]
    return {"gelu_tanh": "gelu_new"}.get(name, name)


@dataclass(frozen=True, kw_only=True)
class Part:
    """A module of theirs and the modules of ours it holds; ``{}`` is the layer."""

    ours: tuple[str, ...]
    theirs: str
    layout: Callable[[ModelConfig], Layout] = plain


@dataclass(frozen=True, kw_only=True)
class Weight:
    """A tensor of theirs, its shape, and the tensors of ours in it."""

    theirs: str
    ours: tuple[str, ...]
    layout: Layout
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Family:
    """``allows``: the values that each trait (see ``traits``) may have. ``write`` gives config.json
    without what all families share; ``read`` the settings of a ModelConfig from it, for a context
    (None: the file's). ``prefix``: what files saved from the class without a head leave out.
    """

    name: str
    architecture: str
    allows: Mapping[str, tuple[Any, ...]]
    write: Callable[[ModelConfig], dict[str, Any]]
    read: Callable[[Settings, int | None], dict[str, Any]]
    parts: tuple[Part, ...]
    prefix: str
    aliases: Mapping[str, str] = field(default_factory=dict)
    # What transformers takes for a key that is not there, where a null means something else.
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def settings(self, values: Mapping[str, Any], where: str) -> Settings:
        """config.json as this family reads it; ``where`` names it in errors."""
        return Settings({**self.defaults, **values}, where, self.aliases)

    def obstacles(self, config: ModelConfig) -> list[str]:
        """The traits that this family cannot say."""
        return [
            name for name, value in traits(config).items() if value not in self.allows.get(name, ())
        ]

    def weights(self, config: ModelConfig) -> Iterator[Weight]:
        """Every tensor of theirs, in their order."""
        shapes = our_shapes(config)
        remaining = set(shapes)
        for part in self.parts:
            layout = part.layout(config)
            for layer in range(config.layers) if "{}" in part.theirs else (0,):
                for end in (".weight", ".bias", ""):
                    ours = tuple(name.format(layer) + end for name in part.ours)
                    if ours[0] not in shapes:
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


def our_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """The shape of each weight of ours, by name; allocates nothing."""
    with torch.device("meta"):
        return {name: tuple(tensor.shape) for name, tensor in Decoder(config).state_dict().items()}


def traits(config: ModelConfig) -> dict[str, Any]:
    """What decides the family, by the setting that the user would change."""
    windows = {config.window_of(layer) for layer in range(config.layers)}
    window = "none" if windows == {None} else "some layers" if None in windows else "every layer"
    scaling = config.rope_scaling
    # An NTK-scaled rotation is one with another theta.
    scaled = scaling is not None and scaling.kind != "ntk"
    theta = scaling is not None or config.rope_theta != 10_000.0
    return {
        "norm": config.norm,
        "norm_place": config.norm_place,
        "norm_eps": "1e-5" if config.norm_eps == 1e-5 else "other",
        "embedding_norm": config.embedding_norm,
        "qk_norm": config.qk_norm,
        "bias": config.bias,
        "head_bias": config.head_bias,
        "mlp": config.mlp,
        "mlp_hidden": "4 x hidden" if config.mlp_hidden == 4 * config.hidden else "other",
        "parallel": config.parallel,
        "parallel_norms": config.parallel_norms if config.parallel else 1,
        "kv_heads": "heads" if config.kv_heads == config.heads else "fewer than heads",
        "head_dim": _head_dim(config),
        "window": window,
        "sinks": config.sinks if window != "none" else 0,
        "position": config.position,
        "rope_dim": "a part of head_dim" if config.rotated != config.head_dim else "head_dim",
        "rope_scaling": scaled,
        "rope_theta": "other" if theta else "10000",
        "learned_offset": config.learned_offset if config.position == "learned" else 0,
    }


def _head_dim(config: ModelConfig) -> str:
    if config.head_dim * config.heads == config.hidden:
        return "hidden / heads"
    return "other" if config.hidden % config.heads == 0 else "other, heads not dividing hidden"


# What every family allows unless it says otherwise.
COMMON: dict[str, tuple[Any, ...]] = {
    "norm_place": ("pre",),
    "norm_eps": ("1e-5", "other"),
    "embedding_norm": (False,),
    "qk_norm": (False,),
    "head_bias": (False,),
    "mlp_hidden": ("4 x hidden", "other"),
    "parallel": (False,),
    "parallel_norms": (1,),
    "kv_heads": ("heads",),
    "head_dim": ("hidden / heads",),
    "window": ("none",),
    "sinks": (0,),
    "rope_dim": ("head_dim",),
    "rope_scaling": (False,),
    "rope_theta": ("10000",),
    "learned_offset": (0,),
}
