"""compare.html: the comparison as one self-contained page."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote as quoted

from curate.inspect.compare.compare import Comparison, Row
from curate.inspect.compare.method_run import folder_of
from curate.inspect.compare.overlap import shares
from curate.inspect.compare.terminal import tokens
from curate.inspect.report.page import frame
from curate.inspect.report.page import BYTES_A_TOKEN
from curate.pages.html import bar, count, lead, name, section, shown, table
from curate.run.funnel import amount
from curate.terminal.tables import percent


def render(found: Comparison) -> str:
    """The page of a comparison."""
    which = ", ".join(shown(i) for i in found.inputs[:5])
    more = f" and {len(found.inputs) - 5} more" if len(found.inputs) > 5 else ""
    how = (
        "counted by the tokenizer"
        if found.measured
        else f"estimated as {BYTES_A_TOKEN:g} bytes of text each"
    )
    head = (
        f"<h1>Dedup methods compared</h1><p class=lead>{count(found.documents)} documents with"
        f" {amount(found.bytes)} of text and {tokens(found.tokens)} tokens ({how}), from {which}"
        f"{more}. Each method ran alone over all of it.</p>"
    )
    chapters = [_left(found), _overlap(found), _cost(found), _settings(found)]
    return frame("Dedup methods compared", head, chapters, "For programs: compare.json.")


def _link(row: Row) -> str:
    """The method, with a link to the report of its run where there is one."""
    if row.documents is None:
        return name(row.method)
    place = quoted(str(folder_of(Path(), row.method) / "report.html"))
    return f'<a href="{place}">{name(row.method)}</a>'


def _left(found: Comparison) -> tuple[str, str, str]:
    body = []
    for row in found.rows:
        if row.documents is None or row.bytes is None or row.tokens is None:
            body.append([_link(row), "", "", "", "", "", "no result"])
            continue
        body.append(
            [
                _link(row),
                count(row.documents),
                percent(row.documents_removed),
                amount(row.bytes),
                percent(row.bytes_removed),
                tokens(row.tokens),
                bar(row.bytes, found.bytes, f"{percent(row.bytes_removed)} of the text gone"),
            ]
        )
    notes = "".join(
        f"<p class=note>{name(row.method)}: {shown(row.note, 1000)}</p>"
        for row in found.rows
        if row.note
    )
    head = ["method", "documents", "gone", "text", "gone", "tokens", "text left"]
    return section(
        "left",
        "What is left",
        lead("Shares are of what reached the method. Each name leads to the report of its run."),
        table(head, body, numbers={1, 2, 3, 4, 5}),
        notes,
    )


def _overlap(found: Comparison) -> tuple[str, str, str]:
    both = found.overlap
    if both is None:
        return section("overlap", "Overlap")
    parts = [
        lead(
            "Of the documents that the method of a row removed, the share that the method of the"
            " column removes too. Two methods may find the same pair and keep different copies of"
            " it: give them the same survivor before reading much into a low share."
        ),
        _matrix(both.methods, both.removed, both.both),
    ]
    if both.cuts:
        parts += [
            "<p>The same for documents that were removed or lost a passage:</p>",
            _matrix(both.methods, both.changed, both.both_changed),
        ]
    return section("overlap", "Overlap", *parts)


def _matrix(methods: list[str], own: list[int], both: list[list[int]]) -> str:
    body = []
    for method, n, row in zip(methods, own, shares(own, both), strict=True):
        body.append([name(method), count(n), *(_cell(v) for v in row)])
    head = ["method", "documents", *(name(m) for m in methods)]
    return table(head, body, kind="matrix")


def _cell(share: float | None) -> str:
    """A share on a ground that is the darker the larger it is."""
    if share is None:
        return "-"
    strength = round(60 * share)
    ground = f"color-mix(in srgb,var(--accent) {strength}%,transparent)"
    style = f"display:block;padding:.15rem .4rem;background:{ground}"
    return f'<span style="{style}">{percent(share)}</span>'


def _cost(found: Comparison) -> tuple[str, str, str]:
    known = [r for r in found.rows if r.seconds is not None]
    most = max((r.seconds or 0.0 for r in known), default=0.0)
    body = [
        [
            name(r.method),
            f"{r.seconds:,.1f}",
            amount(r.peak_parent or 0),
            amount(r.peak_worker or 0),
            bar(r.seconds or 0.0, most, f"{r.seconds} seconds"),
        ]
        for r in known
    ]
    return section(
        "cost",
        "Time and memory",
        lead(
            "Seconds from start to end, reading the input and writing the corpus included, one"
            " method after the other on this machine. Memory is the most that the parent, and the"
            " largest worker, held at once; each method had processes of its own."
        ),
        table(["method", "seconds", "parent", "worker", ""], body, numbers={1, 2, 3}),
    )


def _settings(found: Comparison) -> tuple[str, str, str]:
    hashes = [[name(r.method), f"<code>{r.kept_ids}</code>"] for r in found.rows if r.kept_ids]
    sets = "".join(f"<p><code>--set {shown(s)}</code></p>" for s in found.sets)
    return section(
        "settings",
        "Settings and hashes",
        lead("A method's other settings are in its report. Hashes are of the set of kept ids."),
        sets,
        table(["method", "hash of the kept ids"], hashes),
    )
