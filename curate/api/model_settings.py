"""Settings of commands on models: those commands that run no recipe step (see
command_settings.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from curate.api.command_settings import CommandSettings, Export, TokenizerExtend


class ModelTransplant(CommandSettings):
    """The options of `llmcurate model transplant`, which gives a model another tokenizer."""

    command = "model transplant"

    init: Literal["mean", "focus", "random"] = TokenizerExtend.field("init")
    seed: int = TokenizerExtend.field("seed")


class Generate(CommandSettings):
    """The options of `llmcurate generate`."""

    command = "generate"
    SECTIONS = {
        "temperature": "Sampling",
        "chat": "Chat",
        "suffix": "Gaps and masks",
        "batch": "Run",
    }

    prompts: Path | None = Field(
        None, description="File of prompts: one per line, or .jsonl with `prompt` (or `text`)."
    )
    max_tokens: int = Field(
        100,
        ge=1,
        description="Most new tokens per text. An encoder adds at most as many masks as its context"
        " has room for, unless you give a number.",
    )
    temperature: float = Field(
        0.8, ge=0, description="Sampling temperature; 0 always takes the most likely token."
    )
    top_k: int = Field(
        50, ge=0, description="Sample from this many most likely tokens; 0: all (Fan et al. 2018)."
    )
    top_p: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Sample from the most likely tokens that together have this probability"
        " (Holtzman et al. 2020).",
    )
    min_p: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Never sample a token with less than this share of the most likely token's"
        " probability (Nguyen et al. 2024).",
    )
    repetition_penalty: float = Field(
        1.0,
        gt=0,
        description="Penalty on tokens that already occur in the text; above 1 they become less"
        " likely (Keskar et al. 2019).",
    )
    chat: bool = Field(
        False, description="Answer each prompt as a user's message, by the model's chat template."
    )
    system: str | None = Field(None, description="System message before the user's, with --chat.")
    suffix: str | None = Field(
        None, description="Text after the gap to fill; needs a model trained with objective fim."
    )
    fill: Literal["mask-predict", "gibbs"] = Field(
        "mask-predict",
        description="How an encoder fills masks: all at once, then the least certain again"
        " (Ghazvininejad et al. 2019), or sampled one by one (Wang and Cho 2019).",
    )
    rounds: int = Field(10, ge=1, description="Rounds of filling masks with an encoder.")
    top: int = Field(
        0, ge=0, description="List this many likeliest tokens of each mask, with probabilities."
    )
    batch: int = Field(32, ge=1, description="Number of prompts to continue at the same time.")
    precision: Literal["auto", "fp32", "bf16"] = Field(
        "auto", description="Precision of matrix products; `auto` is bf16 on a GPU."
    )
    compile: bool = Field(
        False,
        description="Compile the model with torch.compile: a wait before the second token of a"
        " text, then faster ones.",
    )
    seed: int = Field(0, description="Seed of the sampling; the same seed gives the same texts.")
    device: str = Field(
        "auto", description="Device: auto (a GPU if there is one), cpu, cuda or cuda:N."
    )
    checkpoint: Literal["best", "last"] = Export.field("checkpoint")


class Evaluate(CommandSettings):
    """The options of `llmcurate evaluate`."""

    command = "evaluate"

    context: int | None = Field(
        None, ge=1, description="Tokens per window. Default: the model's context length."
    )
    batch: int = Field(8, ge=1, description="Number of windows to score at the same time.")
    last_word: bool = Field(
        False, description="Score only the last word of each document, as LAMBADA does."
    )
    task: tuple[str, ...] = Field(
        (),
        description="Task of lm-evaluation-harness, such as arc_easy; needs `llmcurate[lm-eval]`.",
    )
    task_folder: Path | None = Field(None, description="Folder with task files of your own.")
    few_shot: int | None = Field(
        None,
        ge=0,
        description="Examples before each question of a task. Default: as the task says.",
    )
    limit: int | None = Field(
        None, ge=1, description="Number of questions of each task. Default: all."
    )
    precision: Literal["auto", "fp32", "bf16"] = Generate.field("precision")
    seed: int = Field(0, ge=0, description="Seed of the resamples for the intervals.")
    device: str = Generate.field("device")
    checkpoint: Literal["best", "last"] = Export.field("checkpoint")


class Predict(CommandSettings):
    """The options of `llmcurate predict`, which labels texts with a fine-tuned model."""

    command = "predict"

    context: int | None = Field(
        None, ge=1, description="Tokens per window. Default: as in training."
    )
    batch: int = Field(8, ge=1, description="Number of windows to read at the same time.")
    precision: Literal["auto", "fp32", "bf16"] = Generate.field("precision")
    device: str = Generate.field("device")
    checkpoint: Literal["best", "last"] = Export.field("checkpoint")


class Compare(CommandSettings):
    """The options of `llmcurate compare`."""

    command = "compare"
    SECTIONS = {"model": "Model", "score": "Evaluation", "seeds": "Training"}

    tokens: int | None = Field(
        None, ge=1, description="Training tokens per run, such as 2000000, 2M or 2e6."
    )
    flops: float | None = Field(
        None, gt=0, description="Floating-point operations per run, instead of tokens."
    )
    documents: int | None = Field(
        None,
        ge=1,
        description="Documents per run, instead of tokens; converted to tokens by the mean length"
        " of the corpus' documents.",
    )
    epochs: float | None = Field(None, gt=0, description="Epochs per run, instead of tokens.")
    minutes: float | None = Field(
        None,
        gt=0,
        description="Minutes for all runs on this machine, instead of tokens. A pilot chooses model"
        " and tokens and tells what difference the experiment could detect.",
    )
    model: str | None = Field(
        None,
        description="Preset to train, or the folder of a trained model. Default: tiny; with"
        " --minutes the largest preset that fits.",
    )
    tokenizer: Path | None = Field(
        None,
        description="Tokenizer for all corpora, a file or its folder. Default: one trained on the"
        " union of the corpora.",
    )
    vocab: int = Field(4096, ge=2, description="Vocabulary size of the trained tokenizer.")
    score: str = Field(
        "bytes",
        description="Score: bytes (likelihood of texts), spans (of blanked words; any model but"
        " ELECTRA's), or a JSONL file of a fine-tuning task.",
    )
    tuning_steps: int = Field(
        200, ge=1, description="Steps of fine-tuning per run, if the score is a file."
    )
    eval_bytes: int = Field(
        100_000,
        ge=1,
        description="Most bytes to score of an evaluation text; its documents are sampled by the"
        " hashes of their ids.",
    )
    eval_excerpt: int = Field(
        2000, ge=1, description="Most bytes to score of an evaluation document, from its start."
    )
    max_overlap: float = Field(
        0.2,
        ge=0,
        le=1,
        description="Largest share of an evaluation document's 13-grams that may occur in a corpus;"
        " documents with more are not scored.",
    )
    seeds: int = Field(3, ge=1, description="Number of seeds per row.")
    seed: int = Field(0, ge=0, description="First seed; the others follow it.")
    rows: int = Field(4, ge=1, description="Rows of `context` tokens per training step.")
    context: int = Field(256, ge=8, description="Tokens per row.")
    lr: float = Field(0.003, gt=0, description="Learning rate after warm-up.")
    points: int = Field(3, ge=1, description="Number of times that texts are scored during a run.")
    threads: int = Field(1, ge=1, description="CPU threads per run; several runs go in parallel.")
    device: str = Generate.field("device")


class MixSearch(CommandSettings):
    """The options of `llmcurate mix search`."""

    command = "mix search"
    SECTIONS = {"model": "Model", "eval_bytes": "Evaluation", "seed": "Training"}

    tokens: int = Field(ge=1, description="Training tokens per small model.")
    total: float = Field(
        gt=0, description="Training tokens of the real run; they limit the epochs of each source."
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
        description="Number of mixtures to try, the natural one first. Earlier runs in OUT with the"
        " same sources, or some of them, are used too.",
    )
    confirm: int = Field(
        0,
        ge=0,
        description="Number of extra seeds to train the predicted optimum and the natural mixture"
        " with, to compare them.",
    )
    regression: Literal["auto", "linear", "trees"] = Field(
        "auto",
        description="Regression that predicts the optimum; `auto` takes the one with the smaller"
        " error on held-out mixtures.",
    )
    model: str = Field("tiny", description="Preset of the small models.")
    tokenizer: Path | None = Field(
        None,
        description="Tokenizer for all documents, a file or its folder. Default: one trained on the"
        " union of the sources.",
    )
    vocab: int = Compare.field("vocab")
    eval_bytes: int = Compare.field("eval_bytes")
    eval_excerpt: int = Compare.field("eval_excerpt")
    max_overlap: float = Compare.field("max_overlap")
    seed: int = Field(0, ge=0, description="Seed of the sampled mixtures and of every run.")
    rows: int = Compare.field("rows")
    context: int = Compare.field("context")
    lr: float = Compare.field("lr")
    threads: int = Compare.field("threads")
    device: str = Compare.field("device")


class ModelCoordinates(CommandSettings):
    """The options of `llmcurate model coordinates`, the coordinate check of muP."""

    command = "model coordinates"

    widths: str = Field("64,128,256,512", description="Hidden sizes, separated by commas.")
    steps: int = Field(4, ge=1, description="Training steps per size.")
    lr: float = Field(0.01, gt=0, description="Learning rate.")
    optimizer: Literal["adamw", "lion"] = Field("adamw", description="Optimizer.")
    seed: int = Field(0, ge=0, description="Seed of the weights and tokens.")


class ModelRopeSearch(CommandSettings):
    """The options of `llmcurate model rope-search`, which extends the context of a model."""

    command = "model rope-search"

    context: int = Field(ge=2, description="New context length in tokens.")
    rows: int = Field(
        8, ge=1, description="Number of long texts to search on; the same number is held out."
    )
    evaluations: int = Field(
        1344, ge=3, description="Most sets of factors to try; the default is the paper's 40 rounds."
    )
    batch: int = Field(8, ge=1, description="Number of texts to read at the same time.")
    precision: Literal["auto", "fp32", "bf16"] = Generate.field("precision")
    seed: int = Field(0, ge=0, description="Seed of the search and of the sample of texts.")
    device: str = Generate.field("device")


class ModelShow(CommandSettings):
    """The options of `llmcurate model show`: the set-up that costs are computed for."""

    command = "model show"

    gpu: str = Field(
        "H200", description="GPU to plan for, such as H200, H100, A100 80GB, L40S or RTX 4090."
    )
    rows: int = Field(8, ge=1, description="Rows per training step on one GPU.")
    context: int | None = Field(
        None, ge=1, description="Tokens per row. Default: the model's context, at most 4,096."
    )
    batch: int = Field(1, ge=1, description="Number of texts decoded in parallel.")
    tokens: int | None = Field(
        None,
        ge=1,
        description="Tokens of the whole training. Default: as published, else 20 per parameter.",
    )
    vocab: int | None = Field(None, ge=1, description="Vocabulary size. Default: the model's.")
    precision: Literal["bf16", "fp32"] = Field(
        "bf16", description="Training precision; bf16 uses autocast."
    )
    optimizer: str = Field("adamw", description="Optimizer: adamw, muon, lion or adafactor.")
    recompute: bool = Field(
        False, description="Recompute the activations inside blocks instead of storing them."
    )


class ScalingRun(CommandSettings):
    """The options of `llmcurate scaling run`."""

    command = "scaling run"

    sizes: str = Field(
        "32x2,64x2,96x3,128x3,192x4",
        description="Sizes of the preset tiny: hidden size x layers, separated by commas.",
    )
    flops: str | None = Field(
        None, description="Budgets in floating-point operations per run, separated by commas."
    )
    tokens: str | None = Field(
        None, description="Budgets in tokens per run instead of operations, separated by commas."
    )
    unique_tokens: str | None = Field(
        None,
        description="Numbers of distinct tokens, separated by commas. Each budget is also run on"
        " only this many tokens of the corpus, repeated.",
    )
    seeds: int = Field(1, ge=1, description="Number of seeds per run.")
    seed: int = Compare.field("seed")
    rows: int = Compare.field("rows")
    context: int = Field(128, ge=8, description="Tokens per row.")
    lr: float = Compare.field("lr")
    device: str = Generate.field("device")


class ScalingFit(CommandSettings):
    """The options of `llmcurate scaling fit`."""

    command = "scaling fit"

    resamples: int = Field(
        400, ge=2, description="Number of bootstrap resamples of the points for the intervals."
    )
    seed: int = Field(0, ge=0, description="Seed of the resamples.")


class ScalingPlan(CommandSettings):
    """The options of `llmcurate scaling plan`."""

    command = "scaling plan"

    flops: float = Field(
        gt=0, allow_inf_nan=False, description="Compute budget in floating-point operations."
    )
    fit: Path | None = Field(
        None, description="File or folder of `scaling fit`, to compare with published laws."
    )
    gpu: str = ModelShow.field("gpu")
    mfu: float = Field(
        0.4, gt=0, le=1, description="Share of the GPU's peak that training reaches (MFU)."
    )
    unique_tokens: float | None = Field(
        None,
        ge=1,
        allow_inf_nan=False,
        description="Number of distinct tokens available. Default: no limit.",
    )
