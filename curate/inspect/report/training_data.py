"""What a model read and how it does on held-out text, source by source; the documents of a step."""

from __future__ import annotations

from typing import Any

from curate.pages.html import count, plain, shown
from curate.pages.html import name as label
from curate.pages.html import table as html_table


def tables(summary: dict[str, Any]) -> str:
    """As HTML, for the training chapter."""
    return _scores(summary) + _sources(summary) + _packing(summary)


def _scores(summary: dict[str, Any]) -> str:
    found = summary.get("held_out_sources") or {}
    if not found:
        return ""
    names = ["held-out text of", "documents", "tokens", "loss", "bits a byte"]
    body = [
        [
            label(name),
            count(score["documents"]),
            count(score["tokens"]),
            f"{score['loss']:.3f}",
            _bits(score),
        ]
        for name, score in found.items()
    ]
    return html_table(names, body, numbers={1, 2, 3, 4})


def _sources(summary: dict[str, Any]) -> str:
    found = summary.get("data", {}).get("sources", {})
    names = ["source", "documents", "unique tokens", "tokens trained on", "epochs"]
    body = [
        [
            label(name),
            count(source["documents"]),
            count(source["unique_tokens"]),
            count(source["tokens"]),
            f"{source['epochs']:.2f}",
        ]
        for name, source in found.items()
    ]
    return html_table(names, body, numbers={1, 2, 3, 4}) if body else ""


def _packing(summary: dict[str, Any]) -> str:
    """What was split and padded, stage by stage; nothing is ever cropped, and that is said too."""
    names = [
        "stage",
        "source",
        "packing",
        "rows",
        "of tokens",
        "used",
        "split",
        "padded",
        "cropped",
    ]
    body = [
        [
            label(stage["name"]),
            label(name),
            shown(part["packing"]),
            count(part["rows"]),
            count(stage["context"]),
            f"{100 * part['used']:.1f} %",
            count(part["split"]),
            count(part["padded"]),
            count(part["cropped"]),
        ]
        for stage in summary.get("data", {}).get("stages", [])
        for name, part in stage["sources"].items()
    ]
    return html_table(names, body, numbers=set(range(3, 9))) if body else ""


def table(summary: dict[str, Any]) -> list[str]:
    """Held-out text by source, for a terminal; nothing where there is one source."""
    found = summary.get("held_out_sources") or {}
    if not found:
        return []
    wide = min(48, max(16, *(len(name) + 1 for name in found)))
    lines = [f"  {'held-out text of':<{wide + 1}}{'documents':>10}{'loss':>8}{'bits/byte':>11}"]
    for name, score in found.items():
        said = f"{score['documents']:>10}{score['loss']:>8.3f}{_bits(score):>11}"
        lines.append(f"  {plain(name, wide - 1):<{wide + 1}}{said}")
    return lines


def step_table(found: dict[str, Any]) -> list[str]:
    """The documents of a step, for a terminal."""
    lines = [
        f"step {found['step']} ({found['stage']}): {found['rows']} rows, {found['tokens']} tokens "
        f"of {len(found['documents'])} documents"
    ]
    if "skipped" in found:
        lines.append(f"the step was skipped: {plain(found['skipped'])}")
    for document in found["documents"]:
        source = document["source"] or document["shards"]
        lines.append(f"{document['tokens']:>8}  {plain(source, 40)}  {plain(document['id'])}")
    return lines


def _bits(score: dict[str, Any]) -> str:
    return "-" if score["bits_per_byte"] is None else f"{score['bits_per_byte']:.3f}"
