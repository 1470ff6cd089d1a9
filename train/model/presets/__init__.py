"""Published sizes, and our own, as plain functions, in files by family.

The published ones follow the ``config.json`` that their authors released, or the paper's table;
each one's parameter count is tested against the published figure, and where transformers has the
class, against the class of that configuration.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable

from llmcurate.base.errors import UsageError
from llmcurate.base.index import modules_of
from train.model.config import ModelConfig
from train.model.presets import gpt, llama

OWN = tuple(llama.OURS)  # of this project

PRESETS: dict[str, Callable[[], ModelConfig]] = {
    **llama.OURS,
    **gpt.GPT,
    **llama.LLAMA,
}
for _module in modules_of("train.lab.presets"):
    PRESETS |= _module.PRESETS
# Weight decay as published with the models whose names begin so; it is a setting of training, 0.1
# unless set.
DECAYS = gpt.DECAYS | llama.DECAYS


def preset(name: str, *, vocab: int | None = None, context: int | None = None) -> ModelConfig:
    """The preset called ``name``, for another vocabulary or context if given;
    ``LlmcurateError``."""
    if name not in PRESETS:
        close = difflib.get_close_matches(name, PRESETS, n=3, cutoff=0.4)
        listed = ", ".join(close or list(PRESETS)[:5])
        raise UsageError(
            f"model {name!r}: not a preset, nor a model's folder; near it: {listed} (`llmcurate "
            "model list`)"
        )
    config = PRESETS[name]()
    return dataclasses.replace(
        config, vocab=vocab or config.vocab, context=context or config.context
    )
