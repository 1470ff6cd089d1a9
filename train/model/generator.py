"""ELECTRA's generator: what stands beside a discriminator in training and replaces tokens."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from train.model.config import ModelConfig
from train.model.embedding import widened
from train.model.position_settings import NoPositions
from train.model.stack import Stack


class Generator(nn.Module):
    """A smaller stack on the discriminator's embeddings, which are the same for both: those of
    tokens, of positions that are looked up, and of segments (Clark et al. 2020, section 3.2).
    ``head``: to the embedding's dimensions, and with the embedding to the vocabulary.
    """

    def __init__(self, config: ModelConfig, head: nn.Module, backend: str) -> None:
        super().__init__()
        self.config = config
        self.out = widened(config)
        looked_up = config.position.table
        self.stack = Stack(
            replace(config, position=NoPositions()) if looked_up else config, backend
        )
        self.head = head


def in_whole(name: str, config: ModelConfig) -> str:
    """Where the weight ``name`` of the generator as a model of its own is in the whole model."""
    shared = name.startswith("embedding.") and not name.startswith("embedding.out.")
    if shared or (name.startswith("stack.positions.") and config.position.table):
        return name
    return "generator." + name.removeprefix("embedding.")
