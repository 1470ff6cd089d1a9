"""The page's mix: how much of which source, how often, and what sources have in common."""

from __future__ import annotations

from typing import Any

from curate.pages.html import bar, count, lead, name, percent, section, shown, table

MOST = 60  # rows of the table
MOST_MATRIX = 24  # sources of the matrix, the largest


def chapter(record: dict[str, Any]) -> tuple[str, str, str]:
    """Of each product that is a mix."""
    parts = [_mix(p["mix"]) for p in record["products"] if p["makes"] == "corpus"]
    return section("mix", "Mix", *parts)


def _mix(mix: dict[str, Any]) -> str:
    from curate.mix.table import unit_text

    rows = sorted(mix["rows"], key=lambda row: (-row["amount"], row["name"]))
    body = []
    for row in rows[:MOST]:
        body.append(_row(row, name(row["name"]), mix["total"]["amount"]))
        body += [_row(b, f"&nbsp;&nbsp;{shown(b['name'])}", 0) for b in row["buckets"]]
    body.append(_row(mix["total"], "all", 0))
    head = ["source", "documents", "there", "in the mix", "share", "", "epochs", "unique", "never"]
    note = f"<p class=note>and {count(len(rows) - MOST)} more</p>" if len(rows) > MOST else ""
    return "".join(
        (
            lead(
                f"Counted in {shown(unit_text(mix))}; order and choice are drawn from seed"
                f" {mix['seed']}. <em>Unique</em> is what stands in the mix at least once;"
                " <em>never</em> are documents of a source that the mix does not hold."
            ),
            table(head, body, numbers={1, 2, 3, 4, 6, 7, 8}),
            note,
            _outside(mix),
            _overlap(mix),
        )
    )


def _row(row: dict[str, Any], title: str, whole: int) -> list[str]:
    return [
        title,
        count(row["documents"]),
        count(row["size"]),
        count(row["amount"]),
        percent(row["share"], 1),
        bar(row["amount"], whole) if whole else "",
        f"{row['epochs']:.2f}",
        count(row["unique"]),
        count(row["never"]),
    ]


def _outside(mix: dict[str, Any]) -> str:
    body = [
        [name(source), shown(reason), count(documents)]
        for source, reasons in sorted(mix["outside"].items())
        for reason, documents in sorted(reasons.items())
        if documents
    ]
    return table(["left out of", "because it is", "documents"], body, {2}) if body else ""


def _overlap(mix: dict[str, Any]) -> str:
    found = mix.get("overlap")
    if not found:
        return ""
    there = {row["name"]: row["documents"] for row in mix["rows"]}
    groups = found["groups"]
    chosen = sorted(range(len(groups)), key=lambda g: (-there[groups[g]], groups[g]))[:MOST_MATRIX]
    body = [
        [name(groups[a]), *(_cell(found["documents"][a][b], there[groups[a]]) for b in chosen)]
        for a in chosen
    ]
    head = ["of the documents of", *(name(groups[b]) for b in chosen)]
    whole = mix["total"]["amount"]
    return "".join(
        (
            lead(
                f"Overlap by {shown(found['by'])}: the share of a row's documents that stand in the"
                " column's source too; on the diagonal, copies within the source. With every text"
                f" counted once the mix holds {count(found['unique'])} of its {count(whole)}"
                f" {shown(mix['unit'])} ({percent(found['unique'], whole)})."
            ),
            table(head, body, numbers=range(1, len(chosen) + 1)),
        )
    )


def _cell(documents: int, whole: int) -> str:
    return percent(documents, whole) if documents else "0"
