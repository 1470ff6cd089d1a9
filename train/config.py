"""Every number a run needs, on one page: the model's shape, the training plan, the presets."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from train.errors import TrainError

Config = TypeVar("Config", "ModelConfig", "TrainConfig")


def _positive(config: Any, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if not 0 < value < math.inf:  # false for a NaN too
            raise TrainError(f"{name} is {value}: it must be over 0 and finite", exit_code=2)


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A decoder in the LLaMA family (Touvron et al. 2023): RMSNorm, RoPE, SwiGLU, grouped queries.

    ``kv_heads`` below ``heads`` shares each key and value head among ``heads / kv_heads`` query
    heads (Ainslie et al. 2023). ``context`` is the longest row in tokens, in training and in
    generation. With ``tied_embeddings`` the output head is the embedding, transposed.
    """

    vocab: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp_hidden: int
    context: int = 256
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    tied_embeddings: bool = True

    def __post_init__(self) -> None:
        _positive(self, "vocab", "layers", "hidden", "heads", "kv_heads", "head_dim")
        _positive(self, "mlp_hidden", "context", "rope_theta", "norm_eps")
        if self.heads % self.kv_heads:
            raise TrainError(
                f"kv_heads is {self.kv_heads}: it must divide heads ({self.heads})", exit_code=2
            )
        if self.head_dim % 2:
            raise TrainError(f"head_dim is {self.head_dim}: RoPE needs it even", exit_code=2)


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How to train. A step takes ``rows`` rows of ``context`` tokens. The defaults take ``tiny``
    about a minute on two idle CPU cores; at that scale many small steps beat few large ones.

    The learning rate rises linearly over ``warmup`` steps, never from 0, then falls as a cosine to
    ``lr * lr_floor`` at the last step. ``held_out`` is the share of documents kept from training;
    ``eval_tokens`` bounds how much of them is scored. ``device``: auto, cpu, cuda or cuda:N.
    """

    steps: int = 400
    rows: int = 4
    context: int = 256
    lr: float = 3e-3
    lr_floor: float = 0.1
    warmup: int = 20
    weight_decay: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    clip: float = 1.0
    seed: int = 0
    held_out: float = 0.05
    attention: str = "auto"
    device: str = "auto"
    eval_every: int = 50
    eval_tokens: int = 16_384
    checkpoint_every: int = 50
    keep_checkpoints: int = 3

    # These may differ on a resume: they change what is written and where it runs, not the plan.
    FREE = frozenset(
        {"device", "eval_every", "eval_tokens", "checkpoint_every", "keep_checkpoints"}
    )

    def __post_init__(self) -> None:
        _positive(self, "steps", "rows", "context", "lr", "eps", "clip")
        _positive(self, "eval_every", "eval_tokens", "checkpoint_every", "keep_checkpoints")
        if not 0 <= self.seed < 1 << 63:
            raise TrainError(f"seed is {self.seed}: give 0 to 2**63 - 1", exit_code=2)
        for name in ("warmup", "weight_decay"):
            if not 0 <= getattr(self, name) < math.inf:
                raise TrainError(f"{name} is {getattr(self, name)}: give 0 or more", exit_code=2)
        for name in ("lr_floor", "beta1", "beta2"):
            if not 0 <= getattr(self, name) <= 1:
                raise TrainError(
                    f"{name} is {getattr(self, name)}: it lies between 0 and 1", exit_code=2
                )
        if not 0 < self.held_out < 1:
            raise TrainError(
                f"held_out is {self.held_out}: a share between 0 and 1, such as 0.05", exit_code=2
            )


def tiny(vocab: int, context: int = 256) -> ModelConfig:
    """About 2.5 million parameters at a vocabulary of 4096: a minute on two CPU cores."""
    return ModelConfig(
        vocab=vocab,
        context=context,
        layers=4,
        hidden=192,
        heads=6,
        kv_heads=2,
        head_dim=32,
        mlp_hidden=512,
    )


def small(vocab: int, context: int = 512) -> ModelConfig:
    """About 9 million parameters at a vocabulary of 8192: minutes on one GPU."""
    return ModelConfig(
        vocab=vocab,
        context=context,
        layers=4,
        hidden=384,
        heads=6,
        kv_heads=2,
        head_dim=64,
        mlp_hidden=1024,
    )


PRESETS: dict[str, Callable[[int, int], ModelConfig]] = {"tiny": tiny, "small": small}


def preset(name: str, *, vocab: int, context: int) -> ModelConfig:
    """The preset called ``name`` for a vocabulary and a context; raises ``TrainError``."""
    if name not in PRESETS:
        raise TrainError(f"model {name!r}: choose one of {', '.join(PRESETS)}", exit_code=2)
    return PRESETS[name](vocab, context)


def to_dict(config: ModelConfig | TrainConfig) -> dict[str, Any]:
    return dataclasses.asdict(config)


def from_dict(kind: type[Config], values: Any, where: str) -> Config:
    """Build a config from parsed JSON that may have been written by anyone.

    Raises ``TrainError`` naming ``where`` and the key for unknown, missing or mistyped values.
    """
    if not isinstance(values, dict):
        raise TrainError(f"{where}: expected an object of settings")
    fields = {field.name: str(field.type) for field in dataclasses.fields(kind)}
    types: dict[str, tuple[type, ...]] = {
        "int": (int,),
        "float": (int, float),
        "bool": (bool,),
        "str": (str,),
    }
    for name, value in values.items():
        if name not in fields:
            raise TrainError(f"{where}: unknown setting {name!r}")
        wanted = types[fields[name]]
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            raise TrainError(f"{where}: {name} is {value!r}, expected {fields[name]}")
    try:
        return kind(**values)
    except TypeError as error:
        raise TrainError(f"{where}: {error}") from error
