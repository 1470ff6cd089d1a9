"""The settings of training: all settings of a run except the model's shape."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field, NonNegativeInt

from llmcurate.base.disk.units import parse_duration
from llmcurate.base.errors import UsageError
from llmcurate.base.settings import dataclass, refuse_any, refuse_if
from train.model.config import ModelConfig
from train.model.position_settings import Rope, RopeScaling
from train.objective_settings import Auto, Objective


@dataclass(frozen=True, kw_only=True)
class Source:
    """A folder of shards in the training text. At most one of ``weight``, ``tokens`` and ``epochs``
    sets its share of the text. By default the share is in proportion to the folder's size."""

    shards: str
    """Folder of the token shards."""
    name: str | None = None
    """Name in the summary. Without a value the folder's."""
    weight: float | None = Field(None, gt=0)
    """Weight relative to the other sources' weights."""
    tokens: int | None = Field(None, ge=1)
    """Tokens of the source to use in the run, or in its stage."""
    epochs: float | None = Field(None, gt=0)
    """Epochs of the source in the run, or in its stage."""

    def __post_init__(self) -> None:
        amounts = [
            name for name in ("weight", "tokens", "epochs") if getattr(self, name) is not None
        ]
        if len(amounts) > 1:
            raise UsageError(f"source {self.label}: give {' or '.join(amounts)}")

    @property
    def label(self) -> str:
        """The source's name: ``name`` if it is given, else the folder's name. For the folder
        01-shards-DIGEST of a recipe's step, this is shards."""
        folder = self.shards.rstrip("/").rsplit("/", 1)[-1]
        return self.name or re.sub(r"^\d+-(.+)-[0-9a-f]{16}$", r"\1", folder)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A part of the run with its own settings. The run's schedule and warm-up continue over all
    stages, except for a stage that sets ``schedule``, ``warmup``, ``decay`` or ``lr_floor``.
    """

    steps: int = Field(ge=1)
    """Number of steps of the stage."""
    name: str | None = None
    """Name in the summary. Without a value `stage 1`, `stage 2` and so on."""
    context: int | None = Field(None, ge=1)
    """Tokens in a row. Without a value the run's."""
    rows: int | None = Field(None, ge=1)
    """Rows in the batch of a step. Without a value the run's."""
    packing: str | None = None
    """Packing of documents into rows. Without a value the run's."""
    lr: float | None = Field(None, gt=0)
    """Learning rate after warm-up. Without a value the run's."""
    lr_floor: float | None = Field(None, ge=0, le=1)
    """Share of the learning rate at the end. Without a value the run's."""
    schedule: str | None = None
    """Schedule of the learning rate. Without a value the run's."""
    warmup: int | None = Field(None, ge=0)
    """Steps of warm-up of the stage's own schedule. Without a value 0, or in the first stage the
    run's."""
    decay: float | None = Field(None, ge=0, le=1)
    """Share of the steps in which the schedule wsd falls. Without a value the run's."""
    sources: tuple[Source, ...] = ()
    """Sources of the stage. Without any the run's."""
    theta: float | None = Field(None, gt=0)
    """Base of the rotary frequencies from this stage on. Without a value unchanged."""
    scaling: RopeScaling | None = None
    """Stretching of rotary positions from this stage on. Without a value unchanged."""

    @property
    def scheduled(self) -> bool:
        own = (self.schedule, self.warmup, self.decay, self.lr_floor)
        return any(value is not None for value in own)


Precision = Literal["auto", "fp32", "bf16"]
Sharing = Literal["ddp", "fsdp"]
AfterSpike = Literal["stop", "skip", "rollback"]


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The settings of a training run, also used by the recipe step ``pretrain``. The defaults train
    the preset ``tiny`` in about a minute on two idle CPU cores. A model of this size learns more
    from many small steps than from few large ones."""

    steps: int = Field(400, ge=1)
    """Number of steps."""
    rows: int = Field(4, ge=1)
    """Rows of `context` tokens in the batch of a step."""
    context: int = Field(256, ge=1)
    """Tokens in a row."""
    objective: Objective = Field(default_factory=Auto)
    """The training objective: its kind, or an object of `kind` and its settings
    (train/objective_settings.py). `auto` is the model's usual one."""
    optimizer: str = "adamw"
    """The optimizer: `adamw`, `muon`, `adafactor` or `lion`."""
    lr: float = Field(3e-3, gt=0)
    """Learning rate after warm-up."""
    schedule: str = "cosine"
    """The learning rate's schedule after warm-up: `cosine`, `wsd`, `wsd-sqrt`, `linear`,
    `inverse-sqrt` or `constant`."""
    lr_floor: float = Field(0.1, ge=0, le=1)
    """Share of the learning rate that is left at the end of the schedule."""
    warmup: int = Field(20, ge=0)
    """Steps in which the learning rate rises linearly, starting above 0."""
    decay: float = Field(0.2, ge=0, le=1)
    """Share of the steps, the last ones, in which `wsd` and `wsd-sqrt` fall."""
    weight_decay: float = Field(0.1, ge=0)
    """Weight decay."""
    beta1: float = Field(0.9, ge=0, le=1)
    """Decay of the average of gradients (AdamW and Lion)."""
    beta2: float = Field(0.95, ge=0, le=1)
    """Decay of the average of squared gradients (AdamW), or of gradients (Lion)."""
    eps: float = Field(1e-8, gt=0)
    """Number added to the denominator of an update, so that it is never 0."""
    momentum: float = Field(0.95, ge=0, le=1)
    """Momentum of Muon."""
    embedding_rate: float = Field(1.0, gt=0)
    """Learning rate of embeddings, relative to `lr`."""
    head_rate: float = Field(1.0, gt=0)
    """Learning rate of a head that is not tied, relative to `lr`."""
    clip: float = Field(1.0, gt=0)
    """Largest norm of the gradient; larger gradients are scaled down to it."""
    z_loss: float = Field(0.0, ge=0)
    """Weight of the square of the log normaliser in the loss; 0 leaves it out."""
    teacher: str | None = None
    """Folder of a trained model with the same vocabulary, a run's or transformers'. The model
    learns its predictions together with the text (Hinton et al. 2015)."""
    mtp_weight: float = Field(0.3, gt=0)
    """Weight in the loss of all modules of head.mtp together (DeepSeek-V3, section 4.2: 0.3, and
    0.1 in the last third of training)."""
    teacher_weight: float = Field(0.5, ge=0, le=1)
    """Share of the teacher's predictions in the loss."""
    temperature: float = Field(2.0, gt=0)
    """Number that divides the logits of teacher and model before they are compared."""
    ema: float = Field(0.0, ge=0, lt=1)
    """Decay of an average of the weights; 0 keeps none."""
    seed: int = Field(0, ge=0, lt=1 << 63)
    """Seed of the weights and of the order of the rows."""
    packing: str = "auto"
    """Packing of documents into rows: `concat`, `best-fit` or `padding`. `auto` is concat if the
    objective allows it, else best-fit."""
    sources: tuple[Source, ...] = ()
    """Folders of shards, each with a weight or an amount, instead of one folder."""
    stages: tuple[Stage, ...] = ()
    """Parts of the training with their own settings. Their steps must add up to `steps`."""
    max_epochs: float | None = Field(None, gt=0)
    """Largest number of epochs of any source. Without a value unlimited."""
    unique_tokens: int | None = Field(None, ge=1)
    """Tokens of distinct text to train on in each source, in whole documents drawn by the seed.
    Held-out documents stay the same. Without a value all."""
    vocab_size: int | None = Field(None, ge=1)
    """Size of the tokenizer to train if the input is documents, or the vocabulary size of shards
    that do not record it."""
    end_of_text: int | None = Field(None, ge=0)
    """Id of the token that ends documents, for shards that do not record it."""
    tokenizer: str | None = None
    """Path of a tokenizer.json, for shards without one. If `vocab_size` is not given either, the
    tokenizer.json beside the files is used."""
    token_dtype: str | None = None
    """Integer type of the tokens in OLMo's .npy files (by default the smallest for the vocabulary)
    and in MDS columns of bytes (by default int64)."""
    held_out: float = Field(0.05, gt=0, lt=1)
    """Share of the documents, or of a single document, to leave out of training and evaluate the
    model on. If files are called val, they are used instead."""
    attention: str = "auto"
    """Back end of attention: `sdpa`, `triton`, `flex` or `eager`; `auto` chooses the fastest for
    the device."""
    precision: Precision = "auto"
    """Precision of training: `fp32`; `bf16` (matrix products and residual stream in bfloat16); or
    `auto`, which is bf16 on a GPU and fp32 on a CPU."""
    device: str = "auto"
    """The device: `auto`, `cpu`, `cuda` or `cuda:N`."""
    parallel: Sharing = "ddp"
    """Division of work among processes: `ddp` copies the model, `fsdp` shards it."""
    replicas: int = Field(1, ge=1)
    """With `parallel: fsdp`, number of groups of processes. The processes of a group together hold
    all weights (HSDP)."""
    tensor: int = Field(1, ge=1)
    """Processes that share the matrices of each block (tensor parallel)."""
    context_parallel: int = Field(1, ge=1)
    """Processes that share the tokens of each row (context parallel). `context` must be a multiple
    of twice this number."""
    offload: bool = False
    """With `parallel: fsdp`, keep weights, gradients and optimizer state in host memory."""
    expert_parallel: bool = False
    """With `parallel: fsdp`, let each process hold some whole experts and send tokens to them,
    instead of gathering all experts."""
    accumulate: int = Field(1, ge=1)
    """Number of micro-batches per step, on each process."""
    loss_chunk: int = Field(0, ge=0)
    """Tokens whose logits are in memory at once; 0 chooses a number that fits."""
    recompute: bool | NonNegativeInt = False
    """Recompute activations inside blocks in the backward pass instead of keeping them: `true` in
    all blocks, N in every N-th block."""
    compile: bool = False
    """Compile the model with torch.compile."""
    deterministic: bool = False
    """On a GPU, use only operations that give the same bits each time. A repeated run, or one
    killed and resumed, then ends with the same weights. No slower on an H200."""
    spike: AfterSpike = "stop"
    """Reaction to a loss spike: `stop`, `skip` the step, or `rollback` to the last checkpoint."""
    spike_factor: float = Field(0.0, ge=0)
    """Median absolute deviations above the median from which a loss is a spike; 0: only a loss that
    is NaN or infinite is one."""
    spike_window: int = Field(64, ge=1)
    """Number of steps for the median and the deviation of the loss."""
    spike_batches: int = Field(1, ge=1)
    """Batches that are skipped after a rollback."""
    log_every: int = Field(10, ge=1)
    """Steps after which metrics are written, one line per step. In between, the CPU does not wait
    for the device."""
    tensorboard: bool = False
    """Also write metrics for TensorBoard."""
    csv: bool = False
    """Also write metrics to OUT/metrics.csv."""
    wandb: bool = False
    """Also send metrics to Weights & Biases. WANDB_PROJECT names the project; WANDB_MODE=offline
    sends nothing."""
    profile: int = Field(0, ge=0)
    """Number of steps that torch.profiler traces into OUT/profile/trace.json."""
    eval_every: int = Field(50, ge=1)
    """Steps between two evaluations of the held-out documents."""
    eval_tokens: int = Field(16_384, ge=1)
    """Largest number of held-out tokens in an evaluation."""
    eval: dict[str, str] = dataclasses.field(default_factory=dict, hash=False)
    """Further texts by name, evaluated whole together with the held-out text: folders of token
    shards. In a recipe any text: the shards' tokenizer encodes it."""
    checkpoint_every: int = Field(50, ge=1)
    """Steps between two checkpoints."""
    keep_checkpoints: int = Field(3, ge=1)
    """Number of newest checkpoints to keep."""
    keep_best: bool = True
    """Also keep the checkpoint with the lowest held-out loss."""
    async_checkpoints: bool = False
    """Write checkpoints while training continues."""

    SECTIONS: ClassVar[dict[str, str]] = {
        **{"optimizer": "Optimizer", "lr": "Learning rate", "weight_decay": "Optimizer"},
        **{"z_loss": "Loss", "ema": "Optimizer", "seed": "Data"},
        **{"attention": "Device", "parallel": "Parallel training", "accumulate": "Device"},
        **{"spike": "Spikes of the loss", "log_every": "Logs", "eval_every": "Evaluation"},
        "checkpoint_every": "Checkpoints",
    }
    # Settings that may differ on a resume: they change the place and the output of the run, not its
    # plan. The plan contains a teacher's weights, not its folder.
    FREE = frozenset(
        {
            *("teacher", "device", "parallel", "replicas", "tensor"),
            *("context_parallel", "offload", "expert_parallel"),
            *("accumulate", "loss_chunk", "recompute", "compile", "deterministic"),
            *("spike", "spike_factor", "spike_window", "spike_batches"),
            *("log_every", "tensorboard", "csv", "wandb", "profile"),
            *("eval_every", "eval_tokens", "eval"),
            *("checkpoint_every", "keep_checkpoints", "keep_best", "async_checkpoints"),
        }
    )

    def __post_init__(self) -> None:
        refuse_any(self._problems())

    def _problems(self) -> Iterator[str]:
        if self.rows % self.accumulate:
            yield f"rows is {self.rows}: it must be a multiple of accumulate ({self.accumulate})"
        sharded = {"offload": self.offload, f"replicas {self.replicas}": self.replicas > 1}
        for name, used in (sharded | {"expert_parallel": self.expert_parallel}).items():
            if used and self.parallel != "fsdp":
                yield f"{name} with parallel {self.parallel}: set parallel to fsdp"
        for name, used in (sharded | {"compile": self.compile}).items():
            if used and self.expert_parallel:
                yield f"expert_parallel with {name}: leave one of them out"
        if self.context_parallel > 1 and self.compile:
            yield (
                f"context_parallel {self.context_parallel} with compile: PyTorch crashes on it:"
                " leave one of them out"
            )
        total = sum(stage.steps for stage in self.stages)
        if self.stages and total != self.steps:
            yield f"steps is {self.steps}, the stages have {total}: set steps to {total}"


MAX_DEPTH = 64  # layers of the default model


@dataclass(frozen=True, kw_only=True)
class RunBudget:
    """The budget of a run. Settings that are not given follow from it."""

    time: str | None = None
    """Time for the run on this device, such as 30m or 2h: model, batch, steps and learning rates
    follow from a trial of some seconds, the amount of text, and scaling laws. 5m if no model and no
    steps are given."""
    tokens: int | None = Field(None, ge=1)
    """Tokens to train on, in place of a time. The model follows."""
    depth: int | None = Field(None, ge=1, le=MAX_DEPTH)
    """Layers of the default model, which has 64 dimensions per layer. Without time and tokens,
    training reads as many tokens as suit the model's size."""

    def __post_init__(self) -> None:
        refuse_if(self.time is not None and self.tokens is not None, "give time or tokens")
        if self.time is not None:
            parse_duration(self.time)


@functools.lru_cache(maxsize=16)
def stages_of(config: TrainConfig) -> tuple[TrainConfig, ...]:
    """Return the settings of each stage, with its ``steps``. A run without stages is one stage."""
    if not config.stages:
        return (config,)
    whole = []
    for number, stage in enumerate(config.stages):
        changes = {
            field.name: value
            for field in dataclasses.fields(stage)
            if field.name not in ("name", "theta", "scaling")
            and (value := getattr(stage, field.name)) not in (None, ())
        }
        first = {"warmup": config.warmup if number == 0 else 0}
        whole.append(dataclasses.replace(config, **(first | changes), stages=()))
    return tuple(whole)


def locate(config: TrainConfig, step: int) -> tuple[int, int]:
    """Return (stage, step within it) for a step of the run, all counted from 0."""
    stages = stages_of(config)
    for number, stage in enumerate(stages):
        if step < stage.steps or number == len(stages) - 1:
            break
        step -= stage.steps
    return number, step


def model_at(model: ModelConfig, config: TrainConfig, stage: int) -> ModelConfig:
    """Return the model's configuration in a stage, counted from 0. If stages change the rotary
    positions, the latest change up to this stage counts. Raises ``LlmcurateError`` if a stage
    changes them and the model has none."""
    for current in config.stages[: stage + 1]:
        changed = [name for name in ("theta", "scaling") if getattr(current, name) is not None]
        if not changed:
            continue
        if not isinstance(model.position, Rope):
            raise UsageError(
                f"stage {current.name or ''}: {' and '.join(changed)} need position rope, not"
                f" {model.position.kind}"
            )
        theta = current.theta or model.position.theta
        scaling = current.scaling or model.position.scaling
        rotation = dataclasses.replace(model.position, theta=theta, scaling=scaling)
        model = dataclasses.replace(model, position=rotation)
    return model


def names(config: TrainConfig) -> list[str]:
    """Return the names of the stages. A stage without a name is called by its number."""
    names_of_stages = [stage.name for stage in config.stages] or [None]
    return [name or f"stage {number + 1}" for number, name in enumerate(names_of_stages)]
