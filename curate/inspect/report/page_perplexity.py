"""Perplexity by language: documents by value, with the cuts between head, middle and tail."""

from __future__ import annotations

from typing import Any

from curate.pages import charts
from curate.pages.html import count, lead, name, section, table

_BUCKETS = ("head", "middle", "tail", "all")
_MOST_CHARTS = 12


def chapter(record: dict[str, Any]) -> tuple[str, str, str]:
    """A table of the languages, and a histogram each of the most frequent that have a model."""
    found = [s["decided"]["perplexity"] for s in record["stages"] if _has(s)]
    return section(
        "perplexity",
        "Perplexity",
        *(_step(languages) for languages in found),
    )


def _has(stage: dict[str, Any]) -> bool:
    return bool((stage.get("decided") or {}).get("perplexity"))


def _step(languages: dict[str, Any]) -> str:
    body = [
        [
            name(lang),
            *(count(found["buckets"].get(b, 0)) for b in _BUCKETS),
            *(f"{cut:,.1f}" for cut in found["cuts"] or ()),
            *(["", ""] if not found["cuts"] else []),
        ]
        for lang, found in languages.items()
    ]
    heads = ["language", *_BUCKETS, "head ends at", "tail begins at"]
    charted = [(lang, f) for lang, f in languages.items() if f.get("histogram")][:_MOST_CHARTS]
    return (
        lead(
            "How unexpected documents are to the language's model: under the first cut is head,"
            " under the second middle, else tail; without a model, or without a word, all."
            " Figures of different models cannot be compared."
        )
        + table(heads, body, numbers=set(range(1, len(heads))))
        + "".join(_chart(lang, found) for lang, found in charted)
    )


def _chart(lang: str, found: dict[str, Any]) -> str:
    lines = list(zip(found["cuts"], ("head", "tail"), strict=False))
    drawing = charts.histogram(found["histogram"], f"perplexity of {lang}", lines=lines)
    said = f"{name(lang)}: documents by perplexity"
    return f"<figure>{drawing}<figcaption>{said}</figcaption></figure>"
