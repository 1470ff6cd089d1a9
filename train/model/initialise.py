"""First weights, drawn from a seed alone."""

from __future__ import annotations

import math

import torch
from torch import nn

from train.model.config import ModelConfig

# So small that the first loss is ln(vocab) within a few hundredths, for a tied head too.
EMBEDDING = 0.4


@torch.no_grad()
def initialise(model: nn.Module, config: ModelConfig, seed: int) -> None:
    """Normal weights of deviation 1 / sqrt(inputs), those that write to the residual stream
    divided by sqrt(2 x layers) (Radford et al. 2019), embeddings and head 0.4 / sqrt(hidden).
    GPT-2's fixed 0.02 suits its width, and costs a model of 192 half of its first minute. Norms
    begin as the identity, biases as 0. Depends on the seed alone, not on global state.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2:
            parameter.fill_(0.0 if name.endswith("bias") else 1.0)
            continue
        std = parameter.shape[1] ** -0.5
        if name.endswith(("attention.out.weight", "mlp.down.weight")):
            std /= math.sqrt(2 * config.layers)
        if name.endswith(("embedding.weight", "head.weight")):
            std = EMBEDDING * config.hidden**-0.5
        if name == "relative":
            std = 0.02
        drawn = torch.empty(parameter.shape).normal_(0.0, std, generator=generator)
        parameter.copy_(drawn)
