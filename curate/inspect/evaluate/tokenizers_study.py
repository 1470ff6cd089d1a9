"""`llmcurate tokenizer study`: how large a vocabulary is worth its embedding, on some documents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast, get_args

from curate.disk.atomic import write_text
from curate.errors import UsageError
from curate.inspect.evaluate.tokenizers import Documents, translated
from curate.inspect.evaluate.tokenizers_figures import NONE, ratio, share, whole
from curate.inspect.report.page import frame
from curate.pages import charts
from curate.pages.html import count, lead, name, section, table
from curate.terminal.progress import say


def study(
    inputs: list[str],
    sizes: str,
    out: Path | None,
    digits: str,
    width: int,
    worth: float,
    as_json: bool,
) -> None:
    """Prints the figures; with OUT also study.json and study.html. sizes: with commas between."""
    from tokenize_kit.errors import TokenizerError
    from tokenize_kit.judge.candidate import texts_of
    from tokenize_kit.learn.study import study as run
    from tokenize_kit.pattern.named import Digits

    if out is not None and out.exists() and not out.is_dir():
        raise UsageError(f"OUT {out} is a file; name a folder")
    if digits not in get_args(Digits):
        raise UsageError(f"--digits {digits}: choose one of {', '.join(get_args(Digits))}")
    try:
        wanted = [int(size) for size in sizes.split(",")]
    except ValueError:
        raise UsageError(f"--vocab {sizes}: give numbers with commas between") from None
    documents = Documents(inputs, as_json)

    def texts() -> Iterator[str]:
        for data, offsets, _ in documents.batches():
            yield from texts_of(data, offsets)

    try:
        found = run(texts(), wanted, digits=cast(Digits, digits), width=width, worth=worth)
    except TokenizerError as error:
        raise translated(error) from None
    found = {"inputs": inputs, **documents.tally, "digits": digits, **found}
    if not as_json:
        print(text(found))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        data = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
        for path, content in ((out / "study.json", data), (out / "study.html", render(found))):
            write_text(path, content.encode("utf-8", "replace").decode("utf-8"))
            say(f"wrote {path}", as_json)
    if as_json:
        print(json.dumps(found, ensure_ascii=False))


HEAD = ("vocabulary", "bytes a token", "saved by doubling", "embedding parameters")


def _cells(row: dict[str, Any]) -> list[str]:
    saved = NONE if row["saved"] is None else share(row["saved"])
    return [
        whole(row["vocab"]),
        ratio(row["bytes_a_token"]),
        saved,
        whole(row["embedding_parameters"]),
    ]


def text(found: dict[str, Any]) -> str:
    """A study for a terminal."""
    cells = [list(HEAD), *(_cells(row) for row in found["rows"])]
    widths = [max(len(line[i]) for line in cells) for i in range(len(HEAD))]
    lines = [
        "  ".join(f"{cell:>{w}}" for cell, w in zip(line, widths, strict=True)) for line in cells
    ]
    about = (
        f"learned from {found['learned_from']:,} texts, measured on {found['measured_on']:,} others"
        f" ({found['measured_bytes']:,} bytes); embeddings {found['width']:,} wide"
    )
    return "\n".join([about, "", *lines, "", *_advice(found)])


def _advice(found: dict[str, Any]) -> list[str]:
    rows, worth = found["rows"], found["worth"]
    advice = [
        f"recommended: {found['recommended']:,}, the last size up to which every doubling saved"
        f" {share(worth)} of the tokens or more"
    ]
    if found["beyond"]:
        advice[0] += "; a larger one may be worth it too"
    last = rows[-1]
    if last["vocab"] < last["asked"]:
        advice.append(f"the corpus gives no more than {last['vocab']:,} tokens")
    return advice


def _apart(sizes: list[int]) -> list[int]:
    """Those that have room for their name: each half as large again as the one before."""
    kept: list[int] = []
    for size in sizes:
        if not kept or size >= 1.5 * kept[-1]:
            kept.append(size)
    return kept


def render(found: dict[str, Any]) -> str:
    """study.html."""
    rows = found["rows"]
    inputs = ", ".join(name(i) for i in found["inputs"][:8])
    tiles = [
        (found["recommended"], "recommended vocabulary"),
        (found["learned_from"], "texts to learn from"),
        (found["measured_on"], "texts to measure on"),
    ]
    cells = "".join(
        f"<div class=tile><b>{count(n)}</b><span>{what}</span></div>" for n, what in tiles
    )
    title = "How large a vocabulary"
    points = [(float(row["vocab"]), row["bytes_a_token"]) for row in rows]
    mark = [(x, y) for x, y in points if x == found["recommended"]]
    ticks = _apart([row["vocab"] for row in rows])
    chart = charts.curve([points, mark], "bytes a token by vocabulary", "vocabulary", ticks)
    body = [_cells(row) for row in rows]
    chapter = section(
        "sizes",
        "Bytes a token by vocabulary",
        f"<figure>{chart}<figcaption>Bytes a token (upwards) by vocabulary; dot: recommended."
        "</figcaption></figure>",
        table(HEAD, body, numbers=range(1, 4)),
        lead("; ".join(_advice(found)).capitalize() + "."),
        lead(
            "Byte-level BPE. Saved by doubling: the share of tokens that a vocabulary of twice the"
            " size would save, at the pace of the step from the row above. Embedding parameters:"
            f" the vocabulary times a width of {count(found['width'])}, once; twice where"
            " the output head is not tied."
        ),
    )
    head = f"<h1>{title}</h1><p class=lead>On {inputs}.</p><div class=tiles>{cells}</div>"
    return frame(f"{title}: llmcurate", head, [chapter], "For programs: study.json.")
