"""An experiment for people: its lines on a terminal and its page."""

from __future__ import annotations

from typing import Any

from llmcurate.base.disk.units import (
    counted,
    format_bytes,
    format_duration,
    format_percent,
    format_scaled,
    format_short,
)
from llmcurate.base.pages import templates
from llmcurate.base.pages.html import plain
from llmcurate.base.terminal.tables import table

HEAD = ("", "documents", "tokens", "tokens read", "epochs", "bits a byte", "difference")


def with_interval(figure: dict[str, Any] | None) -> str:
    """`-0.0120 (-0.0180 to -0.0060)`; without an interval the value alone."""
    if figure is None:
        return ""
    shown, limits = f"{figure['mean']:+.4f}", figure["interval"]
    return shown if limits is None else f"{shown} ({limits[0]:+.4f} to {limits[1]:+.4f})"


def cells(row: dict[str, Any]) -> list[str]:
    """A corpus' row of the table, or the placebo's."""
    bits = row["bits_per_byte"]
    return [
        row["name"],
        f"{row['train_documents']:,}",
        format_short(row["train_tokens"]),
        format_short(row["tokens"]),
        f"{row['epochs']:.2f}",
        f"{bits['mean']:.4f}",
        with_interval(row.get("difference")),
    ]


def verdicts(figures: dict[str, Any]) -> list[str]:
    """A sentence on each corpus behind the first, on the placebo, and on what could be seen."""
    first, *others = figures["corpora"]
    lines = []
    for row in others:
        limits = row["difference"]["interval"]
        if limits is None:
            lines.append(f"{row['name']}: one seed says nothing of chance; train from more")
        elif limits[0] <= 0 <= limits[1]:
            lines.append(f"{row['name']}: no difference from {first['name']} beyond chance")
        else:
            better, word = ("better", "fewer") if limits[1] < 0 else ("worse", "more")
            size = abs(row["difference"]["mean"])
            lines.append(
                f"{row['name']}: {better} than {first['name']}, by {size:.4f} bits a byte {word}"
            )
    lines.append(placebo_line(figures))
    detectable = figures["power"]["detectable"]
    if detectable is not None:
        lines.append(
            f"an experiment like this finds a difference of {detectable:.4f} bits a byte in 80 % of"
            " cases (at 5 %, by the placebo's variance)"
        )
    return lines


def placebo_line(figures: dict[str, Any]) -> str:
    """Whether a corpus beside itself differs."""
    placebo = figures["placebo"]
    shown = f"placebo ({figures['first']} in another order): {with_interval(placebo['difference'])}"
    if placebo["holds_zero"] is None:
        return shown
    if placebo["holds_zero"]:
        return f"{shown}, which holds 0 as it must"
    return (
        f"{shown}, which leaves out 0: chance does that in 1 of 20 experiments; believe no"
        " difference of this size, train from more seeds"
    )


def about(figures: dict[str, Any]) -> list[str]:
    """What all runs have in common, and what they cost, in lines."""
    equal, cost, train = figures["equal"], figures["cost"], figures["train"]
    amount = f"{equal['amount']:,.6g}" if equal["kind"] == "epochs" else f"{equal['amount']:,.0f}"
    first, *others = figures["corpora"]
    tokenizers = {row["tokenizer"]["sha256"] for row in figures["corpora"]}
    unequal = ", of unequal text, since tokenizers differ" if len(tokenizers) > 1 else ""
    lines = [
        f"equal {equal['kind']}: {amount} a run{unequal if equal['kind'] == 'tokens' else ''};"
        f" model {figures['model']} ({format_scaled(first['parameters']).strip()} parameters),"
        f" {counted(len(figures['seeds']), 'seed')} ({', '.join(map(str, figures['seeds']))}),"
        f" {counted(train['rows'], 'row')} of {train['context']}, learning rate {train['lr']:g}",
        *(own_line(row) for row in figures["corpora"] if row["settings"]),
        f"tokenizer: {first['tokenizer']['origin']}",
        *(
            f"tokenizer of {row['name']}: {row['tokenizer']['origin']},"
            f" {counted(row['tokenizer']['vocabulary'], 'token')};"
            f" {format_scaled(row['parameters']).strip()} parameters"
            for row in others
            if row["tokenizer"]["sha256"] != first["tokenizer"]["sha256"]
        ),
        f"cost: {counted(cost['runs'], 'run')}, {format_duration(cost['seconds'])} of training in"
        f" sum, {counted(cost['tokens'], 'token')},"
        f" {format_scaled(cost['flops']).strip()}FLOP",
    ]
    lines += [f"machine: {machine_line(machine)}" for machine in figures["machines"]]
    return lines


def own_line(row: dict[str, Any]) -> str:
    """The settings that a corpus has for itself."""
    settings = ", ".join(f"{name}={value}" for name, value in row["settings"].items())
    return f"{row['name']}: {settings}"


def machine_line(machine: dict[str, Any]) -> str:
    """A machine class in a line."""
    device = machine["gpu"] or counted(machine["threads"], "thread") + " a run"
    return (
        f"{machine['processor'] or machine['machine']}, {counted(machine['cores'], 'core')},"
        f" {format_bytes(machine['memory'])}, {device}, PyTorch {machine['torch']}"
    )


def source_rows(figures: dict[str, Any]) -> list[tuple[str, dict[str, Any], list[dict[str, Any]]]]:
    """(text or source, scores of the first corpus, scores of the others)."""
    compared: list[dict[str, Any]] = [*figures["corpora"], figures["placebo"]]
    first, others = compared[0], compared[1:]
    rows = []
    for name, scores in first["texts"].items():
        rows.append((name, scores, [row["texts"][name] for row in others]))
        for source, inner in scores["sources"].items():
            same = [row["texts"][name]["sources"][source] for row in others]
            rows.append((f"{name}: {source}", inner, same))
    return rows


def overlap_rows(figures: dict[str, Any]) -> list[list[str]]:
    """What evaluation texts and corpora have in common."""
    return [
        [
            name,
            corpus,
            f"{fact['drawn']:,} of {fact['available']:,}",
            f"{shared['documents']:,}",
            format_percent(shared["share"], 2),
            f"{shared['left_out']:,}",
        ]
        for name, fact in figures["eval"].items()
        for corpus, shared in fact["overlap"].items()
    ]


OVERLAP_HEAD = ("text", "corpus", "drawn", "share a 13-gram", "13-grams shared", "left out")


def text(figures: dict[str, Any]) -> str:
    """The experiment for a terminal."""
    names = [row["name"] for row in (*figures["corpora"][1:], figures["placebo"])]
    by_source = [
        [plain(name, 48), f"{scores['documents']:,}", f"{scores['bits_per_byte']['mean']:.4f}"]
        + [with_interval(other["difference"]) for other in others]
        for name, scores, others in source_rows(figures)
    ]
    parts = [
        *about(figures),
        "",
        *table(HEAD, [cells(row) for row in (*figures["corpora"], figures["placebo"])]),
        "",
        *table(("by source", "documents", figures["first"], *names), by_source),
        "",
        *table(OVERLAP_HEAD, overlap_rows(figures), left=(0, 1)),
        "",
        *verdicts(figures),
    ]
    return "\n".join(parts)


def render(figures: dict[str, Any]) -> str:
    """ablation.html."""
    compared = (*figures["corpora"], figures["placebo"])
    return templates.render(
        "evaluate/ablation.html",
        figures=figures,
        head=HEAD,
        rows=[cells(row) for row in compared],
        verdicts=verdicts(figures),
        about=about(figures),
        sources=source_rows(figures),
        names=[row["name"] for row in compared[1:]],
        with_interval=with_interval,
        overlap_head=OVERLAP_HEAD,
        overlap=overlap_rows(figures),
        curves=[(row["name"], row["curve"]) for row in compared],
        losses=[(row["name"], row["loss_curve"]) for row in compared],
        differences=[
            (row["name"], row["difference"]["mean"], row["difference"]["interval"])
            for row in compared[1:]
        ],
    )
