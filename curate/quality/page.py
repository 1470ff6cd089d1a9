"""evaluate.html: how well a quality model tells two sets apart, as one self-contained page."""

from __future__ import annotations

from typing import Any

from curate.report import charts
from curate.report.html import count, lead, name, section, shown, table
from curate.report.page import frame

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
