"""The difference of two tokenizers, on a terminal and as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from curate.formats.read_settings import ReadSettings
from curate.inspect.evaluate.tokenizers import Documents, names, segmentation
from curate.inspect.evaluate.tokenizers_page import NONE, ratio, script_name, share, whole
from curate.inspect.evaluate.tokenizers_text import quoted, short
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from llmcurate.base.pages import templates
from llmcurate.base.terminal.tables import table


def diff(
    paths: tuple[Path, Path],
    inputs: list[str],
    *,
    quiet: bool = False,
    pattern: str | None = None,
    dictionary: Path | None = None,
    read: ReadSettings | None = None,
) -> dict[str, Any]:
    """The figures of `tokenize_kit.judge.diff`, with the names of both and the inputs. UsageError
    where a tokenizer cannot be read."""
    from tokenize_kit.judge.diff import diff as run

    documents = Documents(inputs, quiet, read) if inputs else None
    if pattern is not None and not any(path.suffix == ".tiktoken" for path in paths):
        raise UsageError("--pattern is for .tiktoken files, and none is given; leave it out")
    figures = run(
        *paths,
        documents.batches() if documents else (),
        pattern=pattern,
        segmentation=segmentation(dictionary),
    )
    counts = documents.tally if documents else {}
    return {"names": names(list(paths)), "inputs": inputs, **counts, **figures}


# key of a tokenizer's figures, title, how it is written
FIGURES = (
    ("vocab", "vocabulary", whole),
    ("tokens", "tokens of the texts", whole),
    ("bytes_a_token", "bytes a token", ratio),
    ("fertility", "tokens a word (fertility)", ratio),
    ("boundary_f1", "boundaries of words kept (F1)", ratio),
    ("cluster_cut_share", "tokens that cut a grapheme", share),
)
SCRIPTS_SHOWN, SETTINGS_SHOWN, CUTS_SHOWN, TOKENS_SHOWN = 6, 4, 8, 6
VALUE = 28  # columns of a setting, a cut or a token


def figure_rows(figures: dict[str, Any]) -> list[list[str]]:
    """(title, a cell of each tokenizer); of texts where there are any."""
    both = figures["tokenizers"]
    rows = [
        [title, *(form(tokenizer[key]) for tokenizer in both)]
        for key, title, form in FIGURES
        if key == "vocab" or (figures["texts"] and any(t[key] is not None for t in both))
    ]
    lacks = [whole(figures[side]) for side in ("first", "second")]
    rows.insert(1, ["tokens that the other lacks", *lacks])
    return rows


def order_line(figures: dict[str, Any]) -> str:
    """The order of merges, or the scores, in a sentence; empty where there is neither."""
    order = figures["order"]
    if order["kind"] == "scores":
        return (
            f"scores: {whole(order['unlike'])} of {counted(order['shared'], 'token')} of both have"
            " another one"
        )
    if order["kind"] != "merges":
        return "merges, scores: unlike models" if order["kind"] == "unlike" else ""
    if order["same_until"] == order["first"] == order["second"]:
        return f"merges: the same {whole(order['first'])}"
    same = "the same" if order["same_order"] else "another"
    return (
        f"merges: the first {whole(order['same_until'])} are the same; of both"
        f" {counted(order['shared'], 'token')}, in {same} order"
    )


def text(figures: dict[str, Any], width: int) -> str:
    """A difference for a terminal of so many columns."""
    first, second = (short(name) for name in figures["names"])
    lines = table(["", first, second], figure_rows(figures))
    scripts = [
        [script_name(row["label"]), *(whole(row[side]) for side in ("first", "second", "both"))]
        for row in figures["scripts"]
    ]
    shown = scripts[:SCRIPTS_SHOWN]
    head = ["tokens by script", f"only {first}", f"only {second}", "both"]
    total = ["all", *(whole(figures[side]) for side in ("first", "second", "both"))]
    lines += ["", *table(head, [*shown, total])]
    if len(scripts) > len(shown):
        lines.append(f"{counted(len(scripts) - len(shown), 'script')} more")
    lines += ["", *_settings(figures, width)]
    for side, name in enumerate((first, second)):
        tokens = [quoted(token["text"], VALUE) for token in figures["only"][side]]
        most = "used most" if figures["texts"] else "the first"
        lines += _within(width, f"only {name}, {most}: ", tokens)
    return "\n".join([*lines, *_cuts(figures, first, second)])


def _within(width: int, title: str, items: list[str]) -> list[str]:
    """The title and as many items as fit into a line."""
    line = title
    for nth, item in enumerate(items):
        more = f"{', ' if nth else ''}{item}"
        if len(line) + len(more) > width:
            break
        line += more
    return [line] if items else []


def _settings(figures: dict[str, Any], width: int) -> list[str]:
    ids = figures["ids"]
    line = f"ids: the same for {counted(ids['same'], 'token')} of both, another for"
    line += f" {whole(ids['moved'])}"
    if ids["moved"]:
        moved = ids["examples"][0]
        line += f", as {quoted(moved['text'])} {moved['first']} and {moved['second']}"
    lines = [line, *filter(None, [order_line(figures)])]
    special = [
        f"{quoted(row['text'])} {number(row['first'])} and {number(row['second'])}"
        for row in figures["special"]
    ]
    lines += _within(width, "special tokens: ", special) or ["special tokens: the same"]
    settings = figures["settings"]
    lines.append(f"settings that differ: {len(settings)}" if settings else "settings: the same")
    for row in settings[:SETTINGS_SHOWN]:
        values = (NONE if row[s] is None else quoted(row[s], VALUE) for s in ("first", "second"))
        lines.append(f"  {row['name']}: {' and '.join(values)}")
    return lines


def number(value: int | None) -> str:
    """An id."""
    return NONE if value is None else str(value)


def _cuts(figures: dict[str, Any], first: str, second: str) -> list[str]:
    texts = figures["texts"]
    if texts is None:
        return []
    of = "cut differently: " + ", ".join(
        f"{share(texts[f'unlike_{unit}'] / texts[unit])} of {name}"
        for unit, name in (("texts", "the texts"), ("words", "words"), ("bytes", "bytes"))
        if texts[unit]
    )
    rows = [
        [whole(row["uses"]), *(quoted("|".join(row[side]), VALUE) for side in ("first", "second"))]
        for row in texts["examples"][:CUTS_SHOWN]
    ]
    lines = ["", of]
    return [*lines, *table(["times", first, second], rows, left=(1, 2))] if rows else lines


def render(figures: dict[str, Any]) -> str:
    """diff.html."""
    return templates.render(
        "evaluate/diff.html",
        diff=figures,
        rows=figure_rows(figures),
        order=order_line(figures),
        number=number,
        share=share,
        script_name=script_name,
    )
