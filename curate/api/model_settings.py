"""Settings of commands on models that run no step of a recipe, as those of command_settings.py."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from curate.api.command_settings import CommandSettings, Export, TokenizerExtend


class ModelTransplant(CommandSettings):
    """A model moved to another tokenizer."""

    command = "model transplant"

    init: Literal["mean", "focus", "random"] = TokenizerExtend.field("init")
    seed: int = TokenizerExtend.field("seed")


class Generate(CommandSettings):
    """The sampling of texts."""

    command = "generate"
    SECTIONS = {"temperature": "Sampling", "suffix": "Gaps and masks", "batch": "Run"}

    prompts: Path | None = Field(
        None, description="File of prompts: one a line, or .jsonl with `prompt` (or `text`)."
    )
    max_tokens: int = Field(100, ge=1, description="Most new tokens of a text.")
    temperature: float = Field(
        0.8, ge=0, description="Temperature of the sampling; 0 takes the likeliest token."
    )
    top_k: int = Field(
        50, ge=0, description="Likeliest tokens that are sampled; 0: all (Fan et al. 2018)."
    )
    top_p: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Probability that the likeliest tokens, which are sampled from, hold together"
        " (Holtzman et al. 2020).",
    )
    min_p: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Least probability of a token that is sampled, as a share of the likeliest"
        " one's (Nguyen et al. 2024).",
    )
    repetition_penalty: float = Field(
        1.0,
        gt=0,
        description="Penalty of tokens that the text holds already; above 1 they become less"
        " likely (Keskar et al. 2019).",
    )
    suffix: str | None = Field(
        None,
        description="Text that comes after what is written, of a model trained with objective fim.",
    )
    fill: Literal["mask-predict", "gibbs"] = Field(
        "mask-predict",
        description="How an encoder fills masks: the likeliest tokens at once and the least sure"
        " again (Ghazvininejad et al. 2019), or drawn one by one (Wang and Cho 2019).",
    )
    rounds: int = Field(10, ge=1, description="Rounds in which an encoder fills masks.")
    batch: int = Field(8, ge=1, description="Number of prompts that are continued at a time.")
    seed: int = Field(0, description="Seed of the sampling: the same seed gives the same texts.")
    device: str = Field(
        "auto", description="The device: auto (a GPU where there is one), cpu, cuda or cuda:N."
    )
    checkpoint: Literal["best", "last"] = Export.field("checkpoint")


class Evaluate(CommandSettings):
    """The scoring of a model."""

    command = "evaluate"

    context: int | None = Field(
        None,
        ge=1,
        description="Tokens that are read at once. Without a value as many as the model takes.",
    )
    batch: int = Field(8, ge=1, description="Rows of `context` tokens that are scored at a time.")
    precision: Literal["auto", "fp32", "bf16"] = Field(
        "auto", description="Precision of matrix products; `auto` is bf16 on a GPU."
    )
    seed: int = Field(0, ge=0, description="Seed of the intervals' resamples.")
    device: str = Generate.field("device")
    checkpoint: Literal["best", "last"] = Export.field("checkpoint")


class Predict(CommandSettings):
    """The labelling of texts by a fine-tuned model."""

    command = "predict"

    context: int | None = Field(
        None,
        ge=1,
        description="Tokens that are read at once. Without a value as many as in training.",
    )
    batch: int = Field(8, ge=1, description="Rows of `context` tokens that are read at a time.")
    precision: Literal["auto", "fp32", "bf16"] = Evaluate.field("precision")
    device: str = Generate.field("device")
    checkpoint: Literal["best", "last"] = Export.field("checkpoint")


class ModelCompare(CommandSettings):
    """The training of variants of a model, to compare them."""

    command = "model compare"

    tokens: int | None = Field(
        None, ge=1, description="Tokens that each run reads, as 2000000, 2M or 2e6."
    )
    flops: float | None = Field(
        None, gt=0, description="Floating-point operations of each run, in place of tokens."
    )
    seeds: int = Field(3, ge=1, description="Number of seeds that each variant is trained from.")
    seed: int = Field(0, ge=0, description="The first seed; the others follow it.")
    rows: int = Field(4, ge=1, description="Rows of `context` tokens in the batch of a step.")
    context: int = Field(256, ge=8, description="Tokens in a row.")
    lr: float = Field(0.003, gt=0, description="Learning rate after warm-up.")
    device: str = Generate.field("device")


class Ablate(CommandSettings):
    """The matched experiment: corpora that models are trained on alike, and how far they differ."""

    command = "ablate"
    SECTIONS = {"model": "Model", "eval_bytes": "Evaluation", "seeds": "Training"}

    tokens: int | None = ModelCompare.field("tokens")
    documents: int | None = Field(
        None,
        ge=1,
        description="Documents that each run reads, in place of tokens: as many tokens as so many"
        " documents of its corpus have on average.",
    )
    epochs: float | None = Field(
        None, gt=0, description="Times that each run reads its corpus, in place of tokens."
    )
    minutes: float | None = Field(
        None,
        gt=0,
        description="Minutes that all runs may take on this machine, in place of tokens: model and"
        " tokens are chosen by a pilot, which says what difference could be detected.",
    )
    model: str | None = Field(
        None,
        description="Preset that is trained. Without a value tiny; with --minutes the largest of"
        " ours that fits.",
    )
    tokenizer: Path | None = Field(
        None,
        description="Tokenizer of all, a file or its folder. Without a value one is trained on the"
        " union of the corpora.",
    )
    vocab: int = Field(4096, ge=2, description="Tokens of the tokenizer that is trained.")
    eval_bytes: int = Field(
        100_000,
        ge=1,
        description="Most bytes of an evaluation text that are scored: of documents drawn by the"
        " hashes of their ids.",
    )
    eval_excerpt: int = Field(
        2000, ge=1, description="Most bytes of an evaluation document: its beginning is scored."
    )
    max_overlap: float = Field(
        0.2,
        ge=0,
        le=1,
        description="Largest share of the 13-grams of an evaluation document that may stand in a"
        " corpus; one with more is left out of all scores.",
    )
    seeds: int = Field(3, ge=1, description="Number of seeds that each corpus is trained from.")
    seed: int = ModelCompare.field("seed")
    rows: int = ModelCompare.field("rows")
    context: int = ModelCompare.field("context")
    lr: float = ModelCompare.field("lr")
    points: int = Field(3, ge=1, description="Times that texts are scored on the way of a run.")
    threads: int = Field(
        1, ge=1, description="Threads of a run on a processor; runs go on side by side."
    )
    device: str = Generate.field("device")


class MixSearch(CommandSettings):
    """The search of a mixture by small models that are trained on many."""

    command = "mix search"
    SECTIONS = {"model": "Model", "eval_bytes": "Evaluation", "seed": "Training"}

    tokens: int = Field(ge=1, description="Tokens that each small model is trained on.")
    total: float = Field(
        gt=0, description="Tokens of the real run, whose epochs of each source are bounded."
    )
    max_epochs: float = Field(
        4.0,
        gt=0,
        description="Most epochs of a source, in the real run and in each small one (up to 4"
        " repeated text is nearly as good as new: Muennighoff et al. 2023).",
    )
    runs: int = Field(
        32,
        ge=4,
        description="Mixtures that are drawn, the natural one first. Earlier runs in OUT of the"
        " same sources, or of some of them, count beside them.",
    )
    confirm: int = Field(
        0,
        ge=0,
        description="Number of further seeds from which the predicted optimum and the natural"
        " mixture are trained, to compare them.",
    )
    regression: Literal["auto", "linear", "trees"] = Field(
        "auto",
        description="Regression that the optimum is of; `auto` is the one with the smaller error"
        " on mixtures that are left out.",
    )
    model: str = Field("tiny", description="Preset of the small models.")
    tokenizer: Path | None = Field(
        None,
        description="Tokenizer of all documents, a file or its folder. Without a value one is"
        " trained on the union of the sources.",
    )
    vocab: int = Ablate.field("vocab")
    eval_bytes: int = Ablate.field("eval_bytes")
    eval_excerpt: int = Ablate.field("eval_excerpt")
    max_overlap: float = Ablate.field("max_overlap")
    seed: int = Field(0, ge=0, description="Seed of the draws and of every run.")
    rows: int = Ablate.field("rows")
    context: int = Ablate.field("context")
    lr: float = Ablate.field("lr")
    threads: int = Ablate.field("threads")
    device: str = Ablate.field("device")


class ModelCoordinates(CommandSettings):
    """The coordinate check of muP."""

    command = "model coordinates"

    widths: str = Field("64,128,256,512", description="Hidden sizes, with commas between them.")
    steps: int = Field(4, ge=1, description="Steps of training at each size.")
    lr: float = Field(0.01, gt=0, description="Learning rate of these steps.")
    optimizer: Literal["adamw", "lion"] = Field("adamw", description="Optimizer of these steps.")
    seed: int = Field(0, ge=0, description="Seed of the weights and tokens.")


class ModelRopeSearch(CommandSettings):
    """The search of rotary factors for a longer context."""

    command = "model rope-search"

    context: int = Field(ge=2, description="Tokens of the longer context.")
    rows: int = Field(
        8, ge=1, description="Number of long texts that are searched on; as many are held out."
    )
    evaluations: int = Field(
        1344, ge=3, description="Most factors that are tried; by default the paper's 40 rounds."
    )
    batch: int = Field(8, ge=1, description="Texts of `context` tokens that are read at a time.")
    precision: Literal["auto", "fp32", "bf16"] = Evaluate.field("precision")
    seed: int = Field(0, ge=0, description="Seed of the search and of the choice of texts.")
    device: str = Generate.field("device")


class ModelShow(CommandSettings):
    """The set-up that a model's cost is worked out for."""

    command = "model show"

    gpu: str = Field(
        "H200", description="GPU to plan for, such as H200, H100, A100 80GB, L40S or RTX 4090."
    )
    rows: int = Field(8, ge=1, description="Rows of a training step on one GPU.")
    context: int | None = Field(
        None, ge=1, description="Tokens in a row. Without a value the model's, at most 4,096."
    )
    batch: int = Field(1, ge=1, description="Number of texts that are decoded at once.")
    vocab: int | None = Field(
        None, ge=1, description="Size of the vocabulary. Without a value the model's."
    )
    precision: Literal["bf16", "fp32"] = Field(
        "bf16", description="Precision of the training; bf16 is by autocast."
    )
    optimizer: str = Field(
        "adamw", description="Optimizer of the training: adamw, muon, lion or adafactor."
    )
    recompute: bool = Field(False, description="Activations inside blocks are not kept.")


class ScalingRun(CommandSettings):
    """The training of a sweep over sizes and budgets."""

    command = "scaling run"

    sizes: str = Field(
        "32x2,64x2,96x3,128x3,192x4",
        description="Sizes of the preset tiny: hidden size x layers, with commas between them.",
    )
    flops: str | None = Field(
        None, description="Floating-point operations of a run, with commas between budgets."
    )
    tokens: str | None = Field(
        None, description="Tokens of a run, in place of operations, with commas between budgets."
    )
    unique_tokens: str | None = Field(
        None,
        description=(
            "Distinct tokens, with commas between them: each budget is also run on so many tokens"
            " of the corpus, again and again."
        ),
    )
    seeds: int = Field(1, ge=1, description="Number of seeds that each run is done from.")
    seed: int = ModelCompare.field("seed")
    rows: int = ModelCompare.field("rows")
    context: int = Field(128, ge=8, description="Tokens in a row.")
    lr: float = ModelCompare.field("lr")
    device: str = Generate.field("device")


class ScalingFit(CommandSettings):
    """The fit of scaling laws to points."""

    command = "scaling fit"

    resamples: int = Field(
        400, ge=2, description="Number of times that points are drawn anew for the intervals."
    )
    seed: int = Field(0, ge=0, description="Seed of these draws.")


class ScalingPlan(CommandSettings):
    """The plan for a budget."""

    command = "scaling plan"

    flops: float = Field(
        gt=0, allow_inf_nan=False, description="Floating-point operations that there are."
    )
    fit: Path | None = Field(
        None, description="File or folder of `scaling fit`, whose laws stand beside published ones."
    )
    gpu: str = ModelShow.field("gpu")
    mfu: float = Field(
        0.4, gt=0, le=1, description="Share of the GPU's peak that training makes use of."
    )
    unique_tokens: float | None = Field(
        None,
        ge=1,
        allow_inf_nan=False,
        description="Distinct tokens that there are. Without a value there is no limit.",
    )
