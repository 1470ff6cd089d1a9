"""The settings of a language model's training."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Training:
    """dim, minn, maxn, word_ngrams, loss and bucket are those of lid.176, as its header says; the
    rest is explained where the product `language_model` asks for it."""

    dim: int = 16
    minn: int = 2
    maxn: int = 4
    word_ngrams: int = 1
    loss: str = "hs"
    bucket: int = 2_000_000
    epochs: int = 10
    lr: float = 0.5
    min_count: int = 1
    held_out: float = 0.05
    piece_chars: int = 0
    quantize: bool = False
    cutoff: int = 0
    seed: int = 0
