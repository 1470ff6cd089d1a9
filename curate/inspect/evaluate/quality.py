"""Hold a quality model against documents that are known to be good, and others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from curate.disk.atomic import write_text
from curate.errors import UsageError
from curate.inspect.report.bins import Histogram
from curate.inspect.report.page import frame
from curate.pages import charts
from curate.pages.html import count, lead, name, section, shown, table
from curate.scoring.quality.measures import measure
from curate.scoring.quality.model import Classifier
from curate.scoring.quality.train import Texts, score_all

# evaluate.html: how well a quality model tells two sets apart, as one self-contained page.

Chapter = tuple[str, str, str]
Found = dict[str, Any]


def render(found: Found) -> str:
    """The page of an evaluation."""
    n = found["documents"]
    title = "Quality model evaluated"
    head = (
        f"<h1>{title}</h1><p class=lead>{name(found['model'])}: the probability of"
        f" {shown(found['label'])}, for {count(n['positive'])} positive and"
        f" {count(n['negative'])} negative documents.</p>"
    )
    chapters = [_curves(found), _scores(found), _thresholds(found), _calibration(found)]
    return frame(title, head, chapters, "For programs: evaluate.json.")


def _figure(chart: str, caption: str) -> str:
    return f"<figure>{chart}<figcaption>{caption}</figcaption></figure>"


def _curves(found: Found) -> Chapter:
    share = found["documents"]["positive"] / sum(found["documents"].values())
    precision = charts.curve(
        [found["curves"]["precision_recall"]], "precision over recall", "recall"
    )
    roc = charts.curve(
        [found["curves"]["roc"], [(0.0, 0.0), (1.0, 1.0)]],
        "positives kept over negatives kept",
        "negatives kept",
    )
    return section(
        "curves",
        "Curves",
        lead(
            f"ROC AUC <b>{found['roc_auc']:.4f}</b>: how often a positive document scores higher"
            " than a negative one, equal scores counting half. Average precision"
            f" <b>{found['average_precision']:.4f}</b>; a model that guesses has {share:.4f}, the"
            " share of positives."
        ),
        "<div class=cards>",
        f"<article class=card><h3>Precision and recall</h3>"
        f"{_figure(precision, 'Precision (upwards) over recall.')}</article>",
        "<article class=card><h3>ROC</h3>"
        f"{_figure(roc, 'Positives kept (upwards) over negatives kept; dashes: guessing.')}"
        "</article></div>",
    )


def _scores(found: Found) -> Chapter:
    cards = "".join(
        f"<article class=card><h3>Scores of {kind}s</h3>"
        + _figure(
            charts.histogram(found["histograms"][kind], f"{kind} documents by score"),
            f"{count(found['documents'][kind])} documents; heights grow with the square root",
        )
        + "</article>"
        for kind in ("positive", "negative")
    )
    body = [
        [
            f"{row['least']:.6f} to {row['most']:.6f}",
            count(row["documents"]),
            count(row["good"]),
            f"{row['good'] / row['documents']:.1%}",
        ]
        for row in found["deciles"]
    ]
    head = ["score", "documents", "positive", "share"]
    return section(
        "scores",
        "Scores",
        f"<div class=cards>{cards}</div>",
        lead("Both sets together in ten parts of equal size, the best first."),
        table(head, body, numbers={1, 2, 3}),
    )


def _thresholds(found: Found) -> Chapter:
    body = [
        [f"{row['kept']:.2%}", f"{row['threshold']:.6f}", f"{row['good_kept']:.2%}"]
        for row in found["thresholds"]
    ]
    return section(
        "thresholds",
        "Thresholds",
        lead(
            "What a threshold keeps of the negative documents, which stand for a corpus as it"
            " comes, and of the positive ones. A document stays where its score is not below."
        ),
        table(
            ["kept of the negatives", "threshold", "kept of the positives"], body, numbers={1, 2}
        ),
    )


def _calibration(found: Found) -> Chapter:
    rows = [r for r in found["calibration"]["bins"] if r["documents"]]
    points = [(r["score"], r["good"]) for r in rows]
    body = [
        [f"from {r['from']:.1f}", count(r["documents"]), f"{r['score']:.4f}", f"{r['good']:.4f}"]
        for r in rows
    ]
    chart = charts.curve([[(0.0, 0.0), (1.0, 1.0)], points], "calibration", "mean score")
    return section(
        "calibration",
        "Calibration",
        lead(
            "Whether a score is the probability that it claims to be, among as many positives and"
            " negatives as were given: the share of positives by score. Expected calibration error"
            f" <b>{found['calibration']['error']:.4f}</b>."
        ),
        _figure(chart, "Dots: share of positives (upwards) by mean score; line: perfect."),
        table(["score", "documents", "mean score", "positive"], body, numbers={1, 2, 3}),
    )


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
    for kind, values in (("positive", good), ("negative", rest)):
        bins = Histogram(edges, "linear")
        bins.add(values)
        histograms[kind] = bins.dump()
    read = {"positive": sets[0].tally, "negative": sets[1].tally}
    about = {"model": str(model), "label": loaded.label, "read": read}
    return {**about, **found, "histograms": histograms}


def write(found: dict[str, Any], out: Path) -> list[Path]:
    """OUT/evaluate.json and OUT/evaluate.html."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"OUT {out} is a file; name a folder")
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / "evaluate.json", out / "evaluate.html"]
    data = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    for path, content in zip(paths, (data, render(found)), strict=True):
        write_text(path, content.encode("utf-8", "replace").decode("utf-8"))
    return paths
