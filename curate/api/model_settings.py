"""Settings of commands on models: those commands that run no recipe step (see
command_settings.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from curate.api.command_settings import CommandSettings, Export, TokenizerExtend
from llmcurate.base.settings import shared
from train.generation_settings import Filling, Sampling


class ModelTransplant(CommandSettings, command="model transplant"):
    METAVARS = {"on": "CORPUS"}

    on: tuple[str, ...] = ()
    """Texts to score the model on, before and after; --init focus learns from them."""
    init: Literal["mean", "focus"] = TokenizerExtend.field("init")


class Generate(CommandSettings, command="generate"):
    SECTIONS = {
        "temperature": "Sampling",
        "chat": "Chat",
        "suffix": "Gaps and masks",
        "batch": "Run",
    }

    prompts: Path | None = None
    """File of prompts: one per line, or .jsonl with `prompt` (or `text`)."""
    max_tokens: int = Field(100, ge=1)
    """Most new tokens per text. An encoder adds at most as many masks as its context has room for,
    unless you give a number."""
    temperature: float = shared(Sampling, "temperature")
    top_k: int = shared(Sampling, "top_k")
    top_p: float = shared(Sampling, "top_p")
    min_p: float = shared(Sampling, "min_p")
    repetition_penalty: float = shared(Sampling, "repetition_penalty")
    chat: bool = False
    """Answer each prompt as a user's message, by the model's chat template."""
    system: str | None = None
    """System message before the user's, with --chat."""
    suffix: str | None = None
    """Text after the gap to fill; needs a model trained with objective fim."""
    fill: Literal["mask-predict", "gibbs"] = shared(Filling, "method")
    rounds: int = shared(Filling, "rounds")
    top: int = Field(0, ge=0)
    """List this many likeliest tokens of each mask, with probabilities."""
    batch: int = Field(32, ge=1)
    """Number of prompts to continue at the same time."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of matrix products; `auto` is bf16 on a GPU."""
    compile: bool = False
    """Compile the model with torch.compile: a wait before the second token of a text, then faster
    ones."""
    seed: int = 0
    """Seed of the sampling; the same seed gives the same texts."""
    device: str = "auto"
    """Device: auto (a GPU if there is one), cpu, cuda or cuda:N."""
    checkpoint: Literal["best", "last"] = Export.field("checkpoint")


class Evaluate(CommandSettings, command="evaluate"):
    METAVARS = {"on": "[NAME=]PATH"}

    on: tuple[str, ...] = ()
    """Documents, token shards of the model's tokenizer, or questions in JSONL. They may follow
    MODEL without --on."""
    context: int | None = Field(None, ge=1)
    """Tokens per window. Default: the model's context length."""
    batch: int = Field(8, ge=1)
    """Number of windows to score at the same time."""
    last_word: bool = False
    """Score only the last word of each document, as LAMBADA does."""
    task: tuple[str, ...] = ()
    """Task of lm-evaluation-harness, such as arc_easy; needs `llmcurate[lm-eval]`."""
    task_folder: Path | None = None
    """Folder with task files of your own."""
    few_shot: int | None = Field(None, ge=0)
    """Examples before each question of a task. Default: as the task says."""
    limit: int | None = Field(None, ge=1)
    """Number of questions of each task. Default: all."""
    precision: Literal["auto", "fp32", "bf16"] = Generate.field("precision")
    seed: int = Field(0, ge=0)
    """Seed of the resamples for the intervals."""
    device: str = Generate.field("device")
    checkpoint: Literal["best", "last"] = Export.field("checkpoint")


class Predict(CommandSettings, command="predict"):
    context: int | None = Field(None, ge=1)
    """Tokens per window. Default: as in training."""
    batch: int = Field(8, ge=1)
    """Number of windows to read at the same time."""
    precision: Literal["auto", "fp32", "bf16"] = Generate.field("precision")
    device: str = Generate.field("device")
    checkpoint: Literal["best", "last"] = Export.field("checkpoint")


class Compare(CommandSettings, command="compare"):
    SECTIONS = {"model": "Model", "score": "Evaluation", "seeds": "Training"}
    METAVARS = {"variant": "NAME:KEY=VALUE,...", "on": "[NAME=]PATH", "input": "PATH"}

    variant: tuple[str, ...] = ()
    """The first corpus trained with other settings of tokenizer, shards, pretrain or model;
    model=PRESET is another model."""
    on: tuple[str, ...] = ()
    """Evaluation text that all models are scored on. It must not come from the corpora."""
    recipes: bool = False
    """CORPUS... are recipes; run them over --input."""
    input: tuple[str, ...] = ()
    """With --recipes: files, folders or URLs to run them over."""
    tokens: int | None = Field(None, ge=1)
    """Training tokens per run, such as 2000000, 2M or 2e6."""
    flops: float | None = Field(None, gt=0)
    """Floating-point operations per run, instead of tokens."""
    documents: int | None = Field(None, ge=1)
    """Documents per run, instead of tokens; converted to tokens by the mean length of the corpus'
    documents."""
    epochs: float | None = Field(None, gt=0)
    """Epochs per run, instead of tokens."""
    minutes: float | None = Field(None, gt=0)
    """Minutes for all runs on this machine, instead of tokens. A pilot chooses model and tokens and
    tells what difference the experiment could detect."""
    model: str | None = None
    """Preset to train, or the folder of a trained model. Default: tiny; with --minutes the largest
    preset that fits."""
    tokenizer: Path | None = None
    """Tokenizer for all corpora, a file or its folder. Default: one trained on the union of the
    corpora."""
    vocab: int = Field(4096, ge=2)
    """Vocabulary size of the trained tokenizer."""
    score: str = "bytes"
    """Score: bytes (likelihood of texts), spans (of blanked words; any model but ELECTRA's), or a
    JSONL file of a fine-tuning task."""
    tuning_steps: int = Field(200, ge=1)
    """Steps of fine-tuning per run, if the score is a file."""
    eval_bytes: int = Field(100_000, ge=1)
    """Most bytes to score of an evaluation text; its documents are sampled by the hashes of their
    ids."""
    eval_excerpt: int = Field(2000, ge=1)
    """Most bytes to score of an evaluation document, from its start."""
    max_overlap: float = Field(0.2, ge=0, le=1)
    """Largest share of an evaluation document's 13-grams that may occur in a corpus; documents with
    more are not scored."""
    seeds: int = Field(3, ge=1)
    """Number of seeds per row."""
    seed: int = Field(0, ge=0)
    """First seed; the others follow it."""
    rows: int = Field(4, ge=1)
    """Rows of `context` tokens per training step."""
    context: int = Field(256, ge=8)
    """Tokens per row."""
    lr: float = Field(0.003, gt=0)
    """Learning rate after warm-up."""
    points: int = Field(3, ge=1)
    """Number of times that texts are scored during a run."""
    threads: int = Field(1, ge=1)
    """CPU threads per run; several runs go in parallel."""
    device: str = Generate.field("device")


class MixSearch(CommandSettings, command="mix search"):
    SECTIONS = {"model": "Model", "eval_bytes": "Evaluation", "seed": "Training"}
    METAVARS = {"on": "[NAME=]PATH", "on_weights": "NAME=WEIGHT,..."}

    on: tuple[str, ...] = ()
    """Target text: documents that the mixture should be good for."""
    on_weights: tuple[str, ...] = ()
    """Weights of the target texts' bits per byte. Default: by their bytes."""
    tokens: int = Field(ge=1)
    """Training tokens per small model."""
    total: float = Field(gt=0)
    """Training tokens of the real run; they limit the epochs of each source."""
    max_epochs: float = Field(4.0, gt=0)
    """Most epochs of a source, in the real run and in each small one (up to 4 repeated text is
    nearly as good as new: Muennighoff et al. 2023)."""
    runs: int = Field(32, ge=4)
    """Number of mixtures to try, the natural one first. Earlier runs in OUT with the same sources,
    or some of them, are used too."""
    confirm: int = Field(0, ge=0)
    """Number of extra seeds to train the predicted optimum and the natural mixture with, to compare
    them."""
    regression: Literal["auto", "linear", "trees"] = "auto"
    """Regression that predicts the optimum; `auto` takes the one with the smaller error on held-out
    mixtures."""
    model: str = "tiny"
    """Preset of the small models."""
    tokenizer: Path | None = None
    """Tokenizer for all documents, a file or its folder. Default: one trained on the union of the
    sources."""
    vocab: int = Compare.field("vocab")
    eval_bytes: int = Compare.field("eval_bytes")
    eval_excerpt: int = Compare.field("eval_excerpt")
    max_overlap: float = Compare.field("max_overlap")
    seed: int = Field(0, ge=0)
    """Seed of the sampled mixtures and of every run."""
    rows: int = Compare.field("rows")
    context: int = Compare.field("context")
    lr: float = Compare.field("lr")
    threads: int = Compare.field("threads")
    device: str = Compare.field("device")


class ModelRopeSearch(CommandSettings, command="model rope-search"):
    METAVARS = {"on": "PATH"}

    on: str
    """Long documents, or token shards of the model's tokenizer."""
    context: int = Field(ge=2)
    """New context length in tokens."""
    rows: int = Field(8, ge=1)
    """Number of long texts to search on; the same number is held out."""
    evaluations: int = Field(1344, ge=3)
    """Most sets of factors to try; the default is the paper's 40 rounds."""
    batch: int = Field(8, ge=1)
    """Number of texts to read at the same time."""
    precision: Literal["auto", "fp32", "bf16"] = Generate.field("precision")
    seed: int = Field(0, ge=0)
    """Seed of the search and of the sample of texts."""
    device: str = Generate.field("device")


class ModelShow(CommandSettings, command="model show"):
    gpu: str = "H200"
    """GPU to plan for, such as H200, H100, A100 80GB, L40S or RTX 4090."""
    rows: int = Field(8, ge=1)
    """Rows per training step on one GPU."""
    context: int | None = Field(None, ge=1)
    """Tokens per row. Default: the model's context, at most 4,096."""
    batch: int = Field(1, ge=1)
    """Number of texts decoded in parallel."""
    tokens: int | None = Field(None, ge=1)
    """Tokens of the whole training. Default: as published, else 20 per parameter."""
    vocab: int | None = Field(None, ge=1)
    """Vocabulary size. Default: the model's."""
    precision: Literal["bf16", "fp32"] = "bf16"
    """Training precision; bf16 uses autocast."""
    optimizer: str = "adamw"
    """Optimizer: adamw, muon, lion or adafactor."""
    recompute: bool = False
    """Recompute the activations inside blocks instead of storing them."""


class ScalingRun(CommandSettings, command="scaling run"):
    sizes: str = "32x2,64x2,96x3,128x3,192x4"
    """Sizes of the preset tiny: hidden size x layers, separated by commas."""
    flops: str | None = None
    """Budgets in floating-point operations per run, separated by commas."""
    tokens: str | None = None
    """Budgets in tokens per run instead of operations, separated by commas."""
    unique_tokens: str | None = None
    """Numbers of distinct tokens, separated by commas. Each budget is also run on only this many
    tokens of the corpus, repeated."""
    seeds: int = Field(1, ge=1)
    """Number of seeds per run."""
    seed: int = Compare.field("seed")
    rows: int = Compare.field("rows")
    context: int = Field(128, ge=8)
    """Tokens per row."""
    lr: float = Compare.field("lr")
    device: str = Generate.field("device")


class ScalingFit(CommandSettings, command="scaling fit"):
    resamples: int = Field(400, ge=2)
    """Number of bootstrap resamples of the points for the intervals."""
    seed: int = Field(0, ge=0)
    """Seed of the resamples."""


class ScalingPlan(CommandSettings, command="scaling plan"):
    flops: float = Field(gt=0, allow_inf_nan=False)
    """Compute budget in floating-point operations."""
    fit: Path | None = None
    """File or folder of `scaling fit`, to compare with published laws."""
    gpu: str = ModelShow.field("gpu")
    mfu: float = Field(0.4, gt=0, le=1)
    """Share of the GPU's peak that training reaches (MFU)."""
    unique_tokens: float | None = Field(None, ge=1, allow_inf_nan=False)
    """Number of distinct tokens available. Default: no limit."""
