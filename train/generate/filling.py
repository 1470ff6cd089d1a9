"""Masks in a text, filled by an encoder: all at once and the least sure again, or one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed, UsageError
from train.data.vocabulary import names_of
from train.generate.sampling import Chooser, Sampling
from train.model.decoder import Decoder

NEVER = -1e30  # a logit
METHODS = ("mask-predict", "gibbs")
# Logits [places, vocab], on the CPU, of the places that the flags mark in ids [texts, length].
Read = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Filling:
    """``method``: mask-predict takes the likeliest tokens, in so many ``rounds`` (Ghazvininejad et
    al. 2019, section 3); gibbs draws each token anew from all others, in ``rounds`` sweeps over the
    text, in any order (Wang and Cho 2019).
    """

    method: str = "mask-predict"
    rounds: int = 10

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise UsageError(f"fill {self.method!r}: choose {' or '.join(METHODS)}")
        if self.rounds < 1:
            raise UsageError(f"rounds is {self.rounds}: give 1 or more")


def mask_of(tokenizer: Tokenizer) -> tuple[int, str]:
    """The id and the spelling of its mask. Raises ``LlmcurateError`` where it has none."""
    ids = tokenizer.get_vocab(with_added_tokens=True)
    for name in names_of("mask"):
        if name in ids:
            return ids[name], name
    raise UsageError(
        f"the model's tokenizer has no mask ({', '.join(names_of('mask'))}): it fills none"
    )


def with_masks(tokenizer: Tokenizer, prompt: str) -> tuple[list[int], str]:
    """The ids of a prompt, in which the mask's spelling is the mask, in place of a word and of the
    space before it; and the prompt up to the first one. Raises ``LlmcurateError``.
    """
    mask, spelled = mask_of(tokenizer)
    *before, last = prompt.split(spelled)
    ids: list[int] = []
    for part in before:
        ids += [*tokenizer.encode(part.rstrip(" "), add_special_tokens=False).ids, mask]
    ids += tokenizer.encode(last, add_special_tokens=False).ids
    return ids, before[0].rstrip(" ") if before else prompt


def filled(
    model: Decoder,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    start: list[int],
    masks: int,
    filling: Filling,
    sampling: Sampling,
    *,
    seed: int,
    batch: int,
) -> list[tuple[str, str, int]]:
    """Of each prompt what stands before its first mask, the text from there on, and how many masks
    there were: those spelled out, or ``masks`` behind a prompt without any. ``start``: what a text
    begins with; ``batch`` of them are filled at a time. Raises ``LlmcurateError``.
    """
    mask, _ = mask_of(tokenizer)
    texts, before, whole = [], [], []
    for prompt in prompts:
        ids, shown = with_masks(tokenizer, prompt)
        texts.append([*start, *ids] if mask in ids else [*start, *ids, *[mask] * masks])
        before.append(shown)
    for first in range(0, len(texts), batch):
        part = texts[first : first + batch]
        numbers = list(range(first, first + len(part)))
        whole += fill(model, part, mask, filling, sampling, seed=seed, numbers=numbers)
    return [
        (shown, tokenizer.decode(new[text.index(mask) :]), text.count(mask))
        for shown, text, new in zip(before, texts, whole, strict=True)
    ]


@torch.no_grad()
def fill(
    model: Decoder,
    texts: Sequence[list[int]],
    mask: int,
    filling: Filling,
    sampling: Sampling,
    *,
    seed: int,
    numbers: Sequence[int],
) -> list[list[int]]:
    """The texts with tokens for their masks; the n-th draws from the stream of its number. Raises
    ``LlmcurateError`` where one is longer than the model's context.
    """
    width = max(map(len, texts))
    if width > model.config.context:
        raise UsageError(
            f"a text of {counted(width, 'token')}, masks included: the model's context is"
            f" {model.config.context}: give less"
        )
    ids = torch.zeros(len(texts), width, dtype=torch.long)
    documents = torch.full_like(ids, -1)
    for row, text in enumerate(texts):
        ids[row, : len(text)], documents[row, : len(text)] = torch.tensor(text), 0
    blank = (ids == mask) & (documents == 0)
    device = model.embedding.weight.device

    def read(shown: Tensor, places: Tensor) -> Tensor:
        features = model.features(shown.to(device), documents=documents.to(device))
        logits = model.logits(features[places.to(device)]).float().cpu()
        if not logits.isfinite().all():
            raise RunFailed("the model's logits are not numbers: its weights are broken")
        logits[:, mask] = NEVER
        return logits

    if filling.method == "gibbs":
        choosers = [Chooser(sampling, seed, [number]) for number in numbers]
        filled = gibbs(read, ids, blank, mask, filling.rounds, choosers)
    else:
        filled = mask_predict(read, ids, blank, mask, filling.rounds)
    return [row[: len(text)].tolist() for row, text in zip(filled, texts, strict=True)]


def mask_predict(read: Read, ids: Tensor, blank: Tensor, mask: int, rounds: int) -> Tensor:
    """``ids`` [texts, length] with a token in each ``blank``. In round t of T, from 0, the T - t of
    T places whose tokens were the least likely when they were chosen are masked and chosen again.
    """
    ids, chances = ids.clone(), torch.full(ids.shape, -math.inf)
    counts = blank.sum(-1, keepdim=True)
    for turn in range(rounds):
        order = chances.masked_fill(~blank, math.inf).sort(stable=True, dim=-1).indices
        again = blank & (order.argsort(-1) < counts * (rounds - turn) // rounds)
        if not again.any():
            break
        likeliest = read(ids.masked_fill(again, mask), again).log_softmax(-1).max(-1)
        ids[again], chances[again] = likeliest.indices, likeliest.values
    return ids


def gibbs(
    read: Read,
    ids: Tensor,
    blank: Tensor,
    mask: int,
    rounds: int,
    choosers: Sequence[Chooser],
) -> Tensor:
    """``ids`` [texts, length] with a token in each ``blank``: from masks alone, each is masked and
    drawn from what the others are by now, in an order of its own in each round.
    """
    ids = ids.masked_fill(blank, mask)
    for _ in range(rounds):
        orders = [
            row.nonzero()[:, 0][chooser.permuted(int(row.sum()))]
            for row, chooser in zip(blank, choosers, strict=True)
        ]
        for turn in range(max(map(len, orders))):
            rows = [row for row, order in enumerate(orders) if turn < len(order)]
            places = [int(orders[row][turn]) for row in rows]
            ids[rows, places] = mask
            drawn = torch.zeros_like(blank)
            drawn[rows, places] = True
            for row, place, logits in zip(rows, places, read(ids, drawn), strict=True):
                known = [ids[row][blank[row] & (ids[row] != mask)].tolist()]
                ids[row, place] = choosers[row].choose(logits[None], known)[0]
    return ids
