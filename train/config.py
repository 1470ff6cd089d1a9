"""The settings of training: every number of a run that is not the model's shape."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Annotated, Any

from llmcurate.base.errors import UsageError
from llmcurate.base.settings import Setting, check
from train.model.config import ModelConfig
from train.model.position_settings import Rope
from train.objective_settings import Auto, Objective
from train.stages import Source, Stage


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How to train. The defaults take ``tiny`` about a minute on two idle CPU cores; at that scale
    many small steps beat few large ones. What a setting means stands beside its field, and the
    recipe step ``pretrain`` and its options take it from there.
    """

    steps: Annotated[int, Setting("Number of steps.", ge=1)] = 400
    rows: Annotated[int, Setting("Rows of `context` tokens in the batch of a step.", ge=1)] = 4
    context: Annotated[int, Setting("Tokens in a row.", ge=1)] = 256
    objective: Annotated[
        Objective,
        Setting(
            "What is learned: the kind of an objective, or an object of `kind` and its settings "
            "(train/objective_settings.py). `auto` is the model's own."
        ),
    ] = dataclasses.field(default_factory=Auto)
    optimizer: Annotated[str, Setting("The optimizer: `adamw`, `muon`, `adafactor` or `lion`.")] = (
        "adamw"
    )
    lr: Annotated[float, Setting("Learning rate after warm-up.", gt=0)] = 3e-3
    schedule: Annotated[
        str,
        Setting(
            "The learning rate's schedule after warm-up: `cosine`, `wsd`, `wsd-sqrt`, "
            "`linear`, `inverse-sqrt` or `constant`."
        ),
    ] = "cosine"
    lr_floor: Annotated[
        float,
        Setting("Share of the learning rate that is left where the schedule ends.", ge=0, le=1),
    ] = 0.1
    warmup: Annotated[
        int,
        Setting("Steps of warm-up, in which the learning rate rises linearly, never from 0.", ge=0),
    ] = 20
    decay: Annotated[
        float,
        Setting(
            "Share of the steps over which the schedules `wsd` and `wsd-sqrt` fall.", ge=0, le=1
        ),
    ] = 0.2
    weight_decay: Annotated[float, Setting("Weight decay.", ge=0)] = 0.1
    beta1: Annotated[
        float, Setting("Decay of the average of gradients (AdamW and Lion).", ge=0, le=1)
    ] = 0.9
    beta2: Annotated[
        float,
        Setting(
            "Decay of the average of squared gradients (AdamW), or of gradients (Lion).",
            ge=0,
            le=1,
        ),
    ] = 0.95
    eps: Annotated[
        float,
        Setting("Number added to the denominator of an update, so that it is never 0.", gt=0),
    ] = 1e-8
    momentum: Annotated[float, Setting("Momentum of Muon.", ge=0, le=1)] = 0.95
    clip: Annotated[
        float, Setting("Largest norm of the gradient; a larger one is scaled down to it.", gt=0)
    ] = 1.0
    z_loss: Annotated[
        float,
        Setting("Weight of the square of the log normaliser in the loss; 0 leaves it out.", ge=0),
    ] = 0.0
    teacher: Annotated[
        str | None,
        Setting(
            "Folder of a trained model of the same tokens, ours or one that transformers opens, "
            "whose predictions are learned beside the text (Hinton et al. 2015)."
        ),
    ] = None
    mtp_weight: Annotated[
        float,
        Setting(
            "Weight in the loss of the modules of head.mtp, all together (DeepSeek-V3, section "
            "4.2: 0.3, and 0.1 in the last third of training).",
            gt=0,
        ),
    ] = 0.3
    teacher_weight: Annotated[
        float, Setting("Share of the teacher's predictions in the loss.", ge=0, le=1)
    ] = 0.5
    temperature: Annotated[
        float,
        Setting(
            "What the logits of teacher and model are divided by where they are compared.", gt=0
        ),
    ] = 2.0
    ema: Annotated[
        float, Setting("Decay of an average of the weights; 0 keeps none.", ge=0, lt=1)
    ] = 0.0
    seed: Annotated[
        int, Setting("Seed of the weights and of the order of the rows.", ge=0, lt=1 << 63)
    ] = 0
    packing: Annotated[
        str,
        Setting(
            "How documents fill rows: `concat`, `best-fit` or `padding`. `auto` is concat where the"
            " objective allows it, else best-fit."
        ),
    ] = "auto"
    sources: Annotated[
        tuple[Source, ...],
        Setting("Folders of shards with a weight or an amount each, in place of one folder."),
    ] = ()
    stages: Annotated[
        tuple[Stage, ...],
        Setting(
            "Stretches of the training with settings of their own; their steps add up to `steps`."
        ),
    ] = ()
    max_epochs: Annotated[
        float | None,
        Setting("Largest number of epochs of any source. Without a value there is no limit.", gt=0),
    ] = None
    unique_tokens: Annotated[
        int | None,
        Setting(
            "Tokens of each source that there are to train on, in whole documents that the seed "
            "draws; the others are left out. What is held out stays. Without a value all.",
            ge=1,
        ),
    ] = None
    vocab_size: Annotated[
        int | None, Setting("Size of the vocabulary, for shards that do not state it.", ge=1)
    ] = None
    end_of_text: Annotated[
        int | None,
        Setting("Id of the token that ends documents, for shards that do not state it.", ge=0),
    ] = None
    tokenizer: Annotated[
        str | None, Setting("Path of a tokenizer.json, for shards without one.")
    ] = None
    token_dtype: Annotated[
        str | None,
        Setting(
            "Type of the numbers in OLMo's .npy files. Without a value it follows from the "
            "size of the vocabulary."
        ),
    ] = None
    held_out: Annotated[
        float,
        Setting(
            "Share of the documents that the model is scored on and not trained on.", gt=0, lt=1
        ),
    ] = 0.05
    attention: Annotated[
        str,
        Setting(
            "Back end of attention: `sdpa`, `triton`, `flex` or `eager`; `auto` takes the "
            "fastest that the device has."
        ),
    ] = "auto"
    precision: Annotated[
        str,
        Setting(
            "Precision of training: `fp32`; `bf16`, matrix products and residual stream in "
            "bfloat16; or `auto`, which is bf16 on a GPU.",
            choices=("auto", "fp32", "bf16"),
        ),
    ] = "auto"
    device: Annotated[str, Setting("The device: `auto`, `cpu`, `cuda` or `cuda:N`.")] = "auto"
    parallel: Annotated[
        str,
        Setting(
            "How several processes share the work: `ddp` copies the model, `fsdp` shards it.",
            choices=("ddp", "fsdp"),
        ),
    ] = "ddp"
    replicas: Annotated[
        int,
        Setting(
            "With `parallel: fsdp` the groups of processes of which each holds all weights"
            " together (HSDP).",
            ge=1,
        ),
    ] = 1
    tensor: Annotated[
        int, Setting("Processes that share the matrices of each block (tensor parallel).", ge=1)
    ] = 1
    context_parallel: Annotated[
        int,
        Setting(
            "Processes that share the tokens of each row (context parallel); `context` is a"
            " multiple of twice as many.",
            ge=1,
        ),
    ] = 1
    offload: Annotated[
        bool,
        Setting(
            "With `parallel: fsdp` keep weights, gradients and the optimizer's state in the host's"
            " memory."
        ),
    ] = False
    expert_parallel: Annotated[
        bool,
        Setting(
            "With `parallel: fsdp` each process holds some of the experts whole, and tokens are"
            " sent to them, in place of all experts to the tokens."
        ),
    ] = False
    accumulate: Annotated[
        int,
        Setting("Micro-batches that the rows of a step are cut into, on each process.", ge=1),
    ] = 1
    loss_chunk: Annotated[
        int, Setting("Tokens whose logits are held at once; 0 takes a number that fits.", ge=0)
    ] = 0
    recompute: Annotated[
        bool | int,
        Setting(
            "Compute activations inside blocks again in the backward pass instead of keeping them:"
            " `true` in all, N in every N-th block.",
            ge=0,
        ),
    ] = False
    compile: Annotated[bool, Setting("Compile the model with torch.compile.")] = False
    deterministic: Annotated[
        bool,
        Setting(
            "On a GPU use only operations that give the same bits each time, so that the same run"
            " twice, or killed and resumed, ends with the same weights; slower."
        ),
    ] = False
    spike: Annotated[
        str,
        Setting(
            "What follows a loss spike: `stop`, `skip` the step, or `rollback` to the last "
            "checkpoint.",
            choices=("stop", "skip", "rollback"),
        ),
    ] = "stop"
    spike_factor: Annotated[
        float,
        Setting(
            "Deviations above the median of the loss from which on it is a spike; 0 counts "
            "only a loss that is not a number.",
            ge=0,
        ),
    ] = 0.0
    spike_window: Annotated[
        int,
        Setting("Steps that the median and the deviation of the loss are taken over.", ge=1),
    ] = 64
    spike_batches: Annotated[int, Setting("Batches that are skipped after a rollback.", ge=1)] = 1
    log_every: Annotated[
        int,
        Setting(
            "Steps between two writings of metrics, a line a step; between them nothing waits for"
            " the device.",
            ge=1,
        ),
    ] = 10
    tensorboard: Annotated[bool, Setting("Write metrics for TensorBoard too.")] = False
    csv: Annotated[bool, Setting("Write metrics as OUT/metrics.csv too.")] = False
    wandb: Annotated[
        bool,
        Setting(
            "Send metrics to Weights & Biases too; WANDB_PROJECT names the project, and "
            "WANDB_MODE=offline sends nothing."
        ),
    ] = False
    profile: Annotated[
        int,
        Setting("Steps that torch.profiler traces into OUT/profile/trace.json; 0: none.", ge=0),
    ] = 0
    eval_every: Annotated[
        int, Setting("Steps between two evaluations of the held-out documents.", ge=1)
    ] = 50
    eval_tokens: Annotated[
        int, Setting("Largest number of held-out tokens in an evaluation.", ge=1)
    ] = 16_384
    eval: Annotated[
        dict[str, str],
        Setting(
            "Texts by name that are scored whole when held-out text is, by source: folders of token"
            " shards; in a recipe any text, which the tokenizer of the shards encodes."
        ),
    ] = dataclasses.field(default_factory=dict, hash=False)
    checkpoint_every: Annotated[int, Setting("Steps between two checkpoints.", ge=1)] = 50
    keep_checkpoints: Annotated[
        int, Setting("Number of the newest checkpoints that are kept.", ge=1)
    ] = 3
    keep_best: Annotated[bool, Setting("Keep the checkpoint of the lowest held-out loss too.")] = (
        True
    )
    async_checkpoints: Annotated[bool, Setting("Write checkpoints while training goes on.")] = False

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
        check(self)
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
        changes = {"theta": current.theta, "scaling": current.scaling}
        rotation: dict[str, Any] = {k: v for k, v in changes.items() if v is not None}
        if not rotation:
            continue
        if not isinstance(model.position, Rope):
            raise UsageError(
                f"stage {current.name or ''}: {' and '.join(rotation)} need position rope, not"
                f" {model.position.kind}"
            )
        model = dataclasses.replace(model, position=dataclasses.replace(model.position, **rotation))
    return model


def names(config: TrainConfig) -> list[str]:
    """What the stages are called: by number where they have no name."""
    names_of_stages = [stage.name for stage in config.stages] or [None]
    return [name or f"stage {number + 1}" for number, name in enumerate(names_of_stages)]
