"""Hold a model against documents whose language is known."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from curate.atomic import write_text
from curate.errors import UsageError
from curate.language.lines import fasttext_lines
from curate.language.native import Model
from curate.language.scores import Scores
from curate.text.buffers import as_large_string, text_buffers


def labelled(batch: pa.RecordBatch, label: str) -> tuple[pa.LargeStringArray, list[str | None]]:
    """(texts, labels) of a batch; a label without prefix, None where there is none or where it
    holds white space, which fastText's labels cannot. UsageError without such a column."""
    if label not in batch.schema.names:
        names = ", ".join(n for n in batch.schema.names if n != "text" and not n.startswith("_"))
        raise UsageError(f"no column {label!r} with labels; there are {names}")
    values = batch.column(label).cast(pa.string()).to_pylist()
    clean = [None if v is None else v.removeprefix("__label__") for v in values]
    usable = [v if v and v.split() == [v] and "\0" not in v else None for v in clean]
    return as_large_string(batch.column("text")), usable


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
    from curate.report.page_language import render

    out.mkdir(parents=True, exist_ok=True)
    data = json.dumps({"inputs": inputs} | found, indent=1, ensure_ascii=False) + "\n"
    paths = [out / "evaluation.json", out / "evaluation.html"]
    for path, text in zip(paths, (data, render(found, inputs)), strict=True):
        write_text(path, text.encode("utf-8", "replace").decode("utf-8"))
    return paths
