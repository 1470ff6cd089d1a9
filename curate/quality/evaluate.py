"""Hold a quality model against documents that are known to be good, and others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from curate.atomic import write_text
from curate.errors import UsageError
from curate.quality.inputs import Texts, score_all
from curate.quality.measures import measure
from curate.quality.model import Classifier
from curate.report.bins import Histogram


def evaluate(
    model: str | Path,
    positive: list[str],
    negative: list[str],
    label: str | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """What `measures.measure` says, and histograms of both sets' scores. A document has eight
    bytes in memory. UsageError where a set has no document with text."""
    loaded = Classifier(model, label)
    sets = [Texts(positive, quiet), Texts(negative, quiet)]
    good, rest = (score_all(loaded, texts) for texts in sets)
    scores = np.concatenate((good, rest))
    found = measure(scores, np.arange(len(scores)) < len(good))
    assert found is not None
    edges = np.arange(41) / 40
    histograms = {}
    for name, values in (("positive", good), ("negative", rest)):
        bins = Histogram(edges, "linear")
        bins.add(values)
        histograms[name] = bins.dump()
    read = {"positive": sets[0].tally, "negative": sets[1].tally}
    about = {"model": str(model), "label": loaded.label, "read": read}
    return {**about, **found, "histograms": histograms}


def write(found: dict[str, Any], out: Path) -> list[Path]:
    """OUT/evaluate.json and OUT/evaluate.html."""
    from curate.quality.page import render

    if out.exists() and not out.is_dir():
        raise UsageError(f"OUT {out} is a file; name a folder")
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / "evaluate.json", out / "evaluate.html"]
    data = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    for path, content in zip(paths, (data, render(found)), strict=True):
        write_text(path, content.encode("utf-8", "replace").decode("utf-8"))
    return paths
