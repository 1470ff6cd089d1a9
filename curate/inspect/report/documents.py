"""Comparison of kept and dropped documents: lengths, languages, domains, dates, opt-outs.

For lengths, the texts are read. They are most of a corpus, so a large corpus is sampled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.documents.rejected import REASONS, sql_reasons
from curate.inspect.report.store import (
    KEY,
    KEY_MOST,
    FilesTask,
    Histogram,
    Range,
    Store,
    edges_of,
    read_rows,
)
from curate.text.languages import ENGLISH, Chosen, comparable
from llmcurate.base.disk.database import literal
from llmcurate.base.disk.process import in_order
from llmcurate.base.disk.units import counted
from llmcurate.base.messages import Message

MOST_LABELS = 20
MOST_BYTES = 256 << 20  # of text, read to measure lengths
ROW_BYTES = 64  # bytes per row besides its text
# Common second levels of country domains, as in bbc.co.uk. The list is not complete.
SECOND = "ac|co|com|edu|go|gob|gouv|gov|gub|mil|ne|net|nom|or|org|sch"
HOST = r"^[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#@]*@)?(?P<host>\[[^\]/]*\]|[^:/?#]+)"
_DOMAIN = rf"([^.]+\.(?:(?:{SECOND})\.[a-z][a-z]|[^.]+))$"
_NUMERIC_HOST = r"^[0-9.]+$|^\["


class Sides(NamedTuple):
    kept: int
    rejected: int


class Medians(NamedTuple):
    """Medians over kept documents and over rejected documents. A median of no documents is None."""

    kept: float | None
    rejected: float | None


Counts = dict[str, Sides]  # by label


def sql_domain(host: str) -> str:
    """Return an SQL expression for the registered domain; `host` is SQL for a lower-case host."""
    return (
        f"CASE WHEN regexp_matches({host}, '{_NUMERIC_HOST}') OR NOT contains({host}, '.')"
        f" THEN {host} ELSE regexp_extract({host}, '{_DOMAIN}', 1) END"
    )


@dataclass
class Lengths:
    """Lengths of texts in characters, measured in every `one_in`th row group of the files."""

    JSON = ("one_in", "median=medians", "histogram")
    one_in: int
    all: Histogram  # of kept and dropped documents
    gone: Histogram  # of dropped documents
    medians: Medians

    @property
    def histogram(self) -> Histogram:
        return self.all.marking(self.gone)


UNLABELLED = "(none)"  # of documents without a language


@dataclass
class Kept:
    """Document counts of the most frequent languages and domains, and text lengths."""

    lengths: Lengths | None = None
    languages: Counts = field(default_factory=dict)
    domains: Counts = field(default_factory=dict)
    other_domains: int = 0

    @property
    def main_language(self) -> str | None:
        labels = [label for label in self.languages if label != UNLABELLED]
        return max(labels, key=lambda label: self.languages[label][0], default=None)


def gather(store: Store) -> Kept:
    domains, others = count_domains(store)
    return Kept(count_lengths(store), count_languages(store), domains, others)


def count_languages(store: Store) -> Counts:
    """Count the documents of the most frequent languages; empty if no document has a language."""
    store.pieces(
        {
            "langs": """SELECT lang, sum(kept)::BIGINT AS kept, sum(gone)::BIGINT AS gone FROM (
              SELECT lang, 1 AS kept, 0 AS gone FROM kept
              UNION ALL SELECT lang, 0, 1 FROM gone) GROUP BY lang"""
        }
    )
    rows = store.rows(
        f"""SELECT lang, sum(kept)::BIGINT, sum(gone)::BIGINT FROM langs
        GROUP BY lang ORDER BY sum(kept + gone) DESC, lang LIMIT {MOST_LABELS}"""
    )
    if all(lang is None for lang, _, _ in rows):
        return {}
    return {UNLABELLED if lang is None else lang: Sides(kept, gone) for lang, kept, gone in rows}


def count_domains(store: Store) -> tuple[Counts, int]:
    """Return (document counts of the most frequent registered domains, number of other domains)."""
    if "url" not in store.names:
        return {}, 0
    parts = " UNION ALL ".join(
        f"SELECT lower(regexp_extract(url, '{HOST}', 1)) AS host, {kept} AS stays"
        f" FROM {view} WHERE url IS NOT NULL"
        for view, kept in (("kept", True), ("gone", False))
    )
    store.pieces(
        {
            "domains": f"""SELECT md5_number_lower(domain) AS key, domain,
              count(*) FILTER (stays) AS kept, count(*) FILTER (NOT stays) AS gone
            FROM (SELECT {sql_domain("host")} AS domain, stays FROM ({parts}) WHERE host <> '')
            GROUP BY domain"""
        },
        # `many` is the number of domains whose keys lie in the range that begins at `least`
        {
            "domains": f"""SELECT domain, sum(kept)::BIGINT AS kept, sum(gone)::BIGINT AS gone,
              count(*) OVER () AS many, min(min(key)) OVER () AS least
            FROM {{piece}} p GROUP BY domain ORDER BY sum(p.kept + p.gone) DESC, domain
            LIMIT {MOST_LABELS}"""
        },
    )
    ((many,),) = store.rows(
        "SELECT coalesce(sum(many), 0)::BIGINT FROM (SELECT DISTINCT least, many FROM domains)"
    )
    rows = store.rows(
        f"""SELECT domain, kept, gone FROM domains ORDER BY kept + gone DESC, domain
        LIMIT {MOST_LABELS}"""
    )
    return {domain: Sides(kept, gone) for domain, kept, gone in rows}, many - len(rows)


def count_lengths(store: Store, most_bytes: int = MOST_BYTES) -> Lengths | None:
    """Return text lengths, or None if there are no texts. At most about `most_bytes` of text are
    read."""
    tasks = store.tasks(FilesTask)
    done = sorted(store.map(f"{__name__}:group_sizes", tasks, Texts), key=lambda d: d[0].part)
    total = sum(sum(sizes.kept) + sum(sizes.gone) for _, sizes in done)
    one_in = -(-total // most_bytes) or 1
    before = [0, 0]  # row groups in earlier groups of files: kept, rejected
    each = []
    for task, sizes in done:
        skip = [-count % one_in for count in before]
        each.append(LengthsTask(**vars(task), skip=skip, one_in=one_in))
        before = [before[0] + len(sizes.kept), before[1] + len(sizes.gone)]
    texts: dict[str, list[np.ndarray]] = {kind: [_NONE] for kind in KINDS}
    for _, found in store.map(f"{__name__}:group_lengths", each, Texts):
        texts["kept"].append(np.array(found.kept, np.float64))
        texts["gone"].append(np.array(found.gone, np.float64))
    values = [np.concatenate(texts[kind]) for kind in KINDS]
    lengths = np.concatenate(values)
    if not len(lengths):
        return None
    span = Range(True)
    span.add(lengths)
    counted = edges_of(span)
    gone = Histogram(counted.edges, counted.scale)
    counted.add(lengths)
    gone.add(values[1])
    kept_median, gone_median = (float(np.median(v)) if len(v) else None for v in values)
    return Lengths(one_in, counted, gone, Medians(kept_median, gone_median))


_NONE = np.zeros(0, np.float64)
KINDS = ("kept", "gone")


@dataclass(frozen=True)
class Texts(Message):
    """Sizes of kept and of rejected documents: the bytes of each row group (`group_sizes`), or the
    characters of each text (`group_lengths`)."""

    kept: list[int]
    gone: list[int]


def group_sizes(task: FilesTask) -> Texts:
    """Return the number of bytes to read for the texts of each row group."""
    kept, gone = ([size for _, _, size in _row_groups(p)] for p in (task.kept, task.gone))
    return Texts(kept, gone)


@dataclass(frozen=True)
class LengthsTask(FilesTask):
    """A task to measure the texts of every `one_in`th row group in its files. `skip` is the number
    of row groups before the first measured one, for [kept, rejected] documents."""

    skip: list[int]
    one_in: int


def group_lengths(task: LengthsTask) -> Texts:
    lengths = []
    for skip, paths in zip(task.skip, (task.kept, task.gone), strict=True):
        places = [(path, group) for path, group, _ in _row_groups(paths)]
        values = [*in_order(_lengths, places[skip :: task.one_in], task.threads), _NONE]
        lengths.append(np.concatenate(values).astype(np.int64).tolist())
    return Texts(*lengths)


def _row_groups(paths: Iterable[Path]) -> Iterator[tuple[Path, int, int]]:
    for path in paths:
        metadata = pq.read_metadata(path)
        column = metadata.schema.names.index("text")
        for group in range(metadata.num_row_groups):
            rows = metadata.row_group(group)
            size = rows.column(column).total_uncompressed_size
            yield path, group, size + ROW_BYTES * rows.num_rows


def _lengths(place: tuple[Path, int]) -> np.ndarray:
    path, group = place
    with pq.ParquetFile(path) as file:
        texts = file.read_row_group(group, columns=["text"], use_threads=False)["text"]
    return pc.utf8_length(texts.drop_null()).to_numpy().astype(np.float64)


# Languages: a rule made for one language may drop another entirely; the end of the run reports
# this. Dialects, learners' English, social media and mixed languages get middling scores, so
# what a threshold drops there is worth reading (Blodgett et al. 2016, "Demographic Dialectal
# Variation in Social Media", on African-American English that is classified as not English).
MOST_OF = 0.5  # share of a language's documents; a rule that drops more is reported
FEWEST = 50  # documents of a language, below which its share says little
ASKED = "language.language"  # the rule that drops languages on purpose
RULE = "language_score"
LEAST = 0.3  # language score below which a text is often in no language at all
MOST_LANGS = 20
SHOWN_LANGS = 8  # with examples
EACH = 3
CHARS = 420
CANDIDATES = 40  # documents considered per language, to find EACH examples


def lost(
    store: Store, steps: Sequence[str], judged: Mapping[str, Chosen] = MappingProxyType({})
) -> list[str]:
    """Return warnings about rules that drop most documents of a language, and about languages
    without limits of their own.

    A rule gets a warning if it drops more than half of a language's documents that reach its step.
    One more warning lists languages judged by the limits of English. `steps` are labels in the
    order of the run; `judged` maps a step's label to its limits by language.
    """
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
    reached: dict[str, dict[int, int]] = {}
    for lang, at, n in store.rows("SELECT lang, place, sum(n)::BIGINT FROM reached GROUP BY ALL"):
        if lang is not None and at is not None:
            reached.setdefault(lang, {})[at] = n
    marked = store.rows(
        """SELECT lang, name, place, sum(n)::BIGINT AS documents FROM marked GROUP BY ALL
        ORDER BY documents DESC, name, lang"""
    )
    lines = []
    for lang, name, at, n in marked:
        of = sum(
            many for place_of, many in reached[lang].items() if at is not None and place_of >= at
        )
        if of >= FEWEST and n > MOST_OF * of and not name.startswith(ASKED):
            many = f"{n:,} of {of:,} documents in {lang}"
            lines.append(f"{name} drops {many}: its limit may not fit the language")
    without: list[tuple[int, str]] = []
    for lang, counts in reached.items():
        places = [i for i, s in enumerate(steps) if s in judged and judged[s].of(lang) is None]
        if seen := sum(n for at, n in counts.items() if at >= min(places, default=len(steps) + 1)):
            without.append((-seen, lang))
    unknown = [(x, -count) for count, x in sorted(without) if comparable(x) != ENGLISH]
    if unknown:
        named = ", ".join(f"{x} ({counted(n, 'document')})" for x, n in unknown[:MOST_LANGS])
        more = len(unknown) - MOST_LANGS
        named += f" and {counted(more, 'more label')}" if more > 0 else ""
        lines.append(f"no language profile, so the limits of English were used: {named}")
    return lines


def replaced(store: Store) -> list[str]:
    """Return one line on the documents with bytes that are invalid in their encoding, or no
    line."""
    if "extract.replaced" not in store.names:
        return []
    each = """SELECT count(*) AS documents, sum("extract.replaced")::BIGINT AS characters
        FROM (SELECT "extract.replaced" FROM kept UNION ALL SELECT "extract.replaced" FROM gone)
        WHERE "extract.replaced" > 0"""
    store.pieces({"replaced": each})
    ((documents, characters),) = store.rows(
        "SELECT sum(documents)::BIGINT, sum(characters)::BIGINT FROM replaced"
    )
    if not documents:
        return []
    signs = f"{counted(characters, 'replacement character')} (U+FFFD)"
    where = "for bytes that are invalid in their encoding (extract.replaced)"
    return [f"{counted(documents, 'document')} with {signs} {where}"]


UNSURE = f"""SELECT id, coalesce(lang, '') AS lang, value AS score, alone
    FROM ({sql_reasons("gone", f"id, lang, len({REASONS}) = 1 AS alone")})
    WHERE rule = '{RULE}' AND value >= {LEAST} AND value < threshold"""


@dataclass
class Unsure:
    """Documents of one language that were dropped although their language score is at least
    LEAST."""

    JSON = ("dropped", "alone")
    lang: str
    dropped: int
    alone: int  # number of them that break no other rule
    examples: list[tuple[str, float, str]] = field(default_factory=list)  # (id, score, text)


def unsure_languages(store: Store) -> dict[str, Unsure]:
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
    return rows


def _choose(store: Store, asked: list[Unsure], rows: dict[str, Unsure]) -> None:
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


# Freshness. The effective cut-off of a source is the newest month with at least a tenth of the
# documents of its fullest month, so a few late or wrongly dated pages do not move it. Cheng et al.
# 2024 (Dated Data: Tracing Knowledge Cutoffs in Large Language Models) measure models, whose
# cut-off may lie long before the newest document. The tenth is our choice.
# SQL for the documents of a group of files by month.
MONTHS = """SELECT month, count(*) FILTER (stays) AS kept, count(*) FILTER (NOT stays) AS gone
  FROM (
  SELECT strftime(date, '%Y-%m') AS month, TRUE AS stays FROM kept
  UNION ALL SELECT strftime(date, '%Y-%m'), FALSE FROM gone) GROUP BY month"""
SUBSTANTIAL = 0.1  # share of the documents of the fullest month
MOST_SOURCES = 20
MOST_AGENTS = 8
MOST_MONTHS = 36  # longer times are shown by year


def sql_period(month: str, by_month: bool) -> str:
    period = month if by_month else f"split_part({month}, '-', 1)"
    return f"coalesce({period}, 'no date')"


@dataclass
class Source:
    """The age of the documents of one source. Days are written as 2024-05-18."""

    name: str | None  # None for all sources together
    documents: int  # number of documents
    dated: int  # number of documents with a date
    oldest: str | None
    median: str | None
    newest: str | None
    cutoff: str | None  # the newest month with many documents, such as 2024-05
    urls: int  # number of distinct URLs
    versions: int  # number of documents beyond the first of each URL


@dataclass
class OptOuts:
    """Documents that the step opt_out dropped. `periods` has (period, documents read, dropped); a
    period is a month, a year or `no date`. A key of `agents` is a crawler's name in the opt-out,
    `*` for all crawlers, or the rule's name for rules of other kinds."""

    periods: list[tuple[str, int, int]] = field(default_factory=list)
    agents: dict[str, dict[str, int]] = field(default_factory=dict)  # agent -> {period: documents}


# SQL for documents by source and day, and by source and URL. {docs} is a view of documents.
DAYS = "SELECT source, date::DATE AS day, count(*) AS n FROM {docs} GROUP BY ALL"
URLS = """SELECT md5_number_lower(url) AS key, source, count(*) AS n FROM {docs}
    WHERE url IS NOT NULL GROUP BY ALL"""
# Distinct URLs by source and over all sources, from the rows of URLS.
VERSIONS = """WITH pages AS (
        SELECT source, grouping(source) AS all_of_them, sum(n) AS n FROM {piece}
        GROUP BY GROUPING SETS ((source, key), (key)))
    SELECT source, all_of_them, count(*) AS urls, sum(n - 1)::BIGINT AS versions
    FROM pages GROUP BY ALL"""


def by_source(db: Any, relation: str) -> list[Source]:
    """Return how recent all documents are, then the same for each of the largest sources. The list
    is empty if no document has a date and no URL has several versions. `relation` is SQL for a
    table with the columns date, source and url."""
    urls = VERSIONS.replace("{piece}", f"({URLS.format(docs=relation)})")
    for name, sql in (("days", DAYS.format(docs=relation)), ("versions", urls)):
        db.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")
    return _by_source(db)


def _by_source(db: Any) -> list[Source]:
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
    # A single source equals the total.
    return sources[:1] if len(sources) == 2 else sources


def freshness_of(store: Store) -> list[Source]:
    if not {"date", "source", "url"} <= store.names:
        return []
    store.pieces(
        {"days": DAYS.format(docs="kept"), "versions": URLS.format(docs="kept")},
        {"versions": VERSIONS},
    )
    return _by_source(store.db)


def opt_outs(store: Store) -> OptOuts | None:
    """Return what the step opt_out dropped, or None if it dropped nothing."""
    if "date" not in store.names:
        return None
    # Details are `AGENT: RULE` if a rule names an agent (opt_out.py); `robots` means all.
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
