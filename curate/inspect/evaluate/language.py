"""Hold a model against documents whose language is known."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from curate.disk.atomic import write_text
from curate.errors import UsageError
from curate.inspect.report.page import frame
from curate.pages import charts
from curate.pages.html import bar, count, lead, name, number, percent, section, shown, table
from curate.scoring.language.examples import labelled
from curate.scoring.language.model import Model, fasttext_lines
from curate.scoring.language.scores import Scores
from curate.text.buffers import text_buffers

# evaluation.html: how well a model tells languages apart, as a page with the report's look.

MOST = 60  # languages in the heat map
NO_LABEL = "(none)"
Pairs = list[tuple[str, str, int]]


def render(found: dict[str, Any], inputs: list[str]) -> str:
    """The page for what `curate.inspect.evaluate.language.evaluate` found."""
    known, calibration = found["known"], found["calibration"]
    tiles = [
        (count(found["texts"]), "texts"),
        (_share(found["accuracy"]), "right"),
        (_share(known["accuracy"]), "right, of languages it knows"),
        (_share(known["macro_f1"]), f"macro F1 of {known['labels']} languages"),
        (_share(calibration["all"]["error"]), "calibration error"),
    ]
    cells = "".join(f"<div class=tile><b>{a}</b><span>{b}</span></div>" for a, b in tiles)
    names = ", ".join(name(i) for i in inputs[:8]) + (" …" if len(inputs) > 8 else "")
    head = (
        f"<h1>Language identification</h1><p class=lead>{name(found['model'])} on {names}</p>"
        f"<div class=tiles>{cells}</div>"
    )
    pairs = [(want, have or NO_LABEL, n) for want, have, n in found["matrix"]]
    chapters = [
        _lengths(found),
        _confusions(found, pairs),
        _calibration(calibration),
        _languages(found),
        _unknown(found, pairs),
    ]
    return frame("Language identification: llmcurate", head, chapters)


def _share(value: float | None) -> str:
    return "-" if value is None else percent(value, 1)


def _lengths(found: dict[str, Any]) -> tuple[str, str, str]:
    rows = found["by_length"]
    ends = [f" to {row['from'] - 1}" for row in rows[1:]]
    body = [
        [
            f"{row['from']}{end}" if end else f"from {row['from']}",
            count(row["texts"]),
            _share(row["accuracy"]),
            _share(row["known_accuracy"]),
        ]
        for row, end in zip(rows, [*ends, ""], strict=True)
    ]
    head = ["characters", "texts", "right", "right, of languages it knows"]
    return section("lengths", "By length", table(head, body, {1, 2, 3}))


def _confusions(found: dict[str, Any], pairs: Pairs) -> tuple[str, str, str]:
    """The heat map of the languages with the most mistakes among them, and the worst pairs."""
    knows = {row["label"] for row in found["languages"]}
    among = [(w, h, n) for w, h, n in pairs if w in knows]
    wrong: Counter[str] = Counter()
    for want, have, n in among:
        if want != have:
            wrong[want] += n
            wrong[have] += n
    if not wrong:
        return section("confusions", "Confusions")
    worst = sorted(wrong, key=lambda label: (-wrong[label], label))[:MOST]
    chosen = sorted(worst, key=lambda label: (label == NO_LABEL, label))
    texts: Counter[str] = Counter()
    for want, _, n in among:
        texts[want] += n
    cells = {(w, h): n / texts[w] for w, h, n in among if w in chosen and h in chosen}
    chart = charts.heat(chosen, cells, "share of a language's texts by what they were taken for")
    chart = chart.replace("<svg ", '<svg style="max-width:52rem" ', 1)
    body = [
        [name(c["expected"]), shown(c["found"] or NO_LABEL, 40), count(c["texts"])]
        for c in found["confusions"]
    ]
    rest = len(wrong) - len(chosen)
    return section(
        "confusions",
        "Confusions",
        lead(
            "A row is what a text is in, a column what it was taken for; the darker, the greater"
            " the share of the row's texts. On the diagonal they are right."
            + (f" The {len(chosen)} languages with the most mistakes of {len(wrong)}." * (rest > 0))
        ),
        f"<figure>{chart}</figure>",
        table(["is in", "taken for", "texts"], body, {2}),
    )


def _calibration(found: dict[str, Any]) -> tuple[str, str, str]:
    bins = found["all"]["bins"]
    if not bins:
        return section("calibration", "Calibration")
    line = [(row["score"], row["accuracy"]) for row in bins]
    chart = charts.curve([line, [(0.0, 0.0), (1.0, 1.0)]], "share right by score", "score")
    body = [
        [
            f"from {number(row['from'])}",
            count(row["texts"]),
            number(row["score"]),
            number(row["accuracy"]),
            bar(row["accuracy"], 1, f"{percent(row['accuracy'], 1)} right"),
        ]
        for row in bins
    ]
    return section(
        "calibration",
        "Calibration",
        lead(
            "Of texts with a score of 0.8, 80 % are right where scores mean what they say: then the"
            " line lies on the diagonal. The calibration error is the mean distance from it, by"
            f" texts: {_share(found['all']['error'])}, and {_share(found['known']['error'])} among"
            " texts in languages that the model knows."
        ),
        f"<figure>{chart}</figure>",
        table(["score", "texts", "mean score", "right", ""], body, {1, 2, 3}),
    )


def _languages(found: dict[str, Any]) -> tuple[str, str, str]:
    body = [
        [
            name(row["label"]),
            count(row["texts"]),
            _share(row["precision"]),
            _share(row["recall"]),
            _share(row["f1"]),
            bar(row["f1"] or 0, 1),
        ]
        for row in found["languages"]
    ]
    head = ["language", "texts", "precision", "recall", "F1", ""]
    return section(
        "languages",
        "Languages",
        lead(
            "Those that the model knows. Precision: of the texts taken for the language, how many"
            " are in it, those in unknown languages counted; recall: of the texts in it, how many"
            " were found."
        ),
        table(head, body, {1, 2, 3, 4}),
    )


def _unknown(found: dict[str, Any], pairs: Pairs) -> tuple[str, str, str]:
    """Languages without a label, and what their texts were taken for."""
    knows = {row["label"] for row in found["languages"]}
    taken: dict[str, list[tuple[int, str]]] = {}
    for want, have, n in pairs:
        if want not in knows:
            taken.setdefault(want, []).append((n, have))
    body = []
    for want, others in sorted(taken.items()):
        others.sort(key=lambda item: (-item[0], item[1]))
        total = sum(n for n, _ in others)
        most = ", ".join(f"{shown(have, 40)} {percent(n, total)}" for n, have in others[:3])
        body.append([name(want), count(total), most])
    return section(
        "unknown",
        "Unknown languages",
        lead("The model has no label for them. What their texts were taken for:") if body else "",
        table(["language", "texts", "taken for"], body, {1}) if body else "",
    )


def evaluate(
    model: str | Path, batches: Iterable[pa.RecordBatch], label: str, max_chars: int = 0
) -> dict[str, Any]:
    """What `Scores.result` says of the model on the documents; `skipped` are those without label;
    `matrix`: (expected, found, texts) of every pair that occurs.

    UsageError where the model is none, or where no document has a label.
    """
    loaded = Model(model)
    names = [*loaded.labels, None]
    scores = Scores(loaded.labels)
    skipped = 0
    for batch in batches:
        texts, labels = labelled(batch, label)
        rows = [i for i, name in enumerate(labels) if name is not None]
        skipped += len(labels) - len(rows)
        texts = texts.take(pa.array(rows, pa.int64()))
        found, sure = loaded.best(*fasttext_lines(*text_buffers(texts), max_chars))
        chars = pc.fill_null(pc.utf8_length(texts), 0).to_pylist()
        expected = [labels[i] or "" for i in rows]
        scores.add(expected, [names[c] for c in found], chars, sure.tolist())
    result = {"model": str(model), **scores.result(), "skipped": skipped}
    pairs = sorted(scores.pairs().items(), key=lambda item: (item[0][0], item[0][1] or ""))
    result["matrix"] = [[want, have, n] for (want, have), n in pairs]
    if not result["texts"]:
        raise UsageError(f"no document has a label in the column {label!r}")
    return result


def write(found: dict[str, Any], inputs: list[str], out: Path) -> list[Path]:
    """OUT/evaluation.json and OUT/evaluation.html."""
    out.mkdir(parents=True, exist_ok=True)
    data = json.dumps({"inputs": inputs} | found, indent=1, ensure_ascii=False) + "\n"
    paths = [out / "evaluation.json", out / "evaluation.html"]
    for path, text in zip(paths, (data, render(found, inputs)), strict=True):
        write_text(path, text.encode("utf-8", "replace").decode("utf-8"))
    return paths
