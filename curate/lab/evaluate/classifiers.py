"""Evaluation of language and quality models on documents with known labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.formats.read_settings import ReadSettings
from curate.inspect.report.store import Histogram
from curate.inspect.results import Computed
from curate.scoring.language.model import Model, fasttext_lines
from curate.scoring.language.scores import Scores, text_of
from curate.scoring.language.train import labelled
from curate.scoring.quality.measures import measure, summary
from curate.scoring.quality.model import Classifier
from curate.scoring.quality.train import Texts, score_all
from curate.text.buffers import text_buffers
from llmcurate.base.disk.units import format_percent
from llmcurate.base.errors import UsageError
from llmcurate.base.pages import html
from llmcurate.base.terminal import table

MOST_LANGUAGES = 60  # languages in the heat map
NO_LABEL = "(none)"


def evaluate_language(
    model: str | Path, batches: Iterable[pa.RecordBatch], label: str, max_chars: int = 0
) -> dict[str, Any]:
    """Return the scores of a language identifier on texts whose language is in the column `label`.
    The result is the dict of `Scores.result` with two more keys: `skipped`, the number of texts
    without a label, and `matrix`, [expected label, found label, number of texts] for each pair of
    labels. Only the first `max_chars` characters of a text are scored, or all if it is 0. Raises
    UsageError for an invalid model or if no text has a label."""
    loaded = Model(model)
    names = [*loaded.labels, None]
    scores = Scores(loaded.labels)
    skipped = 0
    for batch in batches:
        texts, labels = labelled(batch, label)
        rows = [i for i, name in enumerate(labels) if name is not None]
        skipped += len(labels) - len(rows)
        texts = texts.take(pa.array(rows, pa.int64()))
        labels_found, probabilities = loaded.best(*fasttext_lines(*text_buffers(texts), max_chars))
        chars = pc.fill_null(pc.utf8_length(texts), 0).to_pylist()
        expected = [labels[i] or "" for i in rows]
        scores.add(expected, [names[c] for c in labels_found], chars, probabilities.tolist())
    result = {"model": str(model), **scores.result(), "skipped": skipped}
    pairs = sorted(scores.pairs().items(), key=lambda item: (item[0][0], item[0][1] or ""))
    result["matrix"] = [[want, have, n] for (want, have), n in pairs]
    if not result["texts"]:
        raise UsageError(f"no document has a label in the column {label!r}")
    return result


class LanguageEvaluation(Computed):
    """The report on a language identifier. `figures` is the dict that `evaluate_language` returns,
    to which the keys `inputs` and `corrupt` (number of damaged places) are added."""

    def text(self) -> str:
        return text_of(self.figures)

    def page(self) -> str:
        pairs = [(want, have or NO_LABEL, n) for want, have, n in self.figures["matrix"]]
        labels = {row["label"] for row in self.figures["languages"]}
        among = [pair for pair in pairs if pair[0] in labels]
        mistakes: Counter[str] = Counter()
        texts: Counter[str] = Counter()
        for want, have, n in among:
            texts[want] += n
            if want != have:
                mistakes[want] += n
                mistakes[have] += n
        worst = sorted(mistakes, key=lambda label: (-mistakes[label], label))[:MOST_LANGUAGES]
        confused = sorted(worst, key=lambda label: (label == NO_LABEL, label))
        cells = {
            (want, have): n / texts[want]
            for want, have, n in among
            if want in confused and have in confused
        }
        return html.render(
            "evaluate/language.html",
            scores=self.figures,
            confused=confused,
            mistaken=len(mistakes),
            cells=cells,
            unknown=_unknown([pair for pair in pairs if pair[0] not in labels]),
            no_label=NO_LABEL,
        )


def _unknown(pairs: list[tuple[str, str, int]]) -> list[tuple[str, int, list[tuple[str, int]]]]:
    languages: dict[str, list[tuple[str, int]]] = {}
    for want, have, n in pairs:
        languages.setdefault(want, []).append((have, n))
    return [
        (want, sum(n for _, n in others), sorted(others, key=lambda o: (-o[1], o[0]))[:3])
        for want, others in sorted(languages.items())
    ]


def evaluate_quality(
    model: str | Path,
    positive: list[str],
    negative: list[str],
    label: str | None = None,
    quiet: bool = False,
    read: ReadSettings | None = None,
) -> QualityEvaluation:
    """Return the report on a quality model that scored good and bad documents. This takes eight
    bytes of memory per document. Raises UsageError if a set has no document with text."""
    loaded = Classifier(model, label)
    sets = [Texts(positive, quiet, read), Texts(negative, quiet, read)]
    good, bad = (score_all(loaded, texts) for texts in sets)
    scores = np.concatenate((good, bad))
    figures = measure(scores, np.arange(len(scores)) < len(good))
    assert figures is not None
    edges = np.arange(41) / 40
    histograms = {}
    for kind, values in (("positive", good), ("negative", bad)):
        bins = Histogram(edges, "linear")
        bins.add(values)
        histograms[kind] = bins
    tallies = {"positive": sets[0].tally, "negative": sets[1].tally}
    about = {"model": str(model), "label": loaded.label, "read": tallies}
    return QualityEvaluation({**about, **figures, "histograms": histograms})


class QualityEvaluation(Computed):
    """The report on a quality model. `figures` has the result of the function `measures.measure`,
    histograms of the scores, and facts about the model and the inputs."""

    TEMPLATE = "evaluate/quality.html"

    def text(self) -> str:
        deciles = [
            (
                f"{row['least']:.6f} to {row['most']:.6f}",
                f"{row['documents']}",
                format_percent(row["good"] / row["documents"]),
            )
            for row in self.figures["deciles"]
        ]
        thresholds = [
            (
                format_percent(row["kept"], 2),
                f"{row['threshold']:.6f}",
                format_percent(row["good_kept"], 2),
            )
            for row in self.figures["thresholds"]
        ]
        kept = ("kept of the negatives", "threshold", "of the positives")
        return "\n".join(
            (
                summary(self.figures),
                *table(("decile of scores", "documents", "positive"), deciles, indent=2),
                *table(kept, thresholds, indent=2),
            )
        )
