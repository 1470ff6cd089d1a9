"""Languages in a run: rules that drop most of one, and documents whose language was unsure.

A rule made for one language takes away another whole: that is said at the end of the run. And a
document may go because a language model was not sure enough of its language.
Dialects, learners' English, social media and text that switches between languages get scores in
the middle: what a threshold takes away there is worth a look (Blodgett et al. 2016, "Demographic
Dialectal Variation in Social Media", on African-American English that is taken for no English).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from curate.documents.rejected import REASONS, sql_reasons
from curate.inspect.report.store import KEY, KEY_MOST, Store, read_rows
from llmcurate.base.disk.database import literal

MOST_OF = 0.5  # of a language's documents that one rule drops
FEWEST = 50  # documents of a language, for its share to mean something
ASKED = "language.language"  # drops languages that the recipe does not keep
RULE = "language_score"
LEAST = 0.3  # below, a text is as often no language at all
MOST_LANGS = 20
SHOWN_LANGS = 8  # with examples
EACH = 3
CHARS = 420
CANDIDATES = 40  # are looked at for the few wanted, as for examples of rules


def lost(store: Store, steps: Sequence[str]) -> list[str]:
    """A line on each rule that drops more than half of a language's documents, of those that reach
    its step. steps: labels, in the order of the run."""
    if not steps:
        return []
    place = (
        "CASE step " + " ".join(f"WHEN {literal(s)} THEN {i}" for i, s in enumerate(steps)) + " END"
    )
    store.pieces(
        {
            "reached": f"""SELECT lang, {place} AS place, count(*) AS n FROM gone GROUP BY ALL
            UNION ALL SELECT lang, {len(steps)}, count(*) FROM kept GROUP BY ALL""",
            "marked": f"""SELECT lang, step || '.' || rule AS name, {place} AS place,
            count(DISTINCT id) AS n FROM ({sql_reasons("gone", f"id, lang, {place} AS first")})
            WHERE lang IS NOT NULL AND first >= {place} GROUP BY ALL""",
        }
    )
    came: dict[str, dict[int, int]] = {}
    for lang, at, n in store.rows("SELECT lang, place, sum(n)::BIGINT FROM reached GROUP BY ALL"):
        if lang is not None and at is not None:
            came.setdefault(lang, {})[at] = n
    marked = store.rows(
        """SELECT lang, name, place, sum(n)::BIGINT AS documents FROM marked GROUP BY ALL
        ORDER BY documents DESC, name, lang"""
    )
    lines = []
    for lang, name, at, n in marked:
        of = sum(many for place_of, many in came[lang].items() if at is not None and place_of >= at)
        if of >= FEWEST and n > MOST_OF * of and not name.startswith(ASKED):
            many = f"{n:,} of {of:,} documents in {lang}"
            lines.append(f"{name} drops {many}: its limit may not fit the language")
    return lines


UNSURE = f"""SELECT id, coalesce(lang, '') AS lang, value AS score, alone
    FROM ({sql_reasons("gone", f"id, lang, len({REASONS}) = 1 AS alone")})
    WHERE rule = '{RULE}' AND value >= {LEAST} AND value < threshold"""


@dataclass
class Unsure:
    """One label. dropped: documents with scores from LEAST to the threshold; alone: those that no
    other rule marked; examples: (id, score, text) of these."""

    lang: str
    dropped: int
    alone: int
    examples: list[tuple[str, float, str]] = field(default_factory=list)

    def dump(self) -> dict[str, int]:
        """As JSON values, without texts."""
        return {"dropped": self.dropped, "alone": self.alone}


def gather(store: Store) -> list[Unsure]:
    """By label, the most frequent first; [] where no such document went."""
    store.pieces(
        {
            "unsure": f"""SELECT lang, count(*) AS dropped, count(*) FILTER (alone) AS alone
            FROM ({UNSURE}) GROUP BY lang"""
        }
    )
    rows = {
        lang: Unsure(lang, dropped, alone)
        for lang, dropped, alone in store.rows(
            f"""SELECT lang, sum(dropped)::BIGINT AS all_dropped, sum(alone)::BIGINT AS all_alone
            FROM unsure GROUP BY lang ORDER BY all_alone DESC, all_dropped DESC, lang
            LIMIT {MOST_LANGS}"""
        )
    }
    _choose(store, [row for row in rows.values() if row.alone][:SHOWN_LANGS], rows)
    return list(rows.values())


def _choose(store: Store, asked: list[Unsure], rows: dict[str, Unsure]) -> None:
    """Fills examples, chosen by a hash of their ids: the same ones in every run."""
    if not asked:
        return
    limits = ", ".join(
        f"({literal(row.lang)}, {min(KEY_MOST - 1, KEY_MOST * CANDIDATES // row.alone)}::UBIGINT)"
        for row in asked
    )
    of_each = f"QUALIFY row_number() OVER (PARTITION BY lang ORDER BY key, id) <= {EACH}"
    store.pieces(
        {
            "unsure_texts": f"""SELECT lang, id, score, {KEY} AS key
            FROM ({UNSURE}) JOIN (VALUES {limits}) w(lang, most) USING (lang)
            WHERE alone AND {KEY} <= most {of_each}"""
        }
    )
    chosen = store.rows(
        f"SELECT lang, id, score FROM unsure_texts {of_each} ORDER BY lang, key, id"
    )
    where = store.find((name for _, name, _ in chosen), gone=True)
    texts = read_rows(where.values(), ["text"], CHARS + 1)
    for lang, name, score in chosen:
        text: Any = texts[where[name]].get("text")
        rows[lang].examples.append((name, score, text or ""))
