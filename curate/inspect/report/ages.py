"""The ages of copies that a dedup by date removed, and the corpus by month or year.

Stale pages (an encyclopedia's article of five years ago beside today's) are near duplicates whose
newest version should stay; this says whether it did and by how much.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from curate.inspect.report.bins import Histogram, Range, edges_of
from curate.inspect.report.store import Store

FETCH = 100_000
# Documents by month, a query over a group.
MONTHS = """SELECT month, count(*) FILTER (stays) AS kept, count(*) FILTER (NOT stays) AS gone
  FROM (
  SELECT strftime(date, '%Y-%m') AS month, TRUE AS stays FROM kept
  UNION ALL SELECT strftime(date, '%Y-%m'), FALSE FROM gone) GROUP BY month"""
MOST_PERIODS = 36  # months; a longer time is shown by years


def sql_period(month: str, by_month: bool) -> str:
    """The month, or its year."""
    period = month if by_month else f"split_part({month}, '-', 1)"
    return f"coalesce({period}, 'no date')"


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
    store.pieces({"months": MONTHS})
    ((dated,),) = store.rows("SELECT count(month) FROM months")
    if not dated:
        return None
    ages = Ages(periods=_periods(store))
    in_decisions = "id IN (SELECT id FROM decisions UNION ALL SELECT kept_id FROM decisions)"
    store.pieces(
        {
            "dates": f"""SELECT id, date FROM kept WHERE {in_decisions}
            UNION ALL SELECT id, date FROM gone WHERE {in_decisions}"""
        },
        decided=True,
    )
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
    ((months,),) = store.rows("SELECT count(DISTINCT month) FROM months")
    return store.rows(
        f"""SELECT {sql_period("month", months <= MOST_PERIODS)} AS period,
               sum(kept)::BIGINT, sum(gone)::BIGINT FROM months GROUP BY period ORDER BY period"""
    )
