"""Sampling: the choice of the next token from its logits."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from llmcurate.base.errors import RunFailed, UsageError


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Applied in this order. ``top_k`` and ``min_p`` are off at 0, ``top_p`` and the penalty at 1.

    ``repetition_penalty``: logits of tokens that the text holds already are divided by it where
    positive, multiplied where negative (Keskar et al. 2019). ``temperature``: logits over it; 0
    takes the likeliest token. ``top_k``: the k likeliest (Fan et al. 2018), ties with the last
    included. ``top_p``: the fewest likeliest tokens that hold that much probability (Holtzman et
    al. 2020). ``min_p``: tokens with at least that share of the likeliest one's probability
    (Nguyen et al. 2024).
    """

    temperature: float = 0.8
    top_k: int = 50
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        for name, least, most in (("temperature", 0, math.inf), ("min_p", 0, 1)):
            value = getattr(self, name)
            if not (least <= value <= most and value < math.inf):
                limit = f"{least} or more" if most == math.inf else f"{least} to {most}"
                raise UsageError(f"{name} is {value}: give {limit}")
        if self.top_k < 0:
            raise UsageError(f"top_k is {self.top_k}: give 0 (all) or more")
        if not 0 < self.top_p <= 1:
            raise UsageError(f"top_p is {self.top_p}: over 0, up to 1 (all)")
        if not 0 < self.repetition_penalty < math.inf:
            raise UsageError(
                f"repetition_penalty is {self.repetition_penalty}: over 0; 1 changes nothing"
            )


GREEDY = Sampling(temperature=0.0, top_k=0)


def penalise(logits: Tensor, seen: list[list[int]], penalty: float) -> Tensor:
    """``logits`` [rows, vocab] with those of the tokens in each row's text made less."""
    if penalty == 1:
        return logits
    logits = logits.clone()
    for row, text in zip(logits, seen, strict=True):
        held = torch.tensor(sorted(set(text)), dtype=torch.long)
        values = row[held]
        row[held] = torch.where(values > 0, values / penalty, values * penalty)
    return logits


def probabilities(logits: Tensor, sampling: Sampling) -> Tensor:
    """float64 [rows, vocab], of logits penalised already; a temperature over 0."""
    scores = logits.double()
    # Over the likeliest, so that no temperature makes them infinite.
    scores = (scores - scores.max(dim=-1, keepdim=True).values) / sampling.temperature
    if 0 < sampling.top_k < scores.shape[-1]:
        least = scores.topk(sampling.top_k, dim=-1).values[:, -1:]
        scores = scores.masked_fill(scores < least, -math.inf)
    chances = scores.softmax(dim=-1)
    if sampling.top_p < 1:
        ordered, order = chances.sort(dim=-1, descending=True, stable=True)
        before = ordered.cumsum(dim=-1) - ordered
        before[:, 0] = 0
        kept = ordered.masked_fill(before >= sampling.top_p, 0.0)
        chances = torch.zeros_like(chances).scatter(-1, order, kept)
    if sampling.min_p > 0:
        least = chances.max(dim=-1, keepdim=True).values * sampling.min_p
        chances = chances.masked_fill(chances < least, 0.0)
    return chances / chances.sum(dim=-1, keepdim=True)


class Chooser:
    """Draws for some texts, each from a stream of its own: what one gets depends on the seed and
    its number alone, not on the texts beside it.
    """

    def __init__(self, sampling: Sampling, seed: int, numbers: list[int]) -> None:
        self.sampling = sampling
        self._draws = [torch.Generator().manual_seed(_stream(seed, number)) for number in numbers]

    def choose(self, logits: Tensor, seen: list[list[int]]) -> list[int]:
        """A token for each row of ``logits`` [rows, vocab], whose texts so far are ``seen``."""
        if not logits.isfinite().all():
            raise RunFailed("the model's logits are not numbers: its weights are broken")
        logits = penalise(logits, seen, self.sampling.repetition_penalty)
        if self.sampling.temperature == 0:
            return logits.argmax(dim=-1).tolist()
        chances = probabilities(logits, self.sampling)
        return [
            int(torch.multinomial(row, 1, generator=draw))
            for row, draw in zip(chances, self._draws, strict=True)
        ]

    def permuted(self, count: int) -> Tensor:
        """0 .. count - 1 in any order, by the first text's stream."""
        return torch.randperm(count, generator=self._draws[0])


def _stream(seed: int, number: int) -> int:
    """The first text draws from the seed itself."""
    if number == 0:
        return seed
    digest = hashlib.blake2b(f"{seed} {number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
