"""A run's documents as pages of rows, found by words, rule, language, score and cluster.

Every value that a reader types is a parameter of the query; names of columns are taken only from
the files' own. One query at a time: DuckDB's connection is shared by the server's threads.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from curate.corpus.decisions import Decision
from curate.documents.rejected import REASONS, sql_rules
from curate.inspect.report.store import KEY, Store, opened
from curate.run.homes import corpus_of
from llmcurate.base.disk.database import paths_literal, quoted
from llmcurate.base.errors import UsageError

PAGE = 50
EXCERPT = 240  # characters of a text in a list
MOST_PARTNERS = 6
SEARCHES = 8  # whose counts are remembered
TITLES = ("title", "extract.title")  # columns, the first that is there


@dataclass(frozen=True)
class Query:
    """What a reader asks for; empty strings ask for nothing.

    words: text, id or URL hold them, in any case; status: kept or rejected; rule: `step.rule`;
    column, least, most: of a score; cluster: `method:number`; page: from 0.
    """

    words: str = ""
    status: str = ""
    rule: str = ""
    lang: str = ""
    column: str = ""
    least: float | None = None
    most: float | None = None
    cluster: str = ""
    page: int = 0


@dataclass(frozen=True)
class Row:
    """A document in a list. title: of its page, where that is known; score: the column that was
    asked for; position: file and row in it."""

    id: str
    title: str | None
    url: str | None
    lang: str | None
    kept: bool
    rules: tuple[str, ...]
    score: float | None
    excerpt: str
    bytes: int
    position: tuple[str, int]


@dataclass(frozen=True)
class Counts:
    """total: documents that match; status, rules, langs: how many would match with that value
    instead of the one that was asked for, everything else as asked."""

    total: int
    status: dict[str, int]
    rules: dict[str, int]
    langs: dict[str, int]


class Library:
    """The documents of one run, opened by `library`."""

    def __init__(self, out: Path, store: Store, record: dict[str, Any], report: Path) -> None:
        self.out, self.store, self.record, self.report = out, store, record, report
        self._lock = threading.Lock()
        self.columns = sorted(n for n in store.columns if "." in n) or sorted(store.columns)
        self.rules = sorted({r for s in record.get("stages", ()) for r in s.get("reasons", ())})
        self.title = next((n for n in TITLES if n in store.names), None)
        self._groups: dict[Query, list[tuple[Any, ...]]] = {}  # of the latest searches
        kept, gone = paths_literal(store.kept), paths_literal(store.gone)
        parts = []
        for files, status in ((kept, True), (gone, False)):
            named = "filename = 'file_', file_row_number = true, union_by_name = true"
            reasons = "NULL" if status else REASONS
            title = f"{self._held(self.title, status)}::VARCHAR" if self.title else "NULL"
            scores = "".join(f", {self._held(n, status)} AS {quoted(n)}" for n in self.columns)
            parts.append(
                f"SELECT id, text, url, lang, {title} AS title_, {status} AS kept_, file_,"
                f" file_row_number AS row_, {reasons} AS reasons_{scores}"
                f" FROM read_parquet({files}, {named})"
            )
        store.db.execute(f"CREATE VIEW all_rows AS {' UNION ALL '.join(parts)}")

    def _held(self, column: str, kept: bool) -> str:
        import pyarrow.parquet as pq

        paths = self.store.kept if kept else self.store.gone
        names = {n for p in (paths[0], paths[-1]) for n in pq.read_schema(p).names}
        return quoted(column) if column in names else "NULL::DOUBLE"

    def rows(self, sql: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
        """The result of a query, none beside it."""
        with self._lock:
            return self.store.rows(sql, values)

    def find(self, query: Query) -> tuple[list[Row], bool]:
        """(a page of documents in the order of the run, kept ones first; whether more follow).
        UsageError where the query names what is not there."""
        where, values = self._where(query)
        score = quoted(query.column) if query.column else "NULL"
        return self._listed(
            f"""SELECT *, {score} AS score_ FROM all_rows WHERE {where}
            ORDER BY NOT kept_, file_, row_ LIMIT {PAGE + 1} OFFSET ?""",
            [*values, query.page * PAGE],
            query.page,
        )

    def _listed(self, sql: str, values: list[Any], page: int) -> tuple[list[Row], bool]:
        matches = self.rows(
            f"""SELECT id, title_, url, lang, kept_, {sql_rules("reasons_")},
            score_::DOUBLE, left(coalesce(text, ''), {EXCERPT}), coalesce(strlen(text), 0),
            file_, row_ FROM ({sql}) ORDER BY NOT kept_, file_, row_""",
            values,
        )
        rows = [
            Row(i or "", h, u, g, k, tuple(dict.fromkeys(r or ())), s, t, n, (f, at))
            for i, h, u, g, k, r, s, t, n, f, at in matches[:PAGE]
        ]
        return rows, len(matches) > PAGE

    def counts(self, query: Query) -> Counts:
        """How many documents match, and how many would with other choices. One pass over all
        documents, whose result the next pages of the same search use too."""
        base = replace(query, status="", rule="", lang="", page=0)
        if base not in self._groups:
            where, values = self._where(base)
            self._groups = dict([*self._groups.items()][-SEARCHES:]) | {
                base: self.rows(
                    f"""SELECT kept_, lang, rules, count(*) FROM (
                      SELECT kept_, coalesce(lang, '') AS lang,
                        list_sort(list_distinct(coalesce({sql_rules("reasons_")}, []))) AS rules
                      FROM all_rows WHERE {where}) GROUP BY ALL ORDER BY ALL""",
                    values,
                )
            }
        counts = Counts(0, {"kept": 0, "rejected": 0}, {}, {})
        total = 0
        for kept, lang, rules, number in self._groups[base]:
            status = "kept" if kept else "rejected"
            fits = (
                query.status in ("", status),
                not query.rule or query.rule in rules,
                query.lang in ("", lang),
            )
            total += number if all(fits) else 0
            if fits[1] and fits[2]:
                counts.status[status] += number
            if fits[0] and fits[2]:
                for rule in rules:
                    counts.rules[rule] = counts.rules.get(rule, 0) + number
            if fits[0] and fits[1] and lang:
                counts.langs[lang] = counts.langs.get(lang, 0) + number
        return replace(counts, total=total)

    def _where(self, query: Query) -> tuple[str, list[Any]]:
        conditions: list[str] = ["true"]
        values: list[Any] = []
        if query.words:
            held = [f"contains(lower(coalesce({n}, '')), lower(?))" for n in ("text", "id", "url")]
            conditions.append(f"({' OR '.join(held)})")
            values += [query.words] * 3
        if query.status:
            if query.status not in ("kept", "rejected"):
                raise UsageError(f"status {query.status!r}: choose kept or rejected")
            conditions.append("kept_" if query.status == "kept" else "NOT kept_")
        if query.rule:
            conditions.append(f"list_contains({sql_rules('reasons_')}, ?)")
            values.append(query.rule)
        if query.lang:
            conditions.append("lang = ?")
            values.append(query.lang)
        if query.column:
            if query.column not in self.columns:
                raise UsageError(f"no score {query.column!r} in this run")
            conditions.append(f"{quoted(query.column)} IS NOT NULL")
            for sign, limit in ((">=", query.least), ("<=", query.most)):
                if limit is not None:
                    conditions.append(f"{quoted(query.column)} {sign} ?")
                    values.append(limit)
        if query.cluster:
            conditions.append("id IN (SELECT id FROM decisions WHERE method = ? AND cluster = ?)")
            values += self._cluster(query.cluster)
        return " AND ".join(conditions), values

    def _cluster(self, cluster: str) -> list[Any]:
        method, _, number = cluster.rpartition(":")
        if not self.store.has_decisions:
            raise UsageError("this run has no clusters: it had no dedup")
        if not method or not number.isascii() or not number.isdigit() or len(number) > 18:
            raise UsageError(f"cluster {cluster!r}: write method:number, as in minhash:12")
        return [method, int(number)]

    def position(self, name: str) -> tuple[str, int] | None:
        """Return where the document with that id stands."""
        matches = self.rows("SELECT file_, row_ FROM all_rows WHERE id = ? LIMIT 1", [name])
        return (matches[0][0], matches[0][1]) if matches else None

    def decisions(self, name: str) -> list[Decision]:
        """The decisions on a document, whole ones first."""
        if not self.store.has_decisions:
            return []
        rows = self.rows(
            """SELECT id, cluster, kept_id, partner_id, similarity, method, span_start, span_end,
            partner_corpus FROM decisions WHERE id = ?
            ORDER BY span_start NULLS FIRST, method, cluster LIMIT 200""",
            [name],
        )
        return [Decision(*row) for row in rows]

    def members(self, method: str, cluster: int, beside: str) -> list[str]:
        """Other documents of a cluster, the first by a hash of their ids."""
        rows = self.rows(
            f"""SELECT DISTINCT id, {KEY} FROM decisions WHERE method = ? AND cluster = ?
            AND id <> ? ORDER BY {KEY}, id LIMIT {MOST_PARTNERS}""",
            [method, cluster, beside],
        )
        return [i for i, _ in rows]

    def sample(self, each: int) -> dict[str, list[Row]]:
        """Of the kept documents and of each rule's, those with the least hashes of their ids: the
        same in every call and for every order of the input."""
        shares = {"kept": ("kept_", [])} | {
            rule: (
                f"list_contains({sql_rules('reasons_')}, ?)",
                [rule],
            )
            for rule in self.rules
        }
        return {
            name: self._listed(
                f"""SELECT *, NULL AS score_ FROM all_rows WHERE {where}
                ORDER BY {KEY}, id LIMIT {min(each, PAGE)}""",
                values,
                0,
            )[0]
            for name, (where, values) in shares.items()
        }


@contextmanager
def library(out: Path) -> Iterator[Library]:
    """A finished run. UsageError where OUT is none."""
    try:
        corpus = corpus_of(out)
        record = corpus.record()
    except (OSError, ValueError):
        raise UsageError(f"{out} holds no finished run: name the OUT of one") from None
    with opened(out, ".spill-browse") as store:
        if store is None:
            raise UsageError(
                f"{out} holds no corpus/ and rejected/: name the OUT of a run of filters"
            )
        yield Library(out, store, record, corpus.run / "report.html")
