"""The default recipe: a model for each depth, and settings of training that suit it. Short
trainings decided optimizer, schedule and initial weights (docs/training.md, "The default recipe").
A published preset has its published settings instead.
"""

from __future__ import annotations

from typing import Any

from llmcurate.base.settings import kinds_of
from train.config import TrainConfig
from train.model.attention_settings import heads_of
from train.model.config import Embedding, Head, ModelConfig
from train.model.feed_forward_settings import Dense
from train.model.presets import TRAININGS
from train.model.published import Published
from train.objective_settings import RECORDS

# nanochat (Karpathy 2025): one number, the depth, gives the width.
WIDTH_PER_LAYER = 64
# Shallow models have too few dimensions for several heads of 128, which GPUs compute faster.
HEAD_DIM, DEEP_HEAD_DIM, DEEP = 64, 128, 16
# GPUs multiply matrices fastest if their sides are multiples of this.
MULTIPLE = 64
# Learning rate at depth 1. In short trainings at depths 1 and 2, 0.006 was worse by 0.15 nats, and
# twice this rate no better (seed 0).
RATE = 0.0177
# As in nanochat: rates of embedding and head relative to the run's, and the standard deviation of
# the initial embedding. Tried with seed 0: 6, 16 and 40; 0.1, 0.3, 0.5 and 1; 0.05 to 0.8.
EMBEDDING_RATE, HEAD_RATE, EMBEDDING_STD = 16.0, 0.5, 0.8
# If the text is read more often than this, the head's rate is halved, so that the model memorises
# less (docs/training.md).
FEW_EPOCHS = 2


def default_model(depth: int, *, vocab: int, context: int) -> ModelConfig:
    """Return the default model with ``depth`` layers and 64 x depth dimensions. Like LLaMA (Touvron
    et al. 2023), it has RMSNorm, rotary positions, and a SwiGLU feed-forward 8/3 times as wide as
    the model (Shazeer 2020). A feed-forward without a gate, 4 times as wide as the model, would
    have as many weights."""
    hidden = WIDTH_PER_LAYER * depth
    head_dim = DEEP_HEAD_DIM if depth >= DEEP and hidden % DEEP_HEAD_DIM == 0 else HEAD_DIM
    width = -(-8 * hidden // (3 * MULTIPLE)) * MULTIPLE
    return ModelConfig(
        vocab=vocab,
        context=context,
        layers=depth,
        hidden=hidden,
        attention=heads_of(hidden, hidden // head_dim),
        feed_forward=Dense(width=width),
        embedding=Embedding(std=EMBEDDING_STD),
        head=Head(tied=False),
        zero_projections=True,
    )


def default_rate(depth: int) -> float:
    """Return the learning rate for a model of ``depth`` layers: it falls as 1 / sqrt(depth), and so
    as 1 / sqrt(width), because the width is 64 x depth. The singular values of Muon's update of an
    n x n matrix are 0.2 x rate x sqrt(n), the same at each width. The singular values of an initial
    matrix are at most about 2 at each width. So an update should change the same share of a matrix
    at each width; this was not measured."""
    return RATE * depth**-0.5


def default_training(*, steps: int, depth: int = 12, epochs: float = 1.0) -> dict[str, Any]:
    """Return settings of ``TrainConfig`` that depend only on depth and on the numbers of steps and
    epochs: the optimizer, its rates and the schedule."""
    return {
        "optimizer": "muon",
        "schedule": "wsd",
        "lr": default_rate(depth),
        "warmup": min(100, max(1, steps // 20)),
        "decay": 0.5,
        "lr_floor": 0.05,
        "weight_decay": 0.1,
        "embedding_rate": EMBEDDING_RATE,
        "head_rate": HEAD_RATE if epochs <= FEW_EPOCHS else HEAD_RATE / 2,
        "beta1": 0.8,
        "momentum": 0.95,
        "clip": 1.0,
    }


def as_published(model: Any, given: dict[str, Any], *, changed: bool) -> dict[str, Any]:
    """Return the settings ``given``, filled up with the published settings of the preset ``model``
    (see ``Published.fill``). ``changed``: True if the model differs from the preset. If ``model``
    is no preset, or training reads a file of labels or conversations, nothing is filled up."""
    objective = given.get("objective")
    kind = objective.get("kind") if isinstance(objective, dict) else objective
    published = None if any(kind in kinds_of(each) for each in RECORDS) else published_of(model)
    if published is None:
        return given
    return published.fill(given, usual_steps=TrainConfig.steps, changed=changed) | given


def published_of(model: Any) -> Published | None:
    """Return the published training of the preset ``model``, or None."""
    return TRAININGS.get(model) if isinstance(model, str) else None
