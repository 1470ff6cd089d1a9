"""The freshness of a corpus: ages, effective cut-off and versions by source; opt-outs by month; the
ages of copies that a dedup by date removed.

The effective cut-off of a source is the newest month that has at least a tenth of the documents of
its fullest month, so that a few late or wrongly dated pages do not move it. It states of documents
what Cheng et al. 2024 (Dated Data: Tracing Knowledge Cutoffs in Large Language Models) measure of a
model: the date that most of what was learned of a source is of, which may lie long before the
newest document. The tenth is ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from curate.inspect.report.bins import Histogram, Range, edges_of
from curate.inspect.report.store import Store
from curate.inspect.results import OPTIONAL

FETCH = 100_000
# Documents by month, a query over a group.
MONTHS = """SELECT month, count(*) FILTER (stays) AS kept, count(*) FILTER (NOT stays) AS gone
  FROM (
  SELECT strftime(date, '%Y-%m') AS month, TRUE AS stays FROM kept
  UNION ALL SELECT strftime(date, '%Y-%m'), FALSE FROM gone) GROUP BY month"""
SUBSTANTIAL = 0.1  # of the fullest month
MOST_SOURCES = 20
MOST_AGENTS = 8
MOST_MONTHS = 36  # a longer time is shown by years


def sql_period(month: str, by_month: bool) -> str:
    """The month, or its year."""
    period = month if by_month else f"split_part({month}, '-', 1)"
    return f"coalesce({period}, 'no date')"


@dataclass
class Source:
    """Freshness of one source (None: all). oldest, median, newest: days, as 2024-05-18; cutoff: a
    month; urls: distinct ones; versions: documents beyond the first of their URL."""

    name: str | None
    documents: int
    dated: int
    oldest: str | None
    median: str | None
    newest: str | None
    cutoff: str | None
    urls: int
    versions: int


@dataclass
class OptOuts:
    """Documents that opt_out marked, by month or year (`no date` for those without), and by whom:
    the agent that a rule names, `*` for all of them, else the rule. periods: (when, read, marked);
    agents: by whom -> when -> documents, those with the most."""

    periods: list[tuple[str, int, int]] = field(default_factory=list)
    agents: dict[str, dict[str, int]] = field(default_factory=dict)


# Documents by source and day, and by source and URL, as queries over documents of kind {docs}.
DAYS = "SELECT source, date::DATE AS day, count(*) AS n FROM {docs} GROUP BY ALL"
URLS = """SELECT md5_number_lower(url) AS key, source, count(*) AS n FROM {docs}
    WHERE url IS NOT NULL GROUP BY ALL"""
# Distinct URLs by source and of all sources, of what URLS counted.
VERSIONS = """WITH pages AS (
        SELECT source, grouping(source) AS all_of_them, sum(n) AS n FROM {piece}
        GROUP BY GROUPING SETS ((source, key), (key)))
    SELECT source, all_of_them, count(*) AS urls, sum(n - 1)::BIGINT AS versions
    FROM pages GROUP BY ALL"""


def by_source(db: Any, relation: str) -> list[Source]:
    """Freshness of all, then of the sources with the most documents. relation: SQL with the columns
    date, source and url; empty where no document has a date and no URL has versions."""
    urls = VERSIONS.replace("{piece}", f"({URLS.format(docs=relation)})")
    for name, sql in (("days", DAYS.format(docs=relation)), ("versions", urls)):
        db.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")
    return _by_source(db)


def _by_source(db: Any) -> list[Source]:
    """The same of the tables `days` and `versions`."""
    rows = db.execute(
        f"""WITH counted AS (
            SELECT source, grouping(source) AS all_of_them, day, sum(n)::BIGINT AS n
            FROM days GROUP BY GROUPING SETS ((source, day), (day))),
        dated AS (
            SELECT *, sum(n) OVER (PARTITION BY source, all_of_them ORDER BY day) AS until,
                   sum(n) OVER (PARTITION BY source, all_of_them) AS total
            FROM counted WHERE day IS NOT NULL),
        whole AS (
            SELECT source, all_of_them, sum(n)::BIGINT AS documents,
                   coalesce(sum(n) FILTER (day IS NOT NULL), 0)::BIGINT AS dated,
                   min(day) AS oldest, max(day) AS newest
            FROM counted GROUP BY source, all_of_them),
        medians AS (
            SELECT source, all_of_them, min(day) AS median FROM dated
            WHERE 2 * until >= total GROUP BY source, all_of_them),
        months AS (
            SELECT source, all_of_them, strftime(day, '%Y-%m') AS month, sum(n) AS n
            FROM dated GROUP BY ALL),
        fullest AS (
            SELECT source, all_of_them, max(n) AS n FROM months GROUP BY source, all_of_them),
        cutoffs AS (
            SELECT m.source, m.all_of_them, max(m.month) AS cutoff FROM months m JOIN fullest f
            ON m.source IS NOT DISTINCT FROM f.source AND m.all_of_them = f.all_of_them
            WHERE m.n >= {SUBSTANTIAL} * f.n GROUP BY m.source, m.all_of_them),
        pages AS (
            SELECT source, all_of_them, sum(urls)::BIGINT AS urls,
                   sum(versions)::BIGINT AS versions
            FROM versions GROUP BY source, all_of_them)
        SELECT CASE WHEN w.all_of_them = 1 THEN NULL ELSE coalesce(w.source, '(none)') END,
               documents, dated, strftime(oldest, '%Y-%m-%d'), strftime(median, '%Y-%m-%d'),
               strftime(newest, '%Y-%m-%d'), cutoff, coalesce(urls, 0), coalesce(versions, 0)
        FROM whole w
        LEFT JOIN medians d
        ON w.source IS NOT DISTINCT FROM d.source AND w.all_of_them = d.all_of_them
        LEFT JOIN cutoffs c
        ON w.source IS NOT DISTINCT FROM c.source AND w.all_of_them = c.all_of_them
        LEFT JOIN pages p
        ON w.source IS NOT DISTINCT FROM p.source AND w.all_of_them = p.all_of_them
        ORDER BY w.all_of_them DESC, documents DESC, w.source LIMIT {MOST_SOURCES + 1}"""
    ).fetchall()
    sources = [Source(*row) for row in rows]
    if not sources or not (sources[0].dated or sources[0].versions):
        return []
    # One source is all.
    return sources[:1] if len(sources) == 2 else sources


def of_corpus(store: Store) -> list[Source]:
    """Freshness of what a run kept."""
    if not {"date", "source", "url"} <= store.names:
        return []
    store.pieces(
        {"days": DAYS.format(docs="kept"), "versions": URLS.format(docs="kept")},
        {"versions": VERSIONS},
    )
    return _by_source(store.db)


def opt_outs(store: Store) -> OptOuts | None:
    """What opt_out marked; None where no document was marked."""
    if "date" not in store.names:
        return None
    # Details are `AGENT: RULE` where a rule names one (opt_out.py); `robots` names all.
    agent = """CASE WHEN rule NOT IN ('robots_txt', 'ai_txt', 'x_robots_tag', 'meta_robots')
        THEN rule WHEN contains(detail, ': ') AND split_part(detail, ': ', 1) <> 'robots'
        THEN lower(split_part(detail, ': ', 1)) ELSE '*' END"""
    marks = f"""SELECT strftime(date, '%Y-%m') AS month, {agent} AS agent, id FROM (
        SELECT date, id, reason.rule AS rule, reason.detail AS detail
        FROM (SELECT date, id, unnest(reasons) AS reason FROM gone)
        WHERE regexp_matches(reason.step, '^opt_out(#[0-9]+)?$'))"""
    store.pieces(
        {
            "opted_out": f"""SELECT month, agent, grouping(agent) AS all_of_them,
                count(DISTINCT id) AS n FROM ({marks})
                GROUP BY GROUPING SETS ((month, agent), (month))"""
        }
    )
    ((marked, months),) = store.rows("SELECT count(*), count(DISTINCT month) FROM opted_out")
    if not marked:
        return None
    store.pieces({"months": MONTHS})
    when = sql_period("month", months <= MOST_MONTHS)
    periods = store.rows(
        f"""SELECT p, n, coalesce(m, 0) FROM (
            SELECT {when} AS p, sum(kept + gone)::BIGINT AS n FROM months GROUP BY 1)
        LEFT JOIN (SELECT {when} AS q, sum(n)::BIGINT AS m FROM opted_out
                   WHERE all_of_them = 1 GROUP BY 1) ON p = q
        ORDER BY p"""
    )
    agents: dict[str, dict[str, int]] = {}
    for name, period, documents in store.rows(
        f"""WITH named AS (SELECT agent, {when} AS p, n FROM opted_out WHERE all_of_them = 0),
        first AS (SELECT agent, sum(n) AS n FROM named GROUP BY 1
                  ORDER BY n DESC, agent LIMIT {MOST_AGENTS})
        SELECT agent, p, sum(named.n)::BIGINT FROM named JOIN first USING (agent)
        GROUP BY agent, p, first.n ORDER BY first.n DESC, agent, p"""
    ):
        agents.setdefault(name, {})[period] = documents
    return OptOuts(periods, agents)


# Stale pages (an encyclopedia's article of five years ago beside today's) are near duplicates whose
# newest version should stay; this says whether it did and by how much.


@dataclass
class Ages:
    """days: by how many days dropped copies are older than the copy that stays (negative: newer);
    undated: copies of which one has no date; periods: (month or year, kept, dropped)."""

    older: int = 0
    same: int = 0
    newer: int = 0
    undated: int = 0
    periods: list[tuple[str, int, int]] = field(default_factory=list)
    days: Histogram | None = field(default=None, metadata=OPTIONAL)


def ages_of(store: Store) -> Ages | None:
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
        f"""SELECT {sql_period("month", months <= MOST_MONTHS)} AS period,
               sum(kept)::BIGINT, sum(gone)::BIGINT FROM months GROUP BY period ORDER BY period"""
    )
