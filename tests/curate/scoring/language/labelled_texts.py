"""Short texts of three languages, and the step over them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from curate.documents.documents import Documents, documents
from curate.scoring.language.identification import Language

ENGLISH = "The river runs past the old mill, and nobody has worked there for a long time."


GERMAN = "Der Fluss läuft an der alten Mühle vorbei, und dort arbeitet schon lange niemand mehr."


CHINESE = "这条河流过旧磨坊，那里已经很久没有人工作了。"


def labelled(model: Path, texts: list[str | None], **settings: Any) -> Documents:
    step = Language(model=str(model), **settings)
    step.open()
    return step.apply(documents({"text": texts}).within("language"))


def rules(docs: Documents) -> list[set[str]]:
    by_row: list[set[str]] = [set() for _ in range(len(docs))]
    for mark in docs.drops:
        for row in mark.rows:
            by_row[row].add(mark.rule)
    return by_row


def corpus(bench: Any, copies: int = 60) -> Path:
    texts = [f"{text} {i}" for i in range(copies) for text in (ENGLISH, GERMAN, CHINESE)]
    rows = [{"id": f"d{i}", "text": t, "lang": "xx"} for i, t in enumerate(texts)]
    return bench.jsonl("in.jsonl", [*rows, {"id": "empty", "text": ""}])
