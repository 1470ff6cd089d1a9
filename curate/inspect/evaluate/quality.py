"""The evaluation of quality models on good documents and others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from curate.inspect.report.bins import Histogram
from curate.pages import templates
from curate.scoring.quality.measures import measure
from curate.scoring.quality.model import Classifier
from curate.scoring.quality.train import Texts, score_all


def evaluate(
    model: str | Path,
    positive: list[str],
    negative: list[str],
    label: str | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """The figures of `measures.measure`, and histograms of both sets' scores. A document has eight
    bytes in memory. UsageError where a set has no document with text."""
    loaded = Classifier(model, label)
    sets = [Texts(positive, quiet), Texts(negative, quiet)]
    good, rest = (score_all(loaded, texts) for texts in sets)
    scores = np.concatenate((good, rest))
    figures = measure(scores, np.arange(len(scores)) < len(good))
    assert figures is not None
    edges = np.arange(41) / 40
    histograms = {}
    for kind, values in (("positive", good), ("negative", rest)):
        bins = Histogram(edges, "linear")
        bins.add(values)
        histograms[kind] = bins.dump()
    read = {"positive": sets[0].tally, "negative": sets[1].tally}
    about = {"model": str(model), "label": loaded.label, "read": read}
    return {**about, **figures, "histograms": histograms}


def render(scores: dict[str, Any]) -> str:
    """evaluation.html."""
    return templates.render("evaluate/quality.html", scores=scores)
