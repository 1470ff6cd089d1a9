"""Texts that grow by a token at a time, with a cache of what the model has read."""

from __future__ import annotations

import torch
from torch import Tensor

from train.model.cache import Cache
from train.model.config import ModelConfig
from train.model.decoder import Decoder


def endless(config: ModelConfig) -> bool:
    """Whether a text may go on past the context: every layer has a window, so that memory does
    not grow, and positions are not looked up in a table.
    """
    windows = [config.window_of(layer) for layer in range(config.layers)]
    return None not in windows and config.position not in ("learned", "sinusoidal")


class Texts:
    """A batch of texts, shorter ones padded in front with what no token sees.

    Where a text outgrows the model's context it is read again from its last half; not so if the
    model is ``endless``. ``known``: the tokens of each text.
    """

    def __init__(self, model: Decoder, prompts: list[list[int]]) -> None:
        if not all(prompts):
            raise ValueError("every prompt needs a token")
        self.model, self.known = model, [list(prompt) for prompt in prompts]
        self._context = model.config.context
        self._endless = endless(model.config)
        self._start = [0 if self._endless else max(0, len(p) - self._context) for p in prompts]
        self._cache: Cache | None = None
        self._device = model.embedding.weight.device

    @property
    def cache_bytes(self) -> int:
        """Memory that keys and values take."""
        return 0 if self._cache is None else self._cache.bytes

    @torch.no_grad()
    def logits(self) -> Tensor:
        """Of the token after each text: [texts, vocab], on the CPU. Once before each ``append``."""
        if self._outgrown() or self._cache is None:
            return self._read_all()
        newest = torch.tensor([[text[-1]] for text in self.known], device=self._device)
        return self.model(newest, cache=self._cache)[:, -1].cpu()

    def append(self, tokens: list[int]) -> None:
        """The next token of each text."""
        for text, token in zip(self.known, tokens, strict=True):
            text.append(token)

    def _outgrown(self) -> bool:
        """Moves the start of texts past the context; true if there were any."""
        moved = False
        for row, text in enumerate(self.known):
            if not self._endless and len(text) - self._start[row] > self._context:
                self._start[row] = len(text) - max(1, self._context // 2)
                moved = True
        return moved

    def _read_all(self) -> Tensor:
        """Reads every text into a new cache, as many tokens at once as the context is long."""
        self._cache = cache = self.model.empty_cache()
        views = [text[start:] for text, start in zip(self.known, self._start, strict=True)]
        width = max(map(len, views))
        tokens = torch.zeros(len(views), width, dtype=torch.long)
        documents = torch.full_like(tokens, -1)
        for row, view in enumerate(views):
            tokens[row, width - len(view) :] = torch.tensor(view)
            documents[row, width - len(view) :] = 0
        padded = bool((documents < 0).any())
        tokens, documents = tokens.to(self._device), documents.to(self._device)
        for first in range(0, width, self._context):
            part = slice(first, first + self._context)
            features = self.model.features(
                tokens[:, part], documents=documents[:, part] if padded else None, cache=cache
            )
        return self.model.logits(features[:, -1]).cpu()
