"""How to train: every number of a run that is not the model's shape."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass

from train.errors import TrainError
from train.settings import positive

# Settings of what a run trains on: sources and how much of each.


@dataclass(frozen=True, kw_only=True)
class Source:
    """A folder of shards and its part of the training text.

    At most one of ``weight`` (relative to the other sources' weights), ``tokens`` and ``epochs``
    (how much is taken in the run, or in its stage); with none, a source has the part that its size
    gives it. ``name`` is what the summary calls it; the folder's name by default.
    """

    shards: str
    name: str | None = None
    weight: float | None = None
    tokens: int | None = None
    epochs: float | None = None

    def __post_init__(self) -> None:
        amounts = [
            name for name in ("weight", "tokens", "epochs") if getattr(self, name) is not None
        ]
        if len(amounts) > 1:
            raise TrainError(f"source {self.label}: give {' or '.join(amounts)}", exit_code=2)
        for name in amounts:
            if not 0 < getattr(self, name) < math.inf:
                value = getattr(self, name)
                raise TrainError(
                    f"source {self.label}: {name} is {value}: it must be over 0 and finite",
                    exit_code=2,
                )

    @property
    def label(self) -> str:
        return self.name or self.shards.rstrip("/").rsplit("/", 1)[-1]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stretch of the run, with what differs in it from the run's own settings.

    ``warmup`` is 0 after the first stage unless given. A schedule goes over the stage's own steps.
    """

    steps: int
    name: str | None = None
    context: int | None = None
    rows: int | None = None
    packing: str | None = None
    lr: float | None = None
    lr_floor: float | None = None
    schedule: str | None = None
    warmup: int | None = None
    decay: float | None = None
    sources: tuple[Source, ...] = ()

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise TrainError(f"stage {self.name or ''}: steps is {self.steps}: give 1 or more")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How to train. A step takes ``rows`` rows of ``context`` tokens. The defaults take ``tiny``
    about a minute on two idle CPU cores; at that scale many small steps beat few large ones.

    The learning rate rises linearly over ``warmup`` steps, never from 0, then falls by ``schedule``
    (optim/schedules.py) to ``lr * lr_floor``; ``decay`` is the share of the steps over which wsd
    falls. ``optimizer``: optim/optimizers.py; ``momentum`` is Muon's. ``clip`` bounds the norm
    of the gradient, ``z_loss`` weighs the square of the log normaliser (losses.py), ``ema`` is the
    decay of an average of the weights (optim/weights.py), 0 for none.

    ``objective``: objectives.py. ``held_out`` is the share of documents kept from training;
    ``eval_tokens`` bounds how much of them is scored. ``precision``: auto, fp32 or bf16.
    ``device``: auto, cpu, cuda or cuda:N. ``parallel``: ddp or fsdp, for several processes.
    ``accumulate``: into how many micro-batches a step's rows are cut, on each process.
    ``loss_chunk``: tokens whose logits are held at once, 0 for a size that fits. ``recompute``:
    keep no activations inside blocks. ``spike``: stop, skip or rollback, by the rule of spikes.py.

    ``packing``: data/packing.py. ``sources`` in place of one folder of shards, ``stages`` whose
    steps add up to ``steps``: config.py; ``max_epochs``: no source may be gone through more
    often. ``vocab_size, end_of_text, tokenizer, token_dtype``: of shards that do not say so
    themselves (data/part.py).

    The lines of metrics, one a step, are written every ``log_every`` steps; between them nothing
    waits for the device. ``keep_checkpoints`` newest stay, and with ``keep_best`` the one of the
    lowest held-out loss; ``async_checkpoints`` writes them beside training.
    """

    steps: int = 400
    rows: int = 4
    context: int = 256
    objective: str = "causal"
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
    z_loss: float = 0.0
    ema: float = 0.0
    seed: int = 0
    packing: str = "concat"
    sources: tuple[Source, ...] = ()
    stages: tuple[Stage, ...] = ()
    max_epochs: float | None = None
    vocab_size: int | None = None
    end_of_text: int | None = None
    tokenizer: str | None = None
    token_dtype: str | None = None
    held_out: float = 0.05
    attention: str = "auto"
    precision: str = "auto"
    device: str = "auto"
    parallel: str = "ddp"
    accumulate: int = 1
    loss_chunk: int = 0
    recompute: bool = False
    compile: bool = False
    spike: str = "stop"
    spike_factor: float = 0.0
    spike_window: int = 64
    spike_batches: int = 1
    log_every: int = 10
    tensorboard: bool = False
    eval_every: int = 50
    eval_tokens: int = 16_384
    checkpoint_every: int = 50
    keep_checkpoints: int = 3
    keep_best: bool = True
    async_checkpoints: bool = False

    # These may differ on a resume: they change where it runs and what is written, not the plan.
    FREE = frozenset(
        {
            *("device", "parallel", "accumulate", "loss_chunk", "recompute", "compile"),
            *("spike", "spike_factor", "spike_window", "spike_batches"),
            *("log_every", "tensorboard", "eval_every", "eval_tokens"),
            *("checkpoint_every", "keep_checkpoints", "keep_best", "async_checkpoints"),
        }
    )

    def __post_init__(self) -> None:
        positive(self, "steps", "rows", "context", "lr", "eps", "clip", "accumulate")
        positive(self, "log_every", "eval_every", "eval_tokens", "checkpoint_every")
        positive(self, "keep_checkpoints", "spike_window", "spike_batches")
        choices = {
            "precision": ("auto", "fp32", "bf16"),
            "parallel": ("ddp", "fsdp"),
            "spike": ("stop", "skip", "rollback"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise TrainError(
                    f"{name} is {getattr(self, name)!r}: choose {', '.join(allowed)}", exit_code=2
                )
        if self.rows % self.accumulate:
            raise TrainError(
                f"rows is {self.rows}: {self.accumulate} micro-batches cannot share them equally",
                exit_code=2,
            )
        if not 0 <= self.seed < 1 << 63:
            raise TrainError(f"seed is {self.seed}: give 0 to 2**63 - 1", exit_code=2)
        for name in ("warmup", "weight_decay", "z_loss", "loss_chunk", "spike_factor"):
            if not 0 <= getattr(self, name) < math.inf:
                raise TrainError(f"{name} is {getattr(self, name)}: give 0 or more", exit_code=2)
        for name in ("lr_floor", "decay", "beta1", "beta2", "momentum", "ema"):
            if not 0 <= getattr(self, name) <= 1:
                raise TrainError(
                    f"{name} is {getattr(self, name)}: it lies between 0 and 1", exit_code=2
                )
        if self.ema == 1:
            raise TrainError("ema is 1: the average would never move; give less", exit_code=2)
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


# A run in stages: which stage a step belongs to is a function of the step and the settings.


@functools.lru_cache(maxsize=16)
def stages_of(config: TrainConfig) -> tuple[TrainConfig, ...]:
    """The settings of each stage, ``steps`` those of the stage; of a run without, its own."""
    if not config.stages:
        return (config,)
    whole = []
    for number, stage in enumerate(config.stages):
        changes = {
            field.name: value
            for field in dataclasses.fields(stage)
            if field.name != "name" and (value := getattr(stage, field.name)) not in (None, ())
        }
        first = {"warmup": config.warmup if number == 0 else 0}
        whole.append(dataclasses.replace(config, **(first | changes), stages=()))
    return tuple(whole)


def locate(config: TrainConfig, step: int) -> tuple[int, int]:
    """(stage, step within it) of a step of the run, all from 0; a step after the last is one of
    the last stage."""
    stages = stages_of(config)
    for number, stage in enumerate(stages):
        if step < stage.steps or number == len(stages) - 1:
            break
        step -= stage.steps
    return number, step


def names(config: TrainConfig) -> list[str]:
    """What the stages are called: by number where they have no name."""
    names_of_stages = [stage.name for stage in config.stages] or [None]
    return [name or f"stage {number + 1}" for number, name in enumerate(names_of_stages)]
