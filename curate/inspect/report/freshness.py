"""How fresh a corpus is: ages, effective cut-off and versions by source; opt-outs by month.

The effective cut-off of a source is the newest month that has at least a tenth of the documents of
its fullest month, so that a few late or wrongly dated pages do not move it. It states of documents
what Cheng et al. 2024 (Dated Data: Tracing Knowledge Cutoffs in Large Language Models) measure of a
model: the date that most of what was learned of a source is of, which may lie long before the
newest document. The tenth is ours.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from curate.disk.database import paths_literal
from curate.inspect.report.store import Store

SUBSTANTIAL = 0.1  # of the fullest month
MOST_SOURCES = 20
MOST_AGENTS = 8
MOST_MONTHS = 36  # a longer time is shown by years


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


def by_source(db: Any, relation: str) -> list[Source]:
    """Freshness of all, then of the sources with the most documents. relation: SQL with the columns
    date, source and url; empty where no document has a date and no URL has versions."""
    rows = db.execute(
        f"""WITH docs AS MATERIALIZED (
            SELECT date, source, CASE WHEN url IS NOT NULL THEN hash(url) END AS url
            FROM {relation}),
        whole AS (
            SELECT source, grouping(source) AS all_of_them, count(*) AS documents,
                   count(date) AS dated, min(date) AS oldest, quantile_disc(date, 0.5) AS median,
                   max(date) AS newest
            FROM docs GROUP BY GROUPING SETS ((source), ())),
        months AS (
            SELECT source, grouping(source) AS all_of_them, strftime(date, '%Y-%m') AS month,
                   count(*) AS n
            FROM docs WHERE date IS NOT NULL
            GROUP BY GROUPING SETS ((source, strftime(date, '%Y-%m')), (strftime(date, '%Y-%m')))),
        fullest AS (
            SELECT source, all_of_them, max(n) AS n FROM months GROUP BY source, all_of_them),
        cutoffs AS (
            SELECT m.source, m.all_of_them, max(m.month) AS cutoff FROM months m JOIN fullest f
            ON m.source IS NOT DISTINCT FROM f.source AND m.all_of_them = f.all_of_them
            WHERE m.n >= {SUBSTANTIAL} * f.n GROUP BY m.source, m.all_of_them),
        pages AS (
            SELECT source, grouping(source) AS all_of_them, count(*) AS n
            FROM docs WHERE url IS NOT NULL GROUP BY GROUPING SETS ((source, url), (url))),
        versions AS (
            SELECT source, all_of_them, count(*) AS urls, sum(n - 1)::BIGINT AS versions
            FROM pages GROUP BY source, all_of_them)
        SELECT CASE WHEN w.all_of_them = 1 THEN NULL ELSE coalesce(w.source, '(none)') END,
               documents, dated, strftime(oldest, '%Y-%m-%d'), strftime(median, '%Y-%m-%d'),
               strftime(newest, '%Y-%m-%d'), cutoff, coalesce(urls, 0), coalesce(versions, 0)
        FROM whole w
        LEFT JOIN cutoffs c
        ON w.source IS NOT DISTINCT FROM c.source AND w.all_of_them = c.all_of_them
        LEFT JOIN versions v
        ON w.source IS NOT DISTINCT FROM v.source AND w.all_of_them = v.all_of_them
        ORDER BY w.all_of_them DESC, documents DESC, w.source LIMIT {MOST_SOURCES + 1}"""
    ).fetchall()
    sources = [Source(*row) for row in rows]
    if not sources or not (sources[0].dated or sources[0].versions):
        return []
    # One source is all.
    return sources[:1] if len(sources) == 2 else sources


def dump(sources: list[Source]) -> list[dict[str, Any]]:
    """As JSON values."""
    return [asdict(source) for source in sources]


def of_corpus(store: Store) -> list[Source]:
    """Freshness of what a run kept."""
    if not {"date", "source", "url"} <= store.names:
        return []
    return by_source(store.db, f"read_parquet({paths_literal(store.kept)})")


def opt_outs(store: Store) -> OptOuts | None:
    """What opt_out marked; None where no document was marked."""
    if "date" not in store.names:
        return None
    kept, gone = (f"read_parquet({paths_literal(p)})" for p in (store.kept, store.gone))
    store.db.execute(
        f"""CREATE OR REPLACE TEMP TABLE opted_out AS
        SELECT date, id, reason.rule AS rule, reason.detail AS detail
        FROM (SELECT date, id, unnest(reasons) AS reason FROM {gone})
        WHERE regexp_matches(reason.step, '^opt_out(#[0-9]+)?$')"""
    )
    ((marked, months),) = store.rows(
        "SELECT count(*), count(DISTINCT strftime(date, '%Y-%m')) FROM opted_out"
    )
    if not marked:
        return None
    form = "%Y-%m" if months <= MOST_MONTHS else "%Y"
    when = f"coalesce(strftime(date, '{form}'), 'no date')"
    periods = store.rows(
        f"""SELECT p, sum(n)::BIGINT, coalesce(any_value(m), 0) FROM (
            SELECT {when} AS p, count(*) AS n FROM {kept} GROUP BY 1
            UNION ALL SELECT {when}, count(*) FROM {gone} GROUP BY 1)
        LEFT JOIN (SELECT {when} AS q, count(DISTINCT id) AS m FROM opted_out GROUP BY 1) ON p = q
        GROUP BY p ORDER BY p"""
    )
    # Details are `AGENT: RULE` where a rule names one (opt_out.py); `robots` names all.
    agent = """CASE WHEN rule NOT IN ('robots_txt', 'ai_txt', 'x_robots_tag', 'meta_robots')
        THEN rule WHEN contains(detail, ': ') AND split_part(detail, ': ', 1) <> 'robots'
        THEN lower(split_part(detail, ': ', 1)) ELSE '*' END"""
    agents: dict[str, dict[str, int]] = {}
    for name, period, documents in store.rows(
        f"""WITH named AS (SELECT {agent} AS agent, {when} AS p, id FROM opted_out),
        first AS (SELECT agent, count(DISTINCT id) AS n FROM named GROUP BY 1
                  ORDER BY n DESC, agent LIMIT {MOST_AGENTS})
        SELECT agent, p, count(DISTINCT id) FROM named JOIN first USING (agent)
        GROUP BY agent, p, n ORDER BY n DESC, agent, p"""
    ):
        agents.setdefault(name, {})[period] = documents
    return OptOuts(periods, agents)
