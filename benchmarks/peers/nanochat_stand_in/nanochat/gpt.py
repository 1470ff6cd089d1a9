"""A model of pairs of tokens, in place of nanochat's: `beside_nanochat.py --smoke` and its test
train it. It has what the benchmark uses of nanochat/gpt.py: GPTConfig, and GPT with init_weights,
setup_optimizer and nanochat's arguments of forward."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass
class GPTConfig:
    sequence_len: int = 2048
    vocab_size: int = 32768
    n_layer: int = 12
    n_head: int = 6
    n_kv_head: int = 6
    n_embd: int = 768


class GPT(nn.Module):
    """Predicts the next token from the last one alone, through ``n_layer`` matrices."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        blocks = [nn.Linear(config.n_embd, config.n_embd) for _ in range(config.n_layer)]
        wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.transformer = nn.ModuleDict({"wte": wte, "h": nn.ModuleList(blocks)})
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)

    def init_weights(self) -> None:
        for block in self.transformer["h"]:
            block.reset_parameters()
        nn.init.normal_(self.transformer["wte"].weight)
        nn.init.zeros_(self.lm_head.weight)  # each token is equally likely

    def setup_optimizer(
        self, embedding_lr: float = 0.2, matrix_lr: float = 0.02, weight_decay: float = 0.0
    ) -> torch.optim.Optimizer:
        blocks = [*self.transformer["h"].parameters()]
        others = [*self.transformer["wte"].parameters(), *self.lm_head.parameters()]
        optimizer = torch.optim.SGD(
            [
                {"params": blocks, "lr": matrix_lr, "momentum": 0.9, "weight_decay": weight_decay},
                {"params": others, "lr": embedding_lr},
            ]
        )
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
        return optimizer

    def forward(
        self, idx: Tensor, targets: Tensor | None = None, loss_reduction: str = "mean"
    ) -> Tensor:
        x = self.transformer["wte"](idx)
        for block in self.transformer["h"]:
            x = x + block(x).relu()
        logits = self.lm_head(x).float()
        if targets is None:
            return logits
        return F.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=-1, reduction=loss_reduction
        )
