"""Tokens one after the other, as the tests of decoding need them."""

from __future__ import annotations

from collections.abc import Iterator

from train.generate import Chooser, Sampling, Texts
from train.model.decoder import Decoder


def continue_ids(
    model: Decoder, ids: list[int], *, temperature: float, top_k: int, seed: int
) -> Iterator[int]:
    """Token after token, without end."""
    chooser = Chooser(Sampling(temperature=temperature, top_k=top_k), seed, [0])
    texts = Texts(model, [ids])
    while True:
        tokens = chooser.choose(texts.logits(), texts.known)
        texts.append(tokens)
        yield tokens[0]
