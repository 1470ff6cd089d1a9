"""A few documents of each rule, chosen by a hash of their ids: the same ones in every run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from curate.documents.rejected import REASONS, SQL_FIRST_RULE, rules_of, sql_reasons
from curate.inspect.report.rules import Rule
from curate.inspect.report.store import KEY, KEY_MOST, Store, places, read_rows

EACH = 2
CHARS = 420
MOST_RULES = 60
# So many are looked at for the few wanted: with a chance of e^-25, fewer are found.
CANDIDATES = 30


@dataclass(frozen=True)
class Example:
    """A rejected document beside the rule that marked it. also: its other rules."""

    id: str
    url: str | None
    text: str
    value: float | None
    threshold: float | None
    detail: str | None
    also: tuple[str, ...]


def gather(store: Store, rules: dict[str, Rule]) -> dict[str, list[Example]]:
    """Examples by rule: documents that the rule was the first to mark, where there are any."""
    wanted = list(rules.values())[:MOST_RULES]
    store.db.execute("CREATE OR REPLACE TEMP TABLE wanted (rule VARCHAR, first BOOL, most UBIGINT)")
    for rule in wanted:
        pool = rule.first or rule.marked
        most = min(KEY_MOST - 1, KEY_MOST * CANDIDATES // max(1, pool))
        store.db.execute("INSERT INTO wanted VALUES (?, ?, ?)", [rule.name, rule.first > 0, most])
    chosen: dict[str, list[tuple[str, Any]]] = {}
    for name, document, value, threshold, detail in store.rows(
        f"""WITH marked AS ({
            sql_reasons(
                f"gone WHERE {KEY} <= (SELECT max(most) FROM wanted)",
                f"{KEY} AS key, id, {SQL_FIRST_RULE} AS primary_rule",
            )
        })
        SELECT w.rule, id, m.value, m.threshold, m.detail
        FROM marked m JOIN wanted w ON m.name = w.rule
        WHERE m.key <= w.most AND (NOT w.first OR primary_rule = w.rule)
        QUALIFY row_number() OVER (PARTITION BY w.rule ORDER BY m.key, id) <= {EACH}
        ORDER BY w.rule, m.key, id"""
    ):
        chosen.setdefault(name, []).append((document, (value, threshold, detail)))
    where = places(store.gone, [i for found in chosen.values() for i, _ in found], store.threads)
    rows = read_rows(where.values(), ["id", "url", "text", REASONS], CHARS + 1)
    return {
        name: [_example(name, rows[where[i]], *why) for i, why in found]
        for name, found in chosen.items()
    }


def _example(
    name: str,
    row: dict[str, Any],
    value: float | None,
    threshold: float | None,
    detail: str | None,
) -> Example:
    also = tuple(rule for rule in rules_of(row) if rule != name)
    return Example(
        row["id"] or "", row.get("url"), row.get("text") or "", value, threshold, detail, also
    )
