"""The two sets of documents that a classifier learns from or is measured on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from curate.corpus.direct import DirectInput
from curate.errors import UsageError
from curate.formats.inputs import plan_inputs
from curate.formats.reading import ReadSettings
from curate.scoring.quality.model import Classifier
from curate.terminal.progress import say
from curate.text.buffers import as_large_string, text_buffers


class Texts:
    """The documents of some inputs that have text; read as often as `batches` is called."""

    def __init__(self, inputs: list[str], quiet: bool = False) -> None:
        plan = plan_inputs(inputs, ReadSettings().partition_bytes)
        web = [f for f in plan.files if f.format == "html" or _pages(f)]
        if web:
            raise UsageError(
                f"input {web[0].path} holds web pages, not text: run `llmcurate extract` first"
            )
        for notice in plan.notices:
            say(notice, quiet)
        self._direct = DirectInput(plan, ReadSettings())

    def batches(self) -> Iterator[pa.LargeStringArray]:
        """Texts in batches, in input order."""
        for batch in self._direct.batches(["text"]):
            yield as_large_string(batch.column(0))

    @property
    def tally(self) -> dict[str, Any]:
        """What the last reading met: documents, and what could not be read."""
        found = self._direct.tally
        return {name: found[name] for name in ("read", "kept", "corrupt")}


def _pages(file: Any) -> bool:
    return file.format == "archive" and ".wet" not in file.rel


def score_all(model: Classifier, texts: Texts) -> np.ndarray:
    """float64[documents] of all texts; UsageError where there is none."""
    parts = [model.scores(*text_buffers(batch)) for batch in texts.batches()]
    scores = np.concatenate(parts) if parts else np.zeros(0)
    if not len(scores):
        raise UsageError("no document with text in the input")
    return scores
