"""The settings of training: every number of a run that is not the model's shape."""

from __future__ import annotations

import dataclasses
import functools
from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeInt

from llmcurate.base.errors import UsageError
from llmcurate.base.settings import dataclass
from train.model.config import ModelConfig
from train.model.position_settings import Rope, RopeScaling
from train.objective_settings import Auto, Objective


@dataclass(frozen=True, kw_only=True)
class Source:
    """A folder of shards and its part of the training text, by one of ``weight``, ``tokens`` and
    ``epochs`` at most. With none, a source has the part that its size gives it.
    """

    shards: str = Field(description="Folder of the token shards.")
    name: str | None = Field(
        None, description="Name in the summary. Without a value it is that of the folder."
    )
    weight: float | None = Field(
        None, gt=0, description="Weight relative to the weights of the other sources."
    )
    tokens: int | None = Field(
        None, ge=1, description="Tokens that the run, or its stage, takes of the source."
    )
    epochs: float | None = Field(
        None, gt=0, description="Epochs of the source in the run, or in its stage."
    )

    def __post_init__(self) -> None:
        amounts = [
            name for name in ("weight", "tokens", "epochs") if getattr(self, name) is not None
        ]
        if len(amounts) > 1:
            raise UsageError(f"source {self.label}: give {' or '.join(amounts)}")

    @property
    def label(self) -> str:
        return self.name or self.shards.rstrip("/").rsplit("/", 1)[-1]


_SAME = "Without a value it is that of the run."


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stretch of the run, with what differs in it from the run's own settings. The run's schedule
    and warm-up go on over all stages; a stage that has a ``schedule``, ``warmup``, ``decay`` or
    ``lr_floor`` of its own follows that, over its own steps.
    """

    steps: int = Field(ge=1, description="Number of steps of the stage.")
    name: str | None = Field(
        None, description="Name in the summary. Without a value it is `stage 1` and so on."
    )
    context: int | None = Field(None, ge=1, description=f"Tokens in a row. {_SAME}")
    rows: int | None = Field(None, ge=1, description=f"Rows in the batch of a step. {_SAME}")
    packing: str | None = Field(None, description=f"How documents fill rows. {_SAME}")
    lr: float | None = Field(None, gt=0, description=f"Learning rate after warm-up. {_SAME}")
    lr_floor: float | None = Field(
        None, ge=0, le=1, description=f"Share of the learning rate at the end. {_SAME}"
    )
    schedule: str | None = Field(None, description=f"Schedule of the learning rate. {_SAME}")
    warmup: int | None = Field(
        None,
        ge=0,
        description="Steps of warm-up of a schedule of its own. Without a value 0, in the first "
        "stage that of the run.",
    )
    decay: float | None = Field(
        None,
        ge=0,
        le=1,
        description=f"Share of the steps over which the schedule wsd falls. {_SAME}",
    )
    sources: tuple[Source, ...] = Field(
        (), description="Sources of the stage. Without any they are those of the run."
    )
    theta: float | None = Field(
        None,
        gt=0,
        description="Base of the rotary frequencies from here on. Without a value it stays.",
    )
    scaling: RopeScaling | None = Field(
        None,
        description="How rotary positions are stretched from here on. Without a value as before.",
    )

    @property
    def scheduled(self) -> bool:
        """Whether it has a schedule of its own."""
        own = (self.schedule, self.warmup, self.decay, self.lr_floor)
        return any(value is not None for value in own)


Precision = Literal["auto", "fp32", "bf16"]
Sharing = Literal["ddp", "fsdp"]
AfterSpike = Literal["stop", "skip", "rollback"]


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How to train. The defaults take ``tiny`` about a minute on two idle CPU cores; at that scale
    many small steps beat few large ones. What a setting means stands beside its field, and the
    recipe step ``pretrain`` and its options take it from there.
    """

    steps: int = Field(400, ge=1, description="Number of steps.")
    rows: int = Field(4, ge=1, description="Rows of `context` tokens in the batch of a step.")
    context: int = Field(256, ge=1, description="Tokens in a row.")
    objective: Objective = Field(
        default_factory=Auto,
        description="What is learned: the kind of an objective, or an object of `kind` and its "
        "settings (train/objective_settings.py). `auto` is the model's own.",
    )
    optimizer: str = Field(
        "adamw", description="The optimizer: `adamw`, `muon`, `adafactor` or `lion`."
    )
    lr: float = Field(3e-3, gt=0, description="Learning rate after warm-up.")
    schedule: str = Field(
        "cosine",
        description="The learning rate's schedule after warm-up: `cosine`, `wsd`, `wsd-sqrt`, "
        "`linear`, `inverse-sqrt` or `constant`.",
    )
    lr_floor: float = Field(
        0.1,
        ge=0,
        le=1,
        description="Share of the learning rate that is left where the schedule ends.",
    )
    warmup: int = Field(
        20,
        ge=0,
        description="Steps of warm-up, in which the learning rate rises linearly, never from 0.",
    )
    decay: float = Field(
        0.2,
        ge=0,
        le=1,
        description="Share of the steps over which the schedules `wsd` and `wsd-sqrt` fall.",
    )
    weight_decay: float = Field(0.1, ge=0, description="Weight decay.")
    beta1: float = Field(
        0.9, ge=0, le=1, description="Decay of the average of gradients (AdamW and Lion)."
    )
    beta2: float = Field(
        0.95,
        ge=0,
        le=1,
        description="Decay of the average of squared gradients (AdamW), or of gradients (Lion).",
    )
    eps: float = Field(
        1e-8,
        gt=0,
        description="Number added to the denominator of an update, so that it is never 0.",
    )
    momentum: float = Field(0.95, ge=0, le=1, description="Momentum of Muon.")
    clip: float = Field(
        1.0, gt=0, description="Largest norm of the gradient; a larger one is scaled down to it."
    )
    z_loss: float = Field(
        0.0,
        ge=0,
        description="Weight of the square of the log normaliser in the loss; 0 leaves it out.",
    )
    teacher: str | None = Field(
        None,
        description="Folder of a trained model of the same tokens, ours or one that transformers "
        "opens, whose predictions are learned beside the text (Hinton et al. 2015).",
    )
    mtp_weight: float = Field(
        0.3,
        gt=0,
        description="Weight in the loss of the modules of head.mtp, all together (DeepSeek-V3, "
        "section 4.2: 0.3, and 0.1 in the last third of training).",
    )
    teacher_weight: float = Field(
        0.5, ge=0, le=1, description="Share of the teacher's predictions in the loss."
    )
    temperature: float = Field(
        2.0,
        gt=0,
        description="What the logits of teacher and model are divided by where they are compared.",
    )
    ema: float = Field(
        0.0, ge=0, lt=1, description="Decay of an average of the weights; 0 keeps none."
    )
    seed: int = Field(
        0, ge=0, lt=1 << 63, description="Seed of the weights and of the order of the rows."
    )
    packing: str = Field(
        "auto",
        description="How documents fill rows: `concat`, `best-fit` or `padding`. `auto` is concat "
        "where the objective allows it, else best-fit.",
    )
    sources: tuple[Source, ...] = Field(
        (), description="Folders of shards with a weight or an amount each, in place of one folder."
    )
    stages: tuple[Stage, ...] = Field(
        (),
        description="Stretches of the training with settings of their own; their steps add up to "
        "`steps`.",
    )
    max_epochs: float | None = Field(
        None,
        gt=0,
        description="Largest number of epochs of any source. Without a value there is no limit.",
    )
    unique_tokens: int | None = Field(
        None,
        ge=1,
        description="Tokens of each source that there are to train on, in whole documents that "
        "the seed draws; the others are left out. What is held out stays. Without a value all.",
    )
    vocab_size: int | None = Field(
        None, ge=1, description="Size of the vocabulary, for shards that do not state it."
    )
    end_of_text: int | None = Field(
        None,
        ge=0,
        description="Id of the token that ends documents, for shards that do not state it.",
    )
    tokenizer: str | None = Field(
        None, description="Path of a tokenizer.json, for shards without one."
    )
    token_dtype: str | None = Field(
        None,
        description="Type of the numbers in OLMo's .npy files. Without a value it follows from the "
        "size of the vocabulary.",
    )
    held_out: float = Field(
        0.05,
        gt=0,
        lt=1,
        description="Share of the documents that the model is scored on and not trained on.",
    )
    attention: str = Field(
        "auto",
        description="Back end of attention: `sdpa`, `triton`, `flex` or `eager`; `auto` takes the "
        "fastest that the device has.",
    )
    precision: Precision = Field(
        "auto",
        description="Precision of training: `fp32`; `bf16`, matrix products and residual stream in "
        "bfloat16; or `auto`, which is bf16 on a GPU.",
    )
    device: str = Field("auto", description="The device: `auto`, `cpu`, `cuda` or `cuda:N`.")
    parallel: Sharing = Field(
        "ddp",
        description="How several processes share the work: `ddp` copies the model, `fsdp` shards "
        "it.",
    )
    replicas: int = Field(
        1,
        ge=1,
        description="With `parallel: fsdp` the groups of processes of which each holds all weights"
        " together (HSDP).",
    )
    tensor: int = Field(
        1, ge=1, description="Processes that share the matrices of each block (tensor parallel)."
    )
    context_parallel: int = Field(
        1,
        ge=1,
        description="Processes that share the tokens of each row (context parallel); `context` is a"
        " multiple of twice as many.",
    )
    offload: bool = Field(
        False,
        description="With `parallel: fsdp` keep weights, gradients and the optimizer's state in "
        "the host's memory.",
    )
    expert_parallel: bool = Field(
        False,
        description="With `parallel: fsdp` each process holds some of the experts whole, and "
        "tokens are sent to them, in place of all experts to the tokens.",
    )
    accumulate: int = Field(
        1, ge=1, description="Micro-batches that the rows of a step are cut into, on each process."
    )
    loss_chunk: int = Field(
        0, ge=0, description="Tokens whose logits are held at once; 0 takes a number that fits."
    )
    recompute: bool | NonNegativeInt = Field(
        False,
        description="Compute activations inside blocks again in the backward pass instead of "
        "keeping them: `true` in all, N in every N-th block.",
    )
    compile: bool = Field(False, description="Compile the model with torch.compile.")
    deterministic: bool = Field(
        False,
        description="On a GPU use only operations that give the same bits each time, so that the "
        "same run twice, or killed and resumed, ends with the same weights; slower.",
    )
    spike: AfterSpike = Field(
        "stop",
        description="What follows a loss spike: `stop`, `skip` the step, or `rollback` to the last "
        "checkpoint.",
    )
    spike_factor: float = Field(
        0.0,
        ge=0,
        description="Deviations above the median of the loss from which on it is a spike; 0 counts "
        "only a loss that is not a number.",
    )
    spike_window: int = Field(
        64, ge=1, description="Steps that the median and the deviation of the loss are taken over."
    )
    spike_batches: int = Field(1, ge=1, description="Batches that are skipped after a rollback.")
    log_every: int = Field(
        10,
        ge=1,
        description="Steps between two writings of metrics, a line a step; between them nothing "
        "waits for the device.",
    )
    tensorboard: bool = Field(False, description="Write metrics for TensorBoard too.")
    csv: bool = Field(False, description="Write metrics as OUT/metrics.csv too.")
    wandb: bool = Field(
        False,
        description="Send metrics to Weights & Biases too; WANDB_PROJECT names the project, and "
        "WANDB_MODE=offline sends nothing.",
    )
    profile: int = Field(
        0,
        ge=0,
        description="Steps that torch.profiler traces into OUT/profile/trace.json; 0: none.",
    )
    eval_every: int = Field(
        50, ge=1, description="Steps between two evaluations of the held-out documents."
    )
    eval_tokens: int = Field(
        16_384, ge=1, description="Largest number of held-out tokens in an evaluation."
    )
    eval: Annotated[
        dict[str, str],
        Field(
            description="Texts by name that are scored whole when held-out text is, by source: "
            "folders of token shards; in a recipe any text, which the tokenizer of the shards "
            "encodes."
        ),
    ] = dataclasses.field(default_factory=dict, hash=False)
    checkpoint_every: int = Field(50, ge=1, description="Steps between two checkpoints.")
    keep_checkpoints: int = Field(
        3, ge=1, description="Number of the newest checkpoints that are kept."
    )
    keep_best: bool = Field(
        True, description="Keep the checkpoint of the lowest held-out loss too."
    )
    async_checkpoints: bool = Field(False, description="Write checkpoints while training goes on.")

    SECTIONS: ClassVar[dict[str, str]] = {
        **{"optimizer": "Optimizer", "z_loss": "Loss", "ema": "Optimizer", "seed": "Data"},
        **{"attention": "Device", "parallel": "Parallel training", "accumulate": "Device"},
        **{"spike": "Spikes of the loss", "log_every": "Logs", "eval_every": "Evaluation"},
        "checkpoint_every": "Checkpoints",
    }
    # These may differ on a resume: they change where it runs and what is written, not the plan; of
    # a teacher its weights are in the plan.
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
        if self.rows % self.accumulate:
            raise UsageError(
                f"rows is {self.rows}: {self.accumulate} micro-batches cannot share them equally"
            )
        ways = {
            "offload": self.offload,
            "expert_parallel": self.expert_parallel,
            f"replicas {self.replicas}": self.replicas > 1,
        }
        for name in (name for name, wanted in ways.items() if wanted and self.parallel != "fsdp"):
            raise UsageError(
                f"{name} with parallel {self.parallel}: it is a way to shard: set parallel fsdp"
            )
        for name, there in (
            (f"replicas {self.replicas}", self.replicas > 1),
            ("offload", self.offload),
            ("compile", self.compile),
        ):
            if self.expert_parallel and there:
                raise UsageError(f"expert_parallel with {name}: leave one of them out")
        if self.context_parallel > 1 and self.compile:
            raise UsageError(
                f"context_parallel {self.context_parallel} with compile: what PyTorch makes of it"
                " crashes: leave one of them out"
            )
        total = sum(stage.steps for stage in self.stages)
        if self.stages and total != self.steps:
            raise UsageError(
                f"steps is {self.steps}, the stages have {total}: set steps to {total}"
            )


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
            if field.name not in ("name", "theta", "scaling")
            and (value := getattr(stage, field.name)) not in (None, ())
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


def model_at(model: ModelConfig, config: TrainConfig, stage: int) -> ModelConfig:
    """The model as it is in a stage, from 0: rotary positions as the last stage up to there that
    says something of them has them. Raises ``LlmcurateError``.
    """
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
    """What the stages are called: by number where they have no name."""
    names_of_stages = [stage.name for stage in config.stages] or [None]
    return [name or f"stage {number + 1}" for number, name in enumerate(names_of_stages)]
