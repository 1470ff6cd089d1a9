"""How to train: every number of a run that is not the model's shape."""

from __future__ import annotations

import math
from dataclasses import dataclass

from train.data.sources import Source, Stage
from train.errors import TrainError
from train.settings import positive


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How to train. A step takes ``rows`` rows of ``context`` tokens. The defaults take ``tiny``
    about a minute on two idle CPU cores; at that scale many small steps beat few large ones.

    The learning rate rises linearly over ``warmup`` steps, never from 0, then falls by ``schedule``
    (optim/schedules.py) to ``lr * lr_floor``; ``decay`` is the share of the steps over which wsd
    falls. ``optimizer``: optim/registry.py; ``momentum`` is Muon's. ``held_out`` is the share of
    documents kept from training; ``eval_tokens`` bounds how much of them is scored. ``device``:
    auto, cpu, cuda or cuda:N.

    ``packing``: data/packing.py. ``sources`` in place of one folder of shards, ``stages`` whose
    steps add up to ``steps``: data/sources.py; ``max_epochs``: no source may be gone through more
    often. ``vocab_size, end_of_text, tokenizer, token_dtype``: of shards that do not say so
    themselves (data/part.py).
    """

    steps: int = 400
    rows: int = 4
    context: int = 256
    optimizer: str = "adamw"
    lr: float = 3e-3
    schedule: str = "cosine"
    lr_floor: float = 0.1
    warmup: int = 20
    decay: float = 0.2
    weight_decay: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    momentum: float = 0.95
    clip: float = 1.0
    seed: int = 0
    held_out: float = 0.05
    packing: str = "concat"
    sources: tuple[Source, ...] = ()
    stages: tuple[Stage, ...] = ()
    max_epochs: float | None = None
    vocab_size: int | None = None
    end_of_text: int | None = None
    tokenizer: str | None = None
    token_dtype: str | None = None
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
        positive(self, "steps", "rows", "context", "lr", "eps", "clip")
        positive(self, "eval_every", "eval_tokens", "checkpoint_every", "keep_checkpoints")
        if not 0 <= self.seed < 1 << 63:
            raise TrainError(f"seed is {self.seed}: give 0 to 2**63 - 1", exit_code=2)
        for name in ("warmup", "weight_decay"):
            if not 0 <= getattr(self, name) < math.inf:
                raise TrainError(f"{name} is {getattr(self, name)}: give 0 or more", exit_code=2)
        for name in ("lr_floor", "decay", "beta1", "beta2", "momentum"):
            if not 0 <= getattr(self, name) <= 1:
                raise TrainError(
                    f"{name} is {getattr(self, name)}: it lies between 0 and 1", exit_code=2
                )
        if self.max_epochs is not None:
            positive(self, "max_epochs")
        total = sum(stage.steps for stage in self.stages)
        if self.stages and total != self.steps:
            raise TrainError(
                f"steps is {self.steps}, the stages have {total}: set steps to {total}",
                exit_code=2,
            )
        if not 0 < self.held_out < 1:
            raise TrainError(
                f"held_out is {self.held_out}: a share between 0 and 1, such as 0.05", exit_code=2
            )
