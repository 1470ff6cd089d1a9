"""The ages of copies that a dedup by date removed, and the corpus by month or year.

Stale pages (an encyclopedia's article of five years ago beside today's) are near duplicates whose
newest version should stay; this says whether it did and by how much.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from curate.disk.database import paths_literal
from curate.inspect.report.bins import Histogram, Range, edges_of
from curate.inspect.report.store import Store

FETCH = 100_000
MOST_PERIODS = 36  # months; a longer time is shown by years


@dataclass
class Ages:
    """days: by how many days dropped copies are older than the copy that stays (negative: newer);
    undated: copies of which one has no date; periods: (month or year, kept, dropped)."""

    days: Histogram | None = None
    older: int = 0
    same: int = 0
    newer: int = 0
    undated: int = 0
    periods: list[tuple[str, int, int]] = field(default_factory=list)

    def dump(self) -> dict[str, Any]:
        """As JSON values."""
        values: dict[str, Any] = {
            "older": self.older,
            "same": self.same,
            "newer": self.newer,
            "undated": self.undated,
            "periods": [[p, kept, gone] for p, kept, gone in self.periods],
        }
        if self.days is not None:
            values["days"] = self.days.dump()
        return values


def gather(store: Store) -> Ages | None:
    """The ages of copies of whole documents; None where no document has a date."""
    if not store.has_decisions or "date" not in store.names:
        return None
    kept, gone = (f"read_parquet({paths_literal(p)})" for p in (store.kept, store.gone))
    store.db.execute(
        f"""CREATE OR REPLACE TEMP TABLE dates AS
        SELECT id, date, TRUE AS stays FROM {kept} UNION ALL
        SELECT id, date, FALSE FROM {gone}"""
    )
    ((dated,),) = store.rows("SELECT count(date) FROM dates")
    if not dated:
        return None
    ages = Ages(periods=_periods(store))
    # Where the copy that stays lies in an earlier corpus, its date is not known here.
    store.db.execute(
        """CREATE OR REPLACE TEMP TABLE ages AS
        SELECT date_diff('second', c.date, k.date) / 86400.0 AS days
        FROM decisions d JOIN dates c ON c.id = d.id JOIN dates k ON k.id = d.kept_id
        WHERE d.span_start IS NULL AND d.partner_corpus IS NULL
          AND d.partner_id IS NOT NULL AND d.id <> d.kept_id"""
    )
    ((least, most, dated_pairs, older, newer, undated),) = store.rows(
        """SELECT min(days), max(days), count(days), count(*) FILTER (days > 0),
                  count(*) FILTER (days < 0), count(*) FILTER (days IS NULL) FROM ages"""
    )
    ages.older, ages.newer, ages.undated = older, newer, undated
    ages.same = dated_pairs - older - newer
    if dated_pairs and least < most:
        ages.days = edges_of(Range(False, dated_pairs, least, most))
        at = store.db.execute("SELECT days FROM ages WHERE days IS NOT NULL")
        while rows := at.fetchmany(FETCH):
            ages.days.add(np.array([r[0] for r in rows], np.float64))
    return ages


def _periods(store: Store) -> list[tuple[str, int, int]]:
    """Documents kept and dropped by month, or by year where the months are many."""
    ((months,),) = store.rows("SELECT count(DISTINCT strftime(date, '%Y-%m')) FROM dates")
    form = "%Y-%m" if months <= MOST_PERIODS else "%Y"
    return store.rows(
        f"""SELECT coalesce(strftime(date, '{form}'), 'no date'),
               count(*) FILTER (stays), count(*) FILTER (NOT stays)
        FROM dates GROUP BY 1 ORDER BY 1"""
    )
