"""Heads for tasks: labels of a text, of its words, or an answer in it."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from train.model import roles
from train.model.config import ModelConfig
from train.model.heads import Transform
from train.model.positions import EMBEDDING
from train.model.roles import Role
from train.model.task_settings import Task


class Pool(nn.Module):
    """What BERT's head for a text begins with: tanh(linear(x))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.linear = roles.linear(config.hidden, config.hidden, part="head", bias=True)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(x))


class TaskHead(nn.Module):
    """Features [..., hidden] to logits [..., labels]. It has a bias, but where a decoder's text is
    classified (as transformers' classes have it).
    """

    pair = replaced = boundary = None

    def __init__(self, config: ModelConfig, task: Task) -> None:
        super().__init__()
        size = len(task.labels)
        self.weight = nn.Parameter(torch.zeros(size, config.hidden))
        bias = not (config.causal and task.kind == "classify")
        self.bias = nn.Parameter(torch.zeros(size)) if bias else None
        std = EMBEDDING * config.hidden**-0.5
        weight = Role(part="head", use="head", std=std, fan_in=config.hidden)
        roles.give(self, weight=weight, bias=Role(part="head", use="vector"))
        self.transform: nn.Module | None = None
        if task.before == "pool":
            self.transform = Pool(config)
        elif task.before == "transform":
            self.transform = Transform(config, config.hidden)


def with_task(config: ModelConfig, kind: str, labels: tuple[str, ...]) -> ModelConfig:
    """The model with a head for a task in place of its own. What stands before its matrix is as in
    the family's own classes: ModernBERT's transform; BERT's pool, of a text; of others nothing.
    """
    config, before = config.trunk, "nothing"
    if config.head.transform and config.norm.place == "pre":
        before = "transform"
    elif config.head.transform and kind == "classify":
        before = "pool"
    task = Task(kind=kind, labels=labels, before=before)
    head = replace(config.head, pair="none", replaced=False, boundary=False, task=task)
    return replace(config, head=head)


def kept(name: str, task: Task) -> str:
    """What a weight of a model is called once it has a head for a task, "" where it has no place
    there: of the heads the transform stays, and as the pool that of pairs of segments.
    """
    pool = "head.pair.pool."
    if task.before == "pool" and name.startswith(pool):
        return name.replace(pool, "head.transform.linear.")
    stays = task.before == "transform" and name.startswith("head.transform.")
    return name if stays or not name.startswith(("head.", "mtp.", "generator.")) else ""
