"""Documents that went because a language model was not sure enough of their language.

Dialects, learners' English, social media and text that switches between languages get scores in
the middle: what a threshold takes away there is worth a look (Blodgett et al. 2016, "Demographic
Dialectal Variation in Social Media", on African-American English that is taken for no English).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from curate.documents.rejected import REASONS, sql_reasons
from curate.inspect.report.store import KEY, KEY_MOST, Store, find_rows, read_rows

RULE = "language_score"
LEAST = 0.3  # below, a text is as often no language at all
MOST_LANGS = 20
SHOWN_LANGS = 8  # with examples
EACH = 3
CHARS = 420
CANDIDATES = 40  # are looked at for the few wanted, as for examples of rules


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
    store.db.execute(
        f"""CREATE OR REPLACE TEMP VIEW unsure AS
        SELECT id, coalesce(lang, '') AS lang, value AS score, alone
        FROM ({sql_reasons("gone", f"id, lang, len({REASONS}) = 1 AS alone")})
        WHERE rule = '{RULE}' AND value >= {LEAST} AND value < threshold"""
    )
    rows = {
        lang: Unsure(lang, dropped, alone)
        for lang, dropped, alone in store.rows(
            f"""SELECT lang, count(*), count(*) FILTER (alone) FROM unsure
            GROUP BY lang ORDER BY count(*) FILTER (alone) DESC, count(*) DESC, lang
            LIMIT {MOST_LANGS}"""
        )
    }
    _choose(store, [row for row in rows.values() if row.alone][:SHOWN_LANGS], rows)
    return list(rows.values())


def _choose(store: Store, wanted: list[Unsure], rows: dict[str, Unsure]) -> None:
    """Fills examples, chosen by a hash of their ids: the same ones in every run."""
    if not wanted:
        return
    store.db.execute("CREATE OR REPLACE TEMP TABLE unsure_wanted (lang VARCHAR, most UBIGINT)")
    for row in wanted:
        most = min(KEY_MOST - 1, KEY_MOST * CANDIDATES // row.alone)
        store.db.execute("INSERT INTO unsure_wanted VALUES (?, ?)", [row.lang, most])
    chosen = store.rows(
        f"""SELECT lang, id, score FROM unsure JOIN unsure_wanted USING (lang)
        WHERE alone AND {KEY} <= most
        QUALIFY row_number() OVER (PARTITION BY lang ORDER BY {KEY}, id) <= {EACH}
        ORDER BY lang, {KEY}, id"""
    )
    where = find_rows(store.gone, [name for _, name, _ in chosen], store.threads)
    texts = read_rows(where.values(), ["text"], CHARS + 1)
    for lang, name, score in chosen:
        text: Any = texts[where[name]].get("text")
        rows[lang].examples.append((name, score, text or ""))
